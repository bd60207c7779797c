// Searching sorted rows, membership, histograms.
#include <math.h>

#include "aten/dims.h"

enum { FEW_BOUNDARIES = 64 };

tt_hlo tt_insertion_points(tt_hlo rows, tt_hlo values, bool right) {
  if (!rows || !values) {
    return NULL;
  }
  const int64_t n = rows->dims[1], cube[] = {values->dims[0], values->dims[1], n};
  const tt_dtype type = v_position_type(tt_hlo_numel(rows));
  tt_hlo low = tt_hlo_const(tt_hlo_builder_of(rows), type, 0, values->dims, 2);
  if (n == 0 || tt_hlo_numel(values) == 0) {
    return low;
  }
  if (n <= FEW_BOUNDARIES) {
    tt_hlo bound = tt_hlo_broadcast_in_dim(rows, cube, 3, (const int32_t[]){0, 2});
    tt_hlo value = tt_hlo_broadcast_in_dim(values, cube, 3, (const int32_t[]){0, 1});
    return v_reduce(TT_SUM, tt_cast(v_not(right ? v_gt(bound, value) : v_ge(bound, value)), type), 2);
  }
  // Binary search, all values at once.
  tt_hlo high = v_const(low, (double)n), row = v_mulc(v_iota(low, type, 0), (double)n), flat = v_flat(rows);
  for (int64_t span = n; span > 0; span /= 2) {
    tt_hlo middle = v_div(v_add(low, high), v_const(low, 2));
    tt_hlo bound = tt_take_flat(flat, v_add(row, v_min(middle, v_const(low, (double)(n - 1)))));
    tt_hlo open = v_lt(low, high);
    tt_hlo above = v_and(open, v_not(right ? v_gt(bound, values) : v_ge(bound, values)));
    high = v_if(v_and(open, v_not(above)), middle, high);
    low = v_if(above, v_addc(middle, 1), low);
  }
  return low;
}

// ---- searchsorted, bucketize ----
static bool read_side(tt_rule *r, bool *right) {
  const char *side = tt_string(r, "side");
  *right = tt_bool(r, "right", false);
  if (side && strcmp(side, "left") != 0 && strcmp(side, "right") != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "side can only be 'left' or 'right' but got %s", side);
  } else if (side && *right && !strcmp(side, "left")) {
    tt_fail(r, TT_ERR_RUNTIME, "side and right can't be set to opposites, got side of left while right was True");
  }
  *right = *right || (side && !strcmp(side, "right"));
  return !tt_failed(r);
}

static void build_searchsorted(tt_rule *r) {
  const char *sequence = tt_rule_kind(r) ? "boundaries" : "sorted_sequence";
  bool right;
  tt_hlo sorted = tt_in(r, sequence);
  const tt_operand *operand = tt_operand_of(r, "self");
  if (!sorted || !read_side(r, &right)) {
    return;
  }
  if (tt_rule_kind(r) && sorted->rank != 1) {
    tt_fail(r, TT_ERR_RUNTIME, "boundaries tensor must be 1 dimension, but got dim(%d)", sorted->rank);
    return;
  }
  const tt_dtype dtype = tt_result_type(r, (const char *const[]){sequence, "self"}, 2);
  tt_hlo self = tt_in_number(r, "self", dtype);
  bool matches = sorted->rank == 1 || (operand && sorted->rank == operand->ndim && sorted->rank > 0);
  for (int32_t i = 0; matches && sorted->rank > 1 && i + 1 < sorted->rank; i++) {
    matches = sorted->dims[i] == operand->sizes[i];
  }
  if (!self || !matches) {
    tt_fail(r, TT_ERR_RUNTIME,
            "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor and input value "
            "tensor "
            "must match, but we got boundaries tensor %s and input value tensor %s",
            tt_dims_text(sorted->dims, sorted->rank).text, self ? tt_dims_text(self->dims, self->rank).text : "[]");
    return;
  }
  if (tt_operand_of(r, "sorter")) {
    tt_hlo sorter = tt_positions(r, tt_in(r, "sorter"), sorted->dims[sorted->rank - 1], false, "sorter index");
    if (sorter && !tt_hlo_same_dims(sorter, sorted)) {
      tt_fail(r, TT_ERR_RUNTIME,
              "boundary and sorter must have the same size, but got boundary tensor %s and got sorter "
              "tensor %s",
              tt_dims_text(sorted->dims, sorted->rank).text, tt_dims_text(sorter->dims, sorter->rank).text);
      return;
    }
    sorted = tt_take_along(sorted, sorted->rank - 1, sorter);
  }
  if (!sorted) {
    return;
  }
  const int64_t n = sorted->dims[sorted->rank - 1];
  int64_t rows = 1;
  for (int32_t i = 0; i + 1 < sorted->rank; i++) {
    rows *= sorted->dims[i];
  }
  tt_hlo table = tt_hlo_reshape(tt_cast(sorted, dtype), (int64_t[]){rows, n}, 2);
  tt_hlo values = tt_hlo_reshape(self, (int64_t[]){rows, rows ? tt_hlo_numel(self) / rows : 0}, 2);
  const tt_dtype out = tt_bool(r, "out_int32", false) ? TT_S32 : TT_S64;
  tt_ret(r, 0, tt_cast(v_reshape_like(tt_insertion_points(table, values, right), self), out));
}

// ---- isin ----
static void build_isin(tt_rule *r) {
  const char *const elements = tt_rule_kind(r) == 1 ? "element" : "elements";
  const char *const tests = tt_rule_kind(r) == 2 ? "test_element" : "test_elements";
  const tt_dtype dtype = tt_result_type(r, (const char *const[]){elements, tests}, 2);
  if (tt_dtype_is_complex(dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "Unsupported input type encountered for isin(): %s", tt_type_name(dtype));
    return;
  }
  tt_hlo x = tt_in_number(r, elements, dtype), test = v_flat(tt_in_number(r, tests, dtype));
  if (!x || !test) {
    return;
  }
  const int64_t n = test->dims[0], count = tt_hlo_numel(x);
  tt_hlo found;
  if (n == 0 || count == 0) {
    found = tt_hlo_const(tt_b(r), TT_PRED, 0, &count, 1);
  } else if (n <= FEW_BOUNDARIES) {
    const int64_t square[] = {count, n};
    found = v_reduce(TT_ANY, v_eq(v_along(v_flat(x), square, 2, 0), v_along(test, square, 2, 1)), 1);
  } else {
    tt_hlo sorted = NULL, key = dtype == TT_PRED ? tt_cast(test, TT_U8) : test;
    tt_hlo_sort(&key, 1, 0, false, false, false, &sorted);
    tt_hlo values = tt_cast(v_flat(x), key ? key->dtype : dtype);
    tt_hlo at = v_flat(tt_insertion_points(v_unsqueeze(sorted, 0), v_unsqueeze(values, 0), false));
    at = at ? v_min(at, v_const(at, (double)(n - 1))) : NULL;
    found = v_eq(tt_take_flat(sorted, at), values);
  }
  found = v_reshape_like(found, x);
  tt_ret(r, 0, tt_bool(r, "invert", false) ? v_not(found) : found);
}

// ---- histc ----

// A half's bin depends on how each step rounds.
static tt_hlo in_steps(tt_hlo x, tt_dtype dtype) { return x ? tt_cast(tt_cast(x, dtype), x->dtype) : NULL; }

static void build_histc(tt_rule *r) {
  tt_hlo self = tt_in(r, "self");
  const int64_t bins = tt_int(r, "bins", 100);
  double low = tt_static_double(r, "min", 0), high = tt_static_double(r, "max", 0);
  if (!self) {
    return;
  }
  if (!tt_dtype_is_float(self->dtype)) {
    tt_fail_dtype(r, "histogram_cpu", self->dtype);
    return;
  }
  if (bins < 1 || low > high || !isfinite(low) || !isfinite(high)) {
    tt_fail(r, TT_ERR_RUNTIME,
            bins < 1     ? "bins must be > 0"
            : low > high ? "max must be larger than min"
                         : "range of min and max is not finite");
    return;
  }
  const tt_dtype dtype = self->dtype;
  tt_hlo x = tt_cast(v_flat(self), tt_opmath(dtype));
  tt_hlo from = tt_cast(tt_hlo_scalar(tt_b(r), dtype, low), tt_opmath(dtype));
  tt_hlo to = tt_cast(tt_hlo_scalar(tt_b(r), dtype, high), tt_opmath(dtype));
  if (low == high && tt_hlo_numel(x) > 0) {  // the data's own range
    from = v_reduce(TT_MIN, x, 0);
    to = v_reduce(TT_MAX, x, 0);
    tt_device_assert(r, tt_hlo_unary(TT_IS_FINITE, v_sub(to, from)), TT_ERR_RUNTIME,
                     "range of [min, max] is not finite");
  }
  tt_hlo one_value = v_eq(from, to);
  from = one_value ? in_steps(v_if(one_value, v_addc(from, -1), from), dtype) : NULL;
  to = one_value ? in_steps(v_if(one_value, v_addc(to, 1), to), dtype) : NULL;
  tt_hlo low_x = v_like(from, x), high_x = v_like(to, x);
  tt_hlo place = in_steps(v_sub(x, low_x), dtype);
  place = place ? in_steps(v_mul(place, in_steps(v_const(place, (double)bins), dtype)), dtype) : NULL;
  place = in_steps(v_div(place, in_steps(v_sub(high_x, low_x), dtype)), dtype);
  tt_hlo inside = v_and(v_ge(x, low_x), v_le(x, high_x));
  if (!place || !inside) {
    return;
  }
  tt_hlo at = tt_cast(v_if(inside, place, v_const(place, 0)), TT_S32);
  at = v_if(inside, v_min(at, v_const(at, (double)(bins - 1))), v_const(at, -1));
  tt_hlo count = tt_hlo_const(tt_b(r), TT_S32, 0, &bins, 1);
  tt_ret(r, 0, tt_cast(tt_put_flat(TT_SCATTER_ADD, count, at, v_const(at, 1)), self->dtype));
}

const tt_rule_entry tt_rules_search[] = {
    {.name = "aten::searchsorted.Tensor", .build = build_searchsorted, .kind = 0},
    {.name = "aten::searchsorted.Scalar", .build = build_searchsorted, .kind = 0},
    {.name = "aten::bucketize.Tensor", .build = build_searchsorted, .kind = 1},
    {.name = "aten::bucketize.Scalar", .build = build_searchsorted, .kind = 1},
    {.name = "aten::isin.Tensor_Tensor", .build = build_isin, .kind = 0},
    {.name = "aten::isin.Scalar_Tensor", .build = build_isin, .kind = 1},
    {.name = "aten::isin.Tensor_Scalar", .build = build_isin, .kind = 2},
    {.name = "aten::histc", .build = build_histc, .static_args = "min,max"},
    {.name = NULL},
};
