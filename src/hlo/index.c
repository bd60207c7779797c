// Gather and scatter, checked as the StableHLO specification says.
#include "hlo/internal.h"

// What a gather and a scatter have in common, under the gather's names.
typedef struct index_dims {
  const int32_t *offset, *collapsed, *batching, *indices_batching, *map;
  int32_t offset_count, collapsed_count, batching_count, map_count, vector_dim;
} index_dims;

static bool fail(tt_hlo_builder *b, const char *name, const tt_hlo *in, int32_t count, const char *message) {
  tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, count, "%s", message);
  return false;
}

static bool ascending(const int32_t *dims, int32_t count) {
  for (int32_t i = 1; i < count; i++) {
    if (dims[i] <= dims[i - 1]) {
      return false;
    }
  }
  return true;
}

// Two lists in one, to check that no dim is in both.
static bool check_joined(tt_hlo_builder *b, const char *name, const tt_hlo *in, int32_t operand_count, const char *what,
                         const int32_t *first, int32_t first_count, const int32_t *second, int32_t second_count,
                         int32_t rank) {
  int32_t all[2 * TT_MAX_RANK];
  if (first_count < 0 || second_count < 0 || first_count > rank || second_count > rank || (first_count && !first) ||
      (second_count && !second)) {
    return fail(b, name, in, operand_count, "a list of dims is missing or too long");
  }
  for (int32_t i = 0; i < first_count; i++) {
    all[i] = first[i];
  }
  for (int32_t i = 0; i < second_count; i++) {
    all[first_count + i] = second[i];
  }
  return tt_hlo_check_dim_set(b, name, in, operand_count, what, all, first_count + second_count, rank);
}

// The constraints on operand (in[0]), indices (in[1]) and the lists that both operations share. `result_rank` is that
// of the gather's result, the scatter's updates.
static bool check_lists(tt_hlo_builder *b, const char *name, const tt_hlo *in, int32_t count, const index_dims *d,
                        int32_t result_rank) {
  tt_hlo x = in[0], indices = in[1];
  if (!tt_dtype_is_int(indices->dtype)) {
    return fail(b, name, in, count, "the indices must be integers");
  }
  if (d->vector_dim < 0 || d->vector_dim > indices->rank) {
    return fail(b, name, in, count, "index_vector_dim is out of range");
  }
  int64_t vector = d->vector_dim < indices->rank ? indices->dims[d->vector_dim] : 1;
  if (d->map_count != vector) {
    return fail(b, name, in, count, "as many dims must be indexed as an index vector has elements");
  }
  if (!check_joined(b, name, in, count, "collapsed and batching dims", d->collapsed, d->collapsed_count, d->batching,
                    d->batching_count, x->rank) ||
      !check_joined(b, name, in, count, "indexed and batching dims", d->map, d->map_count, d->batching,
                    d->batching_count, x->rank) ||
      !check_joined(b, name, in, count, "batching dims of the indices", d->indices_batching, d->batching_count, NULL, 0,
                    indices->rank) ||
      !check_joined(b, name, in, count, "window dims", d->offset, d->offset_count, NULL, 0, result_rank)) {
    return false;
  }
  if (!ascending(d->collapsed, d->collapsed_count) || !ascending(d->batching, d->batching_count) ||
      !ascending(d->offset, d->offset_count)) {
    return fail(b, name, in, count, "window, collapsed and batching dims must be sorted");
  }
  if (d->offset_count + d->collapsed_count + d->batching_count != x->rank) {
    return fail(b, name, in, count, "window, collapsed and batching dims must make up the operand's rank");
  }
  for (int32_t i = 0; i < d->batching_count; i++) {
    if (d->indices_batching[i] == d->vector_dim) {
      return fail(b, name, in, count, "index_vector_dim can't be a batching dim");
    }
    if (x->dims[d->batching[i]] != indices->dims[d->indices_batching[i]]) {
      return fail(b, name, in, count, "batching dims of operand and indices differ in size");
    }
  }
  return true;
}

static bool contains(const int32_t *dims, int32_t count, int32_t dim) {
  for (int32_t i = 0; i < count; i++) {
    if (dims[i] == dim) {
      return true;
    }
  }
  return false;
}

static bool is_window_dim(const index_dims *d, int32_t operand_dim) {
  return !contains(d->collapsed, d->collapsed_count, operand_dim) &&
         !contains(d->batching, d->batching_count, operand_dim);
}

// The shape of a result: windows[offset_count] at the offset dims, the sizes of the indices elsewhere, in order.
static int32_t combine(const index_dims *d, tt_hlo indices, const int64_t *windows, int64_t *dims) {
  int32_t rank = d->offset_count + indices->rank - (d->vector_dim < indices->rank ? 1 : 0);
  int32_t window = 0, batch = 0;
  for (int32_t i = 0; i < rank; i++) {
    if (contains(d->offset, d->offset_count, i)) {
      dims[i] = windows[window++];
    } else {
      batch += batch == d->vector_dim;
      dims[i] = indices->dims[batch++];
    }
  }
  return rank;
}

static void put_list(tt_strbuf *text, const char *key, const int32_t *dims, int32_t count) {
  tt_strbuf_puts(text, key);
  tt_strbuf_puts(text, " = [");
  tt_hlo_put_ints(text, dims, count);
  tt_strbuf_puts(text, "], ");
}

// Lists that are often empty are left out then.
static void put_optional_list(tt_strbuf *text, const char *key, const int32_t *dims, int32_t count) {
  if (count) {
    put_list(text, key, dims, count);
  }
}

static int32_t result_rank(const index_dims *d, tt_hlo indices) {
  int64_t rank = (int64_t)d->offset_count + indices->rank - (d->vector_dim < indices->rank ? 1 : 0);
  return rank < 0 || rank > TT_MAX_RANK ? -1 : (int32_t)rank;
}

// ---- gather ----
static bool check_slices(tt_hlo_builder *b, const char *name, const tt_hlo *in, const index_dims *d,
                         const int64_t *sizes) {
  if (in[0]->rank && !sizes) {
    return fail(b, name, in, 2, "slice_sizes are missing");
  }
  for (int32_t i = 0; i < in[0]->rank; i++) {
    if (sizes[i] < 0 || sizes[i] > in[0]->dims[i]) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2, "slice size %lld is out of range for dim %d of size %lld",
                    (long long)sizes[i], i, (long long)in[0]->dims[i]);
      return false;
    }
    if (sizes[i] > 1 && !is_window_dim(d, i)) {
      return fail(b, name, in, 2, "collapsed and batching dims must have slices of size 1");
    }
  }
  return true;
}

static bool has_empty_slice(const index_dims *d, tt_hlo x, const int64_t *sizes) {
  for (int32_t i = 0; i < x->rank; i++) {
    if (!sizes[i] && !is_window_dim(d, i)) {
      return true;
    }
  }
  return false;
}

tt_hlo tt_hlo_gather(tt_hlo x, tt_hlo indices, const tt_hlo_gather_dims *g, const int64_t *slice_sizes,
                     bool indices_sorted) {
  static const char name[] = "stablehlo.gather";
  tt_hlo in[] = {x, indices};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 2);
  if (!b) {
    return NULL;
  }
  if (!g) {
    return TT_HLO_REFUSE(TT_ERR_INTERNAL, name, "the dims are missing");
  }
  index_dims d = {g->offset_dims,       g->collapsed_dims,  g->operand_batching_dims, g->indices_batching_dims,
                  g->start_index_map,   g->offset_count,    g->collapsed_count,       g->batching_count,
                  g->start_index_count, g->index_vector_dim};
  int32_t rank = result_rank(&d, indices);
  if (rank < 0 || !check_lists(b, name, in, 2, &d, rank) || !check_slices(b, name, in, &d, slice_sizes)) {
    return rank < 0 ? TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the result's rank is out of range") : NULL;
  }
  int64_t windows[TT_MAX_RANK] = {0}, dims[TT_MAX_RANK];
  int32_t window = 0;
  for (int32_t i = 0; i < x->rank; i++) {
    if (is_window_dim(&d, i)) {
      windows[window++] = slice_sizes[i];
    }
  }
  combine(&d, indices, windows, dims);
  tt_hlo_value result = {.dtype = x->dtype, .rank = rank, .dims = dims};
  if (has_empty_slice(&d, x, slice_sizes) && tt_hlo_bad_type(x->dtype, dims, rank) == NULL && tt_hlo_numel(&result)) {
    return TT_HLO_REFUSE(TT_ERR_INDEX, name, "a result with elements can't be gathered from an empty dim");
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, "dimension_numbers = #stablehlo.gather<");
  put_list(text, "offset_dims", d.offset, d.offset_count);
  put_list(text, "collapsed_slice_dims", d.collapsed, d.collapsed_count);
  put_optional_list(text, "operand_batching_dims", d.batching, d.batching_count);
  put_optional_list(text, "start_indices_batching_dims", d.indices_batching, d.batching_count);
  put_list(text, "start_index_map", d.map, d.map_count);
  tt_strbuf_printf(text, "index_vector_dim = %d>, indices_are_sorted = %s, ", d.vector_dim,
                   indices_sorted ? "true" : "false");
  tt_hlo_put_array(text, "slice_sizes", slice_sizes, x->rank);
  return tt_hlo_emit(b, name, TT_FORM_GENERIC, in, 2, tt_strbuf_text(text), tt_hlo_type_of(&result));
}

// ---- scatter ----
static bool check_updates(tt_hlo_builder *b, const char *name, const tt_hlo *in, const index_dims *d) {
  tt_hlo x = in[0], updates = in[2];
  if (updates->dtype != x->dtype) {
    return fail(b, name, in, 3, "operand and updates must have one element type");
  }
  int64_t windows[TT_MAX_RANK] = {0}, dims[TT_MAX_RANK];
  int32_t window = 0;
  for (int32_t i = 0; i < x->rank; i++) {
    if (is_window_dim(d, i)) {
      windows[window] = updates->dims[d->offset[window]];
      if (windows[window++] > x->dims[i]) {
        return fail(b, name, in, 3, "a window of the updates is larger than the operand");
      }
    }
  }
  int32_t rank = combine(d, in[1], windows, dims);
  return tt_hlo_equal_dims(dims, rank, updates->dims, updates->rank) ||
         fail(b, name, in, 3, "the shape of the updates doesn't match the indices");
}

// A region with the update itself, or both combined.
static tt_hlo_block *scatter_region(tt_hlo_builder *b, const char *name, tt_hlo_scatter_kind kind, tt_dtype dtype) {
  static const tt_hlo_reducer reducers[] = {
      [TT_SCATTER_ADD] = TT_SUM, [TT_SCATTER_MULTIPLY] = TT_PROD, [TT_SCATTER_MAX] = TT_MAX, [TT_SCATTER_MIN] = TT_MIN};
  if (kind != TT_SCATTER_SET) {
    return tt_hlo_reducer_region(b, name, reducers[kind], dtype);
  }
  tt_hlo_type types[2] = {tt_hlo_scalar_type(dtype), tt_hlo_scalar_type(dtype)};
  tt_hlo_block *region = tt_hlo_region_begin(b, name, true, types, 2);
  if (!region) {
    return NULL;
  }
  tt_hlo update = &region->arguments->results[1];
  return tt_hlo_region_end(b, name, region, &update, types, 1) ? region : NULL;
}

static const char *scatter_attributes(tt_hlo_builder *b, const index_dims *d, bool sorted, bool unique) {
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, "scatter_dimension_numbers = #stablehlo.scatter<");
  put_list(text, "update_window_dims", d->offset, d->offset_count);
  put_list(text, "inserted_window_dims", d->collapsed, d->collapsed_count);
  put_optional_list(text, "input_batching_dims", d->batching, d->batching_count);
  put_optional_list(text, "scatter_indices_batching_dims", d->indices_batching, d->batching_count);
  put_list(text, "scatter_dims_to_operand_dims", d->map, d->map_count);
  tt_strbuf_printf(text, "index_vector_dim = %d>, indices_are_sorted = %s, unique_indices = %s", d->vector_dim,
                   sorted ? "true" : "false", unique ? "true" : "false");
  return tt_strbuf_text(text);
}

tt_hlo tt_hlo_scatter(tt_hlo_scatter_kind kind, tt_hlo x, tt_hlo indices, tt_hlo updates, const tt_hlo_scatter_dims *s,
                      bool indices_sorted, bool indices_unique) {
  static const char name[] = "stablehlo.scatter";
  tt_hlo in[] = {x, indices, updates};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 3);
  if (!b) {
    return NULL;
  }
  if (!s || (unsigned)kind > TT_SCATTER_MIN) {
    return TT_HLO_REFUSE(TT_ERR_INTERNAL, name, "the dims are missing, or no such kind: %d", (int)kind);
  }
  if (kind >= TT_SCATTER_MAX && tt_dtype_is_complex(x->dtype)) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "complex numbers have no order");
  }
  index_dims d = {
      s->update_window_dims,           s->inserted_window_dims, s->input_batching_dims, s->indices_batching_dims,
      s->scatter_dims_to_operand_dims, s->update_window_count,  s->inserted_count,      s->batching_count,
      s->scatter_dims_count,           s->index_vector_dim};
  if (!check_lists(b, name, in, 3, &d, updates->rank)) {
    return NULL;
  }
  if (result_rank(&d, indices) != updates->rank) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the updates must have rank %d", result_rank(&d, indices));
  }
  tt_hlo_block *region = check_updates(b, name, in, &d) ? scatter_region(b, name, kind, x->dtype) : NULL;
  if (!region) {
    return NULL;
  }
  tt_hlo_type type = tt_hlo_type_of(x);
  tt_hlo_op *op =
      tt_hlo_make(b, &(tt_hlo_new_op){.name = name,
                                      .form = TT_FORM_GENERIC,
                                      .operands = in,
                                      .operand_count = 3,
                                      .types = &type,
                                      .result_count = 1,
                                      .attributes = scatter_attributes(b, &d, indices_sorted, indices_unique),
                                      .regions = &region,
                                      .region_count = 1});
  return op ? &op->results[0] : NULL;
}
