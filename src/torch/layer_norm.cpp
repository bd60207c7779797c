// aten::layer_norm as one program with one result, where nobody asks for more. PyTorch composes it of
// native_layer_norm, which gives the statistics for a backward pass, too.
#include <ATen/ops/layer_norm_native.h>
#include <torch/library.h>

#include "direct.h"

namespace torchtpu {
namespace {

using at::Tensor;
using OptionalTensor = std::optional<Tensor>;

// Nothing but autograd's own keys between the call and the device: no mode that traces, no transform, no subclass, and
// no operand that is elsewhere.
bool is_plain_call(c10::DispatchKeySet keys) {
  constexpr c10::DispatchKeySet kPlain(
      {c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1, c10::DispatchKey::ADInplaceOrView});
  return !(keys.raw_repr() & ~kPlain.raw_repr());
}

// Whether autograd, backward or forward, has to know what is done with the tensor.
bool is_differentiated(const Tensor &tensor) {
  if (C10_LIKELY(!tensor.unsafeGetTensorImpl()->autograd_meta())) {
    return false;
  }
  return (tensor.requires_grad() && c10::GradMode::is_enabled()) || tensor._fw_grad(0).defined();
}

const Kernel &kernel() {
  static const Kernel &kernel =
      *Kernel::create("torchtpu::layer_norm", c10::Dispatcher::singleton().findSchemaOrThrow("aten::layer_norm", ""))
           .release();
  return kernel;
}

Tensor layer_norm(c10::DispatchKeySet keys, const Tensor &input, c10::SymIntArrayRef shape,
                  const OptionalTensor &weight, const OptionalTensor &bias, double eps, bool cudnn) {
  const auto sizes = c10::asIntArrayRefSlowOpt(shape);
  if (!sizes || !is_plain_call(keys) || is_differentiated(input) || (weight && is_differentiated(*weight)) ||
      (bias && is_differentiated(*bias))) {
    return at::native::layer_norm_symint(input, shape, weight, bias, eps, cudnn);
  }
  DirectCall<6> call(kernel());
  call.tensor(0, input);
  call.integers(1, *sizes);
  call.optional_tensor(2, weight);
  call.optional_tensor(3, bias);
  call.number(4, {.type = TT_F64, .u = {.f = {eps, 0}}});
  call.ignore(5);
  return call.run();
}

// Not for PrivateUse1, where inference mode looks: what traces takes an operator with a kernel of the device for one
// that is not made of others.
TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) { m.impl("layer_norm", TORCH_FN(layer_norm)); }

}  // namespace
}  // namespace torchtpu
