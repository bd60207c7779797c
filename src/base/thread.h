// Threads, locks and clocks: POSIX threads with the mistakes taken out (monotonic timeouts, stacks that are large
// enough for a compiler, signals left to the threads of the application).
#ifndef TORCHTPU_BASE_THREAD_H
#define TORCHTPU_BASE_THREAD_H

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// ---- mutex ----
// Not recursive. Statically: `static tt_mutex lock = TT_MUTEX_INIT;`.
typedef struct tt_mutex {
  pthread_mutex_t handle;
} tt_mutex;
#define TT_MUTEX_INIT {PTHREAD_MUTEX_INITIALIZER}
void tt_mutex_init(tt_mutex *mutex);
void tt_mutex_destroy(tt_mutex *mutex);
static inline void tt_mutex_lock(tt_mutex *mutex) { pthread_mutex_lock(&mutex->handle); }
static inline bool tt_mutex_try_lock(tt_mutex *mutex) { return pthread_mutex_trylock(&mutex->handle) == 0; }
static inline void tt_mutex_unlock(tt_mutex *mutex) { pthread_mutex_unlock(&mutex->handle); }

// ---- condition ----
// Has no static form: the clock of a wait with a timeout is chosen by tt_cond_init().
typedef struct tt_cond {
  pthread_cond_t handle;
} tt_cond;
void tt_cond_init(tt_cond *cond);
void tt_cond_destroy(tt_cond *cond);
static inline void tt_cond_signal(tt_cond *cond) { pthread_cond_signal(&cond->handle); }
static inline void tt_cond_broadcast(tt_cond *cond) { pthread_cond_broadcast(&cond->handle); }
// The mutex must be held. May return without a signal: the caller looks at what it waits for, in a loop.
static inline void tt_cond_wait(tt_cond *cond, tt_mutex *mutex) { pthread_cond_wait(&cond->handle, &mutex->handle); }
// As tt_cond_wait(), until the time `deadline_ns` of tt_now_ns(): false once it has passed.
bool tt_cond_wait_until(tt_cond *cond, tt_mutex *mutex, int64_t deadline_ns);

// ---- once ----
// `static tt_once once = TT_ONCE_INIT; tt_once_run(&once, function);`: runs it once per process; every caller returns
// after it has run.
typedef pthread_once_t tt_once;
#define TT_ONCE_INIT PTHREAD_ONCE_INIT
static inline void tt_once_run(tt_once *once, void (*function)(void)) { pthread_once(once, function); }

// ---- thread ----
typedef struct tt_thread tt_thread;
enum { TT_THREAD_STACK = 8 * 1024 * 1024 };
// Runs `function(argument)` on a new thread. `name` (15 bytes of it are used) shows in debuggers and traces. `stack` 0
// means TT_THREAD_STACK; less than 2 MiB is raised to it, because XLA's compiler overflows small stacks. The thread
// takes no signals. The result is the caller's: tt_thread_join() or tt_thread_detach().
TT_MUST_USE tt_status *tt_thread_create(const char *name, size_t stack, void (*function)(void *argument),
                                        void *argument, tt_thread **out_thread);
void tt_thread_join(tt_thread *thread);    // waits, then frees; NULL is allowed
void tt_thread_detach(tt_thread *thread);  // frees; the thread runs on
int64_t tt_thread_id(void);                // the kernel's number of the calling thread

// ---- time ----
int64_t tt_now_ns(void);  // monotonic, from an arbitrary origin
void tt_sleep_ns(int64_t duration_ns);

#endif  // TORCHTPU_BASE_THREAD_H
