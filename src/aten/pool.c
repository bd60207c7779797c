// Max and average pooling over 2 or 3 spatial dims, with or without a batch dim. Small windows are unrolled into
// shifted slices, which XLA:CPU fuses into one loop (2 to 8 times faster than its reduce_window); gradients read the
// few windows that can hold a position instead of scattering.
#include <inttypes.h>

#include "aten/dims.h"

enum { MAX_SPATIAL = 3, MAX_RANK = MAX_SPATIAL + 2, MAX_TAPS = 64 };

typedef struct pool_args {
  int32_t n, lead;  // spatial dims, dims before them
  int64_t kernel[MAX_SPATIAL], stride[MAX_SPATIAL], pad[MAX_SPATIAL], dilation[MAX_SPATIAL];
  int64_t in[MAX_SPATIAL], out[MAX_SPATIAL];
  bool ceil_mode, count_include_pad;
  int64_t divisor;  // 0: none
} pool_args;

enum { POOL_2D = 2, POOL_3D = 3 };

// ---- windows ----

static int64_t product(const int64_t *values, int32_t n) {
  int64_t p = 1;
  for (int32_t i = 0; i < n; i++) {
    p *= values[i];
  }
  return p;
}

static bool next_tap(int64_t *tap, const int64_t *sizes, int32_t n) {
  for (int32_t i = n - 1; i >= 0; i--) {
    if (++tap[i] < sizes[i]) {
      return true;
    }
    tap[i] = 0;
  }
  return false;
}

// x extended so that every window lies inside.
static tt_hlo padded(tt_hlo x, tt_hlo fill, const pool_args *p) {
  int64_t low[MAX_RANK] = {0}, high[MAX_RANK] = {0};
  bool needed = false;
  for (int32_t i = 0; i < p->n; i++) {
    low[p->lead + i] = p->pad[i];
    high[p->lead + i] = (p->out[i] - 1) * p->stride[i] + p->dilation[i] * (p->kernel[i] - 1) + 1 - p->in[i] - p->pad[i];
    needed = needed || low[p->lead + i] > 0 || high[p->lead + i] > 0;
  }
  for (int32_t i = 0; i < MAX_RANK; i++) {
    high[i] = high[i] < 0 ? 0 : high[i];
  }
  return needed ? tt_hlo_pad(x, fill, low, high, NULL) : x;
}

static tt_hlo tap_slice(tt_hlo xp, const int64_t *tap, const pool_args *p) {
  int64_t start[MAX_RANK] = {0}, limit[MAX_RANK], stride[MAX_RANK] = {1, 1, 1, 1, 1};
  if (!xp) {
    return NULL;
  }
  for (int32_t i = 0; i < p->lead; i++) {
    limit[i] = xp->dims[i];
  }
  for (int32_t i = 0; i < p->n; i++) {
    const int32_t d = p->lead + i;
    start[d] = tap[i] * p->dilation[i];
    limit[d] = start[d] + (p->out[i] - 1) * p->stride[i] + 1;
    stride[d] = p->stride[i];
  }
  return tt_hlo_slice(xp, start, limit, stride);
}

static void window_of(const pool_args *p, tt_hlo x, int64_t *sizes, int64_t *strides, int64_t *dilation) {
  for (int32_t d = 0; d < x->rank; d++) {
    const int32_t i = d - p->lead;
    sizes[d] = i < 0 ? 1 : p->kernel[i];
    strides[d] = i < 0 ? 1 : p->stride[i];
    dilation[d] = i < 0 ? 1 : p->dilation[i];
  }
}

// For each input position, the value of the window `back` before the last that can hold it: x at
// floor((position + pad) / stride) - back, `fill` outside.
static tt_hlo window_before(tt_hlo x, double fill, const int64_t *back, const pool_args *p) {
  int64_t low[MAX_RANK] = {0}, high[MAX_RANK] = {0}, spread[2 * MAX_RANK], joined[MAX_RANK], start[MAX_RANK] = {0};
  int64_t limit[MAX_RANK];
  int32_t mapping[MAX_RANK];
  if (!x) {
    return NULL;
  }
  for (int32_t d = 0; d < x->rank; d++) {
    const int32_t i = d - p->lead;
    mapping[d] = i < 0 ? d : p->lead + 2 * i;
    spread[mapping[d]] = joined[d] = limit[d] = x->dims[d];
    if (i >= 0) {
      const int64_t s = p->stride[i], from = p->pad[i] / s - back[i], to = (p->in[i] - 1 + p->pad[i]) / s - back[i];
      low[d] = -from;
      high[d] = to - (x->dims[d] - 1);
      spread[mapping[d]] = to - from + 1;
      spread[mapping[d] + 1] = s;
      joined[d] = (to - from + 1) * s;
      start[d] = p->pad[i] % s;
      limit[d] = start[d] + p->in[i];
    }
  }
  x = tt_hlo_pad(x, tt_hlo_scalar(tt_hlo_builder_of(x), x->dtype, fill), low, high, NULL);
  x = x ? tt_hlo_broadcast_in_dim(x, spread, p->lead + 2 * p->n, mapping) : NULL;
  return tt_hlo_slice(tt_hlo_reshape(x, joined, p->lead + p->n), start, limit, NULL);
}

// How many windows can hold a position, per dim.
static int64_t windows_per_position(const pool_args *p, int64_t *counts) {
  for (int32_t i = 0; i < p->n; i++) {
    counts[i] = (p->dilation[i] * (p->kernel[i] - 1) + p->stride[i]) / p->stride[i];
  }
  return product(counts, p->n);
}

// ---- max ----

// Position of window starts in the flattened spatial dims; `inside` moves those in the padding to the first tap that
// isn't.
static tt_hlo window_origin(tt_hlo_builder *b, tt_dtype type, const int64_t *dims, const pool_args *p, bool inside) {
  tt_hlo sum = NULL;
  int64_t stride = product(p->in, p->n);
  for (int32_t i = 0; i < p->n; i++) {
    stride /= p->in[i];
    tt_hlo at = tt_hlo_iota(b, type, dims, p->lead + p->n, p->lead + i);
    at = at ? v_addc(v_mulc(at, (double)p->stride[i]), (double)-p->pad[i]) : NULL;
    if (inside && p->pad[i] && at) {
      const double d = (double)p->dilation[i];
      tt_hlo moved = v_sub(at, v_mulc(v_div(v_addc(at, -(d - 1)), v_const(at, d)), d));  // + ceil(-at / d) * d
      at = v_if(v_ltc(at, 0), moved, at);
    }
    at = at ? v_mulc(at, (double)stride) : NULL;
    sum = sum ? v_add(sum, at) : at;
  }
  return sum;
}

static int64_t tap_offset(const pool_args *p, const int64_t *tap) {
  int64_t offset = 0;
  for (int32_t i = 0; i < p->n; i++) {
    offset = offset * p->in[i] + tap[i] * p->dilation[i];
  }
  return offset;
}

// PyTorch's loop: a greater element is taken, and any NaN.
static tt_hlo beats(tt_hlo x, tt_hlo best) {
  tt_hlo take = v_gt(x, best);
  return x && v_has_nan(x->dtype) ? v_or(take, v_isnan(x)) : take;
}

static void max_by_taps(tt_hlo x, const int64_t *out_dims, tt_dtype type, const pool_args *p, tt_hlo *value,
                        tt_hlo *index) {
  tt_hlo_builder *b = tt_hlo_builder_of(x);
  tt_hlo lowest = tt_hlo_min_value(b, x->dtype), xp = padded(x, lowest, p);
  tt_hlo origin = window_origin(b, type, out_dims, p, false);
  tt_hlo best = v_fill(lowest, out_dims, x->rank), at = window_origin(b, type, out_dims, p, true);
  int64_t tap[MAX_SPATIAL] = {0};
  do {
    tt_hlo seen = tap_slice(xp, tap, p), take = beats(seen, best);
    at = v_if(take, origin ? v_addc(origin, (double)tap_offset(p, tap)) : NULL, at);
    best = v_if(take, seen, best);
  } while (next_tap(tap, p->kernel, p->n));
  *value = best;
  *index = at;
}

// (value, position): the later of two NaN, a NaN, the greater, of equals the earlier.
static void greater_of(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)context;
  (void)b;
  tt_hlo keep = v_gt(left[0], right[0]), tie = v_eq(left[0], right[0]), first = v_lt(left[1], right[1]);
  keep = v_or(keep, v_and(tie, first));
  if (left[0] && v_has_nan(left[0]->dtype)) {
    tt_hlo left_nan = v_isnan(left[0]), right_nan = v_isnan(right[0]);
    keep = v_if(left_nan, v_or(v_not(right_nan), v_not(first)), v_and(keep, v_not(right_nan)));
  }
  out[0] = v_if(keep, left[0], right[0]);
  out[1] = v_if(keep, left[1], right[1]);
}

static void max_by_window(tt_hlo x, const int64_t *out_dims, tt_dtype type, const pool_args *p, tt_hlo *value,
                          tt_hlo *index) {
  tt_hlo_builder *b = tt_hlo_builder_of(x);
  pool_args each = *p;  // positions of the elements themselves
  for (int32_t i = 0; i < p->n; i++) {
    each.stride[i] = 1;
    each.pad[i] = 0;
  }
  tt_hlo lowest = tt_hlo_min_value(b, x->dtype), none = tt_hlo_scalar(b, type, (double)product(p->in, p->n));
  tt_hlo xs[2] = {padded(x, lowest, p), padded(window_origin(b, type, x->dims, &each, false), none, p)};
  tt_hlo inits[2] = {lowest, none}, results[2];
  int64_t sizes[MAX_RANK], strides[MAX_RANK], dilation[MAX_RANK];
  window_of(p, x, sizes, strides, dilation);
  const tt_hlo_window window = {.sizes = sizes, .strides = strides, .dilation = dilation};
  tt_hlo_reduce_window_multi(xs, inits, 2, &window, greater_of, NULL, results);
  (void)out_dims;
  *value = results[0];
  *index = results[1];
}

static void max_pool(tt_hlo x, const pool_args *p, tt_hlo *value, tt_hlo *index) {
  *value = *index = NULL;
  if (!x) {
    return;
  }
  int64_t out_dims[MAX_RANK];
  memcpy(out_dims, x->dims, sizeof *out_dims * (size_t)p->lead);
  memcpy(out_dims + p->lead, p->out, sizeof *out_dims * (size_t)p->n);
  const tt_dtype type = v_position_type(2 * product(p->in, p->n));
  if (tt_hlo_numel(x) == 0) {
    *value = tt_hlo_const(tt_hlo_builder_of(x), x->dtype, 0, out_dims, x->rank);
    *index = tt_hlo_const(tt_hlo_builder_of(x), TT_S64, 0, out_dims, x->rank);
  } else if (product(p->kernel, p->n) <= MAX_TAPS) {
    max_by_taps(x, out_dims, type, p, value, index);
  } else {
    max_by_window(x, out_dims, type, p, value, index);
  }
}

// Gradient of max pooling: each position gathers from the windows whose index names it.
static tt_hlo max_gradient(tt_hlo g, tt_hlo index, const int64_t *in_dims, const pool_args *p) {
  if (!g || !index) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(g);
  const int32_t rank = p->lead + p->n;
  int64_t counts[MAX_SPATIAL], back[MAX_SPATIAL] = {0};
  const int64_t planes = product(in_dims, p->lead), positions = product(p->in, p->n);
  const tt_dtype type = v_position_type(planes * positions);
  index = tt_hlo_convert(index, type);
  if (windows_per_position(p, counts) > MAX_TAPS) {
    const int64_t flat[] = {planes, product(p->out, p->n)}, total = planes * positions;
    tt_hlo at = tt_hlo_reshape(index, flat, 2);
    at = at ? v_add(at, v_mulc(v_iota(at, type, 0), (double)positions)) : NULL;
    tt_hlo sum = tt_put_flat(TT_SCATTER_ADD, tt_hlo_const(b, g->dtype, 0, &total, 1), v_flat(at), v_flat(g));
    return tt_hlo_reshape(sum, in_dims, rank);
  }
  pool_args each = *p;
  for (int32_t i = 0; i < p->n; i++) {
    each.stride[i] = 1;
    each.pad[i] = 0;
  }
  tt_hlo here = window_origin(b, type, in_dims, &each, false), sum = NULL;
  do {
    tt_hlo value = window_before(g, 0, back, p), mine = v_eq(window_before(index, -1, back, p), here);
    tt_hlo term = value ? v_if(mine, value, v_const(value, 0)) : NULL;
    sum = sum ? v_add(sum, term) : term;
  } while (next_tap(back, counts, p->n));
  return sum;
}

// ---- average ----

static tt_hlo window_sum(tt_hlo x, const pool_args *p) {
  tt_hlo xp = padded(x, v_zero(x), p);
  if (product(p->kernel, p->n) <= MAX_TAPS) {
    int64_t tap[MAX_SPATIAL] = {0};
    tt_hlo sum = NULL;
    do {
      tt_hlo seen = tap_slice(xp, tap, p);
      sum = sum ? v_add(sum, seen) : seen;
    } while (next_tap(tap, p->kernel, p->n));
    return sum;
  }
  int64_t sizes[MAX_RANK], strides[MAX_RANK], dilation[MAX_RANK];
  window_of(p, x, sizes, strides, dilation);
  return tt_hlo_reduce_window(TT_SUM, xp, &(tt_hlo_window){.sizes = sizes, .strides = strides});
}

// How many elements window o of dim i counts.
static int64_t counted(const pool_args *p, int32_t i, int64_t o) {
  const int64_t start = o * p->stride[i] - p->pad[i];
  int64_t end = start + p->kernel[i];
  end = end > p->in[i] + p->pad[i] ? p->in[i] + p->pad[i] : end;
  if (p->count_include_pad) {
    return end - start;
  }
  return (end > p->in[i] ? p->in[i] : end) - (start < 0 ? 0 : start);
}

// x, which has the windows' dims, divided by the sizes of the windows.
static tt_hlo divide_by_size(tt_hlo x, const pool_args *p) {
  if (!x || tt_hlo_numel(x) == 0) {
    return x;
  }
  if (p->divisor) {
    return v_div(x, v_const(x, (double)p->divisor));
  }
  tt_hlo_builder *b = tt_hlo_builder_of(x);
  int64_t same = 1;
  tt_hlo uneven = NULL;
  for (int32_t i = 0; i < p->n; i++) {
    bool even = true;
    int64_t first = counted(p, i, 0);
    for (int64_t o = 1; o < p->out[i]; o++) {
      even = even && counted(p, i, o) == first;
    }
    if (even) {
      same *= first;
      continue;
    }
    // min(o * stride - pad + kernel, end) - max(o * stride - pad, start)
    const bool all = p->count_include_pad;
    tt_hlo o = tt_hlo_iota(b, TT_S32, x->dims, x->rank, p->lead + i);
    tt_hlo start = v_addc(v_mulc(o, (double)p->stride[i]), (double)-p->pad[i]),
           end = v_addc(start, (double)p->kernel[i]);
    end = v_min(end, v_const(end, (double)(p->in[i] + (all ? p->pad[i] : 0))));
    tt_hlo size = v_sub(end, all ? start : v_max(start, v_const(start, 0)));
    uneven = uneven ? v_mul(uneven, size) : size;
  }
  if (!uneven) {
    return v_div(x, v_const(x, (double)same));
  }
  return v_div(x, tt_hlo_convert(v_mulc(uneven, (double)same), x->dtype));
}

// Sums over the windows that hold a position; a window further back may end before it.
static tt_hlo spread_windows(tt_hlo g, const int64_t *in_dims, const pool_args *p) {
  int64_t counts[MAX_SPATIAL], back[MAX_SPATIAL] = {0};
  tt_hlo sum = NULL;
  windows_per_position(p, counts);
  do {
    tt_hlo term = window_before(g, 0, back, p);
    for (int32_t i = 0; i < p->n && term; i++) {
      const int64_t s = p->stride[i], rest = p->kernel[i] - back[i] * s;
      if (rest < s) {
        tt_hlo at = tt_hlo_iota(tt_hlo_builder_of(g), TT_S32, in_dims, term->rank, p->lead + i);
        at = tt_hlo_binary(TT_REMAINDER, v_addc(at, (double)p->pad[i]), v_const(at, (double)s));
        term = v_if(v_ltc(at, (double)rest), term, v_const(term, 0));
      }
    }
    sum = sum ? v_add(sum, term) : term;
  } while (next_tap(back, counts, p->n));
  return sum;
}

// The same for large windows: a sum over the windows' places in the dilated gradient.
static tt_hlo spread_large_windows(tt_hlo g, const pool_args *p) {
  int64_t low[MAX_RANK] = {0}, high[MAX_RANK] = {0}, interior[MAX_RANK] = {0}, sizes[MAX_RANK] = {1, 1, 1, 1, 1};
  for (int32_t i = 0; i < p->n; i++) {
    const int32_t d = p->lead + i;
    sizes[d] = p->kernel[i];
    interior[d] = p->stride[i] - 1;
    low[d] = p->kernel[i] - 1 - p->pad[i];
    high[d] = p->in[i] + p->kernel[i] - 1 - ((p->out[i] - 1) * p->stride[i] + 1) - low[d];
  }
  return tt_hlo_reduce_window(TT_SUM, tt_hlo_pad(g, v_zero(g), low, high, interior), &(tt_hlo_window){.sizes = sizes});
}

// ---- arguments ----

static void read_list(tt_rule *r, const char *what, const char *name, const char *optional, const int64_t *if_empty,
                      int64_t if_none, int32_t n, int64_t *out) {
  int32_t count;
  const int64_t *values = tt_ints(r, name, &count);
  for (int32_t i = 0; i < n; i++) {
    out[i] = count == 0 ? (if_empty ? if_empty[i] : if_none) : values[count == n ? i : 0];
  }
  if (count != 1 && count != n && (count != 0 || (!if_empty && tt_has(r, name)))) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: %s must either be %sa single int, or a tuple of %s ints", what, name, optional,
            n == 2 ? "two" : "three");
  }
}

static int64_t pooled_size(const pool_args *p, int32_t i) {
  const int64_t room =
      p->in[i] + 2 * p->pad[i] - p->dilation[i] * (p->kernel[i] - 1) - 1 + (p->ceil_mode ? p->stride[i] - 1 : 0);
  int64_t out = (room >= 0 ? room / p->stride[i] : -((-room + p->stride[i] - 1) / p->stride[i])) + 1;
  if (p->ceil_mode && (out - 1) * p->stride[i] >= p->in[i] + p->pad[i]) {
    out--;  // the last window must start inside
  }
  return out;
}

static bool check_numbers(tt_rule *r, const pool_args *p) {
  for (int32_t i = 0; i < p->n; i++) {
    if (p->stride[i] <= 0) {
      tt_fail(r, TT_ERR_RUNTIME, "stride should not be zero");
    } else if (p->kernel[i] <= 0) {
      tt_fail(r, TT_ERR_RUNTIME, "kernel size should be greater than zero, but got %s",
              tt_dims_text(p->kernel, p->n).text);
    } else if (p->dilation[i] <= 0) {
      tt_fail(r, TT_ERR_RUNTIME, "dilation should be greater than zero, but got dilation: %s",
              tt_dims_text(p->dilation, p->n).text);
    } else if (p->stride[i] > INT32_MAX || p->kernel[i] > INT32_MAX || p->dilation[i] > INT32_MAX) {
      tt_fail(r, TT_ERR_RUNTIME, "integer out of range: kernel size %" PRId64 ", stride %" PRId64 ", dilation %" PRId64,
              p->kernel[i], p->stride[i], p->dilation[i]);  // as PyTorch, which keeps them in an int
    } else if (p->pad[i] < 0) {
      tt_fail(r, TT_ERR_RUNTIME, "pad must be non-negative, but got pad: %" PRId64, p->pad[i]);
    } else if (p->pad[i] > ((p->kernel[i] - 1) * p->dilation[i] + 1) / 2) {
      tt_fail(r, TT_ERR_RUNTIME,
              "pad should be at most half of effective kernel size, but got pad=%" PRId64 ", kernel_size=%" PRId64
              " and dilation=%" PRId64,
              p->pad[i], p->kernel[i], p->dilation[i]);
    }
  }
  return !tt_failed(r);
}

static const char *by_text(int64_t channels, const int64_t *sizes, int32_t n, char *text, size_t size) {
  size_t used = (size_t)snprintf(text, size, "%" PRId64, channels);
  for (int32_t i = 0; i < n; i++) {
    used += (size_t)snprintf(text + used, size - used, "x%" PRId64, sizes[i]);
  }
  return text;
}

static bool check_input(tt_rule *r, const tt_operand *x, const char *what, int32_t n) {
  if (x->ndim != n + 1 && x->ndim != n + 2) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: non-empty %dD or %dD (batch mode) tensor expected for input", what, n + 1, n + 2);
    return false;
  }
  for (int32_t d = x->ndim - n - 1; d < x->ndim; d++) {
    if (x->sizes[d] == 0) {
      tt_fail(r, TT_ERR_RUNTIME,
              "Expected %dD or %dD (batch mode) tensor with optional 0 dim batch size for input, but "
              "got:%s",
              n + 1, n + 2, tt_dims_text(x->sizes, x->ndim).text);
      return false;
    }
  }
  return true;
}

// The CPU's average in 3-d wants windows no larger than the input, padded or not.
static bool check_avg_3d(tt_rule *r, const pool_args *p) {
  for (int32_t i = 0; i < p->n && p->n == 3; i++) {
    if (p->in[i] < p->kernel[i]) {
      tt_fail(r, TT_ERR_RUNTIME,
              "input image (T: %" PRId64 " H: %" PRId64 " W: %" PRId64 ") smaller than kernel size (kT: %" PRId64
              " kH: %" PRId64 " kW: %" PRId64 ")",
              p->in[0], p->in[1], p->in[2], p->kernel[0], p->kernel[1], p->kernel[2]);
      return false;
    }
  }
  return true;
}

static bool read_args(tt_rule *r, const tt_operand *x, const char *what, pool_args *p) {
  const int32_t n = tt_rule_kind(r);
  static const int64_t none[MAX_SPATIAL] = {1, 1, 1};
  if (!x || !check_input(r, x, what, n)) {
    return false;
  }
  *p = (pool_args){.n = n,
                   .lead = x->ndim - n,
                   .ceil_mode = tt_bool(r, "ceil_mode", false),
                   .count_include_pad = tt_bool(r, "count_include_pad", true),
                   .divisor = tt_int(r, "divisor_override", 0)};
  read_list(r, what, "kernel_size", "", NULL, 1, n, p->kernel);
  read_list(r, what, "stride", "omitted, ", p->kernel, 1, n, p->stride);
  read_list(r, what, "padding", "", NULL, 0, n, p->pad);
  read_list(r, what, "dilation", "", none, 1, n, p->dilation);
  if (tt_has(r, "divisor_override") && p->divisor == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "divisor must be not zero");
  }
  if (tt_failed(r) || !check_numbers(r, p)) {
    return false;
  }
  bool fits = true;
  for (int32_t i = 0; i < n; i++) {
    p->in[i] = x->sizes[p->lead + i];
    p->out[i] = pooled_size(p, i);
    fits = fits && p->out[i] >= 1;
  }
  if (tt_has(r, "count_include_pad") && !check_avg_3d(r, p)) {
    return false;
  }
  char in[96], out[96];
  if (!fits) {
    const int64_t channels = x->sizes[p->lead - 1];
    tt_fail(r, TT_ERR_RUNTIME, "Given input size: (%s). Calculated output size: (%s). Output size is too small",
            by_text(channels, p->in, n, in, sizeof in), by_text(channels, p->out, n, out, sizeof out));
  }
  return fits;
}

static bool check_same_dims(tt_rule *r, const tt_operand *x, const tt_operand *like, const pool_args *p) {
  for (int32_t d = 0; d < like->ndim; d++) {
    const int64_t want = d < p->lead ? like->sizes[d] : p->out[d - p->lead];
    if (x->ndim != like->ndim || x->sizes[d] != want) {
      tt_fail(r, TT_ERR_RUNTIME,
              "Expected a tensor of dimension %d and tensor.size[%d] == %" PRId64
              " but got: dimension %d and "
              "tensor.size[%d] = %" PRId64,
              like->ndim, d, want, x->ndim, d, d < x->ndim ? x->sizes[d] : 0);
      return false;
    }
  }
  return true;
}

static bool check_gradient(tt_rule *r, const tt_operand *g, const tt_operand *x, const pool_args *p) {
  if (g->dtype != x->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected dtype %s for `gradOutput` but got dtype %s", tt_type_meta_name(x->dtype),
            tt_type_meta_name(g->dtype));
    return false;
  }
  return check_same_dims(r, g, x, p);
}

static bool check_dtype(tt_rule *r, tt_dtype dtype, bool all_ints, const char *kernel) {
  const bool ok = tt_dtype_is_float(dtype) || dtype == TT_S64 ||
                  (all_ints && tt_dtype_is_int(dtype) && !tt_is_barebones_unsigned(dtype));
  if (!ok) {
    tt_fail_dtype(r, kernel, dtype);
  }
  return ok;
}

// ---- operators ----

static void build_max_pool(tt_rule *r) {
  const bool flat = tt_rule_kind(r) == POOL_2D;
  const tt_operand *x = tt_operand_of(r, "self");
  pool_args p;
  tt_hlo value, index;
  if (!read_args(r, x, flat ? "max_pool2d" : "max_pool3d", &p) ||
      !check_dtype(r, x->dtype, true, flat ? "max_pool2d" : "max_pool3d")) {
    return;
  }
  max_pool(tt_in(r, "self"), &p, &value, &index);
  tt_ret_format(r, 0, value, tt_is_channels_last(x));
  tt_ret_format(r, 1, tt_cast(index, TT_S64), tt_is_channels_last(x));
}

static void build_max_pool_backward(tt_rule *r) {
  const tt_operand *g = tt_operand_of(r, "grad_output"), *x = tt_operand_of(r, "self"),
                   *at = tt_operand_of(r, "indices");
  pool_args p;
  if (!g || !at || !read_args(r, x, tt_rule_kind(r) == POOL_2D ? "max_pool2d" : "max_pool3d", &p) ||
      !check_gradient(r, g, x, &p) || !check_same_dims(r, at, x, &p)) {
    return;
  }
  if (at->dtype != TT_S64) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type Long but found %s", tt_type_name(at->dtype));
    return;
  }
  tt_hlo dx = max_gradient(tt_in_as(r, "grad_output", tt_opmath(x->dtype)), tt_in(r, "indices"), x->sizes, &p);
  tt_ret_format(r, 0, tt_cast(dx, x->dtype), tt_is_channels_last(x));
}

static void build_avg_pool(tt_rule *r) {
  const bool flat = tt_rule_kind(r) == POOL_2D;
  const tt_operand *x = tt_operand_of(r, "self");
  pool_args p;
  if (!read_args(r, x, flat ? "avg_pool2d" : "avg_pool3d", &p) ||
      !check_dtype(r, x->dtype, false, flat ? "avg_pool2d" : "avg_pool3d_out_frame")) {
    return;
  }
  tt_hlo y = divide_by_size(window_sum(tt_in_as(r, "self", tt_opmath(x->dtype)), &p), &p);
  tt_ret_format(r, 0, tt_cast(y, x->dtype), flat && tt_is_channels_last(x));
}

static void build_avg_pool_backward(tt_rule *r) {
  const bool flat = tt_rule_kind(r) == POOL_2D;
  const tt_operand *g = tt_operand_of(r, "grad_output"), *x = tt_operand_of(r, "self");
  pool_args p;
  int64_t counts[MAX_SPATIAL];
  if (!g || !read_args(r, x, flat ? "avg_pool2d" : "avg_pool3d", &p) || !check_gradient(r, g, x, &p)) {
    return;
  }
  tt_hlo share = divide_by_size(tt_in_as(r, "grad_output", tt_opmath(x->dtype)), &p);
  tt_hlo dx = windows_per_position(&p, counts) <= MAX_TAPS ? spread_windows(share, x->sizes, &p)
                                                           : spread_large_windows(share, &p);
  tt_ret_format(r, 0, tt_cast(dx, x->dtype), flat && tt_is_channels_last(x));
}

// ---- unpooling ----

static void build_max_unpool(tt_rule *r) {
  const int32_t n = tt_rule_kind(r);
  const tt_operand *x = tt_operand_of(r, "self"), *at = tt_operand_of(r, "indices");
  int32_t count;
  const int64_t *size = tt_ints(r, "output_size", &count);
  if (!x || !at) {
    return;
  }
  if (at->dtype != TT_S64) {
    tt_fail(r, TT_ERR_RUNTIME, "elements in indices should be type int64 but got: %s", tt_type_name(at->dtype));
  } else if (count != n) {
    tt_fail(r, TT_ERR_RUNTIME, "There should be exactly %d elements (%s) in output_size, but got %d elements.", n,
            n == 2 ? "height, width" : "depth, height, width", count);
  } else if (x->ndim != n + 1 && x->ndim != n + 2) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Input to max_unpooling%dd should be a %dd or %dd Tensor, but got a tensor with %d dimensions.", n, n + 1,
            n + 2, x->ndim);
  } else if (at->ndim != x->ndim || memcmp(at->sizes, x->sizes, sizeof *x->sizes * (size_t)x->ndim)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Expected shape of indices to be same as that of the input tensor (%s) but got indices "
            "tensor with shape: %s",
            tt_dims_text(x->sizes, x->ndim).text, tt_dims_text(at->sizes, at->ndim).text);
  }
  if (tt_failed(r)) {
    return;
  }
  const int64_t positions = tt_ints_numel(r, "output_size");
  int64_t dims[TT_MAX_RANK], planes = 1, each = 1, total;
  for (int32_t d = 0; d < x->ndim; d++) {
    const int32_t i = d - (x->ndim - n);
    dims[d] = i < 0 ? x->sizes[d] : size[i];
    planes *= i < 0 ? dims[d] : 1;
    each *= i < 0 ? 1 : x->sizes[d];
  }
  if (tt_failed(r) || __builtin_mul_overflow(planes, positions, &total)) {
    tt_fail(r, TT_ERR_RUNTIME, "output_size is too large");
    return;
  }
  const int64_t flat[] = {planes, each};
  tt_hlo index = tt_hlo_reshape(tt_in(r, "indices"), flat, 2);
  tt_hlo valid = v_and(v_gec(index, 0), v_ltc(index, (double)positions));
  if (total > 0) {  // else nothing is written, and the CPU looks at nothing
    tt_device_assert(r, valid, TT_ERR_RUNTIME, "Found an invalid max index (output volumes are of size %s)",
                     tt_dims_text(size, n).text);
  }
  index = index ? v_add(index, v_mulc(v_iota(index, TT_S64, 0), (double)positions)) : NULL;
  index = index ? v_if(valid, index, v_const(index, -1)) : NULL;
  tt_hlo zeros = tt_hlo_const(tt_b(r), x->dtype, 0, &total, 1);
  tt_hlo y =
      tt_put_flat(TT_SCATTER_SET, zeros, v_flat(tt_cast(index, v_position_type(total))), v_flat(tt_in(r, "self")));
  tt_ret_format(r, 0, tt_hlo_reshape(y, dims, x->ndim), n == 2 && tt_is_channels_last(x));
}

const tt_rule_entry tt_rules_pool[] = {
    {.name = "aten::max_pool2d_with_indices", .build = build_max_pool, .kind = POOL_2D},
    {.name = "aten::max_pool3d_with_indices", .build = build_max_pool, .kind = POOL_3D},
    {.name = "aten::max_pool2d_with_indices_backward", .build = build_max_pool_backward, .kind = POOL_2D},
    {.name = "aten::max_pool3d_with_indices_backward", .build = build_max_pool_backward, .kind = POOL_3D},
    {.name = "aten::avg_pool2d", .build = build_avg_pool, .kind = POOL_2D},
    {.name = "aten::avg_pool3d", .build = build_avg_pool, .kind = POOL_3D},
    {.name = "aten::avg_pool2d_backward", .build = build_avg_pool_backward, .kind = POOL_2D},
    {.name = "aten::avg_pool3d_backward", .build = build_avg_pool_backward, .kind = POOL_3D},
    {.name = "aten::max_unpool2d", .build = build_max_unpool, .kind = POOL_2D},
    {.name = "aten::max_unpool3d", .build = build_max_unpool, .kind = POOL_3D},
    {0},
};
