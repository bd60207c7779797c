// QR by Householder's reflectors, as LAPACK's geqrf leaves them, and products of reflectors.
//
// H = I - tau v v^H with v's first element 1. A product H0 H1 ... of k of them is I - V T V^H with
// T = D (I + S D)^-1, where D = diag(tau) and S is V^H V above its diagonal: one triangular system and three products.
#include <inttypes.h>

#include "aten/linalg.h"

enum { BLOCK = 32, BLOCKED_FROM = 96 };

// ---- factorization ----

typedef struct panel {
  int64_t steps;
  tt_hlo first;  // the row of the panel's first diagonal element, 0-d
} panel;

// state: step, the panel [batch, m, w], tau [batch, w]
static tt_hlo panel_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  const panel *p = context;
  (void)b;
  const int64_t width = state[2] ? state[2]->dims[1] : 0;
  return v_and(v_ltc(state[0], (double)width), v_ltc(v_add(state[0], p->first), (double)p->steps));
}

typedef struct reflector {
  tt_hlo beta, tau, scale;  // [batch]: H^H (alpha; x) = (beta; 0), v = (1; scale x)
} reflector;

// LAPACK's larfg for alpha [batch] above x [batch, m].
static reflector reflector_of(tt_hlo alpha, tt_hlo x) {
  reflector h = {0};
  if (!alpha || !x) {
    return h;
  }
  const bool complex = tt_dtype_is_complex(alpha->dtype);
  tt_hlo rest = v_reduce(TT_SUM, la_square(x), 1), re = la_real(alpha);
  tt_hlo norm = v_sqrt(v_add(rest, la_square(alpha)));
  tt_hlo none = v_eqc(rest, 0);  // H = I
  if (complex) {
    none = v_and(none, v_eqc(tt_hlo_unary(TT_IMAG, alpha), 0));
  }
  tt_hlo beta = v_if(v_gec(re, 0), v_neg(norm), norm), full = la_as(beta, alpha);
  h.beta = v_if(none, alpha, full);
  h.tau = v_if(none, v_const(alpha, 0), v_div(v_sub(full, alpha), full));
  h.scale = v_if(none, v_const(alpha, 0), v_cdiv(1, v_sub(alpha, full)));
  return h;
}

tt_hlo la_qr_step(tt_hlo a, tt_hlo k, tt_hlo step, tt_hlo *tau) {
  *tau = NULL;
  if (!a) {
    return NULL;
  }
  tt_hlo column = v_squeeze(la_window(a, NULL, step, a->dims[1], 1), 2), row = v_iota(column, TT_S32, 1);
  tt_hlo is_k = v_eq(row, v_like(k, row)), below = v_gt(row, v_like(k, row)), zero = v_const(column, 0);
  tt_hlo alpha = v_squeeze(v_squeeze(la_window(a, k, step, 1, 1), 2), 1), x = v_if(below, column, zero);
  reflector h = reflector_of(alpha, x);
  tt_hlo tail = v_mul(x, v_spread(h.scale, x, 1));
  tt_hlo v = v_if(is_k, v_const(column, 1), tail);

  tt_hlo product = v_reduce(TT_SUM, v_mul(la_rows(la_conj(v), a), a), 1);
  product = v_mul(product, v_spread(la_conj(h.tau), product, 1));
  tt_hlo rest = v_sub(a, v_mul(la_rows(v, a), la_columns(product, a)));
  tt_hlo done = v_if(is_k, v_spread(h.beta, column, 1), v_if(below, tail, column));
  tt_hlo j = v_iota(a, TT_S32, 2), at = v_like(step, j);
  *tau = h.tau;
  return v_if(v_gt(j, at), rest, v_if(v_eq(j, at), la_rows(done, a), a));
}

static void panel_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const panel *p = context;
  const tt_hlo place[] = {tt_hlo_scalar(b, TT_S32, 0), state[0]};
  tt_hlo tau;
  out[0] = v_addc(state[0], 1);
  out[1] = la_qr_step(state[1], v_add(state[0], p->first), state[0], &tau);
  out[2] = tt_hlo_dynamic_update_slice(state[2], v_unsqueeze(tau, 1), place);
}

static la_qr factor_panel(tt_hlo a, tt_hlo first, int64_t steps, int64_t count) {
  la_qr qr = {0};
  if (!a) {
    return qr;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(a);
  panel p = {steps, first};
  const tt_hlo inits[] = {tt_hlo_scalar(b, TT_S32, 0), a,
                          tt_hlo_const(b, a->dtype, 0, (const int64_t[]){a->dims[0], count}, 2)};
  tt_hlo results[3];
  tt_hlo_while(inits, 3, panel_cond, panel_body, &p, results);
  return (la_qr){results[1], results[2]};
}

// T of the reflectors in v [batch, m, k].
static tt_hlo block_t(tt_hlo v, tt_hlo tau) {
  tt_hlo s = la_adjoint_dot(v, v);
  if (!s) {
    return NULL;
  }
  tt_hlo d = la_columns(tau, s), zero = v_const(s, 0), diagonal = la_in_band(s, 0, 0);
  tt_hlo system = v_if(la_in_band(s, -INT32_MAX, -1), v_mul(s, d), zero);
  return la_solve(system, v_if(diagonal, d, zero), false, true, true, false, false);
}

tt_hlo la_reflect(tt_hlo v, tt_hlo tau, tt_hlo c, bool adjoint) {
  tt_hlo t = block_t(v, tau), product = la_adjoint_dot(v, c);
  product = adjoint ? la_adjoint_dot(t, product) : la_dot(t, product);
  return v_sub(c, la_dot(v, product));
}

tt_hlo la_reflectors(tt_hlo a, tt_hlo first) {
  tt_hlo below = v_sub(v_iota(a, TT_S32, 1), v_iota(a, TT_S32, 2));
  below = first ? v_sub(below, v_like(first, below)) : below;
  return v_if(v_gtc(below, 0), a, v_if(v_eqc(below, 0), v_const(a, 1), v_const(a, 0)));
}

// state: first column of the block, the matrix, tau
static tt_hlo blocks_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  const panel *p = context;
  (void)b;
  return v_ltc(state[0], (double)p->steps);
}

static void blocks_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const panel *p = context;
  tt_hlo first = state[0], a = state[1];
  la_qr block = factor_panel(la_window(a, NULL, first, a->dims[1], BLOCK), first, p->steps, BLOCK);
  tt_hlo next = v_addc(first, BLOCK), column = v_iota(a, TT_S32, 2);
  tt_hlo applied = la_reflect(la_reflectors(block.qr, first), block.tau, a, true);
  out[0] = next;
  out[1] = la_put_window(v_if(v_ge(column, v_like(next, column)), applied, a), block.qr, NULL, first);
  const tt_hlo at[] = {tt_hlo_scalar(b, TT_S32, 0), first};
  out[2] = tt_hlo_dynamic_update_slice(state[2], block.tau, at);
}

tt_hlo la_safe_scale(tt_hlo a) {
  static const int32_t matrix[] = {1, 2};
  const bool is_double = a && (a->dtype == TT_F64 || a->dtype == TT_C128);
  tt_hlo size = a && tt_dtype_is_complex(a->dtype)
                    ? v_max(v_abs(tt_hlo_unary(TT_REAL, a)), v_abs(tt_hlo_unary(TT_IMAG, a)))
                    : v_abs(a);
  tt_hlo most = tt_hlo_reduce(TT_MAX, size, matrix, 2);
  const double far = is_double ? 1e100 : 1e15, power = is_double ? 0x1p680 : 0x1p96;
  tt_hlo large = v_and(v_gtc(most, far), tt_hlo_unary(TT_IS_FINITE, most));
  tt_hlo small = v_and(v_ltc(most, 1 / far), v_gtc(most, 0));
  return v_if(large, v_const(most, power), v_if(small, v_const(most, 1 / power), v_const(most, 1)));
}

la_qr la_qr_factor(tt_hlo a) {
  la_qr qr = {0};
  if (!a) {
    return qr;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(a);
  const int64_t m = a->dims[1], n = a->dims[2], k = m < n ? m : n;
  tt_hlo zero = tt_hlo_scalar(b, TT_S32, 0);
  if (tt_hlo_numel(a) == 0) {
    return (la_qr){a, tt_hlo_const(b, a->dtype, 0, (const int64_t[]){a->dims[0], k}, 2)};
  }
  tt_hlo scale = la_each(la_as(la_safe_scale(a), a), a);
  a = v_div(a, scale);
  if (!a) {
    return qr;
  }
  if (k < BLOCKED_FROM) {
    qr = factor_panel(a, zero, k, k);
  } else {
    // Padded with zeros, so that every block is whole.
    const int64_t end = (k + BLOCK - 1) / BLOCK * BLOCK, rows = m > end ? m : end, columns = n > end ? n : end;
    panel p = {k, zero};
    a = v_pad0(v_pad0(a, 1, 0, rows - m, 0), 2, 0, columns - n, 0);
    const tt_hlo inits[] = {zero, a, tt_hlo_const(b, scale->dtype, 0, (const int64_t[]){scale->dims[0], end}, 2)};
    tt_hlo results[3];
    tt_hlo_while(inits, 3, blocks_cond, blocks_body, &p, results);
    qr.qr = tt_hlo_slice_dim(tt_hlo_slice_dim(results[1], 1, 0, m, 1), 2, 0, n, 1);
    qr.tau = tt_hlo_slice_dim(results[2], 1, 0, k, 1);
  }
  qr.qr = v_if(la_in_band(qr.qr, 1, INT32_MAX), qr.qr, v_mul(qr.qr, scale));
  return qr;
}

// The first `columns` columns of H0 H1 ...; a [batch, m, >= k], tau [batch, k].
tt_hlo la_qr_q(tt_hlo a, tt_hlo tau, int64_t columns) {
  if (!a || !tau) {
    return NULL;
  }
  const int64_t dims[] = {a->dims[0], a->dims[1], columns};
  tt_hlo eye = la_eye(tt_hlo_const(tt_hlo_builder_of(a), a->dtype, 0, dims, 3));
  if (tt_hlo_numel(eye) == 0 || tau->dims[1] == 0) {
    return eye;
  }
  return la_reflect(la_reflectors(tt_hlo_slice_dim(a, 2, 0, tau->dims[1], 1), NULL), tau, eye, false);
}

// ---- operators ----

static bool check_kernel(tt_rule *r, tt_dtype dtype, const char *kernel) {
  if ((tt_dtype_is_float(dtype) && tt_dtype_size(dtype) >= 4) || tt_dtype_is_complex(dtype)) {
    return true;
  }
  tt_fail_dtype(r, kernel, dtype);
  return false;
}

static void build_qr(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "A");
  const char *mode = tt_string(r, "mode");
  mode = mode ? mode : "reduced";
  if (!x) {
    return;
  }
  if (x->ndim < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.qr: The input tensor A must have at least 2 dimensions.");
    return;
  }
  const bool complete = strcmp(mode, "complete") == 0, only_r = strcmp(mode, "r") == 0;
  if (!tt_dtype_is_float(x->dtype) && !tt_dtype_is_complex(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.qr: Expected a floating point or complex tensor as input. Got %s",
            tt_type_name(x->dtype));
    return;
  }
  if (!complete && !only_r && strcmp(mode, "reduced") != 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            "qr received unrecognized mode '%s' but expected one of 'reduced' (default), 'r', or 'complete'", mode);
    return;
  }
  tt_hlo a = tt_in(r, "A");
  if (!a || !check_kernel(r, x->dtype, "geqrf_cpu")) {
    return;
  }
  const int64_t m = x->sizes[x->ndim - 2], n = x->sizes[x->ndim - 1], k = m < n ? m : n;
  la_qr qr = la_qr_factor(la_flat(a, 2));
  if (only_r) {
    tt_ret(r, 0, tt_hlo_const(tt_b(r), x->dtype, 0, (const int64_t[]){0}, 1));
  } else {
    la_ret_by_columns(r, 0, la_unflat(la_qr_q(qr.qr, qr.tau, complete ? m : k), a));
  }
  la_ret_by_columns(r, 1, la_unflat(la_triangle(tt_hlo_slice_dim(qr.qr, 1, 0, complete ? m : k, 1), true), a));
}

static void build_geqrf(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  if (!x) {
    return;
  }
  if (x->ndim < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.geqrf: input must have at least 2 dimensions.");
    return;
  }
  tt_hlo a = tt_in(r, "self");
  if (check_kernel(r, x->dtype, "geqrf_cpu")) {
    la_qr qr = la_qr_factor(la_flat(a, 2));
    la_ret_by_columns(r, 0, la_unflat(qr.qr, a));
    tt_ret(r, 1, la_unflat(qr.tau, a));
  }
}

static bool fail_if(tt_rule *r, bool wrong, const char *message) {
  if (wrong) {
    tt_fail(r, TT_ERR_RUNTIME, "%s", message);
  }
  return wrong;
}

// Do two shapes agree in all dims but the last `rest`, of which the first has one less?
static bool same_batch(const tt_operand *tau, const tt_operand *a) {
  return tau->ndim == a->ndim - 1 && memcmp(tau->sizes, a->sizes, (size_t)(a->ndim - 2) * sizeof *a->sizes) == 0;
}

static void build_householder_product(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "input"), *t = tt_operand_of(r, "tau");
  if (!x || !t || fail_if(r, x->ndim < 2, "torch.linalg.householder_product: input must have at least 2 dimensions.")) {
    return;
  }
  const int64_t m = x->sizes[x->ndim - 2], n = x->sizes[x->ndim - 1];
  if (fail_if(r, m < n,
              "torch.linalg.householder_product: input.shape[-2] must be greater than or equal to input.shape[-1]") ||
      fail_if(r, t->ndim && n < t->sizes[t->ndim - 1],
              "torch.linalg.householder_product: input.shape[-1] must be greater than or equal to tau.shape[-1]")) {
    return;
  }
  if (t->ndim != x->ndim - 1) {
    tt_fail(r, TT_ERR_RUNTIME,
            "torch.linalg.householder_product: Expected tau to have one dimension less than input, but got tau.ndim "
            "equal to %d and input.ndim is equal to %d",
            t->ndim, x->ndim);
    return;
  }
  if (!same_batch(t, x)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "torch.linalg.householder_product: Expected batch dimensions of tau to be equal to input.shape[:-2], but "
            "got %s",
            tt_dims_text(t->sizes, t->ndim - 1).text);
    return;
  }
  if (t->dtype != x->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.linalg.householder_product: tau dtype %s does not match input dtype %s",
            tt_type_name(t->dtype), tt_type_name(x->dtype));
    return;
  }
  tt_hlo a = tt_in(r, "input"), tau = tt_in(r, "tau");
  if (check_kernel(r, x->dtype, "orgqr_cpu")) {
    la_ret_by_columns(r, 0, la_unflat(la_qr_q(la_flat(a, 2), la_flat(tau, 1), n), a));
  }
}

static bool check_ormqr(tt_rule *r, const tt_operand *x, const tt_operand *t, const tt_operand *c, bool left) {
  if (fail_if(r, x->ndim < 2, "torch.ormqr: input must have at least 2 dimensions.") ||
      fail_if(r, c->ndim < 2, "torch.ormqr: other must have at least 2 dimensions.")) {
    return false;
  }
  const int32_t dim = left ? -2 : -1;
  const int64_t m = x->sizes[x->ndim - 2], n = x->sizes[x->ndim - 1], size = c->sizes[c->ndim + dim];
  const int64_t k = t->ndim ? t->sizes[t->ndim - 1] : 0;
  if (size < k || size != m) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.ormqr: other.shape[%d] must be %s", dim,
            size < k ? "greater than or equal to tau.shape[-1]" : "equal to input.shape[-2]");
    return false;
  }
  if (fail_if(r, k > n, "torch.ormqr: tau.shape[-1] must be less than or equal to input.shape[-1]")) {
    return false;
  }
  if (t->ndim != x->ndim - 1 || c->ndim != x->ndim) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.ormqr: Expected %s, but got %s.ndim equal to %d and input.ndim is equal to %d",
            t->ndim != x->ndim - 1 ? "tau to have one dimension less than input"
                                   : "other to have the same number of dimensions as input",
            t->ndim != x->ndim - 1 ? "tau" : "other", t->ndim != x->ndim - 1 ? t->ndim : c->ndim, x->ndim);
    return false;
  }
  if (!same_batch(t, x) || memcmp(c->sizes, x->sizes, (size_t)(x->ndim - 2) * sizeof *x->sizes) != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.ormqr: Expected batch dimensions of %s to be equal to input.shape[:-2]",
            same_batch(t, x) ? "other" : "tau");
    return false;
  }
  if (t->dtype != x->dtype || c->dtype != x->dtype) {
    const bool is_tau = t->dtype != x->dtype;
    tt_fail(r, TT_ERR_RUNTIME,
            "torch.ormqr: Expected input and %s to have the same dtype, but input has dtype %s and "
            "%s has dtype %s",
            is_tau ? "tau" : "other", tt_type_name(x->dtype), is_tau ? "tau" : "other",
            tt_type_name(is_tau ? t->dtype : c->dtype));
    return false;
  }
  return check_kernel(r, x->dtype, "ormqr_cpu");
}

static void build_ormqr(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self"), *t = tt_operand_of(r, "input2"), *c = tt_operand_of(r, "input3");
  const bool left = tt_bool(r, "left", true), adjoint = tt_bool(r, "transpose", false);
  if (!x || !t || !c || !check_ormqr(r, x, t, c, left)) {
    return;
  }
  tt_hlo a = la_flat(tt_in(r, "self"), 2), tau = la_flat(tt_in(r, "input2"), 1), other = tt_in(r, "input3");
  if (!a || !tau || tt_hlo_numel(other) == 0 || tau->dims[1] == 0) {
    la_ret_by_columns(r, 0, other);
    return;
  }
  tt_hlo v = la_reflectors(tt_hlo_slice_dim(a, 2, 0, tau->dims[1], 1), NULL), flat = la_flat(other, 2);
  // c Q = (Q^H c^H)^H
  tt_hlo y = left ? la_reflect(v, tau, flat, adjoint) : la_adjoint(la_reflect(v, tau, la_adjoint(flat), !adjoint));
  la_ret_by_columns(r, 0, v_reshape_like(y, other));
}

const tt_rule_entry tt_rules_linalg_qr[] = {
    {.name = "aten::linalg_qr", .build = build_qr},
    {.name = "aten::geqrf", .build = build_geqrf},
    {.name = "aten::linalg_householder_product", .build = build_householder_product},
    {.name = "aten::ormqr", .build = build_ormqr},
    {0},
};
