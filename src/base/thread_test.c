#include "base/thread.h"

#include <signal.h>

#include "base/test.h"

enum { MILLISECOND = 1000 * 1000 };

typedef struct counter {
  tt_mutex lock;
  long value;
} counter;

static void count(void *data) {
  counter *counter = data;
  for (int i = 0; i < 20000; i++) {
    tt_mutex_lock(&counter->lock);
    counter->value++;
    tt_mutex_unlock(&counter->lock);
  }
}

static void test_mutex_excludes(void) {
  counter counter = {.value = 0};
  tt_mutex_init(&counter.lock);
  tt_thread *threads[4];
  for (int i = 0; i < 4; i++) {
    REQUIRE_OK(tt_thread_create("count", 0, count, &counter, &threads[i]));
  }
  for (int i = 0; i < 4; i++) {
    tt_thread_join(threads[i]);
  }
  CHECK_INT(counter.value, 80000);
  tt_mutex_destroy(&counter.lock);
}

static void try_lock(void *data) {
  counter *counter = data;
  bool locked = tt_mutex_try_lock(&counter->lock);
  counter->value = locked;
  if (locked) {
    tt_mutex_unlock(&counter->lock);
  }
}

static void test_try_lock(void) {
  counter counter = {.lock = TT_MUTEX_INIT, .value = -1};
  tt_thread *thread;
  tt_mutex_lock(&counter.lock);
  REQUIRE_OK(tt_thread_create("try", 0, try_lock, &counter, &thread));
  tt_thread_join(thread);
  CHECK_INT(counter.value, 0);
  tt_mutex_unlock(&counter.lock);
  REQUIRE_OK(tt_thread_create("try", 0, try_lock, &counter, &thread));
  tt_thread_join(thread);
  CHECK_INT(counter.value, 1);
}

typedef struct queue {
  tt_mutex lock;
  tt_cond changed;
  int items[4], count;
  long sum;
  int received;
} queue;

static void consume(void *data) {
  queue *queue = data;
  for (;;) {
    tt_mutex_lock(&queue->lock);
    while (!queue->count) {
      tt_cond_wait(&queue->changed, &queue->lock);
    }
    int item = queue->items[--queue->count];
    if (item >= 0) {
      queue->sum += item;
      queue->received++;
    }
    tt_cond_broadcast(&queue->changed);
    tt_mutex_unlock(&queue->lock);
    if (item < 0) {
      return;
    }
  }
}

static void test_condition_hands_over(void) {
  queue queue = {.lock = TT_MUTEX_INIT};
  tt_cond_init(&queue.changed);
  tt_thread *threads[2];
  for (int i = 0; i < 2; i++) {
    REQUIRE_OK(tt_thread_create("consume", 0, consume, &queue, &threads[i]));
  }
  for (int i = 0; i < 1002; i++) {
    tt_mutex_lock(&queue.lock);
    // The last two items stop a thread each, and must not be taken before the others.
    while (queue.count == 4 || (i >= 1000 && queue.count)) {
      tt_cond_wait(&queue.changed, &queue.lock);
    }
    queue.items[queue.count++] = i < 1000 ? i : -1;
    tt_cond_broadcast(&queue.changed);
    tt_mutex_unlock(&queue.lock);
  }
  for (int i = 0; i < 2; i++) {
    tt_thread_join(threads[i]);
  }
  CHECK_INT(queue.received, 1000);
  CHECK_INT(queue.sum, 999 * 1000 / 2);
  tt_cond_destroy(&queue.changed);
}

static void test_condition_times_out(void) {
  tt_mutex lock = TT_MUTEX_INIT;
  tt_cond cond;
  tt_cond_init(&cond);
  tt_mutex_lock(&lock);
  int64_t start = tt_now_ns();
  while (tt_cond_wait_until(&cond, &lock, start + 20 * MILLISECOND)) {
  }
  CHECK(tt_now_ns() - start >= 20 * MILLISECOND);
  // A time that has passed, and one before the clock's origin.
  CHECK(!tt_cond_wait_until(&cond, &lock, start));
  CHECK(!tt_cond_wait_until(&cond, &lock, -5));
  tt_mutex_unlock(&lock);
  tt_cond_destroy(&cond);
}

static void use_stack(void *data) {
  volatile char room[800 * 1024];
  for (size_t i = 0; i < sizeof room; i += 1024) {
    room[i] = (char)i;
  }
  *(bool *)data = room[1024] == 0;
}

static void test_a_small_stack_is_raised(void) {
  bool done = false;
  tt_thread *thread;
  REQUIRE_OK(tt_thread_create("small", 16 * 1024, use_stack, &done, &thread));
  tt_thread_join(thread);
  CHECK(done);
}

static void test_a_thread_that_cannot_start(void) {
  tt_thread *thread = (tt_thread *)1;
  CHECK_ERROR(tt_thread_create("huge", SIZE_MAX / 4 / 65536 * 65536, use_stack, NULL, &thread), TT_ERR_RUNTIME,
              "\"huge\"");
  CHECK(thread == NULL);
  tt_thread_join(NULL);
  tt_thread_detach(NULL);
}

typedef struct facts {
  char name[16];
  bool blocks_interrupt;
  int64_t id;
} facts;

static void tell(void *data) {
  facts *facts = data;
  pthread_getname_np(pthread_self(), facts->name, sizeof facts->name);
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  facts->blocks_interrupt = sigismember(&mask, SIGINT) == 1;
  facts->id = tt_thread_id();
}

static void test_name_and_signals(void) {
  facts facts = {0};
  tt_thread *thread;
  REQUIRE_OK(tt_thread_create("a name that is too long", 0, tell, &facts, &thread));
  tt_thread_join(thread);
  CHECK_STR(facts.name, "a name that is ");
  CHECK(facts.blocks_interrupt);
  CHECK(facts.id != tt_thread_id());
  sigset_t mask;
  pthread_sigmask(SIG_SETMASK, NULL, &mask);
  CHECK_INT(sigismember(&mask, SIGINT), 0);
}

static tt_once once = TT_ONCE_INIT;
static atomic_int once_runs;
static void run_once(void) {
  tt_sleep_ns(5 * MILLISECOND);
  atomic_fetch_add(&once_runs, 1);
}
static void ask_once(void *data) {
  tt_once_run(&once, run_once);
  *(int *)data = atomic_load(&once_runs);
}

static void test_once(void) {
  tt_thread *threads[4];
  int seen[4] = {0};
  for (int i = 0; i < 4; i++) {
    REQUIRE_OK(tt_thread_create("once", 0, ask_once, &seen[i], &threads[i]));
  }
  for (int i = 0; i < 4; i++) {
    tt_thread_join(threads[i]);
    CHECK_INT(seen[i], 1);
  }
}

static void set_flag(void *data) { atomic_store((atomic_bool *)data, true); }

static void test_detach(void) {
  static atomic_bool flag;
  tt_thread *thread;
  REQUIRE_OK(tt_thread_create("detached", 0, set_flag, &flag, &thread));
  tt_thread_detach(thread);
  int64_t deadline = tt_now_ns() + (int64_t)10000 * MILLISECOND;
  while (!atomic_load(&flag) && tt_now_ns() < deadline) {
    tt_sleep_ns(MILLISECOND);
  }
  CHECK(atomic_load(&flag));
}

static void test_clock(void) {
  int64_t start = tt_now_ns();
  tt_sleep_ns(3 * MILLISECOND);
  CHECK(tt_now_ns() - start >= 3 * MILLISECOND);
  tt_sleep_ns(0);
  tt_sleep_ns(-1);
}

TEST_MAIN(TEST(test_mutex_excludes), TEST(test_try_lock), TEST(test_condition_hands_over),
          TEST(test_condition_times_out), TEST(test_a_small_stack_is_raised), TEST(test_a_thread_that_cannot_start),
          TEST(test_name_and_signals), TEST(test_once), TEST(test_detach), TEST(test_clock))
