// The fused engine's parts: see docs/design/fused.md. All of it is guarded by the engine lock, unless it says
// otherwise.
#ifndef TORCHTPU_EAGER_FUSED_H
#define TORCHTPU_EAGER_FUSED_H

#include "eager/key.h"

// ---- cuts: where a stretch ends by the content of the program ----
// Says at each step whether the step TT_CUT_WINDOW before it begins a new stretch.
bool tt_cuts_push(tt_cuts *cuts, uint64_t record_hash);

// ---- trie: what was recorded ----
typedef enum tt_variant_state {
  TT_VARIANT_NEW,
  TT_VARIANT_LOADING,  // looked for in the cache; compiled if it isn't there and the stretch was met again meanwhile
  TT_VARIANT_COMPILING,
  TT_VARIANT_READY,
  TT_VARIANT_FAILED
} tt_variant_state;
// A stretch's end with one set of live results.
typedef struct tt_variant {
  struct tt_variant *next;
  tt_variant_state state;
  int32_t seen;
  tt_record *program;  // owned, once ready
  int32_t live_count;
  int32_t live[];  // numbers of values, ascending
} tt_variant;

typedef struct tt_node {
  struct tt_node *parent, *next;  // next: in its bucket
  struct tt_node *last;           // of the steps after this one, that which was met last; NULL: none yet
  uint64_t hash;
  tt_record *record;  // owned reference
  int32_t depth;
  int32_t known;  // compiled variants here and below
  // Of a first step: programs requested here and below since one was launched, in how many turns; the last of these.
  int32_t unused_programs;
  uint64_t turn;
  char *label;         // of the step when it was first met; owned, NULL: none
  tt_cut_reason ends;  // why a stretch ends here whenever it is met, or TT_CUT_NONE
  tt_variant *variants;
  int32_t variant_count, source_count;
  int32_t sources[];
} tt_node;

void tt_trie_clear(tt_trie *trie);
tt_node *tt_trie_find(tt_trie *trie, tt_node *parent, const tt_step *step);
// Finds or adds; NULL when memory is gone.
tt_node *tt_trie_add(tt_trie *trie, tt_node *parent, const tt_step *step);
tt_variant *tt_node_find(const tt_node *node, const int32_t *live, int32_t count);
tt_variant *tt_node_add(tt_node *node, const int32_t *live, int32_t count);  // finds or adds; NULL at the limit
void tt_node_ready(tt_node *node, tt_variant *variant, tt_record *program);  // takes the program's reference

// ---- programs ----
// A stretch as the compiler gets it; owns references to the records.
typedef struct tt_stretch {
  int32_t count, live_count;
  tt_record **records;
  int32_t **sources;
  int32_t *live;
  char **labels;  // owned, each; NULL: none
  // Of a graph: the literals of each step, which become constants but for random ones; and for each live result the
  // value from outside whose memory it may take, counted among those, or -1.
  const tt_literal *const *literals;
  const int32_t *alias;
} tt_stretch;
TT_MUST_USE tt_status *tt_stretch_create(tt_node *end, const tt_variant *variant, tt_stretch **out_stretch);
void tt_stretch_free(tt_stretch *stretch);
// The text of its module with the steps' labels as the locations of their calls. NULL if there are none; the caller's.
char *tt_stretch_label_text(const tt_stretch *stretch, const char *text);
// The module that runs the stretch, and what its parameters and results are: parameters TT_PARAM_SLOT (index: the
// number of a value from outside), then TT_PARAM_NUMBER (index: how many numbers of the dtype); results
// TT_OUTPUT_RESULT (index: the number of the value) and TT_OUTPUT_ASSERT. Needs no lock. `lowered` is the caller's.
// for_cpu: as XLA:CPU needs it (overlap.c).
TT_MUST_USE tt_status *tt_stretch_lower(const tt_stretch *stretch, bool for_cpu, tt_lowered *lowered);
// Whether elements of the marked parameters of a module can reach a result of it within one fusion of XLA:CPU.
TT_MUST_USE tt_status *tt_text_reaches(const char *text, const bool *params, int32_t param_count, bool *out_reaches);

// ---- compiler: one thread for all devices ----
// Loads or compiles a variant in the background and makes it ready. Takes the stretch. No lock needed. One that was met
// once only is not compiled, and new again.
TT_MUST_USE tt_status *tt_compiler_request(tt_engine *engine, tt_node *node, tt_variant *variant, tt_stretch *stretch);
bool tt_compiler_looks(void);  // whether it is worth looking for what was met once
void tt_compiler_stop(void);   // waits for the module in the making

// ---- the priority of compiles (background.c); needs no lock ----
typedef struct tt_compile_scope {
  bool renamed;
  char name[16];
} tt_compile_scope;
// Around a compile that the calling thread waits for. `compiled`: it was one, and came to an end.
void tt_foreground_begin(tt_compile_scope *scope);
void tt_foreground_end(const tt_compile_scope *scope, bool compiled);
// Before something is loaded in the background; around what is compiled there. On that thread.
void tt_background_load(void);
void tt_background_begin(void);
void tt_background_end(void);
void tt_background_wait(bool begin);  // somebody begins, or ends, to wait for what is compiled in the background
void tt_background_look(void);        // now and then: hurries what takes too long

#endif  // TORCHTPU_EAGER_FUSED_H
