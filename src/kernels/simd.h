// What the kernels are written in: vectors of TT_WIDTH floats by the compiler's vector extensions, and small dense
// products of them. Every file that is compiled for a set of instructions includes this once; all of it is static, so
// nothing that was compiled for one processor can be linked into the code for another.
#ifndef TORCHTPU_KERNELS_SIMD_H
#define TORCHTPU_KERNELS_SIMD_H

#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#define TT_INLINE static inline __attribute__((always_inline))

typedef float vec __attribute__((vector_size(4 * TT_WIDTH)));
typedef int32_t ivec __attribute__((vector_size(4 * TT_WIDTH)));
typedef uint32_t uvec __attribute__((vector_size(4 * TT_WIDTH)));
typedef float unaligned __attribute__((vector_size(4 * TT_WIDTH), aligned(4), may_alias));
typedef float quad __attribute__((vector_size(16)));
typedef float unaligned_quad __attribute__((vector_size(16), aligned(4), may_alias));

TT_INLINE vec load(const float *from) { return *(const unaligned *)from; }
TT_INLINE void store(float *to, vec x) { *(unaligned *)to = x; }
TT_INLINE vec splat(float x) { return x - (vec){0}; }
TT_INLINE ivec isplat(int32_t x) { return x - (ivec){0}; }
// Lane by lane; a mask's lanes are 0 or -1.
TT_INLINE vec choose(ivec mask, vec on_true, vec on_false) {
  return (vec)((mask & (ivec)on_true) | (~mask & (ivec)on_false));
}

// The greater and the lesser of two; y where one is undefined. (The compiler makes more of a choice by hand.)
TT_INLINE vec greater(vec x, vec y) {
#if defined(__AVX512F__) && TT_WIDTH == 16
  return (vec)_mm512_max_ps((__m512)x, (__m512)y);
#elif defined(__AVX__) && TT_WIDTH == 8
  return (vec)_mm256_max_ps((__m256)x, (__m256)y);
#elif defined(__SSE2__) && TT_WIDTH == 4
  return (vec)_mm_max_ps((__m128)x, (__m128)y);
#else
  return choose(x > y, x, y);
#endif
}
TT_INLINE vec lesser(vec x, vec y) {
#if defined(__AVX512F__) && TT_WIDTH == 16
  return (vec)_mm512_min_ps((__m512)x, (__m512)y);
#elif defined(__AVX__) && TT_WIDTH == 8
  return (vec)_mm256_min_ps((__m256)x, (__m256)y);
#elif defined(__SSE2__) && TT_WIDTH == 4
  return (vec)_mm_min_ps((__m128)x, (__m128)y);
#else
  return choose(x < y, x, y);
#endif
}

#if TT_WIDTH == 16
#define TT_LANES {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}
#elif TT_WIDTH == 8
#define TT_LANES {0, 1, 2, 3, 4, 5, 6, 7}
#else
#define TT_LANES {0, 1, 2, 3}
#endif
static const ivec lanes = TT_LANES;

#if defined(__clang__)
static inline vec other_half(vec x, int half) {
  vec y = x;
  for (int i = 0; i < TT_WIDTH; i++) {
    y[i] = x[i ^ half];
  }
  return y;
}
#else
TT_INLINE vec other_half(vec x, int half) { return __builtin_shuffle(x, lanes ^ half); }
#endif

TT_INLINE float sum_lanes(vec x) {
#pragma GCC unroll 4
  for (int half = TT_WIDTH / 2; half; half /= 2) {
    x += other_half(x, half);
  }
  return x[0];
}

TT_INLINE float max_lanes(vec x) {
#pragma GCC unroll 4
  for (int half = TT_WIDTH / 2; half; half /= 2) {
    x = greater(x, other_half(x, half));
  }
  return x[0];
}

static inline float dot(const float *x, const float *y, int64_t count) {
  vec sum = splat(0);
  float rest = 0;
  int64_t i = 0;
  for (; i + TT_WIDTH <= count; i += TT_WIDTH) {
    sum += load(x + i) * load(y + i);
  }
  for (; i < count; i++) {
    rest += x[i] * y[i];
  }
  return sum_lanes(sum) + rest;
}

// e^x to about one unit in the last place: 2^n e^r with |r| <= ln(2) / 2. NaN stays NaN; below 2^-126 the result is 0.
TT_INLINE vec exponential(vec x) {
  const vec low = splat(-88.0f), high = splat(89.0f), shifter = splat(0x1.8p23f);
  x = lesser(high, greater(low, x));
  const vec shifted = x * splat(0x1.715476p0f) + shifter;
  const vec n = shifted - shifter;
  const vec r = (x - n * splat(0x1.62e4p-1f)) - n * splat(0x1.7f7d1cp-20f);
  vec p = splat(0x1.6a23dp-10f);  // a fit of (e^r - 1 - r) / r^2, off by 3e-9 of e^r
  p = p * r + splat(0x1.123a2p-7f);
  p = p * r + splat(0x1.5558f2p-5f);
  p = p * r + splat(0x1.555492p-3f);
  p = p * r + splat(0x1.fffffcp-2f);
  p = p * (r * r) + r + splat(1);
  // The shifter leaves n in the low bits, beside a part that the shift by 23 pushes out.
  return p * (vec)(((uvec)shifted + 127) << 23);
}

// ---- tiles: c[rows][vectors] = (or +=) a[rows][depth] b[depth][vectors] ----
enum { TILE_ROWS = TT_WIDTH == 4 ? 4 : TT_WIDTH == 8 ? 6 : 12, TILE_COLUMNS = 2 * TT_WIDTH };

// Strides in elements; the columns of b and c lie side by side.
typedef struct matrices {
  const float *a, *b;
  float *c;
  int64_t a_row, a_column, b_row, c_row, depth;
  bool add;  // to what c holds
} matrices;

TT_INLINE void tile(int rows, int vectors, const matrices *m) {
  vec sum[TILE_ROWS][2];
  const float *a = m->a, *b = m->b;
  const int64_t a_row = m->a_row;
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
    sum[i][0] = sum[i][1] = splat(0);
  }
  for (int64_t k = m->depth; k > 0; k--) {
    const vec b0 = load(b), b1 = vectors > 1 ? load(b + TT_WIDTH) : b0;
#pragma GCC unroll 16
    for (int i = 0; i < rows; i++) {
      const vec x = splat(a[i * a_row]);
      sum[i][0] += x * b0;
      if (vectors > 1) {
        sum[i][1] += x * b1;
      }
    }
    a += m->a_column;
    b += m->b_row;
  }
#pragma GCC unroll 16
  for (int i = 0; i < rows; i++) {
    float *c = m->c + i * m->c_row;
    store(c, m->add ? load(c) + sum[i][0] : sum[i][0]);
    if (vectors > 1) {
      store(c + TT_WIDTH, m->add ? load(c + TT_WIDTH) + sum[i][1] : sum[i][1]);
    }
  }
}

#define TT_TILE(rows)                                                  \
  static void tile_##rows##_1(const matrices *m) { tile(rows, 1, m); } \
  static void tile_##rows##_2(const matrices *m) { tile(rows, 2, m); }
TT_TILE(1)
TT_TILE(2)
TT_TILE(3)
TT_TILE(4)
#if TT_WIDTH > 4
TT_TILE(5)
TT_TILE(6)
#endif
#if TT_WIDTH > 8
TT_TILE(7)
TT_TILE(8)
TT_TILE(9)
TT_TILE(10)
TT_TILE(11)
TT_TILE(12)
#endif
#undef TT_TILE

typedef void tile_function(const matrices *m);
static tile_function *const tiles[TILE_ROWS][2] = {
    {tile_1_1, tile_1_2},   {tile_2_1, tile_2_2},   {tile_3_1, tile_3_2}, {tile_4_1, tile_4_2},
#if TT_WIDTH > 4
    {tile_5_1, tile_5_2},   {tile_6_1, tile_6_2},
#endif
#if TT_WIDTH > 8
    {tile_7_1, tile_7_2},   {tile_8_1, tile_8_2},   {tile_9_1, tile_9_2}, {tile_10_1, tile_10_2},
    {tile_11_1, tile_11_2}, {tile_12_1, tile_12_2},
#endif
};

// The product for any number of rows and a multiple of TT_WIDTH columns.
static inline void multiply(const matrices *m, int64_t rows, int64_t columns) {
  for (int64_t j = 0; j < columns; j += TILE_COLUMNS) {
    const int vectors = columns - j >= TILE_COLUMNS ? 2 : 1;
    matrices part = *m;
    part.b += j;
    for (int64_t i = 0; i < rows;) {
      // Two tiles of equal height rather than a full and a tiny one.
      const int64_t left = rows - i;
      const int64_t height = left <= TILE_ROWS ? left : left < 2 * TILE_ROWS ? (left + 1) / 2 : TILE_ROWS;
      part.a = m->a + i * m->a_row;
      part.c = m->c + i * m->c_row + j;
      tiles[height - 1][vectors - 1](&part);
      i += height;
    }
  }
}

// ---- packing ----
// Columns of a row that is padded to whole vectors.
static inline int64_t padded(int64_t columns) { return (columns + TT_WIDTH - 1) / TT_WIDTH * TT_WIDTH; }

// to[row][column] of a strided matrix, zeros in the padding.
static inline void pack_rows(float *to, int64_t to_row, const float *from, int64_t row, int64_t column, int64_t rows,
                             int64_t columns) {
  for (int64_t i = 0; i < rows; i++) {
    float *line = to + i * to_row;
    const float *source = from + i * row;
    if (column == 1) {
      memcpy(line, source, sizeof *line * (size_t)columns);
    } else {
      for (int64_t j = 0; j < columns; j++) {
        line[j] = source[j * column];
      }
    }
    memset(line + columns, 0, sizeof *line * (size_t)(to_row - columns));
  }
}

// Four rows of four floats, as four columns.
TT_INLINE void turn_quads(float *to, int64_t to_row, const float *from, int64_t row) {
  typedef int32_t places __attribute__((vector_size(16)));
  const quad a = *(const unaligned_quad *)from, b = *(const unaligned_quad *)(from + row);
  const quad c = *(const unaligned_quad *)(from + 2 * row), d = *(const unaligned_quad *)(from + 3 * row);
#if defined(__clang__)
#define TT_SHUFFLE(x, y, i, j, k, l) __builtin_shufflevector(x, y, i, j, k, l)
#else
#define TT_SHUFFLE(x, y, i, j, k, l) __builtin_shuffle(x, y, (places){i, j, k, l})
#endif
  const quad ab = TT_SHUFFLE(a, b, 0, 4, 1, 5), ab_high = TT_SHUFFLE(a, b, 2, 6, 3, 7);
  const quad cd = TT_SHUFFLE(c, d, 0, 4, 1, 5), cd_high = TT_SHUFFLE(c, d, 2, 6, 3, 7);
  *(unaligned_quad *)to = TT_SHUFFLE(ab, cd, 0, 1, 4, 5);
  *(unaligned_quad *)(to + to_row) = TT_SHUFFLE(ab, cd, 2, 3, 6, 7);
  *(unaligned_quad *)(to + 2 * to_row) = TT_SHUFFLE(ab_high, cd_high, 0, 1, 4, 5);
  *(unaligned_quad *)(to + 3 * to_row) = TT_SHUFFLE(ab_high, cd_high, 2, 3, 6, 7);
#undef TT_SHUFFLE
  (void)(places){0};
}

// to[column][row] of a strided matrix.
static inline void turn(float *to, int64_t to_row, const float *from, int64_t row, int64_t column, int64_t rows,
                        int64_t columns) {
  int64_t done_rows = 0;
  if (column == 1) {
    const int64_t whole = columns / 4 * 4;
    for (; done_rows + 4 <= rows; done_rows += 4) {
      const float *source = from + done_rows * row;
      for (int64_t j = 0; j < whole; j += 4) {
        turn_quads(to + j * to_row + done_rows, to_row, source + j, row);
      }
      for (int64_t j = whole; j < columns; j++) {
        for (int64_t i = 0; i < 4; i++) {
          to[j * to_row + done_rows + i] = source[i * row + j];
        }
      }
    }
  }
  for (int64_t j = 0; done_rows < rows && j < columns; j++) {
    for (int64_t i = done_rows; i < rows; i++) {
      to[j * to_row + i] = from[i * row + j * column];
    }
  }
}

// The same, with zeros up to a whole vector.
static inline void pack_turned(float *to, int64_t to_row, const float *from, int64_t row, int64_t column, int64_t rows,
                               int64_t columns) {
  turn(to, to_row, from, row, column, rows, columns);
  for (int64_t j = 0; rows % TT_WIDTH && j < columns; j++) {
    for (int64_t i = rows; i < padded(rows); i++) {
      to[j * to_row + i] = 0;
    }
  }
}

// A row times a number, to wherever its elements lie.
static inline void put_row(float *to, int64_t column, const float *from, int64_t columns, float scale) {
  int64_t j = 0;
  for (; column == 1 && j + TT_WIDTH <= columns; j += TT_WIDTH) {
    store(to + j, load(from + j) * splat(scale));
  }
  for (; j < columns; j++) {
    to[j * column] = from[j] * scale;
  }
}

// Whether all elements are finite.
static inline bool all_finite(const float *from, int64_t row, int64_t column, int64_t rows, int64_t columns) {
  vec zeros = splat(0);
  float rest = 0;
  for (int64_t i = 0; i < rows; i++) {
    int64_t j = 0;
    if (column == 1) {
      for (; j + TT_WIDTH <= columns; j += TT_WIDTH) {
        zeros += load(from + i * row + j) * splat(0);
      }
    }
    for (; j < columns; j++) {
      rest += from[i * row + j * column] * 0;
    }
  }
  return sum_lanes(zeros) + rest == 0;
}

#endif  // TORCHTPU_KERNELS_SIMD_H
