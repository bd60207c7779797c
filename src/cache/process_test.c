// Several threads and processes in one directory, and ones that die.
#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>

#include "base/thread.h"
#include "support/cache.h"

// A child's failed checks become its exit status. Leaks are the parent's to find.
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return root_owner && getpid() != root_owner; }

static pid_t in_child(void (*body)(void)) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    alarm(60);  // a hang is death
    body();
    _exit(atomic_load(&tt_test_failures) ? 1 : 0);
  }
  REQUIRE(child > 0);
  return child;
}

static void check_exit(pid_t child) {
  int status = -1;
  CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status)) {
    tt_test_fail(__FILE__, __LINE__, "the child ended with status 0x%x", (unsigned)status);
  }
}

enum { MODULES = 6, WORKERS = 4 };

// ---- threads of one process ----
static session common;

static void compile_all(void *argument) {
  int first = *(int *)argument;
  for (int i = 0; i < MODULES; i++) {
    compile_number(&common, (first + i) % MODULES, 1);
  }
}

static void test_threads_compile_once(void) {
  make_root();
  tt_cache_config config = config_of(directory);
  common = begin(&config);
  common.fake.set("compile_delay_us", 20000);
  tt_thread *threads[WORKERS];
  int first[WORKERS] = {0, 0, 3, 3};
  for (int i = 0; i < WORKERS; i++) {
    REQUIRE_OK(tt_thread_create("worker", 0, compile_all, &first[i], &threads[i]));
  }
  for (int i = 0; i < WORKERS; i++) {
    tt_thread_join(threads[i]);
  }
  CHECK_INT(common.fake.get("compiles"), MODULES);
  tt_cache_stats stats = stats_of(&common);
  CHECK_INT(stats.misses, MODULES);
  CHECK_INT(stats.disk_hits, MODULES * (WORKERS - 1));
  CHECK(stats.lock_waits > 0);
  end(&common);
  CHECK_INT(inspect(TT_CACHE_VERIFY).entries, MODULES);
}

// ---- processes ----
static int child_number;

static void compile_in_child(void) {
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  s.fake.set("compile_delay_us", 20000);
  for (int i = 0; i < MODULES; i++) {
    compile_number(&s, i, 1);
  }
  char path[400];
  snprintf(path, sizeof path, "%s/count%d", root, child_number);
  FILE *file = fopen(path, "w");
  if (CHECK(file != NULL)) {
    fprintf(file, "%lld", (long long)s.fake.get("compiles"));
    fclose(file);
  }
}

static void test_processes_compile_once(void) {
  make_root();
  pid_t children[WORKERS];
  for (child_number = 0; child_number < WORKERS; child_number++) {
    children[child_number] = in_child(compile_in_child);
  }
  int total = 0;
  for (int i = 0; i < WORKERS; i++) {
    check_exit(children[i]);
    char path[400];
    int count = 0;
    snprintf(path, sizeof path, "%s/count%d", root, i);
    FILE *file = fopen(path, "r");
    REQUIRE(file != NULL);
    CHECK(fscanf(file, "%d", &count) == 1);
    fclose(file);
    total += count;
  }
  CHECK_INT(total, MODULES);
  CHECK_INT(inspect(TT_CACHE_VERIFY).entries, MODULES);
}

// Small bounds: processes evict what others are reading, writing and evicting.
static void churn(void) {
  tt_cache_config config = config_of(directory);
  config.size_limit = 12000;
  session s = begin(&config);
  for (int i = 0; i < 60; i++) {
    compile_number(&s, i % 7, 3000);
  }
  CHECK_INT(stats_of(&s).rejected, 0);
}

static void test_processes_evict(void) {
  make_root();
  pid_t children[WORKERS];
  for (int i = 0; i < WORKERS; i++) {
    children[i] = in_child(churn);
  }
  for (int i = 0; i < WORKERS; i++) {
    check_exit(children[i]);
  }
  tt_cache_summary summary = inspect(TT_CACHE_VERIFY);
  CHECK_INT(summary.bad, 0);
  CHECK_INT(summary.unfinished, 0);
  CHECK(summary.bytes <= 12000 + WORKERS * 3500);
}

// ---- death ----
// The system kills a process in the middle of the write that passes its limit.
static void die_writing(void) {
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  struct rlimit limit = {TT_ENTRY_HEADER + 10, TT_ENTRY_HEADER + 10}, no_core = {0, 0};
  setrlimit(RLIMIT_CORE, &no_core);
  signal(SIGXFSZ, SIG_DFL);
  setrlimit(RLIMIT_FSIZE, &limit);
  compile_it(&s);
}

static void test_death_in_a_write(void) {
  make_root();
  pid_t child = in_child(die_writing);
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGXFSZ);
  tt_cache_summary summary = inspect(TT_CACHE_COUNT);
  CHECK_INT(summary.entries, 0);
  CHECK_INT(summary.unfinished, 1);
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
}

static void compile_forever(void) {
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  s.fake.set("compile_delay_us", 50000000);
  compile_it(&s);
}

// Somebody holds the lock of a key: the lock file is there, and a while has passed.
static void await_holder(void) {
  char path[400];
  snprintf(path, sizeof path, "%s/lock", directory);
  for (int i = 0; i < 1000 && access(path, F_OK); i++) {
    tt_sleep_ns(5000000);
  }
  tt_sleep_ns(100000000);
}

static void kill_soon(void *child) {
  tt_sleep_ns(200000000);
  kill(*(pid_t *)child, SIGKILL);
}

static void test_death_of_the_holder(void) {
  make_root();
  pid_t child = in_child(compile_forever);
  await_holder();
  tt_cache_config config = config_of(directory);
  session s = begin(&config);
  tt_thread *killer;
  REQUIRE_OK(tt_thread_create("killer", 0, kill_soon, &child, &killer));
  int64_t start = tt_now_ns();
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK(tt_now_ns() - start < INT64_C(10) * 1000000000);
  CHECK_INT(stats_of(&s).lock_waits, 1);
  tt_thread_join(killer);
  waitpid(child, NULL, 0);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
}

static void stop_soon(void *cache) {
  tt_sleep_ns(100000000);
  tt_cache_stop(cache);
}

static void test_waiting_ends(void) {
  make_root();
  pid_t child = in_child(compile_forever);
  await_holder();
  tt_cache_config config = config_of(directory);
  config.lock_timeout_ns = 200000000;
  session s = begin(&config);
  int64_t start = tt_now_ns();
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);  // without the lock
  CHECK(tt_now_ns() - start >= 190000000);
  CHECK_INT(compile_it(&s), TT_CACHE_DISK);
  end(&s);
  // The process wants to exit.
  CHECK(inspect(TT_CACHE_COUNT).entries == 1 && !unlink(the_entry(directory)));
  config.lock_timeout_ns = INT64_C(30) * 1000000000;
  s = begin(&config);
  tt_thread *stopper;
  REQUIRE_OK(tt_thread_create("stopper", 0, stop_soon, s.cache, &stopper));
  start = tt_now_ns();
  CHECK_INT(compile_it(&s), TT_CACHE_COMPILED);
  CHECK(tt_now_ns() - start < INT64_C(10) * 1000000000);
  tt_thread_join(stopper);
  end(&s);
  kill(child, SIGKILL);
  waitpid(child, NULL, 0);
}

TEST_MAIN(TEST(test_processes_compile_once), TEST(test_processes_evict), TEST(test_death_in_a_write),
          TEST(test_death_of_the_holder), TEST(test_waiting_ends), TEST(test_threads_compile_once))
