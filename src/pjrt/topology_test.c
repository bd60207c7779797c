// Compiling ahead of time: on the fake plugin, and for TPUs where TT_TEST_TPU_PLUGIN names a libtpu (no TPU needed).
#include "fake_pjrt/control.h"

static const char program[] =
    "module @m { func.func public @main(%a: tensor<128x128xf32>) -> tensor<128x128xf32> {\n"
    "  %0 = stablehlo.dot_general %a, %a, contracting_dims = [1] x [0] : (tensor<128x128xf32>, tensor<128x128xf32>) -> "
    "tensor<128x128xf32>\n"
    "  return %0 : tensor<128x128xf32> } }";

static void test_fake(void) {
  fake_control fake = fake_open();
  tt_pjrt_plugin *plugin;
  tt_pjrt_topology *topology;
  tt_pjrt_aot_result result;
  REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &plugin));
  CHECK_ERROR(tt_pjrt_topology_create(plugin, "v5e:1x1", &topology), TT_ERR_RUNTIME, "unknown topology v5e:1x1");
  CHECK(!topology);
  REQUIRE_OK(tt_pjrt_topology_create(plugin, "fake:1x1", &topology));
  fake.set("temp_bytes", 12);
  REQUIRE_OK(tt_pjrt_topology_compile(topology, program, strlen(program), NULL, &result));
  CHECK(result.serialized && result.serialized_size > strlen(program));
  CHECK_INT(result.argument_bytes, 128 * 128 * 4);
  CHECK_INT(result.output_bytes, 128 * 128 * 4);
  CHECK_INT(result.temp_bytes, 12);
  CHECK_INT(result.code_bytes, strlen(program));
  tt_pjrt_aot_result_free(&result);
  CHECK(!result.serialized);
  tt_pjrt_aot_result_free(&result);
  CHECK_ERROR(tt_pjrt_topology_compile(topology, program, 40, NULL, &result), TT_ERR_RUNTIME, "can't be parsed");
  CHECK_ERROR(tt_pjrt_topology_compile(topology, "", 0, NULL, &result), TT_ERR_INTERNAL, "empty program");
  tt_pjrt_topology_free(topology);
  tt_pjrt_topology_free(NULL);
  tt_pjrt_plugin_free(plugin);
  fake_check_empty(&fake);
}

static void test_plugin_without_topologies(void) {
  fake_control fake = fake_open();
  fake.set("missing:PJRT_Compile", 1);
  tt_pjrt_plugin *plugin;
  tt_pjrt_topology *topology;
  REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &plugin));
  CHECK_ERROR(tt_pjrt_topology_create(plugin, "fake:1x1", &topology), TT_ERR_NOT_IMPLEMENTED, "ahead of time");
  tt_pjrt_plugin_free(plugin);
}

static void test_tpu(void) {
  const char *path = getenv("TT_TEST_TPU_PLUGIN");
  if (!path) {
    SKIP("TT_TEST_TPU_PLUGIN is not set");
  }
  setenv("ALLOW_MULTIPLE_LIBTPU_LOAD", "1", 1);
  tt_pjrt_plugin *plugin;
  tt_pjrt_topology *topology;
  tt_pjrt_aot_result result;
  REQUIRE_OK(tt_pjrt_plugin_load_for_topology(path, &plugin));
  CHECK_ERROR(tt_pjrt_topology_create(plugin, "v99:1x1", &topology), TT_ERR_RUNTIME, "v99:1x1");
  static const struct {
    const char *name;
    int32_t devices;
  } topologies[] = {{"v5e:1x1", 1}, {"v5e:2x2", 4}, {"v6e:1x1", 1}, {"tpu7x:2x2x1", 8}};
  for (size_t i = 0; i < sizeof topologies / sizeof *topologies; i++) {
    REQUIRE_OK(tt_pjrt_topology_create(plugin, topologies[i].name, &topology));
    CHECK_INT(tt_pjrt_topology_device_count(topology), topologies[i].devices);
    REQUIRE_OK(tt_pjrt_topology_compile(topology, program, strlen(program), NULL, &result));
    CHECK(result.serialized_size > 0);
    CHECK_INT(result.argument_bytes, 128 * 128 * 4);
    CHECK_INT(result.output_bytes, 128 * 128 * 4);
    CHECK(result.code_bytes > 0);
    printf("%s: %zu bytes serialized, %lld of code, %lld of temporaries\n", topologies[i].name, result.serialized_size,
           (long long)result.code_bytes, (long long)result.temp_bytes);
    tt_pjrt_aot_result_free(&result);
    static const char *const names[] = {"xla_no_such_option"}, *const option_values[] = {"1"};
    CHECK_ERROR(tt_pjrt_topology_compile(topology, program, strlen(program),
                                         &(tt_pjrt_compile_options){names, option_values, 1, 0}, &result),
                TT_ERR_RUNTIME, "xla_no_such_option");
    CHECK_ERROR(tt_pjrt_topology_compile(topology, program, 40, NULL, &result), TT_ERR_RUNTIME, "compile: ");
    tt_pjrt_topology_free(topology);
  }
  tt_pjrt_plugin_free(plugin);
}

TEST_MAIN(TEST(test_fake), TEST(test_plugin_without_topologies), TEST(test_tpu))
