// One elementwise program over many arrays, in whatever vectors simd.h was included with.
#ifndef TORCHTPU_KERNELS_LISTS_SIMD_H
#define TORCHTPU_KERNELS_LISTS_SIMD_H

#include "kernels/kernels.h"
#include "kernels/simd.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

// Elements that are worked on at a time: all registers stay in the first cache.
enum { LIST_BLOCK = 256 };

TT_INLINE vec square_root(vec x) {
#if TT_WIDTH == 16
  return (vec)_mm512_sqrt_ps((__m512)x);
#elif TT_WIDTH == 8
  return (vec)_mm256_sqrt_ps((__m256)x);
#else
  for (int i = 0; i < TT_WIDTH; i++) {
    x[i] = sqrtf(x[i]);
  }
  return x;
#endif
}

TT_INLINE vec list_op(int64_t code, vec a, vec b, vec c) {
  switch (code) {
    case TT_LIST_ADD:
      return a + b;
    case TT_LIST_SUBTRACT:
      return a - b;
    case TT_LIST_MULTIPLY:
      return a * b;
    case TT_LIST_DIVIDE:
      return a / b;
    case TT_LIST_SQRT:
      return square_root(a);
    case TT_LIST_NEGATE:
      return (vec)((ivec)a ^ isplat(INT32_MIN));
    case TT_LIST_ABS:
      return (vec)((ivec)a & isplat(INT32_MAX));
    case TT_LIST_LT:
      return (vec)(a < b);
    case TT_LIST_LE:
      return (vec)(a <= b);
    case TT_LIST_GT:
      return (vec)(a > b);
    case TT_LIST_GE:
      return (vec)(a >= b);
    case TT_LIST_EQ:
      return (vec)(a == b);
    case TT_LIST_NE:
      return (vec)(a != b);
    default:  // TT_LIST_SELECT
      return choose((ivec)a, b, c);
  }
}

// The last vector of a block may reach behind `count`: registers have room for that, and hold numbers there or not.
#define TT_LIST_CASE(code)                                                 \
  case code:                                                               \
    for (int64_t i = 0; i < count; i += TT_WIDTH) {                        \
      store(to + i, list_op(code, load(a + i), load(b + i), load(c + i))); \
    }                                                                      \
    break;

static void list_step(int64_t code, float *to, const float *a, const float *b, const float *c, int64_t count) {
  switch (code) {
    TT_LIST_CASE(TT_LIST_ADD)
    TT_LIST_CASE(TT_LIST_SUBTRACT)
    TT_LIST_CASE(TT_LIST_MULTIPLY)
    TT_LIST_CASE(TT_LIST_DIVIDE)
    TT_LIST_CASE(TT_LIST_SQRT)
    TT_LIST_CASE(TT_LIST_NEGATE)
    TT_LIST_CASE(TT_LIST_ABS)
    TT_LIST_CASE(TT_LIST_LT)
    TT_LIST_CASE(TT_LIST_LE)
    TT_LIST_CASE(TT_LIST_GT)
    TT_LIST_CASE(TT_LIST_GE)
    TT_LIST_CASE(TT_LIST_EQ)
    TT_LIST_CASE(TT_LIST_NE)
    default:
      for (int64_t i = 0; i < count; i += TT_WIDTH) {
        store(to + i, list_op(TT_LIST_SELECT, load(a + i), load(b + i), load(c + i)));
      }
  }
}
#undef TT_LIST_CASE

static size_t lists_scratch(const tt_lists *l) { return (size_t)l->registers * LIST_BLOCK; }

static void fill(float *to, float value) {
  for (int64_t i = 0; i < LIST_BLOCK; i += TT_WIDTH) {
    store(to + i, splat(value));
  }
}

// What doesn't change along the arrays of group g.
static void fill_numbers(const tt_lists *l, int64_t g, float *scratch) {
  float *to = scratch + l->inputs * LIST_BLOCK;
  for (int64_t i = 0; i < l->numbers; i++, to += LIST_BLOCK) {
    fill(to, l->pack[l->places[g * l->numbers + i]]);
  }
  for (int64_t i = 0; i < l->constants; i++, to += LIST_BLOCK) {
    const uint32_t bits = (uint32_t)l->constant_bits[i];
    float value;
    memcpy(&value, &bits, sizeof value);
    fill(to, value);
  }
}

// `count` elements of group g from `at` on.
static void list_block(const tt_lists *l, int64_t g, int64_t at, int64_t count, float *scratch) {
  const float *from[TT_LIST_REGISTERS];
  for (int64_t i = 0; i < l->registers; i++) {
    from[i] = scratch + i * LIST_BLOCK;
  }
  for (int64_t i = 0; i < l->inputs; i++) {
    const float *input = l->in[g * l->inputs + i] + at;
    if (count == LIST_BLOCK) {
      from[i] = input;
    } else {
      memcpy(scratch + i * LIST_BLOCK, input, sizeof *input * (size_t)count);
    }
  }
  const int64_t *op = l->ops;
  for (int64_t i = 0; i < l->op_count; i++, op += TT_LIST_OP_WORDS) {
    list_step(op[0], scratch + op[1] * LIST_BLOCK, from[op[2]], from[op[3]], from[op[4]], count);
  }
  // Last, since a result may lie where an operand lies.
  for (int64_t i = 0; i < l->outputs; i++) {
    memcpy(l->out[g * l->outputs + i] + at, from[l->results[i]], sizeof(float) * (size_t)count);
  }
}

static void lists_piece(const tt_lists *l, int64_t item, float *scratch) {
  int64_t g = 0;
  while (item >= tt_list_pieces(l->counts[g])) {
    item -= tt_list_pieces(l->counts[g++]);
  }
  memset(scratch, 0, sizeof *scratch * lists_scratch(l));
  fill_numbers(l, g, scratch);
  const int64_t begin = item * TT_LIST_PIECE;
  const int64_t end = begin + TT_LIST_PIECE < l->counts[g] ? begin + TT_LIST_PIECE : l->counts[g];
  for (int64_t at = begin; at < end; at += LIST_BLOCK) {
    list_block(l, g, at, end - at < LIST_BLOCK ? end - at : LIST_BLOCK, scratch);
  }
}

#endif  // TORCHTPU_KERNELS_LISTS_SIMD_H
