// Names under which the CPU's convolutions can be called: here each is a convolution.
#include <ATen/ops/convolution.h>
#include <ATen/ops/convolution_backward.h>
#include <torch/library.h>

#include "shim.h"

namespace torchtpu {
namespace {

using at::Tensor;
using Bias = std::optional<Tensor>;
using Sizes = c10::SymIntArrayRef;

// Weights may have their kernel's dims and the input's channels in one.
Tensor taps_of(const Tensor &weight, Sizes kernel) {
  std::vector<c10::SymInt> sizes = {weight.sym_size(0), -1};
  sizes.insert(sizes.end(), kernel.begin(), kernel.end());
  Tensor taps = weight.dim() == 2 ? weight.reshape_symint(sizes) : weight;
  TORCH_CHECK(taps.dim() == static_cast<int64_t>(kernel.size()) + 2 && taps.sym_sizes().slice(2) == kernel,
              "a weight of sizes ", weight.sizes(), " has no kernel of sizes ", kernel);
  return taps;
}

// An input may lack the batch.
Tensor convolve(const Tensor &self, const Tensor &weight, Sizes kernel, const Bias &bias, Sizes stride, Sizes padding,
                Sizes dilation, bool transposed, Sizes output_padding) {
  const bool alone = self.dim() == static_cast<int64_t>(kernel.size()) + 1;
  Tensor out = at::convolution_symint(alone ? self.unsqueeze(0) : self, taps_of(weight, kernel), bias, stride, padding,
                                      dilation, transposed, output_padding, 1);
  return alone ? out.squeeze(0) : out;
}

Tensor plain(const Tensor &self, const Tensor &weight, Sizes kernel, const Bias &bias, Sizes stride, Sizes padding) {
  std::vector<c10::SymInt> ones(kernel.size(), 1);
  std::vector<c10::SymInt> zeros(kernel.size(), 0);
  return convolve(self, weight, kernel, bias, stride, padding, ones, false, zeros);
}
Tensor dilated(const Tensor &self, const Tensor &weight, Sizes kernel, const Bias &bias, Sizes stride, Sizes padding,
               Sizes dilation) {
  std::vector<c10::SymInt> zeros(kernel.size(), 0);
  return convolve(self, weight, kernel, bias, stride, padding, dilation, false, zeros);
}
Tensor transposed(const Tensor &self, const Tensor &weight, Sizes kernel, const Bias &bias, Sizes stride, Sizes padding,
                  Sizes output_padding, Sizes dilation) {
  return convolve(self, weight, kernel, bias, stride, padding, dilation, true, output_padding);
}

std::tuple<Tensor, Tensor, Tensor> plain_backward(const Tensor &grad, const Tensor &self, const Tensor &weight,
                                                  Sizes kernel, Sizes stride, Sizes padding, std::array<bool, 3> mask) {
  std::vector<c10::SymInt> ones(kernel.size(), 1), zeros(kernel.size(), 0);
  const bool alone = self.dim() == static_cast<int64_t>(kernel.size()) + 1;
  std::vector<c10::SymInt> channels = {weight.sym_size(0)};
  auto [of_self, of_weight, of_bias] =
      at::convolution_backward_symint(alone ? grad.unsqueeze(0) : grad, alone ? self.unsqueeze(0) : self,
                                      taps_of(weight, kernel), channels, stride, padding, ones, false, zeros, 1, mask);
  Tensor first = alone && of_self.defined() ? of_self.squeeze(0) : of_self;
  Tensor second = of_weight.defined() ? of_weight.reshape_symint(weight.sym_sizes()) : of_weight;
  return {first, second, of_bias};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_slow_conv2d_forward", TORCH_FN(plain));
  m.impl("_slow_conv2d_backward.output_mask", TORCH_FN(plain_backward));
  m.impl("slow_conv3d_forward", TORCH_FN(plain));
  m.impl("slow_conv_dilated2d", TORCH_FN(dilated));
  m.impl("slow_conv_dilated3d", TORCH_FN(dilated));
  m.impl("slow_conv_transpose2d", TORCH_FN(transposed));
  m.impl("slow_conv_transpose3d", TORCH_FN(transposed));
}

}  // namespace
}  // namespace torchtpu
