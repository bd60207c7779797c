// The checks of ctc_loss, whose lengths are on the host.
#include <ATen/ops/_ctc_loss.h>
#include <ATen/ops/_ctc_loss_backward.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <numeric>

#include "internal_ops.h"
#include "shim.h"

namespace torchtpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

void check_lengths(const char *what, IntArrayRef lengths, int64_t batch) {
  TORCH_CHECK(static_cast<int64_t>(lengths.size()) == batch, what, " must be of size batch_size");
  for (int64_t length : lengths) {
    TORCH_CHECK(length >= 0, "Expected ", what, " to have value at least 0, but got value ", length);
  }
}

void check_ctc(const Tensor &log_probs, const Tensor &targets, IntArrayRef inputs, IntArrayRef lengths, int64_t blank) {
  c10::ScalarType type = log_probs.scalar_type(), label = targets.scalar_type();
  TORCH_CHECK(log_probs.numel() > 0, "log_probs tensor must not be empty");
  TORCH_CHECK_NOT_IMPLEMENTED(type == c10::kFloat || type == c10::kDouble, "\"ctc_loss_cpu\" not implemented for '",
                              type, "'");
  TORCH_CHECK(label == c10::kLong || label == c10::kInt,
              "Expected tensor for argument #2 'targets' to have scalar type Int; but got ", label);
  TORCH_CHECK(log_probs.dim() == 3, "Expected 3-dimensional tensor, but got ", log_probs.dim(),
              "-dimensional tensor for argument #1 'log_probs'");
  TORCH_CHECK(targets.dim() == 1 || targets.dim() == 2, "Expected 1 to 2 dimensions, but got ", targets.dim(),
              "-dimensional tensor for argument #2 'targets'");
  TORCH_CHECK(blank >= 0 && blank < log_probs.size(2), "blank must be in label range");
  int64_t batch = log_probs.size(1);
  check_lengths("input_lengths", inputs, batch);
  check_lengths("target_lengths", lengths, batch);
  for (int64_t length : inputs) {
    TORCH_CHECK(length <= log_probs.size(0), "Expected input_lengths to have value at most ", log_probs.size(0),
                ", but got value ", length);
  }
  int64_t need = targets.dim() == 2 ? batch : std::accumulate(lengths.begin(), lengths.end(), int64_t{0});
  TORCH_CHECK(targets.size(0) == need, "Expected tensor to have size ", need, " at dimension 0, but got size ",
              targets.size(0), " for argument #2 'targets'");
  int64_t longest = *std::max_element(lengths.begin(), lengths.end());
  TORCH_CHECK(targets.dim() == 1 || longest <= targets.size(1), "Expected tensor to have size at least ", longest,
              " at dimension 1, but got size ", targets.size(targets.dim() - 1), " for argument #2 'targets'");
}

// Both lists on the device: [2, batch].
Tensor to_device(const Tensor &like, IntArrayRef inputs, IntArrayRef lengths) {
  std::vector<int64_t> both(inputs.begin(), inputs.end());
  both.insert(both.end(), lengths.begin(), lengths.end());
  return at::tensor(both).view({2, static_cast<int64_t>(inputs.size())}).to(like.device());
}

std::vector<int64_t> to_host(const Tensor &lengths, const char *what) {
  TORCH_CHECK(c10::isIntegralType(lengths.scalar_type(), false), what, " must be integral");
  Tensor host = lengths.to(c10::kCPU, c10::kLong).contiguous();
  return {host.const_data_ptr<int64_t>(), host.const_data_ptr<int64_t>() + host.numel()};
}

std::tuple<Tensor, Tensor> ctc_loss(const Tensor &log_probs, const Tensor &targets, IntArrayRef inputs,
                                    IntArrayRef lengths, int64_t blank, bool) {
  check_ctc(log_probs, targets, inputs, lengths, blank);
  using Function = std::tuple<Tensor, Tensor>(const Tensor &, const Tensor &, const Tensor &, int64_t, int64_t);
  static auto op = internal_op<Function>("torchtpu::ctc_loss");
  return op.call(log_probs, targets, to_device(log_probs, inputs, lengths),
                 *std::max_element(lengths.begin(), lengths.end()), blank);
}

std::tuple<Tensor, Tensor> ctc_loss_tensor(const Tensor &log_probs, const Tensor &targets, const Tensor &inputs,
                                           const Tensor &lengths, int64_t blank, bool zero_infinity) {
  return ctc_loss(log_probs, targets, to_host(inputs, "input_lengths"), to_host(lengths, "target_lengths"), blank,
                  zero_infinity);
}

Tensor ctc_loss_backward(const Tensor &grad, const Tensor &log_probs, const Tensor &targets, IntArrayRef inputs,
                         IntArrayRef lengths, const Tensor &loss, const Tensor &log_alpha, int64_t blank,
                         bool zero_infinity) {
  if (log_probs.numel() == 0) {
    return at::empty_like(log_probs, at::MemoryFormat::Contiguous);
  }
  check_ctc(log_probs, targets, inputs, lengths, blank);
  using Function = Tensor(const Tensor &, const Tensor &, const Tensor &, const Tensor &, int64_t, const Tensor &,
                          const Tensor &, int64_t, bool);
  static auto op = internal_op<Function>("torchtpu::ctc_loss_backward");
  return op.call(grad, log_probs, targets, to_device(log_probs, inputs, lengths),
                 *std::max_element(lengths.begin(), lengths.end()), loss, log_alpha, blank, zero_infinity);
}

Tensor ctc_loss_backward_tensor(const Tensor &grad, const Tensor &log_probs, const Tensor &targets,
                                const Tensor &inputs, const Tensor &lengths, const Tensor &loss,
                                const Tensor &log_alpha, int64_t blank, bool zero_infinity) {
  return ctc_loss_backward(grad, log_probs, targets, to_host(inputs, "input_lengths"),
                           to_host(lengths, "target_lengths"), loss, log_alpha, blank, zero_infinity);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_ctc_loss", TORCH_FN(ctc_loss));
  m.impl("_ctc_loss.Tensor", TORCH_FN(ctc_loss_tensor));
  m.impl("_ctc_loss_backward", TORCH_FN(ctc_loss_backward));
  m.impl("_ctc_loss_backward.Tensor", TORCH_FN(ctc_loss_backward_tensor));
}

}  // namespace
}  // namespace torchtpu
