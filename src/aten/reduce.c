// Reductions: sums, products, moments, extremes with and without positions, predicates, norms.
#include <math.h>

#include "aten/dims.h"

// The "dim" argument (a list, a number or None) and "keepdim".
typedef struct dim_set {
  bool mask[TT_MAX_RANK];
  int64_t count;  // elements reduced into one
  int32_t given;  // dims named by the call
  bool keepdim;
} dim_set;

static dim_set read_dims(tt_rule *r, const char *self, bool empty_is_all) {
  dim_set d = {.count = 1, .keepdim = tt_bool(r, "keepdim", false)};
  const tt_operand *x = tt_operand_of(r, self);
  if (!x) {
    return d;
  }
  if (tt_ints(r, "dim", &d.given) || !tt_has(r, "dim")) {
    tt_dim_mask(r, "dim", x->ndim, empty_is_all, d.mask);
  } else {
    d.mask[tt_dim(r, "dim", x->ndim)] = x->ndim > 0;
    d.given = 1;
  }
  for (int32_t i = 0; i < x->ndim; i++) {
    d.count *= d.mask[i] ? x->sizes[i] : 1;
  }
  return d;
}

static tt_hlo with_dims(const dim_set *d, tt_hlo reduced, tt_hlo like) {
  return d->keepdim ? tt_keepdim(reduced, like, d->mask) : reduced;
}
static tt_hlo expanded(const dim_set *d, tt_hlo reduced, tt_hlo like) {
  return like ? tt_expand_reduced(reduced, like->dims, like->rank, d->mask) : NULL;
}

static tt_dtype self_dtype(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  return x ? x->dtype : TT_DTYPE_INVALID;
}

// ---- sum, prod, mean ----
enum { KIND_SUM, KIND_NANSUM, KIND_PROD };

static void build_sum(tt_rule *r) {
  const int32_t kind = tt_rule_kind(r);
  const tt_dtype in = self_dtype(r), asked = tt_asked_dtype(r, TT_DTYPE_INVALID);
  const tt_dtype dtype = asked ? asked : tt_is_integral(in) ? TT_S64 : in;
  if (kind == KIND_NANSUM && tt_dtype_is_complex(in)) {
    tt_fail(r, TT_ERR_RUNTIME, "nansum does not support complex inputs");
    return;
  }
  if (kind == KIND_NANSUM && tt_dtype_is_float(in) && !tt_dtype_is_float(dtype)) {
    tt_fail_dtype(r, "nansum_cpu", dtype);
    return;
  }
  const dim_set d = read_dims(r, "self", true);
  tt_dtype compute = tt_opmath(dtype);
  if (in == TT_PRED && dtype == TT_S64 && kind == KIND_SUM && d.count < INT32_MAX) {
    compute = TT_S32;  // counting: 64-bit lanes are slow on every device
  }
  tt_hlo x = tt_cast(tt_in_as(r, "self", in == TT_PRED ? in : dtype), compute);
  if (kind == KIND_NANSUM && x && tt_dtype_is_float(x->dtype)) {
    x = v_if(v_isnan(x), v_const(x, 0), x);
  }
  tt_hlo_reducer reducer = kind == KIND_PROD ? TT_PROD : TT_SUM;
  if (compute == TT_PRED) {
    reducer = kind == KIND_PROD ? TT_ALL : TT_ANY;
  }
  tt_ret(r, 0, with_dims(&d, tt_cast(tt_reduce_mask(reducer, x, d.mask), dtype), x));
}

static void build_mean(tt_rule *r) {
  const tt_dtype in = self_dtype(r), given = tt_dtype_arg(r, "dtype", in), dtype = tt_asked_dtype(r, in);
  if (tt_is_integral(given) || tt_is_integral(dtype)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "could not infer output dtype. %s dtype must be either a floating point or complex dtype. Got: %s",
            tt_has(r, "dtype") ? "Optional" : "Input", tt_type_name(tt_is_integral(given) ? given : dtype));
    return;
  }
  const dim_set d = read_dims(r, "self", true);
  tt_hlo x = tt_cast(tt_in_as(r, "self", dtype), tt_opmath(dtype));
  tt_hlo mean = tt_mean_of(tt_reduce_mask(TT_SUM, x, d.mask), d.count);
  tt_ret(r, 0, with_dims(&d, tt_cast(mean, dtype), x));
}

// ---- var, std ----
enum { KIND_VAR = 0, KIND_STD = 1, WITH_MEAN = 2 };

static tt_hlo square_magnitude(tt_hlo x) {
  if (!x || !tt_dtype_is_complex(x->dtype)) {
    return v_mul(x, x);
  }
  tt_hlo re = tt_hlo_unary(TT_REAL, x), im = tt_hlo_unary(TT_IMAG, x);
  return v_add(v_mul(re, re), v_mul(im, im));
}

// max(0, count - correction), as m2's elements.
static tt_hlo degrees_of_freedom(tt_rule *r, int64_t count, tt_hlo m2) {
  double correction = 1;
  if (!m2 || !tt_has(r, "correction") || tt_scalar_known(r, "correction", &correction)) {
    return m2 ? v_const(m2, fmax(0, (double)count - correction)) : NULL;
  }
  tt_hlo subtract = v_like(tt_scalar(r, "correction", m2->dtype), m2);
  return v_max(v_csub((double)count, subtract), v_const(m2, 0));
}

static void build_var(tt_rule *r) {
  const int32_t kind = tt_rule_kind(r);
  const tt_dtype dtype = self_dtype(r);
  if (tt_is_integral(dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "%s only support floating point and complex dtypes",
            kind & WITH_MEAN ? tt_rule_name(r) : "std and var");
    return;
  }
  const dim_set d = read_dims(r, "self", true);
  const tt_operand *out = tt_operand_of(r, "out");
  if (out && tt_dtype_is_complex(out->dtype) && d.count != tt_hlo_numel(tt_in(r, "self"))) {
    tt_fail_dtype(r, kind & KIND_STD ? "std_cpu" : "var_cpu", out->dtype);
    return;
  }
  tt_hlo x = tt_in_as(r, "self", tt_opmath(dtype));
  tt_hlo mean = tt_mean_of(tt_reduce_mask(TT_SUM, x, d.mask), d.count);
  tt_hlo m2 = tt_reduce_mask(TT_SUM, square_magnitude(v_sub(x, expanded(&d, mean, x))), d.mask);
  tt_hlo result = v_div(m2, degrees_of_freedom(r, d.count, m2));
  result = kind & KIND_STD ? v_sqrt(result) : result;
  tt_ret(r, 0, with_dims(&d, tt_cast(result, tt_dtype_real(dtype)), x));
  if (kind & WITH_MEAN) {
    tt_ret(r, 1, with_dims(&d, tt_cast(mean, dtype), x));
  }
}

// ---- extremes ----
static tt_hlo_reducer extreme_reducer(bool max, tt_dtype dtype) {
  return dtype == TT_PRED ? (max ? TT_ANY : TT_ALL) : max ? TT_MAX : TT_MIN;
}

// False, with the error set, if some reduced dim is empty.
static bool check_not_empty(tt_rule *r, const dim_set *d) {
  const tt_operand *x = tt_operand_of(r, "self");
  bool empty = false;
  for (int32_t i = 0; x && i < x->ndim; i++) {
    empty = empty || x->sizes[i] == 0;
  }
  if (!empty || tt_failed(r)) {
    return !tt_failed(r);
  }
  if (d->given == 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
            "argument.");
    return false;
  }
  for (int32_t i = 0; i < x->ndim; i++) {
    if (d->mask[i] && x->sizes[i] == 0) {
      tt_fail(r, TT_ERR_INDEX, "Expected reduction dim %d to have non-zero size.", i);
      return false;
    }
  }
  return true;
}

static bool check_real(tt_rule *r) {
  if (tt_dtype_is_complex(self_dtype(r))) {
    tt_fail_dtype(r, tt_rule_name(r), self_dtype(r));
    return false;
  }
  return true;
}

enum { KIND_MIN = 0, KIND_MAX = 1, KIND_BOTH = 2 };

static void build_amax(tt_rule *r) {
  const int32_t kind = tt_rule_kind(r);
  const dim_set d = read_dims(r, "self", true);
  if (!check_real(r) || !check_not_empty(r, &d)) {
    return;
  }
  tt_hlo x = tt_in(r, "self");
  if (kind != KIND_BOTH) {
    tt_ret(r, 0, with_dims(&d, tt_reduce_mask(extreme_reducer(kind == KIND_MAX, self_dtype(r)), x, d.mask), x));
    return;
  }
  for (int32_t max = 0; max < 2; max++) {
    tt_ret(r, max, with_dims(&d, tt_reduce_mask(extreme_reducer(max, self_dtype(r)), x, d.mask), x));
  }
}

// The extreme along `dim` and its first position; a NaN wins.
static void extreme_at(tt_hlo x, int32_t dim, bool max, tt_hlo *value, tt_hlo *position) {
  *value = *position = NULL;
  if (!x) {
    return;
  }
  const tt_dtype type = v_position_type(x->dims[dim]);
  *value = v_reduce(extreme_reducer(max, x->dtype), x, dim);
  tt_hlo hit = v_eq(x, v_spread(*value, x, dim));
  if (v_has_nan(x->dtype)) {
    hit = v_or(hit, v_isnan(x));
  }
  tt_hlo at = v_iota(x, type, dim);
  at = v_if(hit, at, v_const(at, (double)x->dims[dim]));
  *position = tt_cast(v_reduce(TT_MIN, at, dim), TT_S64);
}

static void build_max_dim(tt_rule *r) {
  const dim_set d = read_dims(r, "self", true);
  if (!check_real(r) || !check_not_empty(r, &d)) {
    return;
  }
  tt_hlo x = tt_in(r, "self"), value, position;
  const int32_t dim = tt_dim(r, "dim", x ? x->rank : 0);
  extreme_at(v_at_least_1d(x), dim, tt_rule_kind(r) == KIND_MAX, &value, &position);
  tt_ret(r, 0, with_dims(&d, value, x));
  tt_ret(r, 1, with_dims(&d, position, x));
}

static void build_argmax(tt_rule *r) {
  if (!check_real(r)) {
    return;
  }
  if (self_dtype(r) == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "does not support bool input");
    return;
  }
  const dim_set d = read_dims(r, "self", true);
  if (d.given == 0 && d.count == 0) {
    tt_fail(r, TT_ERR_INDEX, "Expected reduction dim to be specified for input.numel() == 0.");
    return;
  }
  if (!check_not_empty(r, &d)) {
    return;
  }
  tt_hlo x = tt_in(r, "self"), value, position;
  const int32_t dim = d.given && x ? tt_dim(r, "dim", x->rank) : 0;
  extreme_at(d.given ? v_at_least_1d(x) : v_flat(x), dim, tt_rule_kind(r) == KIND_MAX, &value, &position);
  tt_ret(r, 0, with_dims(&d, position, x));
}

// ---- predicates ----
enum { KIND_ALL, KIND_ANY };

static void build_all(tt_rule *r) {
  const dim_set d = read_dims(r, "self", false);
  tt_hlo x = tt_in_as(r, "self", TT_PRED);
  tt_hlo result = tt_reduce_mask(tt_rule_kind(r) == KIND_ALL ? TT_ALL : TT_ANY, x, d.mask);
  const tt_operand *out = tt_operand_of(r, "out");
  tt_dtype like = out ? out->dtype : self_dtype(r);
  tt_ret(r, 0, with_dims(&d, tt_cast(result, like == TT_U8 ? TT_U8 : TT_PRED), x));
}

static void build_count_nonzero(tt_rule *r) {
  const dim_set d = read_dims(r, "self", true);
  tt_hlo x = tt_cast(tt_in_as(r, "self", TT_PRED), d.count < INT32_MAX ? TT_S32 : TT_S64);
  tt_ret(r, 0, tt_cast(tt_reduce_mask(TT_SUM, x, d.mask), TT_S64));
}

// ---- logsumexp ----
static void build_logsumexp(tt_rule *r) {
  const tt_dtype dtype = tt_float_type(r, self_dtype(r));
  const tt_operand *out = tt_operand_of(r, "out");
  if (out && tt_is_integral(out->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected floating point type for result tensor, but got: %s", tt_type_name(out->dtype));
    return;
  }
  const dim_set d = read_dims(r, "self", true);
  tt_hlo x = tt_in_as(r, "self", tt_opmath(dtype));
  const bool complex = tt_dtype_is_complex(dtype);
  tt_hlo max = tt_reduce_mask(TT_MAX, complex ? tt_hlo_unary(TT_REAL, x) : x, d.mask);
  // An infinite extreme would give inf - inf; 0 lets the sum say what it is.
  max = v_if(v_eq(v_abs(max), v_const(max, INFINITY)), v_const(max, 0), max);
  max = tt_cast(max, tt_opmath(dtype));
  tt_hlo sum = tt_reduce_mask(TT_SUM, v_exp(v_sub(x, expanded(&d, max, x))), d.mask);
  tt_ret(r, 0, with_dims(&d, tt_cast(v_add(v_log(sum), max), dtype), x));
}

// ---- norms ----
enum { NORM_P, NORM_ORD, NORM_POWERS };

static tt_hlo power_sum(tt_hlo x, double p, const dim_set *d) {
  if (p == 2) {
    return tt_reduce_mask(TT_SUM, square_magnitude(x), d->mask);
  }
  tt_hlo magnitude = v_abs(x);
  tt_hlo power = p == 1 ? magnitude : magnitude ? tt_hlo_binary(TT_POWER, magnitude, v_const(magnitude, p)) : NULL;
  return tt_reduce_mask(TT_SUM, power, d->mask);
}

static tt_hlo norm_of(tt_hlo x, double p, const dim_set *d) {
  if (p == 2) {
    return v_sqrt(tt_reduce_mask(TT_SUM, square_magnitude(x), d->mask));
  }
  tt_hlo magnitude = v_abs(x);
  if (isinf(p)) {
    return tt_reduce_mask(p > 0 ? TT_MAX : TT_MIN, magnitude, d->mask);
  }
  if (p == 0) {
    tt_hlo one = magnitude ? tt_hlo_convert(v_ne(magnitude, v_const(magnitude, 0)), magnitude->dtype) : NULL;
    return tt_reduce_mask(TT_SUM, one, d->mask);
  }
  if (p == 1) {
    return tt_reduce_mask(TT_SUM, magnitude, d->mask);
  }
  tt_hlo power = p == 3 ? v_mul(v_mul(magnitude, magnitude), magnitude)
                        : tt_hlo_binary(TT_POWER, magnitude, v_const(magnitude, p));
  tt_hlo sum = tt_reduce_mask(TT_SUM, power, d->mask);
  return tt_hlo_binary(TT_POWER, sum, v_const(sum, 1 / p));
}

static void build_norm(tt_rule *r) {
  const bool is_sum = tt_rule_kind(r) == NORM_POWERS;
  const double p = tt_static_double(r, tt_rule_kind(r) ? "ord" : "p", 2);
  const tt_dtype in = self_dtype(r), dtype = tt_dtype_arg(r, "dtype", in);
  if (is_sum && tt_is_integral(in)) {
    tt_fail_dtype(r, "powsum_cpu", in);
    return;
  }
  if (tt_is_integral(in)) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
            tt_type_name(in));
    return;
  }
  if (tt_is_integral(dtype) || tt_dtype_is_complex(dtype) != tt_dtype_is_complex(in)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.vector_norm: dtype should be floating point or complex as the input is, but got %s",
            tt_type_name(dtype));
    return;
  }
  if (tt_promote_types(in, dtype) != dtype) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.vector_norm: the dtype of the input (%s) should be convertible without narrowing to the specified "
            "dtype (%s)",
            tt_type_name(in), tt_type_name(dtype));
    return;
  }
  const dim_set d = read_dims(r, "self", true);
  if (!is_sum && d.count == 0 && (p < 0 || isinf(p))) {
    tt_fail(r, TT_ERR_RUNTIME,
            "linalg.vector_norm cannot compute the %g norm on an empty tensor because the operation does not have an "
            "identity",
            p);
    return;
  }
  tt_hlo x = tt_cast(tt_in_as(r, "self", dtype), tt_opmath(dtype));
  tt_ret(r, 0, with_dims(&d, tt_cast((is_sum ? power_sum : norm_of)(x, p, &d), tt_dtype_real(dtype)), x));
}

#define ENTRY(rule_name, function, rule_kind) {.name = "aten::" rule_name, .build = function, .kind = rule_kind}
#define ENTRY_OUT(rule_name, function, rule_kind, accepted) \
  {.name = "aten::" rule_name, .build = function, .kind = rule_kind, .out_dtype = accepted}

const tt_rule_entry tt_rules_reduce[] = {
    ENTRY_OUT("sum", build_sum, KIND_SUM, TT_OUT_ANY),
    ENTRY_OUT("sum.dim_IntList", build_sum, KIND_SUM, TT_OUT_ANY),
    ENTRY_OUT("nansum", build_sum, KIND_NANSUM, TT_OUT_ANY),
    ENTRY_OUT("prod", build_sum, KIND_PROD, TT_OUT_ANY),
    ENTRY_OUT("prod.dim_int", build_sum, KIND_PROD, TT_OUT_ANY),
    ENTRY_OUT("mean", build_mean, 0, TT_OUT_CAST),
    ENTRY_OUT("mean.dim", build_mean, 0, TT_OUT_ANY),
    {.name = "aten::var.correction",
     .out_dtype = TT_OUT_CAST,
     .build = build_var,
     .kind = KIND_VAR,
     .special_values = "correction=0,1"},
    {.name = "aten::std.correction",
     .out_dtype = TT_OUT_CAST,
     .build = build_var,
     .kind = KIND_STD,
     .special_values = "correction=0,1"},
    {.name = "aten::var_mean.correction",
     .build = build_var,
     .kind = KIND_VAR | WITH_MEAN,
     .special_values = "correction=0,1"},
    {.name = "aten::std_mean.correction",
     .build = build_var,
     .kind = KIND_STD | WITH_MEAN,
     .special_values = "correction=0,1"},
    ENTRY("amax", build_amax, KIND_MAX),
    ENTRY("amin", build_amax, KIND_MIN),
    ENTRY("aminmax", build_amax, KIND_BOTH),
    ENTRY("_aminmax", build_amax, KIND_BOTH),
    ENTRY("_aminmax.dim", build_amax, KIND_BOTH),
    ENTRY_OUT("max", build_amax, KIND_MAX, TT_OUT_CAST),
    ENTRY_OUT("min", build_amax, KIND_MIN, TT_OUT_CAST),
    ENTRY("max.dim", build_max_dim, KIND_MAX),
    ENTRY("min.dim", build_max_dim, KIND_MIN),
    ENTRY("argmax", build_argmax, KIND_MAX),
    ENTRY("argmin", build_argmax, KIND_MIN),
    ENTRY("all", build_all, KIND_ALL),
    ENTRY("all.dim", build_all, KIND_ALL),
    ENTRY("all.dims", build_all, KIND_ALL),
    ENTRY("any", build_all, KIND_ANY),
    ENTRY("any.dim", build_all, KIND_ANY),
    ENTRY("any.dims", build_all, KIND_ANY),
    ENTRY("count_nonzero", build_count_nonzero, 0),
    ENTRY("count_nonzero.dim_IntList", build_count_nonzero, 0),
    ENTRY_OUT("logsumexp", build_logsumexp, 0, TT_OUT_ANY),
    {.name = "aten::norm.Scalar", .build = build_norm, .static_args = "p"},
    {.name = "aten::norm.ScalarOpt_dim", .build = build_norm, .static_args = "p"},
    {.name = "aten::norm.ScalarOpt_dim_dtype", .build = build_norm, .static_args = "p"},
    {.name = "aten::norm.ScalarOpt_dtype", .build = build_norm, .static_args = "p"},
    {.name = "aten::linalg_vector_norm", .build = build_norm, .kind = NORM_ORD, .static_args = "ord"},
    {.name = "aten::linalg__powsum", .build = build_norm, .kind = NORM_POWERS, .static_args = "ord"},
    {.name = NULL},
};
