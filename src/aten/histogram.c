// Histograms over one and several dimensions.
#include <math.h>

#include "aten/dims.h"
#include "aten/internal.h"

typedef struct histogram {
  tt_hlo x;        // [elements, dims]
  tt_hlo weights;  // [elements], or NULL
  tt_dtype dtype;
  int64_t dims;
  tt_hlo edges[TT_MAX_RANK];  // 1-d, bins[i] + 1 of them
  int64_t bins[TT_MAX_RANK];
} histogram;

static bool is_one_dim(tt_rule *r) { return !strncmp(tt_rule_name(r), "histogram", 9) && tt_rule_name(r)[9] != 'd'; }

// "self" as a table of points. histogram() takes any shape as points of one coordinate.
static bool read_points(tt_rule *r, histogram *h) {
  tt_hlo self = tt_in(r, "self");
  *h = (histogram){.x = self};
  if (!self) {
    return false;
  }
  h->dtype = self->dtype;
  if (is_one_dim(r)) {
    h->dims = 1;
    h->x = tt_hlo_reshape(self, (const int64_t[]){tt_hlo_numel(self), 1}, 2);
    return h->x != NULL;
  }
  if (self->rank < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "input tensor should have at least 2 dimensions, but got %d", self->rank);
    return false;
  }
  int64_t points = 1;
  for (int32_t i = 0; i + 1 < self->rank; i++) {
    points *= self->dims[i];
  }
  h->dims = self->dims[self->rank - 1];
  h->x = tt_hlo_reshape(self, (const int64_t[]){points, h->dims}, 2);
  if (h->dims > TT_MAX_RANK) {
    tt_fail(r, TT_ERR_RUNTIME, "%" PRId64 " dimensions are too many", h->dims);
  }
  return h->x && !tt_failed(r);
}

// ---- edges from numbers of bins ----

static bool check_range(tt_rule *r, int64_t dim, double low, double high) {
  if (!isfinite(low) || !isfinite(high)) {
    tt_fail(r, TT_ERR_RUNTIME, "dimension %" PRId64 "'s range [%g, %g] is not finite", dim, low, high);
  } else if (low > high) {
    tt_fail(r, TT_ERR_RUNTIME, "min should not exceed max, but got min %g max %g for dimension %" PRId64, low, high,
            dim);
  }
  return !tt_failed(r);
}

// The outer edges of a dimension: given, the data's, or 0 and 1. An empty range becomes one of width 1.
static tt_hlo linear_edges(tt_rule *r, const histogram *h, int32_t dim, const double *range) {
  const tt_dtype compute = tt_opmath(h->dtype);
  tt_hlo_builder *b = tt_b(r);
  tt_hlo low, high;
  if (range || tt_hlo_numel(h->x) == 0) {
    double from = range ? range[2 * dim] : 0, to = range ? range[2 * dim + 1] : 1;
    if (!check_range(r, dim, from, to)) {
      return NULL;
    }
    const double widen = from == to ? 0.5 : 0;
    low = tt_hlo_scalar(b, compute, from - widen);
    high = tt_hlo_scalar(b, compute, to + widen);
  } else {
    tt_hlo column = tt_cast(v_flat(tt_hlo_slice_dim(h->x, 1, dim, dim + 1, 1)), compute);
    low = v_reduce(TT_MIN, column, 0);
    high = v_reduce(TT_MAX, column, 0);
    tt_hlo finite = v_and(tt_hlo_unary(TT_IS_FINITE, low), tt_hlo_unary(TT_IS_FINITE, high));
    tt_device_assert(r, finite, TT_ERR_RUNTIME, "dimension %d's range of the data is not finite", dim);
    tt_hlo empty = v_eq(low, high);
    low = low ? v_if(empty, v_addc(low, -0.5), low) : NULL;
    high = high ? v_if(empty, v_addc(high, 0.5), high) : NULL;
  }
  // A float16's ends are rounded before the steps between them are taken.
  low = tt_cast(tt_cast(low, h->dtype), compute);
  high = tt_cast(tt_cast(high, h->dtype), compute);
  return tt_cast(tt_linspace(low, high, h->bins[dim] + 1), h->dtype);
}

static bool read_bin_counts(tt_rule *r, histogram *h) {
  int32_t listed = 1;
  const int64_t one = is_one_dim(r) ? tt_int(r, "bins", 100) : 0;
  const int64_t *bins = is_one_dim(r) ? &one : tt_ints(r, "bins", &listed);
  if (listed != h->dims) {
    tt_fail(r, TT_ERR_RUNTIME, "The size of bins must be equal to the innermost dimension of the input.");
    return false;
  }
  const tt_arg *range = tt_rule_arg(r, "range");
  if (range && (int64_t)range->count != 2 * h->dims) {
    tt_fail(r, TT_ERR_RUNTIME,
            "for a %" PRId64 "-dimensional histogram range should have %" PRId64 " elements, but got %u", h->dims,
            2 * h->dims, range->count);
    return false;
  }
  if (!range && tt_hlo_numel(h->x) > 0 && h->dtype != TT_F32 && h->dtype != TT_F64) {
    tt_fail_dtype(r, "histogramdd", h->dtype);
    return false;
  }
  for (int32_t i = 0; i < listed; i++) {
    h->bins[i] = bins[i];
    if (bins[i] == INT64_MAX) {
      tt_fail(r, TT_ERR_RUNTIME, "the histogram is too large");
      return false;
    }
    if (bins[i] < 0 || (bins[i] == 0 && strcmp(tt_rule_name(r), "_histogramdd_bin_edges") != 0)) {
      tt_fail(r, TT_ERR_RUNTIME, "bins must be > 0, but got %" PRId64 " for dimension %d", bins[i], i);
      return false;
    }
    h->edges[i] = linear_edges(r, h, i, range ? range->u.floats : NULL);
  }
  return !tt_failed(r);
}

// ---- edges as tensors ----

static bool read_edges(tt_rule *r, histogram *h) {
  const bool one = is_one_dim(r);
  const int32_t listed = one ? 1 : tt_list_length(r, "bins");
  if (listed != h->dims) {
    tt_fail(r, TT_ERR_RUNTIME,
            "expected %" PRId64 " sequences of bin edges for a %" PRId64 "-dimensional histogram but got %d", h->dims,
            h->dims, listed);
    return false;
  }
  for (int32_t i = 0; i < listed; i++) {
    tt_hlo edges = one ? tt_in(r, "bins") : tt_in_at(r, "bins", i);
    if (!edges) {
      return false;
    }
    if (edges->dtype != h->dtype) {
      tt_fail(r, TT_ERR_RUNTIME,
              "input tensor and bins tensors should have the same dtype, but got input with dtype %s and bins for "
              "dimension %d with dtype %s",
              tt_type_meta_name(h->dtype), i, tt_type_meta_name(edges->dtype));
    } else if (edges->rank != 1) {
      tt_fail(r, TT_ERR_RUNTIME,
              "bins tensor should have one dimension, but got %d dimensions in the bins tensor for dimension %d",
              edges->rank, i);
    } else if (edges->dims[0] < 2) {
      tt_fail(r, TT_ERR_RUNTIME, "bins must be > 0, but got %" PRId64 " for dimension %d", edges->dims[0] - 1, i);
    }
    if (tt_failed(r)) {
      return false;
    }
    h->edges[i] = edges;
    h->bins[i] = edges->dims[0] - 1;
  }
  return true;
}

// ---- counting ----

static bool read_weights(tt_rule *r, histogram *h) {
  if (!tt_has(r, "weight")) {
    return true;
  }
  tt_hlo weight = tt_in(r, "weight"), self = tt_in(r, "self");
  if (!weight || !self) {
    return false;
  }
  if (weight->dtype != h->dtype) {
    tt_fail(r, TT_ERR_RUNTIME,
            "if weight tensor is provided, input tensor and weight tensor should have the same dtype, but got "
            "input(%s), and weight(%s)",
            tt_type_meta_name(h->dtype), tt_type_meta_name(weight->dtype));
    return false;
  }
  bool fits = tt_hlo_numel(weight) == h->x->dims[0];
  if (!is_one_dim(r)) {
    const int32_t lead = self->rank - 1;
    const bool scalar = weight->rank == 0 && lead == 1;
    fits = fits && (scalar || weight->rank == lead);
    for (int32_t i = 0; fits && !scalar && i < lead; i++) {
      fits = weight->dims[i] == self->dims[i];
    }
  }
  if (!fits) {
    tt_fail(r, TT_ERR_RUNTIME,
            "if weight tensor is provided it should have the same shape as the input tensor excluding its innermost "
            "dimension, but got input with shape %s and weight with shape %s",
            tt_dims_text(self->dims, self->rank).text, tt_dims_text(weight->dims, weight->rank).text);
    return false;
  }
  h->weights = v_flat(weight);
  return h->weights != NULL;
}

// Which bin of the flattened histogram each point is in; -1: none. A bin has its left edge, the last its right one too.
static tt_hlo bin_of(const histogram *h, int64_t total) {
  const tt_dtype type = v_position_type(total);
  tt_hlo flat = NULL, inside = NULL;
  for (int32_t i = 0; i < h->dims; i++) {
    tt_hlo edges = h->edges[i], x = v_flat(tt_hlo_slice_dim(h->x, 1, i, i + 1, 1));
    if (!edges || !x) {
      return NULL;
    }
    tt_hlo low = v_like(tt_hlo_reshape(tt_hlo_slice_dim(edges, 0, 0, 1, 1), NULL, 0), x);
    tt_hlo high = v_like(tt_hlo_reshape(tt_hlo_slice_dim(edges, 0, h->bins[i], h->bins[i] + 1, 1), NULL, 0), x);
    tt_hlo here = v_and(v_ge(x, low), v_le(x, high));
    tt_hlo at = v_flat(tt_insertion_points(v_unsqueeze(edges, 0), v_unsqueeze(x, 0), true));
    at = at ? tt_cast(v_min(v_addc(at, -1), v_const(at, (double)(h->bins[i] - 1))), type) : NULL;
    flat = flat ? v_add(v_mulc(flat, (double)h->bins[i]), at) : at;
    inside = inside ? v_and(inside, here) : here;
  }
  return flat ? v_if(inside, flat, v_const(flat, -1)) : NULL;
}

// Divided by the sum, and by the bins' volumes; each step rounds, as PyTorch's operators.
static tt_hlo density_of(const histogram *h, tt_hlo counts) {
  const tt_dtype compute = tt_opmath(h->dtype);
  tt_hlo x = tt_cast(counts, compute);
  tt_hlo sum = tt_cast(tt_cast(v_reduce_all(TT_SUM, x), h->dtype), compute);
  x = tt_cast(tt_cast(v_div(x, v_like(sum, x)), h->dtype), compute);
  for (int32_t i = 0; i < h->dims && x; i++) {
    const int64_t n = h->bins[i];
    tt_hlo edges = tt_cast(h->edges[i], compute);
    tt_hlo widths = v_sub(tt_hlo_slice_dim(edges, 0, 1, n + 1, 1), tt_hlo_slice_dim(edges, 0, 0, n, 1));
    widths = tt_cast(tt_cast(widths, h->dtype), compute);
    x = tt_cast(tt_cast(v_div(x, v_along(widths, x->dims, x->rank, i)), h->dtype), compute);
  }
  return tt_cast(x, h->dtype);
}

static tt_hlo count_points(tt_rule *r, const histogram *h) {
  int64_t total = 1;
  for (int32_t i = 0; i < h->dims; i++) {
    if (__builtin_mul_overflow(total, h->bins[i], &total)) {
      tt_fail(r, TT_ERR_RUNTIME, "the histogram is too large");
      return NULL;
    }
  }
  // Numbers of points are exact as integers, weights are summed in their own type.
  const tt_dtype type = h->weights ? tt_opmath(h->dtype) : v_position_type(h->x->dims[0]);
  tt_hlo sums = tt_hlo_const(tt_b(r), type, 0, &total, 1);
  if (h->dims > 0) {
    tt_hlo at = bin_of(h, total);
    tt_hlo each = h->weights ? tt_cast(h->weights, type)
                  : at       ? tt_hlo_const(tt_b(r), type, 1, at->dims, at->rank)
                             : NULL;
    sums = tt_put_flat(TT_SCATTER_ADD, sums, at, each);
  }
  tt_hlo result = tt_hlo_reshape(tt_cast(sums, h->dtype), h->bins, (int32_t)h->dims);
  return tt_bool(r, "density", false) ? density_of(h, result) : result;
}

enum { BY_COUNTS, BY_EDGES };

static bool check_outs(tt_rule *r, const histogram *h) {
  static const char *const names[] = {"hist", "bin_edges"};
  for (int32_t i = 0; i < 2; i++) {
    const tt_operand *out = tt_operand_of(r, names[i]);
    if (out && out->dtype != h->dtype) {
      tt_fail(r, TT_ERR_RUNTIME, "input tensor and %s tensor should have the same dtype, but got input %s and %s %s",
              names[i], tt_type_meta_name(h->dtype), names[i], tt_type_meta_name(out->dtype));
      return false;
    }
  }
  return true;
}

static void build_histogram(tt_rule *r) {
  histogram h;
  if (!read_points(r, &h) || !(tt_rule_kind(r) == BY_EDGES ? read_edges : read_bin_counts)(r, &h) ||
      !read_weights(r, &h) || !check_outs(r, &h)) {
    return;
  }
  if (!tt_dtype_is_float(h.dtype)) {
    tt_fail_dtype(r, "histogram_cpu", h.dtype);
    return;
  }
  tt_ret(r, 0, count_points(r, &h));
  if (is_one_dim(r)) {
    tt_ret(r, 1, h.edges[0]);
  }
}

static void build_bin_edges(tt_rule *r) {
  histogram h;
  if (!read_points(r, &h) || !read_bin_counts(r, &h)) {
    return;
  }
  for (int32_t i = 0; i < h.dims; i++) {
    tt_ret_list(r, 0, i, h.edges[i]);
  }
}

const tt_rule_entry tt_rules_histogram[] = {
    {.name = "aten::histogram.bin_ct", .build = build_histogram, .kind = BY_COUNTS},
    {.name = "aten::histogram.bins_tensor", .build = build_histogram, .kind = BY_EDGES},
    {.name = "aten::_histogramdd_bin_edges", .build = build_bin_edges},
    {.name = "aten::_histogramdd_from_bin_cts", .build = build_histogram, .kind = BY_COUNTS},
    {.name = "aten::_histogramdd_from_bin_tensors", .build = build_histogram, .kind = BY_EDGES},
    {0},
};
