// Least squares by QR: full rank as LAPACK's gels, or of any rank by QR with column pivoting as its gelsy.
#include "aten/linalg.h"

// ---- QR with column pivoting ----

typedef struct pivoted {
  tt_hlo qr, tau;  // [batch, m, n], [batch, k]
  tt_hlo order;    // [batch, n], s32: the factors are of a[:, order]
} pivoted;

// state: step, the matrix, tau, the order of its columns
static tt_hlo pivot_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return state[2] ? v_ltc(state[0], (double)state[2]->dims[1]) : NULL;
}

// Brings the column that is longest from row k on to place k.
static void pivot_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)context;
  tt_hlo k = state[0], a = state[1], order = state[3];
  tt_hlo below = v_iota(a, TT_S32, 1), at = v_iota(order, TT_S32, 1);
  tt_hlo size = la_square(a);
  size = v_reduce(TT_SUM, v_if(v_ge(below, v_like(k, below)), size, v_const(size, 0)), 1);
  size = v_if(v_ge(at, v_like(k, at)), size, v_const(size, -1));
  tt_hlo longest = v_eq(size, v_spread(v_reduce(TT_MAX, size, 1), size, 1));
  const double none = INT32_MAX;
  tt_hlo pivot = v_reduce(TT_MIN, v_if(longest, at, v_const(at, none)), 1);
  pivot = v_if(v_eqc(pivot, none), v_like(k, pivot), pivot);  // NaNs

  tt_hlo is_k = v_eq(at, v_like(k, at)), is_pivot = v_eq(at, v_spread(pivot, at, 1)), zero = v_const(a, 0);
  tt_hlo old = v_reduce(TT_SUM, v_if(la_columns(is_k, a), a, zero), 2);
  tt_hlo top = v_reduce(TT_SUM, v_if(la_columns(is_pivot, a), a, zero), 2);
  a = v_if(la_columns(is_k, a), la_rows(top, a), v_if(la_columns(is_pivot, a), la_rows(old, a), a));
  tt_hlo none_here = v_const(order, 0);
  tt_hlo at_k = v_spread(v_reduce(TT_SUM, v_if(is_k, order, none_here), 1), order, 1);
  tt_hlo at_pivot = v_spread(v_reduce(TT_SUM, v_if(is_pivot, order, none_here), 1), order, 1);
  const tt_hlo place[] = {tt_hlo_scalar(b, TT_S32, 0), k};
  tt_hlo tau;
  out[0] = v_addc(k, 1);
  out[1] = la_qr_step(a, k, k, &tau);
  out[2] = tt_hlo_dynamic_update_slice(state[2], v_unsqueeze(tau, 1), place);
  out[3] = v_if(is_k, at_pivot, v_if(is_pivot, at_k, order));
}

static pivoted factor_pivoted(tt_hlo a) {
  pivoted f = {0};
  if (!a) {
    return f;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(a);
  const int64_t batch = a->dims[0], m = a->dims[1], n = a->dims[2], k = m < n ? m : n;
  const tt_hlo inits[] = {tt_hlo_scalar(b, TT_S32, 0), a, tt_hlo_const(b, a->dtype, 0, (const int64_t[]){batch, k}, 2),
                          tt_hlo_iota(b, TT_S32, (const int64_t[]){batch, n}, 2, 1)};
  tt_hlo results[4];
  tt_hlo_while(inits, 4, pivot_cond, pivot_body, NULL, results);
  return (pivoted){results[1], results[2], results[3]};
}

// ---- the rank of R, by incremental condition estimation ----
//
// x approximates the singular vector of R's leading block for its smallest (or largest) singular value s: |R^H x| = s.
// One more column (w, g) gives the 2 by 2 problem of [s 0; w^H x, conj g], whose singular vector extends x.

typedef struct estimate {
  tt_hlo s, x;  // [batch], real; [batch, k]
} estimate;

static estimate extend(estimate e, tt_hlo w, tt_hlo g, tt_hlo is_new, bool largest) {
  tt_hlo beta = v_reduce(TT_SUM, v_mul(la_conj(w), e.x), 1);
  tt_hlo a = v_add(v_mul(e.s, e.s), la_square(beta)), d = la_square(g), product = v_mul(g, la_conj(beta));
  if (!product) {
    return (estimate){0};
  }
  tt_hlo difference = v_sub(a, d);
  tt_hlo root = v_sqrt(v_add(v_mul(difference, difference), v_mulc(la_square(product), 4)));
  tt_hlo large = v_sqrt(v_mulc(v_add(v_add(a, d), root), 0.5));
  tt_hlo small = v_if(v_gtc(large, 0), v_div(v_mul(e.s, v_sqrt(d)), large), large);
  tt_hlo s = largest ? large : small, square = v_mul(s, s);
  // The vector (p, q), of the second row of the equations or of the first.
  const tt_dtype type = product->dtype;
  tt_hlo p = largest ? tt_hlo_convert(v_sub(square, d), type) : product;
  tt_hlo q = largest ? la_conj(product) : tt_hlo_convert(v_sub(square, a), type);
  tt_hlo length = v_sqrt(v_add(la_square(p), la_square(q))), none = v_eqc(length, 0);
  length = tt_hlo_convert(v_if(none, v_const(length, 1), length), type);
  p = v_if(none, v_const(p, largest ? 0 : 1), v_div(p, length));
  q = v_if(none, v_const(q, largest ? 1 : 0), v_div(q, length));
  return (estimate){s, v_if(is_new, v_spread(q, e.x, 1), v_mul(e.x, v_spread(p, e.x, 1)))};
}

typedef struct ranking {
  tt_hlo r;      // [batch, k, n]
  tt_hlo rcond;  // [batch], real
} ranking;

// state: step, rank [batch], s and x of the smallest, s and x of the largest
static tt_hlo rank_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  const int64_t k = state[3] ? state[3]->dims[1] : 0;
  return v_and(v_ltc(state[0], (double)k), v_reduce_all(TT_ANY, v_ge(state[1], v_like(state[0], state[1]))));
}

static void rank_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const ranking *f = context;
  (void)b;
  tt_hlo step = state[0], rank = state[1], x = state[3], at = v_iota(x, TT_S32, 1);
  tt_hlo column = v_squeeze(la_window(f->r, NULL, step, x->dims[1], 1), 2), zero = v_const(column, 0);
  tt_hlo is_new = v_eq(at, v_like(step, at));
  tt_hlo w = v_if(v_lt(at, v_like(step, at)), column, zero), g = v_reduce(TT_SUM, v_if(is_new, column, zero), 1);
  estimate small = extend((estimate){state[2], x}, w, g, is_new, false);
  estimate large = extend((estimate){state[4], state[5]}, w, g, is_new, true);
  tt_hlo more = v_and(v_eq(rank, v_like(step, rank)), v_le(v_mul(large.s, f->rcond), small.s));
  tt_hlo more_x = v_spread(more, x, 1);
  out[0] = v_addc(step, 1);
  out[1] = v_add(rank, more ? tt_hlo_convert(more, TT_S32) : NULL);
  out[2] = v_if(more, small.s, state[2]);
  out[3] = v_if(more_x, small.x, x);
  out[4] = v_if(more, large.s, state[4]);
  out[5] = v_if(more_x, large.x, state[5]);
}

static tt_hlo rank_of(tt_hlo r, tt_hlo rcond) {
  if (!r) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(r);
  const int64_t dims[] = {r->dims[0], r->dims[1]};
  tt_hlo first = v_squeeze(v_squeeze(la_window(r, NULL, NULL, 1, 1), 2), 1);
  tt_hlo size = v_sqrt(la_square(first)), some = v_not(v_eqc(size, 0));
  tt_hlo at = tt_hlo_iota(b, TT_S32, dims, 2, 1), one = tt_hlo_const(b, r->dtype, 1, dims, 2);
  tt_hlo x = v_if(v_eqc(at, 0), one, v_const(one, 0));
  ranking f = {r, v_like(rcond, size)};
  const tt_hlo inits[] = {tt_hlo_scalar(b, TT_S32, 1), some ? tt_hlo_convert(some, TT_S32) : NULL, size, x, size, x};
  tt_hlo results[6];
  tt_hlo_while(inits, 6, rank_cond, rank_body, &f, results);
  return results[1];
}

// ---- solutions ----

static tt_hlo with_rows(tt_hlo x, int64_t rows) {  // cut, or filled up with zeros
  if (!x) {
    return NULL;
  }
  return x->dims[1] > rows ? tt_hlo_slice_dim(x, 1, 0, rows, 1) : v_pad0(x, 1, 0, rows - x->dims[1], 0);
}

static tt_hlo q_dot(la_qr f, tt_hlo c, bool adjoint) {
  if (!f.qr || !f.tau) {
    return NULL;
  }
  return la_reflect(la_reflectors(tt_hlo_slice_dim(f.qr, 2, 0, f.tau->dims[1], 1), NULL), f.tau, c, adjoint);
}

// R^-1 c or R^-H c, of the leading square.
static tt_hlo r_solve(la_qr f, tt_hlo c, bool adjoint) {
  if (!f.qr || !f.tau) {
    return NULL;
  }
  const int64_t k = f.tau->dims[1];
  tt_hlo r = tt_hlo_slice_dim(tt_hlo_slice_dim(f.qr, 1, 0, k, 1), 2, 0, k, 1);
  return la_solve(r, c, true, true, false, adjoint, adjoint && tt_dtype_is_complex(f.qr->dtype));
}

// Is an element of R's diagonal zero? [batch]
static tt_hlo is_singular(la_qr f) { return v_reduce(TT_ANY, v_eqc(la_diagonal(f.qr), 0), 1); }

// Full rank. The rows of Q^H b below the first n are what is left.
static tt_hlo solve_full(tt_hlo a, tt_hlo b, tt_hlo *left, tt_hlo *singular) {
  if (!a || !b) {
    return NULL;
  }
  const int64_t m = a->dims[1], n = a->dims[2];
  if (m < n) {
    la_qr f = la_qr_factor(la_adjoint(a));
    *singular = is_singular(f);
    return q_dot(f, with_rows(r_solve(f, b, true), n), false);
  }
  la_qr f = la_qr_factor(a);
  *singular = is_singular(f);
  tt_hlo c = q_dot(f, b, true);
  *left = v_reduce(TT_SUM, la_square(tt_hlo_slice_dim(c, 1, n, m, 1)), 1);
  return r_solve(f, with_rows(c, n), false);
}

// The shortest solution: with R's first rows, R = (Z T)^H, x = Z T^-H (Q^H b), in the order of a's columns.
static tt_hlo solve_ranked(tt_hlo a, tt_hlo b, tt_hlo rcond, tt_hlo *rank) {
  if (!a || !b) {
    return NULL;
  }
  const int64_t m = a->dims[1], n = a->dims[2], k = m < n ? m : n;
  tt_hlo scale = la_safe_scale(a);
  a = scale ? v_div(a, la_each(tt_hlo_convert(scale, a->dtype), a)) : NULL;
  pivoted f = factor_pivoted(a);
  tt_hlo r = la_triangle(tt_hlo_slice_dim(f.qr, 1, 0, k, 1), true);
  *rank = rank_of(r, rcond);
  if (!r || !*rank) {
    return NULL;
  }
  tt_hlo row = v_iota(r, TT_S32, 1);
  la_qr z = la_qr_factor(la_adjoint(v_if(v_lt(row, la_each(*rank, row)), r, v_const(r, 0))));
  tt_hlo at = v_iota(z.qr, TT_S32, 2);
  z.qr = v_if(v_and(la_in_band(z.qr, 0, 0), v_ge(at, la_each(*rank, at))), v_const(z.qr, 1), z.qr);
  tt_hlo c = with_rows(q_dot((la_qr){f.qr, f.tau}, b, true), k), place = v_iota(c, TT_S32, 1);
  c = v_if(v_lt(place, la_each(*rank, place)), c, v_const(c, 0));
  tt_hlo x = q_dot(z, with_rows(r_solve(z, c, true), n), false);
  // x[order[i]] is row i.
  const int64_t dims[] = {b->dims[0], n, n};
  tt_hlo to = tt_hlo_iota(tt_hlo_builder_of(b), TT_S32, dims, 3, 1), from = v_iota(to, TT_S32, 2);
  tt_hlo inverse = v_reduce(TT_SUM, v_if(v_eq(to, la_columns(f.order, to)), from, v_const(from, 0)), 2);
  x = la_take_rows(x, inverse);
  return x ? v_div(x, la_each(tt_hlo_convert(scale, x->dtype), x)) : NULL;
}

// A solution in a place with room for max(m, n) rows; squares of what is left (full rank, m > n); rank; whether an
// element of R's diagonal is zero.
static void build_lstsq(tt_rule *r) {
  const tt_operand *of_a = tt_operand_of(r, "a"), *of_b = tt_operand_of(r, "b");
  if (!of_a || !of_b || !la_check_dtype(r, of_a->dtype, "lstsq", "lstsq")) {
    return;
  }
  if (of_a->ndim < 2 || of_b->ndim != of_a->ndim || of_b->dtype != of_a->dtype ||
      memcmp(of_a->sizes, of_b->sizes, (size_t)(of_a->ndim - 1) * sizeof *of_a->sizes) != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "matrices of one dtype, batch and number of rows are expected");
    return;
  }
  tt_hlo a = tt_in(r, "a"), b = tt_in(r, "b"), flat = la_flat(a, 2), right = la_flat(b, 2);
  if (!flat || !right) {
    return;
  }
  tt_hlo_builder *builder = tt_b(r);
  const int64_t batch[] = {flat->dims[0]}, m = flat->dims[1], n = flat->dims[2], count = right->dims[2];
  const tt_dtype real = tt_dtype_is_complex(a->dtype) ? tt_dtype_real(a->dtype) : a->dtype;
  tt_hlo left = tt_hlo_const(builder, real, 0, (const int64_t[]){batch[0], count}, 2);
  tt_hlo rank = tt_hlo_const(builder, TT_S32, 0, batch, 1), singular = tt_hlo_const(builder, TT_PRED, 0, batch, 1);
  tt_hlo x = tt_hlo_const(builder, a->dtype, 0, (const int64_t[]){batch[0], n, count}, 3);
  if (tt_hlo_numel(flat) != 0 && tt_hlo_numel(right) != 0) {
    const int32_t matrix[] = {1, 2};
    tt_hlo zero = tt_hlo_reduce(TT_ALL, v_eqc(flat, 0), matrix, 2);
    x = tt_bool(r, "ranked", true) ? solve_ranked(flat, right, tt_scalar(r, "rcond", real), &rank)
                                   : solve_full(flat, right, &left, &singular);
    x = v_if(la_each(zero, x), v_const(x, 0), x);  // as LAPACK: zeros for zeros
    left = v_if(v_spread(zero, left, 1), v_const(left, 0), left);
    singular = v_and(singular, v_not(zero));
  }
  la_ret_by_columns(r, 0, la_unflat(with_rows(x, m > n ? m : n), a));
  tt_ret(r, 1, la_unflat(left, a));
  tt_ret(r, 2, la_unflat(rank ? tt_hlo_convert(rank, TT_S64) : NULL, a));
  tt_ret(r, 3, la_unflat(singular ? tt_hlo_convert(singular, TT_S32) : NULL, a));
}

const tt_rule_entry tt_rules_linalg_lstsq[] = {
    {.name = "torchtpu::lstsq", .build = build_lstsq},
    {0},
};
