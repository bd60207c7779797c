// Notes of what happens, for tt_explain_*.
//
// A note is taken where it happens, which may be under the engine lock. It gets its place in the program when the
// thread leaves the library, where a locator may be called.
#ifndef TORCHTPU_EAGER_EXPLAIN_H
#define TORCHTPU_EAGER_EXPLAIN_H

#include <stdatomic.h>

#include "torchtpu/observe.h"

extern atomic_bool tt_explain_on;  // read by the functions below only

void tt_explain_note_slow(tt_note_kind kind, const char *what, int64_t amount);
void tt_explain_place_slow(void);

static inline bool tt_explain_enabled(void) { return atomic_load_explicit(&tt_explain_on, memory_order_relaxed); }
// `what` lives as long as the process.
static inline void tt_explain_note(tt_note_kind kind, const char *what, int64_t amount) {
  if (tt_explain_enabled()) {
    tt_explain_note_slow(kind, what, amount);
  }
}
// Gives the thread's notes their place. No lock of the library is held.
static inline void tt_explain_place(void) {
  if (tt_explain_enabled()) {
    tt_explain_place_slow();
  }
}
void tt_explain_cut_by_read(void);
void tt_explain_read(int64_t nbytes);  // ends what tt_explain_item() said

// A thread of the library's own: it has no place.
void tt_locate_never(void);
// Where the calling thread is; "" and -1 if it isn't known. No lock of the library is held.
int32_t tt_locate(char *out, size_t size);

#endif  // TORCHTPU_EAGER_EXPLAIN_H
