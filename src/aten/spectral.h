// Shared by the spectral decompositions: loops over stacks of matrices [batch, rows, columns] and of vectors
// [batch, n]. Vectors that a loop builds one by one are kept as rows, which are contiguous. NULL in, NULL out.
#ifndef TORCHTPU_ATEN_SPECTRAL_H
#define TORCHTPU_ATEN_SPECTRAL_H

#include "aten/dims.h"

// ---- parts ----
static inline tt_hlo sp_real(tt_hlo x) { return x && tt_dtype_is_complex(x->dtype) ? tt_hlo_unary(TT_REAL, x) : x; }
static inline tt_hlo sp_conj(tt_hlo x) { return x && tt_dtype_is_complex(x->dtype) ? tt_hlo_unary(TT_CONJ, x) : x; }
// |x|^2, without the square root.
static inline tt_hlo sp_square(tt_hlo x) {
  if (!x || !tt_dtype_is_complex(x->dtype)) {
    return v_mul(x, x);
  }
  tt_hlo re = tt_hlo_unary(TT_REAL, x), im = tt_hlo_unary(TT_IMAG, x);
  return v_add(v_mul(re, re), v_mul(im, im));
}
// A real value in x's type.
static inline tt_hlo sp_as(tt_hlo real, tt_hlo x) { return x ? tt_hlo_convert(real, x->dtype) : NULL; }
static inline tt_hlo sp_swap(tt_hlo x) {  // transposed
  return x ? tt_hlo_transpose(x, (const int32_t[]){0, 2, 1}) : NULL;
}
// The distance from 1 to the next number.
static inline double sp_ulp(tt_hlo x) {
  const tt_dtype real = x ? tt_dtype_real(x->dtype) : TT_F32;
  return real == TT_F64 ? 0x1p-52 : 0x1p-23;
}

// ---- shapes ----
// With one batch dim. `kept`: trailing dims that stay.
static inline tt_hlo sp_flat(tt_hlo x, int32_t kept) {
  if (!x) {
    return NULL;
  }
  int64_t dims[3] = {1};
  for (int32_t d = 0; d < x->rank - kept; d++) {
    dims[0] *= x->dims[d];
  }
  for (int32_t d = 0; d < kept; d++) {
    dims[1 + d] = x->dims[x->rank - kept + d];
  }
  return tt_hlo_reshape(x, dims, 1 + kept);
}
// The other way: with the batch dims of the operand.
static inline tt_hlo sp_unflat(tt_hlo x, const tt_operand *like) {
  if (!x) {
    return NULL;
  }
  int64_t dims[V_DIMS];
  const int32_t batch = like->ndim - 2;
  memcpy(dims, like->sizes, (size_t)batch * sizeof *dims);
  memcpy(dims + batch, x->dims + 1, (size_t)(x->rank - 1) * sizeof *dims);
  return tt_hlo_reshape(x, dims, batch + x->rank - 1);
}
// Vectors [batch, rows], [batch, columns] or numbers [batch], as large as `like`.
static inline tt_hlo sp_down(tt_hlo x, tt_hlo like) {  // element i in row i
  return like ? tt_hlo_broadcast_in_dim(x, like->dims, like->rank, (const int32_t[]){0, 1}) : NULL;
}
static inline tt_hlo sp_across(tt_hlo x, tt_hlo like) {  // element j in column j
  return like ? tt_hlo_broadcast_in_dim(x, like->dims, like->rank, (const int32_t[]){0, 2}) : NULL;
}
static inline tt_hlo sp_each(tt_hlo x, tt_hlo like) {  // number b in matrix or vector b
  return like ? tt_hlo_broadcast_in_dim(x, like->dims, like->rank, (const int32_t[]){0}) : NULL;
}
static inline tt_hlo sp_index(tt_hlo like, int32_t dim) { return v_iota(like, TT_S32, dim); }
static inline tt_hlo sp_is_diagonal(tt_hlo x) { return v_eq(sp_index(x, 1), sp_index(x, 2)); }
static inline tt_hlo sp_diagonal(tt_hlo x) { return v_reduce(TT_SUM, v_if(sp_is_diagonal(x), x, v_const(x, 0)), 2); }
static inline tt_hlo sp_eye(tt_hlo_builder *b, tt_dtype dtype, int64_t batch, int64_t rows, int64_t columns) {
  tt_hlo zero = tt_hlo_const(b, dtype, 0, (const int64_t[]){batch, rows, columns}, 3);
  return v_if(sp_is_diagonal(zero), v_const(zero, 1), zero);
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
// Rows of each matrix at positions [batch, k]; elements of each vector.
static inline tt_hlo sp_take_rows(tt_hlo x, tt_hlo positions) {
  static const int32_t one = 1, batch = 0, two = 2;
  if (!x || !positions) {
    return NULL;
  }
  const tt_hlo_gather_dims dims = {.offset_dims = &two,
                                   .offset_count = x->rank - 2,
                                   .collapsed_dims = &one,
                                   .collapsed_count = 1,
                                   .operand_batching_dims = &batch,
                                   .indices_batching_dims = &batch,
                                   .batching_count = 1,
                                   .start_index_map = &one,
                                   .start_index_count = 1,
                                   .index_vector_dim = 2};
  const int64_t sizes[] = {1, 1, x->rank > 2 ? x->dims[2] : 1};
  return tt_hlo_gather(x, v_unsqueeze(positions, 2), &dims, sizes, false);
}
// Elements moved by one place along dim 1, `fill` at the end (`by` 1) or the beginning (-1).
static inline tt_hlo sp_shift(tt_hlo x, int32_t by, double fill) {
  return x ? v_pad(x, tt_hlo_scalar(tt_hlo_builder_of(x), x->dtype, fill), 1, by > 0 ? -1 : 1, by > 0 ? 1 : -1, 0)
           : NULL;
}

// ---- products ----
static inline tt_hlo sp_dot(tt_hlo x, int32_t x_dim, tt_hlo y, int32_t y_dim) {
  static const int32_t batch[] = {0};
  const tt_hlo_dot_dims dims = {batch, batch, &x_dim, &y_dim, 1, 1};
  return tt_hlo_dot_general(x, y, &dims, TT_PRECISION_HIGHEST, TT_DTYPE_INVALID);
}
// x^H y of vectors.
static inline tt_hlo sp_inner(tt_hlo x, tt_hlo y) { return v_reduce(TT_SUM, v_mul(sp_conj(x), y), 1); }
// x y^T, as large as `like`.
static inline tt_hlo sp_outer(tt_hlo x, tt_hlo y, tt_hlo like) { return v_mul(sp_down(x, like), sp_across(y, like)); }
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

// ---- checks ----
static inline void sp_ret_by_columns(tt_rule *r, int32_t i, tt_hlo x) {
  int32_t order[TT_MAX_RANK];
  for (int32_t d = 0; x && d < x->rank; d++) {
    order[d] = d < x->rank - 2 ? d : 2 * x->rank - 3 - d;
  }
  tt_ret_ordered(r, i, x, order);
}
// An out= argument, if there is one, has this dtype.
bool sp_check_out(tt_rule *r, const char *name, tt_dtype dtype);
bool sp_check_stack(tt_rule *r, const tt_operand *a, const char *who, bool square);

#endif  // TORCHTPU_ATEN_SPECTRAL_H
