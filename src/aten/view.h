// How a strided view reads from, and writes to, the value of a storage.
//
// A storage's value is an array of some shape, row-major in the storage's memory order. A tensor over it is sizes,
// strides and an offset in elements. Reading a tensor means turning (value, view) into an array of the tensor's
// sizes inside the consumer, where XLA fuses it; writing means making the next value. The offset is an operand, so
// that x[0], x[1], ... share one executable; only the *kind* below depends on it.
#ifndef TORCHTPU_ATEN_VIEW_H
#define TORCHTPU_ATEN_VIEW_H

#include "hlo/hlo.h"

typedef enum tt_view_kind {
  TT_VIEW_FULL,    // covers the whole value: reshape and transpose (broadcast dims allowed)
  TT_VIEW_BOX,     // a box of the value reshaped by the view's own strides: dynamic slice
  TT_VIEW_STEP,    // a box with steps in the value's own dims
  TT_VIEW_GATHER,  // anything else, overlap included: gather or scatter by computed positions
} tt_view_kind;

typedef struct tt_view {
  int32_t ndim;
  const int64_t *sizes, *strides;
  int64_t offset;  // only for classification
} tt_view;

// The shape of a storage's value.
typedef struct tt_shape {
  int32_t rank;
  const int64_t *dims;
  int64_t numel;
} tt_shape;

// The simplest kind that serves `view` over a value of this shape. The view must lie within the value.
tt_view_kind tt_view_classify(const tt_shape *value, const tt_view *view);
// Whether a view of this kind needs its offset as an operand.
static inline bool tt_view_needs_offset(tt_view_kind kind) { return kind != TT_VIEW_FULL; }
// The type of that operand, for a value of `numel` elements.
static inline tt_dtype tt_view_offset_dtype(int64_t numel) { return numel < INT32_MAX ? TT_S32 : TT_S64; }

// The tensor's elements, in its sizes. `offset` is a 0-d integer, NULL for FULL.
tt_hlo tt_view_read(tt_hlo value, tt_view_kind kind, const tt_view *view, tt_hlo offset);
// The value after storing `data` (of the tensor's sizes and the value's dtype) through the view. `value` may be
// NULL for FULL, whose result has the dims of `data` in memory order. Other kinds keep the value's dims.
tt_hlo tt_view_write(tt_hlo value, tt_view_kind kind, const tt_view *view, tt_hlo offset, tt_hlo data);

// Dims sorted by stride, outermost first, ties in their own order: order[i] is the dim at place i.
void tt_view_memory_order(const tt_view *view, int32_t order[TT_MAX_RANK]);

#endif  // TORCHTPU_ATEN_VIEW_H
