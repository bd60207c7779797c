// Numbers as MLIR literals that give back exactly the value an element type holds.
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "hlo/internal.h"

// The bits of infinity and NaN, and what rounding to the type needs.
typedef struct float_format {
  int precision;  // bits of the significand, the hidden one included
  int min_exponent;
  double max;
  uint64_t infinity, nan, sign;  // infinity 0: there is none, the greatest value stands for it, as in PyTorch
  int hex_digits;
} float_format;

static const float_format formats[TT_DTYPE_COUNT] = {
    [TT_F16] = {11, -14, 65504.0, 0x7C00, 0x7E00, 0x8000, 4},
    [TT_BF16] = {8, -126, 0x1.FEp127, 0x7F80, 0x7FC0, 0x8000, 4},
    [TT_F32] = {24, -126, 0x1.FFFFFEp127, 0x7F800000, 0x7FC00000, 0x80000000, 8},
    [TT_F64] = {53, -1022, 0x1.FFFFFFFFFFFFFp1023, 0x7FF0000000000000, 0x7FF8000000000000, 0x8000000000000000, 16},
    [TT_F8E4M3FN] = {4, -6, 448.0, 0, 0x7F, 0x80, 2},
    [TT_F8E5M2] = {3, -14, 57344.0, 0x7C, 0x7E, 0x80, 2},
};

// To the nearest value of the type, ties to even. Types narrower than float go through float, as PyTorch's do.
static double round_to(const float_format *format, tt_dtype dtype, double value) {
  if (dtype == TT_F64 || value == 0 || !isfinite(value)) {
    return value;
  }
  if (dtype != TT_F32) {
    value = fabs(value) > formats[TT_F32].max ? value : (double)(float)value;
  }
  int exponent = value == 0 ? format->min_exponent : ilogb(value);
  int ulp = (exponent < format->min_exponent ? format->min_exponent : exponent) - format->precision + 1;
  double rounded = ldexp(nearbyint(ldexp(value, -ulp)), ulp);
  return fabs(rounded) > format->max ? copysign(INFINITY, value) : rounded;
}

// The shortest decimal that rounds back to `value`, with the '.' that MLIR wants.
static void put_decimal(tt_strbuf *text, bool wide, double value) {
  char digits[40];
  int least = wide ? 15 : 6, most = wide ? 17 : 9;
  for (int precision = least; precision <= most; precision++) {
    snprintf(digits, sizeof digits, "%.*g", precision, value);
    double back = strtod(digits, NULL);
    if (wide ? back == value : (float)back == (float)value) {
      break;
    }
  }
  size_t whole = strspn(digits, "-0123456789");
  tt_strbuf_append(text, digits, whole);
  if (digits[whole] != '.') {
    tt_strbuf_puts(text, ".0");
  }
  tt_strbuf_puts(text, digits + whole);
}

static void put_float(tt_strbuf *text, tt_dtype dtype, double value) {
  const float_format *format = &formats[dtype];
  value = round_to(format, dtype, value);
  if (isinf(value) && !format->infinity) {
    value = copysign(format->max, value);
  }
  if (isfinite(value)) {
    put_decimal(text, dtype == TT_F64, value);
    return;
  }
  uint64_t bits = !isinf(value) ? format->nan : value < 0 ? format->infinity | format->sign : format->infinity;
  tt_strbuf_printf(text, "0x%0*" PRIX64, format->hex_digits, bits);
}

static void put_bool(tt_strbuf *text, bool value) { tt_strbuf_puts(text, value ? "true" : "false"); }

static int integer_bits(tt_dtype dtype) { return (int)tt_dtype_size(dtype) * 8; }

bool tt_hlo_put_int_literal(tt_strbuf *text, tt_dtype dtype, int64_t value) {
  if (dtype == TT_PRED) {
    put_bool(text, value != 0);
    return true;
  }
  if (!tt_dtype_is_int(dtype)) {
    // Once rounded to double, a large integer must not be rounded to float again.
    return tt_hlo_put_literal(text, dtype, dtype == TT_F64 || dtype == TT_C128 ? (double)value : (double)(float)value);
  }
  int bits = integer_bits(dtype);
  bool is_signed = tt_dtype_is_signed_int(dtype);
  int64_t low = is_signed ? -((int64_t)1 << (bits - 2)) * 2 : 0;
  int64_t high = is_signed ? -(low + 1) : bits == 64 ? INT64_MAX : ((int64_t)1 << bits) - 1;
  if (value < low || value > high) {
    return false;
  }
  tt_hlo_put_int(text, value);
  return true;
}

static bool put_truncated(tt_strbuf *text, tt_dtype dtype, double value) {
  value = trunc(value);
  if (value >= -0x1p63 && value < 0x1p63) {
    return tt_hlo_put_int_literal(text, dtype, (int64_t)value);
  }
  if (dtype == TT_U64 && value >= 0x1p63 && value < 0x1p64) {
    tt_strbuf_printf(text, "%" PRIu64, (uint64_t)value);
    return true;
  }
  return false;
}

bool tt_hlo_put_literal(tt_strbuf *text, tt_dtype dtype, double value) {
  if (dtype == TT_PRED) {
    put_bool(text, value != 0);
  } else if (tt_dtype_is_int(dtype)) {
    return put_truncated(text, dtype, value);
  } else if (tt_dtype_is_complex(dtype)) {
    tt_strbuf_puts(text, "(");
    put_float(text, tt_dtype_real(dtype), value);
    tt_strbuf_puts(text, ", 0.0)");
  } else if (tt_dtype_is_float(dtype)) {
    put_float(text, dtype, value);
  } else {
    return false;
  }
  return true;
}
