// Operations that move elements without computing.
#include "hlo/internal.h"

// ---- reshape, transpose, broadcast ----
tt_hlo tt_hlo_reshape(tt_hlo x, const int64_t *dims, int32_t rank) {
  static const char name[] = "stablehlo.reshape";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  const char *bad = tt_hlo_bad_type(x->dtype, dims, rank);
  if (bad) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "result: %s", bad);
  }
  tt_hlo_value result = {.dtype = x->dtype, .rank = rank, .dims = dims};
  if (tt_hlo_same_dims(x, &result)) {
    return x;
  }
  if (tt_hlo_numel(x) != tt_hlo_numel(&result)) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "%lld elements can't become %lld", (long long)tt_hlo_numel(x),
                         (long long)tt_hlo_numel(&result));
  }
  if (tt_hlo_is_constant(x) && x->op->splat) {
    return tt_hlo_constant_text(b, x->op->attributes, tt_hlo_type_of(&result), true);
  }
  if (x->op->name == name && x->op->block == b->current) {  // a reshape of a reshape
    x = in[0] = x->op->operands[0];
    if (tt_hlo_same_dims(x, &result)) {
      return x;
    }
  }
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 1, NULL, tt_hlo_type_of(&result));
}

tt_hlo tt_hlo_transpose(tt_hlo x, const int32_t *permutation) {
  static const char name[] = "stablehlo.transpose";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b || !tt_hlo_check_dim_set(b, name, in, 1, "permutation", permutation, x->rank, x->rank)) {
    return NULL;
  }
  int64_t dims[TT_MAX_RANK];
  bool identity = true;
  for (int32_t i = 0; i < x->rank; i++) {
    dims[i] = x->dims[permutation[i]];
    identity = identity && permutation[i] == i;
  }
  if (identity) {
    return x;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, ", dims = [");
  tt_hlo_put_ints(text, permutation, x->rank);
  tt_strbuf_puts(text, "]");
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 1, tt_strbuf_text(text), (tt_hlo_type){x->dtype, x->rank, dims});
}

tt_hlo tt_hlo_broadcast_in_dim(tt_hlo x, const int64_t *dims, int32_t rank, const int32_t *mapping) {
  static const char name[] = "stablehlo.broadcast_in_dim";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  const char *bad = tt_hlo_bad_type(x->dtype, dims, rank);
  if (bad) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "result: %s", bad);
  }
  if (!tt_hlo_check_dim_set(b, name, in, 1, "mapping", mapping, x->rank, rank)) {
    return NULL;
  }
  tt_hlo_type type = {x->dtype, rank, dims};
  bool identity = tt_hlo_same_type(tt_hlo_type_of(x), type);
  for (int32_t i = 0; i < x->rank; i++) {
    identity = identity && mapping[i] == i;
    if (x->dims[i] != 1 && x->dims[i] != dims[mapping[i]]) {
      return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "dim %d of size %lld can't become size %lld", i, (long long)x->dims[i],
                           (long long)dims[mapping[i]]);
    }
  }
  if (identity) {
    return x;
  }
  if (tt_hlo_is_constant(x) && x->op->splat) {
    return tt_hlo_constant_text(b, x->op->attributes, type, true);
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, ", dims = [");
  tt_hlo_put_ints(text, mapping, x->rank);
  tt_strbuf_puts(text, "]");
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 1, tt_strbuf_text(text), type);
}

tt_hlo tt_hlo_broadcast_to(tt_hlo x, const int64_t *dims, int32_t rank) {
  static const char name[] = "stablehlo.broadcast_in_dim";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  if (rank < x->rank) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "can't be broadcast to rank %d", rank);
  }
  int32_t mapping[TT_MAX_RANK];
  for (int32_t i = 0; i < x->rank; i++) {
    mapping[i] = rank - x->rank + i;
  }
  return tt_hlo_broadcast_in_dim(x, dims, rank, mapping);
}

// ---- slices ----
tt_hlo tt_hlo_slice(tt_hlo x, const int64_t *start, const int64_t *limit, const int64_t *stride) {
  static const char name[] = "stablehlo.slice";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  if (x->rank && (!start || !limit)) {
    return TT_HLO_REFUSE(TT_ERR_INTERNAL, name, "start or limit is missing");
  }
  int64_t dims[TT_MAX_RANK];
  bool whole = true;
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, " [");
  for (int32_t i = 0; i < x->rank; i++) {
    int64_t step = stride ? stride[i] : 1;
    if (start[i] < 0 || start[i] > limit[i] || limit[i] > x->dims[i] || step < 1) {
      return TT_HLO_REFUSE(TT_ERR_INDEX, name, "%lld:%lld:%lld is out of range for dim %d of size %lld",
                           (long long)start[i], (long long)limit[i], (long long)step, i, (long long)x->dims[i]);
    }
    int64_t length = limit[i] - start[i];
    dims[i] = length ? (length - 1) / step + 1 : 0;
    whole = whole && dims[i] == x->dims[i];
    tt_strbuf_puts(text, i ? ", " : "");
    tt_hlo_put_int(text, start[i]);
    tt_strbuf_puts(text, ":");
    tt_hlo_put_int(text, limit[i]);
    if (step > 1) {
      tt_strbuf_puts(text, ":");
      tt_hlo_put_int(text, step);
    }
  }
  tt_strbuf_puts(text, "]");
  if (whole) {
    return x;
  }
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 1, tt_strbuf_text(text), (tt_hlo_type){x->dtype, x->rank, dims});
}

tt_hlo tt_hlo_slice_dim(tt_hlo x, int32_t dim, int64_t start, int64_t limit, int64_t stride) {
  static const char name[] = "stablehlo.slice";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b || !tt_hlo_check_dim_set(b, name, in, 1, "dim", &dim, 1, x->rank)) {
    return NULL;
  }
  int64_t starts[TT_MAX_RANK], limits[TT_MAX_RANK], strides[TT_MAX_RANK];
  for (int32_t i = 0; i < x->rank; i++) {
    starts[i] = i == dim ? start : 0;
    limits[i] = i == dim ? limit : x->dims[i];
    strides[i] = i == dim ? stride : 1;
  }
  return tt_hlo_slice(x, starts, limits, strides);
}

// Checks the starts of a dynamic slice, which follow `skip` other operands in `in`.
static bool check_starts(tt_hlo_builder *b, const char *name, const tt_hlo *in, int32_t skip, int32_t rank) {
  for (int32_t i = 0; i < rank; i++) {
    tt_hlo start = in[skip + i];
    if (start->rank || !tt_dtype_is_int(start->dtype) || start->dtype != in[skip]->dtype) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, skip + rank, "the starts must be 0-d integers of one type");
      return false;
    }
  }
  return true;
}

static bool collect_starts(tt_hlo *in, int32_t skip, const tt_hlo *start, int32_t rank) {
  for (int32_t i = 0; i < rank; i++) {
    in[skip + i] = start ? start[i] : NULL;
  }
  return start || !rank;
}

tt_hlo tt_hlo_dynamic_slice(tt_hlo x, const tt_hlo *start, const int64_t *sizes) {
  static const char name[] = "stablehlo.dynamic_slice";
  tt_hlo in[1 + TT_MAX_RANK] = {x};
  int32_t rank = x ? x->rank : 0;
  bool complete = collect_starts(in, 1, start, rank);
  tt_hlo_builder *b = complete ? tt_hlo_enter(name, in, 1 + rank) : NULL;
  if (!b || !check_starts(b, name, in, 1, rank)) {
    return NULL;
  }
  if (rank && !sizes) {
    return tt_hlo_errorf(b, TT_ERR_INTERNAL, name, in, 1, "sizes are missing");
  }
  for (int32_t i = 0; i < rank; i++) {
    if (sizes[i] < 0 || sizes[i] > x->dims[i]) {
      return tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 1 + rank, "size %lld is out of range for dim %d of size %lld",
                           (long long)sizes[i], i, (long long)x->dims[i]);
    }
  }
  if (tt_hlo_equal_dims(sizes, rank, x->dims, rank)) {
    return x;  // the starts clamp to 0
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, ", sizes = [");
  tt_hlo_put_longs(text, sizes, rank);
  tt_strbuf_puts(text, "]");
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 1 + rank, tt_strbuf_text(text),
                     (tt_hlo_type){x->dtype, rank, sizes});
}

tt_hlo tt_hlo_dynamic_update_slice(tt_hlo x, tt_hlo update, const tt_hlo *start) {
  static const char name[] = "stablehlo.dynamic_update_slice";
  tt_hlo in[2 + TT_MAX_RANK] = {x, update};
  int32_t rank = x ? x->rank : 0;
  bool complete = collect_starts(in, 2, start, rank);
  tt_hlo_builder *b = complete ? tt_hlo_enter(name, in, 2 + rank) : NULL;
  if (!b || !check_starts(b, name, in, 2, rank)) {
    return NULL;
  }
  bool fits = update->dtype == x->dtype && update->rank == rank;
  for (int32_t i = 0; fits && i < rank; i++) {
    fits = update->dims[i] <= x->dims[i];
  }
  if (!fits) {
    return tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2 + rank, "the update doesn't fit the operand");
  }
  if (tt_hlo_same_dims(x, update)) {
    return update;  // the starts clamp to 0
  }
  if (tt_hlo_numel(update) == 0) {
    return x;
  }
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 2 + rank, NULL, tt_hlo_type_of(x));
}

// ---- concatenate, pad, reverse ----
tt_hlo tt_hlo_concatenate(const tt_hlo *xs, int32_t count, int32_t dim) {
  static const char name[] = "stablehlo.concatenate";
  tt_hlo_builder *b = tt_hlo_enter(name, xs, count);
  if (!b || !tt_hlo_check_dim_set(b, name, xs, count, "dim", &dim, 1, xs[0]->rank)) {
    return NULL;
  }
  tt_hlo first = xs[0];
  int64_t dims[TT_MAX_RANK];
  for (int32_t i = 0; i < first->rank; i++) {
    dims[i] = first->dims[i];
  }
  for (int32_t k = 1; k < count; k++) {
    bool fits = xs[k]->dtype == first->dtype && xs[k]->rank == first->rank;
    for (int32_t i = 0; fits && i < first->rank; i++) {
      fits = i == dim || xs[k]->dims[i] == first->dims[i];
    }
    if (!fits) {
      return tt_hlo_errorf(b, TT_ERR_RUNTIME, name, xs, count, "operand %d doesn't match operand 0 outside dim %d", k,
                           dim);
    }
    if (__builtin_add_overflow(dims[dim], xs[k]->dims[dim], &dims[dim])) {
      return tt_hlo_errorf(b, TT_ERR_RUNTIME, name, xs, count, "the number of elements overflows");
    }
  }
  if (count == 1) {
    return first;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, ", dim = ");
  tt_hlo_put_int(text, dim);
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, xs, count, tt_strbuf_text(text),
                     (tt_hlo_type){first->dtype, first->rank, dims});
}

// The size of a padded dim, or -1.
static int64_t padded_size(int64_t size, int64_t low, int64_t high, int64_t interior) {
  int64_t result, gaps = size > 0 ? size - 1 : 0;
  bool bad = interior < 0 || __builtin_mul_overflow(gaps, interior, &result) ||
             __builtin_add_overflow(result, size, &result) || __builtin_add_overflow(result, low, &result) ||
             __builtin_add_overflow(result, high, &result);
  return bad || result < 0 ? -1 : result;
}

tt_hlo tt_hlo_pad(tt_hlo x, tt_hlo value, const int64_t *low, const int64_t *high, const int64_t *interior) {
  static const char name[] = "stablehlo.pad";
  static const int64_t zeros[TT_MAX_RANK];
  tt_hlo in[] = {x, value};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 2);
  if (!b) {
    return NULL;
  }
  if (value->rank || value->dtype != x->dtype) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the value must be 0-d and of the operand's element type");
  }
  low = low ? low : zeros;
  high = high ? high : zeros;
  interior = interior ? interior : zeros;
  int64_t dims[TT_MAX_RANK];
  bool nothing = true;
  for (int32_t i = 0; i < x->rank; i++) {
    dims[i] = padded_size(x->dims[i], low[i], high[i], interior[i]);
    nothing = nothing && !low[i] && !high[i] && (!interior[i] || x->dims[i] < 2);
    if (dims[i] < 0) {
      return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "low %lld, high %lld, interior %lld don't fit dim %d of size %lld",
                           (long long)low[i], (long long)high[i], (long long)interior[i], i, (long long)x->dims[i]);
    }
  }
  if (nothing) {
    return x;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, ", low = [");
  tt_hlo_put_longs(text, low, x->rank);
  tt_strbuf_puts(text, "], high = [");
  tt_hlo_put_longs(text, high, x->rank);
  tt_strbuf_puts(text, "], interior = [");
  tt_hlo_put_longs(text, interior, x->rank);
  tt_strbuf_puts(text, "]");
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 2, tt_strbuf_text(text), (tt_hlo_type){x->dtype, x->rank, dims});
}

tt_hlo tt_hlo_reverse(tt_hlo x, const int32_t *dims, int32_t count) {
  static const char name[] = "stablehlo.reverse";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b || !tt_hlo_check_dim_set(b, name, in, 1, "dims", dims, count, x->rank)) {
    return NULL;
  }
  if (!count) {
    return x;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, ", dims = [");
  tt_hlo_put_ints(text, dims, count);
  tt_strbuf_puts(text, "]");
  return tt_hlo_emit(b, name, TT_FORM_SAME, in, 1, tt_strbuf_text(text), tt_hlo_type_of(x));
}
