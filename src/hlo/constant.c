// Constants and iota.
#include <string.h>

#include "hlo/internal.h"

static const char constant_name[] = "stablehlo.constant";

bool tt_hlo_is_constant(tt_hlo x) { return x->op->name == constant_name; }

// ---- one of each in a block ----
static unsigned bucket_of(const tt_hlo_block *block, const char *text, tt_hlo_type type) {
  uint64_t hash = 1469598103934665603u ^ (uint64_t)(uintptr_t)block ^ (uint64_t)type.dtype << 8;
  for (const char *c = text; *c; c++) {
    hash = (hash ^ (unsigned char)*c) * 1099511628211u;
  }
  for (int32_t i = 0; i < type.rank; i++) {
    hash = (hash ^ (uint64_t)type.dims[i]) * 1099511628211u;
  }
  return (unsigned)((hash ^ hash >> 29) % TT_HLO_CONSTANT_BUCKETS);
}

tt_hlo tt_hlo_constant_text(tt_hlo_builder *b, const char *text, tt_hlo_type type, bool splat) {
  if (b->status) {
    return NULL;
  }
  tt_hlo_op **bucket = &b->constants[bucket_of(b->current, text, type)];
  for (tt_hlo_op *op = *bucket; op; op = op->next_constant) {
    if (op->block == b->current && tt_hlo_same_type(tt_hlo_type_of(&op->results[0]), type) &&
        !strcmp(op->attributes, text)) {
      return &op->results[0];
    }
  }
  tt_hlo x = tt_hlo_emit(b, constant_name, TT_FORM_SAME, NULL, 0, text, type);
  if (x) {
    x->op->splat = splat;
    x->op->next_constant = *bucket;
    *bucket = x->op;
  }
  return x;
}

// ---- checks ----
static bool enter(tt_hlo_builder *b, tt_hlo_type type) {
  if (!b || b->status) {
    return false;
  }
  const char *bad = tt_hlo_bad_type(type.dtype, type.dims, type.rank);
  if (bad) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, "constant", NULL, 0, "%s", bad);
  }
  return !bad;
}

static tt_hlo refuse_value(tt_hlo_builder *b, tt_dtype dtype, double value) {
  return tt_hlo_errorf(b, TT_ERR_RUNTIME, "constant", NULL, 0,
                       "value %.17g cannot be converted to type %s without overflow", value,
                       tt_dtype_torch_name(dtype));
}

// ---- constants ----
tt_hlo tt_hlo_const(tt_hlo_builder *b, tt_dtype dtype, double value, const int64_t *dims, int32_t rank) {
  tt_hlo_type type = {dtype, rank, dims};
  if (!enter(b, type)) {
    return NULL;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, " dense<");
  if (!tt_hlo_put_literal(text, dtype, value)) {
    return refuse_value(b, dtype, value);
  }
  tt_strbuf_puts(text, ">");
  return tt_hlo_constant_text(b, tt_strbuf_text(text), type, true);
}

tt_hlo tt_hlo_const_int(tt_hlo_builder *b, tt_dtype dtype, int64_t value, const int64_t *dims, int32_t rank) {
  tt_hlo_type type = {dtype, rank, dims};
  if (!enter(b, type)) {
    return NULL;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, " dense<");
  if (!tt_hlo_put_int_literal(text, dtype, value)) {
    return refuse_value(b, dtype, (double)value);
  }
  tt_strbuf_puts(text, ">");
  return tt_hlo_constant_text(b, tt_strbuf_text(text), type, true);
}

tt_hlo tt_hlo_const_bits(tt_hlo_builder *b, tt_dtype dtype, uint64_t bits) {
  if (!enter(b, tt_hlo_scalar_type(dtype))) {
    return NULL;
  }
  if (!tt_dtype_is_unsigned_int(dtype) || (dtype != TT_U64 && bits >> (8 * tt_dtype_size(dtype)))) {
    return refuse_value(b, dtype, (double)bits);
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_printf(text, " dense<%llu>", (unsigned long long)bits);
  return tt_hlo_constant_text(b, tt_strbuf_text(text), tt_hlo_scalar_type(dtype), true);
}

tt_hlo tt_hlo_const_ints(tt_hlo_builder *b, tt_dtype dtype, const int64_t *values, int64_t count) {
  tt_hlo_type type = {dtype, 1, &count};
  if (!enter(b, type) || (count && !values)) {
    return NULL;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, count ? " dense<[" : " dense<");
  for (int64_t i = 0; i < count; i++) {
    tt_strbuf_puts(text, i ? ", " : "");
    if (!tt_hlo_put_int_literal(text, dtype, values[i])) {
      return refuse_value(b, dtype, (double)values[i]);
    }
  }
  tt_strbuf_puts(text, count ? "]>" : ">");
  return tt_hlo_constant_text(b, tt_strbuf_text(text), type, false);
}

tt_hlo tt_hlo_const_floats(tt_hlo_builder *b, tt_dtype dtype, const double *values, int64_t count) {
  tt_hlo_type type = {dtype, 1, &count};
  if (!enter(b, type) || (count && !values)) {
    return NULL;
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, count ? " dense<[" : " dense<");
  for (int64_t i = 0; i < count; i++) {
    tt_strbuf_puts(text, i ? ", " : "");
    if (!tt_hlo_put_literal(text, dtype, values[i])) {
      return refuse_value(b, dtype, values[i]);
    }
  }
  tt_strbuf_puts(text, count ? "]>" : ">");
  return tt_hlo_constant_text(b, tt_strbuf_text(text), type, false);
}

tt_hlo tt_hlo_scalar(tt_hlo_builder *b, tt_dtype dtype, double value) { return tt_hlo_const(b, dtype, value, NULL, 0); }

tt_hlo tt_hlo_const_like(tt_hlo x, double value) {
  return x ? tt_hlo_const(tt_hlo_builder_of(x), x->dtype, value, x->dims, x->rank) : NULL;
}

// ---- extremes ----
static tt_hlo extreme(tt_hlo_builder *b, tt_dtype dtype, bool greatest) {
  if (dtype == TT_PRED) {
    return tt_hlo_const_int(b, dtype, greatest, NULL, 0);
  }
  if (tt_dtype_is_unsigned_int(dtype)) {
    return tt_hlo_const_bits(b, dtype, greatest ? UINT64_MAX >> (64 - 8 * tt_dtype_size(dtype)) : 0);
  }
  if (tt_dtype_is_signed_int(dtype)) {
    int64_t high = INT64_MAX >> (64 - 8 * tt_dtype_size(dtype));
    return tt_hlo_const_int(b, dtype, greatest ? high : -high - 1, NULL, 0);
  }
  if (tt_dtype_is_float(dtype)) {
    return tt_hlo_scalar(b, dtype, greatest ? __builtin_inf() : -__builtin_inf());
  }
  return tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, "constant", NULL, 0, "%s has no order", tt_dtype_hlo_name(dtype));
}

tt_hlo tt_hlo_min_value(tt_hlo_builder *b, tt_dtype dtype) { return extreme(b, dtype, false); }
tt_hlo tt_hlo_max_value(tt_hlo_builder *b, tt_dtype dtype) { return extreme(b, dtype, true); }

tt_hlo tt_hlo_reducer_init(tt_hlo_builder *b, tt_hlo_reducer reducer, tt_dtype dtype) {
  if (!tt_hlo_reducer_takes(reducer, dtype)) {
    return tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, "reduce", NULL, 0, "the reduction is not defined for %s",
                         tt_dtype_hlo_name(dtype));
  }
  switch (reducer) {
    case TT_SUM:
    case TT_ANY:
      return tt_hlo_scalar(b, dtype, 0);
    case TT_PROD:
      return tt_hlo_scalar(b, dtype, 1);
    case TT_MAX:
      return tt_hlo_min_value(b, dtype);
    case TT_MIN:
      return tt_hlo_max_value(b, dtype);
    case TT_ALL:  // every bit set
      return tt_dtype_is_signed_int(dtype) ? tt_hlo_scalar(b, dtype, -1) : tt_hlo_max_value(b, dtype);
  }
  return NULL;
}

tt_hlo tt_hlo_iota(tt_hlo_builder *b, tt_dtype dtype, const int64_t *dims, int32_t rank, int32_t dim) {
  tt_hlo_type type = {dtype, rank, dims};
  if (!enter(b, type)) {
    return NULL;
  }
  if (dim < 0 || dim >= rank) {
    return tt_hlo_errorf(b, TT_ERR_INDEX, "iota", NULL, 0, "dim %d is out of range for rank %d", dim, rank);
  }
  if (dtype == TT_PRED) {
    return tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, "iota", NULL, 0, "no iota of booleans");
  }
  if (tt_dtype_is_complex(dtype)) {  // XLA dies of abs(complex iota)
    return tt_hlo_convert(tt_hlo_iota(b, tt_dtype_real(dtype), dims, rank, dim), dtype);
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, " dim = ");
  tt_hlo_put_int(text, dim);
  return tt_hlo_emit(b, "stablehlo.iota", TT_FORM_SAME, NULL, 0, tt_strbuf_text(text), type);
}
