// For the fuzzers: bytes become a rule, its operands and its arguments, as PyTorch could call it: required tensors are
// there and views lie within their storages.
#ifndef TORCHTPU_TESTS_SUPPORT_FUZZ_CALL_H
#define TORCHTPU_TESTS_SUPPORT_FUZZ_CALL_H

#include <math.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "aten/internal.h"
#include "support/fuzz_forms.h"

enum { MAX_TENSORS = 96, MAX_LIST = 6, MAX_NDIM = 6 };
enum { FUZZ_SECONDS = 20 };  // longer than this is a hang

static const char *fuzz_only = "";  // part of the names of the rules that are wanted
static char fuzz_current[256];      // what runs, for reports

// ---- bytes ----
typedef struct source {
  const uint8_t *at, *end;
} source;

static uint8_t byte(source *in) { return in->at < in->end ? *in->at++ : 0; }
static int below(source *in, int bound) { return byte(in) % bound; }
static bool one_in(source *in, int n) { return byte(in) % n == n - 1; }

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
      return (tt_number){
          .type = TT_S64,
          .u.i = one_in(c->in, 24) ? INT64_MIN + below(c->in, 2) * INT64_MAX : (int64_t)below(c->in, 12) - 4};
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
  static const char *const strings[] = {"mean",     "none",  "sum",   "constant", "reflect", "replicate", "circular",
                                        "tanh",     "floor", "trunc", "bilinear", "nearest", "bicubic",   "linear",
                                        "higher",   "",      "ij",    "xy",       "L",       "U",         "amax",
                                        "amin",     "prod",  "fro",   "nuc",      "left",    "sum ",      "reduced",
                                        "complete", "r",     "max",   "min"};
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
  // Nobody may look at the count of what is no list.
  *out = (tt_arg){.tag = TT_ARG_NONE, .count = INT32_MAX};
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

// ---- a call ----
// NULL if the bytes choose a form that there is not.
static const form *make_call(call *c, source *in) {
  int index = (byte(in) | byte(in) << 8) % SCHEMAS, which = one_in(in, 3) ? 1 + below(in, 2) : 0;
  if (!strstr(fuzz_schemas[index], fuzz_only)) {
    return NULL;
  }
  if (!forms[index][which].tried) {
    make_form(index, which);
  }
  const form *form = &forms[index][which];
  if (!form->op) {
    return NULL;
  }
  memset(c, 0, sizeof *c);
  c->in = in;
  for (int i = 0; i < 3; i++) {
    c->pool[i] = one_in(in, 12) ? below(in, 2) : 1 + below(in, 5);
  }
  c->base_ndim = below(in, 6);
  for (int32_t i = 0; i < MAX_NDIM; i++) {
    c->base[i] = c->pool[below(in, 3)];
  }
  c->dtype = one_in(in, 2) ? TT_F32 : any_dtype(in);
  for (int32_t i = 0; i < form->count; i++) {
    make_arg(c, i, form);
  }
  snprintf(fuzz_current, sizeof fuzz_current, "%s", form->op->name);
  return form;
}

// ---- a fuzzer's program ----
#ifdef TT_FUZZ_MAIN
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char *fuzz_program = "";
static uint64_t fuzz_seed;

static void fuzz_report(void) {
  fprintf(stderr, "%s: %s, again by: %s 1 %llu\n", fuzz_program, fuzz_current, fuzz_program,
          (unsigned long long)fuzz_seed);
}

__attribute__((visibility("default"))) void __asan_on_error(void);
void __asan_on_error(void) { fuzz_report(); }
__attribute__((visibility("default"))) void __ubsan_on_report(void);
void __ubsan_on_report(void) { fuzz_report(); }

static void fuzz_on_signal(int signal_number) {
  fuzz_report();
  fprintf(stderr, "%s: signal %d%s\n", fuzz_program, signal_number, signal_number == SIGALRM ? ": it hangs" : "");
  _exit(1);
}

static uint64_t fuzz_mix(uint64_t *state) {
  uint64_t z = *state += 0x9e3779b97f4a7c15u;
  z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9u;
  z = (z ^ z >> 27) * 0x94d049bb133111ebu;
  return z ^ z >> 31;
}

// PROGRAM [ITERATIONS [SEED [PART OF A RULE'S NAME]]]; returns the number of iterations.
static long fuzz_run(int argc, char **argv) {
  long iterations = argc > 1 ? atol(argv[1]) : 20000;
  uint64_t seed = argc > 2 ? strtoull(argv[2], NULL, 10) : 1;
  fuzz_program = argv[0];
  fuzz_only = argc > 3 ? argv[3] : "";
  signal(SIGALRM, fuzz_on_signal);
  signal(SIGABRT, fuzz_on_signal);
  for (long i = 0; i < iterations; i++) {
    uint8_t bytes[512];
    fuzz_seed = seed + (uint64_t)i;
    uint64_t state = fuzz_seed * 0x2545f4914f6cdd1du;
    for (size_t at = 0; at < sizeof bytes; at += 8) {
      uint64_t word = fuzz_mix(&state);
      memcpy(bytes + at, &word, 8);
    }
    LLVMFuzzerTestOneInput(bytes, sizeof bytes);
  }
  return iterations;
}
#endif

#endif  // TORCHTPU_TESTS_SUPPORT_FUZZ_CALL_H
