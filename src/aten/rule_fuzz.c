// Bytes choose a rule, its operands and arguments, and go straight into tt_rule_run(): no input may crash, hang or
// leak, and what a rule leaves behind must be consistent.
//
//   aten_rule_fuzz [ITERATIONS [SEED [PART OF A RULE'S NAME]]]
//
// The calls are as PyTorch could make them: required tensors are there, views lie within their storages.
#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "aten/internal.h"
#include "support/fuzz_schemas.h"

enum { SCHEMAS = sizeof fuzz_schemas / sizeof *fuzz_schemas, FORMS = 3, MAX_TENSORS = 96, MAX_LIST = 6, MAX_NDIM = 6 };
enum { SECONDS = 20 };  // longer than this is a hang

// ---- bytes ----
typedef struct source {
  const uint8_t *at, *end;
} source;

static uint8_t byte(source *in) { return in->at < in->end ? *in->at++ : 0; }
static int below(source *in, int bound) { return byte(in) % bound; }
static bool one_in(source *in, int n) { return byte(in) % n == n - 1; }

// ---- schemas ----
typedef struct arg {
  char letter;
  bool optional;
} arg;

typedef struct form {
  tt_op *op;
  bool tried;
  int32_t count;
  arg args[TT_MAX_ARGS];
} form;

static form forms[SCHEMAS][FORMS];
static const char *only = "";
static char current[256];  // what runs, for reports

static tt_arg_kind kind_of(char letter) {
  static const char letters[] = "TLNMFEIJBDSG";
  static const tt_arg_kind kinds[] = {TT_KIND_TENSOR, TT_KIND_TENSORS, TT_KIND_NUMBER, TT_KIND_NUMBERS,
                                      TT_KIND_FLOAT,  TT_KIND_FLOATS,  TT_KIND_INT,    TT_KIND_INTS,
                                      TT_KIND_BOOL,   TT_KIND_DTYPE,   TT_KIND_STRING, TT_KIND_GENERATOR};
  const char *at = strchr(letters, letter);
  return at && *at ? kinds[at - letters] : TT_KIND_OTHER;
}

// Cuts *text at the separator; NULL at its end.
static char *cut(char **text, char separator) {
  char *start = *text;
  if (!start) {
    return NULL;
  }
  char *end = strchr(start, separator);
  if (end) {
    *end = '\0';
  }
  *text = end ? end + 1 : NULL;
  return start;
}

static void read_args(char *text, form *out, tt_arg_schema *schemas) {
  for (char *at; (at = cut(&text, ',')) && *at && out->count < TT_MAX_ARGS;) {
    arg *one = &out->args[out->count];
    tt_arg_schema *schema = &schemas[out->count++];
    one->letter = *at++;
    one->optional = *at == '?';
    at += one->optional;
    *schema = (tt_arg_schema){.kind = kind_of(one->letter)};
    char *value = strchr(at, '=');
    if (value) {
      *value = '\0';
      schema->has_default = true;
      schema->default_value = (tt_number){.type = TT_F64, .u.f = {strtod(value + 1, NULL)}};
    }
    schema->name = at;
  }
}

// The functional form as the schema says; the in-place one, where the first result is the first argument; the one
// with an out= argument a result.
static void make_form(int index, int which) {
  form *out = &forms[index][which];
  out->tried = true;
  char text[2048], name[160];
  snprintf(text, sizeof text, "%s", fuzz_schemas[index]);
  char *rest = text, *rule = cut(&rest, '|'), *args = cut(&rest, '|'), *returns = cut(&rest, '|'), *mutated = rest;
  tt_arg_schema schemas[TT_MAX_ARGS + 4];
  read_args(args, out, schemas);
  int32_t alias[16], count = 0;
  bool is_list[16] = {false};
  for (char *at; (at = cut(&returns, ',')) && *at && count < 16; count++) {
    alias[count] = *at >= '0' && *at <= '9' ? atoi(at) : -1;
    is_list[count] = *at == 'L' || (alias[count] >= 0 && out->args[alias[count]].letter == 'L');
  }
  static const char *const out_names[] = {"out", "out1", "out2", "out3"};
  if (which == 1) {
    if (!count || alias[0] >= 0 || is_list[0] || out->args[0].letter != 'T') {
      return;
    }
    alias[0] = 0;
  } else if (which == 2) {
    for (int32_t i = 0; i < count; i++) {
      if (count > 4 || alias[i] >= 0 || is_list[i] || out->count == TT_MAX_ARGS) {
        return;
      }
      alias[i] = out->count;
      schemas[out->count] = (tt_arg_schema){.name = out_names[i], .kind = TT_KIND_TENSOR, .is_out = true};
      out->args[out->count++] = (arg){.letter = 'T'};
    }
  }
  snprintf(name, sizeof name, "%s%s", rule, which == 1 ? "_" : which == 2 ? "_out" : "");
  tt_op_schema schema = {.name = name,
                         .arg_count = out->count,
                         .args = schemas,
                         .return_count = count,
                         .return_alias = alias,
                         .return_is_list = is_list,
                         .mutated_list = mutated && *mutated ? atoi(mutated) : -1};
  out->op = tt_op_register(rule, &schema);
}

// ---- operands ----
typedef struct call {
  source *in;
  int64_t pool[3];  // sizes that recur
  int32_t base_ndim;
  int64_t base[MAX_NDIM];
  tt_dtype dtype;
  int32_t tensor_count, slot_count;
  tt_tensor tensors[MAX_TENSORS];
  int64_t sizes[MAX_TENSORS][MAX_NDIM], strides[MAX_TENSORS][MAX_NDIM];
  tt_call_tensor call_tensors[MAX_TENSORS];
  tt_slot slots[MAX_TENSORS];
  int64_t slot_dims[MAX_TENSORS][MAX_NDIM];
  tt_arg args[TT_MAX_ARGS];
  int32_t first_tensor[TT_MAX_ARGS];
  int64_t ints[TT_MAX_ARGS][MAX_LIST];
  double floats[TT_MAX_ARGS][MAX_LIST];
  tt_number numbers[TT_MAX_ARGS][MAX_LIST];
} call;

static tt_dtype any_dtype(source *in) { return (tt_dtype)(1 + below(in, TT_DTYPE_COUNT - 1)); }
static int64_t any_size(call *c) { return one_in(c->in, 8) ? below(c->in, 6) : c->pool[below(c->in, 3)]; }

static void choose_sizes(call *c, int64_t *sizes, int32_t *out_ndim) {
  int32_t ndim = c->base_ndim;
  int way = below(c->in, 8);
  memcpy(sizes, c->base, sizeof c->base);
  if (way == 3 && ndim > 0) {  // broadcasts
    sizes[below(c->in, ndim)] = 1;
  } else if (way == 4 && ndim > 0) {
    ndim--;
    memmove(sizes, sizes + 1, sizeof *sizes * (size_t)ndim);
  } else if (way == 5 && ndim > 0) {  // one size differs: the other side of a product, an index, a weight
    sizes[below(c->in, ndim)] = any_size(c);
  } else if (way == 6) {  // a vector of one of the sizes
    sizes[0] = ndim ? c->base[below(c->in, ndim)] : any_size(c);
    ndim = 1;
  } else if (way == 7) {
    ndim = below(c->in, MAX_NDIM + 1);
    for (int32_t i = 0; i < ndim; i++) {
      sizes[i] = any_size(c);
    }
  }
  *out_ndim = ndim;
}

static tt_number any_number(call *c, char letter) {
  static const double values[] = {0, 1, 0.5, 2, -1, 1e-5, 3, -0.5, 1e300, -1e300, INFINITY, NAN, 100, -3, 0.1, 1.5};
  double value = values[below(c->in, 16)];
  int type = letter == 'F' ? 2 : letter == 'I' ? 0 : below(c->in, 8);
  switch (type) {
    case 0:
    case 4:
      return (tt_number){.type = TT_S64, .u.i = one_in(c->in, 24) ? INT64_MIN + below(c->in, 2) * INT64_MAX : (int64_t)below(c->in, 12) - 4};
    case 1:
      return (tt_number){.type = TT_PRED, .u.i = below(c->in, 2)};
    case 3:
      return (tt_number){.type = TT_C128, .u.f = {value, 1}};
    default:
      return (tt_number){.type = TT_F64, .u.f = {value, 0}};
  }
}

// Strides of a layout of these sizes: row-major, permuted, stepped, broadcast, or overlapping.
static void choose_strides(call *c, int32_t ndim, const int64_t *sizes, int64_t *strides) {
  int32_t order[MAX_NDIM];
  for (int32_t i = 0; i < ndim; i++) {
    order[i] = i;
  }
  int way = below(c->in, 12);
  for (int32_t i = ndim - 1; way == 9 && i > 0; i--) {
    int32_t j = below(c->in, i + 1), swap = order[i];
    order[i] = order[j];
    order[j] = swap;
  }
  int64_t stride = 1;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    int32_t dim = order[i];
    int64_t step = way == 10 ? 1 + below(c->in, 3) : 1;
    strides[dim] = way == 11 && one_in(c->in, 2) ? below(c->in, 3) : stride * step;
    stride *= (sizes[dim] > 1 ? sizes[dim] : 1) * step;
  }
}

static int32_t new_slot(call *c, const tt_tensor *t, int64_t reach) {
  int32_t index = c->slot_count++;
  tt_slot *slot = &c->slots[index];
  int64_t *dims = c->slot_dims[index], numel = 1, stride = 1;
  bool dense = t->offset == 0;
  for (int32_t i = t->ndim - 1; i >= 0; i--) {
    dense = dense && t->strides[i] == stride;
    stride *= t->sizes[i] > 1 ? t->sizes[i] : 1;
    numel *= t->sizes[i];
    dims[i] = t->sizes[i];
  }
  *slot = (tt_slot){.dtype = (tt_dtype)t->dtype, .defined = !one_in(c->in, 8)};
  if (dense && !one_in(c->in, 4)) {
    slot->shape = (tt_shape){t->ndim, dims, numel};
    return index;
  }
  int64_t size = reach + below(c->in, 3);
  if (size % 2 == 0 && one_in(c->in, 3)) {
    dims[0] = 2, dims[1] = size / 2;
    slot->shape = (tt_shape){2, dims, size};
  } else {
    dims[0] = size;
    slot->shape = (tt_shape){1, dims, size};
  }
  return index;
}

// A tensor over a new storage, or another view of an earlier one.
static void place(call *c, tt_tensor *t, tt_call_tensor *out) {
  int64_t reach = 1;
  bool empty = false;
  for (int32_t i = 0; i < t->ndim; i++) {
    reach += (t->sizes[i] - 1) * t->strides[i];
    empty = empty || t->sizes[i] == 0;
  }
  reach = (empty ? 0 : reach) + t->offset;
  int32_t slot = -1;
  if (c->slot_count && one_in(c->in, 8)) {
    int32_t earlier = below(c->in, c->slot_count);
    bool fits = c->slots[earlier].dtype == (tt_dtype)t->dtype && c->slots[earlier].shape.numel >= reach;
    slot = fits ? earlier : -1;
  }
  slot = slot < 0 ? new_slot(c, t, reach) : slot;
  tt_view view = {t->ndim, t->sizes, t->strides, t->offset};
  out->slot = (int16_t)slot;
  out->kind = (uint8_t)tt_view_classify(&c->slots[slot].shape, &view);
}

static tt_tensor add_tensor(call *c, bool may_be_none, bool may_be_host) {
  int32_t index = c->tensor_count++;
  tt_tensor *t = &c->tensors[index];
  c->call_tensors[index] = (tt_call_tensor){.tensor = t, .slot = -1};
  *t = (tt_tensor){.sizes = c->sizes[index], .strides = c->strides[index], .dtype = (uint8_t)c->dtype};
  if (may_be_none && one_in(c->in, 4)) {
    t->is_none = true;
    return *t;
  }
  if (one_in(c->in, 4)) {
    t->dtype = one_in(c->in, 2) ? TT_S64 : (uint8_t)any_dtype(c->in);
  }
  if (may_be_host && one_in(c->in, 16)) {
    t->host = any_number(c, 'N');
    t->dtype = t->host.type;
    t->is_wrapped = one_in(c->in, 2);
    return *t;
  }
  choose_sizes(c, c->sizes[index], &t->ndim);
  choose_strides(c, t->ndim, c->sizes[index], c->strides[index]);
  t->offset = one_in(c->in, 6) ? below(c->in, 5) : 0;
  place(c, t, &c->call_tensors[index]);
  return *t;
}

// ---- arguments ----
static int64_t any_int(call *c) {
  switch (below(c->in, 12)) {
    case 0:
      return -1;
    case 1:
      return any_size(c);
    case 2:
      return -2 - below(c->in, 4);
    case 3:
      return one_in(c->in, 2) ? below(c->in, 50) : (int64_t)1 << (8 + below(c->in, 55));
    case 4:
      return one_in(c->in, 4) ? (one_in(c->in, 2) ? INT64_MIN : INT64_MAX) : 0;
    default:
      return below(c->in, 4);
  }
}

static const char *any_string(source *in) {
  static const char *const strings[] = {"mean", "none", "sum", "constant", "reflect", "replicate", "circular", "tanh",
                                        "floor", "trunc", "bilinear", "nearest", "bicubic", "linear", "higher", "",
                                        "ij", "xy", "L", "U", "amax", "amin", "prod", "fro", "nuc", "left", "sum "};
  return strings[below(in, sizeof strings / sizeof *strings)];
}

static void make_list(call *c, int32_t i, char letter, tt_arg *out) {
  out->count = (uint32_t)below(c->in, MAX_LIST);
  bool same = one_in(c->in, 2);
  for (uint32_t j = 0; j < out->count; j++) {
    c->ints[i][j] = same && j ? c->ints[i][0] : any_int(c);
    c->numbers[i][j] = any_number(c, 'N');
    c->floats[i][j] = any_number(c, 'F').u.f[0];
  }
  switch (letter) {
    case 'J':
      out->tag = TT_ARG_INTS;
      out->u.ints = c->ints[i];
      break;
    case 'E':
      out->tag = TT_ARG_FLOATS;
      out->u.floats = c->floats[i];
      break;
    default:
      out->tag = TT_ARG_NUMBERS;
      out->u.numbers = c->numbers[i];
  }
}

static void make_arg(call *c, int32_t i, const form *form) {
  tt_arg *out = &c->args[i];
  const arg *schema = &form->args[i];
  *out = (tt_arg){.tag = TT_ARG_NONE};
  c->first_tensor[i] = c->tensor_count;
  if (schema->optional && schema->letter != 'L' && one_in(c->in, 2)) {
    return;
  }
  switch (schema->letter) {
    case 'T':
      out->tag = TT_ARG_TENSOR;
      out->u.tensor = add_tensor(c, false, i > 0 && !form->op->args[i].is_out);
      break;
    case 'L':
      out->tag = TT_ARG_TENSORS;
      out->count = (uint32_t)below(c->in, 4);
      out->u.tensors = &c->tensors[c->tensor_count];
      for (uint32_t j = 0; j < out->count; j++) {
        add_tensor(c, schema->optional, false);
      }
      break;
    case 'N':
    case 'F':
      out->tag = TT_ARG_NUMBER;
      out->u.number = any_number(c, schema->letter);
      break;
    case 'I':
      if (form->op->args[i].is_operand) {
        out->tag = TT_ARG_NUMBER;
        out->u.number = any_number(c, 'I');
      } else {
        out->tag = TT_ARG_INT;
        out->u.i = any_int(c);
      }
      break;
    case 'B':
      out->tag = TT_ARG_INT;
      out->u.i = below(c->in, 2);
      break;
    case 'D':
      out->tag = TT_ARG_INT;
      out->u.i = any_dtype(c->in);
      break;
    case 'S':
      out->tag = TT_ARG_STRING;
      out->u.string = any_string(c->in);
      break;
    case 'G':
      out->tag = TT_ARG_GENERATOR;
      break;
    case 'J':
    case 'E':
    case 'M':
      make_list(c, i, schema->letter, out);
      break;
    default:
      out->tag = TT_ARG_IGNORED;
  }
}

// ---- what comes out ----
static void demand(bool holds, const char *what) {
  if (!holds) {
    fprintf(stderr, "rule_fuzz: %s: %s\n", current, what);
    abort();
  }
}

static void check_outputs(const call *c, const tt_lowered *out) {
  demand(!out->text == !out->output_count, "a program without results, or results without a program");
  for (int32_t i = 0; i < out->param_count; i++) {
    const tt_param *param = &out->params[i];
    int32_t bound = param->kind == TT_PARAM_SLOT ? c->slot_count : param->kind == TT_PARAM_NUMBER ? MAX_LIST : c->tensor_count;
    demand(param->kind == TT_PARAM_RANDOM || (param->index >= 0 && param->index < bound), "a parameter of nothing");
  }
  for (int32_t i = 0; i < out->output_count; i++) {
    const tt_output *output = &out->outputs[i];
    if (output->kind == TT_OUTPUT_SLOT) {
      const tt_slot *slot = &c->slots[output->index];
      demand(output->index < c->slot_count, "a write to no storage");
      demand(output->dtype == slot->dtype && output->nbytes == (size_t)slot->shape.numel * tt_dtype_size(slot->dtype),
             "a storage's new value has another size or type");
    } else if (output->kind == TT_OUTPUT_RESULT) {
      demand(output->index < out->result_count && out->results[output->index].kind == TT_RESULT_NEW &&
                 out->results[output->index].nbytes == output->nbytes,
             "a result that is none");
    } else {
      demand(output->rank == 0 && output->dtype == TT_PRED, "an assert that is no flag");
    }
  }
}

static void check_results(const tt_lowered *out) {
  for (int32_t i = 0; i < out->result_count; i++) {
    const tt_result *result = &out->results[i];
    if (result->kind != TT_RESULT_NEW) {
      continue;
    }
    size_t numel = 1, last = 0;
    for (int32_t dim = 0; dim < result->ndim; dim++) {
      demand(result->sizes[dim] >= 0 && result->strides[dim] >= 0, "a negative size or stride");
      numel *= (size_t)result->sizes[dim];
      last += (size_t)(result->sizes[dim] - 1) * (size_t)result->strides[dim];
    }
    demand(result->nbytes == numel * tt_dtype_size((tt_dtype)result->dtype), "a result of another size than its sizes");
    demand(!numel || last + 1 == numel, "a result that does not fill its storage");
  }
}

// ---- one input ----
static int64_t succeeded, refused, internal;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  source in = {data, data + size};
  int index = (byte(&in) | byte(&in) << 8) % SCHEMAS, which = one_in(&in, 3) ? 1 + below(&in, 2) : 0;
  if (!strstr(fuzz_schemas[index], only)) {
    return 0;
  }
  if (!forms[index][which].tried) {
    make_form(index, which);
  }
  const form *form = &forms[index][which];
  if (!form->op) {
    return 0;
  }
  static call c;
  memset(&c, 0, sizeof c);
  c.in = &in;
  for (int i = 0; i < 3; i++) {
    c.pool[i] = one_in(&in, 12) ? below(&in, 2) : 1 + below(&in, 5);
  }
  c.base_ndim = below(&in, 6);
  for (int32_t i = 0; i < MAX_NDIM; i++) {
    c.base[i] = c.pool[below(&in, 3)];
  }
  c.dtype = one_in(&in, 2) ? TT_F32 : any_dtype(&in);
  for (int32_t i = 0; i < form->count; i++) {
    make_arg(&c, i, form);
  }
  tt_call_info info = {.op = form->op,
                       .args = c.args,
                       .arg_count = form->count,
                       .first_tensor = c.first_tensor,
                       .tensors = c.call_tensors,
                       .tensor_count = c.tensor_count,
                       .slots = c.slots,
                       .slot_count = c.slot_count,
                       .env = {.default_dtype = TT_F32, .precision = TT_PRECISION_HIGHEST, .is_cpu = one_in(&in, 2)}};
  snprintf(current, sizeof current, "%s", form->op->name);
  alarm(SECONDS);
  tt_lowered out;
  tt_status *status = tt_rule_run(&info, &out);
  alarm(0);
  if (!status) {
    succeeded++;
    check_outputs(&c, &out);
    check_results(&out);
    tt_lowered_free(&out);
    return 0;
  }
  refused++;
  internal += tt_status_code(status) == TT_ERR_INTERNAL;
  if (getenv("TT_FUZZ_VERBOSE")) {
    printf("%s: %s\n", current, tt_status_message(status));
  }
  tt_status_free(status);
  return 0;
}

// ---- by itself ----
#ifdef TT_FUZZ_MAIN
static uint64_t iteration_seed;

static void report(void) {
  fprintf(stderr, "rule_fuzz: %s, again by: aten_rule_fuzz 1 %llu\n", current, (unsigned long long)iteration_seed);
}

__attribute__((visibility("default"))) void __asan_on_error(void);
void __asan_on_error(void) { report(); }
__attribute__((visibility("default"))) void __ubsan_on_report(void);
void __ubsan_on_report(void) { report(); }

static void on_signal(int signal_number) {
  report();
  fprintf(stderr, "rule_fuzz: signal %d%s\n", signal_number, signal_number == SIGALRM ? ": it hangs" : "");
  _exit(1);
}

static uint64_t mix(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

int main(int argc, char **argv) {
  long iterations = argc > 1 ? atol(argv[1]) : 20000;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  only = argc > 3 ? argv[3] : "";
  signal(SIGALRM, on_signal);
  signal(SIGABRT, on_signal);
  for (long i = 0; i < iterations; i++) {
    uint8_t bytes[512];
    iteration_seed = seed + (uint64_t)i;
    uint64_t state = iteration_seed * 0x2545f4914f6cdd1du;
    for (size_t at = 0; at < sizeof bytes; at += 8) {
      uint64_t word = mix(&state);
      memcpy(bytes + at, &word, 8);
    }
    LLVMFuzzerTestOneInput(bytes, sizeof bytes);
  }
  printf("%ld iterations: %lld programs, %lld refusals, of which %lld internal errors\n", iterations,
         (long long)succeeded, (long long)refused, (long long)internal);
  return 0;
}
#endif
