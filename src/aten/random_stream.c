// Streams of random numbers for loops, and the loop that draws until every element has been accepted.
#include <math.h>

#include "aten/dims.h"
#include "aten/random.h"

tt_hlo tt_stream(tt_rule *r) {
  const int64_t two = 2;
  return tt_random_bits(r, TT_U64, &two, 1);
}

tt_hlo tt_stream_at(tt_hlo stream, tt_hlo round, int64_t each, int64_t skip) {
  if (!stream) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(stream);
  const int64_t by[] = {0, each}, more[] = {0, skip};
  tt_hlo state = tt_hlo_binary(TT_ADD, stream, tt_hlo_const_ints(b, TT_U64, more, 2));
  if (!round) {
    return state;
  }
  tt_hlo rounds = tt_hlo_broadcast_to(tt_hlo_convert(round, TT_U64), stream->dims, 1);
  return v_add(state, v_mul(rounds, tt_hlo_const_ints(b, TT_U64, by, 2)));
}

// Odd multiples of 2^-24 (float64: 2^-53).
static tt_hlo open_uniform(tt_hlo bits) {
  if (!bits) {
    return NULL;
  }
  bool wide = bits->dtype == TT_U64;
  bits = tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, bits, v_const(bits, wide ? 12 : 9));
  tt_hlo k = tt_hlo_convert(bits, wide ? TT_S64 : TT_S32);
  tt_hlo u = v_mulc(tt_hlo_convert(k, wide ? TT_F64 : TT_F32), wide ? 0x1p-52 : 0x1p-23);
  return v_addc(u, wide ? 0x1p-53 : 0x1p-24);
}

tt_hlo tt_open_uniform(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  return open_uniform(tt_random_bits(r, dtype == TT_F64 ? TT_U64 : TT_U32, dims, rank));
}

tt_hlo tt_stream_uniform(tt_hlo state, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  return open_uniform(tt_hlo_random_bits(state, dtype == TT_F64 ? TT_U64 : TT_U32, dims, rank));
}

tt_hlo tt_stream_normal(tt_hlo state, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  tt_hlo u = tt_stream_uniform(state, dtype, dims, rank);
  return v_mulc(tt_hlo_unary(TT_ERF_INV, v_addc(v_mulc(u, 2), -1)), M_SQRT2);
}

// ---- rejection ----

enum { ROUND, VALUE, ACTIVE, STATES };

static tt_hlo goes_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  const tt_rejection *of = context;
  tt_hlo more = v_lt(state[ROUND], tt_hlo_scalar(b, TT_S32, of->rounds));
  return v_and(more, v_reduce_all(TT_ANY, state[ACTIVE]));
}

static void go_round(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const tt_rejection *of = context;
  tt_hlo accepted = NULL, value = of->draw(of, of->stream, state[ROUND], &accepted);
  out[ROUND] = v_add(state[ROUND], tt_hlo_scalar(b, TT_S32, 1));
  out[VALUE] = v_if(v_and(state[ACTIVE], accepted), value, state[VALUE]);
  out[ACTIVE] = v_and(state[ACTIVE], v_not(accepted));
}

tt_hlo tt_reject(const tt_rejection *of) {
  if (!of->start || !of->active || !of->stream || tt_hlo_numel(of->start) == 0) {
    return of->start;
  }
  tt_hlo states[STATES] = {tt_hlo_scalar(tt_hlo_builder_of(of->start), TT_S32, 0), of->start, of->active};
  tt_hlo_while(states, STATES, goes_on, go_round, (void *)of, states);
  return states[VALUE];
}
