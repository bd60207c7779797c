// Shared by the random families: streams of numbers for loops, and checks of numbers among the arguments.
#ifndef TORCHTPU_ATEN_RANDOM_H
#define TORCHTPU_ATEN_RANDOM_H

#include "aten/internal.h"
#include "aten/pointwise.h"

// ---- random_stream.c ----
// A stream of its own for a loop: ui64[2], a key and a first counter, both drawn from the generator. An operator so
// takes the same few counters from the generator, however often its loop goes round.
tt_hlo tt_stream(tt_rule *r);
// The stream moved on: by `round` (0-d, an integer) times `each` counters and `skip` more. A draw of n elements takes
// n counters.
tt_hlo tt_stream_at(tt_hlo stream, tt_hlo round, int64_t each, int64_t skip);
// Uniform in the open interval (0, 1), so that logarithms are finite, and standard normals, of float32 or float64.
tt_hlo tt_stream_uniform(tt_hlo state, tt_dtype dtype, const int64_t *dims, int32_t rank);
tt_hlo tt_stream_normal(tt_hlo state, tt_dtype dtype, const int64_t *dims, int32_t rank);
// The same uniform numbers from the generator itself.
tt_hlo tt_open_uniform(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank);

// Draws again and again, until `draw` has accepted something for each element (or `rounds` are over: what the
// elements without a draw then hold is `start`). `draw` gets the round's state, from which it may take as
// as many numbers as there are elements, and sets `out_accepted` and returns a value of start's type.
typedef struct tt_rejection tt_rejection;
typedef tt_hlo (*tt_draw)(const tt_rejection *of, tt_hlo stream, tt_hlo round, tt_hlo *out_accepted);
struct tt_rejection {
  tt_draw draw;
  const void *context;
  tt_hlo stream, start, active;  // active: the elements that need a draw
  int32_t rounds;
};
tt_hlo tt_reject(const tt_rejection *of);

// ---- numbers among the arguments, for tt_rule_entry.structure and the rules that look at what it has put in the key
static inline double tt_arg_number(const tt_arg *arg, double if_none) {
  return arg && arg->tag == TT_ARG_NUMBER ? tt_number_double(&arg->u.number) : if_none;
}
static inline double tt_number_in_key(tt_rule *r, const char *name, double if_none) {
  return tt_arg_number(tt_rule_arg(r, name), if_none);
}

#endif  // TORCHTPU_ATEN_RANDOM_H
