// Runs of elementwise operators over lists of arrays (what an optimizer is made of), as calls of a host kernel: one
// call does for all parameters what XLA:CPU would do with several loops for each.
//
// The values of a run are nodes of one graph. It falls apart into components, a parameter each, most of which are the
// same program: those become the groups of one call.
#include "eager/lists.h"

#include <stdlib.h>
#include <string.h>

#include "kernels/handlers.h"
#include "kernels/kernels.h"

enum { FEWEST_COMPONENTS = 2 };

// A node of a run. Operands are nodes of the run.
typedef struct run_node {
  const tt_list_node *of;
  int32_t operands[3];
  int32_t value;      // TT_NODE_INPUT: the value's number
  int32_t place;      // TT_NODE_NUMBER: in the pack
  int32_t component;  // a node of it, by the way to its root
  int32_t local;      // its register, while a component is read
  int32_t last_use;
  bool done_before;                  // an input, or opaque and made of inputs alone
  const tt_list_function *function;  // TT_NODE_OPAQUE: where its line is from, and what the nodes there are in the run
  const int32_t *map;
} run_node;

typedef struct component {
  int32_t *words;  // the program, for comparison
  int32_t word_count, input_count, number_count, constant_count, op_count, output_count, registers;
  int32_t *inputs;   // nodes
  int32_t *numbers;  // nodes
  int32_t *outputs;  // numbers of values
  int32_t *aliases;  // [outputs]: an input, or -1
  int64_t elements;
  bool printed;
} component;

typedef struct run {
  tt_composer *c;
  int32_t first, count;  // steps
  run_node *nodes;
  int32_t node_count;
  int32_t *node_of;  // [values]: + 1; 0: none
  bool *wanted;      // [values]: after the run
  component *components;
  int32_t component_count;
  int32_t pack_at[TT_DTYPE_COUNT];
} run;

static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }

static tt_status *function_of(tt_composer *c, int32_t step, const tt_list_function **out_function) {
  tt_function *f = &c->functions[c->function_of[step]];
  if (!f->looked) {
    f->looked = true;
    if (!tt_list_read(c->arena, f, &f->lists)) {
      return no_memory();
    }
  }
  *out_function = f->lists;
  return NULL;
}

// ---- the graph ----
static int32_t root_of(run *r, int32_t node) {
  while (r->nodes[node].component != node) {
    node = r->nodes[node].component = r->nodes[r->nodes[node].component].component;
  }
  return node;
}

// The node of the value that a parameter has.
static int32_t input_node(run *r, const tt_list_node *of, int32_t value) {
  if (!r->node_of[value]) {
    const int32_t node = r->node_count++;
    r->nodes[node] = (run_node){.of = of, .value = value, .component = node, .done_before = true};
    r->node_of[value] = node + 1;
  }
  return r->node_of[value] - 1;
}

// Adds what one node of a function is in the run; its number.
static int32_t add_node(run *r, const tt_list_function *f, const tt_list_node *of, const int32_t *map) {
  if (of->kind == TT_NODE_SAME) {
    return map[of->operands[0]];
  }
  const int32_t node = r->node_count++;
  run_node *n = &r->nodes[node];
  *n = (run_node){.of = of, .component = node, .done_before = of->kind == TT_NODE_OPAQUE, .function = f, .map = map};
  for (int32_t i = 0; i < of->operand_count; i++) {
    n->operands[i] = map[of->operands[i]];
    const run_node *x = &r->nodes[n->operands[i]];
    if (!of->is_uniform && !x->of->is_uniform) {
      r->nodes[root_of(r, n->operands[i])].component = root_of(r, node);
    }
  }
  return node;
}

// An opaque line is put before the run, so that it can read only what is there already.
static bool reads_what_is_there(const run *r, const tt_list_function *f, const tt_list_node *of, const int32_t *map) {
  const char *at = of->line.text, *end = at + of->line.length;
  while ((at = memchr(at, '%', (size_t)(end - at)))) {
    const bool is_param = !strncmp(at, "%arg", 4);
    const long number = strtol(at + (is_param ? 4 : 1), NULL, 10);
    const long node = is_param ? number : number + f->param_count;
    if (node >= f->node_count || f->nodes[node].kind == TT_NODE_NUMBER || !r->nodes[map[node]].done_before) {
      return false;
    }
    at++;
  }
  return true;
}

// Adds a step; false if it doesn't go with those before. What it added then is forgotten by the caller.
static bool add_step(run *r, int32_t step, const tt_list_function *f, int32_t *map) {
  tt_composer *c = r->c;
  const tt_lowered *l = &c->stretch->records[step]->lowered;
  const int32_t *source = c->stretch->sources[step];
  for (int32_t i = 0; i < f->node_count; i++) {
    const tt_list_node *of = &f->nodes[i];
    if (of->kind == TT_NODE_INPUT) {
      map[i] = input_node(r, of, *source++);
      const tt_list_node *before = r->nodes[map[i]].of;
      if (before->elements != of->elements || before->is_uniform) {
        return false;
      }
    } else if (of->kind == TT_NODE_OPAQUE && !reads_what_is_there(r, f, of, map)) {
      return false;
    } else {
      map[i] = add_node(r, f, of, map);
    }
    if (of->kind == TT_NODE_NUMBER) {
      r->nodes[map[i]].place = r->pack_at[l->params[i].dtype]++;
    }
  }
  return true;
}

// The first value that a step makes. Values are numbered in the order of steps, those from outside before them.
static int32_t first_result(const tt_composer *c, int32_t step, int32_t from) {
  while (from < c->value_count && c->values[from].step != step) {
    from++;
  }
  return from;
}

static tt_status *find_run(run *r) {
  tt_composer *c = r->c;
  int32_t next_value = 0;
  memcpy(r->pack_at, c->pack_at, sizeof r->pack_at);
  for (int32_t step = r->first; step < c->stretch->count; step++) {
    const tt_list_function *f;
    TT_TRY(function_of(c, step, &f));
    if (!f) {
      break;
    }
    int32_t *map = tt_arena_alloc(c->arena, sizeof *map * (size_t)f->node_count);
    run_node *nodes = tt_arena_alloc(c->arena, sizeof *nodes * (size_t)(r->node_count + f->node_count));
    if (!map || !nodes) {
      return no_memory();
    }
    memcpy(nodes, r->nodes, sizeof *nodes * (size_t)r->node_count);
    const run before = *r;
    r->nodes = nodes;
    if (!add_step(r, step, f, map)) {
      for (int32_t i = before.node_count; i < r->node_count; i++) {
        if (r->nodes[i].of->kind == TT_NODE_INPUT) {
          r->node_of[r->nodes[i].value] = 0;
        }
      }
      *r = before;
      break;
    }
    next_value = first_result(c, step, next_value);
    for (int32_t i = 0; i < c->stretch->records[step]->lowered.output_count; i++) {
      r->node_of[next_value + i] = map[f->returns[i]] + 1;
    }
    r->count++;
  }
  return NULL;
}

// ---- what is needed of it ----
static void find_wanted(run *r) {
  const tt_stretch *s = r->c->stretch;
  for (int32_t i = 0; i < s->live_count; i++) {
    r->wanted[s->live[i]] = true;
  }
  for (int32_t step = r->first + r->count; step < s->count; step++) {
    const tt_lowered *l = &s->records[step]->lowered;
    const int32_t *source = s->sources[step];
    for (int32_t p = 0; p < l->param_count; p++) {
      if (l->params[p].kind == TT_PARAM_SLOT) {
        r->wanted[*source++] = true;
      }
    }
  }
}

static bool is_made_here(const run *r, int32_t value) {
  const int32_t step = r->c->values[value].step;
  return step >= r->first && step < r->first + r->count;
}

// ---- components ----
// Marks what a component's outputs are made of: last_use is the place of the last node that reads it.
static bool mark_used(run *r, int32_t root, bool *used) {
  bool any = false;
  for (int32_t v = 0; v < r->c->value_count; v++) {
    if (r->wanted[v] && is_made_here(r, v) && root_of(r, r->node_of[v] - 1) == root) {
      used[r->node_of[v] - 1] = any = true;
      r->nodes[r->node_of[v] - 1].last_use = r->node_count;
    }
  }
  for (int32_t i = r->node_count; i-- > 0;) {
    const run_node *n = &r->nodes[i];
    for (int32_t k = 0; used[i] && n->of->kind == TT_NODE_OP && k < n->of->operand_count; k++) {
      run_node *x = &r->nodes[n->operands[k]];
      x->last_use = x->last_use > i ? x->last_use : i;
      used[n->operands[k]] = true;
    }
  }
  return any;
}

static bool is_input(const run_node *n) { return n->of->kind == TT_NODE_INPUT || n->of->kind == TT_NODE_OPAQUE; }

// Registers of what is given.
static void place_given(run *r, component *k, const bool *used) {
  for (int32_t i = 0; i < r->node_count; i++) {
    if (used[i] && is_input(&r->nodes[i])) {
      k->inputs[k->input_count++] = i;
      k->elements = r->nodes[i].of->elements;
    }
    if (used[i] && r->nodes[i].of->kind == TT_NODE_NUMBER) {
      k->numbers[k->number_count++] = i;
    }
  }
  for (int32_t i = 0; i < k->input_count; i++) {
    r->nodes[k->inputs[i]].local = i;
  }
  for (int32_t i = 0; i < k->number_count; i++) {
    r->nodes[k->numbers[i]].local = k->input_count + i;
  }
  k->registers = k->input_count + k->number_count;
  for (int32_t i = 0; i < r->node_count; i++) {
    if (used[i] && r->nodes[i].of->kind == TT_NODE_CONSTANT) {
      r->nodes[i].local = k->registers++;
      uint32_t bits;
      memcpy(&bits, &r->nodes[i].of->constant, sizeof bits);
      k->words[k->word_count++] = (int32_t)bits;
      k->constant_count++;
    }
  }
}

// A register that no node reads after `node`, or a new one; -1: there are too many. `owner`: [registers], the nodes.
static int32_t free_register(const run *r, component *k, const int32_t *owner, int32_t given, int32_t node) {
  for (int32_t i = given; i < k->registers; i++) {
    if (r->nodes[owner[i]].last_use < node) {
      return i;
    }
  }
  return k->registers < TT_LIST_REGISTERS ? k->registers++ : -1;
}

static bool place_ops(run *r, component *k, const bool *used) {
  int32_t owner[TT_LIST_REGISTERS];
  const int32_t given = k->registers;
  if (given > TT_LIST_REGISTERS) {
    return false;
  }
  for (int32_t i = 0; i < r->node_count; i++) {
    run_node *n = &r->nodes[i];
    if (!used[i] || n->of->kind != TT_NODE_OP) {
      continue;
    }
    n->local = free_register(r, k, owner, given, i);
    if (n->local < 0) {
      return false;
    }
    owner[n->local] = i;
    k->words[k->word_count++] = n->of->code;
    k->words[k->word_count++] = n->local;
    for (int32_t x = 0; x < 3; x++) {
      k->words[k->word_count++] = x < n->of->operand_count ? r->nodes[n->operands[x]].local : 0;
    }
    k->op_count++;
    k->elements = n->of->is_uniform ? k->elements : n->of->elements;
  }
  return true;
}

// The input whose memory a result takes over, by the chain of updates in place; -1: none.
static int32_t alias_of(const run *r, const component *k, int32_t value) {
  const tt_composer *c = r->c;
  while (is_made_here(r, value)) {
    const tt_value_source *v = &c->values[value];
    const tt_lowered *l = &c->stretch->records[v->step]->lowered;
    const int32_t *source = c->stretch->sources[v->step];
    int32_t before = -1;
    for (int32_t p = 0; p < l->param_count; p++) {
      if (l->params[p].kind == TT_PARAM_SLOT) {
        before = l->params[p].aliased && l->params[p].alias == v->output ? *source : before;
        source++;
      }
    }
    if (before < 0) {
      return -1;
    }
    value = before;
  }
  for (int32_t i = 0; i < k->input_count; i++) {
    const run_node *n = &r->nodes[k->inputs[i]];
    if (n->of->kind == TT_NODE_INPUT && n->value == value) {
      return i;
    }
  }
  return -1;
}

static void place_outputs(run *r, component *k, int32_t root) {
  for (int32_t v = 0; v < r->c->value_count; v++) {
    if (!r->wanted[v] || !is_made_here(r, v) || root_of(r, r->node_of[v] - 1) != root) {
      continue;
    }
    int32_t alias = alias_of(r, k, v);
    if (alias >= 0) {
      const tt_span type = r->c->values[r->nodes[k->inputs[alias]].value].type;
      alias = tt_span_equal(type, r->c->values[v].type) ? alias : -1;
    }
    for (int32_t i = 0; i < k->output_count; i++) {  // the last of a chain has it
      k->aliases[i] = k->aliases[i] == alias ? -1 : k->aliases[i];
    }
    k->aliases[k->output_count] = alias;
    k->outputs[k->output_count++] = v;
    k->words[k->word_count++] = r->nodes[r->node_of[v] - 1].local;
  }
  for (int32_t i = 0; i < k->output_count; i++) {
    k->words[k->word_count++] = k->aliases[i];
  }
}

static bool same_sizes(const run *r, const component *k, const bool *used) {
  for (int32_t i = 0; i < r->node_count; i++) {
    if (used[i] && !r->nodes[i].of->is_uniform && r->nodes[i].of->elements != k->elements) {
      return false;
    }
  }
  return k->elements > 0;
}

// Reads the component of a root, if anything of it is needed. *out_fits: it can be a group.
static tt_status *read_component(run *r, int32_t root, bool *used, bool *out_fits) {
  memset(used, 0, sizeof *used * (size_t)r->node_count);
  *out_fits = true;
  if (!mark_used(r, root, used)) {
    return NULL;
  }
  size_t nodes = 0, wanted = 0;
  for (int32_t i = 0; i < r->node_count; i++) {
    nodes += used[i];
  }
  for (int32_t v = 0; v < r->c->value_count; v++) {
    wanted += r->wanted[v] && is_made_here(r, v) && root_of(r, r->node_of[v] - 1) == root;
  }
  component *k = &r->components[r->component_count++];
  k->words = tt_arena_alloc(r->c->arena, sizeof *k->words * (5 * nodes + 2 * wanted));
  k->inputs = tt_arena_alloc(r->c->arena, sizeof *k->inputs * nodes);
  k->numbers = tt_arena_alloc(r->c->arena, sizeof *k->numbers * nodes);
  k->outputs = tt_arena_alloc(r->c->arena, sizeof *k->outputs * wanted);
  k->aliases = tt_arena_alloc(r->c->arena, sizeof *k->aliases * wanted);
  if (!k->words || !k->inputs || !k->numbers || !k->outputs || !k->aliases) {
    return no_memory();
  }
  place_given(r, k, used);
  *out_fits = place_ops(r, k, used);
  place_outputs(r, k, root);
  *out_fits = *out_fits && same_sizes(r, k, used);
  return NULL;
}

static bool same_program(const component *a, const component *b) {
  return a->word_count == b->word_count && a->input_count == b->input_count && a->number_count == b->number_count &&
         a->constant_count == b->constant_count && a->op_count == b->op_count && a->output_count == b->output_count &&
         !memcmp(a->words, b->words, sizeof *a->words * (size_t)a->word_count);
}

// ---- printing ----
static void put_input(run *r, int32_t node) {
  tt_composer *c = r->c;
  if (r->nodes[node].of->kind == TT_NODE_INPUT) {
    tt_compose_value(c, &c->main, r->nodes[node].value);
  } else {
    tt_strbuf_printf(&c->main, "%%h%d_%d", r->first, node);
  }
}

// What is not elementwise, as a line before the call: "%h3_17 = stablehlo.transpose ...".
static void put_hoisted(run *r, int32_t node) {
  const run_node *n = &r->nodes[node];
  tt_strbuf *out = &r->c->main;
  tt_strbuf_puts(out, "    ");
  put_input(r, node);
  tt_strbuf_puts(out, " = stablehlo.");
  const char *at = n->of->line.text, *end = at + n->of->line.length;
  while (at < end) {
    const char *name = memchr(at, '%', (size_t)(end - at));
    tt_strbuf_append(out, at, (size_t)((name ? name : end) - at));
    at = name ? name : end;
    if (name) {
      const bool is_param = !strncmp(name, "%arg", 4);
      char *after;
      const long number = strtol(name + (is_param ? 4 : 1), &after, 10);
      put_input(r, n->map[is_param ? number : number + n->function->param_count]);
      at = after;
    }
  }
  tt_strbuf_puts(out, "\n");
}

static tt_span input_type(const run *r, int32_t node) {
  const run_node *n = &r->nodes[node];
  return n->of->kind == TT_NODE_INPUT ? r->c->values[n->value].type : n->of->type;
}

// dense<[1, 0]> : tensor<2xindex>: dims from the innermost.
static void put_layout(tt_strbuf *out, tt_span type) {
  int32_t rank = 0;
  for (size_t i = 7; i < type.length; i++) {
    rank += type.text[i] == 'x';
  }
  tt_strbuf_puts(out, rank ? "dense<[" : "dense<");
  for (int32_t d = rank; d-- > 0;) {
    tt_strbuf_printf(out, d ? "%d, " : "%d]", d);
  }
  tt_strbuf_printf(out, "> : tensor<%dxindex>", rank);
}

static void put_numbers(const run *r, int32_t first, int32_t groups) {
  const component *k = &r->components[first];
  tt_strbuf *out = &r->c->main;
  tt_strbuf_printf(out, "numbers = array<i64: %d, %d, %d, %d, %d, %d, %d", groups, k->input_count, k->number_count,
                   k->constant_count, k->registers, k->op_count, k->output_count);
  for (int32_t i = 0; i < k->word_count - k->output_count; i++) {  // the aliases are said in XLA's way
    tt_strbuf_printf(out, ", %d", k->words[i]);
  }
  for (int32_t g = first; g < r->component_count; g++) {
    if (same_program(k, &r->components[g])) {
      tt_strbuf_printf(out, ", %lld", (long long)r->components[g].elements);
    }
  }
  for (int32_t g = first; g < r->component_count; g++) {
    for (int32_t i = 0; same_program(k, &r->components[g]) && i < k->number_count; i++) {
      tt_strbuf_printf(out, ", %d", r->nodes[r->components[g].numbers[i]].place);
    }
  }
  tt_strbuf_puts(out, ">");
}

// Calls `each` for every array of the call, operands (inputs) or results, with what is to stand between.
typedef void put_array(run *r, const component *k, int32_t i);
static void put_operand(run *r, const component *k, int32_t i) { put_input(r, k->inputs[i]); }
static void put_operand_type(run *r, const component *k, int32_t i) {
  tt_compose_span(&r->c->main, input_type(r, k->inputs[i]));
}
static void put_operand_layout(run *r, const component *k, int32_t i) {
  put_layout(&r->c->main, input_type(r, k->inputs[i]));
}
static void put_result_type(run *r, const component *k, int32_t i) {
  tt_compose_span(&r->c->main, r->c->values[k->outputs[i]].type);
}
static void put_result_layout(run *r, const component *k, int32_t i) {
  put_layout(&r->c->main, r->c->values[k->outputs[i]].type);
}

static void put_arrays(run *r, int32_t first, bool results, put_array *each) {
  const component *k = &r->components[first];
  bool any = false;
  for (int32_t g = first; g < r->component_count; g++) {
    const int32_t count = !same_program(k, &r->components[g]) ? 0 : results ? k->output_count : k->input_count;
    for (int32_t i = 0; i < count; i++) {
      tt_strbuf_puts(&r->c->main, any ? ", " : "");
      each(r, &r->components[g], i);
      any = true;
    }
  }
}

// The pack as a last operand.
static void put_pack(const run *r, const component *k, int32_t what) {
  tt_strbuf *out = &r->c->main;
  if (!k->number_count) {
    return;
  }
  tt_strbuf_puts(out, ", ");
  if (what == 0) {
    tt_strbuf_printf(out, "%%pack%d", (int)TT_F32);
  } else if (what == 1) {
    tt_compose_pack_type(out, TT_F32, r->c->pack_counts[TT_F32]);
  } else {
    tt_strbuf_puts(out, "dense<[0]> : tensor<1xindex>");
  }
}

static void put_aliases(run *r, int32_t first, int32_t result_count) {
  const component *k = &r->components[first];
  tt_strbuf *out = &r->c->main;
  bool any = false;
  int32_t group = 0;
  for (int32_t g = first; g < r->component_count; g++) {
    if (!same_program(k, &r->components[g])) {
      continue;
    }
    for (int32_t i = 0; i < k->output_count; i++) {
      if (k->aliases[i] < 0) {
        continue;
      }
      tt_strbuf_puts(out, any ? ", " : "output_operand_aliases = [");
      tt_strbuf_puts(out, "#stablehlo.output_operand_alias<output_tuple_indices = [");
      if (result_count > 1) {
        tt_strbuf_printf(out, "%d", group * k->output_count + i);
      }
      tt_strbuf_printf(out, "], operand_index = %d, operand_tuple_indices = []>",
                       group * k->input_count + k->aliases[i]);
      any = true;
    }
    group++;
  }
  tt_strbuf_puts(out, any ? "], " : "");
}

static void put_call(run *r, int32_t first, int32_t groups) {
  component *k = &r->components[first];
  tt_strbuf *out = &r->c->main;
  const int32_t call = r->c->call_count++, result_count = groups * k->output_count;
  tt_strbuf_printf(out, result_count > 1 ? "    %%k%d:%d = " : "    %%k%d = ", call, result_count);
  tt_strbuf_puts(out, "stablehlo.custom_call @" TT_HOST_LISTS "(");
  put_arrays(r, first, false, put_operand);
  put_pack(r, k, 0);
  tt_strbuf_puts(out, ") {api_version = 4 : i32, backend_config = {");
  put_numbers(r, first, groups);
  tt_strbuf_puts(out, "}, ");
  put_aliases(r, first, result_count);
  tt_strbuf_puts(out, "operand_layouts = [");
  put_arrays(r, first, false, put_operand_layout);
  put_pack(r, k, 2);
  tt_strbuf_puts(out, "], result_layouts = [");
  put_arrays(r, first, true, put_result_layout);
  tt_strbuf_puts(out, "]} : (");
  put_arrays(r, first, false, put_operand_type);
  put_pack(r, k, 1);
  tt_strbuf_puts(out, result_count > 1 ? ") -> (" : ") -> ");
  put_arrays(r, first, true, put_result_type);
  tt_strbuf_puts(out, result_count > 1 ? ")\n" : "\n");
  int32_t result = 0;
  for (int32_t g = first; g < r->component_count; g++) {
    component *other = &r->components[g];
    if (!same_program(k, other)) {
      continue;
    }
    for (int32_t i = 0; i < k->output_count; i++) {
      r->c->values[other->outputs[i]].call = call;
      r->c->values[other->outputs[i]].result = result_count > 1 ? result++ : -1;
    }
    other->printed = true;
  }
}

// ---- the whole ----
static tt_status *find_components(run *r, bool *out_fit) {
  bool *seen = tt_arena_alloc(r->c->arena, sizeof *seen * (size_t)(r->node_count + 1));
  bool *used = tt_arena_alloc(r->c->arena, sizeof *used * (size_t)(r->node_count + 1));
  r->components = tt_arena_alloc(r->c->arena, sizeof *r->components * (size_t)(r->node_count + 1));
  if (!seen || !used || !r->components) {
    return no_memory();
  }
  *out_fit = true;
  for (int32_t v = 0; v < r->c->value_count && *out_fit; v++) {
    const int32_t root = r->wanted[v] && is_made_here(r, v) ? root_of(r, r->node_of[v] - 1) : -1;
    if (root >= 0 && !seen[root]) {
      seen[root] = true;
      TT_TRY(read_component(r, root, used, out_fit));
    }
  }
  return NULL;
}

static void put_run(run *r) {
  memcpy(r->c->pack_at, r->pack_at, sizeof r->pack_at);
  for (int32_t i = 0; i < r->node_count; i++) {
    if (r->nodes[i].of->kind == TT_NODE_OPAQUE) {
      put_hoisted(r, i);
    }
  }
  for (int32_t i = 0; i < r->component_count; i++) {
    int32_t groups = 0;
    for (int32_t g = i; g < r->component_count && !r->components[i].printed; g++) {
      groups += same_program(&r->components[i], &r->components[g]);
    }
    if (groups) {
      put_call(r, i, groups);
    }
  }
}

tt_status *tt_compose_lists(tt_composer *c, int32_t first, int32_t *out_count) {
  *out_count = 0;
  const tt_list_function *f = NULL;
  if (c->for_cpu && tt_the_runtime.has_host_kernels && !c->stretch->literals) {
    TT_TRY(function_of(c, first, &f));
  }
  if (!f) {
    return NULL;
  }
  run r = {.c = c,
           .first = first,
           .node_of = tt_arena_alloc(c->arena, sizeof *r.node_of * (size_t)(c->value_count + 1)),
           .wanted = tt_arena_alloc(c->arena, sizeof *r.wanted * (size_t)(c->value_count + 1))};
  if (!r.node_of || !r.wanted) {
    return no_memory();
  }
  TT_TRY(find_run(&r));
  if (!r.count) {
    return NULL;
  }
  find_wanted(&r);
  bool fit = false;
  TT_TRY(find_components(&r, &fit));
  if (fit && r.component_count >= FEWEST_COMPONENTS) {
    put_run(&r);
    *out_count = r.count;
  }
  return NULL;
}
