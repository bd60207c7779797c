// Counts: Poisson and binomial draws. Small means by adding up waiting times, large ones by Hoermann's transformed
// rejection (PTRS and BTRS), whose exact test is written so that it keeps its digits in float32.
#include <math.h>

#include "aten/dims.h"
#include "aten/random.h"

enum { LARGE_MEAN = 10, ROUNDS = 200 };

// ---- densities ----

// (1 + y) log(1 + y) - y
static tt_hlo deviance(tt_hlo y) {
  enum { FIRST = 2, LAST = 14 };
  double c[LAST - FIRST + 1];
  for (int32_t n = FIRST; n <= LAST; n++) {
    c[LAST - n] = (n % 2 ? -1.0 : 1.0) / ((double)n * (n - 1));
  }
  tt_hlo series = v_mul(v_mul(y, y), v_polynomial(y, c, LAST - FIRST + 1));
  tt_hlo direct = v_sub(v_mul(v_addc(y, 1), tt_hlo_unary(TT_LOG1P, y)), y);
  return v_if(v_ltc(v_abs(y), 0.1), series, direct);
}

static double stirling_error(int32_t k) {
  return lgamma(k + 1.0) - ((k + 0.5) * log(k + 1.0) - (k + 1.0) + 0.5 * log(2 * M_PI));
}

// What Stirling's formula lacks: log k! - ((k + 1/2) log(k + 1) - (k + 1) + log(2 pi) / 2).
static tt_hlo stirling_rest(tt_hlo k) {
  enum { EXACT = 10 };
  tt_hlo inverse = v_cdiv(1, v_addc(k, 1)), square = v_mul(inverse, inverse);
  const double c[] = {-1.0 / 1680, 1.0 / 1260, -1.0 / 360, 1.0 / 12};
  tt_hlo rest = v_mul(inverse, v_polynomial(square, c, 4));
  for (int32_t i = 0; i < EXACT; i++) {
    rest = v_if(v_eqc(k, i), v_const(k, stirling_error(i)), rest);
  }
  return rest;
}

// The logarithm of the Poisson probability of k.
static tt_hlo log_poisson(tt_hlo k, tt_hlo mean) {
  tt_hlo y = v_div(v_addc(v_sub(k, mean), 1), mean);
  tt_hlo value = v_sub(v_mulc(tt_hlo_unary(TT_LOG1P, y), 0.5), v_mul(mean, deviance(y)));
  value = v_sub(value, v_addc(v_mulc(v_log(mean), 0.5), 0.5 * log(2 * M_PI)));
  return v_sub(value, stirling_rest(k));
}

static tt_hlo floor_of(tt_hlo x) { return tt_hlo_unary(TT_FLOOR, x); }

// One round's pair of uniform numbers for each element.
static void uniform_pair(tt_hlo stream, tt_hlo round, tt_hlo like, tt_hlo *u, tt_hlo *v) {
  const int64_t n = tt_hlo_numel(like);
  *u = v_addc(tt_stream_uniform(tt_stream_at(stream, round, 2 * n, 0), like->dtype, like->dims, like->rank), -0.5);
  *v = tt_stream_uniform(tt_stream_at(stream, round, 2 * n, n), like->dtype, like->dims, like->rank);
}

// ---- small means: how many waiting times fit ----

typedef struct waiting {
  tt_hlo limit, rate;  // rate: NULL for exponential times; else of the geometric ones, log(1 - p)
  tt_hlo stream;
} waiting;
enum { W_ROUND, W_COUNT, W_SUM, W_STATES };

static tt_hlo waits(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  const waiting *w = context;
  return v_and(v_lt(state[W_ROUND], tt_hlo_scalar(b, TT_S32, ROUNDS)),
               v_reduce_all(TT_ANY, v_le(state[W_SUM], w->limit)));
}

static void wait_once(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const waiting *w = context;
  tt_hlo limit = w->limit;
  tt_hlo at = tt_stream_at(w->stream, state[W_ROUND], tt_hlo_numel(limit), 0);
  tt_hlo time = v_log(tt_stream_uniform(at, limit->dtype, limit->dims, limit->rank));
  time = w->rate ? tt_hlo_unary(TT_CEIL, v_div(time, w->rate)) : v_neg(time);
  tt_hlo sum = v_add(state[W_SUM], time);
  out[W_ROUND] = v_add(state[W_ROUND], tt_hlo_scalar(b, TT_S32, 1));
  out[W_SUM] = sum;
  out[W_COUNT] = v_if(v_le(sum, limit), v_addc(state[W_COUNT], 1), state[W_COUNT]);
}

// A limit below 0 gives 0 at once.
static tt_hlo count_waiting(tt_rule *r, tt_hlo limit, tt_hlo rate) {
  waiting w = {limit, rate, tt_stream(r)};
  if (!limit || tt_hlo_numel(limit) == 0) {
    return limit;
  }
  tt_hlo zero = v_const(limit, 0), states[W_STATES] = {tt_hlo_scalar(tt_b(r), TT_S32, 0), zero, zero};
  tt_hlo_while(states, W_STATES, waits, wait_once, &w, states);
  return states[W_COUNT];
}

// ---- Poisson ----

static tt_hlo draw_poisson(const tt_rejection *of, tt_hlo stream, tt_hlo round, tt_hlo *out_accepted) {
  tt_hlo mean = of->start, u, v;
  uniform_pair(stream, round, mean, &u, &v);
  tt_hlo b = v_addc(v_mulc(v_sqrt(mean), 2.53), 0.931), a = v_addc(v_mulc(b, 0.02483), -0.059);
  tt_hlo top = v_addc(v_cdiv(1.1328, v_addc(b, -3.4)), 1.1239);
  tt_hlo squeeze = v_csub(0.9277, v_cdiv(3.6224, v_addc(b, -2)));
  tt_hlo us = v_csub(0.5, v_abs(u));
  tt_hlo k = floor_of(v_add(v_mul(v_add(v_div(v_mulc(a, 2), us), b), u), v_addc(mean, 0.43)));
  tt_hlo height = v_add(v_div(a, v_mul(us, us)), b);
  tt_hlo tested = v_le(v_log(v_div(v_mul(v, top), height)), log_poisson(k, mean));
  tt_hlo at_once = v_and(v_gec(us, 0.07), v_le(v, squeeze));
  tt_hlo outside = v_or(v_ltc(k, 0), v_and(v_ltc(us, 0.013), v_gt(v, us)));
  *out_accepted = v_or(at_once, v_and(v_not(outside), tested));
  return k;
}

static void build_poisson(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!self) {
    return;
  }
  if (!tt_dtype_is_float(self->dtype) || tt_dtype_size(self->dtype) == 1) {
    tt_fail_dtype(r, "poisson_cpu", self->dtype);
    return;
  }
  tt_hlo mean = tt_in_as(r, "self", tt_opmath(self->dtype));
  tt_device_assert(r, v_gec(mean, 0), TT_ERR_RUNTIME, "invalid Poisson rate, expected rate to be non-negative");
  tt_hlo large = v_and(v_gec(mean, LARGE_MEAN), tt_hlo_unary(TT_IS_FINITE, mean));
  tt_hlo small = count_waiting(r, v_if(v_ltc(mean, LARGE_MEAN), mean, v_const(mean, -1)), NULL);
  tt_rejection of = {.draw = draw_poisson, .stream = tt_stream(r), .start = mean, .active = large, .rounds = ROUNDS};
  tt_ret(r, 0, tt_cast(v_if(large, tt_reject(&of), small), self->dtype));
}

// ---- binomial ----

typedef struct trials {
  tt_hlo count, p;
} trials;

// The logarithm of the probability of k, up to a constant.
static tt_hlo log_binomial(const trials *t, tt_hlo k) {
  tt_hlo successes = log_poisson(k, v_mul(t->count, t->p));
  return v_add(successes, log_poisson(v_sub(t->count, k), v_mul(t->count, v_csub(1, t->p))));
}

static tt_hlo draw_binomial(const tt_rejection *of, tt_hlo stream, tt_hlo round, tt_hlo *out_accepted) {
  const trials *t = of->context;
  tt_hlo mean = of->start, p = t->p, u, v;
  uniform_pair(stream, round, mean, &u, &v);
  tt_hlo spread = v_sqrt(v_mul(mean, v_csub(1, p)));
  tt_hlo b = v_addc(v_mulc(spread, 2.53), 1.15);
  tt_hlo a = v_addc(v_add(v_mulc(b, 0.0248), v_mulc(p, 0.01)), -0.0873);
  tt_hlo top = v_mul(v_addc(v_cdiv(5.1, b), 2.83), spread), squeeze = v_csub(0.92, v_cdiv(4.2, b));
  tt_hlo us = v_csub(0.5, v_abs(u));
  tt_hlo k = floor_of(v_add(v_mul(v_add(v_div(v_mulc(a, 2), us), b), u), v_addc(mean, 0.5)));
  tt_hlo height = v_add(v_div(a, v_mul(us, us)), b), mode = floor_of(v_add(mean, p));
  tt_hlo odds = v_sub(log_binomial(t, k), log_binomial(t, mode));
  tt_hlo tested = v_le(v_log(v_div(v_mul(v, top), height)), odds);
  tt_hlo inside = v_and(v_gec(k, 0), v_le(k, t->count));
  *out_accepted = v_or(v_and(v_gec(us, 0.07), v_le(v, squeeze)), v_and(inside, tested));
  return k;
}

static bool binomial_fits(tt_rule *r, const tt_operand *count, const tt_operand *prob) {
  if (!tt_dtype_is_float(count->dtype)) {
    tt_fail(r, TT_ERR_VALUE, "binomial only supports floating-point dtypes for count, got: %s",
            tt_type_name(count->dtype));
  } else if (!tt_dtype_is_float(prob->dtype)) {
    tt_fail(r, TT_ERR_VALUE, "binomial only supports floating-point dtypes for prob, got: %s",
            tt_type_name(prob->dtype));
  } else if (count->dtype != TT_F32 && count->dtype != TT_F64) {
    tt_fail_dtype(r, "binomial_cpu", count->dtype);
  } else if (count->dtype != prob->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "Found dtype %s but expected %s", tt_type_name(prob->dtype), tt_type_name(count->dtype));
  }
  return !tt_failed(r);
}

static void build_binomial(tt_rule *r) {
  const tt_operand *count_in = tt_operand_of(r, "count"), *prob_in = tt_operand_of(r, "prob");
  if (!count_in || !prob_in || !binomial_fits(r, count_in, prob_in)) {
    return;
  }
  tt_hlo xs[2] = {tt_in(r, "count"), tt_in(r, "prob")};
  if (!tt_broadcast(r, xs, 2)) {
    return;
  }
  tt_hlo count = xs[0], prob = xs[1];
  // The rarer outcome is drawn.
  tt_hlo swapped = v_gtc(prob, 0.5), p = v_if(swapped, v_csub(1, prob), prob), mean = v_mul(count, p);
  tt_hlo varies = v_and(v_and(v_gtc(count, 0), v_gtc(prob, 0)), v_ltc(prob, 1));
  tt_hlo large = v_and(varies, v_gec(mean, LARGE_MEAN));
  tt_hlo few = v_and(varies, v_ltc(mean, LARGE_MEAN));
  tt_hlo small = count_waiting(r, v_if(few, count, v_const(count, -1)), tt_hlo_unary(TT_LOG1P, v_neg(p)));
  const trials t = {count, p};
  tt_rejection of = {
      .draw = draw_binomial, .context = &t, .stream = tt_stream(r), .start = mean, .active = large, .rounds = ROUNDS};
  tt_hlo k = v_if(large, tt_reject(&of), small);
  k = v_if(swapped, v_sub(count, k), k);
  k = v_if(v_or(v_lec(count, 0), v_lec(prob, 0)), v_const(k, 0), v_if(v_gec(prob, 1), count, k));
  tt_ret(r, 0, v_if(v_or(v_isnan(prob), v_isnan(count)), v_const(k, NAN), k));
}

const tt_rule_entry tt_rules_random_count[] = {
    {.name = "aten::poisson", .build = build_poisson},
    {.name = "aten::binomial", .build = build_binomial},
    {.name = NULL},
};
