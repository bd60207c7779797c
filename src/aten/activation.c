// Activation functions.
#include <math.h>
#include <string.h>

#include "aten/pointwise.h"
#include "aten/random.h"

// The input of an operator that takes floating types only, in the computing type.
static tt_hlo float_in(tt_rule *r, const char *name, const char *kernel, tt_dtype *out_dtype) {
  const tt_operand *x = tt_operand_of(r, name);
  *out_dtype = x ? x->dtype : TT_DTYPE_INVALID;
  if (x && !tt_dtype_is_float(x->dtype)) {
    tt_fail_dtype(r, kernel, x->dtype);
    return NULL;
  }
  return x ? tt_in_as(r, name, tt_opmath(x->dtype)) : NULL;
}

// A Scalar argument, full size, or NULL if it is `plain`.
static tt_hlo factor(tt_rule *r, const char *name, double plain, tt_hlo like) {
  double value;
  if (tt_scalar_known(r, name, &value) && value == plain) {
    return NULL;
  }
  return like ? v_like(tt_scalar(r, name, like->dtype), like) : NULL;
}
static tt_hlo times(tt_hlo x, tt_hlo by) { return by ? v_mul(x, by) : x; }
static tt_hlo number(tt_rule *r, const char *name, tt_hlo like) {
  return like ? v_like(tt_scalar(r, name, like->dtype), like) : NULL;
}

// ---- one floating input, no arguments ----
enum { K_SILU, K_MISH, K_HARDSWISH, K_HARDSIGMOID };

static tt_hlo v_clip(tt_hlo x, double low, double high) { return v_min(v_max(x, v_const(x, low)), v_const(x, high)); }

static tt_hlo simple_form(int32_t kind, tt_hlo x) {
  switch (kind) {
    case K_SILU:
      return v_mul(x, tt_hlo_unary(TT_LOGISTIC, x));
    case K_MISH:
      return v_mul(x, tt_hlo_unary(TT_TANH, tt_hlo_unary(TT_LOG1P, v_exp(x))));
    case K_HARDSWISH:
      return v_mul(x, v_mulc(v_clip(v_addc(x, 3), 0, 6), 1.0 / 6));
    default:
      return v_mulc(v_clip(v_addc(x, 3), 0, 6), 1.0 / 6);
  }
}

static void build_simple(tt_rule *r) {
  static const char *const kernels[] = {"silu_cpu", "mish_cpu", "hardswish_cpu", "hardsigmoid_cpu"};
  int32_t kind = tt_rule_kind(r);
  const tt_operand *self = tt_operand_of(r, "self");
  if (kind == K_SILU && self && tt_dtype_is_complex(self->dtype)) {
    tt_hlo x = tt_in(r, "self");
    tt_ret_elementwise(r, 0, v_mul(x, tt_pw_unary(r, PW_SIGMOID, x)));
    return;
  }
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", kernels[kind], &dtype);
  tt_ret_elementwise(r, 0, tt_cast(simple_form(kind, x), dtype));
}

static void build_relu(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (x->dtype == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "Boolean inputs not supported for relu");
  } else if (tt_dtype_is_complex(x->dtype)) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "clamp is not supported for complex types");
  } else if (tt_is_barebones_unsigned(x->dtype)) {
    tt_fail_dtype(r, "clamp_min_scalar_cpu", x->dtype);
  } else {
    tt_ret_elementwise(r, 0, tt_dtype_is_unsigned_int(x->dtype) ? x : v_at_least(x, v_const(x, 0)));
  }
}

// ---- gelu ----

static bool gelu_is_tanh(tt_rule *r) {
  const char *approximate = tt_string(r, "approximate");
  bool is_tanh = approximate && !strcmp(approximate, "tanh");
  if (!is_tanh && approximate && strcmp(approximate, "none") != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "approximate argument must be either none or tanh.");
  }
  return is_tanh;
}

// x * (0.5 + 0.5 tanh(k (x + 0.044715 x^3))): the second factor is logistic(2 k (...)).
static tt_hlo gelu_tanh_argument(tt_hlo x) {
  const double two_k = 2 * M_SQRT2 * M_2_SQRTPI * 0.5;
  tt_hlo square = v_mul(x, x);
  return v_mul(x, v_addc(v_mulc(square, two_k * 0.044715), two_k));
}

static tt_hlo normal_cdf(tt_hlo x) { return v_mulc(v_addc(tt_hlo_unary(TT_ERF, v_mulc(x, M_SQRT1_2)), 1), 0.5); }

static void build_gelu(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "GeluKernelImpl", &dtype);
  tt_hlo gate = gelu_is_tanh(r) ? tt_hlo_unary(TT_LOGISTIC, gelu_tanh_argument(x)) : normal_cdf(x);
  tt_ret_elementwise(r, 0, tt_cast(v_mul(x, gate), dtype));
}

// Gradient and input of a backward operator, promoted together, in the computing type.
static tt_dtype pair_in(tt_rule *r, const char *grad, const char *self, const char *kernel, tt_hlo *g, tt_hlo *x) {
  tt_dtype dtype = tt_binary_in(r, grad, self, g, x);
  if (!tt_failed(r) && !tt_dtype_is_float(dtype)) {
    tt_fail_dtype(r, kernel, dtype);
    *g = *x = NULL;
  }
  *g = tt_cast(*g, tt_opmath(dtype));
  *x = tt_cast(*x, tt_opmath(dtype));
  return dtype;
}

static void build_gelu_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "GeluBackwardKernelImpl", &g, &x);
  tt_hlo slope;
  if (gelu_is_tanh(r)) {
    // d/dx x s(a) = s + x s (1 - s) a', a' = 2k (1 + 3 * 0.044715 x^2)
    const double two_k = 2 * M_SQRT2 * M_2_SQRTPI * 0.5;
    tt_hlo s = tt_hlo_unary(TT_LOGISTIC, gelu_tanh_argument(x));
    tt_hlo inner = v_addc(v_mulc(v_mul(x, x), two_k * 3 * 0.044715), two_k);
    slope = v_add(s, v_mul(v_mul(x, inner), v_mul(s, v_csub(1, s))));
  } else {
    const double beta = M_2_SQRTPI * M_SQRT1_2 * 0.5;  // 1 / sqrt(2 pi)
    tt_hlo density = v_mulc(v_exp(v_mulc(v_mul(x, x), -0.5)), beta);
    slope = v_add(normal_cdf(x), v_mul(x, density));
  }
  tt_ret_elementwise(r, 0, tt_cast(v_mul(g, slope), dtype));
}

// ---- piecewise linear ones with scalars ----

static void build_leaky_relu(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "leaky_relu_cpu", &dtype);
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_gtc(x, 0), x, v_mul(x, number(r, "negative_slope", x))), dtype));
}

static void build_leaky_relu_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "leaky_relu_backward_cpu", &g, &x);
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_gtc(x, 0), g, v_mul(g, number(r, "negative_slope", g))), dtype));
}

static void build_elu(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "elu_cpu", &dtype);
  tt_hlo scale = factor(r, "scale", 1, x), alpha = factor(r, "alpha", 1, x), inner = factor(r, "input_scale", 1, x);
  tt_hlo below = times(times(tt_hlo_unary(TT_EXPM1, times(x, inner)), alpha), scale);
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_ltc(x, 0), below, times(x, scale)), dtype));
}

static void build_elu_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self_or_result", "elu_backward_cpu", &g, &x);
  tt_hlo scale = number(r, "scale", x), inner = number(r, "input_scale", x);
  tt_hlo negative = v_mul(number(r, "alpha", x), scale);
  tt_hlo curve = tt_bool(r, "is_result", false) ? v_add(x, negative) : v_mul(negative, v_exp(v_mul(x, inner)));
  tt_hlo below = v_mul(v_mul(g, inner), curve);
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_lec(x, 0), below, v_mul(g, scale)), dtype));
}

static void build_hardtanh(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!self) {
    return;
  }
  if (self->dtype == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "Bool inputs not supported for hardtanh");
    return;
  }
  if (tt_dtype_is_complex(self->dtype) || tt_is_barebones_unsigned(self->dtype)) {
    tt_fail_dtype(r, "clamp_cpu", self->dtype);
    return;
  }
  // Integers compare with truncated bounds, as hardtanh's clamp casts them.
  tt_hlo x = tt_in(r, "self");
  tt_ret_elementwise(r, 0, v_at_most(v_at_least(x, number(r, "min_val", x)), number(r, "max_val", x)));
}

static void build_hardtanh_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "hardtanh_backward_cpu", &g, &x);
  tt_hlo outside = v_or(v_le(x, number(r, "min_val", x)), v_ge(x, number(r, "max_val", x)));
  tt_ret_elementwise(r, 0, tt_cast(v_if(outside, v_const(g, 0), g), dtype));
}

static void build_softplus(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "softplus_cpu", &dtype);
  tt_hlo beta = factor(r, "beta", 1, x);
  tt_hlo scaled = times(x, beta);
  tt_hlo soft = tt_hlo_unary(TT_LOG1P, v_exp(scaled));
  soft = beta ? v_div(soft, beta) : soft;
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_gt(scaled, number(r, "threshold", x)), x, soft), dtype));
}

static void build_softplus_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "softplus_backward_cpu", &g, &x);
  tt_hlo scaled = v_mul(x, number(r, "beta", x));
  tt_hlo soft = v_mul(g, tt_hlo_unary(TT_LOGISTIC, scaled));
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_gt(scaled, number(r, "threshold", x)), g, soft), dtype));
}

static tt_hlo inside(tt_hlo x, tt_hlo lambd) { return v_and(v_ge(x, v_neg(lambd)), v_le(x, lambd)); }

static void build_softshrink(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "softshrink_cpu", &dtype);
  tt_hlo lambd = number(r, "lambd", x);
  double known;
  if (!tt_scalar_known(r, "lambd", &known)) {
    tt_device_assert(r, v_gec(lambd, 0), TT_ERR_RUNTIME, "lambda must not be less than 0");
  }
  tt_hlo low = v_if(v_lt(x, v_neg(lambd)), v_add(x, lambd), v_mulc(x, 0));
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_gt(x, lambd), v_sub(x, lambd), low), dtype));
}

static void build_hardshrink(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "hardshrink_cpu", &dtype);
  tt_ret_elementwise(r, 0, tt_cast(v_if(inside(x, number(r, "lambd", x)), v_const(x, 0), x), dtype));
}

// Of softshrink and hardshrink; they differ in the gradient's name.
static void build_shrink_backward(tt_rule *r) {
  tt_hlo g, x;
  const char *grad = tt_has(r, "grad_out") ? "grad_out" : "grad_output";
  tt_dtype dtype = pair_in(r, grad, "self", "shrink_backward_cpu", &g, &x);
  tt_ret_elementwise(r, 0, tt_cast(v_if(inside(x, number(r, "lambd", x)), v_const(g, 0), g), dtype));
}

static bool threshold_fits(tt_rule *r, tt_dtype dtype) {
  if (dtype == TT_PRED || tt_dtype_is_complex(dtype) || tt_is_barebones_unsigned(dtype)) {
    tt_fail_dtype(r, "threshold_cpu", dtype);
  }
  return !tt_failed(r);
}

static void build_threshold(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  if (x && threshold_fits(r, x->dtype)) {
    tt_ret_elementwise(r, 0, v_if(v_le(x, number(r, "threshold", x)), number(r, "value", x), x));
  }
}

static void build_threshold_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = tt_binary_in(r, "grad_output", "self", &g, &x);
  if (threshold_fits(r, dtype)) {
    double known;
    tt_hlo bound = tt_scalar_known(r, "threshold", &known) ? v_const(x, known) : number(r, "threshold", x);
    tt_ret_elementwise(r, 0, v_if(v_le(x, bound), v_const(g, 0), g));
  }
}

// ---- sigmoid family ----

static void build_log_sigmoid(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "log_sigmoid_cpu", &dtype);
  tt_hlo z = v_exp(v_neg(v_abs(x)));
  tt_ret_elementwise(r, 0, tt_cast(v_sub(v_min(x, v_const(x, 0)), tt_hlo_unary(TT_LOG1P, z)), dtype));
  tt_ret_elementwise(r, 1, tt_cast(z, dtype));
}

// g * (1 - sigmoid(x)); the buffer is not needed.
static void build_log_sigmoid_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "log_sigmoid_backward_cpu", &g, &x);
  tt_ret_elementwise(r, 0, tt_cast(v_mul(g, tt_hlo_unary(TT_LOGISTIC, v_neg(x))), dtype));
}

static tt_hlo sigmoid_of(tt_rule *r, tt_hlo x) { return tt_pw_unary(r, PW_SIGMOID, x); }

static void build_silu_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = tt_binary_in(r, "grad_output", "self", &g, &x);
  if (tt_is_integral(dtype)) {
    tt_fail_dtype(r, "silu_backward_cpu", dtype);
    return;
  }
  g = tt_cast(g, tt_opmath(dtype));
  x = tt_cast(x, tt_opmath(dtype));
  tt_hlo s = sigmoid_of(r, x);
  tt_hlo slope = v_add(s, v_mul(v_mul(x, s), v_csub(1, s)));
  tt_ret_elementwise(r, 0, tt_cast(v_mul(g, slope), dtype));
}

static void build_mish_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "mish_backward_cpu", &g, &x);
  tt_hlo s = tt_hlo_unary(TT_LOGISTIC, x);
  tt_hlo t = tt_hlo_unary(TT_TANH, tt_hlo_unary(TT_LOG1P, v_exp(x)));
  tt_hlo slope = v_add(t, v_mul(v_mul(x, s), v_csub(1, v_mul(t, t))));
  tt_ret_elementwise(r, 0, tt_cast(v_mul(g, slope), dtype));
}

enum { D_SIGMOID, D_TANH };

// Derivatives that are polynomials of the output; complex outputs are conjugated.
static void build_output_backward(tt_rule *r) {
  tt_hlo g, y;
  tt_dtype dtype = tt_binary_in(r, "grad_output", "output", &g, &y);
  g = tt_cast(g, tt_opmath(dtype));
  y = tt_cast(y, tt_opmath(dtype));
  if (tt_dtype_is_complex(dtype)) {
    y = tt_hlo_unary(TT_CONJ, y);
  }
  tt_hlo slope = tt_rule_kind(r) == D_TANH ? v_csub(1, v_mul(y, y)) : v_mul(v_csub(1, y), y);
  tt_ret_elementwise(r, 0, tt_cast(v_mul(g, slope), dtype));
}

static void build_logit(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!self) {
    return;
  }
  tt_dtype dtype = tt_float_type(r, self->dtype);
  if (tt_dtype_is_complex(dtype)) {
    tt_fail_dtype(r, "logit_cpu", dtype);
    return;
  }
  tt_hlo x = tt_cast(tt_in_as(r, "self", dtype), tt_opmath(dtype));
  if (tt_has(r, "eps")) {
    tt_hlo low = number(r, "eps", x);
    tt_hlo high = v_csub(1, low);
    x = v_if(v_lt(x, low), low, v_if(v_gt(x, high), high, x));
  }
  tt_ret_elementwise(r, 0, tt_cast(v_log(v_div(x, v_csub(1, x))), dtype));
}

static void build_logit_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "logit_backward_cpu", &g, &x);
  tt_hlo slope = v_div(g, v_mul(x, v_csub(1, x)));
  tt_hlo y;
  if (tt_has(r, "eps")) {
    tt_hlo low = number(r, "eps", x);
    y = v_if(v_or(v_lt(x, low), v_gt(x, v_csub(1, low))), v_const(g, 0), slope);
  } else {
    tt_hlo edge = v_or(v_eqc(x, 0), v_eqc(x, 1));
    tt_hlo outside = v_or(v_ltc(x, 0), v_gtc(x, 1));
    y = v_if(outside, v_const(g, NAN), v_if(edge, v_mulc(g, INFINITY), slope));
  }
  tt_ret_elementwise(r, 0, tt_cast(y, dtype));
}

static void build_hardsigmoid_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "hardsigmoid_backward", &g, &x);
  tt_hlo within = v_and(v_gtc(x, -3), v_ltc(x, 3));
  tt_ret_elementwise(r, 0, tt_cast(v_if(within, v_mulc(g, 1.0 / 6), v_const(g, 0)), dtype));
}

static void build_hardswish_backward(tt_rule *r) {
  tt_hlo g, x;
  tt_dtype dtype = pair_in(r, "grad_output", "self", "hardswish_backward_cpu", &g, &x);
  tt_hlo middle = v_mul(g, v_addc(v_div(x, v_const(x, 3)), 0.5));
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_lec(x, -3), v_const(g, 0), v_if(v_ltc(x, 3), middle, g)), dtype));
}

// ---- glu ----

static bool glu_halves(tt_rule *r, tt_hlo x, int32_t *dim, tt_hlo *a, tt_hlo *b) {
  *a = *b = NULL;
  if (!x) {
    return false;
  }
  if (x->rank == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "glu does not support 0-dimensional tensors");
    return false;
  }
  *dim = tt_wrap_dim(r, tt_int(r, "dim", -1), x->rank);
  int64_t size = x->dims[*dim];
  if (!tt_failed(r) && size % 2 != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Halving dimension must be even, but dimension %d is size %lld", *dim, (long long)size);
  }
  if (tt_failed(r)) {
    return false;
  }
  *a = tt_hlo_slice_dim(x, *dim, 0, size / 2, 1);
  *b = tt_hlo_slice_dim(x, *dim, size / 2, size, 1);
  return true;
}

static void build_glu(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "glu_cpu", &dtype), a, b;
  int32_t dim = 0;
  if (glu_halves(r, x, &dim, &a, &b)) {
    tt_ret_elementwise(r, 0, tt_cast(v_mul(a, tt_hlo_unary(TT_LOGISTIC, b)), dtype));
  }
}

static void build_glu_backward(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "glu_backward_cpu", &dtype), a, b;
  tt_hlo g = tt_in_as(r, "grad_output", tt_opmath(dtype));
  int32_t dim = 0;
  if (!glu_halves(r, x, &dim, &a, &b)) {
    return;
  }
  tt_hlo s = tt_hlo_unary(TT_LOGISTIC, b);
  tt_hlo ga = v_mul(g, s);
  tt_hlo gb = v_mul(v_mul(v_csub(1, s), ga), a);
  tt_ret(r, 0, tt_cast(tt_hlo_concatenate((const tt_hlo[]){ga, gb}, 2, dim), dtype));
}

// Forward mode: "x" moves by "dx", and the result and the gradient move with it.
static bool read_glu_tangent(tt_rule *r, const char *kernel, tt_dtype *dtype, int32_t *dim, tt_hlo x[2], tt_hlo dx[2]) {
  tt_hlo whole = float_in(r, "x", kernel, dtype);
  tt_hlo moved = tt_in_as(r, "dx", tt_opmath(*dtype));
  if (!glu_halves(r, whole, dim, &x[0], &x[1]) || !moved) {
    return false;
  }
  if (!tt_hlo_same_dims(whole, moved)) {
    tt_fail(r, TT_ERR_RUNTIME, "x and dx differ in their sizes");
    return false;
  }
  return glu_halves(r, moved, dim, &dx[0], &dx[1]);
}

static void build_glu_jvp(tt_rule *r) {
  tt_dtype dtype;
  int32_t dim = 0;
  tt_hlo x[2], dx[2];
  if (!read_glu_tangent(r, "glu_jvp_cpu", &dtype, &dim, x, dx)) {
    return;
  }
  if (dtype != TT_F32 && dtype != TT_F64) {
    tt_fail_dtype(r, "glu_jvp_cpu", dtype);
    return;
  }
  tt_hlo y = tt_in_as(r, "glu", x[0] ? x[0]->dtype : dtype), s = tt_hlo_unary(TT_LOGISTIC, x[1]);
  if (y && s && !tt_hlo_same_dims(y, s)) {
    tt_fail(r, TT_ERR_RUNTIME, "glu is not that of x");
    return;
  }
  tt_ret_elementwise(r, 0, tt_cast(v_add(v_mul(dx[0], s), v_mul(y, v_sub(dx[1], v_mul(s, dx[1])))), dtype));
}

static void build_glu_backward_jvp(tt_rule *r) {
  tt_dtype dtype;
  int32_t dim = 0;
  tt_hlo x[2], dx[2];
  if (!read_glu_tangent(r, "glu_backward_jvp", &dtype, &dim, x, dx)) {
    return;
  }
  tt_hlo g = tt_in_as(r, "grad_glu", tt_opmath(dtype)), dg = tt_in_as(r, "dgrad_glu", tt_opmath(dtype));
  if (!g || !dg || !tt_hlo_same_dims(g, dg) || !tt_hlo_same_dims(g, x[0])) {
    tt_fail(r, TT_ERR_RUNTIME, "grad_glu and dgrad_glu are not gradients of glu(x)");
    return;
  }
  tt_hlo s = tt_hlo_unary(TT_LOGISTIC, x[1]);
  tt_hlo slope = v_mul(s, v_csub(1, s));  // and its derivative by x[1], which moves by dx[1]
  tt_hlo ds = v_mul(slope, dx[1]), dslope = v_mul(ds, v_csub(1, v_mulc(s, 2)));
  tt_hlo first = v_add(v_mul(dg, s), v_mul(g, ds));
  tt_hlo second = v_add(v_mul(v_add(v_mul(dg, x[0]), v_mul(g, dx[0])), slope), v_mul(v_mul(g, x[0]), dslope));
  tt_ret(r, 0, tt_cast(tt_hlo_concatenate((const tt_hlo[]){first, second}, 2, dim), dtype));
}

// ---- prelu ----

static void build_prelu(tt_rule *r) {
  tt_hlo x, w;
  tt_dtype dtype = pair_in(r, "self", "weight", "prelu_cpu", &x, &w);
  tt_ret_elementwise(r, 0, tt_cast(v_if(v_gtc(x, 0), x, v_mul(w, x)), dtype));
}

static void build_prelu_backward(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "prelu_backward_cpu", &dtype);
  tt_dtype compute = tt_opmath(dtype);
  tt_hlo xs[3] = {tt_in_as(r, "grad_output", compute), x, tt_in_as(r, "weight", compute)};
  tt_broadcast(r, xs, 3);
  tt_hlo positive = v_gtc(xs[1], 0);
  tt_ret_elementwise(r, 0, tt_cast(v_if(positive, xs[0], v_mul(xs[2], xs[0])), dtype));
  tt_ret_elementwise(r, 1, tt_cast(v_if(positive, v_const(xs[0], 0), v_mul(xs[1], xs[0])), dtype));
}

// ---- random ones ----

static void build_rrelu(tt_rule *r) {
  tt_dtype dtype;
  tt_hlo x = float_in(r, "self", "rrelu_with_noise_out_cpu", &dtype);
  if (!x) {
    return;
  }
  tt_hlo low = number(r, "lower", x), high = number(r, "upper", x);
  tt_hlo positive = v_gtc(x, 0);
  if (!tt_bool(r, "training", false)) {
    tt_ret_elementwise(r, 0, tt_cast(v_if(positive, x, v_mul(x, v_mulc(v_add(low, high), 0.5))), dtype));
    return;
  }
  tt_hlo u = tt_random_uniform(r, x->dtype, x->dims, x->rank);
  tt_hlo noise = v_if(positive, v_const(x, 1), v_add(low, v_mul(u, v_sub(high, low))));
  tt_write(r, "noise", tt_cast(noise, dtype));
  tt_ret_elementwise(r, 0, tt_cast(v_mul(x, noise), dtype));
}

static int64_t dropout_structure(const tt_arg *args, int32_t count) {
  double p = count > 1 ? tt_arg_number(&args[1], 0) : 0;
  return !(p >= 0 && p <= 1);
}

static void build_native_dropout(tt_rule *r) {
  const tt_operand *input = tt_operand_of(r, "input");
  if (!input) {
    return;
  }
  if (!tt_bool(r, "train", true)) {
    tt_ret_elementwise(r, 0, tt_in(r, "input"));
    tt_ret_elementwise(r, 1, tt_hlo_const(tt_b(r), TT_PRED, 1, input->sizes, input->ndim));
    return;
  }
  tt_dtype compute = tt_opmath(input->dtype), real = tt_dtype_real(compute);
  if (tt_is_integral(input->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "result type Float can't be cast to the desired output type %s",
            tt_type_name(input->dtype));
    return;
  }
  double p = tt_number_in_key(r, "p", 0);
  if (!(p >= 0 && p <= 1)) {
    tt_fail(r, TT_ERR_RUNTIME, "bernoulli_ expects p to be in [0, 1], but got p=%g", 1 - p);
    return;
  }
  tt_hlo x = tt_in_as(r, "input", compute);
  tt_hlo keep = v_csub(1, tt_scalar(r, "p", TT_F32));
  tt_hlo u = tt_random_uniform(r, TT_F32, input->sizes, input->ndim);
  tt_hlo mask = v_lt(u, v_like(keep, u));
  tt_hlo scale = v_if(v_eqc(keep, 0), keep, v_cdiv(1, keep));
  tt_hlo gain = v_if(mask, v_like(tt_cast(scale, real), mask), tt_hlo_const(tt_b(r), real, 0, x->dims, x->rank));
  tt_ret_elementwise(r, 0, tt_cast(v_mul(x, tt_cast(gain, compute)), input->dtype));
  tt_ret_elementwise(r, 1, mask);
}

static void build_native_dropout_backward(tt_rule *r) {
  const tt_operand *grad = tt_operand_of(r, "grad_output");
  if (!grad) {
    return;
  }
  const tt_dtype dtype = tt_float_type(r, grad->dtype), compute = tt_opmath(dtype);
  tt_hlo g = tt_in_as(r, "grad_output", compute);
  tt_hlo mask = tt_in_as(r, "mask", TT_PRED);
  tt_hlo scale = v_like(tt_scalar(r, "scale", compute), g);
  tt_ret_elementwise(r, 0, tt_cast(v_mul(g, v_if(mask, scale, v_const(scale, 0))), dtype));
}

#define KIND(op_name, function, which) {.name = "aten::" op_name, .build = function, .kind = which}
#define RULE(op_name, function) {.name = "aten::" op_name, .build = function}
#define KIND_EXACT(op_name, function, which) \
  {.name = "aten::" op_name, .build = function, .kind = which, .out_dtype = TT_OUT_EXACT}
#define RULE_EXACT(op_name, function) {.name = "aten::" op_name, .build = function, .out_dtype = TT_OUT_EXACT}

const tt_rule_entry tt_rules_activation[] = {
    RULE("relu", build_relu),
    KIND_EXACT("silu", build_simple, K_SILU),
    RULE("silu_backward", build_silu_backward),
    KIND_EXACT("mish", build_simple, K_MISH),
    RULE("mish_backward", build_mish_backward),
    KIND_EXACT("hardswish", build_simple, K_HARDSWISH),
    RULE("hardswish_backward", build_hardswish_backward),
    KIND_EXACT("hardsigmoid", build_simple, K_HARDSIGMOID),
    RULE("hardsigmoid_backward", build_hardsigmoid_backward),
    RULE_EXACT("gelu", build_gelu),
    RULE("gelu_backward", build_gelu_backward),
    RULE_EXACT("leaky_relu", build_leaky_relu),
    RULE("leaky_relu_backward", build_leaky_relu_backward),
    RULE_EXACT("elu", build_elu),
    RULE("elu_backward", build_elu_backward),
    RULE_EXACT("hardtanh", build_hardtanh),
    RULE("hardtanh_backward", build_hardtanh_backward),
    RULE_EXACT("softplus", build_softplus),
    RULE("softplus_backward", build_softplus_backward),
    RULE_EXACT("softshrink", build_softshrink),
    RULE("softshrink_backward", build_shrink_backward),
    RULE_EXACT("hardshrink", build_hardshrink),
    RULE("hardshrink_backward", build_shrink_backward),
    RULE("threshold", build_threshold),
    {.name = "aten::threshold_backward", .build = build_threshold_backward, .special_values = "threshold=0"},
    RULE_EXACT("log_sigmoid_forward", build_log_sigmoid),
    RULE_EXACT("log_sigmoid_backward", build_log_sigmoid_backward),
    KIND("sigmoid_backward", build_output_backward, D_SIGMOID),
    KIND("tanh_backward", build_output_backward, D_TANH),
    RULE("logit", build_logit),
    RULE("logit_backward", build_logit_backward),
    RULE("glu", build_glu),
    RULE("glu_backward", build_glu_backward),
    RULE("glu_jvp", build_glu_jvp),
    RULE("glu_backward_jvp", build_glu_backward_jvp),
    RULE("_prelu_kernel", build_prelu),
    RULE("_prelu_kernel_backward", build_prelu_backward),
    RULE_EXACT("rrelu_with_noise", build_rrelu),
    {.name = "aten::native_dropout", .build = build_native_dropout, .structure = dropout_structure},
    RULE("native_dropout_backward", build_native_dropout_backward),
    {.name = NULL},
};
