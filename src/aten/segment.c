// Reductions over segments of a dim, given by their lengths or by where they begin and end.
#include <math.h>

#include "aten/dims.h"

typedef enum reduction { R_SUM, R_MEAN, R_MAX, R_MIN, R_PROD } reduction;

typedef struct segments {
  reduction reduce;
  int32_t axis;
  tt_hlo data;                     // [outer * n, inner], in the type to compute in
  int64_t outer, n, inner, count;  // count: segments of each outer position
  tt_hlo lengths;                  // [outer * count]
  tt_hlo at;                       // [outer * n]: the segment that an element is in; -1: none
  int64_t out_dims[TT_MAX_RANK];   // of the result
} segments;

static bool read_reduction(tt_rule *r, segments *s) {
  static const char *const names[] = {"sum", "mean", "max", "min", "prod"};
  const char *given = tt_string(r, "reduce");
  for (int32_t i = 0; i < 5; i++) {
    if (given && !strcmp(given, names[i])) {
      s->reduce = (reduction)i;
      return true;
    }
  }
  tt_fail(r, TT_ERR_RUNTIME, "reduce argument must be either sum, prod, mean, amax or amin, got %s",
          given ? given : "None");
  return false;
}

static bool check_segments(tt_rule *r, segments *s, const tt_operand *data, const tt_operand *bounds) {
  if (data->ndim < bounds->ndim || data->ndim == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected data.dim() >= lengths.dim(), got %d and %d", data->ndim, bounds->ndim);
    return false;
  }
  s->axis = tt_dim(r, "axis", data->ndim);
  if (!tt_failed(r) && s->axis != bounds->ndim - 1) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected axis to be the last dimension of lengths or offsets but got %d.", s->axis);
  }
  for (int32_t i = 0; !tt_failed(r) && i < s->axis; i++) {
    if (data->sizes[i] != bounds->sizes[i]) {
      tt_fail(r, TT_ERR_RUNTIME, "data of sizes %s has no segments of sizes %s",
              tt_dims_text(data->sizes, data->ndim).text, tt_dims_text(bounds->sizes, bounds->ndim).text);
    }
  }
  if (!tt_failed(r) && bounds->dtype != TT_S32 && bounds->dtype != TT_S64) {
    tt_fail_dtype(r, "_segment_reduce_lengths_cpu_kernel1", bounds->dtype);
  } else if (!tt_failed(r) && !tt_dtype_is_float(data->dtype)) {
    tt_fail_dtype(r, "_segment_reduce_cpu", data->dtype);
  }
  return !tt_failed(r);
}

// Where each segment ends, and what is true of lengths: none is negative and they fill the dim.
static tt_hlo ends_of_lengths(tt_rule *r, segments *s, tt_hlo lengths) {
  s->count = lengths->dims[1];
  s->lengths = lengths;
  tt_device_assert(r, v_gec(lengths, 0), TT_ERR_RUNTIME, "lengths contains negative value!");
  if (!tt_bool(r, "unsafe", true)) {
    if (tt_hlo_numel(lengths) == 0) {
      tt_fail(r, TT_ERR_RUNTIME, "there are no lengths");
      return NULL;
    }
    tt_hlo sum = v_reduce(TT_SUM, lengths, 1);
    tt_device_assert(r, sum ? v_eqc(sum, (double)s->n) : NULL, TT_ERR_RUNTIME,
                     "Expected all rows of lengths along axis to sum to data.size(lengths.dim()-1) when !unsafe.");
  }
  return tt_running(TT_SUM, lengths, 1);
}

static tt_hlo ends_of_offsets(tt_rule *r, segments *s, tt_hlo offsets) {
  const int64_t listed = offsets->dims[1];
  if (listed == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Trying to create tensor with negative dimension -1: [-1]");
    return NULL;
  }
  s->count = listed - 1;
  tt_hlo ends = tt_hlo_slice_dim(offsets, 1, 1, listed, 1);
  s->lengths = v_sub(ends, tt_hlo_slice_dim(offsets, 1, 0, listed - 1, 1));
  tt_device_assert(r, v_gec(s->lengths, 0), TT_ERR_RUNTIME, "Expected segment_length >= 0 to be true, but got false.");
  return ends;
}

// Which segment each element is in.
static void place_elements(segments *s, tt_hlo ends, tt_hlo offsets) {
  const int64_t total = s->outer * s->count, rows[] = {s->outer, s->n};
  const tt_dtype type = v_position_type(total > s->n ? total : s->n);
  tt_hlo element = ends ? tt_hlo_iota(tt_hlo_builder_of(ends), ends->dtype, rows, 2, 1) : NULL;
  tt_hlo at = tt_cast(tt_insertion_points(ends, element, true), type);
  if (!at) {
    return;
  }
  tt_hlo valid = v_ltc(at, (double)s->count);
  if (offsets) {
    tt_hlo start = v_squeeze(tt_hlo_slice_dim(offsets, 1, 0, 1, 1), 1);
    valid = v_and(valid, v_ge(element, v_spread(start, element, 1)));
  }
  at = v_add(at, v_mulc(v_iota(at, type, 0), (double)s->count));
  s->at = v_flat(v_if(valid, at, v_const(at, -1)));
}

static bool read_segments(tt_rule *r, segments *s) {
  *s = (segments){0};
  const bool by_lengths = tt_has(r, "lengths");
  if (!read_reduction(r, s)) {
    return false;
  }
  if (tt_has(r, "indices")) {
    tt_fail(r, TT_ERR_RUNTIME, "indices based reduction is not supported yet.");
    return false;
  }
  if (!by_lengths && !tt_has(r, "offsets")) {
    tt_fail(r, TT_ERR_RUNTIME, "Either lengths or offsets must be defined.");
    return false;
  }
  const char *name = by_lengths ? "lengths" : "offsets";
  const tt_operand *data = tt_operand_of(r, "data"), *bounds = tt_operand_of(r, name);
  if (!data || !bounds || !check_segments(r, s, data, bounds)) {
    return false;
  }
  s->outer = s->inner = 1;
  s->n = data->sizes[s->axis];
  for (int32_t i = 0; i < data->ndim; i++) {
    s->out_dims[i] = data->sizes[i];
    s->outer *= i < s->axis ? data->sizes[i] : 1;
    s->inner *= i > s->axis ? data->sizes[i] : 1;
  }
  tt_hlo list = tt_hlo_reshape(tt_in(r, name), (const int64_t[]){s->outer, bounds->sizes[bounds->ndim - 1]}, 2);
  tt_hlo ends = !list ? NULL : by_lengths ? ends_of_lengths(r, s, list) : ends_of_offsets(r, s, list);
  tt_device_assert(r, ends ? v_lec(ends, (double)s->n) : NULL, TT_ERR_RUNTIME, "the segments are longer than the data");
  place_elements(s, ends, by_lengths ? NULL : list);
  s->lengths = v_flat(s->lengths);
  s->out_dims[s->axis] = s->count;
  s->data =
      tt_hlo_reshape(tt_in_as(r, "data", tt_opmath(data->dtype)), (const int64_t[]){s->outer * s->n, s->inner}, 2);
  return s->data && s->at && !tt_failed(r);
}

// ---- values of segments: [outer * count, inner] ----

static tt_hlo start_value(tt_rule *r, const segments *s) {
  if (tt_has(r, "initial")) {
    return tt_scalar(r, "initial", s->data->dtype);
  }
  const double value = s->reduce == R_MAX ? -INFINITY : s->reduce == R_MIN ? INFINITY : s->reduce == R_PROD ? 1 : 0;
  return tt_hlo_scalar(tt_b(r), s->data->dtype, value);
}

static tt_hlo combine(const segments *s, tt_hlo_scatter_kind kind, tt_hlo start, tt_hlo x) {
  const int64_t dims[] = {s->outer * s->count, s->inner};
  return tt_put_slices(kind, v_fill(start, dims, 2), 0, s->at, x);
}

// Each element's segment's value; anything for elements of no segment.
static tt_hlo of_elements(const segments *s, tt_hlo values) {
  return tt_take_slices(values, 0, v_max(s->at, v_const(s->at, 0)));
}

static tt_hlo spread_lengths(const segments *s, tt_hlo values) {
  return values ? v_along(tt_cast(s->lengths, values->dtype), values->dims, 2, 0) : NULL;
}

static void build_segment_reduce(tt_rule *r) {
  static const tt_hlo_scatter_kind kinds[] = {TT_SCATTER_ADD, TT_SCATTER_ADD, TT_SCATTER_MAX, TT_SCATTER_MIN,
                                              TT_SCATTER_MULTIPLY};
  segments s;
  if (!read_segments(r, &s)) {
    return;
  }
  tt_hlo start = start_value(r, &s), value = combine(&s, kinds[s.reduce], start, s.data);
  if (s.reduce == R_MEAN && value) {
    tt_hlo length = spread_lengths(&s, value), empty = length ? v_eqc(length, 0) : NULL;
    tt_hlo of_none = tt_has(r, "initial") ? value : v_const(value, NAN);
    value = v_if(empty, of_none, v_div(value, length));
  }
  const tt_operand *data = tt_operand_of(r, "data");
  tt_ret(r, 0, tt_hlo_reshape(tt_cast(value, data->dtype), s.out_dims, data->ndim));
}

// ---- gradients ----

// To the elements that are the extreme, or NaN. Several share it, where it is positive: PyTorch's rule.
static tt_hlo extreme_grad(const segments *s, tt_hlo grad, tt_hlo output) {
  tt_hlo chosen = v_or(v_isnan(s->data), v_eq(s->data, of_elements(s, output)));
  tt_hlo count = combine(s, TT_SCATTER_ADD, v_zero(s->data), tt_cast(chosen, s->data->dtype));
  tt_hlo share = of_elements(s, v_if(v_gtc(grad, 0), v_div(grad, v_max(count, v_const(count, 1))), grad));
  return v_if(chosen, share, v_const(share, 0));
}

// grad * output / element; of zeros and NaNs, grad * the product of the others.
static tt_hlo product_grad(tt_rule *r, const segments *s, tt_hlo grad, tt_hlo output) {
  const tt_dtype type = s->data->dtype;
  tt_hlo is_nan = v_isnan(s->data), special = v_or(is_nan, v_eqc(s->data, 0)), one = tt_hlo_scalar(tt_b(r), type, 1);
  tt_hlo plain = combine(s, TT_SCATTER_MULTIPLY, tt_has(r, "initial") ? tt_scalar(r, "initial", type) : one,
                         v_if(special, v_like(one, s->data), s->data));
  tt_hlo specials = of_elements(s, combine(s, TT_SCATTER_ADD, v_zero(s->data), tt_cast(special, type)));
  tt_hlo nans = of_elements(s, combine(s, TT_SCATTER_ADD, v_zero(s->data), tt_cast(is_nan, type)));
  tt_hlo others = v_sub(nans, tt_cast(is_nan, type));
  plain = of_elements(s, plain);
  if (!plain || !others) {
    return NULL;
  }
  tt_hlo rest = v_if(v_gtc(others, 0), v_const(plain, NAN), v_mulc(plain, 0));
  tt_hlo exclusive = v_if(v_eqc(specials, 1), plain, rest);
  tt_hlo general = v_div(of_elements(s, v_mul(grad, output)), s->data);
  return v_if(special, v_mul(of_elements(s, grad), exclusive), general);
}

static void build_segment_reduce_backward(tt_rule *r) {
  segments s;
  if (!read_segments(r, &s)) {
    return;
  }
  const int64_t dims[] = {s.outer * s.count, s.inner};
  tt_hlo grad = tt_hlo_reshape(tt_in_as(r, "grad", s.data->dtype), dims, 2), result;
  tt_hlo output = tt_hlo_reshape(tt_in_as(r, "output", s.data->dtype), dims, 2);
  if (!grad || !output) {
    return;
  }
  if (s.reduce == R_SUM || s.reduce == R_MEAN) {
    result = of_elements(&s, s.reduce == R_MEAN ? v_div(grad, spread_lengths(&s, grad)) : grad);
  } else {
    result = s.reduce == R_PROD ? product_grad(r, &s, grad, output) : extreme_grad(&s, grad, output);
  }
  tt_hlo inside = v_along(v_gec(s.at, 0), s.data->dims, 2, 0);
  result = result ? v_if(inside, result, v_const(result, 0)) : NULL;
  const tt_operand *data = tt_operand_of(r, "data");
  tt_ret(r, 0, tt_hlo_reshape(tt_cast(result, data->dtype), data->sizes, data->ndim));
}

const tt_rule_entry tt_rules_segment[] = {
    {.name = "aten::segment_reduce", .build = build_segment_reduce},
    {.name = "aten::_segment_reduce_backward", .build = build_segment_reduce_backward},
    {0},
};
