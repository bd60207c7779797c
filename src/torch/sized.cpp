// Operators whose result is as large as the data says. That number has to reach the host; the rest needn't: rules of
// the core (src/aten/unique.c) give arrays with room for all, and the results are their heads, so that one program
// serves every number.
#include <ATen/ops/_to_copy.h>
#include <ATen/ops/aminmax.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include <algorithm>

#include "internal_ops.h"
#include "shim.h"

namespace torchtpu {
namespace {

using at::Tensor;
using Triple = std::tuple<Tensor, Tensor, Tensor>;
using Runs = std::tuple<Tensor, Tensor, Tensor, Tensor>;

void refuse_complex(const Tensor &self, const char *kernel) {
  TORCH_CHECK_NOT_IMPLEMENTED(!self.is_complex(), '"', kernel, "\" not implemented for '", self.scalar_type(), "'");
}

// ---- unique ----
Triple unique_flat(const Tensor &self, bool sort, bool inverse, bool counts) {
  refuse_complex(self, "unique");
  auto longs = self.options().dtype(c10::kLong);
  if (self.numel() == 0) {
    return {at::empty({0}, self.options()), inverse ? at::empty(self.sizes(), longs) : at::empty({0}, longs),
            at::empty({0}, longs)};
  }
  static auto op = internal_op<Runs(const Tensor &, bool, bool, bool)>("torchtpu::unique");
  auto [values, places, lengths, count] = op.call(self, sort, inverse, counts);
  int64_t n = count.item<int64_t>();
  return {values.narrow(0, 0, n), places, counts ? lengths.narrow(0, 0, n) : lengths};
}

Triple unique_along(const Tensor &self, int64_t dim, bool sort) {
  refuse_complex(self, "unique_dim");
  auto longs = self.options().dtype(c10::kLong);
  auto sizes = self.sizes().vec();
  auto empties = std::count(sizes.begin(), sizes.end(), 0);
  if (self.dim() == 0) {
    TORCH_CHECK_INDEX(false, "Dimension specified as ", dim, " but tensor has no dimensions");
  }
  dim = c10::maybe_wrap_dim(dim, self.dim());
  if (self.size(dim) == 0) {
    TORCH_CHECK(empties == 1, "Number of zero sized dimensions is more than one, so unique cannot be applied ");
    return {at::empty(sizes, self.options()), at::empty({0}, longs), at::empty({0}, longs)};
  }
  TORCH_CHECK(empties == 0, "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  static auto op = internal_op<Runs(const Tensor &, bool)>("torchtpu::unique_rows");
  auto [rows, places, lengths, count] = op.call(self.movedim(dim, 0), sort);
  int64_t n = count.item<int64_t>();
  return {rows.narrow(0, 0, n).movedim(0, dim), places, lengths.narrow(0, 0, n)};
}

std::tuple<Tensor, Tensor> unique(const Tensor &self, bool, bool inverse) {
  auto [values, places, counts] = unique_flat(self, true, inverse, false);
  return {values, places};
}
// Sorted whether asked for or not, as on the CPU.
Triple unique2(const Tensor &self, bool, bool inverse, bool counts) { return unique_flat(self, true, inverse, counts); }
Triple unique_dim(const Tensor &self, int64_t dim, bool, bool, bool) { return unique_along(self, dim, true); }
Triple unique_dim_consecutive(const Tensor &self, int64_t dim, bool, bool) { return unique_along(self, dim, false); }
Triple unique_consecutive(const Tensor &self, bool inverse, bool counts, std::optional<int64_t> dim) {
  return !dim || (*dim == 0 && self.dim() == 1) ? unique_flat(self, false, inverse, counts)
                                                : unique_along(self, *dim, false);
}

// ---- bincount ----
constexpr int64_t kMostBins = int64_t{1} << 48;  // beyond any memory; more would overflow

// The size of the program's result, of which the operator's is the head.
int64_t room_for(int64_t size) {
  int64_t room = 16;
  while (room < size) {
    room *= 2;
  }
  return room;
}

Tensor bincount(const Tensor &self, const std::optional<Tensor> &given, c10::SymInt least) {
  c10::ScalarType type = self.scalar_type();
  TORCH_CHECK_NOT_IMPLEMENTED(c10::isIntegralType(type, false) && !c10::isBarebonesUnsignedType(type),
                              "\"bincount_cpu\" not implemented for '", type, "'");
  int64_t size = least.expect_int();
  TORCH_CHECK(size >= 0, "minlength should be >= 0");
  if (self.dim() == 1 && self.numel() == 0) {
    return at::zeros({size}, self.options().dtype(c10::kLong));
  }
  constexpr auto kComplaint = "bincount only supports 1-d non-negative integral inputs.";
  TORCH_CHECK(self.dim() == 1, kComplaint);
  auto [low, high] = at::aminmax(self);
  Tensor ends = at::stack({low, high}).cpu().to(c10::kLong);
  TORCH_CHECK(ends[0].item<int64_t>() >= 0, kComplaint);
  bool weighted = given && given->defined();
  TORCH_CHECK(!weighted || (given->dim() == 1 && given->size(0) == self.size(0)),
              "weights should be 1-d and have the same length as input");
  size = std::max(size, std::min(ends[1].item<int64_t>(), kMostBins) + 1);
  TORCH_CHECK(size <= kMostBins, "bincount: a result of so many elements is too large");
  static auto op = internal_op<Tensor(const Tensor &, const std::optional<Tensor> &, int64_t)>("torchtpu::bincount");
  return op.call(self, weighted ? given : std::nullopt, room_for(size)).narrow(0, 0, size);
}

// ---- padded to jagged ----
Tensor padded_to_jagged(const Tensor &dense, at::TensorList offsets, std::optional<c10::SymInt> given) {
  TORCH_CHECK(offsets.size() == 1, "_padded_dense_to_jagged_forward(): only a single jagged dim is supported");
  TORCH_CHECK(offsets[0].dim() == 1 && offsets[0].numel() > 0,
              "_padded_dense_to_jagged_forward(): expected offsets to be a 1-D tensor that is not empty");
  int64_t total = given ? given->expect_int() : offsets[0][-1].item<int64_t>();
  static auto op = internal_op<Tensor(const Tensor &, const Tensor &, int64_t)>("torchtpu::padded_to_jagged");
  return op.call(dense, offsets[0], total);
}

// ---- observed fake quantization ----
using Pair = std::tuple<Tensor, Tensor>;

// A scale for each channel: tensors without elements get theirs from the first batch that is observed.
Pair observe_and_quantize(const Tensor &self, const Tensor &observe, const Tensor &quantize, Tensor &low, Tensor &high,
                          Tensor &scale, Tensor &zero, double rate, int64_t min, int64_t max, int64_t axis, bool rows,
                          bool symmetric) {
  if (rows && axis == 0 && self.dim() && low.numel() == 0 && observe.is_nonzero()) {
    low.resize_({self.size(0)}).fill_(std::numeric_limits<double>::infinity());
    high.resize_({self.size(0)}).fill_(-std::numeric_limits<double>::infinity());
    scale.resize_({self.size(0)}).fill_(1);
    zero.resize_({self.size(0)}).fill_(0);
  }
  using Function = Pair(const Tensor &, const Tensor &, const Tensor &, Tensor &, Tensor &, Tensor &, Tensor &, double,
                        int64_t, int64_t, int64_t, bool, bool);
  static auto op = internal_op<Function>("torchtpu::moving_average_fake_quantize");
  return op.call(self, observe, quantize, low, high, scale, zero, rate, min, max, axis, rows, symmetric);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_fused_moving_avg_obs_fq_helper", TORCH_FN(observe_and_quantize));
  m.impl("_unique", TORCH_FN(unique));
  m.impl("_unique2", TORCH_FN(unique2));
  m.impl("unique_dim", TORCH_FN(unique_dim));
  m.impl("unique_dim_consecutive", TORCH_FN(unique_dim_consecutive));
  m.impl("unique_consecutive", TORCH_FN(unique_consecutive));
  m.impl("bincount", TORCH_FN(bincount));
  m.impl("_padded_dense_to_jagged_forward", TORCH_FN(padded_to_jagged));
}

}  // namespace
}  // namespace torchtpu
