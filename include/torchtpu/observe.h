// What the library says about itself: where a program's time goes, and to the profiler.
//
// While nothing is asked for, each of its places costs one relaxed load.
#ifndef TORCHTPU_OBSERVE_H
#define TORCHTPU_OBSERVE_H

#include "torchtpu/torchtpu.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// ======== places in the program ========
// Writes where the calling thread is, as "file.py:12". Its result is a set of tt_place_flag; negative: not known.
// Called on the thread that made the call at hand, and never while a lock of the library is held.
typedef int32_t (*tt_locator)(char *out, size_t size);
typedef enum tt_place_flag {
  TT_PLACE_IN_MODULE = 1,  // inside of one pass through a network: the same line for each of its layers
} tt_place_flag;
void tt_set_locator(tt_locator locator);  // NULL: there are no places

// Says that a loop keeps compiling, where TORCH_TPU_RECOMPILE_WARNING is not 0. Called as a locator is. Without one, or
// on a thread that has no place, it goes to the log.
typedef void (*tt_warner)(const char *text);
void tt_set_warner(tt_warner warner);

// ======== explain ========
typedef enum tt_note_kind {
  TT_NOTE_CUT,       // a stretch ended; what: why
  TT_NOTE_STRETCH,   // operators that were launched as one program; amount: how many
  TT_NOTE_COMPILE,   // what: the operator; amount: ns
  TT_NOTE_SYNC,      // the host waited for the device; what: how
  TT_NOTE_FALLBACK,  // what: the operator
} tt_note_kind;
// Notes of one kind, one `what` and one place are one.
typedef struct tt_note {
  int32_t kind;
  const char *what, *place;  // place: "" if it has none
  int64_t count, amount;     // amount: the sum
} tt_note;
void tt_explain_start(void);  // forgets earlier notes
void tt_explain_stop(void);
// Note `index` of those taken; false past the last. Valid until the next start; call while stopped.
bool tt_explain_note_at(int32_t index, tt_note *out_note);
void tt_explain_fallback(const char *op);
void tt_explain_item(void);  // the thread's next read is of one element, for Python

// ======== profiler ========
typedef enum tt_activity_kind {
  TT_ACTIVITY_PROGRAM,    // ran on the device
  TT_ACTIVITY_TO_DEVICE,  // transfers
  TT_ACTIVITY_TO_HOST,
  TT_ACTIVITY_COMPILE,  // on the host
  TT_ACTIVITY_LAUNCH,   // the host's part of a program
} tt_activity_kind;
typedef struct tt_activity {
  int32_t kind, device;
  int64_t thread;            // of the host, the kernel's number; of a program: that launched it
  int64_t begin_ns, end_ns;  // since 1970
  int64_t nbytes;            // of a transfer
  uint64_t correlation;      // what the calling thread was in when it was enqueued; 0: nothing
  const char *name, *label;  // label: "" if there was none
} tt_activity;
// Drops what was recorded, and records from now on.
void tt_profile_start(void);
// Records no more. Programs that were launched are waited for, a second at most.
void tt_profile_stop(void);
// False past the last. Valid until the next start.
bool tt_profile_activity_at(size_t index, tt_activity *out_activity);
// What the calling thread is in: PyTorch's number of an operator.
void tt_profile_push(uint64_t correlation);
void tt_profile_pop(void);
// The calling thread's names for what it does (record_function): they go into the metadata of the modules that it
// compiles meanwhile, and to the activities. Never into a key: a name that changes makes nothing compile again.
void tt_label_push(const char *label);
void tt_label_pop(void);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif  // TORCHTPU_OBSERVE_H
