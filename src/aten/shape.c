// Operators that move, repeat, drop or pad elements.
#include <stdlib.h>

#include "aten/dims.h"

// ---- cat, stack ----

// The old convention: a 1-d tensor without elements counts as nothing.
static bool is_skipped(const tt_operand *x) { return x && x->ndim == 1 && x->sizes[0] == 0; }

static tt_dtype list_dtype(tt_rule *r, const char *name, int32_t count) {
  tt_dtype dtype = TT_DTYPE_INVALID;
  for (int32_t i = 0; i < count; i++) {
    const tt_operand *x = tt_operand_at(r, name, i);
    if (x && dtype) {
      const tt_dtype promoted = tt_promote_types(dtype, x->dtype);
      if (!promoted) {
        tt_fail(r, TT_ERR_RUNTIME, "types %s and %s can't be promoted", tt_type_name(dtype), tt_type_name(x->dtype));
      }
      dtype = promoted;
    } else if (x) {
      dtype = x->dtype;
    }
  }
  return dtype;
}

static bool check_cat(tt_rule *r, int32_t count, const tt_operand **first, bool *channels_last) {
  *first = NULL;
  *channels_last = true;
  for (int32_t i = 0; i < count; i++) {
    const tt_operand *x = tt_operand_at(r, "tensors", i);
    if (!x) {
      return false;
    }
    if (x->ndim == 0) {
      tt_fail(r, TT_ERR_RUNTIME, "zero-dimensional tensor (at position %d) cannot be concatenated", i);
      return false;
    }
    if (!is_skipped(x)) {
      *first = *first ? *first : x;
      *channels_last = *channels_last && tt_is_channels_last(x);
    }
  }
  return true;
}

static bool check_cat_shape(tt_rule *r, const tt_operand *first, const tt_operand *x, int32_t dim, int32_t number) {
  if (x->ndim != first->ndim) {
    tt_fail(r, TT_ERR_RUNTIME, "Tensors must have same number of dimensions: got %d and %d", first->ndim, x->ndim);
    return false;
  }
  for (int32_t i = 0; i < x->ndim; i++) {
    if (i != dim && x->sizes[i] != first->sizes[i]) {
      tt_fail(r, TT_ERR_RUNTIME,
              "Sizes of tensors must match except in dimension %d. Expected size %" PRId64 " but got size %" PRId64
              " for tensor number %d in the list.",
              dim, first->sizes[i], x->sizes[i], number);
      return false;
    }
  }
  return true;
}

static bool check_out(tt_rule *r, tt_dtype dtype) {
  const tt_operand *out = tt_operand_of(r, "out");
  if (out && !tt_can_cast(dtype, out->dtype)) {
    tt_fail(r, TT_ERR_TYPE, "input types can't be cast to the desired output type %s", tt_type_name(out->dtype));
    return false;
  }
  return true;
}

enum { FEW = 64 };

// Concatenates any number of values: in groups, so that no operation has thousands of operands.
static tt_hlo concatenate(const tt_hlo *xs, int32_t count, int32_t dim) {
  if (count <= FEW) {
    return count == 1 ? xs[0] : tt_hlo_concatenate(xs, count, dim);
  }
  tt_hlo parts[FEW];
  const int32_t step = (count + FEW - 1) / FEW;
  int32_t n = 0;
  for (int32_t i = 0; i < count; i += step) {
    parts[n++] = concatenate(xs + i, count - i < step ? count - i : step, dim);
  }
  return tt_hlo_concatenate(parts, n, dim);
}

static void build_cat(tt_rule *r) {
  const int32_t count = tt_list_length(r, "tensors");
  const tt_operand *first;
  bool channels_last;
  if (count < 1) {
    tt_fail(r, TT_ERR_VALUE, "expected a non-empty list of Tensors");
    return;
  }
  if (!check_cat(r, count, &first, &channels_last)) {
    return;
  }
  const tt_dtype dtype = list_dtype(r, "tensors", count);
  if (!check_out(r, dtype)) {
    return;
  }
  const int32_t dim = tt_dim(r, "dim", first ? first->ndim : 1);
  tt_hlo *parts = calloc((size_t)count, sizeof *parts);
  int32_t n = 0;
  for (int32_t i = 0; parts && i < count && !tt_failed(r); i++) {
    const tt_operand *x = tt_operand_at(r, "tensors", i);
    if (!is_skipped(x) && check_cat_shape(r, first, x, dim, i)) {
      parts[n++] = tt_in_at_as(r, "tensors", i, dtype);
    }
  }
  const int64_t none = 0;
  tt_hlo result = n ? concatenate(parts, n, dim) : tt_hlo_const(tt_b(r), dtype, 0, &none, 1);
  free(parts);
  tt_ret_format(r, 0, result, first && channels_last);
}

static void build_stack(tt_rule *r) {
  const int32_t count = tt_list_length(r, "tensors");
  if (count < 1) {
    tt_fail(r, TT_ERR_RUNTIME, "stack expects a non-empty TensorList");
    return;
  }
  const tt_operand *first = tt_operand_at(r, "tensors", 0);
  const tt_dtype dtype = list_dtype(r, "tensors", count);
  if (!check_out(r, dtype)) {
    return;
  }
  const int32_t dim = tt_dim(r, "dim", first ? first->ndim + 1 : 1);
  tt_hlo *parts = calloc((size_t)count, sizeof *parts);
  for (int32_t i = 0; parts && i < count && !tt_failed(r); i++) {
    const tt_operand *x = tt_operand_at(r, "tensors", i);
    if (!x || x->ndim != first->ndim || memcmp(x->sizes, first->sizes, sizeof(int64_t) * (size_t)x->ndim) != 0) {
      tt_fail(r, TT_ERR_RUNTIME, "stack expects each tensor to be equal size, but got %s at entry 0 and %s at entry %d",
              tt_dims_text(first->sizes, first->ndim).text, x ? tt_dims_text(x->sizes, x->ndim).text : "", i);
      break;
    }
    parts[i] = v_unsqueeze(tt_in_at_as(r, "tensors", i, dtype), dim);
  }
  tt_ret(r, 0, parts && !tt_failed(r) ? concatenate(parts, count, dim) : NULL);
  free(parts);
}

// ---- flip, roll ----
static void build_flip(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  bool mask[TT_MAX_RANK];
  tt_dim_mask(r, "dims", x ? x->rank : 0, false, mask);
  int32_t dims[TT_MAX_RANK], count = 0;
  for (int32_t i = 0; x && i < x->rank; i++) {
    if (mask[i]) {
      dims[count++] = i;
    }
  }
  tt_ret_like(r, 0, count ? tt_hlo_reverse(x, dims, count) : x, "self");
}

static tt_hlo rolled(tt_hlo x, int32_t dim, int64_t shift) {
  const int64_t size = x ? x->dims[dim] : 0;
  if (size == 0) {
    return x;
  }
  shift = ((shift % size) + size) % size;
  if (shift == 0) {
    return x;
  }
  tt_hlo parts[] = {tt_hlo_slice_dim(x, dim, size - shift, size, 1), tt_hlo_slice_dim(x, dim, 0, size - shift, 1)};
  return tt_hlo_concatenate(parts, 2, dim);
}

static void build_roll(tt_rule *r) {
  int32_t shift_count, dim_count;
  const int64_t *shifts = tt_ints(r, "shifts", &shift_count), *dims = tt_ints(r, "dims", &dim_count);
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (shift_count == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "`shifts` required");
    return;
  }
  if (tt_hlo_numel(x) == 0) {
    tt_ret_like(r, 0, x, "self");
    return;
  }
  if (dim_count == 0 && shift_count == 1) {
    tt_ret(r, 0, v_reshape_like(rolled(v_flat(x), 0, shifts[0]), x));
    return;
  }
  if (shift_count != dim_count) {
    tt_fail(r, TT_ERR_RUNTIME, "shifts and dimensions must align. shifts: %d, dims:%d", shift_count, dim_count);
    return;
  }
  if (x->rank == 0) {
    tt_fail(r, TT_ERR_INDEX, "Dimension specified as %" PRId64 " but tensor has no dimensions", dims[0]);
    return;
  }
  tt_hlo result = x;
  for (int32_t i = 0; i < dim_count; i++) {
    const int32_t dim = tt_wrap_dim(r, dims[i], x->rank);
    result = tt_failed(r) ? result : rolled(result, dim, shifts[i]);
  }
  tt_ret(r, 0, result);
}

// ---- repeat, repeat_interleave ----
static void build_repeat(tt_rule *r) {
  int32_t count;
  const int64_t *repeats = tt_ints(r, "repeats", &count);
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (count < x->rank) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Number of dimensions of repeat dims can not be smaller than number of dimensions of tensor");
    return;
  }
  int64_t wide[2 * V_DIMS], sizes[V_DIMS];
  int32_t mapping[V_DIMS], rank = 0;
  for (int32_t i = 0; i < count && i < TT_MAX_RANK; i++) {
    const int32_t own = i - (count - x->rank);
    const int64_t size = own >= 0 ? x->dims[own] : 1;
    if (__builtin_mul_overflow(size, repeats[i], &sizes[i]) || repeats[i] < 0) {
      tt_fail(r, TT_ERR_RUNTIME, "Trying to create tensor with negative dimension %" PRId64, sizes[i]);
      return;
    }
    if (repeats[i] != 1) {  // dims that are not repeated need no dim of their own
      wide[rank++] = repeats[i];
    }
    if (own >= 0) {
      mapping[own] = rank;
      wide[rank++] = size;
    }
  }
  tt_ret(r, 0, tt_hlo_reshape(tt_hlo_broadcast_in_dim(x, wide, rank, mapping), sizes, count));
}

// Position j of the result is the number of running totals at or below it.
static void build_repeat_interleave(tt_rule *r) {
  tt_hlo repeats = tt_in(r, "repeats");
  const int64_t size = tt_int(r, "output_size", -1);
  if (!repeats) {
    return;
  }
  if (repeats->rank != 1 || (repeats->dtype != TT_S64 && repeats->dtype != TT_S32)) {
    tt_fail(r, TT_ERR_RUNTIME,
            repeats->rank != 1 ? "repeat_interleave only accept 1D vector as repeat"
                               : "repeats has to be Long or Int tensor");
    return;
  }
  if (size < 0) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "the size of the result depends on data: give output_size");
    return;
  }
  tt_device_assert(r, v_gec(repeats, 0), TT_ERR_RUNTIME, "repeats can not be negative");
  tt_hlo ends = tt_running(TT_SUM, repeats, 0), total = v_reduce_all(TT_SUM, repeats);
  tt_device_assert(r, v_eqc(total, (double)size), TT_ERR_RUNTIME, "allocated size does not match required size");
  tt_hlo zeros = tt_hlo_const(tt_b(r), repeats->dtype, 0, &size, 1);
  tt_hlo one = v_const(repeats, 1);
  tt_ret(r, 0, tt_running(TT_SUM, tt_put_flat(TT_SCATTER_ADD, zeros, ends, one), 0));
}

// ---- tril, triu, trace ----
static void build_tril(tt_rule *r) {
  const bool lower = tt_rule_kind(r);
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (x->rank < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "input tensor must have at least 2 dimensions");
    return;
  }
  const tt_dtype type = v_position_type(x->dims[x->rank - 2] + x->dims[x->rank - 1]);
  int64_t diagonal = tt_int(r, "diagonal", 0);
  if (diagonal < -x->dims[x->rank - 2]) {
    diagonal = -x->dims[x->rank - 2];
  } else if (diagonal > x->dims[x->rank - 1]) {
    diagonal = x->dims[x->rank - 1];
  }
  tt_hlo row = v_addc(v_iota(x, type, x->rank - 2), (double)diagonal), column = v_iota(x, type, x->rank - 1);
  tt_ret(r, 0, v_if(lower ? v_ge(row, column) : v_le(row, column), x, v_const(x, 0)));
}

static void build_trace(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (x->rank != 2) {
    tt_fail(r, TT_ERR_RUNTIME, "expected a matrix, but got tensor with dim %d", x->rank);
    return;
  }
  if (x->dtype == TT_PRED) {
    tt_fail_dtype(r, "trace", x->dtype);
    return;
  }
  const tt_dtype dtype = tt_dtype_is_int(x->dtype) ? TT_S64 : x->dtype;
  const int64_t n = x->dims[0] < x->dims[1] ? x->dims[0] : x->dims[1];
  tt_hlo square = tt_hlo_slice(x, (int64_t[]){0, 0}, (int64_t[]){n, n}, NULL);
  tt_hlo wide = tt_cast(square, tt_opmath(dtype));
  tt_hlo on = v_eq(v_iota(wide, TT_S32, 0), v_iota(wide, TT_S32, 1));
  tt_ret(r, 0, tt_cast(wide ? v_reduce_all(TT_SUM, v_if(on, wide, v_const(wide, 0))) : NULL, dtype));
}

// ---- shuffles ----
static void build_channel_shuffle(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  const int64_t groups = tt_int(r, "groups", 1);
  if (!x) {
    return;
  }
  if (x->rank < 3 || groups < 1 || x->dims[1] % groups != 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            x->rank < 3 ? "channel_shuffle expects input with > 2 dims, but got input with sizes %s"
                        : "Number of channels must be divisible by groups. Got input of sizes %s",
            tt_dims_text(x->dims, x->rank).text);
    return;
  }
  tt_hlo split = v_unsqueeze(x, 1);
  int64_t dims[V_DIMS];
  int32_t order[V_DIMS];
  for (int32_t i = 0; split && i < split->rank; i++) {
    dims[i] = i == 1 ? groups : i == 2 ? x->dims[1] / groups : split->dims[i];
    order[i] = i == 1 ? 2 : i == 2 ? 1 : i;
  }
  tt_hlo result = split ? tt_hlo_transpose(tt_hlo_reshape(split, dims, split->rank), order) : NULL;
  tt_ret_format(r, 0, v_reshape_like(result, x), tt_is_channels_last(tt_operand_of(r, "self")));
}

// [..., C f f, H, W] and [..., C, H f, W f].
static void build_pixel_shuffle(tt_rule *r) {
  const bool shuffle = tt_rule_kind(r);
  const int64_t f = tt_int(r, shuffle ? "upscale_factor" : "downscale_factor", 1);
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (x->rank < 3 || f < 1 || f > INT32_MAX) {
    tt_fail(r, TT_ERR_RUNTIME,
            "expects input to have at least 3 dimensions and a positive factor, but got input with %d "
            "dimension(s)",
            x->rank);
    return;
  }
  const int32_t base = x->rank - 3;
  const int64_t c = x->dims[base], h = x->dims[base + 1], w = x->dims[base + 2];
  if (shuffle ? c % (f * f) != 0 : h % f != 0 || w % f != 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            shuffle ? "expects its input's 'channel' dimension to be divisible by the square of "
                      "upscale_factor, but got input of sizes %s"
                    : "expects height and width to be divisible by downscale_factor, but got input of "
                      "sizes %s",
            tt_dims_text(x->dims, x->rank).text);
    return;
  }
  const int64_t split_up[] = {c / (f * f), f, f, h, w}, split_down[] = {c, h / f, f, w / f, f};
  const int64_t after_up[] = {c / (f * f), h * f, w * f}, after_down[] = {c * f * f, h / f, w / f};
  static const int32_t order_up[] = {0, 3, 1, 4, 2}, order_down[] = {0, 2, 4, 1, 3};
  int64_t split[V_DIMS], after[V_DIMS];
  int32_t order[V_DIMS];
  for (int32_t i = 0; i < base + 5; i++) {
    split[i] = i < base ? x->dims[i] : (shuffle ? split_up : split_down)[i - base];
    order[i] = i < base ? i : base + (shuffle ? order_up : order_down)[i - base];
    if (i < base + 3) {
      after[i] = i < base ? x->dims[i] : (shuffle ? after_up : after_down)[i - base];
    }
  }
  tt_hlo moved = tt_hlo_transpose(tt_hlo_reshape(x, split, base + 5), order);
  tt_ret_format(r, 0, tt_hlo_reshape(moved, after, x->rank), tt_is_channels_last(tt_operand_of(r, "self")));
}

// ---- im2col, col2im ----
typedef struct windows {
  int64_t kernel[2], dilation[2], padding[2], stride[2], input[2], count[2];
} windows;

static bool read_pair(tt_rule *r, const char *name, int64_t out[2]) {
  int32_t count;
  const int64_t *values = tt_ints(r, name, &count);
  if (count != 1 && count != 2) {
    tt_fail(r, TT_ERR_RUNTIME, "It is expected %s equals to 2, but got size %d", name, count);
    return false;
  }
  out[0] = values[0];
  out[1] = values[count - 1];
  return true;
}

static bool read_windows(tt_rule *r, windows *w) {
  if (!read_pair(r, "kernel_size", w->kernel) || !read_pair(r, "dilation", w->dilation) ||
      !read_pair(r, "padding", w->padding) || !read_pair(r, "stride", w->stride)) {
    return false;
  }
  for (int32_t i = 0; i < 2; i++) {
    if (w->kernel[i] < 1 || w->dilation[i] < 1 || w->stride[i] < 1 || w->padding[i] < 0) {
      tt_fail(r, TT_ERR_RUNTIME,
              "kernel size, dilation and stride should be greater than zero, and padding not negative");
      return false;
    }
    if (w->kernel[i] > 1 << 16 || w->dilation[i] > INT32_MAX || w->stride[i] > INT32_MAX || w->padding[i] > INT32_MAX) {
      tt_fail(r, TT_ERR_RUNTIME, "kernel size, dilation, stride or padding is too large");
      return false;
    }
    const int64_t span = w->input[i] + 2 * w->padding[i] - w->dilation[i] * (w->kernel[i] - 1) - 1;
    w->count[i] = span < 0 ? 0 : span / w->stride[i] + 1;
  }
  if (w->count[0] < 1 || w->count[1] < 1) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Given input with spatial size (%" PRId64 ", %" PRId64 "), kernel_size=(%" PRId64 ", %" PRId64
            "), dilation=(%" PRId64 ", %" PRId64 "), padding=(%" PRId64 ", %" PRId64
            "), calculated shape of the array of sliding blocks as (%" PRId64 ", %" PRId64
            "), but its components must be at least one.",
            w->input[0], w->input[1], w->kernel[0], w->kernel[1], w->dilation[0], w->dilation[1], w->padding[0],
            w->padding[1], w->count[0], w->count[1]);
    return false;
  }
  return true;
}

// x[..., size, ...] at `dim` as [..., kernel, count, ...].
static tt_hlo to_windows(tt_hlo x, int32_t dim, const windows *w, int32_t which) {
  tt_hlo padded = v_pad0(x, dim, w->padding[which], w->padding[which], 0), result = NULL;
  for (int64_t k = 0; k < w->kernel[which]; k++) {
    const int64_t start = k * w->dilation[which];
    const int64_t limit = start + (w->count[which] - 1) * w->stride[which] + 1;
    tt_hlo part = v_unsqueeze(tt_hlo_slice_dim(padded, dim, start, limit, w->stride[which]), dim);
    result = result ? tt_hlo_concatenate((tt_hlo[]){result, part}, 2, dim) : part;
  }
  return result;
}

// The other way, adding where windows overlap.
static tt_hlo from_windows(tt_hlo x, int32_t dim, const windows *w, int32_t which) {
  const int64_t padded = w->input[which] + 2 * w->padding[which];
  tt_hlo sum = NULL;
  for (int64_t k = 0; k < w->kernel[which]; k++) {
    const int64_t start = k * w->dilation[which];
    const int64_t limit = start + (w->count[which] - 1) * w->stride[which] + 1;
    tt_hlo part = v_squeeze(tt_hlo_slice_dim(x, dim, k, k + 1, 1), dim);
    part = v_pad0(part, dim, start, padded - limit, w->stride[which] - 1);
    sum = sum ? v_add(sum, part) : part;
  }
  return tt_hlo_slice_dim(sum, dim, w->padding[which], w->padding[which] + w->input[which], 1);
}

static void build_im2col(tt_rule *r) {
  tt_hlo self = tt_in(r, "self");
  if (!self) {
    return;
  }
  if (self->rank != 3 && self->rank != 4) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, but "
        "got: %s",
        tt_dims_text(self->dims, self->rank).text);
    return;
  }
  tt_hlo x = self->rank == 3 ? v_unsqueeze(self, 0) : self;
  windows w = {.input = {x->dims[2], x->dims[3]}};
  if (!read_windows(r, &w)) {
    return;
  }
  tt_hlo rows = to_windows(x, 2, &w, 0);     // [N, C, kh, oh, W]
  tt_hlo both = to_windows(rows, 4, &w, 1);  // [N, C, kh, oh, kw, ow]
  both = both ? tt_hlo_transpose(both, (const int32_t[]){0, 1, 2, 4, 3, 5}) : NULL;
  const int64_t dims[] = {x->dims[0], x->dims[1] * w.kernel[0] * w.kernel[1], w.count[0] * w.count[1]};
  tt_ret(r, 0, tt_hlo_reshape(both, self->rank == 3 ? dims + 1 : dims, self->rank - 1));
}

static void build_col2im(tt_rule *r) {
  tt_hlo self = tt_in(r, "self");
  windows w;
  if (!self || !read_pair(r, "output_size", w.input) || !read_windows(r, &w)) {
    return;
  }
  const bool batched = self->rank == 3;
  const int64_t area = w.kernel[0] * w.kernel[1], blocks = w.count[0] * w.count[1];
  if ((self->rank != 2 && !batched) || self->dims[self->rank - 2] % area != 0 || self->dims[self->rank - 1] != blocks) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Given output_size=(%" PRId64 ", %" PRId64
            "), expected size of input's last dimensions to be a multiple of %" PRId64
            " and the calculated number of sliding blocks %" PRId64 " * %" PRId64 " = %" PRId64
            ", but got input of sizes %s",
            w.input[0], w.input[1], area, w.count[0], w.count[1], blocks, tt_dims_text(self->dims, self->rank).text);
    return;
  }
  const int64_t n = batched ? self->dims[0] : 1, c = self->dims[self->rank - 2] / area;
  const int64_t split[] = {n, c, w.kernel[0], w.kernel[1], w.count[0], w.count[1]};
  tt_hlo x = tt_hlo_reshape(tt_cast(self, tt_sum_type(self->dtype)), split, 6);
  x = x ? tt_hlo_transpose(x, (const int32_t[]){0, 1, 2, 4, 3, 5}) : NULL;
  x = from_windows(from_windows(x, 4, &w, 1), 2, &w, 0);
  const int64_t dims[] = {n, c, w.input[0], w.input[1]};
  tt_ret(r, 0, tt_cast(tt_hlo_reshape(x, batched ? dims : dims + 1, self->rank + 1), self->dtype));
}

const tt_rule_entry tt_rules_shape[] = {
    {.name = "aten::cat", .build = build_cat, .out_dtype = TT_OUT_CAST, .apart = "tensors"},
    {.name = "aten::stack", .build = build_stack, .out_dtype = TT_OUT_CAST, .apart = "tensors"},
    {.name = "aten::flip", .build = build_flip},
    {.name = "aten::roll", .build = build_roll},
    {.name = "aten::repeat", .build = build_repeat},
    {.name = "aten::repeat_interleave.Tensor", .build = build_repeat_interleave},
    {.name = "aten::tril", .build = build_tril, .kind = true},
    {.name = "aten::triu", .build = build_tril, .kind = false},
    {.name = "aten::trace", .build = build_trace},
    {.name = "aten::channel_shuffle", .build = build_channel_shuffle},
    {.name = "aten::native_channel_shuffle", .build = build_channel_shuffle},
    {.name = "aten::pixel_shuffle", .build = build_pixel_shuffle, .kind = true},
    {.name = "aten::pixel_unshuffle", .build = build_pixel_shuffle, .kind = false},
    {.name = "aten::im2col", .build = build_im2col},
    {.name = "aten::col2im", .build = build_col2im},
    {.name = NULL},
};
