// Linear algebra that StableHLO knows (Cholesky factors, triangular systems) and small products. Factors and
// solutions are laid out by columns, as LAPACK leaves them on the CPU.
#include <inttypes.h>

#include "aten/linalg.h"

// ---- Cholesky ----

static tt_hlo any_unknown(tt_hlo failed, tt_hlo info) { return v_reduce(TT_ANY, v_and(failed, v_eqc(info, 0)), 0); }

// state: step, matrices [batch, n, n], order of the first minor that isn't positive [batch] (0: none yet), failed
static tt_hlo minors_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  const int64_t n = state[1] ? state[1]->dims[1] : 0;
  return v_and(v_ltc(state[0], (double)n), any_unknown(state[3], state[2]));
}

// A step of elimination: the pivot must be positive.
static void minors_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)context;
  tt_hlo a = state[1], step = state[0];
  const int64_t batch = a->dims[0], n = a->dims[1], pivot_sizes[] = {batch, 1, 1}, column_sizes[] = {batch, n, 1};
  tt_hlo zero = tt_hlo_scalar(b, step->dtype, 0), at[] = {zero, step, step}, column_at[] = {zero, zero, step};
  tt_hlo pivot = tt_hlo_reshape(tt_hlo_dynamic_slice(a, at, pivot_sizes), &batch, 1);
  tt_hlo column = tt_hlo_reshape(tt_hlo_dynamic_slice(a, column_at, column_sizes), (const int64_t[]){batch, n}, 2);
  tt_hlo real = pivot && tt_dtype_is_complex(pivot->dtype) ? tt_hlo_unary(TT_REAL, pivot) : pivot;
  tt_hlo found = v_and(v_eqc(state[2], 0), v_not(v_gtc(real, 0)));
  out[0] = v_addc(step, 1);
  out[2] = v_if(found, v_like(tt_hlo_convert(out[0], TT_S32), state[2]), state[2]);
  const int32_t rows[] = {0, 1}, columns[] = {0, 2}, batches[] = {0};
  tt_hlo row = column && tt_dtype_is_complex(column->dtype) ? tt_hlo_unary(TT_CONJ, column) : column;
  tt_hlo outer =
      v_mul(tt_hlo_broadcast_in_dim(column, a->dims, 3, rows), tt_hlo_broadcast_in_dim(row, a->dims, 3, columns));
  out[1] = v_sub(a, v_div(outer, tt_hlo_broadcast_in_dim(pivot, a->dims, 3, batches)));
  out[3] = state[3];
}

// LAPACK's info: the order of the first leading minor that is not positive, or 0. The loop runs only on failure.
static tt_hlo cholesky_info(tt_rule *r, tt_hlo a, tt_hlo factor, bool upper) {
  if (!a || !factor) {
    return NULL;
  }
  const int64_t n = a->dims[a->rank - 1];
  int64_t flat[] = {1, n, n};
  for (int32_t d = 0; d < a->rank - 2; d++) {
    flat[0] *= a->dims[d];
  }
  tt_hlo info = tt_hlo_const(tt_b(r), TT_S32, 0, a->dims, a->rank - 2);
  if (tt_hlo_numel(a) == 0) {
    return info;
  }
  const int32_t matrix[] = {1, 2};
  tt_hlo nan = tt_hlo_reshape(v_isnan(factor), flat, 3), half = la_triangle(a, upper);
  tt_hlo strict = v_if(upper ? la_in_band(a, -INT32_MAX, -1) : la_in_band(a, 1, INT32_MAX), a, v_const(a, 0));
  const tt_hlo inits[] = {tt_hlo_scalar(tt_b(r), TT_S32, 0), tt_hlo_reshape(v_add(half, la_adjoint(strict)), flat, 3),
                          tt_hlo_const(tt_b(r), TT_S32, 0, flat, 1), tt_hlo_reduce(TT_ANY, nan, matrix, 2)};
  tt_hlo results[4];
  tt_hlo_while(inits, 4, minors_cond, minors_body, NULL, results);
  return tt_hlo_reshape(results[2], a->dims, a->rank - 2);
}

static tt_hlo cholesky(tt_hlo a, bool upper) {
  return !a || tt_hlo_numel(a) == 0 ? a : la_triangle(tt_hlo_cholesky(a, !upper), upper);
}

enum { CHOLESKY_EX, CHOLESKY };

static void build_cholesky(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  const bool ex = tt_rule_kind(r) == CHOLESKY_EX, upper = tt_bool(r, "upper", false);
  const char *who = ex ? "linalg.cholesky" : "cholesky";
  if (!x || !la_check_square(r, x, who, "A") || !la_check_dtype(r, x->dtype, who, "cholesky_cpu")) {
    return;
  }
  tt_hlo a = tt_in(r, "self"), factor = cholesky(a, upper);
  if (!ex || tt_bool(r, "check_errors", false)) {
    tt_device_assert(r, v_eqc(cholesky_info(r, a, factor, upper), 0), TT_ERR_LINALG,
                     "The factorization could not be completed because the input is not positive-definite");
  }
  if (!ex && tt_has(r, "out")) {
    tt_ret(r, 0, factor);  // an empty tensor becomes row-major here, unlike in all others
  } else {
    la_ret_by_columns(r, 0, factor);
  }
  if (ex) {
    tt_ret(r, 1, cholesky_info(r, a, factor, upper));
  }
}

// a is a factor: L L^H (or U^H U) x = b.
static tt_hlo solve_with_factor(tt_hlo a, tt_hlo b, bool upper) {
  const bool complex = a && tt_dtype_is_complex(a->dtype);
  tt_hlo y = la_solve(a, b, true, upper, false, upper, upper && complex);
  return la_solve(a, y, true, upper, false, !upper, !upper && complex);
}

static void build_cholesky_solve(tt_rule *r) {
  const tt_operand *b = tt_operand_of(r, "self"), *a = tt_operand_of(r, "A");
  if (!a || !b || !la_check_dtype(r, a->dtype, "cholesky_solve", "cholesky_solve_cpu")) {
    return;
  }
  tt_hlo factor = tt_in(r, "A"), rhs = tt_in(r, "self");
  if (la_broadcast_batches(r, &factor, &rhs)) {
    la_ret_by_columns(r, 0, solve_with_factor(factor, rhs, tt_bool(r, "upper", false)));
  }
}

static void build_cholesky_inverse(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  if (!x || !la_check_square(r, x, "cholesky_inverse", "A") ||
      !la_check_dtype(r, x->dtype, "cholesky_inverse", "cholesky_inverse_out_cpu")) {
    return;
  }
  tt_hlo a = tt_in(r, "self");
  tt_hlo one = a ? v_if(la_in_band(a, 0, 0), v_const(a, 1), v_const(a, 0)) : NULL;
  la_ret_by_columns(r, 0, solve_with_factor(a, one, tt_bool(r, "upper", false)));
}

// ---- triangular systems ----

static void build_solve_triangular(tt_rule *r) {
  const tt_operand *a = tt_operand_of(r, "self"), *b = tt_operand_of(r, "B");
  const char *who = "linalg.solve_triangular";
  const bool left = tt_bool(r, "left", true);
  if (!a || !b || !la_check_square(r, a, who, "A")) {
    return;
  }
  if (b->ndim < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: The input tensor B must have at least 2 dimensions.", who);
    return;
  }
  const int64_t n = a->sizes[a->ndim - 1], rows = b->sizes[b->ndim - 2], columns = b->sizes[b->ndim - 1];
  if (n != (left ? rows : columns)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "%s: Incompatible shapes of A and B for the equation %s (%" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64
            ")",
            who, left ? "AX = B" : "XA = B", n, n, rows, columns);
    return;
  }
  if (a->dtype != b->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "%s: Expected A and B to have the same dtype, but got %s and %s", who,
            tt_type_name(a->dtype), tt_type_name(b->dtype));
    return;
  }
  tt_hlo x = tt_in(r, "self"), y = tt_in(r, "B");
  if (la_check_dtype(r, a->dtype, who, "triangular_solve_cpu") && la_broadcast_batches(r, &x, &y)) {
    la_ret_by_columns(
        r, 0, la_solve(x, y, left, tt_bool(r, "upper", false), tt_bool(r, "unitriangular", false), false, false));
  }
}

static void build_triangular_solve(tt_rule *r) {
  const tt_operand *b = tt_operand_of(r, "self"), *a = tt_operand_of(r, "A");
  if (!a || !b) {
    return;
  }
  if (a->ndim < 2 || b->ndim < 2) {
    tt_fail(r, TT_ERR_RUNTIME,
            "torch.triangular_solve: Expected %s to have at least 2 dimensions, but it has %d "
            "dimensions instead",
            b->ndim < 2 ? "b" : "A", b->ndim < 2 ? b->ndim : a->ndim);
    return;
  }
  const int64_t *as = a->sizes + a->ndim - 2, *bs = b->sizes + b->ndim - 2;
  if (as[0] != as[1] || as[1] != bs[0]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Incompatible matrix sizes for triangular_solve: each A matrix is %" PRId64 " by %" PRId64
            " but each b matrix is %" PRId64 " by %" PRId64,
            as[0], as[1], bs[0], bs[1]);
    return;
  }
  tt_hlo x = tt_in(r, "A"), y = tt_in(r, "self");
  if (la_check_dtype(r, a->dtype, "triangular_solve", "triangular_solve_cpu") && la_broadcast_batches(r, &x, &y)) {
    la_ret_by_columns(r, 0,
                      la_solve(x, y, true, tt_bool(r, "upper", true), tt_bool(r, "unitriangular", false),
                               tt_bool(r, "transpose", false), false));
    la_ret_by_columns(r, 1, x);
  }
}

// ---- products ----

// x moved by `by` places along a dim of 3, around.
static tt_hlo rolled(tt_hlo x, int32_t dim, int64_t by) {
  const tt_hlo parts[] = {tt_hlo_slice_dim(x, dim, by, 3, 1), tt_hlo_slice_dim(x, dim, 0, by, 1)};
  return tt_hlo_concatenate(parts, 2, dim);
}

static void build_cross(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self"), *y = tt_operand_of(r, "other");
  if (!x || !y) {
    return;
  }
  if (x->ndim != y->ndim) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.cross: inputs must have the same number of dimensions.");
    return;
  }
  const int32_t dim = tt_dim(r, "dim", x->ndim);
  if (tt_failed(r)) {
    return;
  }
  if (x->ndim == 0 || x->sizes[dim] != 3 || y->sizes[dim] != 3) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.cross: inputs dimension %" PRId64 " must have length 3. Got %" PRId64 " and %" PRId64,
            tt_int(r, "dim", -1), x->ndim ? x->sizes[dim] : 1, y->ndim ? y->sizes[dim] : 1);
  } else if (x->dtype != y->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(x->dtype), tt_type_name(y->dtype));
  } else if (x->dtype == TT_PRED || tt_is_barebones_unsigned(x->dtype)) {
    tt_fail_dtype(r, "cross", x->dtype);
  } else {
    tt_hlo v[] = {tt_in_as(r, "self", tt_opmath(x->dtype)), tt_in_as(r, "other", tt_opmath(x->dtype))};
    if (tt_broadcast(r, v, 2)) {
      tt_hlo z =
          v_sub(v_mul(rolled(v[0], dim, 1), rolled(v[1], dim, 2)), v_mul(rolled(v[0], dim, 2), rolled(v[1], dim, 1)));
      tt_ret(r, 0, tt_cast(z, x->dtype));
    }
  }
}

const tt_rule_entry tt_rules_linalg[] = {
    {.name = "aten::linalg_cholesky_ex", .build = build_cholesky, .kind = CHOLESKY_EX},
    {.name = "aten::cholesky", .build = build_cholesky, .kind = CHOLESKY, .out_dtype = TT_OUT_CAST},
    {.name = "aten::_cholesky_solve_helper", .build = build_cholesky_solve},
    {.name = "aten::cholesky_inverse", .build = build_cholesky_inverse, .out_dtype = TT_OUT_CAST},
    {.name = "aten::linalg_solve_triangular", .build = build_solve_triangular},
    {.name = "aten::triangular_solve", .build = build_triangular_solve},
    {.name = "aten::linalg_cross", .build = build_cross, .apart = "self,other"},
    {0},
};
