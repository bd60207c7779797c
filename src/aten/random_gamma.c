// Gamma and Dirichlet draws (Marsaglia and Tsang's method), and the derivative of a draw with respect to its
// parameter, holding its rank fixed: -(dF/da) / (dF/dx), where F is the distribution function.
#include <float.h>
#include <math.h>

#include "aten/dims.h"
#include "aten/random.h"

// ---- draws ----

// d (1 + c z)^3 is accepted where log u < 3 d (log(1 + w) - w + w^2/2 - w^3/3), w = c z. Summed as a series where
// the difference would lose all its digits.
static tt_hlo acceptance(tt_hlo d, tt_hlo w) {
  enum { FIRST = 4, LAST = 16 };
  double c[LAST - FIRST + 1];
  for (int32_t n = FIRST; n <= LAST; n++) {
    c[LAST - n] = (n % 2 ? 1.0 : -1.0) / n;
  }
  tt_hlo square = v_mul(w, w);
  tt_hlo series = v_mul(v_mul(square, square), v_polynomial(w, c, LAST - FIRST + 1));
  tt_hlo direct =
      v_sub(v_add(v_sub(tt_hlo_unary(TT_LOG1P, w), w), v_mulc(square, 0.5)), v_mulc(v_mul(square, w), 1.0 / 3));
  return v_mulc(v_mul(d, v_if(v_ltc(v_abs(w), 0.1), series, direct)), 3);
}

static tt_hlo draw_gamma(const tt_rejection *of, tt_hlo stream, tt_hlo round, tt_hlo *out_accepted) {
  tt_hlo d = of->start;
  const tt_hlo *c = of->context;
  if (!d) {
    return NULL;
  }
  const int64_t n = tt_hlo_numel(d);
  tt_hlo z = tt_stream_normal(tt_stream_at(stream, round, 2 * n, 0), d->dtype, d->dims, d->rank);
  tt_hlo u = tt_stream_uniform(tt_stream_at(stream, round, 2 * n, n), d->dtype, d->dims, d->rank);
  tt_hlo w = v_mul(*c, z), root = v_addc(w, 1);
  *out_accepted = v_and(v_gtc(root, 0), v_lt(v_log(u), acceptance(d, w)));
  return v_mul(d, v_mul(v_mul(root, root), root));
}

// Gamma(alpha + 1) where alpha < 1, and the logarithm of what it is to be multiplied by: u^(1/alpha) may be smaller
// than any number. Of an alpha that is none the draw is NaN.
static tt_hlo gamma_parts(tt_rule *r, tt_hlo alpha, tt_hlo *out_log_factor) {
  tt_hlo small = v_ltc(alpha, 1);
  tt_hlo d = v_addc(v_if(small, v_addc(alpha, 1), alpha), -1.0 / 3);
  tt_hlo c = tt_hlo_unary(TT_RSQRT, v_mulc(d, 9));
  if (!c) {
    return NULL;
  }
  tt_rejection of = {.draw = draw_gamma, .context = &c, .stream = tt_stream(r), .start = d, .rounds = 64};
  of.active = v_and(v_gtc(d, 0), tt_hlo_unary(TT_IS_FINITE, d));
  tt_hlo value = tt_reject(&of);
  tt_hlo log_u = v_log(tt_stream_uniform(tt_stream(r), d->dtype, d->dims, d->rank));
  *out_log_factor = v_if(small, v_div(log_u, alpha), v_const(alpha, 0));
  return v_if(v_lec(d, 0), v_const(d, NAN), value);
}

static const tt_operand *wide_float(tt_rule *r, const char *name, const char *kernel) {
  const tt_operand *x = tt_operand_of(r, name);
  if (x && x->dtype != TT_F32 && x->dtype != TT_F64) {
    tt_fail_dtype(r, kernel, x->dtype);
    return NULL;
  }
  return x;
}

static double smallest(tt_dtype dtype) { return dtype == TT_F64 ? DBL_MIN : FLT_MIN; }

static void build_standard_gamma(tt_rule *r) {
  const tt_operand *self = wide_float(r, "self", "gamma_cpu");
  if (!self) {
    return;
  }
  tt_hlo log_factor = NULL, draw = gamma_parts(r, tt_in(r, "self"), &log_factor);
  draw = v_mul(draw, v_exp(log_factor));
  double low = smallest(self->dtype);
  tt_ret(r, 0, v_if(v_gtc(draw, low), draw, v_const(draw, low)));
}

// Draws over their sum along the last dim, from their logarithms: all of them may be too small for the type.
static void build_sample_dirichlet(tt_rule *r) {
  const tt_operand *self = wide_float(r, "self", "dirichlet");
  if (!self) {
    return;
  }
  tt_hlo log_factor = NULL, draw = gamma_parts(r, tt_in(r, "self"), &log_factor);
  tt_hlo x = v_at_least_1d(v_add(v_log(draw), log_factor));
  if (!x) {
    return;
  }
  x = v_if(v_isnan(x), v_const(x, -INFINITY), x);
  const int32_t last = x->rank - 1;
  tt_hlo top = v_spread(v_reduce(TT_MAX, x, last), x, last);
  tt_hlo share = v_exp(v_sub(x, top)), total = v_spread(v_reduce(TT_SUM, share, last), x, last);
  share = v_div(share, total);
  const double low = smallest(self->dtype), high = self->dtype == TT_F64 ? nextafter(1, 0) : nextafterf(1, 0);
  share = v_if(v_gtc(share, low), share, v_const(share, low));
  share = v_if(v_ltc(share, high), share, v_const(share, high));
  tt_ret(r, 0, tt_hlo_reshape(share, self->sizes, self->ndim));
}

// ---- derivatives ----

// Nodes and weights of the double exponential rule for integrals over (0, inf) of functions that fall as exp(-t):
// t = exp(u - exp(-u)), in steps of u. Along a last dim that the operands have been given.
typedef struct rule_nodes {
  tt_hlo t, weight;
  int32_t dim;
} rule_nodes;

static rule_nodes nodes_for(tt_hlo like) {
  enum { MOST = 160 };
  double t[MOST], weight[MOST];
  const bool wide = like->dtype == TT_F64;
  const double step = wide ? 0.0625 : 0.125, first = wide ? -3.5 : -3, last = wide ? 5 : 4.5;
  int32_t count = 0;
  for (double u = first; u <= last && count < MOST; u += step) {
    t[count] = exp(u - exp(-u));
    weight[count] = step * t[count] * (1 + exp(-u));
    count++;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(like);
  int64_t dims[V_DIMS];
  memcpy(dims, like->dims, sizeof *dims * (size_t)like->rank);
  dims[like->rank] = count;
  return (rule_nodes){v_along(tt_hlo_const_floats(b, like->dtype, t, count), dims, like->rank + 1, like->rank),
                      v_along(tt_hlo_const_floats(b, like->dtype, weight, count), dims, like->rank + 1, like->rank),
                      like->rank};
}

static tt_hlo over_nodes(const rule_nodes *nodes, tt_hlo x) { return v_spread(x, nodes->t, nodes->dim); }
static tt_hlo integral(const rule_nodes *nodes, tt_hlo f) {
  return v_reduce(TT_SUM, v_mul(f, nodes->weight), nodes->dim);
}
static tt_hlo log1p_of(tt_hlo x) { return tt_hlo_unary(TT_LOG1P, x); }
static tt_hlo expm1_of(tt_hlo x) { return tt_hlo_unary(TT_EXPM1, x); }
static tt_hlo digamma_of(tt_hlo x) { return tt_hlo_unary(TT_DIGAMMA, x); }
static tt_hlo positive_part(tt_hlo x) { return v_max(x, v_const(x, 0)); }

// Both halves of the density integrate to the derivative of the distribution function, of opposite signs; the half is
// taken in which the integrand has one sign.

// x int_0^inf (psi(a) - log x + s) exp(x (1 - e^-s) - a s) ds, where psi(a) = psi(a + 1) - 1/a went into the second
// integral by parts.
static tt_hlo gamma_below(tt_hlo a, tt_hlo x) {
  rule_nodes nodes = nodes_for(a);
  tt_hlo width = v_cdiv(1, v_add(positive_part(v_sub(a, x)), v_min(a, v_sqrt(a))));
  tt_hlo s = v_mul(nodes.t, over_nodes(&nodes, width));
  tt_hlo fall = expm1_of(v_neg(s));
  tt_hlo e = v_exp(v_sub(v_neg(v_mul(over_nodes(&nodes, x), fall)), v_mul(over_nodes(&nodes, a), s)));
  tt_hlo first = v_mul(v_sub(digamma_of(v_addc(a, 1)), v_log(x)), integral(&nodes, e));
  tt_hlo second = v_mul(integral(&nodes, v_mul(v_mul(s, v_addc(fall, 1)), e)), v_div(x, a));
  return v_mul(v_mul(x, width), v_add(first, second));
}

// int_0^inf (log(x + s) - psi(a)) (1 + s/x)^(a - 1) e^-s ds
static tt_hlo gamma_above(tt_hlo a, tt_hlo x) {
  rule_nodes nodes = nodes_for(a);
  tt_hlo less = v_addc(a, -1), slope = positive_part(v_csub(1, v_div(less, x)));
  tt_hlo width = v_cdiv(1, v_add(slope, v_min(v_cdiv(1, v_sqrt(x)), v_const(x, 1))));
  tt_hlo s = v_mul(nodes.t, over_nodes(&nodes, width)), wide_x = over_nodes(&nodes, x);
  tt_hlo grow = log1p_of(v_div(s, wide_x));
  tt_hlo e = v_exp(v_sub(v_mul(over_nodes(&nodes, less), grow), s));
  tt_hlo factor = v_add(grow, over_nodes(&nodes, v_sub(v_log(x), digamma_of(a))));
  return v_mul(width, integral(&nodes, v_mul(factor, e)));
}

static tt_hlo gamma_derivative(tt_hlo a, tt_hlo x) {
  if (!a || !x) {
    return NULL;
  }
  // Far out both densities are normal ones: Cornish and Fisher's expansion.
  const double far = a->dtype == TT_F64 ? 1e8 : 1e4;
  tt_hlo z = v_div(v_sub(x, a), v_sqrt(a));
  tt_hlo normal = v_addc(v_sub(v_div(v_mulc(z, 0.5), v_sqrt(a)), v_div(v_addc(v_mul(z, z), -1), v_mulc(a, 6))), 1);
  tt_hlo below = v_lt(x, v_if(v_ltc(a, 1), v_const(a, 1), a));
  tt_hlo near = v_if(below, gamma_below(a, x), gamma_above(a, x));
  tt_hlo value = v_if(v_gtc(a, far), normal, near);
  value = v_if(v_eqc(x, 0), v_const(x, 0), value);
  tt_hlo real = v_and(v_gtc(a, 0), v_and(tt_hlo_unary(TT_IS_FINITE, a), tt_hlo_unary(TT_IS_FINITE, x)));
  return v_if(v_and(real, v_gec(x, 0)), value, v_const(x, NAN));
}

// Binary operands of one dtype, in PyTorch's words where they are not.
static bool same_float(tt_rule *r, const char *const *names, int32_t count, const char *kernel, tt_hlo *out) {
  const tt_operand *first = wide_float(r, names[0], kernel);
  for (int32_t i = 0; first && i < count; i++) {
    const tt_operand *x = tt_operand_of(r, names[i]);
    if (x && x->dtype != first->dtype) {
      tt_fail(r, TT_ERR_RUNTIME, "Found dtype %s but expected %s", tt_type_name(x->dtype), tt_type_name(first->dtype));
    }
    out[i] = tt_in(r, names[i]);
  }
  return first && !tt_failed(r) && tt_broadcast(r, out, count);
}

static void build_standard_gamma_grad(tt_rule *r) {
  static const char *const names[] = {"self", "output"};
  tt_hlo xs[2] = {NULL, NULL};
  if (same_float(r, names, 2, "_standard_gamma_grad_cpu", xs)) {
    tt_ret(r, 0, gamma_derivative(xs[0], xs[1]));
  }
}

// psi(z + b) - psi(z), from the asymptotic series where the two are nearly equal.
static tt_hlo digamma_step(tt_hlo z, tt_hlo b) {
  enum { FAR = 9 };
  static const double c[] = {-1.0 / 240, 1.0 / 252, -1.0 / 120, 1.0 / 12};
  tt_hlo w = v_add(z, b), u = v_cdiv(1, v_mul(z, z)), v = v_cdiv(1, v_mul(w, w));
  tt_hlo series = v_sub(v_mul(u, v_polynomial(u, c, 4)), v_mul(v, v_polynomial(v, c, 4)));
  tt_hlo far = v_add(log1p_of(v_div(b, z)), v_add(v_div(v_mulc(b, 0.5), v_mul(z, w)), series));
  return v_if(v_gtc(v_min(z, w), FAR), far, v_sub(digamma_of(w), digamma_of(z)));
}

// The derivative of a Beta(a, b) draw x, over 1 - x. With y = x / (1 - x) and t = x e^-s:
// x/(1-x) int_0^inf (psi(a) - psi(a + b) - log x + s) e^(-a s) (1 + y (1 - e^-s))^(b - 1) ds, by parts as above.
static tt_hlo beta_below(tt_hlo a, tt_hlo b, tt_hlo x) {
  rule_nodes nodes = nodes_for(a);
  tt_hlo y = v_div(x, v_csub(1, x)), less = v_addc(b, -1);
  tt_hlo slope = v_min(positive_part(v_sub(a, v_mul(less, y))), a);
  tt_hlo width = v_cdiv(1, v_add(slope, v_min(a, v_sqrt(a))));
  tt_hlo s = v_mul(nodes.t, over_nodes(&nodes, width)), fall = expm1_of(v_neg(s));
  tt_hlo wide_y = over_nodes(&nodes, y), grow = log1p_of(v_neg(v_mul(wide_y, fall)));
  tt_hlo e = v_exp(v_sub(v_mul(over_nodes(&nodes, less), grow), v_mul(over_nodes(&nodes, a), s)));
  tt_hlo level = v_neg(v_add(digamma_step(v_addc(a, 1), less), v_log(x)));
  tt_hlo change = v_div(v_mul(v_mul(s, v_addc(fall, 1)), e), v_exp(grow));
  tt_hlo second = v_mul(integral(&nodes, change), v_div(v_mul(less, y), a));
  return v_mul(v_mul(y, width), v_add(v_mul(level, integral(&nodes, e)), second));
}

// int_0^inf (log t - psi(a) + psi(a + b)) (t/x)^(a - 1) e^(-b s) ds, 1 - t = (1 - x) e^-s.
static tt_hlo beta_above(tt_hlo a, tt_hlo b, tt_hlo x) {
  rule_nodes nodes = nodes_for(a);
  tt_hlo y = v_div(v_csub(1, x), x), less = v_addc(a, -1);
  tt_hlo slope = v_min(positive_part(v_sub(b, v_mul(less, y))), b);
  tt_hlo width = v_cdiv(1, v_add(slope, v_min(b, v_sqrt(b))));
  tt_hlo s = v_mul(nodes.t, over_nodes(&nodes, width)), fall = expm1_of(v_neg(s));
  tt_hlo grow = log1p_of(v_neg(v_mul(over_nodes(&nodes, y), fall)));
  tt_hlo e = v_exp(v_sub(v_mul(over_nodes(&nodes, less), grow), v_mul(over_nodes(&nodes, b), s)));
  tt_hlo level = v_add(digamma_step(a, b), v_log(x));
  return v_mul(width, integral(&nodes, v_mul(v_add(grow, over_nodes(&nodes, level)), e)));
}

static void build_dirichlet_grad(tt_rule *r) {
  static const char *const names[] = {"x", "alpha", "total"};
  tt_hlo xs[3] = {NULL, NULL, NULL};
  if (!same_float(r, names, 3, "_dirichlet_grad_cpu", xs)) {
    return;
  }
  tt_hlo x = xs[0], a = xs[1], b = v_sub(xs[2], a);
  // Split at the mean; of a small a or b rather where the other factor of the density is still flat.
  tt_hlo split = v_div(a, xs[2]), half = v_const(a, 0.5);
  split = v_if(v_ltc(a, 1), v_max(split, v_min(half, v_cdiv(1, b))), split);
  split = v_if(v_ltc(b, 1), v_min(split, v_max(half, v_csub(1, v_cdiv(1, a)))), split);
  tt_hlo below = v_lt(x, split);
  tt_hlo value = v_if(below, beta_below(a, b, x), beta_above(a, b, x));
  value = v_if(v_eqc(x, 0), v_const(x, 0), value);
  tt_ret(r, 0, value);
}

#define RULE(op_name, function) {.name = "aten::" op_name, .build = function}

const tt_rule_entry tt_rules_random_gamma[] = {
    RULE("_standard_gamma", build_standard_gamma),
    RULE("_standard_gamma_grad", build_standard_gamma_grad),
    RULE("_sample_dirichlet", build_sample_dirichlet),
    RULE("_dirichlet_grad", build_dirichlet_grad),
    {.name = NULL},
};
