// The module of a stretch: the modules of its records as functions, and a main function that calls them in order.
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "eager/fused.h"
#include "eager/label.h"
#include "hlo/hlo.h"

tt_status *tt_stretch_create(tt_node *end, const tt_variant *variant, tt_stretch **out_stretch) {
  size_t sources = 0, count = (size_t)end->depth;
  for (const tt_node *node = end; node; node = node->parent) {
    sources += (size_t)node->source_count;
  }
  tt_stretch *stretch = calloc(1, sizeof *stretch + count * (sizeof(tt_record *) + sizeof(char *) + sizeof(int32_t *)) +
                                      (sources + (size_t)variant->live_count) * sizeof(int32_t));
  *out_stretch = stretch;
  if (!stretch) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  stretch->count = end->depth;
  stretch->records = (tt_record **)(stretch + 1);
  stretch->labels = (char **)(stretch->records + count);
  stretch->sources = (int32_t **)(stretch->labels + count);
  int32_t *next = (int32_t *)(stretch->sources + count);
  for (const tt_node *node = end; node; node = node->parent) {
    stretch->records[node->depth - 1] = node->record;
    atomic_fetch_add_explicit(&node->record->refs, 1, memory_order_relaxed);
    stretch->labels[node->depth - 1] = node->label ? strdup(node->label) : NULL;
    stretch->sources[node->depth - 1] = next;
    memcpy(next, node->sources, sizeof *next * (size_t)node->source_count);
    next += node->source_count;
  }
  stretch->live = next;
  stretch->live_count = variant->live_count;
  memcpy(next, variant->live, sizeof *next * (size_t)variant->live_count);
  return NULL;
}

void tt_stretch_free(tt_stretch *stretch) {
  for (int32_t i = 0; stretch && i < stretch->count; i++) {
    tt_record_unref(stretch->records[i]);
    free(stretch->labels[i]);
  }
  free(stretch);
}

// ---- the text of a record's module ----
// A piece of text that is not terminated.
typedef struct span {
  const char *text;
  size_t length;
} span;

// A record's module as a function.
typedef struct function {
  const tt_record *record;
  span *parameters, *results;
  const char *body;  // behind the signature's "{"
  size_t body_length;
} function;

typedef struct origin {
  int32_t step, output;  // -1: a value from outside, the output-th
  int32_t outside;       // the value from outside whose memory an in-place chain hands on to this one, or -1
  span type;
} origin;

typedef struct composer {
  const tt_stretch *stretch;
  tt_lowered *lowered;
  tt_arena *arena;  // of the composition
  function *functions;
  int32_t *function_of;  // [steps]
  int32_t function_count;
  origin *values;  // by number
  int32_t value_count, outside_count;
  int32_t *outside;      // numbers
  bool for_cpu, *marks;  // marks: [values], of find_overlap
  int32_t pack_counts[TT_DTYPE_COUNT], pack_at[TT_DTYPE_COUNT];
  tt_strbuf main, text;
} composer;

static void put_span(tt_strbuf *out, span s) { tt_strbuf_append(out, s.text, s.length); }
// A type ends at a comma, brace or parenthesis outside of its own brackets.
static span type_at(const char *text) {
  size_t length = 0;
  for (int depth = 0; text[length] && (depth || !strchr(",){ ", text[length])); length++) {
    depth += text[length] == '<' ? 1 : text[length] == '>' ? -1 : 0;
  }
  return (span){text, length};
}

static bool read_function(tt_arena *arena, const tt_record *record, function *out) {
  static const char head[] = "func.func public @main(", tail[] = "}\n";
  *out = (function){.record = record};
  out->parameters = tt_arena_alloc(arena, sizeof(span) * (size_t)(record->lowered.param_count + 1));
  out->results = tt_arena_alloc(arena, sizeof(span) * (size_t)(record->lowered.output_count + 1));
  const char *at = strstr(record->lowered.text, head);
  if (!out->parameters || !out->results || !at) {
    return false;
  }
  at += sizeof head - 1;
  for (int32_t i = 0; i < record->lowered.param_count; i++) {
    at = strstr(at, ": ");
    if (!at) {
      return false;
    }
    out->parameters[i] = type_at(at + 2);
    at += 2 + out->parameters[i].length;
    at += strncmp(at, " {", 2) ? 0 : strcspn(at, "}") + 1;  // its attributes
  }
  at = strstr(at, ") -> (");
  if (!at) {
    return false;
  }
  at += 6;
  for (int32_t i = 0; i < record->lowered.output_count; i++) {
    at += i ? 2 : 0;
    out->results[i] = type_at(at);
    at += out->results[i].length;
  }
  at = strstr(at, "{\n");
  size_t length = at ? strlen(at) : 0;
  if (length < 2 + sizeof tail - 1) {
    return false;
  }
  out->body = at + 2;
  out->body_length = length - 2 - (sizeof tail - 1);  // without the module's last line
  return true;
}

// ---- the module ----
static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }

static tt_status *find_functions(composer *c) {
  size_t count = (size_t)c->stretch->count;
  c->functions = tt_arena_alloc(c->arena, sizeof *c->functions * count);
  c->function_of = tt_arena_alloc(c->arena, sizeof *c->function_of * count);
  if (!c->functions || !c->function_of) {
    return no_memory();
  }
  for (int32_t i = 0; i < c->stretch->count; i++) {
    int32_t k = 0;
    while (k < c->function_count && c->functions[k].record != c->stretch->records[i]) {
      k++;
    }
    c->function_of[i] = k;
    if (k == c->function_count &&
        !read_function(c->arena, c->stretch->records[i], &c->functions[c->function_count++])) {
      return tt_error(TT_ERR_INTERNAL, "the module of %s can't be read", c->stretch->records[i]->op->name);
    }
  }
  return NULL;
}

// Gives the values their numbers, as the tape did.
static tt_status *number_values(composer *c) {
  int32_t most = 0;
  for (int32_t i = 0; i < c->stretch->count; i++) {
    most += c->stretch->records[i]->lowered.param_count + c->stretch->records[i]->lowered.output_count;
  }
  c->values = tt_arena_alloc(c->arena, sizeof *c->values * (size_t)(most + 1));
  c->outside = tt_arena_alloc(c->arena, sizeof *c->outside * (size_t)(most + 1));
  if (!c->values || !c->outside) {
    return no_memory();
  }
  for (int32_t i = 0; i < c->stretch->count; i++) {
    const tt_lowered *l = &c->stretch->records[i]->lowered;
    const function *f = &c->functions[c->function_of[i]];
    const int32_t *source = c->stretch->sources[i];
    for (int32_t p = 0; p < l->param_count; p++) {
      if (l->params[p].kind == TT_PARAM_SLOT && *source++ == c->value_count) {
        c->outside[c->outside_count] = c->value_count;
        c->values[c->value_count++] = (origin){-1, c->outside_count, c->outside_count, f->parameters[p]};
        c->outside_count++;
      }
    }
    for (int32_t o = 0; o < l->output_count; o++) {
      if (l->outputs[o].kind == TT_OUTPUT_ASSERT) {
        continue;
      }
      origin value = {i, o, -1, f->results[o]};
      source = c->stretch->sources[i];
      for (int32_t p = 0; p < l->param_count; p++) {
        if (l->params[p].kind == TT_PARAM_SLOT) {
          value.outside = l->params[p].aliased && l->params[p].alias == o ? c->values[*source].outside : value.outside;
          source++;
        }
      }
      c->values[c->value_count++] = value;
    }
  }
  return NULL;
}

static void put_value(composer *c, tt_strbuf *out, int32_t number) {
  const origin *v = &c->values[number];
  if (v->step < 0) {
    tt_strbuf_printf(out, "%%arg%d", v->output);
  } else if (c->stretch->records[v->step]->lowered.output_count > 1) {
    tt_strbuf_printf(out, "%%s%d#%d", v->step, v->output);
  } else {
    tt_strbuf_printf(out, "%%s%d", v->step);
  }
}

static void put_pack_type(tt_strbuf *out, tt_dtype dtype, int64_t count) {
  tt_hlo_append_type(out, dtype, &count, count ? 1 : 0);
}

// A number that doesn't change, by its bytes.
static void put_constant(tt_strbuf *out, int32_t step, int32_t p, const tt_literal *literal) {
  tt_strbuf_printf(out, "    %%n%d_%d = stablehlo.constant dense<", step, p);
  if (literal->dtype == TT_PRED) {
    tt_strbuf_puts(out, literal->bytes[0] ? "true" : "false");
  } else {
    tt_strbuf_puts(out, "\"0x");
    for (size_t i = 0; i < tt_dtype_size(literal->dtype); i++) {
      tt_strbuf_printf(out, "%02X", literal->bytes[i]);
    }
    tt_strbuf_puts(out, "\"");
  }
  tt_strbuf_puts(out, "> : ");
  put_pack_type(out, literal->dtype, 0);
  tt_strbuf_puts(out, "\n");
}

// A number of the call: cut from the vector of its dtype.
// literal: of a graph.
static void put_literal(composer *c, int32_t step, int32_t p, const tt_param *param, const tt_literal *literal) {
  bool random = param->kind == TT_PARAM_RANDOM;
  if (literal && !random) {
    put_constant(&c->main, step, p, literal);
    return;
  }
  tt_dtype dtype = random ? TT_U64 : (tt_dtype)param->dtype;
  int32_t at = c->pack_at[dtype], width = random ? 2 : 1;
  c->pack_at[dtype] += width;
  tt_strbuf *out = &c->main;
  tt_strbuf_printf(out, "    %%n%d_%d%s = stablehlo.slice %%pack%d [%d:%d] : (", step, p, random ? "" : "v", (int)dtype,
                   at, at + width);
  put_pack_type(out, dtype, c->pack_counts[dtype]);
  tt_strbuf_puts(out, ") -> ");
  put_pack_type(out, dtype, width);
  tt_strbuf_puts(out, "\n");
  if (!random) {
    tt_strbuf_printf(out, "    %%n%d_%d = stablehlo.reshape %%n%d_%dv : (", step, p, step, p);
    put_pack_type(out, dtype, 1);
    tt_strbuf_puts(out, ") -> ");
    put_pack_type(out, dtype, 0);
    tt_strbuf_puts(out, "\n");
  }
}

static void put_types(tt_strbuf *out, const span *types, int32_t count) {
  tt_strbuf_puts(out, "(");
  for (int32_t i = 0; i < count; i++) {
    tt_strbuf_puts(out, i ? ", " : "");
    put_span(out, types[i]);
  }
  tt_strbuf_puts(out, ")");
}

// ---- updates that read what they overwrite (overlap.c) ----
// Whether what step i has as `param`, other than the value `base` itself, is made of elements of `base`.
static tt_status *find_overlap(composer *c, int32_t i, int32_t base, bool *out_overlaps) {
  memset(c->marks, 0, sizeof *c->marks * (size_t)c->value_count);
  c->marks[base] = true;
  *out_overlaps = false;
  int32_t number = base + 1;
  for (int32_t j = c->values[base].step + 1; j <= i; j++) {
    const tt_lowered *l = &c->stretch->records[j]->lowered;
    bool *params = tt_arena_alloc(c->arena, sizeof *params * (size_t)(l->param_count + 1)), reaches = false;
    if (!params) {
      return no_memory();
    }
    const int32_t *source = c->stretch->sources[j];
    for (int32_t p = 0; p < l->param_count; p++) {
      params[p] = l->params[p].kind == TT_PARAM_SLOT && c->marks[*source++];
      reaches = reaches || (params[p] && (j < i || source[-1] != base));
    }
    if (j == i) {
      *out_overlaps = reaches;
    } else if (reaches) {
      TT_TRY(tt_text_reaches(l->text, params, l->param_count, &reaches));
    }
    for (; number < c->value_count && c->values[number].step <= j; number++) {
      c->marks[number] = reaches && c->values[number].step == j;
    }
  }
  return NULL;
}

static int32_t whole_number_of(const tt_lowered *l) {
  for (int32_t p = 0; p < l->param_count; p++) {
    if (l->params[p].kind != TT_PARAM_SLOT && l->params[p].kind != TT_PARAM_RANDOM && l->params[p].dtype == TT_S32) {
      return p;
    }
  }
  return -1;
}

// The number that a graph has for its guards.
static void put_zero(composer *c, int32_t step, int32_t p) {
  tt_strbuf_printf(&c->main, "    %%n%d_%d = stablehlo.reshape %%pack%d : (tensor<1xi32>) -> tensor<i32>\n", step, p,
                   (int)TT_S32);
}

// Names the base of an update anew, `%gSTEP_PARAM`, by a choice between it and something else that only running the
// program decides: the base is then no operand of the update's fusion, which takes memory of its own.
static tt_status *put_guard(composer *c, int32_t i, int32_t p, int32_t base) {
  tt_strbuf *out = &c->main;
  int32_t number = whole_number_of(&c->stretch->records[i]->lowered);
  if (c->stretch->literals) {
    number = c->stretch->records[i]->lowered.param_count;  // of no parameter
    put_zero(c, i, number);
  } else if (number < 0) {
    return tt_error(TT_ERR_INTERNAL, "an update of %s has no start", c->stretch->records[i]->op->name);
  }
  tt_strbuf_printf(out, "    %%g%d_%dl = stablehlo.constant dense<-2147483648> : tensor<i32>\n", i, p);
  tt_strbuf_printf(out, "    %%g%d_%dp = stablehlo.compare GE, %%n%d_%d, %%g%d_%dl, SIGNED : ", i, p, i, number, i, p);
  tt_strbuf_puts(out, "(tensor<i32>, tensor<i32>) -> tensor<i1>\n");
  tt_strbuf_printf(out, "    %%g%d_%dr = stablehlo.reverse ", i, p);
  put_value(c, out, base);
  tt_strbuf_puts(out, ", dims = [0] : ");
  put_span(out, c->values[base].type);
  tt_strbuf_printf(out, "\n    %%g%d_%d = stablehlo.select %%g%d_%dp, ", i, p, i, p);
  put_value(c, out, base);
  tt_strbuf_printf(out, ", %%g%d_%dr : tensor<i1>, ", i, p);
  put_span(out, c->values[base].type);
  tt_strbuf_puts(out, "\n");
  return NULL;
}

static bool has_dims(span type) {
  const size_t head = sizeof "tensor<" - 1;
  return type.length > head && type.text[head] >= '0' && type.text[head] <= '9';
}

// Whether the step may write over one of its operands, which in a graph functional operators do, too.
static bool updates(const composer *c, const tt_lowered *l) {
  return c->for_cpu && strstr(l->text, "stablehlo.dynamic_update_slice");
}

// The parameter of step i that is guarded, or -1.
static tt_status *guard_base(composer *c, int32_t i, int32_t *out_param) {
  const tt_lowered *l = &c->stretch->records[i]->lowered;
  const int32_t *source = c->stretch->sources[i];
  *out_param = -1;
  if (!updates(c, l)) {
    return NULL;
  }
  for (int32_t p = 0; p < l->param_count; p++) {
    if (l->params[p].kind != TT_PARAM_SLOT) {
      continue;
    }
    const int32_t base = *source++;
    bool overlaps = false;
    if (l->params[p].aliased || (c->stretch->literals && has_dims(c->values[base].type))) {
      TT_TRY(find_overlap(c, i, base, &overlaps));
    }
    if (overlaps) {
      *out_param = p;
      return put_guard(c, i, p, base);
    }
  }
  return NULL;
}

static tt_status *put_step(composer *c, int32_t i) {
  const tt_lowered *l = &c->stretch->records[i]->lowered;
  const function *f = &c->functions[c->function_of[i]];
  const int32_t *source = c->stretch->sources[i];
  tt_strbuf *out = &c->main;
  const tt_literal *literal = c->stretch->literals ? c->stretch->literals[i] : NULL;
  for (int32_t p = 0; p < l->param_count; p++) {
    if (l->params[p].kind != TT_PARAM_SLOT) {
      put_literal(c, i, p, &l->params[p], literal);
      literal += literal != NULL;
    }
  }
  int32_t guarded;
  TT_TRY(guard_base(c, i, &guarded));
  tt_strbuf_printf(out, l->output_count > 1 ? "    %%s%d:%d = " : "    %%s%d = ", i, l->output_count);
  tt_strbuf_printf(out, "func.call @f%d(", c->function_of[i]);
  for (int32_t p = 0; p < l->param_count; p++) {
    tt_strbuf_puts(out, p ? ", " : "");
    if (l->params[p].kind != TT_PARAM_SLOT) {
      tt_strbuf_printf(out, "%%n%d_%d", i, p);
      continue;
    }
    if (p == guarded) {
      tt_strbuf_printf(out, "%%g%d_%d", i, p);
    } else {
      put_value(c, out, *source);
    }
    source++;
  }
  tt_strbuf_puts(out, ") : ");
  put_types(out, f->parameters, l->param_count);
  tt_strbuf_puts(out, " -> ");
  put_types(out, f->results, l->output_count);
  tt_strbuf_puts(out, "\n");
  return NULL;
}

// ---- what the program takes and gives ----
static void count_packs(composer *c) {
  for (int32_t i = 0; i < c->stretch->count; i++) {
    const tt_lowered *l = &c->stretch->records[i]->lowered;
    for (int32_t p = 0; p < l->param_count; p++) {
      if (l->params[p].kind == TT_PARAM_RANDOM) {
        c->pack_counts[TT_U64] += 2;
      } else if (l->params[p].kind != TT_PARAM_SLOT && !c->stretch->literals) {
        c->pack_counts[l->params[p].dtype]++;
      }
    }
    if (c->stretch->literals && updates(c, l)) {
      c->pack_counts[TT_S32] = 1;
    }
  }
}

static tt_status *list_params(composer *c) {
  tt_lowered *l = c->lowered;
  l->params = tt_arena_alloc(&l->arena, sizeof *l->params * (size_t)(c->outside_count + TT_DTYPE_COUNT));
  if (!l->params) {
    return no_memory();
  }
  for (int32_t i = 0; i < c->outside_count; i++) {
    l->params[l->param_count++] = (tt_param){.kind = TT_PARAM_SLOT, .index = c->outside[i]};
  }
  for (int32_t d = 0; d < TT_DTYPE_COUNT; d++) {
    if (c->pack_counts[d]) {
      l->params[l->param_count++] =
          (tt_param){.kind = TT_PARAM_NUMBER, .dtype = (uint8_t)d, .index = c->pack_counts[d]};
    }
  }
  return NULL;
}

// ---- memory that results take over ----
// Whether step i takes value `number`.
static bool takes(const composer *c, int32_t i, int32_t number) {
  const tt_lowered *l = &c->stretch->records[i]->lowered;
  const int32_t *source = c->stretch->sources[i];
  for (int32_t p = 0; p < l->param_count; p++) {
    if (l->params[p].kind == TT_PARAM_SLOT && *source++ == number) {
      return true;
    }
  }
  return false;
}

// Whether some step that reads value `number`, which comes from outside, isn't bound to run before step `last`, which
// makes the result that would take its memory. XLA:CPU copies the value then, for nothing. A weight is so: its old
// value gives the gradient of the layer's input, on which the new one doesn't depend.
static tt_status *is_read_beside(composer *c, int32_t number, int32_t last, bool *out_beside) {
  const int32_t count = c->stretch->count;
  *out_beside = false;
  bool *before = tt_arena_alloc(c->arena, sizeof *before * (size_t)count);
  if (!before) {
    return no_memory();
  }
  memset(before, 0, sizeof *before * (size_t)count);
  before[last] = true;
  for (int32_t i = last; i >= 0; i--) {
    const tt_lowered *l = &c->stretch->records[i]->lowered;
    const int32_t *source = c->stretch->sources[i];
    for (int32_t p = 0; before[i] && p < l->param_count; p++) {
      if (l->params[p].kind == TT_PARAM_SLOT) {
        const int32_t step = c->values[*source++].step;
        before[step < 0 ? i : step] = true;
      }
    }
  }
  for (int32_t i = 0; i < count && !*out_beside; i++) {
    *out_beside = !before[i] && takes(c, i, number);
  }
  return NULL;
}

static tt_status *list_outputs(composer *c) {
  tt_lowered *l = c->lowered;
  for (int32_t i = 0; i < c->stretch->count; i++) {
    l->assert_count += c->stretch->records[i]->lowered.assert_count;
  }
  l->outputs = tt_arena_alloc(&l->arena, sizeof *l->outputs * (size_t)(c->stretch->live_count + l->assert_count + 1));
  l->asserts = tt_arena_alloc(&l->arena, sizeof *l->asserts * (size_t)(l->assert_count + 1));
  if (!l->outputs || !l->asserts) {
    return no_memory();
  }
  for (int32_t i = 0; i < c->stretch->live_count; i++) {
    const origin *v = &c->values[c->stretch->live[i]];
    int32_t outside = c->stretch->alias ? c->stretch->alias[i] : v->step >= 0 ? v->outside : -1;
    bool beside = false;
    if (outside >= 0 && c->for_cpu && !c->stretch->alias) {
      TT_TRY(is_read_beside(c, c->outside[outside], v->step, &beside));
    }
    if (outside >= 0 && !beside) {
      l->params[outside].aliased = true;
      l->params[outside].alias = i;  // the last of a chain
    }
    l->outputs[l->output_count++] = (tt_output){.kind = TT_OUTPUT_RESULT, .index = c->stretch->live[i]};
  }
  int32_t next = 0;
  for (int32_t i = 0; i < c->stretch->count; i++) {
    const tt_lowered *from = &c->stretch->records[i]->lowered;
    for (int32_t o = 0; o < from->output_count; o++) {
      if (from->outputs[o].kind == TT_OUTPUT_ASSERT) {
        const tt_assert *what = &from->asserts[from->outputs[o].index];
        l->asserts[next] = (tt_assert){what->code, tt_arena_copy(&l->arena, what->message, strlen(what->message) + 1)};
        l->outputs[l->output_count++] = (tt_output){.kind = TT_OUTPUT_ASSERT, .index = next++};
      }
    }
  }
  return NULL;
}

// ---- printing ----
static void put_signature(composer *c) {
  tt_strbuf *out = &c->text;
  const tt_lowered *l = c->lowered;
  tt_strbuf_puts(out, "module @fused {\n  func.func public @main(");
  for (int32_t i = 0; i < l->param_count; i++) {
    tt_strbuf_puts(out, i ? ", " : "");
    if (l->params[i].kind == TT_PARAM_SLOT) {
      tt_strbuf_printf(out, "%%arg%d: ", i);
      put_span(out, c->values[l->params[i].index].type);
      if (l->params[i].aliased) {
        tt_strbuf_printf(out, " {tf.aliasing_output = %d : i32}", l->params[i].alias);
      }
    } else {
      tt_strbuf_printf(out, "%%pack%d: ", l->params[i].dtype);
      put_pack_type(out, (tt_dtype)l->params[i].dtype, l->params[i].index);
    }
  }
  tt_strbuf_puts(out, ") -> ");
}

static void put_result_types(composer *c, tt_strbuf *out) {
  tt_strbuf_puts(out, "(");
  for (int32_t i = 0; i < c->lowered->output_count; i++) {
    tt_strbuf_puts(out, i ? ", " : "");
    const tt_output *o = &c->lowered->outputs[i];
    if (o->kind == TT_OUTPUT_RESULT) {
      put_span(out, c->values[o->index].type);
    } else {
      tt_strbuf_puts(out, "tensor<i1>");
    }
  }
  tt_strbuf_puts(out, ")");
}

static void put_return(composer *c) {
  tt_strbuf *out = &c->main;
  tt_strbuf_puts(out, "    return ");
  for (int32_t i = 0; i < c->stretch->live_count; i++) {
    tt_strbuf_puts(out, i ? ", " : "");
    put_value(c, out, c->stretch->live[i]);
  }
  bool first = c->stretch->live_count == 0;
  for (int32_t i = 0; i < c->stretch->count; i++) {
    const tt_lowered *l = &c->stretch->records[i]->lowered;
    for (int32_t o = 0; o < l->output_count; o++) {
      if (l->outputs[o].kind == TT_OUTPUT_ASSERT) {
        tt_strbuf_printf(out, l->output_count > 1 ? "%s%%s%d#%d" : "%s%%s%d", first ? "" : ", ", i, o);
        first = false;
      }
    }
  }
  tt_strbuf_puts(out, " : ");
}

static tt_status *compose(composer *c) {
  TT_TRY(find_functions(c));
  TT_TRY(number_values(c));
  c->marks = tt_arena_alloc(c->arena, sizeof *c->marks * (size_t)(c->value_count + 1));
  if (!c->marks) {
    return no_memory();
  }
  count_packs(c);
  TT_TRY(list_params(c));
  TT_TRY(list_outputs(c));
  if (!c->lowered->output_count) {
    return NULL;  // nothing of it is needed
  }
  for (int32_t i = 0; i < c->stretch->count; i++) {
    TT_TRY(put_step(c, i));
  }
  put_return(c);
  put_signature(c);
  put_result_types(c, &c->text);
  tt_strbuf_puts(&c->text, " {\n");
  tt_strbuf_append(&c->text, c->main.data, c->main.length);
  // The types of a return stand without parentheses.
  tt_strbuf types = {0};
  put_result_types(c, &types);
  if (types.length >= 2) {
    tt_strbuf_append(&c->text, types.data + 1, types.length - 2);
  }
  tt_strbuf_free(&types);
  tt_strbuf_puts(&c->text, "\n  }\n");
  for (int32_t i = 0; i < c->function_count; i++) {
    const function *f = &c->functions[i];
    tt_strbuf_printf(&c->text, "  func.func private @f%d(", i);
    for (int32_t p = 0; p < f->record->lowered.param_count; p++) {
      tt_strbuf_printf(&c->text, p ? ", %%arg%d: " : "%%arg%d: ", p);
      put_span(&c->text, f->parameters[p]);
    }
    tt_strbuf_puts(&c->text, ") -> ");
    put_types(&c->text, f->results, f->record->lowered.output_count);
    tt_strbuf_puts(&c->text, " {\n");
    tt_strbuf_append(&c->text, f->body, f->body_length);
  }
  tt_strbuf_puts(&c->text, "}\n");
  if (c->text.failed || c->main.failed) {
    return no_memory();
  }
  c->lowered->text = c->text.data;
  c->text = (tt_strbuf){0};
  return NULL;
}

tt_status *tt_stretch_lower(const tt_stretch *stretch, bool for_cpu, tt_lowered *lowered) {
  tt_arena arena = {0};
  *lowered = (tt_lowered){.resize_arg = -1, .generator_arg = -1};
  composer c = {.stretch = stretch, .for_cpu = for_cpu, .lowered = lowered, .arena = &arena};
  tt_status *status = compose(&c);
  tt_strbuf_free(&c.main);
  tt_strbuf_free(&c.text);
  tt_arena_free(&arena);
  if (status) {
    tt_lowered_free(lowered);
  }
  return status;
}

char *tt_stretch_label_text(const tt_stretch *stretch, const char *text) {
  tt_strbuf out = {0};
  bool any = false;
  while (*text) {
    size_t length = strcspn(text, "\n");
    tt_strbuf_append(&out, text, length);
    // "    %s12 = func.call" is step 12.
    const char *step = strncmp(text, "    %s", 6) ? NULL : text + 6;
    long i = step ? strtol(step, NULL, 10) : -1;
    if (i >= 0 && i < stretch->count && stretch->labels[i] && memmem(text, length, " = func.call ", 13)) {
      tt_label_put_location(&out, stretch->labels[i], stretch->records[i]->op->short_name);
      any = true;
    }
    tt_strbuf_append(&out, "\n", 1);
    text += length + (text[length] == '\n');
  }
  if (!any || out.failed) {
    tt_strbuf_free(&out);
    return NULL;
  }
  return out.data;
}
