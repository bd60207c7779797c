// Settings and start: every case is a process of its own, since the runtime starts once in one.
#include <pthread.h>
#include <spawn.h>
#include <stdio.h>
#include <sys/wait.h>

#include "support/eager.h"

extern char **environ;

// ---- cases, each in a fresh process ----
static fake_control fake;
static tensor kept;

static void use_fake(void) {
  fake = fake_open();
  setenv("TORCH_TPU_PJRT_PLUGIN", fake.path, 1);
}

static void check_works(void) {
  tensor x = make_filled(TT_F32, DIMS(4)), z;
  CHECK_OK(add(&x, &x, &z));
  CHECK_OK(tt_synchronize(-1));
  drop(&x);
  drop(&z);
}

static void no_plugin(void) {
  tt_storage *storage;
  tt_results results;
  tt_memory_stats stats;
  const char *text;
  CHECK(!tt_is_available());
  CHECK(!tt_is_initialized());
  CHECK_INT(tt_device_count(), 0);
  CHECK_ERROR(tt_init(), TT_ERR_UNAVAILABLE, "no PJRT plugin was found");
  CHECK_ERROR(tt_storage_create(0, 8, &storage), TT_ERR_UNAVAILABLE, "TORCH_TPU_PJRT_PLUGIN");
  CHECK_ERROR(tt_call(op_of(OP_ADD), NULL, 0, 0, &results), TT_ERR_UNAVAILABLE, "no PJRT plugin");
  CHECK_ERROR(tt_platform(&text), TT_ERR_UNAVAILABLE, "no PJRT plugin");
  CHECK_OK(tt_synchronize(-1));  // nothing was ever enqueued
  CHECK(tt_is_idle(0));
  CHECK_OK(tt_get_memory_stats(0, &stats));
  CHECK_INT(stats.limit, 0);
  CHECK_OK(tt_empty_cache());
  CHECK_OK(tt_clear_compile_cache());
  CHECK(tt_default_generator(0) != NULL);  // seeding needs no device
  setenv("TORCH_TPU_PLATFORM", "tpu", 1);
  CHECK_ERROR(tt_init(), TT_ERR_UNAVAILABLE, "for TORCH_TPU_PLATFORM=tpu");
  setenv("TORCH_TPU_PLATFORM", "gpu", 1);
  CHECK_ERROR(tt_init(), TT_ERR_VALUE, "must be auto, tpu or cpu");
}

static void bad_plugins(void) {
  fake = fake_open();
  setenv("TORCH_TPU_PJRT_PLUGIN", "/no/such/plugin.so", 1);
  CHECK(!tt_is_available());
  CHECK_ERROR(tt_init(), TT_ERR_UNAVAILABLE, "/no/such/plugin.so");
  setenv("TORCH_TPU_PJRT_PLUGIN", "/etc/passwd", 1);
  CHECK_ERROR(tt_init(), TT_ERR_UNAVAILABLE, "/etc/passwd");
  use_fake();
  fake.set("major", 99);
  CHECK_ERROR(tt_init(), TT_ERR_UNAVAILABLE, "99");
  fake.set("major", 0);
  fake.set("missing:PJRT_LoadedExecutable_Execute", 1);
  CHECK_ERROR(tt_init(), TT_ERR_UNAVAILABLE, "PJRT_LoadedExecutable_Execute");
  fake.set("missing:PJRT_LoadedExecutable_Execute", 0);
  fake.set("fail:PJRT_Client_Create", 1);
  CHECK_ERROR(tt_init(), TT_ERR_RUNTIME, "injected");
  CHECK(!tt_is_initialized());
  check_works();  // a later attempt succeeds
  CHECK_INT(fake.get("clients"), 1);
  CHECK(tt_is_initialized());
  CHECK(tt_is_available());
}

static void candidates(void) {
  fake = fake_open();
  tt_set_plugin_candidates(NULL, "/no/such/cpu.so");
  CHECK_ERROR(tt_init(), TT_ERR_UNAVAILABLE, "/no/such/cpu.so");
  tt_set_plugin_candidates("/no/such/tpu.so", fake.path);
  CHECK_ERROR(tt_init(), TT_ERR_UNAVAILABLE, "/no/such/tpu.so");
  setenv("TORCH_TPU_PLATFORM", "cpu", 1);
  CHECK(tt_is_available());
  CHECK_INT(tt_device_count(), 1);
  CHECK(!tt_is_initialized());
  check_works();
  const char *text;
  int major, minor;
  CHECK_OK(tt_plugin_info(&text, &major, &minor));
  CHECK_STR(text, fake.path);
  CHECK_INT(major, 0);
  CHECK_OK(tt_platform(&text));
  CHECK_STR(text, "cpu");
  CHECK_OK(tt_platform_version(&text));
  CHECK_STR(text, "fake 1");
  CHECK_OK(tt_device_name(0, &text));
  CHECK_CONTAINS(text, "CPU");
  tt_set_plugin_candidates(NULL, NULL);  // has no effect any more
  check_works();
}

static void a_tpu(void) {
  use_fake();
  fake.set("tpu", 1);
  setenv("TORCH_TPU_PLATFORM", "tpu", 1);
  check_works();
  const char *text;
  CHECK_OK(tt_platform(&text));
  CHECK_STR(text, "tpu");
  CHECK_OK(tt_device_name(0, &text));
  CHECK(!strstr(text, "CPU"));
  tensor x = make_filled(TT_F32, DIMS(4));
  float data[4];
  tt_tensor whole = ref(&x);
  CHECK_OK(tt_copy_to_host(&whole, data));
  CHECK(((unsigned char *)data)[15] == 15);
  drop(&x);
  eager_check_empty(&fake);
}

static void optional_functions(void) {
  use_fake();
  static const char *const names[] = {"PJRT_Device_MemoryStats", "PJRT_Executable_GetCompiledMemoryStats",
                                      "PJRT_Buffer_UnsafePointer", "PJRT_Buffer_IsOnCpu"};
  for (int i = 0; i < 4; i++) {
    char key[80];
    snprintf(key, sizeof key, "missing:%s", names[i]);
    CHECK_INT(fake.set(key, 1), 0);
  }
  check_works();
  tensor x = make_filled(TT_F32, DIMS(4));
  unsigned char data[16] = {0};
  tt_tensor whole = ref(&x);
  CHECK_OK(tt_copy_to_host(&whole, data));
  CHECK_INT(data[15], 15);
  drop(&x);
  eager_check_empty(&fake);
}

static void options(void) {
  use_fake();
  setenv("TORCH_TPU_FAST_COMPILE", "1", 1);
  static const char *const wrong[] = {"xla_one", "=2", "a=1,,b=2", "a=1,b"};
  for (int i = 0; i < 4; i++) {
    setenv("TORCH_TPU_XLA_OPTIONS", wrong[i], 1);
    CHECK_ERROR(tt_init(), TT_ERR_VALUE, "TORCH_TPU_XLA_OPTIONS");
    CHECK_INT(fake.get("clients"), 0);
  }
  setenv("TORCH_TPU_XLA_OPTIONS", "xla_one=2,xla_two=", 1);
  check_works();
  CHECK(fake.get("options") >= 4);  // at least two of them for TORCH_TPU_FAST_COMPILE
  CHECK_INT(fake.get("clients"), 1);
}

// Ours are left out where the plugin doesn't know them; the user's are an error, also those that we would set.
static void unknown_options(void) {
  use_fake();
  setenv("TORCH_TPU_FAST_COMPILE", "1", 1);
  fake.set("unknown_options", 1);
  check_works();
  CHECK_INT(fake.get("options"), 2);
  fake.set("unknown_options", 2);
  CHECK_OK(tt_clear_compile_cache());
  check_works();
  CHECK_INT(fake.get("options"), 0);
  fake.set("unknown_options", 0);
  CHECK_OK(tt_clear_compile_cache());
  check_works();
  CHECK_INT(fake.get("options"), 0);
}

static void check_user_option(const char *list, const char *name) {
  use_fake();
  setenv("TORCH_TPU_FAST_COMPILE", "1", 1);
  setenv("TORCH_TPU_XLA_OPTIONS", list, 1);
  fake.set("unknown_options", 1);
  tensor x = make_filled(TT_F32, DIMS(4)), y;
  for (int again = 0; again < 2; again++) {
    CHECK_ERROR(add(&x, &x, &y), TT_ERR_RUNTIME, name);
  }
  fake.set("unknown_options", 0);
  CHECK_OK(add(&x, &x, &y));
  drop(&y);
  drop(&x);
  eager_check_empty(&fake);
}

static void unknown_user_option(void) { check_user_option("my_emitters=3", "my_emitters"); }
static void own_option_of_the_user(void) {
  check_user_option("xla_cpu_use_fusion_emitters=true", "xla_cpu_use_fusion_emitters");
}

static void devices(void) {
  use_fake();
  fake.set("devices", 4);
  CHECK_ERROR(tt_set_current_device(1), TT_ERR_RUNTIME, "1 tpu device");
  CHECK_OK(tt_set_current_device(0));
  CHECK_OK(tt_init());
  CHECK_INT(tt_device_count(), 1);  // unasked
}

static void three_devices(void) {
  use_fake();
  setenv("TORCH_TPU_CPU_DEVICES", "3", 1);
  CHECK_INT(tt_device_count(), 3);
  CHECK_OK(tt_set_current_device(2));
  tt_storage *storage;
  CHECK_OK(tt_storage_create(-1, 8, &storage));
  CHECK_INT(tt_storage_device(storage), 2);
  tt_storage_free(storage);
  CHECK_INT(tt_device_count(), 3);
  CHECK_ERROR(tt_set_current_device(3), TT_ERR_RUNTIME, "tpu:3 does not exist");
  CHECK_ERROR(tt_set_current_device(-1), TT_ERR_RUNTIME, "does not exist");
  tt_generator *generator = tt_default_generator(-1);
  CHECK(generator && generator == tt_default_generator(2));
}

static void budget(void) {
  use_fake();
  setenv("TORCH_TPU_MEMORY_FRACTION", "0.0000001", 1);  // some kilobytes
  tt_memory_stats stats;
  REQUIRE_OK(tt_init());
  CHECK_OK(tt_get_memory_stats(0, &stats));
  int64_t limit = stats.limit;
  REQUIRE(limit > 256 && limit < 1 << 20);
  int64_t count = limit * 2 / 5 / 4;  // two fit
  tensor x = make_filled(TT_F32, 1, &count), y, z;
  CHECK_OK(add(&x, &x, &y));
  CHECK_ERROR(add(&x, &x, &z), TT_ERR_OUT_OF_MEMORY, "TORCH_TPU_MEMORY_FRACTION");
  CHECK_OK(add_in_place(&y, &x));  // in its own memory
  CHECK_OK(tt_get_memory_stats(0, &stats));
  CHECK(stats.oom_count >= 1);
  CHECK(stats.reserved <= limit);
  tt_tensor to = ref(&y);
  char *data = calloc((size_t)count, 4);
  CHECK_ERROR(tt_copy_from_host(&to, data), TT_ERR_OUT_OF_MEMORY, "a copy to the device");
  drop(&y);
  to = ref(&x);
  CHECK_OK(tt_copy_from_host(&to, data));
  free(data);
  CHECK_OK(add(&x, &x, &z));
  tt_storage *storage;
  CHECK_ERROR(tt_storage_create(0, (size_t)limit, &storage), TT_ERR_OUT_OF_MEMORY, "out of memory");
  CHECK_ERROR(tt_storage_resize(x.storage, (size_t)limit), TT_ERR_OUT_OF_MEMORY, "out of memory");
  drop(&z);
  // Memory that queued programs hold is waited for.
  fake.set("execute_delay_us", 1000);
  for (int i = 0; i < 50; i++) {
    CHECK_OK(add(&x, &x, &z));
    drop(&z);
  }
  fake.set("execute_delay_us", 0);
  // Temporaries count.
  CHECK_OK(tt_clear_compile_cache());
  fake.set("temp_bytes", limit);
  CHECK_ERROR(add(&x, &x, &z), TT_ERR_OUT_OF_MEMORY, "add needs");
  drop(&x);
  eager_check_empty(&fake);
}

static void plugin_limit(void) {
  use_fake();
  fake.set("memory_limit", 1000);
  setenv("TORCH_TPU_MEMORY_FRACTION", "1", 1);
  tt_memory_stats stats;
  REQUIRE_OK(tt_init());
  CHECK_OK(tt_get_memory_stats(0, &stats));
  CHECK(stats.limit > 0);
}

static void debug_by_environment(void) {
  use_fake();
  setenv("TORCH_TPU_EAGER_MODE", "debug", 1);
  CHECK_INT(tt_get_eager_mode(), TT_MODE_DEBUG);
  tensor x = make_filled(TT_F32, DIMS(4)), z;
  fake.set("fail_execution", 1);
  CHECK_ERROR(add(&x, &x, &z), TT_ERR_RUNTIME, "injected");
  drop(&x);
}

static void exit_with_work_queued(void) {
  use_fake();
  tensor x = make_filled(TT_F32, DIMS(4));
  fake.set("execute_delay_us", 1000);
  for (int i = 0; i < 300; i++) {
    CHECK_OK(add_in_place(&x, &x));
  }
  static tt_event *event;
  CHECK_OK(tt_event_create(&event));
  CHECK_OK(tt_event_record(event, 0));
  kept = x;  // as a global tensor would be
}

// What is freed after the engine stopped stays with the plugin, on purpose.
static bool after_stop;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return after_stop; }

static void use_after_stop(void) {
  after_stop = true;
  tensor z;
  char data[16];
  tt_tensor whole = ref(&kept);
  for (int i = 0; i < 300; i++) {
    CHECK_ERROR(add(&kept, &kept, &z), TT_ERR_RUNTIME, "process exits");
  }
  CHECK_ERROR(tt_copy_to_host(&whole, data), TT_ERR_RUNTIME, "process exits");
  CHECK_ERROR(tt_synchronize(-1), TT_ERR_RUNTIME, "process exits");
  CHECK_OK(tt_clear_compile_cache());
  CHECK_OK(tt_empty_cache());
  drop(&kept);
  if (atomic_load(&tt_test_failures)) {
    _exit(1);
  }
}

static void calls_at_exit(void) {
  atexit(use_after_stop);  // runs after the engine's own handler
  use_fake();
  kept = make_filled(TT_F32, DIMS(4));
  check_works();
}

// Threads that go on calling while the process exits get values or errors.
static void *call_forever(void *argument) {
  (void)argument;
  float data[4];
  tt_tensor whole = ref(&kept);
  for (;;) {
    tensor z;
    tt_status_free(add(&kept, &kept, &z));
    drop(&z);
    tt_status_free(add_in_place(&kept, &kept));
    tt_status_free(tt_copy_to_host(&whole, data));
    tt_status_free(tt_synchronize(-1));
  }
  return NULL;
}

static void exit_while_threads_call(void) {
  use_fake();
  kept = make_filled(TT_F32, DIMS(4));
  check_works();
  CHECK_OK(add_in_place(&kept, &kept));
  fake.set("execute_delay_us", 20);
  after_stop = true;
  for (int i = 0; i < 2; i++) {
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, call_forever, NULL) == 0);
    pthread_detach(thread);
  }
  sleep_ms(20);
}

static void trace(void) {
  use_fake();
  char path[] = "/tmp/tt_trace_XXXXXX";
  int file = mkstemp(path);
  REQUIRE(file >= 0);
  close(file);
  tt_trace_start_all();
  check_works();
  CHECK_OK(tt_trace_stop_to(path));
  unlink(path);
}

#define CASE(name) {#name, name}
static const tt_test cases[] = {CASE(no_plugin),
                                CASE(bad_plugins),
                                CASE(candidates),
                                CASE(a_tpu),
                                CASE(options),
                                CASE(unknown_options),
                                CASE(unknown_user_option),
                                CASE(own_option_of_the_user),
                                CASE(optional_functions),
                                CASE(devices),
                                CASE(three_devices),
                                CASE(budget),
                                CASE(plugin_limit),
                                CASE(trace),
                                CASE(calls_at_exit),
                                CASE(debug_by_environment),
                                CASE(exit_with_work_queued),
                                CASE(exit_while_threads_call)};
enum { CASE_COUNT = sizeof cases / sizeof *cases };

// ---- running them ----
static int run_case(const char *name) {
  for (int i = 0; i < CASE_COUNT; i++) {
    if (!strcmp(cases[i].name, name)) {
      alarm(120);
      return tt_test_main(1, NULL, &cases[i], 1);
    }
  }
  return 2;
}

static void run_in_process(const char *name) {
  setenv("TT_RUNTIME_CASE", name, 1);
  char *arguments[] = {(char *)"runtime_test", NULL};
  pid_t child;
  fflush(NULL);
  REQUIRE(posix_spawn(&child, "/proc/self/exe", NULL, NULL, arguments, environ) == 0);
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  if (status) {
    tt_test_fail(__FILE__, __LINE__, "%s ended with status 0x%x", name, (unsigned)status);
  }
}

static void test_cases(void) {
  fake_open();  // skips without the plugin
  static const char *const settings[] = {"PJRT_PLUGIN", "PLATFORM",     "CPU_DEVICES", "MEMORY_FRACTION",
                                         "EAGER_MODE",  "FAST_COMPILE", "XLA_OPTIONS"};
  for (size_t i = 0; i < sizeof settings / sizeof *settings; i++) {
    char name[64];
    snprintf(name, sizeof name, "TORCH_TPU_%s", settings[i]);
    unsetenv(name);
  }
  for (int i = 0; i < CASE_COUNT; i++) {
    run_in_process(cases[i].name);
  }
}

int main(int argc, char **argv) {
  static const tt_test tests[] = {TEST(test_cases)};
  setenv("TORCH_TPU_CACHE", "0", 1);
  const char *name = getenv("TT_RUNTIME_CASE");
  return name ? run_case(name) : tt_test_main(argc, argv, tests, 1);
}
