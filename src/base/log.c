#include "base/log.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <unistd.h>

#include "base/map.h"
#include "base/thread.h"

enum { NOT_READ = -1 };

static const char *const level_names[] = {
    [TT_LOG_ERROR] = "error", [TT_LOG_WARN] = "warning", [TT_LOG_INFO] = "info", [TT_LOG_DEBUG] = "debug"};

static atomic_int current_level = NOT_READ;

static int level_from_environment(void) {
  const char *text = getenv("TORCH_TPU_LOG");
  if (!text || !*text) {
    return TT_LOG_WARN;
  }
  static const char *const names[] = {"error", "warn", "info", "debug"};
  for (int i = 0; i < (int)(sizeof names / sizeof *names); i++) {
    if (!strcasecmp(text, names[i]) || !strcasecmp(text, level_names[i])) {
      return i;
    }
  }
  tt_log_write(TT_LOG_WARN, "TORCH_TPU_LOG=%s is none of error, warn, info, debug; warn is used", text);
  return TT_LOG_WARN;
}

bool tt_log_enabled(tt_log_level level) {
  int current = atomic_load_explicit(&current_level, memory_order_relaxed);
  if (current == NOT_READ) {
    current = level_from_environment();
    // Whoever set a level meanwhile is right.
    int expected = NOT_READ;
    if (!atomic_compare_exchange_strong(&current_level, &expected, current)) {
      current = expected;
    }
  }
  return (int)level <= current;
}

void tt_log_set_level(tt_log_level level) { atomic_store(&current_level, (int)level); }

void tt_log_write(tt_log_level level, const char *format, ...) {
  // One write, so that the lines of threads and processes don't mix; what is longer than this is cut.
  char line[4096];
  const char *name = (unsigned)level < sizeof level_names / sizeof *level_names ? level_names[level] : "?";
  size_t length = (size_t)snprintf(line, sizeof line, "torch_tpu: %s: ", name);
  size_t room = sizeof line - length - 1;
  va_list args;
  va_start(args, format);
  int wanted = vsnprintf(line + length, room, format, args);
  va_end(args);
  if (wanted < 0) {
    return;
  }
  if ((size_t)wanted < room) {
    length += (size_t)wanted;
  } else {
    length += room - 1;
    memcpy(line + length - 3, "...", 3);
  }
  line[length++] = '\n';
  int saved = errno;
  for (size_t done = 0; done < length;) {
    ssize_t wrote = write(STDERR_FILENO, line + done, length - done);
    if (wrote < 0 && errno != EINTR) {
      break;
    }
    done += wrote > 0 ? (size_t)wrote : 0;
  }
  errno = saved;
}

bool tt_log_first(const char *key) {
  static tt_mutex lock = TT_MUTEX_INIT;
  static tt_map said;  // lives as long as the process
  static char present;
  tt_mutex_lock(&lock);
  void *old = NULL;
  bool first = tt_map_set(&said, key, strlen(key), &present, &old) && !old;
  tt_mutex_unlock(&lock);
  return first;
}
