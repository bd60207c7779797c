#include "base/trace.h"

#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/thread.h"

enum { RING_SIZE = 32768, DEEPEST = 64, NAME_SIZE = 64 };

struct span {
  int64_t start_ns, duration_ns;
  char name[NAME_SIZE];
};

// What one thread recorded. The list owns it; the thread uses it until it ends, then `ended` is set and the next start
// frees it. The lock is the thread's own, and contended only while a trace starts or stops.
struct recorder {
  struct recorder *next;
  tt_mutex lock;
  uint64_t epoch;  // the trace that the contents belong to
  bool ended;
  int64_t thread;
  char thread_name[16];
  int depth;       // of open spans; those deeper than DEEPEST are only counted
  uint64_t count;  // of spans recorded; the ring holds the last of them
  struct span *ring;
  struct span open[DEEPEST];
};

atomic_bool tt_trace_on;
static _Atomic uint64_t current_epoch;
static int64_t epoch_start_ns;  // under list_lock

static tt_mutex list_lock = TT_MUTEX_INIT;  // taken before a recorder's
static struct recorder *list;
static pthread_key_t key;
static tt_once key_once = TT_ONCE_INIT;
static _Thread_local struct recorder *mine;

static void thread_ended(void *data) {
  struct recorder *recorder = data;
  mine = NULL;
  tt_mutex_lock(&recorder->lock);
  recorder->ended = true;
  tt_mutex_unlock(&recorder->lock);
}

static void make_key(void) { pthread_key_create(&key, thread_ended); }

static struct recorder *get_recorder(void) {
  if (mine) {
    return mine;
  }
  struct recorder *recorder = calloc(1, sizeof *recorder);
  struct span *ring = calloc(RING_SIZE, sizeof *ring);
  if (!recorder || !ring) {
    free(recorder);
    free(ring);
    return NULL;
  }
  recorder->ring = ring;
  recorder->thread = tt_thread_id();
  pthread_getname_np(pthread_self(), recorder->thread_name, sizeof recorder->thread_name);
  tt_mutex_init(&recorder->lock);
  tt_once_run(&key_once, make_key);
  pthread_setspecific(key, recorder);
  tt_mutex_lock(&list_lock);
  recorder->next = list;
  list = recorder;
  tt_mutex_unlock(&list_lock);
  return mine = recorder;
}

// Under the recorder's lock: what an earlier trace left is dropped.
static void enter_epoch(struct recorder *recorder) {
  uint64_t epoch = atomic_load(&current_epoch);
  if (recorder->epoch != epoch) {
    recorder->epoch = epoch;
    recorder->depth = 0;
    recorder->count = 0;
  }
}

void tt_trace_begin_slow(const char *name) {
  struct recorder *recorder = get_recorder();
  if (!recorder) {
    return;
  }
  tt_mutex_lock(&recorder->lock);
  enter_epoch(recorder);
  if (recorder->depth < DEEPEST) {
    struct span *span = &recorder->open[recorder->depth];
    size_t length = strnlen(name, NAME_SIZE - 1);
    memcpy(span->name, name, length);
    span->name[length] = '\0';
    span->start_ns = tt_now_ns();
  }
  recorder->depth++;
  tt_mutex_unlock(&recorder->lock);
}

void tt_trace_end_slow(void) {
  struct recorder *recorder = mine;
  if (!recorder) {
    return;  // begun before the trace
  }
  int64_t now = tt_now_ns();
  tt_mutex_lock(&recorder->lock);
  enter_epoch(recorder);
  if (recorder->depth > 0 && --recorder->depth < DEEPEST) {
    struct span *span = &recorder->open[recorder->depth];
    span->duration_ns = now - span->start_ns;
    recorder->ring[recorder->count++ % RING_SIZE] = *span;
  }
  tt_mutex_unlock(&recorder->lock);
}

void tt_trace_start(void) {
  tt_mutex_lock(&list_lock);
  for (struct recorder **link = &list; *link;) {
    struct recorder *recorder = *link;
    tt_mutex_lock(&recorder->lock);
    bool ended = recorder->ended;
    tt_mutex_unlock(&recorder->lock);
    if (ended) {
      *link = recorder->next;
      tt_mutex_destroy(&recorder->lock);
      free(recorder->ring);
      free(recorder);
    } else {
      link = &recorder->next;
    }
  }
  epoch_start_ns = tt_now_ns();
  atomic_fetch_add(&current_epoch, 1);
  atomic_store(&tt_trace_on, true);
  tt_mutex_unlock(&list_lock);
}

// Length of the UTF-8 sequence at `text`, 0 where there is no valid one.
static int utf8_length(const unsigned char *text) {
  int length = text[0] < 0x80                      ? 1
               : text[0] >= 0xc2 && text[0] < 0xe0 ? 2
               : (text[0] & 0xf0) == 0xe0          ? 3
               : text[0] >= 0xf0 && text[0] < 0xf5 ? 4
                                                   : 0;
  for (int i = 1; i < length; i++) {
    if ((text[i] & 0xc0) != 0x80) {
      return 0;
    }
  }
  // Overlong forms, surrogates, and what lies beyond U+10FFFF.
  if ((text[0] == 0xe0 && text[1] < 0xa0) || (text[0] == 0xed && text[1] >= 0xa0) ||
      (text[0] == 0xf0 && text[1] < 0x90) || (text[0] == 0xf4 && text[1] >= 0x90)) {
    return 0;
  }
  return length;
}

static void write_string(FILE *file, const char *text) {
  fputc('"', file);
  for (const unsigned char *p = (const unsigned char *)text; *p;) {
    int length = utf8_length(p);
    if (length == 0) {
      fputs("\\ufffd", file);
      p++;
      continue;
    }
    if (*p == '"' || *p == '\\') {
      fprintf(file, "\\%c", *p);
    } else if (*p < 0x20 || *p == 0x7f) {
      fprintf(file, "\\u%04x", *p);
    } else {
      fwrite(p, 1, (size_t)length, file);
    }
    p += length;
  }
  fputc('"', file);
}

static void write_recorder(FILE *file, struct recorder *recorder, int process, const char **separator) {
  fprintf(file, "%s{\"name\":\"thread_name\",\"ph\":\"M\",\"pid\":%d,\"tid\":%lld,\"args\":{\"name\":", *separator,
          process, (long long)recorder->thread);
  write_string(file, recorder->thread_name);
  fputs("}}", file);
  *separator = ",\n";
  uint64_t first = recorder->count > RING_SIZE ? recorder->count - RING_SIZE : 0;
  for (uint64_t i = first; i < recorder->count; i++) {
    const struct span *span = &recorder->ring[i % RING_SIZE];
    fputs(",\n{\"name\":", file);
    write_string(file, span->name);
    int64_t start = span->start_ns - epoch_start_ns;
    // Microseconds, written from integers: the decimal point must not depend on the locale.
    fprintf(file, ",\"ph\":\"X\",\"ts\":%lld.%03d,\"dur\":%lld.%03d,\"pid\":%d,\"tid\":%lld}",
            (long long)(start / 1000), (int)(start % 1000), (long long)(span->duration_ns / 1000),
            (int)(span->duration_ns % 1000), process, (long long)recorder->thread);
  }
}

tt_status *tt_trace_stop(const char *path) {
  tt_mutex_lock(&list_lock);
  bool was_on = atomic_exchange(&tt_trace_on, false);
  FILE *file = path ? fopen(path, "w") : NULL;
  if (!file) {
    tt_status *status =
        path ? tt_error(TT_ERR_RUNTIME, "cannot write the trace \"%s\": %s", path, strerror(errno)) : NULL;
    tt_mutex_unlock(&list_lock);
    return status;
  }
  const char *separator = "";
  uint64_t lost = 0, epoch = atomic_load(&current_epoch);
  fputs("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n", file);
  for (struct recorder *recorder = was_on ? list : NULL; recorder; recorder = recorder->next) {
    tt_mutex_lock(&recorder->lock);
    if (recorder->epoch == epoch && recorder->count) {
      lost += recorder->count > RING_SIZE ? recorder->count - RING_SIZE : 0;
      write_recorder(file, recorder, (int)getpid(), &separator);
    }
    tt_mutex_unlock(&recorder->lock);
  }
  fprintf(file, "\n],\"otherData\":{\"lost_spans\":%llu}}\n", (unsigned long long)lost);
  bool failed = ferror(file) != 0;
  errno = 0;
  failed |= fclose(file) != 0;
  tt_mutex_unlock(&list_lock);
  return failed ? tt_error(TT_ERR_RUNTIME, "cannot write the trace \"%s\": %s", path,
                           errno ? strerror(errno) : "write error")
                : NULL;
}
