// Buffers, executions, donation, events and threads, on the fake plugin.
#include <pthread.h>
#include <stdio.h>
#include <time.h>

#include "fake_pjrt/control.h"
#include "pjrt/internal.h"

typedef struct fixture {
  fake_control fake;
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *client;
} fixture;

static fixture open_fixture(int32_t devices) {
  fixture f = {.fake = fake_open()};
  tt_pjrt_client_options options = {.cpu_device_count = devices};
  REQUIRE_OK(tt_pjrt_plugin_load(f.fake.path, &f.plugin));
  REQUIRE_OK(tt_pjrt_client_create(f.plugin, &options, &f.client));
  return f;
}

static void close_fixture(fixture *f) {
  tt_pjrt_client_free(f->client);
  tt_pjrt_plugin_free(f->plugin);
  fake_check_empty(&f->fake);
}

#define UNARY(attribute)                                           \
  "module @m { func.func public @main(%a: tensor<4xf32>" attribute \
  ") -> tensor<4xf32> { return %a : tensor<4xf32> } "              \
  "}"
static const char plain[] = UNARY("");
static const char aliased[] = UNARY(" {tf.aliasing_output = 0 : i32}");
static const char donor[] = UNARY(" {jax.buffer_donor = true}");
static const int64_t four[1] = {4};
static const float values[4] = {1, 2, 3, 4};

static tt_pjrt_executable *compile(tt_pjrt_client *client, const char *text, int32_t device) {
  tt_pjrt_executable *executable = NULL;
  REQUIRE_OK(tt_pjrt_compile(client, text, strlen(text), NULL, device, &executable));
  return executable;
}

static tt_pjrt_buffer *upload(tt_pjrt_client *client, int32_t device) {
  tt_pjrt_buffer *buffer = NULL;
  REQUIRE_OK(tt_pjrt_buffer_from_host(client, device, values, TT_F32, four, 1, &buffer));
  return buffer;
}

static void test_client(void) {
  fixture f = open_fixture(3);
  CHECK_STR(tt_pjrt_client_platform(f.client), "cpu");
  CHECK_STR(tt_pjrt_client_platform_version(f.client), "fake 1");
  CHECK(tt_pjrt_client_is_cpu(f.client));
  CHECK_INT(tt_pjrt_client_device_count(f.client), 3);
  CHECK_STR(tt_pjrt_device_kind(f.client, 2), "fake");
  CHECK_STR(tt_pjrt_device_kind(f.client, 3), "");
  CHECK_STR(tt_pjrt_device_kind(f.client, -1), "");
  int64_t in_use, limit;
  CHECK(!tt_pjrt_device_memory(f.client, 0, &in_use, &limit));
  f.fake.set("memory_limit", 1000);
  tt_pjrt_buffer *buffer = upload(f.client, 0);
  CHECK(tt_pjrt_device_memory(f.client, 0, &in_use, &limit));
  CHECK_INT(in_use, 16);
  CHECK_INT(limit, 1000);
  CHECK(!tt_pjrt_device_memory(f.client, 7, &in_use, &limit));
  tt_pjrt_buffer_free(f.client, buffer);
  close_fixture(&f);
}

static void test_client_options(void) {
  fake_control fake = fake_open();
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *client;
  REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &plugin));
  fake.set("devices", 5);
  REQUIRE_OK(tt_pjrt_client_create(plugin, NULL, &client));
  CHECK_INT(tt_pjrt_client_device_count(client), 5);
  tt_pjrt_plugin_free(plugin);  // the client lives on
  tt_pjrt_buffer_free(client, upload(client, 4));
  tt_pjrt_client_free(client);
  tt_pjrt_client_free(NULL);
  REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &plugin));
  CHECK_ERROR(tt_pjrt_client_create(plugin, &(tt_pjrt_client_options){.cpu_device_count = -1}, &client), TT_ERR_VALUE,
              "-1 devices");
  CHECK_ERROR(tt_pjrt_client_create(plugin, &(tt_pjrt_client_options){.cpu_device_count = 5000}, &client),
              TT_ERR_RUNTIME, "5000 devices");
  tt_pjrt_plugin_free(plugin);
  fake_check_empty(&fake);
}

static void test_dtypes(void) {
  for (int tpu = 0; tpu < 2; tpu++) {
    fixture f = open_fixture(1);
    tt_pjrt_client_free(f.client);
    f.fake.set("tpu", tpu);
    REQUIRE_OK(tt_pjrt_client_create(f.plugin, NULL, &f.client));
    for (int dtype = TT_DTYPE_INVALID + 1; dtype < TT_DTYPE_COUNT; dtype++) {
      static const int64_t dims[3] = {2, 3, 5};
      char in[30 * 16], out[30 * 16] = {0};
      for (size_t i = 0; i < sizeof in; i++) {
        in[i] = (char)(i * 7 + (size_t)dtype);
      }
      size_t size = 30 * tt_dtype_size((tt_dtype)dtype);
      tt_pjrt_buffer *buffer;
      REQUIRE_OK(tt_pjrt_buffer_from_host(f.client, 0, in, (tt_dtype)dtype, dims, 3, &buffer));
      CHECK_OK(tt_pjrt_buffer_to_host(f.client, buffer, out, size));
      CHECK(!memcmp(in, out, size));
      CHECK_ERROR(tt_pjrt_buffer_to_host(f.client, buffer, out, size + 1), TT_ERR_INTERNAL, "bytes");
      tt_dtype got;
      const int64_t *got_dims;
      int32_t rank;
      CHECK_OK(tt_pjrt_buffer_shape(f.client, buffer, &got, &got_dims, &rank));
      CHECK_INT(got, dtype);
      CHECK(rank == 3 && !memcmp(got_dims, dims, sizeof dims));
      tt_pjrt_buffer_free(f.client, buffer);
    }
    close_fixture(&f);
  }
}

static void test_empty_and_scalar(void) {
  for (int tpu = 0; tpu < 2; tpu++) {
    fixture f = open_fixture(1);
    tt_pjrt_client_free(f.client);
    f.fake.set("tpu", tpu);
    REQUIRE_OK(tt_pjrt_client_create(f.plugin, NULL, &f.client));
    static const int64_t empty[3] = {3, 0, 5};
    tt_pjrt_buffer *buffer;
    REQUIRE_OK(tt_pjrt_buffer_from_host(f.client, 0, NULL, TT_F32, empty, 3, &buffer));
    CHECK_OK(tt_pjrt_buffer_to_host(f.client, buffer, NULL, 0));
    CHECK_ERROR(tt_pjrt_buffer_to_host(f.client, buffer, NULL, 4), TT_ERR_INTERNAL, "0 bytes, 4 were asked");
    tt_pjrt_buffer_free(f.client, buffer);
    double one = 1.5, back = 0;
    REQUIRE_OK(tt_pjrt_buffer_from_host(f.client, 0, &one, TT_F64, NULL, 0, &buffer));
    CHECK_OK(tt_pjrt_buffer_to_host(f.client, buffer, &back, sizeof back));
    CHECK_NEAR(back, 1.5, 0);
    const void *pointer;
    CHECK_OK(tt_pjrt_buffer_host_pointer(f.client, buffer, &pointer));
    CHECK((pointer == NULL) == (tpu == 1));
    CHECK_ERROR(tt_pjrt_buffer_to_host(f.client, buffer, NULL, sizeof back), TT_ERR_INTERNAL, "without a place");
    tt_pjrt_buffer_free(f.client, buffer);
    close_fixture(&f);
  }
}

// What XLA would die of never reaches it.
static void test_bad_arguments(void) {
  fixture f = open_fixture(2);
  tt_pjrt_buffer *buffer;
  static const int64_t negative[2] = {2, -1}, huge[2] = {INT64_MAX, 2}, overflow[3] = {1LL << 31, 1LL << 31, 4},
                       beside_zero[3] = {0, INT64_MAX, INT64_MAX};
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, values, TT_F32, negative, 2, &buffer), TT_ERR_RUNTIME, "negative");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, values, TT_F32, huge, 2, &buffer), TT_ERR_RUNTIME, "too large");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, values, TT_F32, overflow, 3, &buffer), TT_ERR_RUNTIME, "too large");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, values, TT_F32, beside_zero, 3, &buffer), TT_ERR_RUNTIME,
              "too large");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, values, TT_DTYPE_INVALID, four, 1, &buffer), TT_ERR_INTERNAL,
              "dtype");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, values, (tt_dtype)77, four, 1, &buffer), TT_ERR_INTERNAL, "dtype");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, values, TT_F32, four, -1, &buffer), TT_ERR_INTERNAL, "rank");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, values, TT_F32, NULL, 1, &buffer), TT_ERR_INTERNAL, "rank 1");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 0, NULL, TT_F32, four, 1, &buffer), TT_ERR_INTERNAL, "no data");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, 2, values, TT_F32, four, 1, &buffer), TT_ERR_RUNTIME,
              "there is no device 2: 2 devices are present");
  CHECK_ERROR(tt_pjrt_buffer_from_host(f.client, -1, values, TT_F32, four, 1, &buffer), TT_ERR_RUNTIME, "no device -1");
  CHECK(!buffer);
  CHECK_ERROR(tt_pjrt_buffer_await(f.client, NULL), TT_ERR_INTERNAL, "no buffer");
  CHECK_ERROR(tt_pjrt_buffer_to_host(f.client, NULL, NULL, 0), TT_ERR_INTERNAL, "no buffer");
  CHECK_ERROR(tt_pjrt_buffer_copy_to_device(f.client, NULL, 0, &buffer), TT_ERR_INTERNAL, "no buffer");
  tt_pjrt_executable *executable;
  CHECK_ERROR(tt_pjrt_compile(f.client, NULL, 0, NULL, 0, &executable), TT_ERR_INTERNAL, "empty program");
  CHECK_ERROR(tt_pjrt_compile(f.client, plain, strlen(plain), NULL, 9, &executable), TT_ERR_RUNTIME, "no device 9");
  CHECK_ERROR(tt_pjrt_compile(f.client, plain, strlen(plain) - 2, NULL, 0, &executable), TT_ERR_RUNTIME,
              "compile: the program can't be parsed");
  CHECK_ERROR(tt_pjrt_executable_deserialize(f.client, "", 0, &executable), TT_ERR_INTERNAL, "no bytes");
  CHECK_ERROR(tt_pjrt_executable_deserialize(f.client, "junk", 4, &executable), TT_ERR_RUNTIME, "deserialize: not a");
  CHECK(!executable);
  bool ready;
  CHECK_ERROR(tt_pjrt_event_await(f.client, NULL), TT_ERR_INTERNAL, "no event");
  CHECK_ERROR(tt_pjrt_event_is_ready(f.client, NULL, &ready), TT_ERR_INTERNAL, "no event");
  CHECK_ERROR(tt_pjrt_event_on_ready(f.client, NULL, NULL, NULL), TT_ERR_INTERNAL, "no event");
  tt_pjrt_event_free(f.client, NULL);
  tt_pjrt_buffer_free(f.client, NULL);
  tt_pjrt_executable_free(f.client, NULL);
  close_fixture(&f);
}

static void test_bad_execute(void) {
  fixture f = open_fixture(2);
  tt_pjrt_executable *executable = compile(f.client, plain, 0);
  tt_pjrt_buffer *good = upload(f.client, 0), *elsewhere = upload(f.client, 1), *none = NULL, *short_one, *result;
  tt_pjrt_buffer *two[2] = {good, good};
  tt_pjrt_event *done;
  REQUIRE_OK(tt_pjrt_buffer_from_host(f.client, 0, values, TT_F32, (int64_t[1]){2}, 1, &short_one));
  CHECK_ERROR(tt_pjrt_execute(f.client, executable, 0, &none, NULL, 1, &result, &done), TT_ERR_INTERNAL,
              "argument 0 is no buffer");
  CHECK(!result && !done);
  CHECK_ERROR(tt_pjrt_execute(f.client, executable, 1, &good, NULL, 1, &result, &done), TT_ERR_INTERNAL,
              "compiled for device 0, not for 1");
  CHECK_ERROR(tt_pjrt_execute(f.client, executable, 0, NULL, NULL, 1, &result, NULL), TT_ERR_INTERNAL, "1 arguments");
  CHECK_ERROR(tt_pjrt_execute(f.client, executable, 0, two, NULL, 2, &result, &done), TT_ERR_RUNTIME, "2 arguments");
  CHECK_ERROR(tt_pjrt_execute(f.client, executable, 0, &elsewhere, NULL, 1, &result, &done), TT_ERR_RUNTIME, "fake:1");
  CHECK_ERROR(tt_pjrt_execute(f.client, executable, 0, &short_one, NULL, 1, &result, &done), TT_ERR_RUNTIME,
              "another type");
  CHECK(!result && !done);
  tt_pjrt_buffer_free(f.client, short_one);
  tt_pjrt_buffer_free(f.client, good);
  tt_pjrt_buffer_free(f.client, elsewhere);
  tt_pjrt_executable_free(f.client, executable);
  close_fixture(&f);
}

static void test_results(void) {
  fixture f = open_fixture(1);
  static const struct {
    const char *text;
    int count;
  } programs[] = {
      {"module { func.func @main() { return } }", 0},
      {"module { func.func @main() -> tensor<i1> { %0 = stablehlo.constant dense<true> : tensor<i1> return %0 : "
       "tensor<i1> } }",
       1},
      {"module { func.func @main() -> (tensor<3x0xcomplex<f32>> {jax.result_info = \"a), b\"}, tensor<ui8>, "
       "tensor<2xf8E4M3FN>) { return } }",
       3},
  };
  f.fake.set("temp_bytes", 123);
  for (size_t i = 0; i < sizeof programs / sizeof *programs; i++) {
    tt_pjrt_executable *executable = compile(f.client, programs[i].text, 0);
    CHECK_INT(tt_pjrt_executable_result_count(executable), programs[i].count);
    CHECK_INT(tt_pjrt_executable_temp_bytes(executable), 123);
    CHECK_INT(tt_pjrt_executable_device(executable), 0);
    tt_pjrt_buffer *results[3];
    REQUIRE_OK(tt_pjrt_execute(f.client, executable, 0, NULL, NULL, 0, results, NULL));
    for (int j = 0; j < programs[i].count; j++) {
      CHECK_OK(tt_pjrt_buffer_await(f.client, results[j]));
      tt_pjrt_buffer_free(f.client, results[j]);
    }
    tt_pjrt_executable_free(f.client, executable);
  }
  close_fixture(&f);
}

// More arguments than fit the fixed array.
static void test_many_arguments(void) {
  fixture f = open_fixture(1);
  static const int counts[] = {1, 63, 64, 65, 300};
  for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
    int count = counts[c];
    char *text = malloc(64 + (size_t)count * 80);
    int at = sprintf(text, "module { func.func @main(");
    for (int i = 0; i < count; i++) {
      at += sprintf(text + at, "%s%%a%d: tensor<4xf32> {jax.buffer_donor = true}", i ? ", " : "", i);
    }
    sprintf(text + at, ") { return } }");
    tt_pjrt_executable *executable = compile(f.client, text, 0);
    tt_pjrt_buffer *arguments[300];
    bool donate[300];
    int donated = 0;
    for (int i = 0; i < count; i++) {
      arguments[i] = upload(f.client, 0);
      donate[i] = i % 3 == 1;
      donated += donate[i];
    }
    int64_t before = f.fake.get("donations");
    CHECK_OK(tt_pjrt_execute(f.client, executable, 0, arguments, donate, count, NULL, NULL));
    CHECK_INT(f.fake.get("donations") - before, donated);
    for (int i = 0; i < count; i++) {
      tt_status *status = tt_pjrt_buffer_await(f.client, arguments[i]);
      CHECK((status != NULL) == donate[i]);
      tt_status_free(status);
    }
    tt_pjrt_buffer *last = arguments[count - 1];
    arguments[count - 1] = NULL;
    CHECK_ERROR(tt_pjrt_execute(f.client, executable, 0, arguments, donate, count, NULL, NULL), TT_ERR_INTERNAL,
                "is no buffer");
    arguments[count - 1] = last;
    for (int i = 0; i < count; i++) {
      tt_pjrt_buffer_free(f.client, arguments[i]);
    }
    tt_pjrt_executable_free(f.client, executable);
    free(text);
  }
  close_fixture(&f);
}

static void check_donation(fixture *f, const char *text, const bool *donate, bool consumed, bool in_place) {
  tt_pjrt_executable *executable = compile(f->client, text, 0);
  tt_pjrt_buffer *argument = upload(f->client, 0), *result;
  const void *before, *after;
  CHECK_OK(tt_pjrt_buffer_host_pointer(f->client, argument, &before));
  REQUIRE_OK(tt_pjrt_execute(f->client, executable, 0, &argument, donate, 1, &result, NULL));
  CHECK_OK(tt_pjrt_buffer_host_pointer(f->client, result, &after));
  CHECK_INT(before == after, in_place);
  float back[4];
  if (consumed) {
    CHECK_ERROR(tt_pjrt_buffer_to_host(f->client, argument, back, sizeof back), TT_ERR_RUNTIME, "donated");
    tt_pjrt_buffer *again;
    CHECK_ERROR(tt_pjrt_execute(f->client, executable, 0, &argument, donate, 1, &again, NULL), TT_ERR_RUNTIME,
                "donated");
  } else {
    CHECK_OK(tt_pjrt_buffer_to_host(f->client, argument, back, sizeof back));
    CHECK(!memcmp(back, values, sizeof back));
  }
  tt_pjrt_buffer_free(f->client, argument);
  tt_pjrt_buffer_free(f->client, result);
  tt_pjrt_executable_free(f->client, executable);
}

static void test_donation(void) {
  fixture f = open_fixture(1);
  static const bool yes = true, no = false;
  check_donation(&f, plain, NULL, false, false);
  check_donation(&f, plain, &yes, false, false);  // a parameter without aliasing is never donated
  check_donation(&f, aliased, NULL, false, false);
  check_donation(&f, aliased, &no, false, false);
  check_donation(&f, aliased, &yes, true, true);
  check_donation(&f, donor, &no, false, false);
  check_donation(&f, donor, &yes, true, false);
  close_fixture(&f);
}

// A deserialized executable doesn't show whether it donates: it must be assumed.
static void test_donation_deserialized(void) {
  fixture f = open_fixture(1);
  tt_pjrt_executable *executable = compile(f.client, aliased, 0), *reloaded;
  void *data;
  size_t size;
  REQUIRE_OK(tt_pjrt_executable_serialize(f.client, executable, &data, &size));
  REQUIRE_OK(tt_pjrt_executable_deserialize(f.client, data, size, &reloaded));
  free(data);
  tt_pjrt_buffer *argument = upload(f.client, 0), *result;
  REQUIRE_OK(tt_pjrt_execute(f.client, reloaded, 0, &argument, NULL, 1, &result, NULL));
  CHECK_OK(tt_pjrt_buffer_await(f.client, argument));
  tt_pjrt_buffer_free(f.client, argument);
  tt_pjrt_buffer_free(f.client, result);
  tt_pjrt_executable_free(f.client, reloaded);
  tt_pjrt_executable_free(f.client, executable);
  close_fixture(&f);
}

static void test_devices(void) {
  fixture f = open_fixture(4);
  for (int32_t device = 0; device < 4; device++) {
    tt_pjrt_executable *executable = compile(f.client, plain, device), *moved;
    CHECK_INT(tt_pjrt_executable_device(executable), device);
    tt_pjrt_buffer *argument = upload(f.client, device), *result, *copy;
    REQUIRE_OK(tt_pjrt_execute(f.client, executable, device, &argument, NULL, 1, &result, NULL));
    REQUIRE_OK(tt_pjrt_buffer_copy_to_device(f.client, argument, 3 - device, &copy));
    float back[4];
    CHECK_OK(tt_pjrt_buffer_to_host(f.client, copy, back, sizeof back));
    CHECK(!memcmp(back, values, sizeof back));
    void *data;
    size_t size;
    REQUIRE_OK(tt_pjrt_executable_serialize(f.client, executable, &data, &size));
    REQUIRE_OK(tt_pjrt_executable_deserialize(f.client, data, size, &moved));
    CHECK_INT(tt_pjrt_executable_device(moved), device);
    tt_pjrt_executable_free(f.client, moved);
    REQUIRE_OK(tt_pjrt_executable_deserialize_on(f.client, data, size, NULL, 3 - device, &moved));
    CHECK_INT(tt_pjrt_executable_device(moved), 3 - device);
    tt_pjrt_executable_free(f.client, moved);
    free(data);
    tt_pjrt_buffer_free(f.client, argument);
    tt_pjrt_buffer_free(f.client, result);
    tt_pjrt_buffer_free(f.client, copy);
    tt_pjrt_executable_free(f.client, executable);
  }
  close_fixture(&f);
}

// A plugin that knows no overriding options loads for the device of the compilation, and we say so.
static void test_move_in_old_plugin(void) {
  fake_control fake = fake_open();
  fake.set("minor", 60);
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *client;
  REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &plugin));
  REQUIRE_OK(tt_pjrt_client_create(plugin, &(tt_pjrt_client_options){.cpu_device_count = 2}, &client));
  tt_pjrt_executable *executable = compile(client, plain, 0), *moved;
  void *data;
  size_t size;
  REQUIRE_OK(tt_pjrt_executable_serialize(client, executable, &data, &size));
  CHECK_ERROR(tt_pjrt_executable_deserialize_on(client, data, size, NULL, 1, &moved), TT_ERR_NOT_IMPLEMENTED,
              "can't be moved");
  REQUIRE_OK(tt_pjrt_executable_deserialize_on(client, data, size, NULL, 0, &moved));
  free(data);
  tt_pjrt_executable_free(client, moved);
  tt_pjrt_executable_free(client, executable);
  tt_pjrt_client_free(client);
  tt_pjrt_plugin_free(plugin);
  fake_check_empty(&fake);
}

static void test_options(void) {
  fixture f = open_fixture(1);
  static const char *const names[] = {"a",
                                      "a_rather_long_name_of_an_option_so_that_its_message_is_longer_than_127_"
                                      "bytes_and_its_size_needs_two_bytes_in_the_encoding_of_the_protocol"};
  static const char *const option_values[] = {"true", "0"};
  tt_pjrt_compile_options options = {.option_names = names, .option_values = option_values, .option_count = 2};
  tt_pjrt_executable *executable;
  REQUIRE_OK(tt_pjrt_compile(f.client, plain, strlen(plain), &options, 0, &executable));
  CHECK_INT(f.fake.get("options"), 2);
  tt_pjrt_executable_free(f.client, executable);
  static const char *const nothing[] = {NULL};
  options = (tt_pjrt_compile_options){.option_names = names, .option_values = nothing, .option_count = 1};
  CHECK_ERROR(tt_pjrt_compile(f.client, plain, strlen(plain), &options, 0, &executable), TT_ERR_VALUE, "has no value");
  options = (tt_pjrt_compile_options){.option_names = nothing, .option_values = names, .option_count = 1};
  CHECK_ERROR(tt_pjrt_compile(f.client, plain, strlen(plain), &options, 0, &executable), TT_ERR_VALUE, "has no name");
  close_fixture(&f);
}

static void test_options_encoding(void) {
  static const char *const names[] = {"x", "y"}, *const option_values[] = {"false", "3"};
  tt_pjrt_compile_options options = {.option_names = names, .option_values = option_values, .option_count = 2};
  char *data;
  size_t size;
  REQUIRE_OK(tt_pjrt_encode_options(&options, 5, &data, &size));
  static const unsigned char want[] = {
      0x1a, 25,                                                          // executable_build_options
      0x08, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01,  // device_ordinal -1
      0x20, 1,    0x28, 1,                                               // one replica, one partition
      0x4a, 8,    0x08, 1,    0x10, 1,    0x1a, 2,    0x08, 5,           // device assignment
      0x3a, 7,    0x0a, 1,    'x',  0x12, 2,    0x10, 0,                 // x: bool false
      0x3a, 8,    0x0a, 1,    'y',  0x12, 3,    0x0a, 1,    '3',         // y: string "3"
  };
  CHECK_INT(size, sizeof want);
  CHECK(size == sizeof want && !memcmp(data, want, size));
  free(data);
}

// ---- asynchrony ----
typedef struct ready_calls {
  atomic_int calls, errors;
} ready_calls;

static void count_ready(void *context, tt_status *status) {
  ready_calls *seen = context;
  if (status) {
    CHECK_INT(tt_status_code(status), TT_ERR_OUT_OF_MEMORY);
    atomic_fetch_add(&seen->errors, 1);
  }
  tt_status_free(status);
  atomic_fetch_add(&seen->calls, 1);
}

static void test_async(void) {
  fixture f = open_fixture(1);
  f.fake.set("execute_delay_us", 20000);
  tt_pjrt_executable *executable = compile(f.client, plain, 0);
  tt_pjrt_buffer *argument = upload(f.client, 0), *result;
  tt_pjrt_event *done;
  ready_calls seen = {0};
  REQUIRE_OK(tt_pjrt_execute(f.client, executable, 0, &argument, NULL, 1, &result, &done));
  bool ready = true;
  CHECK_OK(tt_pjrt_event_is_ready(f.client, done, &ready));
  CHECK(!ready);
  CHECK_OK(tt_pjrt_event_on_ready(f.client, done, count_ready, &seen));
  CHECK_INT(atomic_load(&seen.calls), 0);
  float back[4] = {9, 9, 9, 9};
  CHECK_OK(tt_pjrt_buffer_to_host(f.client, result, back, sizeof back));  // waits
  CHECK(back[0] == 0 && back[3] == 0);
  CHECK_OK(tt_pjrt_event_await(f.client, done));
  CHECK_OK(tt_pjrt_event_await(f.client, done));  // again, now surely ready
  CHECK_OK(tt_pjrt_event_is_ready(f.client, done, &ready));
  CHECK(ready);
  CHECK_OK(tt_pjrt_event_on_ready(f.client, done, count_ready, &seen));  // at once
  for (int i = 0; i < 1000 && atomic_load(&seen.calls) < 2; i++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  CHECK_INT(atomic_load(&seen.calls), 2);
  CHECK_INT(atomic_load(&seen.errors), 0);
  tt_pjrt_event_free(f.client, done);
  tt_pjrt_buffer_free(f.client, argument);
  tt_pjrt_buffer_free(f.client, result);
  tt_pjrt_executable_free(f.client, executable);
  close_fixture(&f);
}

// A failed program's error comes back from its event, its buffers, its readers, and from the programs that use them.
static void test_async_error(void) {
  fixture f = open_fixture(1);
  f.fake.set("execute_delay_us", 1000);
  f.fake.set("fail_code", PJRT_Error_Code_RESOURCE_EXHAUSTED);
  f.fake.set("fail_execution", 1);
  tt_pjrt_executable *executable = compile(f.client, plain, 0);
  tt_pjrt_buffer *argument = upload(f.client, 0), *result, *second;
  tt_pjrt_event *done;
  ready_calls seen = {0};
  REQUIRE_OK(tt_pjrt_execute(f.client, executable, 0, &argument, NULL, 1, &result, &done));
  REQUIRE_OK(tt_pjrt_execute(f.client, executable, 0, &result, NULL, 1, &second, NULL));
  CHECK_OK(tt_pjrt_event_on_ready(f.client, done, count_ready, &seen));
  CHECK_ERROR(tt_pjrt_event_await(f.client, done), TT_ERR_OUT_OF_MEMORY, "injected");
  CHECK_ERROR(tt_pjrt_buffer_await(f.client, result), TT_ERR_OUT_OF_MEMORY, "injected");
  float back[4];
  CHECK_ERROR(tt_pjrt_buffer_to_host(f.client, result, back, sizeof back), TT_ERR_OUT_OF_MEMORY, "injected");
  CHECK_ERROR(tt_pjrt_buffer_to_host(f.client, second, back, sizeof back), TT_ERR_OUT_OF_MEMORY, "argument");
  CHECK_OK(tt_pjrt_buffer_await(f.client, argument));
  for (int i = 0; i < 1000 && !atomic_load(&seen.calls); i++) {
    nanosleep(&(struct timespec){.tv_nsec = 1000000}, NULL);
  }
  CHECK_INT(atomic_load(&seen.errors), 1);
  tt_pjrt_event_free(f.client, done);
  tt_pjrt_buffer_free(f.client, argument);
  tt_pjrt_buffer_free(f.client, result);
  tt_pjrt_buffer_free(f.client, second);
  tt_pjrt_executable_free(f.client, executable);
  close_fixture(&f);
}

// Everything may be released while the program still runs.
static void test_free_while_running(void) {
  fixture f = open_fixture(1);
  f.fake.set("execute_delay_us", 2000);
  tt_pjrt_executable *executable = compile(f.client, aliased, 0);
  static const bool yes = true;
  for (int i = 0; i < 20; i++) {
    tt_pjrt_buffer *argument = upload(f.client, 0), *result;
    tt_pjrt_event *done;
    REQUIRE_OK(tt_pjrt_execute(f.client, executable, 0, &argument, &yes, 1, &result, &done));
    tt_pjrt_buffer_free(f.client, argument);
    tt_pjrt_buffer_free(f.client, result);
    tt_pjrt_event_free(f.client, done);
  }
  tt_pjrt_executable_free(f.client, executable);
  close_fixture(&f);
}

// ---- threads ----
typedef struct worker {
  pthread_t thread;
  fixture *fixture;
  int index;
} worker;

static void work_once(fixture *f, int index, int round) {
  char text[256];
  snprintf(text, sizeof text,
           "module @m%d { func.func public @main(%%a: tensor<4xf32> {tf.aliasing_output = 0 : i32}) -> tensor<4xf32> "
           "{ return %%a : tensor<4xf32> } }",
           round);
  int32_t device = index % 2;
  tt_pjrt_executable *executable;
  tt_pjrt_buffer *chain, *copy;
  bool donate = index & 1;
  if (!CHECK_OK(tt_pjrt_compile(f->client, text, strlen(text), NULL, device, &executable))) {
    return;
  }
  if (!CHECK_OK(tt_pjrt_buffer_from_host(f->client, device, values, TT_F32, four, 1, &chain))) {
    return;
  }
  for (int i = 0; i < 5; i++) {
    tt_pjrt_buffer *next;
    tt_pjrt_event *done;
    if (!CHECK_OK(tt_pjrt_execute(f->client, executable, device, &chain, &donate, 1, &next, &done))) {
      break;
    }
    tt_pjrt_buffer_free(f->client, chain);
    chain = next;
    CHECK_OK(i % 2 ? tt_pjrt_event_await(f->client, done) : NULL);
    tt_pjrt_event_free(f->client, done);
  }
  CHECK_OK(tt_pjrt_buffer_copy_to_device(f->client, chain, 1 - device, &copy));
  float back[4] = {1, 1, 1, 1};
  CHECK_OK(tt_pjrt_buffer_to_host(f->client, copy, back, sizeof back));
  CHECK(back[0] == 0 && back[3] == 0);
  tt_pjrt_buffer_free(f->client, copy);
  tt_pjrt_buffer_free(f->client, chain);
  tt_pjrt_executable_free(f->client, executable);
}

static void *work(void *argument) {
  worker *one = argument;
  for (int round = 0; round < 50; round++) {
    tt_pjrt_plugin *plugin;
    if (CHECK_OK(tt_pjrt_plugin_load(one->fixture->fake.path, &plugin))) {
      tt_pjrt_plugin_free(plugin);
    }
    work_once(one->fixture, one->index, round);
  }
  return NULL;
}

static void test_threads(void) {
  for (int delay = 0; delay < 2; delay++) {
    fixture f = open_fixture(2);
    f.fake.set("execute_delay_us", delay * 20);
    worker workers[4];
    for (int i = 0; i < 4; i++) {
      workers[i] = (worker){.fixture = &f, .index = i};
      REQUIRE(!pthread_create(&workers[i].thread, NULL, work, &workers[i]));
    }
    for (int i = 0; i < 4; i++) {
      pthread_join(workers[i].thread, NULL);
    }
    CHECK_INT(f.fake.get("compiles"), 200);
    CHECK_INT(f.fake.get("executes"), 1000);
    close_fixture(&f);
  }
}

TEST_MAIN(TEST(test_client), TEST(test_client_options), TEST(test_dtypes), TEST(test_empty_and_scalar),
          TEST(test_bad_arguments), TEST(test_bad_execute), TEST(test_results), TEST(test_many_arguments),
          TEST(test_donation), TEST(test_donation_deserialized), TEST(test_devices), TEST(test_move_in_old_plugin),
          TEST(test_options), TEST(test_options_encoding), TEST(test_async), TEST(test_async_error),
          TEST(test_free_while_running), TEST(test_threads))
