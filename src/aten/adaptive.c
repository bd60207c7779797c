// Pooling to a given size: window i of a dim covers [floor(i * in / out), ceil((i + 1) * in / out)).
#include <inttypes.h>
#include <stdlib.h>

#include "aten/axis.h"

enum { MAX_SPATIAL = 3 };
enum { POOL_2D = 2, POOL_3D = 3 };

typedef struct axis_windows {
  int64_t count, longest;
  int64_t *start, *end;
} axis_windows;

static void windows_free(axis_windows *w) {
  free(w->start);
  *w = (axis_windows){0};
}

// PyTorch's start_index and end_index. With in and out exchanged: the outputs whose windows hold position i.
static bool windows_of(tt_rule *r, int64_t in, int64_t out, axis_windows *w) {
  *w = (axis_windows){.count = out, .start = malloc(2 * sizeof(int64_t) * (size_t)(out + 1))};
  if (!w->start) {
    tt_fail(r, TT_ERR_OUT_OF_MEMORY, "out of host memory");
    return false;
  }
  w->end = w->start + out;
  for (int64_t i = 0; i < out; i++) {
    w->start[i] = i / out * in + i % out * in / out;
    w->end[i] = ((i + 1) * in + out - 1) / out;
    const int64_t length = w->end[i] - w->start[i];
    w->longest = length > w->longest ? length : w->longest;
  }
  return true;
}

// x divided along dim by the lengths of the windows.
static tt_hlo divide_by_lengths(tt_rule *r, tt_hlo x, int32_t dim, const axis_windows *w) {
  double *lengths = malloc(sizeof *lengths * (size_t)(w->count + 1));
  if (!lengths) {
    tt_fail(r, TT_ERR_OUT_OF_MEMORY, "out of host memory");
    return NULL;
  }
  for (int64_t i = 0; i < w->count; i++) {
    lengths[i] = (double)(w->end[i] - w->start[i]);
  }
  x = x ? v_div(x, tt_axis_values(x, dim, lengths, w->count)) : NULL;
  free(lengths);
  return x;
}

// ---- average ----

static tt_hlo average(tt_rule *r, tt_hlo x, int32_t lead, const int64_t *out, int32_t n) {
  for (int32_t i = n - 1; i >= 0 && x; i--) {
    axis_windows w;
    if (!windows_of(r, x->dims[lead + i], out[i], &w)) {
      return NULL;
    }
    x = tt_axis_window_sum(x, lead + i, w.start, w.end, w.count);
    windows_free(&w);
  }
  return x;
}

static tt_hlo divide_by_windows(tt_rule *r, tt_hlo x, int32_t lead, const int64_t *in, int32_t n) {
  for (int32_t i = 0; i < n && x; i++) {
    axis_windows w;
    if (!windows_of(r, in[i], x->dims[lead + i], &w)) {
      return NULL;
    }
    x = divide_by_lengths(r, x, lead + i, &w);
    windows_free(&w);
  }
  return x;
}

// ---- max ----

// Dim `dim` of x as [count, longest]: window i's elements, `fill` after its end.
static tt_hlo lay_out_windows(tt_rule *r, tt_hlo x, int32_t dim, const axis_windows *w, tt_hlo fill) {
  const int64_t total = w->count * w->longest;
  int64_t *positions = malloc(2 * sizeof *positions * (size_t)(total + 1)), *lengths = positions + total, dims[V_DIMS];
  if (!positions || !x) {
    free(positions);
    if (x) {
      tt_fail(r, TT_ERR_OUT_OF_MEMORY, "out of host memory");
    }
    return NULL;
  }
  for (int64_t i = 0; i < total; i++) {
    const int64_t p = w->start[i / w->longest] + i % w->longest;
    positions[i] = p < x->dims[dim] ? p : x->dims[dim] - 1;
    lengths[i / w->longest] = w->end[i / w->longest] - w->start[i / w->longest];
  }
  for (int32_t i = 0; i < x->rank; i++) {
    dims[i > dim ? i + 1 : i] = x->dims[i];
  }
  dims[dim] = w->count;
  dims[dim + 1] = w->longest;
  x = tt_hlo_reshape(tt_axis_take(x, dim, positions, total), dims, x->rank + 1);
  if (x) {
    tt_hlo inside = v_lt(v_iota(x, TT_S32, dim + 1), tt_axis_ints(x, dim, TT_S32, lengths, w->count));
    x = v_if(inside, x, v_fill(fill, x->dims, x->rank));
  }
  free(positions);
  return x;
}

// (value, position): the later of two NaN, a NaN, the greater, of equals the earlier.
static void greater_of(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)context;
  (void)b;
  tt_hlo first = v_lt(left[1], right[1]), left_nan = v_isnan(left[0]), right_nan = v_isnan(right[0]);
  tt_hlo keep = v_or(v_gt(left[0], right[0]), v_and(v_eq(left[0], right[0]), first));
  keep = v_if(left_nan, v_or(v_not(right_nan), v_not(first)), v_and(keep, v_not(right_nan)));
  out[0] = v_if(keep, left[0], right[0]);
  out[1] = v_if(keep, left[1], right[1]);
}

static void max_of_windows(tt_rule *r, tt_hlo x, int32_t lead, const int64_t *out, int32_t n, tt_hlo *results) {
  results[0] = results[1] = NULL;
  if (!x) {
    return;
  }
  int64_t positions = 1;
  for (int32_t i = 0; i < n; i++) {
    positions *= x->dims[lead + i];
  }
  const tt_dtype type = v_position_type(positions);
  tt_hlo lowest = tt_hlo_min_value(tt_b(r), x->dtype), none = tt_hlo_scalar(tt_b(r), type, (double)positions);
  tt_hlo at = tt_hlo_iota(tt_b(r), type, &positions, 1, 0);
  at = at ? tt_hlo_reshape(at, x->dims + lead, n) : NULL;
  for (int32_t i = n - 1; i >= 0; i--) {
    axis_windows w;
    if (!windows_of(r, x->dims[lead + i], out[i], &w)) {
      return;
    }
    x = lay_out_windows(r, x, lead + i, &w, lowest);
    at = lay_out_windows(r, at, i, &w, none);
    windows_free(&w);
    if (!x || !at) {
      return;
    }
  }
  int32_t mapping[2 * MAX_SPATIAL], over[MAX_SPATIAL];
  for (int32_t i = 0; i < n; i++) {
    mapping[2 * i] = lead + 2 * i;
    mapping[2 * i + 1] = over[i] = lead + 2 * i + 1;
  }
  const tt_hlo xs[] = {x, tt_hlo_broadcast_in_dim(at, x->dims, x->rank, mapping)}, inits[] = {lowest, none};
  tt_hlo_reduce_multi(xs, inits, 2, over, n, greater_of, NULL, results);
}

// ---- operators ----

static bool check_input(tt_rule *r, const tt_operand *x, const char *colon) {
  const int32_t n = tt_rule_kind(r);
  if (x->ndim != n + 1 && x->ndim != n + 2) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected %dD or %dD tensor, but got%s %s", n + 1, n + 2, colon,
            tt_dims_text(x->sizes, x->ndim).text);
    return false;
  }
  for (int32_t d = x->ndim - n - 1; d < x->ndim; d++) {
    if (x->sizes[d] == 0) {
      tt_fail(r, TT_ERR_RUNTIME,
              "Expected input to have non-zero size for non-batch dimensions, but input has sizes %s "
              "with dimension %d being empty",
              tt_dims_text(x->sizes, x->ndim).text, d);
      return false;
    }
  }
  return true;
}

static bool read_output_size(tt_rule *r, int64_t *out) {
  const int32_t n = tt_rule_kind(r);
  int32_t count;
  const int64_t *sizes = tt_ints(r, "output_size", &count);
  if (count != n) {
    tt_fail(r, TT_ERR_RUNTIME, "output_size must be %d", n);
    return false;
  }
  for (int32_t i = 0; i < n; i++) {
    out[i] = sizes[i];
    if (out[i] < 0) {
      tt_fail(r, TT_ERR_RUNTIME, "elements of output_size must be greater than or equal to 0 but received %s",
              tt_dims_text(sizes, count).text);
    } else if (out[i] > 1 << 20) {  // the windows are listed one by one
      tt_fail(r, TT_ERR_RUNTIME, "output_size %s is too large", tt_dims_text(sizes, count).text);
    }
  }
  return !tt_failed(r);
}

static bool check_float(tt_rule *r, tt_dtype dtype, const char *kernel) {
  if (!tt_dtype_is_float(dtype)) {
    tt_fail_dtype(r, kernel, dtype);
  }
  return tt_dtype_is_float(dtype);
}

static void build_average(tt_rule *r) {
  const int32_t n = tt_rule_kind(r);
  const tt_operand *x = tt_operand_of(r, "self");
  int64_t out[MAX_SPATIAL];
  if (!x || !check_input(r, x, "") || !read_output_size(r, out) ||
      !check_float(r, x->dtype, n == POOL_2D ? "adaptive_avg_pool2d" : "adaptive_avg_pool3d_cpu")) {
    return;
  }
  const int32_t lead = x->ndim - n;
  tt_hlo y = average(r, tt_in_as(r, "self", tt_opmath(x->dtype)), lead, out, n);
  y = divide_by_windows(r, y, lead, x->sizes + lead, n);
  tt_ret_format(r, 0, tt_cast(y, x->dtype), n == POOL_2D && tt_is_channels_last(x));
}

static bool check_gradient(tt_rule *r, const tt_operand *g, const tt_operand *x) {
  if (g->ndim != x->ndim) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected dimensions %d for `grad_output` but got dimensions %d", x->ndim, g->ndim);
  } else if (g->dtype != x->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected dtype %s for `grad_output` but got dtype %s", tt_type_meta_name(x->dtype),
            tt_type_meta_name(g->dtype));
  }
  return !tt_failed(r) && check_input(r, x, "");
}

static void build_average_backward(tt_rule *r) {
  const int32_t n = tt_rule_kind(r);
  const tt_operand *g = tt_operand_of(r, "grad_output"), *x = tt_operand_of(r, "self");
  if (!g || !x || !check_gradient(r, g, x)) {
    return;
  }
  const int32_t lead = x->ndim - n;
  tt_hlo dx = tt_in_as(r, "grad_output", tt_opmath(x->dtype));
  dx = divide_by_windows(r, dx, lead, x->sizes + lead, n);
  dx = average(r, dx, lead, x->sizes + lead, n);
  tt_ret_format(r, 0, tt_cast(dx, x->dtype), n == POOL_2D && tt_is_channels_last(x));
}

static void build_max(tt_rule *r) {
  const int32_t n = tt_rule_kind(r);
  const tt_operand *x = tt_operand_of(r, "self");
  int64_t out[MAX_SPATIAL];
  if (!x || !check_input(r, x, ":") || !read_output_size(r, out) ||
      !check_float(r, x->dtype, n == POOL_2D ? "adaptive_max_pool2d" : "adaptive_max_pool3d_cpu")) {
    return;
  }
  const int32_t lead = x->ndim - n;
  tt_hlo results[2];
  int64_t dims[MAX_SPATIAL + 2], count = 1;
  for (int32_t d = 0; d < x->ndim; d++) {
    dims[d] = d < lead ? x->sizes[d] : out[d - lead];
    count *= dims[d];
  }
  if (count == 0) {
    results[0] = tt_hlo_const(tt_b(r), x->dtype, 0, dims, x->ndim);
    results[1] = tt_hlo_const(tt_b(r), TT_S64, 0, dims, x->ndim);
  } else {
    max_of_windows(r, tt_in(r, "self"), lead, out, n, results);
  }
  const bool last = n == POOL_2D && tt_is_channels_last(x);
  tt_ret_format(r, 0, results[0], last);
  tt_ret_format(r, 1, tt_cast(results[1], TT_S64), last);
}

static void build_max_backward(tt_rule *r) {
  const int32_t n = tt_rule_kind(r);
  const tt_operand *g = tt_operand_of(r, "grad_output"), *x = tt_operand_of(r, "self"),
                   *at = tt_operand_of(r, "indices");
  if (!g || !x || !at || !check_gradient(r, g, x)) {
    return;
  }
  int64_t planes = 1, positions = 1, per_plane = 1;
  for (int32_t d = 0; d < x->ndim; d++) {
    *(d < x->ndim - n ? &planes : &positions) *= x->sizes[d];
    per_plane *= d < x->ndim - n ? 1 : g->sizes[d];
  }
  const int64_t total = planes * positions, flat[] = {planes, per_plane};
  const tt_dtype type = v_position_type(total);
  tt_hlo index = tt_hlo_reshape(tt_hlo_convert(tt_in(r, "indices"), type), flat, 2);
  index = index ? v_add(index, v_mulc(v_iota(index, type, 0), (double)positions)) : NULL;
  tt_hlo zeros = tt_hlo_const(tt_b(r), tt_opmath(x->dtype), 0, &total, 1);
  tt_hlo dx =
      tt_put_flat(TT_SCATTER_ADD, zeros, v_flat(index), v_flat(tt_in_as(r, "grad_output", tt_opmath(x->dtype))));
  tt_ret_format(r, 0, tt_cast(tt_hlo_reshape(dx, x->sizes, x->ndim), x->dtype), n == POOL_2D && tt_is_channels_last(x));
}

const tt_rule_entry tt_rules_adaptive[] = {
    {.name = "aten::adaptive_avg_pool2d.out", .build = build_average, .kind = POOL_2D},
    {.name = "aten::adaptive_avg_pool3d.out", .build = build_average, .kind = POOL_3D},
    {.name = "aten::adaptive_avg_pool3d_backward.grad_input", .build = build_average_backward, .kind = POOL_3D},
    {.name = "aten::_adaptive_avg_pool2d", .build = build_average, .kind = POOL_2D},
    {.name = "aten::_adaptive_avg_pool3d", .build = build_average, .kind = POOL_3D},
    {.name = "aten::_adaptive_avg_pool2d_backward", .build = build_average_backward, .kind = POOL_2D},
    {.name = "aten::_adaptive_avg_pool3d_backward", .build = build_average_backward, .kind = POOL_3D},
    {.name = "aten::adaptive_max_pool2d", .build = build_max, .kind = POOL_2D},
    {.name = "aten::adaptive_max_pool3d", .build = build_max, .kind = POOL_3D},
    {.name = "aten::adaptive_max_pool2d_backward", .build = build_max_backward, .kind = POOL_2D},
    {.name = "aten::adaptive_max_pool3d_backward", .build = build_max_backward, .kind = POOL_3D},
    {0},
};
