// One in-order queue a device, fed under the engine lock and emptied by a dispatch thread that makes the PJRT calls.
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/thread.h"
#include "base/trace.h"
#include "eager/explain.h"
#include "eager/internal.h"

// Not sched_yield(): a thread that yields is made to wait as if it had run its whole slice.
enum { LEAST_SPINS = 64, MOST_SPINS = 4000, SPINS_BEFORE_WAIT = 2000, SHORT_SLEEP_NS = 40000 };

static inline void relax(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#endif
}

// ---- enqueueing ----
tt_task *tt_queue_reserve(tt_engine *engine) {
  tt_queue *queue = &engine->queue;
  uint64_t pushed = atomic_load_explicit(&queue->pushed, memory_order_relaxed);
  if (pushed - atomic_load_explicit(&queue->launched, memory_order_acquire) >= TT_QUEUE_LENGTH) {
    tt_queue_wait(engine, pushed + 1 - TT_QUEUE_LENGTH / 2);
  }
  tt_task *task = &queue->tasks[pushed % TT_QUEUE_LENGTH];
  task->kind = TT_TASK_RUN;
  task->record = NULL;
  task->event = NULL;
  task->heap = NULL;
  task->origin = (tt_origin){0};
  task->input_count = task->output_count = 0;
  return task;
}

tt_status *tt_task_reserve_values(tt_task *task, int32_t inputs, int32_t outputs) {
  task->inputs = task->inline_inputs;
  task->outputs = task->inline_outputs;
  task->donate = task->inline_donate;
  if (inputs > TT_INLINE_VALUES || outputs > TT_INLINE_VALUES) {
    task->heap = calloc((size_t)(inputs + outputs), sizeof(tt_value *) + sizeof(bool));
    if (!task->heap) {
      return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
    }
    task->inputs = task->heap;
    task->outputs = task->inputs + inputs;
    task->donate = (bool *)(task->outputs + outputs);
  }
  return NULL;
}

uint64_t tt_queue_push(tt_engine *engine) {
  tt_queue *queue = &engine->queue;
  uint64_t sequence = atomic_load_explicit(&queue->pushed, memory_order_relaxed) + 1;
  if (tt_profile_enabled()) {
    queue->tasks[(sequence - 1) % TT_QUEUE_LENGTH].origin = tt_profile_origin();
  }
  atomic_store(&queue->pushed, sequence);  // sequentially consistent with the read of `sleeping`
  if (atomic_load(&queue->sleeping) && atomic_exchange(&queue->sleeping, 0)) {  // the next task need not wake it again
    pthread_mutex_lock(&queue->mutex);
    pthread_cond_signal(&queue->wake);
    pthread_mutex_unlock(&queue->mutex);
  }
  return sequence;
}

void tt_queue_push_run(tt_engine *engine, tt_task *task, tt_record *record) {
  task->record = record;
  atomic_fetch_add_explicit(&record->refs, 1, memory_order_relaxed);
  const uint64_t sequence = atomic_load_explicit(&engine->queue.pushed, memory_order_relaxed) + 1;
  for (int32_t i = 0; i < task->output_count; i++) {
    if (task->outputs[i]) {
      task->outputs[i]->sequence = sequence;
    }
  }
  tt_queue_push(engine);
}

void tt_queue_wait(tt_engine *engine, uint64_t sequence) {
  tt_queue *queue = &engine->queue;
  for (int i = 0; i < SPINS_BEFORE_WAIT; i++) {
    if (atomic_load_explicit(&queue->launched, memory_order_acquire) >= sequence) {
      return;
    }
    relax();
  }
  pthread_mutex_lock(&queue->mutex);
  atomic_fetch_add(&queue->waiters, 1);
  while (atomic_load(&queue->launched) < sequence && queue->running) {
    pthread_cond_wait(&queue->progress, &queue->mutex);
  }
  atomic_fetch_sub(&queue->waiters, 1);
  pthread_mutex_unlock(&queue->mutex);
}

void tt_queue_drain(tt_engine *engine) {
  pthread_mutex_lock(&engine->lock);
  tt_tape_cut(engine, TT_CUT_SYNC);
  uint64_t sequence = atomic_load(&engine->queue.pushed);
  // `launched` first: a program is marked busy before it counts as launched, so what is read here can't be from before.
  if (sequence != atomic_load(&engine->queue.launched) || atomic_load(&engine->queue.busy)) {
    tt_queue_reserve(engine)->kind = TT_TASK_FENCE;
    sequence = tt_queue_push(engine);
  }
  pthread_mutex_unlock(&engine->lock);
  tt_queue_wait(engine, sequence);
}

// ---- errors ----
void tt_queue_set_error(tt_queue *queue, tt_status *status) {
  if (!status) {
    return;
  }
  pthread_mutex_lock(&queue->mutex);
  if (queue->error) {
    tt_status_free(status);
  } else {
    queue->error = status;
  }
  pthread_mutex_unlock(&queue->mutex);
}

// Reads one flag; frees it. Waits for the program that makes it.
static tt_status *check_assert(tt_pending_assert *pending) {
  bool ok = true;
  tt_pjrt_client *client = tt_the_runtime.client;
  tt_status *status = tt_pjrt_buffer_to_host(client, pending->flag, &ok, sizeof ok);
  tt_pjrt_buffer_free(client, pending->flag);
  if (status) {
    tt_status_free(status);  // the program failed: that error is reported by itself
  } else if (!ok) {
    const tt_assert *what = &pending->record->lowered.asserts[pending->index];
    status = tt_error(what->code, "%s", what->message);
    tt_record_unref(pending->record);
    return status;
  }
  tt_record_unref(pending->record);
  return NULL;
}

static void add_assert(tt_queue *queue, tt_pjrt_buffer *flag, tt_record *record, int32_t index) {
  tt_pending_assert oldest = {0};
  pthread_mutex_lock(&queue->mutex);
  if (queue->assert_count == TT_MAX_PENDING_ASSERTS) {
    oldest = queue->asserts[0];
    memmove(queue->asserts, queue->asserts + 1, sizeof oldest * (TT_MAX_PENDING_ASSERTS - 1));
    queue->assert_count--;
  }
  atomic_fetch_add(&record->refs, 1);
  queue->asserts[queue->assert_count++] = (tt_pending_assert){flag, record, index};
  pthread_mutex_unlock(&queue->mutex);
  if (oldest.flag) {
    tt_queue_set_error(queue, check_assert(&oldest));
  }
}

tt_status *tt_queue_take_error(tt_engine *engine) {
  tt_queue *queue = &engine->queue;
  tt_pending_assert asserts[TT_MAX_PENDING_ASSERTS];
  pthread_mutex_lock(&queue->mutex);
  int32_t count = queue->assert_count;
  memcpy(asserts, queue->asserts, sizeof *asserts * (size_t)count);
  queue->assert_count = 0;
  pthread_mutex_unlock(&queue->mutex);
  for (int32_t i = 0; i < count; i++) {
    tt_queue_set_error(queue, check_assert(&asserts[i]));
  }
  pthread_mutex_lock(&queue->mutex);
  tt_status *status = queue->error;
  queue->error = NULL;
  pthread_mutex_unlock(&queue->mutex);
  return status;
}

// ---- the dispatch thread ----
// Forgets the oldest program in flight once it is complete. Its results carry its error to whoever reads them; the
// queue keeps it for the next synchronisation.
static void retire_oldest(tt_queue *queue) {
  uint32_t at = queue->inflight_head % TT_INFLIGHT;
  tt_status *status = tt_pjrt_event_await(tt_the_runtime.client, queue->inflight[at]);
  if (status) {
    status = tt_status_prefix(status, "%s", queue->inflight_records[at]->op->name);
    tt_queue_set_error(queue, status);
  }
  tt_pjrt_event_free(tt_the_runtime.client, queue->inflight[at]);
  tt_record_unref(queue->inflight_records[at]);
  queue->inflight_head++;
  queue->inflight_count--;
}

static void retire_complete(tt_queue *queue, bool wait) {
  while (queue->inflight_count) {
    bool ready = wait;
    if (!wait) {
      tt_pjrt_event *oldest = queue->inflight[queue->inflight_head % TT_INFLIGHT];
      tt_status *status = tt_pjrt_event_is_ready(tt_the_runtime.client, oldest, &ready);
      tt_status_free(status);
    }
    if (!ready) {
      return;
    }
    retire_oldest(queue);
  }
}

static void fail_task(tt_engine *engine, tt_task *task, tt_status *status, bool report) {
  for (int32_t i = 0; i < task->output_count; i++) {
    if (task->outputs[i]) {
      task->outputs[i]->error = tt_status_clone(status);
    }
  }
  if (report) {
    tt_queue_set_error(&engine->queue, status);
  } else {
    tt_status_free(status);
  }
}

static void store_results(tt_engine *engine, tt_task *task, tt_pjrt_buffer **results) {
  for (int32_t i = 0; i < task->output_count; i++) {
    if (task->outputs[i]) {
      task->outputs[i]->buffer = results[i];
    } else {
      add_assert(&engine->queue, results[i], task->record, task->record->lowered.outputs[i].index);
    }
  }
}

static void run_with(tt_engine *engine, tt_task *task, tt_pjrt_buffer **arguments, tt_pjrt_buffer **results) {
  tt_queue *queue = &engine->queue;
  for (int32_t i = 0; i < task->input_count; i++) {
    if (task->inputs[i]->error) {
      // The producer's own failure is what the user hears of.
      fail_task(engine, task, tt_status_clone(task->inputs[i]->error), false);
      return;
    }
    arguments[i] = task->inputs[i]->buffer;
  }
  tt_pjrt_event *done = NULL;
  int64_t begin = tt_profile_now();
  tt_trace_begin(task->record->op->name);
  tt_status *status = tt_pjrt_execute(tt_the_runtime.client, task->record->executable, engine->device, arguments,
                                      task->donate, task->input_count, results, &done);
  tt_trace_end();
  tt_count(&tt_the_runtime.counters.executions, 1);
  tt_dump_launch(task->record);
  if (begin && !status) {
    tt_profile_program(engine->device, task->record->title ? task->record->title : task->record->op->name,
                       &task->origin, begin, done);
  }
  if (status) {
    fail_task(engine, task, tt_status_prefix(status, "%s", task->record->op->name), true);
    return;
  }
  store_results(engine, task, results);
  if (queue->inflight_count == TT_INFLIGHT) {
    retire_oldest(queue);
  }
  uint32_t at = (queue->inflight_head + queue->inflight_count++) % TT_INFLIGHT;
  queue->inflight[at] = done;
  queue->inflight_records[at] = task->record;
  task->record = NULL;  // its reference moved
}

static void run_task(tt_engine *engine, tt_task *task) {
  enum { INLINE = 64 };
  tt_pjrt_buffer *inline_arguments[INLINE], *inline_results[INLINE];
  int32_t total = task->input_count + task->output_count;
  if (task->input_count <= INLINE && task->output_count <= INLINE) {
    run_with(engine, task, inline_arguments, inline_results);
    return;
  }
  tt_pjrt_buffer **buffers = calloc((size_t)total, sizeof *buffers);
  if (!buffers) {
    fail_task(engine, task, tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"), true);
    return;
  }
  run_with(engine, task, buffers, buffers + task->input_count);
  free(buffers);
}

void tt_task_release(tt_task *task) {
  for (int32_t i = 0; i < task->input_count; i++) {
    tt_value_unref(task->inputs[i]);
  }
  for (int32_t i = 0; i < task->output_count; i++) {
    tt_value_unref(task->outputs[i]);
  }
  free(task->heap);
  if (task->record) {
    tt_record_unref(task->record);
  }
}

static void handle(tt_engine *engine, tt_task *task) {
  tt_queue *queue = &engine->queue;
  switch (task->kind) {
    case TT_TASK_RUN:
      atomic_store_explicit(&queue->busy, true, memory_order_relaxed);
      queue->last_run = atomic_load_explicit(&queue->launched, memory_order_relaxed) + 1;
      run_task(engine, task);
      tt_task_release(task);
      break;
    case TT_TASK_EVENT:
      // Whoever has read a result knows that its program is complete; the plugin may take its time to say so.
      if (queue->inflight_count && atomic_load(&queue->read) < queue->last_run) {
        tt_event_arm(task->event, queue->inflight[(queue->inflight_head + queue->inflight_count - 1) % TT_INFLIGHT]);
      } else {
        tt_event_complete_now(task->event);
      }
      tt_event_unref(task->event);
      break;
    case TT_TASK_FENCE:
    case TT_TASK_STOP:
      retire_complete(queue, true);
      atomic_store_explicit(&queue->busy, false, memory_order_relaxed);
      break;
  }
}

// Sleeps until there is a task; looks now and then at what is still in flight, so that its memory and its errors
// don't wait for the next call.
static void sleep_until(tt_queue *queue, uint64_t next) {
  pthread_mutex_lock(&queue->mutex);
  for (;;) {
    atomic_store(&queue->sleeping, 1);  // each time: who pushed a task that was found without it takes the mark as well
    if (atomic_load(&queue->pushed) >= next) {
      break;
    }
    if (!queue->inflight_count) {
      atomic_store_explicit(&queue->busy, false, memory_order_relaxed);
      pthread_cond_wait(&queue->wake, &queue->mutex);
      continue;
    }
    struct timespec until;
    clock_gettime(CLOCK_REALTIME, &until);
    until.tv_nsec += 1000000;
    until.tv_sec += until.tv_nsec / 1000000000;
    until.tv_nsec %= 1000000000;
    if (pthread_cond_timedwait(&queue->wake, &queue->mutex, &until) == ETIMEDOUT) {
      pthread_mutex_unlock(&queue->mutex);
      retire_complete(queue, false);
      pthread_mutex_lock(&queue->mutex);
    }
  }
  atomic_store(&queue->sleeping, 0);
  pthread_mutex_unlock(&queue->mutex);
}

static void adapt_spins(tt_queue *queue, bool worth_it) {
  const int spins = worth_it ? 2 * queue->spins : queue->spins / 2;
  queue->spins = spins < LEAST_SPINS ? LEAST_SPINS : spins > MOST_SPINS ? MOST_SPINS : spins;
}

// Waits a while awake, the longer the more often that was or would have been worth it: tasks of strict come close
// together, programs of fused don't. A short sleep counts as well as a short wait: who has to wake this thread for each
// task takes too long for another one to come while it is awake.
static void wait_for_task(tt_engine *engine, uint64_t next) {
  tt_queue *queue = &engine->queue;
  for (int i = 0; i < queue->spins; i++) {
    if (atomic_load_explicit(&queue->pushed, memory_order_acquire) >= next) {
      adapt_spins(queue, true);
      return;
    }
    relax();
  }
  int64_t begin = tt_now_ns();
  tt_tape_poke(engine);
  retire_complete(queue, false);
  sleep_until(queue, next);
  // Where others keep the processors busy it wakes late, and finds more than one.
  adapt_spins(
      queue, tt_now_ns() - begin < SHORT_SLEEP_NS || atomic_load_explicit(&queue->pushed, memory_order_relaxed) > next);
}

static void *dispatch(void *argument) {
  tt_engine *engine = argument;
  tt_queue *queue = &engine->queue;
  bool stopping = false;
  tt_locate_never();
  while (!stopping) {
    uint64_t next = atomic_load_explicit(&queue->launched, memory_order_relaxed) + 1;
    wait_for_task(engine, next);
    tt_task *task = &queue->tasks[(next - 1) % TT_QUEUE_LENGTH];
    stopping = task->kind == TT_TASK_STOP;
    handle(engine, task);
    atomic_store(&queue->launched, next);
    if (atomic_load(&queue->waiters) || stopping) {
      pthread_mutex_lock(&queue->mutex);
      if (stopping) {
        queue->running = false;
      }
      pthread_cond_broadcast(&queue->progress);
      pthread_mutex_unlock(&queue->mutex);
    }
  }
  return NULL;
}

tt_status *tt_queue_start(tt_engine *engine) {
  tt_queue *queue = &engine->queue;
  pthread_mutex_init(&queue->mutex, NULL);
  pthread_cond_init(&queue->wake, NULL);
  pthread_cond_init(&queue->progress, NULL);
  queue->running = true;
  queue->spins = MOST_SPINS;
  int error = pthread_create(&queue->thread, NULL, dispatch, engine);
  if (error) {
    queue->running = false;
    return tt_error(TT_ERR_RUNTIME, "can't start the dispatch thread: %s", strerror(error));
  }
  return NULL;
}

void tt_queue_stop(tt_engine *engine) {
  pthread_mutex_lock(&engine->lock);
  tt_tape_cut(engine, TT_CUT_SYNC);
  pthread_mutex_lock(&engine->queue.mutex);
  bool running = engine->queue.running;
  pthread_mutex_unlock(&engine->queue.mutex);
  if (running) {
    tt_queue_reserve(engine)->kind = TT_TASK_STOP;
    tt_queue_push(engine);
  }
  pthread_mutex_unlock(&engine->lock);
  if (running) {
    pthread_join(engine->queue.thread, NULL);
  }
}
