// grid_sampler in 2 and 3 dims: reading an image at coordinates in [-1, 1], and the gradients. Formulas:
// ATen/native/GridSampler.h. Each output reads a few taps a dim; a tap has a position, a weight and the weight's
// derivative by the coordinate.
#include "aten/dims.h"

enum { MAX_SPATIAL = 3, MAX_TAPS = 4 };
enum { BILINEAR, NEAREST, BICUBIC };
enum { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION };

typedef struct axis_taps {
  int32_t count;
  tt_hlo position[MAX_TAPS];  // s32 [N, L], inside the image
  tt_hlo inside[MAX_TAPS];    // whether it was
  tt_hlo weight[MAX_TAPS], derivative[MAX_TAPS];
  tt_hlo scale;  // d coordinate / d grid
} axis_taps;

typedef struct sampler {
  int32_t n;
  int64_t interpolation, padding;
  bool align_corners;
  int64_t batch, channels, count;  // N, C, outputs per image
  int64_t image[MAX_SPATIAL];
  axis_taps axis[MAX_SPATIAL];
} sampler;

// ---- coordinates ----

typedef struct coordinate {
  tt_hlo x, scale;  // scale: derivative by the grid's value
} coordinate;

static coordinate unnormalize(tt_hlo g, int64_t size, bool align_corners) {
  coordinate c = {0};
  if (align_corners) {
    c.x = v_mulc(v_mulc(v_addc(g, 1), 0.5), (double)(size - 1));
    c.scale = g ? v_const(g, (double)(size - 1) / 2) : NULL;
  } else {
    c.x = v_mulc(v_addc(v_mulc(v_addc(g, 1), (double)size), -1), 0.5);
    c.scale = g ? v_const(g, (double)size / 2) : NULL;
  }
  return c;
}

static tt_hlo clip(tt_hlo x, int64_t size, tt_hlo *scale) {
  tt_hlo inner = v_and(v_gtc(x, 0), v_ltc(x, (double)(size - 1)));
  *scale = v_if(inner, *scale, v_const(*scale, 0));  // borders count as outside
  return v_min(v_max(x, v_const(x, 0)), v_const(x, (double)(size - 1)));
}

static tt_hlo reflect(tt_hlo x, double twice_low, double twice_high, tt_hlo *scale) {
  if (twice_low == twice_high) {
    *scale = v_const(*scale, 0);
    return v_const(x, 0);
  }
  const double low = twice_low / 2, span = (twice_high - twice_low) / 2;
  tt_hlo from_low = v_addc(x, -low), distance = v_abs(from_low);
  tt_hlo extra = tt_hlo_binary(TT_REMAINDER, distance, v_const(x, span));
  tt_hlo flips = tt_hlo_unary(TT_FLOOR, v_div(distance, v_const(x, span)));
  tt_hlo even = v_eqc(tt_hlo_binary(TT_REMAINDER, flips, v_const(x, 2)), 0);
  tt_hlo negative = v_ltc(from_low, 0);
  *scale = v_if(tt_hlo_compare(TT_NE, even, negative), *scale, v_neg(*scale));
  return v_addc(v_if(even, extra, v_csub(span, extra)), low);
}

static tt_hlo into_image(const sampler *s, tt_hlo x, int64_t size, tt_hlo *scale) {
  if (!x || !*scale || s->padding == PAD_ZEROS) {
    return x;
  }
  if (s->padding == PAD_REFLECTION) {
    x = s->align_corners ? reflect(x, 0, 2 * (double)(size - 1), scale) : reflect(x, -1, 2 * (double)size - 1, scale);
  }
  return clip(x, size, scale);
}

static void set_tap(axis_taps *a, int32_t t, tt_hlo at, int64_t size, tt_hlo weight, tt_hlo derivative) {
  const double last = (double)(size - 1);
  a->inside[t] = v_and(v_gec(at, 0), v_lec(at, last));
  a->position[t] = at ? tt_hlo_convert(v_min(v_max(at, v_const(at, 0)), v_const(at, last)), TT_S32) : NULL;
  a->weight[t] = weight;
  a->derivative[t] = derivative;
}

static void cubic_taps(const sampler *s, axis_taps *a, tt_hlo x, int64_t size) {
  const double A = -0.75;
  tt_hlo base = tt_hlo_unary(TT_FLOOR, x), f = v_sub(x, base), back = v_csub(1, f);
  const double near[] = {A + 2, -(A + 3), 0, 1}, far[] = {A, -5 * A, 8 * A, -4 * A};
  const double near_d[] = {3 * (A + 2), -2 * (A + 3), 0}, far_d[] = {3 * A, -10 * A, 8 * A};
  tt_hlo arguments[] = {v_addc(f, 1), f, back, v_addc(back, 1)};
  a->count = 4;
  for (int32_t t = 0; t < 4 && f; t++) {
    const bool is_far = t == 0 || t == 3;
    tt_hlo weight = v_polynomial(arguments[t], is_far ? far : near, 4);
    tt_hlo slope = v_polynomial(arguments[t], is_far ? far_d : near_d, 3);
    tt_hlo ignored = a->scale, at = into_image(s, v_addc(base, t - 1), size, &ignored);
    // A reflected position may lie between two; the CPU truncates it.
    set_tap(a, t, s->padding == PAD_ZEROS ? at : tt_hlo_unary(TT_FLOOR, at), size, weight,
            t < 2 ? slope : v_neg(slope));
  }
}

static void axis_of(const sampler *s, axis_taps *a, tt_hlo grid, int64_t size) {
  *a = (axis_taps){0};
  if (!grid) {
    return;
  }
  coordinate c = unnormalize(grid, size, s->align_corners);
  a->scale = c.scale;
  if (s->interpolation == BICUBIC) {
    cubic_taps(s, a, c.x, size);
    return;
  }
  tt_hlo x = into_image(s, c.x, size, &a->scale);
  if (s->interpolation == NEAREST) {
    a->count = 1;
    set_tap(a, 0, tt_hlo_unary(TT_ROUND_EVEN, x), size, NULL, NULL);
    return;
  }
  tt_hlo base = tt_hlo_unary(TT_FLOOR, x), next = v_addc(base, 1);
  a->count = 2;
  set_tap(a, 0, base, size, v_sub(next, x), v_const(x, -1));
  set_tap(a, 1, next, size, v_sub(x, base), v_const(x, 1));
}

// ---- taps ----

static bool next_tap(int32_t *tap, const sampler *s) {
  for (int32_t i = s->n - 1; i >= 0; i--) {
    if (++tap[i] < s->axis[i].count) {
      return true;
    }
    tap[i] = 0;
  }
  return false;
}

static tt_hlo times(tt_hlo x, tt_hlo y) { return !x ? y : !y ? x : v_mul(x, y); }

// The product of the tap's weights, that of dim `derived` (or -1) replaced by its derivative.
static tt_hlo tap_weight(const sampler *s, const int32_t *tap, int32_t derived) {
  tt_hlo w = NULL;
  for (int32_t i = 0; i < s->n; i++) {
    const axis_taps *a = &s->axis[i];
    w = times(w, i == derived ? a->derivative[tap[i]] : a->weight[tap[i]]);
  }
  return w;
}

static tt_hlo tap_inside(const sampler *s, const int32_t *tap) {
  tt_hlo inside = NULL;
  for (int32_t i = 0; i < s->n; i++) {
    inside = i == 0 ? s->axis[i].inside[tap[i]] : v_and(inside, s->axis[i].inside[tap[i]]);
  }
  return inside;
}

// [N, L] spread over the channels: [N, C, L].
static tt_hlo over_channels(tt_hlo x, const sampler *s) {
  const int64_t dims[] = {s->batch, s->channels, s->count};
  const int32_t mapping[] = {0, 2};
  return x ? tt_hlo_broadcast_in_dim(x, dims, 3, mapping) : NULL;
}

// Where the tap lies in the flattened image batch: [N, C, L].
static tt_hlo tap_positions(const sampler *s, const int32_t *tap) {
  tt_hlo at = NULL;
  int64_t pixels = 1;
  for (int32_t i = 0; i < s->n; i++) {
    at = at ? v_add(v_mulc(at, (double)s->image[i]), s->axis[i].position[tap[i]]) : s->axis[i].position[tap[i]];
    pixels *= s->image[i];
  }
  const tt_dtype type = v_position_type(s->batch * s->channels * pixels);
  at = over_channels(at ? tt_hlo_convert(at, type) : NULL, s);
  tt_hlo plane = v_add(v_mulc(v_iota(at, type, 0), (double)s->channels), v_iota(at, type, 1));
  return v_add(at, v_mulc(plane, (double)pixels));
}

// ---- operators ----

static bool check(tt_rule *r, const tt_operand *x, const tt_operand *grid, int32_t n) {
  if (x->ndim != n + 2 || grid->ndim != n + 2) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "grid_sampler(): expected %dD input and grid with same number of dimensions, but got input with sizes %s and "
        "grid with sizes %s",
        n + 2, tt_dims_text(x->sizes, x->ndim).text, tt_dims_text(grid->sizes, grid->ndim).text);
  } else if (x->sizes[0] != grid->sizes[0]) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "grid_sampler(): expected grid and input to have same batch size, but got input with sizes %s and grid with "
        "sizes %s",
        tt_dims_text(x->sizes, x->ndim).text, tt_dims_text(grid->sizes, grid->ndim).text);
  } else if (grid->sizes[n + 1] != n) {
    tt_fail(r, TT_ERR_RUNTIME,
            "grid_sampler(): expected grid to have size %d in last dimension, but got grid with sizes %s", n,
            tt_dims_text(grid->sizes, grid->ndim).text);
  } else if (n == 3 && tt_int(r, "interpolation_mode", 0) == BICUBIC) {
    tt_fail(r, TT_ERR_RUNTIME, "grid_sampler(): bicubic interpolation only supports 4D input");
  } else if (x->dtype != grid->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(x->dtype),
            tt_type_name(grid->dtype));
  } else if (!tt_dtype_is_float(x->dtype)) {
    tt_fail_dtype(r, "grid_sampler_2d_cpu_kernel_impl", x->dtype);
  }
  for (int32_t d = 2; d < n + 2 && !tt_failed(r); d++) {
    if (x->sizes[d] == 0) {
      tt_fail(
          r, TT_ERR_RUNTIME,
          "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes %s with dimension "
          "%d being empty",
          tt_dims_text(x->sizes, x->ndim).text, d);
    }
  }
  return !tt_failed(r);
}

static bool read_sampler(tt_rule *r, const tt_operand *x, const tt_operand *grid, sampler *s) {
  const int32_t n = tt_rule_kind(r);
  if (!x || !grid || !check(r, x, grid, n)) {
    return false;
  }
  *s = (sampler){.n = n,
                 .interpolation = tt_int(r, "interpolation_mode", 0),
                 .padding = tt_int(r, "padding_mode", 0),
                 .align_corners = tt_bool(r, "align_corners", false),
                 .batch = x->sizes[0],
                 .channels = x->sizes[1],
                 .count = 1};
  for (int32_t i = 0; i < n; i++) {
    s->image[i] = x->sizes[i + 2];
    s->count *= grid->sizes[i + 1];
  }
  const int64_t flat[] = {s->batch, s->count, n}, each[] = {s->batch, s->count};
  tt_hlo g = tt_hlo_reshape(tt_in_as(r, "grid", tt_opmath(x->dtype)), flat, 3);
  for (int32_t i = 0; i < n; i++) {
    tt_hlo component = tt_hlo_reshape(tt_hlo_slice_dim(g, 2, n - 1 - i, n - i, 1), each, 2);
    axis_of(s, &s->axis[i], component, s->image[i]);
  }
  return g != NULL;
}

static tt_hlo sampled(const sampler *s, tt_hlo flat_image, const int32_t *tap) {
  tt_hlo v = tt_take_flat(flat_image, tap_positions(s, tap));
  return v ? v_if(over_channels(tap_inside(s, tap), s), v, v_const(v, 0)) : NULL;
}

static void build_sampler(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "input"), *grid = tt_operand_of(r, "grid");
  sampler s;
  if (!read_sampler(r, x, grid, &s)) {
    return;
  }
  int64_t dims[MAX_SPATIAL + 2] = {s.batch, s.channels};
  memcpy(dims + 2, grid->sizes + 1, sizeof *dims * (size_t)s.n);
  tt_hlo image = v_flat(tt_in_as(r, "input", tt_opmath(x->dtype))), sum = NULL;
  int32_t tap[MAX_SPATIAL] = {0};
  do {
    tt_hlo term = times(sampled(&s, image, tap), over_channels(tap_weight(&s, tap, -1), &s));
    sum = sum ? v_add(sum, term) : term;
  } while (next_tap(tap, &s));
  tt_ret(r, 0, tt_cast(tt_hlo_reshape(sum, dims, s.n + 2), x->dtype));
}

static tt_hlo image_gradient(tt_rule *r, const sampler *s, tt_hlo g, const tt_operand *x) {
  int64_t total = s->batch * s->channels;
  for (int32_t i = 0; i < s->n; i++) {
    total *= s->image[i];
  }
  tt_hlo sum = g ? tt_hlo_const(tt_b(r), g->dtype, 0, &total, 1) : NULL;
  int32_t tap[MAX_SPATIAL] = {0};
  do {
    tt_hlo at = tap_positions(s, tap);
    at = at ? v_if(over_channels(tap_inside(s, tap), s), at, v_const(at, -1)) : NULL;
    tt_hlo update = times(g, over_channels(tap_weight(s, tap, -1), s));
    sum = tt_put_flat(TT_SCATTER_ADD, sum, v_flat(at), v_flat(update));
  } while (next_tap(tap, s));
  return tt_hlo_reshape(sum, x->sizes, x->ndim);
}

static tt_hlo grid_gradient(tt_rule *r, const sampler *s, tt_hlo g, const tt_operand *x, const tt_operand *grid) {
  if (s->interpolation == NEAREST) {
    return tt_hlo_const(tt_b(r), tt_opmath(x->dtype), 0, grid->sizes, grid->ndim);
  }
  tt_hlo image = v_flat(tt_in_as(r, "input", tt_opmath(x->dtype))), sums[MAX_SPATIAL] = {0};
  int32_t tap[MAX_SPATIAL] = {0};
  do {
    tt_hlo product = v_reduce(TT_SUM, v_mul(sampled(s, image, tap), g), 1);
    for (int32_t i = 0; i < s->n; i++) {
      tt_hlo term = times(product, tap_weight(s, tap, i));
      sums[i] = sums[i] ? v_add(sums[i], term) : term;
    }
  } while (next_tap(tap, s));
  tt_hlo parts[MAX_SPATIAL];
  for (int32_t i = 0; i < s->n; i++) {
    parts[s->n - 1 - i] = v_unsqueeze(times(sums[i], s->axis[i].scale), 2);
  }
  return tt_hlo_reshape(tt_hlo_concatenate(parts, s->n, 2), grid->sizes, grid->ndim);
}

static void build_backward(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "input"), *grid = tt_operand_of(r, "grid"),
                   *go = tt_operand_of(r, "grad_output");
  sampler s;
  if (!go || !read_sampler(r, x, grid, &s)) {
    return;
  }
  int32_t count;
  const int64_t *mask = tt_ints(r, "output_mask", &count), flat[] = {s.batch, s.channels, s.count};
  tt_hlo g = tt_hlo_reshape(tt_in_as(r, "grad_output", tt_opmath(x->dtype)), flat, 3);
  if (count > 0 && mask[0]) {
    tt_ret(r, 0, tt_cast(image_gradient(r, &s, g, x), x->dtype));
  } else {
    tt_ret_none(r, 0);
  }
  // The CPU computes it whatever the mask says; autograd drops what it doesn't want.
  tt_ret(r, 1, tt_cast(grid_gradient(r, &s, g, x, grid), x->dtype));
}

const tt_rule_entry tt_rules_grid_sample[] = {
    {.name = "aten::grid_sampler_2d", .build = build_sampler, .kind = 2},
    {.name = "aten::grid_sampler_3d", .build = build_sampler, .kind = 3},
    {.name = "aten::grid_sampler_2d_backward", .build = build_backward, .kind = 2},
    {.name = "aten::grid_sampler_3d_backward", .build = build_backward, .kind = 3},
    {0},
};
