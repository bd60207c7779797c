// The priority of compiles, on the fake plugin.
#include <sched.h>
#include <sys/resource.h>

#include "base/priority.h"
#include "base/thread.h"
#include "eager/fused.h"
#include "support/eager.h"

static fake_control fake;

typedef struct manners {
  int alone, beside_another, alone_again, waited_for, after;  // policies of the compiling thread
  int nice_beside, nice_after;
} manners;

static int policy(void) { return sched_getscheduler(0); }
static int nice_now(void) { return getpriority(PRIO_PROCESS, (id_t)tt_thread_id()); }

static void compile(void *data) {
  manners *seen = data;
  tt_compile_scope scope;
  tt_background_begin();
  seen->alone = policy();
  tt_foreground_begin(&scope);
  seen->beside_another = policy();
  seen->nice_beside = nice_now();
  tt_foreground_end(&scope, false);
  seen->alone_again = policy();
  tt_background_wait(true);
  seen->waited_for = policy();
  tt_background_wait(false);
  tt_background_look();  // it hasn't taken long
  CHECK_INT(policy(), seen->alone);
  tt_background_end();
  seen->after = policy();
  seen->nice_after = nice_now();
}

static void test_who_waits_decides(void) {
  fake = eager_start(1);
  int before = nice_now(), low = before + 10 < 19 ? before + 10 : 19;
  manners seen = {0};
  tt_thread *thread;
  REQUIRE_OK(tt_thread_create("compile", 0, compile, &seen, &thread));
  tt_thread_join(thread);
  int quiet = tt_priority_can_rise() ? SCHED_IDLE : SCHED_OTHER;
  CHECK_INT(seen.alone, quiet);
  CHECK_INT(seen.beside_another, SCHED_OTHER);
  CHECK_INT(seen.nice_beside, low);
  CHECK_INT(seen.alone_again, quiet);
  CHECK_INT(seen.waited_for, SCHED_OTHER);
  CHECK_INT(seen.after, SCHED_OTHER);
  CHECK_INT(seen.nice_after, low);
  CHECK_INT(nice_now(), before);
  eager_check_empty(&fake);
}

static void test_names_come_back(void) {
  fake = eager_start(1);
  char before[16], during[16], after[16];
  tt_compile_scope scope;
  pthread_getname_np(pthread_self(), before, sizeof before);
  tt_foreground_begin(&scope);
  pthread_getname_np(pthread_self(), during, sizeof during);
  tt_foreground_end(&scope, false);
  pthread_getname_np(pthread_self(), after, sizeof after);
  CHECK_STR(after, before);
  CHECK(!scope.renamed || !strcmp(during, "tpu-codegen"));
  eager_check_empty(&fake);
}

TEST_MAIN(TEST(test_names_come_back), TEST(test_who_waits_decides))
