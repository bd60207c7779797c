// Special functions of one argument, the incomplete gamma functions and the orthogonal polynomials. Formulas and
// ranges are those of ATen/native/Math.h.
#include <math.h>
#include <string.h>

#include "aten/pointwise.h"
#include "aten/pointwise_tables.h"

#define POLYNOMIAL(x, table) v_polynomial(x, table, (int32_t)(sizeof(table) / sizeof(table[0])))
#define CHEBYSHEV(x, table) chebyshev(x, table, (int32_t)(sizeof(table) / sizeof(table[0])))

// Cephes' chbevl.
static tt_hlo chebyshev(tt_hlo x, const double *c, int32_t n) {
  tt_hlo p = v_const(x, 0), q = p, a = v_const(x, c[0]);
  for (int32_t i = 1; i < n; i++) {
    p = q;
    q = a;
    a = v_addc(v_sub(v_mul(x, q), p), c[i]);
  }
  return v_mulc(v_sub(a, p), 0.5);
}

static tt_hlo v_sin(tt_hlo x) { return tt_hlo_unary(TT_SIN, x); }
static tt_hlo v_cos(tt_hlo x) { return tt_hlo_unary(TT_COS, x); }
static tt_hlo v_square(tt_hlo x) { return v_mul(x, x); }

// ---- modified Bessel functions of the first kind ----

static tt_hlo i0e(tt_hlo x) {
  tt_hlo size = v_abs(x);
  tt_hlo near = CHEBYSHEV(v_addc(v_mulc(size, 0.5), -2), i0_a);
  tt_hlo far = v_div(CHEBYSHEV(v_addc(v_cdiv(32, size), -2), i0_b), v_sqrt(size));
  return v_if(v_lec(size, 8), near, far);
}
static tt_hlo i0(tt_hlo x) { return v_mul(v_exp(v_abs(x)), i0e(x)); }

static tt_hlo i1e(tt_hlo x) {
  tt_hlo size = v_abs(x);
  tt_hlo near = v_mul(CHEBYSHEV(v_addc(v_mulc(size, 0.5), -2), i1_a), size);
  tt_hlo far = v_div(CHEBYSHEV(v_addc(v_cdiv(32, size), -2), i1_b), v_sqrt(size));
  tt_hlo y = v_if(v_lec(size, 8), near, far);
  return v_if(v_ltc(x, 0), v_neg(y), y);
}
static tt_hlo i1(tt_hlo x) { return v_mul(v_exp(v_abs(x)), i1e(x)); }

// ---- of the second kind, scaled by exp(x) or not ----

static tt_hlo at_origin(tt_hlo x, double pole, tt_hlo y) {
  return v_if(v_eqc(x, 0), v_const(x, pole), v_if(v_ltc(x, 0), v_const(x, NAN), y));
}

static tt_hlo k0_near(tt_hlo x) {
  return v_sub(CHEBYSHEV(v_addc(v_square(x), -2), k0_a), v_mul(v_log(v_mulc(x, 0.5)), i0(x)));
}
static tt_hlo k1_near(tt_hlo x) {
  return v_add(v_mul(v_log(v_mulc(x, 0.5)), i1(x)), v_div(CHEBYSHEV(v_addc(v_square(x), -2), k1_a), x));
}
static tt_hlo k0_far(tt_hlo x) { return v_div(CHEBYSHEV(v_addc(v_cdiv(8, x), -2), k0_b), v_sqrt(x)); }
static tt_hlo k1_far(tt_hlo x) { return v_div(CHEBYSHEV(v_addc(v_cdiv(8, x), -2), k1_b), v_sqrt(x)); }

static tt_hlo k0(tt_hlo x) {
  return at_origin(x, INFINITY, v_if(v_lec(x, 2), k0_near(x), v_mul(v_exp(v_neg(x)), k0_far(x))));
}
static tt_hlo k1(tt_hlo x) {
  return at_origin(x, INFINITY, v_if(v_lec(x, 2), k1_near(x), v_mul(v_exp(v_neg(x)), k1_far(x))));
}
static tt_hlo k0e(tt_hlo x) {
  return at_origin(x, INFINITY, v_if(v_lec(x, 2), v_mul(k0_near(x), v_exp(x)), k0_far(x)));
}
static tt_hlo k1e(tt_hlo x) {
  return at_origin(x, INFINITY, v_if(v_lec(x, 2), v_mul(k1_near(x), v_exp(x)), k1_far(x)));
}

// ---- Bessel functions ----

// The waves at large arguments: amplitude (p wave(x - phase) + sign (5/x) q other(x - phase)) sqrt(2 / (pi x)).
static tt_hlo bessel_wave(tt_hlo x, tt_hlo p, tt_hlo q, double phase, bool second_kind) {
  tt_hlo angle = v_addc(x, -phase);
  q = v_mul(v_cdiv(5, x), q);
  tt_hlo wave = second_kind ? v_add(v_mul(p, v_sin(angle)), v_mul(q, v_cos(angle)))
                            : v_sub(v_mul(p, v_cos(angle)), v_mul(q, v_sin(angle)));
  return v_div(v_mulc(wave, 0.797884560802865355879892119868763737), v_sqrt(x));
}

static tt_hlo wave0(tt_hlo x, bool second_kind) {
  tt_hlo z = v_cdiv(25, v_square(x));
  tt_hlo p = v_div(POLYNOMIAL(z, j0_pp), POLYNOMIAL(z, j0_pq)), q = v_div(POLYNOMIAL(z, j0_qp), POLYNOMIAL(z, j0_qq));
  return bessel_wave(x, p, q, M_PI_4, second_kind);
}

static tt_hlo wave1(tt_hlo x, bool second_kind) {
  tt_hlo z = v_cdiv(25, v_square(x));
  tt_hlo p = v_div(POLYNOMIAL(z, j1_pp), POLYNOMIAL(z, j1_pq)), q = v_div(POLYNOMIAL(z, j1_qp), POLYNOMIAL(z, j1_qq));
  return bessel_wave(x, p, q, 3 * M_PI_4, second_kind);
}

static tt_hlo bessel_j0(tt_hlo x) {
  x = v_abs(x);
  tt_hlo z = v_square(x);
  tt_hlo near = v_mul(v_mul(v_addc(z, -5.78318596294678452118), v_addc(z, -30.4712623436620863991)),
                      v_div(POLYNOMIAL(z, j0_rp), POLYNOMIAL(z, j0_rq)));
  near = v_if(v_ltc(x, 1e-5), v_csub(1, v_mulc(z, 0.25)), near);
  return v_if(v_lec(x, 5), near, wave0(x, false));
}

static tt_hlo bessel_j1(tt_hlo signed_x) {
  tt_hlo x = v_abs(signed_x), z = v_square(x);
  tt_hlo near =
      v_mul(v_mul(v_mul(v_div(POLYNOMIAL(z, j1_rp), POLYNOMIAL(z, j1_rq)), x), v_addc(z, -14.6819706421238932572)),
            v_addc(z, -49.2184563216946036703));
  tt_hlo y = v_if(v_lec(x, 5), near, wave1(x, false));
  return v_if(v_ltc(signed_x, 0), v_neg(y), y);
}

static tt_hlo bessel_y0(tt_hlo x) {
  tt_hlo z = v_square(x);
  tt_hlo near = v_add(v_div(POLYNOMIAL(z, y0_yp), POLYNOMIAL(z, y0_yq)), v_mul(v_mulc(v_log(x), M_2_PI), bessel_j0(x)));
  return at_origin(x, -INFINITY, v_if(v_lec(x, 5), near, wave0(x, true)));
}

static tt_hlo bessel_y1(tt_hlo x) {
  tt_hlo z = v_square(x);
  tt_hlo singular = v_mulc(v_sub(v_mul(bessel_j1(x), v_log(x)), v_cdiv(1, x)), M_2_PI);
  tt_hlo near = v_add(v_mul(x, v_div(POLYNOMIAL(z, y1_yp), POLYNOMIAL(z, y1_yq))), singular);
  return at_origin(x, -INFINITY, v_if(v_lec(x, 5), near, wave1(x, true)));
}

static tt_hlo spherical_j0(tt_hlo x) {
  static const double series[] = {1 / 6227020800.0, -1 / 39916800.0, 1 / 362880.0, -1 / 5040.0, 1 / 120.0, -1 / 6.0, 1};
  tt_hlo near = POLYNOMIAL(v_square(x), series);
  tt_hlo y = v_if(v_ltc(v_abs(x), 0.5), near, v_div(v_sin(x), x));
  return v_if(v_eqc(v_abs(x), INFINITY), v_const(x, 0), y);
}

// ---- Airy's Ai ----

static tt_hlo airy_far_left(tt_hlo x) {
  tt_hlo root = v_sqrt(v_neg(x));
  tt_hlo zeta = v_mulc(v_mul(x, root), -2.0 / 3);
  tt_hlo z = v_cdiv(1, zeta), zz = v_square(z);
  tt_hlo f = v_addc(v_mul(zz, v_div(POLYNOMIAL(zz, airy_afn), POLYNOMIAL(zz, airy_afd))), 1);
  tt_hlo g = v_mul(z, v_div(POLYNOMIAL(zz, airy_agn), POLYNOMIAL(zz, airy_agd)));
  tt_hlo t = v_addc(zeta, M_PI_4);
  return v_mul(v_cdiv(5.64189583547756286948e-01, v_sqrt(root)), v_sub(v_mul(v_sin(t), f), v_mul(v_cos(t), g)));
}

static tt_hlo airy_right(tt_hlo x) {
  tt_hlo root = v_sqrt(x);
  tt_hlo zeta = v_mulc(v_mul(x, root), 2.0 / 3), z = v_cdiv(1, zeta);
  tt_hlo ratio = v_mulc(v_div(POLYNOMIAL(z, airy_an), POLYNOMIAL(z, airy_ad)), 5.64189583547756286948e-01);
  return v_div(ratio, v_mulc(v_mul(v_sqrt(root), v_exp(zeta)), 2));
}

// Maclaurin's series on |x| < 2.09, where 30 terms are more than enough.
static tt_hlo airy_middle(tt_hlo x) {
  tt_hlo z = v_mul(v_square(x), x);
  tt_hlo f = v_const(x, 1), g = x, m = f, n = x;
  double k = 1;
  for (int32_t i = 0; i < 12; i++, k += 3) {
    m = v_mulc(v_mul(m, z), 1 / ((k + 1) * (k + 2)));
    n = v_mulc(v_mul(n, z), 1 / ((k + 2) * (k + 3)));
    f = v_add(f, m);
    g = v_add(g, n);
  }
  return v_sub(v_mulc(f, 0.355028053887817239260), v_mulc(g, 0.258819403792806798405));
}

static tt_hlo airy_ai(tt_hlo x) {
  tt_hlo y = v_if(v_ltc(x, -2.09), airy_far_left(x), v_if(v_gec(x, 2.09), airy_right(x), airy_middle(x)));
  y = v_if(v_gtc(x, 103.892), v_const(x, 0), y);
  return v_if(v_eqc(v_abs(x), INFINITY), v_const(x, NAN), y);
}

// ---- the error function's family ----

static tt_hlo erfcx(tt_hlo x) {
  const double inverse_root_pi = M_2_SQRTPI / 2;
  bool wide = x && x->dtype == TT_F64;
  tt_hlo z = v_square(x);
  tt_hlo small = v_mul(v_exp(z), tt_hlo_unary(TT_ERFC, x));
  tt_hlo middle = v_div(POLYNOMIAL(x, erfcx_p), POLYNOMIAL(x, erfcx_q));
  tt_hlo large = v_div(POLYNOMIAL(x, erfcx_r), POLYNOMIAL(x, erfcx_s));
  tt_hlo fraction = v_div(v_mulc(v_addc(v_mul(z, v_addc(z, 4.5)), 2), inverse_root_pi),
                          v_mul(x, v_addc(v_mul(z, v_addc(z, 5)), 3.75)));
  tt_hlo limit = v_cdiv(inverse_root_pi, x);
  tt_hlo far = v_if(v_gtc(x, wide ? 5e7 : 1e4), limit, v_if(v_gtc(x, 50), fraction, large));
  return v_if(v_ltc(x, 1), small, v_if(v_ltc(x, 8), middle, far));
}

static tt_hlo log_ndtr(tt_hlo x) {
  tt_hlo t = v_mulc(x, M_SQRT1_2);
  tt_hlo tail = v_sub(v_log(v_mulc(erfcx(v_neg(t)), 0.5)), v_square(t));
  return v_if(v_ltc(x, -1), tail, tt_hlo_unary(TT_LOG1P, v_mulc(tt_hlo_unary(TT_ERFC, t), -0.5)));
}

static tt_hlo ndtri(tt_hlo y) {
  const double edge = 0.13533528323661269189;  // exp(-2)
  tt_hlo upper = v_gtc(y, 1 - edge);
  tt_hlo folded = v_if(upper, v_csub(1, y), y);
  tt_hlo centred = v_addc(folded, -0.5), square = v_square(centred);
  tt_hlo ratio = v_div(v_mul(square, POLYNOMIAL(square, ndtri_p0)), POLYNOMIAL(square, ndtri_q0));
  tt_hlo middle = v_mulc(v_add(centred, v_mul(centred, ratio)), 2.50662827463100050242);
  tt_hlo x = v_sqrt(v_mulc(v_log(folded), -2)), z = v_cdiv(1, x);
  tt_hlo near = v_div(POLYNOMIAL(z, ndtri_p1), POLYNOMIAL(z, ndtri_q1));
  tt_hlo far = v_div(POLYNOMIAL(z, ndtri_p2), POLYNOMIAL(z, ndtri_q2));
  tt_hlo tail = v_sub(v_sub(x, v_div(v_log(x), x)), v_mul(z, v_if(v_ltc(x, 8), near, far)));
  tail = v_if(upper, tail, v_neg(tail));
  tt_hlo value = v_if(v_gtc(folded, edge), middle, tail);
  value = v_if(v_eqc(y, 0), v_const(y, -INFINITY), v_if(v_eqc(y, 1), v_const(y, INFINITY), value));
  return v_if(v_or(v_ltc(y, 0), v_gtc(y, 1)), v_const(y, NAN), value);
}

static tt_hlo entr(tt_hlo x) {
  tt_hlo y = v_if(v_gtc(x, 0), v_neg(v_mul(x, v_log(x))), v_const(x, -INFINITY));
  return v_if(v_isnan(x), x, v_if(v_eqc(x, 0), v_const(x, 0), y));
}

// ---- trigamma and zeta ----

tt_hlo tt_pw_trigamma(tt_hlo x) {
  tt_hlo reflected = v_ltc(x, 0.5);
  tt_hlo sine = v_sin(v_mulc(x, M_PI));
  tt_hlo mirror = v_cdiv(-M_PI * M_PI, v_square(sine));
  tt_hlo sum = v_if(reflected, mirror, v_const(x, 0));
  x = v_if(reflected, v_csub(1, x), x);
  for (int32_t i = 0; i < 6; i++) {
    sum = v_add(sum, v_cdiv(1, v_square(x)));
    x = v_addc(x, 1);
  }
  tt_hlo ixx = v_cdiv(1, v_square(x));
  tt_hlo series = v_csub(1.0 / 6, v_mul(ixx, v_csub(1.0 / 30, v_mulc(ixx, 1.0 / 42))));
  series = v_add(v_add(v_const(x, 1), v_cdiv(0.5, x)), v_mul(ixx, series));
  sum = v_add(sum, v_div(series, x));
  return v_if(reflected, v_neg(sum), sum);
}

static tt_hlo v_pow(tt_hlo x, tt_hlo y) { return tt_hlo_binary(TT_POWER, x, y); }
static tt_hlo any_of(tt_hlo x) {
  bool all[TT_MAX_RANK];
  memset(all, true, sizeof all);
  return tt_reduce_mask(TT_ANY, x, all);
}

// Cephes' zeta sums q^-x, (q + 1)^-x, ... for nine terms and until q + i is past 9, where Euler's and Maclaurin's
// formula takes over. State: steps left (0-d), -x, a, term, sum, unfinished.
static tt_hlo zeta_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *s) {
  (void)context, (void)b;
  return any_of(s[5]);
}

static void zeta_step(void *context, tt_hlo_builder *b, const tt_hlo *s, tt_hlo *out) {
  const double *epsilon = context;
  (void)b;
  out[0] = v_addc(s[0], -1);
  out[1] = s[1];
  out[2] = v_if(s[5], v_addc(s[2], 1), s[2]);
  tt_hlo term = v_pow(out[2], s[1]);
  out[3] = v_if(s[5], term, s[3]);
  out[4] = v_if(s[5], v_add(s[4], term), s[4]);
  tt_hlo negligible = v_lt(v_abs(term), v_mulc(v_abs(out[4]), *epsilon));
  tt_hlo more = v_or(v_like(v_gtc(out[0], 0), s[5]), v_lec(out[2], 9));
  out[5] = v_and(s[5], v_and(v_not(negligible), more));
}

static tt_hlo zeta_tail(tt_hlo x, tt_hlo a, tt_hlo term, tt_hlo sum) {
  static const double coefficients[] = {12,
                                        -720,
                                        30240,
                                        -1209600,
                                        47900160,
                                        -1.8924375803183791606e9,
                                        7.47242496e10,
                                        -2.950130727918164224e12,
                                        1.1646782814350067249e14,
                                        -4.5979787224074726105e15,
                                        1.8152105401943546773e17,
                                        -7.1661652561756670113e18};
  sum = v_add(sum, v_div(v_mul(term, a), v_addc(x, -1)));
  sum = v_sub(sum, v_mulc(term, 0.5));
  tt_hlo factor = v_const(x, 1);
  double k = 0;
  for (int32_t i = 0; i < 12; i++) {
    factor = v_mul(factor, v_addc(x, k));
    term = v_div(term, a);
    sum = v_add(sum, v_mulc(v_mul(factor, term), 1 / coefficients[i]));
    factor = v_mul(factor, v_addc(x, k + 1));
    term = v_div(term, a);
    k += 2;
  }
  return sum;
}

tt_hlo tt_pw_zeta(tt_hlo x, tt_hlo q) {
  if (!x || !q) {
    return NULL;
  }
  double epsilon = x->dtype == TT_F64 ? 1.11022302462515654042e-16 : 5.96e-8;
  tt_hlo pole = v_and(v_lec(q, 0), v_eq(q, tt_hlo_unary(TT_FLOOR, q)));
  tt_hlo undefined = v_or(v_ltc(x, 1), v_and(v_lec(q, 0), v_ne(x, tt_hlo_unary(TT_FLOOR, x))));
  tt_hlo plain = v_and(v_gtc(x, 1), v_not(v_or(pole, undefined)));
  plain = v_and(plain, v_not(v_isnan(q)));
  tt_hlo safe_x = v_if(plain, x, v_const(x, 2)), safe_q = v_if(plain, q, v_const(q, 1));
  tt_hlo minus_x = v_neg(safe_x), first = v_pow(safe_q, minus_x), results[6] = {NULL};
  tt_hlo steps = tt_hlo_scalar(tt_hlo_builder_of(x), TT_S32, 9);
  tt_hlo_while((const tt_hlo[]){steps, minus_x, safe_q, v_const(x, 0), first, plain}, 6, zeta_goes_on, zeta_step,
               &epsilon, results);
  tt_hlo sum = results[4], term = results[3];
  tt_hlo negligible = v_lt(v_abs(term), v_mulc(v_abs(sum), epsilon));
  tt_hlo value = v_if(negligible, sum, zeta_tail(safe_x, results[2], term, sum));
  tt_hlo infinite = v_or(v_eqc(x, 1), v_and(v_gec(x, 1), pole));
  value = v_if(infinite, v_const(x, INFINITY), v_if(undefined, v_const(x, NAN), value));
  return v_if(v_or(v_isnan(x), v_isnan(q)), v_const(x, NAN), value);
}

// ---- unary table ----
static const struct {
  const char *kernel;
  tt_hlo (*form)(tt_hlo x);
  bool halves;  // takes float16 and bfloat16
} forms[] = {
    {"i0_vml_cpu", i0, true},
    {"i0e_cpu", i0e, true},
    {"i1_cpu", i1, true},
    {"i1e_cpu", i1e, true},
    {"entr_cpu", entr, true},
    {"erfcx_cpu", erfcx, false},
    {"log_ndtr_cpu", log_ndtr, false},
    {"ndtri_cpu", ndtri, false},
    {"bessel_j0_cpu", bessel_j0, false},
    {"bessel_j1_cpu", bessel_j1, false},
    {"bessel_y0_cpu", bessel_y0, false},
    {"bessel_y1_cpu", bessel_y1, false},
    {"modified_bessel_i0_cpu", i0, false},
    {"modified_bessel_i1_cpu", i1, false},
    {"modified_bessel_k0_cpu", k0, false},
    {"modified_bessel_k1_cpu", k1, false},
    {"scaled_modified_bessel_k0_cpu", k0e, false},
    {"scaled_modified_bessel_k1_cpu", k1e, false},
    {"spherical_bessel_j0_cpu", spherical_j0, false},
    {"airy_ai_cpu", airy_ai, false},
};

static void build_special(tt_rule *r) {
  int32_t kind = tt_rule_kind(r);
  const char *name = tt_has(r, "self") ? "self" : "x";
  const tt_operand *x = tt_operand_of(r, name);
  if (!x) {
    return;
  }
  bool half = x->dtype == TT_F16 || x->dtype == TT_BF16;
  if (tt_dtype_is_complex(x->dtype) || (half && !forms[kind].halves)) {
    tt_fail_dtype(r, forms[kind].kernel, x->dtype);
    return;
  }
  tt_dtype dtype = tt_float_type(r, x->dtype);
  tt_hlo value = tt_cast(tt_in_as(r, name, dtype), tt_opmath(dtype));
  tt_ret_elementwise(r, 0, tt_cast(forms[kind].form(value), dtype));
}

// ---- incomplete gamma functions, in float64: a log x - x - lgamma(a) cancels ----
enum { G_LOWER, G_UPPER };

// The power series. State: x, r, term, sum, unfinished.
static tt_hlo gamma_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  return any_of(state[*(const int32_t *)context]);
}

static void series_step(void *context, tt_hlo_builder *b, const tt_hlo *s, tt_hlo *out) {
  (void)context, (void)b;
  out[0] = s[0];
  out[1] = v_addc(s[1], 1);
  out[2] = v_mul(s[2], v_div(s[0], out[1]));
  out[3] = v_add(s[3], out[2]);
  out[4] = v_and(s[4], v_gt(out[2], v_mulc(out[3], 1e-16)));
}

static tt_hlo gamma_series(tt_hlo a, tt_hlo x, tt_hlo scale, tt_hlo active) {
  int32_t last = 4;
  tt_hlo one = v_const(a, 1), results[5] = {NULL};
  tt_hlo_while((const tt_hlo[]){x, a, one, one, active}, 5, gamma_goes_on, series_step, &last, results);
  return v_div(v_mul(results[3], scale), a);
}

// Cephes' continued fraction. State: y, z, c, p1, p2, q1, q2, value, unfinished.
static void fraction_step(void *context, tt_hlo_builder *b, const tt_hlo *s, tt_hlo *out) {
  (void)context, (void)b;
  const double big = 4.503599627370496e15;
  tt_hlo y = v_addc(s[0], 1), z = v_addc(s[1], 2), c = v_addc(s[2], 1), yc = v_mul(y, c);
  tt_hlo p = v_sub(v_mul(s[3], z), v_mul(s[4], yc)), q = v_sub(v_mul(s[5], z), v_mul(s[6], yc));
  tt_hlo usable = v_ne(q, v_const(q, 0)), ratio = v_div(p, q);
  tt_hlo moved = v_gt(v_abs(v_sub(s[7], ratio)), v_mulc(v_abs(ratio), 1e-15));
  tt_hlo shrink = v_if(v_gtc(v_abs(p), big), v_const(p, 1 / big), v_const(p, 1));
  out[0] = y;
  out[1] = z;
  out[2] = c;
  out[3] = v_mul(p, shrink);
  out[4] = v_mul(s[3], shrink);
  out[5] = v_mul(q, shrink);
  out[6] = v_mul(s[5], shrink);
  out[7] = v_if(v_and(s[8], usable), ratio, s[7]);
  out[8] = v_and(v_and(s[8], v_or(v_not(usable), moved)), v_ltc(c, 4000));
}

static tt_hlo gamma_fraction(tt_hlo a, tt_hlo x, tt_hlo scale, tt_hlo active) {
  int32_t last = 8;
  tt_hlo y = v_csub(1, a), z = v_addc(v_add(x, y), 1), zero = v_const(a, 0), one = v_const(a, 1);
  tt_hlo p1 = v_addc(x, 1), q1 = v_mul(z, x), results[9] = {NULL};
  tt_hlo_while((const tt_hlo[]){y, z, zero, p1, one, q1, x, v_div(p1, q1), active}, 9, gamma_goes_on, fraction_step,
               &last, results);
  return v_mul(results[7], scale);
}

static void build_igamma(tt_rule *r) {
  bool upper = tt_rule_kind(r) == G_UPPER;
  tt_hlo a, x;
  tt_dtype dtype = tt_binary_in(r, "self", "other", &a, &x);
  if (!tt_dtype_is_float(dtype)) {
    tt_fail_dtype(r, upper ? "igammac_cpu" : "igamma_cpu", dtype);
    return;
  }
  a = tt_cast(a, TT_F64);
  x = tt_cast(x, TT_F64);
  tt_hlo plain =
      v_and(v_and(v_gtc(a, 0), v_gtc(x, 0)), v_and(tt_hlo_unary(TT_IS_FINITE, a), tt_hlo_unary(TT_IS_FINITE, x)));
  tt_hlo one = v_const(a, 1), zero = v_const(a, 0), nan = v_const(a, NAN);
  tt_hlo safe_a = v_if(plain, a, one), safe_x = v_if(plain, x, one);
  tt_hlo by_fraction = v_and(v_gtc(safe_x, 1), v_gt(safe_x, safe_a));
  tt_hlo log_scale = v_sub(v_sub(v_mul(safe_a, v_log(safe_x)), safe_x), tt_hlo_unary(TT_LGAMMA, safe_a));
  tt_hlo scale = v_exp(log_scale);
  tt_hlo lower_part = gamma_series(safe_a, safe_x, scale, v_not(by_fraction));
  tt_hlo upper_part = gamma_fraction(safe_a, safe_x, scale, by_fraction);
  tt_hlo value = upper ? v_if(by_fraction, upper_part, v_sub(one, lower_part))
                       : v_if(by_fraction, v_sub(one, upper_part), lower_part);
  tt_hlo full = upper ? zero : one, none = upper ? one : zero;
  tt_hlo a_infinite = v_eqc(a, INFINITY), x_infinite = v_eqc(x, INFINITY);
  tt_hlo special = v_if(v_eqc(a, 0), v_if(v_gtc(x, 0), full, nan),
                        v_if(v_eqc(x, 0), none, v_if(a_infinite, v_if(x_infinite, nan, none), full)));
  tt_hlo bad = v_or(v_or(v_isnan(a), v_isnan(x)), v_or(v_ltc(a, 0), v_ltc(x, 0)));
  tt_ret_elementwise(r, 0, tt_cast(v_if(plain, value, v_if(bad, nan, special)), dtype));
}

// ---- orthogonal polynomials ----
typedef enum { O_T, O_U, O_V, O_W, O_ST, O_SU, O_SV, O_SW, O_H, O_HE, O_L, O_P } polynomial;

// State: k (0-d), the polynomials of order k - 1 and k, and x and n, which regions must carry.
static tt_hlo recurrence_active(const tt_hlo *s) { return v_and(v_lt(v_like(s[0], s[2]), s[4]), v_not(v_isnan(s[2]))); }

static tt_hlo recurrence_goes_on(void *context, tt_hlo_builder *b, const tt_hlo *s) {
  (void)context, (void)b;
  return any_of(recurrence_active(s));
}

static void recurrence_step(void *context, tt_hlo_builder *b, const tt_hlo *s, tt_hlo *out) {
  (void)b;
  polynomial kind = *(const polynomial *)context;
  tt_hlo p = s[1], q = s[2], x = s[3], k = v_like(s[0], q), next;
  if (kind == O_H) {
    next = v_sub(v_mul(v_mulc(x, 2), q), v_mul(v_mulc(k, 2), p));
  } else if (kind == O_HE) {
    next = v_sub(v_mul(x, q), v_mul(k, p));
  } else if (kind == O_L) {
    tt_hlo slope = v_add(v_mulc(k, 2), v_csub(1, x));
    next = v_div(v_sub(v_mul(slope, q), v_mul(k, p)), v_addc(k, 1));
  } else if (kind == O_P) {
    next = v_div(v_sub(v_mul(v_mul(v_addc(v_mulc(k, 2), 1), x), q), v_mul(k, p)), v_addc(k, 1));
  } else {
    next = v_sub(v_mul(v_mulc(x, 2), q), p);
  }
  tt_hlo active = recurrence_active(s);
  out[0] = v_addc(s[0], 1);
  out[1] = v_if(active, q, p);
  out[2] = v_if(active, next, q);
  out[3] = x;
  out[4] = s[4];
}

static tt_hlo first_order(polynomial kind, tt_hlo x) {
  switch (kind) {
    case O_U:
    case O_H:
      return v_mulc(x, 2);
    case O_V:
      return v_addc(v_mulc(x, 2), -1);
    case O_W:
      return v_addc(v_mulc(x, 2), 1);
    case O_L:
      return v_csub(1, x);
    default:
      return x;
  }
}

static tt_hlo by_recurrence(polynomial kind, tt_hlo x, tt_hlo n) {
  tt_hlo results[5] = {NULL};
  tt_hlo k = x ? tt_hlo_scalar(tt_hlo_builder_of(x), x->dtype, 1) : NULL;
  tt_hlo_while((const tt_hlo[]){k, v_const(x, 1), first_order(kind, x), x, n}, 5, recurrence_goes_on, recurrence_step,
               &kind, results);
  return v_if(v_eqc(n, 0), v_const(x, 1), results[2]);
}

// Chebyshev's polynomials inside (-1, 1).
static tt_hlo by_angle(polynomial kind, tt_hlo x, tt_hlo n) {
  tt_hlo angle = tt_hlo_unary(TT_ACOS, x), half = v_mulc(angle, 0.5);
  switch (kind) {
    case O_T:
      return v_cos(v_mul(n, angle));
    case O_U:
      return v_div(v_sin(v_mul(v_addc(n, 1), angle)), v_sin(angle));
    case O_V:
      return v_div(v_cos(v_mul(v_addc(n, 0.5), angle)), v_cos(half));
    default:
      return v_div(v_sin(v_mul(v_addc(n, 0.5), angle)), v_sin(half));
  }
}

// Values at 1 and, with alternating sign, at -1.
static tt_hlo at_ends(polynomial kind, tt_hlo x, tt_hlo n) {
  tt_hlo positive = v_gtc(x, 0), one = v_const(n, 1), odd = v_addc(v_mulc(n, 2), 1);
  tt_hlo is_odd = v_ne(v_mulc(tt_hlo_unary(TT_FLOOR, v_mulc(n, 0.5)), 2), n);
  tt_hlo right = kind == O_U ? v_addc(n, 1) : kind == O_W ? odd : one;
  tt_hlo left = kind == O_U ? right : kind == O_V ? odd : one;
  return v_if(positive, right, v_if(is_odd, v_neg(left), left));
}

static tt_hlo polynomial_of(polynomial kind, tt_hlo x, tt_hlo n) {
  if (!x || !n) {
    return NULL;
  }
  // A degree that int64 can't hold counts as negative, as the CPU's conversion makes it.
  tt_hlo degree = v_and(v_gtc(n, -1), v_ltc(n, 9.2e18));
  n = v_if(degree, v_max(tt_hlo_unary(TT_FLOOR, n), v_const(n, 0)), v_const(n, 0));
  tt_hlo value;
  if (kind <= O_SW) {
    static const double limits[] = {6, 8, 8, 8, 6, 6, 6, 4};
    double limit = limits[kind];
    if (kind >= O_ST) {
      x = v_addc(v_mulc(x, 2), -1);
      kind = (polynomial)(kind - O_ST);
    }
    tt_hlo ends = v_eqc(v_abs(x), 1), inner = v_and(v_gtc(n, limit), v_ltc(v_abs(x), 1));
    tt_hlo steps = v_if(v_or(ends, inner), v_const(n, 0), n);
    value = v_if(ends, at_ends(kind, x, n), v_if(inner, by_angle(kind, x, n), by_recurrence(kind, x, steps)));
  } else if (kind == O_H || kind == O_HE) {
    tt_hlo too_high = v_gtc(n, x->dtype == TT_F64 ? 512 : 128);
    value = v_if(too_high, v_const(x, NAN), by_recurrence(kind, x, v_if(too_high, v_const(n, 0), n)));
  } else {
    tt_hlo fixed = kind == O_L ? v_eqc(x, 0) : v_eqc(v_abs(x), 1);
    tt_hlo there = kind == O_L ? v_const(x, 1) : at_ends(O_T, x, n);
    value = v_if(fixed, there, by_recurrence(kind, x, v_if(fixed, v_const(n, 0), n)));
  }
  return v_if(degree, value, v_const(x, 0));
}

static void build_polynomial(tt_rule *r) {
  tt_hlo x, n;
  tt_dtype dtype = tt_float_type(r, tt_binary_in(r, "x", "n", &x, &n));
  if (dtype != TT_F32 && dtype != TT_F64) {
    tt_fail_dtype(r, "orthogonal_polynomial_cpu", dtype);
    return;
  }
  tt_ret_elementwise(r, 0, polynomial_of((polynomial)tt_rule_kind(r), tt_cast(x, dtype), tt_cast(n, dtype)));
}

#define SPECIAL(op_name, which) {.name = "aten::" op_name, .build = build_special, .kind = which}
#define POLYNOMIAL_RULE(op_name, which) {.name = "aten::special_" op_name, .build = build_polynomial, .kind = which}

const tt_rule_entry tt_rules_pointwise_special[] = {
    SPECIAL("i0", 0),
    SPECIAL("special_i0e", 1),
    SPECIAL("special_i1", 2),
    SPECIAL("special_i1e", 3),
    SPECIAL("special_entr", 4),
    SPECIAL("special_erfcx", 5),
    SPECIAL("special_log_ndtr", 6),
    SPECIAL("special_ndtri", 7),
    SPECIAL("special_bessel_j0", 8),
    SPECIAL("special_bessel_j1", 9),
    SPECIAL("special_bessel_y0", 10),
    SPECIAL("special_bessel_y1", 11),
    SPECIAL("special_modified_bessel_i0", 12),
    SPECIAL("special_modified_bessel_i1", 13),
    SPECIAL("special_modified_bessel_k0", 14),
    SPECIAL("special_modified_bessel_k1", 15),
    SPECIAL("special_scaled_modified_bessel_k0", 16),
    SPECIAL("special_scaled_modified_bessel_k1", 17),
    SPECIAL("special_spherical_bessel_j0", 18),
    SPECIAL("special_airy_ai", 19),
    {.name = "aten::igamma", .build = build_igamma, .kind = G_LOWER},
    {.name = "aten::igammac", .build = build_igamma, .kind = G_UPPER},
    POLYNOMIAL_RULE("chebyshev_polynomial_t", O_T),
    POLYNOMIAL_RULE("chebyshev_polynomial_u", O_U),
    POLYNOMIAL_RULE("chebyshev_polynomial_v", O_V),
    POLYNOMIAL_RULE("chebyshev_polynomial_w", O_W),
    POLYNOMIAL_RULE("shifted_chebyshev_polynomial_t", O_ST),
    POLYNOMIAL_RULE("shifted_chebyshev_polynomial_u", O_SU),
    POLYNOMIAL_RULE("shifted_chebyshev_polynomial_v", O_SV),
    POLYNOMIAL_RULE("shifted_chebyshev_polynomial_w", O_SW),
    POLYNOMIAL_RULE("hermite_polynomial_h", O_H),
    POLYNOMIAL_RULE("hermite_polynomial_he", O_HE),
    POLYNOMIAL_RULE("laguerre_polynomial_l", O_L),
    POLYNOMIAL_RULE("legendre_polynomial_p", O_P),
    {.name = NULL},
};
