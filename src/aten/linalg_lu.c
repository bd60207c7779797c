// LU with partial pivoting and what is solved by it: systems, inverses, determinants.
//
// A loop over columns eliminates below a pivot; wide matrices go by blocks of columns, whose effect on the rest is one
// product. Sizes are fixed, so that masks stand where LAPACK has shrinking ranges.
#include <inttypes.h>

#include "aten/linalg.h"

enum { BLOCK = 32, BLOCKED_FROM = 96 };

// ---- factorization ----

typedef struct panel {
  int64_t rows, steps;  // rows that aren't padding; pivots of the whole matrix
  tt_hlo first;         // the row of the panel's first pivot, 0-d
} panel;

// state: step, the panel [batch, m, w], the order of its rows [batch, m], its pivots [batch, w]
static tt_hlo panel_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  const panel *p = context;
  (void)b;
  const int64_t width = state[3] ? state[3]->dims[1] : 0;
  return v_and(v_ltc(state[0], (double)width), v_ltc(v_add(state[0], p->first), (double)p->steps));
}

static tt_hlo magnitude(tt_hlo x) {  // as LAPACK compares pivots
  if (!x || !tt_dtype_is_complex(x->dtype)) {
    return v_abs(x);
  }
  return v_add(v_abs(tt_hlo_unary(TT_REAL, x)), v_abs(tt_hlo_unary(TT_IMAG, x)));
}

// The row of the largest element from row k on: the first of equal ones; k if there are NaNs.
static tt_hlo find_pivot(tt_hlo column, tt_hlo row, tt_hlo k, int64_t rows) {
  tt_hlo size = magnitude(column);
  size = v_if(v_and(v_ge(row, v_like(k, row)), v_ltc(row, (double)rows)), size, v_const(size, -1));
  tt_hlo best = v_eq(size, v_spread(v_reduce(TT_MAX, size, 1), size, 1));
  tt_hlo at = v_reduce(TT_MIN, v_if(best, row, v_const(row, (double)rows)), 1);
  return v_if(v_ltc(at, (double)rows), at, v_like(k, at));
}

static void panel_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const panel *p = context;
  (void)b;
  tt_hlo step = state[0], a = state[1], order = state[2];
  const int64_t batch = a->dims[0], m = a->dims[1], n = a->dims[2];
  tt_hlo k = v_add(step, p->first);
  tt_hlo column = v_squeeze(la_window(a, NULL, step, m, 1), 2), row = v_iota(column, TT_S32, 1);
  tt_hlo pivot_at = find_pivot(column, row, k, p->rows);
  tt_hlo is_k = v_eq(row, v_like(k, row)), is_pivot = v_eq(row, v_spread(pivot_at, row, 1));
  tt_hlo below = v_gt(row, v_like(k, row));

  tt_hlo old = v_squeeze(la_window(a, k, NULL, 1, n), 1);
  tt_hlo top = v_squeeze(la_take_rows(a, v_unsqueeze(pivot_at, 1)), 1);
  tt_hlo swapped = v_if(la_rows(is_pivot, a), la_columns(old, a), a);

  const tt_hlo pick[] = {tt_hlo_scalar(b, TT_S32, 0), step};
  const int64_t one[] = {batch, 1};
  tt_hlo pivot = v_spread(v_squeeze(tt_hlo_dynamic_slice(top, pick, one), 1), column, 1);
  tt_hlo moved = v_spread(v_squeeze(tt_hlo_dynamic_slice(old, pick, one), 1), column, 1);
  tt_hlo factor = v_if(is_pivot, moved, column);
  factor = v_if(v_eqc(pivot, 0), factor, v_div(factor, pivot));

  tt_hlo j = v_iota(a, TT_S32, 2), at = v_like(step, j);
  tt_hlo rest = v_sub(swapped, v_mul(la_rows(factor, a), la_columns(top, a)));
  tt_hlo lower = v_if(v_gt(j, at), rest, v_if(v_eq(j, at), la_rows(factor, a), swapped));
  out[0] = v_addc(step, 1);
  out[1] = v_if(la_rows(below, a), lower, v_if(la_rows(is_k, a), la_columns(top, a), swapped));
  tt_hlo at_k = v_reduce(TT_SUM, v_if(is_k, order, v_const(order, 0)), 1);
  tt_hlo at_pivot = v_reduce(TT_SUM, v_if(is_pivot, order, v_const(order, 0)), 1);
  out[2] = v_if(is_k, v_spread(at_pivot, order, 1), v_if(is_pivot, v_spread(at_k, order, 1), order));
  out[3] = tt_hlo_dynamic_update_slice(state[3], v_unsqueeze(pivot_at, 1), pick);
}

// Eliminates `steps` columns of a panel whose first pivot is in row `first`.
static la_lu factor_panel(tt_hlo a, tt_hlo first, int64_t rows, int64_t steps, int64_t pivots) {
  la_lu lu = {0};
  if (!a) {
    return lu;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(a);
  panel p = {rows, steps, first};
  const int64_t order[] = {a->dims[0], a->dims[1]}, taken[] = {a->dims[0], pivots};
  const tt_hlo inits[] = {tt_hlo_scalar(b, TT_S32, 0), a, tt_hlo_iota(b, TT_S32, order, 2, 1),
                          tt_hlo_const(b, TT_S32, 0, taken, 2)};
  tt_hlo results[4];
  tt_hlo_while(inits, 4, panel_cond, panel_body, &p, results);
  return (la_lu){results[1], results[3], results[2]};
}

// state: first column of the block, the matrix, the order of its rows, pivots
static tt_hlo blocks_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  const panel *p = context;
  (void)b;
  return v_ltc(state[0], (double)p->steps);
}

static void blocks_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const panel *p = context;
  tt_hlo first = state[0], a = state[1];
  const int64_t m = a->dims[1], n = a->dims[2];
  la_lu block = factor_panel(la_window(a, NULL, first, m, BLOCK), first, p->rows, p->steps, BLOCK);
  a = la_put_window(la_take_rows(a, block.order), block.lu, NULL, first);

  tt_hlo next = v_addc(first, BLOCK), top = la_window(a, first, NULL, BLOCK, n);
  tt_hlo solved = la_solve(la_window(block.lu, first, NULL, BLOCK, BLOCK), top, true, false, true, false, false);
  solved = v_if(v_ge(v_iota(top, TT_S32, 2), v_like(next, top)), solved, top);
  a = la_put_window(a, solved, first, NULL);
  tt_hlo row = v_iota(a, TT_S32, 1), column = v_iota(a, TT_S32, 2);
  tt_hlo trailing = v_and(v_ge(row, v_like(next, row)), v_ge(column, v_like(next, column)));
  out[0] = next;
  out[1] = v_if(trailing, v_sub(a, la_dot(block.lu, solved)), a);
  out[2] = v_squeeze(la_take_rows(v_unsqueeze(state[2], 2), block.order), 2);
  const tt_hlo at[] = {tt_hlo_scalar(b, TT_S32, 0), first};
  out[3] = tt_hlo_dynamic_update_slice(state[3], block.pivots, at);
}

la_lu la_lu_factor(tt_hlo a) {
  la_lu lu = {0};
  if (!a) {
    return lu;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(a);
  const int64_t m = a->dims[1], n = a->dims[2], k = m < n ? m : n;
  const int64_t order[] = {a->dims[0], m};
  tt_hlo zero = tt_hlo_scalar(b, TT_S32, 0);
  if (tt_hlo_numel(a) == 0) {
    return (la_lu){a, tt_hlo_const(b, TT_S32, 0, (const int64_t[]){a->dims[0], k}, 2),
                   tt_hlo_iota(b, TT_S32, order, 2, 1)};
  }
  if (k < BLOCKED_FROM) {
    return factor_panel(a, zero, m, k, k);
  }
  // Padded with zeros, so that every block is whole.
  const int64_t end = (k + BLOCK - 1) / BLOCK * BLOCK, rows = m > end ? m : end, columns = n > end ? n : end;
  panel p = {m, k, zero};
  a = v_pad0(v_pad0(a, 1, 0, rows - m, 0), 2, 0, columns - n, 0);
  const tt_hlo inits[] = {zero, a, tt_hlo_iota(b, TT_S32, (const int64_t[]){order[0], rows}, 2, 1),
                          tt_hlo_const(b, TT_S32, 0, (const int64_t[]){order[0], end}, 2)};
  tt_hlo results[4];
  tt_hlo_while(inits, 4, blocks_cond, blocks_body, &p, results);
  lu.lu = tt_hlo_slice_dim(tt_hlo_slice_dim(results[1], 1, 0, m, 1), 2, 0, n, 1);
  lu.order = tt_hlo_slice_dim(results[2], 1, 0, m, 1);
  lu.pivots = tt_hlo_slice_dim(results[3], 1, 0, k, 1);
  return lu;
}

// The first zero on U's diagonal, from 1; 0: none. [batch]
static tt_hlo lu_info(tt_hlo lu) {
  tt_hlo diagonal = la_diagonal(lu), at = v_iota(diagonal, TT_S32, 1);
  const double none = INT32_MAX;
  tt_hlo first = v_reduce(TT_MIN, v_if(v_eqc(diagonal, 0), v_addc(at, 1), v_const(at, none)), 1);
  return first ? v_if(v_eqc(first, none), v_const(first, 0), first) : NULL;
}

// state: step, order, pivots
static tt_hlo order_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  return v_ltc(state[0], (double)*(const int64_t *)context);
}
static void order_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)context;
  tt_hlo order = state[1], row = v_iota(order, TT_S32, 1);
  const tt_hlo at[] = {tt_hlo_scalar(b, TT_S32, 0), state[0]};
  const int64_t one[] = {order->dims[0], 1};
  tt_hlo pivot = v_squeeze(tt_hlo_dynamic_slice(state[2], at, one), 1);
  tt_hlo is_k = v_eq(row, v_like(state[0], row)), is_pivot = v_eq(row, v_spread(pivot, row, 1));
  tt_hlo at_k = v_squeeze(tt_hlo_dynamic_slice(order, at, one), 1);
  tt_hlo at_pivot = v_reduce(TT_SUM, v_if(is_pivot, order, v_const(order, 0)), 1);
  out[0] = v_addc(state[0], 1);
  out[1] = v_if(is_k, v_spread(at_pivot, order, 1), v_if(is_pivot, v_spread(at_k, order, 1), order));
  out[2] = state[2];
}
// The order of rows that a sequence of swaps [batch, k] (from 0) makes.
static tt_hlo order_of(tt_hlo pivots, int64_t rows) {
  if (!pivots) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(pivots);
  int64_t steps = pivots->dims[1];
  tt_hlo order = tt_hlo_iota(b, TT_S32, (const int64_t[]){pivots->dims[0], rows}, 2, 1);
  if (tt_hlo_numel(pivots) == 0) {
    return order;
  }
  const tt_hlo inits[] = {tt_hlo_scalar(b, TT_S32, 0), order, pivots};
  tt_hlo results[3];
  tt_hlo_while(inits, 3, order_cond, order_body, &steps, results);
  return results[1];
}

// P with P[order[i], i] = 1, so that a = P L U; [batch, m, m].
static tt_hlo is_permuted(tt_hlo order) {
  if (!order) {
    return NULL;
  }
  const int64_t dims[] = {order->dims[0], order->dims[1], order->dims[1]};
  tt_hlo row = tt_hlo_iota(tt_hlo_builder_of(order), TT_S32, dims, 3, 1);
  return v_eq(row, la_columns(order, row));
}

tt_hlo la_lu_solve(tt_hlo lu, tt_hlo order, tt_hlo b, bool adjoint) {
  if (!lu || !b || tt_hlo_numel(b) == 0) {
    return b;
  }
  if (!adjoint) {
    return la_solve(lu, la_solve(lu, la_take_rows(b, order), true, false, true, false, false), true, true, false, false,
                    false);
  }
  const bool complex = tt_dtype_is_complex(lu->dtype);
  tt_hlo x = la_solve(lu, la_solve(lu, b, true, true, false, true, complex), true, false, true, true, complex);
  tt_hlo permuted = is_permuted(order), place = v_iota(permuted, TT_S32, 2);
  return la_take_rows(x, v_reduce(TT_SUM, v_if(permuted, place, v_const(place, 0)), 2));
}

// ---- operators that factor ----

static bool check_matrices(tt_rule *r, const tt_operand *a, const char *who) {
  if (a->ndim < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: Expected tensor with 2 or more dimensions. Got size: %s instead", who,
            tt_dims_text(a->sizes, a->ndim).text);
    return false;
  }
  return true;
}

static bool check_pivoting(tt_rule *r) {
  if (!tt_bool(r, "pivot", true)) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.lu_factor: LU without pivoting is not implemented on the CPU");
    return false;
  }
  return true;
}

static bool check_lu_dtype(tt_rule *r, tt_dtype dtype) {
  if ((tt_dtype_is_float(dtype) && tt_dtype_size(dtype) >= 4) || tt_dtype_is_complex(dtype)) {
    return true;
  }
  tt_fail_dtype(r, "lu_cpu", dtype);
  return false;
}

static void ret_lu(tt_rule *r, int32_t i, la_lu lu, tt_hlo like) {
  la_ret_by_columns(r, i, la_unflat(lu.lu, like));
  tt_ret(r, i + 1, la_unflat(v_addc(lu.pivots, 1), like));
}

static void ret_info(tt_rule *r, int32_t i, tt_hlo info, tt_hlo like, const char *message) {
  if (tt_bool(r, "check_errors", false)) {
    tt_device_assert(r, v_eqc(info, 0), TT_ERR_LINALG, "%s", message);
  }
  tt_ret(r, i, la_unflat(info, like));
}

static void build_lu_factor_ex(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "A");
  if (!x || !check_matrices(r, x, "torch.lu_factor") || !check_pivoting(r) || !check_lu_dtype(r, x->dtype)) {
    return;
  }
  tt_hlo a = tt_in(r, "A");
  la_lu lu = la_lu_factor(la_flat(a, 2));
  ret_lu(r, 0, lu, a);
  ret_info(r, 2, lu_info(lu.lu), a, "torch.linalg.lu_factor: U has a zero on its diagonal");
}

// L [batch, m, k] and U [batch, k, n]
static void ret_triangles(tt_rule *r, tt_hlo lu, tt_hlo like) {
  if (!lu) {
    return;
  }
  const int64_t m = lu->dims[1], n = lu->dims[2], k = m < n ? m : n;
  tt_hlo lower = tt_hlo_slice_dim(lu, 2, 0, k, 1), upper = la_triangle(tt_hlo_slice_dim(lu, 1, 0, k, 1), true);
  lower = v_if(la_in_band(lower, 1, INT32_MAX), lower, la_eye(lower));
  tt_ret(r, 1, la_unflat(lower, like));
  tt_ret(r, 2, la_unflat(upper, like));
}

static void ret_permutation(tt_rule *r, tt_hlo order, tt_hlo like) {
  tt_ret(r, 0, like ? la_unflat(tt_hlo_convert(is_permuted(order), like->dtype), like) : NULL);
}

static void build_lu(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "A");
  if (!x || !check_matrices(r, x, "linalg.lu") || !check_pivoting(r) || !check_lu_dtype(r, x->dtype)) {
    return;
  }
  tt_hlo a = tt_in(r, "A");
  la_lu lu = la_lu_factor(la_flat(a, 2));
  ret_permutation(r, lu.order, a);
  ret_triangles(r, lu.lu, a);
}

static void check_pivots(tt_rule *r, tt_hlo pivots, int64_t rows, const char *message) {
  tt_device_assert(r, v_and(v_gec(pivots, 1), v_lec(pivots, (double)rows)), TT_ERR_RUNTIME, "%s", message);
}

static void build_lu_unpack(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "LU_data"), *p = tt_operand_of(r, "LU_pivots");
  const bool data = tt_bool(r, "unpack_data", true), pivots = tt_bool(r, "unpack_pivots", true);
  if (!x || !p || !check_matrices(r, x, "torch.lu_unpack")) {
    return;
  }
  if (pivots && p->dtype != TT_S32) {
    tt_fail(r, TT_ERR_RUNTIME,
            "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.\n"
            "Note: this function is intended to be used with the output produced by torch.linalg.lu_factor");
    return;
  }
  if (p->ndim < 1) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.lu_unpack: LU_pivots must have at least 1 dimension");
    return;
  }
  tt_hlo lu = tt_in(r, "LU_data"), none = tt_hlo_const(tt_b(r), x->dtype, 0, (const int64_t[]){0}, 1);
  if (pivots) {
    tt_hlo swaps = tt_in(r, "LU_pivots");
    const int64_t rows = x->sizes[x->ndim - 2];
    check_pivots(r, swaps, rows,
                 "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                 "Did you properly pass the result of lu_factor?");
    ret_permutation(r, order_of(v_addc(la_flat(swaps, 1), -1), rows), lu);
  } else {
    tt_ret(r, 0, none);
  }
  if (data) {
    ret_triangles(r, la_flat(lu, 2), lu);
  } else {
    tt_ret(r, 1, none);
    tt_ret(r, 2, none);
  }
}

// ---- systems ----

static bool check_system(tt_rule *r, const char *who, const char *square, const tt_operand *a, const int64_t *b,
                         int32_t b_ndim, bool left) {
  if (!la_check_square(r, a, square, "A")) {
    return false;
  }
  if (b_ndim < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: The input tensor B must have at least 2 dimensions.", who);
    return false;
  }
  const int64_t n = a->sizes[a->ndim - 1], rows = b[b_ndim - 2], columns = b[b_ndim - 1];
  if (n != (left ? rows : columns)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "%s: Incompatible shapes of A and B for the equation %s (%" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64
            ")",
            who, left ? "AX = B" : "XA = B", n, n, rows, columns);
    return false;
  }
  return true;
}

// Factors of a's batch dims solve for b's, broadcast; x as b.
static tt_hlo solve_broadcast(tt_rule *r, tt_hlo lu, tt_hlo order, tt_hlo b, bool left, bool adjoint) {
  if (!left) {
    b = la_adjoint(b);
    adjoint = !adjoint;
  }
  order = v_unsqueeze(order, order ? order->rank : 0);
  tt_hlo like = b;
  if (!la_broadcast_batches(r, &lu, &b) || !la_broadcast_batches(r, &order, &like)) {
    return NULL;
  }
  tt_hlo flat = la_flat(order, 2);
  tt_hlo x = la_lu_solve(la_flat(lu, 2), v_squeeze(flat, 2), la_flat(b, 2), adjoint);
  x = v_reshape_like(x, b);
  return left ? x : la_adjoint(x);
}

static void ret_solution(tt_rule *r, tt_hlo x, bool left) {
  if (left) {
    la_ret_by_columns(r, 0, x);
  } else {
    tt_ret(r, 0, x);
  }
}

static void build_lu_solve(tt_rule *r) {
  const tt_operand *a = tt_operand_of(r, "LU"), *p = tt_operand_of(r, "pivots"), *b = tt_operand_of(r, "B");
  const bool left = tt_bool(r, "left", true);
  if (!a || !p || !b) {
    return;
  }
  if (!tt_dtype_is_float(a->dtype) && !tt_dtype_is_complex(a->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.linalg.lu_solve: Expected a floating point or complex tensor as input. Got %s",
            tt_type_name(a->dtype));
  } else if (a->dtype != b->dtype) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type %s and B of type %s "
            "instead",
            tt_type_name(a->dtype), tt_type_name(b->dtype));
  } else if (p->dtype != TT_S32) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32");
  } else if (!check_system(r, "linalg.lu_solve", "torch.linalg.lu_solve", a, b->sizes, b->ndim, left)) {
    return;
  } else if (p->ndim == 0 || p->sizes[p->ndim - 1] != a->sizes[a->ndim - 1]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix");
  } else if (p->ndim != a->ndim - 1 || memcmp(p->sizes, a->sizes, (size_t)p->ndim * sizeof *p->sizes) != 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.lu_solve: Expected LU.shape[:-1] and pivots.shape to be the same, but got pivots with shape %s "
            "instead",
            tt_dims_text(p->sizes, p->ndim).text);
  } else if (check_lu_dtype(r, a->dtype)) {
    tt_hlo lu = tt_in(r, "LU"), swaps = tt_in(r, "pivots");
    const int64_t n = a->sizes[a->ndim - 1];
    check_pivots(r, swaps, n,
                 "Pivots given to lu_solve must all be between 1 and LU.size(-2). Did you properly pass the result of "
                 "lu_factor?");
    tt_hlo order = v_reshape_like(order_of(v_addc(la_flat(swaps, 1), -1), n), swaps);
    ret_solution(r, solve_broadcast(r, lu, order, tt_in(r, "B"), left, tt_bool(r, "adjoint", false)), left);
  }
}

// Is b a stack of vectors rather than of matrices?
static bool is_vectors(const tt_operand *a, const tt_operand *b) {
  return b->ndim == 1 ||
         (a->ndim - 1 == b->ndim && memcmp(a->sizes, b->sizes, (size_t)b->ndim * sizeof *b->sizes) == 0);
}

static const char *const SINGULAR = "torch.linalg.solve: The solver failed because the input matrix is singular.";

static void build_solve_ex(tt_rule *r) {
  const tt_operand *a = tt_operand_of(r, "A"), *b = tt_operand_of(r, "B");
  const bool left = tt_bool(r, "left", true);
  if (!a || !b) {
    return;
  }
  if (!tt_dtype_is_float(a->dtype) && !tt_dtype_is_complex(a->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.solve: Expected a floating point or complex tensor as input. Got %s",
            tt_type_name(a->dtype));
    return;
  }
  if (a->dtype != b->dtype) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.solve: Expected A and B to have the same dtype, but found A of type %s and B of type %s instead",
            tt_type_name(a->dtype), tt_type_name(b->dtype));
    return;
  }
  const bool vectors = is_vectors(a, b);
  int64_t sizes[V_DIMS];
  memcpy(sizes, b->sizes, (size_t)b->ndim * sizeof *sizes);
  sizes[b->ndim] = 1;
  if (!check_system(r, "linalg.solve", "linalg.solve", a, sizes, b->ndim + vectors, left)) {
    return;
  }
  if (vectors && !left) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.solve: Vector broadcasting of the left hand side is not supported for left=False. In this case "
            "linalg.solve is equivalent to B / A.squeeze(-1)");
    return;
  }
  if (!check_lu_dtype(r, a->dtype)) {
    return;
  }
  tt_hlo x = tt_in(r, "A"), y = tt_in(r, "B");
  la_lu lu = la_lu_factor(la_flat(x, 2));
  y = vectors && y ? v_unsqueeze(y, y->rank) : y;
  y = solve_broadcast(r, la_unflat(lu.lu, x), la_unflat(lu.order, x), y, left, false);
  ret_solution(r, vectors && y ? v_squeeze(y, y->rank - 1) : y, left);
  ret_lu(r, 1, lu, x);
  ret_info(r, 3, lu_info(lu.lu), x, SINGULAR);
}

static void build_inv_ex(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "A");
  if (!x || !la_check_square(r, x, "linalg.inv", "A")) {
    return;
  }
  if (tt_dtype_is_float(x->dtype) && tt_dtype_size(x->dtype) < 4) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.inv: Low precision dtypes not supported. Got %s", tt_type_name(x->dtype));
    return;
  }
  if (!la_check_dtype(r, x->dtype, "linalg.inv", "lu_cpu")) {
    return;
  }
  tt_hlo a = tt_in(r, "A"), flat = la_flat(a, 2);
  la_lu lu = la_lu_factor(flat);
  la_ret_by_columns(r, 0, la_unflat(la_lu_solve(lu.lu, lu.order, la_eye(flat), false), a));
  ret_info(r, 1, lu_info(lu.lu), a,
           "linalg.inv_ex: The inversion could not be completed because the input matrix is singular.");
}

// ---- determinants ----

// -1 for an odd number of swaps. [batch]
static tt_hlo swap_sign(tt_hlo pivots, tt_dtype dtype) {
  tt_hlo swapped = pivots ? tt_hlo_convert(v_ne(pivots, v_iota(pivots, TT_S32, 1)), TT_S32) : NULL;
  tt_hlo odd = v_reduce(TT_SUM, swapped, 1);
  odd = v_and(odd, v_const(odd, 1));
  return odd ? tt_hlo_convert(v_csub(1, v_add(odd, odd)), dtype) : NULL;
}

enum { DET, SLOGDET };

static void build_det(tt_rule *r) {
  const bool log = tt_rule_kind(r) == SLOGDET;
  const tt_operand *x = tt_operand_of(r, "A");
  const char *who = log ? "linalg.slogdet" : "linalg.det";
  if (!x || !la_check_square(r, x, who, "A")) {
    return;
  }
  if (!la_check_dtype(r, x->dtype, who, "lu_cpu")) {
    return;
  }
  // The derivative's formula expects the transpose's factors of a real matrix that is laid out by rows.
  tt_hlo a = tt_in(r, "A");
  la_lu lu =
      la_lu_factor(la_flat(tt_operand_is_contiguous(x) && !tt_dtype_is_complex(x->dtype) ? la_adjoint(a) : a, 2));
  tt_hlo diagonal = la_diagonal(lu.lu), sign = swap_sign(lu.pivots, x->dtype);
  if (!log) {
    tt_ret(r, 0, la_unflat(v_mul(sign, v_reduce(TT_PROD, diagonal, 1)), a));
    ret_lu(r, 1, lu, a);
    return;
  }
  sign = v_mul(sign, v_reduce(TT_PROD, tt_pw_unary(r, PW_SGN, diagonal), 1));
  tt_ret(r, 0, la_unflat(sign, a));
  tt_ret(r, 1, la_unflat(v_reduce(TT_SUM, v_log(v_abs(diagonal)), 1), a));
  ret_lu(r, 2, lu, a);
}

const tt_rule_entry tt_rules_linalg_lu[] = {
    {.name = "aten::linalg_lu_factor_ex", .build = build_lu_factor_ex},
    {.name = "aten::linalg_lu", .build = build_lu},
    {.name = "aten::lu_unpack", .build = build_lu_unpack},
    {.name = "aten::linalg_lu_solve", .build = build_lu_solve},
    {.name = "aten::_linalg_solve_ex", .build = build_solve_ex},
    {.name = "aten::linalg_inv_ex", .build = build_inv_ex},
    {.name = "aten::_linalg_det", .build = build_det, .kind = DET},
    {.name = "aten::_linalg_slogdet", .build = build_det, .kind = SLOGDET},
    {0},
};
