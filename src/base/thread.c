#include "base/thread.h"

#include <errno.h>
#include <limits.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

// 1 MiB for the thread's work and as much for the thread-local storage of all libraries, which lies on the stack.
enum { SMALLEST_STACK = 2 * 1024 * 1024, SECOND_NS = 1000 * 1000 * 1000 };

struct tt_thread {
  pthread_t handle;
};

// What a thread takes with it; it frees it.
struct start {
  void (*function)(void *argument);
  void *argument;
  char name[16];
};

void tt_mutex_init(tt_mutex *mutex) { pthread_mutex_init(&mutex->handle, NULL); }
void tt_mutex_destroy(tt_mutex *mutex) { pthread_mutex_destroy(&mutex->handle); }

void tt_cond_init(tt_cond *cond) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  // The default clock jumps when the time of day is set.
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&cond->handle, &attributes);
  pthread_condattr_destroy(&attributes);
}

void tt_cond_destroy(tt_cond *cond) { pthread_cond_destroy(&cond->handle); }

bool tt_cond_wait_until(tt_cond *cond, tt_mutex *mutex, int64_t deadline_ns) {
  if (deadline_ns < 0) {
    deadline_ns = 0;
  }
  struct timespec deadline = {.tv_sec = deadline_ns / SECOND_NS, .tv_nsec = deadline_ns % SECOND_NS};
  return pthread_cond_timedwait(&cond->handle, &mutex->handle, &deadline) != ETIMEDOUT;
}

static void *run(void *data) {
  struct start start = *(struct start *)data;
  free(data);
  pthread_setname_np(pthread_self(), start.name);
  start.function(start.argument);
  return NULL;
}

tt_status *tt_thread_create(const char *name, size_t stack, void (*function)(void *argument), void *argument,
                            tt_thread **out_thread) {
  *out_thread = NULL;
  tt_thread *thread = malloc(sizeof *thread);
  struct start *start = malloc(sizeof *start);
  if (!thread || !start) {
    free(thread);
    free(start);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory for the thread \"%s\"", name);
  }
  *start = (struct start){.function = function, .argument = argument};
  snprintf(start->name, sizeof start->name, "%s", name);
  if (stack == 0) {
    stack = TT_THREAD_STACK;
  } else if (stack < SMALLEST_STACK) {
    stack = SMALLEST_STACK;
  }

  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setstacksize(&attributes, stack);
  // The new thread inherits the mask: a Ctrl-C belongs to the application's threads.
  sigset_t all, before;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int error = pthread_create(&thread->handle, &attributes, run, start);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (error) {
    free(thread);
    free(start);
    return tt_error(TT_ERR_RUNTIME, "cannot start the thread \"%s\" with a stack of %zu bytes: %s", name, stack,
                    strerror(error));
  }
  *out_thread = thread;
  return NULL;
}

void tt_thread_join(tt_thread *thread) {
  if (thread) {
    pthread_join(thread->handle, NULL);
    free(thread);
  }
}

void tt_thread_detach(tt_thread *thread) {
  if (thread) {
    pthread_detach(thread->handle);
    free(thread);
  }
}

int64_t tt_thread_id(void) { return (int64_t)syscall(SYS_gettid); }

int64_t tt_now_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (int64_t)now.tv_sec * SECOND_NS + now.tv_nsec;
}

void tt_sleep_ns(int64_t duration_ns) {
  struct timespec left = {.tv_sec = duration_ns / SECOND_NS, .tv_nsec = duration_ns % SECOND_NS};
  while (duration_ns > 0 && nanosleep(&left, &left) == -1 && errno == EINTR) {
  }
}
