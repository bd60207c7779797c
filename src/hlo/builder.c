// The builder itself: its errors, its operations and its regions.
#include <stdlib.h>
#include <string.h>

#include "hlo/internal.h"

// Bytes of the largest value that can be described; XLA dies of sizes that overflow int64.
static const int64_t max_bytes = (int64_t)1 << 62;

// ---- life ----
tt_status *tt_hlo_builder_create(const char *module_name, tt_hlo_builder **out_builder) {
  *out_builder = NULL;
  tt_hlo_builder *b = calloc(1, sizeof *b);
  if (!b) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory for a builder");
  }
  if (!module_name || !*module_name) {
    module_name = "module";
  }
  char *name = tt_arena_copy(&b->arena, module_name, strlen(module_name) + 1);
  if (!name) {
    free(b);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory for a builder");
  }
  for (char *c = name; *c; c++) {  // a bare MLIR symbol
    bool letter = (*c >= 'a' && *c <= 'z') || (*c >= 'A' && *c <= 'Z') || *c == '_';
    bool digit = *c >= '0' && *c <= '9';
    *c = letter || (digit && c != name) ? *c : '_';
  }
  b->module_name = name;
  b->current = &b->main;
  *out_builder = b;
  return NULL;
}

void tt_hlo_builder_free(tt_hlo_builder *b) {
  if (b) {
    tt_status_free(b->status);
    tt_strbuf_free(&b->scratch);
    tt_arena_free(&b->arena);
    free(b);
  }
}

const tt_status *tt_hlo_status(const tt_hlo_builder *b) { return b ? b->status : NULL; }

tt_hlo_builder *tt_hlo_builder_of(tt_hlo x) { return x ? x->op->builder : NULL; }

void tt_hlo_set_location(tt_hlo_builder *b, const char *name) {
  if (!b || (b->location && name && !strcmp(b->location, name))) {
    return;
  }
  b->location = name ? tt_arena_copy(&b->arena, name, strlen(name) + 1) : NULL;
  if (name && !b->location) {
    tt_hlo_no_memory(b);
  }
}

tt_status *tt_hlo_finish(tt_hlo_builder *b, const tt_hlo *results, int32_t count, char **out_text) {
  *out_text = NULL;
  if (!b) {
    return tt_error(TT_ERR_INTERNAL, "no builder to finish");
  }
  if (!b->status && b->current != &b->main) {
    tt_hlo_fail(b, tt_error(TT_ERR_INTERNAL, "a module can't be finished while a region is open"));
  }
  if (!b->status && (count < 0 || (count && !results))) {
    tt_hlo_fail(b, tt_error(TT_ERR_INTERNAL, "a module can't have %d results", count));
  }
  for (int32_t i = 0; !b->status && i < count; i++) {
    if (!results[i]) {
      tt_hlo_fail(b, tt_error(TT_ERR_INTERNAL, "result %d of the module is no value", i));
    } else {
      tt_hlo_enter_builder(b, "result", &results[i], 1);
    }
  }
  for (const tt_hlo_op *p = b->first_parameter; p && !b->status; p = p->next) {
    if (p->alias >= count) {
      tt_hlo_fail(b, tt_error(TT_ERR_INTERNAL, "parameter %d is aliased to result %d of %d", p->id, p->alias, count));
    } else if (p->alias >= 0 && !tt_hlo_same_type(tt_hlo_type_of(&p->results[0]), tt_hlo_type_of(results[p->alias]))) {
      tt_hlo_errorf(b, TT_ERR_INTERNAL, "alias", (tt_hlo[]){&p->results[0], results[p->alias]}, 2,
                    "parameter %d and result %d must have the same type", p->id, p->alias);
    }
  }
  if (b->status) {
    return tt_status_clone(b->status);
  }
  *out_text = tt_hlo_print(b, results, count);
  return *out_text ? NULL : tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory for a module's text");
}

// ---- errors ----
tt_hlo tt_hlo_fail(tt_hlo_builder *b, tt_status *status) {
  if (b && status && !b->status) {
    b->status = status;
  } else {
    tt_status_free(status);
  }
  return NULL;
}

tt_hlo tt_hlo_no_memory(tt_hlo_builder *b) {
  return tt_hlo_fail(b, tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory while building a module"));
}

tt_hlo tt_hlo_errorf(tt_hlo_builder *b, tt_code code, const char *name, const tt_hlo *operands, int32_t count,
                     const char *format, ...) {
  if (!b || b->status) {
    return NULL;
  }
  const char *dot = strchr(name, '.');
  tt_strbuf text = {0};
  tt_strbuf_printf(&text, "%s(", dot ? dot + 1 : name);
  for (int32_t i = 0; i < count; i++) {
    tt_strbuf_puts(&text, i ? ", " : "");
    if (i == 8) {
      tt_strbuf_puts(&text, "...");
      break;
    }
    tt_hlo_append_type(&text, operands[i]->dtype, operands[i]->dims, operands[i]->rank);
  }
  tt_strbuf_puts(&text, ")");
  va_list args;
  va_start(args, format);
  tt_status *status = tt_error_v(code, format, args);
  va_end(args);
  tt_hlo_fail(b, tt_error(code, "%s: %s", tt_strbuf_text(&text), tt_status_message(status)));
  tt_status_free(status);
  tt_strbuf_free(&text);
  return NULL;
}

// ---- entering ----
// Whether `block` can be seen from the current block.
static bool visible(const tt_hlo_builder *b, const tt_hlo_block *block, bool constant) {
  const tt_hlo_block *at = b->current;
  while (at && at != block) {
    if (at->isolated && !constant) {
      return false;
    }
    at = at->parent;
  }
  return at != NULL;
}

bool tt_hlo_enter_builder(tt_hlo_builder *b, const char *name, const tt_hlo *operands, int32_t count) {
  if (!b || b->status || count < 0 || (count && !operands)) {
    return false;
  }
  for (int32_t i = 0; i < count; i++) {
    if (!operands[i]) {
      return false;
    }
  }
  for (int32_t i = 0; i < count; i++) {
    const tt_hlo_op *op = operands[i]->op;
    if (op->builder != b) {
      tt_hlo_errorf(b, TT_ERR_INTERNAL, name, operands, count, "operand %d belongs to another module", i);
      return false;
    }
    if (op->block != b->current && !visible(b, op->block, tt_hlo_is_constant(operands[i]))) {
      tt_hlo_errorf(b, TT_ERR_INTERNAL, name, operands, count, "operand %d can't be seen from this region", i);
      return false;
    }
  }
  return true;
}

tt_hlo_builder *tt_hlo_enter(const char *name, const tt_hlo *operands, int32_t count) {
  tt_hlo_builder *b = count > 0 && operands ? tt_hlo_builder_of(operands[0]) : NULL;
  return tt_hlo_enter_builder(b, name, operands, count) ? b : NULL;
}

// ---- types ----
bool tt_hlo_equal_dims(const int64_t *x, int32_t x_rank, const int64_t *y, int32_t y_rank) {
  return x_rank == y_rank && (!x_rank || !memcmp(x, y, (size_t)x_rank * sizeof *x));
}

bool tt_hlo_same_type(tt_hlo_type x, tt_hlo_type y) {
  return x.dtype == y.dtype && tt_hlo_equal_dims(x.dims, x.rank, y.dims, y.rank);
}

bool tt_hlo_same_dims(tt_hlo x, tt_hlo y) { return x && y && tt_hlo_equal_dims(x->dims, x->rank, y->dims, y->rank); }

int64_t tt_hlo_numel(tt_hlo x) {
  int64_t count = x ? 1 : 0;
  for (int32_t i = 0; x && i < x->rank; i++) {
    count *= x->dims[i];
  }
  return count;
}

const char *tt_hlo_bad_type(tt_dtype dtype, const int64_t *dims, int32_t rank) {
  if (!tt_dtype_size(dtype)) {
    return "there is no such element type";
  }
  if (rank < 0 || rank > TT_MAX_RANK || (rank && !dims)) {
    return "the rank must lie in 0 to 32";
  }
  int64_t bytes = (int64_t)tt_dtype_size(dtype);
  for (int32_t i = 0; i < rank; i++) {
    if (dims[i] < 0) {
      return "a dimension is negative";
    }
    // Zeros count as ones: strides, and XLA's partial products, multiply the other dims.
    if (dims[i] && __builtin_mul_overflow(bytes, dims[i], &bytes)) {
      return "the number of elements overflows";
    }
    if (bytes > max_bytes) {
      return "the size is more than 2^62 bytes";
    }
  }
  return NULL;
}

bool tt_hlo_check_dim_set(tt_hlo_builder *b, const char *name, const tt_hlo *operands, int32_t operand_count,
                          const char *what, const int32_t *dims, int32_t count, int32_t rank) {
  uint64_t seen = 0;
  if (count < 0 || (count && !dims)) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, name, operands, operand_count, "%s are missing", what);
    return false;
  }
  for (int32_t i = 0; i < count; i++) {
    if (dims[i] < 0 || dims[i] >= rank) {
      tt_hlo_errorf(b, TT_ERR_INDEX, name, operands, operand_count, "%s: dim %d is out of range for rank %d", what,
                    dims[i], rank);
      return false;
    }
    if (seen >> dims[i] & 1) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, name, operands, operand_count, "%s: dim %d appears twice", what, dims[i]);
      return false;
    }
    seen |= (uint64_t)1 << dims[i];
  }
  return true;
}

// ---- operations ----
static bool set_results(tt_hlo_builder *b, tt_hlo_op *op, const tt_hlo_new_op *spec) {
  op->results = tt_arena_alloc(&b->arena, (size_t)spec->result_count * sizeof *op->results);
  if (!op->results) {
    return false;
  }
  op->result_count = spec->result_count;
  for (int32_t i = 0; i < spec->result_count; i++) {
    tt_hlo_type t = spec->types[i];
    int64_t *dims = tt_arena_copy(&b->arena, t.dims, (size_t)t.rank * sizeof *dims);
    if (!dims) {
      return false;
    }
    op->results[i] = (tt_hlo_value){.dtype = t.dtype, .rank = t.rank, .dims = dims, .op = op, .result = i};
  }
  return true;
}

// Constants from outside an isolated region are made again in it.
static bool set_operands(tt_hlo_builder *b, tt_hlo_op *op, const tt_hlo_new_op *spec) {
  op->operands = tt_arena_copy(&b->arena, spec->operands, (size_t)spec->operand_count * sizeof *op->operands);
  op->operand_count = spec->operand_count;
  for (int32_t i = 0; op->operands && i < op->operand_count; i++) {
    tt_hlo x = op->operands[i];
    if (x->op->block != b->current && tt_hlo_is_constant(x) && !visible(b, x->op->block, false)) {
      op->operands[i] = tt_hlo_constant_text(b, x->op->attributes, tt_hlo_type_of(x), x->op->splat);
      if (!op->operands[i]) {
        return false;
      }
    }
  }
  return op->operands != NULL;
}

static void append_op(tt_hlo_block *block, tt_hlo_op *op) {
  op->previous = block->last;
  *(block->last ? &block->last->next : &block->first) = op;
  block->last = op;
}

tt_hlo_op *tt_hlo_make(tt_hlo_builder *b, const tt_hlo_new_op *spec) {
  if (b->status) {
    return NULL;
  }
  for (int32_t i = 0; i < spec->result_count; i++) {
    const char *bad = tt_hlo_bad_type(spec->types[i].dtype, spec->types[i].dims, spec->types[i].rank);
    if (bad) {
      tt_hlo_errorf(b, TT_ERR_RUNTIME, spec->name, spec->operands, spec->operand_count, "result: %s", bad);
      return NULL;
    }
  }
  tt_hlo_op *op = tt_arena_alloc(&b->arena, sizeof *op);
  bool good = op && set_results(b, op, spec);
  if (good) {
    *op = (tt_hlo_op){.builder = b,
                      .block = b->current,
                      .name = spec->name,
                      .location = b->location,
                      .results = op->results,
                      .result_count = op->result_count,
                      .form = spec->form,
                      .region_count = spec->region_count,
                      .alias = -1};
    good = set_operands(b, op, spec);
  }
  if (good && spec->attributes) {
    op->attributes = tt_arena_copy(&b->arena, spec->attributes, strlen(spec->attributes) + 1);
    good = op->attributes != NULL && !b->scratch.failed;
  }
  if (good && spec->region_count) {
    op->regions = tt_arena_copy(&b->arena, spec->regions, (size_t)spec->region_count * sizeof *op->regions);
    good = op->regions != NULL;
  }
  if (!good) {
    tt_hlo_no_memory(b);
    return NULL;
  }
  if (op->form > TT_FORM_ARGUMENT) {
    append_op(b->current, op);
  }
  return op;
}

tt_hlo tt_hlo_emit(tt_hlo_builder *b, const char *name, tt_hlo_form form, const tt_hlo *operands, int32_t count,
                   const char *attributes, tt_hlo_type type) {
  tt_hlo_op *op = tt_hlo_make(b, &(tt_hlo_new_op){.name = name,
                                                  .form = form,
                                                  .operands = operands,
                                                  .operand_count = count,
                                                  .attributes = attributes,
                                                  .types = &type,
                                                  .result_count = 1});
  return op ? &op->results[0] : NULL;
}

void tt_hlo_take_results(const tt_hlo_op *op, tt_hlo *results, int32_t count) {
  for (int32_t i = 0; results && i < count; i++) {
    results[i] = op && i < op->result_count ? &op->results[i] : NULL;
  }
}

// ---- parameters ----
tt_hlo tt_hlo_parameter(tt_hlo_builder *b, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  if (!b || b->status) {
    return NULL;
  }
  tt_hlo_block *current = b->current;
  b->current = &b->main;
  tt_hlo_op *op = tt_hlo_make(b, &(tt_hlo_new_op){.name = "parameter",
                                                  .form = TT_FORM_PARAMETER,
                                                  .result_count = 1,
                                                  .types = &(tt_hlo_type){dtype, rank, dims}});
  b->current = current;
  if (!op) {
    return NULL;
  }
  op->id = b->parameter_count++;
  *(b->last_parameter ? &b->last_parameter->next : &b->first_parameter) = op;
  b->last_parameter = op;
  return &op->results[0];
}

void tt_hlo_alias(tt_hlo_builder *b, tt_hlo parameter, int32_t result) {
  if (!b || !parameter || b->status) {
    return;
  }
  tt_hlo_op *op = parameter->op;
  if (op->builder != b || op->form != TT_FORM_PARAMETER || result < 0 || op->alias >= 0) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, "alias", &parameter, 1,
                  "no parameter of this module, aliased before, or result %d is negative", result);
    return;
  }
  for (const tt_hlo_op *p = b->first_parameter; p; p = p->next) {
    if (p->alias == result) {
      tt_hlo_errorf(b, TT_ERR_INTERNAL, "alias", &parameter, 1, "result %d is aliased to parameter %d already", result,
                    p->id);
      return;
    }
  }
  op->alias = result;
}

// ---- attribute text ----
tt_strbuf *tt_hlo_attributes(tt_hlo_builder *b) {
  b->scratch.length = 0;
  tt_strbuf_puts(&b->scratch, "");
  return &b->scratch;
}

void tt_hlo_put_int(tt_strbuf *text, int64_t value) {
  char digits[24], *end = digits + sizeof digits, *at = end;
  uint64_t rest = value < 0 ? 0 - (uint64_t)value : (uint64_t)value;
  do {
    *--at = (char)('0' + rest % 10);
  } while (rest /= 10);
  if (value < 0) {
    *--at = '-';
  }
  tt_strbuf_append(text, at, (size_t)(end - at));
}

void tt_hlo_put_ints(tt_strbuf *text, const int32_t *values, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    tt_strbuf_puts(text, i ? ", " : "");
    tt_hlo_put_int(text, values[i]);
  }
}

void tt_hlo_put_longs(tt_strbuf *text, const int64_t *values, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    tt_strbuf_puts(text, i ? ", " : "");
    tt_hlo_put_int(text, values[i]);
  }
}

void tt_hlo_put_array(tt_strbuf *text, const char *key, const int64_t *values, int32_t count) {
  tt_strbuf_puts(text, key);
  tt_strbuf_puts(text, count ? " = array<i64: " : " = array<i64");
  tt_hlo_put_longs(text, values, count);
  tt_strbuf_puts(text, ">");
}

void tt_hlo_append_type(tt_strbuf *text, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  tt_strbuf_append(text, "tensor<", 7);
  for (int32_t i = 0; i < rank; i++) {
    tt_hlo_put_int(text, dims[i]);
    tt_strbuf_append(text, "x", 1);
  }
  tt_strbuf_puts(text, tt_dtype_hlo_name(dtype));
  tt_strbuf_append(text, ">", 1);
}
