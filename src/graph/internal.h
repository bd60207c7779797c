// The parts of a graph. Its lock guards the list of variants, and is taken under an engine lock or alone. A variant
// stays as it is until its graph is freed.
#ifndef TORCHTPU_GRAPH_INTERNAL_H
#define TORCHTPU_GRAPH_INTERNAL_H

#include "eager/capture.h"
#include "eager/fused.h"
#include "torchtpu/graph.h"

// Where a value comes from when the program runs.
typedef enum tt_source_kind {
  TT_SOURCE_NONE,      // undefined
  TT_SOURCE_SLOT,      // what slot `index` held before the call
  TT_SOURCE_CONSTANT,  // `constant`
  TT_SOURCE_OUTPUT     // result `index` of the program
} tt_source_kind;
typedef struct tt_source {
  tt_source_kind kind;
  int32_t index;
  tt_value *constant;  // owned, by reference and as an owner
} tt_source;

// A storage that has another value after the call.
typedef struct tt_final {
  int32_t slot;  // of an input; -1: a new one
  size_t nbytes;
  tt_source value;
} tt_final;

// A variant.
typedef struct tt_program {
  struct tt_program *next;
  tt_arena arena;  // of what it points to
  const uint64_t *key;
  int32_t key_words;
  tt_record *record;   // owned; NULL: nothing to compute
  bool *dies;          // of the record's parameters: is given to a result, and then gone
  tt_status *gone;     // what readers of such a one are told
  tt_source *sources;  // of the record's parameters; those that are vectors of numbers: constants, or none (random)
  tt_final *finals;
  int32_t final_count, new_count;
  tt_graph_result *results;
  int32_t result_count;
  uint64_t *random;  // how far behind the generator's offset each random operator begins
  int32_t random_count;
  uint64_t taken;  // counters of the generator that a call takes
} tt_program;

struct tt_graph {
  pthread_mutex_t lock;
  char *name;
  tt_arena arena;                   // of the options
  tt_pjrt_compile_options options;  // of its programs, beside everybody's
  tt_program *first;
};

// A copy of dims, of which there may be none. NULL when memory is gone.
static inline int64_t *tt_graph_copy_dims(tt_arena *arena, const int64_t *dims, int32_t count) {
  int64_t *copy = tt_arena_alloc(arena, sizeof *copy * (size_t)(count + 1));
  for (int32_t i = 0; copy && i < count; i++) {
    copy[i] = dims[i];
  }
  return copy;
}

// ---- call.c ----
// The inputs of one call, by distinct storage.
typedef struct tt_graph_state {
  tt_engine *engine;
  const tt_graph_call *call;
  tt_storage **slots;  // [slot_count]; NULL: a number from the host
  int32_t *first;      // the input that brought it
  int32_t slot_count;
  uint64_t *words;
  int32_t word_count, word_capacity;
  void *heap;
} tt_graph_state;
TT_MUST_USE tt_status *tt_graph_state_init(tt_graph_state *s, const tt_graph_call *call);
void tt_graph_state_free(tt_graph_state *s);
// Slots and key; engine lock held.
TT_MUST_USE tt_status *tt_graph_state_key(tt_graph_state *s);

// ---- program.c ----
// What a recording is about.
typedef struct tt_recording {
  tt_graph *graph;
  tt_capture *capture;
  uint64_t *key;  // owned
  int32_t key_words, slot_count, input_count;
  tt_storage **stand_ins;  // [slot_count]; owned array
  tt_value **initial;      // what they held; owned references
  int32_t *first;          // the input that brought each
  bool *scalar, *dying;    // it is a number from the host; nobody reads it after a call
  tt_tensor *inputs;       // geometry of the inputs, with stand-ins for storages
  tt_arena arena;
} tt_recording;
// Compiles; no lock held.
TT_MUST_USE tt_status *tt_program_create(tt_recording *recording, const tt_tensor *results, int32_t count,
                                         tt_program **out_program);
void tt_program_free(tt_program *program);

#endif  // TORCHTPU_GRAPH_INTERNAL_H
