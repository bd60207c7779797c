// Sort and top_k.
#include "hlo/internal.h"

// XLA dies of sorts of 2^38 elements (SIGFPE); no device holds as many as this.
static const int64_t max_sorted = (int64_t)1 << 34;

// ---- the comparator: a strict weak order, or XLA corrupts memory ----
static bool can_be_nan(tt_hlo x) { return tt_dtype_is_float(x->dtype); }

// Whether x comes before y, ascending, NaN greatest; all NaNs are equal, and so are -0 and +0.
static tt_hlo before(tt_hlo x, tt_hlo y) {
  tt_hlo less = tt_hlo_compare(TT_LT, x, y);
  if (!x || !y || !can_be_nan(x)) {
    return less;
  }
  tt_hlo only_y_is_nan = tt_hlo_binary(TT_AND, tt_hlo_compare(TT_EQ, x, x), tt_hlo_compare(TT_NE, y, y));
  return tt_hlo_binary(TT_OR, less, only_y_is_nan);
}

static tt_hlo comparator(const tt_hlo_value *args, bool descending, bool by_two) {
  tt_hlo x = &args[descending ? 1 : 0], y = &args[descending ? 0 : 1];
  tt_hlo first = before(x, y);
  if (!by_two) {
    return first;
  }
  tt_hlo tie = tt_hlo_unary(TT_NOT, before(y, x));
  return tt_hlo_binary(TT_OR, first, tt_hlo_binary(TT_AND, tie, before(&args[2], &args[3])));
}

static tt_hlo_block *sort_region(tt_hlo_builder *b, const char *name, const tt_hlo *xs, int32_t count, bool descending,
                                 bool by_two) {
  tt_hlo_type *types = tt_arena_alloc(&b->arena, 2 * (size_t)count * sizeof *types);
  if (!types) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  for (int32_t i = 0; i < 2 * count; i++) {
    types[i] = tt_hlo_scalar_type(xs[i / 2]->dtype);
  }
  tt_hlo_block *region = tt_hlo_region_begin(b, name, true, types, 2 * count);
  if (!region) {
    return NULL;
  }
  tt_hlo less = comparator(region->arguments->results, descending, by_two);
  tt_hlo_type pred = tt_hlo_scalar_type(TT_PRED);
  return tt_hlo_region_end(b, name, region, &less, &pred, 1) ? region : NULL;
}

static bool check_sort(tt_hlo_builder *b, const char *name, const tt_hlo *xs, int32_t count, int32_t dim, bool by_two) {
  if (!tt_hlo_check_dim_set(b, name, xs, count, "dim", &dim, 1, xs[0]->rank)) {
    return false;
  }
  for (int32_t i = 1; i < count; i++) {
    if (!tt_hlo_same_dims(xs[i], xs[0])) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, xs, count, "the operands must have one shape");
      return false;
    }
  }
  if (by_two && count < 2) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, name, xs, count, "there is no second operand to sort by");
    return false;
  }
  if (tt_dtype_is_complex(xs[0]->dtype) || (by_two && tt_dtype_is_complex(xs[1]->dtype))) {
    tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, name, xs, count, "complex numbers have no order");
    return false;
  }
  if (tt_hlo_numel(xs[0]) > max_sorted) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, xs, count, "too many elements to sort");
    return false;
  }
  return true;
}

void tt_hlo_sort(const tt_hlo *xs, int32_t count, int32_t dim, bool descending, bool stable, bool by_two,
                 tt_hlo *results) {
  static const char name[] = "stablehlo.sort";
  tt_hlo_builder *b = tt_hlo_enter(name, xs, count);
  tt_hlo_block *region = NULL;
  if (b && check_sort(b, name, xs, count, dim, by_two)) {
    region = sort_region(b, name, xs, count, descending, by_two);
  }
  tt_hlo_type *types = region ? tt_arena_alloc(&b->arena, (size_t)count * sizeof *types) : NULL;
  if (!types) {
    tt_hlo_take_results(NULL, results, count);
    if (region) {
      tt_hlo_no_memory(b);
    }
    return;
  }
  for (int32_t i = 0; i < count; i++) {
    types[i] = tt_hlo_type_of(xs[i]);
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_printf(text, "dimension = %d : i64, is_stable = %s", dim, stable ? "true" : "false");
  tt_hlo_op *op = tt_hlo_make(b, &(tt_hlo_new_op){.name = name,
                                                  .form = TT_FORM_GENERIC,
                                                  .operands = xs,
                                                  .operand_count = count,
                                                  .types = types,
                                                  .result_count = count,
                                                  .attributes = tt_strbuf_text(text),
                                                  .regions = &region,
                                                  .region_count = 1});
  tt_hlo_take_results(op, results, count);
}

// ---- top_k ----
static tt_hlo_op *top_k(tt_hlo x, int64_t k) {
  static const char name[] = "chlo.top_k";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  if (!tt_dtype_is_int(x->dtype) && !tt_dtype_is_float(x->dtype)) {
    TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "not implemented for %s", tt_dtype_torch_name(x->dtype));
    return NULL;
  }
  int64_t last = x->rank ? x->dims[x->rank - 1] : -1;
  if (k < 0 || k > last) {
    TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "k = %lld is out of range", (long long)k);
    return NULL;
  }
  if (last > INT32_MAX || tt_hlo_numel(x) > max_sorted) {
    TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "too many elements to sort");
    return NULL;
  }
  int64_t dims[TT_MAX_RANK];
  for (int32_t i = 0; i < x->rank; i++) {
    dims[i] = i + 1 < x->rank ? x->dims[i] : k;
  }
  tt_hlo_type types[2] = {{x->dtype, x->rank, dims}, {TT_S32, x->rank, dims}};
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_printf(text, ", k = %lld", (long long)k);
  return tt_hlo_make(b, &(tt_hlo_new_op){.name = name,
                                         .form = TT_FORM_TOP_K,
                                         .operands = in,
                                         .operand_count = 1,
                                         .types = types,
                                         .result_count = 2,
                                         .attributes = tt_strbuf_text(text)});
}

void tt_hlo_top_k(tt_hlo x, int64_t k, tt_hlo *values, tt_hlo *indices) {
  tt_hlo_op *op = top_k(x, k);
  *values = op ? &op->results[0] : NULL;
  *indices = op ? &op->results[1] : NULL;
}
