// Nested tensors of layout strided are a class of their own in PyTorch, with kernels for the CPU and for CUDA. The
// device has none: it refuses to make them. Those of layout jagged are made of ordinary tensors.
#include <ATen/NestedTensorImpl.h>
#include <torch/library.h>

#include "shim.h"

namespace torchtpu {
namespace {

using at::Tensor;

[[noreturn]] void refuse(const std::string &name) {
  TORCH_CHECK_NOT_IMPLEMENTED(false, name,
                              ": device tpu has no nested tensors of layout torch.strided; use layout=torch.jagged, or "
                              "a padded tensor and a mask");
}

Tensor from_list(at::TensorList, std::optional<c10::ScalarType>, std::optional<c10::Layout>, std::optional<c10::Device>,
                 std::optional<bool>) {
  refuse("_nested_tensor_from_tensor_list");
}
Tensor from_mask(const Tensor &, const Tensor &, bool) { refuse("_nested_tensor_from_mask"); }
Tensor from_padded(const Tensor &, const Tensor &, bool) { refuse("_nested_from_padded"); }
Tensor view_of_buffer(const Tensor &, const Tensor &, const Tensor &, const Tensor &) {
  refuse("_nested_view_from_buffer");
}

// nn.TransformerEncoder asks this before it packs a padded batch into a nested tensor.
bool left_aligned(const Tensor &, const Tensor &) { return false; }

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_nested_tensor_from_tensor_list", TORCH_FN(from_list));
  m.impl("_nested_tensor_from_mask", TORCH_FN(from_mask));
  m.impl("_nested_from_padded", TORCH_FN(from_padded));
  m.impl("_nested_view_from_buffer", TORCH_FN(view_of_buffer));
  m.impl("_nested_tensor_from_mask_left_aligned", TORCH_FN(left_aligned));
}

// Where one comes about all the same (lists of CPU tensors, device="tpu"), autograd asks for its sizes where it can't
// throw, and would end the process.
Tensor sizes_of(const Tensor &self) { return at::native::get_nested_tensor_impl(self)->get_nested_sizes(); }

TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) { m.impl("_nested_tensor_size", TORCH_FN(sizes_of)); }

void refuse_any(const c10::OperatorHandle &op, torch::jit::Stack *) { refuse(op.schema().name()); }

TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&refuse_any>());
}

}  // namespace
}  // namespace torchtpu
