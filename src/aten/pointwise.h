// Shared by the pointwise, activation, foreach, optimizer, creation and random families.
#ifndef TORCHTPU_ATEN_POINTWISE_H
#define TORCHTPU_ATEN_POINTWISE_H

#include "aten/rule.h"

// ---- values: an expression over tt_hlo without the noise; NULL in, NULL out ----
static inline tt_hlo v_add(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_ADD, x, y); }
static inline tt_hlo v_sub(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_SUBTRACT, x, y); }
static inline tt_hlo v_mul(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_MULTIPLY, x, y); }
static inline tt_hlo v_div(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_DIVIDE, x, y); }
static inline tt_hlo v_max(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_MAXIMUM, x, y); }
static inline tt_hlo v_min(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_MINIMUM, x, y); }
// y, the greater or lesser of x and a bound; but x where they are equal: -0 stays, which v_max would make 0.
static inline tt_hlo v_clamped(tt_hlo x, tt_hlo bound, tt_hlo y) {
  return y && tt_dtype_is_float(y->dtype) ? tt_hlo_select(tt_hlo_compare(TT_EQ, x, bound), x, y) : y;
}
static inline tt_hlo v_at_least(tt_hlo x, tt_hlo low) { return v_clamped(x, low, v_max(x, low)); }
static inline tt_hlo v_at_most(tt_hlo x, tt_hlo high) { return v_clamped(x, high, v_min(x, high)); }
static inline tt_hlo v_and(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_AND, x, y); }
static inline tt_hlo v_or(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_OR, x, y); }
static inline tt_hlo v_xor(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_XOR, x, y); }
static inline tt_hlo v_const(tt_hlo like, double value) { return tt_hlo_const_like(like, value); }
static inline tt_hlo v_addc(tt_hlo x, double c) { return v_add(x, v_const(x, c)); }
static inline tt_hlo v_mulc(tt_hlo x, double c) { return v_mul(x, v_const(x, c)); }
static inline tt_hlo v_csub(double c, tt_hlo x) { return v_sub(v_const(x, c), x); }
static inline tt_hlo v_cdiv(double c, tt_hlo x) { return v_div(v_const(x, c), x); }
static inline tt_hlo v_neg(tt_hlo x) { return tt_hlo_unary(TT_NEGATE, x); }
static inline tt_hlo v_abs(tt_hlo x) { return tt_hlo_unary(TT_ABS, x); }
static inline tt_hlo v_exp(tt_hlo x) { return tt_hlo_unary(TT_EXP, x); }
static inline tt_hlo v_log(tt_hlo x) { return tt_hlo_unary(TT_LOG, x); }
static inline tt_hlo v_sqrt(tt_hlo x) { return tt_hlo_unary(TT_SQRT, x); }
static inline tt_hlo v_not(tt_hlo x) { return tt_hlo_unary(TT_NOT, x); }
static inline tt_hlo v_eq(tt_hlo x, tt_hlo y) { return tt_hlo_compare(TT_EQ, x, y); }
static inline tt_hlo v_ne(tt_hlo x, tt_hlo y) { return tt_hlo_compare(TT_NE, x, y); }
static inline tt_hlo v_lt(tt_hlo x, tt_hlo y) { return tt_hlo_compare(TT_LT, x, y); }
static inline tt_hlo v_le(tt_hlo x, tt_hlo y) { return tt_hlo_compare(TT_LE, x, y); }
static inline tt_hlo v_gt(tt_hlo x, tt_hlo y) { return tt_hlo_compare(TT_GT, x, y); }
static inline tt_hlo v_ge(tt_hlo x, tt_hlo y) { return tt_hlo_compare(TT_GE, x, y); }
static inline tt_hlo v_eqc(tt_hlo x, double c) { return v_eq(x, v_const(x, c)); }
static inline tt_hlo v_ltc(tt_hlo x, double c) { return v_lt(x, v_const(x, c)); }
static inline tt_hlo v_lec(tt_hlo x, double c) { return v_le(x, v_const(x, c)); }
static inline tt_hlo v_gtc(tt_hlo x, double c) { return v_gt(x, v_const(x, c)); }
static inline tt_hlo v_gec(tt_hlo x, double c) { return v_ge(x, v_const(x, c)); }
static inline tt_hlo v_if(tt_hlo pred, tt_hlo x, tt_hlo y) { return tt_hlo_select(pred, x, y); }
static inline tt_hlo v_isnan(tt_hlo x) { return v_ne(x, x); }
// A 0-d value as large as `like`.
static inline tt_hlo v_like(tt_hlo scalar, tt_hlo like) {
  return scalar && like ? tt_hlo_broadcast_to(scalar, like->dims, like->rank) : NULL;
}
// x / c rounded once: XLA multiplies by a rounded 1 / c, so the remainder is divided too.
static inline tt_hlo v_divc(tt_hlo x, double c) {
  tt_hlo by = v_const(x, c), q = v_div(x, by);
  tt_hlo inexact = v_and(tt_hlo_unary(TT_IS_FINITE, q), v_ne(q, v_const(q, 0)));  // -0 stays
  return v_if(inexact, v_add(q, v_div(v_sub(x, v_mul(q, by)), by)), q);
}
// c[0] x^(n-1) + ... + c[n-1].
static inline tt_hlo v_polynomial(tt_hlo x, const double *c, int32_t n) {
  tt_hlo y = v_const(x, c[0]);
  for (int32_t i = 1; i < n; i++) {
    y = v_addc(v_mul(y, x), c[i]);
  }
  return y;
}

// ---- rule_math.c ----
// c10's name of a type, for messages: "Float", "Long"; and caffe2's: "float", "long int".
const char *tt_type_name(tt_dtype dtype);
const char *tt_type_meta_name(tt_dtype dtype);
// False, with the error, if an in-place operator's operand can't hold its result type.
bool tt_result_fits(tt_rule *r, tt_dtype result);
// "<kernel>" not implemented for '<type>', the type of operands and result: NotImplementedError. In place, a result
// that doesn't fit comes first, as PyTorch looks at it before it looks for a kernel.
void tt_fail_dtype(tt_rule *r, const char *kernel, tt_dtype dtype);
// "value cannot be converted to type int64_t without overflow".
void tt_fail_overflow(tt_rule *r, tt_dtype dtype);
bool tt_is_integral(tt_dtype dtype);            // integers and bool
bool tt_is_barebones_unsigned(tt_dtype dtype);  // uint16, uint32, uint64
// tt_result_type over operands (NULLs are skipped) and the type of one number (or INVALID).
tt_dtype tt_promote_operands(tt_rule *r, const tt_operand *const *xs, int32_t count, tt_dtype number);
// A tensor or Scalar argument, converted.
tt_hlo tt_in_number(tt_rule *r, const char *name, tt_dtype dtype);

// ---- creation.c: 1-d, from one 0-d value to another, in steps from the nearer end ----
tt_hlo tt_linspace(tt_hlo start, tt_hlo end, int64_t steps);

// ---- pointwise_special.c: Hurwitz' zeta(x, q) and trigamma, of float32 or float64 ----
tt_hlo tt_pw_zeta(tt_hlo x, tt_hlo q);
tt_hlo tt_pw_trigamma(tt_hlo x);

// ---- pointwise_unary.c, pointwise_binary.c: operators on values, for the foreach family too ----
typedef enum tt_pw_unary_kind {
  PW_ABS,
  PW_ACOS,
  PW_ACOSH,
  PW_ASIN,
  PW_ASINH,
  PW_ATAN,
  PW_ATANH,
  PW_CEIL,
  PW_COS,
  PW_COSH,
  PW_DIGAMMA,
  PW_ERF,
  PW_ERFC,
  PW_ERFINV,
  PW_EXP,
  PW_EXP2,
  PW_EXPM1,
  PW_FLOOR,
  PW_FRAC,
  PW_LGAMMA,
  PW_LOG,
  PW_LOG10,
  PW_LOG1P,
  PW_LOG2,
  PW_NEG,
  PW_RECIPROCAL,
  PW_ROUND,
  PW_RSQRT,
  PW_SGN,
  PW_SIGMOID,
  PW_SIGN,
  PW_SIN,
  PW_SINC,
  PW_SINH,
  PW_SQRT,
  PW_TAN,
  PW_TANH,
  PW_TRUNC,
  PW_CONJ,
  PW_UNARY_COUNT
} tt_pw_unary_kind;
// PyTorch's result for a value of any dtype: promotes, computes, rounds once.
tt_hlo tt_pw_unary(tt_rule *r, int32_t kind, tt_hlo x);
// Rounded towards zero.
tt_hlo tt_pw_trunc(tt_hlo x);

typedef enum tt_pw_binary_kind {
  PW_MAXIMUM,
  PW_MINIMUM,
  PW_FMAX,
  PW_FMIN,
  PW_REMAINDER,
  PW_FMOD,
  PW_ATAN2,
  PW_HYPOT,
  PW_HEAVISIDE,
  PW_COPYSIGN,
  PW_NEXTAFTER,
  PW_LOGADDEXP,
  PW_LOGADDEXP2,
  PW_XLOGY,
  PW_XLOG1PY,
  PW_ZETA,
  PW_GCD,
  PW_LCM,
  PW_POW,
  PW_BINARY_COUNT
} tt_pw_binary_kind;
// Operands of one dtype and shape.
tt_hlo tt_pw_binary(tt_rule *r, int32_t kind, tt_hlo x, tt_hlo y);
tt_hlo tt_pw_mul(tt_hlo x, tt_hlo y);  // of one dtype; bool: and
// Refuses what `-` refuses of bools, in its words.
bool tt_pw_sub_fits(tt_rule *r, tt_dtype x, tt_dtype y);
// x ** c for the few exponents that have a form of their own; NULL for others.
tt_hlo tt_pw_pow_known(tt_rule *r, tt_hlo x, double exponent);
// self + w * (end - self), from the nearer end.
tt_hlo tt_pw_lerp(tt_hlo x, tt_hlo end, tt_hlo weight);

#endif  // TORCHTPU_ATEN_POINTWISE_H
