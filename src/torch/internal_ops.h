// Operators of this library's own, which C++ kernels of PyTorch's operators are made of. Each is a rule of the core.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>

namespace torchtpu {

// internal_op<Tensor(const Tensor &)>("torchtpu::name"); keep it in a static.
template <class Function>
c10::TypedOperatorHandle<Function> internal_op(const char *name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<Function>();
}

}  // namespace torchtpu
