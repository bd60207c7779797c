// A session that uses the whole interface, run with a fault injected at each call of each function of the plugin in
// turn: whatever fails, an error comes back (or nothing depended on it), nothing crashes and nothing leaks.
#include <pthread.h>
#include <stdio.h>

#include "fake_pjrt/control.h"
#include "pjrt/internal.h"

static const char program[] =
    "module @m {\n"
    "  func.func public @main(%a: tensor<2x3xf32> {tf.aliasing_output = 0 : i32}, %b: tensor<i64>)\n"
    "      -> (tensor<2x3xf32>, tensor<i64>) {\n"
    "    return %a, %b : tensor<2x3xf32>, tensor<i64>\n"
    "  }\n"
    "}\n";

static const char *const functions[] = {
    "PJRT_Error_GetCode",
    "PJRT_Event_Destroy",
    "PJRT_Event_IsReady",
    "PJRT_Event_Await",
    "PJRT_Event_OnReady",
    "PJRT_Client_Create",
    "PJRT_Client_Destroy",
    "PJRT_Client_PlatformName",
    "PJRT_Client_PlatformVersion",
    "PJRT_Client_AddressableDevices",
    "PJRT_Client_Compile",
    "PJRT_Client_BufferFromHostBuffer",
    "PJRT_DeviceDescription_Id",
    "PJRT_DeviceDescription_Kind",
    "PJRT_Device_GetDescription",
    "PJRT_Device_MemoryStats",
    "PJRT_Executable_Destroy",
    "PJRT_Executable_NumOutputs",
    "PJRT_Executable_Serialize",
    "PJRT_LoadedExecutable_Destroy",
    "PJRT_LoadedExecutable_GetExecutable",
    "PJRT_LoadedExecutable_AddressableDevices",
    "PJRT_LoadedExecutable_Execute",
    "PJRT_Executable_DeserializeAndLoad",
    "PJRT_Buffer_Destroy",
    "PJRT_Buffer_ElementType",
    "PJRT_Buffer_Dimensions",
    "PJRT_Buffer_CopyToDevice",
    "PJRT_Buffer_ToHostBuffer",
    "PJRT_Buffer_ReadyEvent",
    "PJRT_Buffer_UnsafePointer",
    "PJRT_TopologyDescription_Create",
    "PJRT_TopologyDescription_Destroy",
    "PJRT_TopologyDescription_GetDeviceDescriptions",
    "PJRT_Compile",
    "PJRT_Executable_GetCompiledMemoryStats",
};
enum { FUNCTION_COUNT = sizeof functions / sizeof *functions };

typedef struct latch {
  pthread_mutex_t lock;
  pthread_cond_t wake;
  bool called;
  tt_status *status;
} latch;

static void on_ready(void *context, tt_status *status) {
  latch *one = context;
  pthread_mutex_lock(&one->lock);
  one->called = true;
  one->status = status;
  pthread_cond_signal(&one->wake);
  pthread_mutex_unlock(&one->lock);
}

static tt_status *wait_for(tt_pjrt_client *client, tt_pjrt_event *event) {
  latch one = {.lock = PTHREAD_MUTEX_INITIALIZER, .wake = PTHREAD_COND_INITIALIZER};
  TT_TRY(tt_pjrt_event_on_ready(client, event, on_ready, &one));
  pthread_mutex_lock(&one.lock);
  while (!one.called) {
    pthread_cond_wait(&one.wake, &one.lock);
  }
  pthread_mutex_unlock(&one.lock);
  TT_TRY(one.status);
  bool ready;
  TT_TRY(tt_pjrt_event_is_ready(client, event, &ready));
  CHECK(ready);
  return tt_pjrt_event_await(client, event);
}

static tt_status *run_program(tt_pjrt_client *client, tt_pjrt_executable *executable, tt_pjrt_buffer *const *arguments,
                              bool donated) {
  tt_pjrt_buffer *results[2];
  tt_pjrt_event *done;
  bool donate[2] = {donated, donated};
  TT_TRY(tt_pjrt_execute(client, executable, 1, arguments, donate, 2, results, &done));
  float values[6];
  int64_t number;
  tt_pjrt_buffer *copy = NULL;
  tt_status *status = wait_for(client, done);
  if (!status && !(status = tt_pjrt_buffer_to_host(client, results[0], values, sizeof values)) &&
      !(status = tt_pjrt_buffer_to_host(client, results[1], &number, sizeof number)) &&
      !(status = tt_pjrt_buffer_copy_to_device(client, results[0], 0, &copy))) {
    status = tt_pjrt_buffer_await(client, copy);
  }
  tt_pjrt_event_free(client, done);
  tt_pjrt_buffer_free(client, copy);
  tt_pjrt_buffer_free(client, results[0]);
  tt_pjrt_buffer_free(client, results[1]);
  return status;
}

static tt_status *reload(tt_pjrt_client *client, tt_pjrt_executable *executable, tt_pjrt_executable **out_executable) {
  void *data;
  size_t size;
  TT_TRY(tt_pjrt_executable_serialize(client, executable, &data, &size));
  tt_status *status = tt_pjrt_executable_deserialize(client, data, size, out_executable);
  if (!status) {
    tt_pjrt_executable_free(client, *out_executable);
    status = tt_pjrt_executable_deserialize_on(client, data, size, NULL, 1, out_executable);
  }
  free(data);
  return status;
}

static tt_status *use_client(tt_pjrt_client *client) {
  static const float values[6] = {1, 2, 3, 4, 5, 6};
  static const int64_t dims[2] = {2, 3}, number = 7;
  int64_t in_use, limit;
  tt_pjrt_device_memory(client, 0, &in_use, &limit);
  tt_pjrt_executable *executable = NULL, *reloaded = NULL;
  tt_pjrt_buffer *arguments[2] = {NULL, NULL};
  const void *pointer;
  tt_status *status = tt_pjrt_compile(client, program, strlen(program), NULL, 1, &executable);
  if (!status && !(status = tt_pjrt_buffer_from_host(client, 1, values, TT_F32, dims, 2, &arguments[0])) &&
      !(status = tt_pjrt_buffer_from_host(client, 1, &number, TT_S64, NULL, 0, &arguments[1])) &&
      !(status = tt_pjrt_buffer_host_pointer(client, arguments[0], &pointer)) &&
      !(status = run_program(client, executable, arguments, false)) &&
      !(status = reload(client, executable, &reloaded))) {
    status = run_program(client, reloaded, arguments, true);
  }
  tt_pjrt_buffer_free(client, arguments[0]);
  tt_pjrt_buffer_free(client, arguments[1]);
  tt_pjrt_executable_free(client, reloaded);
  tt_pjrt_executable_free(client, executable);
  return status;
}

static tt_status *use_topology(tt_pjrt_plugin *plugin) {
  tt_pjrt_topology *topology;
  tt_pjrt_aot_result result;
  TT_TRY(tt_pjrt_topology_create(plugin, "fake:1x1", &topology));
  CHECK_INT(tt_pjrt_topology_device_count(topology), 1);
  tt_status *status = tt_pjrt_topology_compile(topology, program, strlen(program), NULL, &result);
  tt_pjrt_aot_result_free(&result);
  tt_pjrt_topology_free(topology);
  return status;
}

static tt_status *session(const char *path) {
  static const tt_pjrt_client_options options = {.cpu_device_count = 2};
  tt_pjrt_plugin *plugin;
  tt_pjrt_client *client;
  TT_TRY(tt_pjrt_plugin_load(path, &plugin));
  tt_status *status = tt_pjrt_client_create(plugin, &options, &client);
  if (!status) {
    status = use_client(client);
    tt_pjrt_client_free(client);
  }
  if (!status) {
    status = use_topology(plugin);
  }
  tt_pjrt_plugin_free(plugin);
  return status;
}

// What a setting leaves of a session.
enum { RUN_SYNC, RUN_ASYNC, RUN_TPU, RUN_COUNT };
static void configure(const fake_control *fake, int run) {
  fake->set("reset", 0);
  if (run == RUN_ASYNC) {
    fake->set("execute_delay_us", 200);
    fake->set("transfer_delay_us", 100);
  }
  fake->set("tpu", run == RUN_TPU);
}

static void test_without_faults(void) {
  fake_control fake = fake_open();
  for (int run = 0; run < RUN_COUNT; run++) {
    configure(&fake, run);
    CHECK_OK(session(fake.path));
    fake_check_empty(&fake);
    CHECK_INT(fake.get("compiles"), 2);
    CHECK_INT(fake.get("deserializes"), 2);
    CHECK_INT(fake.get("executes"), 2);
    CHECK_INT(fake.get("donations"), 1);
    CHECK_INT(fake.get("h2d_bytes"), 32);
    CHECK_INT(fake.get("d2h_bytes"), run == RUN_TPU ? 64 : 0);
  }
}

static bool is_optional(const char *function) {
  return strstr(function, "Destroy") || strstr(function, "MemoryStats") || strstr(function, "GetCode");
}

static void test_each_call_fails(void) {
  fake_control fake = fake_open();
  int injected = 0;
  for (int run = 0; run < RUN_COUNT; run++) {
    for (int i = 0; i < FUNCTION_COUNT; i++) {
      char calls[80], fail[80];
      snprintf(calls, sizeof calls, "calls:%s", functions[i]);
      snprintf(fail, sizeof fail, "fail:%s", functions[i]);
      configure(&fake, run);
      CHECK_OK(session(fake.path));
      int64_t count = fake.get(calls);
      for (int64_t call = 1; call <= count; call++) {
        configure(&fake, run);
        fake.set(fail, call);
        tt_status *status = session(fake.path);
        if (is_optional(functions[i])) {
          CHECK_OK(status);
        } else {
          CHECK_ERROR(status, TT_ERR_RUNTIME, functions[i]);
        }
        if (!fake_check_empty(&fake)) {
          tt_test_fail(__FILE__, __LINE__, "after call %lld of %s, run %d", (long long)call, functions[i], run);
        }
        injected++;
      }
    }
  }
  printf("%d faults injected\n", injected);
  CHECK(injected > 200);
}

// A function that succeeds without giving what it should is an error too.
static void test_each_function_lies(void) {
  fake_control fake = fake_open();
  static const char *const liars[] = {
      "PJRT_Client_Create",
      "PJRT_Client_AddressableDevices",
      "PJRT_Client_Compile",
      "PJRT_Client_BufferFromHostBuffer",
      "PJRT_Device_GetDescription",
      "PJRT_Executable_NumOutputs",
      "PJRT_Executable_Serialize",
      "PJRT_LoadedExecutable_GetExecutable",
      "PJRT_LoadedExecutable_Execute",
      "PJRT_Executable_DeserializeAndLoad",
      "PJRT_Buffer_ElementType",
      "PJRT_Buffer_Dimensions",
      "PJRT_Buffer_CopyToDevice",
      "PJRT_TopologyDescription_Create",
      "PJRT_TopologyDescription_GetDeviceDescriptions",
      "PJRT_Compile",
  };
  for (size_t i = 0; i < sizeof liars / sizeof *liars; i++) {
    for (int run = 0; run < RUN_COUNT; run++) {
      char lie[80];
      snprintf(lie, sizeof lie, "lie:%s", liars[i]);
      configure(&fake, run);
      CHECK_INT(fake.set(lie, 1), 0);
      tt_status *status = session(fake.path);
      if (!CHECK(status != NULL)) {
        tt_test_fail(__FILE__, __LINE__, "%s", lie);
      }
      tt_status_free(status);
      fake_check_empty(&fake);
    }
  }
}

// An error whose message is a wild pointer and size, and a platform without a name.
static void test_wild_texts(void) {
  fake_control fake = fake_open();
  fake.set("lie:PJRT_Error_Message", 1);
  fake.set("fail:PJRT_Client_Compile", 1);
  CHECK_ERROR(session(fake.path), TT_ERR_RUNTIME, "compile: ");
  fake.set("reset", 0);
  fake.set("lie:PJRT_Client_PlatformName", 1);
  CHECK_OK(session(fake.path));
  fake_check_empty(&fake);
}

static void test_each_function_missing(void) {
  fake_control fake = fake_open();
  int needed = 0, unneeded = 0;
  for (int i = 0; i < FUNCTION_COUNT; i++) {
    char missing[80];
    snprintf(missing, sizeof missing, "missing:%s", functions[i]);
    fake.set("reset", 0);
    CHECK_INT(fake.set(missing, 1), 0);
    tt_status *status = session(fake.path);
    if (tt_status_code(status) == TT_ERR_UNAVAILABLE) {
      CHECK_CONTAINS(tt_status_message(status), functions[i]);
      needed++;
    } else {
      CHECK(!status || tt_status_code(status) == TT_ERR_NOT_IMPLEMENTED);
      unneeded++;
    }
    tt_status_free(status);
    fake_check_empty(&fake);
  }
  CHECK(needed > 20 && unneeded > 5);
}

static void test_codes(void) {
  fake_control fake = fake_open();
  static const struct {
    int theirs;
    tt_code ours;
  } codes[] = {
      {PJRT_Error_Code_RESOURCE_EXHAUSTED, TT_ERR_OUT_OF_MEMORY},
      {PJRT_Error_Code_UNIMPLEMENTED, TT_ERR_NOT_IMPLEMENTED},
      {PJRT_Error_Code_INVALID_ARGUMENT, TT_ERR_RUNTIME},
      {PJRT_Error_Code_INTERNAL, TT_ERR_RUNTIME},
      {PJRT_Error_Code_UNAVAILABLE, TT_ERR_UNAVAILABLE},
      {PJRT_Error_Code_CANCELLED, TT_ERR_RUNTIME},
      {999, TT_ERR_RUNTIME},
  };
  for (size_t i = 0; i < sizeof codes / sizeof *codes; i++) {
    fake.set("reset", 0);
    fake.set("fail_code", codes[i].theirs);
    fake.set("fail:PJRT_LoadedExecutable_Execute", 1);
    CHECK_ERROR(session(fake.path), codes[i].ours, "execute: injected failure of PJRT_LoadedExecutable_Execute");
  }
  // The plugin can't even say which code.
  fake.set("reset", 0);
  fake.set("fail_code", PJRT_Error_Code_RESOURCE_EXHAUSTED);
  fake.set("fail:PJRT_LoadedExecutable_Execute", 1);
  fake.set("fail:PJRT_Error_GetCode", 1);
  CHECK_ERROR(session(fake.path), TT_ERR_RUNTIME, "injected failure of PJRT_LoadedExecutable_Execute");
  fake_check_empty(&fake);
}

static void test_failure_in_events(void) {
  fake_control fake = fake_open();
  for (int run = 0; run < RUN_COUNT; run++) {
    for (int execution = 1; execution <= 2; execution++) {
      configure(&fake, run);
      fake.set("fail_code", PJRT_Error_Code_RESOURCE_EXHAUSTED);
      fake.set("fail_execution", execution);
      CHECK_ERROR(session(fake.path), TT_ERR_OUT_OF_MEMORY, "execute: injected failure of an execution");
      fake_check_empty(&fake);
    }
  }
}

// Every size of memory, from nothing to enough.
static void test_out_of_memory(void) {
  fake_control fake = fake_open();
  bool enough = false;
  for (int limit = 1; limit < 200 && !enough; limit++) {
    fake.set("reset", 0);
    fake.set("memory_limit", limit);
    tt_status *status = session(fake.path);
    enough = !status;
    CHECK(enough || tt_status_code(status) == TT_ERR_OUT_OF_MEMORY);
    tt_status_free(status);
    fake_check_empty(&fake);
  }
  CHECK(enough);
}

TEST_MAIN(TEST(test_without_faults), TEST(test_each_call_fails), TEST(test_each_function_lies), TEST(test_wild_texts),
          TEST(test_each_function_missing), TEST(test_codes), TEST(test_failure_in_events), TEST(test_out_of_memory))
