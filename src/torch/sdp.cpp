// Which way F.scaled_dot_product_attention goes.
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include "shim.h"

namespace torchtpu {
namespace {

using at::Tensor;

// What src/aten/attention.c takes; the rest decomposes, or fails there in PyTorch's words.
int64_t fused_sdp_choice(const Tensor &query, const Tensor &key, const Tensor &value, const std::optional<Tensor> &mask,
                         double, bool causal, std::optional<double>, bool gqa) {
  constexpr int64_t kMath = 0, kOverrideable = 4;
  bool fits = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && query.is_floating_point() &&
              query.scalar_type() == key.scalar_type() && query.scalar_type() == value.scalar_type() &&
              query.numel() > 0 && key.numel() > 0 && value.numel() > 0 && query.size(0) == key.size(0) &&
              query.size(0) == value.size(0) && key.size(1) == value.size(1) && key.size(2) == value.size(2) &&
              query.size(3) == key.size(3) && (gqa ? query.size(1) % key.size(1) == 0 : query.size(1) == key.size(1));
  // The fused operator has no batching rule.
  constexpr c10::DispatchKeySet kTransformed(
      {c10::DispatchKey::FuncTorchBatched, c10::DispatchKey::FuncTorchGradWrapper});
  bool transformed = query.key_set().has_any(kTransformed) || key.key_set().has_any(kTransformed) ||
                     value.key_set().has_any(kTransformed) || (mask && mask->key_set().has_any(kTransformed));
  if (!fits || transformed || (causal && mask)) {
    return kMath;
  }
  if (mask) {
    int64_t scores[] = {query.size(0), query.size(1), query.size(2), key.size(2)};
    fits = mask->dim() >= 2 && mask->dim() <= 4;
    for (int64_t i = 0; i < mask->dim() && fits; i++) {
      fits = mask->size(i) == 1 || mask->size(i) == scores[4 - mask->dim() + i];
    }
  }
  return fits ? kOverrideable : kMath;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) { m.impl("_fused_sdp_choice", TORCH_FN(fused_sdp_choice)); }

}  // namespace
}  // namespace torchtpu

namespace at::native {
// scaled_dot_product_attention asks the stub, not the operator.
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &torchtpu::fused_sdp_choice)
}  // namespace at::native
