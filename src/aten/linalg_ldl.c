// L D L^T (or L D L^H) of symmetric matrices with Bunch and Kaufman's pivoting, as LAPACK's sytrf and hetrf leave it:
// D has blocks of one or two rows, the interchanges are not applied to columns of L that are done.
#include <math.h>

#include "aten/linalg.h"

static tt_hlo transposed(tt_hlo x, bool hermitian) { return hermitian ? la_conj(x) : x; }

static tt_hlo magnitude(tt_hlo x) {  // as LAPACK compares pivots
  if (!x || !tt_dtype_is_complex(x->dtype)) {
    return v_abs(x);
  }
  return v_add(v_abs(tt_hlo_unary(TT_REAL, x)), v_abs(tt_hlo_unary(TT_IMAG, x)));
}

// Element [batch, at[batch]] of vectors [batch, n]; 0 outside.
static tt_hlo pick(tt_hlo x, tt_hlo at) {
  tt_hlo place = v_iota(x, TT_S32, 1);
  return x ? v_reduce(TT_SUM, v_if(v_eq(place, v_spread(at, place, 1)), x, v_const(x, 0)), 1) : NULL;
}
static tt_hlo row_at(tt_hlo x, tt_hlo at) { return v_squeeze(la_take_rows(x, v_unsqueeze(at, 1)), 1); }
static tt_hlo largest(tt_hlo x, tt_hlo where) { return v_reduce(TT_MAX, v_if(where, x, v_const(x, 0)), 1); }

// ---- factorization ----

// state: the next column of each matrix [batch], the matrices [batch, n, n], pivots [batch, n], info [batch]. What is
// not done yet is symmetric, both halves of it in place.
static tt_hlo factor_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return state[2] ? v_reduce_all(TT_ANY, v_ltc(state[0], (double)state[2]->dims[1])) : NULL;
}

typedef struct choice {
  tt_hlo row;        // [batch]: the row that comes to k, or to k + 1 of a block of two
  tt_hlo two, none;  // [batch]: a block of two; a column of zeros
} choice;

static choice choose_pivot(tt_hlo a, tt_hlo k) {
  const double alpha = (1 + sqrt(17)) / 8;
  tt_hlo size = magnitude(row_at(a, k)), at = v_iota(size, TT_S32, 1), first = v_spread(k, at, 1);
  tt_hlo own = pick(size, k), later = v_gt(at, first), column_max = largest(size, later);
  tt_hlo is_max = v_and(later, v_eq(size, v_spread(column_max, size, 1)));
  tt_hlo far = v_const(at, INT32_MAX), found = v_reduce(TT_MIN, v_if(is_max, at, far), 1);
  tt_hlo other = v_if(v_ltc(found, INT32_MAX), found, k);
  tt_hlo other_size = magnitude(row_at(a, other));
  tt_hlo beside = v_and(v_ge(at, first), v_ne(at, v_spread(other, at, 1)));
  tt_hlo row_max = largest(other_size, beside), bound = v_mulc(column_max, alpha);
  tt_hlo keep = v_or(v_ge(own, bound), v_ge(own, v_mul(bound, v_div(column_max, row_max))));
  tt_hlo single = v_ge(pick(other_size, other), v_mulc(row_max, alpha));
  choice c;
  c.none = v_or(v_eqc(v_max(own, column_max), 0), v_isnan(own));
  keep = v_or(keep, v_or(c.none, v_eq(other, k)));
  c.two = v_and(v_not(keep), v_not(single));
  c.row = v_if(keep, k, other);
  return c;
}

// Rows and columns i and j change places in what is left from k on.
static tt_hlo interchange(tt_hlo a, tt_hlo k, tt_hlo i, tt_hlo j) {
  tt_hlo row = v_iota(a, TT_S32, 1), column = v_iota(a, TT_S32, 2), first = la_each(k, row);
  tt_hlo left = v_and(v_ge(row, first), v_ge(column, first)), zero = a ? v_const(a, 0) : NULL;
  tt_hlo is_i = v_eq(row, la_each(i, row)), is_j = v_eq(row, la_each(j, row));
  tt_hlo rows = v_if(is_i, la_columns(row_at(a, j), a), v_if(is_j, la_columns(row_at(a, i), a), a));
  rows = v_if(left, rows, a);
  is_i = v_eq(column, la_each(i, column));
  is_j = v_eq(column, la_each(j, column));
  tt_hlo at_i = v_reduce(TT_SUM, v_if(is_i, rows, zero), 2), at_j = v_reduce(TT_SUM, v_if(is_j, rows, zero), 2);
  return v_if(left, v_if(is_i, la_rows(at_j, a), v_if(is_j, la_rows(at_i, a), rows)), rows);
}

// Columns of L for a block of one: x / d.
static tt_hlo eliminate_one(tt_hlo x, tt_hlo d) { return v_div(x, v_spread(d, x, 1)); }

// Numbers of a block of two, by the size of what is beside the diagonal, so that their products don't overflow.
typedef struct block {
  tt_hlo d11, d22, d12, d21, size;  // size: times the determinant
} block;
static block block_of(tt_hlo d11, tt_hlo d22, tt_hlo d21, bool hermitian) {
  tt_hlo size = magnitude(d21);
  size = size && d21 ? tt_hlo_convert(v_if(v_eqc(size, 0), v_const(size, 1), size), d21->dtype) : NULL;
  block d = {v_div(d11, size), v_div(d22, size), v_div(transposed(d21, hermitian), size), v_div(d21, size), NULL};
  d.size = v_mul(size, v_sub(v_mul(d.d11, d.d22), v_mul(d.d12, d.d21)));
  return d;
}
// x a - y b over the determinant
static tt_hlo cross(tt_hlo x, tt_hlo a, tt_hlo y, tt_hlo b, tt_hlo size) {
  tt_hlo left = v_mul(x, v_spread(a, x, 1)), right = v_mul(y, v_spread(b, y, 1));
  return v_div(v_sub(left, right), v_spread(size, x, 1));
}

static void factor_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const bool hermitian = *(const bool *)context;
  (void)b;
  tt_hlo k = state[0], a = state[1], next = v_addc(k, 1);
  tt_hlo active = v_ltc(k, (double)state[2]->dims[1]);
  choice c = choose_pivot(a, k);
  tt_hlo last = v_if(c.two, next, k);  // of the block
  a = interchange(a, k, last, c.row);

  tt_hlo row1 = row_at(a, k), row2 = row_at(a, next), place = v_iota(row1, TT_S32, 1);
  tt_hlo x1 = transposed(row1, hermitian), x2 = transposed(row2, hermitian), zero = v_const(row1, 0);
  tt_hlo d1 = pick(row1, k);
  block d = block_of(d1, pick(row2, next), pick(row2, k), hermitian);
  tt_hlo both = v_spread(c.two, place, 1), rest = v_gt(place, v_spread(last, place, 1));
  tt_hlo l1 = v_if(both, cross(x1, d.d22, x2, d.d21, d.size), eliminate_one(x1, d1));
  l1 = v_if(v_and(rest, v_not(v_spread(c.none, place, 1))), l1, zero);
  tt_hlo l2 = v_if(v_and(rest, both), cross(x2, d.d11, x1, d.d12, d.size), zero);

  tt_hlo product = v_add(v_mul(la_rows(l1, a), la_columns(row1, a)), v_mul(la_rows(l2, a), la_columns(row2, a)));
  tt_hlo column = v_iota(a, TT_S32, 2), below = la_rows(rest, a), trailing = v_and(below, la_columns(rest, a));
  trailing = v_and(trailing, v_not(la_each(c.none, trailing)));
  tt_hlo done = v_if(trailing, v_sub(a, product), a);
  done = v_if(v_and(below, v_eq(column, la_each(k, column))), la_rows(l1, a), done);
  tt_hlo is_second = v_and(v_eq(column, la_each(next, column)), la_each(c.two, column));
  done = v_if(v_and(below, is_second), la_rows(l2, a), done);

  tt_hlo pivot = v_addc(c.row, 1);
  pivot = v_if(c.two, v_neg(pivot), pivot);
  tt_hlo in_block = v_and(v_ge(place, v_spread(k, place, 1)), v_not(rest));
  out[0] = v_if(active, v_addc(last, 1), k);
  out[1] = v_if(la_each(active, done), done, state[1]);
  out[2] = v_if(v_and(v_spread(active, place, 1), in_block), v_spread(pivot, place, 1), state[2]);
  out[3] = v_if(v_and(active, v_and(c.none, v_eqc(state[3], 0))), next, state[3]);
}

static void build_ldl_factor_ex(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  if (!x || !la_check_square(r, x, "torch.linalg.ldl_factor_ex", "A") ||
      !la_check_dtype(r, x->dtype, "torch.linalg.ldl_factor_ex", "ldl_factor_kernel_cpu")) {
    return;
  }
  bool hermitian = tt_bool(r, "hermitian", false) && tt_dtype_is_complex(x->dtype);
  tt_hlo a = tt_in(r, "self"), flat = la_flat(a, 2), lower = la_triangle(flat, false);
  if (!lower) {
    return;
  }
  tt_hlo_builder *b = tt_b(r);
  tt_hlo diagonal = la_in_band(flat, 0, 0);
  tt_hlo upper = tt_hlo_transpose(lower, (const int32_t[]){0, 2, 1});
  tt_hlo real = hermitian ? tt_hlo_convert(tt_hlo_unary(TT_REAL, flat), flat->dtype) : flat;
  tt_hlo whole = v_if(diagonal, real, v_add(lower, transposed(upper, hermitian)));
  tt_hlo zeros = tt_hlo_const(b, TT_S32, 0, flat->dims, 1);
  tt_hlo results[] = {zeros, whole, tt_hlo_const(b, TT_S32, 0, flat->dims, 2), zeros};
  if (tt_hlo_numel(flat) != 0) {
    tt_hlo_while(results, 4, factor_cond, factor_body, &hermitian, results);
  }
  tt_hlo ld = la_triangle(results[1], false);
  if (hermitian && ld) {
    ld = v_if(diagonal, tt_hlo_convert(tt_hlo_unary(TT_REAL, ld), ld->dtype), ld);
  }
  la_ret_by_columns(r, 0, la_unflat(ld, a));
  tt_ret(r, 1, la_unflat(results[2], a));
  if (tt_bool(r, "check_errors", false)) {
    tt_device_assert(r, v_eqc(results[3], 0), TT_ERR_RUNTIME,
                     "torch.linalg.ldl_factor_ex: D has a zero on its diagonal");
  }
  tt_ret(r, 2, la_unflat(results[3], a));
}

// ---- systems ----

typedef struct ldl_system {
  tt_hlo ld, pivots, first;  // [batch, n, n]; [batch, n], s32; [batch, n]: does a block of two begin here?
  bool hermitian;
} ldl_system;

static tt_hlo number_at(tt_hlo x, tt_hlo k) {  // [batch]
  if (!x) {
    return NULL;
  }
  const tt_hlo at[] = {tt_hlo_scalar(tt_hlo_builder_of(x), TT_S32, 0), k};
  return v_squeeze(tt_hlo_dynamic_slice(x, at, (const int64_t[]){x->dims[0], 1}), 1);
}

// Column k of L, below its block; [batch, n].
static tt_hlo column_of(const ldl_system *s, tt_hlo k, tt_hlo first) {
  tt_hlo column = v_squeeze(la_window(s->ld, NULL, k, s->ld->dims[1], 1), 2), row = v_iota(column, TT_S32, 1);
  tt_hlo last = v_add(v_like(k, first), tt_hlo_convert(first, TT_S32));
  return v_if(v_gt(row, v_spread(last, row, 1)), column, v_const(column, 0));
}

// The interchange that goes with column k.
static tt_hlo swap_rows(const ldl_system *s, tt_hlo x, tt_hlo k, tt_hlo first) {
  tt_hlo pivot = number_at(s->pivots, k), here = v_like(k, pivot);
  tt_hlo from = v_add(here, tt_hlo_convert(first, TT_S32)), to = v_addc(v_abs(pivot), -1);
  to = v_if(v_and(v_ltc(pivot, 0), v_not(first)), here, to);  // second of a block: done with the first
  tt_hlo row = v_iota(x, TT_S32, 1);
  tt_hlo is_from = v_eq(row, la_each(from, row)), is_to = v_eq(row, la_each(to, row));
  return v_if(is_from, la_columns(row_at(x, to), x), v_if(is_to, la_columns(row_at(x, from), x), x));
}

// state: step, x [batch, n, count]
static tt_hlo forward_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return state[1] ? v_ltc(state[0], (double)state[1]->dims[1]) : NULL;
}
static void forward_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const ldl_system *s = context;
  (void)b;
  tt_hlo k = state[0], first = number_at(s->first, k), x = swap_rows(s, state[1], k, first);
  tt_hlo row = v_squeeze(la_window(x, k, NULL, 1, x ? x->dims[2] : 0), 1);
  out[0] = v_addc(k, 1);
  out[1] = v_sub(x, v_mul(la_rows(column_of(s, k, first), x), la_columns(row, x)));
}

static tt_hlo backward_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return v_gec(state[0], 0);
}
static void backward_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const ldl_system *s = context;
  (void)b;
  tt_hlo k = state[0], x = state[1], first = number_at(s->first, k), row = v_iota(x, TT_S32, 1);
  tt_hlo column = transposed(column_of(s, k, first), s->hermitian);
  tt_hlo sum = v_reduce(TT_SUM, v_mul(la_rows(column, x), x), 1);
  x = v_if(v_eq(row, v_like(k, row)), v_sub(x, la_columns(sum, x)), x);
  out[0] = v_addc(k, -1);
  out[1] = swap_rows(s, x, k, first);
}

// x's rows moved by one place: up (towards row 0) or down.
static tt_hlo shifted(tt_hlo x, bool up) { return x ? v_pad0(x, 1, up ? -1 : 1, up ? 1 : -1, 0) : NULL; }

static tt_hlo solve_blocks(const ldl_system *s, tt_hlo x) {
  tt_hlo diagonal = la_diagonal(s->ld), one = v_const(diagonal, 1);
  tt_hlo beside = v_reduce(TT_SUM, v_if(la_in_band(s->ld, 1, 1), s->ld, v_const(s->ld, 0)), 1);  // [k + 1, k]
  tt_hlo second = tt_hlo_convert(shifted(tt_hlo_convert(s->first, TT_S32), false), TT_PRED);
  block d = block_of(diagonal, shifted(diagonal, true), beside, s->hermitian);
  tt_hlo size = v_if(s->first, d.size, one), after = shifted(x, true), before = shifted(x, false);
  tt_hlo as_first = v_sub(v_mul(x, la_rows(d.d22, x)), v_mul(after, la_rows(d.d12, x)));
  tt_hlo as_second =
      v_sub(v_mul(x, la_rows(shifted(d.d11, false), x)), v_mul(before, la_rows(shifted(d.d21, false), x)));
  as_first = v_div(as_first, la_rows(size, x));
  tt_hlo size_before = v_if(second, shifted(size, false), one);
  as_second = v_div(as_second, la_rows(size_before, x));
  return v_if(la_rows(s->first, x), as_first, v_if(la_rows(second, x), as_second, v_div(x, la_rows(diagonal, x))));
}

static tt_hlo ldl_solve(tt_hlo ld, tt_hlo pivots, tt_hlo b, bool hermitian) {
  if (!ld || !pivots || !b || tt_hlo_numel(b) == 0) {
    return b;
  }
  tt_hlo_builder *builder = tt_hlo_builder_of(b);
  tt_hlo negative = v_ltc(pivots, 0), count = tt_running(TT_SUM, tt_hlo_convert(negative, TT_S32), 1);
  // Negative ones come in pairs.
  ldl_system s = {ld, pivots, v_and(negative, v_eqc(v_and(count, v_const(count, 1)), 1)), hermitian};
  tt_hlo state[] = {tt_hlo_scalar(builder, TT_S32, 0), b};
  tt_hlo_while(state, 2, forward_cond, forward_body, &s, state);
  state[0] = tt_hlo_scalar(builder, TT_S32, (double)(b->dims[1] - 1));
  state[1] = solve_blocks(&s, state[1]);
  tt_hlo_while(state, 2, backward_cond, backward_body, &s, state);
  return state[1];
}

static void build_ldl_solve(tt_rule *r) {
  const tt_operand *a = tt_operand_of(r, "LD"), *p = tt_operand_of(r, "pivots"), *b = tt_operand_of(r, "B");
  const char *who = "torch.linalg.ldl_solve";
  if (!a || !p || !b || !la_check_square(r, a, who, "A")) {
    return;
  }
  if (!tt_dtype_is_float(a->dtype) && !tt_dtype_is_complex(a->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: Expected a floating point or complex tensor as input. Got %s", who,
            tt_type_name(a->dtype));
  } else if (b->ndim < 2) {
    tt_fail(r, TT_ERR_INDEX, "Dimension out of range (expected to be in range of [-1, 0], but got -2)");
  } else if (b->sizes[b->ndim - 2] != a->sizes[a->ndim - 2]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Incompatible matrix sizes for %s: each A matrix is %" PRId64 " by %" PRId64
            " but each b matrix is %" PRId64 " by %" PRId64,
            who, a->sizes[a->ndim - 1], a->sizes[a->ndim - 1], b->sizes[b->ndim - 2], b->sizes[b->ndim - 1]);
  } else if (p->ndim != a->ndim - 1 || memcmp(p->sizes, a->sizes, (size_t)p->ndim * sizeof *p->sizes) != 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            "%s: Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape %s instead", who,
            tt_dims_text(p->sizes, p->ndim).text);
  } else if (!tt_is_integral(p->dtype) || p->dtype == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: Expected pivots to be integers. Got %s", who, tt_type_name(p->dtype));
  } else if (a->dtype != b->dtype) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Expected b and A to have the same dtype, but found b of type %s and A of type %s instead.",
            tt_type_name(b->dtype), tt_type_name(a->dtype));
  } else if (la_check_dtype(r, a->dtype, who, "ldl_solve_kernel_cpu")) {
    tt_hlo ld = tt_in(r, "LD"), pivots = tt_in_as(r, "pivots", TT_S32), x = tt_in(r, "B"), like = x;
    const double n = (double)a->sizes[a->ndim - 1];
    tt_device_assert(r, v_and(v_lec(v_abs(pivots), n), v_not(v_eqc(pivots, 0))), TT_ERR_RUNTIME,
                     "Pivots given to ldl_solve must all satisfy |pivot| <= LD.size(-2). Did you properly pass the "
                     "result of ldl_factor?");
    pivots = v_unsqueeze(pivots, pivots ? pivots->rank : 0);
    if (la_broadcast_batches(r, &ld, &x) && la_broadcast_batches(r, &pivots, &like)) {
      tt_hlo flat = v_squeeze(la_flat(pivots, 2), 2);
      const bool hermitian = tt_bool(r, "hermitian", false) && tt_dtype_is_complex(a->dtype);
      la_ret_by_columns(r, 0, v_reshape_like(ldl_solve(la_flat(ld, 2), flat, la_flat(x, 2), hermitian), x));
    }
  }
}

const tt_rule_entry tt_rules_linalg_ldl[] = {
    {.name = "aten::linalg_ldl_factor_ex", .build = build_ldl_factor_ex},
    {.name = "aten::linalg_ldl_solve", .build = build_ldl_solve},
    {0},
};
