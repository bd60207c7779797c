#include "internal_ops.h"

#include <torch/library.h>

#include <cstring>

#include "kernel.h"

namespace torchtpu {
namespace {

constexpr const char *kSchemas[] = {
    "unique(Tensor self, bool sort, bool inverse, bool counts) -> (Tensor, Tensor, Tensor, Tensor)",
    "unique_rows(Tensor self, bool sort) -> (Tensor, Tensor, Tensor, Tensor)",
    "bincount(Tensor self, Tensor? weights, int size) -> Tensor",
    "padded_to_jagged(Tensor dense, Tensor offsets, int total) -> Tensor",
    "moving_average_fake_quantize(Tensor self, Tensor observer_on, Tensor fake_quant_on, Tensor(a!) running_min, "
    "Tensor(b!) running_max, Tensor(c!) scale, Tensor(d!) zero_point, float averaging_const, int quant_min, "
    "int quant_max, int ch_axis, bool per_row_fake_quant, bool symmetric_quant) -> (Tensor, Tensor)",
    "nonzero_columns(Tensor self) -> (Tensor, Tensor)",
    "ctc_loss(Tensor log_probs, Tensor targets, Tensor lengths, int max_target, int blank) -> (Tensor, Tensor)",
    "ctc_loss_backward(Tensor grad, Tensor log_probs, Tensor targets, Tensor lengths, int max_target, "
    "Tensor neg_log_likelihood, Tensor log_alpha, int blank, bool zero_infinity) -> Tensor",
    "lstsq(Tensor a, Tensor b, float rcond, bool ranked) -> (Tensor, Tensor, Tensor, Tensor)",
};

TORCH_LIBRARY_FRAGMENT(torchtpu, library) {
  for (const char *schema : kSchemas) {
    library.def(schema);
  }
}

TORCH_LIBRARY_IMPL(torchtpu, PrivateUse1, library) {
  for (const char *schema : kSchemas) {
    std::string name(schema, std::strchr(schema, '('));
    std::string rule = "torchtpu::" + name;
    auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(rule.c_str(), "");
    if (auto kernel = Kernel::create(rule, handle)) {
      library.impl(name.c_str(), torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
    }
  }
}

}  // namespace
}  // namespace torchtpu
