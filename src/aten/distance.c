// Pairwise distances: cdist, pdist and their gradients. Formulas: ATen/native/cpu/DistanceOpsKernel.cpp.
#include <inttypes.h>
#include <math.h>

#include "aten/linalg.h"

enum { MM_AUTO, MM_ALWAYS, MM_NEVER, MM_FROM = 25 };

// ---- values ----

// [..., P, M] and [..., R, M], batches broadcast, as [..., P, R, M] (or without differences, as they are).
typedef struct pair {
  tt_hlo x, y;
  int64_t dims[TT_MAX_RANK];  // [..., P, R, M]
  int32_t rank;
} pair;

static bool make_pair(tt_rule *r, tt_hlo x, tt_hlo y, pair *p) {
  if (!la_broadcast_batches(r, &x, &y) || !x || !y) {
    return false;
  }
  const int32_t batch = x->rank - 2;
  memcpy(p->dims, x->dims, (size_t)(batch + 1) * sizeof *p->dims);
  p->dims[batch + 1] = y->dims[batch];
  p->dims[batch + 2] = x->dims[batch + 1];
  p->rank = batch + 3;
  p->x = x;
  p->y = y;
  return true;
}

// A value that lacks dim `dim` of [..., P, R, M], over it.
static tt_hlo spread(const pair *p, tt_hlo x, int32_t dim) {
  bool mask[TT_MAX_RANK] = {false};
  mask[dim] = true;
  return tt_expand_reduced(x, p->dims, p->rank, mask);
}

static tt_hlo differences(const pair *p) { return v_sub(spread(p, p->x, p->rank - 2), spread(p, p->y, p->rank - 3)); }

static tt_hlo power(tt_hlo x, double e) { return x ? tt_hlo_binary(TT_POWER, x, v_const(x, e)) : NULL; }

static tt_hlo norm_of(tt_hlo d, double p) {
  if (!d) {
    return NULL;
  }
  const int32_t last = d->rank - 1;
  if (d->dims[last] == 0) {
    return v_reduce(TT_SUM, d, last);
  }
  if (p == 0) {
    return v_reduce(TT_SUM, tt_hlo_convert(v_ne(d, v_const(d, 0)), d->dtype), last);
  }
  if (p == 1) {
    return v_reduce(TT_SUM, v_abs(d), last);
  }
  if (p == 2) {
    return v_sqrt(v_reduce(TT_SUM, v_mul(d, d), last));
  }
  if (isinf(p)) {
    return v_reduce(TT_MAX, v_abs(d), last);
  }
  return power(v_reduce(TT_SUM, power(v_abs(d), p), last), 1 / p);
}

// sqrt(|x|^2 - 2 x y + |y|^2), as PyTorch does for many rows.
static tt_hlo by_product(tt_rule *r, const pair *p) {
  const int32_t m = p->rank - 2;  // of x and y
  int32_t batches[TT_MAX_RANK];
  for (int32_t d = 0; d < m - 1; d++) {
    batches[d] = d;
  }
  const tt_hlo_dot_dims dims = {.lhs_batch = batches,
                                .rhs_batch = batches,
                                .lhs_contract = &m,
                                .rhs_contract = &m,
                                .batch_count = m - 1,
                                .contract_count = 1};
  tt_hlo product = tt_hlo_dot_general(v_mulc(p->x, -2), p->y, &dims, tt_matmul_precision(r), TT_DTYPE_INVALID);
  if (!product) {
    return NULL;
  }
  tt_hlo xx = v_spread(v_reduce(TT_SUM, v_mul(p->x, p->x), m), product, m);
  tt_hlo yy = v_spread(v_reduce(TT_SUM, v_mul(p->y, p->y), m), product, m - 1);
  tt_hlo square = v_add(v_add(product, xx), yy);
  return v_sqrt(v_max(square, v_const(square, 0)));
}

// d distance / d difference, times the distance's gradient: all [..., P, R, M].
static tt_hlo slope(tt_hlo d, tt_hlo distance, tt_hlo g, double p) {
  if (!d || !distance || p == 0) {
    return d ? v_const(d, 0) : NULL;
  }
  tt_hlo sign = tt_hlo_unary(TT_SIGN, d), zero = v_const(d, 0), none = v_eqc(distance, 0);
  if (p == 1) {
    return v_mul(g, sign);
  }
  if (isinf(p)) {
    return v_if(v_eq(distance, v_abs(d)), v_mul(g, sign), zero);
  }
  if (p == 2) {
    return v_if(none, zero, v_div(v_mul(g, d), distance));
  }
  if (p < 1) {
    none = v_or(none, v_eqc(d, 0));
  }
  tt_hlo along = v_mul(sign, power(v_abs(d), p - 1));
  return v_if(none, zero, v_div(v_mul(along, g), power(distance, p - 1)));
}

// ---- cdist ----

static bool check_pair(tt_rule *r, const tt_operand *x, const tt_operand *y, const char *kernel) {
  for (int32_t k = 0; k < 2; k++) {
    const tt_operand *z = k ? y : x;
    if (z->ndim < 2) {
      tt_fail(r, TT_ERR_RUNTIME, "cdist only supports at least 2D tensors, X%d got: %dD", k + 1, z->ndim);
    } else if (!tt_dtype_is_float(z->dtype)) {
      tt_fail(r, TT_ERR_RUNTIME, "cdist only supports floating-point dtypes, X%d got: %s", k + 1,
              tt_type_name(z->dtype));
    }
  }
  if (tt_failed(r)) {
    return false;
  }
  if (x->sizes[x->ndim - 1] != y->sizes[y->ndim - 1]) {
    tt_fail(r, TT_ERR_RUNTIME, "X1 and X2 must have the same number of columns. X1: %" PRId64 " X2: %" PRId64,
            x->sizes[x->ndim - 1], y->sizes[y->ndim - 1]);
  } else if (x->dtype != y->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(x->dtype), tt_type_name(y->dtype));
  } else if (x->dtype != TT_F32 && x->dtype != TT_F64) {
    tt_fail_dtype(r, kernel, x->dtype);
  }
  return !tt_failed(r);
}

static void build_cdist(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "x1"), *y = tt_operand_of(r, "x2");
  pair p;
  if (!x || !y || !check_pair(r, x, y, "cdist")) {
    return;
  }
  const bool euclidean = !tt_has(r, "p");  // _euclidean_dist
  const double order = tt_static_double(r, "p", 2);
  const int64_t mode = tt_int(r, "compute_mode", MM_AUTO);
  if (!(order >= 0)) {
    tt_fail(r, TT_ERR_RUNTIME, "cdist only supports non-negative p values");
  } else if (mode < MM_AUTO || mode > MM_NEVER) {
    tt_fail(r, TT_ERR_RUNTIME, "possible modes: 0, 1, 2, but was: %" PRId64, mode);
  } else if (make_pair(r, tt_in(r, "x1"), tt_in(r, "x2"), &p)) {
    const bool many = p.dims[p.rank - 3] > MM_FROM || p.dims[p.rank - 2] > MM_FROM;
    const bool product = euclidean || (order == 2 && (mode == MM_ALWAYS || (mode == MM_AUTO && many)));
    tt_ret(r, 0, product && p.dims[p.rank - 1] > 0 ? by_product(r, &p) : norm_of(differences(&p), order));
  }
}

static void build_cdist_backward(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "x1"), *y = tt_operand_of(r, "x2");
  pair p;
  if (!x || !y || !check_pair(r, x, y, "cdist_backward") || !make_pair(r, tt_in(r, "x1"), tt_in(r, "x2"), &p)) {
    return;
  }
  tt_hlo over = tt_hlo_broadcast_to(tt_in(r, "cdist"), p.dims, p.rank - 1);
  tt_hlo g = tt_hlo_broadcast_to(tt_in(r, "grad"), p.dims, p.rank - 1);
  tt_hlo dx =
      slope(differences(&p), spread(&p, over, p.rank - 1), spread(&p, g, p.rank - 1), tt_static_double(r, "p", 2));
  tt_ret(r, 0, v_reduce(TT_SUM, dx, p.rank - 2));
}

// ---- pdist: the distances of rows i < j, in order ----

static bool check_rows(tt_rule *r, const tt_operand *x) {
  if (x->ndim != 2) {
    tt_fail(r, TT_ERR_RUNTIME, "pdist only supports 2D tensors, got: %dD", x->ndim);
  } else if (x->dtype != TT_F32 && x->dtype != TT_F64) {
    tt_fail_dtype(r, "pdist", x->dtype);
  }
  return !tt_failed(r);
}

static void build_pdist(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  pair p;
  if (!x || !check_rows(r, x) || !make_pair(r, tt_in(r, "self"), tt_in(r, "self"), &p)) {
    return;
  }
  const int64_t n = x->sizes[0], count = n * (n - 1) / 2;
  if (count <= 0) {
    const int64_t none = 0;
    tt_ret(r, 0, tt_hlo_const(tt_b(r), x->dtype, 0, &none, 1));
    return;
  }
  // Row i of pair k: the greatest i with i * (2n - i - 1) / 2 <= k. The root is right but for rounding.
  tt_hlo k = tt_hlo_iota(tt_b(r), TT_S64, &count, 1, 0), kf = k ? tt_hlo_convert(k, TT_F64) : NULL;
  const double half = (double)n - 0.5;
  tt_hlo i = kf ? tt_hlo_convert(v_csub(half, v_sqrt(v_csub(half * half, v_mulc(kf, 2)))), TT_S64) : NULL;
  for (int32_t step = 0; step < 2; step++) {
    tt_hlo next = step == 0 ? i : v_addc(i, 1);
    tt_hlo first = v_div(v_mul(next, v_csub(2 * (double)n - 1, next)), v_const(next, 2));
    i = step == 0 ? v_if(v_gt(first, k), v_addc(i, -1), i) : v_if(v_le(first, k), next, i);
  }
  tt_hlo first = v_div(v_mul(i, v_csub(2 * (double)n - 1, i)), v_const(i, 2));
  tt_hlo j = v_addc(v_add(v_sub(k, first), i), 1);
  tt_hlo at = tt_cast(v_add(v_mulc(i, (double)n), j), v_position_type(n * n));
  tt_ret(r, 0, tt_take_flat(v_flat(norm_of(differences(&p), tt_static_double(r, "p", 2))), at));
}

static void build_pdist_backward(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  pair p;
  if (!x || !check_rows(r, x) || !make_pair(r, tt_in(r, "self"), tt_in(r, "self"), &p)) {
    return;
  }
  const int64_t n = x->sizes[0], square[] = {n, n};
  if (n < 2 || x->sizes[1] == 0) {
    tt_ret(r, 0, tt_hlo_const(tt_b(r), x->dtype, 0, x->sizes, 2));
    return;
  }
  const tt_dtype type = v_position_type(n * n);
  tt_hlo row = tt_hlo_iota(tt_b(r), type, square, 2, 0), column = tt_hlo_iota(tt_b(r), type, square, 2, 1);
  tt_hlo i = v_min(row, column), j = v_max(row, column);
  tt_hlo at = v_addc(v_add(v_div(v_mul(i, v_csub(2 * (double)n - 1, i)), v_const(i, 2)), v_sub(j, i)), -1);
  at = v_max(at, v_const(at, 0));  // the diagonal reads anything: its differences are 0
  tt_hlo g = tt_take_flat(tt_in(r, "grad"), at), over = tt_take_flat(tt_in(r, "pdist"), at);
  g = g ? v_if(v_eq(row, column), v_const(g, 0), g) : NULL;
  tt_hlo dx = slope(differences(&p), spread(&p, over, 2), spread(&p, g, 2), tt_static_double(r, "p", 2));
  tt_ret(r, 0, v_reduce(TT_SUM, dx, 1));
}

const tt_rule_entry tt_rules_distance[] = {
    {.name = "aten::_cdist_forward", .build = build_cdist, .static_args = "p"},
    {.name = "aten::_euclidean_dist", .build = build_cdist},
    {.name = "aten::_cdist_backward", .build = build_cdist_backward, .static_args = "p"},
    {.name = "aten::_pdist_forward", .build = build_pdist, .static_args = "p"},
    {.name = "aten::_pdist_backward", .build = build_pdist_backward, .static_args = "p"},
    {0},
};
