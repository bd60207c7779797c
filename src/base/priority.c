#include "base/priority.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include "base/thread.h"

enum { LOW_NICE = 10, LONG_SLICE_NS = 100 * 1000 * 1000 };

static bool schedule(int64_t thread, int policy) {
  return sched_setscheduler((pid_t)thread, policy, &(struct sched_param){.sched_priority = 0}) == 0;
}

// ---- raising ----
static void try_to_rise(void *out_can) {
  int64_t self = tt_thread_id();
  *(bool *)out_can = schedule(self, SCHED_IDLE) && schedule(self, SCHED_OTHER) &&
                     !setpriority(PRIO_PROCESS, (id_t)self, LOW_NICE) && !setpriority(PRIO_PROCESS, (id_t)self, 0);
}

static bool can_rise;
static void find_out(void) {
  tt_thread *thread;
  tt_status *status = tt_thread_create("tpu-priority", 0, try_to_rise, &can_rise, &thread);
  if (status) {
    tt_status_free(status);
  } else {
    tt_thread_join(thread);
  }
}

bool tt_priority_can_rise(void) {
  static tt_once once = TT_ONCE_INIT;
  tt_once_run(&once, find_out);
  return can_rise;
}

void tt_priority_set(int64_t thread, tt_priority priority) {
  // On Linux both belong to the thread. The process' own value is what its first thread has.
  int nice = getpriority(PRIO_PROCESS, (id_t)getpid());
  if (priority == TT_PRIORITY_IDLE) {
    schedule(thread, SCHED_IDLE);
    return;
  }
  if (sched_getscheduler((pid_t)thread) == SCHED_IDLE) {
    schedule(thread, SCHED_OTHER);
  }
  nice += priority == TT_PRIORITY_LOW ? LOW_NICE : 0;
  setpriority(PRIO_PROCESS, (id_t)thread, nice < 19 ? nice : 19);
}

// ---- yielding ----
// The kernel's struct sched_attr: glibc has neither it nor the call before 2.41.
typedef struct attributes {
  uint32_t size, policy;
  uint64_t flags;
  int32_t nice;
  uint32_t priority;
  uint64_t runtime, deadline, period;
} attributes;

// The time that a thread of normal priority asks for at once (Linux 6.12): one that asks for less, as all do by
// default, takes the processor from it as soon as it wakes. 0: the default. Older kernels ignore it.
static void set_slice(int64_t thread, uint64_t slice_ns) {
  attributes now = {.size = sizeof now};
  if (!syscall(SYS_sched_getattr, (pid_t)thread, &now, sizeof now, 0) && now.policy == SCHED_OTHER) {
    now.flags = 0;
    now.runtime = slice_ns;
    syscall(SYS_sched_setattr, (pid_t)thread, &now, 0);
  }
}

void tt_priority_yield(const int64_t *threads, int32_t count, bool yielding) {
  cpu_set_t all, few;
  CPU_ZERO(&few);
  if (sched_getaffinity(getpid(), sizeof all, &all)) {
    return;  // more processors than the set has bits: a few threads don't matter
  }
  int wanted = (CPU_COUNT(&all) + 3) / 4;
  for (int i = CPU_SETSIZE - 1; i >= 0 && wanted; i--) {
    if (CPU_ISSET(i, &all)) {
      CPU_SET(i, &few);
      wanted--;
    }
  }
  for (int32_t i = 0; i < count; i++) {
    set_slice(threads[i], yielding ? LONG_SLICE_NS : 0);
    sched_setaffinity((pid_t)threads[i], sizeof all, yielding ? &few : &all);
  }
}

// ---- names ----
static bool has_name(const char *thread, const char *name) {
  char path[64], found[32] = "";
  snprintf(path, sizeof path, "/proc/self/task/%.20s/comm", thread);
  FILE *file = fopen(path, "re");
  if (file) {
    if (!fgets(found, sizeof found, file)) {
      found[0] = '\0';
    }
    fclose(file);
  }
  found[strcspn(found, "\n")] = '\0';
  return !strcmp(found, name);
}

int32_t tt_threads_named(const char *name, int64_t *out_threads, int32_t capacity) {
  int32_t count = 0;
  DIR *tasks = opendir("/proc/self/task");
  for (struct dirent *item; tasks && (item = readdir(tasks));) {
    if (item->d_name[0] != '.' && has_name(item->d_name, name)) {
      if (count < capacity) {
        out_threads[count] = strtoll(item->d_name, NULL, 10);
      }
      count++;
    }
  }
  if (tasks) {
    closedir(tasks);
  }
  return count;
}
