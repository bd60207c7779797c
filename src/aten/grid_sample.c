// grid_sampler in 2 and 3 dims: reading an image at coordinates in [-1, 1], and the gradients. Formulas:
// ATen/native/GridSampler.h. Each output reads a few taps a dim; a tap has a position, a weight and the weight's
// derivative by the coordinate.
#include "aten/dims.h"

enum { MAX_SPATIAL = 3, MAX_TAPS = 4 };
enum { BILINEAR, NEAREST, BICUBIC };
enum { PAD_ZEROS, PAD_BORDER, PAD_REFLECTION };

// What lies along one dim, stacked by tap: [taps, N, L].
typedef struct axis_taps {
  int32_t count;
  tt_hlo position;            // s32, inside the image
  tt_hlo inside;              // whether it was
  tt_hlo weight, derivative;  // NULL: 1 and none
  tt_hlo scale;               // d coordinate / d grid: [N, L]
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

// Several of one shape as one, along a new first dim.
static tt_hlo v_stack(const tt_hlo *parts, int32_t count) {
  tt_hlo rows[MAX_TAPS];
  for (int32_t i = 0; i < count; i++) {
    rows[i] = v_unsqueeze(parts[i], 0);
  }
  return tt_hlo_concatenate(rows, count, 0);
}

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

// The positions of the taps along a dim, each [N, L], as one.
static void set_positions(axis_taps *a, const tt_hlo *at, int32_t count, int64_t size) {
  const double last = (double)(size - 1);
  tt_hlo all = v_stack(at, count);
  a->count = count;
  a->inside = v_and(v_gec(all, 0), v_lec(all, last));
  a->position = all ? tt_hlo_convert(v_min(v_max(all, v_const(all, 0)), v_const(all, last)), TT_S32) : NULL;
}

static void cubic_taps(const sampler *s, axis_taps *a, tt_hlo x, int64_t size) {
  const double A = -0.75;
  tt_hlo base = tt_hlo_unary(TT_FLOOR, x), f = v_sub(x, base), back = v_csub(1, f);
  const double near[] = {A + 2, -(A + 3), 0, 1}, far[] = {A, -5 * A, 8 * A, -4 * A};
  const double near_d[] = {3 * (A + 2), -2 * (A + 3), 0}, far_d[] = {3 * A, -10 * A, 8 * A};
  tt_hlo arguments[] = {v_addc(f, 1), f, back, v_addc(back, 1)};
  tt_hlo at[MAX_TAPS], weight[MAX_TAPS], slope[MAX_TAPS];
  for (int32_t t = 0; t < MAX_TAPS; t++) {
    const bool is_far = t == 0 || t == 3;
    weight[t] = v_polynomial(arguments[t], is_far ? far : near, 4);
    slope[t] = v_polynomial(arguments[t], is_far ? far_d : near_d, 3);
    slope[t] = t < 2 ? slope[t] : v_neg(slope[t]);
    tt_hlo ignored = a->scale;
    at[t] = into_image(s, v_addc(base, t - 1), size, &ignored);
    // A reflected position may lie between two; the CPU truncates it.
    at[t] = s->padding == PAD_ZEROS ? at[t] : tt_hlo_unary(TT_FLOOR, at[t]);
  }
  set_positions(a, at, MAX_TAPS, size);
  a->weight = v_stack(weight, MAX_TAPS);
  a->derivative = v_stack(slope, MAX_TAPS);
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
    tt_hlo at = tt_hlo_unary(TT_ROUND_EVEN, x);
    set_positions(a, &at, 1, size);
    return;
  }
  tt_hlo base = tt_hlo_unary(TT_FLOOR, x), next = v_addc(base, 1);
  set_positions(a, (const tt_hlo[]){base, next}, 2, size);
  a->weight = v_stack((const tt_hlo[]){v_sub(next, x), v_sub(x, base)}, 2);
  a->derivative = v_stack((const tt_hlo[]){v_const(x, -1), v_const(x, 1)}, 2);
}

// ---- taps ----
// All taps of all dims as one operand, so that a module has one gather or scatter and not one a tap, of which the TPU
// compiler takes minutes.

static int64_t tap_count(const sampler *s) {
  int64_t count = 1;
  for (int32_t i = 0; i < s->n; i++) {
    count *= s->axis[i].count;
  }
  return count;
}

// Something along dim i, [taps, N, L], spread over the taps of the others: [T, N, L], T the product of the counts.
static tt_hlo over_taps(const sampler *s, int32_t i, tt_hlo x) {
  int64_t dims[MAX_SPATIAL + 2];
  for (int32_t d = 0; d < s->n; d++) {
    dims[d] = s->axis[d].count;
  }
  dims[s->n] = s->batch;
  dims[s->n + 1] = s->count;
  const int32_t mapping[] = {i, s->n, s->n + 1};
  const int64_t flat[] = {tap_count(s), s->batch, s->count};
  return x ? tt_hlo_reshape(tt_hlo_broadcast_in_dim(x, dims, s->n + 2, mapping), flat, 3) : NULL;
}

static tt_hlo times(tt_hlo x, tt_hlo y) { return !x ? y : !y ? x : v_mul(x, y); }

// The product of the taps' weights, that of dim `derived` (or -1) replaced by its derivative: [T, N, L].
static tt_hlo tap_weights(const sampler *s, int32_t derived) {
  tt_hlo w = NULL;
  for (int32_t i = 0; i < s->n; i++) {
    w = times(w, over_taps(s, i, i == derived ? s->axis[i].derivative : s->axis[i].weight));
  }
  return w;
}

static tt_hlo taps_inside(const sampler *s) {
  tt_hlo inside = over_taps(s, 0, s->axis[0].inside);
  for (int32_t i = 1; i < s->n; i++) {
    inside = v_and(inside, over_taps(s, i, s->axis[i].inside));
  }
  return inside;
}

// [T, N, L] spread over the channels: [T, N, C, L].
static tt_hlo over_channels(tt_hlo x, const sampler *s) {
  const int32_t mapping[] = {0, 1, 3};
  return x ? tt_hlo_broadcast_in_dim(x, (const int64_t[]){x->dims[0], s->batch, s->channels, s->count}, 4, mapping)
           : NULL;
}

// The same [N, C, L] for each tap: [T, N, C, L].
static tt_hlo over_each_tap(const sampler *s, tt_hlo x) {
  const int32_t mapping[] = {1, 2, 3};
  return x ? tt_hlo_broadcast_in_dim(x, (const int64_t[]){tap_count(s), s->batch, s->channels, s->count}, 4, mapping)
           : NULL;
}

// Where the taps lie in the flattened image batch: [T, N, C, L].
static tt_hlo tap_positions(const sampler *s) {
  tt_hlo at = NULL;
  int64_t pixels = 1;
  for (int32_t i = 0; i < s->n; i++) {
    tt_hlo along = over_taps(s, i, s->axis[i].position);
    at = at ? v_add(v_mulc(at, (double)s->image[i]), along) : along;
    pixels *= s->image[i];
  }
  const tt_dtype type = v_position_type(s->batch * s->channels * pixels);
  at = over_channels(at ? tt_hlo_convert(at, type) : NULL, s);
  tt_hlo plane = v_add(v_mulc(v_iota(at, type, 1), (double)s->channels), v_iota(at, type, 2));
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

static tt_hlo sampled(const sampler *s, tt_hlo flat_image) {
  tt_hlo v = tt_take_flat(flat_image, tap_positions(s));
  return v ? v_if(over_channels(taps_inside(s), s), v, v_const(v, 0)) : NULL;
}

static void build_sampler(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "input"), *grid = tt_operand_of(r, "grid");
  sampler s;
  if (!read_sampler(r, x, grid, &s)) {
    return;
  }
  int64_t dims[MAX_SPATIAL + 2] = {s.batch, s.channels};
  memcpy(dims + 2, grid->sizes + 1, sizeof *dims * (size_t)s.n);
  tt_hlo image = v_flat(tt_in_as(r, "input", tt_opmath(x->dtype)));
  tt_hlo sum = v_reduce(TT_SUM, times(sampled(&s, image), over_channels(tap_weights(&s, -1), &s)), 0);
  tt_ret(r, 0, tt_cast(tt_hlo_reshape(sum, dims, s.n + 2), x->dtype));
}

static tt_hlo image_gradient(tt_rule *r, const sampler *s, tt_hlo g, const tt_operand *x) {
  int64_t total = s->batch * s->channels;
  for (int32_t i = 0; i < s->n; i++) {
    total *= s->image[i];
  }
  tt_hlo at = tap_positions(s);
  at = at ? v_if(over_channels(taps_inside(s), s), at, v_const(at, -1)) : NULL;
  tt_hlo update = times(over_each_tap(s, g), over_channels(tap_weights(s, -1), s));
  tt_hlo zero = g ? tt_hlo_const(tt_b(r), g->dtype, 0, &total, 1) : NULL;
  return tt_hlo_reshape(tt_put_flat(TT_SCATTER_ADD, zero, v_flat(at), v_flat(update)), x->sizes, x->ndim);
}

static tt_hlo grid_gradient(tt_rule *r, const sampler *s, tt_hlo g, const tt_operand *x, const tt_operand *grid) {
  if (s->interpolation == NEAREST) {
    return tt_hlo_const(tt_b(r), tt_opmath(x->dtype), 0, grid->sizes, grid->ndim);
  }
  tt_hlo image = v_flat(tt_in_as(r, "input", tt_opmath(x->dtype)));
  tt_hlo products = v_reduce(TT_SUM, v_mul(sampled(s, image), over_each_tap(s, g)), 2), parts[MAX_SPATIAL];
  for (int32_t i = 0; i < s->n; i++) {
    tt_hlo sum = v_reduce(TT_SUM, v_mul(products, tap_weights(s, i)), 0);
    parts[s->n - 1 - i] = v_unsqueeze(times(sum, s->axis[i].scale), 2);
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
