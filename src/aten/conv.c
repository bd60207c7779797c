// Convolutions in 1 to 3 spatial dims, their transposes and their gradients. XLA:CPU runs Eigen's convolution for
// undilated windows at close to PyTorch's speed; where it doesn't, other forms are chosen.
#include <inttypes.h>

#include "aten/dims.h"

enum { MAX_SPATIAL = 3, MAX_CHUNKS = 8, CHUNK = 4096, MAX_DEPTHWISE_TAPS = 49, MAX_GROUP_CONVS = 8 };

typedef struct conv_args {
  int32_t n;  // spatial dims
  int64_t stride[MAX_SPATIAL], pad[MAX_SPATIAL], dilation[MAX_SPATIAL], output_pad[MAX_SPATIAL];
  int64_t groups;
  bool transposed;
} conv_args;

// One correlation of x [N, C, ...] with w [O, C/groups, ...] (or, `swapped`, [C/groups, O, ...]).
typedef struct window_args {
  int64_t stride[MAX_SPATIAL], low[MAX_SPATIAL], high[MAX_SPATIAL], base_dilation[MAX_SPATIAL], dilation[MAX_SPATIAL];
  int64_t groups;
  bool swapped;
} window_args;

static const int32_t spatial_dims[] = {2, 3, 4};

static int64_t numel_of(const int64_t *dims, int32_t rank) {
  int64_t n = 1;
  for (int32_t i = 0; i < rank; i++) {
    n *= dims[i];
  }
  return n;
}

static int64_t spatial_numel(tt_hlo x) { return numel_of(x->dims + 2, x->rank - 2); }

// ---- forms ----

// Products of bfloat16 values are exact in one pass.
static tt_hlo_precision precision_of(tt_rule *r) {
  const tt_operand *w = tt_operand_of(r, "weight");
  return w && w->dtype == TT_BF16 ? TT_PRECISION_DEFAULT : tt_matmul_precision(r);
}

static tt_hlo zeros(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  return tt_hlo_const(tt_b(r), dtype, 0, dims, rank);
}

// Steps an n-digit counter; false after the last.
static bool next_tap(int64_t *tap, const int64_t *sizes, int32_t n) {
  for (int32_t i = n - 1; i >= 0; i--) {
    if (++tap[i] < sizes[i]) {
      return true;
    }
    tap[i] = 0;
  }
  return false;
}

static tt_hlo padded(tt_hlo x, const window_args *w) {
  int64_t low[MAX_SPATIAL + 2] = {0}, high[MAX_SPATIAL + 2] = {0}, interior[MAX_SPATIAL + 2] = {0};
  for (int32_t i = 0; i + 2 < x->rank; i++) {
    low[i + 2] = w->low[i];
    high[i + 2] = w->high[i];
    interior[i + 2] = w->base_dilation[i] - 1;
  }
  return tt_hlo_pad(x, v_zero(x), low, high, interior);
}

// What one tap of the kernel sees of the padded input.
static tt_hlo tap_slice(tt_hlo x, const int64_t *tap, const int64_t *out, const window_args *w) {
  int64_t start[MAX_SPATIAL + 2] = {0}, limit[MAX_SPATIAL + 2], stride[MAX_SPATIAL + 2] = {1, 1};
  if (!x) {
    return NULL;
  }
  for (int32_t d = 0; d < x->rank; d++) {
    const int32_t i = d - 2;
    limit[d] = x->dims[d];
    if (i >= 0) {
      start[d] = tap[i] * w->dilation[i];
      stride[d] = w->stride[i];
      limit[d] = start[d] + (out[i] - 1) * w->stride[i] + 1;
    }
  }
  return tt_hlo_slice(x, start, limit, stride);
}

static tt_hlo tap_weight(tt_hlo w, const int64_t *tap) {  // [O, C, ...] at one tap: [O C]
  int64_t start[MAX_SPATIAL + 2] = {0}, limit[MAX_SPATIAL + 2] = {w->dims[0], w->dims[1]};
  for (int32_t i = 0; i + 2 < w->rank; i++) {
    start[i + 2] = tap[i];
    limit[i + 2] = tap[i] + 1;
  }
  return v_flat(tt_hlo_slice(w, start, limit, NULL));
}

// [N, C, spatial...] as [N, a, b, spatial...].
static tt_hlo split_channels(tt_hlo x, int64_t a, int64_t b) {
  if (!x) {
    return NULL;
  }
  int64_t dims[MAX_SPATIAL + 3] = {x->dims[0], a, b};
  for (int32_t i = 2; i < x->rank; i++) {
    dims[i + 1] = x->dims[i];
  }
  return tt_hlo_reshape(x, dims, x->rank + 1);
}

// [N, C, ...] repeated for the m outputs of each channel: [N, C, m, ...].
static tt_hlo spread_channels(tt_hlo x, int64_t m) {
  if (!x) {
    return NULL;
  }
  int64_t dims[MAX_SPATIAL + 3] = {x->dims[0], x->dims[1], m};
  const int32_t mapping[] = {0, 1, 3, 4, 5};
  for (int32_t i = 2; i < x->rank; i++) {
    dims[i + 1] = x->dims[i];
  }
  return tt_hlo_broadcast_in_dim(x, dims, x->rank + 1, mapping);
}

// One channel to a group: shifted copies times their weights, one fused loop (XLA:CPU 12 times faster than grouped).
static tt_hlo depthwise(tt_hlo x, tt_hlo w, const window_args *a, const int64_t *out_dims) {
  const int64_t m = w->dims[0] / x->dims[1];
  int64_t tap[MAX_SPATIAL] = {0};
  tt_hlo xp = padded(x, a), sum = NULL;
  do {
    tt_hlo seen = spread_channels(tap_slice(xp, tap, out_dims + 2, a), m);
    const int64_t pair[] = {x->dims[1], m};
    const int32_t mapping[] = {1, 2};
    tt_hlo weight = tt_hlo_reshape(tap_weight(w, tap), pair, 2);
    tt_hlo term = seen ? v_mul(seen, tt_hlo_broadcast_in_dim(weight, seen->dims, seen->rank, mapping)) : NULL;
    sum = sum ? v_add(sum, term) : term;
  } while (next_tap(tap, w->dims + 2, w->rank - 2));
  return tt_hlo_reshape(sum, out_dims, x->rank);
}

// int64, for whose convolutions and products TPUs have no instruction: elementwise products, summed over the channels.
static tt_hlo by_taps(tt_hlo x, tt_hlo w, const window_args *a, const int64_t *out_dims) {
  const int64_t groups = a->groups, in = x->dims[1] / groups, out = out_dims[1] / groups;
  int64_t tap[MAX_SPATIAL] = {0}, positions = numel_of(out_dims + 2, x->rank - 2);
  const int64_t all[] = {x->dims[0], groups, out, in, positions}, seen_dims[] = {x->dims[0], groups, in, positions};
  const int64_t plain[] = {groups, out, in}, swapped[] = {in, groups, out};
  static const int32_t of_seen[] = {0, 1, 3, 4}, of_plain[] = {1, 2, 3}, of_swapped[] = {3, 1, 2}, summed = 3;
  tt_hlo xp = padded(x, a), sum = NULL;
  do {
    tt_hlo seen = tt_hlo_reshape(tap_slice(xp, tap, out_dims + 2, a), seen_dims, 4);
    tt_hlo weight = tt_hlo_reshape(tap_weight(w, tap), a->swapped ? swapped : plain, 3);
    tt_hlo terms = v_mul(tt_hlo_broadcast_in_dim(seen, all, 5, of_seen),
                         tt_hlo_broadcast_in_dim(weight, all, 5, a->swapped ? of_swapped : of_plain));
    tt_hlo part = tt_hlo_reduce(TT_SUM, terms, &summed, 1);
    sum = sum ? v_add(sum, part) : part;
  } while (next_tap(tap, w->dims + 2, w->rank - 2));
  return tt_hlo_reshape(sum, out_dims, x->rank);
}

static void correlated_dims(tt_hlo x, tt_hlo w, const window_args *a, int64_t *out) {
  out[0] = x->dims[0];
  out[1] = w->dims[a->swapped ? 1 : 0];
  for (int32_t i = 0; i + 2 < x->rank; i++) {
    const int64_t base = x->dims[i + 2] ? (x->dims[i + 2] - 1) * a->base_dilation[i] + 1 : 0;
    const int64_t room = base + a->low[i] + a->high[i] - a->dilation[i] * (w->dims[i + 2] - 1) - 1;
    out[i + 2] = room < 0 ? 0 : room / a->stride[i] + 1;
  }
}

static tt_hlo correlate(tt_rule *r, tt_hlo x, tt_hlo w, const window_args *a) {
  if (!x || !w) {
    return NULL;
  }
  int64_t out_dims[MAX_SPATIAL + 2];
  correlated_dims(x, w, a, out_dims);
  if (tt_hlo_numel(x) == 0 || tt_hlo_numel(w) == 0) {
    return zeros(r, x->dtype, out_dims, x->rank);
  }
  if (x->dtype == TT_S64 && !tt_rule_is_cpu(r) && numel_of(out_dims, x->rank) > 0) {
    return by_taps(x, w, a, out_dims);
  }
  const bool depth = a->groups > 1 && a->groups == x->dims[1];
  if (depth && tt_rule_is_cpu(r) && spatial_numel(w) <= MAX_DEPTHWISE_TAPS) {
    tt_hlo kernel = w;
    if (a->swapped) {  // [1, O, ...]
      int64_t dims[MAX_SPATIAL + 2] = {w->dims[1], 1, w->rank > 2 ? w->dims[2] : 0, w->rank > 3 ? w->dims[3] : 0,
                                       w->rank > 4 ? w->dims[4] : 0};
      kernel = tt_hlo_reshape(w, dims, w->rank);
    }
    return kernel ? depthwise(x, kernel, a, out_dims) : NULL;
  }
  const tt_hlo_conv_dims dims = {
      .spatial_rank = x->rank - 2,
      .lhs_batch = 0,
      .lhs_feature = 1,
      .rhs_in_feature = a->swapped ? 0 : 1,
      .rhs_out_feature = a->swapped ? 1 : 0,
      .out_batch = 0,
      .out_feature = 1,
      .lhs_spatial = spatial_dims,
      .rhs_spatial = spatial_dims,
      .out_spatial = spatial_dims,
      .strides = a->stride,
      .pad_low = a->low,
      .pad_high = a->high,
      .lhs_dilation = a->base_dilation,
      .rhs_dilation = a->dilation,
      .feature_groups = a->groups,
  };
  return tt_hlo_convolution(x, w, &dims, precision_of(r));
}

static tt_hlo convolve(tt_rule *r, tt_hlo x, tt_hlo w, const conv_args *c) {
  window_args a = {.groups = c->groups};
  for (int32_t i = 0; i < c->n; i++) {
    a.stride[i] = c->stride[i];
    a.low[i] = a.high[i] = c->pad[i];
    a.base_dilation[i] = 1;
    a.dilation[i] = c->dilation[i];
  }
  return correlate(r, x, w, &a);
}

// [O, C/g, ...] as [O/g, C, ...]: the kernel that maps outputs of a group back to its inputs.
static tt_hlo regroup(tt_hlo w, int64_t groups) {
  if (!w || groups == 1) {
    return w;
  }
  int64_t split[MAX_SPATIAL + 3] = {groups, w->dims[0] / groups, w->dims[1]};
  int64_t joined[MAX_SPATIAL + 2] = {split[1], groups * w->dims[1]};
  static const int32_t order[] = {1, 0, 2, 3, 4, 5};
  for (int32_t i = 2; i < w->rank; i++) {
    split[i + 1] = joined[i] = w->dims[i];
  }
  return tt_hlo_reshape(tt_hlo_transpose(tt_hlo_reshape(w, split, w->rank + 1), order), joined, w->rank);
}

// The transpose of convolve() as a linear map of x: dy -> dx, whose spatial sizes are `sizes`.
static tt_hlo convolve_transposed(tt_rule *r, tt_hlo dy, tt_hlo w, const int64_t *sizes, const conv_args *c) {
  if (!dy || !w) {
    return NULL;
  }
  window_args a = {.groups = c->groups, .swapped = true};
  for (int32_t i = 0; i < c->n; i++) {
    const int64_t reach = c->dilation[i] * (w->dims[i + 2] - 1);
    a.stride[i] = 1;
    a.base_dilation[i] = c->stride[i];
    a.dilation[i] = c->dilation[i];
    a.low[i] = reach - c->pad[i];
    a.high[i] = sizes[i] - ((dy->dims[i + 2] - 1) * c->stride[i] + 1) - a.low[i] + reach;
  }
  if (tt_hlo_numel(dy) == 0 || tt_hlo_numel(w) == 0) {
    int64_t dims[MAX_SPATIAL + 2] = {dy->dims[0], w->dims[1] * c->groups};
    memcpy(dims + 2, sizes, sizeof *sizes * (size_t)c->n);
    return zeros(r, dy->dtype, dims, dy->rank);
  }
  return correlate(r, dy, tt_hlo_reverse(regroup(w, c->groups), spatial_dims, c->n), &a);
}

// ---- the weight's gradient: [O, C/g, kernel...] from x [N, C, ...] and dy [N, O, ...] ----

// As a convolution with batch and feature exchanged: dy is the kernel.
static tt_hlo weight_by_convolution(tt_rule *r, tt_hlo x, tt_hlo dy, const int64_t *kernel, const conv_args *c,
                                    int64_t groups) {
  if (!x || !dy) {
    return NULL;
  }
  int64_t high[MAX_SPATIAL];
  for (int32_t i = 0; i < c->n; i++) {
    high[i] = c->dilation[i] * (kernel[i] - 1) + (dy->dims[i + 2] - 1) * c->stride[i] + 1 - x->dims[i + 2] - c->pad[i];
  }
  const tt_hlo_conv_dims dims = {
      .spatial_rank = c->n,
      .lhs_batch = 1,
      .lhs_feature = 0,
      .rhs_in_feature = 0,
      .rhs_out_feature = 1,
      .out_batch = 1,
      .out_feature = 0,
      .lhs_spatial = spatial_dims,
      .rhs_spatial = spatial_dims,
      .out_spatial = spatial_dims,
      .strides = c->dilation,
      .pad_low = c->pad,
      .pad_high = high,
      .rhs_dilation = c->stride,
      .batch_groups = groups,
  };
  return tt_hlo_convolution(x, dy, &dims, precision_of(r));
}

// Eigen runs a contraction this deep on one thread; cut along the batch, its parts run side by side and stay in cache
// (up to 4 times faster).
static tt_hlo weight_by_chunks(tt_rule *r, tt_hlo x, tt_hlo dy, const int64_t *kernel, const conv_args *c) {
  const int64_t batch = x->dims[0];
  int64_t parts = batch * spatial_numel(dy) / CHUNK;
  parts = parts < 1 || !tt_rule_is_cpu(r) ? 1 : parts > MAX_CHUNKS ? MAX_CHUNKS : parts;
  parts = parts > batch ? batch : parts;
  tt_hlo sum = NULL;
  for (int64_t i = 0; i < parts; i++) {
    const int64_t start = batch * i / parts, limit = batch * (i + 1) / parts;
    tt_hlo part = weight_by_convolution(r, tt_hlo_slice_dim(x, 0, start, limit, 1),
                                        tt_hlo_slice_dim(dy, 0, start, limit, 1), kernel, c, 1);
    sum = sum ? v_add(sum, part) : part;
  }
  return sum;
}

static tt_hlo weight_by_group(tt_rule *r, tt_hlo x, tt_hlo dy, const int64_t *kernel, const conv_args *c) {
  tt_hlo parts[MAX_GROUP_CONVS];
  const int64_t in = x->dims[1] / c->groups, out = dy->dims[1] / c->groups;
  for (int32_t g = 0; g < c->groups; g++) {
    parts[g] = weight_by_chunks(r, tt_hlo_slice_dim(x, 1, g * in, (g + 1) * in, 1),
                                tt_hlo_slice_dim(dy, 1, g * out, (g + 1) * out, 1), kernel, c);
  }
  return tt_hlo_concatenate(parts, (int32_t)c->groups, 0);
}

// The part of one tap: [O, C/g], a batch of products over the positions, then the sum over the batch.
static tt_hlo tap_product(tt_rule *r, tt_hlo seen, tt_hlo dy, int64_t groups) {
  if (!seen || !dy) {
    return NULL;
  }
  const int64_t batch = dy->dims[0], in = seen->dims[1] / groups, out = dy->dims[1] / groups,
                positions = spatial_numel(dy);
  const int64_t x_dims[] = {batch * groups, in, positions}, y_dims[] = {batch * groups, out, positions};
  const int64_t split[] = {batch, dy->dims[1], in}, last[] = {dy->dims[1], in};
  const int32_t zero = 0, two = 2;
  const tt_hlo_dot_dims dims = {.lhs_batch = &zero,
                                .rhs_batch = &zero,
                                .lhs_contract = &two,
                                .rhs_contract = &two,
                                .batch_count = 1,
                                .contract_count = 1};
  tt_hlo p = tt_hlo_dot_general(tt_hlo_reshape(dy, y_dims, 3), tt_hlo_reshape(seen, x_dims, 3), &dims, precision_of(r),
                                TT_DTYPE_INVALID);
  return batch == 1 ? tt_hlo_reshape(p, last, 2) : v_reduce(TT_SUM, tt_hlo_reshape(p, split, 3), 0);
}

// One channel to a group: products summed over batch and positions. [O, 1].
static tt_hlo tap_sum(tt_hlo seen, tt_hlo dy) {
  if (!seen || !dy) {
    return NULL;
  }
  const int64_t c = seen->dims[1], m = dy->dims[1] / c, pair[] = {dy->dims[1], 1};
  const int32_t over[] = {0, 3, 4, 5};
  tt_hlo p = v_mul(spread_channels(seen, m), split_channels(dy, c, m));
  return tt_hlo_reshape(tt_hlo_reduce(TT_SUM, p, over, dy->rank - 1), pair, 2);
}

static tt_hlo weight_by_taps(tt_rule *r, tt_hlo x, tt_hlo dy, const int64_t *kernel, const conv_args *c) {
  window_args a = {0};
  for (int32_t i = 0; i < c->n; i++) {
    a.stride[i] = c->stride[i];
    a.base_dilation[i] = 1;
    a.dilation[i] = c->dilation[i];
    a.low[i] = c->pad[i];
    a.high[i] =
        (kernel[i] - 1) * c->dilation[i] + (dy->dims[i + 2] - 1) * c->stride[i] + 1 - x->dims[i + 2] - c->pad[i];
  }
  enum { MAX_TAPS = 64 };
  tt_hlo parts[MAX_TAPS], xp = padded(x, &a);
  int64_t tap[MAX_SPATIAL] = {0};
  int32_t count = 0;
  do {
    tt_hlo seen = tap_slice(xp, tap, dy->dims + 2, &a);
    tt_hlo part = c->groups > 1 && c->groups == x->dims[1] ? tap_sum(seen, dy) : tap_product(r, seen, dy, c->groups);
    parts[count++] = v_unsqueeze(part, 2);
  } while (next_tap(tap, kernel, c->n) && count < MAX_TAPS);
  int64_t dims[MAX_SPATIAL + 2] = {dy->dims[1], x->dims[1] / c->groups};
  memcpy(dims + 2, kernel, sizeof *kernel * (size_t)c->n);
  return tt_hlo_reshape(tt_hlo_concatenate(parts, count, 2), dims, c->n + 2);
}

static tt_hlo weight_gradient(tt_rule *r, tt_hlo x, tt_hlo dy, const int64_t *kernel, const conv_args *c) {
  if (!x || !dy) {
    return NULL;
  }
  int64_t taps = 1;
  for (int32_t i = 0; i < c->n; i++) {
    taps *= kernel[i];
  }
  if (tt_hlo_numel(x) == 0 || tt_hlo_numel(dy) == 0 || taps == 0) {
    int64_t dims[MAX_SPATIAL + 2] = {dy->dims[1], x->dims[1] / c->groups};
    memcpy(dims + 2, kernel, sizeof *kernel * (size_t)c->n);
    return zeros(r, x->dtype, dims, c->n + 2);
  }
  if (!tt_rule_is_cpu(r)) {
    return weight_by_convolution(r, x, dy, kernel, c, c->groups);
  }
  const bool depth = c->groups > 1 && c->groups == x->dims[1];
  if (depth ? taps <= MAX_DEPTHWISE_TAPS
            : (c->groups > MAX_GROUP_CONVS && taps <= MAX_DEPTHWISE_TAPS) || (taps == 1 && spatial_numel(dy) >= 16)) {
    return weight_by_taps(r, x, dy, kernel, c);
  }
  if (c->groups > MAX_GROUP_CONVS) {
    return weight_by_convolution(r, x, dy, kernel, c, c->groups);
  }
  return c->groups > 1 ? weight_by_group(r, x, dy, kernel, c) : weight_by_chunks(r, x, dy, kernel, c);
}

// ---- arguments ----

static void read_list(tt_rule *r, const char *name, int32_t n, int64_t *out) {
  int32_t count;
  const int64_t *values = tt_ints(r, name, &count);
  for (int32_t i = 0; i < n; i++) {
    out[i] = count == 0 ? 0 : values[count == n ? i : 0];
  }
  if (count != n && count != 1) {
    tt_fail(r, TT_ERR_RUNTIME,
            "expected %s to be a single integer value or a list of %d values to match the convolution "
            "dimensions, but got %d values",
            name, n, count);
  }
}

static bool any_below(const int64_t *values, int32_t n, int64_t limit) {
  for (int32_t i = 0; i < n; i++) {
    if (values[i] < limit) {
      return true;
    }
  }
  return false;
}

static bool read_args(tt_rule *r, int32_t ndim, conv_args *c) {
  *c = (conv_args){.n = ndim - 2, .groups = tt_int(r, "groups", 1), .transposed = tt_bool(r, "transposed", false)};
  if (c->n < 1 || c->n > MAX_SPATIAL) {
    tt_fail(r, TT_ERR_RUNTIME, "weight should have 3 to 5 dimensions, got %d", ndim);
    return false;
  }
  read_list(r, "stride", c->n, c->stride);
  read_list(r, "padding", c->n, c->pad);
  read_list(r, "dilation", c->n, c->dilation);
  read_list(r, "output_padding", c->n, c->output_pad);
  if (c->groups < 1) {
    tt_fail(r, TT_ERR_RUNTIME, "non-positive groups is not supported");
  } else if (any_below(c->pad, c->n, 0)) {
    tt_fail(r, TT_ERR_RUNTIME, "negative padding is not supported");
  } else if (any_below(c->output_pad, c->n, 0)) {
    tt_fail(r, TT_ERR_RUNTIME, "negative output_padding is not supported");
  } else if (any_below(c->stride, c->n, 1)) {
    tt_fail(r, TT_ERR_RUNTIME, "non-positive stride is not supported");
  } else if (any_below(c->dilation, c->n, 1)) {
    tt_fail(r, TT_ERR_RUNTIME, "dilation should be greater than zero, but got %s",
            tt_dims_text(c->dilation, c->n).text);
  }
  return !tt_failed(r);
}

static bool check_weight(tt_rule *r, const tt_operand *x, const tt_operand *w, const conv_args *c) {
  if (w->ndim != x->ndim) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "Expected %d-dimensional input for %d-dimensional weight %s, but got %d-dimensional input of size %s instead",
        w->ndim, w->ndim, tt_dims_text(w->sizes, w->ndim).text, x->ndim, tt_dims_text(x->sizes, x->ndim).text);
  } else if (w->sizes[0] < c->groups) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Given groups=%" PRId64 ", expected weight to be at least %" PRId64
            " at dimension 0, but got weight of size "
            "%s instead",
            c->groups, c->groups, tt_dims_text(w->sizes, w->ndim).text);
  } else if (w->sizes[0] % c->groups) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Given groups=%" PRId64 ", expected weight to be divisible by %" PRId64
            " at dimension 0, but got weight of "
            "size [%s] instead",
            c->groups, c->groups, tt_dims_text(w->sizes, w->ndim).text);
  } else if (!c->transposed && x->sizes[1] != w->sizes[1] * c->groups) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Given groups=%" PRId64 ", weight of size %s, expected input%s to have %" PRId64
            " channels, but got %" PRId64 " channels instead",
            c->groups, tt_dims_text(w->sizes, w->ndim).text, tt_dims_text(x->sizes, x->ndim).text,
            w->sizes[1] * c->groups, x->sizes[1]);
  } else if (c->transposed && x->sizes[1] != w->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Given transposed=1, weight of size %s, expected input%s to have %" PRId64 " channels, but got %" PRId64
            " channels instead",
            tt_dims_text(w->sizes, w->ndim).text, tt_dims_text(x->sizes, x->ndim).text, w->sizes[0], x->sizes[1]);
  } else if (x->dtype != w->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(x->dtype), tt_type_name(w->dtype));
  } else if (x->dtype == TT_PRED || tt_dtype_is_complex(x->dtype) || tt_is_barebones_unsigned(x->dtype)) {
    tt_fail_dtype(r, "slow_conv2d_cpu", x->dtype);
  } else {
    return true;
  }
  return false;
}

static bool check_bias(tt_rule *r, const tt_operand *w, const conv_args *c) {
  const tt_operand *bias = tt_operand_of(r, "bias");
  const int64_t count = c->transposed ? w->sizes[1] * c->groups : w->sizes[0];
  if (!bias || (bias->ndim == 1 && bias->sizes[0] == count)) {
    return true;
  }
  tt_fail(r, TT_ERR_RUNTIME,
          "Given %sweight of size %s, expected bias to be 1-dimensional with %" PRId64
          " elements, but got bias of size %s instead",
          c->transposed ? "transposed=1, " : "", tt_dims_text(w->sizes, w->ndim).text, count,
          tt_dims_text(bias->sizes, bias->ndim).text);
  return false;
}

// "(2 x 3)"
static const char *by_text(const int64_t *sizes, int32_t n, char *text, size_t size) {
  size_t used = 0;
  for (int32_t i = 0; i < n; i++) {
    used += (size_t)snprintf(text + used, size - used, "%s%" PRId64, i ? " x " : "", sizes[i]);
  }
  return text;
}

static bool check_window(tt_rule *r, const tt_operand *x, const tt_operand *w, const conv_args *c) {
  int64_t room[MAX_SPATIAL], reach[MAX_SPATIAL];
  bool fits = true;
  for (int32_t i = 0; i < c->n; i++) {
    room[i] = x->sizes[i + 2] + 2 * c->pad[i];
    reach[i] = c->dilation[i] * (w->sizes[i + 2] - 1) + 1;
    fits = fits && reach[i] <= room[i];
  }
  char a[80], b[80];
  if (!fits) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "Calculated padded input size per channel: (%s). Kernel size: (%s). Kernel size can't be greater than actual "
        "input size",
        by_text(room, c->n, a, sizeof a), by_text(reach, c->n, b, sizeof b));
  }
  return fits;
}

static bool transposed_sizes(tt_rule *r, const tt_operand *x, const tt_operand *w, const conv_args *c, int64_t *sizes) {
  char a[80], b[80];
  for (int32_t i = 0; i < c->n; i++) {
    if (c->output_pad[i] >= c->stride[i] && c->output_pad[i] >= c->dilation[i]) {
      tt_fail(r, TT_ERR_RUNTIME,
              "output padding must be smaller than either stride or dilation, but got output_padding: %s stride: %s "
              "dilation: %s",
              tt_dims_text(c->output_pad, c->n).text, tt_dims_text(c->stride, c->n).text,
              tt_dims_text(c->dilation, c->n).text);
      return false;
    }
    sizes[i] = (x->sizes[i + 2] - 1) * c->stride[i] - 2 * c->pad[i] + c->dilation[i] * (w->sizes[i + 2] - 1) +
               c->output_pad[i] + 1;
  }
  if (any_below(sizes, c->n, 1)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Given input size per channel: (%s). Calculated output size per channel: (%s). Output size is too small",
            by_text(x->sizes + 2, c->n, a, sizeof a), by_text(sizes, c->n, b, sizeof b));
    return false;
  }
  return true;
}

// The CPU's kernels answer in channels-last if either operand is (3-d ones in double don't know it).
static bool channels_last(const tt_operand *x, const tt_operand *w) {
  return (tt_is_channels_last(x) || tt_is_channels_last(w)) && !(x->ndim == 5 && x->dtype == TT_F64);
}

// ---- operators ----

static void build_convolution(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "input"), *w = tt_operand_of(r, "weight");
  conv_args c;
  int64_t sizes[MAX_SPATIAL];
  if (!x || !w || !read_args(r, w->ndim, &c) || !check_weight(r, x, w, &c) || !check_bias(r, w, &c) ||
      !(c.transposed ? transposed_sizes(r, x, w, &c, sizes) : check_window(r, x, w, &c))) {
    return;
  }
  const tt_dtype compute = tt_opmath(x->dtype);
  tt_hlo input = tt_in_as(r, "input", compute), weight = tt_in_as(r, "weight", compute);
  tt_hlo y = c.transposed ? convolve_transposed(r, input, weight, sizes, &c) : convolve(r, input, weight, &c);
  if (y && tt_has(r, "bias")) {
    y = v_add(y, v_along(tt_in_as(r, "bias", compute), y->dims, y->rank, 1));
  }
  tt_ret_format(r, 0, tt_cast(y, x->dtype), channels_last(x, w));
}

// The gradients of a transposed convolution are those of its transpose, with x and dy changing places.
static tt_hlo input_gradient(tt_rule *r, tt_hlo dy, tt_hlo w, const tt_operand *x, const conv_args *c) {
  if (!c->transposed) {
    return convolve_transposed(r, dy, w, x->sizes + 2, c);
  }
  tt_hlo dx = convolve(r, dy, w, c);
  for (int32_t i = 0; i < c->n; i++) {  // output padding of a stride or more fits further windows
    dx = tt_hlo_slice_dim(dx, i + 2, 0, x->sizes[i + 2], 1);
  }
  return dx;
}

static bool check_output_gradient(tt_rule *r, const tt_operand *dy, const tt_operand *x, const tt_operand *w,
                                  const conv_args *c) {
  int64_t sizes[MAX_SPATIAL] = {0};
  bool agrees = dy->ndim == x->ndim && dy->sizes[0] == x->sizes[0] &&
                dy->sizes[1] == (c->transposed ? w->sizes[1] * c->groups : w->sizes[0]);
  if (agrees && c->transposed && !transposed_sizes(r, x, w, c, sizes)) {
    return false;
  }
  for (int32_t i = 0; i < c->n && agrees; i++) {
    const int64_t room = x->sizes[i + 2] + 2 * c->pad[i] - c->dilation[i] * (w->sizes[i + 2] - 1) - 1;
    agrees = dy->sizes[i + 2] == (c->transposed ? sizes[i] : room / c->stride[i] + 1);
  }
  if (!agrees) {
    tt_fail(r, TT_ERR_RUNTIME, "grad_output of size %s doesn't fit input %s and weight %s",
            tt_dims_text(dy->sizes, dy->ndim).text, tt_dims_text(x->sizes, x->ndim).text,
            tt_dims_text(w->sizes, w->ndim).text);
  } else if (dy->dtype != x->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(x->dtype), tt_type_name(dy->dtype));
    return false;
  }
  return agrees;
}

static void build_backward(tt_rule *r) {
  const tt_operand *g = tt_operand_of(r, "grad_output"), *x = tt_operand_of(r, "input"),
                   *w = tt_operand_of(r, "weight");
  conv_args c;
  if (!g || !x || !w || !read_args(r, w->ndim, &c) || !check_weight(r, x, w, &c) ||
      !check_output_gradient(r, g, x, w, &c)) {
    return;
  }
  int32_t count;
  const int64_t *mask = tt_ints(r, "output_mask", &count);
  const bool last = channels_last(x, w), want[3] = {count > 0 && mask[0], count > 1 && mask[1], count > 2 && mask[2]};
  const tt_dtype compute = tt_opmath(x->dtype);
  tt_hlo dy = tt_in_as(r, "grad_output", compute);
  if (want[0]) {
    tt_hlo dx = input_gradient(r, dy, tt_in_as(r, "weight", compute), x, &c);
    if (dx && tt_hlo_numel(dx) == 0) {
      tt_ret_like(r, 0, tt_cast(dx, x->dtype), "input");
    } else {
      tt_ret_format(r, 0, tt_cast(dx, x->dtype), last);
    }
  } else {
    tt_ret_none(r, 0);
  }
  if (want[1]) {
    tt_hlo in = tt_in_as(r, "input", compute);
    tt_hlo dw = weight_gradient(r, c.transposed ? dy : in, c.transposed ? in : dy, w->sizes + 2, &c);
    tt_ret_format(r, 1, tt_cast(dw, w->dtype), last && tt_hlo_numel(in) != 0);
  } else {
    tt_ret_none(r, 1);
  }
  if (want[2]) {
    const int32_t all_but_channel[] = {0, 2, 3, 4};
    tt_ret(r, 2, tt_cast(tt_hlo_reduce(TT_SUM, dy, all_but_channel, c.n + 1), w->dtype));
  } else {
    tt_ret_none(r, 2);
  }
}

const tt_rule_entry tt_rules_conv[] = {
    {.name = "aten::convolution", .build = build_convolution},
    {.name = "aten::convolution_overrideable", .build = build_convolution},
    {.name = "aten::convolution_backward", .build = build_backward},
    {.name = "aten::convolution_backward_overrideable", .build = build_backward},
    {0},
};
