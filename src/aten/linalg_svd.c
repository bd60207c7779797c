// Singular values and vectors: one-sided Jacobi rotations (Hestenes), all disjoint pairs of columns at once. The
// columns first become nearly orthogonal by the eigenvectors of A^H A, so that a few sweeps do where A^H A alone
// would lose the small singular values. Householder reflections then give a basis that is orthonormal for any rank.
#include <math.h>

#include "aten/spectral.h"

typedef struct jacobi {
  int64_t times;      // rounds of a sweep
  int64_t pairs, m;   // the first m elements of a row are a column of the matrix, the rest go along
  tt_hlo negligible;  // [batch]: of the square of a cosine times the larger norm
} jacobi;

static tt_hlo column_part(const jacobi *j, tt_hlo x) { return tt_hlo_slice_dim(x, 2, 0, j->m, 1); }

// Round-robin: the rows of both halves meet each other once in a sweep, after which all are in their places again.
static void next_round(const jacobi *j, tt_hlo *top, tt_hlo *bottom) {
  const int64_t h = j->pairs;
  if (h == 1) {
    return;
  }
  const tt_hlo tops[] = {tt_hlo_slice_dim(*top, 1, 0, 1, 1), tt_hlo_slice_dim(*bottom, 1, 0, 1, 1),
                         tt_hlo_slice_dim(*top, 1, 1, h - 1, 1)};
  const tt_hlo bottoms[] = {tt_hlo_slice_dim(*bottom, 1, 1, h, 1), tt_hlo_slice_dim(*top, 1, h - 1, h, 1)};
  *top = tt_hlo_concatenate(tops, 3, 1);
  *bottom = tt_hlo_concatenate(bottoms, 2, 1);
}

// state: round, whether a pair was not yet orthogonal, and the two halves [batch, pairs, m + ...]
static void round_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  const jacobi *j = context;
  tt_hlo p = state[2], q = state[3], x = column_part(j, p), y = column_part(j, q);
  tt_hlo xx = v_reduce(TT_SUM, la_square(x), 2), yy = v_reduce(TT_SUM, la_square(y), 2);
  tt_hlo xy = v_reduce(TT_SUM, v_mul(la_conj(x), y), 2), size = v_abs(xy), one = v_const(size, 1);
  tt_hlo on = v_gtc(size, 0), safe = v_if(on, size, one);
  tt_hlo zeta = v_div(v_mulc(v_sub(yy, xx), 0.5), safe);
  tt_hlo t = v_div(one, v_add(v_abs(zeta), v_sqrt(v_addc(v_mul(zeta, zeta), 1))));
  t = v_if(on, v_if(v_ltc(zeta, 0), v_neg(t), t), v_const(t, 0));
  tt_hlo c = v_div(one, v_sqrt(v_addc(v_mul(t, t), 1))), s = v_mul(c, t);
  // y turned so that its product with x is real
  tt_hlo phase = la_conj(v_if(on, v_div(xy, la_as(safe, xy)), v_const(xy, 1)));
  tt_hlo turned = v_mul(la_rows(phase, q), q), cs = la_rows(la_as(c, p), p), sn = la_rows(la_as(s, p), p);
  tt_hlo top = v_sub(v_mul(cs, p), v_mul(sn, turned)), bottom = v_add(v_mul(sn, p), v_mul(cs, turned));
  tt_hlo limit = v_mul(v_max(xx, yy), la_each(j->negligible, xx));
  next_round(j, &top, &bottom);
  out[0] = v_addc(state[0], 1);
  out[1] = v_or(state[1], v_reduce_all(TT_ANY, v_gt(v_mul(size, size), limit)));
  out[2] = top;
  out[3] = bottom;
}

// state: sweep, whether to go on, the two halves
static void sweep_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  tt_hlo inner[4] = {tt_hlo_scalar(b, TT_S32, 0), tt_hlo_const_int(b, TT_PRED, 0, NULL, 0), state[2], state[3]};
  sp_repeat(inner, 4, round_step, context, inner);
  out[0] = v_addc(state[0], 1);
  out[1] = inner[1];
  out[2] = inner[2];
  out[3] = inner[3];
}
static tt_hlo sweeps_go_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return v_and(state[1], v_ltc(state[0], 30));
}

// Rows [batch, k, m + ...] rotated until their first m elements are orthogonal.
static tt_hlo orthogonal_rows(tt_hlo rows, int64_t m) {
  const int64_t k = rows ? rows->dims[1] : 1, pairs = (k + 1) / 2;
  if (!rows || k == 1) {
    return rows;
  }
  jacobi j = {.times = 2 * pairs - 1, .pairs = pairs, .m = m};
  tt_hlo most = v_reduce(TT_MAX, v_reduce(TT_SUM, la_square(column_part(&j, rows)), 2), 1);
  j.negligible = v_mulc(most, sp_ulp(rows) * sp_ulp(rows) * (double)(m + 4));
  rows = v_pad0(rows, 1, 0, 2 * pairs - k, 0);
  tt_hlo_builder *b = rows ? tt_hlo_builder_of(rows) : NULL;
  if (!b) {
    return NULL;
  }
  tt_hlo state[4] = {tt_hlo_scalar(b, TT_S32, 0), tt_hlo_const_int(b, TT_PRED, 1, NULL, 0),
                     tt_hlo_slice_dim(rows, 1, 0, pairs, 1), tt_hlo_slice_dim(rows, 1, pairs, 2 * pairs, 1)};
  tt_hlo_while(state, 4, sweeps_go_on, sweep_step, &j, state);
  return tt_hlo_slice_dim(tt_hlo_concatenate(state + 2, 2, 1), 1, 0, k, 1);
}

typedef struct svd {
  tt_hlo values;  // [batch, k], descending
  tt_hlo u;       // [batch, k or m, m]: rows are the left vectors
  tt_hlo v;       // [batch, k, k]: rows are the right ones
} svd;

// Of the matrices whose columns are `rows` [batch, k, m], k <= m. `left`: how many left vectors, 0: no vectors.
static svd svd_of_columns(tt_hlo rows, int64_t left) {
  svd f = {NULL, NULL, NULL};
  if (!rows) {
    return f;
  }
  const int64_t k = rows->dims[1], m = rows->dims[2];
  const bool mask[TT_MAX_RANK] = {false, true, true};
  tt_hlo finite = tt_reduce_mask(TT_ALL, tt_hlo_unary(TT_IS_FINITE, v_abs(rows)), mask), scale = sp_scale(rows);
  rows = v_if(la_each(finite, rows), v_div(rows, la_as(la_each(scale, rows), rows)), v_const(rows, 0));
  tt_hlo ignored, v;
  sp_eigh(v_neg(la_contract(la_conj(rows), 2, rows, 2)), &ignored, &v);  // the largest singular value comes first
  rows = la_contract(v, 2, rows, 1);
  rows = orthogonal_rows(left ? tt_hlo_concatenate((const tt_hlo[]){rows, v}, 2, 2) : rows, m);
  tt_hlo norms = v_sqrt(v_reduce(TT_SUM, la_square(tt_hlo_slice_dim(rows, 2, 0, m, 1)), 2));
  tt_hlo sorted[] = {norms, sp_index(norms, 1)};
  tt_hlo_sort(sorted, 2, 1, true, true, false, sorted);
  f.values = v_mul(sorted[0], la_each(scale, sorted[0]));
  f.values = f.values ? v_if(la_each(finite, f.values), f.values, v_const(f.values, NAN)) : NULL;
  if (left) {
    tt_hlo diagonal, signs;
    rows = la_take_rows(rows, sorted[1]);
    f.v = tt_hlo_slice_dim(rows, 2, m, m + k, 1);
    f.u = sp_orthonormal(tt_hlo_slice_dim(rows, 2, 0, m, 1), left, &diagonal);
    signs = v_pad0(diagonal, 1, 0, left - k, 0);
    f.u = v_if(la_rows(v_ltc(signs, 0), f.u), v_neg(f.u), f.u);
  }
  return f;
}

// ---- the operator ----

static bool check_svd(tt_rule *r, const tt_operand *x) {
  if (!la_check_matrices(r, x, "linalg.svd", "A")) {
    return false;
  }
  if (!v_has_nan(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.svd: Expected a floating point or complex tensor as input. Got %s",
            tt_type_name(x->dtype));
    return false;
  }
  if (tt_string(r, "driver")) {
    tt_fail(r, TT_ERR_RUNTIME,
            "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with cuSOLVER backend.");
    return false;
  }
  if (tt_opmath(x->dtype) != x->dtype || tt_dtype_size(x->dtype) < 4) {
    tt_fail_dtype(r, "linalg_svd_cpu", x->dtype);
    return false;
  }
  return true;
}

static void build_svd(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "A");
  const bool full = tt_bool(r, "full_matrices", false), vectors = tt_bool(r, "compute_uv", true);
  if (!x || !check_svd(r, x)) {
    return;
  }
  const tt_dtype real = tt_dtype_real(x->dtype);
  tt_hlo operand = tt_in(r, "A"), a = la_flat(operand, 2), u, v, values;
  if (!a || !sp_check_out(r, "U", x->dtype) || !sp_check_out(r, "S", real) || !sp_check_out(r, "Vh", x->dtype)) {
    return;
  }
  const int64_t batch = a->dims[0], m = a->dims[1], n = a->dims[2], k = m < n ? m : n, longer = m < n ? n : m;
  const int64_t left = full ? longer : k;
  if (tt_hlo_numel(a) == 0) {
    values = tt_hlo_const(tt_b(r), real, 0, (const int64_t[]){batch, k}, 2);
    u = sp_eye(tt_b(r), x->dtype, batch, m, full ? m : k);
    v = sp_eye(tt_b(r), x->dtype, batch, full ? n : k, n);
  } else {
    tt_device_assert(r, v_not(v_isnan(a)), TT_ERR_LINALG,
                     "The algorithm failed to converge because the input matrix contained non-finite values.");
    svd f = svd_of_columns(m < n ? la_conj(a) : la_transpose(a), vectors ? left : 0);
    values = f.values;
    u = la_transpose(m < n ? f.v : f.u);
    v = la_conj(m < n ? f.u : f.v);
  }
  if (vectors) {
    la_ret_by_columns(r, 0, la_unflat(u, operand));
    la_ret_by_columns(r, 2, la_unflat(v, operand));
  } else {
    tt_hlo nothing = tt_hlo_const(tt_b(r), x->dtype, 0, (const int64_t[]){0}, 1);
    tt_ret(r, 0, nothing);
    tt_ret(r, 2, nothing);
  }
  tt_ret(r, 1, la_unflat(values, operand));
}

const tt_rule_entry tt_rules_linalg_svd[] = {
    {.name = "aten::_linalg_svd", .build = build_svd},
    {0},
};
