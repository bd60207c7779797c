// What rules share: type promotion, conversions, broadcasting, reductions over masks, checked indices, random
// floats and products. Built on the accessors of rule.h and on the builder only.
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "aten/internal.h"
#include "aten/pointwise.h"

// ---- types ----

const char *tt_type_name(tt_dtype dtype) {
  static const char *const names[TT_DTYPE_COUNT] = {
      [TT_DTYPE_INVALID] = "Undefined",
      [TT_PRED] = "Bool",
      [TT_S8] = "Char",
      [TT_S16] = "Short",
      [TT_S32] = "Int",
      [TT_S64] = "Long",
      [TT_U8] = "Byte",
      [TT_U16] = "UInt16",
      [TT_U32] = "UInt32",
      [TT_U64] = "UInt64",
      [TT_F16] = "Half",
      [TT_BF16] = "BFloat16",
      [TT_F32] = "Float",
      [TT_F64] = "Double",
      [TT_C64] = "ComplexFloat",
      [TT_C128] = "ComplexDouble",
      [TT_F8E4M3FN] = "Float8_e4m3fn",
      [TT_F8E5M2] = "Float8_e5m2",
  };
  return names[(unsigned)dtype < TT_DTYPE_COUNT ? dtype : TT_DTYPE_INVALID];
}

const char *tt_type_meta_name(tt_dtype dtype) {
  static const char *const names[TT_DTYPE_COUNT] = {
      [TT_DTYPE_INVALID] = "undefined",
      [TT_PRED] = "bool",
      [TT_S8] = "signed char",
      [TT_S16] = "short int",
      [TT_S32] = "int",
      [TT_S64] = "long int",
      [TT_U8] = "unsigned char",
      [TT_U16] = "short unsigned int",
      [TT_U32] = "unsigned int",
      [TT_U64] = "long unsigned int",
      [TT_F16] = "c10::Half",
      [TT_BF16] = "c10::BFloat16",
      [TT_F32] = "float",
      [TT_F64] = "double",
      [TT_C64] = "c10::complex<float>",
      [TT_C128] = "c10::complex<double>",
      [TT_F8E4M3FN] = "c10::Float8_e4m3fn",
      [TT_F8E5M2] = "c10::Float8_e5m2",
  };
  return names[(unsigned)dtype < TT_DTYPE_COUNT ? dtype : TT_DTYPE_INVALID];
}

void tt_fail_overflow(tt_rule *r, tt_dtype dtype) {
  const char *name = dtype == TT_S8    ? "int8_t"
                     : dtype == TT_S16 ? "int16_t"
                     : dtype == TT_S64 ? "int64_t"
                     : dtype == TT_U8  ? "uint8_t"
                     : dtype == TT_U16 ? "uint16_t"
                     : dtype == TT_U32 ? "uint32_t"
                     : dtype == TT_U64 ? "uint64_t"
                                       : tt_type_meta_name(dtype);
  tt_fail(r, TT_ERR_RUNTIME, "value cannot be converted to type %s without overflow", name);
}

bool tt_is_integral(tt_dtype d) { return d == TT_PRED || tt_dtype_is_int(d); }
bool tt_is_barebones_unsigned(tt_dtype d) { return d == TT_U16 || d == TT_U32 || d == TT_U64; }
static bool is_float8(tt_dtype d) { return d == TT_F8E4M3FN || d == TT_F8E5M2; }

static tt_dtype promote_ints(tt_dtype a, tt_dtype b) {
  if (a == TT_U8) {
    return b == TT_S8 ? TT_S16 : b;
  }
  if (b == TT_U8) {
    return a == TT_S8 ? TT_S16 : a;
  }
  return a > b ? a : b;  // TT_S8 < TT_S16 < TT_S32 < TT_S64
}

static tt_dtype promote_floats(tt_dtype a, tt_dtype b) {
  if ((a == TT_F16 && b == TT_BF16) || (a == TT_BF16 && b == TT_F16)) {
    return TT_F32;
  }
  return a > b ? a : b;
}

// c10/core/ScalarType.cpp, promoteTypes. INVALID where PyTorch refuses.
tt_dtype tt_promote_types(tt_dtype a, tt_dtype b) {
  if (a == b || b == TT_DTYPE_INVALID) {
    return a;
  }
  if (a == TT_DTYPE_INVALID) {
    return b;
  }
  if (is_float8(a) || is_float8(b)) {
    return TT_DTYPE_INVALID;
  }
  bool complex = tt_dtype_is_complex(a) || tt_dtype_is_complex(b);
  bool real_float = !complex && (tt_dtype_is_float(a) || tt_dtype_is_float(b));
  if ((tt_is_barebones_unsigned(a) || tt_is_barebones_unsigned(b)) && !real_float) {
    return TT_DTYPE_INVALID;
  }
  if (complex) {
    return a == TT_C128 || b == TT_C128 || a == TT_F64 || b == TT_F64 ? TT_C128 : TT_C64;
  }
  if (tt_dtype_is_float(a)) {
    return tt_dtype_is_float(b) ? promote_floats(a, b) : a;
  }
  if (tt_dtype_is_float(b)) {
    return b;
  }
  if (a == TT_PRED) {
    return b;
  }
  if (b == TT_PRED) {
    return a;
  }
  return promote_ints(a, b);
}

static void promote_into(tt_rule *r, tt_dtype *type, tt_dtype with) {
  tt_dtype promoted = tt_promote_types(*type, with);
  if (promoted == TT_DTYPE_INVALID && with != TT_DTYPE_INVALID) {
    const char *kind = is_float8(*type) || is_float8(with) ? "Float8 Types" : "uint16, uint32, uint64 types";
    tt_fail(r, TT_ERR_RUNTIME, "Promotion for %s is not supported, attempted to promote %s and %s", kind,
            tt_type_name(*type), tt_type_name(with));
    return;
  }
  *type = promoted;
}

// Category promotion, ATen/native/TypeProperties.cpp, combine_categories.
static tt_dtype combine_categories(tt_rule *r, tt_dtype higher, tt_dtype lower) {
  if (higher == TT_DTYPE_INVALID || tt_dtype_is_complex(higher)) {
    return higher == TT_DTYPE_INVALID ? lower : higher;
  }
  if (tt_dtype_is_float(higher)) {
    return tt_dtype_is_complex(lower) ? tt_dtype_complex(higher) : higher;
  }
  if (higher == TT_PRED || tt_dtype_is_float(lower) || tt_dtype_is_complex(lower)) {
    promote_into(r, &higher, lower);
  }
  return higher;
}

// The type with which a Python number enters promotion.
static tt_dtype number_type(const tt_rule *r, tt_dtype dtype) {
  if (tt_dtype_is_complex(dtype)) {
    return tt_dtype_complex(tt_default_dtype(r));
  }
  return tt_dtype_is_float(dtype) ? tt_default_dtype(r) : dtype;
}

tt_dtype tt_promote_operands(tt_rule *r, const tt_operand *const *xs, int32_t count, tt_dtype number) {
  tt_dtype with_dims = TT_DTYPE_INVALID, without_dims = TT_DTYPE_INVALID, numbers = number_type(r, number);
  for (int32_t i = 0; i < count; i++) {
    if (xs[i] && xs[i]->is_wrapped) {
      promote_into(r, &numbers, number_type(r, xs[i]->dtype));
    } else if (xs[i]) {
      promote_into(r, xs[i]->ndim > 0 ? &with_dims : &without_dims, xs[i]->dtype);
    }
  }
  return combine_categories(r, with_dims, combine_categories(r, without_dims, numbers));
}

tt_dtype tt_result_type(tt_rule *r, const char *const *names, int32_t count) {
  enum { MAX_NAMES = 8 };
  const tt_operand *xs[MAX_NAMES] = {NULL};
  tt_dtype number = TT_DTYPE_INVALID;
  for (int32_t i = 0; i < count && i < MAX_NAMES; i++) {
    tt_dtype scalar = tt_scalar_type(r, names[i]);
    if (scalar == TT_DTYPE_INVALID) {
      xs[i] = tt_operand_of(r, names[i]);
    } else {
      promote_into(r, &number, scalar);
    }
  }
  return tt_promote_operands(r, xs, count < MAX_NAMES ? count : MAX_NAMES, number);
}

tt_dtype tt_float_type(const tt_rule *r, tt_dtype dtype) {
  return tt_dtype_is_int(dtype) || dtype == TT_PRED ? tt_default_dtype(r) : dtype;
}

tt_dtype tt_opmath(tt_dtype dtype) { return dtype == TT_F16 || dtype == TT_BF16 || is_float8(dtype) ? TT_F32 : dtype; }

// ---- conversion ----

// Truncates to s32 or s64; what does not fit, and NaN, becomes the lowest value: x86's cvttss2si.
static tt_hlo float_to_signed(tt_hlo x, tt_dtype dtype) {
  const double bound = dtype == TT_S64 ? 9223372036854775808.0 : 2147483648.0;
  tt_hlo above = dtype == TT_S64 || x->dtype == TT_F32 ? tt_hlo_compare(TT_GE, x, tt_hlo_const_like(x, -bound))
                                                       // f64 has values that truncate to the lowest s32
                                                       : tt_hlo_compare(TT_GT, x, tt_hlo_const_like(x, -bound - 1));
  tt_hlo fits = tt_hlo_binary(TT_AND, above, tt_hlo_compare(TT_LT, x, tt_hlo_const_like(x, bound)));
  tt_hlo whole = tt_hlo_convert(x, dtype);
  if (!whole) {
    return NULL;
  }
  int64_t lowest = dtype == TT_S64 ? INT64_MIN : INT32_MIN;
  tt_hlo low = tt_hlo_const_int(tt_hlo_builder_of(x), dtype, lowest, whole->dims, whole->rank);
  return tt_hlo_select(fits, whole, low);
}

// What GCC makes of static_cast<uint64_t>(double).
static tt_hlo float_to_u64(tt_hlo x) {
  tt_hlo half = tt_hlo_const_like(x, 9223372036854775808.0);
  tt_hlo low = tt_hlo_convert(float_to_signed(x, TT_S64), TT_U64);
  tt_hlo high = tt_hlo_convert(float_to_signed(tt_hlo_binary(TT_SUBTRACT, x, half), TT_S64), TT_U64);
  if (!low || !high) {
    return NULL;
  }
  tt_hlo one = tt_hlo_const_int(tt_hlo_builder_of(x), TT_U64, 1, high->dims, high->rank);
  tt_hlo shift = tt_hlo_const_int(tt_hlo_builder_of(x), TT_U64, 63, high->dims, high->rank);
  high = tt_hlo_binary(TT_XOR, high, tt_hlo_binary(TT_SHIFT_LEFT, one, shift));
  return tt_hlo_select(tt_hlo_compare(TT_GE, x, half), high, low);  // NaN: the lowest s64's bits
}

static tt_hlo float_to_int(tt_hlo x, tt_dtype dtype) {
  x = tt_hlo_convert(x, tt_opmath(x->dtype));
  if (!x) {
    return NULL;
  }
  switch (dtype) {
    case TT_S64:
    case TT_S32:
      return float_to_signed(x, dtype);
    case TT_U64:
      return float_to_u64(x);
    case TT_S8:
    case TT_S16:
    case TT_U16:
      return tt_hlo_convert(float_to_signed(x, TT_S32), dtype);
    default:  // c10 converts to uint8 through int64
      return tt_hlo_convert(float_to_signed(x, TT_S64), dtype);
  }
}

static tt_hlo to_complex(tt_hlo x, tt_dtype dtype) {
  tt_dtype part = tt_dtype_real(dtype);
  if (tt_dtype_is_complex(x->dtype)) {
    return tt_hlo_complex(tt_hlo_convert(tt_hlo_unary(TT_REAL, x), part),
                          tt_hlo_convert(tt_hlo_unary(TT_IMAG, x), part));
  }
  tt_hlo real = tt_hlo_convert(x, part);
  return tt_hlo_complex(real, tt_hlo_const_like(real, 0));
}

static tt_hlo bits_const(tt_hlo x, uint32_t value) {
  return tt_hlo_const_int(tt_hlo_builder_of(x), TT_S32, (int64_t)value, x->dims, x->rank);
}

// float32 rounded once, to nearest even, as c10 does (XLA:CPU goes through float16), in the bits of the two formats.
static tt_hlo to_float8(tt_hlo x, tt_dtype dtype) {
  if (!x) {
    return NULL;
  }
  const bool wide = dtype == TT_F8E5M2;
  const int32_t dropped = wide ? 21 : 20, bias = wide ? 15 : 7, low = wide ? 16 : 9;
  tt_hlo bits = tt_hlo_bitcast_convert(x, TT_S32);
  if (!bits) {
    return NULL;
  }
  tt_hlo sign =
      tt_hlo_select(tt_hlo_compare(TT_LT, bits, bits_const(bits, 0)), bits_const(bits, 0x80), bits_const(bits, 0));
  tt_hlo size = tt_hlo_binary(TT_AND, bits, bits_const(bits, 0x7fffffff)), shift = bits_const(bits, (uint32_t)dropped);
  tt_hlo odd = tt_hlo_binary(TT_AND, tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, size, shift), bits_const(bits, 1));
  tt_hlo up = tt_hlo_binary(TT_ADD, odd, bits_const(bits, (1u << (dropped - 1)) - 1));
  const uint32_t rebias = (uint32_t)(127 - bias) << 23;
  tt_hlo normal = tt_hlo_binary(TT_ADD, tt_hlo_binary(TT_SUBTRACT, size, bits_const(bits, rebias)), up);
  normal = tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, normal, shift);
  // Below the normal numbers: a whole number of the smallest one.
  tt_hlo steps = tt_hlo_binary(TT_MULTIPLY, tt_hlo_unary(TT_ABS, x), tt_hlo_const_like(x, ldexp(1, low)));
  tt_hlo small = tt_hlo_convert(tt_hlo_unary(TT_ROUND_EVEN, steps), TT_S32);
  tt_hlo value = tt_hlo_select(tt_hlo_compare(TT_LT, size, bits_const(bits, rebias + (1u << 23))), small, normal);
  // float8_e5m2 overflows to infinity; float8_e4m3fn has none, and c10 stops at 448.
  const uint32_t past = (uint32_t)(127 + (wide ? 16 : 9)) << 23, most = wide ? 0x7c : 0x7e;
  value = tt_hlo_select(tt_hlo_compare(TT_GE, size, bits_const(bits, past)), bits_const(bits, most), value);
  value = tt_hlo_binary(TT_MINIMUM, value, bits_const(bits, most));
  value = tt_hlo_select(tt_hlo_compare(TT_GT, size, bits_const(bits, 0x7f800000)), bits_const(bits, 0x7f), value);
  value = tt_hlo_binary(TT_OR, value, sign);
  return tt_hlo_bitcast_convert(tt_hlo_convert(value, TT_U8), dtype);
}

tt_hlo tt_cast(tt_hlo x, tt_dtype dtype) {
  if (!x || x->dtype == dtype) {
    return x;
  }
  if (dtype == TT_PRED) {
    return tt_hlo_compare(TT_NE, x, tt_hlo_const_like(x, 0));
  }
  if (tt_dtype_is_complex(dtype)) {
    return to_complex(x, dtype);
  }
  if (tt_dtype_is_complex(x->dtype)) {
    return tt_cast(tt_hlo_unary(TT_REAL, x), dtype);
  }
  if (tt_dtype_is_float(x->dtype) && tt_dtype_is_int(dtype)) {
    return float_to_int(x, dtype);
  }
  // c10's small floats are made from a float: two roundings.
  if (tt_opmath(dtype) != dtype && x->dtype != TT_F32 && x->dtype != TT_PRED) {
    x = tt_hlo_convert(x, TT_F32);
  }
  if (is_float8(dtype)) {
    return to_float8(tt_hlo_convert(x, TT_F32), dtype);
  }
  return tt_hlo_convert(x, dtype);
}

// ---- dims ----

int32_t tt_wrap_dim(tt_rule *r, int64_t dim, int32_t ndim) {
  int64_t range = ndim > 0 ? ndim : 1;
  if (dim < -range || dim >= range) {
    tt_fail(r, TT_ERR_INDEX, "Dimension out of range (expected to be in range of [%lld, %lld], but got %lld)",
            (long long)-range, (long long)(range - 1), (long long)dim);
    return 0;
  }
  return (int32_t)(dim < 0 ? dim + range : dim);
}

int32_t tt_dim(tt_rule *r, const char *name, int32_t ndim) { return tt_wrap_dim(r, tt_int(r, name, 0), ndim); }

int32_t tt_dim_mask(tt_rule *r, const char *name, int32_t ndim, bool empty_is_all, bool out_mask[TT_MAX_RANK]) {
  bool seen[TT_MAX_RANK] = {false};
  int32_t count = 0;
  const int64_t *dims = tt_ints(r, name, &count);
  memset(out_mask, 0, TT_MAX_RANK * sizeof(*out_mask));
  if (!tt_has(r, name) || (count == 0 && empty_is_all)) {
    for (int32_t i = 0; i < ndim; i++) {
      out_mask[i] = true;
    }
    return ndim;
  }
  for (int32_t i = 0; i < count; i++) {
    int32_t dim = tt_wrap_dim(r, dims[i], ndim);
    if (tt_failed(r)) {
      return 0;
    }
    if (seen[dim]) {
      tt_fail(r, TT_ERR_RUNTIME, "dim %d appears multiple times in the list of dims", dim);
      return 0;
    }
    seen[dim] = true;
    out_mask[dim] = dim < ndim;
  }
  return ndim == 0 ? 0 : count;
}

// ---- broadcasting ----

// ATen/ExpandUtils.cpp, infer_size: folds `x` into the common shape `dims`.
static bool infer_size(tt_rule *r, int64_t dims[TT_MAX_RANK], int32_t *rank, tt_hlo x) {
  int64_t merged[TT_MAX_RANK];
  int32_t n = x->rank > *rank ? x->rank : *rank;
  for (int32_t i = n - 1; i >= 0; i--) {
    int32_t ia = i - (n - *rank), ib = i - (n - x->rank);
    int64_t a = ia >= 0 ? dims[ia] : 1, b = ib >= 0 ? x->dims[ib] : 1;
    if (a != b && a != 1 && b != 1) {
      tt_fail(r, TT_ERR_RUNTIME,
              "The size of tensor a (%lld) must match the size of tensor b (%lld) at non-singleton dimension %d",
              (long long)a, (long long)b, i);
      return false;
    }
    merged[i] = a == 1 ? b : a;
  }
  memcpy(dims, merged, (size_t)n * sizeof(*dims));
  *rank = n;
  return true;
}

bool tt_broadcast(tt_rule *r, tt_hlo *values, int32_t count) {
  int64_t dims[TT_MAX_RANK];
  int32_t rank = 0;
  for (int32_t i = 0; i < count; i++) {
    if (!values[i] || !infer_size(r, dims, &rank, values[i])) {
      return false;
    }
  }
  for (int32_t i = 0; i < count; i++) {
    if (values[i]->rank != rank || (rank && memcmp(values[i]->dims, dims, (size_t)rank * sizeof(*dims)) != 0)) {
      values[i] = tt_hlo_broadcast_to(values[i], dims, rank);
    }
    if (!values[i]) {
      return false;
    }
  }
  return true;
}

// A Scalar of a binary operator becomes a tensor first, so that it wraps or overflows where Scalar::to would refuse.
static tt_hlo in_unchecked(tt_rule *r, const char *name, tt_dtype dtype) {
  tt_dtype scalar = tt_scalar_type(r, name);
  if (scalar == TT_S64 && tt_dtype_is_int(dtype)) {
    return tt_cast(tt_scalar(r, name, tt_rule_arg(r, name)->u.number.type == TT_U64 ? TT_U64 : TT_S64), dtype);
  }
  if (scalar != TT_DTYPE_INVALID && tt_opmath(dtype) != dtype) {
    return tt_cast(tt_scalar(r, name, tt_opmath(dtype)), dtype);
  }
  return tt_in_number(r, name, dtype);
}

tt_hlo tt_in_number(tt_rule *r, const char *name, tt_dtype dtype) {
  return tt_scalar_type(r, name) == TT_DTYPE_INVALID ? tt_in_as(r, name, dtype) : tt_scalar(r, name, dtype);
}

tt_dtype tt_binary_in(tt_rule *r, const char *x_name, const char *y_name, tt_hlo *x, tt_hlo *y) {
  tt_hlo xy[2] = {NULL, NULL};
  tt_dtype dtype = tt_result_type(r, (const char *const[]){x_name, y_name}, 2);
  if (!tt_failed(r)) {
    xy[0] = in_unchecked(r, x_name, dtype);
    xy[1] = in_unchecked(r, y_name, dtype);
  }
  bool ok = tt_broadcast(r, xy, 2);
  *x = ok ? xy[0] : NULL;
  *y = ok ? xy[1] : NULL;
  return dtype;
}

// ---- reductions ----

tt_hlo tt_mean_of(tt_hlo sum, int64_t count) {
  return tt_hlo_binary(TT_DIVIDE, sum, tt_hlo_const_like(sum, (double)count));
}

tt_hlo tt_keepdim(tt_hlo reduced, tt_hlo like, const bool *mask) {
  if (!reduced || !like) {
    return NULL;
  }
  int64_t dims[TT_MAX_RANK];
  for (int32_t i = 0; i < like->rank; i++) {
    dims[i] = mask[i] ? 1 : like->dims[i];
  }
  return tt_hlo_reshape(reduced, dims, like->rank);
}

tt_hlo tt_reduce_mask(tt_hlo_reducer reducer, tt_hlo x, const bool *mask) {
  if (!x) {
    return NULL;
  }
  int32_t dims[TT_MAX_RANK], count = 0;
  for (int32_t i = 0; i < x->rank; i++) {
    if (mask[i]) {
      dims[count++] = i;
    }
  }
  return count ? tt_hlo_reduce(reducer, x, dims, count) : x;
}

tt_hlo tt_expand_reduced(tt_hlo reduced, const int64_t *dims, int32_t rank, const bool *mask) {
  int32_t mapping[TT_MAX_RANK], count = 0;
  for (int32_t i = 0; i < rank; i++) {
    if (!mask[i]) {
      mapping[count++] = i;
    }
  }
  return tt_hlo_broadcast_in_dim(reduced, dims, rank, mapping);
}

// ---- indices ----

tt_hlo tt_checked_index(tt_rule *r, tt_hlo index, int64_t size, bool wrap, const char *what) {
  if (!index) {
    return NULL;
  }
  if (index->dtype != TT_S32 || size > INT32_MAX) {
    index = tt_cast(index, TT_S64);
  }
  if (!index) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(index);
  tt_hlo limit = tt_hlo_const_int(b, index->dtype, size, index->dims, index->rank);
  tt_hlo zero = tt_hlo_const_int(b, index->dtype, 0, index->dims, index->rank);
  if (wrap) {
    tt_hlo negative = tt_hlo_compare(TT_LT, index, zero);
    index = tt_hlo_select(negative, tt_hlo_binary(TT_ADD, index, limit), index);
  }
  tt_hlo in_range = tt_hlo_binary(TT_AND, tt_hlo_compare(TT_GE, index, zero), tt_hlo_compare(TT_LT, index, limit));
  tt_device_assert(r, in_range, TT_ERR_INDEX, "%s is out of bounds for dimension with size %lld", what,
                   (long long)size);
  return tt_hlo_select(in_range, index, limit);
}

// ---- random numbers ----

// `count` random high bits as a float of `compute` (f32: at most 24 of them, f64: 53).
static tt_hlo random_whole(tt_rule *r, tt_dtype compute, int32_t bit_count, const int64_t *dims, int32_t rank) {
  tt_dtype bits_type = compute == TT_F64 ? TT_U64 : TT_U32;
  tt_hlo bits = tt_random_bits(r, bits_type, dims, rank);
  int32_t width = compute == TT_F64 ? 64 : 32;
  tt_hlo shift = tt_hlo_const_int(tt_b(r), bits_type, width - bit_count, dims, rank);
  tt_hlo whole = tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, bits, shift);
  return tt_hlo_convert(tt_hlo_convert(whole, compute == TT_F64 ? TT_S64 : TT_S32), compute);
}

static int32_t mantissa_bits(tt_dtype dtype) {
  switch (dtype) {
    case TT_F16:
      return 11;
    case TT_BF16:
      return 8;
    case TT_F64:
      return 53;
    default:
      return 24;
  }
}

tt_hlo tt_random_uniform(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  tt_dtype real = tt_dtype_real(dtype);
  if (real != dtype) {
    tt_hlo re = tt_random_uniform(r, real, dims, rank);
    return tt_hlo_complex(re, tt_random_uniform(r, real, dims, rank));
  }
  int32_t bit_count = mantissa_bits(dtype);
  tt_hlo whole = random_whole(r, tt_opmath(dtype), bit_count, dims, rank);
  return tt_cast(tt_hlo_binary(TT_MULTIPLY, whole, tt_hlo_const_like(whole, ldexp(1, -bit_count))), dtype);
}

// Odd multiples of 2^-23 (f64: 2^-52) strictly inside (-1, 1): symmetric, and erf_inv of them is finite.
tt_hlo tt_random_normal(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  tt_dtype real = tt_dtype_real(dtype);
  if (real != dtype) {  // the variance is shared by the parts
    tt_hlo re = tt_random_normal(r, real, dims, rank);
    tt_hlo im = tt_random_normal(r, real, dims, rank);
    tt_hlo half = tt_hlo_const_like(re, M_SQRT1_2);
    return tt_hlo_complex(tt_hlo_binary(TT_MULTIPLY, re, half), tt_hlo_binary(TT_MULTIPLY, im, half));
  }
  tt_dtype compute = tt_opmath(dtype);
  int32_t bit_count = compute == TT_F64 ? 52 : 23;
  tt_hlo k = random_whole(r, compute, bit_count, dims, rank);
  tt_hlo u = tt_hlo_binary(TT_MULTIPLY, k, tt_hlo_const_like(k, ldexp(1, 1 - bit_count)));
  u = tt_hlo_binary(TT_ADD, u, tt_hlo_const_like(u, ldexp(1, -bit_count) - 1));
  tt_hlo z = tt_hlo_unary(TT_ERF_INV, u);
  return tt_cast(tt_hlo_binary(TT_MULTIPLY, z, tt_hlo_const_like(z, M_SQRT2)), dtype);
}

// ---- products ----

static tt_hlo dot(tt_rule *r, tt_hlo x, tt_hlo y, tt_dtype dtype) {
  const int32_t batch = 0, lhs_contract = x->rank - 1, rhs_contract = y->rank - 2;
  const tt_hlo_dot_dims dims = {
      .lhs_batch = &batch,
      .rhs_batch = &batch,
      .lhs_contract = &lhs_contract,
      .rhs_contract = &rhs_contract,
      .batch_count = x->rank - 2,
      .contract_count = 1,
  };
  return tt_hlo_dot_general(x, y, &dims, tt_matmul_precision(r), dtype);
}

// The TPU compiler has no dot of 64-bit integers; it fuses this.
static tt_hlo product_by_sum(tt_hlo x, tt_hlo y) {
  const int32_t batch = x->rank - 2, rank = batch + 3, summed = batch + 1;
  int64_t dims[TT_MAX_RANK];
  int32_t of_x[TT_MAX_RANK], of_y[TT_MAX_RANK];
  for (int32_t i = 0; i < batch; i++) {
    dims[i] = x->dims[i];
    of_x[i] = of_y[i] = i;
  }
  dims[batch] = x->dims[batch];
  dims[batch + 1] = x->dims[batch + 1];
  dims[batch + 2] = y->dims[batch + 1];
  of_x[batch] = batch;
  of_x[batch + 1] = of_y[batch] = batch + 1;
  of_y[batch + 1] = batch + 2;
  tt_hlo terms = tt_hlo_binary(TT_MULTIPLY, tt_hlo_broadcast_in_dim(x, dims, rank, of_x),
                               tt_hlo_broadcast_in_dim(y, dims, rank, of_y));
  return tt_hlo_reduce(TT_SUM, terms, &summed, 1);
}

tt_hlo tt_matmul(tt_rule *r, tt_hlo x, tt_hlo y) {
  if (!x || !y) {
    return NULL;
  }
  tt_dtype dtype = x->dtype;
  if ((dtype == TT_S64 || dtype == TT_U64) && !tt_rule_is_cpu(r)) {
    return product_by_sum(x, y);
  }
  if (dtype == TT_F16 || dtype == TT_BF16) {
    if (tt_rule_is_cpu(r)) {
      x = tt_hlo_convert(x, TT_F32);
      y = tt_hlo_convert(y, TT_F32);
    }
    return x && y ? tt_hlo_convert(dot(r, x, y, TT_F32), dtype) : NULL;
  }
  if ((tt_dtype_is_int(dtype) && tt_dtype_size(dtype) < 4) || dtype == TT_PRED) {
    // Exact modulo 2^32, so modulo the narrower power too.
    x = tt_hlo_convert(x, TT_S32);
    y = tt_hlo_convert(y, TT_S32);
    return x && y ? tt_cast(dot(r, x, y, TT_S32), dtype) : NULL;
  }
  return dot(r, x, y, TT_DTYPE_INVALID);
}
