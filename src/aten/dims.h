// Shared by the reducing, indexing and reshaping families: values over dims. NULL in, NULL out.
#ifndef TORCHTPU_ATEN_DIMS_H
#define TORCHTPU_ATEN_DIMS_H

#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "aten/pointwise.h"

enum { V_DIMS = TT_MAX_RANK + 4 };  // room for dims that a rule adds; the builder checks the rank itself

static inline bool v_has_nan(tt_dtype dtype) { return tt_dtype_is_float(dtype) || tt_dtype_is_complex(dtype); }
// The smallest of s32 and s64 that holds the positions of a dim of this size and those just outside.
static inline tt_dtype v_position_type(int64_t size) { return size < INT32_MAX - 1 ? TT_S32 : TT_S64; }

static inline tt_hlo v_fill(tt_hlo scalar, const int64_t *dims, int32_t rank) {
  const int32_t none = 0;
  return tt_hlo_broadcast_in_dim(scalar, dims, rank, &none);
}
static inline tt_hlo v_zero(tt_hlo like) {  // 0-d
  return like ? tt_hlo_scalar(tt_hlo_builder_of(like), like->dtype, 0) : NULL;
}
static inline tt_hlo v_flat(tt_hlo x) {
  const int64_t n = tt_hlo_numel(x);
  return tt_hlo_reshape(x, &n, 1);
}
static inline tt_hlo v_at_least_1d(tt_hlo x) { return x && x->rank == 0 ? v_flat(x) : x; }
static inline tt_hlo v_reshape_like(tt_hlo x, tt_hlo like) {
  return like ? tt_hlo_reshape(x, like->dims, like->rank) : NULL;
}
static inline tt_hlo v_unsqueeze(tt_hlo x, int32_t dim) {
  if (!x) {
    return NULL;
  }
  int64_t dims[V_DIMS];
  for (int32_t i = 0; i <= x->rank; i++) {
    dims[i] = i < dim ? x->dims[i] : i == dim ? 1 : x->dims[i - 1];
  }
  return tt_hlo_reshape(x, dims, x->rank + 1);
}
static inline tt_hlo v_squeeze(tt_hlo x, int32_t dim) {
  if (!x) {
    return NULL;
  }
  int64_t dims[V_DIMS];
  for (int32_t i = 0; i + 1 < x->rank; i++) {
    dims[i] = x->dims[i < dim ? i : i + 1];
  }
  return tt_hlo_reshape(x, dims, x->rank - 1);
}
// A 1-d value along one dim of a shape.
static inline tt_hlo v_along(tt_hlo x, const int64_t *dims, int32_t rank, int32_t dim) {
  if (x && x->rank > 1) {
    return tt_hlo_fail(tt_hlo_builder_of(x),
                       tt_error(TT_ERR_RUNTIME, "a 1-D tensor is expected, not one of %d dimensions", x->rank));
  }
  return tt_hlo_broadcast_in_dim(x, dims, rank, &dim);
}
// x, which lacks `dim`, broadcast over it.
static inline tt_hlo v_spread(tt_hlo x, tt_hlo like, int32_t dim) {
  if (!x || !like) {
    return NULL;
  }
  bool mask[TT_MAX_RANK] = {false};
  mask[dim] = true;
  return tt_expand_reduced(x, like->dims, like->rank, mask);
}
static inline tt_hlo v_iota(tt_hlo like, tt_dtype dtype, int32_t dim) {
  return like ? tt_hlo_iota(tt_hlo_builder_of(like), dtype, like->dims, like->rank, dim) : NULL;
}
static inline tt_hlo v_reduce(tt_hlo_reducer reducer, tt_hlo x, int32_t dim) {
  return tt_hlo_reduce(reducer, x, &dim, 1);
}
static inline tt_hlo v_reduce_all(tt_hlo_reducer reducer, tt_hlo x) {
  bool mask[TT_MAX_RANK];
  memset(mask, true, sizeof mask);
  return tt_reduce_mask(reducer, x, mask);
}
static inline tt_hlo v_pad(tt_hlo x, tt_hlo value, int32_t dim, int64_t low, int64_t high, int64_t interior) {
  int64_t lows[V_DIMS] = {0}, highs[V_DIMS] = {0}, interiors[V_DIMS] = {0};
  lows[dim] = low;
  highs[dim] = high;
  interiors[dim] = interior;
  return tt_hlo_pad(x, value, lows, highs, interiors);
}
static inline tt_hlo v_pad0(tt_hlo x, int32_t dim, int64_t low, int64_t high, int64_t interior) {
  return v_pad(x, v_zero(x), dim, low, high, interior);
}
// x moved so that `dim` comes last (or, the other way, so that the last comes at `dim`).
static inline tt_hlo v_dim_to_last(tt_hlo x, int32_t dim) {
  int32_t order[V_DIMS];
  for (int32_t i = 0; x && i < x->rank; i++) {
    order[i] = i < dim ? i : i + 1 < x->rank ? i + 1 : dim;
  }
  return x ? tt_hlo_transpose(x, order) : NULL;
}
static inline tt_hlo v_last_to_dim(tt_hlo x, int32_t dim) {
  int32_t order[V_DIMS];
  for (int32_t i = 0; x && i < x->rank; i++) {
    order[i] = i < dim ? i : i == dim ? x->rank - 1 : i - 1;
  }
  return x ? tt_hlo_transpose(x, order) : NULL;
}

// Does the layout mean channels-last? As Tensor::suggest_memory_format.
static inline bool tt_is_channels_last(const tt_operand *x) {
  if (!x || (x->ndim != 4 && x->ndim != 5) || x->strides[1] == 0) {
    return false;
  }
  int64_t low = 0;
  for (int32_t k = 0; k < x->ndim; k++) {  // C, then the spatial dims from the last, then N
    const int32_t d = k == 0 ? 1 : k == x->ndim - 1 ? 0 : x->ndim - k;
    if (x->sizes[d] == 0 || x->strides[d] < low || (d == 0 && low == x->strides[1])) {
      return false;
    }
    low = x->strides[d] * (x->sizes[d] > 1 ? x->sizes[d] : 1);
  }
  return true;
}
// Returns a value with C innermost, or contiguous.
static inline void tt_ret_format(tt_rule *r, int32_t i, tt_hlo value, bool channels_last) {
  static const int32_t order4[] = {0, 2, 3, 1}, order5[] = {0, 2, 3, 4, 1};
  if (channels_last && value && (value->rank == 4 || value->rank == 5)) {
    tt_ret_ordered(r, i, value, value->rank == 4 ? order4 : order5);
  } else {
    tt_ret(r, i, value);
  }
}

typedef struct tt_shape_text {
  char text[256];
} tt_shape_text;
static inline tt_shape_text tt_dims_text(const int64_t *dims, int32_t rank) {  // "[2, 3]"
  tt_shape_text t = {"["};
  size_t used = 1;
  for (int32_t i = 0; i < rank && used < sizeof t.text - 24; i++) {
    used += (size_t)snprintf(t.text + used, sizeof t.text - used, "%s%" PRId64, i ? ", " : "", dims[i]);
  }
  snprintf(t.text + used, sizeof t.text - used, "]");
  return t;
}

// ---- scan.c ----
// Inclusive running sum, product, maximum or minimum along a dim.
tt_hlo tt_running(tt_hlo_reducer reducer, tt_hlo x, int32_t dim);

// ---- index.c ----
// Index operand checked (tt_checked_index) and narrowed to s32 where that holds it; invalid ones stay outside.
tt_hlo tt_positions(tt_rule *r, tt_hlo index, int64_t size, bool wrap, const char *what);
// Elements of a 1-d value at positions of any shape.
tt_hlo tt_take_flat(tt_hlo x, tt_hlo positions);
// Scatters `updates` into a 1-d value; positions outside are dropped. Both of one shape.
tt_hlo tt_put_flat(tt_hlo_scatter_kind kind, tt_hlo x, tt_hlo positions, tt_hlo updates);
// Position in the flattened `like` of (..., positions[...], ...): `positions` along dim, its own place elsewhere.
// -1 where outside.
tt_hlo tt_flat_positions(tt_hlo like, int32_t dim, tt_hlo positions);
// x's elements along `dim` at valid positions of the same rank, whose other dims are no larger than x's.
tt_hlo tt_take_along(tt_hlo x, int32_t dim, tt_hlo positions);
// Slices of x along `dim` at 1-d positions, and the other way.
tt_hlo tt_take_slices(tt_hlo x, int32_t dim, tt_hlo positions);
tt_hlo tt_put_slices(tt_hlo_scatter_kind kind, tt_hlo x, int32_t dim, tt_hlo positions, tt_hlo updates);

// ---- search.c ----
// For each value the number of elements of its sorted row that are less than it (or, `right`, not greater). rows:
// [R, n], values: [R, m] of one type. NaN values come after everything.
tt_hlo tt_insertion_points(tt_hlo rows, tt_hlo values, bool right);

// ---- softmax.c ----
// Without what the mask (which may be NULL) holds true; NaN along a line of which that is all, as on the CPU.
tt_hlo tt_masked_softmax(tt_hlo x, tt_hlo mask, int32_t dim);

// ---- scatter.c ----
// The type in which values of `dtype` are accumulated.
tt_dtype tt_sum_type(tt_dtype dtype);

#endif  // TORCHTPU_ATEN_DIMS_H
