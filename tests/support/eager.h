// For tests of the eager engine: operators with hand-made schemas, tensors, calls, and the runtime on the fake plugin
// or on XLA. The runtime is one a process, so a test program that wants other settings runs itself again.
#ifndef TORCHTPU_TESTS_SUPPORT_EAGER_H
#define TORCHTPU_TESTS_SUPPORT_EAGER_H

#include <time.h>
#include <unistd.h>

#include "base/test.h"
#include "fake_pjrt/control.h"
#include "torchtpu/torchtpu.h"

#define EAGER_UNUSED __attribute__((unused))

// ---- runtime ----
// The fake plugin, reset, behind an initialised runtime of `devices` devices (the first call decides).
EAGER_UNUSED static fake_control eager_start(int32_t devices) {
  char text[16];
  fake_control fake = fake_open();
  snprintf(text, sizeof text, "%d", devices);
  setenv("TORCH_TPU_PJRT_PLUGIN", fake.path, 1);
  setenv("TORCH_TPU_CACHE", "0", 1);
  setenv("TORCH_TPU_CPU_DEVICES", text, 0);
  REQUIRE_OK(tt_init());
  return fake;
}

// What a plugin holds once nothing is left but the client.
EAGER_UNUSED static void eager_check_empty(const fake_control *fake) {
  CHECK_OK(tt_synchronize(-1));
  CHECK_OK(tt_empty_cache());
  CHECK_OK(tt_clear_compile_cache());
  CHECK_INT(fake->get("buffers"), 0);
  CHECK_INT(fake->get("buffer_bytes"), 0);
  CHECK_INT(fake->get("loaded_executables"), 0);
  CHECK_INT(fake->get("executables"), 0);
  CHECK_INT(fake->get("errors"), 0);
  for (int32_t device = 0; device < tt_device_count(); device++) {
    tt_memory_stats stats;
    CHECK_OK(tt_get_memory_stats(device, &stats));
    CHECK_INT(stats.active, 0);
    CHECK_INT(stats.allocated, 0);
    CHECK_INT(stats.reserved, 0);
  }
}

EAGER_UNUSED static void sleep_ms(int ms) {
  nanosleep(&(struct timespec){.tv_sec = ms / 1000, .tv_nsec = (long)(ms % 1000) * 1000000}, NULL);
}

EAGER_UNUSED static uint64_t now_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000 + (uint64_t)now.tv_nsec / 1000;
}

// A deterministic source of numbers (xorshift).
EAGER_UNUSED static uint64_t next_random(uint64_t *state) {
  *state ^= *state << 13;
  *state ^= *state >> 7;
  *state ^= *state << 17;
  return *state;
}

// ---- tensors ----
enum { EAGER_RANK = 8 };
typedef struct tensor {
  tt_storage *storage;
  int64_t sizes[EAGER_RANK], strides[EAGER_RANK], offset;
  int32_t ndim;
  tt_dtype dtype;
} tensor;

EAGER_UNUSED static int64_t numel_of(const tensor *t) {
  int64_t numel = 1;
  for (int32_t i = 0; i < t->ndim; i++) {
    numel *= t->sizes[i];
  }
  return numel;
}

// A tensor over a storage, contiguous from `offset`.
EAGER_UNUSED static tensor tensor_over(tt_storage *storage, tt_dtype dtype, int32_t ndim, const int64_t *sizes,
                                       int64_t offset) {
  tensor t = {.storage = storage, .ndim = ndim, .dtype = dtype, .offset = offset};
  int64_t stride = 1;
  for (int32_t i = ndim - 1; i >= 0; i--) {
    t.sizes[i] = sizes[i];
    t.strides[i] = stride;
    stride *= sizes[i] > 1 ? sizes[i] : 1;
  }
  return t;
}

#define DIMS(...) \
  (int32_t)(sizeof((int64_t[]){__VA_ARGS__}) / sizeof(int64_t)), (const int64_t[]) { __VA_ARGS__ }

// A new contiguous tensor over a storage of its own, undefined. Its storage is NULL (and a check failed) on errors.
EAGER_UNUSED static tensor make_on(int32_t device, tt_dtype dtype, int32_t ndim, const int64_t *sizes) {
  tensor t = tensor_over(NULL, dtype, ndim, sizes, 0);
  CHECK_OK(tt_storage_create(device, (size_t)numel_of(&t) * tt_dtype_size(dtype), &t.storage));
  return t;
}
EAGER_UNUSED static tensor make(tt_dtype dtype, int32_t ndim, const int64_t *sizes) {
  return make_on(0, dtype, ndim, sizes);
}

EAGER_UNUSED static tt_tensor ref(const tensor *t) {
  return (tt_tensor){.storage = t->storage,
                     .sizes = t->sizes,
                     .strides = t->strides,
                     .offset = t->offset,
                     .ndim = t->ndim,
                     .dtype = (uint8_t)t->dtype};
}

// A tensor with values 0, 1, 2, ... (bytes of the index for every type).
EAGER_UNUSED static tensor make_filled(tt_dtype dtype, int32_t ndim, const int64_t *sizes) {
  tensor t = make(dtype, ndim, sizes);
  size_t nbytes = (size_t)numel_of(&t) * tt_dtype_size(dtype);
  unsigned char *bytes = malloc(nbytes + 1);
  for (size_t i = 0; bytes && i < nbytes; i++) {
    bytes[i] = (unsigned char)(i % 100);
  }
  tt_tensor whole = ref(&t);
  CHECK_OK(tt_copy_from_host(&whole, bytes));
  free(bytes);
  return t;
}

EAGER_UNUSED static void drop(tensor *t) {
  tt_storage_free(t->storage);
  t->storage = NULL;
}

EAGER_UNUSED static tensor select_row(const tensor *t, int64_t row) {
  tensor view = *t;
  view.ndim--;
  view.offset += row * t->strides[0];
  for (int32_t i = 0; i < view.ndim; i++) {
    view.sizes[i] = t->sizes[i + 1];
    view.strides[i] = t->strides[i + 1];
  }
  return view;
}

// ---- arguments ----
// Nobody may look at the count of what is no list.
enum { NOT_A_LIST = INT32_MAX };

EAGER_UNUSED static tt_arg arg_tensor(const tensor *t) {
  return (tt_arg){.tag = TT_ARG_TENSOR, .count = NOT_A_LIST, .u.tensor = ref(t)};
}
EAGER_UNUSED static tt_arg arg_int(int64_t value) {
  return (tt_arg){.tag = TT_ARG_INT, .count = NOT_A_LIST, .u.i = value};
}
EAGER_UNUSED static tt_arg arg_long(int64_t value) {
  return (tt_arg){.tag = TT_ARG_NUMBER, .count = NOT_A_LIST, .u.number = {.type = TT_S64, .u.i = value}};
}
EAGER_UNUSED static tt_arg arg_double(double value) {
  return (tt_arg){.tag = TT_ARG_NUMBER, .count = NOT_A_LIST, .u.number = {.type = TT_F64, .u.f = {value}}};
}
// A Python number where the schema has a tensor.
EAGER_UNUSED static tt_arg arg_wrapped(double value) {
  return (tt_arg){.tag = TT_ARG_TENSOR,
                  .count = NOT_A_LIST,
                  .u.tensor = {.dtype = TT_F64, .is_wrapped = true, .host = {.type = TT_F64, .u.f = {value}}}};
}
EAGER_UNUSED static tt_arg arg_none(void) { return (tt_arg){.tag = TT_ARG_NONE, .count = NOT_A_LIST}; }

// ---- operators ----
typedef enum test_op {
  OP_ADD,
  OP_ADD_IN_PLACE,
  OP_ADD_OUT,
  OP_MUL,
  OP_MM,
  OP_INDEX_SELECT,
  OP_SUM,
  OP_FOREACH_ADD_IN_PLACE,
  OP_FOREACH_ADD,
  OP_UNIFORM_IN_PLACE,
  OP_MAX_DIM,
  OP_DIV,
  TEST_OP_COUNT
} test_op;

#define ONE {TT_S64, {.i = 1}}
#define TENSOR_ARG(text) {.name = text, .kind = TT_KIND_TENSOR}

EAGER_UNUSED static tt_op *op_of(test_op op) {
  static tt_op *registered[TEST_OP_COUNT];
  static const tt_arg_schema add[] = {
      TENSOR_ARG("self"),
      TENSOR_ARG("other"),
      {.name = "alpha", .kind = TT_KIND_NUMBER, .has_default = true, .default_value = ONE},
      {.name = "out", .kind = TT_KIND_TENSOR, .is_out = true}};
  static const tt_arg_schema mm[] = {TENSOR_ARG("self"), TENSOR_ARG("mat2")};
  static const tt_arg_schema index_select[] = {
      TENSOR_ARG("self"), {.name = "dim", .kind = TT_KIND_INT}, TENSOR_ARG("index")};
  static const tt_arg_schema sum[] = {TENSOR_ARG("self"), {.name = "dtype", .kind = TT_KIND_DTYPE}};
  static const tt_arg_schema lists[] = {
      {.name = "self", .kind = TT_KIND_TENSORS},
      {.name = "other", .kind = TT_KIND_TENSORS},
      {.name = "alpha", .kind = TT_KIND_NUMBER, .has_default = true, .default_value = ONE}};
  static const tt_arg_schema uniform[] = {TENSOR_ARG("self"),
                                          {.name = "from", .kind = TT_KIND_FLOAT},
                                          {.name = "to", .kind = TT_KIND_FLOAT},
                                          {.name = "generator", .kind = TT_KIND_GENERATOR}};
  static const tt_arg_schema max[] = {
      TENSOR_ARG("self"), {.name = "dim", .kind = TT_KIND_INT}, {.name = "keepdim", .kind = TT_KIND_BOOL}};
  static const int32_t fresh[] = {-1, -1}, first[] = {0}, fourth[] = {3};
  static const bool single[] = {false, false}, list[] = {true};
  static const struct {
    const char *rule;
    tt_op_schema schema;
  } table[TEST_OP_COUNT] = {
      [OP_ADD] = {"aten::add.Tensor", {"aten::add.Tensor", 3, add, 1, fresh, single, -1}},
      [OP_ADD_IN_PLACE] = {"aten::add.Tensor", {"aten::add_.Tensor", 3, add, 1, first, single, -1}},
      [OP_ADD_OUT] = {"aten::add.Tensor", {"aten::add.out", 4, add, 1, fourth, single, -1}},
      [OP_MUL] = {"aten::mul.Tensor", {"aten::mul.Tensor", 2, add, 1, fresh, single, -1}},
      [OP_MM] = {"aten::mm", {"aten::mm", 2, mm, 1, fresh, single, -1}},
      [OP_INDEX_SELECT] = {"aten::index_select", {"aten::index_select", 3, index_select, 1, fresh, single, -1}},
      [OP_SUM] = {"aten::sum", {"aten::sum", 2, sum, 1, fresh, single, -1}},
      [OP_FOREACH_ADD_IN_PLACE] = {"aten::_foreach_add.List", {"aten::_foreach_add_.List", 3, lists, 0, NULL, NULL, 0}},
      [OP_FOREACH_ADD] = {"aten::_foreach_add.List", {"aten::_foreach_add.List", 3, lists, 1, fresh, list, -1}},
      [OP_UNIFORM_IN_PLACE] = {"aten::uniform_", {"aten::uniform_", 4, uniform, 1, first, single, -1}},
      [OP_MAX_DIM] = {"aten::max.dim", {"aten::max.dim", 3, max, 2, fresh, single, -1}},
      [OP_DIV] = {"aten::div.Tensor", {"aten::div.Tensor", 2, add, 1, fresh, single, -1}},
  };
  if (!registered[op]) {
    registered[op] = tt_op_register(table[op].rule, &table[op].schema);
    if (!registered[op]) {
      tt_test_fail(__FILE__, __LINE__, "no rule %s", table[op].rule);
      exit(1);
    }
  }
  return registered[op];
}

// ---- calls ----
#define ARGS(...) (const tt_arg[]){__VA_ARGS__}, (int32_t)(sizeof((tt_arg[]){__VA_ARGS__}) / sizeof(tt_arg))

// A call whose one result, a new tensor, is returned.
EAGER_UNUSED static tt_status *call_new(test_op op, const tt_arg *args, int32_t count, tensor *out) {
  tt_results results;
  *out = (tensor){0};
  TT_TRY(tt_call(op_of(op), args, count, 0, &results));
  CHECK_INT(results.resize_arg, -1);
  if (CHECK(results.count >= 1 && results.results[0].kind == TT_RESULT_NEW)) {
    const tt_result *result = &results.results[0];
    *out = (tensor){.storage = results.storages[0], .ndim = result->ndim, .dtype = (tt_dtype)result->dtype};
    memcpy(out->sizes, result->sizes, sizeof(int64_t) * (size_t)result->ndim);
    memcpy(out->strides, result->strides, sizeof(int64_t) * (size_t)result->ndim);
    CHECK_INT(tt_storage_nbytes(out->storage), result->nbytes);
  }
  for (int32_t i = 1; i < results.count; i++) {
    tt_storage_free(results.storages[i]);
  }
  tt_results_release(&results);
  return NULL;
}

// A call for its effect: results are freed.
EAGER_UNUSED static tt_status *call_only(test_op op, const tt_arg *args, int32_t count) {
  tt_results results;
  TT_TRY(tt_call(op_of(op), args, count, 0, &results));
  for (int32_t i = 0; i < results.count; i++) {
    tt_storage_free(results.storages[i]);
  }
  tt_results_release(&results);
  return NULL;
}

EAGER_UNUSED static tt_status *add(const tensor *x, const tensor *y, tensor *out) {
  return call_new(OP_ADD, ARGS(arg_tensor(x), arg_tensor(y)), out);
}
EAGER_UNUSED static tt_status *add_in_place(const tensor *x, const tensor *y) {
  return call_only(OP_ADD_IN_PLACE, ARGS(arg_tensor(x), arg_tensor(y)));
}

EAGER_UNUSED static int64_t compiles(void) {
  tt_counters counters;
  tt_get_counters(&counters);
  return counters.compiles;
}

// Compiles during `expression`; the statement is run once.
#define CHECK_COMPILES(expression, want)     \
  do {                                       \
    int64_t before_ = compiles();            \
    CHECK_OK(expression);                    \
    CHECK_INT(compiles() - before_, (want)); \
  } while (0)

#endif  // TORCHTPU_TESTS_SUPPORT_EAGER_H
