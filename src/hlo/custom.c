// Calls of functions that the plugin was given.
#include <string.h>

#include "hlo/internal.h"

enum { MOST_RESULTS = 16 };

// What may stand in a module unquoted.
static bool is_name(const char *text) {
  static const char letters[] = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ_", more[] = "0123456789.";
  if (!text || !*text || !strchr(letters, *text)) {
    return false;
  }
  for (const char *c = text; *c; c++) {
    if (!strchr(letters, *c) && !strchr(more, *c)) {
      return false;
    }
  }
  return true;
}

static bool check_call(tt_hlo_builder *b, const char *name, const tt_hlo *operands, int32_t count,
                       const tt_hlo_numbers *attributes, int32_t attribute_count, const tt_hlo_type_spec *types,
                       int32_t result_count) {
  const char *wrong = result_count < 1 || result_count > MOST_RESULTS || !types ? "the number of results" : NULL;
  for (int32_t i = 0; !wrong && i < result_count; i++) {
    wrong = tt_hlo_bad_type(types[i].dtype, types[i].dims, types[i].rank);
  }
  for (int32_t i = 0; !wrong && i < attribute_count; i++) {
    const tt_hlo_numbers *a = &attributes[i];
    wrong = !is_name(a->name) || a->count < 1 || !a->values ? "an attribute without a name or values" : NULL;
  }
  if (wrong) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, name, operands, count, "%s", wrong);
  }
  return !wrong;
}

// dense<[1, 0]> : tensor<2xindex>: dims from the innermost.
static void put_layout(tt_strbuf *text, int32_t rank) {
  tt_strbuf_puts(text, rank ? "dense<[" : "dense<");
  for (int32_t i = rank - 1; i >= 0; i--) {
    tt_hlo_put_int(text, i);
    tt_strbuf_puts(text, i ? ", " : "]");
  }
  tt_strbuf_printf(text, "> : tensor<%dxindex>", rank);
}

static const char *call_attributes(tt_hlo_builder *b, const tt_hlo *operands, int32_t count,
                                   const tt_hlo_numbers *attributes, int32_t attribute_count,
                                   const tt_hlo_type_spec *types, int32_t result_count) {
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_puts(text, " {api_version = 4 : i32, backend_config = {");
  for (int32_t i = 0; i < attribute_count; i++) {
    tt_strbuf_puts(text, i ? ", " : "");
    tt_hlo_put_array(text, attributes[i].name, attributes[i].values, attributes[i].count);
  }
  tt_strbuf_puts(text, "}, operand_layouts = [");
  for (int32_t i = 0; i < count; i++) {
    tt_strbuf_puts(text, i ? ", " : "");
    put_layout(text, operands[i]->rank);
  }
  tt_strbuf_puts(text, "], result_layouts = [");
  for (int32_t i = 0; i < result_count; i++) {
    tt_strbuf_puts(text, i ? ", " : "");
    put_layout(text, types[i].rank);
  }
  tt_strbuf_puts(text, "]}");
  return tt_strbuf_text(text);
}

void tt_hlo_custom_call(tt_hlo_builder *b, const char *target, const tt_hlo *operands, int32_t count,
                        const tt_hlo_numbers *attributes, int32_t attribute_count, const tt_hlo_type_spec *types,
                        int32_t result_count, tt_hlo *results) {
  static const char name[] = "stablehlo.custom_call";
  tt_hlo_take_results(NULL, results, result_count > 0 ? result_count : 0);
  if (!tt_hlo_enter_builder(b, name, operands, count)) {
    return;
  }
  if (!is_name(target)) {
    tt_hlo_errorf(b, TT_ERR_INTERNAL, name, operands, count, "no name of a function");
    return;
  }
  if (!check_call(b, name, operands, count, attributes, attribute_count, types, result_count)) {
    return;
  }
  tt_hlo_type list[MOST_RESULTS];
  for (int32_t i = 0; i < result_count; i++) {
    list[i] = (tt_hlo_type){types[i].dtype, types[i].rank, types[i].dims};
  }
  const size_t length = sizeof name + 1 + strlen(target) + 1;
  char *full = tt_arena_alloc(&b->arena, length);
  if (!full) {
    tt_hlo_no_memory(b);
    return;
  }
  memcpy(full, name, sizeof name - 1);
  memcpy(full + sizeof name - 1, " @", 2);
  strcpy(full + sizeof name + 1, target);
  const tt_hlo_op *op = tt_hlo_make(
      b, &(tt_hlo_new_op){
             .name = full,
             .form = TT_FORM_CALL,
             .operands = operands,
             .operand_count = count,
             .attributes = call_attributes(b, operands, count, attributes, attribute_count, types, result_count),
             .types = list,
             .result_count = result_count});
  tt_hlo_take_results(op, results, result_count);
}
