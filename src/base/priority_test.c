#include "base/priority.h"

#include <sched.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/test.h"
#include "base/thread.h"

static int nice_of(int64_t thread) { return getpriority(PRIO_PROCESS, (id_t)thread); }

typedef struct seen {
  int nice[4], policy[4];
} seen;

static void change(void *data) {
  static const tt_priority sequence[] = {TT_PRIORITY_LOW, TT_PRIORITY_IDLE, TT_PRIORITY_LOW, TT_PRIORITY_NORMAL};
  seen *seen = data;
  for (int i = 0; i < 4; i++) {
    tt_priority_set(tt_thread_id(), sequence[i]);
    seen->nice[i] = nice_of(tt_thread_id());
    seen->policy[i] = sched_getscheduler(0);
  }
}

static void test_changes_a_thread_and_no_other(void) {
  int before = nice_of(getpid()), low = before + 10 < 19 ? before + 10 : 19;
  seen seen;
  tt_thread *thread;
  REQUIRE_OK(tt_thread_create("change", 0, change, &seen, &thread));
  tt_thread_join(thread);
  CHECK_INT(seen.nice[0], low);
  CHECK_INT(seen.policy[0], SCHED_OTHER);
  CHECK_INT(seen.policy[1], SCHED_IDLE);
  if (tt_priority_can_rise()) {
    CHECK_INT(seen.nice[2], low);
    CHECK_INT(seen.policy[2], SCHED_OTHER);
    CHECK_INT(seen.nice[3], before);
    CHECK_INT(seen.policy[3], SCHED_OTHER);
  }
  CHECK_INT(nice_of(getpid()), before);
  CHECK_INT(sched_getscheduler(0), SCHED_OTHER);
}

typedef struct worker {
  tt_mutex lock;
  tt_cond changed;
  int64_t id;
  bool done;
} worker;

static void work(void *data) {
  worker *worker = data;
  tt_mutex_lock(&worker->lock);
  worker->id = tt_thread_id();
  tt_cond_broadcast(&worker->changed);
  while (!worker->done) {
    tt_cond_wait(&worker->changed, &worker->lock);
  }
  tt_mutex_unlock(&worker->lock);
}

static void test_names(void) {
  worker worker = {.lock = TT_MUTEX_INIT};
  tt_cond_init(&worker.changed);
  tt_thread *thread;
  REQUIRE_OK(tt_thread_create("tpu-test-pool", 0, work, &worker, &thread));
  tt_mutex_lock(&worker.lock);
  while (!worker.id) {
    tt_cond_wait(&worker.changed, &worker.lock);
  }
  tt_mutex_unlock(&worker.lock);
  int64_t found[2] = {0, 0};
  CHECK_INT(tt_threads_named("tpu-test-pool", found, 2), 1);
  CHECK_INT(found[0], worker.id);
  CHECK_INT(tt_threads_named("tpu-test-pool", found, 0), 1);
  CHECK_INT(tt_threads_named("tpu-test", found, 2), 0);
  tt_mutex_lock(&worker.lock);
  worker.done = true;
  tt_cond_broadcast(&worker.changed);
  tt_mutex_unlock(&worker.lock);
  tt_thread_join(thread);
  tt_cond_destroy(&worker.changed);
}

TEST_MAIN(TEST(test_changes_a_thread_and_no_other), TEST(test_names))
