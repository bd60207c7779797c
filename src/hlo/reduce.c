// Reductions over dims and over windows.
#include "hlo/internal.h"

// ---- reduce ----
// The dims that remain; false after an error.
static bool reduced_dims(tt_hlo_builder *b, const char *name, const tt_hlo *xs, int32_t count, const int32_t *dims,
                         int32_t dim_count, int64_t *out_dims, int32_t *out_rank) {
  if (!tt_hlo_check_dim_set(b, name, xs, count, "dims", dims, dim_count, xs[0]->rank)) {
    return false;
  }
  uint64_t removed = 0;
  for (int32_t i = 0; i < dim_count; i++) {
    removed |= (uint64_t)1 << dims[i];
  }
  *out_rank = 0;
  for (int32_t i = 0; i < xs[0]->rank; i++) {
    if (!(removed >> i & 1)) {
      out_dims[(*out_rank)++] = xs[0]->dims[i];
    }
  }
  return true;
}

tt_hlo tt_hlo_reduce(tt_hlo_reducer reducer, tt_hlo x, const int32_t *dims, int32_t count) {
  static const char name[] = "stablehlo.reduce";
  tt_hlo in[] = {x, NULL};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  int64_t kept[TT_MAX_RANK];
  int32_t rank;
  if (!b || !reduced_dims(b, name, in, 1, dims, count, kept, &rank)) {
    return NULL;
  }
  if (!tt_hlo_reducer_takes(reducer, x->dtype)) {
    return tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, name, in, 1, "the reduction is not defined for %s",
                         tt_dtype_torch_name(x->dtype));
  }
  if (!count) {
    return x;
  }
  in[1] = tt_hlo_reducer_init(b, reducer, x->dtype);
  if (!in[1]) {
    return NULL;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, " applies ");
  tt_strbuf_puts(text, tt_hlo_reducer_name(reducer));
  tt_strbuf_puts(text, " across dimensions = [");
  tt_hlo_put_ints(text, dims, count);
  tt_strbuf_puts(text, "]");
  return tt_hlo_emit(b, name, TT_FORM_REDUCE, in, 2, tt_strbuf_text(text), (tt_hlo_type){x->dtype, rank, kept});
}

// xs and inits in one array that lives in the arena; checks their types. NULL after an error.
static tt_hlo *gather_operands(tt_hlo_builder *b, const char *name, const tt_hlo *xs, const tt_hlo *inits,
                               int32_t count) {
  tt_hlo *in = tt_arena_alloc(&b->arena, 2 * (size_t)count * sizeof *in);
  if (!in) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  for (int32_t i = 0; i < count; i++) {
    in[i] = xs[i];
    in[count + i] = inits[i];
  }
  if (!tt_hlo_enter_builder(b, name, in, 2 * count)) {
    return NULL;
  }
  for (int32_t i = 0; i < count; i++) {
    if (!tt_hlo_same_dims(xs[i], xs[0])) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2 * count, "the operands must have one shape");
      return NULL;
    }
    if (inits[i]->rank || inits[i]->dtype != xs[i]->dtype) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, 2 * count, "init %d must be 0-d and of its operand's element type", i);
      return NULL;
    }
  }
  return in;
}

// `count` results of the operands' dtypes and one shape.
static tt_hlo_op *make_multi(tt_hlo_builder *b, const char *name, tt_hlo *in, int32_t count, tt_hlo_block *region,
                             const char *attributes, int32_t rank, const int64_t *dims) {
  tt_hlo_type *types = tt_arena_alloc(&b->arena, (size_t)count * sizeof *types);
  if (!types) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  for (int32_t i = 0; i < count; i++) {
    types[i] = (tt_hlo_type){in[i]->dtype, rank, dims};
  }
  return tt_hlo_make(b, &(tt_hlo_new_op){.name = name,
                                         .form = TT_FORM_GENERIC,
                                         .operands = in,
                                         .operand_count = 2 * count,
                                         .attributes = attributes,
                                         .types = types,
                                         .result_count = count,
                                         .regions = &region,
                                         .region_count = 1});
}

static tt_hlo_op *reduce_multi(const tt_hlo *xs, const tt_hlo *inits, int32_t count, const int32_t *dims,
                               int32_t dim_count, tt_hlo_reduce_body body, void *context) {
  static const char name[] = "stablehlo.reduce";
  tt_hlo_builder *b = tt_hlo_enter(name, xs, count);
  tt_hlo *in = b && inits && body ? gather_operands(b, name, xs, inits, count) : NULL;
  int64_t kept[TT_MAX_RANK];
  int32_t rank;
  if (!in || !reduced_dims(b, name, in, 2 * count, dims, dim_count, kept, &rank)) {
    return NULL;
  }
  tt_hlo_block *region = tt_hlo_body_region(b, name, in + count, count, body, context);
  if (!region) {
    return NULL;
  }
  int64_t wide[TT_MAX_RANK];
  for (int32_t i = 0; i < dim_count; i++) {
    wide[i] = dims[i];
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_hlo_put_array(text, "dimensions", wide, dim_count);
  return make_multi(b, name, in, count, region, tt_strbuf_text(text), rank, kept);
}

void tt_hlo_reduce_multi(const tt_hlo *xs, const tt_hlo *inits, int32_t count, const int32_t *dims, int32_t dim_count,
                         tt_hlo_reduce_body body, void *context, tt_hlo *results) {
  tt_hlo_take_results(reduce_multi(xs, inits, count, dims, dim_count, body, context), results, count);
}

// ---- windows ----
int64_t tt_hlo_window_size(int64_t size, int64_t low, int64_t high, int64_t base_dilation, int64_t window,
                           int64_t dilation, int64_t stride, const char **why) {
  if (base_dilation < 1 || dilation < 1 || stride < 1) {
    *why = "strides and dilations must be positive";
    return -1;
  }
  if (window < 1) {
    *why = "a window must not be empty";
    return -1;
  }
  int64_t padded = 0, reach;
  bool over = size > 0 &&
              (__builtin_mul_overflow(size - 1, base_dilation, &padded) || __builtin_add_overflow(padded, 1, &padded));
  over = over || __builtin_add_overflow(padded, low, &padded) || __builtin_add_overflow(padded, high, &padded) ||
         __builtin_mul_overflow(window - 1, dilation, &reach) || __builtin_add_overflow(reach, 1, &reach);
  if (over || padded > (int64_t)1 << 62) {
    *why = "the padded size overflows";
    return -1;
  }
  if (padded < 0) {
    *why = "negative padding removes more than there is";
    return -1;
  }
  return padded < reach ? 0 : (padded - reach) / stride + 1;
}

static int64_t at(const int64_t *values, int32_t i, int64_t if_null) { return values ? values[i] : if_null; }

// The dims of a windowed result; false after an error.
static bool windowed_dims(tt_hlo_builder *b, const char *name, const tt_hlo *in, int32_t count, const tt_hlo_window *w,
                          int64_t *out_dims) {
  tt_hlo x = in[0];
  if (!w || (x->rank && !w->sizes)) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, name, in, count, "the window is missing");
    return false;
  }
  for (int32_t i = 0; i < x->rank; i++) {
    const char *why = NULL;
    out_dims[i] =
        tt_hlo_window_size(x->dims[i], at(w->pad_low, i, 0), at(w->pad_high, i, 0), at(w->base_dilation, i, 1),
                           w->sizes[i], at(w->dilation, i, 1), at(w->strides, i, 1), &why);
    if (out_dims[i] < 0) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, count, "window dim %d: %s", i, why);
      return false;
    }
  }
  return true;
}

static void put_padding(tt_strbuf *text, const tt_hlo_window *w, int32_t rank) {
  tt_strbuf_puts(text, ", padding = dense<");
  for (int32_t i = 0; i < rank; i++) {
    tt_strbuf_puts(text, i ? ", [" : "[[");
    tt_hlo_put_int(text, at(w->pad_low, i, 0));
    tt_strbuf_puts(text, ", ");
    tt_hlo_put_int(text, at(w->pad_high, i, 0));
    tt_strbuf_puts(text, "]");
  }
  tt_strbuf_puts(text, rank ? "]> : tensor<" : "> : tensor<");
  tt_hlo_put_int(text, rank);
  tt_strbuf_puts(text, "x2xi64>");
}

static const char *window_attributes(tt_hlo_builder *b, const tt_hlo_window *w, int32_t rank) {
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_hlo_put_array(text, "window_dimensions", w->sizes, rank);
  const struct {
    const char *key;
    const int64_t *values;
  } optional[] = {
      {", window_strides", w->strides}, {", base_dilations", w->base_dilation}, {", window_dilations", w->dilation}};
  for (int i = 0; i < 3; i++) {
    if (optional[i].values) {
      tt_hlo_put_array(text, optional[i].key, optional[i].values, rank);
    }
  }
  if (w->pad_low || w->pad_high) {
    put_padding(text, w, rank);
  }
  return tt_strbuf_text(text);
}

tt_hlo tt_hlo_reduce_window(tt_hlo_reducer reducer, tt_hlo x, const tt_hlo_window *window) {
  static const char name[] = "stablehlo.reduce_window";
  tt_hlo in[] = {x, NULL};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  int64_t dims[TT_MAX_RANK];
  if (!b || !windowed_dims(b, name, in, 1, window, dims)) {
    return NULL;
  }
  if (!tt_hlo_reducer_takes(reducer, x->dtype)) {
    return tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, name, in, 1, "the reduction is not defined for %s",
                         tt_dtype_torch_name(x->dtype));
  }
  in[1] = tt_hlo_reducer_init(b, reducer, x->dtype);
  tt_hlo_block *region = in[1] ? tt_hlo_reducer_region(b, name, reducer, x->dtype) : NULL;
  if (!region) {
    return NULL;
  }
  tt_hlo_op *op = make_multi(b, name, in, 1, region, window_attributes(b, window, x->rank), x->rank, dims);
  return op ? &op->results[0] : NULL;
}

static tt_hlo_op *window_multi(const tt_hlo *xs, const tt_hlo *inits, int32_t count, const tt_hlo_window *window,
                               tt_hlo_reduce_body body, void *context) {
  static const char name[] = "stablehlo.reduce_window";
  tt_hlo_builder *b = tt_hlo_enter(name, xs, count);
  tt_hlo *in = b && inits && body ? gather_operands(b, name, xs, inits, count) : NULL;
  int64_t dims[TT_MAX_RANK];
  if (!in || !windowed_dims(b, name, in, 2 * count, window, dims)) {
    return NULL;
  }
  tt_hlo_block *region = tt_hlo_body_region(b, name, in + count, count, body, context);
  int32_t rank = in[0]->rank;
  return region ? make_multi(b, name, in, count, region, window_attributes(b, window, rank), rank, dims) : NULL;
}

void tt_hlo_reduce_window_multi(const tt_hlo *xs, const tt_hlo *inits, int32_t count, const tt_hlo_window *window,
                                tt_hlo_reduce_body body, void *context, tt_hlo *results) {
  tt_hlo_take_results(window_multi(xs, inits, count, window, body, context), results, count);
}

// ---- select_and_scatter ----
static bool has_dilation(const int64_t *values, int32_t rank) {
  for (int32_t i = 0; values && i < rank; i++) {
    if (values[i] != 1) {
      return true;
    }
  }
  return false;
}

static tt_hlo_block *ge_region(tt_hlo_builder *b, const char *name, tt_dtype dtype) {
  tt_hlo_type types[2] = {tt_hlo_scalar_type(dtype), tt_hlo_scalar_type(dtype)};
  tt_hlo_block *region = tt_hlo_region_begin(b, name, true, types, 2);
  if (!region) {
    return NULL;
  }
  tt_hlo_value *args = region->arguments->results;
  tt_hlo ge = tt_hlo_compare(TT_GE, &args[0], &args[1]);
  tt_hlo_type pred = tt_hlo_scalar_type(TT_PRED);
  return tt_hlo_region_end(b, name, region, &ge, &pred, 1) ? region : NULL;
}

tt_hlo tt_hlo_select_and_scatter(tt_hlo x, tt_hlo source, tt_hlo init, const tt_hlo_window *window) {
  static const char name[] = "stablehlo.select_and_scatter";
  tt_hlo in[] = {x, source, init};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 3);
  int64_t dims[TT_MAX_RANK];
  if (!b || !windowed_dims(b, name, in, 3, window, dims)) {
    return NULL;
  }
  if (tt_dtype_is_complex(x->dtype) || x->dtype == TT_PRED) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "not implemented for %s", tt_dtype_torch_name(x->dtype));
  }
  if (source->dtype != x->dtype || init->dtype != x->dtype || init->rank) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the operands must have one element type, and init be 0-d");
  }
  if (has_dilation(window->base_dilation, x->rank) || has_dilation(window->dilation, x->rank)) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "dilated windows are not implemented");
  }
  if (!tt_hlo_equal_dims(source->dims, source->rank, dims, x->rank)) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the source must have the windowed shape");
  }
  if (!x->rank) {  // XLA dies of it; the one window is the one element
    return tt_hlo_binary(TT_ADD, source, init);
  }
  tt_hlo_block *regions[2] = {ge_region(b, name, x->dtype)};
  regions[1] = regions[0] ? tt_hlo_reducer_region(b, name, TT_SUM, x->dtype) : NULL;
  if (!regions[1]) {
    return NULL;
  }
  tt_hlo_window plain = *window;
  plain.base_dilation = plain.dilation = NULL;
  tt_hlo_type type = tt_hlo_type_of(x);
  tt_hlo_op *op = tt_hlo_make(b, &(tt_hlo_new_op){.name = name,
                                                  .form = TT_FORM_GENERIC,
                                                  .operands = in,
                                                  .operand_count = 3,
                                                  .types = &type,
                                                  .result_count = 1,
                                                  .attributes = window_attributes(b, &plain, x->rank),
                                                  .regions = regions,
                                                  .region_count = 2});
  return op ? &op->results[0] : NULL;
}
