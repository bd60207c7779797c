// Binary and ternary arithmetic, elementwise.
#include <float.h>
#include <math.h>
#include <string.h>

#include "aten/pointwise.h"

// ---- operators on values of one dtype and shape ----

tt_hlo tt_pw_mul(tt_hlo x, tt_hlo y) { return x && x->dtype == TT_PRED ? v_and(x, y) : v_mul(x, y); }

static tt_hlo f_max(tt_hlo x, tt_hlo y) { return x && x->dtype == TT_PRED ? v_or(x, y) : v_max(x, y); }
static tt_hlo f_min(tt_hlo x, tt_hlo y) { return x && x->dtype == TT_PRED ? v_and(x, y) : v_min(x, y); }

static tt_hlo prefer_number(tt_hlo x, tt_hlo y, tt_hlo chosen) {
  return x && tt_dtype_is_float(x->dtype) ? v_if(v_isnan(x), y, v_if(v_isnan(y), x, chosen)) : chosen;
}
static tt_hlo f_fmax(tt_hlo x, tt_hlo y) { return prefer_number(x, y, f_max(x, y)); }
static tt_hlo f_fmin(tt_hlo x, tt_hlo y) { return prefer_number(x, y, f_min(x, y)); }

// Whether the truncated remainder has to move to the divisor's sign.
static tt_hlo signs_differ(tt_hlo remainder, tt_hlo divisor) {
  tt_hlo differ = v_ne(v_ltc(remainder, 0), v_ltc(divisor, 0));
  return v_and(v_ne(remainder, v_const(remainder, 0)), differ);
}

// An integer divisor without its zeros: StableHLO folds a division of constants by zero into a trap.
static tt_hlo divisor(tt_hlo y) { return y && tt_dtype_is_int(y->dtype) ? v_if(v_eqc(y, 0), v_const(y, 1), y) : y; }

// An integer division by zero is an error on the CPU: one of the device's, at the next synchronisation.
static void refuse_zeros(tt_rule *r, tt_hlo x, tt_hlo y) {
  if (x && y && tt_dtype_is_int(y->dtype) && tt_hlo_numel(x) > 0) {
    tt_device_assert(r, v_not(v_eqc(y, 0)), TT_ERR_RUNTIME, "ZeroDivisionError");
  }
}

static tt_hlo f_fmod(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_REMAINDER, x, divisor(y)); }

static tt_hlo f_remainder(tt_hlo x, tt_hlo y) {
  tt_hlo m = f_fmod(x, y);
  return x && tt_dtype_is_unsigned_int(x->dtype) ? m : v_if(signs_differ(m, y), v_add(m, y), m);
}

static tt_hlo f_atan2(tt_hlo y, tt_hlo x) { return tt_hlo_binary(TT_ATAN2, y, x); }

static tt_hlo f_hypot(tt_hlo x, tt_hlo y) {
  x = v_abs(x);
  y = v_abs(y);
  tt_hlo most = v_max(x, y), least = v_min(x, y);
  tt_hlo ratio = v_div(least, most);
  tt_hlo length = v_mul(most, v_sqrt(v_addc(v_mul(ratio, ratio), 1)));
  tt_hlo infinite = v_or(v_eqc(x, INFINITY), v_eqc(y, INFINITY));
  return v_if(infinite, v_const(x, INFINITY), v_if(v_eqc(most, 0), v_const(x, 0), length));
}

static tt_hlo f_heaviside(tt_hlo x, tt_hlo at_zero) {
  tt_hlo step = tt_cast(v_gt(x, v_const(x, 0)), x ? x->dtype : TT_PRED);
  return v_if(v_eqc(x, 0), at_zero, step);
}

static tt_hlo f_copysign(tt_hlo x, tt_hlo y) {
  if (!x || !y) {
    return NULL;
  }
  size_t size = tt_dtype_size(x->dtype);
  tt_dtype bits = size == 8 ? TT_S64 : size == 4 ? TT_S32 : TT_S16;
  tt_hlo negative = v_ltc(tt_hlo_bitcast_convert(y, bits), 0);
  tt_hlo ax = v_abs(x);
  return v_if(negative, v_neg(ax), ax);
}

static tt_hlo f_nextafter(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_NEXT_AFTER, x, y); }

// From the operand with the greater real part, so that its imaginary part is kept whole.
static tt_hlo complex_logaddexp(tt_hlo x, tt_hlo y) {
  tt_hlo rx = tt_hlo_unary(TT_REAL, x), ry = tt_hlo_unary(TT_REAL, y);
  tt_hlo less = v_lt(rx, ry);
  tt_hlo least = v_if(less, x, y), most = v_if(less, y, x);
  tt_hlo sum = v_add(most, tt_hlo_unary(TT_LOG1P, v_exp(v_sub(least, most))));
  tt_hlo equal = v_and(v_eq(rx, ry), v_not(tt_hlo_unary(TT_IS_FINITE, rx)));
  tt_hlo infinite = v_if(v_ltc(rx, 0), least, v_log(v_add(v_exp(x), v_exp(y))));
  return v_if(v_isnan(x), x, v_if(v_isnan(y), y, v_if(equal, infinite, sum)));
}

static tt_hlo f_logaddexp(tt_hlo x, tt_hlo y) {
  if (x && tt_dtype_is_complex(x->dtype)) {
    return complex_logaddexp(x, y);
  }
  tt_hlo most = v_max(x, y);
  tt_hlo sum = v_add(most, tt_hlo_unary(TT_LOG1P, v_exp(v_neg(v_abs(v_sub(x, y))))));
  return v_if(v_and(v_eq(x, y), v_eqc(v_abs(x), INFINITY)), x, sum);
}

static tt_hlo f_logaddexp2(tt_hlo x, tt_hlo y) {
  tt_hlo most = v_max(x, y);
  tt_hlo fine = v_exp(v_mulc(v_abs(v_sub(x, y)), -M_LN2));
  tt_hlo sum = v_add(most, v_mulc(tt_hlo_unary(TT_LOG1P, fine), M_LOG2E));
  return v_if(v_and(v_eq(x, y), v_eqc(v_abs(x), INFINITY)), x, sum);
}

static tt_hlo f_xlog(tt_hlo x, tt_hlo y, tt_hlo_unary_kind log) {
  return v_if(v_isnan(y), v_const(y, NAN), v_if(v_eqc(x, 0), v_const(x, 0), v_mul(x, tt_hlo_unary(log, y))));
}
static tt_hlo f_xlogy(tt_hlo x, tt_hlo y) { return f_xlog(x, y, TT_LOG); }
static tt_hlo f_xlog1py(tt_hlo x, tt_hlo y) { return f_xlog(x, y, TT_LOG1P); }
static tt_hlo any_nonzero(tt_hlo x) {
  bool all[TT_MAX_RANK];
  memset(all, true, sizeof all);
  return tt_reduce_mask(TT_ANY, v_ne(x, v_const(x, 0)), all);
}

static tt_hlo gcd_unfinished(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context, (void)b;
  return any_nonzero(state[1]);
}

// Euclid's step for every element that is not done yet.
static void gcd_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)context, (void)b;
  tt_hlo done = v_eqc(state[1], 0);
  out[0] = v_if(done, state[0], state[1]);
  out[1] = v_if(done, state[1], f_fmod(state[0], state[1]));
}

static tt_hlo int_abs(tt_hlo x) { return x && tt_dtype_is_unsigned_int(x->dtype) ? x : v_abs(x); }

static tt_hlo f_gcd(tt_hlo x, tt_hlo y) {
  if (!x || !y) {
    return NULL;
  }
  tt_hlo results[2] = {NULL, NULL};
  tt_hlo_while((const tt_hlo[]){int_abs(x), int_abs(y)}, 2, gcd_unfinished, gcd_step, NULL, results);
  return int_abs(results[0]);
}

static tt_hlo f_lcm(tt_hlo x, tt_hlo y) {
  if (!x || !y) {
    return NULL;
  }
  tt_hlo gcd = f_gcd(x, y);
  tt_dtype dtype = x->dtype, compute = tt_dtype_size(dtype) < 4 ? TT_S32 : dtype;  // C promotes before abs
  tt_hlo quotient = tt_cast(v_div(x, divisor(gcd)), compute);
  return tt_cast(int_abs(v_mul(quotient, tt_cast(y, compute))), dtype);
}

// By squaring: XLA's own integer power looks at the exponent's low bits only. State: square, exponent, product.
static tt_hlo power_unfinished(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context, (void)b;
  return any_nonzero(state[1]);
}

static void power_step(void *context, tt_hlo_builder *b, const tt_hlo *s, tt_hlo *out) {
  (void)context, (void)b;
  tt_hlo one = v_const(s[1], 1);
  tt_hlo odd = v_eq(v_and(s[1], one), one);
  out[0] = v_mul(s[0], s[0]);
  out[1] = tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, s[1], one);
  out[2] = v_if(odd, v_mul(s[2], s[0]), s[2]);
}

static tt_hlo whole_power(tt_hlo x, tt_hlo y) {
  tt_hlo results[3] = {NULL};
  tt_hlo_while((const tt_hlo[]){x, y, v_const(x, 1)}, 3, power_unfinished, power_step, NULL, results);
  return results[2];
}

// A negative exponent of an integer: 1 and -1 keep their meaning, the rest gives 0.
static tt_hlo int_pow(tt_hlo x, tt_hlo y) {
  if (tt_dtype_is_unsigned_int(x->dtype)) {
    return whole_power(x, y);
  }
  tt_hlo zero = v_const(x, 0), one = v_const(x, 1);
  tt_hlo negative = v_lt(y, zero);
  tt_hlo power = whole_power(x, v_if(negative, zero, y));
  tt_hlo odd = v_ne(v_and(y, one), zero);
  tt_hlo unit = v_if(v_eqc(x, 1), one, v_if(v_eqc(x, -1), v_if(odd, v_const(x, -1), one), zero));
  return v_if(negative, unit, power);
}

static tt_hlo f_pow(tt_hlo x, tt_hlo y) {
  if (!x || !y) {
    return NULL;
  }
  if (tt_dtype_is_int(x->dtype)) {
    return int_pow(x, y);
  }
  tt_hlo power = tt_hlo_binary(TT_POWER, x, y);
  if (tt_dtype_is_complex(x->dtype)) {  // 0 ** 0 is 1
    return v_if(v_eqc(y, 0), v_const(x, 1), power);
  }
  return power;
}

enum { B_FLOAT = 1, B_INT = 2, B_BOOL = 4, B_COMPLEX = 8 };  // B_FLOAT: integers are promoted

static const struct binary_form {
  const char *kernel, *name;
  int32_t flags;
  tt_hlo (*form)(tt_hlo x, tt_hlo y);
} forms[PW_BINARY_COUNT] = {
    [PW_MAXIMUM] = {"maximum_cpu", "maximum", B_INT | B_BOOL, f_max},
    [PW_MINIMUM] = {"minimum_cpu", "minimum", B_INT | B_BOOL, f_min},
    [PW_FMAX] = {"maximum_cpu", "fmax", B_INT | B_BOOL, f_fmax},
    [PW_FMIN] = {"minimum_cpu", "fmin", B_INT | B_BOOL, f_fmin},
    [PW_REMAINDER] = {"remainder_cpu", NULL, B_INT, f_remainder},
    [PW_FMOD] = {"fmod_cpu", NULL, B_INT, f_fmod},
    [PW_ATAN2] = {"atan2_cpu", NULL, B_FLOAT, f_atan2},
    [PW_HYPOT] = {"hypot_cpu", NULL, 0, f_hypot},
    [PW_HEAVISIDE] = {"heaviside_cpu", NULL, B_INT | B_BOOL, f_heaviside},
    [PW_COPYSIGN] = {"copysign_cpu", NULL, B_FLOAT, f_copysign},
    [PW_NEXTAFTER] = {"nextafter_cpu", NULL, 0, f_nextafter},
    [PW_LOGADDEXP] = {"logaddexp_cpu", NULL, B_COMPLEX, f_logaddexp},
    [PW_LOGADDEXP2] = {"logaddexp2_cpu", NULL, 0, f_logaddexp2},
    [PW_XLOGY] = {"xlogy_cpu", NULL, B_FLOAT, f_xlogy},
    [PW_XLOG1PY] = {"xlog1py_cpu", NULL, B_FLOAT, f_xlog1py},
    [PW_ZETA] = {"zeta_cpu", NULL, B_FLOAT, tt_pw_zeta},
    [PW_GCD] = {"gcd_cpu", NULL, B_INT, f_gcd},
    [PW_LCM] = {"lcm_cpu", NULL, B_INT, f_lcm},
    [PW_POW] = {"pow", NULL, B_INT | B_COMPLEX, f_pow},
};

static bool accepts(int32_t kind, tt_dtype dtype) {
  int32_t flags = forms[kind].flags;
  if (kind == PW_GCD || kind == PW_LCM) {
    return tt_dtype_is_int(dtype) && !tt_is_barebones_unsigned(dtype);
  }
  if (tt_dtype_is_complex(dtype)) {
    return flags & B_COMPLEX;
  }
  if (tt_is_integral(dtype) && (flags & B_FLOAT)) {
    return true;
  }
  if (dtype == TT_PRED) {
    return flags & B_BOOL;
  }
  return !tt_dtype_is_int(dtype) || ((flags & B_INT) && !tt_is_barebones_unsigned(dtype));
}

tt_hlo tt_pw_binary(tt_rule *r, int32_t kind, tt_hlo x, tt_hlo y) {
  if (!x || !y) {
    return NULL;
  }
  const struct binary_form *form = &forms[kind];
  if (tt_dtype_is_complex(x->dtype) && form->name) {
    tt_fail(r, TT_ERR_RUNTIME, "%s not implemented for complex tensors.", form->name);
    return NULL;
  }
  if (!accepts(kind, x->dtype)) {
    tt_fail_dtype(r, form->kernel, x->dtype);
    return NULL;
  }
  tt_dtype dtype = form->flags & B_FLOAT ? tt_float_type(r, x->dtype) : x->dtype;
  if (kind == PW_NEXTAFTER) {  // defined on the type itself
    return form->form(x, y);
  }
  tt_dtype compute = tt_opmath(dtype);
  return tt_cast(form->form(tt_cast(tt_cast(x, dtype), compute), tt_cast(tt_cast(y, dtype), compute)), dtype);
}

static void build_binary(tt_rule *r) {
  tt_hlo x, y;
  if (tt_rule_kind(r) == PW_HEAVISIDE) {
    const tt_operand *a = tt_operand_of(r, "self"), *b = tt_operand_of(r, "values");
    if (a && b && a->dtype != b->dtype) {
      tt_fail(r, TT_ERR_RUNTIME, "heaviside is not yet implemented for tensors with different dtypes.");
      return;
    }
    if (a && tt_dtype_is_complex(a->dtype)) {
      tt_fail(r, TT_ERR_RUNTIME, "heaviside is not yet implemented for complex tensors.");
      return;
    }
    tt_binary_in(r, "self", "values", &x, &y);
  } else {
    tt_binary_in(r, "self", "other", &x, &y);
  }
  if (tt_rule_kind(r) == PW_REMAINDER || tt_rule_kind(r) == PW_FMOD) {
    refuse_zeros(r, x, y);
  }
  tt_ret_elementwise(r, 0, tt_pw_binary(r, tt_rule_kind(r), x, y));
}

// ---- add, sub, mul, div ----

// An argument of a small float operator: a 0-d tensor or number keeps the precision of the computing type, as the
// CPU kernels' original_scalar_value does.
static tt_hlo opmath_in(tt_rule *r, const char *name, tt_dtype dtype) {
  const tt_operand *x = tt_scalar_type(r, name) == TT_DTYPE_INVALID ? tt_operand_of(r, name) : NULL;
  tt_dtype compute = tt_opmath(dtype);
  bool is_number = (!x || x->ndim == 0) && compute != dtype;
  if (tt_scalar_type(r, name) == TT_S64 && tt_dtype_is_int(dtype)) {  // wraps, as a tensor made of it would
    return tt_cast(tt_scalar(r, name, TT_S64), dtype);
  }
  return is_number ? tt_in_number(r, name, compute) : tt_cast(tt_in_number(r, name, dtype), compute);
}

static bool alpha_fits(tt_rule *r, tt_dtype dtype) {
  tt_dtype alpha = tt_scalar_type(r, "alpha");
  if (alpha == TT_PRED && dtype != TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "Boolean alpha only supported for Boolean results.");
  } else if (tt_is_integral(dtype) && (tt_dtype_is_float(alpha) || tt_dtype_is_complex(alpha))) {
    tt_fail(r, TT_ERR_RUNTIME, "For integral input tensors, argument alpha must not be a floating point number.");
  } else if (tt_dtype_is_complex(alpha) && !tt_dtype_is_complex(dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "For non-complex input tensors, argument alpha must not be a complex number.");
  }
  return !tt_failed(r);
}

bool tt_pw_sub_fits(tt_rule *r, tt_dtype x, tt_dtype y) {
  if (x == TT_PRED && y == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or `logical_xor()` "
            "operator instead.");
  } else if (x == TT_PRED || y == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a mask, "
            "use the `~` or `logical_not()` operator instead.");
  }
  return !tt_failed(r);
}

static tt_dtype type_of(tt_rule *r, const char *name) {
  tt_dtype scalar = tt_scalar_type(r, name);
  const tt_operand *x = scalar == TT_DTYPE_INVALID ? tt_operand_of(r, name) : NULL;
  return x ? x->dtype : scalar;
}

enum { A_ADD, A_SUB, A_RSUB };

// self + alpha * other, and its relatives.
static void build_add(tt_rule *r) {
  int32_t kind = tt_rule_kind(r);
  tt_dtype dtype = tt_result_type(r, (const char *const[]){"self", "other"}, 2);
  if (tt_failed(r) || !alpha_fits(r, dtype)) {
    return;
  }
  if (kind != A_ADD && !tt_pw_sub_fits(r, type_of(r, "self"), type_of(r, "other"))) {
    return;
  }
  if (tt_is_barebones_unsigned(dtype)) {
    tt_fail_dtype(r, "add_stub", dtype);
    return;
  }
  tt_hlo xy[2];
  tt_binary_in(r, "self", "other", &xy[0], &xy[1]);
  tt_dtype compute = tt_opmath(dtype);
  tt_hlo x = tt_cast(xy[kind == A_RSUB], compute), y = tt_cast(xy[kind != A_RSUB], compute);
  double alpha;
  if (!tt_scalar_known(r, "alpha", &alpha) && tt_has(r, "alpha")) {
    tt_hlo factor = tt_cast(tt_scalar(r, "alpha", dtype), compute);
    y = tt_pw_mul(y, v_like(factor, y));
  }
  tt_hlo sum = kind != A_ADD ? v_sub(x, y) : dtype == TT_PRED ? v_or(x, y) : v_add(x, y);
  tt_ret_elementwise(r, 0, tt_cast(sum, dtype));
}

// The sum from 0 to the greatest value of self's type; a NaN becomes 0.
static void build_add_relu(tt_rule *r) {
  static const char *const names[] = {"self", "other"};
  const tt_operand *self = tt_operand_of(r, "self");
  const tt_dtype dtype = tt_result_type(r, names, 2), type = self ? self->dtype : dtype;
  const bool is_whole = type == TT_S8 || type == TT_S16 || type == TT_S32 || type == TT_S64;
  if (!tt_failed(r) && !is_whole && type != TT_F32 && type != TT_F64) {
    tt_fail(r, TT_ERR_RUNTIME, "Unsupported datatype for add_relu: %s", tt_type_name(type));
    return;
  }
  tt_hlo xy[] = {tt_in_as(r, "self", dtype), tt_in_number(r, "other", dtype)};
  if (!tt_broadcast(r, xy, 2)) {
    return;
  }
  tt_hlo sum = v_add(xy[0], v_mul(xy[1], v_like(tt_scalar(r, "alpha", dtype), xy[1])));
  const double most = type == TT_F32 ? FLT_MAX : type == TT_F64 ? DBL_MAX : INFINITY;
  sum = sum ? v_if(v_gtc(sum, 0), sum, v_const(sum, 0)) : NULL;
  tt_ret_elementwise(r, 0, sum && tt_dtype_is_float(dtype) && !is_whole ? v_min(sum, v_const(sum, most)) : sum);
}

static void build_mul(tt_rule *r) {
  tt_dtype dtype = tt_result_type(r, (const char *const[]){"self", "other"}, 2);
  if (tt_failed(r)) {
    return;
  }
  tt_hlo xy[2] = {opmath_in(r, "self", dtype), opmath_in(r, "other", dtype)};
  tt_broadcast(r, xy, 2);
  tt_ret_elementwise(r, 0, tt_cast(tt_pw_mul(xy[0], xy[1]), dtype));
}

// c10/util/generic_math.h, div_floor_floating.
static tt_hlo floor_quotient(tt_hlo x, tt_hlo y) {
  tt_hlo quotient = v_div(x, y);
  tt_hlo m = f_fmod(x, y);
  tt_hlo exact = v_div(v_sub(x, m), y);
  exact = v_if(signs_differ(m, y), v_addc(exact, -1), exact);
  tt_hlo floored = tt_hlo_unary(TT_FLOOR, exact);
  floored = v_if(v_gtc(v_sub(exact, floored), 0.5), v_addc(floored, 1), floored);
  tt_hlo zero = f_copysign(v_const(x, 0), quotient);
  return v_if(v_eqc(y, 0), quotient, v_if(v_eqc(exact, 0), zero, floored));
}

static tt_hlo divide(tt_hlo x, tt_hlo y, char mode) {
  if (!x || !y) {
    return NULL;
  }
  if (mode == '\0') {
    return v_div(x, y);
  }
  if (!tt_dtype_is_int(x->dtype)) {
    return mode == 't' ? tt_pw_trunc(v_div(x, y)) : floor_quotient(x, y);
  }
  tt_hlo quotient = v_div(x, divisor(y));
  if (mode == 't' || tt_dtype_is_unsigned_int(x->dtype)) {
    return quotient;
  }
  return v_if(signs_differ(f_fmod(x, y), y), v_addc(quotient, -1), quotient);
}

// `mode`: '\0' for true division, 't' for trunc, 'f' for floor.
static void build_div_mode(tt_rule *r, char mode) {
  tt_dtype dtype = tt_result_type(r, (const char *const[]){"self", "other"}, 2);
  if (tt_failed(r)) {
    return;
  }
  if (mode == '\0') {
    dtype = tt_float_type(r, dtype);
  } else if (dtype == TT_PRED || tt_dtype_is_complex(dtype) || tt_is_barebones_unsigned(dtype)) {
    tt_fail_dtype(r, mode == 'f' ? "div_floor_cpu" : "div_trunc_cpu", dtype);
    return;
  }
  tt_hlo xy[2] = {opmath_in(r, "self", dtype), opmath_in(r, "other", dtype)};
  bool by_number = xy[1] && xy[1]->rank == 0;
  tt_broadcast(r, xy, 2);
  if (mode != '\0') {
    refuse_zeros(r, xy[0], xy[1]);
  }
  tt_hlo y = divide(xy[0], xy[1], mode == 't' && tt_opmath(dtype) != dtype ? '\0' : mode);
  if (mode == 't' && tt_opmath(dtype) != dtype) {
    // The CPU rounds a quotient of two small float tensors before it truncates.
    y = tt_pw_trunc(by_number ? y : tt_cast(tt_cast(y, dtype), tt_opmath(dtype)));
  }
  tt_ret_elementwise(r, 0, tt_cast(y, dtype));
}

static void build_div(tt_rule *r) { build_div_mode(r, '\0'); }
static void build_floor_divide(tt_rule *r) { build_div_mode(r, 'f'); }

static void build_div_rounding(tt_rule *r) {
  const char *mode = tt_string(r, "rounding_mode");
  if (mode && strcmp(mode, "trunc") != 0 && strcmp(mode, "floor") != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '%s'",
            mode);
    return;
  }
  build_div_mode(r, mode ? mode[0] : '\0');
}

// ---- pow ----

tt_hlo tt_pw_pow_known(tt_rule *r, tt_hlo x, double exponent) {
  if (!x || x->dtype == TT_PRED) {
    return NULL;
  }
  if (exponent < 0 && tt_is_integral(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "Integers to negative integer powers are not allowed.");
    return NULL;
  }
  tt_dtype dtype = x->dtype;
  x = tt_cast(x, tt_opmath(dtype));
  tt_hlo y = exponent == 0      ? v_const(x, 1)
             : exponent == 1    ? x
             : exponent == 2    ? v_mul(x, x)
             : exponent == 3    ? v_mul(v_mul(x, x), x)
             : exponent == 0.5  ? v_sqrt(x)
             : exponent == -1   ? v_cdiv(1, x)
             : exponent == -2   ? v_cdiv(1, v_mul(x, x))
             : exponent == -0.5 ? tt_pw_unary(r, PW_RSQRT, x)
                                : NULL;
  return tt_cast(y, dtype);
}

static void build_pow_scalar(tt_rule *r) {
  tt_dtype dtype = tt_result_type(r, (const char *const[]){"self", "exponent"}, 2);
  tt_hlo x = tt_failed(r) ? NULL : tt_in_as(r, "self", dtype);
  double exponent;
  if (x && dtype != TT_PRED && tt_scalar_known(r, "exponent", &exponent)) {
    tt_ret_elementwise(r, 0, tt_pw_pow_known(r, x, exponent));
    return;
  }
  tt_hlo y = v_like(tt_scalar(r, "exponent", dtype), x);
  tt_ret_elementwise(r, 0, tt_pw_binary(r, PW_POW, x, y));
}

static void build_pow(tt_rule *r) {
  tt_hlo x, y;
  tt_binary_in(r, "self", "exponent", &x, &y);
  tt_ret_elementwise(r, 0, tt_pw_binary(r, PW_POW, x, y));
}

// ---- ternary ----

tt_hlo tt_pw_lerp(tt_hlo x, tt_hlo end, tt_hlo weight) {
  tt_hlo step = v_sub(end, x);
  tt_hlo near_start = v_add(x, v_mul(weight, step));
  tt_hlo near_end = v_sub(end, v_mul(step, v_csub(1, weight)));
  return v_if(v_ltc(v_abs(weight), 0.5), near_start, near_end);
}

static bool same_dtype(tt_rule *r, const tt_operand *x, const char *name) {
  const tt_operand *y = tt_operand_of(r, name);
  if (x && y && x->dtype != y->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected dtype %s for `%s` but got dtype %s", tt_type_meta_name(x->dtype), name,
            tt_type_meta_name(y->dtype));
    return false;
  }
  return true;
}

static void build_lerp(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  bool by_scalar = tt_scalar_type(r, "weight") != TT_DTYPE_INVALID;
  if (!self || !same_dtype(r, self, "end") || (!by_scalar && !same_dtype(r, self, "weight"))) {
    return;
  }
  if (tt_is_integral(self->dtype)) {
    tt_fail_dtype(r, by_scalar ? "lerp_kernel_scalar" : "lerp_kernel_tensor", self->dtype);
    return;
  }
  tt_dtype compute = tt_opmath(self->dtype);
  tt_hlo xs[3] = {tt_in_as(r, "self", compute), tt_in_as(r, "end", compute), tt_in_number(r, "weight", compute)};
  tt_broadcast(r, xs, 3);
  tt_ret_elementwise(r, 0, tt_cast(tt_pw_lerp(xs[0], xs[1], xs[2]), self->dtype));
}

enum { T_ADDCMUL, T_ADDCDIV };

static void build_addc(tt_rule *r) {
  static const char *const names[] = {"self", "tensor1", "tensor2"};
  bool divides = tt_rule_kind(r) == T_ADDCDIV;
  tt_dtype dtype = tt_result_type(r, names, 3);
  const tt_operand *t1 = tt_operand_of(r, "tensor1"), *t2 = tt_operand_of(r, "tensor2");
  if (tt_failed(r) || !t1 || !t2) {
    return;
  }
  if (divides && tt_is_integral(t1->dtype) && tt_is_integral(t2->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a "
            "true division of tensor1 and tensor2. The historic addcdiv behavior can be implemented as (input + value "
            "* torch.trunc(tensor1 / tensor2)).to(input.dtype) for integer inputs and as (input + value * tensor1 / "
            "tensor2) for float inputs. The future addcdiv behavior is just the latter implementation: (input + value "
            "* tensor1 / tensor2), for all dtypes.");
    return;
  }
  if (dtype == TT_PRED || tt_is_barebones_unsigned(dtype)) {
    tt_fail_dtype(r, divides ? "addcdiv_cpu_out" : "addcmul_cpu_out", dtype);
    return;
  }
  tt_dtype compute = tt_opmath(dtype);
  tt_hlo xs[3];
  for (int32_t i = 0; i < 3; i++) {
    xs[i] = tt_cast(tt_in_as(r, names[i], dtype), compute);
  }
  tt_broadcast(r, xs, 3);
  double value;
  if (!tt_scalar_known(r, "value", &value)) {
    xs[1] = v_mul(v_like(tt_scalar(r, "value", compute), xs[1]), xs[1]);
  }
  tt_hlo term = divides ? v_div(xs[1], xs[2]) : v_mul(xs[1], xs[2]);
  tt_ret_elementwise(r, 0, tt_cast(v_add(xs[0], term), dtype));
}

// ---- complex from parts ----
enum { C_COMPLEX, C_POLAR };

static void build_complex(tt_rule *r) {
  bool polar = tt_rule_kind(r) == C_POLAR;
  const char *first = polar ? "abs" : "real", *second = polar ? "angle" : "imag";
  const tt_operand *a = tt_operand_of(r, first), *b = tt_operand_of(r, second);
  if (!a || !b) {
    return;
  }
  bool a_ok = a->dtype == TT_F32 || a->dtype == TT_F64 || a->dtype == TT_F16;
  bool b_ok = b->dtype == TT_F32 || b->dtype == TT_F64 || b->dtype == TT_F16;
  if (!a_ok || !b_ok) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected both inputs to be Half, Float or Double tensors but got %s and %s",
            tt_type_name(a->dtype), tt_type_name(b->dtype));
    return;
  }
  if (a->dtype != b->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected object of scalar type %s but got scalar type %s for second argument",
            tt_type_name(a->dtype), tt_type_name(b->dtype));
    return;
  }
  if (a->dtype == TT_F16) {
    tt_fail_dtype(r, polar ? "polar_cpu" : "complex_cpu", a->dtype);
    return;
  }
  tt_hlo xy[2] = {tt_in(r, first), tt_in(r, second)};
  tt_broadcast(r, xy, 2);
  const tt_operand *out = tt_operand_of(r, "out");
  if (out && out->dtype != tt_dtype_complex(a->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected object of scalar type %s but got scalar type %s for argument 'out'",
            tt_type_name(tt_dtype_complex(a->dtype)), tt_type_name(out->dtype));
    return;
  }
  if (polar) {
    tt_hlo size = xy[0], angle = xy[1];
    xy[0] = v_mul(size, tt_hlo_unary(TT_COS, angle));
    xy[1] = v_mul(size, tt_hlo_unary(TT_SIN, angle));
  }
  tt_ret_elementwise(r, 0, tt_hlo_complex(xy[0], xy[1]));
}

#define BINARY(op_name, which) {.name = "aten::" op_name, .build = build_binary, .kind = which}
#define KIND(op_name, function, which) {.name = "aten::" op_name, .build = function, .kind = which}

const tt_rule_entry tt_rules_pointwise_binary[] = {
    KIND("add.Tensor", build_add, A_ADD),
    KIND("_add_relu.Tensor", build_add_relu, 0),
    KIND("_add_relu.Scalar", build_add_relu, 0),
    KIND("add.Scalar", build_add, A_ADD),
    KIND("sub.Tensor", build_add, A_SUB),
    KIND("sub.Scalar", build_add, A_SUB),
    KIND("rsub.Tensor", build_add, A_RSUB),
    KIND("rsub.Scalar", build_add, A_RSUB),
    KIND("mul.Tensor", build_mul, 0),
    KIND("mul.Scalar", build_mul, 0),
    KIND("div.Tensor", build_div, 0),
    KIND("div.Scalar", build_div, 0),
    KIND("div.Tensor_mode", build_div_rounding, 0),
    KIND("div.Scalar_mode", build_div_rounding, 0),
    KIND("floor_divide", build_floor_divide, 0),
    KIND("floor_divide.Scalar", build_floor_divide, 0),
    KIND("floor_divide_.Tensor", build_floor_divide, 0),
    BINARY("maximum", PW_MAXIMUM),
    BINARY("minimum", PW_MINIMUM),
    BINARY("fmax", PW_FMAX),
    BINARY("fmin", PW_FMIN),
    BINARY("remainder.Tensor", PW_REMAINDER),
    BINARY("remainder.Scalar", PW_REMAINDER),
    BINARY("remainder.Scalar_Tensor", PW_REMAINDER),
    BINARY("fmod.Tensor", PW_FMOD),
    BINARY("fmod.Scalar", PW_FMOD),
    BINARY("atan2", PW_ATAN2),
    BINARY("hypot", PW_HYPOT),
    {.name = "aten::heaviside", .build = build_binary, .kind = PW_HEAVISIDE, .out_dtype = TT_OUT_EXACT},
    BINARY("copysign.Tensor", PW_COPYSIGN),
    BINARY("copysign.Scalar", PW_COPYSIGN),
    BINARY("nextafter", PW_NEXTAFTER),
    BINARY("logaddexp", PW_LOGADDEXP),
    BINARY("logaddexp2", PW_LOGADDEXP2),
    BINARY("xlogy.Tensor", PW_XLOGY),
    BINARY("xlogy.OutTensor", PW_XLOGY),
    BINARY("special_xlog1py", PW_XLOG1PY),
    BINARY("special_zeta", PW_ZETA),
    BINARY("gcd", PW_GCD),
    BINARY("lcm", PW_LCM),
    {.name = "aten::pow.Tensor_Scalar", .build = build_pow_scalar, .special_values = "exponent=-2,-1,-0.5,0,0.5,1,2,3"},
    {.name = "aten::pow_.Scalar", .build = build_pow_scalar, .special_values = "exponent=-2,-1,-0.5,0,0.5,1,2,3"},
    KIND("pow_.Tensor", build_pow, 0),
    KIND("pow.Tensor_Tensor", build_pow, 0),
    KIND("pow.Scalar", build_pow, 0),
    KIND("lerp.Scalar", build_lerp, 0),
    KIND("lerp.Tensor", build_lerp, 0),
    KIND("addcmul", build_addc, T_ADDCMUL),
    KIND("addcdiv", build_addc, T_ADDCDIV),
    KIND("complex", build_complex, C_COMPLEX),
    KIND("polar", build_complex, C_POLAR),
    {.name = NULL},
};
