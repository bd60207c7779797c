// Random fills, permutations and draws. Distributions are PyTorch's; the numbers come from the device's generator.
#include <float.h>
#include <math.h>
#include <string.h>

#include "aten/dims.h"
#include "aten/random.h"

static tt_hlo number(tt_rule *r, const char *name, tt_dtype dtype) { return tt_scalar(r, name, dtype); }

// The mutated tensor, which must be of a floating (or, if `complex`, complex) type.
static const tt_operand *float_self(tt_rule *r, const char *kernel, bool complex) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (self && !tt_dtype_is_float(self->dtype) && !(complex && tt_dtype_is_complex(self->dtype))) {
    tt_fail_dtype(r, kernel, self->dtype);
    return NULL;
  }
  return self;
}

// ---- numbers among the arguments ----
// They are operands, so that other values need no other program. Whether a value will do is in the key, so that the
// rule, which looks at it, says so at the call.

typedef enum tt_demand { AT_LEAST_0, ABOVE_0, IN_UNIT, INSIDE_UNIT } tt_demand;

static bool meets(tt_demand demand, double x) {
  switch (demand) {
    case AT_LEAST_0:
      return x >= 0;
    case ABOVE_0:
      return x > 0;
    case IN_UNIT:
      return x >= 0 && x <= 1;
    default:
      return x > 0 && x < 1;
  }
}

static int64_t met(const tt_arg *args, int32_t count, int32_t i, tt_demand demand) {
  return i < count && args[i].tag == TT_ARG_NUMBER && !meets(demand, tt_arg_number(&args[i], 0));
}

static int64_t scale_structure(const tt_arg *args, int32_t count) { return met(args, count, 2, AT_LEAST_0); }
static int64_t std_structure(const tt_arg *args, int32_t count) { return met(args, count, 1, AT_LEAST_0); }
static int64_t positive_scale_structure(const tt_arg *args, int32_t count) { return met(args, count, 2, ABOVE_0); }
static int64_t rate_structure(const tt_arg *args, int32_t count) { return met(args, count, 1, ABOVE_0); }
static int64_t inside_structure(const tt_arg *args, int32_t count) { return met(args, count, 1, INSIDE_UNIT); }
static int64_t unit_structure(const tt_arg *args, int32_t count) { return met(args, count, 1, IN_UNIT); }

// As std::ostream prints a double.
static bool demand_number(tt_rule *r, const char *name, tt_demand demand, const char *text, const char *found) {
  double x = tt_number_in_key(r, name, 1);
  if (tt_scalar_type(r, name) != TT_DTYPE_INVALID && !meets(demand, x)) {
    tt_fail(r, TT_ERR_RUNTIME, "%s, but %s%g", text, found, x);
  }
  return !tt_failed(r);
}

// ---- continuous fills ----

static double greatest(tt_dtype dtype) {
  switch (dtype) {
    case TT_F16:
      return 65504;
    case TT_BF16:
      return 0x1.fep127;
    case TT_F64:
    case TT_C128:
      return DBL_MAX;
    default:
      return FLT_MAX;
  }
}

static bool within(double x, double bound) { return x >= -bound && x <= bound; }

static int64_t uniform_structure(const tt_arg *args, int32_t count) {
  if (count < 3 || args[0].tag != TT_ARG_TENSOR) {
    return 0;
  }
  double low = tt_arg_number(&args[1], 0), high = tt_arg_number(&args[2], 1);
  double most = greatest((tt_dtype)args[0].u.tensor.dtype);
  return !within(low, most) || !within(high, most) || low > high || high - low > most;
}

static bool uniform_fits(tt_rule *r, tt_dtype dtype) {
  double low = tt_number_in_key(r, "from", 0), high = tt_number_in_key(r, "to", 1), most = greatest(dtype);
  tt_dtype real = tt_dtype_real(dtype);
  if (!within(low, most) || !within(high, most)) {
    tt_fail(r, TT_ERR_RUNTIME, "%s is out of bounds for %s", within(low, most) ? "to" : "from",
            tt_type_meta_name(real));
  } else if (low > high) {
    tt_fail(r, TT_ERR_RUNTIME, "uniform_ expects to return a [from, to) range, but found from=%g > to=%g", low, high);
  } else if (high - low > most) {
    tt_fail(r, TT_ERR_RUNTIME,
            "uniform_ expects to-from <= std::numeric_limits<%s>::max(), but found to=%g and from=%g which result in "
            "to-from to exceed the limit",
            tt_type_name(real), high, low);
  }
  return !tt_failed(r);
}

static tt_hlo complex_of(tt_hlo real, tt_dtype dtype) {
  return tt_dtype_is_complex(dtype) ? tt_hlo_complex(real, real) : real;
}

static void build_uniform(tt_rule *r) {
  const tt_operand *self = float_self(r, "check_uniform_bounds", true);
  if (!self || !uniform_fits(r, self->dtype)) {
    return;
  }
  tt_dtype compute = tt_opmath(self->dtype), real = tt_dtype_real(compute);
  tt_hlo low = number(r, "from", real), high = number(r, "to", real);
  tt_hlo u = tt_random_uniform(r, self->dtype, self->sizes, self->ndim);
  u = tt_cast(u, compute);
  tt_hlo scale = complex_of(v_sub(high, low), compute), offset = complex_of(low, compute);
  if (tt_dtype_is_complex(compute)) {  // the parts are scaled by a real number
    scale = tt_cast(v_sub(high, low), compute);
  }
  tt_hlo value = v_add(v_mul(u, v_like(scale, u)), v_like(offset, u));
  if (!tt_dtype_is_complex(compute)) {  // rounding must not reach the open end
    tt_hlo rounded = tt_cast(tt_cast(value, self->dtype), compute);
    value = v_if(v_ge(rounded, v_like(high, u)), v_like(low, u), value);
  }
  tt_ret(r, 0, tt_cast(value, self->dtype));
}

static tt_hlo std_checked(tt_rule *r, tt_dtype real) {
  if (!demand_number(r, "std", AT_LEAST_0, "normal expects std >= 0.0", "found std ")) {
    return NULL;
  }
  tt_hlo std = tt_in_number(r, "std", real);
  if (tt_scalar_type(r, "std") == TT_DTYPE_INVALID) {
    tt_device_assert(r, v_gec(std, 0), TT_ERR_RUNTIME, "normal expects all elements of std >= 0.0");
  }
  return std;
}

static void build_normal_(tt_rule *r) {
  const tt_operand *self = float_self(r, "normal_kernel_cpu", true);
  if (!self) {
    return;
  }
  tt_dtype compute = tt_opmath(self->dtype), real = tt_dtype_real(compute);
  tt_hlo z = tt_random_normal(r, compute, self->sizes, self->ndim);
  tt_hlo mean = complex_of(number(r, "mean", real), compute);
  tt_hlo std = tt_cast(std_checked(r, real), compute);
  tt_ret(r, 0, tt_cast(v_add(v_mul(z, v_like(std, z)), v_like(mean, z)), self->dtype));
}

// normal with a tensor for the mean, the deviation, or both.
static void build_normal(tt_rule *r) {
  const tt_operand *mean = tt_scalar_type(r, "mean") == TT_DTYPE_INVALID ? tt_operand_of(r, "mean") : NULL;
  const tt_operand *std = tt_scalar_type(r, "std") == TT_DTYPE_INVALID ? tt_operand_of(r, "std") : NULL;
  tt_dtype dtype = mean ? mean->dtype : std ? std->dtype : TT_F32;
  if (std && tt_dtype_is_complex(std->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "normal expects standard deviation to be non-complex");
    return;
  }
  dtype = tt_asked_dtype(r, dtype);
  if (tt_is_integral(dtype)) {
    tt_fail_dtype(r, "normal_kernel_cpu", dtype);
    return;
  }
  tt_dtype compute = tt_opmath(dtype);
  tt_hlo xs[2] = {tt_in_number(r, "mean", compute), tt_cast(std_checked(r, tt_dtype_real(compute)), compute)};
  if (!tt_broadcast(r, xs, 2)) {
    return;
  }
  tt_hlo z = tt_random_normal(r, compute, xs[0]->dims, xs[0]->rank);
  tt_ret(r, 0, tt_cast(v_add(v_mul(z, xs[1]), xs[0]), dtype));
}

enum { E_EXPONENTIAL, E_CAUCHY, E_LOG_NORMAL, E_GEOMETRIC };

static bool draw_fits(tt_rule *r, int32_t kind) {
  switch (kind) {
    case E_LOG_NORMAL:
      return demand_number(r, "std", ABOVE_0, "log_normal_ expects std > 0.0", "found std=");
    case E_EXPONENTIAL:
      return demand_number(r, "lambd", ABOVE_0, "exponential_ expects lambda > 0.0", "found lambda=");
    case E_CAUCHY:
      return demand_number(r, "sigma", ABOVE_0, "cauchy_ expects sigma > 0.0", "found sigma=");
    default:
      return demand_number(r, "p", INSIDE_UNIT, "geometric_ expects p to be in (0, 1)", "got p=");
  }
}

static tt_hlo draw(tt_rule *r, int32_t kind, tt_dtype compute, const tt_operand *self) {
  if (kind == E_LOG_NORMAL) {
    tt_hlo z = tt_random_normal(r, compute, self->sizes, self->ndim);
    return v_exp(v_add(v_mul(z, v_like(number(r, "std", compute), z)), v_like(number(r, "mean", compute), z)));
  }
  tt_hlo u = tt_open_uniform(r, compute, self->sizes, self->ndim);
  if (kind == E_EXPONENTIAL) {
    return v_div(v_neg(v_log(u)), v_like(number(r, "lambd", compute), u));
  }
  if (kind == E_CAUCHY) {
    tt_hlo t = tt_hlo_unary(TT_TAN, v_mulc(v_addc(u, -0.5), M_PI));
    return v_add(v_mul(t, v_like(number(r, "sigma", compute), u)), v_like(number(r, "median", compute), u));
  }
  tt_hlo p = number(r, "p", compute);
  return tt_hlo_unary(TT_CEIL, v_div(v_log(u), v_like(tt_hlo_unary(TT_LOG1P, v_neg(p)), u)));
}

static void build_draw(tt_rule *r) {
  static const char *const names[] = {"Exponential", "Cauchy", "LogNormal"};
  int32_t kind = tt_rule_kind(r);
  const tt_operand *self = tt_operand_of(r, "self");
  if (!self) {
    return;
  }
  bool whole = kind == E_GEOMETRIC && tt_dtype_is_int(self->dtype);
  if (!tt_dtype_is_float(self->dtype) && !whole) {
    if (kind == E_GEOMETRIC) {
      tt_fail_dtype(r, "geometric_cpu", self->dtype);
    } else {
      tt_fail(r, TT_ERR_RUNTIME,
              "%s distribution is a continuous probability distribution. dtype must be a floating point but you "
              "specified %s",
              names[kind], kind == E_EXPONENTIAL ? tt_type_name(self->dtype) : tt_type_meta_name(self->dtype));
    }
    return;
  }
  if (!draw_fits(r, kind)) {
    return;
  }
  tt_ret(r, 0, tt_cast(draw(r, kind, whole ? TT_F32 : tt_opmath(self->dtype), self), self->dtype));
}

// ---- bernoulli ----

static tt_hlo bernoulli_of(tt_rule *r, tt_hlo p, const int64_t *dims, int32_t rank) {
  return p ? v_lt(tt_random_uniform(r, p->dtype, dims, rank), tt_hlo_broadcast_to(p, dims, rank)) : NULL;
}

// Probabilities of a floating type, checked on the device.
static tt_hlo probabilities(tt_rule *r, const char *name) {
  const tt_operand *by = tt_operand_of(r, name);
  if (by && !tt_dtype_is_float(by->dtype)) {
    tt_fail_dtype(r, "bernoulli_tensor_cpu_p_", by->dtype);
    return NULL;
  }
  tt_hlo p = by ? tt_in_as(r, name, tt_opmath(by->dtype)) : NULL;
  tt_device_assert(r, v_and(v_gec(p, 0), v_lec(p, 1)), TT_ERR_RUNTIME, "bernoulli_ expects p to be in [0, 1]");
  return p;
}

static void build_bernoulli_(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!self) {
    return;
  }
  tt_hlo p;
  if (tt_scalar_type(r, "p") == TT_DTYPE_INVALID) {
    p = probabilities(r, "p");
    tt_hlo shape[2] = {p, tt_hlo_const(tt_b(r), TT_PRED, 0, self->sizes, self->ndim)};
    tt_broadcast(r, shape, 2);
  } else {
    demand_number(r, "p", IN_UNIT, "bernoulli_ expects p to be in [0, 1]", "got p=");
    p = number(r, "p", TT_F32);
  }
  if (tt_dtype_is_complex(self->dtype)) {
    tt_fail_dtype(r, "bernoulli_scalar_cpu_", self->dtype);
  }
  if (!tt_failed(r)) {
    tt_ret(r, 0, tt_cast(bernoulli_of(r, p, self->sizes, self->ndim), self->dtype));
  }
}

static void build_bernoulli(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  tt_hlo p = probabilities(r, "self");
  if (p) {
    tt_ret_like(r, 0, tt_cast(bernoulli_of(r, p, self->sizes, self->ndim), self->dtype), "self");
  }
}

// Zeros and ones of any type, which the functional form has no say in.
static void build_bernoulli_out(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self"), *out = tt_operand_of(r, "out");
  if (out && tt_dtype_is_complex(out->dtype)) {
    tt_fail_dtype(r, "bernoulli_tensor_cpu_self_", out->dtype);
    return;
  }
  tt_hlo p = probabilities(r, "self");
  if (p && out) {
    tt_ret(r, 0, tt_cast(bernoulli_of(r, p, self->sizes, self->ndim), out->dtype));
  }
}

// ---- integers ----

// How many bits of a whole number a type holds.
static int32_t digits_of(tt_dtype dtype) {
  switch (dtype) {
    case TT_PRED:
      return 1;
    case TT_F16:
      return 11;
    case TT_BF16:
      return 8;
    case TT_F32:
      return 24;
    case TT_F64:
      return 53;
    default:
      return (int32_t)(8 * tt_dtype_size(dtype)) - (tt_dtype_is_signed_int(dtype) ? 1 : 0);
  }
}

// low + bits % range; a range of 0 stands for 2^64. Numbers below 2^k % range come out more often than the others, by
// range / 2^k at most: 32 bits do for small ranges and for powers of two, which divide 2^k.
static tt_hlo whole_numbers(tt_rule *r, const tt_operand *self, int64_t low, uint64_t range) {
  bool divides = range <= (uint64_t)1 << 31 && (range & (range - 1)) == 0;
  bool wide = range == 0 || (range > 1 << 16 && !divides);
  tt_dtype bits_type = wide ? TT_U64 : TT_U32;
  tt_hlo bits = tt_random_bits(r, bits_type, self->sizes, self->ndim);
  if (range != 0) {
    // Through s64, which wraps: half of the u64 have no constant of their own.
    tt_hlo limit = tt_hlo_const_int(tt_b(r), TT_S64, (int64_t)range, self->sizes, self->ndim);
    limit = tt_hlo_convert(limit, bits_type);
    bits = tt_hlo_binary(TT_REMAINDER, bits, limit);
  }
  tt_hlo value = tt_hlo_convert(bits, TT_S64);
  value = v_add(value, tt_hlo_const_int(tt_b(r), TT_S64, low, self->sizes, self->ndim));
  return tt_cast(value, self->dtype);
}

// Whether `x` is a value of the type (of a float type: a whole number it can tell from its neighbours is not asked).
static bool in_type(tt_dtype dtype, int64_t x) {
  if (dtype == TT_PRED) {
    return x == 0 || x == 1;
  }
  if (!tt_dtype_is_int(dtype)) {
    return dtype != TT_F16 || (x >= -65504 && x <= 65504);
  }
  int32_t digits = digits_of(dtype);
  bool is_signed = tt_dtype_is_signed_int(dtype);
  int64_t most = digits >= 63 ? INT64_MAX : ((int64_t)1 << digits) - 1;
  return x <= most && x >= (is_signed ? -most - 1 : 0);
}

static void random_between(tt_rule *r, const tt_operand *self, int64_t low, int64_t high) {
  if (low >= high) {
    tt_fail(r, TT_ERR_RUNTIME, "random_ expects 'from' to be less than 'to', but got from=%lld >= to=%lld",
            (long long)low, (long long)high);
  } else if (!in_type(self->dtype, low)) {
    tt_fail(r, TT_ERR_RUNTIME, "from is out of bounds for %s", tt_type_meta_name(self->dtype));
  } else if (!in_type(self->dtype, high - 1)) {
    tt_fail(r, TT_ERR_RUNTIME, "to - 1 is out of bounds for %s", tt_type_meta_name(self->dtype));
  } else {
    tt_ret(r, 0, whole_numbers(r, self, low, (uint64_t)high - (uint64_t)low));
  }
}

enum { R_PLAIN, R_FROM, R_TO };

static void build_random(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!self) {
    return;
  }
  if (tt_dtype_is_complex(self->dtype)) {
    tt_fail_dtype(r, "random_kernel_cpu", self->dtype);
    return;
  }
  int32_t kind = tt_rule_kind(r);
  if (kind == R_TO) {
    random_between(r, self, 0, tt_int(r, "to", 0));
    return;
  }
  int32_t digits = digits_of(self->dtype);
  bool is_float = tt_dtype_is_float(self->dtype);
  if (kind == R_PLAIN) {  // floats: up to 2^digits, which they still hold
    tt_ret(r, 0, whole_numbers(r, self, 0, digits == 64 ? 0 : ((uint64_t)1 << digits) + is_float));
    return;
  }
  int64_t low = tt_int(r, "from", 0);
  if (tt_has(r, "to")) {
    random_between(r, self, low, tt_int(r, "to", 0));
    return;
  }
  if (!in_type(self->dtype, low)) {
    tt_fail(r, TT_ERR_RUNTIME, "from is out of bounds for %s", tt_type_meta_name(self->dtype));
    return;
  }
  // Up to the greatest whole number of the type, from the lowest s64: 2^64 of them.
  uint64_t past = digits >= 64 ? (uint64_t)1 << 63 : ((uint64_t)1 << digits) + is_float;
  tt_ret(r, 0, whole_numbers(r, self, low, past - (uint64_t)low));
}

static void build_randperm(tt_rule *r) {
  const tt_operand *out = tt_operand_of(r, "out");
  int64_t n = tt_int(r, "n", 0);
  if (n < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "n must be non-negative, got%lld", (long long)n);
    return;
  }
  if (!out) {
    return;
  }
  int32_t digits = digits_of(out->dtype);
  if (tt_dtype_is_float(out->dtype) && n > ((int64_t)1 << digits) + 1) {
    tt_fail(r, TT_ERR_RUNTIME, "n cannot be greater than %lld for %s type.", ((long long)1 << digits) + 1,
            tt_type_name(out->dtype));
    return;
  }
  if (tt_is_integral(out->dtype) && digits < 62 && n - 1 > ((int64_t)1 << digits) - 1) {
    tt_fail_overflow(r, out->dtype);
    return;
  }
  if (n == 0) {
    tt_ret(r, 0, tt_hlo_const(tt_b(r), out->dtype, 0, &n, 1));
    return;
  }
  tt_hlo keys = tt_random_bits(r, TT_U64, &n, 1);
  tt_hlo places = tt_hlo_iota(tt_b(r), n <= INT32_MAX ? TT_S32 : TT_S64, &n, 1, 0);
  tt_hlo sorted[2] = {NULL, NULL};
  tt_hlo_sort((const tt_hlo[]){keys, places}, 2, 0, false, false, false, sorted);
  tt_ret(r, 0, tt_cast(sorted[1], out->dtype));
}

// ---- multinomial ----

static bool multinomial_fits(tt_rule *r, const tt_operand *self, int64_t samples, bool replacement) {
  const tt_operand *out = tt_operand_of(r, "out");
  if (self->ndim < 1 || self->ndim > 2) {
    tt_fail(r, TT_ERR_RUNTIME, "prob_dist must be 1 or 2 dim");
  } else if (!tt_dtype_is_float(self->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "multinomial only supports floating-point dtypes for input, got: %s",
            tt_type_name(self->dtype));
  } else if (samples <= 0) {
    tt_fail(r, TT_ERR_RUNTIME, "cannot sample n_sample <= 0 samples");
  } else if (!replacement && samples > self->sizes[self->ndim - 1]) {
    tt_fail(r, TT_ERR_RUNTIME, "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  } else if (self->sizes[self->ndim - 1] > (int64_t)1 << 24) {
    tt_fail(r, TT_ERR_RUNTIME, "number of categories cannot exceed 2^24");
  } else if (out && out->dtype != TT_S64) {
    tt_fail(r, TT_ERR_RUNTIME, "multinomial expects Long tensor out, got: %s", tt_type_name(out->dtype));
  }
  return !tt_failed(r);
}

// p / Exponential(1) orders the categories like sampling without replacement: the greatest is the first draw.
static tt_hlo draw_without(tt_rule *r, tt_hlo p, int64_t samples) {
  tt_hlo noise = v_neg(v_log(tt_open_uniform(r, p->dtype, p->dims, p->rank)));
  tt_hlo keys = v_div(p, noise);
  tt_hlo places = tt_hlo_iota(tt_b(r), TT_S32, p->dims, 2, 1);
  if (samples > 1) {
    tt_hlo sorted[2] = {NULL, NULL};
    tt_hlo_sort((const tt_hlo[]){keys, places}, 2, 1, true, false, false, sorted);
    return tt_hlo_slice_dim(sorted[1], 1, 0, samples, 1);
  }
  const bool mask[2] = {false, true};
  tt_hlo best = tt_expand_reduced(tt_reduce_mask(TT_MAX, keys, mask), p->dims, 2, mask);
  tt_hlo place = v_if(v_ge(keys, best), places, v_const(places, (double)(p->dims[1] - 1)));
  return tt_keepdim(tt_reduce_mask(TT_MIN, place, mask), p, mask);
}

// Inversion: the first category of a positive weight whose running sum is above a uniform number. Running sums round,
// so that the last one may not be: then the last category of a positive weight.
static tt_hlo draw_with(tt_rule *r, tt_hlo p, int64_t samples) {
  tt_hlo sums = tt_running(TT_SUM, p, 1);
  const int64_t rows = p->dims[0], categories = p->dims[1];
  const int64_t draws[] = {rows, samples}, cube[] = {rows, samples, categories};
  const int32_t of_row[] = {0, 2}, of_draw[] = {0, 1}, last = 2;
  tt_hlo total = tt_hlo_slice_dim(sums, 1, categories - 1, categories, 1);
  tt_hlo u = v_mul(tt_open_uniform(r, p->dtype, draws, 2), tt_hlo_broadcast_to(total, draws, 2));
  tt_hlo above = v_gt(tt_hlo_broadcast_in_dim(sums, cube, 3, of_row), tt_hlo_broadcast_in_dim(u, cube, 3, of_draw));
  tt_hlo possible = v_gtc(p, 0), places = tt_hlo_iota(tt_b(r), TT_S32, p->dims, 2, 1);
  tt_hlo greatest = tt_hlo_reduce(TT_MAX, v_if(possible, places, v_const(places, 0)), (const int32_t[]){1}, 1);
  tt_hlo fallback = tt_hlo_broadcast_in_dim(greatest, draws, 2, (const int32_t[]){0});
  tt_hlo chosen = v_and(above, tt_hlo_broadcast_in_dim(possible, cube, 3, of_row));
  tt_hlo place = tt_hlo_iota(tt_b(r), TT_S32, cube, 3, 2);
  tt_hlo first = tt_hlo_reduce(TT_MIN, v_if(chosen, place, v_const(place, (double)INT32_MAX)), &last, 1);
  return v_min(first, fallback);
}

static void build_multinomial(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  int64_t samples = tt_int(r, "num_samples", 0);
  bool replacement = tt_bool(r, "replacement", false);
  if (!self || !multinomial_fits(r, self, samples, replacement)) {
    return;
  }
  const int64_t categories = self->sizes[self->ndim - 1], rows = self->ndim == 2 ? self->sizes[0] : 1;
  const int64_t result[] = {rows, samples};
  const int64_t *dims = self->ndim == 2 ? result : result + 1;
  if (rows == 0 || categories == 0) {
    tt_ret(r, 0, tt_hlo_const(tt_b(r), TT_S64, 0, dims, self->ndim));
    return;
  }
  tt_hlo p = tt_hlo_reshape(tt_in_as(r, "self", tt_opmath(self->dtype)), (const int64_t[]){rows, categories}, 2);
  if (!p) {
    return;
  }
  tt_device_assert(r, v_and(tt_hlo_unary(TT_IS_FINITE, p), v_gec(p, 0)), TT_ERR_RUNTIME,
                   "probability tensor contains either `inf`, `nan` or element < 0");
  const bool mask[2] = {false, true};
  tt_hlo sum = tt_reduce_mask(TT_SUM, p, mask);
  tt_device_assert(r, v_gtc(sum, 0), TT_ERR_RUNTIME, "invalid multinomial distribution (sum of probabilities <= 0)");
  tt_hlo index = samples == 1 || !replacement ? draw_without(r, p, samples) : draw_with(r, p, samples);
  tt_ret(r, 0, tt_hlo_reshape(tt_cast(index, TT_S64), dims, self->ndim));
}

#define KIND(op_name, function, which) {.name = "aten::" op_name, .build = function, .kind = which}
#define CHECKED(op_name, function, which, in_key) \
  {.name = "aten::" op_name, .build = function, .kind = which, .structure = in_key}

const tt_rule_entry tt_rules_random[] = {
    CHECKED("uniform_", build_uniform, 0, uniform_structure),
    CHECKED("normal_", build_normal_, 0, scale_structure),
    {.name = "aten::normal.Tensor_float", .build = build_normal, .structure = std_structure, .out_dtype = TT_OUT_ANY},
    {.name = "aten::normal.float_Tensor", .build = build_normal, .out_dtype = TT_OUT_ANY},
    {.name = "aten::normal.Tensor_Tensor", .build = build_normal, .out_dtype = TT_OUT_ANY},
    CHECKED("exponential_", build_draw, E_EXPONENTIAL, rate_structure),
    CHECKED("cauchy_", build_draw, E_CAUCHY, positive_scale_structure),
    CHECKED("log_normal_", build_draw, E_LOG_NORMAL, positive_scale_structure),
    CHECKED("geometric_", build_draw, E_GEOMETRIC, inside_structure),
    CHECKED("bernoulli_.float", build_bernoulli_, 0, unit_structure),
    KIND("bernoulli_.Tensor", build_bernoulli_, 0),
    KIND("bernoulli.out", build_bernoulli_out, 0),
    KIND("bernoulli", build_bernoulli, 0),
    KIND("random_", build_random, R_PLAIN),
    KIND("random_.from", build_random, R_FROM),
    KIND("random_.to", build_random, R_TO),
    KIND("randperm.generator_out", build_randperm, 0),
    KIND("multinomial", build_multinomial, 0),
    {.name = NULL},
};
