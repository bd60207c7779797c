// The way of a module through the cache, with a plugin that counts what it compiles (tests/fake_pjrt).
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <time.h>

#include "support/cache.h"

// ---- hits ----
static void test_second_process_loads(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  s.fake.set("temp_bytes", 777);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  tt_cache_stats stats = stats_of(&s);
  CHECK_INT(stats.misses, 1);
  CHECK_INT(stats.stores, 1);
  CHECK_INT(stats.disk_hits, 1);
  CHECK(stats.read_bytes == stats.written_bytes && stats.read_bytes > TT_ENTRY_HEADER);
  end(&s);
  s = begin(&config);
  tt_pjrt_executable *executable;
  tt_cache_outcome outcome;
  CHECK_OK(
      tt_cache_compile(s.cache, &(tt_cache_module){program, strlen(program), NULL, NULL, 0}, &executable, &outcome));
  CHECK_INT(outcome.source, TT_CACHE_DISK);
  CHECK_INT(outcome.compile_ns, 0);
  CHECK(outcome.load_ns > 0);
  CHECK_INT(tt_pjrt_executable_temp_bytes(executable), 777);  // which the plugin doesn't say this time
  CHECK_INT(s.fake.get("compiles"), 0);
  CHECK_INT(s.fake.get("deserializes"), 1);
  tt_pjrt_executable_free(s.client, executable);
  end(&s);
  struct stat info;
  CHECK(!stat(directory, &info) && (info.st_mode & 0777) == 0700);  // programs are nobody else's to write
  CHECK(!stat(the_entry(directory), &info) && (info.st_mode & 0777) == 0600);
}

static void test_key(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  s.fake.set("reset", 0);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_number(&s, 1, 1), TT_CACHE_COMPILED);  // another text
  const char *names[] = {"xla_option"}, *values[] = {"1"};
  tt_pjrt_compile_options options = {names, values, 1, 0};
  tt_pjrt_executable *executable;
  tt_cache_outcome outcome;
  for (int again = 0; again < 2; again++) {  // another option
    CHECK_OK(tt_cache_compile(s.cache, &(tt_cache_module){program, strlen(program), NULL, &options, 0}, &executable,
                              &outcome));
    CHECK_INT(outcome.source, again ? TT_CACHE_DISK : TT_CACHE_COMPILED);
    tt_pjrt_executable_free(s.client, executable);
  }
  end(&s);
  // Another version of this library, a variable that the plugin reads.
  config.version = "1.1";
  s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  end(&s);
  config.version = version;
  setenv("XLA_FLAGS", "--xla_one", 1);
  s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  end(&s);
  unsetenv("XLA_FLAGS");
  s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
  CHECK_INT(inspect(TT_CACHE_VERIFY).entries, 5);
}

// Locations are compiled, and make no other module.
static void test_labels_are_not_in_the_key(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  for (int i = 0; i < 3; i++) {
    char labelled[4096];
    snprintf(labelled, sizeof labelled, "%s// step %d\n", program, i);
    tt_cache_module module = {program, strlen(program), labelled, NULL, 0};
    tt_pjrt_executable *executable;
    tt_cache_outcome outcome;
    bool loaded = tt_cache_load(s.cache, &module, &executable, &outcome);
    CHECK_INT(loaded, i > 0);
    CHECK_INT(executable != NULL, loaded);
    if (!loaded) {
      CHECK_OK(tt_cache_compile(s.cache, &module, &executable, &outcome));
    }
    CHECK_INT(outcome.source, i ? TT_CACHE_DISK : TT_CACHE_COMPILED);
    tt_pjrt_executable_free(s.client, executable);
  }
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  CHECK_INT(stats_of(&s).misses, 1);
  // The labelled text is what the compiler gets.
  char broken[4096];
  snprintf(broken, sizeof broken, "%s}", program);
  tt_cache_module module = {program, strlen(program) - 1, broken, NULL, 0};
  tt_pjrt_executable *executable;
  tt_cache_outcome outcome;
  CHECK_ERROR(tt_cache_compile(s.cache, &module, &executable, &outcome), TT_ERR_RUNTIME, "can't be parsed");
  module.device = 7;
  CHECK(!tt_cache_load(s.cache, &module, &executable, &outcome));
  end(&s);
}

// What is compiled for one device serves the others; not in a plugin that can't load for another.
static void test_devices(void) {
  for (int old = 0; old < 2; old++) {
    make_root();
    tt_cache_config config = config_of(directory);
    session s = {.fake = fake_open()};
    s.fake.set("minor", old ? 60 : 0);
    REQUIRE_OK(tt_pjrt_plugin_load(s.fake.path, &s.plugin));
    REQUIRE_OK(tt_pjrt_client_create(s.plugin, &(tt_pjrt_client_options){.cpu_device_count = 3}, &s.client));
    REQUIRE_OK(tt_cache_open(&config, s.plugin, s.client, &s.cache));
    static const int32_t devices[] = {1, 0, 2, 1};
    for (int i = 0; i < 4; i++) {
      tt_pjrt_executable *executable;
      tt_cache_outcome outcome;
      CHECK_OK(tt_cache_compile(s.cache, &(tt_cache_module){program, strlen(program), NULL, NULL, devices[i]},
                                &executable, &outcome));
      CHECK_INT(outcome.source, i == 0 || (old && i < 3) ? TT_CACHE_COMPILED : TT_CACHE_DISK);
      CHECK_INT(tt_pjrt_executable_device(executable), devices[i]);
      tt_pjrt_executable_free(s.client, executable);
    }
    CHECK_INT(stats_of(&s).rejected, 0);
    end(&s);
  }
}

static void test_errors_of_the_compiler(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  tt_pjrt_executable *executable;
  tt_cache_outcome outcome;
  s.fake.set("fail:PJRT_Client_Compile", 1);
  CHECK_ERROR(
      tt_cache_compile(s.cache, &(tt_cache_module){program, strlen(program), NULL, NULL, 0}, &executable, &outcome),
      TT_ERR_RUNTIME, "injected failure");
  CHECK(!executable);
  CHECK_ERROR(
      tt_cache_compile(s.cache, &(tt_cache_module){program, strlen(program), NULL, NULL, 7}, &executable, &outcome),
      TT_ERR_RUNTIME, "no device 7");
  CHECK_INT(inspect(TT_CACHE_COUNT).entries, 0);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_ERROR(
      tt_cache_compile(s.cache, &(tt_cache_module){program, strlen(program), NULL, NULL, 7}, &executable, &outcome),
      TT_ERR_RUNTIME, "no device 7");
  CHECK_ERROR(
      tt_cache_compile(s.cache, &(tt_cache_module){program, strlen(program), NULL, NULL, -1}, &executable, &outcome),
      TT_ERR_RUNTIME, "no device -1");
  CHECK_ERROR(tt_cache_compile(s.cache, &(tt_cache_module){"", 0, NULL, NULL, 0}, &executable, &outcome),
              TT_ERR_INTERNAL, "empty");
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
}

// ---- damage ----
static void write_bytes(const char *path, const void *data, size_t size) {
  FILE *file = fopen(path, "wb");
  REQUIRE(file != NULL);
  CHECK(fwrite(data, 1, size, file) == size);
  fclose(file);
}

// Each kind of damage is a miss; the plugin sees none of the bytes, and the entry is whole afterwards.
static void test_damage(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  const char *path = the_entry(directory);
  tt_image image;
  REQUIRE(tt_folder_read_file(AT_FDCWD, path, false, &image));
  static const size_t flips[] = {0, 9, 13, 20, 47, 50, 60, 70, 90, 100, 127, 128, 150};
  enum { FLIPS = sizeof flips / sizeof *flips };
  for (int i = 0; i < FLIPS + 5; i++) {
    unsigned char *bytes = malloc(image.size + 1);
    REQUIRE(bytes != NULL);
    memcpy(bytes, image.data, image.size);
    size_t size = image.size;
    if (i < FLIPS) {
      bytes[flips[i]] ^= 0x40;
    } else {
      const size_t sizes[] = {0, 5, TT_ENTRY_HEADER, image.size - 1, image.size + 1};
      size = sizes[i - FLIPS];
      bytes[image.size] = 0;
    }
    write_bytes(path, bytes, size);
    free(bytes);
    CHECK_INT(inspect(TT_CACHE_VERIFY).bad, 1);
    CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
    CHECK_INT(s.fake.get("calls:PJRT_Executable_DeserializeAndLoad"), i);  // of the good ones
    CHECK_INT(stats_of(&s).rejected, i + 1);
    CHECK_INT(inspect(TT_CACHE_VERIFY).bad, 0);
    CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  }
  free(image.data);
  end(&s);
}

static void test_entry_of_another_kind(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  char path[512];
  snprintf(path, sizeof path, "%s", the_entry(directory));
  // A directory, a pipe and a link to nowhere where the entry should be: nothing waits, nothing fails.
  CHECK(!unlink(path) && !mkdir(path, 0700));
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  end(&s);
  CHECK(!rmdir(path) && !mkfifo(path, 0600));
  s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  CHECK(!unlink(path) && !symlink("/nonexistent", path));
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
}

static void test_plugin_refuses(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  s.fake.set("fail:PJRT_Executable_DeserializeAndLoad", 1);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(stats_of(&s).rejected, 1);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  // Out of memory says nothing of the entry.
  s.fake.set("fail_code", 8);
  s.fake.set("fail:PJRT_Executable_DeserializeAndLoad", 1);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);  // the second look, with the lock, finds it still there
  CHECK_INT(stats_of(&s).rejected, 1);
  end(&s);
}

static void test_plugin_without_serialization(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  fake_control fake = fake_open();
  session s = {.fake = fake};
  fake.set("missing:PJRT_Executable_Serialize", 1);
  REQUIRE_OK(tt_pjrt_plugin_load(fake.path, &s.plugin));
  REQUIRE_OK(tt_pjrt_client_create(s.plugin, NULL, &s.client));
  REQUIRE_OK(tt_cache_open(&config, s.plugin, s.client, &s.cache));
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(stats_of(&s).misses, 0);
  end(&s);
  CHECK_INT(inspect(TT_CACHE_COUNT).entries, 0);
  // One that has the function, which never works: after some tries nobody asks it.
  s = begin(&config);
  s.fake.set("fail_code", 12);
  s.fake.set("fail:PJRT_Executable_Serialize", -1);
  for (int i = 0; i < 12; i++) {
    CHECK_INT(compile_number(&s, i, 1), TT_CACHE_COMPILED);
  }
  CHECK_INT(s.fake.get("calls:PJRT_Executable_Serialize"), 8);
  end(&s);
  // One executable that can't be serialized is no reason to stop.
  s = begin(&config);
  s.fake.set("fail:PJRT_Executable_Serialize", 1);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
}

// ---- directories that can't be used ----
static void check_unusable(const char *path) {
  tt_cache_config config = config_of(path);
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(stats_of(&s).stores, 0);
  CHECK_INT(s.fake.get("calls:PJRT_Executable_Serialize"), 1);  // not for nothing
  end(&s);
}

static void test_unusable_directories(void) {
  make_root();
  snprintf(directory, sizeof directory, "%s/file", root);
  mkdir(root, 0700);
  write_bytes(directory, "x", 1);
  check_unusable(directory);  // a file
  snprintf(directory, sizeof directory, "%s/file/below", root);
  check_unusable(directory);
  check_unusable("/proc/nonexistent/cache");
  check_unusable("/dev/null");
}

static void test_read_only(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  end(&s);
  if (!geteuid()) {
    return;  // nothing is read-only for root: test_unusable_directories() has the errors
  }
  chmod(directory, 0500);
  s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
  chmod(directory, 0700);
}

// The disk is full for files beyond a size: nothing half written is left.
static void test_full_disk(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  CHECK_INT(compile_number(&s, 1, 1), TT_CACHE_COMPILED);
  struct rlimit old, small;
  getrlimit(RLIMIT_FSIZE, &old);
  small = old;
  small.rlim_cur = TT_ENTRY_HEADER + 10;
  void (*handler)(int) = signal(SIGXFSZ, SIG_IGN);
  setrlimit(RLIMIT_FSIZE, &small);
  CHECK_INT(compile_number(&s, 2, 1), TT_CACHE_COMPILED);
  setrlimit(RLIMIT_FSIZE, &old);
  signal(SIGXFSZ, handler);
  CHECK_INT(stats_of(&s).stores, 1);
  CHECK_INT(compile_number(&s, 2, 1), TT_CACHE_COMPILED);  // nothing more is written
  CHECK_INT(compile_number(&s, 1, 1), TT_CACHE_DISK);      // and reading goes on
  tt_cache_summary summary = inspect(TT_CACHE_VERIFY);
  CHECK_INT(summary.entries, 1);
  CHECK_INT(summary.bad + summary.unfinished, 0);
  end(&s);
}

static void test_off(void) {
  make_root();
  tt_cache_config config = config_of(NULL);
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(stats_of(&s).misses, 0);
  end(&s);
}

// ---- the shared directory ----
static void test_shared(void) {
  make_root();
  char shared[300];
  snprintf(shared, sizeof shared, "%s/shared", root);
  tt_cache_config config = config_of(directory);
  config.shared_directory = shared;
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(stats_of(&s).stores, 2);
  end(&s);
  nftw(directory, remove_visited, 16, FTW_DEPTH | FTW_PHYS);
  s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_SHARED);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);  // it was copied
  CHECK_INT(stats_of(&s).shared_hits, 1);
  end(&s);
  // A damaged one there is replaced too; and without a directory of its own it does alone.
  write_bytes(the_entry(shared), "junk", 4);
  config.directory = NULL;
  s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_SHARED);
  CHECK_INT(stats_of(&s).rejected, 1);
  end(&s);
}

// ---- the bound ----
// All entries were last used a day ago.
static int make_old(const char *path, const struct stat *info, int kind, struct FTW *walk) {
  (void)info, (void)walk;
  struct timespec times[2] = {{.tv_sec = time(NULL) - 86400}, {.tv_sec = time(NULL) - 86400}};
  return kind == FTW_F ? utimensat(AT_FDCWD, path, times, 0) : 0;
}

static void test_eviction(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  config.size_limit = 40000;
  session s = begin(&config);
  for (int i = 0; i < 8; i++) {
    CHECK_INT(compile_number(&s, i, 4000), TT_CACHE_COMPILED);
  }
  nftw(directory, make_old, 16, FTW_PHYS);
  CHECK_INT(compile_number(&s, 3, 4000), TT_CACHE_DISK);  // used now
  for (int i = 8; i < 14; i++) {
    CHECK_INT(compile_number(&s, i, 4000), TT_CACHE_COMPILED);
    CHECK(inspect(TT_CACHE_COUNT).bytes <= config.size_limit);
  }
  CHECK(stats_of(&s).evicted >= 4);
  CHECK_INT(compile_number(&s, 3, 4000), TT_CACHE_DISK);
  CHECK_INT(compile_number(&s, 13, 4000), TT_CACHE_DISK);
  CHECK(inspect(TT_CACHE_VERIFY).entries > 5);
  CHECK_INT(compile_number(&s, 100, 60000), TT_CACHE_COMPILED);  // larger than the bound: not stored
  CHECK_INT(compile_number(&s, 13, 4000), TT_CACHE_DISK);
  end(&s);
  // Another process finds more than its own bound allows, and a count that was damaged.
  tt_strbuf lock = {0};
  tt_strbuf_printf(&lock, "%s/lock", directory);
  write_bytes(tt_strbuf_text(&lock), "garbage that is longer than the state", 37);
  tt_strbuf_free(&lock);
  config.size_limit = 16000;
  s = begin(&config);
  CHECK_INT(compile_number(&s, 200, 4000), TT_CACHE_COMPILED);
  CHECK(inspect(TT_CACHE_COUNT).bytes <= config.size_limit);
  CHECK_INT(compile_number(&s, 200, 4000), TT_CACHE_DISK);
  end(&s);
}

static void test_abandoned_files(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  char group[600], file[700], foreign[700];
  snprintf(group, sizeof group, "%s", the_entry(directory));
  *strrchr(group, '/') = '\0';
  snprintf(file, sizeof file, "%s/tmp.1.2.3", group);
  snprintf(foreign, sizeof foreign, "%s/letter.txt", group);
  write_bytes(file, "half", 4);
  write_bytes(foreign, "not ours", 8);
  CHECK_INT(inspect(TT_CACHE_COUNT).unfinished, 1);
  CHECK_INT(inspect(TT_CACHE_REPAIR).removed, 0);  // somebody may be writing it
  nftw(group, make_old, 16, FTW_PHYS);
  CHECK_INT(inspect(TT_CACHE_REPAIR).removed, 1);
  write_bytes(the_entry(directory), "bad", 3);
  tt_cache_summary summary = inspect(TT_CACHE_REPAIR);
  CHECK_INT(summary.bad, 1);
  CHECK_INT(summary.removed, 1);
  CHECK_INT(inspect(TT_CACHE_COUNT).entries, 0);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(inspect(TT_CACHE_CLEAR).removed, 1);
  CHECK(!access(foreign, F_OK));
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);  // in use, and usable
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
  CHECK_ERROR(tt_compile_cache_inspect("/dev/null", TT_CACHE_COUNT, NULL, NULL, &summary), TT_ERR_RUNTIME, "/dev/null");
  CHECK_OK(tt_compile_cache_inspect("/nonexistent/x", TT_CACHE_CLEAR, NULL, NULL, &summary));
}

// ---- settings ----
static void check_size(const char *text, int64_t expected) {
  setenv("TORCH_TPU_CACHE_SIZE", text, 1);
  tt_cache_config config;
  tt_cache_config_read(&config);
  CHECK_INT(config.size_limit, expected);
  tt_cache_config_free(&config);
}

static void test_settings(void) {
  const int64_t two_gib = INT64_C(2) << 30;
  check_size("123", 123);
  check_size("4K", 4096);
  check_size("3m", 3 << 20);
  check_size("5G", INT64_C(5) << 30);
  check_size("5GiB", INT64_C(5) << 30);
  check_size("0", 0);
  static const char *const wrong[] = {"", "x", "-1", "1X", "1 G", "99999999999999999999", "99999999999G"};
  for (size_t i = 0; i < sizeof wrong / sizeof *wrong; i++) {
    check_size(wrong[i], two_gib);
  }
  unsetenv("TORCH_TPU_CACHE_SIZE");
  setenv("TORCH_TPU_CACHE_DIR", "/a/b", 1);
  setenv("TORCH_TPU_SHARED_CACHE_DIR", "c", 1);
  setenv("TORCH_TPU_CACHE", "1", 1);
  char own[4096], shared[4096];
  int64_t limit;
  tt_compile_cache_settings(own, shared, sizeof own, &limit);
  CHECK_STR(own, "/a/b");
  CHECK(*shared == '/' && !strcmp(shared + strlen(shared) - 2, "/c"));
  CHECK_INT(limit, two_gib);
  setenv("TORCH_TPU_CACHE", "0", 1);
  tt_compile_cache_settings(own, shared, sizeof own, &limit);
  CHECK_STR(own, "");
  CHECK_STR(shared, "");
  unsetenv("TORCH_TPU_CACHE");
  unsetenv("TORCH_TPU_CACHE_DIR");
  unsetenv("TORCH_TPU_SHARED_CACHE_DIR");
  setenv("XDG_CACHE_HOME", "/x", 1);
  tt_compile_cache_settings(own, shared, sizeof own, &limit);
  CHECK_STR(own, "/x/torch_tpu/compile");
  setenv("XDG_CACHE_HOME", "relative", 1);
  setenv("HOME", "/home/me", 1);
  tt_compile_cache_settings(own, shared, sizeof own, &limit);
  CHECK_STR(own, "/home/me/.cache/torch_tpu/compile");
  tt_compile_cache_settings(own, shared, 8, &limit);
  CHECK_STR(own, "");  // too long
}

TEST_MAIN(TEST(test_second_process_loads), TEST(test_key), TEST(test_labels_are_not_in_the_key), TEST(test_devices),
          TEST(test_errors_of_the_compiler), TEST(test_damage), TEST(test_entry_of_another_kind),
          TEST(test_plugin_refuses), TEST(test_plugin_without_serialization), TEST(test_unusable_directories),
          TEST(test_read_only), TEST(test_full_disk), TEST(test_off), TEST(test_shared), TEST(test_eviction),
          TEST(test_abandoned_files), TEST(test_settings))
