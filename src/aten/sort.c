// Sorting and what follows from it: topk, kthvalue, median, mode. NaN is greater than any number.
#include "aten/dims.h"

static bool check_sortable(tt_rule *r, const char *complaint) {
  const tt_operand *x = tt_operand_of(r, "self");
  if (x && tt_dtype_is_complex(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "%s", complaint);
  }
  return x && !tt_failed(r);
}

// Sorts a value along a dim, stably; positions as s32 or s64.
static void sort_along(tt_hlo x, int32_t dim, bool descending, tt_hlo *values, tt_hlo *positions) {
  *values = *positions = NULL;
  if (!x) {
    return;
  }
  const tt_dtype dtype = x->dtype;
  tt_hlo keys = dtype == TT_PRED ? tt_cast(x, TT_U8) : x;
  tt_hlo operands[] = {keys, v_iota(x, v_position_type(x->dims[dim]), dim)}, results[2] = {NULL, NULL};
  tt_hlo_sort(operands, 2, dim, descending, true, false, results);
  *values = tt_cast(results[0], dtype);
  *positions = results[1];
}

static void build_sort(tt_rule *r) {
  if (!check_sortable(r, " Sort does not support complex dtypes on CPU")) {
    return;
  }
  tt_hlo x = tt_in(r, "self"), values, positions;
  const int32_t dim = tt_dim(r, "dim", x ? x->rank : 0);
  if (!x || tt_failed(r)) {
    return;
  }
  sort_along(v_at_least_1d(x), dim, tt_bool(r, "descending", false), &values, &positions);
  tt_ret_like(r, 0, v_reshape_like(values, x), "self");
  tt_ret_like(r, 1, tt_cast(v_reshape_like(positions, x), TT_S64), "self");
}

// ---- topk ----

// XLA has a fast top-k for float32 rows: it compares as a total order, in which a NaN's sign counts.
static bool has_fast_top_k(tt_hlo x) { return x->dtype == TT_F32 || x->dtype == TT_BF16 || x->dtype == TT_F16; }

static void fast_top_k(tt_hlo x, int32_t dim, int64_t k, tt_hlo *values, tt_hlo *positions) {
  const tt_dtype dtype = x->dtype;
  tt_hlo rows = tt_cast(v_dim_to_last(x, dim), TT_F32), at = NULL;
  rows = rows ? v_if(v_isnan(rows), v_const(rows, 0.0 / 0.0), rows) : NULL;
  tt_hlo_top_k(rows, k, values, &at);
  *values = tt_cast(v_last_to_dim(*values, dim), dtype);
  *positions = v_last_to_dim(at, dim);
}

static void build_topk(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!check_sortable(r, "topk does not support complex dtypes on CPU")) {
    return;
  }
  if (self->dtype == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "topk does not support bool dtypes on CPU");
    return;
  }
  tt_hlo shape = tt_in(r, "self"), x = v_at_least_1d(shape), values = NULL, positions = NULL;
  const int32_t dim = tt_dim(r, "dim", self->ndim);
  const int64_t k = tt_int(r, "k", 0);
  if (!x || tt_failed(r)) {
    return;
  }
  if (k < 0 || k > x->dims[dim]) {
    tt_fail(r, TT_ERR_RUNTIME, "selected index k out of range");
    return;
  }
  const bool largest = tt_bool(r, "largest", true);
  if (largest && k > 0 && k < x->dims[dim] && has_fast_top_k(x)) {
    fast_top_k(x, dim, k, &values, &positions);
  } else {
    sort_along(x, dim, largest, &values, &positions);
    values = tt_hlo_slice_dim(values, dim, 0, k, 1);
    positions = tt_hlo_slice_dim(positions, dim, 0, k, 1);
  }
  const bool scalar = self->ndim == 0 && k == 1;
  tt_ret(r, 0, scalar ? v_reshape_like(values, shape) : values);
  tt_ret(r, 1, tt_cast(scalar ? v_reshape_like(positions, shape) : positions, TT_S64));
}

// ---- one element of each sorted row ----

// x at `position` (without dim, or 0-d) along dim. `position` is valid.
static tt_hlo pick(tt_hlo x, int32_t dim, tt_hlo position) {
  if (!x || !position) {
    return NULL;
  }
  tt_hlo here = v_eq(v_iota(x, position->dtype, dim), v_spread(position, x, dim));
  tt_hlo low = tt_hlo_min_value(tt_hlo_builder_of(x), x->dtype);
  return v_reduce(TT_MAX, v_if(here, x, v_like(low, x)), dim);
}

// The first position of a true element along dim; the dim's size if there is none.
static tt_hlo first_true(tt_hlo flags, int32_t dim) {
  if (!flags) {
    return NULL;
  }
  tt_hlo at = v_iota(flags, v_position_type(flags->dims[dim]), dim);
  return v_reduce(TT_MIN, v_if(flags, at, v_const(at, (double)flags->dims[dim])), dim);
}

static tt_hlo with_keepdim(tt_rule *r, tt_hlo reduced, int32_t dim, int32_t rank) {
  return tt_bool(r, "keepdim", false) && rank > 0 ? v_unsqueeze(reduced, dim) : reduced;
}

static void ret_pair(tt_rule *r, tt_hlo value, tt_hlo position, int32_t dim, int32_t rank) {
  tt_ret(r, 0, with_keepdim(r, value, dim, rank));
  tt_ret(r, 1, with_keepdim(r, tt_cast(position, TT_S64), dim, rank));
}

// "self" as at least 1-d, and "dim", for operators that need an element to choose.
static tt_hlo read_line(tt_rule *r, const char *kernel, int32_t *dim) {
  tt_hlo x = tt_in(r, "self");
  *dim = tt_dim(r, "dim", x ? x->rank : 0);
  if (!x || tt_failed(r)) {
    return NULL;
  }
  if (tt_dtype_is_complex(x->dtype) || (kernel && x->dtype == TT_PRED)) {
    tt_fail_dtype(r, kernel ? kernel : tt_rule_name(r), x->dtype);
    return NULL;
  }
  if (x->rank > 0 && x->dims[*dim] == 0) {
    tt_fail(r, TT_ERR_INDEX, "Expected reduction dim %d to have non-zero size.", *dim);
    return NULL;
  }
  return v_at_least_1d(x);
}

static void build_kthvalue(tt_rule *r) {
  int32_t dim;
  tt_hlo x = read_line(r, "kthvalue_cpu", &dim), values, positions;
  const int64_t k = tt_int(r, "k", 1);
  if (!x) {
    return;
  }
  if (k < 1 || k > x->dims[dim]) {
    tt_fail(r, TT_ERR_RUNTIME, "selected number k out of range for dimension %d", dim);
    return;
  }
  sort_along(x, dim, false, &values, &positions);
  ret_pair(r, v_squeeze(tt_hlo_slice_dim(values, dim, k - 1, k, 1), dim),
           v_squeeze(tt_hlo_slice_dim(positions, dim, k - 1, k, 1), dim), dim, tt_operand_of(r, "self")->ndim);
}

// ---- median ----
static void median_along(tt_hlo x, int32_t dim, bool ignore_nan, tt_hlo *value, tt_hlo *position) {
  tt_hlo values, positions;
  sort_along(x, dim, false, &values, &positions);
  if (!values) {
    *value = *position = NULL;
    return;
  }
  const int64_t n = x->dims[dim], middle = (n - 1) / 2;
  const bool has_nan = tt_dtype_is_float(x->dtype);
  if (has_nan && ignore_nan) {
    tt_hlo numbers = v_reduce(TT_SUM, tt_cast(v_not(v_isnan(values)), positions->dtype), dim);
    tt_hlo at = numbers ? v_div(v_max(v_addc(numbers, -1), v_const(numbers, 0)), v_const(numbers, 2)) : NULL;
    *value = pick(values, dim, at);
    *position = pick(positions, dim, at);
    return;
  }
  *value = v_squeeze(tt_hlo_slice_dim(values, dim, middle, middle + 1, 1), dim);
  *position = v_squeeze(tt_hlo_slice_dim(positions, dim, middle, middle + 1, 1), dim);
  if (has_nan) {
    tt_hlo first = first_true(v_isnan(x), dim);
    tt_hlo any = first ? v_ltc(first, (double)n) : NULL;
    *value = any ? v_if(any, v_const(*value, 0.0 / 0.0), *value) : NULL;
    *position = v_if(any, first, *position);
  }
}

enum { KIND_MEDIAN, KIND_NANMEDIAN };

static void build_median_dim(tt_rule *r) {
  int32_t dim;
  tt_hlo x = read_line(r, "median_cpu", &dim), value, position;
  if (x) {
    median_along(x, dim, tt_rule_kind(r) == KIND_NANMEDIAN, &value, &position);
    ret_pair(r, value, position, dim, tt_operand_of(r, "self")->ndim);
  }
}

static void build_median(tt_rule *r) {
  tt_hlo x = tt_in(r, "self"), value, position;
  if (!x) {
    return;
  }
  if (tt_dtype_is_complex(x->dtype) || x->dtype == TT_PRED) {
    tt_fail_dtype(r, "median_cpu", x->dtype);
    return;
  }
  if (tt_hlo_numel(x) == 0) {
    tt_ret(r, 0,
           tt_dtype_is_float(x->dtype) ? tt_hlo_scalar(tt_b(r), x->dtype, 0.0 / 0.0)
                                       : tt_hlo_min_value(tt_b(r), x->dtype));
    return;
  }
  median_along(v_flat(x), 0, tt_rule_kind(r) == KIND_NANMEDIAN, &value, &position);
  tt_ret(r, 0, value);
}

// ---- mode: the longest run of the sorted row, the smallest value among equals, its last position ----
static void build_mode(tt_rule *r) {
  int32_t dim;
  tt_hlo x = read_line(r, NULL, &dim), values, positions;
  if (!x) {
    return;
  }
  sort_along(x->dtype == TT_PRED ? tt_cast(x, TT_U8) : x, dim, false, &values, &positions);
  if (!values) {
    return;
  }
  const int64_t n = x->dims[dim];
  tt_hlo at = v_iota(values, positions->dtype, dim), start = v_const(at, 0);
  if (n > 1) {
    tt_hlo differs = v_ne(tt_hlo_slice_dim(values, dim, 1, n, 1), tt_hlo_slice_dim(values, dim, 0, n - 1, 1));
    tt_hlo begins = v_pad0(tt_cast(differs, at->dtype), dim, 1, 0, 0);
    start = tt_running(TT_MAX, v_mul(begins, at), dim);
  }
  tt_hlo length = v_sub(at, start);
  tt_hlo longest = v_reduce(TT_MAX, length, dim);
  tt_hlo end = first_true(v_eq(length, v_spread(longest, length, dim)), dim);
  ret_pair(r, tt_cast(pick(values, dim, end), x->dtype), pick(positions, dim, end), dim,
           tt_operand_of(r, "self")->ndim);
}

const tt_rule_entry tt_rules_sort[] = {
    {.name = "aten::sort", .build = build_sort},
    {.name = "aten::sort.stable", .build = build_sort},
    {.name = "aten::topk", .build = build_topk},
    {.name = "aten::kthvalue", .build = build_kthvalue},
    {.name = "aten::median", .build = build_median, .kind = KIND_MEDIAN},
    {.name = "aten::nanmedian", .build = build_median, .kind = KIND_NANMEDIAN},
    {.name = "aten::median.dim", .build = build_median_dim, .kind = KIND_MEDIAN},
    {.name = "aten::nanmedian.dim", .build = build_median_dim, .kind = KIND_NANMEDIAN},
    {.name = "aten::mode", .build = build_mode},
    {.name = NULL},
};
