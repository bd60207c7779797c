// Fake quantization: values rounded to the grid that a quantized type would hold, and the gradients of that.
#include <math.h>

#include "aten/dims.h"

typedef struct grid {
  tt_dtype dtype;         // of the tensors
  tt_hlo x, scale, zero;  // of one shape and type; zero is a whole number unless `fractional`
  bool fractional;
  bool wraps;  // infinities become the lowest int64, as a conversion does; else they are the grid's ends
  double low, high;
  tt_hlo level;   // the level of x, s64
  tt_hlo inside;  // it is one of the grid's
} grid;

static bool read_limits(tt_rule *r, grid *g, const char *kernel) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!self) {
    return false;
  }
  *g = (grid){.dtype = self->dtype,
              .low = (double)tt_int(r, "quant_min", 0),
              .high = (double)tt_int(r, "quant_max", 0),
              .x = tt_in_as(r, "self", tt_opmath(self->dtype))};
  if (g->low > g->high) {
    tt_fail(r, TT_ERR_RUNTIME, "`quant_min` should be less than or equal to `quant_max`.");
  } else if (!tt_dtype_is_float(self->dtype)) {
    tt_fail_dtype(r, kernel, self->dtype);
  }
  return g->x && !tt_failed(r);
}

static tt_hlo clamp(const grid *g, tt_hlo x) {
  return x ? v_min(v_max(x, v_const(x, g->low)), v_const(x, g->high)) : NULL;
}

// Scales are float32: their reciprocals round as that.
static void find_levels(grid *g) {
  tt_hlo narrow = tt_cast(g->scale, TT_F32);
  tt_hlo inverse = tt_cast(narrow ? v_cdiv(1, narrow) : NULL, g->x->dtype);
  tt_hlo scaled = v_mul(g->x, inverse);
  tt_hlo level = g->fractional ? tt_hlo_unary(TT_ROUND_EVEN, v_add(scaled, g->zero))
                               : v_add(tt_hlo_unary(TT_ROUND_EVEN, scaled), g->zero);
  if (level && !g->wraps) {
    tt_hlo below = v_const(level, g->low - 1);
    level = v_min(v_max(v_if(v_isnan(level), below, level), below), v_const(level, g->high + 1));
  }
  g->level = tt_cast(level, TT_S64);
  g->inside = g->level ? v_and(v_gec(g->level, g->low), v_lec(g->level, g->high)) : NULL;
}

static tt_hlo on_grid(const grid *g) {
  return v_mul(v_sub(tt_cast(clamp(g, g->level), g->x->dtype), g->zero), g->scale);
}

// The first element of a tensor, 0-d.
static tt_hlo first_of(tt_rule *r, const char *name) {
  tt_hlo value = tt_in(r, name);
  if (!value) {
    return NULL;
  }
  if (value->rank == 0 || tt_hlo_numel(value) == 0) {
    tt_fail(r, TT_ERR_INDEX, "%s must be a tensor of one dimension and at least one element", name);
    return NULL;
  }
  value = tt_hlo_slice_dim(v_flat(value), 0, 0, 1, 1);
  return tt_hlo_reshape(value, NULL, 0);
}

static void ret_cached(tt_rule *r, const grid *g) {
  tt_ret_like(r, 0, tt_cast(on_grid(g), g->dtype), "self");
  tt_ret_like(r, 1, g->inside, "self");
}

// ---- one scale for all ----

static void build_per_tensor(tt_rule *r) {
  grid g;
  if (!read_limits(r, &g, "fake_quantize_tensor_cachemask_kernel_type_handling")) {
    return;
  }
  tt_hlo zero = tt_scalar(r, "zero_point", TT_S64);
  tt_device_assert(r, zero ? v_eq(zero, clamp(&g, zero)) : NULL, TT_ERR_RUNTIME,
                   "`zero_point` must be between `quant_min` and `quant_max`.");
  g.scale = v_like(tt_cast(tt_scalar(r, "scale", TT_F32), g.x->dtype), g.x);
  g.zero = v_like(tt_cast(zero, g.x->dtype), g.x);
  find_levels(&g);
  ret_cached(r, &g);
}

static void build_tensor_parameters(tt_rule *r) {
  grid g;
  if (!read_limits(r, &g, "fake_quantize_tensor_cachemask_kernel_type_handling")) {
    return;
  }
  const tt_dtype compute = g.x->dtype;
  g.scale = v_like(tt_cast(tt_cast(first_of(r, "scale"), TT_F32), compute), g.x);
  g.zero = v_like(tt_cast(tt_cast(first_of(r, "zero_point"), TT_S32), compute), g.x);
  tt_hlo enabled = v_like(tt_cast(first_of(r, "fake_quant_enabled"), TT_PRED), g.x);
  find_levels(&g);
  tt_ret_like(r, 0, tt_cast(v_if(enabled, on_grid(&g), g.x), g.dtype), "self");
  tt_ret_like(r, 1, enabled ? v_or(g.inside, v_not(enabled)) : NULL, "self");
}

// Learnable zero points are real numbers: rounded, and kept on the grid. PyTorch rounds in two ways.
static bool read_learnable(tt_rule *r, grid *g, bool backward) {
  if (!read_limits(r, g, "fake_quantize_learnable")) {
    return false;
  }
  tt_hlo scale = tt_cast(first_of(r, "scale"), TT_F32), zero = tt_cast(first_of(r, "zero_point"), TT_F32);
  zero = !zero ? NULL : backward ? tt_hlo_unary(TT_ROUND_EVEN, zero) : v_addc(zero, 0.5);
  zero = tt_cast(clamp(g, zero), TT_S64);
  g->wraps = backward;
  g->scale = v_like(tt_cast(scale, g->x->dtype), g->x);
  g->zero = v_like(tt_cast(zero, g->x->dtype), g->x);
  find_levels(g);
  return g->inside != NULL;
}

static void build_learnable(tt_rule *r) {
  grid g;
  if (read_learnable(r, &g, false)) {
    tt_ret_like(r, 0, tt_cast(on_grid(&g), g.dtype), "self");
  }
}

// ---- a scale for each channel ----

static bool read_channels(tt_rule *r, grid *g, bool learnable) {
  const tt_operand *self = tt_operand_of(r, "self"), *scale = tt_operand_of(r, "scale");
  const tt_operand *zero = tt_operand_of(r, "zero_point");
  const int64_t axis = tt_int(r, "axis", 0);
  if (!self || !scale || !zero) {
    return false;
  }
  const bool is_whole = zero->dtype == TT_S32;
  if (scale->dtype != TT_F32 && scale->dtype != TT_BF16) {
    tt_fail(r, TT_ERR_RUNTIME, "Scale must be Float or BFloat16, found %s", tt_type_name(scale->dtype));
  } else if (!learnable && !is_whole && zero->dtype != TT_F32 && zero->dtype != TT_F16) {
    tt_fail(r, TT_ERR_RUNTIME, "Zero-point must be Int32, Float or Half, found %s", tt_type_name(zero->dtype));
  } else if (scale->ndim != 1 || zero->ndim != 1 || scale->sizes[0] != zero->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME, "scale and zero-point need to have the same dimensions, of which there is one");
  } else if (axis >= self->ndim || axis < -self->ndim) {
    tt_fail(r, TT_ERR_INDEX, "Dimension out of range (expected to be in range of [%d, %d], but got %" PRId64 ")",
            -self->ndim, self->ndim - 1, axis);
  } else if (axis < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "`axis` must be between 0 and number of dimensions of input");
  } else if (scale->sizes[0] != self->sizes[axis]) {
    tt_fail(r, TT_ERR_RUNTIME, "dimensions of scale and zero-point are not consistent with input tensor");
  }
  if (tt_failed(r) || !read_limits(r, g, "fake_quantize_channel_cachemask_cpu_type_handling")) {
    return false;
  }
  tt_hlo zeros = tt_in_as(r, "zero_point", is_whole ? TT_S32 : TT_F32);
  if (learnable) {
    zeros = clamp(g, is_whole ? zeros : tt_hlo_unary(TT_ROUND_EVEN, zeros));
  } else if (is_whole && zeros) {
    tt_device_assert(r, v_eq(zeros, clamp(g, zeros)), TT_ERR_RUNTIME,
                     "`zero_point` must be between `quant_min` and `quant_max`.");
  }
  g->fractional = !learnable && !is_whole;
  g->wraps = true;
  const tt_dtype compute = g->x->dtype;
  g->scale = v_along(tt_cast(tt_in_as(r, "scale", TT_F32), compute), g->x->dims, g->x->rank, (int32_t)axis);
  g->zero = v_along(tt_cast(zeros, compute), g->x->dims, g->x->rank, (int32_t)axis);
  find_levels(g);
  return g->inside != NULL;
}

static void build_per_channel(tt_rule *r) {
  grid g;
  if (read_channels(r, &g, false)) {
    ret_cached(r, &g);
  }
}

static void build_learnable_channels(tt_rule *r) {
  grid g;
  if (read_channels(r, &g, true)) {
    tt_ret_like(r, 0, tt_cast(on_grid(&g), g.dtype), "self");
  }
}

// ---- gradients: with respect to x, the scales and the zero points ----

enum { ALL_ONE, EACH_CHANNEL };

static void build_learnable_backward(tt_rule *r) {
  const bool channels = tt_rule_kind(r) == EACH_CHANNEL;
  grid g;
  if (!(channels ? read_channels(r, &g, true) : read_learnable(r, &g, true))) {
    return;
  }
  if (tt_hlo_numel(g.x) == 0) {  // PyTorch returns its arguments
    tt_ret_like(r, 0, tt_in(r, "self"), "self");
    tt_ret(r, 1, tt_in(r, "scale"));
    tt_ret(r, 2, tt_in(r, "zero_point"));
    return;
  }
  tt_hlo grad = tt_in_as(r, "grad", g.x->dtype), factor = v_like(tt_scalar(r, "grad_factor", g.x->dtype), g.x);
  if (!grad || !tt_hlo_same_dims(grad, g.x)) {
    tt_fail(r, TT_ERR_RUNTIME, "`X` and `dY` are not the same size");
    return;
  }
  // Off the grid the result is an end of it; on it, x and its level differ by what the scale rounds away.
  tt_hlo none = v_const(grad, 0), slope = v_div(v_sub(on_grid(&g), g.x), g.scale);
  tt_hlo end = v_sub(v_if(v_ltc(g.level, g.low), v_const(grad, g.low), v_const(grad, g.high)), g.zero);
  tt_hlo by_scale = v_mul(v_mul(grad, v_if(g.inside, slope, end)), factor);
  tt_hlo by_zero = v_mul(v_if(g.inside, none, v_neg(v_mul(grad, g.scale))), factor);
  bool mask[TT_MAX_RANK];
  for (int32_t i = 0; i < TT_MAX_RANK; i++) {
    mask[i] = !channels || i != (int32_t)tt_int(r, "axis", 0);
  }
  const int64_t size = channels ? g.x->dims[tt_int(r, "axis", 0)] : 1;
  tt_ret_like(r, 0, tt_cast(v_if(g.inside, grad, none), g.dtype), "self");
  tt_ret(r, 1, tt_cast(tt_hlo_reshape(tt_reduce_mask(TT_SUM, by_scale, mask), &size, 1), g.dtype));
  tt_ret(r, 2, tt_cast(tt_hlo_reshape(tt_reduce_mask(TT_SUM, by_zero, mask), &size, 1), g.dtype));
}

// ---- with a moving average of the extremes, from which the scales follow ----

typedef struct range {
  tt_hlo min, max;  // [n] float32
} range;

// The extremes of self, or of each of its first dim's slices.
static range observed(const grid *g, bool rows) {
  bool mask[TT_MAX_RANK];
  for (int32_t i = 0; i < TT_MAX_RANK; i++) {
    mask[i] = !rows || i > 0;
  }
  const int64_t n = rows ? g->x->dims[0] : 1;
  return (range){tt_hlo_reshape(tt_reduce_mask(TT_MIN, g->x, mask), &n, 1),
                 tt_hlo_reshape(tt_reduce_mask(TT_MAX, g->x, mask), &n, 1)};
}

static tt_hlo moved(tt_rule *r, tt_hlo old, tt_hlo seen, tt_hlo observe) {
  tt_hlo step = v_like(tt_scalar(r, "averaging_const", TT_F32), old);
  tt_hlo next = v_add(old, v_mul(step, v_sub(seen, old)));
  next = old ? v_if(v_eq(v_abs(old), v_const(old, INFINITY)), seen, next) : NULL;
  return v_if(observe, next, old);
}

// The scale for which the grid spans the range, which is widened to hold 0; and the level of 0.
static void find_parameters(tt_rule *r, const grid *g, range x, tt_hlo *out_scale, tt_hlo *out_zero) {
  const float least = 6.1e-5F;
  const double span = g->high - g->low;
  const tt_dtype wide = tt_rule_is_cpu(r) ? TT_F64 : TT_F32;
  tt_hlo low = x.min, high = x.max, both = low && high ? v_and(v_ltc(low, 0), v_gtc(high, 0)) : NULL;
  const bool symmetric = tt_bool(r, "symmetric_quant", false);
  if (!both) {
    return;
  }
  if (symmetric) {
    const double half = floor(span / 2);
    tt_hlo step = v_max(v_abs(v_div(low, v_const(low, -half - 1))), v_abs(v_div(high, v_const(high, half))));
    low = v_if(both, v_mulc(step, -half - 1), low);
    high = v_if(both, v_mulc(step, half), high);
  }
  low = v_if(v_gtc(low, 0), v_const(low, 0), low);
  high = v_if(v_ltc(high, 0), v_const(high, 0), high);
  tt_hlo exact = v_sub(tt_cast(high, wide), tt_cast(low, wide));
  exact = v_div(exact, v_const(exact, span));
  tt_hlo scale = tt_cast(exact, TT_F32), inverse = v_cdiv(1, scale);
  tt_hlo useless = v_or(v_eqc(scale, 0), v_eq(v_abs(inverse), v_const(inverse, INFINITY)));
  exact = v_if(useless, v_const(exact, 0.1), exact);
  tt_hlo small = v_ltc(exact, least), amplified = v_cdiv(least, tt_cast(exact, TT_F32));
  tt_hlo below = v_if(v_eqc(high, 0), v_const(low, -least * span), v_mul(low, amplified));
  tt_hlo above = v_if(v_eqc(low, 0), v_const(high, least * span), v_mul(high, amplified));
  exact = v_if(small, v_const(exact, least), exact);
  below = v_if(v_and(small, v_not(v_eqc(low, 0))), below, low);
  above = v_if(v_and(small, v_or(v_eqc(low, 0), v_not(v_eqc(high, 0)))), above, high);
  tt_hlo from_low = v_div(tt_cast(below, wide), exact), from_high = v_div(tt_cast(above, wide), exact);
  tt_hlo nearer = v_lt(v_csub(fabs(g->low), v_abs(from_low)), v_csub(fabs(g->high), v_abs(from_high)));
  tt_hlo zero = v_if(nearer, v_csub(g->low, from_low), v_csub(g->high, from_high));
  zero = symmetric ? v_if(both, v_const(zero, (g->low + g->high) / 2), zero) : zero;
  zero = zero ? tt_hlo_unary(TT_ROUND_EVEN, zero) : NULL;
  zero = zero ? v_if(v_isnan(zero), zero, clamp(g, zero)) : NULL;
  *out_scale = tt_cast(exact, TT_F32);
  *out_zero = tt_cast(zero, TT_S32);
}

static tt_hlo enabled_by(tt_rule *r, const char *name, tt_hlo like) {
  return like ? v_like(tt_cast(first_of(r, name), TT_PRED), like) : NULL;
}

static bool check_observer(tt_rule *r, grid *g, bool rows) {
  static const char *const lists[] = {"running_min", "running_max", "scale", "zero_point"};
  const tt_operand *self = tt_operand_of(r, "self");
  const int64_t axis = tt_int(r, "ch_axis", 0);
  *g = (grid){0};
  if (self && axis >= self->ndim) {
    tt_fail(r, TT_ERR_RUNTIME, "ch_axis must be < self.dim()");
  } else if (rows && axis != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "with a scale for each channel the axis must be 0");
  } else if (self && self->dtype != TT_F32) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type Float but found %s", tt_type_name(self->dtype));
  } else if (!tt_failed(r) && read_limits(r, g, "fake_quantize") && tt_hlo_numel(g->x) == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "cannot compute aminmax over an empty dimension as the operation has no identity.");
  }
  for (int32_t i = 0; g->x && i < 4 && !tt_failed(r); i++) {
    tt_hlo x = tt_in(r, lists[i]);
    if (x && (x->rank > 1 || tt_hlo_numel(x) != (rows ? g->x->dims[0] : 1))) {
      tt_fail(r, TT_ERR_RUNTIME, "%s has sizes %s: one element for each scale is expected", lists[i],
              tt_dims_text(x->dims, x->rank).text);
    }
  }
  return g->x && !tt_failed(r);
}

static tt_hlo list_of(tt_rule *r, const char *name, tt_dtype dtype) { return v_flat(tt_in_as(r, name, dtype)); }

static void write_list(tt_rule *r, const char *name, tt_hlo value) {
  tt_write(r, name, v_reshape_like(value, tt_in(r, name)));
}

static void build_moving_average(tt_rule *r) {
  const bool rows = tt_bool(r, "per_row_fake_quant", false);
  grid g;
  if (!check_observer(r, &g, rows)) {
    return;
  }
  tt_hlo old_scale = list_of(r, "scale", TT_F32), old_zero = list_of(r, "zero_point", TT_S32);
  tt_hlo observe = enabled_by(r, "observer_on", old_scale), quantize = enabled_by(r, "fake_quant_on", old_scale);
  range seen = observed(&g, rows), now = {moved(r, list_of(r, "running_min", TT_F32), seen.min, observe),
                                          moved(r, list_of(r, "running_max", TT_F32), seen.max, observe)};
  tt_hlo scale = NULL, zero = NULL;
  find_parameters(r, &g, now, &scale, &zero);
  write_list(r, "running_min", now.min);
  write_list(r, "running_max", now.max);
  write_list(r, "scale", v_if(quantize, scale, old_scale));
  write_list(r, "zero_point", v_if(quantize, zero, old_zero));
  const int32_t rank = rows ? 1 : 0;
  const int64_t *one = rows ? &g.x->dims[0] : NULL;
  tt_hlo by_scale = tt_hlo_reshape(scale, one, rank), by_zero = tt_hlo_reshape(tt_cast(zero, TT_F32), one, rank);
  g.scale = rows ? v_along(by_scale, g.x->dims, g.x->rank, 0) : v_like(by_scale, g.x);
  g.zero = rows ? v_along(by_zero, g.x->dims, g.x->rank, 0) : v_like(by_zero, g.x);
  g.wraps = rows;
  find_levels(&g);
  tt_hlo on = enabled_by(r, "fake_quant_on", g.x);
  tt_ret_like(r, 0, v_if(on, on_grid(&g), g.x), "self");
  tt_ret_like(r, 1, on ? v_or(g.inside, v_not(on)) : NULL, "self");
}

const tt_rule_entry tt_rules_fake_quantize[] = {
    {.name = "torchtpu::moving_average_fake_quantize", .build = build_moving_average},
    {.name = "aten::fake_quantize_per_tensor_affine_cachemask",
     .build = build_per_tensor,
     .dynamic_args = "zero_point"},
    {.name = "aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams", .build = build_tensor_parameters},
    {.name = "aten::fake_quantize_per_channel_affine_cachemask", .build = build_per_channel},
    {.name = "aten::_fake_quantize_learnable_per_tensor_affine", .build = build_learnable},
    {.name = "aten::_fake_quantize_learnable_per_channel_affine", .build = build_learnable_channels},
    {.name = "aten::_fake_quantize_learnable_per_tensor_affine_backward",
     .build = build_learnable_backward,
     .kind = ALL_ONE},
    {.name = "aten::_fake_quantize_learnable_per_channel_affine_backward",
     .build = build_learnable_backward,
     .kind = EACH_CHANNEL},
    {0},
};
