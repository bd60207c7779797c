// Says when a loop compiles at every turn, where, and what it is that changes.
//
// The keys of an operator that were compiled at one place are put into chains: each key is its predecessor's but for
// some sizes or numbers. A chain of more than TORCH_TPU_RECOMPILE_WARNING keys (8; 0: never), in which one number has
// another value each time and whose earlier keys are not used again, is a loop, unless it is a first pass through a
// network whose layers differ so.
#ifndef TORCHTPU_EAGER_RECOMPILE_H
#define TORCHTPU_EAGER_RECOMPILE_H

#include "eager/fused.h"

extern atomic_int tt_recompile_suspects;  // that no thread has looked into yet
extern atomic_uint_fast64_t tt_recompile_turns;

// Where the calling thread compiled something.
typedef struct tt_compile_site {
  int32_t flags;  // tt_place_flag; negative: not known
  char text[512];
} tt_compile_site;
// No lock of the library is held.
void tt_recompile_locate(tt_compile_site *out_site);
// A record was compiled. Engine lock held.
void tt_recompile_note(tt_engine *engine, const tt_record *record, const tt_compile_site *site);
// A stretch with this first step is to be compiled. Engine lock held.
void tt_recompile_note_stretch(tt_node *first);
// The host read or wrote a tensor, or waited: what comes next is hardly the same pass through a network.
static inline void tt_recompile_turn(void) { atomic_fetch_add_explicit(&tt_recompile_turns, 1, memory_order_relaxed); }
void tt_recompile_forget(void);  // what was compiled so far
// Looks into what the calling thread was suspected of. No lock of the library is held.
void tt_recompile_warn_slow(void);
static inline void tt_recompile_warn(void) {
  if (__builtin_expect(atomic_load_explicit(&tt_recompile_suspects, memory_order_relaxed) != 0, 0)) {
    tt_recompile_warn_slow();
  }
}

#endif  // TORCHTPU_EAGER_RECOMPILE_H
