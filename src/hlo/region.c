// Regions: the bodies of reductions, sorts, scatters and loops.
#include "hlo/internal.h"

tt_hlo_block *tt_hlo_region_begin(tt_hlo_builder *b, const char *name, bool isolated, const tt_hlo_type *types,
                                  int32_t count) {
  if (b->status) {
    return NULL;
  }
  if (b->current->depth >= TT_HLO_MAX_DEPTH) {
    tt_hlo_errorf(b, TT_ERR_RUNTIME, name, NULL, 0, "regions nest deeper than %d", TT_HLO_MAX_DEPTH);
    return NULL;
  }
  tt_hlo_block *region = tt_arena_alloc(&b->arena, sizeof *region);
  if (!region) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  *region = (tt_hlo_block){.parent = b->current, .depth = b->current->depth + 1, .isolated = isolated};
  b->current = region;
  region->arguments = tt_hlo_make(
      b, &(tt_hlo_new_op){.name = "argument", .form = TT_FORM_ARGUMENT, .types = types, .result_count = count});
  if (!region->arguments) {
    b->current = region->parent;
    return NULL;
  }
  return region;
}

static bool set_yields(tt_hlo_builder *b, const char *name, tt_hlo_block *region, const tt_hlo *yields,
                       const tt_hlo_type *types, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    if (!yields[i]) {
      tt_hlo_errorf(b, TT_ERR_INTERNAL, name, NULL, 0, "the region gives no value %d", i);
      return false;
    }
  }
  if (!tt_hlo_enter_builder(b, name, yields, count)) {
    return false;
  }
  region->yields = tt_arena_copy(&b->arena, yields, (size_t)count * sizeof *yields);
  region->yield_count = count;
  if (!region->yields) {
    tt_hlo_no_memory(b);
    return false;
  }
  for (int32_t i = 0; i < count; i++) {
    tt_hlo x = yields[i];
    if (!tt_hlo_same_type(tt_hlo_type_of(x), types[i])) {
      tt_strbuf want = {0};
      tt_hlo_append_type(&want, types[i].dtype, types[i].dims, types[i].rank);
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, yields, count, "value %d of the region must be a %s", i,
                    tt_strbuf_text(&want));
      tt_strbuf_free(&want);
      return false;
    }
    if (tt_hlo_is_constant(x) && x->op->block != region) {
      region->yields[i] = tt_hlo_constant_text(b, x->op->attributes, types[i], x->op->splat);
    }
  }
  return !b->status;
}

bool tt_hlo_region_end(tt_hlo_builder *b, const char *name, tt_hlo_block *region, const tt_hlo *yields,
                       const tt_hlo_type *types, int32_t count) {
  bool good = !b->status && b->current == region && set_yields(b, name, region, yields, types, count);
  b->current = region->parent;
  return good && !b->status;
}

const char *tt_hlo_reducer_name(tt_hlo_reducer reducer) {
  static const char *const names[] = {
      [TT_SUM] = "stablehlo.add",     [TT_PROD] = "stablehlo.multiply", [TT_MAX] = "stablehlo.maximum",
      [TT_MIN] = "stablehlo.minimum", [TT_ALL] = "stablehlo.and",       [TT_ANY] = "stablehlo.or",
  };
  return (unsigned)reducer < sizeof names / sizeof *names ? names[reducer] : NULL;
}

bool tt_hlo_reducer_takes(tt_hlo_reducer reducer, tt_dtype dtype) {
  switch (reducer) {
    case TT_SUM:
    case TT_PROD:
      return true;
    case TT_MAX:
    case TT_MIN:
      return !tt_dtype_is_complex(dtype);
    case TT_ALL:
    case TT_ANY:
      return dtype == TT_PRED || tt_dtype_is_int(dtype);
  }
  return false;
}

tt_hlo_block *tt_hlo_reducer_region(tt_hlo_builder *b, const char *name, tt_hlo_reducer reducer, tt_dtype dtype) {
  tt_hlo_type types[2] = {tt_hlo_scalar_type(dtype), tt_hlo_scalar_type(dtype)};
  tt_hlo_block *region = tt_hlo_region_begin(b, name, true, types, 2);
  if (!region) {
    return NULL;
  }
  tt_hlo_value *args = region->arguments->results;
  tt_hlo sides[2] = {&args[0], &args[1]};
  tt_hlo sum = tt_hlo_emit(b, tt_hlo_reducer_name(reducer), TT_FORM_SAME, sides, 2, NULL, types[0]);
  return tt_hlo_region_end(b, name, region, &sum, types, 1) ? region : NULL;
}

tt_hlo_block *tt_hlo_body_region(tt_hlo_builder *b, const char *name, const tt_hlo *inits, int32_t count,
                                 tt_hlo_reduce_body body, void *context) {
  size_t n = (size_t)count;
  tt_hlo_type *types = tt_arena_alloc(&b->arena, 2 * n * sizeof *types);
  tt_hlo *values = tt_arena_alloc(&b->arena, 3 * n * sizeof *values);
  if (!types || !values) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  for (int32_t i = 0; i < count; i++) {
    types[i] = types[count + i] = tt_hlo_type_of(inits[i]);
  }
  tt_hlo_block *region = tt_hlo_region_begin(b, name, true, types, 2 * count);
  if (!region) {
    return NULL;
  }
  for (int32_t i = 0; i < 2 * count; i++) {
    values[i] = &region->arguments->results[i];
  }
  body(context, b, values, values + n, values + 2 * n);
  return tt_hlo_region_end(b, name, region, values + 2 * n, types, count) ? region : NULL;
}
