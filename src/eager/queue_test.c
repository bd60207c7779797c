// The queue: its bound, waiting for it, whether it is idle; events.
#include "eager/internal.h"
#include "support/eager.h"

static fake_control fake;
static void start(void) { fake = eager_start(2); }

static void test_more_than_the_queue_holds(void) {
  start();
  enum { CALLS = 2000 };
  tensor x = make_filled(TT_F32, DIMS(8)), z;
  CHECK_OK(add(&x, &x, &z));
  drop(&z);
  CHECK_OK(tt_synchronize(0));
  fake.set("execute_delay_us", 100);
  int64_t executes = fake.get("executes");
  for (int i = 0; i < CALLS; i++) {
    CHECK_OK(add(&x, &x, &z));
    drop(&z);  // before it was even launched
  }
  CHECK(!tt_is_idle(0));
  CHECK(tt_is_idle(1));
  CHECK_OK(tt_synchronize(0));
  CHECK(tt_is_idle(0));
  CHECK_INT(fake.get("executes") - executes, CALLS);
  // A chain through one storage.
  for (int i = 0; i < CALLS; i++) {
    CHECK_OK(add_in_place(&x, &x));
  }
  float data[8];
  tt_tensor whole = ref(&x);
  CHECK_OK(tt_copy_to_host(&whole, data));
  CHECK(data[0] == 0);
  fake.set("execute_delay_us", 0);
  drop(&x);
  eager_check_empty(&fake);
}

static void test_idle(void) {
  start();
  CHECK(tt_is_idle(0));
  CHECK(tt_is_idle(-1));
  CHECK(tt_is_idle(99));
  tensor x = make_filled(TT_F32, DIMS(8)), z;
  fake.set("execute_delay_us", 20000);
  CHECK_OK(add(&x, &x, &z));
  CHECK(!tt_is_idle(0));
  for (int i = 0; i < 2000 && !tt_is_idle(0); i++) {
    sleep_ms(1);  // becomes idle by itself
  }
  CHECK(tt_is_idle(0));
  // A synchronisation waits, and one of another device doesn't.
  CHECK_OK(add_in_place(&x, &x));
  uint64_t begin = now_us();
  CHECK_OK(tt_synchronize(1));
  CHECK(now_us() - begin < 15000);
  CHECK_OK(tt_synchronize(0));
  CHECK(now_us() - begin >= 15000);
  tt_counters before, after;
  tt_get_counters(&before);
  CHECK_OK(tt_synchronize(-1));
  tt_get_counters(&after);
  CHECK_INT(after.synchronizations - before.synchronizations, 1);
  fake.set("execute_delay_us", 0);
  drop(&x);
  drop(&z);
  eager_check_empty(&fake);
}

static void test_errors_show_without_calls(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(8)), z;
  fake.set("execute_delay_us", 1000);
  fake.set("fail_execution", 1);
  CHECK_OK(add(&x, &x, &z));
  sleep_ms(50);
  CHECK_ERROR(tt_synchronize(-1), TT_ERR_RUNTIME, "injected");
  fake.set("execute_delay_us", 0);
  drop(&x);
  drop(&z);
  eager_check_empty(&fake);
}

static void test_events(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(8)), z;
  tt_event *begin, *end, *unused;
  double ms;
  REQUIRE_OK(tt_event_create(&begin));
  REQUIRE_OK(tt_event_create(&end));
  REQUIRE_OK(tt_event_create(&unused));
  CHECK(tt_event_query(unused));
  CHECK_OK(tt_event_synchronize(unused));
  CHECK_ERROR(tt_event_record(unused, 7), TT_ERR_RUNTIME, "does not exist");
  CHECK(tt_event_query(unused));
  CHECK_OK(add(&x, &x, &z));
  drop(&z);
  CHECK_OK(tt_synchronize(0));
  fake.set("execute_delay_us", 30000);
  CHECK_OK(tt_event_record(begin, 0));
  CHECK_ERROR(tt_event_elapsed(begin, unused, &ms), TT_ERR_RUNTIME, "recorded");
  CHECK_OK(add(&x, &x, &z));
  CHECK_OK(tt_event_record(end, 0));
  CHECK(!tt_event_query(end));
  CHECK_OK(tt_event_elapsed(begin, end, &ms));
  CHECK(tt_event_query(begin));
  CHECK(tt_event_query(end));
  CHECK(ms >= 29 && ms < 10000);
  CHECK_OK(tt_event_elapsed(end, begin, &ms));
  CHECK(ms <= -29);
  // Recorded again: what counts is the last.
  CHECK_OK(add_in_place(&x, &x));
  CHECK_OK(tt_event_record(end, 0));
  CHECK_OK(tt_event_record(end, 0));
  CHECK(!tt_event_query(end));
  CHECK_OK(tt_event_synchronize(end));
  CHECK(tt_event_query(end));
  CHECK_OK(tt_event_elapsed(begin, end, &ms));
  CHECK(ms >= 58);
  // Freed while it is pending; completed by a program that fails; when OnReady fails.
  CHECK_OK(add_in_place(&x, &x));
  CHECK_OK(tt_event_record(begin, 0));
  tt_event_free(begin);
  fake.set("fail_execution", 1);
  CHECK_OK(add_in_place(&x, &x));
  CHECK_OK(tt_event_record(end, 0));
  CHECK_OK(tt_event_synchronize(end));
  CHECK_ERROR(tt_synchronize(0), TT_ERR_RUNTIME, "injected");
  fake.set("fail:PJRT_Event_OnReady", 1);
  CHECK_OK(add_in_place(&z, &z));
  CHECK_OK(tt_event_record(end, 0));
  CHECK_OK(tt_event_synchronize(end));
  fake.set("execute_delay_us", 0);
  tt_event_free(end);
  tt_event_free(unused);
  tt_event_free(NULL);
  drop(&x);
  drop(&z);
  eager_check_empty(&fake);
}

// Hundreds of events between delayed programs complete in order.
static void test_many_events(void) {
  start();
  enum { COUNT = 400 };
  static tt_event *events[COUNT];
  tensor x = make_filled(TT_F32, DIMS(8));
  fake.set("execute_delay_us", 100);
  for (int i = 0; i < COUNT; i++) {
    CHECK_OK(add_in_place(&x, &x));
    REQUIRE_OK(tt_event_create(&events[i]));
    CHECK_OK(tt_event_record(events[i], 0));
  }
  CHECK_OK(tt_event_synchronize(events[COUNT - 1]));
  for (int i = 0; i < COUNT; i++) {
    double ms;
    CHECK_OK(tt_event_elapsed(events[i ? i - 1 : 0], events[i], &ms));
    CHECK(ms >= 0);
  }
  for (int i = 0; i < COUNT; i++) {
    tt_event_free(events[i]);
  }
  fake.set("execute_delay_us", 0);
  drop(&x);
  eager_check_empty(&fake);
}

// The plugin calls a program complete long after its results are there, and whoever read them knows better.
static void test_events_beside_late_completions(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(8)), z;
  tt_event *begin, *same, *end;
  double ms;
  float data[8];
  REQUIRE_OK(tt_event_create(&begin));
  REQUIRE_OK(tt_event_create(&same));
  REQUIRE_OK(tt_event_create(&end));
  fake.set("done_delay_us", 100000);
  CHECK_OK(add(&x, &x, &z));
  tt_tensor whole = ref(&z);
  CHECK_OK(tt_copy_to_host(&whole, data));
  CHECK_OK(tt_event_record(begin, 0));
  CHECK_OK(add_in_place(&z, &x));
  CHECK_OK(tt_event_record(same, 0));
  CHECK_OK(tt_event_record(end, 0));
  CHECK_OK(tt_event_elapsed(begin, end, &ms));
  CHECK(ms >= 150);  // both programs' delays
  // Two events behind one program: none is before the other, in whatever order the plugin tells of them.
  CHECK_OK(tt_event_elapsed(same, end, &ms));
  CHECK(ms >= 0);
  CHECK_OK(tt_event_elapsed(end, same, &ms));
  CHECK(ms <= 0);
  fake.set("done_delay_us", 0);
  tt_event_free(begin);
  tt_event_free(same);
  tt_event_free(end);
  drop(&x);
  drop(&z);
  eager_check_empty(&fake);
}

static bool comes_to_sleep(tt_queue *queue) {
  for (int i = 0; i < 2000 && !atomic_load(&queue->sleeping); i++) {
    sleep_ms(1);
  }
  return atomic_load(&queue->sleeping);
}

// The dispatch thread may find a task, and sleep again, before the one who pushed it comes to wake it.
static void test_a_late_waker(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(8));
  CHECK_OK(add_in_place(&x, &x));
  CHECK_OK(tt_synchronize(0));
  tt_queue *queue = &tt_the_runtime.engines[0].queue;
  CHECK(comes_to_sleep(queue));
  atomic_store(&queue->sleeping, 0);
  pthread_mutex_lock(&queue->mutex);
  pthread_cond_signal(&queue->wake);
  pthread_mutex_unlock(&queue->mutex);
  REQUIRE(comes_to_sleep(queue));  // else the next task wakes nobody
  CHECK_OK(add_in_place(&x, &x));
  CHECK_OK(tt_synchronize(0));
  drop(&x);
  eager_check_empty(&fake);
}

TEST_MAIN(TEST(test_more_than_the_queue_holds), TEST(test_idle), TEST(test_errors_show_without_calls),
          TEST(test_events), TEST(test_many_events), TEST(test_events_beside_late_completions), TEST(test_a_late_waker))
