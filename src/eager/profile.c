// Activities for the profiler, in one list under one lock: only while somebody profiles.
#include "eager/profile.h"

#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "base/map.h"
#include "base/thread.h"
#include "eager/internal.h"
#include "eager/label.h"

enum { CORRELATION_DEPTH = 64 };

atomic_bool tt_profile_on;

static tt_mutex lock = TT_MUTEX_INIT;
static _Atomic uint64_t epoch;  // written under the lock
static tt_activity *activities;
static size_t activity_count, activity_capacity;
static tt_map names;                     // text to its copy, for the activities
static int64_t free_at[TT_MAX_DEVICES];  // when the device was done with its last program
static atomic_int running;               // programs that are not complete

static _Thread_local struct {
  uint64_t epoch;
  int32_t depth;
  uint64_t ids[CORRELATION_DEPTH];
} correlations;
int64_t tt_profile_time(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (int64_t)now.tv_sec * 1000000000 + now.tv_nsec;
}

// ---- where a thread is ----
// What a profile that ended in the middle of an operator left is dropped.
static void enter_epoch(void) {
  uint64_t now = atomic_load_explicit(&epoch, memory_order_relaxed);
  if (correlations.epoch != now) {
    correlations.epoch = now;
    correlations.depth = 0;
  }
}

void tt_profile_push(uint64_t correlation) {
  enter_epoch();
  if (correlations.depth < CORRELATION_DEPTH) {
    correlations.ids[correlations.depth] = correlation;
  }
  correlations.depth++;
}

void tt_profile_pop(void) {
  enter_epoch();
  correlations.depth -= correlations.depth > 0;
}

static uint64_t current_correlation(void) {
  enter_epoch();
  int32_t depth = correlations.depth < CORRELATION_DEPTH ? correlations.depth : CORRELATION_DEPTH;
  return depth ? correlations.ids[depth - 1] : 0;
}

// ---- the list ----
// Lock held. A copy that lives until the next start; "" when memory is gone.
static const char *intern(const char *text) {
  size_t size = strlen(text) + 1;
  char *known = tt_map_get(&names, text, size);
  if (!known) {
    known = strdup(text);
    if (known && !tt_map_set(&names, text, size, known, NULL)) {
      free(known);
      known = NULL;
    }
  }
  return known ? known : "";
}

// Lock held. Without memory it is lost, no more.
static void append(const tt_activity *activity) {
  if (activity_count == activity_capacity) {
    size_t capacity = activity_capacity ? 2 * activity_capacity : 1024;
    tt_activity *grown = realloc(activities, sizeof *grown * capacity);
    if (!grown) {
      return;
    }
    activities = grown;
    activity_capacity = capacity;
  }
  activities[activity_count++] = *activity;
}

tt_origin tt_profile_origin(void) {
  tt_origin origin = {.correlation = current_correlation(), .thread = tt_thread_id()};
  tt_strbuf text = {0};
  tt_label_write(&text);
  tt_mutex_lock(&lock);
  origin.epoch = epoch;
  origin.label = text.data && !text.failed ? intern(text.data) : NULL;
  tt_mutex_unlock(&lock);
  tt_strbuf_free(&text);
  return origin;
}

void tt_profile_add_slow(tt_activity_kind kind, const char *name, int32_t device, int64_t begin_ns, int64_t nbytes) {
  tt_origin origin = tt_profile_origin();
  tt_activity activity = {.kind = kind,
                          .device = device,
                          .thread = origin.thread,
                          .begin_ns = begin_ns,
                          .end_ns = tt_profile_time(),
                          .nbytes = nbytes,
                          .correlation = origin.correlation};
  tt_mutex_lock(&lock);
  if (origin.epoch == epoch) {
    activity.name = intern(name);
    activity.label = origin.label ? origin.label : "";
    append(&activity);
  }
  tt_mutex_unlock(&lock);
}

// ---- programs ----
typedef struct program {
  tt_activity activity;
  uint64_t epoch;
} program;

static void on_done(void *context, tt_status *status) {
  program *p = context;
  tt_status_free(status);  // whoever reads the results hears of it
  p->activity.end_ns = tt_profile_time();
  tt_mutex_lock(&lock);
  if (p->epoch == epoch) {
    // The device runs one after the other: it began when the one before was done.
    int64_t *device_free = &free_at[p->activity.device];
    p->activity.begin_ns = p->activity.begin_ns > *device_free ? p->activity.begin_ns : *device_free;
    p->activity.end_ns = p->activity.end_ns > p->activity.begin_ns ? p->activity.end_ns : p->activity.begin_ns;
    *device_free = p->activity.end_ns;
    append(&p->activity);
  }
  tt_mutex_unlock(&lock);
  free(p);
  atomic_fetch_sub(&running, 1);
}

void tt_profile_program(int32_t device, const char *name, const tt_origin *origin, int64_t begin_ns,
                        tt_pjrt_event *done) {
  program *p = malloc(sizeof *p);
  if (!p) {
    return;
  }
  int64_t now = tt_profile_time();
  tt_mutex_lock(&lock);
  bool known = origin->epoch == epoch;  // else it was enqueued before the profile
  *p = (program){.activity = {.kind = TT_ACTIVITY_LAUNCH,
                              .device = device,
                              .thread = tt_thread_id(),
                              .begin_ns = begin_ns,
                              .end_ns = now,
                              .correlation = known ? origin->correlation : 0,
                              .name = intern(name),
                              .label = known && origin->label ? origin->label : ""},
                 .epoch = epoch};
  append(&p->activity);
  p->activity.kind = TT_ACTIVITY_PROGRAM;
  p->activity.thread = known ? origin->thread : p->activity.thread;
  tt_mutex_unlock(&lock);
  atomic_fetch_add(&running, 1);
  tt_status *status = tt_pjrt_event_on_ready(tt_the_runtime.client, done, on_done, p);
  if (status) {
    on_done(p, status);
  }
}

// ---- the whole ----
void tt_profile_start(void) {
  tt_mutex_lock(&lock);
  epoch++;
  activity_count = 0;
  tt_map_free(&names, free);
  memset(free_at, 0, sizeof free_at);
  tt_mutex_unlock(&lock);
  atomic_store(&tt_profile_on, true);
}

void tt_profile_stop(void) {
  atomic_store(&tt_profile_on, false);
  for (int i = 0; i < 1000 && atomic_load(&running); i++) {
    tt_sleep_ns(1000000);
  }
}

bool tt_profile_activity_at(size_t index, tt_activity *out_activity) {
  tt_mutex_lock(&lock);
  bool found = index < activity_count;
  if (found) {
    *out_activity = activities[index];
  }
  tt_mutex_unlock(&lock);
  return found;
}
