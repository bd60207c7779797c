#include "aten/view.h"

#include <string.h>

// The dims that matter, by decreasing stride: size above 1, stride not 0.
typedef struct sorted_dims {
  int32_t count;
  int32_t dim[TT_MAX_RANK];  // the view's dim at each place
  int64_t size[TT_MAX_RANK], stride[TT_MAX_RANK];
  bool in_order;  // dim[] increases
} sorted_dims;

void tt_view_memory_order(const tt_view *view, int32_t order[TT_MAX_RANK]) {
  for (int32_t i = 0; i < view->ndim; i++) {
    int32_t place = i;
    while (place > 0 && view->strides[order[place - 1]] < view->strides[i]) {
      order[place] = order[place - 1];
      place--;
    }
    order[place] = i;
  }
}

static void sort_dims(const tt_view *view, sorted_dims *out) {
  int32_t order[TT_MAX_RANK];
  tt_view_memory_order(view, order);
  out->count = 0;
  out->in_order = true;
  for (int32_t i = 0; i < view->ndim; i++) {
    int32_t dim = order[i];
    if (view->sizes[dim] == 1 || view->strides[dim] == 0) {
      continue;
    }
    int32_t n = out->count++;
    out->dim[n] = dim;
    out->size[n] = view->sizes[dim];
    out->stride[n] = view->strides[dim];
    out->in_order = out->in_order && (n == 0 || out->dim[n - 1] < dim);
  }
}

static int64_t view_numel(const tt_view *view) {
  int64_t numel = 1;
  for (int32_t i = 0; i < view->ndim; i++) {
    numel *= view->sizes[i];
  }
  return numel;
}

static bool has_broadcast(const tt_view *view) {
  for (int32_t i = 0; i < view->ndim; i++) {
    if (view->strides[i] == 0 && view->sizes[i] > 1) {
      return true;
    }
  }
  return false;
}

static bool is_full(const tt_shape *value, const tt_view *view, const sorted_dims *dims) {
  int64_t expected = 1;
  for (int32_t i = dims->count - 1; i >= 0; i--) {
    if (dims->stride[i] != expected) {
      return false;
    }
    expected *= dims->size[i];
  }
  return view->offset == 0 && expected == value->numel;
}

// The box's extents: the value seen as [numel / s0, s0 / s1, ..., s(k-1)], which needs each stride to divide the
// one before it. Returns the rank (count + 1), or 0 when the strides don't divide.
static int32_t box_extents(int64_t numel, const sorted_dims *dims, int64_t *extents) {
  int64_t outer = numel;
  for (int32_t i = 0; i < dims->count; i++) {
    if (dims->stride[i] <= 0 || outer % dims->stride[i] != 0) {
      return 0;
    }
    extents[i] = outer / dims->stride[i];
    if (extents[i] < dims->size[i]) {
      return 0;
    }
    outer = dims->stride[i];
  }
  extents[dims->count] = outer;
  return dims->count + 1;
}

static bool is_box(const tt_shape *value, const tt_view *view, const sorted_dims *dims) {
  int64_t extents[TT_MAX_RANK + 1];
  if (dims->count >= TT_MAX_RANK || !box_extents(value->numel, dims, extents)) {
    return false;
  }
  for (int32_t i = 0; i < dims->count; i++) {
    if (view->offset / dims->stride[i] % extents[i] + dims->size[i] > extents[i]) {
      return false;  // the box would wrap around
    }
  }
  return true;
}

// Which of the value's dims each view dim steps along.
typedef struct step_plan {
  int64_t stride[TT_MAX_RANK];  // of the value, row-major
  int64_t size[TT_MAX_RANK];    // taken along each value dim
  int64_t step[TT_MAX_RANK];
} step_plan;

static bool make_step_plan(const tt_shape *value, const sorted_dims *dims, step_plan *plan) {
  int64_t stride = 1;
  for (int32_t d = value->rank - 1; d >= 0; d--) {
    plan->stride[d] = stride;
    plan->size[d] = plan->step[d] = 1;
    stride *= value->dims[d];
  }
  int32_t d = 0;
  for (int32_t i = 0; i < dims->count; i++, d++) {
    while (d < value->rank && (plan->stride[d] > dims->stride[i] || value->dims[d] == 1)) {
      d++;
    }
    if (d == value->rank || dims->stride[i] % plan->stride[d] != 0) {
      return false;
    }
    plan->size[d] = dims->size[i];
    plan->step[d] = dims->stride[i] / plan->stride[d];
  }
  return true;
}

static bool is_step(const tt_shape *value, const tt_view *view, const sorted_dims *dims) {
  step_plan plan;
  if (value->rank > TT_MAX_RANK || !make_step_plan(value, dims, &plan)) {
    return false;
  }
  for (int32_t d = 0; d < value->rank; d++) {
    int64_t start = view->offset / plan.stride[d] % value->dims[d];
    if (start + (plan.size[d] - 1) * plan.step[d] >= value->dims[d]) {
      return false;
    }
  }
  return true;
}

tt_view_kind tt_view_classify(const tt_shape *value, const tt_view *view) {
  if (view_numel(view) == 0) {
    return TT_VIEW_FULL;
  }
  sorted_dims dims;
  sort_dims(view, &dims);
  return is_full(value, view, &dims)   ? TT_VIEW_FULL
         : is_box(value, view, &dims)  ? TT_VIEW_BOX
         : is_step(value, view, &dims) ? TT_VIEW_STEP
                                       : TT_VIEW_GATHER;
}

// ---- emission ----

static tt_hlo flatten(tt_hlo x) { return tt_hlo_reshape(x, (int64_t[]){tt_hlo_numel(x)}, 1); }

// (offset / stride) % extent, the start along one dim.
static tt_hlo start_along(tt_hlo offset, int64_t stride, int64_t extent, int64_t taken) {
  if (!offset) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(offset);
  if (taken == extent) {
    return tt_hlo_const_int(b, offset->dtype, 0, NULL, 0);
  }
  tt_hlo start = tt_hlo_binary(TT_DIVIDE, offset, tt_hlo_const_int(b, offset->dtype, stride, NULL, 0));
  return tt_hlo_binary(TT_REMAINDER, start, tt_hlo_const_int(b, offset->dtype, extent, NULL, 0));
}

// From an array of the sorted dims' sizes to one of the view's sizes: unsort, then insert unit and broadcast dims.
static tt_hlo to_view_dims(tt_hlo x, const tt_view *view, const sorted_dims *dims) {
  x = tt_hlo_reshape(x, dims->size, dims->count);
  int32_t permutation[TT_MAX_RANK], mapping[TT_MAX_RANK];
  int32_t n = 0;
  for (int32_t dim = 0; dim < view->ndim; dim++) {
    for (int32_t i = 0; i < dims->count; i++) {
      if (dims->dim[i] == dim) {
        permutation[n] = i;
        mapping[n++] = dim;
      }
    }
  }
  x = tt_hlo_transpose(x, permutation);
  return has_broadcast(view) ? tt_hlo_broadcast_in_dim(x, view->sizes, view->ndim, mapping)
                             : tt_hlo_reshape(x, view->sizes, view->ndim);
}

// The reverse, for writing: no broadcast dims.
static tt_hlo from_view_dims(tt_hlo data, const sorted_dims *dims) {
  int64_t kept[TT_MAX_RANK];
  int32_t permutation[TT_MAX_RANK];
  for (int32_t i = 0; i < dims->count; i++) {
    int32_t place = 0;
    for (int32_t j = 0; j < dims->count; j++) {
      place += dims->dim[j] < dims->dim[i];
    }
    kept[place] = dims->size[i];
    permutation[i] = place;
  }
  return tt_hlo_transpose(tt_hlo_reshape(data, kept, dims->count), permutation);
}

typedef struct box {
  int32_t rank;
  int64_t extents[TT_MAX_RANK + 1], sizes[TT_MAX_RANK + 1];
  tt_hlo starts[TT_MAX_RANK + 1];
} box;

static void make_box(int64_t numel, const sorted_dims *dims, tt_hlo offset, box *out) {
  out->rank = box_extents(numel, dims, out->extents);
  for (int32_t i = 0; i < out->rank; i++) {
    bool last = i == dims->count;
    out->sizes[i] = last ? 1 : dims->size[i];
    out->starts[i] = start_along(offset, last ? 1 : dims->stride[i], out->extents[i], out->sizes[i]);
  }
}

// Flat positions of the view's elements, in the view's sizes.
static tt_hlo positions(tt_hlo offset, const tt_view *view) {
  if (!offset) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(offset);
  tt_hlo sum = tt_hlo_broadcast_to(offset, view->sizes, view->ndim);
  for (int32_t i = 0; i < view->ndim; i++) {
    if (view->sizes[i] > 1 && view->strides[i] != 0) {
      tt_hlo along = tt_hlo_iota(b, offset->dtype, view->sizes, view->ndim, i);
      tt_hlo stride = tt_hlo_const_int(b, offset->dtype, view->strides[i], view->sizes, view->ndim);
      sum = tt_hlo_binary(TT_ADD, sum, tt_hlo_binary(TT_MULTIPLY, along, stride));
    }
  }
  return flatten(sum);
}

static tt_hlo read_gather(tt_hlo value, const tt_view *view, tt_hlo offset) {
  static const int32_t zero[] = {0};
  tt_hlo_gather_dims dims = {.collapsed_dims = zero,
                             .collapsed_count = 1,
                             .start_index_map = zero,
                             .start_index_count = 1,
                             .index_vector_dim = 1};
  tt_hlo flat = tt_hlo_gather(flatten(value), positions(offset, view), &dims, (int64_t[]){1}, false);
  return tt_hlo_reshape(flat, view->sizes, view->ndim);
}

static tt_hlo write_gather(tt_hlo value, const tt_view *view, tt_hlo offset, tt_hlo data) {
  static const int32_t zero[] = {0};
  tt_hlo_scatter_dims dims = {.inserted_window_dims = zero,
                              .inserted_count = 1,
                              .scatter_dims_to_operand_dims = zero,
                              .scatter_dims_count = 1,
                              .index_vector_dim = 1};
  tt_hlo flat =
      tt_hlo_scatter(TT_SCATTER_SET, flatten(value), positions(offset, view), flatten(data), &dims, false, false);
  return value ? tt_hlo_reshape(flat, value->dims, value->rank) : NULL;
}

// The span of value that a stepped view touches, from its first to its last element along each dim.
static void step_span(tt_hlo value, const step_plan *plan, tt_hlo offset, tt_hlo *starts, int64_t *span) {
  for (int32_t d = 0; d < value->rank; d++) {
    span[d] = (plan->size[d] - 1) * plan->step[d] + 1;
    starts[d] = start_along(offset, plan->stride[d], value->dims[d], span[d]);
  }
}

static tt_hlo read_step(tt_hlo value, const tt_view *view, const sorted_dims *dims, tt_hlo offset) {
  step_plan plan;
  tt_shape shape = {value->rank, value->dims, tt_hlo_numel(value)};
  if (!make_step_plan(&shape, dims, &plan)) {
    return NULL;
  }
  tt_hlo starts[TT_MAX_RANK];
  int64_t span[TT_MAX_RANK], zeros[TT_MAX_RANK] = {0};
  step_span(value, &plan, offset, starts, span);
  tt_hlo x = tt_hlo_slice(tt_hlo_dynamic_slice(value, starts, span), zeros, span, plan.step);
  return to_view_dims(x, view, dims);
}

static tt_hlo write_step(tt_hlo value, const sorted_dims *dims, tt_hlo offset, tt_hlo data) {
  step_plan plan;
  tt_shape shape = {value->rank, value->dims, tt_hlo_numel(value)};
  if (!make_step_plan(&shape, dims, &plan)) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(value);
  tt_hlo starts[TT_MAX_RANK];
  int64_t span[TT_MAX_RANK], zeros[TT_MAX_RANK] = {0}, interior[TT_MAX_RANK];
  step_span(value, &plan, offset, starts, span);
  for (int32_t d = 0; d < value->rank; d++) {
    interior[d] = plan.step[d] - 1;
  }
  // Spread the data over the span, and keep the old elements between.
  tt_hlo spread = tt_hlo_reshape(from_view_dims(data, dims), plan.size, value->rank);
  spread = tt_hlo_pad(spread, tt_hlo_scalar(b, value->dtype, 0), zeros, zeros, interior);
  tt_hlo ones = tt_hlo_const(b, TT_PRED, 1, plan.size, value->rank);
  tt_hlo mask = tt_hlo_pad(ones, tt_hlo_scalar(b, TT_PRED, 0), zeros, zeros, interior);
  tt_hlo old = tt_hlo_dynamic_slice(value, starts, span);
  return tt_hlo_dynamic_update_slice(value, tt_hlo_select(mask, spread, old), starts);
}

tt_hlo tt_view_read(tt_hlo value, tt_view_kind kind, const tt_view *view, tt_hlo offset) {
  if (!value || (tt_view_needs_offset(kind) && !offset)) {
    return NULL;
  }
  if (view_numel(view) == 0) {
    tt_hlo nothing = tt_hlo_const(tt_hlo_builder_of(value), value->dtype, 0, view->sizes, view->ndim);
    return tt_hlo_optimization_barrier(nothing);  // not for the compiler to compute with
  }
  sorted_dims dims;
  sort_dims(view, &dims);
  switch (kind) {
    case TT_VIEW_FULL:
      return dims.in_order && !has_broadcast(view) ? tt_hlo_reshape(value, view->sizes, view->ndim)
                                                   : to_view_dims(value, view, &dims);
    case TT_VIEW_BOX: {
      box box;
      make_box(tt_hlo_numel(value), &dims, offset, &box);
      tt_hlo x = tt_hlo_dynamic_slice(tt_hlo_reshape(value, box.extents, box.rank), box.starts, box.sizes);
      return to_view_dims(x, view, &dims);
    }
    case TT_VIEW_STEP:
      return read_step(value, view, &dims, offset);
    case TT_VIEW_GATHER:
      return read_gather(value, view, offset);
  }
  return NULL;
}

tt_hlo tt_view_write(tt_hlo value, tt_view_kind kind, const tt_view *view, tt_hlo offset, tt_hlo data) {
  if (!data || (kind != TT_VIEW_FULL && !value) || (tt_view_needs_offset(kind) && !offset)) {
    return NULL;
  }
  if (view_numel(view) == 0) {
    return value ? value : data;
  }
  sorted_dims dims;
  sort_dims(view, &dims);
  switch (kind) {
    case TT_VIEW_FULL: {
      int32_t order[TT_MAX_RANK];
      tt_view_memory_order(view, order);
      return dims.in_order ? data : tt_hlo_transpose(data, order);
    }
    case TT_VIEW_BOX: {
      box box;
      make_box(tt_hlo_numel(value), &dims, offset, &box);
      tt_hlo update = tt_hlo_reshape(from_view_dims(data, &dims), box.sizes, box.rank);
      tt_hlo target = tt_hlo_reshape(value, box.extents, box.rank);
      return tt_hlo_reshape(tt_hlo_dynamic_update_slice(target, update, box.starts), value->dims, value->rank);
    }
    case TT_VIEW_STEP:
      return write_step(value, &dims, offset, data);
    case TT_VIEW_GATHER:
      return write_gather(value, view, offset, data);
  }
  return NULL;
}
