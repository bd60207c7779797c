// A process forked after initialisation: every entry point answers or refuses, nothing hangs, both exit cleanly.
#include <stdio.h>
#include <sys/wait.h>

#include "support/eager.h"

static fake_control fake;
static void start(void) { fake = eager_start(2); }

// The threads of the parent, and the stacks that hold what they own, are gone in a child: no leak check there.
static bool is_child;
__attribute__((visibility("default"))) int __lsan_is_turned_off(void);
int __lsan_is_turned_off(void) { return is_child; }

// Runs `body` in a child; its failed checks become the exit status.
static void in_child(void (*body)(void)) {
  fflush(NULL);
  pid_t child = fork();
  if (child == 0) {
    is_child = true;
    alarm(30);  // a hang is death
    body();
    exit(atomic_load(&tt_test_failures) ? 1 : 0);
  }
  int status = -1;
  REQUIRE(child > 0);
  CHECK(waitpid(child, &status, 0) == child);
  if (!WIFEXITED(status) || WEXITSTATUS(status)) {
    tt_test_fail(__FILE__, __LINE__, "the child ended with status 0x%x", (unsigned)status);
  }
}

static tensor x, z;
static tt_event *event;
static tt_results results;

#define BAD_FORK "Cannot re-initialize tpu in forked subprocess"

static void use_everything(void) {
  char data[4096];
  tt_tensor whole = ref(&x);
  tensor out;
  CHECK(tt_in_bad_fork());
  CHECK(!tt_is_initialized());
  CHECK(!tt_is_available());
  CHECK_INT(tt_device_count(), 2);
  CHECK_ERROR(tt_init(), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(add(&x, &x, &out), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(tt_copy_to_host(&whole, data), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(tt_copy_from_host(&whole, data), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(tt_copy(&whole, &whole), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(tt_synchronize(-1), TT_ERR_RUNTIME, BAD_FORK);
  tt_storage *storage;
  CHECK_ERROR(tt_storage_create(0, 8, &storage), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(tt_storage_resize(x.storage, 8), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(tt_event_record(event, 0), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(tt_event_synchronize(event), TT_ERR_RUNTIME, BAD_FORK);
  CHECK(!tt_event_query(event));
  CHECK(tt_is_idle(0));
  const char *text;
  CHECK_ERROR(tt_platform(&text), TT_ERR_RUNTIME, BAD_FORK);
  CHECK_ERROR(tt_device_name(0, &text), TT_ERR_RUNTIME, BAD_FORK);
  tt_memory_stats stats;
  CHECK_OK(tt_get_memory_stats(0, &stats));
  CHECK_INT(stats.allocated, 0);
  CHECK_OK(tt_reset_peak_memory(0));
  CHECK_OK(tt_empty_cache());
  CHECK_OK(tt_clear_compile_cache());
  // Facts of a storage stay readable; freeing does nothing and returns.
  CHECK_INT(tt_storage_nbytes(x.storage), 4096);
  CHECK_INT(tt_storage_device(x.storage), 0);
  CHECK(tt_storage_address(x.storage) != NULL);
  tt_results_release(&results);
  tt_storage_free(x.storage);
  tt_storage_free(z.storage);
  tt_event_free(event);
  // Seeding a data loader's worker does not need the device.
  tt_generator_set(tt_default_generator(0), 1, 0);
}

static void test_child_of_an_idle_process(void) {
  start();
  x = make_filled(TT_F32, DIMS(1024));
  CHECK(!tt_in_bad_fork());
  CHECK_OK(tt_call(op_of(OP_ADD), ARGS(arg_tensor(&x), arg_tensor(&x)), 0, &results));
  z = tensor_over(results.storages[0], TT_F32, DIMS(1024), 0);
  REQUIRE_OK(tt_event_create(&event));
  fake.set("execute_delay_us", 200000);
  CHECK_OK(add_in_place(&x, &x));
  CHECK_OK(tt_event_record(event, 0));  // pending when the child is made
  in_child(use_everything);
  // The parent has felt nothing.
  CHECK(!tt_in_bad_fork());
  CHECK_OK(tt_event_synchronize(event));
  fake.set("execute_delay_us", 0);
  CHECK_OK(add_in_place(&x, &z));
  CHECK_OK(tt_synchronize(-1));
  tt_results_release(&results);
  tt_event_free(event);
  drop(&x);
  drop(&z);
  eager_check_empty(&fake);
}

static void free_only(void) {
  tt_storage_free(x.storage);
  tt_storage_free(z.storage);
}

// Forks while the dispatch thread is in the middle of things, with locks in any state.
static void test_children_of_a_busy_process(void) {
  start();
  x = make_filled(TT_F32, DIMS(1024));
  fake.set("execute_delay_us", 50);
  for (int i = 0; i < 8; i++) {
    for (int j = 0; j < 100; j++) {
      CHECK_OK(add(&x, &x, &z));
      if (j < 99) {
        drop(&z);
      }
    }
    in_child(free_only);
    drop(&z);
  }
  CHECK_OK(tt_synchronize(-1));
  fake.set("execute_delay_us", 0);
  drop(&x);
  eager_check_empty(&fake);
}

static void wait_for_compiles(void) { tt_wait_for_compiles(); }

// What the parent compiles in the background is nothing that a child could wait for, nor stop at its end.
static void test_child_while_something_compiles(void) {
  start();
  tt_set_eager_mode(TT_MODE_FUSED);
  x = make_filled(TT_F32, DIMS(1024));
  CHECK_OK(add_in_place(&x, &x));
  for (int i = 0; i < 3; i++) {
    fake.set("compile_delay_us", i ? 300000 : 0);
    CHECK_OK(add_in_place(&x, &x));
    CHECK_OK(add_in_place(&x, &x));
    CHECK_OK(tt_synchronize(0));
  }
  in_child(wait_for_compiles);
  tt_wait_for_compiles();
  fake.set("compile_delay_us", 0);
  tt_set_eager_mode(TT_MODE_STRICT);
  drop(&x);
  eager_check_empty(&fake);
}

static void nothing(void) {}

static void fork_again(void) {
  CHECK(tt_in_bad_fork());
  in_child(free_only);
}

static void test_grandchildren(void) {
  start();
  x = make_filled(TT_F32, DIMS(1024)), z = make(TT_F32, DIMS(4));
  in_child(nothing);
  in_child(fork_again);
  drop(&x);
  drop(&z);
  eager_check_empty(&fake);
}

// A fork before there is a client is no bad fork.
static void init_in_child(void) {
  CHECK(!tt_in_bad_fork());
  start();
  tensor y = make_filled(TT_F32, DIMS(4));
  CHECK_OK(add_in_place(&y, &y));
  CHECK_OK(tt_synchronize(-1));
  drop(&y);
  eager_check_empty(&fake);
}

static void test_fork_before_initialisation(void) {
  fake = fake_open();
  CHECK(!tt_is_initialized());
#if !defined(__SANITIZE_THREAD__)  // TSan's process can't start threads after a fork, if it had any
  in_child(init_in_child);
#else
  (void)init_in_child;
#endif
}

TEST_MAIN(TEST(test_fork_before_initialisation), TEST(test_child_of_an_idle_process),
          TEST(test_children_of_a_busy_process), TEST(test_grandchildren), TEST(test_child_while_something_compiles))
