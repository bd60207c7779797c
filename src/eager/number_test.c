// Number conversions against reference arithmetic: small floats by looking for the nearest of all values of the type,
// integers by 128-bit arithmetic.
#include "eager/number.h"

#include <float.h>
#include <math.h>

#include "base/test.h"

static uint64_t seed = 0x9e3779b97f4a7c15u;
static uint64_t next(void) {
  seed ^= seed << 13;
  seed ^= seed >> 7;
  return seed ^= seed << 17;
}

static tt_number of_double(double d) { return (tt_number){.type = TT_F64, .u.f = {d}}; }
static tt_number of_int(int64_t i) { return (tt_number){.type = TT_S64, .u.i = i}; }

// ---- small floats ----
typedef struct format {
  tt_dtype dtype;
  int mantissa_bits, bias, max_finite;  // max_finite: the pattern of the largest value
  bool has_inf;
} format;

static const format formats[] = {{TT_F16, 10, 15, 0x7bff, true},
                                 {TT_BF16, 7, 127, 0x7f7f, true},
                                 {TT_F8E4M3FN, 3, 7, 0x7e, false},
                                 {TT_F8E5M2, 2, 15, 0x7b, true}};
enum { FORMAT_COUNT = sizeof formats / sizeof *formats };

// The value of a positive pattern; the one after the largest is what it would be without infinities.
static double value_of(const format *f, int pattern) {
  int exponent = pattern >> f->mantissa_bits, mantissa = pattern & ((1 << f->mantissa_bits) - 1);
  double scale = exp2((exponent ? exponent : 1) - f->bias - f->mantissa_bits);
  return (mantissa + (exponent ? 1 << f->mantissa_bits : 0)) * scale;
}

// The pattern of the nearest value of |x|, ties to the even pattern; max_finite + 1 for too much.
static int nearest(const format *f, double x) {
  int low = 0, high = f->max_finite + 1;
  if (x >= value_of(f, high)) {
    return high;
  }
  while (high - low > 1) {
    int middle = (low + high) / 2;
    *(value_of(f, middle) <= x ? &low : &high) = middle;
  }
  double below = x - value_of(f, low), above = value_of(f, high) - x;  // exact: neighbours of a float
  return below < above ? low : below > above ? high : low % 2 == 0 ? low : high;
}

static unsigned bits_of(const tt_number *n, tt_dtype dtype) {
  unsigned char out[16];
  memset(out, 0xee, sizeof out);
  double largest = dtype == TT_F16 ? 65504 : dtype == TT_BF16 ? 0x1.fep127 : dtype == TT_F8E4M3FN ? 448 : 57344;
  bool fits = n->type != TT_F64 || !isfinite(n->u.f[0]) || fabs(n->u.f[0]) <= largest;
  CHECK_INT(tt_number_to_bytes(n, dtype, true, out), fits);
  CHECK(tt_number_to_bytes(n, dtype, false, out));
  for (size_t i = tt_dtype_size(dtype); i < 16; i++) {
    CHECK_INT(out[i], 0);  // scalars are interned by all sixteen
  }
  return tt_dtype_size(dtype) == 1 ? out[0] : (unsigned)(out[0] | out[1] << 8);
}

static void check_value(const format *f, double d) {
  float x = (float)d;  // PyTorch's way: through float
  tt_number n = of_double(d);
  unsigned got = bits_of(&n, f->dtype), sign = 1u << (8 * tt_dtype_size(f->dtype) - 1);
  int want = nearest(f, fabs((double)x));
  bool too_much = want > f->max_finite;
  if (too_much && !f->has_inf) {
    CHECK(isnan(tt_number_from_bytes(&got, f->dtype).u.f[0]));
    return;
  }
  unsigned pattern = (unsigned)want | (signbit(x) ? sign : 0);
  if (got != pattern) {
    tt_test_fail(__FILE__, __LINE__, "%.17g as %s is 0x%x, wanted 0x%x", d, tt_dtype_torch_name(f->dtype), got,
                 pattern);
  }
  double back = tt_number_from_bytes(&got, f->dtype).u.f[0];
  double wanted = copysign(too_much ? INFINITY : value_of(f, want), (double)x);
  CHECK(back == wanted && signbit(back) == signbit(wanted));
}

static void check_near(const format *f, double d) {
  float x = (float)d;
  for (int sign = -1; sign <= 1; sign += 2) {
    check_value(f, sign * (double)x);
    check_value(f, sign * (double)nextafterf(x, INFINITY));
    check_value(f, sign * (double)nextafterf(x, 0));
  }
}

static void test_every_value_and_midpoint(void) {
  for (int i = 0; i < FORMAT_COUNT; i++) {
    const format *f = &formats[i];
    for (int pattern = 0; pattern <= f->max_finite; pattern++) {
      double low = value_of(f, pattern), high = value_of(f, pattern + 1);
      check_near(f, low);
      check_near(f, low + (high - low) / 2);
    }
    check_near(f, value_of(f, f->max_finite + 1));
  }
}

static void test_random_floats(void) {
  for (int i = 0; i < FORMAT_COUNT; i++) {
    for (int j = 0; j < 20000; j++) {
      uint32_t bits = (uint32_t)next();
      float x;
      memcpy(&x, &bits, sizeof x);
      if (!isnan(x)) {
        check_value(&formats[i], (double)x);
      }
      check_value(&formats[i], ldexp((double)(int64_t)next(), -(int)(next() % 90)));
    }
  }
}

static void test_specials(void) {
  for (int i = 0; i < FORMAT_COUNT; i++) {
    const format *f = &formats[i];
    tt_number n = of_double(NAN);
    unsigned bits = bits_of(&n, f->dtype);
    CHECK(isnan(tt_number_from_bytes(&bits, f->dtype).u.f[0]));
    for (int sign = -1; sign <= 1; sign += 2) {
      n = of_double(sign * INFINITY);
      bits = bits_of(&n, f->dtype);
      double back = tt_number_from_bytes(&bits, f->dtype).u.f[0];
      CHECK(f->has_inf ? back == sign * INFINITY : isnan(back));
      n = of_double(sign * DBL_MAX);
      bits = bits_of(&n, f->dtype);
      back = tt_number_from_bytes(&bits, f->dtype).u.f[0];
      CHECK(f->has_inf ? back == sign * INFINITY : isnan(back));
      check_value(f, sign * 0.0);
      check_value(f, sign * DBL_TRUE_MIN);
    }
    n = of_int(3);
    bits = bits_of(&n, f->dtype);
    CHECK(tt_number_from_bytes(&bits, f->dtype).u.f[0] == 3);
    n = (tt_number){.type = TT_PRED, .u.i = 1};
    bits = bits_of(&n, f->dtype);
    CHECK(tt_number_from_bytes(&bits, f->dtype).u.f[0] == 1);
  }
}

// Every pattern of a small type, read and written again, is itself.
static void test_round_trip(void) {
  for (int i = 0; i < FORMAT_COUNT; i++) {
    tt_dtype dtype = formats[i].dtype;
    for (unsigned pattern = 0; pattern < 1u << (8 * tt_dtype_size(dtype)); pattern++) {
      tt_number n = tt_number_from_bytes(&pattern, dtype);
      CHECK_INT(n.type, TT_F64);
      unsigned back = bits_of(&n, dtype);
      if (isnan(n.u.f[0])) {
        CHECK(isnan(tt_number_from_bytes(&back, dtype).u.f[0]));
      } else if (back != pattern) {
        tt_test_fail(__FILE__, __LINE__, "0x%x of %s became 0x%x", pattern, tt_dtype_torch_name(dtype), back);
      }
    }
  }
}

// ---- wide floats and complex ----
static void test_wide(void) {
  unsigned char out[16];
  for (int i = 0; i < 10000; i++) {
    double d = ldexp((double)(int64_t)next(), (int)(next() % 200) - 160), back;
    float f;
    tt_number n = {.type = TT_C128, .u.f = {d, -d / 3}}, real = of_double(d);
    CHECK(tt_number_to_bytes(&n, TT_C128, true, out));
    CHECK(!memcmp(out, n.u.f, 16));
    tt_number again = tt_number_from_bytes(out, TT_C128);
    CHECK(again.type == TT_C128 && again.u.f[0] == d && again.u.f[1] == -d / 3);
    CHECK(tt_number_to_bytes(&n, TT_C64, false, out));
    memcpy(&f, out, 4);
    CHECK(f == (float)d);
    memcpy(&f, out + 4, 4);
    CHECK(f == (float)(-d / 3));
    again = tt_number_from_bytes(out, TT_C64);
    CHECK(again.u.f[0] == (double)(float)d && again.u.f[1] == (double)(float)(-d / 3));
    CHECK(tt_number_to_bytes(&real, TT_F64, true, out));
    memcpy(&back, out, 8);
    CHECK(back == d && tt_number_from_bytes(out, TT_F64).u.f[0] == d);
    CHECK_INT(tt_number_to_bytes(&real, TT_F32, true, out), fabs(d) <= FLT_MAX);
    CHECK(tt_number_to_bytes(&real, TT_F32, false, out));
    memcpy(&f, out, 4);
    CHECK(f == (float)d && tt_number_from_bytes(out, TT_F32).u.f[0] == (double)f);
    CHECK(tt_number_to_bytes(&n, TT_F64, true, out));  // a complex number's real part
    memcpy(&back, out, 8);
    CHECK(back == d);
  }
  // Integers beyond 53 bits go to float in one rounding.
  tt_number n = of_int((1LL << 62) + (1LL << 38) + 1);
  float f;
  CHECK(tt_number_to_bytes(&n, TT_F32, true, out));
  memcpy(&f, out, 4);
  CHECK(f == (float)((1LL << 62) + (1LL << 38) + 1));
}

// ---- integers ----
typedef struct int_type {
  tt_dtype dtype;
  __int128 low, high;  // what a checked conversion takes
} int_type;

static void check_int(const int_type *type, int64_t i) {
  unsigned char out[16], want[16] = {0};
  tt_number n = of_int(i);
  size_t size = tt_dtype_size(type->dtype);
  uint64_t bits = (uint64_t)i;
  for (size_t b = 0; b < size; b++) {
    want[b] = (unsigned char)(bits >> (8 * b));
  }
  bool fits = i >= type->low && i <= type->high;
  CHECK_INT(tt_number_to_bytes(&n, type->dtype, true, out), fits);
  CHECK(tt_number_to_bytes(&n, type->dtype, false, out));  // wraps
  CHECK(!memcmp(out, want, 16));
  if (fits && i >= 0) {
    tt_number back = tt_number_from_bytes(out, type->dtype);
    CHECK(back.type == TT_S64 && back.u.i == i);
  }
}

static void test_integers(void) {
  // Unsigned types take the negative of what they hold, as PyTorch does for -x.
  static const int_type types[] = {{TT_S8, INT8_MIN, INT8_MAX},
                                   {TT_S16, INT16_MIN, INT16_MAX},
                                   {TT_S32, INT32_MIN, INT32_MAX},
                                   {TT_S64, INT64_MIN, INT64_MAX},
                                   {TT_U8, -UINT8_MAX, UINT8_MAX},
                                   {TT_U16, -UINT16_MAX, UINT16_MAX},
                                   {TT_U32, -(__int128)UINT32_MAX, UINT32_MAX},
                                   {TT_U64, INT64_MIN, INT64_MAX}};
  for (size_t t = 0; t < sizeof types / sizeof *types; t++) {
    const int_type *type = &types[t];
    for (int64_t near = -2; near <= 2; near++) {
      check_int(type, near);
      check_int(type, (int64_t)((uint64_t)type->low + (uint64_t)near));
      check_int(type, (int64_t)((uint64_t)type->high + (uint64_t)near));
    }
    for (int i = 0; i < 2000; i++) {
      check_int(type, (int64_t)next() >> (next() % 64));
    }
    // Floats truncate. Negative ones are out of an unsigned type's range; unchecked, they wrap.
    unsigned char out[16];
    tt_number n = of_double(-3.99), back;
    size_t size = tt_dtype_size(type->dtype);
    bool is_signed = tt_dtype_is_signed_int(type->dtype);
    CHECK_INT(tt_number_to_bytes(&n, type->dtype, true, out), is_signed);
    CHECK(tt_number_to_bytes(&n, type->dtype, false, out));
    back = tt_number_from_bytes(out, type->dtype);
    CHECK_INT(back.u.i, is_signed || size == 8 ? -3 : (1LL << (8 * size)) - 3);
    n = of_double((double)type->high + 0.5);
    CHECK_INT(tt_number_to_bytes(&n, type->dtype, true, out), size == 8);  // a double has no such half
    n = of_double(100.75);
    CHECK(tt_number_to_bytes(&n, type->dtype, true, out));
    CHECK_INT(tt_number_from_bytes(out, type->dtype).u.i, 100);
    // No integer holds these; unchecked, anything may come but nothing breaks.
    static const double extremes[] = {1e300, -1e300, INFINITY, -INFINITY, NAN, 9223372036854775808.0};
    for (size_t i = 0; i < sizeof extremes / sizeof *extremes; i++) {
      n = of_double(extremes[i]);
      if (type->dtype != TT_S64 && type->dtype != TT_U64) {
        CHECK(!tt_number_to_bytes(&n, type->dtype, true, out));
      }
      CHECK(tt_number_to_bytes(&n, type->dtype, false, out));
    }
    // More than INT64_MAX.
    n = (tt_number){.type = TT_U64, .u.i = (int64_t)(UINT64_MAX - 2)};
    CHECK_INT(tt_number_to_bytes(&n, type->dtype, true, out), type->dtype == TT_U64);
    if (type->dtype == TT_U64) {
      back = tt_number_from_bytes(out, TT_U64);
      CHECK(back.type == TT_U64 && (uint64_t)back.u.i == UINT64_MAX - 2);
    }
    // A bool.
    n = (tt_number){.type = TT_PRED, .u.i = 1};
    CHECK(tt_number_to_bytes(&n, type->dtype, true, out));
    CHECK_INT(tt_number_from_bytes(out, type->dtype).u.i, 1);
  }
}

static void test_bool(void) {
  static const struct {
    tt_number number;
    bool want;
  } cases[] = {{{TT_S64, {.i = 0}}, false},       {{TT_S64, {.i = 256}}, true},   {{TT_F64, {.f = {-0.0}}}, false},
               {{TT_F64, {.f = {1e-300}}}, true}, {{TT_F64, {.f = {NAN}}}, true}, {{TT_C128, {.f = {0, 0}}}, false},
               {{TT_C128, {.f = {0, 1}}}, true},  {{TT_PRED, {.i = 1}}, true}};
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    unsigned char out[16];
    CHECK(tt_number_to_bytes(&cases[i].number, TT_PRED, true, out));
    CHECK_INT(out[0], cases[i].want);
    tt_number back = tt_number_from_bytes(out, TT_PRED);
    CHECK(back.type == TT_PRED && back.u.i == cases[i].want);
  }
}

TEST_MAIN(TEST(test_every_value_and_midpoint), TEST(test_random_floats), TEST(test_specials), TEST(test_round_trip),
          TEST(test_wide), TEST(test_integers), TEST(test_bool))
