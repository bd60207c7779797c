// index_select and the other index_* operators, gather, scatter, take, put, masked_scatter.
#include "aten/dims.h"

tt_dtype tt_sum_type(tt_dtype dtype) { return dtype == TT_PRED ? TT_S32 : tt_opmath(dtype); }

static bool check_index_dtype(tt_rule *r, const char *name, bool allow_int) {
  const tt_operand *index = tt_operand_of(r, name);
  if (index && index->dtype != TT_S64 && !(allow_int && index->dtype == TT_S32)) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected dtype int%s64 for index", allow_int ? "32 or int" : "");
  }
  return index && !tt_failed(r);
}

// ---- index_select, index_add, index_copy, index_fill, index_reduce ----

// The 1-d "index" argument (a 0-d one counts as one element) as positions along self's `dim`.
static tt_hlo read_index(tt_rule *r, tt_hlo self, int32_t dim, bool wrap) {
  tt_hlo index = tt_in(r, "index");
  if (!self || !index || !check_index_dtype(r, "index", true)) {
    return NULL;
  }
  if (index->rank > 1) {
    tt_fail(r, TT_ERR_INDEX, "Index is supposed to be a vector");
    return NULL;
  }
  return tt_positions(r, v_at_least_1d(index), self->dims[dim], wrap, "index");
}

static void build_index_select(tt_rule *r) {
  tt_hlo self = tt_in(r, "self"), x = v_at_least_1d(self);
  const int32_t dim = tt_dim(r, "dim", self ? self->rank : 0);
  tt_hlo positions = read_index(r, x, dim, false);
  if (!positions) {
    return;
  }
  if (self->rank == 0 && positions->dims[0] != 1) {
    tt_fail(r, TT_ERR_RUNTIME, "Index to scalar can have only 1 value, got %" PRId64 " value(s)", positions->dims[0]);
    return;
  }
  tt_hlo result = tt_take_slices(x, dim, positions);
  tt_ret(r, 0, self->rank == 0 ? v_reshape_like(result, self) : result);
}

// self, index and source of the index_* operators, checked; self and source are at least 1-d.
static bool read_index_source(tt_rule *r, tt_hlo *self, int32_t *dim, tt_hlo *positions, tt_hlo *source) {
  const tt_operand *x = tt_operand_of(r, "self"), *s = tt_operand_of(r, "source");
  if (!x || !s) {
    return false;
  }
  if (x->dtype != s->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "self (%s) and source (%s) must have the same scalar type", tt_type_name(x->dtype),
            tt_type_name(s->dtype));
    return false;
  }
  *dim = tt_dim(r, "dim", x->ndim);
  *self = v_at_least_1d(tt_in(r, "self"));
  *source = v_at_least_1d(tt_in(r, "source"));
  *positions = read_index(r, *self, *dim, false);
  if (!*positions || !*source) {
    return false;
  }
  if ((*source)->rank != (*self)->rank) {
    tt_fail(r, TT_ERR_RUNTIME,
            "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = %s "
            "source.shape = %s",
            tt_dims_text(x->sizes, x->ndim).text, tt_dims_text(s->sizes, s->ndim).text);
    return false;
  }
  for (int32_t i = 0; i < (*self)->rank; i++) {
    if (i != *dim && (*self)->dims[i] != (*source)->dims[i]) {
      tt_fail(
          r, TT_ERR_RUNTIME,
          "source tensor shape must match self tensor shape, excluding the specified dimension. Got self.shape = %s "
          "source.shape = %s",
          tt_dims_text(x->sizes, x->ndim).text, tt_dims_text(s->sizes, s->ndim).text);
      return false;
    }
  }
  if ((*positions)->dims[0] != (*source)->dims[*dim]) {
    tt_fail(r, !strncmp(tt_rule_name(r), "index_copy", 10) ? TT_ERR_INDEX : TT_ERR_RUNTIME,
            "Number of indices (%" PRId64 ") should be equal to source.size(dim): (%" PRId64 "), for dim: %d",
            (*positions)->dims[0], (*source)->dims[*dim], *dim);
    return false;
  }
  return true;
}

static void build_index_add(tt_rule *r) {
  tt_hlo self, positions, source;
  int32_t dim;
  if (!read_index_source(r, &self, &dim, &positions, &source)) {
    return;
  }
  const tt_dtype dtype = self->dtype, compute = tt_sum_type(dtype);
  double alpha = 0;
  tt_hlo updates = tt_cast(source, compute);
  if (!tt_scalar_known(r, "alpha", &alpha) || alpha != 1) {
    updates = v_mul(updates, v_like(tt_scalar(r, "alpha", compute), updates));
  }
  tt_hlo result = tt_put_slices(TT_SCATTER_ADD, tt_cast(self, compute), dim, positions, updates);
  tt_ret(r, 0, v_reshape_like(tt_cast(result, dtype), tt_in(r, "self")));
}

static void build_index_copy(tt_rule *r) {
  tt_hlo self, positions, source;
  int32_t dim;
  if (read_index_source(r, &self, &dim, &positions, &source)) {
    tt_ret(r, 0, v_reshape_like(tt_put_slices(TT_SCATTER_SET, self, dim, positions, source), tt_in(r, "self")));
  }
}

// 1-d flags of the positions that occur.
static tt_hlo touched(tt_hlo positions, int64_t size) {
  if (!positions) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(positions);
  tt_hlo none = tt_hlo_const(b, TT_PRED, 0, &size, 1);
  tt_hlo yes = tt_hlo_const(b, TT_PRED, 1, positions->dims, positions->rank);
  return tt_put_flat(TT_SCATTER_SET, none, positions, yes);
}

static void build_index_fill(tt_rule *r) {
  const tt_operand *value = tt_operand_of(r, "value");
  tt_hlo self = tt_in(r, "self"), x = v_at_least_1d(self);
  const int32_t dim = tt_dim(r, "dim", self ? self->rank : 0);
  if (value && value->ndim > 0) {
    tt_fail(r, TT_ERR_RUNTIME, "only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
            value->ndim);
    return;
  }
  tt_hlo positions = read_index(r, x, dim, true);
  if (!positions) {
    return;
  }
  tt_hlo hit = v_along(touched(positions, x->dims[dim]), x->dims, x->rank, dim);
  tt_hlo result = v_if(hit, v_like(tt_in_number(r, "value", x->dtype), x), x);
  tt_ret_like(r, 0, v_reshape_like(result, self), "self");
}

// ---- scatter_reduce and index_reduce ----
typedef enum reduce_kind { BY_SUM, BY_PROD, BY_MEAN, BY_AMAX, BY_AMIN, BY_NOTHING } reduce_kind;

static reduce_kind read_reduce(tt_rule *r, bool with_sum) {
  static const char *const names[] = {"sum", "prod", "mean", "amax", "amin"};
  const char *name = tt_string(r, "reduce");
  for (int32_t i = with_sum ? 0 : 1; name && i < BY_NOTHING; i++) {
    if (!strcmp(name, names[i])) {
      return (reduce_kind)i;
    }
  }
  tt_fail(r, TT_ERR_RUNTIME,
          with_sum ? "reduce argument must be either sum, prod, mean, amax or amin, got %s"
                   : "Expected reduce to be one of prod, mean, amax or amin but got %s.",
          name ? name : "");
  return BY_NOTHING;
}

static tt_hlo identity_of(reduce_kind how, tt_hlo like) {
  if (!like) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(like);
  switch (how) {
    case BY_AMAX:
      return v_like(tt_hlo_min_value(b, like->dtype), like);
    case BY_AMIN:
      return v_like(tt_hlo_max_value(b, like->dtype), like);
    default:
      return v_const(like, how == BY_PROD);
  }
}

static const tt_hlo_scatter_kind SCATTER_OF[] = {TT_SCATTER_ADD, TT_SCATTER_MULTIPLY, TT_SCATTER_ADD, TT_SCATTER_MAX,
                                                 TT_SCATTER_MIN};

// x / count, integers rounded down; count > 0.
static tt_hlo mean_by(tt_hlo x, tt_hlo count) {
  if (!x || !tt_dtype_is_signed_int(x->dtype)) {
    return v_div(x, count);
  }
  tt_hlo negative = v_ltc(tt_hlo_binary(TT_REMAINDER, x, count), 0);
  return v_sub(v_div(x, count), tt_cast(negative, x->dtype));
}

// Reduces `updates` into the 1-d x at positions of the same shape.
static tt_hlo reduce_flat(tt_hlo x, tt_hlo positions, tt_hlo updates, reduce_kind how, bool include_self) {
  if (!x || !positions || !updates) {
    return NULL;
  }
  const tt_dtype dtype = x->dtype, compute = tt_sum_type(dtype);
  x = tt_cast(x, compute);
  tt_hlo start = include_self ? x : v_if(touched(positions, x->dims[0]), identity_of(how, x), x);
  tt_hlo result = tt_put_flat(SCATTER_OF[how], start, positions, tt_cast(updates, compute));
  if (how == BY_MEAN && result) {
    tt_hlo one = tt_hlo_const(tt_hlo_builder_of(x), compute, 1, positions->dims, positions->rank);
    tt_hlo count = tt_put_flat(TT_SCATTER_ADD, v_const(x, include_self ? 1 : 0), positions, one);
    result = mean_by(result, include_self || !count ? count : v_max(count, v_const(count, 1)));
  }
  return tt_cast(result, dtype);
}

static void build_index_reduce(tt_rule *r) {
  tt_hlo self, positions, source;
  int32_t dim;
  const reduce_kind how = read_reduce(r, false);
  if (tt_failed(r) || !read_index_source(r, &self, &dim, &positions, &source)) {
    return;
  }
  tt_hlo at = tt_flat_positions(self, dim, v_along(positions, source->dims, source->rank, dim));
  tt_hlo result = reduce_flat(v_flat(self), at, source, how, tt_bool(r, "include_self", true));
  tt_ret(r, 0, v_reshape_like(result, tt_in(r, "self")));
}

// ---- gather, scatter ----

// self and index, at least 1-d, and positions of index in the flattened self.
static bool read_scatter(tt_rule *r, tt_hlo *self, tt_hlo *index, int32_t *dim) {
  *self = v_at_least_1d(tt_in(r, "self"));
  *index = v_at_least_1d(tt_in(r, "index"));
  const tt_operand *x = tt_operand_of(r, "self"), *out = tt_operand_of(r, "out");
  *dim = tt_dim(r, "dim", x ? x->ndim : 0);
  if (x && out && x->dtype != out->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected out tensor to have dtype %s, but got %s instead", tt_type_meta_name(x->dtype),
            tt_type_meta_name(out->dtype));
  }
  // An index without elements may be of any type.
  return *self && *index && !tt_failed(r) && (tt_hlo_numel(*index) == 0 || check_index_dtype(r, "index", true));
}

static bool larger_outside(tt_hlo index, tt_hlo than, int32_t dim) {
  for (int32_t i = 0; i < index->rank; i++) {
    if (i != dim && index->dims[i] > than->dims[i]) {
      return true;
    }
  }
  return false;
}

static void build_gather(tt_rule *r) {
  tt_hlo self, index;
  int32_t dim;
  if (!read_scatter(r, &self, &index, &dim)) {
    return;
  }
  tt_hlo shape = tt_in(r, "index");
  if (tt_hlo_numel(index) == 0) {
    tt_ret(r, 0, tt_hlo_const(tt_b(r), self->dtype, 0, shape->dims, shape->rank));
    return;
  }
  if (index->rank != self->rank) {
    tt_fail(r, TT_ERR_RUNTIME, "Index tensor must have the same number of dimensions as input tensor");
    return;
  }
  for (int32_t i = 0; i < index->rank; i++) {
    if (i != dim && index->dims[i] > self->dims[i]) {
      tt_fail(
          r, TT_ERR_RUNTIME,
          "Size does not match at dimension %d expected index %s to be no larger than self %s apart from dimension %d",
          i, tt_dims_text(index->dims, index->rank).text, tt_dims_text(self->dims, self->rank).text, dim);
      return;
    }
  }
  tt_hlo positions = tt_positions(r, index, self->dims[dim], false, "index");
  tt_ret(r, 0, v_reshape_like(tt_take_along(self, dim, positions), shape));
}

// The source of a scatter: "src" cut to the index's shape, or "value".
static tt_hlo scatter_source(tt_rule *r, tt_hlo self, tt_hlo index, int32_t dim) {
  if (!tt_operand_of(r, "src")) {
    return tt_has(r, "value") ? v_like(tt_scalar(r, "value", self->dtype), index) : NULL;
  }
  tt_hlo src = v_at_least_1d(tt_in(r, "src"));
  if (!src) {
    return NULL;
  }
  if (src->dtype != self->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected self.dtype to be equal to src.dtype");
    return NULL;
  }
  if (src->rank != index->rank) {
    tt_fail(r, TT_ERR_RUNTIME, "Index tensor must have the same number of dimensions as src tensor");
    return NULL;
  }
  bool fits = true;
  for (int32_t i = 0; fits && i < index->rank; i++) {
    fits = index->dims[i] <= src->dims[i];
  }
  if (!fits || larger_outside(index, self, dim)) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "Expected index %s to be no larger than self %s apart from dimension %d and to be no larger size than src %s",
        tt_dims_text(index->dims, index->rank).text, tt_dims_text(self->dims, self->rank).text, dim,
        tt_dims_text(src->dims, src->rank).text);
    return NULL;
  }
  const int64_t start[TT_MAX_RANK] = {0};
  return tt_hlo_slice(src, start, index->dims, NULL);
}

// What a scatter does where it stores: by operator, or by the old "reduce" argument (add, multiply).
enum { SCATTER_BY_NAME, SCATTER_SUM, SCATTER_TWO };

static void build_scatter(tt_rule *r) {
  tt_hlo self, index;
  int32_t dim;
  reduce_kind how = tt_rule_kind(r) == SCATTER_SUM ? BY_SUM : BY_NOTHING;
  if (tt_rule_kind(r) == SCATTER_TWO) {
    how = read_reduce(r, true);
  } else if (tt_has(r, "reduce")) {
    const char *name = tt_string(r, "reduce");
    how = !strcmp(name, "add") ? BY_SUM : BY_PROD;
    if (how == BY_PROD && strcmp(name, "multiply") != 0) {
      tt_fail(r, TT_ERR_RUNTIME, "reduce argument must be either add or multiply.");
    }
  }
  if (tt_failed(r) || !read_scatter(r, &self, &index, &dim)) {
    return;
  }
  if (tt_hlo_numel(index) == 0) {
    tt_ret(r, 0, tt_in(r, "self"));
    return;
  }
  if (index->rank != self->rank) {
    tt_fail(r, TT_ERR_RUNTIME, "Index tensor must have the same number of dimensions as self tensor");
    return;
  }
  tt_hlo source = scatter_source(r, self, index, dim);
  if (source && larger_outside(index, self, dim)) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected index %s to be no larger than self %s apart from dimension %d",
            tt_dims_text(index->dims, index->rank).text, tt_dims_text(self->dims, self->rank).text, dim);
    return;
  }
  tt_hlo at = tt_flat_positions(self, dim, tt_positions(r, index, self->dims[dim], false, "index"));
  tt_hlo flat = v_flat(self);
  tt_hlo result = how == BY_NOTHING ? tt_put_flat(TT_SCATTER_SET, flat, at, source)
                                    : reduce_flat(flat, at, source, how, tt_bool(r, "include_self", true));
  tt_ret(r, 0, v_reshape_like(result, tt_in(r, "self")));
}

// ---- take, put: positions in the flattened tensor ----
static void build_take(tt_rule *r) {
  const tt_operand *index = tt_operand_of(r, "index");
  if (index && index->dtype != TT_S64) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected a long tensor for index, but got %s", tt_type_name(index->dtype));
    return;
  }
  tt_hlo x = v_flat(tt_in(r, "self"));
  if (x && index && x->dims[0] == 0 && tt_hlo_numel(tt_in(r, "index")) > 0) {
    tt_fail(r, TT_ERR_INDEX, "tried to take from an empty tensor");
    return;
  }
  tt_hlo positions = tt_positions(r, tt_in(r, "index"), tt_hlo_numel(x), true, "index");
  tt_ret(r, 0, tt_take_flat(x, positions));
}

static void build_put(tt_rule *r) {
  const tt_operand *index = tt_operand_of(r, "index"), *self = tt_operand_of(r, "self"),
                   *operand = tt_operand_of(r, "source");
  if (!index || !self || !operand) {
    return;
  }
  if (index->dtype != TT_S64) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected a long tensor for index, but got %s", tt_type_name(index->dtype));
    return;
  }
  if (self->dtype != operand->dtype) {
    tt_fail(r, TT_ERR_RUNTIME,
            "self and source expected to have the same dtype, but got self.dtype = %s and "
            "source.dtype = %s",
            tt_type_name(self->dtype), tt_type_name(operand->dtype));
    return;
  }
  tt_hlo x = tt_in(r, "self"), source = v_flat(tt_in(r, "source"));
  if (tt_hlo_numel(source) != tt_hlo_numel(tt_in(r, "index"))) {
    tt_fail(r, TT_ERR_INDEX,
            "Expected source and index to have the same number of elements, but got source.numel() = %" PRId64
            ", index.numel() = %" PRId64,
            tt_hlo_numel(source), tt_hlo_numel(tt_in(r, "index")));
    return;
  }
  tt_hlo positions = v_flat(tt_positions(r, tt_in(r, "index"), tt_hlo_numel(x), true, "index"));
  tt_hlo result = tt_bool(r, "accumulate", false) ? reduce_flat(v_flat(x), positions, source, BY_SUM, true)
                                                  : tt_put_flat(TT_SCATTER_SET, v_flat(x), positions, source);
  tt_ret_like(r, 0, v_reshape_like(result, x), "self");
}

// ---- masked_scatter ----

// For each element of a mask: how many true ones come before it, in memory order; flattened.
static tt_hlo rank_among_true(tt_hlo mask) {
  tt_hlo count = tt_cast(v_flat(mask), v_position_type(tt_hlo_numel(mask)));
  return v_sub(tt_running(TT_SUM, count, 0), count);
}

static void build_masked_scatter(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self"), *mask = tt_operand_of(r, "mask"), *s = tt_operand_of(r, "source");
  if (!self || !mask || !s) {
    return;
  }
  if (self->dtype != s->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "masked_scatter: expected self and source to have same dtypes but got %s and %s",
            tt_type_name(self->dtype), tt_type_name(s->dtype));
    return;
  }
  if (mask->dtype != TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "masked_scatter_ only supports boolean masks, but got mask with dtype %s",
            tt_type_name(mask->dtype));
    return;
  }
  tt_hlo v[] = {tt_in(r, "self"), tt_in(r, "mask")}, source = v_flat(tt_in(r, "source"));
  if (!tt_broadcast(r, v, 2) || !source) {
    return;
  }
  tt_hlo at = rank_among_true(v[1]), flat_mask = v_flat(v[1]);
  tt_hlo enough =
      at ? v_or(v_not(flat_mask), v_lt(at, tt_hlo_const_int(tt_b(r), at->dtype, source->dims[0], at->dims, 1))) : NULL;
  tt_device_assert(r, enough, TT_ERR_RUNTIME, "Number of elements of source < number of ones in mask");
  tt_hlo result = v_if(v_and(flat_mask, enough), tt_take_flat(source, at), v_flat(v[0]));
  tt_ret(r, 0, v_reshape_like(result, v[0]));
}

// The selected gradients, packed, with zeros after them.
static void build_masked_scatter_backward(tt_rule *r) {
  int32_t rank;
  const int64_t *sizes = tt_ints(r, "sizes", &rank);
  tt_hlo v[] = {tt_in(r, "grad_output"), tt_in_as(r, "mask", TT_PRED)};
  if (!tt_broadcast(r, v, 2)) {
    return;
  }
  int64_t numel = tt_ints_numel(r, "sizes");
  tt_hlo at = rank_among_true(v[1]);
  at = at ? v_if(v_flat(v[1]), at, v_const(at, -1)) : NULL;
  tt_hlo zeros = tt_hlo_const(tt_b(r), v[0]->dtype, 0, &numel, 1);
  tt_ret(r, 0, tt_hlo_reshape(tt_put_flat(TT_SCATTER_SET, zeros, at, v_flat(v[0])), sizes, rank));
}

// `others`: the operands that may not lie in the written tensor's memory.
#define ENTRY(rule_name, function, rule_kind, others) \
  {.name = "aten::" rule_name, .build = function, .kind = rule_kind, .apart = others}

const tt_rule_entry tt_rules_scatter[] = {
    ENTRY("index_select", build_index_select, 0, "self,index"),
    ENTRY("index_add", build_index_add, 0, "index,source"),
    ENTRY("index_copy", build_index_copy, 0, "index,source"),
    ENTRY("index_fill.int_Scalar", build_index_fill, 0, "index"),
    ENTRY("index_fill.int_Tensor", build_index_fill, 0, "index"),
    ENTRY("index_reduce", build_index_reduce, 0, "index,source"),
    ENTRY("gather", build_gather, 0, "self"),
    ENTRY("scatter.src", build_scatter, SCATTER_BY_NAME, "index,src"),
    ENTRY("scatter.value", build_scatter, SCATTER_BY_NAME, "index,src"),
    ENTRY("scatter.reduce", build_scatter, SCATTER_BY_NAME, "index,src"),
    ENTRY("scatter.value_reduce", build_scatter, SCATTER_BY_NAME, "index,src"),
    ENTRY("scatter_add", build_scatter, SCATTER_SUM, "index,src"),
    ENTRY("scatter_reduce.two", build_scatter, SCATTER_TWO, "index,src"),
    ENTRY("take", build_take, 0, "self,index"),
    ENTRY("put", build_put, 0, "index,source"),
    ENTRY("masked_scatter", build_masked_scatter, 0, NULL),
    ENTRY("masked_scatter_backward", build_masked_scatter_backward, 0, NULL),
    {.name = NULL},
};
