// hash_tensor: the exclusive or of elements as 64 bits.
#include "aten/dims.h"

static tt_hlo bits_const(tt_hlo like, uint64_t bits) {
  return v_like(tt_hlo_const_bits(tt_hlo_builder_of(like), like->dtype, bits), like);
}
static tt_hlo bits_left(tt_hlo x, uint64_t by) { return tt_hlo_binary(TT_SHIFT_LEFT, x, bits_const(x, by)); }
static tt_hlo bits_right(tt_hlo x, uint64_t by) { return tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, x, bits_const(x, by)); }

// The bits of a float32 as a float64, by integers alone: a TPU has no float64.
static tt_hlo widened_bits(tt_hlo x) {
  tt_hlo bits = tt_hlo_convert(tt_hlo_bitcast_convert(x, TT_U32), TT_U64);
  if (!bits) {
    return NULL;
  }
  tt_hlo sign = bits_left(bits_right(bits, 31), 63), exponent = v_and(bits_right(bits, 23), bits_const(bits, 0xff));
  tt_hlo mantissa = v_and(bits, bits_const(bits, 0x7fffff));
  tt_hlo is_small = v_eqc(exponent, 0), is_zero = v_and(is_small, v_eqc(mantissa, 0));
  // A subnormal becomes normal: its first bit moves to where it is implied.
  tt_hlo by = v_sub(tt_hlo_unary(TT_CLZ, mantissa), bits_const(bits, 40));
  by = v_if(v_and(is_small, v_not(is_zero)), by, bits_const(bits, 0));
  tt_hlo moved = v_and(tt_hlo_binary(TT_SHIFT_LEFT, mantissa, by), bits_const(bits, 0x7fffff));
  tt_hlo bias = bits_const(bits, 1023 - 127);
  tt_hlo wide = v_add(v_if(is_small, bits_const(bits, 1), exponent), v_sub(bias, by));
  wide = v_if(v_eqc(exponent, 0xff), bits_const(bits, 0x7ff), wide);
  wide = v_if(is_zero, bits_const(bits, 0), wide);
  return v_or(v_or(sign, bits_left(wide, 52)), bits_left(moved, 29));
}

static tt_hlo bits_of(tt_hlo x) {
  if (!x || x->dtype == TT_F64) {
    return x ? tt_hlo_bitcast_convert(x, TT_U64) : NULL;
  }
  return tt_dtype_is_float(x->dtype) ? widened_bits(tt_cast(x, TT_F32)) : tt_cast(tt_cast(x, TT_S64), TT_U64);
}

static void exclusive_or(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)context;
  (void)b;
  out[0] = v_xor(left[0], right[0]);
}

static void build_hash(tt_rule *r) {
  const tt_operand *out = tt_operand_of(r, "out");
  bool mask[TT_MAX_RANK];
  int32_t dims[TT_MAX_RANK], count = 0, listed = 0;
  tt_hlo self = tt_in(r, "self"), result = NULL;
  if (!self) {
    return;
  }
  tt_dim_mask(r, "dim", self->rank, true, mask);
  tt_ints(r, "dim", &listed);
  if (tt_int(r, "mode", 0) != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Unknown hash_tensor mode: %" PRId64, tt_int(r, "mode", 0));
  } else if (out && out->dtype != TT_U64) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected result to be of dtype uint64, but got %s", tt_type_name(out->dtype));
  } else if (tt_dtype_is_complex(self->dtype) || tt_is_barebones_unsigned(self->dtype)) {
    tt_fail_dtype(r, "xor_sum_cpu", self->dtype);
  } else if (listed == 0 && tt_hlo_numel(self) == 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Expected reduction dim to be specified for input.numel() == 0. Specify the reduction dim with the 'dim' "
            "argument.");
  }
  for (int32_t i = 0; i < self->rank && !tt_failed(r); i++) {
    if (mask[i]) {
      dims[count++] = i;
      if (self->dims[i] == 0) {
        tt_fail(r, TT_ERR_INDEX, "Expected reduction dim %d to have non-zero size.", i);
      }
    }
  }
  if (tt_failed(r)) {
    return;
  }
  tt_hlo bits = bits_of(self), zero = tt_hlo_const_bits(tt_b(r), TT_U64, 0);
  tt_hlo_reduce_multi(&bits, &zero, 1, dims, count, exclusive_or, NULL, &result);
  tt_ret(r, 0, tt_bool(r, "keepdim", false) ? tt_keepdim(result, self, mask) : result);
}

const tt_rule_entry tt_rules_hash[] = {
    {.name = "aten::hash_tensor", .build = build_hash},
    {0},
};
