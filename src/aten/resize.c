// Upsampling: along each spatial dim an output is a weighted sum of a few inputs, at places and with weights that are
// known while building. The gradient is the same with that relation transposed. Formulas: ATen/native/UpSample.h.
#include <inttypes.h>
#include <math.h>
#include <stdlib.h>

#include "aten/axis.h"

enum { MAX_SPATIAL = 3, MAX_UNROLLED = 4 };

typedef enum resize_mode { NEAREST, NEAREST_EXACT, LINEAR, CUBIC, LINEAR_AA, CUBIC_AA, LANCZOS_AA } resize_mode;
enum { KIND_MODES = 8 };  // kind: spatial dims * KIND_MODES + mode

// Output o is the sum over t of weight[o * taps + t] * input[index[o * taps + t]].
typedef struct axis_taps {
  int64_t out, taps;
  int64_t *index;
  double *weight;  // NULL: 1
} axis_taps;

static void taps_free(axis_taps *a) {
  free(a->index);
  free(a->weight);
  *a = (axis_taps){0};
}

static bool taps_create(tt_rule *r, int64_t out, int64_t taps, bool weighted, axis_taps *a) {
  *a = (axis_taps){.out = out, .taps = taps};
  if (taps > 0 && out > (1 << 20) / taps) {  // they are listed one by one
    tt_fail(r, TT_ERR_RUNTIME, "an output size of %lld is too large", (long long)out);
    return false;
  }
  a->index = calloc((size_t)(out * taps + 1), sizeof *a->index);
  a->weight = weighted ? calloc((size_t)(out * taps + 1), sizeof *a->weight) : NULL;
  if (!a->index || (weighted && !a->weight)) {
    taps_free(a);
    tt_fail(r, TT_ERR_OUT_OF_MEMORY, "out of host memory");
    return false;
  }
  return true;
}

// ---- where and how much ----

typedef struct axis_sizes {
  int64_t in, out;
  double scale_factor;  // as the caller gave it; 0: none
  bool align_corners;
  bool single;  // positions are computed in float32
  bool bytes;   // uint8
} axis_sizes;

static double rounded(const axis_sizes *s, double x) { return s->single ? (double)(float)x : x; }
static int64_t clamped(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

static double axis_scale(const axis_sizes *s) {
  if (s->align_corners) {
    return s->out > 1 ? rounded(s, (double)(s->in - 1) / (double)(s->out - 1)) : 0;
  }
  return rounded(s, s->scale_factor > 0 ? 1 / s->scale_factor : (double)s->in / (double)s->out);
}

static bool nearest_taps(tt_rule *r, const axis_sizes *s, bool exact, axis_taps *a) {
  if (!taps_create(r, s->out, 1, false, a)) {
    return false;
  }
  const float scale = (float)(s->scale_factor > 0 ? 1 / s->scale_factor : (double)((float)s->in / (float)s->out));
  for (int64_t i = 0; i < s->out; i++) {
    int64_t at;
    if (exact) {
      at = (int64_t)floorf((float)(((double)i + 0.5) * scale));
    } else if (s->out == s->in || s->out == 2 * s->in) {
      at = s->out == s->in ? i : i >> 1;
    } else {
      at = (int64_t)floorf((float)i * scale);
    }
    a->index[i] = clamped(at, 0, s->in - 1);
  }
  return true;
}

// The input position of output i; the weight is its distance from the input just before.
static int64_t source(const axis_sizes *s, double scale, int64_t i, bool cubic, double *fraction) {
  double x = rounded(s, scale * (double)i);
  if (!s->align_corners) {
    x = rounded(s, rounded(s, scale * ((double)i + 0.5)) - 0.5);
    x = !cubic && x < 0 ? 0 : x;
  }
  int64_t at = (int64_t)floor(x);
  at = at > s->in - 1 ? s->in - 1 : at;
  *fraction = fmin(fmax(rounded(s, x - (double)at), 0), 1);
  return at;
}

static bool linear_taps(tt_rule *r, const axis_sizes *s, axis_taps *a) {
  if (!taps_create(r, s->out, 2, true, a)) {
    return false;
  }
  const double scale = axis_scale(s);
  for (int64_t i = 0; i < s->out; i++) {
    double fraction = 0;
    const int64_t at = s->in == s->out ? i : source(s, scale, i, false, &fraction);
    a->index[2 * i] = at;
    a->index[2 * i + 1] = s->in == s->out || at == s->in - 1 ? at : at + 1;
    a->weight[2 * i] = 1 - fraction;
    a->weight[2 * i + 1] = fraction;
  }
  return true;
}

static double cubic_near(double x, double a) { return ((a + 2) * x - (a + 3)) * x * x + 1; }       // |x| <= 1
static double cubic_far(double x, double a) { return ((a * x - 5 * a) * x + 8 * a) * x - 4 * a; }  // 1 < |x| < 2

static bool cubic_taps(tt_rule *r, const axis_sizes *s, axis_taps *a) {
  if (!taps_create(r, s->out, 4, true, a)) {
    return false;
  }
  const double scale = axis_scale(s);
  for (int64_t i = 0; i < s->out; i++) {
    double f;
    const int64_t at = source(s, scale, i, true, &f);
    const double weights[] = {cubic_far(f + 1, -0.75), cubic_near(f, -0.75), cubic_near(1 - f, -0.75),
                              cubic_far(2 - f, -0.75)};
    for (int64_t t = 0; t < 4; t++) {
      a->index[4 * i + t] = clamped(at + t - 1, 0, s->in - 1);
      a->weight[4 * i + t] = weights[t];
    }
  }
  return true;
}

static double sinc(double x) { return x == 0 ? 1 : sin(x * M_PI) / (x * M_PI); }

static double antialias_filter(double x, resize_mode mode) {
  x = fabs(x);
  if (mode == LINEAR_AA) {
    return x < 1 ? 1 - x : 0;
  }
  if (mode == LANCZOS_AA) {
    return x < 3 ? sinc(x) * sinc(x / 3) : 0;
  }
  return x < 1 ? cubic_near(x, -0.5) : x < 2 ? cubic_far(x, -0.5) : 0;
}

// A filter stretched by the scale when shrinking, its weights normalised.
static bool antialias_taps(tt_rule *r, const axis_sizes *s, resize_mode mode, axis_taps *a) {
  const double half = mode == LINEAR_AA ? 1 : mode == CUBIC_AA ? 2 : 3;
  const double scale = axis_scale(s), support = scale >= 1 ? half * scale : half;
  const double inverse = scale >= 1 ? 1 / scale : 1;
  int64_t taps = (int64_t)ceil(support) * 2 + 1;
  taps = taps > s->in ? s->in : taps;
  if (!taps_create(r, s->out, taps, true, a)) {
    return false;
  }
  for (int64_t i = 0; i < s->out; i++) {
    const double center = scale * ((double)i + 0.5);
    const int64_t low = clamped((int64_t)(center - support + 0.5), 0, s->in - 1);
    const int64_t size = clamped(clamped((int64_t)(center + support + 0.5), 0, s->in) - low, 1, taps);
    double total = 0;
    for (int64_t t = 0; t < taps; t++) {
      const double w = t < size ? antialias_filter(((double)(t + low) - center + 0.5) * inverse, mode) : 0;
      a->index[i * taps + t] = low + (t < size ? t : size - 1);
      a->weight[i * taps + t] = w;
      total += w;
    }
    for (int64_t t = 0; t < taps && total != 0; t++) {
      a->weight[i * taps + t] /= total;
    }
  }
  return true;
}

static bool axis_taps_of(tt_rule *r, resize_mode mode, const axis_sizes *s, axis_taps *a) {
  switch (mode) {
    case NEAREST:
    case NEAREST_EXACT:
      return nearest_taps(r, s, mode == NEAREST_EXACT, a);
    case LINEAR:
      return linear_taps(r, s, a);
    case CUBIC:
      return cubic_taps(r, s, a);
    default:
      return antialias_taps(r, s, mode, a);
  }
}

// The CPU resizes uint8 with weights of 16 bits, those of one input added first, and rounds after each axis.
static void quantize_taps(axis_taps *a) {
  double greatest = 0;
  for (int64_t k = 0; k < a->out * a->taps; k++) {
    const int64_t next = k + 1;
    if (next % a->taps && a->index[next] == a->index[k]) {
      a->weight[next] += a->weight[k];
      a->weight[k] = 0;
    }
    greatest = a->weight[k] > greatest ? a->weight[k] : greatest;
  }
  int32_t bits = 0;
  while (bits < 22 && 0.5 + ldexp(greatest, bits + 1) < 1 << 15) {
    bits++;
  }
  for (int64_t k = 0; k < a->out * a->taps; k++) {
    a->weight[k] = ldexp(round(ldexp(a->weight[k], bits)), -bits);
  }
}

// The relation the other way: which outputs each of `in` inputs goes to. Rows shorter than the longest repeat their
// last place with weight 0.
static bool transpose_taps(tt_rule *r, const axis_taps *a, int64_t in, axis_taps *out) {
  int64_t *used = calloc((size_t)(in + 1), sizeof *used), longest = 1;
  if (!used) {
    tt_fail(r, TT_ERR_OUT_OF_MEMORY, "out of host memory");
    return false;
  }
  for (int64_t k = 0; k < a->out * a->taps; k++) {
    if (a->weight[k] != 0 && ++used[a->index[k]] > longest) {
      longest = used[a->index[k]];
    }
  }
  if (taps_create(r, in, longest, true, out)) {
    memset(used, 0, sizeof *used * (size_t)in);
    for (int64_t k = 0; k < a->out * a->taps; k++) {
      if (a->weight[k] != 0) {
        const int64_t at = a->index[k] * longest + used[a->index[k]]++;
        out->index[at] = k / a->taps;
        out->weight[at] = a->weight[k];
      }
    }
    for (int64_t i = 0; i < in; i++) {
      for (int64_t t = used[i]; t < longest; t++) {
        out->index[i * longest + t] = used[i] ? out->index[i * longest + used[i] - 1] : 0;
      }
    }
  }
  free(used);
  return out->index != NULL;
}

// ---- values ----

static tt_hlo one_tap(tt_rule *r, tt_hlo x, int32_t dim, const axis_taps *a, int64_t t) {
  int64_t *index = malloc(sizeof *index * (size_t)(a->out + 1));
  double *weight = malloc(sizeof *weight * (size_t)(a->out + 1));
  tt_hlo y = NULL;
  if (!index || !weight) {
    tt_fail(r, TT_ERR_OUT_OF_MEMORY, "out of host memory");
  } else {
    for (int64_t i = 0; i < a->out; i++) {
      index[i] = a->index[i * a->taps + t];
      weight[i] = a->weight ? a->weight[i * a->taps + t] : 1;
    }
    y = tt_axis_take(x, dim, index, a->out);
    y = y && a->weight ? v_mul(y, tt_axis_values(y, dim, weight, a->out)) : y;
  }
  free(index);
  free(weight);
  return y;
}

static tt_hlo resample(tt_rule *r, tt_hlo x, int32_t dim, const axis_taps *a) {
  if (a->taps <= MAX_UNROLLED) {
    tt_hlo sum = NULL;
    for (int64_t t = 0; t < a->taps; t++) {
      tt_hlo term = one_tap(r, x, dim, a, t);
      sum = sum ? v_add(sum, term) : term;
    }
    return sum;
  }
  const int64_t total = a->out * a->taps;
  int64_t dims[V_DIMS], pair[] = {a->out, a->taps};
  const int32_t mapping[] = {dim, dim + 1};
  tt_hlo all = tt_axis_take(x, dim, a->index, total);
  for (int32_t i = 0; x && i < x->rank; i++) {
    dims[i > dim ? i + 1 : i] = x->dims[i];
  }
  dims[dim] = a->out;
  dims[dim + 1] = a->taps;
  all = all ? tt_hlo_reshape(all, dims, x->rank + 1) : NULL;
  tt_hlo weights = all ? tt_hlo_reshape(tt_hlo_const_floats(tt_b(r), x->dtype, a->weight, total), pair, 2) : NULL;
  return all ? v_reduce(TT_SUM, v_mul(all, tt_hlo_broadcast_in_dim(weights, all->dims, all->rank, mapping)), dim + 1)
             : NULL;
}

static tt_hlo nearest_gradient(tt_rule *r, tt_hlo g, int32_t dim, const axis_taps *a, int64_t in) {
  int64_t *start = malloc(2 * sizeof *start * (size_t)(in + 1)), *end = start + in + 1;
  if (!start) {
    tt_fail(r, TT_ERR_OUT_OF_MEMORY, "out of host memory");
    return NULL;
  }
  int64_t o = 0;
  for (int64_t i = 0; i < in; i++) {  // the indices don't decrease
    start[i] = o;
    while (o < a->out && a->index[o] == i) {
      o++;
    }
    end[i] = o;
  }
  tt_hlo sum = tt_axis_window_sum(g, dim, start, end, in);
  free(start);
  return sum;
}

// To 0..255, rounded half up.
static tt_hlo to_bytes(tt_hlo y) {
  y = y ? tt_hlo_unary(TT_FLOOR, v_addc(y, 0.5)) : NULL;
  return y ? v_min(v_max(y, v_const(y, 0)), v_const(y, 255)) : NULL;
}

static tt_hlo along_axis(tt_rule *r, tt_hlo x, int32_t dim, resize_mode mode, const axis_sizes *s, bool backward) {
  axis_taps a, transposed = {0};
  if (!x || !axis_taps_of(r, mode, s, &a)) {
    return NULL;
  }
  if (!backward && s->bytes && a.weight) {
    quantize_taps(&a);
    x = s->in == s->out ? x : to_bytes(resample(r, x, dim, &a));
  } else if (!backward) {
    x = resample(r, x, dim, &a);
  } else if (!a.weight) {
    x = nearest_gradient(r, x, dim, &a, s->in);
  } else {
    x = transpose_taps(r, &a, s->in, &transposed) ? resample(r, x, dim, &transposed) : NULL;
  }
  taps_free(&a);
  taps_free(&transposed);
  return x;
}

// ---- operators ----

static bool check_sizes(tt_rule *r, const int64_t *in, int32_t in_count, const int64_t *out, int32_t out_count,
                        int32_t n) {
  if (out_count != n) {
    tt_fail(r, TT_ERR_RUNTIME, "It is expected output_size equals to %d, but got size %d", n, out_count);
    return false;
  }
  if (in_count != n + 2) {
    tt_fail(r, TT_ERR_RUNTIME, "It is expected input_size equals to %d, but got size %d", n + 2, in_count);
    return false;
  }
  static const char *const names[] = {"D", "H", "W"};
  char a[96], b[96];
  size_t a_used = 0, b_used = 0;
  bool positive = true;
  for (int32_t i = 0; i < n; i++) {
    const char *name = names[3 - n + i];
    positive = positive && in[i + 2] > 0 && out[i] > 0;
    a_used += (size_t)snprintf(a + a_used, sizeof a - a_used, "%s%s: %" PRId64, i ? ", " : "", name, in[i + 2]);
    b_used += (size_t)snprintf(b + b_used, sizeof b - b_used, "%s%s: %" PRId64, i ? ", " : "", name, out[i]);
  }
  if (!positive) {
    tt_fail(r, TT_ERR_RUNTIME, "Input and output sizes should be greater than 0, but got input (%s)%s output (%s)", a,
            n == 1 ? " and" : "", b);
  }
  return positive;
}

static bool check_dtype(tt_rule *r, tt_dtype dtype, resize_mode mode, int32_t n) {
  const bool bytes = dtype == TT_U8 && (mode <= NEAREST_EXACT || n == 2);
  if (tt_dtype_is_float(dtype) || bytes) {
    return true;
  }
  static const char *const kernels[] = {
      [NEAREST] = "compute_indices_weights_nearest", [NEAREST_EXACT] = "compute_indices_weights_nearest",
      [LINEAR] = "compute_indices_weights_linear",   [CUBIC] = "compute_indices_weights_cubic",
      [LINEAR_AA] = "compute_index_ranges_weights",  [CUBIC_AA] = "compute_index_ranges_weights",
      [LANCZOS_AA] = "compute_index_ranges_weights",
  };
  tt_fail_dtype(r, kernels[mode], dtype);
  return false;
}

static void read_axis(tt_rule *r, int32_t n, int32_t i, axis_sizes *s) {
  static const char *const names[] = {"scales_d", "scales_h", "scales_w"};
  s->scale_factor = tt_static_double(r, n == 1 ? "scales" : names[3 - n + i], 0);
  s->align_corners = tt_bool(r, "align_corners", false);
}

static tt_hlo resize_all(tt_rule *r, tt_hlo x, tt_dtype dtype, const int64_t *in, const int64_t *out, bool backward) {
  const int32_t n = tt_rule_kind(r) / KIND_MODES;
  const resize_mode mode = (resize_mode)(tt_rule_kind(r) % KIND_MODES);
  for (int32_t i = n - 1; i >= 0; i--) {
    const bool bytes = dtype == TT_U8;
    axis_sizes s = {.in = in[i], .out = out[i], .single = dtype != TT_F64 && !bytes, .bytes = bytes};
    read_axis(r, n, i, &s);
    x = along_axis(r, x, i + 2, mode, &s, backward);
  }
  return x;
}

static void build_resize(tt_rule *r) {
  const int32_t n = tt_rule_kind(r) / KIND_MODES;
  const resize_mode mode = (resize_mode)(tt_rule_kind(r) % KIND_MODES);
  const tt_operand *x = tt_operand_of(r, "self");
  int32_t count;
  const int64_t *out = tt_ints(r, "output_size", &count);
  if (!x || !check_sizes(r, x->sizes, x->ndim, out, count, n)) {
    return;
  }
  if (x->sizes[1] == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Non-empty %dD data tensor expected but got a tensor with sizes %s", n + 2,
            tt_dims_text(x->sizes, x->ndim).text);
    return;
  }
  if (!check_dtype(r, x->dtype, mode, n)) {
    return;
  }
  const tt_dtype compute = mode <= NEAREST_EXACT ? x->dtype : x->dtype == TT_U8 ? TT_F32 : tt_opmath(x->dtype);
  tt_hlo y = resize_all(r, tt_in_as(r, "self", compute), x->dtype, x->sizes + 2, out, false);
  tt_ret_format(r, 0, tt_cast(y, x->dtype), tt_is_channels_last(x));
}

static void build_resize_backward(tt_rule *r) {
  const int32_t n = tt_rule_kind(r) / KIND_MODES;
  const resize_mode mode = (resize_mode)(tt_rule_kind(r) % KIND_MODES);
  const tt_operand *g = tt_operand_of(r, "grad_output");
  int32_t in_count, out_count;
  const int64_t *out = tt_ints(r, "output_size", &out_count), *in = tt_ints(r, "input_size", &in_count);
  if (!g || !check_sizes(r, in, in_count, out, out_count, n) || !check_dtype(r, g->dtype, mode, n)) {
    return;
  }
  for (int32_t d = 0; d < n + 2; d++) {
    const int64_t want = d < 2 ? in[d] : out[d - 2];
    if (g->ndim != n + 2 || g->sizes[d] != want) {
      tt_fail(r, TT_ERR_RUNTIME,
              "Expected grad_output to have the same shape as output; output.size(%d) = %" PRId64
              " but got grad_output.size(%d) = %" PRId64,
              d, want, d, d < g->ndim ? g->sizes[d] : 0);
      return;
    }
  }
  // Which of the CPU's kernels answer in the gradient's layout.
  const bool keeps = !(mode == CUBIC || mode >= CUBIC_AA || (n == 3 && mode != LINEAR));
  tt_hlo dx = resize_all(r, tt_in_as(r, "grad_output", tt_opmath(g->dtype)), g->dtype, in + 2, out, true);
  tt_ret_format(r, 0, tt_cast(dx, g->dtype), keeps && tt_is_channels_last(g));
}

#define RESIZE(op, n, mode)                                                                                 \
  {.name = "aten::" op, .build = build_resize, .kind = (n) * KIND_MODES + (mode), .static_args = SCALES}, { \
    .name = "aten::" op "_backward", .build = build_resize_backward, .kind = (n) * KIND_MODES + (mode),     \
    .static_args = SCALES                                                                                   \
  }
#define SCALES "scales,scales_d,scales_h,scales_w"

const tt_rule_entry tt_rules_resize[] = {
    RESIZE("upsample_nearest1d", 1, NEAREST),
    RESIZE("upsample_nearest2d", 2, NEAREST),
    RESIZE("upsample_nearest3d", 3, NEAREST),
    RESIZE("_upsample_nearest_exact1d", 1, NEAREST_EXACT),
    RESIZE("_upsample_nearest_exact2d", 2, NEAREST_EXACT),
    RESIZE("_upsample_nearest_exact3d", 3, NEAREST_EXACT),
    RESIZE("upsample_linear1d", 1, LINEAR),
    RESIZE("upsample_bilinear2d", 2, LINEAR),
    RESIZE("upsample_trilinear3d", 3, LINEAR),
    RESIZE("upsample_bicubic2d", 2, CUBIC),
    RESIZE("_upsample_bilinear2d_aa", 2, LINEAR_AA),
    RESIZE("_upsample_bicubic2d_aa", 2, CUBIC_AA),
    RESIZE("_upsample_lanczos2d_aa", 2, LANCZOS_AA),
    {0},
};
