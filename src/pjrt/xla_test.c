// The same interface on a real plugin, XLA:CPU (TT_TEST_XLA_PLUGIN).
#include <pthread.h>
#include <stdio.h>

#include "base/test.h"
#include "pjrt/internal.h"

enum { DEVICES = 4 };

// One client for all tests: it costs little, but its log lines cost attention. Never freed.
static tt_pjrt_client *client;

static void open_client(void) {
  const char *path = getenv("TT_TEST_XLA_PLUGIN");
  if (!path) {
    SKIP("TT_TEST_XLA_PLUGIN is not set");
  }
  if (!client) {
    tt_pjrt_plugin *plugin;
    REQUIRE_OK(tt_pjrt_plugin_load(path, &plugin));
    tt_status *status = tt_pjrt_client_create(plugin, &(tt_pjrt_client_options){.cpu_device_count = DEVICES}, &client);
    tt_pjrt_plugin_free(plugin);
    REQUIRE_OK(status);
  }
}

#define ADD(attribute)                                                \
  "module @m {\n  func.func public @main(%a: tensor<4xf32>" attribute \
  ", %b: tensor<4xf32>) -> tensor<4xf32> {\n"                         \
  "    %0 = stablehlo.add %a, %b : tensor<4xf32>\n    return %0 : tensor<4xf32>\n  }\n}\n"
static const char add[] = ADD("");
static const char add_in_place[] = ADD(" {tf.aliasing_output = 0 : i32}");
static const int64_t four[1] = {4};
static const float values[4] = {1, 2, 3, 4};

static tt_pjrt_executable *compile(const char *text, int32_t device) {
  tt_pjrt_executable *executable = NULL;
  REQUIRE_OK(tt_pjrt_compile(client, text, strlen(text), NULL, device, &executable));
  return executable;
}

static tt_pjrt_buffer *upload(int32_t device) {
  tt_pjrt_buffer *buffer = NULL;
  REQUIRE_OK(tt_pjrt_buffer_from_host(client, device, values, TT_F32, four, 1, &buffer));
  return buffer;
}

// `buffer` holds `factor` times the values.
static void check_values(tt_pjrt_buffer *buffer, float factor) {
  float back[4] = {0};
  CHECK_OK(tt_pjrt_buffer_to_host(client, buffer, back, sizeof back));
  for (int i = 0; i < 4; i++) {
    CHECK_NEAR(back[i], factor * values[i], 0);
  }
}

static void test_client(void) {
  open_client();
  CHECK_STR(tt_pjrt_client_platform(client), "cpu");
  CHECK(tt_pjrt_client_is_cpu(client));
  CHECK_INT(tt_pjrt_client_device_count(client), DEVICES);
  CHECK_STR(tt_pjrt_device_kind(client, 0), "cpu");
  int64_t in_use, limit;
  CHECK(!tt_pjrt_device_memory(client, 0, &in_use, &limit));
}

// Compiled for each device in turn, it runs there with that device's buffers, also after a reload and a move.
static void test_add_on_each_device(void) {
  open_client();
  for (int32_t device = 0; device < DEVICES; device++) {
    tt_pjrt_executable *executable = compile(add, device), *loaded[3] = {executable, NULL, NULL};
    int32_t where[3] = {device, device, (device + 1) % DEVICES};
    void *data;
    size_t size;
    REQUIRE_OK(tt_pjrt_executable_serialize(client, executable, &data, &size));
    REQUIRE_OK(tt_pjrt_executable_deserialize(client, data, size, &loaded[1]));
    REQUIRE_OK(tt_pjrt_executable_deserialize_on(client, data, size, NULL, where[2], &loaded[2]));
    free(data);
    for (int i = 0; i < 3; i++) {
      CHECK_INT(tt_pjrt_executable_device(loaded[i]), where[i]);
      CHECK_INT(tt_pjrt_executable_result_count(loaded[i]), 1);
      tt_pjrt_buffer *argument = upload(where[i]), *arguments[2] = {argument, argument}, *result;
      tt_pjrt_event *done;
      REQUIRE_OK(tt_pjrt_execute(client, loaded[i], where[i], arguments, NULL, 2, &result, &done));
      CHECK_OK(tt_pjrt_event_await(client, done));
      check_values(result, 2);
      tt_pjrt_event_free(client, done);
      tt_pjrt_buffer_free(client, result);
      tt_pjrt_buffer_free(client, argument);
      tt_pjrt_executable_free(client, loaded[i]);
    }
  }
}

static void test_wrong_device(void) {
  open_client();
  tt_pjrt_executable *executable = compile(add, 2);
  tt_pjrt_buffer *argument = upload(1), *moved, *arguments[2] = {argument, argument}, *result;
  CHECK_ERROR(tt_pjrt_execute(client, executable, 1, arguments, NULL, 2, &result, NULL), TT_ERR_INTERNAL,
              "compiled for device 2, not for 1");
  CHECK_ERROR(tt_pjrt_execute(client, executable, 2, arguments, NULL, 2, &result, NULL), TT_ERR_RUNTIME,
              "is on device");
  REQUIRE_OK(tt_pjrt_buffer_copy_to_device(client, argument, 2, &moved));
  arguments[0] = arguments[1] = moved;
  REQUIRE_OK(tt_pjrt_execute(client, executable, 2, arguments, NULL, 2, &result, NULL));
  check_values(result, 2);
  tt_pjrt_buffer_free(client, result);
  tt_pjrt_buffer_free(client, moved);
  tt_pjrt_buffer_free(client, argument);
  tt_pjrt_executable_free(client, executable);
}

static void test_donation(void) {
  open_client();
  for (int reload = 0; reload < 2; reload++) {
    tt_pjrt_executable *executable = compile(add_in_place, 0);
    if (reload) {
      void *data;
      size_t size;
      REQUIRE_OK(tt_pjrt_executable_serialize(client, executable, &data, &size));
      tt_pjrt_executable_free(client, executable);
      REQUIRE_OK(tt_pjrt_executable_deserialize(client, data, size, &executable));
      free(data);
    }
    tt_pjrt_buffer *arguments[2] = {upload(0), upload(0)}, *kept, *result;
    const void *before, *after;
    CHECK_OK(tt_pjrt_buffer_host_pointer(client, arguments[0], &before));
    static const bool none[2] = {false, false}, first[2] = {true, false}, both[2] = {true, true};
    // Without donation the same executable copies, and the argument keeps its value.
    REQUIRE_OK(tt_pjrt_execute(client, executable, 0, arguments, none, 2, &kept, NULL));
    CHECK_OK(tt_pjrt_buffer_host_pointer(client, kept, &after));
    CHECK(before != after);
    check_values(arguments[0], 1);
    check_values(kept, 2);
    // NULL donates nothing.
    tt_pjrt_buffer_free(client, kept);
    REQUIRE_OK(tt_pjrt_execute(client, executable, 0, arguments, NULL, 2, &kept, NULL));
    check_values(arguments[0], 1);
    // With it, it is in place and the argument is gone.
    REQUIRE_OK(tt_pjrt_execute(client, executable, 0, arguments, first, 2, &result, NULL));
    CHECK_OK(tt_pjrt_buffer_host_pointer(client, result, &after));
    CHECK(before == after);
    check_values(result, 2);
    float back[4];
    CHECK_ERROR(tt_pjrt_buffer_to_host(client, arguments[0], back, sizeof back), TT_ERR_RUNTIME, "donated");
    tt_pjrt_buffer *again;
    CHECK_ERROR(tt_pjrt_execute(client, executable, 0, arguments, first, 2, &again, NULL), TT_ERR_RUNTIME, "donated");
    // A parameter without aliasing is never donated, whatever is said.
    tt_pjrt_buffer *pair[2] = {result, arguments[1]};
    REQUIRE_OK(tt_pjrt_execute(client, executable, 0, pair, both, 2, &again, NULL));
    check_values(again, 3);
    check_values(arguments[1], 1);
    tt_pjrt_buffer_free(client, again);
    tt_pjrt_buffer_free(client, result);
    tt_pjrt_buffer_free(client, kept);
    tt_pjrt_buffer_free(client, arguments[0]);
    tt_pjrt_buffer_free(client, arguments[1]);
    tt_pjrt_executable_free(client, executable);
  }
}

static void test_dtypes(void) {
  open_client();
  for (int dtype = TT_DTYPE_INVALID + 1; dtype < TT_DTYPE_COUNT; dtype++) {
    static const int64_t dims[3] = {2, 3, 5};
    char in[30 * 16], out[30 * 16] = {0};
    size_t size = 30 * tt_dtype_size((tt_dtype)dtype);
    for (size_t i = 0; i < sizeof in; i++) {
      in[i] = (char)(dtype == TT_PRED ? i & 1 : i * 7 + (size_t)dtype);
    }
    tt_pjrt_buffer *buffer, *result;
    REQUIRE_OK(tt_pjrt_buffer_from_host(client, 0, in, (tt_dtype)dtype, dims, 3, &buffer));
    CHECK_OK(tt_pjrt_buffer_to_host(client, buffer, out, size));
    CHECK(!memcmp(in, out, size));
    // The name of the type in a program agrees with the element type of the buffer.
    char text[256];
    snprintf(
        text, sizeof text,
        "func.func public @main(%%a: tensor<2x3x5x%s>) -> tensor<3x2x5x%s> { %%0 = stablehlo.transpose %%a, dims = "
        "[1, 0, 2] : (tensor<2x3x5x%s>) -> tensor<3x2x5x%s> return %%0 : tensor<3x2x5x%s> }",
        tt_dtype_hlo_name((tt_dtype)dtype), tt_dtype_hlo_name((tt_dtype)dtype), tt_dtype_hlo_name((tt_dtype)dtype),
        tt_dtype_hlo_name((tt_dtype)dtype), tt_dtype_hlo_name((tt_dtype)dtype));
    tt_pjrt_executable *executable = compile(text, 0);
    REQUIRE_OK(tt_pjrt_execute(client, executable, 0, &buffer, NULL, 1, &result, NULL));
    tt_dtype got;
    const int64_t *got_dims;
    int32_t rank;
    CHECK_OK(tt_pjrt_buffer_shape(client, result, &got, &got_dims, &rank));
    CHECK_INT(got, dtype);
    CHECK(rank == 3 && got_dims[0] == 3 && got_dims[1] == 2);
    // Row-major: result[1][0] is in[0][1].
    CHECK_OK(tt_pjrt_buffer_to_host(client, result, out, size));
    size_t row = 5 * tt_dtype_size((tt_dtype)dtype);
    CHECK(!memcmp(out + 2 * row, in + row, row));
    tt_pjrt_buffer_free(client, result);
    tt_pjrt_buffer_free(client, buffer);
    tt_pjrt_executable_free(client, executable);
  }
}

static void test_empty_and_scalar(void) {
  open_client();
  static const int64_t empty[2] = {0, 7};
  tt_pjrt_buffer *buffer;
  REQUIRE_OK(tt_pjrt_buffer_from_host(client, 0, NULL, TT_BF16, empty, 2, &buffer));
  CHECK_OK(tt_pjrt_buffer_to_host(client, buffer, NULL, 0));
  tt_pjrt_buffer_free(client, buffer);
  int64_t number = -3, back = 0;
  REQUIRE_OK(tt_pjrt_buffer_from_host(client, 0, &number, TT_S64, NULL, 0, &buffer));
  CHECK_OK(tt_pjrt_buffer_to_host(client, buffer, &back, sizeof back));
  CHECK_INT(back, -3);
  tt_pjrt_buffer_free(client, buffer);
}

// The other way to the host, which a TPU takes.
static void test_transfer(void) {
  open_client();
  tt_pjrt_buffer *buffer = upload(0);
  client->is_cpu = false;
  const void *pointer;
  CHECK_OK(tt_pjrt_buffer_host_pointer(client, buffer, &pointer));
  CHECK(!pointer);
  check_values(buffer, 1);
  tt_pjrt_buffer *scalar;
  double one = 2.5, back = 0;
  REQUIRE_OK(tt_pjrt_buffer_from_host(client, 0, &one, TT_F64, NULL, 0, &scalar));
  CHECK_OK(tt_pjrt_buffer_to_host(client, scalar, &back, sizeof back));
  CHECK_NEAR(back, 2.5, 0);
  client->is_cpu = true;
  tt_pjrt_buffer_free(client, scalar);
  tt_pjrt_buffer_free(client, buffer);
}

static void test_options(void) {
  open_client();
  static const char *const names[] = {"xla_backend_optimization_level", "xla_cpu_enable_fast_math",
                                      "xla_cpu_prefer_vector_width", "xla_dump_to"};
  static const char *const good[] = {"0", "false", "128", ""}, *const bad[] = {"many", "perhaps", "wide", ""};
  for (int i = 0; i < 4; i++) {
    tt_pjrt_compile_options options = {.option_names = names + i, .option_values = good + i, .option_count = 1};
    tt_pjrt_executable *executable = NULL;
    CHECK_OK(tt_pjrt_compile(client, add, strlen(add), &options, 0, &executable));
    tt_pjrt_executable_free(client, executable);
    options.option_values = bad + i;
    if (*bad[i]) {
      CHECK_ERROR(tt_pjrt_compile(client, add, strlen(add), &options, 0, &executable), TT_ERR_RUNTIME, names[i]);
    }
  }
  static const char *const unknown[] = {"xla_no_such_option"};
  tt_pjrt_executable *executable;
  CHECK_ERROR(
      tt_pjrt_compile(client, add, strlen(add), &(tt_pjrt_compile_options){unknown, good, 1, 0}, 0, &executable),
      TT_ERR_RUNTIME, "No such compile option: 'xla_no_such_option'");
}

static void test_broken_programs(void) {
  open_client();
  static const struct {
    const char *text, *message;
  } programs[] = {
      {"nonsense", "compile: "},
      {"module @m { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %b : tensor<4xf32> } }",
       "undeclared"},
      {"module @m { func.func public @main(%a: tensor<4xf32>) -> tensor<5xf32> { %0 = stablehlo.add %a, %a : "
       "tensor<4xf32> return %0 : tensor<4xf32> } }",
       "compile: "},
      {"module @m { func.func public @main(%a: tensor<4xf32>) -> tensor<4xf32> { %0 = stablehlo.custom_call "
       "@no_such(%a) "
       ": (tensor<4xf32>) -> tensor<4xf32> return %0 : tensor<4xf32> } }",
       "no_such"},
      {"module @m { func.func public @other() { return } }", "compile: "},
      {"\xff\xfe\x00garbage", "compile: "},
  };
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    tt_pjrt_executable *executable;
    CHECK_ERROR(tt_pjrt_compile(client, programs[i].text, strlen(programs[i].text), NULL, 0, &executable),
                TT_ERR_RUNTIME, programs[i].message);
    CHECK(!executable);
  }
  tt_pjrt_executable *executable;
  // Cut anywhere; what lies behind the end is not read.
  for (size_t size = 1; size + 3 < strlen(add); size += 7) {
    char *exact = malloc(size);
    memcpy(exact, add, size);
    CHECK_ERROR(tt_pjrt_compile(client, exact, size, NULL, 0, &executable), TT_ERR_RUNTIME, "compile: ");
    CHECK_ERROR(tt_pjrt_compile(client, add, size, NULL, 0, &executable), TT_ERR_RUNTIME, "compile: ");
    free(exact);
  }
  char zeros[sizeof add];
  memcpy(zeros, add, sizeof add);
  zeros[sizeof add / 2] = '\0';
  CHECK_ERROR(tt_pjrt_compile(client, zeros, strlen(add), NULL, 0, &executable), TT_ERR_RUNTIME, "compile: ");
  CHECK_ERROR(tt_pjrt_executable_deserialize(client, "no executable", 13, &executable), TT_ERR_RUNTIME,
              "deserialize: ");
}

static void test_memory_stats(void) {
  open_client();
  tt_pjrt_executable *executable = compile(add, 0);
  CHECK_INT(tt_pjrt_executable_temp_bytes(executable), 0);
  tt_pjrt_executable_free(client, executable);
  // A sort of a computed array and a reversed copy of it need room in between.
  executable = compile(
      "func.func public @main(%a: tensor<512x512xf32>) -> tensor<512x512xf32> {\n"
      "  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) "
      "-> "
      "tensor<512x512xf32>\n"
      "  %1 = stablehlo.dot_general %0, %a, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) "
      "-> "
      "tensor<512x512xf32>\n"
      "  %2 = stablehlo.dot_general %1, %0, contracting_dims = [1] x [0] : (tensor<512x512xf32>, tensor<512x512xf32>) "
      "-> "
      "tensor<512x512xf32>\n"
      "  return %2 : tensor<512x512xf32>\n}\n",
      0);
  CHECK(tt_pjrt_executable_temp_bytes(executable) >= 512 * 512 * 4);
  tt_pjrt_executable_free(client, executable);
}

static void test_many_results(void) {
  open_client();
  enum { COUNT = 100 };
  char *text = malloc(COUNT * 200);
  int at = sprintf(text, "func.func public @main(");
  for (int i = 0; i < COUNT; i++) {
    at += sprintf(text + at, "%s%%a%d: tensor<4xf32>", i ? ", " : "", i);
  }
  at += sprintf(text + at, ") -> (");
  for (int i = 0; i < COUNT; i++) {
    at += sprintf(text + at, "%stensor<4xf32>", i ? ", " : "");
  }
  at += sprintf(text + at, ") {\n");
  for (int i = 0; i < COUNT; i++) {
    at += sprintf(text + at, "%%r%d = stablehlo.add %%a%d, %%a%d : tensor<4xf32>\n", i, i, i);
  }
  at += sprintf(text + at, "return ");
  for (int i = 0; i < COUNT; i++) {
    at += sprintf(text + at, "%s%%r%d", i ? ", " : "", i);
  }
  at += sprintf(text + at, " : ");
  for (int i = 0; i < COUNT; i++) {
    at += sprintf(text + at, "%stensor<4xf32>", i ? ", " : "");
  }
  sprintf(text + at, " }");
  tt_pjrt_executable *executable = compile(text, 0);
  free(text);
  CHECK_INT(tt_pjrt_executable_result_count(executable), COUNT);
  tt_pjrt_buffer *arguments[COUNT], *results[COUNT];
  for (int i = 0; i < COUNT; i++) {
    arguments[i] = upload(0);
  }
  REQUIRE_OK(tt_pjrt_execute(client, executable, 0, arguments, NULL, COUNT, results, NULL));
  for (int i = 0; i < COUNT; i++) {
    check_values(results[i], 2);
    tt_pjrt_buffer_free(client, results[i]);
    tt_pjrt_buffer_free(client, arguments[i]);
  }
  tt_pjrt_executable_free(client, executable);
}

typedef struct waited {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  int calls;
  bool failed;
} waited;

static void on_ready(void *context, tt_status *status) {
  waited *one = context;
  pthread_mutex_lock(&one->lock);
  one->calls++;
  one->failed = one->failed || status;
  pthread_cond_signal(&one->wake);
  pthread_mutex_unlock(&one->lock);
  tt_status_free(status);
}

// A program large enough for the pool: its event is pending, then calls back once.
static void test_events(void) {
  open_client();
  enum { SIDE = 700 };
  tt_pjrt_executable *executable = compile(
      "func.func public @main(%a: tensor<700x700xf32>) -> tensor<700x700xf32> {\n"
      "  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<700x700xf32>, tensor<700x700xf32>) "
      "-> "
      "tensor<700x700xf32>\n"
      "  return %0 : tensor<700x700xf32>\n}\n",
      0);
  float *data = malloc(sizeof *data * SIDE * SIDE);
  for (int i = 0; i < SIDE * SIDE; i++) {
    data[i] = 0.5f;
  }
  tt_pjrt_buffer *argument, *result;
  REQUIRE_OK(tt_pjrt_buffer_from_host(client, 0, data, TT_F32, (int64_t[2]){SIDE, SIDE}, 2, &argument));
  for (int round = 0; round < 5; round++) {
    waited one = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
    tt_pjrt_event *done;
    REQUIRE_OK(tt_pjrt_execute(client, executable, 0, &argument, NULL, 1, &result, &done));
    CHECK_OK(tt_pjrt_event_on_ready(client, done, on_ready, &one));
    pthread_mutex_lock(&one.lock);
    while (!one.calls) {
      pthread_cond_wait(&one.wake, &one.lock);
    }
    pthread_mutex_unlock(&one.lock);
    CHECK_INT(one.calls, 1);
    CHECK(!one.failed);
    bool ready;
    CHECK_OK(tt_pjrt_event_is_ready(client, done, &ready));
    CHECK(ready);
    CHECK_OK(tt_pjrt_event_await(client, done));
    tt_pjrt_event_free(client, done);
    CHECK_OK(tt_pjrt_buffer_to_host(client, result, data, sizeof *data * SIDE * SIDE));
    CHECK_NEAR(data[0], SIDE * 0.25, 1e-3);
    tt_pjrt_buffer_free(client, result);
  }
  free(data);
  tt_pjrt_buffer_free(client, argument);
  tt_pjrt_executable_free(client, executable);
}

static void test_out_of_memory(void) {
  open_client();
  tt_pjrt_executable *executable = compile(
      "func.func public @main(%a: tensor<f32>) -> tensor<1048576x1048576x64xf32> {\n"
      "  %0 = stablehlo.broadcast_in_dim %a, dims = [] : (tensor<f32>) -> tensor<1048576x1048576x64xf32>\n"
      "  return %0 : tensor<1048576x1048576x64xf32>\n}\n",
      0);
  tt_pjrt_buffer *argument, *result = NULL;
  REQUIRE_OK(tt_pjrt_buffer_from_host(client, 0, values, TT_F32, NULL, 0, &argument));
  tt_status *status = tt_pjrt_execute(client, executable, 0, &argument, NULL, 1, &result, NULL);
  if (!status) {
    status = tt_pjrt_buffer_await(client, result);
  }
  CHECK_ERROR(status, TT_ERR_OUT_OF_MEMORY, "ut of memory");
  tt_pjrt_buffer_free(client, result);
  tt_pjrt_buffer_free(client, argument);
  tt_pjrt_executable_free(client, executable);
}

static void *work(void *argument) {
  int index = *(int *)argument;
  int32_t device = index % DEVICES;
  for (int round = 0; round < 5; round++) {
    tt_pjrt_executable *executable;
    tt_pjrt_buffer *buffer, *result;
    if (!CHECK_OK(tt_pjrt_compile(client, add, strlen(add), NULL, device, &executable)) ||
        !CHECK_OK(tt_pjrt_buffer_from_host(client, device, values, TT_F32, four, 1, &buffer))) {
      return NULL;
    }
    for (int i = 0; i < 100; i++) {
      tt_pjrt_buffer *arguments[2] = {buffer, buffer};
      if (CHECK_OK(tt_pjrt_execute(client, executable, device, arguments, NULL, 2, &result, NULL))) {
        check_values(result, 2);
        tt_pjrt_buffer_free(client, result);
      }
    }
    tt_pjrt_buffer_free(client, buffer);
    tt_pjrt_executable_free(client, executable);
  }
  return NULL;
}

static void test_threads(void) {
  open_client();
  pthread_t threads[4];
  int indices[4] = {0, 1, 2, 3};
  for (int i = 0; i < 4; i++) {
    REQUIRE(!pthread_create(&threads[i], NULL, work, &indices[i]));
  }
  for (int i = 0; i < 4; i++) {
    pthread_join(threads[i], NULL);
  }
}

// A second client beside the first, and its end.
static void test_second_client(void) {
  open_client();
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *second;
  REQUIRE_OK(tt_pjrt_plugin_load(getenv("TT_TEST_XLA_PLUGIN"), &plugin));
  REQUIRE_OK(tt_pjrt_client_create(plugin, NULL, &second));
  CHECK(tt_pjrt_client_device_count(second) >= 1);
  tt_pjrt_buffer *buffer;
  REQUIRE_OK(tt_pjrt_buffer_from_host(second, 0, values, TT_F32, four, 1, &buffer));
  tt_pjrt_buffer_free(second, buffer);
  tt_pjrt_client_free(second);
  tt_pjrt_plugin_free(plugin);
}

TEST_MAIN(TEST(test_client), TEST(test_add_on_each_device), TEST(test_wrong_device), TEST(test_donation),
          TEST(test_dtypes), TEST(test_empty_and_scalar), TEST(test_transfer), TEST(test_options),
          TEST(test_broken_programs), TEST(test_memory_stats), TEST(test_many_results), TEST(test_events),
          TEST(test_out_of_memory), TEST(test_threads), TEST(test_second_client))
