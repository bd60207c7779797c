// Indexing with tensors: what gathers and scatters are made of, index and index_put.
//
// Positions are checked by tt_checked_index, which turns those outside into `size`: gathers then clamp, scatters drop.
#include "aten/dims.h"

// ---- building blocks ----

tt_hlo tt_positions(tt_rule *r, tt_hlo index, int64_t size, bool wrap, const char *what) {
  return tt_cast(tt_checked_index(r, index, size, wrap, what), v_position_type(size));
}

tt_hlo tt_take_flat(tt_hlo x, tt_hlo positions) {
  if (!x || !positions) {
    return NULL;
  }
  if (x->dims[0] == 0) {  // nothing to take: the positions are none, or none is valid
    return tt_hlo_const(tt_hlo_builder_of(x), x->dtype, 0, positions->dims, positions->rank);
  }
  const int32_t zero = 0;
  const int64_t one = 1;
  const tt_hlo_gather_dims dims = {.collapsed_dims = &zero,
                                   .collapsed_count = 1,
                                   .start_index_map = &zero,
                                   .start_index_count = 1,
                                   .index_vector_dim = positions->rank};
  return tt_hlo_gather(x, v_unsqueeze(positions, positions->rank), &dims, &one, false);
}

tt_hlo tt_put_flat(tt_hlo_scatter_kind kind, tt_hlo x, tt_hlo positions, tt_hlo updates) {
  if (!x || !positions || tt_hlo_numel(positions) == 0 || x->dims[0] == 0) {
    return updates ? x : NULL;
  }
  const int32_t zero = 0;
  const tt_hlo_scatter_dims dims = {.inserted_window_dims = &zero,
                                    .inserted_count = 1,
                                    .scatter_dims_to_operand_dims = &zero,
                                    .scatter_dims_count = 1,
                                    .index_vector_dim = positions->rank};
  return tt_hlo_scatter(kind, x, v_unsqueeze(positions, positions->rank), updates, &dims, false, false);
}

tt_hlo tt_flat_positions(tt_hlo like, int32_t dim, tt_hlo positions) {
  if (!like || !positions) {
    return NULL;
  }
  const int64_t numel = tt_hlo_numel(like);
  const tt_dtype type = v_position_type(numel);
  tt_hlo at = tt_cast(positions, type), flat = NULL;
  int64_t stride = 1;
  for (int32_t i = like->rank - 1; i >= 0; i--) {
    if (i == dim || like->dims[i] != 1) {
      tt_hlo step = v_mulc(i == dim ? at : v_iota(at, type, i), (double)stride);
      flat = flat ? v_add(flat, step) : step;
    }
    stride *= like->dims[i];
  }
  tt_hlo inside = v_and(v_gec(at, 0), v_ltc(at, (double)like->dims[dim]));
  return v_if(inside, flat, v_const(at, -1));
}

tt_hlo tt_take_along(tt_hlo x, int32_t dim, tt_hlo positions) {
  return tt_take_flat(v_flat(x), tt_flat_positions(x, dim, positions));
}

// Dims 0 to rank without [at, at + count).
static int32_t dims_around(int32_t *out, int32_t rank, int32_t at, int32_t count) {
  int32_t n = 0;
  for (int32_t i = 0; i < rank; i++) {
    if (i < at || i >= at + count) {
      out[n++] = i;
    }
  }
  return n;
}

// Whether `positions` is a list of places along a dim that x has.
static bool check_slices(tt_hlo x, int32_t dim, tt_hlo positions) {
  if (dim >= 0 && dim < x->rank && positions->rank == 1) {
    return true;
  }
  tt_hlo_fail(tt_hlo_builder_of(x), tt_error(TT_ERR_RUNTIME, "a %d-D index into dimension %d of a %d-D tensor",
                                             positions->rank, dim, x->rank));
  return false;
}

tt_hlo tt_take_slices(tt_hlo x, int32_t dim, tt_hlo positions) {
  if (!x || !positions || !check_slices(x, dim, positions)) {
    return NULL;
  }
  int64_t sizes[V_DIMS], result[V_DIMS];
  int32_t offsets[V_DIMS];
  for (int32_t i = 0; i < x->rank; i++) {
    sizes[i] = i == dim ? 1 : x->dims[i];
    result[i] = i == dim ? positions->dims[0] : x->dims[i];
  }
  if (x->dims[dim] == 0) {
    return tt_hlo_const(tt_hlo_builder_of(x), x->dtype, 0, result, x->rank);
  }
  const tt_hlo_gather_dims dims = {.offset_dims = offsets,
                                   .offset_count = dims_around(offsets, x->rank, dim, 1),
                                   .collapsed_dims = &dim,
                                   .collapsed_count = 1,
                                   .start_index_map = &dim,
                                   .start_index_count = 1,
                                   .index_vector_dim = 1};
  return tt_hlo_gather(x, v_unsqueeze(positions, 1), &dims, sizes, false);
}

tt_hlo tt_put_slices(tt_hlo_scatter_kind kind, tt_hlo x, int32_t dim, tt_hlo positions, tt_hlo updates) {
  if (!x || !positions || tt_hlo_numel(x) == 0 || tt_hlo_numel(positions) == 0) {
    return updates ? x : NULL;
  }
  if (!check_slices(x, dim, positions)) {
    return NULL;
  }
  int32_t window[V_DIMS];
  const tt_hlo_scatter_dims dims = {.update_window_dims = window,
                                    .update_window_count = dims_around(window, x->rank, dim, 1),
                                    .inserted_window_dims = &dim,
                                    .inserted_count = 1,
                                    .scatter_dims_to_operand_dims = &dim,
                                    .scatter_dims_count = 1,
                                    .index_vector_dim = 1};
  return tt_hlo_scatter(kind, x, v_unsqueeze(positions, 1), updates, &dims, false, false);
}

// ---- index, index_put ----

// Which dims of self are indexed, by what, and where the indexed dims stand in the result.
typedef struct index_plan {
  tt_hlo self;
  tt_hlo at[TT_MAX_RANK];  // positions, of one shape and type
  int32_t dims[TT_MAX_RANK], count;
  int64_t result[V_DIMS];           // dims of the result
  int32_t rank, place, batch_rank;  // the index shape is result[place, place + batch_rank)
} index_plan;

static const char *const INDICES = "indices";

static bool check_indices(tt_rule *r, tt_hlo self, int32_t listed) {
  if (listed > self->rank) {
    tt_fail(r, TT_ERR_INDEX, "too many indices for tensor of dimension %d", self->rank);
    return false;
  }
  for (int32_t i = 0; i < listed; i++) {
    const tt_operand *index = tt_operand_at(r, INDICES, i);
    if (index && index->dtype != TT_S64 && index->dtype != TT_S32 && index->dtype != TT_U8) {
      tt_fail(r, TT_ERR_INDEX, "tensors used as indices must be long, int, byte or bool tensors");
      return false;
    }
  }
  return true;
}

static bool broadcast_indices(tt_rule *r, index_plan *p) {
  int64_t dims[TT_MAX_RANK];
  int32_t rank = 0;
  for (int32_t i = 0; i < p->count; i++) {
    if (!p->at[i]) {
      return false;
    }
    rank = p->at[i]->rank > rank ? p->at[i]->rank : rank;
  }
  for (int32_t d = 0; d < rank; d++) {
    dims[d] = 1;
    for (int32_t i = 0; i < p->count; i++) {
      const int32_t own = d - (rank - p->at[i]->rank);
      const int64_t size = own >= 0 ? p->at[i]->dims[own] : 1;
      if (size != 1 && dims[d] != 1 && size != dims[d]) {
        tt_fail(r, TT_ERR_INDEX, "shape mismatch: indexing tensors could not be broadcast together with shapes %s, %s",
                tt_dims_text(p->at[0]->dims, p->at[0]->rank).text, tt_dims_text(p->at[i]->dims, p->at[i]->rank).text);
        return false;
      }
      dims[d] = size != 1 ? size : dims[d];
    }
  }
  for (int32_t i = 0; i < p->count; i++) {
    p->at[i] = tt_hlo_broadcast_to(p->at[i], dims, rank);
  }
  p->batch_rank = rank;
  return true;
}

static bool read_index_plan(tt_rule *r, index_plan *p) {
  *p = (index_plan){.self = tt_in(r, "self")};
  const int32_t listed = tt_list_length(r, INDICES);
  if (!p->self || !check_indices(r, p->self, listed)) {
    return false;
  }
  tt_dtype type = TT_S32;
  bool adjacent = true;
  for (int32_t i = 0; i < listed; i++) {
    if (!tt_operand_at(r, INDICES, i)) {
      continue;
    }
    const int64_t size = p->self->dims[i];
    tt_hlo index = tt_in_at(r, INDICES, i);
    if (size == 0 && tt_hlo_numel(index) > 0) {
      tt_fail(r, TT_ERR_INDEX, "index is out of bounds for dimension with size 0");
      return false;
    }
    type = v_position_type(size) == TT_S64 ? TT_S64 : type;
    adjacent = adjacent && (p->count == 0 || p->dims[p->count - 1] == i - 1);
    p->dims[p->count] = i;
    p->at[p->count++] = tt_positions(r, index, size, true, "index");
  }
  if (p->count == 0 || !broadcast_indices(r, p)) {
    return false;
  }
  for (int32_t i = 0; i < p->count; i++) {
    p->at[i] = tt_cast(p->at[i], type);
  }
  if (!p->at[0]) {
    return false;
  }
  p->place = adjacent ? p->dims[0] : 0;
  // Dims before the index's place, the index's, the rest.
  bool indexed[TT_MAX_RANK] = {false};
  for (int32_t i = 0; i < p->count; i++) {
    indexed[p->dims[i]] = true;
  }
  for (int32_t i = 0, kept = 0; i <= p->self->rank; i++) {
    if (kept == p->place && p->rank == p->place) {
      memcpy(p->result + p->rank, p->at[0]->dims, sizeof(int64_t) * (size_t)p->batch_rank);
      p->rank += p->batch_rank;
    }
    if (i < p->self->rank && !indexed[i]) {
      p->result[p->rank++] = p->self->dims[i];
      kept++;
    }
  }
  return true;
}

// [index shape..., number of indexed dims]
static tt_hlo index_vectors(const index_plan *p) {
  tt_hlo parts[TT_MAX_RANK];
  for (int32_t i = 0; i < p->count; i++) {
    parts[i] = v_unsqueeze(p->at[i], p->batch_rank);
  }
  return p->count == 1 ? parts[0] : tt_hlo_concatenate(parts, p->count, p->batch_rank);
}

// Order of the result's dims in memory, outermost first, as CPU's TensorIterator allocates it over self (stride 0 in
// the indexed dims) and the indices (stride 0 elsewhere).
typedef struct stride_table {
  int64_t strides[TT_MAX_RANK + 1][V_DIMS];
  int32_t operands;
} stride_table;

static void fill_strides(tt_rule *r, const index_plan *p, stride_table *t) {
  const tt_operand *self = tt_operand_of(r, "self");
  memset(t, 0, sizeof *t);
  t->operands = p->count + 1;
  int32_t kept = 0;
  for (int32_t i = 0, next = 0; i < self->ndim; i++) {
    if (next < p->count && p->dims[next] == i) {
      next++;
      continue;
    }
    t->strides[0][kept < p->place ? kept : kept + p->batch_rank] = self->strides[i];
    kept++;
  }
  for (int32_t k = 0; k < p->count; k++) {
    const tt_operand *index = tt_operand_at(r, INDICES, p->dims[k]);
    for (int32_t d = 0; d < index->ndim; d++) {
      const int32_t to = p->place + p->batch_rank - index->ndim + d;
      t->strides[k + 1][to] = index->sizes[d] == p->result[to] ? index->strides[d] : 0;
    }
  }
}

static int compare_strides(const stride_table *t, const int64_t *sizes, int32_t a, int32_t b) {
  for (int32_t i = 0; i < t->operands; i++) {
    const int64_t sa = t->strides[i][a], sb = t->strides[i][b];
    if (sa == 0 || sb == 0) {
      continue;
    }
    if (sa != sb) {
      return sa > sb ? 1 : -1;
    }
    if (sizes[a] > sizes[b]) {
      return 1;
    }
  }
  return 0;
}

static void index_result_order(tt_rule *r, const index_plan *p, int32_t *order) {
  stride_table t;
  fill_strides(r, p, &t);
  int32_t inner[V_DIMS];
  for (int32_t i = 0; i < p->rank; i++) {
    inner[i] = p->rank - 1 - i;
  }
  for (int32_t i = 1; i < p->rank; i++) {
    for (int32_t j = i - 1, moving = i; j >= 0; j--) {
      const int comparison = compare_strides(&t, p->result, inner[j], inner[moving]);
      if (comparison < 0) {
        break;
      }
      if (comparison > 0) {
        const int32_t swap = inner[j];
        inner[j] = inner[moving];
        inner[moving] = swap;
        moving = j;
      }
    }
  }
  for (int32_t i = 0; i < p->rank; i++) {
    order[i] = inner[p->rank - 1 - i];
  }
}

static tt_hlo gather_plan(const index_plan *p) {
  int64_t numel = 1, sizes[TT_MAX_RANK];
  for (int32_t i = 0; i < p->rank; i++) {
    numel *= p->result[i];
  }
  if (numel == 0) {
    return tt_hlo_const(tt_hlo_builder_of(p->self), p->self->dtype, 0, p->result, p->rank);
  }
  memcpy(sizes, p->self->dims, sizeof(int64_t) * (size_t)p->self->rank);
  for (int32_t i = 0; i < p->count; i++) {
    sizes[p->dims[i]] = 1;
  }
  int32_t offsets[V_DIMS];
  const tt_hlo_gather_dims dims = {.offset_dims = offsets,
                                   .offset_count = dims_around(offsets, p->rank, p->place, p->batch_rank),
                                   .collapsed_dims = p->dims,
                                   .collapsed_count = p->count,
                                   .start_index_map = p->dims,
                                   .start_index_count = p->count,
                                   .index_vector_dim = p->batch_rank};
  return tt_hlo_gather(p->self, index_vectors(p), &dims, sizes, false);
}

static void build_index(tt_rule *r) {
  index_plan p;
  if (!read_index_plan(r, &p)) {
    if (!tt_failed(r)) {
      tt_ret(r, 0, p.self);  // every index is None
    }
    return;
  }
  int32_t order[V_DIMS];
  index_result_order(r, &p, order);
  tt_ret_iterated(r, 0, gather_plan(&p), order);
}

// `values` broadcast to the result's shape; leading 1s may be dropped.
static tt_hlo values_for(tt_rule *r, const index_plan *p, tt_hlo values) {
  if (!values) {
    return NULL;
  }
  tt_hlo v = values;
  while (v && v->rank > p->rank && v->dims[0] == 1) {
    v = v_squeeze(v, 0);
  }
  bool fits = v && v->rank <= p->rank;
  for (int32_t i = 0; fits && i < v->rank; i++) {
    fits = v->dims[i] == 1 || v->dims[i] == p->result[p->rank - v->rank + i];
  }
  if (!fits) {
    tt_fail(r, TT_ERR_RUNTIME,
            "shape mismatch: value tensor of shape %s cannot be broadcast to indexing result of shape %s",
            tt_dims_text(values->dims, values->rank).text, tt_dims_text(p->result, p->rank).text);
    return NULL;
  }
  return tt_hlo_broadcast_to(v, p->result, p->rank);
}

static void build_index_put(tt_rule *r) {
  index_plan p;
  const tt_operand *self = tt_operand_of(r, "self"), *operand = tt_operand_of(r, "values");
  if (self && operand && self->dtype != operand->dtype) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "Index put requires the source and destination dtypes match, got %s for the destination and %s for the source.",
        tt_type_name(self->dtype), tt_type_name(operand->dtype));
    return;
  }
  if (!read_index_plan(r, &p)) {
    if (!tt_failed(r)) {
      tt_fail(r, TT_ERR_RUNTIME, "at least one index must be a tensor");
    }
    return;
  }
  const bool accumulate = tt_bool(r, "accumulate", false);
  const tt_dtype dtype = p.self->dtype, compute = accumulate ? tt_sum_type(dtype) : dtype;
  tt_hlo values = values_for(r, &p, tt_cast(tt_in(r, "values"), compute));
  if (!values) {
    return;
  }
  tt_hlo result = p.self;
  if (tt_hlo_numel(values) > 0) {
    int32_t window[V_DIMS];
    const tt_hlo_scatter_dims dims = {.update_window_dims = window,
                                      .update_window_count = dims_around(window, p.rank, p.place, p.batch_rank),
                                      .inserted_window_dims = p.dims,
                                      .inserted_count = p.count,
                                      .scatter_dims_to_operand_dims = p.dims,
                                      .scatter_dims_count = p.count,
                                      .index_vector_dim = p.batch_rank};
    result = tt_cast(tt_hlo_scatter(accumulate ? TT_SCATTER_ADD : TT_SCATTER_SET, tt_cast(p.self, compute),
                                    index_vectors(&p), values, &dims, false, false),
                     dtype);
  }
  tt_ret_like(r, 0, result, "self");
}

const tt_rule_entry tt_rules_index[] = {
    {.name = "aten::index.Tensor", .build = build_index, .apart = "self,indices"},
    {.name = "aten::_unsafe_index.Tensor", .build = build_index},
    {.name = "aten::index_put", .build = build_index_put, .apart = "indices,values"},
    {.name = "aten::_unsafe_index_put", .build = build_index_put, .apart = "indices,values"},
    {.name = "aten::_index_put_impl", .build = build_index_put, .apart = "indices,values"},
    {.name = NULL},
};
