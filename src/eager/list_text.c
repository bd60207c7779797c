// Reads the text of a record's module as an elementwise program over float32 arrays.
#include <stdlib.h>
#include <string.h>

#include "eager/lists.h"
#include "kernels/kernels.h"

static const struct {
  const char *name;
  int32_t code, operands;
} ops[] = {
    {"add", TT_LIST_ADD, 2},       {"subtract", TT_LIST_SUBTRACT, 2}, {"multiply", TT_LIST_MULTIPLY, 2},
    {"divide", TT_LIST_DIVIDE, 2}, {"sqrt", TT_LIST_SQRT, 1},         {"negate", TT_LIST_NEGATE, 1},
    {"abs", TT_LIST_ABS, 1},       {"select", TT_LIST_SELECT, 3},
};
static const struct {
  const char *name;
  int32_t code;
} comparisons[] = {{"LT", TT_LIST_LT}, {"LE", TT_LIST_LE}, {"GT", TT_LIST_GT},
                   {"GE", TT_LIST_GE}, {"EQ", TT_LIST_EQ}, {"NE", TT_LIST_NE}};

typedef struct reader {
  tt_list_function *f;
  int32_t param_count;
} reader;

static tt_span span_between(const char *begin, const char *end) { return (tt_span){begin, (size_t)(end - begin)}; }

// "%arg3" or "%5" within a line; the number of its node, or -1. `*at` moves behind it.
static int32_t read_name(const reader *r, const char **at, const char *end) {
  const char *name = memchr(*at, '%', (size_t)(end - *at));
  if (!name) {
    return -1;
  }
  const bool is_param = end - name > 4 && !memcmp(name, "%arg", 4);
  const char *digits = name + (is_param ? 4 : 1);
  char *after;
  const long number = strtol(digits, &after, 10);
  if (after == digits || after > end || number < 0 || *after == '#' || *after == ':') {
    return -1;
  }
  *at = after;
  const long node = is_param ? number : number + r->param_count;
  return (is_param ? number < r->param_count : node < r->f->node_count) ? (int32_t)node : -1;
}

// Elements of "tensor<2x3xf32>"; 0 if that is no such type. 0-d: 1, and *out_rank is 0.
static int64_t read_type(tt_span type, const char *element, int32_t *out_rank) {
  static const char head[] = "tensor<";
  const size_t length = strlen(element);
  *out_rank = 0;
  if (type.length < sizeof head + length || memcmp(type.text, head, sizeof head - 1) != 0 ||
      memcmp(type.text + type.length - length - 1, element, length) != 0 || type.text[type.length - 1] != '>') {
    return 0;
  }
  int64_t count = 1;
  const char *at = type.text + sizeof head - 1, *end = type.text + type.length - length - 1;
  while (at < end) {
    char *after;
    const long long dim = strtoll(at, &after, 10);
    if (after == at || *after != 'x' || dim < 0 || __builtin_mul_overflow(count, (int64_t)dim, &count)) {
      return 0;
    }
    at = after + 1;
    ++*out_rank;
  }
  return at == end ? count : 0;
}

// The last type of a line: its result's.
static tt_span last_type(tt_span line) {
  for (size_t i = line.length; i-- > 7;) {
    if (!memcmp(line.text + i - 7, "tensor<", 7)) {
      const char *begin = line.text + i - 7, *end = memchr(begin, '>', line.length - (i - 7));
      return end ? span_between(begin, end + 1) : (tt_span){0};
    }
  }
  return (tt_span){0};
}

static bool read_constant(tt_span line, tt_list_node *node) {
  const char *open = memchr(line.text, '<', line.length);
  char *after;
  if (!open || line.text + line.length - open < 3) {
    return false;
  }
  const double value = strtod(open + 1, &after);
  if (after == open + 1 || *after != '>' || !strncmp(open + 1, "0x", 2)) {
    return false;
  }
  node->kind = TT_NODE_CONSTANT;
  node->constant = (float)value;
  return true;
}

static bool is_op(tt_span line, const char *name) {
  const size_t length = strlen(name);
  return line.length > length && !memcmp(line.text, name, length) && line.text[length] == ' ';
}

// The operands of a line, into node->operands; false if there are others.
static bool read_operands(const reader *r, tt_span line, int32_t count, tt_list_node *node) {
  const char *at = line.text, *end = line.text + line.length;
  for (int32_t i = 0; i < count; i++) {
    node->operands[i] = read_name(r, &at, end);
    if (node->operands[i] < 0) {
      return false;
    }
  }
  return !memchr(at, '%', (size_t)(end - at));
}

static const tt_list_node *operand(const reader *r, const tt_list_node *node, int32_t i) {
  return &r->f->nodes[node->operands[i]];
}

// One of `ops`, or a comparison.
static bool read_op(const reader *r, tt_span line, tt_list_node *node) {
  for (size_t i = 0; i < sizeof ops / sizeof *ops; i++) {
    if (is_op(line, ops[i].name)) {
      node->kind = TT_NODE_OP;
      node->code = ops[i].code;
      node->operand_count = ops[i].operands;
      return read_operands(r, line, ops[i].operands, node);
    }
  }
  for (size_t i = 0; is_op(line, "compare") && i < sizeof comparisons / sizeof *comparisons; i++) {
    if (!memcmp(line.text + 8, comparisons[i].name, 2) && memmem(line.text, line.length, ", FLOAT ", 8)) {
      node->kind = TT_NODE_OP;
      node->code = comparisons[i].code;
      node->operand_count = 2;
      return read_operands(r, line, 2, node);
    }
  }
  return false;
}

// A number over an array, or the same elements in another shape: the operand itself.
static bool read_same(const reader *r, tt_span line, tt_list_node *node) {
  const bool spreads = is_op(line, "broadcast_in_dim");
  if ((!spreads && !is_op(line, "reshape")) || !read_operands(r, line, 1, node)) {
    return false;
  }
  const tt_list_node *x = operand(r, node, 0);
  node->kind = TT_NODE_SAME;
  return spreads ? x->is_uniform : x->elements == node->elements;
}

static bool uses_mask_rightly(const reader *r, const tt_list_node *node) {
  for (int32_t i = 0; i < node->operand_count; i++) {
    const bool wants_mask = node->code == TT_LIST_SELECT && i == 0;
    if (operand(r, node, i)->is_mask != wants_mask) {
      return false;
    }
  }
  return true;
}

// Whether every operand is a uniform number, or has as many elements as the result.
static bool sizes_fit(const reader *r, tt_list_node *node) {
  node->is_uniform = node->kind == TT_NODE_CONSTANT;
  if (node->kind == TT_NODE_SAME) {
    node->is_uniform = operand(r, node, 0)->is_uniform;
    node->is_mask = operand(r, node, 0)->is_mask;
  } else if (node->kind == TT_NODE_OP) {
    node->is_uniform = true;
    for (int32_t i = 0; i < node->operand_count; i++) {
      const tt_list_node *x = operand(r, node, i);
      node->is_uniform = node->is_uniform && x->is_uniform;
      if (!x->is_uniform && x->elements != node->elements) {
        return false;
      }
    }
    return uses_mask_rightly(r, node);
  }
  return true;
}

// `line` is behind "stablehlo.". False: this is no such program.
static bool read_line(const reader *r, tt_span line, tt_list_node *node) {
  int32_t rank;
  node->line = line;
  node->type = last_type(line);
  node->elements = read_type(node->type, "f32", &rank);
  if (!node->elements) {
    node->elements = read_type(node->type, "i1", &rank);
    node->is_mask = true;
  }
  const tt_list_node fresh = *node;
  if (node->elements && ((is_op(line, "constant") && !node->is_mask && read_constant(line, node)) ||
                         read_op(r, line, node) || read_same(r, line, node))) {
    if (sizes_fit(r, node)) {
      return true;
    }
  }
  *node = fresh;
  node->kind = TT_NODE_OPAQUE;  // may be done before, if it needs nothing that the program makes
  return node->type.length && !node->is_mask && node->elements && memchr(line.text, '{', line.length) == NULL;
}

static bool read_params(tt_list_function *f, const tt_function *function) {
  for (int32_t p = 0; p < f->param_count; p++) {
    const tt_param *param = &function->record->lowered.params[p];
    tt_list_node *node = &f->nodes[f->node_count++];
    int32_t rank;
    *node = (tt_list_node){.kind = param->kind == TT_PARAM_SLOT ? TT_NODE_INPUT : TT_NODE_NUMBER,
                           .type = function->parameters[p],
                           .elements = read_type(function->parameters[p], "f32", &rank)};
    node->is_uniform = node->kind == TT_NODE_NUMBER;
    if (!node->elements || param->kind == TT_PARAM_RANDOM || (node->is_uniform && rank)) {
      return false;
    }
  }
  return true;
}

static bool read_returns(const reader *r, tt_span line, int32_t count) {
  const char *at = line.text, *end = line.text + line.length;
  for (int32_t i = 0; i < count; i++) {
    r->f->returns[i] = read_name(r, &at, end);
    if (r->f->returns[i] < 0) {
      return false;
    }
    const tt_list_node *node = &r->f->nodes[r->f->returns[i]];
    if (node->kind != TT_NODE_OP || node->is_mask || node->is_uniform) {
      return false;
    }
  }
  return true;
}

static int32_t count_lines(const tt_function *function) {
  int32_t count = 0;
  for (size_t i = 0; i < function->body_length; i++) {
    count += function->body[i] == '\n';
  }
  return count;
}

static bool read_body(reader *r, const tt_function *function) {
  const char *at = function->body, *end = at + function->body_length;
  while (at < end) {
    const char *stop = memchr(at, '\n', (size_t)(end - at));
    stop = stop ? stop : end;
    const char *place = memmem(at, (size_t)(stop - at), " loc(", 5);
    const tt_span line = span_between(at, place ? place : stop);
    const char *op = memmem(line.text, line.length, " = stablehlo.", 13);
    if (op) {
      tt_list_node *node = &r->f->nodes[r->f->node_count];
      *node = (tt_list_node){0};
      if (!read_line(r, span_between(op + 13, line.text + line.length), node)) {
        return false;
      }
      r->f->node_count++;
    } else if (memmem(line.text, line.length, "return ", 7)) {
      return read_returns(r, line, function->record->lowered.output_count);
    } else if (memchr(line.text, '%', line.length)) {
      return false;
    }
    at = stop + 1;
  }
  return false;
}

static bool is_list_operator(const tt_record *record) {
  static const char prefix[] = "aten::_foreach_";
  return !strncmp(record->op->name, prefix, sizeof prefix - 1) && record->lowered.output_count > 1 &&
         !record->lowered.assert_count;
}

bool tt_list_read(tt_arena *arena, const tt_function *function, tt_list_function **out_function) {
  *out_function = NULL;
  const tt_lowered *l = &function->record->lowered;
  if (!is_list_operator(function->record)) {
    return true;
  }
  tt_list_function *f = tt_arena_alloc(arena, sizeof *f);
  const size_t nodes = (size_t)(l->param_count + count_lines(function) + 1);
  if (!f) {
    return false;
  }
  *f = (tt_list_function){.param_count = l->param_count,
                          .nodes = tt_arena_alloc(arena, sizeof *f->nodes * nodes),
                          .returns = tt_arena_alloc(arena, sizeof *f->returns * (size_t)l->output_count)};
  if (!f->nodes || !f->returns) {
    return false;
  }
  reader r = {f, l->param_count};
  if (read_params(f, function) && read_body(&r, function)) {
    *out_function = f;
  }
  return true;
}
