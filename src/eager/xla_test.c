// The engine on XLA:CPU, where numbers come out: what the fake plugin's zeros can't show.
#include <pthread.h>

#include "support/eager.h"

static void start(void) {
  const char *plugin = getenv("TT_TEST_XLA_PLUGIN");
  if (!plugin) {
    SKIP("TT_TEST_XLA_PLUGIN is not set");
  }
  setenv("TORCH_TPU_PJRT_PLUGIN", plugin, 1);
  setenv("TORCH_TPU_CACHE", "0", 1);
  setenv("TORCH_TPU_FAST_COMPILE", "1", 1);
  REQUIRE_OK(tt_init());
}

static tensor floats(int32_t ndim, const int64_t *sizes, const float *data) {
  tensor t = make(TT_F32, ndim, sizes);
  tt_tensor whole = ref(&t);
  CHECK_OK(tt_copy_from_host(&whole, data));
  return t;
}

static float at(const tensor *t, int64_t index) {
  float data[4096] = {0};
  tt_tensor whole = ref(t);
  CHECK_OK(tt_copy_to_host(&whole, data));
  return data[index];
}

static void test_versions(void) {
  start();
  tensor x = floats(DIMS(3), (float[]){1, 2, 3}), y, z;
  // Pending readers keep the value that they were given.
  CHECK_OK(add(&x, &x, &y));
  CHECK_OK(add_in_place(&x, &x));
  CHECK_OK(add(&x, &x, &z));
  CHECK_OK(add_in_place(&x, &z));
  CHECK_NEAR(at(&y, 2), 6, 0);
  CHECK_NEAR(at(&z, 2), 12, 0);
  CHECK_NEAR(at(&x, 2), 18, 0);
  // A shared value is not overwritten.
  tensor copy = make(TT_F32, DIMS(3));
  tt_tensor to = ref(&copy), from = ref(&x);
  CHECK_OK(tt_copy(&to, &from));
  CHECK_OK(add_in_place(&copy, &copy));
  CHECK_NEAR(at(&x, 0), 6, 0);
  CHECK_NEAR(at(&copy, 0), 12, 0);
  // Two views of one storage in one call: the write comes after the reads.
  tensor low = x, high = x;
  low.sizes[0] = high.sizes[0] = 2;
  high.offset = 1;
  CHECK_OK(add_in_place(&high, &low));
  CHECK_NEAR(at(&x, 0), 6, 0);
  CHECK_NEAR(at(&x, 1), 18, 0);
  CHECK_NEAR(at(&x, 2), 30, 0);
  drop(&x);
  drop(&y);
  drop(&z);
  drop(&copy);
}

static void test_scalars(void) {
  start();
  tensor x = floats(DIMS(2), (float[]){1, 2}), z;
  int64_t before = compiles();
  for (int i = 0; i < 20; i++) {
    CHECK_OK(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_double(0.5 + i)), &z));
    CHECK_NEAR(at(&z, 1), 2 + 2 * (0.5 + i), 0);
    drop(&z);
  }
  CHECK_INT(compiles() - before, 1);
  drop(&x);
  // Too small for the type: zero. (It was once a half.)
  tensor half = make(TT_F16, DIMS(2));
  tt_tensor whole = ref(&half);
  uint16_t ones[] = {0x3c00, 0x3c00};
  CHECK_OK(tt_copy_from_host(&whole, ones));
  CHECK_OK(call_new(OP_ADD, ARGS(arg_tensor(&half), arg_tensor(&half), arg_double(1e-9)), &z));
  whole = ref(&z);
  CHECK_OK(tt_copy_to_host(&whole, ones));
  CHECK_INT(ones[0], 0x3c00);
  drop(&z);
  drop(&half);
}

static tt_status *select_rows(const tensor *x, int64_t row, tensor *out) {
  tensor index = make(TT_S64, DIMS(1));
  tt_tensor whole = ref(&index);
  CHECK_OK(tt_copy_from_host(&whole, &row));
  tt_status *status = call_new(OP_INDEX_SELECT, ARGS(arg_tensor(x), arg_int(0), arg_tensor(&index)), out);
  drop(&index);
  return status;
}

static void test_index_errors(void) {
  start();
  tensor x = floats(DIMS(3, 2), (float[]){0, 1, 2, 3, 4, 5}), z;
  CHECK_OK(select_rows(&x, 2, &z));
  CHECK_NEAR(at(&z, 1), 5, 0);
  CHECK_OK(tt_synchronize(0));
  drop(&z);
  CHECK_OK(select_rows(&x, 3, &z));
  CHECK_ERROR(tt_synchronize(0), TT_ERR_INDEX, "index_select(): ");
  CHECK_OK(tt_synchronize(0));
  drop(&z);
  // One bad among many good.
  for (int64_t i = 0; i < 200; i++) {
    CHECK_OK(select_rows(&x, i == 20 ? 100 : i % 3, &z));
    drop(&z);
  }
  CHECK_ERROR(tt_synchronize(0), TT_ERR_INDEX, "index_select(): ");
  CHECK_OK(tt_synchronize(0));
  tt_set_eager_mode(TT_MODE_DEBUG);
  CHECK_ERROR(select_rows(&x, -7, &z), TT_ERR_INDEX, "index_select(): ");
  CHECK_OK(select_rows(&x, 1, &z));
  tt_set_eager_mode(TT_MODE_STRICT);
  drop(&z);
  drop(&x);
}

static void test_nan_check(void) {
  start();
  static const tt_dtype dtypes[] = {TT_F32, TT_F64, TT_F16, TT_BF16};
  for (int i = 0; i < 4; i++) {
    tensor x = make(dtypes[i], DIMS(4)), z;  // undefined: zeros
    CHECK_OK(call_new(OP_DIV, ARGS(arg_tensor(&x), arg_tensor(&x)), &z));
    drop(&z);
    tt_set_eager_mode(TT_MODE_DEBUG);
    CHECK_OK(call_new(OP_DIV, ARGS(arg_tensor(&x), arg_tensor(&x)), &z));
    drop(&z);
    tt_set_check_nan(true);
    CHECK_ERROR(call_new(OP_DIV, ARGS(arg_tensor(&x), arg_tensor(&x)), &z), TT_ERR_RUNTIME,
                "div(): result 0 has a NaN");
    CHECK_OK(add(&x, &x, &z));
    drop(&z);
    tt_set_check_nan(false);
    tt_set_eager_mode(TT_MODE_STRICT);
    drop(&x);
  }
}

static void test_random_numbers(void) {
  start();
  enum { N = 1000 };
  tt_generator *generator;
  static float runs[3][N];
  tensor x = make(TT_F32, DIMS(N));
  const tt_tensor whole = ref(&x);
  REQUIRE_OK(tt_generator_create(0, &generator));
  const tt_arg args[] = {
      arg_tensor(&x), arg_double(0), arg_double(1), {.tag = TT_ARG_GENERATOR, .u.generator = generator}};
  for (int run = 0; run < 3; run++) {
    tt_generator_set(generator, 7, 0);
    for (int i = 0; i <= (run == 2); i++) {
      CHECK_OK(call_only(OP_UNIFORM_IN_PLACE, args, 4));
    }
    CHECK_OK(tt_copy_to_host(&whole, runs[run]));
  }
  double sum = 0;
  int same = 0;
  for (int i = 0; i < N; i++) {
    CHECK(runs[0][i] >= 0 && runs[0][i] < 1);
    sum += (double)runs[0][i];
    same += runs[0][i] == runs[2][i];
  }
  CHECK(!memcmp(runs[0], runs[1], sizeof runs[0]));
  CHECK(same < 10);
  CHECK_NEAR(sum / N, 0.5, 0.05);
  CHECK_OK(tt_synchronize(0));
  tt_generator_free(generator);
  drop(&x);
}

// ---- threads ----
enum { THREADS = 4, ROUNDS = 300 };

static void *count_up(void *argument) {
  tensor *own = argument, one = floats(DIMS(4), (float[]){1, 1, 1, 1});
  for (int i = 1; i <= ROUNDS; i++) {
    CHECK_OK(add_in_place(own, &one));
    if (i % 50 == 0) {
      CHECK_NEAR(at(own, 3), i, 0);
    }
  }
  drop(&one);
  return NULL;
}

static void test_threads(void) {
  start();
  pthread_t threads[THREADS];
  tensor own[THREADS], all = make(TT_F32, DIMS(THREADS, 4));
  op_of(OP_ADD_IN_PLACE);
  for (int i = 0; i < THREADS; i++) {
    own[i] = select_row(&all, i);  // all write to one storage, each its own row
    REQUIRE(pthread_create(&threads[i], NULL, count_up, &own[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  for (int i = 0; i < THREADS; i++) {
    CHECK_NEAR(at(&all, 4 * i), ROUNDS, 0);
  }
  drop(&all);
}

static void test_nothing_is_left(void) {
  start();
  CHECK_OK(tt_synchronize(-1));
  CHECK_OK(tt_empty_cache());
  CHECK_OK(tt_clear_compile_cache());
  tt_memory_stats stats;
  CHECK_OK(tt_get_memory_stats(0, &stats));
  CHECK_INT(stats.active, 0);
  CHECK_INT(stats.allocated, 0);
  CHECK_INT(stats.reserved, 0);
}

TEST_MAIN(TEST(test_versions), TEST(test_scalars), TEST(test_index_errors), TEST(test_nan_check),
          TEST(test_random_numbers), TEST(test_threads), TEST(test_nothing_is_left))
