// The counting plugin, before the fake one.
#include <stdlib.h>

#include "fake_pjrt/control.h"

static const char program[] =
    "module @m { func.func public @main(%a: tensor<4xf32>) -> (tensor<4xf32>, tensor<2xi64>) { return } }";

static int64_t (*get)(const char *name);
static void (*reset)(void);

static void check_counts(const fake_control *fake, const char *name, const char *theirs) {
  if (get(name) != fake->get(theirs)) {
    tt_test_fail(__FILE__, __LINE__, "%s is %lld, the plugin counted %lld %s", name, (long long)get(name),
                 (long long)fake->get(theirs), theirs);
  }
}

static void test_counts(void) {
  fake_control fake = fake_open();
  const char *path = getenv("TT_TEST_COUNT_PLUGIN");
  if (!path) {
    SKIP("TT_TEST_COUNT_PLUGIN is not set");
  }
  tt_pjrt_plugin *plugin;
  unsetenv("COUNT_PJRT_REAL");
  CHECK_ERROR(tt_pjrt_plugin_load(path, &plugin), TT_ERR_UNAVAILABLE, "returned NULL");
  setenv("COUNT_PJRT_REAL", path, 1);
  CHECK_ERROR(tt_pjrt_plugin_load(path, &plugin), TT_ERR_UNAVAILABLE, "returned NULL");
  setenv("COUNT_PJRT_REAL", "/no/such/file.so", 1);
  CHECK_ERROR(tt_pjrt_plugin_load(path, &plugin), TT_ERR_UNAVAILABLE, "returned NULL");
  setenv("COUNT_PJRT_REAL", fake.path, 1);
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library != NULL);
  void *get_symbol = dlsym(library, "count_pjrt_get"), *reset_symbol = dlsym(library, "count_pjrt_reset");
  REQUIRE(get_symbol && reset_symbol);
  memcpy(&get, &get_symbol, sizeof get);
  memcpy(&reset, &reset_symbol, sizeof reset);
  tt_pjrt_client *client;
  REQUIRE_OK(tt_pjrt_plugin_load(path, &plugin));
  REQUIRE_OK(tt_pjrt_client_create(plugin, &(tt_pjrt_client_options){.cpu_device_count = 2}, &client));
  CHECK_INT(get("live_clients"), 1);
  for (int round = 0; round < 100; round++) {  // more executables than the first table holds
    tt_pjrt_executable *executables[2];
    void *data;
    size_t size;
    REQUIRE_OK(tt_pjrt_compile(client, program, strlen(program), NULL, 0, &executables[0]));
    REQUIRE_OK(tt_pjrt_executable_serialize(client, executables[0], &data, &size));
    REQUIRE_OK(tt_pjrt_executable_deserialize(client, data, size, &executables[1]));
    free(data);
    tt_pjrt_buffer *argument, *copy, *results[2];
    static const float values[4] = {1, 2, 3, 4};
    static const int64_t four[1] = {4};
    REQUIRE_OK(tt_pjrt_buffer_from_host(client, 0, values, TT_F32, four, 1, &argument));
    REQUIRE_OK(tt_pjrt_buffer_copy_to_device(client, argument, 1, &copy));
    for (int i = 0; i < 2; i++) {
      REQUIRE_OK(tt_pjrt_execute(client, executables[i], 0, &argument, NULL, 1, results, NULL));
      CHECK_INT(get("live_buffers"), 4);
      check_counts(&fake, "live_buffers", "buffers");
      float back[4];
      CHECK_OK(tt_pjrt_buffer_to_host(client, results[0], back, sizeof back));
      tt_pjrt_buffer_free(client, results[0]);
      tt_pjrt_buffer_free(client, results[1]);
    }
    CHECK_ERROR(tt_pjrt_execute(client, executables[0], 0, &copy, NULL, 1, results, NULL), TT_ERR_RUNTIME, "fake:1");
    tt_pjrt_buffer_free(client, argument);
    tt_pjrt_buffer_free(client, copy);
    check_counts(&fake, "live_executables", "loaded_executables");
    tt_pjrt_executable_free(client, executables[0]);
    tt_pjrt_executable_free(client, executables[1]);
  }
  check_counts(&fake, "compiles", "compiles");
  check_counts(&fake, "deserializes", "deserializes");
  check_counts(&fake, "executes", "executes");
  check_counts(&fake, "h2d_bytes", "h2d_bytes");
  CHECK_INT(get("compiles"), 100);
  CHECK_INT(get("executes"), 200);
  CHECK_INT(get("execute_errors"), 100);
  CHECK_INT(get("arguments"), 200);
  CHECK_INT(get("results"), 400);
  CHECK_INT(get("copies"), 100);
  CHECK_INT(get("h2d_bytes"), 1600);
  CHECK_INT(get("host_pointers"), 200);
  CHECK_INT(get("buffers_created"), 600);
  CHECK_INT(get("buffers_destroyed"), 600);
  CHECK_INT(get("live_buffers"), 0);
  CHECK_INT(get("live_executables"), 0);
  CHECK_INT(get("no such name"), -1);
  reset();
  CHECK_INT(get("executes"), 0);
  CHECK_INT(get("live_clients"), 1);
  tt_pjrt_client_free(client);
  CHECK_INT(get("live_clients"), 0);
  tt_pjrt_plugin_free(plugin);
  fake_check_empty(&fake);
}

TEST_MAIN(TEST(test_counts))
