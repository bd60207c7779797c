// Operators that exist for the Python package, which has no other way to a C++ object of PyTorch.
#include <ATen/core/Generator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/library.h>

#include "shim.h"

namespace {

// PyTorch infers an optional for a returned generator, so the schema says so.
at::Generator default_generator(int64_t device) {
  // Not through at::globalContext(), which would create the client.
  return at::detail::getPrivateUse1Hooks().getDefaultGenerator(static_cast<c10::DeviceIndex>(device));
}

// Whether the tensor's value is recorded and not launched yet.
bool is_deferred(const at::Tensor &self) {
  TORCH_CHECK_TYPE(self.device().type() == torchtpu::kTpu, "is_deferred(): expected a tpu tensor, got one on ",
                   self.device());
  return tt_storage_is_deferred(torchtpu::storage_of(self));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torchtpu, library) {
  library.def("default_generator(int device) -> Generator?", &default_generator);
  library.def("is_deferred(Tensor self) -> bool", &is_deferred);
}
