// What the files that make the module of a stretch share: compose.c, which makes it, and lists.c.
#ifndef TORCHTPU_EAGER_COMPOSE_H
#define TORCHTPU_EAGER_COMPOSE_H

#include <string.h>

#include "base/strbuf.h"
#include "eager/fused.h"

// A piece of text that is not terminated.
typedef struct tt_span {
  const char *text;
  size_t length;
} tt_span;

// A record's module as a function.
typedef struct tt_function {
  const tt_record *record;
  tt_span *parameters, *results;
  const char *body;  // behind the signature's "{"
  size_t body_length;
  struct tt_list_function *lists;  // what lists.c reads of it, once it has looked
  bool looked, called;
} tt_function;

typedef struct tt_value_source {
  int32_t step, output;  // -1: a value from outside, the output-th
  int32_t outside;       // the value from outside whose memory an in-place chain hands on to this one, or -1
  tt_span type;
  int32_t call, result;  // of a call of lists.c, or -1
} tt_value_source;

typedef struct tt_composer {
  const tt_stretch *stretch;
  tt_lowered *lowered;
  tt_arena *arena;  // of the composition
  tt_function *functions;
  int32_t *function_of;  // [steps]
  int32_t function_count;
  tt_value_source *values;  // by number
  int32_t value_count, outside_count;
  int32_t *outside;      // numbers
  bool for_cpu, *marks;  // marks: [values], of find_overlap
  int32_t call_count;    // of lists.c
  int32_t pack_counts[TT_DTYPE_COUNT], pack_at[TT_DTYPE_COUNT];
  tt_strbuf main, text;
} tt_composer;

static inline void tt_compose_span(tt_strbuf *out, tt_span s) { tt_strbuf_append(out, s.text, s.length); }
static inline bool tt_span_equal(tt_span a, tt_span b) {
  return a.length == b.length && !memcmp(a.text, b.text, a.length);
}
void tt_compose_value(tt_composer *c, tt_strbuf *out, int32_t number);
void tt_compose_pack_type(tt_strbuf *out, tt_dtype dtype, int64_t count);

// Steps from `first` on that are elementwise operators over lists of arrays, as calls of a host kernel: XLA:CPU would
// make three loops for each parameter of an optimizer, each with its cost. Says how many steps that were; 0: none.
TT_MUST_USE tt_status *tt_compose_lists(tt_composer *c, int32_t first, int32_t *out_count);

#endif  // TORCHTPU_EAGER_COMPOSE_H
