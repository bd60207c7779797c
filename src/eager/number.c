#include "eager/number.h"

#include <float.h>
#include <math.h>
#include <string.h>

#include "aten/internal.h"

static uint32_t float_bits(float f) {
  uint32_t bits;
  memcpy(&bits, &f, sizeof bits);
  return bits;
}

static uint16_t to_bf16(float f) {
  uint32_t bits = float_bits(f);
  if (isnan(f)) {
    return 0x7fc0;
  }
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

// Rounds to nearest even at the target's mantissa; subnormals included. `bias` and widths describe the format.
static uint16_t to_small_float(float f, int exponent_bits, int mantissa_bits, bool has_inf, uint16_t max_finite) {
  uint16_t sign = (uint16_t)(signbit(f) ? 1 << (exponent_bits + mantissa_bits) : 0);
  uint16_t nan_bits = (uint16_t)((1 << (exponent_bits + mantissa_bits)) - 1);
  if (isnan(f)) {
    return sign |
           (has_inf ? (uint16_t)(((1 << exponent_bits) - 1) << mantissa_bits | 1 << (mantissa_bits - 1)) : nan_bits);
  }
  double a = fabs((double)f);
  int exponent;
  frexp(a, &exponent);
  int bias = (1 << (exponent_bits - 1)) - 1;
  int lowest = 2 - bias;  // frexp exponent of the smallest normal
  int scale = (exponent < lowest ? lowest : exponent) - 1 - mantissa_bits;
  double units = isinf(a) ? INFINITY : nearbyint(ldexp(a, -scale));
  if (units == 0) {
    return sign;  // zero, or rounded to it
  }
  double value = ldexp(units, scale);
  uint16_t infinity = (uint16_t)(((1 << exponent_bits) - 1) << mantissa_bits);
  int top;
  frexp(value, &top);
  int field = top - 1 + bias;
  uint16_t bits = isinf(value) || field >= 1 << exponent_bits ? (uint16_t)(max_finite + 1)
                  : field <= 0
                      ? (uint16_t)ldexp(value, bias - 1 + mantissa_bits)
                      : (uint16_t)(((unsigned)field << mantissa_bits) |
                                   ((unsigned)ldexp(value, mantissa_bits - (top - 1)) & ((1u << mantissa_bits) - 1)));
  return sign | (bits > max_finite ? (has_inf ? infinity : nan_bits) : bits);
}

static bool fits(const tt_number *n, int64_t low, int64_t high) {
  if (n->type == TT_F64 || n->type == TT_C128) {
    return n->u.f[0] >= (double)low && n->u.f[0] <= (double)high;  // not truncated: 127.5 is no int8
  }
  return n->type != TT_U64 && n->u.i >= low && n->u.i <= high;
}

// PyTorch lets a negative integer wrap; a negative float is out of range.
static bool fits_unsigned(const tt_number *n, int64_t high) {
  bool is_float = n->type == TT_F64 || n->type == TT_C128;
  return fits(n, is_float ? 0 : -high, high);
}

static bool fits_float(const tt_number *n, double greatest) {
  double d = tt_number_double(n);
  return !isfinite(d) || fabs(d) <= greatest;
}

static bool fits_dtype(const tt_number *n, tt_dtype dtype) {
  switch (dtype) {
    case TT_S8:
      return fits(n, INT8_MIN, INT8_MAX);
    case TT_S16:
      return fits(n, INT16_MIN, INT16_MAX);
    case TT_S32:
      return fits(n, INT32_MIN, INT32_MAX);
    case TT_S64:
      return fits(n, INT64_MIN, INT64_MAX);
    case TT_U8:
      return fits_unsigned(n, UINT8_MAX);
    case TT_U16:
      return fits_unsigned(n, UINT16_MAX);
    case TT_U32:
      return fits_unsigned(n, UINT32_MAX);
    case TT_U64:
      return (n->type != TT_F64 && n->type != TT_C128) || (n->u.f[0] >= 0 && n->u.f[0] <= 0x1p64);
    case TT_F16:
      return fits_float(n, 65504);
    case TT_BF16:
      return fits_float(n, 0x1.fep127);
    case TT_F32:
      return fits_float(n, FLT_MAX);
    case TT_F8E4M3FN:
      return fits_float(n, 448);
    case TT_F8E5M2:
      return fits_float(n, 57344);
    default:
      return true;
  }
}

static int64_t as_int(const tt_number *n) {
  if (n->type != TT_F64 && n->type != TT_C128) {
    return n->u.i;
  }
  double d = n->u.f[0];
  if (isnan(d)) {
    return INT64_MIN;
  }
  return d >= 9223372036854775808.0 ? INT64_MAX : d <= -9223372036854775808.0 ? INT64_MIN : (int64_t)d;
}

bool tt_number_to_bytes(const tt_number *n, tt_dtype dtype, bool checked, unsigned char out[16]) {
  bool is_float = n->type == TT_F64 || n->type == TT_C128;
  if (checked && !fits_dtype(n, dtype)) {
    return false;
  }
  double d = tt_number_double(n), im = n->type == TT_C128 ? n->u.f[1] : 0;
  float f = is_float ? (float)d : n->type == TT_U64 ? (float)(uint64_t)n->u.i : (float)n->u.i;
  memset(out, 0, 16);
  switch (dtype) {
    case TT_PRED:
      out[0] = is_float ? d != 0 || im != 0 : n->u.i != 0;
      break;
    case TT_F16: {
      uint16_t half = to_small_float(f, 5, 10, true, 0x7bff);
      memcpy(out, &half, 2);
      break;
    }
    case TT_BF16: {
      uint16_t bf = to_bf16(f);
      memcpy(out, &bf, 2);
      break;
    }
    case TT_F8E4M3FN:
      out[0] = (unsigned char)to_small_float(f, 4, 3, false, 0x7e);
      break;
    case TT_F8E5M2:
      out[0] = (unsigned char)to_small_float(f, 5, 2, true, 0x7b);
      break;
    case TT_F32:
      memcpy(out, &f, 4);
      break;
    case TT_F64:
      memcpy(out, &d, 8);
      break;
    case TT_C64:
      memcpy(out, (float[]){f, (float)im}, 8);
      break;
    case TT_C128:
      memcpy(out, (double[]){d, im}, 16);
      break;
    default: {  // integers: the low bytes, little-endian as the host is
      int64_t i = as_int(n);
      memcpy(out, &i, tt_dtype_size(dtype));
    }
  }
  return true;
}

static double half_value(uint16_t bits, int exponent_bits, int mantissa_bits) {
  int exponent = bits >> mantissa_bits & ((1 << exponent_bits) - 1);
  int mantissa = bits & ((1 << mantissa_bits) - 1);
  int bias = (1 << (exponent_bits - 1)) - 1;
  double sign = bits >> (exponent_bits + mantissa_bits) & 1 ? -1 : 1;
  bool special = exponent == (1 << exponent_bits) - 1;
  if (exponent_bits == 4) {  // e4m3fn has no infinity, and one NaN
    special = special && mantissa == 7;
  }
  if (special) {
    return mantissa ? NAN : sign * INFINITY;
  }
  return sign * (exponent ? ldexp(1 + ldexp(mantissa, -mantissa_bits), exponent - bias)
                          : ldexp(mantissa, 1 - bias - mantissa_bits));
}

tt_number tt_number_from_bytes(const void *bytes, tt_dtype dtype) {
  tt_number n = {.type = TT_S64};
  uint64_t raw = 0;
  size_t size = tt_dtype_size(dtype);
  memcpy(&raw, bytes, size < 8 ? size : 8);
  float f[2];
  if (tt_dtype_is_signed_int(dtype)) {
    n.u.i = size == 8 ? (int64_t)raw : (int64_t)(raw << (64 - 8 * size)) >> (64 - 8 * size);
  } else if (tt_dtype_is_unsigned_int(dtype) || dtype == TT_PRED) {
    n.u.i = dtype == TT_PRED ? raw != 0 : (int64_t)raw;
    n.type = dtype == TT_PRED ? TT_PRED : n.u.i < 0 ? TT_U64 : TT_S64;
  } else if (tt_dtype_is_complex(dtype)) {
    n.type = TT_C128;
    if (dtype == TT_C64) {
      memcpy(f, bytes, 8);
      n.u.f[0] = (double)f[0];
      n.u.f[1] = (double)f[1];
    } else {
      memcpy(n.u.f, bytes, 16);
    }
  } else {
    n.type = TT_F64;
    n.u.f[1] = 0;
    memcpy(f, bytes, size < 4 ? 0 : 4);
    uint16_t half = (uint16_t)raw;
    uint32_t widened = (uint32_t)half << 16;
    switch (dtype) {
      case TT_F64:
        memcpy(n.u.f, bytes, 8);
        break;
      case TT_F32:
        n.u.f[0] = (double)f[0];
        break;
      case TT_BF16:
        memcpy(f, &widened, 4);
        n.u.f[0] = (double)f[0];
        break;
      case TT_F16:
        n.u.f[0] = half_value(half, 5, 10);
        break;
      case TT_F8E4M3FN:
        n.u.f[0] = half_value((uint16_t)(raw & 0xff), 4, 3);
        break;
      default:
        n.u.f[0] = half_value((uint16_t)(raw & 0xff), 5, 2);
    }
  }
  return n;
}
