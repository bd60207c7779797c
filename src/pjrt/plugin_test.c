#include <math.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "fake_pjrt/control.h"
#include "pjrt/internal.h"

static tt_status *load(const char *path) {
  tt_pjrt_plugin *plugin = (tt_pjrt_plugin *)&plugin;
  tt_status *status = tt_pjrt_plugin_load(path, &plugin);
  CHECK((plugin == NULL) == (status != NULL));
  tt_pjrt_plugin_free(plugin);
  return status;
}

static void test_no_path(void) {
  CHECK_ERROR(load(NULL), TT_ERR_UNAVAILABLE, "TORCH_TPU_PJRT_PLUGIN");
  CHECK_ERROR(load(""), TT_ERR_UNAVAILABLE, "no path");
}

static void test_no_file(void) {
  CHECK_ERROR(load("/no/such/file.so"), TT_ERR_UNAVAILABLE, "/no/such/file.so: No such file or directory; set TORCH_");
  CHECK_ERROR(load("/tmp"), TT_ERR_UNAVAILABLE, "/tmp: not a regular file");
  CHECK_ERROR(load("no_such_library.so"), TT_ERR_UNAVAILABLE, "No such file");
}

static void test_not_a_library(void) {
  char path[] = "/tmp/tt_plugin_test_XXXXXX";
  int file = mkstemp(path);
  REQUIRE(file >= 0);
  CHECK_ERROR(load(path), TT_ERR_UNAVAILABLE, "file too short");
  for (int i = 0; i < 1000; i++) {
    REQUIRE(write(file, "this is no library\n", 19) == 19);
  }
  close(file);
  CHECK_ERROR(load(path), TT_ERR_UNAVAILABLE, "invalid ELF header");
  CHECK_ERROR(load(path), TT_ERR_UNAVAILABLE, path);
  unlink(path);
}

static void test_truncated(void) {
  fake_control fake = fake_open();
  FILE *whole = fopen(fake.path, "rb");
  REQUIRE(whole);
  char path[] = "/tmp/tt_plugin_test_XXXXXX", start[5000];
  int file = mkstemp(path);
  REQUIRE(file >= 0 && fread(start, 1, sizeof start, whole) == sizeof start);
  REQUIRE(write(file, start, sizeof start) == (ssize_t)sizeof start);
  close(file);
  fclose(whole);
  CHECK_ERROR(load(path), TT_ERR_UNAVAILABLE, "the file is truncated");
  unlink(path);
}

static void test_not_a_plugin(void) {
  Dl_info info;
  double (*cosine)(double) = cos;
  void *address;
  memcpy(&address, &cosine, sizeof address);
  if (!dladdr(address, &info) || !info.dli_fname || !strstr(info.dli_fname, ".so")) {
    SKIP("libm is not a shared library here");
  }
  CHECK_ERROR(load(info.dli_fname), TT_ERR_UNAVAILABLE, "it has no GetPjrtApi");
}

static void test_good(void) {
  fake_control fake = fake_open();
  tt_pjrt_plugin *plugin, *again;
  REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &plugin));
  REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &again));
  CHECK_STR(tt_pjrt_plugin_path(plugin), fake.path);
  int major, minor;
  tt_pjrt_plugin_version(plugin, &major, &minor);
  CHECK_INT(major, PJRT_API_MAJOR);
  CHECK_INT(minor, PJRT_API_MINOR);
  CHECK(fake.get("calls:PJRT_Plugin_Initialize") <= 1);  // once in a process
  CHECK(plugin->table == again->table);
  tt_pjrt_plugin_free(again);
  tt_pjrt_plugin_free(plugin);
  tt_pjrt_plugin_free(NULL);
}

static void test_relative_path(void) {
  fake_control fake = fake_open();
  char directory[4096], *slash;
  char here[4096];
  REQUIRE(strlen(fake.path) < sizeof directory && getcwd(here, sizeof here));
  strcpy(directory, fake.path);
  slash = strrchr(directory, '/');
  REQUIRE(slash != NULL);
  *slash = '\0';
  REQUIRE(!chdir(directory));
  CHECK_OK(load(slash + 1));  // a plain file name is this folder's, not one on the library path
  REQUIRE(!chdir(here));
}

static void test_versions(void) {
  fake_control fake = fake_open();
  char text[64];
  fake.set("major", 1);
  CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, "has API 1.81, major version 0 is needed");
  fake.set("major", 0);
  fake.set("minor", 30);
  CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, "too old: it has API 0.30, 0.57 is needed");
  fake.set("minor", TT_PJRT_MINOR_MIN - 1);
  snprintf(text, sizeof text, "API 0.%d, 0.%d is needed", TT_PJRT_MINOR_MIN - 1, TT_PJRT_MINOR_MIN);
  CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, text);
  for (int minor = TT_PJRT_MINOR_MIN; minor < 130; minor++) {
    fake.set("minor", minor);
    CHECK_OK(load(fake.path));
  }
}

// The sizes of the argument structs follow the plugin's version.
static void test_struct_sizes(void) {
  fake_control fake = fake_open();
  static const struct {
    int minor;
    size_t client_create, execute_options, deserialize, memory_stats;
  } versions[] = {
      {57, offsetof(PJRT_Client_Create_Args, kv_try_get_callback), offsetof(PJRT_ExecuteOptions, context),
       offsetof(PJRT_Executable_DeserializeAndLoad_Args, overridden_serialized_compile_options),
       offsetof(PJRT_Executable_GetCompiledMemoryStats_Args, peak_memory_in_bytes)},
      {64, sizeof(PJRT_Client_Create_Args), offsetof(PJRT_ExecuteOptions, call_location),
       offsetof(PJRT_Executable_DeserializeAndLoad_Args, overridden_serialized_compile_options),
       offsetof(PJRT_Executable_GetCompiledMemoryStats_Args, peak_memory_in_bytes)},
      {76, sizeof(PJRT_Client_Create_Args), offsetof(PJRT_ExecuteOptions, num_tasks),
       sizeof(PJRT_Executable_DeserializeAndLoad_Args), sizeof(PJRT_Executable_GetCompiledMemoryStats_Args)},
      {120, sizeof(PJRT_Client_Create_Args), sizeof(PJRT_ExecuteOptions),
       sizeof(PJRT_Executable_DeserializeAndLoad_Args), sizeof(PJRT_Executable_GetCompiledMemoryStats_Args)},
  };
  for (size_t i = 0; i < sizeof versions / sizeof *versions; i++) {
    fake.set("minor", versions[i].minor);
    tt_pjrt_plugin *plugin;
    REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &plugin));
    CHECK_INT(plugin->table->client_create_size, versions[i].client_create);
    CHECK_INT(plugin->table->execute_options_size, versions[i].execute_options);
    CHECK_INT(plugin->table->deserialize_size, versions[i].deserialize);
    CHECK_INT(plugin->table->memory_stats_size, versions[i].memory_stats);
    tt_pjrt_plugin_free(plugin);
  }
}

static void test_tables(void) {
  fake_control fake = fake_open();
  fake.set("null_api", 1);
  CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, "GetPjrtApi returned NULL");
  fake.set("null_api", 0);
  fake.set("struct_size", 8);
  CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, "only 8 bytes");
  fake.set("struct_size", offsetof(PJRT_Api, PJRT_Buffer_ReadyEvent));
  CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, "lacks the function PJRT_Buffer_ReadyEvent (its table ends");
  fake.set("struct_size", offsetof(PJRT_Api, PJRT_Buffer_ReadyEvent) + 7);  // in the middle of a pointer
  CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, "lacks the function PJRT_Buffer_ReadyEvent (its table ends");
  fake.set("struct_size", offsetof(PJRT_Api, PJRT_Buffer_ReadyEvent) + 8);
  CHECK_OK(load(fake.path));
  fake.set("struct_size", (int64_t)sizeof(PJRT_Api) + 400);  // a newer plugin's: only our part is read
  CHECK_OK(load(fake.path));
}

static void test_missing_functions(void) {
  fake_control fake = fake_open();
  static const char *const names[] = {"PJRT_Error_Destroy",     "PJRT_Event_OnReady",           "PJRT_Client_Create",
                                      "PJRT_Client_Compile",    "PJRT_Buffer_ToHostBuffer",     "PJRT_Buffer_Destroy",
                                      "PJRT_Buffer_Dimensions", "PJRT_LoadedExecutable_Execute"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    char key[80], text[80];
    snprintf(key, sizeof key, "missing:%s", names[i]);
    snprintf(text, sizeof text, "lacks the function %s; set TORCH_TPU_PJRT_PLUGIN", names[i]);
    CHECK_INT(fake.set(key, 1), 0);
    CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, text);
    CHECK_INT(fake.set(key, 0), 0);
  }
  CHECK_OK(load(fake.path));
}

static void test_failing_initialise(void) {
  fake_control fake = fake_open();
  fake.set("minor", 500);  // a table that this process has not initialised yet
  fake.set("fail:PJRT_Plugin_Initialize", 1);
  CHECK_ERROR(load(fake.path), TT_ERR_UNAVAILABLE, "can't be initialised: initialise: injected failure");
  CHECK_OK(load(fake.path));  // and may be tried again
  CHECK_INT(fake.get("errors"), 0);
}

static void test_topology_only_environment(void) {
  fake_control fake = fake_open();
  unsetenv("TPU_SKIP_MDS_QUERY");
  tt_pjrt_plugin *plugin;
  REQUIRE_OK(tt_pjrt_plugin_load_for_topology(fake.path, &plugin));
  CHECK(!getenv("TPU_SKIP_MDS_QUERY"));  // only for a libtpu
  tt_pjrt_plugin_free(plugin);
  CHECK_ERROR(tt_pjrt_plugin_load_for_topology("/no/such/libtpu.so", &plugin), TT_ERR_UNAVAILABLE, "No such file");
  CHECK_STR(getenv("TPU_SKIP_MDS_QUERY"), "1");
  unsetenv("TPU_SKIP_MDS_QUERY");
}

TEST_MAIN(TEST(test_no_path), TEST(test_no_file), TEST(test_not_a_library), TEST(test_truncated),
          TEST(test_not_a_plugin), TEST(test_good), TEST(test_relative_path), TEST(test_versions),
          TEST(test_struct_sizes), TEST(test_tables), TEST(test_missing_functions), TEST(test_failing_initialise),
          TEST(test_topology_only_environment))
