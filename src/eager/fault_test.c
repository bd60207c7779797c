// What goes wrong in the plugin: at compilation, at launch, in completion, in transfers, for want of memory; device
// asserts; debug mode. Errors come once, name the operator, and the process goes on.
#include "support/eager.h"

static fake_control fake;
static void start(void) { fake = eager_start(2); }

enum { RESOURCE_EXHAUSTED = 8, INTERNAL = 13 };

static tt_status *read_back(const tensor *t) {
  char data[4096];
  tt_tensor whole = ref(t);
  return tt_copy_to_host(&whole, data);
}

static void test_compile_error(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(3)), z;
  fake.set("fail:PJRT_Client_Compile", 1);
  CHECK_ERROR(add(&x, &x, &z), TT_ERR_RUNTIME, "compiling aten::add.Tensor");
  CHECK(z.storage == NULL);
  CHECK_COMPILES(add(&x, &x, &z), 1);  // the failure is not remembered
  CHECK_OK(read_back(&z));
  drop(&z);
  CHECK_OK(tt_clear_compile_cache());
  fake.set("fail_code", RESOURCE_EXHAUSTED);
  fake.set("fail:PJRT_Client_Compile", 1);
  CHECK_ERROR(add_in_place(&x, &x), TT_ERR_OUT_OF_MEMORY, "injected");
  CHECK_OK(add_in_place(&x, &x));
  drop(&x);
  eager_check_empty(&fake);
}

static void test_execute_error(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(3)), y, z, other;
  CHECK_OK(add(&x, &x, &y));
  drop(&y);
  CHECK_OK(tt_synchronize(0));
  fake.set("fail:PJRT_LoadedExecutable_Execute", 1);
  CHECK_OK(add(&x, &x, &y));
  CHECK_OK(add(&y, &y, &z));
  CHECK_OK(add_in_place(&z, &y));
  CHECK_OK(add(&x, &x, &other));
  // Raised once, with the operator's name; consumers of the value are not errors of their own.
  CHECK_ERROR(tt_synchronize(0), TT_ERR_RUNTIME, "aten::add.Tensor");
  CHECK_OK(tt_synchronize(0));
  // But reading them is, each time.
  for (int i = 0; i < 2; i++) {
    CHECK_ERROR(read_back(&y), TT_ERR_RUNTIME, "injected");
    CHECK_ERROR(read_back(&z), TT_ERR_RUNTIME, "injected");
  }
  CHECK_OK(read_back(&other));
  CHECK_OK(read_back(&x));
  // A new value heals the storage.
  tt_tensor whole = ref(&y);
  CHECK_OK(tt_copy_from_host(&whole, (float[3]){1, 2, 3}));
  CHECK_OK(read_back(&y));
  // To another device.
  tensor there = make_on(1, TT_F32, DIMS(3));
  tt_tensor to = ref(&there), from = ref(&z);
  CHECK_ERROR(tt_copy(&to, &from), TT_ERR_RUNTIME, "injected");
  // An in-place launch that fails takes the value with it.
  fake.set("fail:PJRT_LoadedExecutable_Execute", 1);
  CHECK_OK(add_in_place(&x, &other));
  CHECK_ERROR(read_back(&x), TT_ERR_RUNTIME, "add_");
  CHECK_OK(tt_synchronize(-1));
  drop(&x);
  drop(&y);
  drop(&z);
  drop(&other);
  drop(&there);
  eager_check_empty(&fake);
}

static void test_completion_error(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(3)), y, z, other;
  for (int delay = 0; delay <= 3000; delay += 3000) {
    fake.set("execute_delay_us", delay);
    fake.set("fail_execution", 1);
    CHECK_OK(add(&x, &x, &y));
    CHECK_OK(add(&x, &x, &other));
    CHECK_ERROR(tt_synchronize(0), TT_ERR_RUNTIME, "injected failure of an execution");
    CHECK_OK(tt_synchronize(0));
    CHECK_ERROR(read_back(&y), TT_ERR_RUNTIME, "injected failure of an execution");
    CHECK_OK(read_back(&other));
    // A consumer is a program that fails as well.
    CHECK_OK(add(&y, &y, &z));
    CHECK_ERROR(read_back(&z), TT_ERR_RUNTIME, "");
    tt_status_free(tt_synchronize(0));
    CHECK_OK(tt_synchronize(0));
    drop(&y);
    drop(&z);
    drop(&other);
  }
  fake.set("execute_delay_us", 0);
  // Only the first of many is raised.
  fake.set("fail_execution", -1);
  for (int i = 0; i < 100; i++) {
    CHECK_OK(add(&x, &x, &y));
    drop(&y);
  }
  CHECK_ERROR(tt_synchronize(-1), TT_ERR_RUNTIME, "aten::add.Tensor");
  fake.set("fail_execution", 0);
  CHECK_OK(tt_synchronize(-1));
  drop(&x);
  eager_check_empty(&fake);
}

static void test_transfer_errors(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(3)), z;
  tt_tensor whole = ref(&x);
  fake.set("fail:PJRT_Client_BufferFromHostBuffer", 1);
  CHECK_ERROR(tt_copy_from_host(&whole, (float[3]){1, 2, 3}), TT_ERR_RUNTIME, "injected");
  CHECK_OK(read_back(&x));  // keeps what it had
  // A scalar that could not be made is made by the next call.
  fake.set("fail:PJRT_Client_BufferFromHostBuffer", 1);
  CHECK_ERROR(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_double(3.25)), &z), TT_ERR_RUNTIME, "add()");
  CHECK_OK(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&x), arg_double(3.25)), &z));
  CHECK_OK(read_back(&z));
  drop(&z);
  fake.set("fail:PJRT_Buffer_ReadyEvent", 1);
  tt_status_free(read_back(&x));
  fake.set("fail:PJRT_Buffer_UnsafePointer", 1);
  tt_status_free(read_back(&x));
  CHECK_OK(read_back(&x));
  drop(&x);
  eager_check_empty(&fake);
}

static void test_plugin_out_of_memory(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(256)), y[8];
  CHECK_OK(tt_synchronize(0));
  fake.set("memory_limit", fake.get("buffer_bytes") + 3 * 1024 + 100);
  for (int i = 0; i < 8; i++) {
    CHECK_OK(add(&x, &x, &y[i]));
  }
  CHECK_ERROR(tt_synchronize(0), TT_ERR_OUT_OF_MEMORY, "aten::add.Tensor");
  CHECK_OK(read_back(&y[0]));
  CHECK_ERROR(read_back(&y[7]), TT_ERR_OUT_OF_MEMORY, "");
  tt_tensor whole = ref(&y[7]);
  char data[1024] = {0};
  CHECK_ERROR(tt_copy_from_host(&whole, data), TT_ERR_OUT_OF_MEMORY, "");
  for (int i = 0; i < 8; i++) {
    drop(&y[i]);
  }
  CHECK_OK(add(&x, &x, &y[0]));
  CHECK_OK(read_back(&y[0]));
  fake.set("memory_limit", 0);
  drop(&y[0]);
  drop(&x);
  eager_check_empty(&fake);
}

// The fake's flags are zeros, so every assert fails.
static void test_device_asserts(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(10, 4)), index = make_filled(TT_S64, DIMS(3)), z;
  const tt_arg args[] = {arg_tensor(&x), arg_int(0), arg_tensor(&index)};
  CHECK_OK(call_new(OP_INDEX_SELECT, args, 3, &z));
  CHECK_INT(z.sizes[0], 3);
  CHECK_ERROR(tt_synchronize(0), TT_ERR_INDEX, "index_select(): ");
  CHECK_OK(tt_synchronize(0));
  CHECK_OK(read_back(&z));  // a value, after all
  drop(&z);
  // Reading hears of it too.
  fake.set("execute_delay_us", 1000);
  CHECK_OK(call_new(OP_INDEX_SELECT, args, 3, &z));
  CHECK_ERROR(read_back(&z), TT_ERR_INDEX, "index_select(): ");
  CHECK_OK(read_back(&z));
  CHECK_OK(tt_synchronize(0));
  fake.set("execute_delay_us", 0);
  drop(&z);
  // More than are kept pending.
  for (int i = 0; i < 300; i++) {
    CHECK_OK(call_new(OP_INDEX_SELECT, args, 3, &z));
    drop(&z);
  }
  CHECK_ERROR(tt_synchronize(-1), TT_ERR_INDEX, "index_select(): ");
  CHECK_OK(tt_synchronize(-1));
  // A program that failed has no flag; its own error is the one.
  fake.set("fail_execution", 1);
  CHECK_OK(call_new(OP_INDEX_SELECT, args, 3, &z));
  CHECK_ERROR(tt_synchronize(0), TT_ERR_RUNTIME, "injected failure of an execution");
  CHECK_OK(tt_synchronize(0));
  drop(&z);
  drop(&x);
  drop(&index);
  eager_check_empty(&fake);
}

static void test_debug_mode(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(10, 4)), index = make_filled(TT_S64, DIMS(3)), z;
  CHECK_INT(tt_get_eager_mode(), TT_MODE_STRICT);
  tt_set_eager_mode(TT_MODE_DEBUG);
  tt_set_check_nan(true);
  fake.set("execute_delay_us", 500);
  CHECK_OK(add(&x, &x, &z));
  CHECK(tt_is_idle(0));
  drop(&z);
  fake.set("fail_execution", 1);
  CHECK_ERROR(add(&x, &x, &z), TT_ERR_RUNTIME, "injected failure of an execution");
  fake.set("fail:PJRT_LoadedExecutable_Execute", 1);
  CHECK_ERROR(add(&x, &x, &z), TT_ERR_RUNTIME, "aten::add.Tensor");
  CHECK_ERROR(call_new(OP_INDEX_SELECT, ARGS(arg_tensor(&x), arg_int(0), arg_tensor(&index)), &z), TT_ERR_INDEX,
              "index_select(): ");
  CHECK(z.storage == NULL);
  CHECK_OK(tt_synchronize(0));
  fake.set("execute_delay_us", 0);
  CHECK_OK(add_in_place(&x, &x));
  tt_set_check_nan(false);
  tt_set_eager_mode(TT_MODE_STRICT);
  drop(&x);
  drop(&index);
  eager_check_empty(&fake);
}

// ---- a session with a fault at each call of each function ----
static void session(void) {
  tensor x = tensor_over(NULL, TT_F32, DIMS(4, 4), 0), y = x, z = {0}, w = {0}, bytes;
  tt_status_free(tt_storage_create(0, 64, &x.storage));
  tt_status_free(tt_storage_create(1, 64, &y.storage));
  if (!x.storage || !y.storage) {
    drop(&x);
    drop(&y);
    return;
  }
  float data[16] = {0};
  tt_tensor here = ref(&x), there = ref(&y);
  tensor row = select_row(&x, 1);
  tt_tensor part = ref(&row);
  tt_event *event;
  tt_status_free(tt_event_create(&event));
  tt_status_free(tt_copy_from_host(&here, data));
  tt_status_free(tt_copy_from_host(&part, data));
  tt_status_free(add(&x, &x, &z));
  tt_status_free(call_new(OP_ADD, ARGS(arg_tensor(&x), arg_tensor(&row), arg_double(0.5)), &w));
  tt_status_free(add_in_place(&x, &x));
  tt_status_free(add_in_place(&row, &row));
  tt_status_free(tt_copy(&there, &here));
  tt_status_free(tt_copy(&here, &there));
  if (event) {
    tt_status_free(tt_event_record(event, 0));
    tt_status_free(tt_event_synchronize(event));
  }
  bytes = tensor_over(x.storage, TT_U8, DIMS(64), 0);
  tt_status_free(add_in_place(&bytes, &bytes));
  tt_status_free(tt_storage_resize(x.storage, 128));
  tt_status_free(tt_copy_to_host(&here, data));
  tt_status_free(tt_copy_to_host(&part, data));
  tt_status_free(tt_synchronize(-1));
  tt_event_free(event);
  drop(&x);
  drop(&y);
  drop(&z);
  drop(&w);
}

static const char *const functions[] = {"PJRT_Error_GetCode",
                                        "PJRT_Event_IsReady",
                                        "PJRT_Event_Await",
                                        "PJRT_Event_OnReady",
                                        "PJRT_Client_Compile",
                                        "PJRT_Client_BufferFromHostBuffer",
                                        "PJRT_Executable_NumOutputs",
                                        "PJRT_LoadedExecutable_GetExecutable",
                                        "PJRT_LoadedExecutable_Execute",
                                        "PJRT_Buffer_CopyToDevice",
                                        "PJRT_Buffer_ToHostBuffer",
                                        "PJRT_Buffer_ReadyEvent",
                                        "PJRT_Buffer_UnsafePointer",
                                        "PJRT_Executable_GetCompiledMemoryStats"};
enum { FUNCTION_COUNT = sizeof functions / sizeof *functions };

static void run_session(const char *setting, int value) {
  CHECK_INT(fake.set(setting, value), 0);
  session();
  CHECK_INT(fake.set(setting, 0), 0);
  tt_status_free(tt_synchronize(-1));
  CHECK_OK(tt_synchronize(-1));
  CHECK_OK(tt_empty_cache());
  CHECK_OK(tt_clear_compile_cache());
  tt_memory_stats stats;
  CHECK_OK(tt_get_memory_stats(0, &stats));
  if (stats.reserved || fake.get("errors")) {
    tt_test_fail(__FILE__, __LINE__, "%s %d: %lld bytes reserved, %lld errors are left", setting, value,
                 (long long)stats.reserved, (long long)fake.get("errors"));
  }
}

static void test_faults_everywhere(void) {
  start();
  char setting[96];
  for (int f = 0; f < FUNCTION_COUNT; f++) {
    snprintf(setting, sizeof setting, "fail:%s", functions[f]);
    for (int at = -1; at <= 24; at++) {
      fake.set("reset", 0);
      fake.set("execute_delay_us", at % 3 == 0 ? 50 : 0);
      run_session(setting, at);
      CHECK_INT(fake.get("buffers"), 0);
      CHECK_INT(fake.get("loaded_executables"), 0);
    }
  }
  fake.set("reset", 0);
  eager_check_empty(&fake);
}

// Functions that succeed and give nothing. What the plugin made and kept to itself is its own to lose.
static void test_lies_everywhere(void) {
  start();
  char setting[96];
  for (int f = 0; f < FUNCTION_COUNT; f++) {
    snprintf(setting, sizeof setting, "lie:%s", functions[f]);
    fake.set("reset", 0);
    run_session(setting, 1);
  }
  fake.set("reset", 0);
}

TEST_MAIN(TEST(test_compile_error), TEST(test_execute_error), TEST(test_completion_error), TEST(test_transfer_errors),
          TEST(test_plugin_out_of_memory), TEST(test_device_asserts), TEST(test_debug_mode),
          TEST(test_faults_everywhere), TEST(test_lies_everywhere))
