#include "base/priority.h"

#include <dirent.h>
#include <pthread.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <unistd.h>

#include "base/thread.h"

enum { LOW_NICE = 10 };

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
