// Loops.
#include "hlo/internal.h"

static const char name[] = "stablehlo.while";

static const tt_hlo *state_of(tt_hlo_builder *b, const tt_hlo_block *region) {
  int32_t count = region->arguments->result_count;
  tt_hlo *state = tt_arena_alloc(&b->arena, (size_t)count * sizeof *state);
  if (!state) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  tt_hlo_take_results(region->arguments, state, count);
  return state;
}

static tt_hlo_block *cond_region(tt_hlo_builder *b, const tt_hlo_type *types, int32_t count, tt_hlo_while_cond cond,
                                 void *context) {
  tt_hlo_block *region = tt_hlo_region_begin(b, name, false, types, count);
  if (!region) {
    return NULL;
  }
  const tt_hlo *state = state_of(b, region);
  tt_hlo go_on = state ? cond(context, b, state) : NULL;
  tt_hlo_type pred = tt_hlo_scalar_type(TT_PRED);
  return tt_hlo_region_end(b, name, region, &go_on, &pred, 1) ? region : NULL;
}

static tt_hlo_block *body_region(tt_hlo_builder *b, const tt_hlo_type *types, int32_t count, tt_hlo_while_body body,
                                 void *context) {
  tt_hlo *out = tt_arena_alloc(&b->arena, (size_t)count * sizeof *out);
  if (!out) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  tt_hlo_block *region = tt_hlo_region_begin(b, name, false, types, count);
  if (!region) {
    return NULL;
  }
  const tt_hlo *state = state_of(b, region);
  if (state) {
    body(context, b, state, out);
  }
  return tt_hlo_region_end(b, name, region, out, types, count) ? region : NULL;
}

static tt_hlo_op *loop(const tt_hlo *inits, int32_t count, tt_hlo_while_cond cond, tt_hlo_while_body body,
                       void *context) {
  tt_hlo_builder *b = tt_hlo_enter(name, inits, count);
  if (!b) {
    return NULL;
  }
  if (!cond || !body) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, name, inits, count, "the condition or the body is missing");
    return NULL;
  }
  tt_hlo_type *types = tt_arena_alloc(&b->arena, (size_t)count * sizeof *types);
  // The callbacks may write over `inits`, where the caller passes one array for both.
  const tt_hlo *start = tt_arena_copy(&b->arena, inits, (size_t)count * sizeof *inits);
  if (!types || !start) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  for (int32_t i = 0; i < count; i++) {
    types[i] = tt_hlo_type_of(start[i]);
  }
  tt_hlo_block *regions[2] = {cond_region(b, types, count, cond, context), NULL};
  regions[1] = regions[0] ? body_region(b, types, count, body, context) : NULL;
  if (!regions[1]) {
    return NULL;
  }
  return tt_hlo_make(b, &(tt_hlo_new_op){.name = name,
                                         .form = TT_FORM_WHILE,
                                         .operands = start,
                                         .operand_count = count,
                                         .types = types,
                                         .result_count = count,
                                         .regions = regions,
                                         .region_count = 2});
}

void tt_hlo_while(const tt_hlo *inits, int32_t count, tt_hlo_while_cond cond, tt_hlo_while_body body, void *context,
                  tt_hlo *results) {
  tt_hlo_take_results(loop(inits, count, cond, body, context), results, count);
}
