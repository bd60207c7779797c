// torch.linalg.lstsq. What it returns depends on the driver, and its sizes on the ranks, so that the host takes part;
// src/aten/linalg_lstsq.c solves by QR.
#include <ATen/ExpandUtils.h>
#include <ATen/TensorOperators.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/_linalg_check_errors.h>
#include <ATen/ops/_linalg_svd.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/matmul.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros.h>
#include <c10/core/ScalarType.h>
#include <torch/library.h>

#include <algorithm>
#include <limits>
#include <tuple>

#include "internal_ops.h"

namespace torchtpu {
namespace {

using at::Tensor;
using Results = std::tuple<Tensor, Tensor, Tensor, Tensor>;  // solution, residuals, rank, singular values

double epsilon_of(const Tensor &x) {
  return c10::toRealValueType(x.scalar_type()) == at::kFloat ? std::numeric_limits<float>::epsilon()
                                                             : std::numeric_limits<double>::epsilon();
}

Results solve_by_qr(const Tensor &a, const Tensor &b, double rcond, bool ranked) {
  static auto op = internal_op<Results(const Tensor &, const Tensor &, double, bool)>("torchtpu::lstsq");
  auto [x, squares, rank, singular] = op.call(a, b, rcond, ranked);
  const int64_t m = a.size(-2), n = a.size(-1);
  auto none = [&squares] { return at::empty({0}, squares.options()); };
  if (ranked) {
    return {x.narrow(-2, 0, n), none(), rank, none()};
  }
  at::_linalg_check_errors(singular, "torch.linalg.lstsq", singular.numel() <= 1);
  return {x.narrow(-2, 0, n), m > n ? squares : none(), at::empty({0}, rank.options()), none()};
}

// |x|^2, summed over the rows.
Tensor sum_of_squares(const Tensor &x) {
  Tensor size = x.abs();
  return (size * size).sum(-2);
}

Results solve_by_svd(const Tensor &a, const Tensor &b, double rcond) {
  const int64_t m = a.size(-2), n = a.size(-1);
  auto [u, s, vh] = at::_linalg_svd(a, false, true);
  Tensor rank = at::zeros(s.sizes().slice(0, s.dim() - 1), s.options().dtype(at::kLong));
  std::vector<int64_t> place(b.sizes().begin(), b.sizes().end());
  place[place.size() - 2] = b.size(-1);
  place[place.size() - 1] = std::max(m, n);
  Tensor solution = at::zeros(place, b.options()).mT();  // by columns
  if (a.numel() != 0) {
    Tensor kept = s.gt(s.narrow(-1, 0, 1) * (rcond < 0 ? epsilon_of(a) : rcond));
    Tensor inverse = at::where(kept, s.reciprocal(), 0.0).unsqueeze(-1);
    rank = kept.sum(-1);
    solution.narrow(-2, 0, n).copy_(at::matmul(vh.mH(), at::matmul(u.mH(), b) * inverse));
  }
  solution = solution.narrow(-2, 0, n);
  Tensor residuals = at::empty({0}, s.options());
  if (m > n && rank.eq(n).all().item<bool>()) {
    residuals = sum_of_squares(b - at::matmul(a, solution));
  }
  return {solution, residuals, rank, s};
}

Results lstsq(const Tensor &self, const Tensor &b, std::optional<double> rcond,
              std::optional<c10::string_view> driver) {
  TORCH_CHECK(self.dim() >= 2, "torch.linalg.lstsq: input must have at least 2 dimensions.");
  TORCH_CHECK(b.dim() >= 1, "torch.linalg.lstsq: other must have at least 1 dimension.");
  TORCH_CHECK(self.scalar_type() == b.scalar_type(),
              "torch.linalg.lstsq: Expected input and other to have the same dtype, but got input's dtype ",
              self.scalar_type(), " and other's dtype ", b.scalar_type());
  const int64_t vectors = self.dim() - b.dim();
  TORCH_CHECK(vectors == 0 || vectors == 1,
              "torch.linalg.lstsq: input.dim() must be greater or equal to other.dim() and (input.dim() - "
              "other.dim()) <= 1");
  Tensor right = vectors ? b.unsqueeze(-1) : b;
  auto batch_of = [](const Tensor &x) { return x.sizes().slice(0, x.dim() - 2); };
  auto batch = at::infer_size_dimvector(batch_of(self), batch_of(right));
  TORCH_CHECK(self.size(-2) == right.size(-2), "torch.linalg.lstsq: input.size(-2) should match other.size(",
              vectors ? -1 : -2, ")");
  TORCH_CHECK(self.device() == b.device(),
              "torch.linalg.lstsq: Expected input and other to be on the same device, "
              "but got input on ",
              self.device(), " and other on ", b.device());
  const std::string name = driver ? std::string(driver->data(), driver->size()) : "gelsy";
  TORCH_CHECK(name == "gels" || name == "gelsy" || name == "gelsd" || name == "gelss",
              "torch.linalg.lstsq: parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  const auto type = c10::toRealValueType(self.scalar_type());
  TORCH_CHECK(type == at::kFloat || type == at::kDouble,
              "This function doesn't handle types other than float and double");

  auto expand = [&batch](const Tensor &x) {
    std::vector<int64_t> sizes(batch.begin(), batch.end());
    sizes.insert(sizes.end(), {x.size(-2), x.size(-1)});
    return x.expand(sizes);
  };
  const double limit = rcond.value_or(epsilon_of(self) * static_cast<double>(std::max(self.size(-2), self.size(-1))));
  Tensor a = expand(self);
  right = expand(right);
  Results results =
      name == "gels" || name == "gelsy" ? solve_by_qr(a, right, limit, name == "gelsy") : solve_by_svd(a, right, limit);
  if (vectors) {
    std::get<0>(results) = std::get<0>(results).squeeze(-1);
  }
  return results;
}

void write(const Tensor &value, Tensor &out, const char *name, bool by_columns = false) {
  TORCH_CHECK(c10::canCast(value.scalar_type(), out.scalar_type()), "torch.linalg.lstsq: Expected ", name,
              " to be safely castable from ", value.scalar_type(), " dtype, but got ", name, " with dtype ",
              out.scalar_type());
  TORCH_CHECK(out.device() == value.device(), "torch.linalg.lstsq: Expected ", name,
              " and input tensors to be on the same device, but got ", name, " on ", out.device(), " and input on ",
              value.device());
  if (at::native::resize_output(out, value.sizes()) && by_columns) {
    std::vector<int64_t> sizes = value.sizes().vec();
    std::swap(sizes[sizes.size() - 1], sizes[sizes.size() - 2]);
    out.set_(out.storage(), out.storage_offset(), sizes).transpose_(-2, -1);
  }
  out.copy_(value);
}

std::tuple<Tensor &, Tensor &, Tensor &, Tensor &> lstsq_out(const Tensor &self, const Tensor &b,
                                                             std::optional<double> rcond,
                                                             std::optional<c10::string_view> driver, Tensor &solution,
                                                             Tensor &residuals, Tensor &rank, Tensor &values) {
  auto [x, left, ranks, singular] = lstsq(self, b, rcond, driver);
  write(x, solution, "solution", b.dim() == self.dim());
  write(left, residuals, "residuals");
  write(ranks, rank, "rank");
  write(singular, values, "singular_values");
  return {solution, residuals, rank, values};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  library.impl("linalg_lstsq", TORCH_FN(lstsq));
  library.impl("linalg_lstsq.out", TORCH_FN(lstsq_out));
}

}  // namespace
}  // namespace torchtpu
