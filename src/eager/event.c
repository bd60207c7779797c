// Events: the time at which the last program enqueued before them completed.
#include <stdlib.h>

#include "base/thread.h"
#include "eager/explain.h"
#include "eager/internal.h"

struct tt_event {
  atomic_int refs;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  bool recorded;
  int32_t device;   // where it was recorded last,
  uint64_t place;   // and where in that queue
  int32_t pending;  // recordings that have not completed
  uint64_t time_ns;
};

tt_status *tt_event_create(tt_event **out_event) {
  tt_event *event = calloc(1, sizeof *event);
  *out_event = event;
  if (!event) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  atomic_init(&event->refs, 1);
  pthread_mutex_init(&event->mutex, NULL);
  pthread_cond_init(&event->changed, NULL);
  return NULL;
}

void tt_event_unref(tt_event *event) {
  if (event && atomic_fetch_sub(&event->refs, 1) == 1) {
    pthread_cond_destroy(&event->changed);
    pthread_mutex_destroy(&event->mutex);
    free(event);
  }
}

void tt_event_free(tt_event *event) {
  if (!tt_in_bad_fork()) {  // to destroy a condition that a thread of the parent waits on would wait for that thread
    tt_event_unref(event);
  }
}

void tt_event_complete_now(tt_event *event) {
  pthread_mutex_lock(&event->mutex);
  event->time_ns = (uint64_t)tt_now_ns();
  event->pending--;
  pthread_cond_broadcast(&event->changed);
  pthread_mutex_unlock(&event->mutex);
}

static void on_ready(void *context, tt_status *status) {
  tt_status_free(status);  // whoever reads the result, or synchronises, hears of it
  tt_event_complete_now(context);
  tt_event_unref(context);
}

void tt_event_arm(tt_event *event, tt_pjrt_event *after) {
  atomic_fetch_add(&event->refs, 1);
  tt_status *status = tt_pjrt_event_on_ready(tt_the_runtime.client, after, on_ready, event);
  if (status) {
    on_ready(event, status);
  }
}

tt_status *tt_event_record(tt_event *event, int32_t device) {
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  pthread_mutex_lock(&event->mutex);
  event->recorded = true;
  event->pending++;
  pthread_mutex_unlock(&event->mutex);
  atomic_fetch_add(&event->refs, 1);
  pthread_mutex_lock(&engine->lock);
  tt_tape_cut(engine, TT_CUT_EVENT);
  tt_task *task = tt_queue_reserve(engine);
  task->kind = TT_TASK_EVENT;
  task->event = event;
  uint64_t place = tt_queue_push(engine);
  pthread_mutex_lock(&event->mutex);
  event->device = engine->device;
  event->place = place;
  pthread_mutex_unlock(&event->mutex);
  pthread_mutex_unlock(&engine->lock);
  tt_explain_place();
  return NULL;
}

bool tt_event_query(tt_event *event) {
  pthread_mutex_lock(&event->mutex);
  bool complete = event->pending == 0;
  pthread_mutex_unlock(&event->mutex);
  return complete;
}

tt_status *tt_event_synchronize(tt_event *event) {
  tt_explain_note(TT_NOTE_SYNC, "wait for an event", 0);
  tt_explain_place();
  pthread_mutex_lock(&event->mutex);
  while (event->pending && !tt_in_bad_fork()) {  // in a forked child nothing completes it
    pthread_cond_wait(&event->changed, &event->mutex);
  }
  bool complete = !event->pending;
  pthread_mutex_unlock(&event->mutex);
  return complete ? NULL : tt_init();
}

typedef struct moment {
  bool recorded;
  int32_t device;
  uint64_t place, ns;
} moment;

static moment read_event(tt_event *event) {
  pthread_mutex_lock(&event->mutex);
  moment read = {event->recorded, event->device, event->place, event->time_ns};
  pthread_mutex_unlock(&event->mutex);
  return read;
}

tt_status *tt_event_elapsed(tt_event *start, tt_event *end, double *out_ms) {
  *out_ms = 0;
  if (!read_event(start).recorded || !read_event(end).recorded) {
    return tt_error(TT_ERR_RUNTIME, "both events must be recorded before calculating elapsed time");
  }
  TT_TRY(tt_event_synchronize(start));
  TT_TRY(tt_event_synchronize(end));
  moment from = read_event(start), to = read_event(end);
  // The plugin tells of completions by several threads: of two it may tell of the later one first.
  if (from.device == to.device && (from.place < to.place) != (from.ns < to.ns)) {
    to.ns = from.ns;
  }
  *out_ms = ((double)to.ns - (double)from.ns) / 1e6;
  return NULL;
}
