// Eigenvalues and eigenvectors of Hermitian matrices: Householder reflections to a real tridiagonal matrix, then
// Cuppen's divide and conquer. It starts from 1 by 1 blocks and joins neighbours until one block is left; all blocks
// of all matrices are joined at once, so that the number of steps is that of the levels, log2(n). Joining two blocks
// is the eigenproblem of D + rho z z^T (Gu and Eisenstat, SIAM J. Matrix Anal. Appl. 16, 1995).
#include <math.h>

#include "aten/spectral.h"

// ---- tridiagonal form ----

typedef struct tridiagonal {
  int64_t times;
  bool vectors;
} tridiagonal;

// state: step k, matrix, subdiagonal [batch, n], and the transposed product of the reflections if it is wanted
static void tridiagonal_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  const tridiagonal *t = context;
  tt_hlo k = state[0], a = state[1];
  sp_reflector h = sp_reflect(la_conj(sp_row(a, k)), v_addc(k, 1));
  tt_hlo v = h.v, tau = la_each(h.tau, v), x = v_mul(la_contract(a, 2, v, 1), tau);
  tt_hlo half = v_mulc(v_mul(h.tau, sp_inner(x, v)), -0.5);
  tt_hlo w = v_add(x, v_mul(v, la_each(half, v)));
  out[0] = v_addc(k, 1);
  out[1] = v_sub(a, v_add(sp_outer(v, la_conj(w), a), sp_outer(w, la_conj(v), a)));
  tt_hlo i = sp_index(state[2], 1);
  out[2] = v_if(v_eq(i, v_like(k, i)), la_each(h.beta, state[2]), state[2]);
  if (t->vectors) {
    tt_hlo g = state[3];
    out[3] = v_sub(g, sp_outer(v_mul(la_conj(v), tau), la_contract(g, 1, v, 1), g));
  }
}

// ---- joining blocks ----

// One level of n vectors padded to a power of two. Blocks of this level are 2^(level + 1) long.
typedef struct level {
  int64_t n, columns;  // columns: of the rows that are carried along
  double tolerance;
  tt_hlo coupling;  // [batch, n]: of element i and i + 1
  tt_hlo block;     // [batch, n], s32: which block an element belongs to
  tt_hlo rho;       // [batch, n]: of the block
  tt_hlo same;      // [batch, n, n]: elements i and j belong to one block
} level;

static tt_hlo is_active(const level *l, tt_hlo z) { return v_gtc(v_mul(l->rho, v_abs(z)), l->tolerance); }
// Element i has a neighbour i + 1 in its block for which `on` holds too.
static tt_hlo with_next(const level *l, tt_hlo on) {
  tt_hlo next = v_eq(sp_shift(l->block, 1, -1), l->block);
  return v_and(v_and(on, next), v_gtc(sp_shift(tt_hlo_convert(on, TT_S32), 1, 0), 0));
}

// Elements of each block in order: active ones first, each by value.
static void sort_blocks(const level *l, tt_hlo active, tt_hlo *values, tt_hlo *z, tt_hlo *rows) {
  tt_hlo key = v_sub(v_mulc(l->block, 2), tt_hlo_convert(active, TT_S32));
  tt_hlo sorted[] = {key, *values, sp_index(key, 1)};
  tt_hlo_sort(sorted, 3, 1, false, true, true, sorted);
  *values = sorted[1];
  *z = la_take_rows(*z, sorted[2]);
  *rows = la_take_rows(*rows, sorted[2]);
}

// state: step, whether a pair was found, values, z, rows. Elements whose z is negligible are eigenvectors as they are;
// of two whose values are nearly equal a rotation makes z of the first vanish. Disjoint pairs are rotated at once:
// those that begin at even places, then those at odd ones.
static void deflate_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  const level *l = context;
  tt_hlo d = state[2], z = state[3], rows = state[4], active = is_active(l, z);
  sort_blocks(l, active, &d, &z, &rows);
  active = is_active(l, z);
  z = v_if(active, z, v_const(z, 0));
  tt_hlo pair = with_next(l, active), one = v_const(z, 1), zero = v_const(z, 0);
  tt_hlo next_z = sp_shift(z, 1, 0), next_d = sp_shift(d, 1, 0);
  tt_hlo norm = v_if(pair, v_sqrt(v_add(v_mul(z, z), v_mul(next_z, next_z))), one);
  tt_hlo c = v_div(next_z, norm), s = v_neg(v_div(z, norm));
  pair = v_and(pair, v_lec(v_abs(v_mul(v_sub(next_d, d), v_mul(c, s))), l->tolerance));
  tt_hlo i = sp_index(d, 1), odd = v_and(v_add(i, v_like(state[0], i)), v_const(i, 1));
  tt_hlo first = v_and(pair, v_eqc(odd, 0));
  tt_hlo second = v_gtc(sp_shift(tt_hlo_convert(first, TT_S32), -1, 0), 0);
  tt_hlo last_c = sp_shift(c, -1, 0), last_s = sp_shift(s, -1, 0), last_d = sp_shift(d, -1, 0);
  tt_hlo own = v_if(first, c, v_if(second, last_c, one)), other = v_if(first, s, v_if(second, v_neg(last_s), zero));
  tt_hlo other_d = v_if(first, next_d, v_if(second, last_d, d));
  tt_hlo partner = v_if(first, v_addc(i, 1), v_if(second, v_addc(i, -1), i));
  out[0] = v_addc(state[0], 1);
  out[1] = v_reduce_all(TT_ANY, pair);
  out[2] = v_if(v_or(first, second), v_add(v_mul(d, v_mul(own, own)), v_mul(other_d, v_mul(other, other))), d);
  out[3] = v_if(first, zero, v_if(second, sp_shift(norm, -1, 0), z));
  out[4] = v_add(v_mul(la_rows(own, rows), rows), v_mul(la_rows(other, rows), la_take_rows(rows, partner)));
}
static tt_hlo deflate_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  const level *l = context;
  return v_and(state[1], v_ltc(state[0], 4 * (double)l->n));
}

// The secular equation 1 + rho sum z_j^2 / (d_j - x) = 0 has a root between each d_i and the next, and one behind the
// last. Each is sought as a distance from the nearer end, so that differences to every d are accurate.
typedef struct secular {
  const level *l;
  tt_hlo weights;   // [batch, n (roots), n]: rho z_j^2, or 0 outside of the block
  tt_hlo relative;  // [batch, n, n]: d_j - origin_i
  tt_hlo sign;      // [batch, n]: 1, or -1 where the root lies before its origin
} secular;

static tt_hlo secular_value(tt_hlo weights, tt_hlo relative, tt_hlo mu) {
  tt_hlo there = v_gtc(weights, 0), by = v_sub(relative, la_rows(mu, relative));
  tt_hlo terms = v_if(there, v_div(weights, v_if(there, by, v_const(by, 1))), v_const(weights, 0));
  return v_addc(v_reduce(TT_SUM, terms, 2), 1);
}

// state: step, low, high. Bisection: geometric while the ends differ in magnitude, then arithmetic.
static void secular_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  const secular *e = context;
  tt_hlo low = state[1], high = state[2];
  tt_hlo apart = v_gt(high, v_mulc(low, 4));
  tt_hlo middle = v_if(apart, v_mul(v_sqrt(low), v_sqrt(high)), v_mulc(v_add(low, high), 0.5));
  tt_hlo f = v_mul(secular_value(e->weights, e->relative, v_mul(middle, e->sign)), e->sign);
  tt_hlo below = v_ltc(f, 0);
  out[0] = v_addc(state[0], 1);
  out[1] = v_if(below, middle, low);
  out[2] = v_if(below, high, middle);
}
static tt_hlo secular_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  tt_hlo low = state[1], high = state[2];
  tt_hlo wide = v_gt(v_sub(high, low), v_mulc(low, sp_ulp(low)));
  return v_and(v_reduce_all(TT_ANY, wide), v_ltc(state[0], 100));
}

// The eigenvectors [batch, n (which), n] of D + rho z z^T in each block; `values` become the eigenvalues.
static tt_hlo join(const level *l, tt_hlo *values, tt_hlo z) {
  tt_hlo d = *values, active = is_active(l, z), one = v_const(d, 1);
  tt_hlo inner = with_next(l, active), next = sp_shift(d, 1, 0), gap = v_mulc(v_sub(next, d), 0.5);
  tt_hlo like = l->same ? tt_hlo_const(tt_hlo_builder_of(d), d->dtype, 0, l->same->dims, 3) : NULL;
  secular e = {.l = l, .weights = v_if(l->same, la_columns(v_mul(l->rho, v_mul(z, z)), like), like)};
  tt_hlo at_middle = secular_value(e.weights, v_sub(la_columns(d, like), la_rows(d, like)), gap);
  tt_hlo before = v_and(inner, v_ltc(at_middle, 0)), origin = v_if(before, next, d);
  e.sign = v_if(before, v_const(d, -1), one);
  e.relative = v_sub(la_columns(d, like), la_rows(origin, like));
  tt_hlo high = v_if(active, v_if(inner, gap, v_mulc(l->rho, 2)), one);
  tt_hlo low = v_if(active, v_mulc(high, sp_ulp(d) < 0x1p-30 ? 0x1p-200 : 0x1p-90), one);
  tt_hlo state[3] = {d ? tt_hlo_scalar(tt_hlo_builder_of(d), TT_S32, 0) : NULL, low, high};
  tt_hlo_while(state, 3, secular_goes_on, secular_step, &e, state);
  tt_hlo mu = v_mul(v_mulc(v_add(state[1], state[2]), 0.5), e.sign);

  // The z for which these roots are exact: the eigenvectors made of it are orthogonal.
  tt_hlo far = v_sub(e.relative, la_rows(mu, like)),
         on = v_and(l->same, v_and(la_rows(active, l->same), la_columns(active, l->same)));
  tt_hlo off = v_and(on, v_not(la_is_diagonal(like)));
  tt_hlo ratio = v_if(off, v_div(far, v_if(off, v_sub(la_columns(d, like), la_rows(d, like)), v_const(like, 1))),
                      v_const(like, 1));
  tt_hlo size = v_abs(v_mul(v_reduce(TT_PROD, ratio, 1), v_sub(v_sub(d, origin), mu)));
  tt_hlo exact = v_if(v_ltc(z, 0), v_neg(v_sqrt(size)), v_sqrt(size));
  tt_hlo w = v_if(on, v_div(la_columns(exact, like), v_if(on, far, v_const(like, 1))), like);
  tt_hlo norm = v_if(active, v_sqrt(v_reduce(TT_SUM, v_mul(w, w), 2)), one);
  w = v_div(w, la_rows(norm, like));
  *values = v_if(active, v_add(origin, mu), d);
  return v_if(v_and(v_not(la_rows(active, l->same)), la_is_diagonal(like)), v_const(like, 1), w);
}

// state: level, values [batch, n], rows [batch, n, columns + 2]: what is carried along for each eigenvector, and its
// first and last component in its block
static void join_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  level l = *(const level *)context;
  tt_hlo i = sp_index(state[1], 1), one = v_const(i, 1), at = v_like(state[0], i);
  tt_hlo shift = v_add(at, one), half = tt_hlo_binary(TT_SHIFT_LEFT, one, at);
  l.block = tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, i, shift);
  tt_hlo middle = v_sub(v_add(tt_hlo_binary(TT_SHIFT_LEFT, l.block, shift), half), one);
  tt_hlo beta = la_take_rows(l.coupling, middle);
  l.rho = v_mulc(v_abs(beta), 2);
  tt_hlo in_second = v_gt(i, middle), rows = state[2], zero = v_const(state[1], 0);
  const int64_t c = l.columns;
  tt_hlo first = v_squeeze(tt_hlo_slice_dim(rows, 2, c, c + 1, 1), 2);
  tt_hlo last = v_squeeze(tt_hlo_slice_dim(rows, 2, c + 1, c + 2, 1), 2);
  tt_hlo z = v_mulc(v_if(in_second, v_if(v_ltc(beta, 0), v_neg(first), first), last), 0.70710678118654752440);
  tt_hlo ends[] = {v_unsqueeze(v_if(in_second, zero, first), 2), v_unsqueeze(v_if(in_second, last, zero), 2)};
  tt_hlo parts[] = {tt_hlo_slice_dim(rows, 2, 0, c, 1), ends[0], ends[1]};
  rows = tt_hlo_concatenate(c ? parts : ends, c ? 3 : 2, 2);

  tt_hlo deflate[5] = {tt_hlo_scalar(b, TT_S32, 0), tt_hlo_const_int(b, TT_PRED, 1, NULL, 0), state[1], z, rows};
  tt_hlo_while(deflate, 5, deflate_goes_on, deflate_step, &l, deflate);
  tt_hlo values = deflate[2],
         square = values ? tt_hlo_const(b, TT_S32, 0, (const int64_t[]){values->dims[0], l.n, l.n}, 3) : NULL;
  l.same = v_eq(la_rows(l.block, square), la_columns(l.block, square));
  tt_hlo w = join(&l, &values, deflate[3]);
  out[0] = v_addc(state[0], 1);
  out[1] = values;
  out[2] = la_contract(w, 2, deflate[4], 1);
}
static tt_hlo join_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  const level *l = context;
  int32_t levels = 0;
  while (((int64_t)1 << levels) < l->n) {
    levels++;
  }
  return v_ltc(state[0], levels);
}

// The real symmetric tridiagonal matrix with this diagonal and, besides, `off` [batch, n] (its last element unused).
// `rows` [batch, n, columns] or NULL: becomes the product of the eigenvectors (as rows) and it.
static void tridiagonal_eigh(tt_hlo diagonal, tt_hlo off, tt_hlo *values, tt_hlo *rows) {
  if (!diagonal || !off) {
    *values = *rows = NULL;
    return;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(diagonal);
  const int64_t batch = diagonal->dims[0], n = diagonal->dims[1];
  level l = {.n = 1, .columns = *rows ? (*rows)->dims[2] : 0, .tolerance = 4 * sp_ulp(diagonal)};
  while (l.n < n) {
    l.n *= 2;
  }
  tt_hlo i = sp_index(off, 1);
  off = v_if(v_ltc(i, (double)n - 1), off, v_const(off, 0));
  tt_hlo before = sp_shift(off, -1, 0);
  tt_hlo around = v_add(v_abs(off), v_abs(before));
  tt_hlo scale = v_reduce(TT_MAX, v_add(v_abs(diagonal), around), 1);
  scale = v_if(v_gtc(scale, 0), scale, v_const(scale, 1));
  tt_hlo by = la_each(scale, off), d = v_div(v_sub(diagonal, around), by);
  l.coupling = v_pad0(v_div(off, by), 1, 0, l.n - n, 0);
  d = v_pad(d, tt_hlo_scalar(b, d ? d->dtype : TT_F32, 4), 1, 0, l.n - n, 0);  // the padding comes last
  tt_hlo ends = tt_hlo_const(b, diagonal->dtype, 1, (const int64_t[]){batch, l.n, 2}, 3);
  tt_hlo parts[] = {*rows ? v_pad0(*rows, 1, 0, l.n - n, 0) : ends, ends};
  tt_hlo state[3] = {tt_hlo_scalar(b, TT_S32, 0), d, *rows ? tt_hlo_concatenate(parts, 2, 2) : ends};
  if (l.n > 1) {
    tt_hlo_while(state, 3, join_goes_on, join_step, &l, state);
  }
  tt_hlo sorted[] = {state[1], sp_index(state[1], 1)};
  tt_hlo_sort(sorted, 2, 1, false, true, false, sorted);
  *values = v_mul(tt_hlo_slice_dim(sorted[0], 1, 0, n, 1), by);
  if (*rows) {
    tt_hlo taken = la_take_rows(state[2], tt_hlo_slice_dim(sorted[1], 1, 0, n, 1));
    *rows = tt_hlo_slice_dim(taken, 2, 0, l.columns, 1);
  }
}

void sp_eigh(tt_hlo a, tt_hlo *values, tt_hlo *vectors) {
  *values = NULL;
  if (vectors) {
    *vectors = NULL;
  }
  if (!a) {
    return;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(a);
  const int64_t batch = a->dims[0], n = a->dims[1];
  const bool complex = tt_dtype_is_complex(a->dtype);
  const bool mask[TT_MAX_RANK] = {false, true, true};
  tt_hlo finite = tt_reduce_mask(TT_ALL, tt_hlo_unary(TT_IS_FINITE, v_abs(a)), mask), scale = sp_scale(a);
  a = v_if(la_each(finite, a), v_div(a, la_as(la_each(scale, a), a)), v_const(a, 0));
  tridiagonal t = {.times = n - 1, .vectors = vectors != NULL};
  tt_hlo state[4] = {tt_hlo_scalar(b, TT_S32, 0), a, tt_hlo_const(b, tt_dtype_real(a->dtype), 0, a->dims, 2),
                     sp_eye(b, a->dtype, batch, n, n)};
  if (n > 1) {
    sp_repeat(state, vectors ? 4 : 3, tridiagonal_step, &t, state);
  }
  tt_hlo rows = vectors ? state[3] : NULL;
  if (rows && complex) {
    rows = tt_hlo_concatenate((const tt_hlo[]){tt_hlo_unary(TT_REAL, rows), tt_hlo_unary(TT_IMAG, rows)}, 2, 2);
  }
  tridiagonal_eigh(la_real(la_diagonal(state[1])), state[2], values, &rows);
  *values = v_mul(*values, la_each(scale, *values));
  *values = *values ? v_if(la_each(finite, *values), *values, v_const(*values, NAN)) : NULL;
  if (vectors) {
    *vectors =
        complex ? tt_hlo_complex(tt_hlo_slice_dim(rows, 2, 0, n, 1), tt_hlo_slice_dim(rows, 2, n, 2 * n, 1)) : rows;
  }
}

// ---- the operator ----

static tt_hlo hermitian(tt_hlo a, bool upper) {
  if (!a) {
    return NULL;
  }
  tt_hlo i = sp_index(a, 1), j = sp_index(a, 2), half = v_if(upper ? v_lt(i, j) : v_gt(i, j), a, v_const(a, 0));
  tt_hlo diagonal = v_if(v_eq(i, j), la_as(la_real(a), a), v_const(a, 0));
  return v_add(v_add(half, la_conj(la_transpose(half))), diagonal);
}

static void build_eigh(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "A");
  const char *uplo = tt_string(r, "UPLO");
  const bool vectors = tt_bool(r, "compute_v", true);
  if (!x || !la_check_square(r, x, "linalg.eigh", "A")) {
    return;
  }
  const char half = uplo && uplo[0] ? uplo[0] : '?';
  if (strlen(uplo ? uplo : "") != 1 || !strchr("LlUu", half)) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected UPLO argument to be 'L' or 'U', but got %s", uplo ? uplo : "");
    return;
  }
  if (!v_has_nan(x->dtype) || tt_opmath(x->dtype) != x->dtype || tt_dtype_size(x->dtype) < 4) {
    tt_fail_dtype(r, "linalg_eigh_cpu", x->dtype);
    return;
  }
  tt_hlo operand = tt_in(r, "A"), a = la_flat(operand, 2), values = NULL, rows = NULL;
  if (!a || !sp_check_out(r, "eigenvalues", tt_dtype_real(x->dtype)) || !sp_check_out(r, "eigenvectors", x->dtype)) {
    return;
  }
  if (tt_hlo_numel(a) == 0) {
    values = tt_hlo_const(tt_b(r), tt_dtype_real(x->dtype), 0, a->dims, 2);
    rows = a;
  } else {
    // Complex reflections lose a few times what LAPACK's do; XLA:CPU has wider numbers at little cost.
    const bool widen = tt_rule_is_cpu(r) && a->dtype == TT_C64;
    tt_hlo full = hermitian(a, half == 'U' || half == 'u');
    sp_eigh(widen ? tt_hlo_convert(full, TT_C128) : full, &values, vectors ? &rows : NULL);
    values = values ? tt_hlo_convert(values, tt_dtype_real(x->dtype)) : NULL;
    rows = rows ? tt_hlo_convert(rows, x->dtype) : NULL;
  }
  tt_ret(r, 0, la_unflat(values, operand));
  if (vectors) {
    la_ret_by_columns(r, 1, la_unflat(la_transpose(rows), operand));
  } else {
    tt_ret(r, 1, tt_hlo_const(tt_b(r), x->dtype, 0, (const int64_t[]){0}, 1));
  }
}

const tt_rule_entry tt_rules_linalg_eigh[] = {
    {.name = "aten::_linalg_eigh", .build = build_eigh},
    {0},
};
