// The text of a module.
#include <stdlib.h>
#include <string.h>

#include "hlo/internal.h"

typedef struct printer {
  tt_strbuf text;
  int32_t next_value, next_argument;
} printer;

// ---- which operations are needed ----
static void need(const tt_hlo *values, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    values[i]->op->live = true;
  }
}

static void forget(tt_hlo_block *block) {
  for (tt_hlo_op *op = block->first; op; op = op->next) {
    op->live = false;
    for (int32_t i = 0; i < op->region_count; i++) {
      forget(op->regions[i]);
    }
  }
}

// Backwards, so that users come before what they use. Everything is free of side effects.
static void mark(tt_hlo_block *block) {
  need(block->yields, block->yield_count);
  for (tt_hlo_op *op = block->last; op; op = op->previous) {
    if (!op->live) {
      continue;
    }
    need(op->operands, op->operand_count);
    for (int32_t i = 0; i < op->region_count; i++) {
      mark(op->regions[i]);
    }
  }
}

// ---- pieces ----
static void put(printer *p, const char *text) { tt_strbuf_puts(&p->text, text); }

static void put_name(printer *p, tt_hlo x) {
  const tt_hlo_op *op = x->op;
  if (op->form == TT_FORM_PARAMETER || op->form == TT_FORM_ARGUMENT) {
    put(p, "%arg");
    tt_hlo_put_int(&p->text, (int64_t)op->id + x->result);
    return;
  }
  put(p, "%");
  tt_hlo_put_int(&p->text, op->id);
  if (op->result_count > 1) {
    put(p, "#");
    tt_hlo_put_int(&p->text, x->result);
  }
}

static void put_names(printer *p, const tt_hlo *values, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    put(p, i ? ", " : "");
    put_name(p, values[i]);
  }
}

static void put_type(printer *p, tt_hlo x) { tt_hlo_append_type(&p->text, x->dtype, x->dims, x->rank); }

static void put_types(printer *p, const tt_hlo *values, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    put(p, i ? ", " : "");
    put_type(p, values[i]);
  }
}

static void put_result_types(printer *p, const tt_hlo_op *op) {
  put(p, op->result_count > 1 ? "(" : "");
  for (int32_t i = 0; i < op->result_count; i++) {
    put(p, i ? ", " : "");
    put_type(p, &op->results[i]);
  }
  put(p, op->result_count > 1 ? ")" : "");
}

static void put_indent(printer *p, int32_t depth) {
  for (int32_t i = 0; i < depth + 2; i++) {
    put(p, "  ");
  }
}

static void put_location(printer *p, const char *location) {
  static const char hex[] = "0123456789ABCDEF";
  put(p, " loc(\"");
  for (const char *c = location; *c; c++) {
    unsigned char byte = (unsigned char)*c;
    if (byte < ' ' || byte > '~' || byte == '"' || byte == '\\') {
      char escape[] = {'\\', hex[byte >> 4], hex[byte & 15]};
      tt_strbuf_append(&p->text, escape, sizeof escape);
    } else {
      tt_strbuf_append(&p->text, c, 1);
    }
  }
  put(p, "\")");
}

// ---- blocks ----
static void put_op(printer *p, tt_hlo_op *op);

// The operations and the terminator of a region.
static void put_block(printer *p, const tt_hlo_block *block) {
  for (tt_hlo_op *op = block->first; op; op = op->next) {
    if (op->live) {
      put_op(p, op);
    }
  }
  put_indent(p, block->depth);
  put(p, "stablehlo.return ");
  put_names(p, block->yields, block->yield_count);
  put(p, " : ");
  put_types(p, block->yields, block->yield_count);
  put(p, "\n");
}

static void put_generic_regions(printer *p, const tt_hlo_op *op) {
  for (int32_t i = 0; i < op->region_count; i++) {
    tt_hlo_block *region = op->regions[i];
    tt_hlo_op *args = region->arguments;
    args->id = p->next_argument;
    p->next_argument += args->result_count;
    put(p, i ? ", {\n" : " ({\n");
    put_indent(p, region->depth - 1);
    put(p, "^bb0(");
    for (int32_t k = 0; k < args->result_count; k++) {
      put(p, k ? ", " : "");
      put_name(p, &args->results[k]);
      put(p, ": ");
      put_type(p, &args->results[k]);
    }
    put(p, "):\n");
    put_block(p, region);
    put_indent(p, region->depth - 1);
    put(p, "}");
  }
  put(p, op->region_count ? ")" : "");
}

// The two regions of a loop write their arguments by the same names.
static void put_while(printer *p, const tt_hlo_op *op) {
  tt_hlo_op *args = op->regions[0]->arguments;
  args->id = op->regions[1]->arguments->id = p->next_argument;
  p->next_argument += args->result_count;
  put(p, "(");
  for (int32_t i = 0; i < op->operand_count; i++) {
    put(p, i ? ", " : "");
    put_name(p, &args->results[i]);
    put(p, " = ");
    put_name(p, op->operands[i]);
  }
  put(p, ") : ");
  put_types(p, op->operands, op->operand_count);
  for (int32_t i = 0; i < 2; i++) {
    put(p, i ? " do {\n" : " cond {\n");
    put_block(p, op->regions[i]);
    put_indent(p, op->regions[i]->depth - 1);
    put(p, "}");
  }
}

// ---- operations ----
static const char *compare_type(tt_hlo x) {
  return tt_dtype_is_signed_int(x->dtype)                            ? ", SIGNED"
         : tt_dtype_is_unsigned_int(x->dtype) || x->dtype == TT_PRED ? ", UNSIGNED"
                                                                     : ", FLOAT";
}

// The operands and attributes.
static void put_operands(printer *p, const tt_hlo_op *op, const char *attributes) {
  switch (op->form) {
    case TT_FORM_COMPARE:
      put(p, attributes);
      put(p, ", ");
      put_names(p, op->operands, op->operand_count);
      put(p, compare_type(op->operands[0]));
      break;
    case TT_FORM_GENERIC:
      put(p, "(");
      put_names(p, op->operands, op->operand_count);
      put(p, ") <{");
      put(p, attributes);
      put(p, "}>");
      put_generic_regions(p, op);
      break;
    case TT_FORM_CALL:
      put(p, "(");
      put_names(p, op->operands, op->operand_count);
      put(p, ")");
      put(p, attributes);
      break;
    case TT_FORM_TOP_K:
      put(p, "(");
      put_names(p, op->operands, op->operand_count);
      put(p, attributes);
      put(p, ")");
      break;
    case TT_FORM_REDUCE:
      put(p, "(");
      put_name(p, op->operands[0]);
      put(p, " init: ");
      put_name(p, op->operands[1]);
      put(p, ")");
      put(p, attributes);
      break;
    default:
      put(p, op->operand_count ? " " : "");
      put_names(p, op->operands, op->operand_count);
      put(p, attributes);
      break;
  }
}

static void put_op_type(printer *p, const tt_hlo_op *op) {
  put(p, " : ");
  switch (op->form) {
    case TT_FORM_SELECT:
      put_type(p, op->operands[0]);
      put(p, ", ");
      put_type(p, &op->results[0]);
      break;
    case TT_FORM_SAME:
      put_type(p, &op->results[0]);
      break;
    case TT_FORM_CHLO:
    case TT_FORM_TOP_K:
      put_types(p, op->operands, op->operand_count);
      put(p, " -> ");
      put_result_types(p, op);
      break;
    default:
      put(p, "(");
      put_types(p, op->operands, op->operand_count);
      put(p, ") -> ");
      put_result_types(p, op);
      break;
  }
}

static void put_op(printer *p, tt_hlo_op *op) {
  put_indent(p, op->block->depth);
  op->id = p->next_value++;
  put(p, "%");
  tt_hlo_put_int(&p->text, op->id);
  if (op->result_count > 1) {
    put(p, ":");
    tt_hlo_put_int(&p->text, op->result_count);
  }
  put(p, " = ");
  put(p, op->form == TT_FORM_GENERIC ? "\"" : "");
  put(p, op->name);
  put(p, op->form == TT_FORM_GENERIC ? "\"" : "");
  if (op->form == TT_FORM_WHILE) {
    put_while(p, op);
  } else {
    put_operands(p, op, op->attributes ? op->attributes : "");
    put_op_type(p, op);
  }
  if (op->location) {
    put_location(p, op->location);
  }
  put(p, "\n");
}

// ---- the module ----
static void put_signature(printer *p, const tt_hlo_builder *b, const tt_hlo *results, int32_t count) {
  put(p, "module @");
  put(p, b->module_name);
  put(p, " {\n  func.func public @main(");
  for (const tt_hlo_op *op = b->first_parameter; op; op = op->next) {
    put(p, op == b->first_parameter ? "" : ", ");
    put_name(p, &op->results[0]);
    put(p, ": ");
    put_type(p, &op->results[0]);
    if (op->alias >= 0) {
      put(p, " {tf.aliasing_output = ");
      tt_hlo_put_int(&p->text, op->alias);
      put(p, " : i32}");
    }
  }
  put(p, ") -> (");
  put_types(p, results, count);
  put(p, ") {\n");
}

char *tt_hlo_print(tt_hlo_builder *b, const tt_hlo *results, int32_t count) {
  printer p = {.next_argument = b->parameter_count};
  forget(&b->main);
  need(results, count);
  mark(&b->main);
  put_signature(&p, b, results, count);
  for (tt_hlo_op *op = b->main.first; op; op = op->next) {
    if (op->live) {
      put_op(&p, op);
    }
  }
  put(&p, "    return");
  put(&p, count ? " " : "");
  put_names(&p, results, count);
  put(&p, count ? " : " : "");
  put_types(&p, results, count);
  put(&p, "\n  }\n}\n");
  if (p.text.failed) {
    tt_strbuf_free(&p.text);
    return NULL;
  }
  return p.text.data;
}
