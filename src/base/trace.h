// Trace spans: what each thread did when, as Chrome's trace JSON (chrome://tracing, ui.perfetto.dev).
//
//   tt_trace_begin("compile");
//   ...
//   tt_trace_end();
//
// Spans of a thread nest. While tracing is off, a call costs one relaxed load. A thread keeps its last 32,768 spans;
// how many were lost stands in the file.
#ifndef TORCHTPU_BASE_TRACE_H
#define TORCHTPU_BASE_TRACE_H

#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "base/status.h"

extern atomic_bool tt_trace_on;  // read by the functions below only

void tt_trace_begin_slow(const char *name);
void tt_trace_end_slow(void);

// `name` is copied (63 bytes of it are kept).
static inline void tt_trace_begin(const char *name) {
  if (atomic_load_explicit(&tt_trace_on, memory_order_relaxed)) {
    tt_trace_begin_slow(name);
  }
}
static inline void tt_trace_end(void) {
  if (atomic_load_explicit(&tt_trace_on, memory_order_relaxed)) {
    tt_trace_end_slow();
  }
}
// For names that cost something to make.
static inline bool tt_trace_enabled(void) { return atomic_load_explicit(&tt_trace_on, memory_order_relaxed); }

// Forgets what was recorded and records from now on. Spans that are open already don't appear.
void tt_trace_start(void);
// Stops recording and writes the spans that ended meanwhile; where `path` is NULL they are dropped. An error
// (TT_ERR_RUNTIME) names the path; tracing is off even so. Without a tt_trace_start() the file has no spans.
TT_MUST_USE tt_status *tt_trace_stop(const char *path);

#endif  // TORCHTPU_BASE_TRACE_H
