// Eigenvalues and eigenvectors of general matrices: Hessenberg form, QR iterations to Schur form (real matrices with
// Francis' double shift, complex ones with a single shift), back substitution. All matrices of a batch go in step: a
// sweep runs over the rows that any of them still iterates on, and leaves the others alone.
#include <math.h>

#include "aten/spectral.h"

// A bulge is chased through `width` rows at a time: 3 for the double shift, where matrices have a row and a column of
// zeros at the end so that the window of the last step fits, or 2.
typedef struct schur {
  int64_t times;
  int64_t n, width;
  bool vectors;
} schur;

// ---- reflections of a few rows ----

// H^H t H and z H (z is kept transposed), where H reflects rows k to k + width. Where `clean` [batch] holds, column
// k - 1 of these rows becomes beta, 0, ...
static void reflect_window(const schur *s, sp_reflector h, tt_hlo k, tt_hlo clean, tt_hlo *t, tt_hlo *z) {
  const int64_t w = s->width, n = *t ? (*t)->dims[1] : 0;
  tt_hlo rows = la_window(*t, k, NULL, w, n), v = h.v, tau = la_each(h.tau, v);
  tt_hlo product = v_reduce(TT_SUM, v_mul(la_rows(la_conj(v), rows), rows), 1);
  rows = v_sub(rows, sp_outer(v_mul(la_conj(tau), v), product, rows));
  if (clean) {
    tt_hlo column = v_eq(sp_index(rows, 2), v_addc(v_like(k, rows), -1));
    tt_hlo beta = v_if(v_eqc(sp_index(rows, 1), 0), la_each(la_as(h.beta, rows), rows), v_const(rows, 0));
    rows = v_if(v_and(column, la_each(clean, column)), beta, rows);
  }
  *t = la_put_window(*t, rows, k, NULL);
  tt_hlo columns = la_window(*t, NULL, k, n, w);
  product = v_reduce(TT_SUM, v_mul(columns, la_columns(v, columns)), 2);
  *t = la_put_window(*t, v_sub(columns, sp_outer(product, v_mul(tau, la_conj(v)), columns)), NULL, k);
  if (s->vectors) {
    rows = la_window(*z, k, NULL, w, n);
    product = v_reduce(TT_SUM, v_mul(la_rows(v, rows), rows), 1);
    *z = la_put_window(*z, v_sub(rows, sp_outer(v_mul(tau, la_conj(v)), product, rows)), k, NULL);
  }
}

// ---- balancing, as LAPACK does it: rows and columns that are triangular already are moved to the ends, others scaled
// ----

typedef struct isolation {
  int64_t n;
  tt_hlo links;  // [batch, n, n]: elements beside the diagonal that aren't zero
} isolation;

// The first or last place where `on` [batch, n] holds, [batch]; -1: none.
static tt_hlo some_place(tt_hlo on, bool last) {
  tt_hlo i = sp_index(on, 1), none = v_const(i, last ? -1 : INT32_MAX);
  tt_hlo place = v_reduce(last ? TT_MAX : TT_MIN, v_if(on, i, none), 1);
  return last || !place ? place : v_if(v_eqc(place, INT32_MAX), v_const(place, -1), place);
}

// state: step, whether to go on, new place of each row (-1: none yet), how many are at the beginning and at the end.
// A row without links to those that have no place goes to the end, a column to the beginning.
static void isolate_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  const isolation *s = context;
  tt_hlo place = state[2], left = v_ltc(place, 0), i = sp_index(place, 1);
  tt_hlo row_links = v_reduce(TT_ANY, v_and(s->links, la_columns(left, s->links)), 2);
  tt_hlo column_links = v_reduce(TT_ANY, v_and(s->links, la_rows(left, s->links)), 1);
  tt_hlo row = some_place(v_and(left, v_not(row_links)), true), is_row = v_gec(row, 0);
  tt_hlo column = some_place(v_and(left, v_not(column_links)), false),
         is_column = v_and(v_gec(column, 0), v_not(is_row));
  tt_hlo to = v_if(is_row, v_csub((double)s->n - 1, state[4]), state[3]), found = v_or(is_row, is_column);
  tt_hlo here = v_and(v_eq(i, la_each(v_if(is_row, row, column), i)), la_each(found, i));
  out[0] = v_addc(state[0], 1);
  out[1] = v_reduce_all(TT_ANY, found);
  out[2] = v_if(here, la_each(to, i), place);
  out[3] = v_add(state[3], tt_hlo_convert(is_column, TT_S32));
  out[4] = v_add(state[4], tt_hlo_convert(is_row, TT_S32));
}
static tt_hlo isolate_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  return v_and(state[1], v_ltc(state[0], (double)((const isolation *)context)->n));
}

// state: step, whether to go on, matrix, scale of each column. Powers of 2 bring norms of row i and column i together;
// as the others move at the same time each goes less than half of the way.
static void scale_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  tt_hlo inner = *(const tt_hlo *)context, a = state[2], zero = v_const(la_real(a), 0);
  tt_hlo squares = v_if(v_and(la_columns(inner, zero), la_rows(inner, zero)), la_square(a), zero);
  tt_hlo r = v_sqrt(v_reduce(TT_SUM, squares, 2)), c = v_sqrt(v_reduce(TT_SUM, squares, 1)), f = v_const(r, 1);
  static const double steps[][2] = {{0x1p2, 2}, {0x1p6, 4}, {0x1p14, 16}};
  for (size_t k = 0; k < sizeof steps / sizeof *steps; k++) {
    f = v_if(v_gt(r, v_mulc(c, steps[k][0])), v_const(f, steps[k][1]), f);
    f = v_if(v_gt(c, v_mulc(r, steps[k][0])), v_const(f, 1 / steps[k][1]), f);
  }
  f = v_if(v_and(inner, v_and(v_gtc(r, 0), v_gtc(c, 0))), f, v_const(f, 1));
  tt_hlo by = v_mul(la_columns(f, zero), la_rows(v_cdiv(1, f), zero));
  out[0] = v_addc(state[0], 1);
  out[1] = v_reduce_all(TT_ANY, v_ne(f, v_const(f, 1)));
  out[2] = v_mul(a, la_as(by, a));
  out[3] = v_mul(state[3], f);
}
static tt_hlo scale_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return v_and(state[1], v_ltc(state[0], 20));
}

// The balanced matrix B and z^T, z the permutation times the scales: a = z B z^-1.
static void balance(tt_hlo *a, tt_hlo *z) {
  if (!*a) {
    *z = NULL;
    return;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(*a);
  const int64_t batch = (*a)->dims[0], n = (*a)->dims[1];
  tt_hlo yes = tt_hlo_const_int(b, TT_PRED, 1, NULL, 0), step = tt_hlo_scalar(b, TT_S32, 0);
  isolation s = {.n = n, .links = v_and(v_ne(*a, v_const(*a, 0)), v_not(la_is_diagonal(*a)))};
  tt_hlo none = tt_hlo_const(b, TT_S32, 0, &batch, 1);
  tt_hlo state[5] = {step, yes, tt_hlo_const(b, TT_S32, -1, (const int64_t[]){batch, n}, 2), none, none};
  tt_hlo_while(state, 5, isolate_goes_on, isolate_step, &s, state);
  tt_hlo place = state[2], key = v_if(v_ltc(place, 0), la_each(state[3], place), place);
  tt_hlo order[] = {key, sp_index(key, 1)};
  tt_hlo_sort(order, 2, 1, false, true, false, order);
  *a = la_transpose(la_take_rows(la_transpose(la_take_rows(*a, order[1])), order[1]));
  tt_hlo i = sp_index(place, 1), end = v_csub((double)n, state[4]);
  tt_hlo inner = v_and(v_ge(i, la_each(state[3], i)), v_lt(i, la_each(end, i)));
  tt_hlo ones = tt_hlo_const(b, tt_dtype_real((*a)->dtype), 1, (const int64_t[]){batch, n}, 2);
  tt_hlo scales[4] = {step, yes, *a, ones};
  tt_hlo_while(scales, 4, scale_goes_on, scale_step, &inner, scales);
  *a = scales[2];
  tt_hlo rows = la_take_rows(sp_eye(b, (*a)->dtype, batch, n, n), order[1]);
  *z = v_mul(rows, la_as(la_rows(scales[3], rows), rows));
}

// ---- Hessenberg form ----

// state: step k, matrix, transposed product of the reflections
static void hessenberg_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  const schur *s = context;
  tt_hlo k = state[0], a = state[1];
  const int64_t n = a ? a->dims[1] : 0;
  sp_reflector h = sp_reflect(v_squeeze(la_window(a, NULL, k, n, 1), 2), v_addc(k, 1));
  tt_hlo v = h.v, tau = la_each(h.tau, v), left = la_contract(a, 1, la_conj(v), 1),
         right = v_mul(la_contract(a, 2, v, 1), tau);
  tt_hlo both = v_mul(v_reduce(TT_SUM, v_mul(left, v), 1), v_mul(h.tau, la_conj(h.tau)));
  right = v_sub(right, v_mul(v, la_each(both, v)));
  left = v_mul(left, la_conj(tau));
  out[0] = v_addc(k, 1);
  out[1] = v_sub(a, v_add(sp_outer(v, left, a), sp_outer(right, la_conj(v), a)));
  if (s->vectors) {
    tt_hlo z = state[2];
    out[2] = v_sub(z, sp_outer(v_mul(la_conj(v), tau), la_contract(z, 1, v, 1), z));
  }
}

// ---- QR iterations ----

// Diagonals of a matrix, [batch, n]: of elements [i + low, i + high]; 0 beyond the end.
static tt_hlo band(tt_hlo t, int32_t low, int32_t high) {
  tt_hlo on = v_eq(v_addc(sp_index(t, 1), high), v_addc(sp_index(t, 2), low));
  tt_hlo x = v_reduce(TT_SUM, v_if(on, t, v_const(t, 0)), low ? 1 : 2);
  return x;
}
// Elements of vectors at a place per matrix, [batch].
static tt_hlo at_place(tt_hlo x, tt_hlo place) { return v_squeeze(la_take_rows(x, v_unsqueeze(place, 1)), 1); }

// What a sweep works on: in each matrix the last unreduced block, rows first to last; both -1 where none is left.
typedef struct block {
  tt_hlo first, last;  // [batch], s32
  tt_hlo start;        // [batch, width]: the first column of (t - shift)..., of which the first reflector is made
} block;

static void find_block(const schur *s, tt_hlo linked, block *out) {
  tt_hlo i = sp_index(linked, 1), none = v_const(i, -1), again = linked;
  if (s->width == 3) {  // two rows are left as they are
    again = v_and(linked, v_gtc(sp_shift(tt_hlo_convert(linked, TT_S32), -1, 0), 0));
  }
  tt_hlo link = v_reduce(TT_MAX, v_if(again, i, none), 1), each = la_each(link, i);
  tt_hlo gap = v_reduce(TT_MAX, v_if(v_and(v_not(linked), v_lt(i, each)), i, none), 1), found = v_gec(link, 0);
  out->last = v_if(found, v_addc(link, 1), v_const(link, -1));
  out->first = v_if(found, v_addc(gap, 1), v_const(link, -1));
}

// The shift of complex matrices: the eigenvalue of the last 2 x 2 that is nearer to the last element.
static tt_hlo single_shift(tt_hlo a, tt_hlo b, tt_hlo c, tt_hlo d) {
  tt_hlo half = v_mulc(v_sub(a, d), 0.5), bc = v_mul(b, c);
  tt_hlo root = v_sqrt(v_add(v_mul(half, half), bc)), plus = v_add(half, root), minus = v_sub(half, root);
  tt_hlo by = v_if(v_ge(la_square(plus), la_square(minus)), plus, minus), safe = v_gtc(la_square(by), 0);
  return v_sub(d, v_if(safe, v_div(bc, v_if(safe, by, v_const(by, 1))), v_const(by, 0)));
}

// Sum and product of the two shifts of real matrices: the eigenvalues of the last 2 x 2, or, where those are real,
// twice the one that is nearer to the last element.
static void double_shift(tt_hlo a, tt_hlo b, tt_hlo c, tt_hlo d, tt_hlo *sum, tt_hlo *product) {
  tt_hlo half = v_mulc(v_sub(a, d), 0.5), bc = v_mul(b, c), disc = v_add(v_mul(half, half), bc);
  tt_hlo real = v_gec(disc, 0), root = v_sqrt(v_if(real, disc, v_const(disc, 0)));
  tt_hlo by = v_if(v_ltc(half, 0), v_sub(half, root), v_add(half, root)), safe = v_ne(by, v_const(by, 0));
  tt_hlo near = v_sub(d, v_if(safe, v_div(bc, v_if(safe, by, v_const(by, 1))), v_const(by, 0)));
  *sum = v_if(real, v_mulc(near, 2), v_add(a, d));
  *product = v_if(real, v_mul(near, near), v_sub(v_mul(a, d), bc));
}

// The vector that the first reflector of a sweep is made of. Every tenth sweep on a block shifts by something else.
static void start_vector(const schur *s, tt_hlo diagonal, tt_hlo below, tt_hlo above, tt_hlo tries, block *on) {
  tt_hlo zero = v_const(on->last, 0), one = v_const(on->last, 1), last = v_max(on->last, one);
  tt_hlo first = v_max(on->first, zero), before = v_sub(last, one), second = v_add(first, one);
  tt_hlo a = at_place(diagonal, before), d = at_place(diagonal, last);
  tt_hlo b = at_place(above, before), c = at_place(below, before);
  tt_hlo stuck = v_eqc(tt_hlo_binary(TT_REMAINDER, tries, v_const(tries, 10)), 9);
  tt_hlo size = v_add(v_abs(c), v_abs(at_place(below, v_max(v_sub(before, one), zero))));
  tt_hlo other = v_add(d, la_as(v_mulc(size, 0.75), d));
  tt_hlo h00 = at_place(diagonal, first), h10 = at_place(below, first);
  if (s->width == 2) {
    tt_hlo shift = v_if(stuck, other, single_shift(a, b, c, d));
    const tt_hlo parts[] = {v_unsqueeze(v_sub(h00, shift), 1), v_unsqueeze(h10, 1)};
    on->start = tt_hlo_concatenate(parts, 2, 1);
    return;
  }
  tt_hlo sum, product;
  double_shift(v_if(stuck, other, a), v_if(stuck, v_mulc(size, -0.4375), b), v_if(stuck, size, c),
               v_if(stuck, other, d), &sum, &product);
  tt_hlo h01 = at_place(above, first), h11 = at_place(diagonal, second), h21 = at_place(below, second);
  tt_hlo safe = v_if(v_eqc(h10, 0), v_const(h10, 1), h10);
  tt_hlo x = v_add(v_div(v_add(v_mul(h00, v_sub(h00, sum)), product), safe), h01);
  const tt_hlo parts[] = {v_unsqueeze(x, 1), v_unsqueeze(v_sub(v_add(h00, h11), sum), 1), v_unsqueeze(h21, 1)};
  on->start = tt_hlo_concatenate(parts, 3, 1);
}

typedef struct chase {
  const schur *s;
  block on;
  tt_hlo end;  // 0-d: the last row of any block
} chase;

static tt_hlo chase_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  return v_lt(state[0], ((const chase *)context)->end);
}

// state: row k, matrix, transposed Schur vectors
static void chase_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  const chase *c = context;
  tt_hlo k = state[0], t = state[1], z = c->s->vectors ? state[2] : NULL, at = v_like(k, c->on.first);
  tt_hlo inside = v_and(v_ge(at, c->on.first), v_lt(at, c->on.last)), begins = v_eq(at, c->on.first);
  tt_hlo x = v_squeeze(la_window(t, k, v_addc(k, -1), c->s->width, 1), 2), i = sp_index(x, 1);
  x = v_if(la_each(begins, i), c->on.start, x);
  if (c->s->width == 3) {  // the last step has but two rows
    x = v_if(v_le(v_add(i, v_like(k, i)), la_each(c->on.last, i)), x, v_const(x, 0));
  }
  sp_reflector h = sp_reflect(x, tt_hlo_scalar(tt_hlo_builder_of(k), TT_S32, 0));
  h.tau = v_if(inside, h.tau, v_const(h.tau, 0));
  reflect_window(c->s, h, k, v_and(inside, v_not(begins)), &t, &z);
  out[0] = v_addc(k, 1);
  out[1] = t;
  if (c->s->vectors) {
    out[2] = z;
  }
}

// state: sweep, tries of each matrix on its block, the block's last row, whether to go on, matrix, vectors
static void sweep_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  const schur *s = context;
  tt_hlo t = state[4], diagonal = band(t, 0, 0), below = band(t, 1, 0), above = band(t, 0, 1);
  tt_hlo size = v_abs(diagonal), around = v_add(size, sp_shift(size, 1, 0));
  const double ulp = sp_ulp(t);
  tt_hlo linked = v_gt(v_abs(below), v_add(v_mulc(around, ulp), v_const(around, ulp * ulp)));
  tt_hlo cut = v_and(v_eq(sp_index(t, 1), v_addc(sp_index(t, 2), 1)), v_not(la_columns(linked, t)));
  t = v_if(cut, v_const(t, 0), t);
  chase c = {.s = s};
  find_block(s, linked, &c.on);
  tt_hlo tries = v_if(v_eq(c.on.last, state[2]), v_addc(state[1], 1), v_const(state[1], 0));
  start_vector(s, diagonal, below, above, tries, &c.on);
  c.end = v_reduce_all(TT_MAX, c.on.last);
  tt_hlo far = v_const(c.on.first, (double)s->n),
         begin = v_reduce_all(TT_MIN, v_if(v_ltc(c.on.first, 0), far, c.on.first));
  tt_hlo inner[3] = {begin, t, s->vectors ? state[5] : NULL};
  tt_hlo_while(inner, s->vectors ? 3 : 2, chase_goes_on, chase_step, &c, inner);
  out[0] = v_addc(state[0], 1);
  out[1] = tries;
  out[2] = c.on.last;
  out[3] = v_gec(c.end, 0);
  out[4] = inner[1];
  if (s->vectors) {
    out[5] = inner[2];
  }
}
static tt_hlo sweeps_go_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  const schur *s = context;
  return v_and(state[3], v_ltc(state[0], 30 * (double)(s->n > 10 ? s->n : 10)));
}

// ---- eigenvalues of a real matrix ----

// state: row k, matrix, transposed Schur vectors. Two rows that are still linked are made triangular.
typedef struct pairs {
  int64_t times;
  schur s;
  tt_hlo vector;  // [batch, n, 2]: an eigenvector of rows i and i + 1
  tt_hlo linked;  // [batch, n]
} pairs;

static void pair_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const pairs *p = context;
  tt_hlo k = state[0], t = state[1], z = state[2];
  sp_reflector h = sp_reflect(sp_row(p->vector, k), tt_hlo_scalar(b, TT_S32, 0));
  tt_hlo linked = v_squeeze(sp_row(v_unsqueeze(tt_hlo_convert(p->linked, TT_S32), 2), k), 1);
  h.tau = v_if(v_gtc(linked, 0), h.tau, v_const(h.tau, 0));
  reflect_window(&p->s, h, k, NULL, &t, &z);
  out[0] = v_addc(k, 1);
  out[1] = t;
  out[2] = z;
}

// `x` [batch, n], sorted by place: a value that is computed once, however many use it. XLA computes what it fuses into
// several loops anew in each, and not always with the same rounding.
static tt_hlo computed_once(tt_hlo x) {
  tt_hlo sorted[] = {sp_index(x, 1), x};
  tt_hlo_sort(sorted, 2, 1, false, true, false, sorted);
  return sorted[1];
}

// Eigenvalues of a real matrix in Schur form, [batch, n], and an eigenvector for each linked pair of rows.
static tt_hlo quasi_eigenvalues(tt_hlo t, tt_hlo *linked, tt_hlo *vector) {
  tt_hlo d = band(t, 0, 0), c = band(t, 1, 0), b = band(t, 0, 1), next = sp_shift(d, 1, 0), zero = v_const(d, 0);
  *linked = v_ne(c, zero);
  tt_hlo half = v_mulc(v_sub(d, next), 0.5), bc = v_mul(b, c), disc = computed_once(v_add(v_mul(half, half), bc));
  tt_hlo real = v_gec(disc, 0), root = v_sqrt(v_abs(disc));
  tt_hlo by = v_if(v_ltc(half, 0), v_sub(half, root), v_add(half, root)), safe = v_ne(by, zero);
  tt_hlo low = v_sub(next, v_if(safe, v_div(bc, v_if(safe, by, v_const(by, 1))), zero)), high = v_add(next, by);
  tt_hlo middle = v_add(next, half), re1 = v_if(real, high, middle), re2 = v_if(real, low, middle);
  tt_hlo im = v_if(real, zero, root), first = tt_hlo_complex(re1, im), second = tt_hlo_complex(re2, v_neg(im));
  // (b, x - a) or (x - d, c), whichever is larger
  tt_hlo to_a = v_sub(first, tt_hlo_complex(d, zero)), to_d = v_sub(first, tt_hlo_complex(next, zero));
  tt_hlo use_b = v_ge(v_add(v_mul(b, b), la_square(to_a)), v_add(v_mul(c, c), la_square(to_d)));
  tt_hlo x = v_if(use_b, tt_hlo_complex(b, zero), to_d), y = v_if(use_b, to_a, tt_hlo_complex(c, zero));
  const tt_hlo both[] = {v_unsqueeze(x, 2), v_unsqueeze(y, 2)};
  *vector = tt_hlo_concatenate(both, 2, 2);
  tt_hlo is_second = v_gtc(sp_shift(tt_hlo_convert(*linked, TT_S32), -1, 0), 0);
  tt_hlo second_re = sp_shift(tt_hlo_unary(TT_REAL, second), -1, 0), second_im = sp_shift(v_neg(im), -1, 0);
  tt_hlo re = v_if(*linked, re1, v_if(is_second, second_re, d));
  return tt_hlo_complex(re, v_if(*linked, im, v_if(is_second, second_im, zero)));
}

// ---- eigenvectors ----

typedef struct triangular {
  int64_t times;
  tt_hlo t, values;
} triangular;

// state: step, x [batch, n (component), n (which)]. Row j from those behind it; a vector that grows is made smaller.
static void substitute_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const triangular *s = context;
  tt_hlo j = v_sub(tt_hlo_scalar(b, TT_S32, (double)s->times - 1), state[0]), row = sp_row(s->t, j);
  tt_hlo sum = la_contract(state[1], 1, row, 1), i = sp_index(sum, 1), at = v_like(j, i);
  tt_hlo own = la_each(v_squeeze(sp_row(v_unsqueeze(s->values, 2), j), 1), sum);
  tt_hlo by = v_sub(s->values, own), least = v_const(v_abs(by), sp_ulp(by));
  by = v_if(v_lt(v_abs(by), least), la_as(least, by), by);
  tt_hlo x = v_div(sum, by), size = v_abs(x);
  tt_hlo large = v_and(v_gtc(size, 1e6), v_gt(i, at)), shrink = v_if(large, v_cdiv(1, size), v_const(size, 1));
  x = v_mul(x, la_as(shrink, x));
  x = v_if(v_gt(i, at), x, v_if(v_eq(i, at), v_const(x, 1), v_const(x, 0)));
  out[0] = v_addc(state[0], 1);
  out[1] = sp_put_row(v_mul(state[1], la_as(la_columns(shrink, state[1]), state[1])), x, j);
}

// Rows of norm 1 whose greatest element is real and positive.
static tt_hlo normalised(tt_hlo rows) {
  tt_hlo size = v_abs(rows), most = v_reduce(TT_MAX, size, 2), j = sp_index(rows, 2);
  tt_hlo place = v_reduce(TT_MIN, v_if(v_eq(size, la_rows(most, size)), j, v_const(j, INT32_MAX)), 2);
  tt_hlo pivot = v_reduce(TT_SUM, v_if(v_eq(j, la_rows(place, j)), rows, v_const(rows, 0)), 2);
  tt_hlo safe = v_if(v_gtc(most, 0), most, v_const(most, 1));
  rows = v_div(rows, la_as(la_rows(safe, rows), rows));
  tt_hlo norm = v_sqrt(v_reduce(TT_SUM, la_square(rows), 2));
  tt_hlo turn = v_div(la_conj(pivot), la_as(v_mul(safe, v_if(v_gtc(norm, 0), norm, v_const(norm, 1))), pivot));
  tt_hlo turned = v_mul(rows, la_rows(turn, rows));
  return v_if(v_eq(j, la_rows(place, j)), la_as(la_real(turned), turned), turned);
}

static tt_hlo eigenvectors(tt_hlo t, tt_hlo z, tt_hlo values) {
  if (!t || !z || !values) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(t);
  triangular s = {.times = t->dims[1], .t = t, .values = values};
  tt_hlo state[2] = {tt_hlo_scalar(b, TT_S32, 0), v_const(t, 0)};
  sp_repeat(state, 2, substitute_step, &s, state);
  return normalised(la_contract(state[1], 1, z, 1));
}

// ---- all of it ----

typedef struct eig {
  tt_hlo values;     // [batch, n], complex
  tt_hlo vectors;    // [batch, n, n], rows
  tt_hlo converged;  // 0-d
} eig;

static tt_hlo as_complex(tt_hlo x) { return x ? tt_hlo_convert(x, tt_dtype_complex(x->dtype)) : NULL; }

// Schur form of a finite matrix, and its transposed vectors.
static tt_hlo schur_form(const schur *s, tt_hlo *t, tt_hlo *z) {
  tt_hlo_builder *b = tt_hlo_builder_of(*t);
  if (s->n == 1) {
    return tt_hlo_const_int(b, TT_PRED, 1, NULL, 0);
  }
  schur first = *s;
  first.times = s->n - 2;
  tt_hlo zero = tt_hlo_scalar(b, TT_S32, 0), state[6] = {zero, *t, *z};
  if (s->n > 2) {
    sp_repeat(state, s->vectors ? 3 : 2, hessenberg_step, &first, state);
  }
  const int64_t more = s->width - 2;
  tt_hlo h = v_pad0(v_pad0(state[1], 1, 0, more, 0), 2, 0, more, 0);
  tt_hlo vectors = s->vectors ? v_pad0(v_pad0(state[2], 1, 0, more, 0), 2, 0, more, 0) : NULL;
  h = v_if(v_le(sp_index(h, 1), v_addc(sp_index(h, 2), 1)), h, v_const(h, 0));
  tt_hlo tries = tt_hlo_const(b, TT_S32, 0, h ? h->dims : NULL, h ? 1 : 0);
  tt_hlo sweep[6] = {zero, tries, tries, tt_hlo_const_int(b, TT_PRED, 1, NULL, 0), h, vectors};
  tt_hlo_while(sweep, s->vectors ? 6 : 5, sweeps_go_on, sweep_step, (void *)s, sweep);
  *t = tt_hlo_slice_dim(tt_hlo_slice_dim(sweep[4], 1, 0, s->n, 1), 2, 0, s->n, 1);
  *z = s->vectors ? tt_hlo_slice_dim(tt_hlo_slice_dim(sweep[5], 1, 0, s->n, 1), 2, 0, s->n, 1) : NULL;
  return v_not(sweep[3]);
}

static tt_hlo real_vectors(tt_hlo t, tt_hlo z, tt_hlo values, tt_hlo linked, tt_hlo vector) {
  const int64_t n = t ? t->dims[1] : 0;
  pairs p = {.times = n - 1, .s = {.n = n, .width = 2, .vectors = true}, .vector = vector, .linked = linked};
  tt_hlo state[3] = {t ? tt_hlo_scalar(tt_hlo_builder_of(t), TT_S32, 0) : NULL, as_complex(t), as_complex(z)};
  if (n > 1) {
    sp_repeat(state, 3, pair_step, &p, state);
  }
  tt_hlo rows = eigenvectors(state[1], state[2], values), im = tt_hlo_unary(TT_IMAG, values);
  tt_hlo re_rows = la_real(rows), im_rows = rows ? tt_hlo_unary(TT_IMAG, rows) : NULL;
  tt_hlo real = la_rows(v_eqc(im, 0), im_rows);
  im_rows = v_if(real, v_const(im_rows, 0), im_rows);  // the real part is an eigenvector too
  tt_hlo norm = v_sqrt(v_reduce(TT_SUM, v_add(v_mul(re_rows, re_rows), v_mul(im_rows, im_rows)), 2));
  norm = la_rows(v_if(v_gtc(norm, 0), norm, v_const(norm, 1)), im_rows);
  rows = tt_hlo_complex(v_div(re_rows, norm), v_div(im_rows, norm));
  return v_if(la_rows(v_ltc(im, 0), rows), la_conj(sp_shift(rows, -1, 0)), rows);
}

static eig general_eig(tt_hlo a, bool vectors) {
  eig f = {NULL, NULL, NULL};
  if (!a) {
    return f;
  }
  const bool real = !tt_dtype_is_complex(a->dtype), mask[TT_MAX_RANK] = {false, true, true};
  const schur s = {.n = a->dims[1], .width = real ? 3 : 2, .vectors = vectors};
  tt_hlo finite = tt_reduce_mask(TT_ALL, tt_hlo_unary(TT_IS_FINITE, v_abs(a)), mask), scale = sp_scale(a);
  tt_hlo t = v_if(la_each(finite, a), v_div(a, la_as(la_each(scale, a), a)), v_const(a, 0));
  tt_hlo z;
  balance(&t, &z);
  tt_hlo again = sp_scale(t);
  t = v_div(t, la_as(la_each(again, t), t));
  scale = v_mul(scale, again);
  f.converged = schur_form(&s, &t, &z);
  tt_hlo linked, vector;
  f.values = real ? quasi_eigenvalues(t, &linked, &vector) : band(t, 0, 0);
  if (vectors) {
    f.vectors = real ? real_vectors(t, z, f.values, linked, vector) : eigenvectors(t, z, f.values);
  }
  f.values = v_mul(f.values, la_as(la_each(scale, f.values), f.values));
  f.values = f.values ? v_if(la_each(finite, f.values), f.values, v_const(f.values, NAN)) : NULL;
  return f;
}

// ---- the operators ----

enum { EIG, EIGVALS };

static bool check_eig(tt_rule *r, const tt_operand *x, const char *who) {
  if (!la_check_square(r, x, who, "A")) {
    return false;
  }
  if (!v_has_nan(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "Unknown Complex ScalarType for %s", tt_type_name(x->dtype));
    return false;
  }
  if (tt_opmath(x->dtype) != x->dtype || tt_dtype_size(x->dtype) < 4) {
    tt_fail_dtype(r, "linalg_eig_out_cpu", x->dtype);
    return false;
  }
  return true;
}

static bool check_out(tt_rule *r, const char *who, const char *out, const char *name, tt_dtype dtype) {
  const tt_operand *x = tt_operand_of(r, out);
  if (x && !tt_dtype_is_complex(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.%s: Expected %s to be safely castable from %s dtype, but got %s with dtype %s",
            who, name, tt_type_name(dtype), name, tt_type_name(x->dtype));
    return false;
  }
  return true;
}

static void build_eig(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  const bool vectors = tt_rule_kind(r) == EIG;
  const char *who = vectors ? "linalg.eig" : "linalg.eigvals";
  if (!x || !check_eig(r, x, who)) {
    return;
  }
  const tt_dtype dtype = tt_dtype_complex(x->dtype);
  if (!check_out(r, who, vectors ? "eigenvalues" : "out", "eigenvalues", dtype) ||
      (vectors && !check_out(r, who, "eigenvectors", "eigenvectors", dtype))) {
    return;
  }
  tt_hlo operand = tt_in(r, "self"), a = la_flat(operand, 2);
  if (!a) {
    return;
  }
  eig f = {NULL, NULL, NULL};
  if (tt_hlo_numel(a) == 0) {
    f.values = tt_hlo_const(tt_b(r), dtype, 0, a->dims, 2);
    f.vectors = as_complex(a);
  } else {
    if (vectors) {
      tt_device_assert(r, tt_hlo_unary(TT_IS_FINITE, v_abs(a)), TT_ERR_RUNTIME,
                       "torch.linalg.eig: input tensor should not contain infs or NaNs.");
    }
    // The iteration loses a few times what LAPACK's does; XLA:CPU has wider numbers at little cost.
    const bool widen = tt_rule_is_cpu(r) && tt_dtype_real(a->dtype) == TT_F32;
    f = general_eig(widen ? tt_hlo_convert(a, a->dtype == TT_F32 ? TT_F64 : TT_C128) : a, vectors);
    f.values = f.values ? tt_hlo_convert(f.values, dtype) : NULL;
    f.vectors = f.vectors ? tt_hlo_convert(f.vectors, dtype) : NULL;
    tt_device_assert(r, f.converged, TT_ERR_LINALG, "%s: The algorithm failed to converge.", who);
  }
  tt_ret(r, 0, la_unflat(f.values, operand));
  if (vectors) {
    la_ret_by_columns(r, 1, la_unflat(la_transpose(f.vectors), operand));
  }
}

const tt_rule_entry tt_rules_linalg_eig[] = {
    {.name = "aten::linalg_eig", .build = build_eig, .kind = EIG, .out_dtype = TT_OUT_CAST},
    {.name = "aten::_linalg_eigvals", .build = build_eig, .kind = EIGVALS, .out_dtype = TT_OUT_CAST},
    {.name = "aten::linalg_eigvals.out", .build = build_eig, .kind = EIGVALS, .out_dtype = TT_OUT_CAST},
    {0},
};
