// Shared by the families of linear algebra: checks, and values that are stacks of matrices. NULL in, NULL out.
#ifndef TORCHTPU_ATEN_LINALG_H
#define TORCHTPU_ATEN_LINALG_H

#include "aten/dims.h"

// A result of which each matrix lies in memory by columns, as LAPACK leaves it.
static inline void la_ret_by_columns(tt_rule *r, int32_t i, tt_hlo x) {
  int32_t order[TT_MAX_RANK];
  if (!x || x->rank < 2) {
    tt_ret(r, i, x);
    return;
  }
  for (int32_t d = 0; d < x->rank; d++) {
    order[d] = d < x->rank - 2 ? d : 2 * x->rank - 3 - d;
  }
  tt_ret_ordered(r, i, x, order);
}

static inline bool la_check_matrices(tt_rule *r, const tt_operand *a, const char *who, const char *name) {
  if (a->ndim < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: The input tensor %s must have at least 2 dimensions.", who, name);
    return false;
  }
  return true;
}

static inline bool la_check_square(tt_rule *r, const tt_operand *a, const char *who, const char *name) {
  if (!la_check_matrices(r, a, who, name)) {
    return false;
  }
  const int64_t rows = a->sizes[a->ndim - 2], columns = a->sizes[a->ndim - 1];
  if (rows != columns) {
    tt_fail(r, TT_ERR_RUNTIME,
            "%s: %s must be batches of square matrices, but they are %" PRId64 " by %" PRId64 " matrices", who, name,
            rows, columns);
    return false;
  }
  return true;
}

static inline bool la_check_dtype(tt_rule *r, tt_dtype dtype, const char *who, const char *kernel) {
  if (!tt_dtype_is_float(dtype) && !tt_dtype_is_complex(dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: Expected a floating point or complex tensor as input. Got %s", who,
            tt_type_name(dtype));
    return false;
  }
  if (tt_opmath(dtype) != dtype || tt_dtype_size(dtype) < 4) {
    tt_fail_dtype(r, kernel, dtype);
    return false;
  }
  return true;
}

// Element [i, j] of each matrix: i - j >= low and i - j <= high.
static inline tt_hlo la_in_band(tt_hlo x, double low, double high) {
  if (!x) {
    return NULL;
  }
  tt_hlo below = v_sub(v_iota(x, TT_S32, x->rank - 2), v_iota(x, TT_S32, x->rank - 1));
  return v_and(v_gec(below, low), v_lec(below, high));
}
static inline tt_hlo la_triangle(tt_hlo x, bool upper) {
  const double far = INT32_MAX;
  return x ? v_if(upper ? la_in_band(x, -far, 0) : la_in_band(x, 0, far), x, v_const(x, 0)) : NULL;
}

// ---- parts ----
static inline tt_hlo la_real(tt_hlo x) { return x && tt_dtype_is_complex(x->dtype) ? tt_hlo_unary(TT_REAL, x) : x; }
static inline tt_hlo la_conj(tt_hlo x) { return x && tt_dtype_is_complex(x->dtype) ? tt_hlo_unary(TT_CONJ, x) : x; }
// |x|^2 without the square root, of the real type.
static inline tt_hlo la_square(tt_hlo x) {
  if (!x || !tt_dtype_is_complex(x->dtype)) {
    return v_mul(x, x);
  }
  tt_hlo re = tt_hlo_unary(TT_REAL, x), im = tt_hlo_unary(TT_IMAG, x);
  return v_add(v_mul(re, re), v_mul(im, im));
}
// A real value in x's type.
static inline tt_hlo la_as(tt_hlo real, tt_hlo x) { return x ? tt_hlo_convert(real, x->dtype) : NULL; }

static inline tt_hlo la_transpose(tt_hlo x) {
  int32_t order[TT_MAX_RANK];
  for (int32_t d = 0; x && d < x->rank; d++) {
    order[d] = d < x->rank - 2 ? d : 2 * x->rank - 3 - d;
  }
  return x ? tt_hlo_transpose(x, order) : NULL;
}
static inline tt_hlo la_adjoint(tt_hlo x) { return la_conj(la_transpose(x)); }

// The batch dims of two stacks of matrices broadcast together.
static inline bool la_broadcast_batches(tt_rule *r, tt_hlo *a, tt_hlo *b) {
  if (!*a || !*b) {
    return false;
  }
  if ((*a)->rank < 2 || (*b)->rank < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "the input tensors must have at least 2 dimensions.");
    return false;
  }
  const int32_t batch = ((*a)->rank > (*b)->rank ? (*a)->rank : (*b)->rank) - 2;
  int64_t dims[TT_MAX_RANK];
  for (int32_t d = 0; d < batch; d++) {
    const int32_t i = d - (batch + 2 - (*a)->rank), j = d - (batch + 2 - (*b)->rank);
    const int64_t x = i < 0 ? 1 : (*a)->dims[i], y = j < 0 ? 1 : (*b)->dims[j];
    if (x != y && x != 1 && y != 1) {
      tt_fail(r, TT_ERR_RUNTIME,
              "The size of tensor a (%" PRId64 ") must match the size of tensor b (%" PRId64
              ") at non-singleton dimension %d",
              x, y, d);
      return false;
    }
    dims[d] = x == 1 ? y : x;
  }
  for (int32_t k = 0; k < 2; k++) {
    tt_hlo *x = k ? b : a;
    memcpy(dims + batch, (*x)->dims + (*x)->rank - 2, 2 * sizeof *dims);
    *x = tt_hlo_broadcast_to(*x, dims, batch + 2);
  }
  return true;
}

static inline tt_hlo la_solve(tt_hlo a, tt_hlo b, bool left, bool upper, bool unit, bool transpose, bool conjugate) {
  if (!a || !b || tt_hlo_numel(b) == 0) {
    return a ? b : NULL;
  }
  return tt_hlo_triangular_solve(a, b, left, !upper, unit, transpose, conjugate);
}

// A stack of matrices (or, with `kept` 1, of vectors) with one batch dim.
static inline tt_hlo la_flat(tt_hlo x, int32_t kept) {
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
// The other way: the batch dims of the stack of matrices that the flat one was made of.
static inline tt_hlo la_unflat(tt_hlo x, tt_hlo stack) {
  if (!x || !stack) {
    return NULL;
  }
  int64_t dims[V_DIMS];
  memcpy(dims, stack->dims, (size_t)(stack->rank - 2) * sizeof *dims);
  memcpy(dims + stack->rank - 2, x->dims + 1, (size_t)(x->rank - 1) * sizeof *dims);
  return tt_hlo_reshape(x, dims, stack->rank - 2 + x->rank - 1);
}
// The same window of each matrix, from a row and a column (0-d; NULL: 0).
static inline tt_hlo la_window(tt_hlo x, tt_hlo row, tt_hlo column, int64_t rows, int64_t columns) {
  if (!x) {
    return NULL;
  }
  tt_hlo zero = tt_hlo_scalar(tt_hlo_builder_of(x), TT_S32, 0);
  const tt_hlo at[] = {zero, row ? row : zero, column ? column : zero};
  return tt_hlo_dynamic_slice(x, at, (const int64_t[]){x->dims[0], rows, columns});
}
static inline tt_hlo la_put_window(tt_hlo x, tt_hlo part, tt_hlo row, tt_hlo column) {
  if (!x) {
    return NULL;
  }
  tt_hlo zero = tt_hlo_scalar(tt_hlo_builder_of(x), TT_S32, 0);
  const tt_hlo at[] = {zero, row ? row : zero, column ? column : zero};
  return tt_hlo_dynamic_update_slice(x, part, at);
}
// Vectors [batch, rows] or [batch, columns], or numbers [batch], as large as a stack of matrices.
static inline tt_hlo la_rows(tt_hlo x, tt_hlo like) {
  return like ? tt_hlo_broadcast_in_dim(x, like->dims, like->rank, (const int32_t[]){0, 1}) : NULL;
}
static inline tt_hlo la_columns(tt_hlo x, tt_hlo like) {
  return like ? tt_hlo_broadcast_in_dim(x, like->dims, like->rank, (const int32_t[]){0, 2}) : NULL;
}
static inline tt_hlo la_each(tt_hlo x, tt_hlo like) {
  return like ? tt_hlo_broadcast_in_dim(x, like->dims, like->rank, (const int32_t[]){0}) : NULL;
}
// The product of two stacks over a dim of each.
static inline tt_hlo la_contract(tt_hlo x, int32_t x_dim, tt_hlo y, int32_t y_dim) {
  static const int32_t batch[] = {0};
  const tt_hlo_dot_dims dims = {batch, batch, &x_dim, &y_dim, 1, 1};
  return tt_hlo_dot_general(x, y, &dims, TT_PRECISION_HIGHEST, TT_DTYPE_INVALID);
}
// x y, x^H y.
static inline tt_hlo la_dot(tt_hlo x, tt_hlo y) { return la_contract(x, 2, y, 1); }
static inline tt_hlo la_adjoint_dot(tt_hlo x, tt_hlo y) { return la_contract(la_conj(x), 1, y, 1); }
static inline tt_hlo la_is_diagonal(tt_hlo x) {
  return x ? v_eq(v_iota(x, TT_S32, x->rank - 2), v_iota(x, TT_S32, x->rank - 1)) : NULL;
}
static inline tt_hlo la_diagonal(tt_hlo x) {  // of flat stacks
  if (!x) {
    return NULL;
  }
  const int64_t k = x->dims[1] < x->dims[2] ? x->dims[1] : x->dims[2];
  tt_hlo square = tt_hlo_slice_dim(tt_hlo_slice_dim(x, 1, 0, k, 1), 2, 0, k, 1);
  return v_reduce(TT_SUM, v_if(la_is_diagonal(square), square, v_const(square, 0)), 2);
}
static inline tt_hlo la_eye(tt_hlo like) {
  return like ? v_if(la_is_diagonal(like), v_const(like, 1), v_const(like, 0)) : NULL;
}

// Rows of each matrix at positions [batch, k]; elements of each vector.
static inline tt_hlo la_take_rows(tt_hlo x, tt_hlo positions) {
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

// ---- linalg_lu.c: of flat stacks ----
typedef struct la_lu {
  tt_hlo lu;      // [batch, m, n]: L below the diagonal, U
  tt_hlo pivots;  // [batch, k], s32: the row that row i was swapped with, from 0
  tt_hlo order;   // [batch, m], s32: a[order] is L U
} la_lu;
la_lu la_lu_factor(tt_hlo a);
// a x = b or a^H x = b.
tt_hlo la_lu_solve(tt_hlo lu, tt_hlo order, tt_hlo b, bool adjoint);

// ---- linalg_qr.c: of flat stacks ----
typedef struct la_qr {
  tt_hlo qr;   // [batch, m, n]: R, and the reflectors below the diagonal
  tt_hlo tau;  // [batch, k]
} la_qr;
la_qr la_qr_factor(tt_hlo a);
// One reflector, from column `step` below row k; the matrix after it, with v in that column.
tt_hlo la_qr_step(tt_hlo a, tt_hlo k, tt_hlo step, tt_hlo *tau);
// The reflectors in the columns of a factored matrix, whose diagonal begins in row `first` (NULL: 0).
tt_hlo la_reflectors(tt_hlo a, tt_hlo first);
// The first columns of Q.
tt_hlo la_qr_q(tt_hlo a, tt_hlo tau, int64_t columns);
// Q c or Q^H c, Q the product of the reflectors in v's columns (ones and zeros in place).
tt_hlo la_reflect(tt_hlo v, tt_hlo tau, tt_hlo c, bool adjoint);
// A power of two that brings the elements to where squares neither overflow nor vanish; 1 if they lie there. [batch]
tt_hlo la_safe_scale(tt_hlo a);

#endif  // TORCHTPU_ATEN_LINALG_H
