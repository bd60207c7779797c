// What the profiler records: programs, compiles and transfers, with times of the wall clock.
#ifndef TORCHTPU_EAGER_PROFILE_H
#define TORCHTPU_EAGER_PROFILE_H

#include <stdatomic.h>

#include "pjrt/pjrt.h"
#include "torchtpu/observe.h"

extern atomic_bool tt_profile_on;  // read by the functions below only

// Where a task comes from.
typedef struct tt_origin {
  uint64_t correlation;
  const char *label;  // the profile's; NULL: none
  int64_t thread;
  uint64_t epoch;  // of the profile
} tt_origin;

static inline bool tt_profile_enabled(void) { return atomic_load_explicit(&tt_profile_on, memory_order_relaxed); }
tt_origin tt_profile_origin(void);  // of the calling thread
int64_t tt_profile_time(void);
void tt_profile_add_slow(tt_activity_kind kind, const char *name, int32_t device, int64_t begin_ns, int64_t nbytes);
// A program that was launched at `begin_ns` and is complete with the event.
void tt_profile_program(int32_t device, const char *name, const tt_origin *origin, int64_t begin_ns,
                        tt_pjrt_event *done);

// 0 while nothing is recorded.
static inline int64_t tt_profile_now(void) { return tt_profile_enabled() ? tt_profile_time() : 0; }
// What the calling thread began at `begin_ns` (0: nothing), and has done now.
static inline void tt_profile_add(tt_activity_kind kind, const char *name, int32_t device, int64_t begin_ns,
                                  int64_t nbytes) {
  if (begin_ns) {
    tt_profile_add_slow(kind, name, device, begin_ns, nbytes);
  }
}

#endif  // TORCHTPU_EAGER_PROFILE_H
