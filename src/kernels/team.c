// Pieces of work over the threads that are free.
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#include "base/thread.h"
#include "kernels/kernels.h"

enum { WORTH_HELP = 150 * 1000, MOST_HELPERS = 255, KEPT_SCRATCH = 16 << 20, LOOKS = 400 };

// ---- scratch memory ----
// Each thread keeps what it had, if that is not too large: else every call would pay for fresh pages.
static pthread_key_t scratch_key;
static tt_once scratch_once = TT_ONCE_INIT;
static bool has_key;
static void make_key(void) { has_key = !pthread_key_create(&scratch_key, free); }

typedef struct kept {
  size_t floats;
  char padding[64 - sizeof(size_t)];
} kept;

// The caller's until its next call; `*out_own` is to be freed. NULL: no memory.
static float *scratch_of_thread(size_t floats, void **out_own) {
  *out_own = NULL;
  tt_once_run(&scratch_once, make_key);
  kept *mine = has_key ? pthread_getspecific(scratch_key) : NULL;
  if (mine && mine->floats >= floats) {
    return (float *)(mine + 1);
  }
  const size_t bytes = (sizeof(kept) + floats * sizeof(float) + 63) & ~(size_t)63;
  kept *fresh = floats < SIZE_MAX / 8 ? aligned_alloc(64, bytes) : NULL;
  if (!fresh) {
    return NULL;
  }
  fresh->floats = floats;
  if (bytes > KEPT_SCRATCH || !has_key || pthread_setspecific(scratch_key, fresh)) {
    *out_own = fresh;
  } else {
    free(mine);
  }
  return (float *)(fresh + 1);
}

// ---- rounding ----
// Subnormal numbers count as zero, as in the code around the kernels; the same on all threads, whatever they had.
#if defined(__x86_64__)
static unsigned flush_subnormals(void) {
  const unsigned before = _mm_getcsr();
  _mm_setcsr(before | 0x8040);
  return before;
}
static void restore_rounding(unsigned before) { _mm_setcsr(before); }
#else
static unsigned flush_subnormals(void) { return 0; }
static void restore_rounding(unsigned before) { (void)before; }
#endif

// ---- a run ----
// Lives until the last helper has come, which may be after the run.
typedef struct job {
  atomic_int references;
  atomic_int_fast64_t next;  // the first piece that nobody has begun
  int64_t count;
  size_t scratch;
  void (*piece)(void *context, int64_t i, float *scratch);
  void *context;  // valid while there are pieces that aren't done
  pthread_mutex_t lock;
  pthread_cond_t finished;
  atomic_int_fast64_t done;  // by helpers; changes under the lock
} job;

static void unref(job *j) {
  if (atomic_fetch_sub_explicit(&j->references, 1, memory_order_acq_rel) == 1) {
    pthread_mutex_destroy(&j->lock);
    pthread_cond_destroy(&j->finished);
    free(j);
  }
}

// Begins pieces until there are none; returns how many it did. -1: no memory for any.
static int64_t work_on(job *j) {
  void *own;
  float *scratch = scratch_of_thread(j->scratch, &own);
  if (!scratch) {
    return -1;
  }
  const unsigned rounding = flush_subnormals();
  int64_t did = 0;
  for (;;) {
    const int64_t i = atomic_fetch_add_explicit(&j->next, 1, memory_order_relaxed);
    if (i >= j->count) {
      break;
    }
    j->piece(j->context, i, scratch);
    did++;
  }
  restore_rounding(rounding);
  free(own);
  return did;
}

static void help(void *data) {
  job *j = data;
  if (atomic_load_explicit(&j->next, memory_order_relaxed) < j->count) {
    const int64_t did = work_on(j);
    if (did > 0) {
      pthread_mutex_lock(&j->lock);
      atomic_fetch_add_explicit(&j->done, did, memory_order_release);
      pthread_cond_signal(&j->finished);
      pthread_mutex_unlock(&j->lock);
    }
  }
  unref(j);
}

static job *make_job(int64_t count, size_t scratch, void (*piece)(void *context, int64_t i, float *scratch),
                     void *context) {
  job *j = malloc(sizeof *j);
  if (j) {
    *j = (job){.count = count, .scratch = scratch, .piece = piece, .context = context};
    atomic_init(&j->references, 1);
    atomic_init(&j->next, 0);
    atomic_init(&j->done, 0);
    pthread_mutex_init(&j->lock, NULL);
    pthread_cond_init(&j->finished, NULL);
  }
  return j;
}

static void call_helpers(const tt_team *team, job *j) {
  int64_t helpers = team->threads - 1;
  helpers = helpers < j->count - 1 ? helpers : j->count - 1;
  helpers = helpers < MOST_HELPERS ? helpers : MOST_HELPERS;
  for (int64_t i = 0; i < helpers; i++) {
    atomic_fetch_add_explicit(&j->references, 1, memory_order_relaxed);
    if (!team->schedule(team->context, help, j)) {
      unref(j);
      return;
    }
  }
}

static void pause_briefly(void) {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Until helpers have done so many pieces. Those that are left take as long as one piece at most: looking a few times
// is cheaper than to sleep and be woken.
static void wait_for(job *j, int64_t pieces) {
  for (int32_t i = 0; i < LOOKS; i++) {
    if (atomic_load_explicit(&j->done, memory_order_acquire) >= pieces) {
      return;
    }
    pause_briefly();
  }
  pthread_mutex_lock(&j->lock);
  while (atomic_load_explicit(&j->done, memory_order_acquire) < pieces) {
    pthread_cond_wait(&j->finished, &j->lock);
  }
  pthread_mutex_unlock(&j->lock);
}

static bool run_alone(int64_t count, size_t size, void (*piece)(void *context, int64_t i, float *scratch),
                      void *context) {
  void *own;
  float *scratch = scratch_of_thread(size, &own);
  if (!scratch) {
    return false;
  }
  const unsigned rounding = flush_subnormals();
  for (int64_t i = 0; i < count; i++) {
    piece(context, i, scratch);
  }
  restore_rounding(rounding);
  free(own);
  return true;
}

bool tt_team_run(const tt_team *team, int64_t count, int64_t work, size_t scratch,
                 void (*piece)(void *context, int64_t i, float *scratch), void *context) {
  job *j =
      team && team->threads > 1 && count > 1 && work >= WORTH_HELP ? make_job(count, scratch, piece, context) : NULL;
  if (!j) {
    return run_alone(count, scratch, piece, context);
  }
  call_helpers(team, j);
  const int64_t did = work_on(j);
  if (did < 0) {  // what no helper has begun stays undone
    const int64_t begun = atomic_exchange_explicit(&j->next, count, memory_order_relaxed);
    wait_for(j, begun < count ? begun : count);
  } else {
    wait_for(j, count - did);
  }
  unref(j);
  return did >= 0;
}
