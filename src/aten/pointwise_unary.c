// Unary elementwise operators.
#include <math.h>
#include <stddef.h>
#include <string.h>

#include "aten/pointwise.h"

// ---- forms over one floating (or complex) type ----

static tt_hlo form_exp2(tt_hlo x) {
  if (x && tt_dtype_is_complex(x->dtype)) {
    return v_exp(v_mulc(x, M_LN2));
  }
  return tt_hlo_binary(TT_POWER, v_const(x, 2), x);
}

// log(x) / ln 2, made exact at powers of two, where callers take ceil or floor of it.
static tt_hlo form_log2(tt_hlo x) {
  if (!x) {
    return NULL;
  }
  tt_hlo y = v_mulc(v_log(x), M_LOG2E);
  if (x->dtype != TT_F32 && x->dtype != TT_F64) {
    return y;
  }
  bool wide = x->dtype == TT_F64;
  tt_dtype bits_type = wide ? TT_S64 : TT_S32;
  int64_t mask = wide ? ((int64_t)1 << 52) - 1 : ((int64_t)1 << 23) - 1;
  tt_hlo bits = tt_hlo_bitcast_convert(x, bits_type);
  tt_hlo mantissa = v_and(bits, tt_hlo_const_int(tt_hlo_builder_of(x), bits_type, mask, x->dims, x->rank));
  return v_if(v_eqc(mantissa, 0), tt_hlo_unary(TT_ROUND_EVEN, y), y);
}

static tt_hlo form_log10(tt_hlo x) { return v_mulc(v_log(x), M_LOG10E); }
static tt_hlo form_reciprocal(tt_hlo x) { return v_cdiv(1, x); }

static tt_hlo form_rsqrt(tt_hlo x) {
  return x && tt_dtype_is_complex(x->dtype) ? v_cdiv(1, v_sqrt(x)) : tt_hlo_unary(TT_RSQRT, x);
}

static tt_hlo form_sigmoid(tt_hlo x) {
  if (x && tt_dtype_is_complex(x->dtype)) {
    return v_cdiv(1, v_addc(v_exp(v_neg(x)), 1));
  }
  return tt_hlo_unary(TT_LOGISTIC, x);
}

static tt_hlo form_sinc(tt_hlo x) {
  tt_hlo t = v_mulc(x, M_PI);
  return v_if(v_eqc(x, 0), v_const(x, 1), v_div(tt_hlo_unary(TT_SIN, t), t));
}

tt_hlo tt_pw_trunc(tt_hlo x) { return v_if(v_ltc(x, 0), tt_hlo_unary(TT_CEIL, x), tt_hlo_unary(TT_FLOOR, x)); }

static tt_hlo form_frac(tt_hlo x) { return v_sub(x, tt_pw_trunc(x)); }

// (0 < x) - (x < 0): NaN and -0 give 0.
static tt_hlo form_sign(tt_hlo x) {
  if (!x || x->dtype == TT_PRED) {
    return x;
  }
  tt_hlo zero = v_const(x, 0);
  return v_if(v_gt(x, zero), v_const(x, 1),
              tt_dtype_is_unsigned_int(x->dtype) ? zero : v_if(v_lt(x, zero), v_const(x, -1), zero));
}

static tt_hlo form_sgn(tt_hlo x) {
  if (!x || !tt_dtype_is_complex(x->dtype)) {
    return form_sign(x);
  }
  tt_hlo size = v_abs(x);
  tt_hlo unit = tt_hlo_complex(v_div(tt_hlo_unary(TT_REAL, x), size), v_div(tt_hlo_unary(TT_IMAG, x), size));
  return v_if(v_eqc(size, 0), v_const(x, 0), unit);
}

static tt_hlo form_abs(tt_hlo x) { return x && tt_dtype_is_unsigned_int(x->dtype) ? x : v_abs(x); }

// XLA's polynomial is some 100 units off near 1, where the function is steep: one step of Newton's method. There
// erf(y) - |x| = (1 - |x|) - erfc(y), which does not cancel.
static tt_hlo form_erfinv(tt_hlo x) {
  tt_hlo y = tt_hlo_unary(TT_ERF_INV, x), a = v_abs(y), z = v_abs(x), rest = v_csub(1, z);
  tt_hlo near = v_sub(tt_hlo_unary(TT_ERF, a), z), far = v_sub(rest, tt_hlo_unary(TT_ERFC, a));
  tt_hlo slope = v_mulc(v_exp(v_neg(v_mul(a, a))), M_2_SQRTPI);
  tt_hlo step = v_div(v_if(v_gtc(z, 0.5), far, near), slope);
  tt_hlo better = v_sub(a, step), usual = v_and(v_gtc(rest, 0), v_gtc(z, 0));
  return v_if(usual, v_if(v_ltc(x, 0), v_neg(better), better), y);
}

// The pole at 0 has the sign of -0; negative whole numbers give NaN.
static tt_hlo form_digamma(tt_hlo x) {
  tt_hlo pole = v_neg(v_cdiv(1, x));
  tt_hlo bad = v_and(v_ltc(x, 0), v_eq(x, tt_hlo_unary(TT_FLOOR, x)));
  return v_if(v_eqc(x, 0), pole, v_if(bad, v_const(x, NAN), tt_hlo_unary(TT_DIGAMMA, x)));
}

// ---- the table of them ----
enum {
  U_FLOAT = 1,     // integers and bool are promoted to the default float type
  U_INT_COPY = 2,  // integers are returned as they are, bool refused
  U_INT = 4,       // works on integers
  U_BOOL = 8,
  U_COMPLEX = 16,
  U_UINT = 32,  // uint16 and wider unsigned types too
};

static const struct unary_form {
  const char *kernel;  // in messages
  int32_t op;          // a tt_hlo_unary_kind, when `form` is NULL
  int32_t flags;
  tt_hlo (*form)(tt_hlo x);
} forms[PW_UNARY_COUNT] = {
    [PW_ABS] = {"abs_cpu", 0, U_INT | U_COMPLEX, form_abs},
    [PW_ACOS] = {"acos_cpu", TT_ACOS, U_FLOAT | U_COMPLEX, NULL},
    [PW_ACOSH] = {"acosh_cpu", TT_ACOSH, U_FLOAT | U_COMPLEX, NULL},
    [PW_ASIN] = {"asin_cpu", TT_ASIN, U_FLOAT | U_COMPLEX, NULL},
    [PW_ASINH] = {"asinh_cpu", TT_ASINH, U_FLOAT | U_COMPLEX, NULL},
    [PW_ATAN] = {"atan_cpu", TT_ATAN, U_FLOAT | U_COMPLEX, NULL},
    [PW_ATANH] = {"atanh_cpu", TT_ATANH, U_FLOAT | U_COMPLEX, NULL},
    [PW_CEIL] = {"ceil_vml_cpu", TT_CEIL, U_INT_COPY, NULL},
    [PW_COS] = {"cos_cpu", TT_COS, U_FLOAT | U_COMPLEX, NULL},
    [PW_COSH] = {"cosh_cpu", TT_COSH, U_FLOAT | U_COMPLEX, NULL},
    [PW_DIGAMMA] = {"digamma", 0, U_FLOAT, form_digamma},
    [PW_ERF] = {"erf_vml_cpu", TT_ERF, U_FLOAT, NULL},
    [PW_ERFC] = {"erfc_vml_cpu", TT_ERFC, U_FLOAT, NULL},
    [PW_ERFINV] = {"erfinv_vml_cpu", 0, U_FLOAT, form_erfinv},
    [PW_EXP] = {"exp_cpu", TT_EXP, U_FLOAT | U_COMPLEX, NULL},
    [PW_EXP2] = {"exp2_cpu", 0, U_FLOAT | U_COMPLEX, form_exp2},
    [PW_EXPM1] = {"expm1_cpu", TT_EXPM1, U_FLOAT | U_COMPLEX, NULL},
    [PW_FLOOR] = {"floor_vml_cpu", TT_FLOOR, U_INT_COPY, NULL},
    [PW_FRAC] = {"frac_cpu", 0, 0, form_frac},
    [PW_LGAMMA] = {"lgamma_vml_cpu", TT_LGAMMA, U_FLOAT, NULL},
    [PW_LOG] = {"log_cpu", TT_LOG, U_FLOAT | U_COMPLEX, NULL},
    [PW_LOG10] = {"log10_cpu", 0, U_FLOAT | U_COMPLEX, form_log10},
    [PW_LOG1P] = {"log1p_cpu", TT_LOG1P, U_FLOAT | U_COMPLEX, NULL},
    [PW_LOG2] = {"log2_cpu", 0, U_FLOAT | U_COMPLEX, form_log2},
    [PW_NEG] = {"neg_cpu", TT_NEGATE, U_INT | U_COMPLEX, NULL},
    [PW_RECIPROCAL] = {"reciprocal_cpu", 0, U_FLOAT | U_COMPLEX, form_reciprocal},
    [PW_ROUND] = {"round_vml_cpu", TT_ROUND_EVEN, U_INT_COPY, NULL},
    [PW_RSQRT] = {"rsqrt_cpu", 0, U_FLOAT | U_COMPLEX, form_rsqrt},
    [PW_SGN] = {"sign_cpu", 0, U_INT | U_BOOL | U_COMPLEX, form_sgn},
    [PW_SIGMOID] = {"sigmoid_cpu", 0, U_FLOAT | U_COMPLEX, form_sigmoid},
    [PW_SIGN] = {"sign_cpu", 0, U_INT | U_BOOL, form_sign},
    [PW_SIN] = {"sin_cpu", TT_SIN, U_FLOAT | U_COMPLEX, NULL},
    [PW_SINC] = {"sinc_cpu", 0, U_FLOAT | U_COMPLEX, form_sinc},
    [PW_SINH] = {"sinh_cpu", TT_SINH, U_FLOAT | U_COMPLEX, NULL},
    [PW_SQRT] = {"sqrt_cpu", TT_SQRT, U_FLOAT | U_COMPLEX, NULL},
    [PW_TAN] = {"tan_cpu", TT_TAN, U_FLOAT | U_COMPLEX, NULL},
    [PW_TANH] = {"tanh_cpu", TT_TANH, U_FLOAT | U_COMPLEX, NULL},
    [PW_TRUNC] = {"trunc_vml_cpu", 0, U_INT_COPY, tt_pw_trunc},
    [PW_CONJ] = {"conj_cpu", TT_CONJ, U_INT | U_BOOL | U_COMPLEX | U_UINT, NULL},
};

// Errors that have words of their own.
static bool refused(tt_rule *r, int32_t kind, tt_dtype dtype) {
  bool complex = tt_dtype_is_complex(dtype);
  if (kind == PW_NEG && dtype == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a mask, use "
            "the `~` or `logical_not()` operator instead.");
  } else if (complex && (kind == PW_CEIL || kind == PW_FLOOR || kind == PW_TRUNC)) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "%s is not supported for complex inputs",
            kind == PW_CEIL    ? "ceil"
            : kind == PW_FLOOR ? "floor"
                               : "trunc");
  } else if (complex && kind == PW_SIGN) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED,
            "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use torch.sgn instead.");
  } else if (complex && kind == PW_ABS && !strcmp(tt_rule_name(r), "abs_")) {
    tt_fail(r, TT_ERR_RUNTIME, "In-place abs is not supported for complex tensors.");
  } else {
    return false;
  }
  return true;
}

static bool accepts(const struct unary_form *form, tt_dtype dtype) {
  int32_t f = form->flags;
  if (tt_dtype_is_complex(dtype)) {
    return f & U_COMPLEX;
  }
  if (dtype == TT_PRED) {
    return f & (U_FLOAT | U_BOOL);
  }
  if (tt_is_barebones_unsigned(dtype)) {
    return f & (U_FLOAT | U_INT_COPY | U_UINT);
  }
  return !tt_dtype_is_int(dtype) || (f & (U_FLOAT | U_INT_COPY | U_INT));
}

tt_hlo tt_pw_unary(tt_rule *r, int32_t kind, tt_hlo x) {
  if (!x || kind < 0 || kind >= PW_UNARY_COUNT || refused(r, kind, x->dtype)) {
    return NULL;
  }
  const struct unary_form *form = &forms[kind];
  if (!accepts(form, x->dtype)) {
    tt_fail_dtype(r, form->kernel, x->dtype);
    return NULL;
  }
  if (tt_is_integral(x->dtype) && (form->flags & U_INT_COPY)) {
    return x;
  }
  if (kind == PW_CONJ && !tt_dtype_is_complex(x->dtype)) {
    return x;
  }
  tt_dtype dtype = form->flags & U_FLOAT ? tt_float_type(r, x->dtype) : x->dtype;
  tt_hlo value = tt_cast(tt_cast(x, dtype), tt_opmath(dtype));
  tt_hlo y = form->form ? form->form(value) : tt_hlo_unary((tt_hlo_unary_kind)form->op, value);
  return tt_opmath(dtype) == dtype ? y : tt_cast(y, dtype);
}

static void build_unary(tt_rule *r) { tt_ret_elementwise(r, 0, tt_pw_unary(r, tt_rule_kind(r), tt_in(r, "self"))); }

// out= may have the complex operand's type too. The magnitude of complex numbers is laid out as they are, strides of
// dims of size 1 as well.
static void build_abs(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self"), *out = tt_operand_of(r, "out");
  bool castable =
      x && out && tt_dtype_is_complex(x->dtype) && (out->dtype == x->dtype || tt_dtype_is_float(out->dtype));
  tt_accept_out_dtype(r, castable ? TT_OUT_CAST : TT_OUT_EXACT);
  if (x && !out && tt_dtype_is_complex(x->dtype)) {
    tt_ret_like(r, 0, tt_pw_unary(r, PW_ABS, tt_in(r, "self")), "self");
  } else {
    build_unary(r);
  }
}

// ---- predicates: bool results ----
enum { P_ISNAN, P_ISINF, P_ISPOSINF, P_ISNEGINF, P_SIGNBIT };

static tt_hlo signbit(tt_hlo x) {
  if (!tt_dtype_is_float(x->dtype)) {
    return v_ltc(x, 0);
  }
  size_t size = tt_dtype_size(x->dtype);
  tt_dtype bits = size == 8 ? TT_S64 : size == 4 ? TT_S32 : size == 2 ? TT_S16 : TT_S8;
  return v_ltc(tt_hlo_bitcast_convert(x, bits), 0);
}

static tt_hlo is_infinite(tt_hlo x) {
  if (tt_dtype_is_complex(x->dtype)) {
    return v_or(v_eqc(v_abs(tt_hlo_unary(TT_REAL, x)), INFINITY), v_eqc(v_abs(tt_hlo_unary(TT_IMAG, x)), INFINITY));
  }
  return v_eqc(v_abs(x), INFINITY);
}

static tt_hlo predicate(tt_rule *r, int32_t kind, tt_hlo x) {
  bool complex = tt_dtype_is_complex(x->dtype);
  if (complex && kind == P_SIGNBIT) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "signbit is not implemented for complex tensors.");
    return NULL;
  }
  if (complex && (kind == P_ISPOSINF || kind == P_ISNEGINF)) {
    tt_fail(r, TT_ERR_RUNTIME, "%s does not support complex inputs.", kind == P_ISPOSINF ? "isposinf" : "isneginf");
    return NULL;
  }
  bool whole = tt_is_integral(x->dtype);
  if (whole && (kind != P_SIGNBIT || !tt_dtype_is_signed_int(x->dtype))) {
    return tt_hlo_const(tt_b(r), TT_PRED, 0, x->dims, x->rank);
  }
  switch (kind) {
    case P_ISNAN:
      return v_isnan(x);
    case P_ISINF:
      return is_infinite(x);
    case P_ISPOSINF:
      return v_eqc(x, INFINITY);
    case P_ISNEGINF:
      return v_eqc(x, -INFINITY);
    default:
      return signbit(x);
  }
}

static void build_predicate(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  tt_ret_elementwise(r, 0, x ? predicate(r, tt_rule_kind(r), x) : NULL);
}

// ---- those with arguments ----

static void build_angle(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (tt_dtype_is_complex(x->dtype)) {
    x = tt_hlo_binary(TT_ATAN2, tt_hlo_unary(TT_IMAG, x), tt_hlo_unary(TT_REAL, x));
  } else {
    x = tt_cast(x, tt_float_type(r, x->dtype));
    x = v_if(v_isnan(x), x, v_if(v_ltc(x, 0), v_const(x, M_PI), v_const(x, 0)));
  }
  tt_ret_elementwise(r, 0, x);
}

static void build_round_decimals(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  int64_t decimals = tt_int(r, "decimals", 0);
  if (!x) {
    return;
  }
  if (!tt_dtype_is_float(x->dtype)) {
    if (tt_dtype_is_int(x->dtype) && decimals >= 0) {
      tt_ret_elementwise(r, 0, x);
    } else {
      tt_fail_dtype(r, "round_cpu", x->dtype);
    }
    return;
  }
  tt_dtype dtype = x->dtype;
  x = tt_cast(x, tt_opmath(dtype));
  double ten = pow(10, fabs((double)decimals));
  tt_hlo y = decimals == 0  ? tt_hlo_unary(TT_ROUND_EVEN, x)
             : decimals > 0 ? v_divc(tt_hlo_unary(TT_ROUND_EVEN, v_mulc(x, ten)), ten)
                            : v_mulc(tt_hlo_unary(TT_ROUND_EVEN, v_divc(x, ten)), ten);
  tt_ret_elementwise(r, 0, tt_cast(y, dtype));
}

// A float? argument, or what stands for None.
static tt_hlo float_or(tt_rule *r, const char *name, tt_hlo like, tt_hlo if_none) {
  return v_like(tt_has(r, name) ? tt_scalar(r, name, like->dtype) : if_none, like);
}

static tt_hlo replace_nans(tt_rule *r, tt_hlo x, tt_dtype limits) {
  tt_hlo_builder *b = tt_b(r);
  double most = limits == TT_F16    ? 65504.0
                : limits == TT_BF16 ? 0x1.fep127
                : limits == TT_F64  ? 0x1.fffffffffffffp1023
                                    : 0x1.fffffep127;
  tt_hlo nan = float_or(r, "nan", x, tt_hlo_scalar(b, x->dtype, 0));
  tt_hlo high = float_or(r, "posinf", x, tt_hlo_scalar(b, x->dtype, most));
  tt_hlo low = float_or(r, "neginf", x, tt_hlo_scalar(b, x->dtype, -most));
  return v_if(v_isnan(x), nan, v_if(v_eqc(x, INFINITY), high, v_if(v_eqc(x, -INFINITY), low, x)));
}

static void build_nan_to_num(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  if (!x || tt_is_integral(x->dtype)) {
    tt_ret_elementwise(r, 0, x);
    return;
  }
  if (tt_dtype_is_complex(x->dtype)) {
    tt_dtype part = tt_dtype_real(x->dtype);
    tt_hlo real = replace_nans(r, tt_hlo_unary(TT_REAL, x), part);
    tt_ret_elementwise(r, 0, tt_hlo_complex(real, replace_nans(r, tt_hlo_unary(TT_IMAG, x), part)));
    return;
  }
  tt_ret_elementwise(r, 0, replace_nans(r, x, x->dtype));
}

static void build_frexp(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (!tt_dtype_is_float(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.frexp() only supports floating-point dtypes");
    return;
  }
  tt_dtype dtype = x->dtype;
  bool wide = dtype == TT_F64;
  x = tt_cast(x, tt_opmath(dtype));
  // Subnormals are scaled into the normal range first.
  tt_hlo tiny = v_lt(v_abs(x), v_const(x, wide ? 0x1p-1022 : 0x1p-126));
  tt_hlo scaled = v_if(tiny, v_mulc(x, 0x1p54), x);
  tt_dtype bits_type = wide ? TT_S64 : TT_S32;
  int32_t shift = wide ? 52 : 23, bias = wide ? 1022 : 126;
  tt_hlo bits = tt_hlo_bitcast_convert(scaled, bits_type);
  tt_hlo field = v_const(bits, wide ? 2047 : 255);
  tt_hlo exponent = v_and(tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, bits, v_const(bits, shift)), field);
  tt_hlo clear = v_not(tt_hlo_binary(TT_SHIFT_LEFT, field, v_const(bits, shift)));
  tt_hlo half = tt_hlo_binary(TT_SHIFT_LEFT, v_const(bits, bias), v_const(bits, shift));
  tt_hlo mantissa = tt_hlo_bitcast_convert(v_or(v_and(bits, clear), half), x->dtype);
  tt_hlo special = v_or(v_eqc(x, 0), v_not(tt_hlo_unary(TT_IS_FINITE, x)));
  exponent = v_sub(v_addc(exponent, -bias), v_if(tiny, v_const(exponent, 54), v_const(exponent, 0)));
  tt_ret_elementwise(r, 0, tt_cast(v_if(special, x, mantissa), dtype));
  tt_ret_elementwise(r, 1, tt_cast(v_if(special, v_const(exponent, 0), exponent), TT_S32));
}

static void build_polygamma(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  int64_t n = tt_int(r, "n", 0);
  if (!x) {
    return;
  }
  if (n < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "polygamma(n, x) does not support negative n.");
    return;
  }
  if (tt_dtype_is_complex(x->dtype)) {
    tt_fail_dtype(r, n == 0 ? "digamma" : n == 1 ? "trigamma" : "polygamma", x->dtype);
    return;
  }
  tt_dtype dtype = tt_float_type(r, x->dtype);
  x = tt_cast(tt_cast(x, dtype), tt_opmath(dtype));
  if (n == 0) {
    tt_ret_elementwise(r, 0, tt_cast(form_digamma(x), dtype));
    return;
  }
  if (n == 1) {
    tt_ret_elementwise(r, 0, tt_cast(tt_pw_trigamma(x), dtype));
    return;
  }
  // (-1)^(n+1) n! zeta(n + 1, x)
  tt_hlo zeta = tt_pw_zeta(v_const(x, (double)n + 1), x);
  double factorial = tgamma((double)n + 1);
  tt_ret_elementwise(r, 0, tt_cast(v_mulc(zeta, n % 2 ? factorial : -factorial), dtype));
}

// lgamma(x) + lgamma(x - 1/2) + ... + p (p - 1) / 4 log(pi)
static void build_mvlgamma(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  int64_t p = tt_int(r, "p", 1);
  if (!x) {
    return;
  }
  if (p < 1) {
    tt_fail(r, TT_ERR_RUNTIME, "p has to be greater than or equal to 1");
    return;
  }
  if (p > 4096) {  // a term each
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "p is %lld; at most 4096 is supported on tpu", (long long)p);
    return;
  }
  if (tt_dtype_is_complex(x->dtype)) {
    tt_fail_dtype(r, "lgamma_vml_cpu", x->dtype);
    return;
  }
  tt_dtype dtype = tt_float_type(r, x->dtype);
  x = tt_cast(tt_cast(x, dtype), tt_opmath(dtype));
  tt_hlo sum = v_const(x, (double)(p * (p - 1)) * 0.25 * log(M_PI));
  for (int64_t i = 0; i < p; i++) {
    sum = v_add(sum, tt_hlo_unary(TT_LGAMMA, v_addc(x, -0.5 * (double)i)));
  }
  tt_ret(r, 0, tt_cast(sum, dtype));
}

#define UNARY(op_name, which) {.name = "aten::" op_name, .build = build_unary, .kind = which}
#define UNARY_EXACT(op_name, which) \
  {.name = "aten::" op_name, .build = build_unary, .kind = which, .out_dtype = TT_OUT_EXACT}
#define PREDICATE(op_name, which) \
  {.name = "aten::" op_name, .build = build_predicate, .kind = which, .out_dtype = TT_OUT_EXACT}

const tt_rule_entry tt_rules_pointwise_unary[] = {
    {.name = "aten::abs", .build = build_abs, .kind = PW_ABS},
    UNARY("acos", PW_ACOS),
    UNARY("acosh", PW_ACOSH),
    UNARY("asin", PW_ASIN),
    UNARY("asinh", PW_ASINH),
    UNARY("atan", PW_ATAN),
    UNARY("atanh", PW_ATANH),
    UNARY_EXACT("ceil", PW_CEIL),
    UNARY("cos", PW_COS),
    UNARY("cosh", PW_COSH),
    UNARY("digamma", PW_DIGAMMA),
    UNARY("erf", PW_ERF),
    UNARY("erfc", PW_ERFC),
    UNARY("erfinv", PW_ERFINV),
    UNARY("exp", PW_EXP),
    UNARY("exp2", PW_EXP2),
    UNARY("expm1", PW_EXPM1),
    UNARY_EXACT("floor", PW_FLOOR),
    UNARY_EXACT("frac", PW_FRAC),
    UNARY("lgamma", PW_LGAMMA),
    UNARY("log", PW_LOG),
    UNARY("log10", PW_LOG10),
    UNARY("log1p", PW_LOG1P),
    UNARY("log2", PW_LOG2),
    UNARY_EXACT("neg", PW_NEG),
    UNARY("reciprocal", PW_RECIPROCAL),
    UNARY_EXACT("round", PW_ROUND),
    UNARY("rsqrt", PW_RSQRT),
    UNARY_EXACT("sgn", PW_SGN),
    UNARY("sigmoid", PW_SIGMOID),
    UNARY_EXACT("sign", PW_SIGN),
    UNARY("sin", PW_SIN),
    UNARY("sinc", PW_SINC),
    UNARY("sinh", PW_SINH),
    UNARY("sqrt", PW_SQRT),
    UNARY("tan", PW_TAN),
    UNARY("tanh", PW_TANH),
    UNARY_EXACT("trunc", PW_TRUNC),
    UNARY("_conj_physical", PW_CONJ),
    UNARY_EXACT("conj_physical.out", PW_CONJ),
    UNARY("conj_physical_", PW_CONJ),
    PREDICATE("isnan", P_ISNAN),
    PREDICATE("isinf", P_ISINF),
    PREDICATE("isposinf", P_ISPOSINF),
    PREDICATE("isneginf", P_ISNEGINF),
    PREDICATE("signbit", P_SIGNBIT),
    {.name = "aten::angle", .build = build_angle},
    {.name = "aten::round.decimals", .build = build_round_decimals, .out_dtype = TT_OUT_EXACT},
    {.name = "aten::nan_to_num", .build = build_nan_to_num, .out_dtype = TT_OUT_EXACT},
    {.name = "aten::frexp.Tensor", .build = build_frexp, .out_dtype = TT_OUT_EXACT},
    {.name = "aten::polygamma", .build = build_polygamma},
    {.name = "aten::mvlgamma", .build = build_mvlgamma},
    {.name = NULL},
};
