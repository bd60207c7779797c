// How much of the processors' time a thread gets beside others.
#ifndef TORCHTPU_BASE_PRIORITY_H
#define TORCHTPU_BASE_PRIORITY_H

#include <stdbool.h>
#include <stdint.h>

typedef enum tt_priority {
  TT_PRIORITY_NORMAL,
  TT_PRIORITY_LOW,   // a tenth of what another thread gets that wants the processor, too
  TT_PRIORITY_IDLE,  // what others leave; next to nothing where they leave nothing
} tt_priority;

// Whether a thread whose priority was lowered can have it raised again: without the privilege it can't (CAP_SYS_NICE or
// RLIMIT_NICE). The first call tries it, on a thread of its own.
bool tt_priority_can_rise(void);
// `thread` is the kernel's number, of this process. That it fails is no reason to stop: the thread runs on as it did.
void tt_priority_set(int64_t thread, tt_priority priority);

// The threads of this process that have this name. Returns how many; at most `capacity` are written.
int32_t tt_threads_named(const char *name, int64_t *out_threads, int32_t capacity);

#endif  // TORCHTPU_BASE_PRIORITY_H
