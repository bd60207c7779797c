// Shared by the spectral decompositions, besides linalg.h: loops over stacks of matrices [batch, rows, columns] and of
// vectors [batch, n]. Vectors that a loop builds one by one are kept as rows, which are contiguous. NULL in, NULL out.
#ifndef TORCHTPU_ATEN_SPECTRAL_H
#define TORCHTPU_ATEN_SPECTRAL_H

#include "aten/linalg.h"

// The distance from 1 to the next number.
static inline double sp_ulp(tt_hlo x) {
  const tt_dtype real = x ? tt_dtype_real(x->dtype) : TT_F32;
  return real == TT_F64 ? 0x1p-52 : 0x1p-23;
}

static inline tt_hlo sp_index(tt_hlo like, int32_t dim) { return v_iota(like, TT_S32, dim); }
static inline tt_hlo sp_eye(tt_hlo_builder *b, tt_dtype dtype, int64_t batch, int64_t rows, int64_t columns) {
  return la_eye(tt_hlo_const(b, dtype, 0, (const int64_t[]){batch, rows, columns}, 3));
}
// Row `at` (0-d) of each matrix.
static inline tt_hlo sp_row(tt_hlo x, tt_hlo at) {
  if (!x) {
    return NULL;
  }
  tt_hlo zero = tt_hlo_scalar(tt_hlo_builder_of(x), TT_S32, 0);
  const int64_t sizes[] = {x->dims[0], 1, x->dims[2]};
  return v_squeeze(tt_hlo_dynamic_slice(x, (const tt_hlo[]){zero, at, zero}, sizes), 1);
}
static inline tt_hlo sp_put_row(tt_hlo x, tt_hlo row, tt_hlo at) {
  tt_hlo zero = x ? tt_hlo_scalar(tt_hlo_builder_of(x), TT_S32, 0) : NULL;
  return tt_hlo_dynamic_update_slice(x, v_unsqueeze(row, 1), (const tt_hlo[]){zero, at, zero});
}
// Elements moved by one place along dim 1, `fill` at the end (`by` 1) or the beginning (-1).
static inline tt_hlo sp_shift(tt_hlo x, int32_t by, double fill) {
  return x ? v_pad(x, tt_hlo_scalar(tt_hlo_builder_of(x), x->dtype, fill), 1, by > 0 ? -1 : 1, by > 0 ? 1 : -1, 0)
           : NULL;
}

// ---- products ----
// x^H y of vectors.
static inline tt_hlo sp_inner(tt_hlo x, tt_hlo y) { return v_reduce(TT_SUM, v_mul(la_conj(x), y), 1); }
// x y^T, as large as `like`.
static inline tt_hlo sp_outer(tt_hlo x, tt_hlo y, tt_hlo like) { return v_mul(la_rows(x, like), la_columns(y, like)); }
// The greatest magnitude in each matrix or vector, [batch]; 1 where all is zero or something isn't finite.
static inline tt_hlo sp_scale(tt_hlo x) {
  bool mask[TT_MAX_RANK] = {false, true, true};
  tt_hlo most = tt_reduce_mask(TT_MAX, v_abs(x), mask);
  return v_if(v_and(v_gtc(most, 0), tt_hlo_unary(TT_IS_FINITE, most)), most, v_const(most, 1));
}

// ---- spectral.c ----
// Runs `body` `times` times; state[0] is the step, from 0. A context begins with an int64_t: `times`.
void sp_repeat(const tt_hlo *inits, int32_t count, tt_hlo_while_body body, void *context, tt_hlo *results);
// Householder's reflector H = 1 - tau v v^H with H^H x = [.., beta, 0, ..]: the elements of x behind `at` (0-d)
// become zero, those before it stay.
typedef struct sp_reflector {
  tt_hlo v;     // [batch, n]: 0 before `at`, 1 there
  tt_hlo tau;   // [batch]
  tt_hlo beta;  // [batch], real
} sp_reflector;
sp_reflector sp_reflect(tt_hlo x, tt_hlo at);
// An orthonormal basis by Householder reflections of `rows` [batch, k, m] (k <= m): `count` (k to m) rows of which
// the first k span what the rows span. `diagonal` [batch, k]: of the triangular factor, real.
tt_hlo sp_orthonormal(tt_hlo rows, int64_t count, tt_hlo *diagonal);

// ---- linalg_eigh.c ----
// Hermitian matrices [batch, n, n]: eigenvalues [batch, n], ascending, and, unless NULL, eigenvectors as rows.
// A matrix that isn't finite has NaNs.
void sp_eigh(tt_hlo a, tt_hlo *values, tt_hlo *vectors);

// An out= argument, if there is one, has this dtype.
bool sp_check_out(tt_rule *r, const char *name, tt_dtype dtype);

#endif  // TORCHTPU_ATEN_SPECTRAL_H
