// Four threads use everything at once, on shared and on their own storages; meant for ThreadSanitizer.
#include <pthread.h>

#include "support/eager.h"

enum { THREADS = 4, SHARED = 6, STEPS = 400, N = 16 };

static fake_control fake;
static tensor shared[2][SHARED];  // of each device; whole storages
static tt_event *shared_event;

static void start(void) {
  fake = eager_start(2);
  for (int op = 0; op < TEST_OP_COUNT; op++) {
    op_of((test_op)op);  // before there are threads
  }
}

typedef struct worker {
  pthread_t thread;
  uint64_t random;
  int device;
  tensor own;
} worker;

// Injected faults, and the fake's answer to the asserts of uniform_, may come out anywhere.
static void allow(tt_status *status) { tt_status_free(status); }

static tt_status *call_on(const worker *w, test_op op, const tt_arg *args, int32_t count) {
  tt_results results;
  TT_TRY(tt_call(op_of(op), args, count, w->device, &results));
  for (int32_t i = 0; i < results.count; i++) {
    tt_storage_free(results.storages[i]);
  }
  tt_results_release(&results);
  return NULL;
}

static void use_event(worker *w) {
  tt_event *event = NULL;
  allow(tt_event_create(&event));
  if (event) {
    allow(tt_event_record(event, w->device));
    allow(tt_event_record(shared_event, w->device));
    tt_event_query(event);
    if (next_random(&w->random) % 2) {
      double ms;
      allow(tt_event_synchronize(event));
      allow(tt_event_elapsed(event, shared_event, &ms));
    }
    tt_event_free(event);
  }
}

static void copy(const tensor *to, const tensor *from) {
  tt_tensor destination = ref(to), source = ref(from);
  allow(tt_copy(&destination, &source));
}

static void step(worker *w) {
  uint64_t random = next_random(&w->random);
  const tensor *x = &shared[w->device][random % SHARED], *y = &shared[w->device][random / 8 % SHARED];
  tensor half = *x;
  half.ndim = 1;
  half.sizes[0] = N / 2;
  half.offset = (int64_t)(random / 64 % (N / 2));
  float data[N] = {0};
  tt_tensor whole = ref(x), part = ref(&half);
  switch (random / 4096 % 16) {
    case 0:
    case 1:
      allow(call_on(w, OP_ADD, ARGS(arg_tensor(x), arg_tensor(y), arg_double((double)(random % 1000)))));
      break;
    case 2:
      allow(call_on(w, OP_ADD_IN_PLACE, ARGS(arg_tensor(x), arg_tensor(y))));
      break;
    case 3:
      allow(call_on(w, OP_ADD_IN_PLACE, ARGS(arg_tensor(&w->own), arg_tensor(x))));
      break;
    case 4:
      allow(call_on(w, OP_ADD_IN_PLACE, ARGS(arg_tensor(&half), arg_tensor(&half))));
      break;
    case 5:
      allow(tt_copy_from_host(&whole, data));
      break;
    case 6:
      allow(tt_copy_to_host(&whole, data));
      break;
    case 7:
      allow(tt_copy_to_host(&part, data));
      break;
    case 8:
      copy(x, y);
      break;
    case 9:
      copy(&shared[!w->device][random % SHARED], x);
      break;
    case 10:
      if (random / 65536 % 4 == 0) {
        allow(tt_synchronize(random / 1048576 % 2 ? w->device : -1));
      }
      tt_is_idle(w->device);
      break;
    case 11:
      use_event(w);
      break;
    case 12: {  // another type of a shared storage
      tensor bytes = tensor_over(x->storage, TT_S32, DIMS(N), 0);
      allow(call_on(w, OP_ADD_IN_PLACE, ARGS(arg_tensor(&bytes), arg_tensor(&bytes))));
      break;
    }
    case 13:
      tt_storage_free(w->own.storage);
      w->own = make_on(w->device, TT_F32, DIMS(N));
      break;
    case 14: {
      tt_counters counters;
      tt_memory_stats stats;
      tt_get_counters(&counters);
      allow(tt_get_memory_stats(w->device, &stats));
      allow(tt_storage_resize(w->own.storage, random / 65536 % 2 ? 2 * N * sizeof(float) : N * sizeof(float)));
      break;
    }
    default:
      if (random / 65536 % 4 == 0) {
        allow(tt_empty_cache());
        allow(tt_clear_compile_cache());
      }
      allow(call_on(w, OP_UNIFORM_IN_PLACE, ARGS(arg_tensor(x), arg_double(0), arg_double(1), arg_none())));
  }
}

static void *work(void *argument) {
  worker *w = argument;
  CHECK_OK(tt_set_current_device(w->device));
  CHECK_INT(tt_current_device(), w->device);
  w->own = make_on(w->device, TT_F32, DIMS(N));
  for (int i = 0; i < STEPS; i++) {
    step(w);
  }
  drop(&w->own);
  return NULL;
}

static void run_threads(int delay_us, bool two_devices) {
  start();
  REQUIRE_OK(tt_event_create(&shared_event));
  CHECK_OK(tt_event_record(shared_event, 0));
  for (int device = 0; device < 2; device++) {
    for (int i = 0; i < SHARED; i++) {
      shared[device][i] = make_on(device, TT_F32, DIMS(N));
    }
  }
  fake.set("execute_delay_us", delay_us);
  fake.set("transfer_delay_us", delay_us / 2);
  static worker workers[THREADS];
  for (int i = 0; i < THREADS; i++) {
    workers[i] = (worker){.random = 0x1234567u * (uint64_t)(i + 1) + (uint64_t)delay_us + 88172645463325252u,
                          .device = two_devices ? i % 2 : 0};
    REQUIRE(pthread_create(&workers[i].thread, NULL, work, &workers[i]) == 0);
  }
  for (int i = 0; i < 200; i++) {
    fake.set("fail_execution", 20);
    fake.set("fail:PJRT_LoadedExecutable_Execute", 30);
    fake.set("fail:PJRT_Client_BufferFromHostBuffer", 40);
    fake.set("fail:PJRT_Client_Compile", 7);
    sleep_ms(2);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(workers[i].thread, NULL);
  }
  fake.set("reset", 0);
  tt_event_free(shared_event);
  for (int i = 0; i < SHARED; i++) {
    drop(&shared[0][i]);
    drop(&shared[1][i]);
  }
  tt_status_free(tt_synchronize(-1));
  eager_check_empty(&fake);
}

static void test_with_errors(void) { run_threads(0, false); }
static void test_with_errors_and_delays(void) { run_threads(100, true); }

static void test_fused_mode(void) {
  tt_set_eager_mode(TT_MODE_FUSED);
  run_threads(0, false);
  run_threads(100, true);
  tt_set_eager_mode(TT_MODE_STRICT);
}

static void test_debug_mode(void) {
  start();
  tt_set_eager_mode(TT_MODE_DEBUG);
  run_threads(0, true);
  tt_set_eager_mode(TT_MODE_STRICT);
}

// ---- exact accounts ----
enum { ADDS = 500 };
typedef struct adder {
  pthread_t thread;
  tensor own;
} adder;

static void *add_many(void *argument) {
  adder *one = argument;
  for (int i = 0; i < ADDS; i++) {
    tensor z;
    CHECK_OK(add_in_place(&one->own, &one->own));
    CHECK_OK(add_in_place(&shared[0][0], &one->own));
    CHECK_OK(add(&shared[0][0], &one->own, &z));
    drop(&z);
  }
  return NULL;
}

// Without faults every program runs once, one of each kind is compiled, and nothing fails.
static void test_counts(void) {
  start();
  shared[0][0] = make_filled(TT_F32, DIMS(N));
  adder adders[THREADS];
  fake.set("execute_delay_us", 10);
  int64_t before = compiles();
  for (int i = 0; i < THREADS; i++) {
    adders[i].own = make_filled(TT_F32, DIMS(N));
  }
  for (int i = 0; i < THREADS; i++) {
    REQUIRE(pthread_create(&adders[i].thread, NULL, add_many, &adders[i]) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(adders[i].thread, NULL);
    drop(&adders[i].own);
  }
  CHECK_OK(tt_synchronize(0));
  CHECK_INT(fake.get("executes"), 3 * ADDS * THREADS);
  CHECK(compiles() - before >= 3 && compiles() - before <= 3 * THREADS);  // threads may compile the same at once
  fake.set("execute_delay_us", 0);
  drop(&shared[0][0]);
  eager_check_empty(&fake);
}

// ---- first use from many threads ----
static void *init(void *argument) {
  (void)argument;
  tt_storage *storage;
  CHECK_OK(tt_storage_create(0, 64, &storage));
  CHECK(tt_is_initialized());
  tt_storage_free(storage);
  return NULL;
}

static void test_init_at_once(void) {
  fake = fake_open();
  setenv("TORCH_TPU_PJRT_PLUGIN", fake.path, 1);
  setenv("TORCH_TPU_CACHE", "0", 1);
  setenv("TORCH_TPU_CPU_DEVICES", "2", 1);
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) {
    REQUIRE(pthread_create(&threads[i], NULL, init, NULL) == 0);
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  CHECK_INT(fake.get("clients"), 1);
}

TEST_MAIN(TEST(test_init_at_once), TEST(test_counts), TEST(test_with_errors), TEST(test_with_errors_and_delays),
          TEST(test_debug_mode), TEST(test_fused_mode))
