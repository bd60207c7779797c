// Comparisons, logical and bitwise operators, selection and clamping.
#include "aten/pointwise.h"

// ---- comparisons ----

static void build_compare(tt_rule *r) {
  static const char *const names[] = {"eq_cpu", "ne_cpu", "lt_cpu", "le_cpu", "gt_cpu", "ge_cpu"};
  int32_t kind = tt_rule_kind(r);
  tt_hlo x, y;
  tt_dtype dtype = tt_binary_in(r, "self", "other", &x, &y);
  bool ordered = kind != TT_EQ && kind != TT_NE;
  if (ordered && (tt_dtype_is_complex(dtype) || tt_is_barebones_unsigned(dtype))) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", names[kind], tt_type_name(dtype));
    return;
  }
  tt_ret_elementwise(r, 0, tt_hlo_compare((tt_hlo_compare_kind)kind, x, y));
}

// ---- logical ----
enum { L_AND, L_OR, L_XOR };

static bool logical_fits(tt_rule *r, const char *name, const char *kernel) {
  const tt_operand *x = tt_operand_of(r, name);
  if (x && tt_is_barebones_unsigned(x->dtype)) {
    tt_fail_dtype(r, kernel, x->dtype);
    return false;
  }
  return x != NULL;
}

static void build_logical(tt_rule *r) {
  static const char *const kernels[] = {"logical_and_cpu", "logical_or_cpu", "logical_xor_cpu"};
  static const tt_hlo_binary_kind ops[] = {TT_AND, TT_OR, TT_XOR};
  int32_t kind = tt_rule_kind(r);
  if (!logical_fits(r, "self", kernels[kind]) || !logical_fits(r, "other", kernels[kind])) {
    return;
  }
  tt_hlo xy[2] = {tt_in_as(r, "self", TT_PRED), tt_in_as(r, "other", TT_PRED)};
  tt_broadcast(r, xy, 2);
  tt_ret_elementwise(r, 0, tt_hlo_binary(ops[kind], xy[0], xy[1]));
}

static void build_logical_not(tt_rule *r) {
  if (logical_fits(r, "self", "logical_not_cpu")) {
    tt_ret_elementwise(r, 0, v_not(tt_in_as(r, "self", TT_PRED)));
  }
}

// ---- bitwise ----

static void build_bitwise(tt_rule *r) {
  tt_hlo x, y;
  tt_dtype dtype = tt_binary_in(r, "self", "other", &x, &y);
  int32_t kind = tt_rule_kind(r);
  if (!tt_is_integral(dtype)) {
    tt_fail_dtype(r, kind == TT_AND ? "bitwise_and_cpu" : kind == TT_OR ? "bitwise_or_cpu" : "bitwise_xor_cpu", dtype);
    return;
  }
  tt_ret_elementwise(r, 0, tt_hlo_binary((tt_hlo_binary_kind)kind, x, y));
}

static void build_bitwise_not(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  if (x && (!tt_is_integral(x->dtype) || tt_is_barebones_unsigned(x->dtype))) {
    tt_fail_dtype(r, "bitwise_not_cpu", x->dtype);
    return;
  }
  tt_ret_elementwise(r, 0, v_not(x));
}

// Shifts by less than zero or by the width and more: nothing is left (the sign, to the right).
static void build_shift(tt_rule *r) {
  bool left = tt_rule_kind(r) == TT_SHIFT_LEFT;
  tt_hlo x, y;
  tt_dtype dtype = tt_binary_in(r, "self", "other", &x, &y);
  if (!tt_dtype_is_int(dtype) || tt_is_barebones_unsigned(dtype)) {
    tt_fail_dtype(r, left ? "lshift_cpu" : "rshift_cpu", dtype);
    return;
  }
  double width = 8.0 * (double)tt_dtype_size(dtype);
  bool is_signed = tt_dtype_is_signed_int(dtype);
  tt_hlo outside = v_gec(y, width);
  if (is_signed) {
    outside = v_or(outside, v_ltc(y, 0));
  }
  tt_hlo amount = v_if(outside, v_const(y, is_signed ? width - 1 : 0), y);
  tt_hlo_binary_kind op = left ? TT_SHIFT_LEFT : is_signed ? TT_SHIFT_RIGHT_ARITHMETIC : TT_SHIFT_RIGHT_LOGICAL;
  tt_hlo shifted = tt_hlo_binary(op, x, amount);
  bool clears = left || !is_signed;
  tt_ret_elementwise(r, 0, clears ? v_if(outside, v_const(x, 0), shifted) : shifted);
}

// ---- where ----

static void build_where(tt_rule *r) {
  const tt_operand *condition = tt_operand_of(r, "condition");
  if (condition && condition->dtype != TT_PRED && condition->dtype != TT_U8) {
    tt_fail(r, TT_ERR_RUNTIME, "where expected condition to be a boolean tensor, but got a tensor with dtype %s",
            tt_type_name(condition->dtype));
    return;
  }
  tt_dtype dtype = tt_result_type(r, (const char *const[]){"self", "other"}, 2);
  if (tt_failed(r)) {
    return;
  }
  tt_hlo xs[3] = {tt_in_as(r, "condition", TT_PRED), tt_in_as(r, "self", dtype), tt_in_as(r, "other", dtype)};
  tt_broadcast(r, xs, 3);
  tt_ret_elementwise(r, 0, v_if(xs[0], xs[1], xs[2]));
}

static void build_masked_fill(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self"), *mask = tt_operand_of(r, "mask");
  if (!self || !mask) {
    return;
  }
  if (mask->dtype != TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "masked_fill_ only supports boolean masks, but got mask with dtype %s",
            tt_type_meta_name(mask->dtype));
    return;
  }
  tt_dtype from = tt_scalar_type(r, "value");
  if (from == TT_DTYPE_INVALID) {
    const tt_operand *value = tt_operand_of(r, "value");
    if (!value) {
      return;
    }
    if (value->ndim != 0) {
      tt_fail(r, TT_ERR_RUNTIME,
              "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with %d dimension(s).",
              value->ndim);
      return;
    }
    from = value->dtype;
  }
  if (tt_dtype_is_complex(from) && !tt_dtype_is_complex(self->dtype)) {
    tt_fail_overflow(r, self->dtype);
    return;
  }
  tt_hlo xs[3] = {tt_in(r, "mask"), tt_in(r, "self"), tt_in_number(r, "value", self->dtype)};
  tt_broadcast(r, xs, 3);
  tt_ret(r, 0, v_if(xs[0], xs[2], xs[1]));
}

// ---- clamp: NaN of the value or of a bound stays ----

static void build_clamp_of(tt_rule *r, const char *low, const char *high) {
  const char *names[3] = {"self", low, high};
  tt_dtype dtype = tt_result_type(r, names, 3);
  if (tt_failed(r) || !tt_result_fits(r, dtype)) {
    return;
  }
  if (tt_dtype_is_complex(dtype)) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "clamp is not supported for complex types");
    return;
  }
  bool has_low = tt_has(r, low), has_high = tt_has(r, high);
  bool both = has_low && has_high;
  if (tt_is_barebones_unsigned(dtype) || (both && dtype == TT_PRED)) {
    tt_fail_dtype(r, both ? "clamp_cpu" : has_low ? "clamp_min_cpu" : "clamp_max_cpu", dtype);
    return;
  }
  tt_hlo xs[3] = {tt_in_as(r, "self", dtype)};
  int32_t count = 1;
  if (has_low) {
    xs[count++] = tt_in_number(r, low, dtype);
  }
  if (has_high) {
    xs[count++] = tt_in_number(r, high, dtype);
  }
  if (!tt_broadcast(r, xs, count)) {
    return;
  }
  tt_hlo x = xs[0];
  if (has_low) {
    x = v_at_least(x, xs[1]);
  }
  if (has_high) {
    x = v_at_most(x, xs[count - 1]);
  }
  tt_ret_elementwise(r, 0, x);
}

static void build_clamp(tt_rule *r) {
  if (!tt_has(r, "min") && !tt_has(r, "max")) {
    tt_fail(r, TT_ERR_RUNTIME, "torch.clamp: At least one of 'min' or 'max' must not be None");
    return;
  }
  build_clamp_of(r, "min", "max");
}

// ---- assertions on values ----

static void build_assert(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  const char *message = tt_string(r, "assert_msg");
  if (self) {
    tt_device_assert(r, tt_in_as(r, "self", TT_PRED), TT_ERR_RUNTIME, "%s",
                     message ? message : "Expected Tensor with single nonzero value, but got zero");
  }
  if (tt_rule_kind(r)) {
    tt_ret_like(r, 0, tt_in(r, "dep_token"), "dep_token");
  }
}

#define COMPARE(op_name, which)                                                  \
  {.name = "aten::" op_name ".Tensor", .build = build_compare, .kind = which}, { \
    .name = "aten::" op_name ".Scalar", .build = build_compare, .kind = which    \
  }
#define KIND(op_name, function, which) {.name = "aten::" op_name, .build = function, .kind = which}
#define EXACT(op_name, function) {.name = "aten::" op_name, .build = function, .out_dtype = TT_OUT_EXACT}

const tt_rule_entry tt_rules_pointwise_logic[] = {
    COMPARE("eq", TT_EQ),
    COMPARE("ne", TT_NE),
    COMPARE("lt", TT_LT),
    COMPARE("le", TT_LE),
    COMPARE("gt", TT_GT),
    COMPARE("ge", TT_GE),
    KIND("logical_and", build_logical, L_AND),
    KIND("logical_or", build_logical, L_OR),
    KIND("logical_xor", build_logical, L_XOR),
    KIND("logical_not", build_logical_not, 0),
    KIND("bitwise_and.Tensor", build_bitwise, TT_AND),
    KIND("bitwise_or.Tensor", build_bitwise, TT_OR),
    KIND("bitwise_xor.Tensor", build_bitwise, TT_XOR),
    EXACT("bitwise_not", build_bitwise_not),
    KIND("bitwise_left_shift.Tensor", build_shift, TT_SHIFT_LEFT),
    KIND("bitwise_right_shift.Tensor", build_shift, TT_SHIFT_RIGHT_ARITHMETIC),
    KIND("__lshift__.Tensor", build_shift, TT_SHIFT_LEFT),
    KIND("__lshift__.Scalar", build_shift, TT_SHIFT_LEFT),
    KIND("__rshift__.Tensor", build_shift, TT_SHIFT_RIGHT_ARITHMETIC),
    KIND("__rshift__.Scalar", build_shift, TT_SHIFT_RIGHT_ARITHMETIC),
    KIND("__ilshift__.Tensor", build_shift, TT_SHIFT_LEFT),
    KIND("__ilshift__.Scalar", build_shift, TT_SHIFT_LEFT),
    KIND("__irshift__.Tensor", build_shift, TT_SHIFT_RIGHT_ARITHMETIC),
    KIND("__irshift__.Scalar", build_shift, TT_SHIFT_RIGHT_ARITHMETIC),
    EXACT("where.self", build_where),
    KIND("masked_fill.Scalar", build_masked_fill, 0),
    KIND("masked_fill.Tensor", build_masked_fill, 0),
    EXACT("clamp", build_clamp),
    KIND("clamp.Tensor", build_clamp, 0),
    EXACT("clamp_min", build_clamp),
    KIND("clamp_min.Tensor", build_clamp, 0),
    EXACT("clamp_max", build_clamp),
    KIND("clamp_max.Tensor", build_clamp, 0),
    KIND("_assert_async", build_assert, 0),
    KIND("_assert_async.msg", build_assert, 0),
    KIND("_functional_assert_async.msg", build_assert, 1),
    {.name = NULL},
};
