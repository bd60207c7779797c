// Elementwise operations.
#include "hlo/internal.h"

// ---- which element types an operation takes ----
enum {
  P = 1,
  S = 2,
  U = 4,
  F = 8,  // f16, bf16, f32, f64
  C = 16,
  E = 32,  // the eight-bit floats
  I = S | U,
  N = I | F | C | E,
};

static int class_of(tt_dtype dtype) {
  return dtype == TT_PRED                             ? P
         : dtype == TT_F8E4M3FN || dtype == TT_F8E5M2 ? E
         : tt_dtype_is_signed_int(dtype)              ? S
         : tt_dtype_is_unsigned_int(dtype)            ? U
         : tt_dtype_is_float(dtype)                   ? F
         : tt_dtype_is_complex(dtype)                 ? C
                                                      : 0;
}

typedef struct op_info {
  const char *name;
  int takes;
} op_info;

static const op_info unary_ops[TT_UNARY_COUNT] = {
    [TT_ABS] = {"stablehlo.abs", N},
    [TT_NEGATE] = {"stablehlo.negate", N},
    [TT_SIGN] = {"stablehlo.sign", S | F | C | E},
    [TT_NOT] = {"stablehlo.not", P | I},
    [TT_EXP] = {"stablehlo.exponential", F | C | E},
    [TT_EXPM1] = {"stablehlo.exponential_minus_one", F | C | E},
    [TT_LOG] = {"stablehlo.log", F | C | E},
    [TT_LOG1P] = {"stablehlo.log_plus_one", F | C | E},
    [TT_SQRT] = {"stablehlo.sqrt", F | C | E},
    [TT_RSQRT] = {"stablehlo.rsqrt", F | C | E},
    [TT_CBRT] = {"stablehlo.cbrt", F | E},
    [TT_LOGISTIC] = {"stablehlo.logistic", F | C | E},
    [TT_TANH] = {"stablehlo.tanh", F | C | E},
    [TT_SIN] = {"stablehlo.sine", F | C | E},
    [TT_COS] = {"stablehlo.cosine", F | C | E},
    [TT_TAN] = {"stablehlo.tan", F | C | E},
    [TT_FLOOR] = {"stablehlo.floor", F | E},
    [TT_CEIL] = {"stablehlo.ceil", F | E},
    [TT_ROUND_EVEN] = {"stablehlo.round_nearest_even", F | E},
    [TT_ROUND_AWAY] = {"stablehlo.round_nearest_afz", F | E},
    [TT_POPCNT] = {"stablehlo.popcnt", I},
    [TT_CLZ] = {"stablehlo.count_leading_zeros", I},
    [TT_IS_FINITE] = {"stablehlo.is_finite", F | E},
    [TT_REAL] = {"stablehlo.real", C},
    [TT_IMAG] = {"stablehlo.imag", C},
    [TT_ACOS] = {"chlo.acos", F | C | E},
    [TT_ACOSH] = {"chlo.acosh", F | C | E},
    [TT_ASIN] = {"chlo.asin", F | C | E},
    [TT_ASINH] = {"chlo.asinh", F | C | E},
    [TT_ATAN] = {"chlo.atan", F | C | E},
    [TT_ATANH] = {"chlo.atanh", F | C | E},
    [TT_COSH] = {"chlo.cosh", F | C | E},
    [TT_SINH] = {"chlo.sinh", F | C | E},
    [TT_ERF] = {"chlo.erf", F | E},
    [TT_ERFC] = {"chlo.erfc", F},
    [TT_ERF_INV] = {"chlo.erf_inv", F | E},
    [TT_LGAMMA] = {"chlo.lgamma", F | E},
    [TT_DIGAMMA] = {"chlo.digamma", F | E},
    [TT_BESSEL_I1E] = {"chlo.bessel_i1e", F},
    [TT_CONJ] = {"chlo.conj", C},
};

static const op_info binary_ops[TT_BINARY_COUNT] = {
    [TT_ADD] = {"stablehlo.add", P | N},
    [TT_SUBTRACT] = {"stablehlo.subtract", N},
    [TT_MULTIPLY] = {"stablehlo.multiply", P | N},
    [TT_DIVIDE] = {"stablehlo.divide", N},
    [TT_REMAINDER] = {"stablehlo.remainder", I | F | E},  // complex kills XLA
    [TT_MAXIMUM] = {"stablehlo.maximum", P | I | F | E},
    [TT_MINIMUM] = {"stablehlo.minimum", P | I | F | E},
    [TT_POWER] = {"stablehlo.power", N},
    [TT_ATAN2] = {"stablehlo.atan2", F | C | E},
    [TT_AND] = {"stablehlo.and", P | I},
    [TT_OR] = {"stablehlo.or", P | I},
    [TT_XOR] = {"stablehlo.xor", P | I},
    [TT_SHIFT_LEFT] = {"stablehlo.shift_left", I},
    [TT_SHIFT_RIGHT_ARITHMETIC] = {"stablehlo.shift_right_arithmetic", I},
    [TT_SHIFT_RIGHT_LOGICAL] = {"stablehlo.shift_right_logical", I},
    [TT_NEXT_AFTER] = {"chlo.next_after", F},
    [TT_POLYGAMMA] = {"chlo.polygamma", F},  // integers kill XLA
    [TT_ZETA] = {"chlo.zeta", F},
};

static tt_hlo refuse_dtype(tt_hlo_builder *b, const char *name, const tt_hlo *operands, int32_t count) {
  return tt_hlo_errorf(b, TT_ERR_NOT_IMPLEMENTED, name, operands, count, "not implemented for %s",
                       tt_dtype_torch_name(operands[0]->dtype));
}

static bool is_chlo(const char *name) { return name[0] == 'c'; }

// ---- unary and binary ----
tt_hlo tt_hlo_unary(tt_hlo_unary_kind kind, tt_hlo x) {
  tt_hlo in[] = {x};
  bool known = (unsigned)kind < TT_UNARY_COUNT;
  const char *name = known ? unary_ops[kind].name : "unary";
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  if (!known) {
    return TT_HLO_REFUSE(TT_ERR_INTERNAL, name, "no such operation: %d", (int)kind);
  }
  int class = class_of(x->dtype);
  if (!(unary_ops[kind].takes & class)) {
    return refuse_dtype(b, name, in, 1);
  }
  if (kind == TT_ABS && class == U) {
    return x;
  }
  tt_hlo_type type = tt_hlo_type_of(x);
  if (kind == TT_REAL || kind == TT_IMAG || kind == TT_ABS) {
    type.dtype = tt_dtype_real(x->dtype);
  } else if (kind == TT_IS_FINITE) {
    type.dtype = TT_PRED;
  }
  tt_hlo_form form = is_chlo(name) ? TT_FORM_CHLO : type.dtype != x->dtype ? TT_FORM_FUNCTION : TT_FORM_SAME;
  return tt_hlo_emit(b, name, form, in, 1, NULL, type);
}

static bool same_types(tt_hlo_builder *b, const char *name, tt_hlo x, tt_hlo y, const tt_hlo *in, int32_t count) {
  if (tt_hlo_same_type(tt_hlo_type_of(x), tt_hlo_type_of(y))) {
    return true;
  }
  tt_hlo_errorf(b, TT_ERR_RUNTIME, name, in, count, "the operands must have the same type");
  return false;
}

tt_hlo tt_hlo_binary(tt_hlo_binary_kind kind, tt_hlo x, tt_hlo y) {
  tt_hlo in[] = {x, y};
  bool known = (unsigned)kind < TT_BINARY_COUNT;
  const char *name = known ? binary_ops[kind].name : "binary";
  tt_hlo_builder *b = tt_hlo_enter(name, in, 2);
  if (!b) {
    return NULL;
  }
  if (!known) {
    return TT_HLO_REFUSE(TT_ERR_INTERNAL, name, "no such operation: %d", (int)kind);
  }
  if (!same_types(b, name, x, y, in, 2)) {
    return NULL;
  }
  if (!(binary_ops[kind].takes & class_of(x->dtype))) {
    return refuse_dtype(b, name, in, 2);
  }
  return tt_hlo_emit(b, name, is_chlo(name) ? TT_FORM_CHLO : TT_FORM_SAME, in, 2, NULL, tt_hlo_type_of(x));
}

tt_hlo tt_hlo_compare(tt_hlo_compare_kind kind, tt_hlo x, tt_hlo y) {
  static const char name[] = "stablehlo.compare";
  static const char *const kinds[] = {" EQ", " NE", " LT", " LE", " GT", " GE"};
  tt_hlo in[] = {x, y};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 2);
  if (!b || !same_types(b, name, x, y, in, 2)) {
    return NULL;
  }
  if ((unsigned)kind > TT_GE) {
    return TT_HLO_REFUSE(TT_ERR_INTERNAL, name, "no such comparison: %d", (int)kind);
  }
  if (class_of(x->dtype) == C && kind > TT_NE) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "complex numbers have no order");
  }
  return tt_hlo_emit(b, name, TT_FORM_COMPARE, in, 2, kinds[kind], (tt_hlo_type){TT_PRED, x->rank, x->dims});
}

// ---- select and clamp ----
tt_hlo tt_hlo_select(tt_hlo pred, tt_hlo on_true, tt_hlo on_false) {
  static const char name[] = "stablehlo.select";
  tt_hlo in[] = {pred, on_true, on_false};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 3);
  if (!b || !same_types(b, name, on_true, on_false, in, 3)) {
    return NULL;
  }
  if (pred->dtype != TT_PRED) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the condition must be boolean");
  }
  if (pred->rank && !tt_hlo_same_dims(pred, on_true)) {
    return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the condition must be 0-d or have the operands' shape");
  }
  if (on_true == on_false) {
    return on_true;
  }
  return tt_hlo_emit(b, name, TT_FORM_SELECT, in, 3, NULL, tt_hlo_type_of(on_true));
}

tt_hlo tt_hlo_clamp(tt_hlo low, tt_hlo x, tt_hlo high) {
  static const char name[] = "stablehlo.clamp";
  tt_hlo in[] = {low, x, high};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 3);
  if (!b) {
    return NULL;
  }
  if (!(class_of(x->dtype) & (I | F | E))) {
    return refuse_dtype(b, name, &in[1], 1);
  }
  for (int i = 0; i < 3; i += 2) {
    if (in[i]->dtype != x->dtype || (in[i]->rank && !tt_hlo_same_dims(in[i], x))) {
      return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "a bound must have the operand's type, or be 0-d");
    }
  }
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 3, NULL, tt_hlo_type_of(x));
}

// ---- conversions ----
tt_hlo tt_hlo_complex(tt_hlo real, tt_hlo imaginary) {
  static const char name[] = "stablehlo.complex";
  tt_hlo in[] = {real, imaginary};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 2);
  if (!b || !same_types(b, name, real, imaginary, in, 2)) {
    return NULL;
  }
  if (real->dtype != TT_F32 && real->dtype != TT_F64) {
    return refuse_dtype(b, name, in, 2);
  }
  tt_hlo_type type = tt_hlo_type_of(real);
  type.dtype = tt_dtype_complex(type.dtype);
  return tt_hlo_emit(b, name, TT_FORM_SAME, in, 2, NULL, type);
}

tt_hlo tt_hlo_convert(tt_hlo x, tt_dtype dtype) {
  static const char name[] = "stablehlo.convert";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b || x->dtype == dtype) {
    return b ? x : NULL;
  }
  if (tt_dtype_is_complex(x->dtype) && !tt_dtype_is_complex(dtype)) {
    in[0] = x = tt_hlo_unary(TT_REAL, x);
    if (!x || x->dtype == dtype) {
      return x;
    }
  }
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 1, NULL, (tt_hlo_type){dtype, x->rank, x->dims});
}

tt_hlo tt_hlo_bitcast_convert(tt_hlo x, tt_dtype dtype) {
  static const char name[] = "stablehlo.bitcast_convert";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b || x->dtype == dtype) {
    return b ? x : NULL;
  }
  int64_t from = (int64_t)tt_dtype_size(x->dtype), to = (int64_t)tt_dtype_size(dtype);
  int classes = class_of(x->dtype) | class_of(dtype);
  if (!to || classes & (P | C)) {
    return TT_HLO_REFUSE(TT_ERR_NOT_IMPLEMENTED, name, "no bit cast to %s", tt_dtype_torch_name(dtype));
  }
  int64_t dims[TT_MAX_RANK + 1];
  for (int32_t i = 0; i < x->rank; i++) {
    dims[i] = x->dims[i];
  }
  int32_t rank = x->rank;
  if (to < from) {
    dims[rank++] = from / to;
  } else if (to > from) {
    if (rank == 0 || dims[rank - 1] != to / from) {
      return TT_HLO_REFUSE(TT_ERR_RUNTIME, name, "the last dim must be %d to make %s", (int)(to / from),
                           tt_dtype_torch_name(dtype));
    }
    rank--;
  }
  return tt_hlo_emit(b, name, TT_FORM_FUNCTION, in, 1, NULL, (tt_hlo_type){dtype, rank, dims});
}

tt_hlo tt_hlo_reduce_precision(tt_hlo x, int32_t exponent_bits, int32_t mantissa_bits) {
  static const char name[] = "stablehlo.reduce_precision";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  if (!b) {
    return NULL;
  }
  if (class_of(x->dtype) != F) {
    return refuse_dtype(b, name, in, 1);
  }
  if (exponent_bits < 1 || exponent_bits > 11 || mantissa_bits < 0 || mantissa_bits > 52) {
    return TT_HLO_REFUSE(TT_ERR_VALUE, name,
                         "exponent bits must lie in 1 to 11, mantissa bits in 0 to 52, not %d and %d", exponent_bits,
                         mantissa_bits);
  }
  tt_strbuf *text = tt_hlo_attributes(b);
  tt_strbuf_printf(text, ", format = e%dm%d", exponent_bits, mantissa_bits);
  return tt_hlo_emit(b, name, TT_FORM_SAME, in, 1, tt_strbuf_text(text), tt_hlo_type_of(x));
}

tt_hlo tt_hlo_optimization_barrier(tt_hlo x) {
  static const char name[] = "stablehlo.optimization_barrier";
  tt_hlo in[] = {x};
  tt_hlo_builder *b = tt_hlo_enter(name, in, 1);
  return b ? tt_hlo_emit(b, name, TT_FORM_SAME, in, 1, NULL, tt_hlo_type_of(x)) : NULL;
}
