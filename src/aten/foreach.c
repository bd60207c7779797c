// _foreach_*: one operator over lists of tensors, as one program.
#include <math.h>
#include <string.h>

#include "aten/pointwise.h"

// ---- lists ----

static int32_t self_length(tt_rule *r) {
  int32_t n = tt_list_length(r, "self");
  if (n == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Tensor list must have at least one tensor.");
  }
  return n;
}

static bool same_length(tt_rule *r, const char *name, int32_t n) {
  int32_t got = tt_list_length(r, name);
  if (!tt_failed(r) && got != n) {
    tt_fail(r, TT_ERR_RUNTIME, "Tensor lists must have the same number of tensors, got %d and %d", n, got);
  }
  return !tt_failed(r);
}

static bool same_scalars(tt_rule *r, const char *name, int32_t n) {
  if (!tt_failed(r) && tt_list_length(r, name) != n) {
    tt_fail(r, TT_ERR_RUNTIME, "Tensor list must have same number of elements as scalar list.");
  }
  return !tt_failed(r);
}

// One operand of the program for a number that every element uses, whatever the length of the list.
typedef struct {
  const char *name;
  tt_hlo values[TT_DTYPE_COUNT];
} shared_number;

static tt_hlo shared_in(tt_rule *r, shared_number *shared, tt_dtype dtype) {
  if (!shared->values[dtype]) {
    shared->values[dtype] = tt_in_number(r, shared->name, dtype);
  }
  return shared->values[dtype];
}

// ---- unary ----

static void build_unary(tt_rule *r) {
  int32_t n = self_length(r);
  for (int32_t i = 0; i < n && !tt_failed(r); i++) {
    tt_ret_list(r, 0, i, tt_pw_unary(r, tt_rule_kind(r), tt_in_at(r, "self", i)));
  }
}

static void build_zero(tt_rule *r) {
  int32_t n = self_length(r);
  for (int32_t i = 0; i < n; i++) {
    const tt_operand *x = tt_operand_at(r, "self", i);
    if (x) {
      tt_ret_list(r, 0, i, tt_hlo_const(tt_b(r), x->dtype, 0, x->sizes, x->ndim));
    }
  }
}

static void build_copy(tt_rule *r) {
  int32_t n = self_length(r);
  if (!same_length(r, "src", n)) {
    return;
  }
  for (int32_t i = 0; i < n; i++) {
    const tt_operand *x = tt_operand_at(r, "self", i);
    if (x) {
      tt_ret_list(r, 0, i, tt_hlo_broadcast_to(tt_in_at_as(r, "src", i, x->dtype), x->sizes, x->ndim));
    }
  }
}

// ---- binary ----
typedef enum { F_ADD, F_SUB, F_MUL, F_DIV, F_CLAMP_MIN, F_CLAMP_MAX, F_POW } op_kind;
typedef enum { BY_SCALAR, BY_SCALAR_LIST, BY_LIST, BY_TENSOR } by_kind;
#define BINARY_KIND(op, by) ((op) * 4 + (by))

typedef struct {
  op_kind op;
  by_kind by;
  const char *other;
  shared_number number, alpha;
} binary_call;

static binary_call binary_of(tt_rule *r) {
  static const char *const names[] = {"scalar", "scalars", "other", "other"};
  binary_call c = {.op = (op_kind)(tt_rule_kind(r) / 4), .by = (by_kind)(tt_rule_kind(r) % 4)};
  c.other = c.op == F_POW ? "exponent" : names[c.by];
  c.number.name = c.other;
  c.alpha.name = "alpha";
  return c;
}

static const tt_operand *other_operand(tt_rule *r, const binary_call *c, int32_t i) {
  return c->by == BY_LIST ? tt_operand_at(r, c->other, i) : c->by == BY_TENSOR ? tt_operand_of(r, c->other) : NULL;
}

static tt_hlo other_in(tt_rule *r, binary_call *c, int32_t i, tt_dtype dtype) {
  switch (c->by) {
    case BY_SCALAR_LIST:
      return tt_scalar_at(r, c->other, i, dtype);
    case BY_LIST:
      return tt_in_at_as(r, c->other, i, dtype);
    default:
      return shared_in(r, &c->number, dtype);
  }
}

static tt_hlo apply(tt_rule *r, const binary_call *c, tt_hlo x, tt_hlo y, tt_dtype dtype) {
  switch (c->op) {
    case F_ADD:
      return dtype == TT_PRED ? v_or(x, y) : v_add(x, y);
    case F_SUB:
      return v_sub(x, y);
    case F_MUL:
      return tt_pw_mul(x, y);
    case F_DIV:
      return v_div(x, y);
    case F_CLAMP_MIN:
      return v_clamped(x, y, tt_pw_binary(r, PW_MAXIMUM, x, y));
    case F_CLAMP_MAX:
      return v_clamped(x, y, tt_pw_binary(r, PW_MINIMUM, x, y));
    default:
      return tt_pw_binary(r, PW_POW, x, y);
  }
}

static tt_hlo binary_at(tt_rule *r, binary_call *c, int32_t i) {
  const tt_operand *xs[2] = {tt_operand_at(r, "self", i), other_operand(r, c, i)};
  tt_dtype number = c->by == BY_SCALAR        ? tt_scalar_type(r, c->other)
                    : c->by == BY_SCALAR_LIST ? tt_scalar_type_at(r, c->other, i)
                                              : TT_DTYPE_INVALID;
  tt_dtype dtype = tt_promote_operands(r, xs, 2, number);
  double known;
  if (c->op == F_POW && c->by == BY_SCALAR && dtype != TT_PRED && tt_scalar_known(r, c->other, &known)) {
    return tt_pw_pow_known(r, tt_in_at_as(r, "self", i, dtype), known);
  }
  if (c->op == F_SUB && xs[0] && !tt_pw_sub_fits(r, xs[0]->dtype, xs[1] ? xs[1]->dtype : number)) {
    return NULL;
  }
  if (c->op == F_DIV) {
    dtype = tt_float_type(r, dtype);
  }
  // Numbers keep the computing type's precision in products and quotients, as mul and div do.
  tt_dtype compute = tt_opmath(dtype);
  bool fine = (c->op == F_MUL || c->op == F_DIV) && (!xs[1] || xs[1]->ndim == 0);
  tt_hlo xy[2] = {tt_cast(tt_in_at_as(r, "self", i, dtype), compute),
                  fine ? other_in(r, c, i, compute) : tt_cast(other_in(r, c, i, dtype), compute)};
  double alpha;
  if ((c->op == F_ADD || c->op == F_SUB) && tt_has(r, "alpha") && !tt_scalar_known(r, "alpha", &alpha)) {
    xy[1] = tt_pw_mul(xy[1], v_like(tt_cast(shared_in(r, &c->alpha, dtype), compute), xy[1]));
  }
  tt_broadcast(r, xy, 2);
  return tt_cast(apply(r, c, xy[0], xy[1], dtype), dtype);
}

static void build_binary(tt_rule *r) {
  int32_t n = self_length(r);
  binary_call c = binary_of(r);
  if (tt_failed(r) || (c.by == BY_LIST && !same_length(r, c.other, n)) ||
      (c.by == BY_SCALAR_LIST && !same_scalars(r, c.other, n))) {
    return;
  }
  if (c.by == BY_TENSOR) {
    const tt_operand *y = tt_operand_of(r, c.other);
    int64_t numel = 1;
    for (int32_t i = 0; y && i < y->ndim; i++) {
      numel *= y->sizes[i];
    }
    if (y && y->ndim != 0) {
      tt_fail(r, TT_ERR_RUNTIME, "scalar tensor expected to be 0 dim but it has %d dimensions and %lld elements.",
              y->ndim, (long long)numel);
    }
  }
  for (int32_t i = 0; i < n && !tt_failed(r); i++) {
    tt_ret_list(r, 0, i, binary_at(r, &c, i));
  }
}

// Scalar self, Tensor[] exponent.
static void build_pow_of_scalar(tt_rule *r) {
  int32_t n = tt_list_length(r, "exponent");
  for (int32_t i = 0; i < n && !tt_failed(r); i++) {
    const tt_operand *y = tt_operand_at(r, "exponent", i);
    tt_dtype dtype = tt_promote_operands(r, &y, 1, tt_scalar_type(r, "self"));
    tt_hlo exponent = tt_in_at_as(r, "exponent", i, dtype);
    tt_ret_list(r, 0, i, tt_pw_binary(r, PW_POW, v_like(tt_scalar(r, "self", dtype), exponent), exponent));
  }
}

// ---- addcmul, addcdiv ----
enum { C_MUL, C_DIV };

static tt_hlo addc_at(tt_rule *r, int32_t i, bool divides, shared_number *shared) {
  const tt_operand *xs[3] = {tt_operand_at(r, "self", i), tt_operand_at(r, "tensor1", i),
                             tt_operand_at(r, "tensor2", i)};
  tt_dtype dtype = tt_promote_operands(r, xs, 3, TT_DTYPE_INVALID), compute = tt_opmath(dtype);
  if (dtype == TT_PRED || (divides && xs[1] && xs[2] && tt_is_integral(xs[1]->dtype) && tt_is_integral(xs[2]->dtype))) {
    if (divides) {
      tt_fail(r, TT_ERR_RUNTIME,
              "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will perform a "
              "true division of tensor1 and tensor2.");
    } else {
      tt_fail_dtype(r, "addcmul_cpu_out", dtype);
    }
    return NULL;
  }
  tt_hlo x[3] = {tt_cast(tt_in_at_as(r, "self", i, dtype), compute),
                 tt_cast(tt_in_at_as(r, "tensor1", i, dtype), compute),
                 tt_cast(tt_in_at_as(r, "tensor2", i, dtype), compute)};
  if (!tt_broadcast(r, x, 3)) {
    return NULL;
  }
  double value;
  tt_hlo scale = tt_has(r, "scalars")                  ? tt_scalar_at(r, "scalars", i, compute)
                 : tt_scalar_known(r, "value", &value) ? NULL
                                                       : shared_in(r, shared, compute);
  if (scale) {
    x[1] = v_mul(v_like(scale, x[1]), x[1]);
  }
  return tt_cast(v_add(x[0], divides ? v_div(x[1], x[2]) : v_mul(x[1], x[2])), dtype);
}

static void build_addc(tt_rule *r) {
  int32_t n = self_length(r);
  if (!same_length(r, "tensor1", n) || !same_length(r, "tensor2", n) ||
      (tt_has(r, "scalars") && !same_scalars(r, "scalars", n))) {
    return;
  }
  shared_number value = {.name = "value"};
  for (int32_t i = 0; i < n && !tt_failed(r); i++) {
    tt_ret_list(r, 0, i, addc_at(r, i, tt_rule_kind(r) == C_DIV, &value));
  }
}

// ---- lerp ----

static void build_lerp(tt_rule *r) {
  by_kind by = (by_kind)tt_rule_kind(r);
  int32_t n = self_length(r);
  if (!same_length(r, "tensors1", n) || (by == BY_LIST && !same_length(r, "weights", n)) ||
      (by == BY_SCALAR_LIST && !same_scalars(r, "weight", n))) {
    return;
  }
  shared_number shared = {.name = "weight"};
  for (int32_t i = 0; i < n && !tt_failed(r); i++) {
    const tt_operand *x = tt_operand_at(r, "self", i), *end = tt_operand_at(r, "tensors1", i);
    if (!x || !end) {
      return;
    }
    if (x->dtype != end->dtype) {
      tt_fail(r, TT_ERR_RUNTIME, "expected dtype %s for `end` but got dtype %s", tt_type_meta_name(x->dtype),
              tt_type_meta_name(end->dtype));
      return;
    }
    if (tt_is_integral(x->dtype)) {
      tt_fail_dtype(r, by == BY_LIST ? "lerp_kernel_tensor" : "lerp_kernel_scalar", x->dtype);
      return;
    }
    tt_dtype compute = tt_opmath(x->dtype);
    tt_hlo weight = by == BY_LIST          ? tt_in_at_as(r, "weights", i, compute)
                    : by == BY_SCALAR_LIST ? tt_scalar_at(r, "weight", i, compute)
                                           : shared_in(r, &shared, compute);
    tt_hlo xs[3] = {tt_in_at_as(r, "self", i, compute), tt_in_at_as(r, "tensors1", i, compute), weight};
    tt_broadcast(r, xs, 3);
    tt_ret_list(r, 0, i, tt_cast(tt_pw_lerp(xs[0], xs[1], xs[2]), x->dtype));
  }
}

// ---- norm ----

static tt_hlo reduce_all(tt_hlo_reducer reducer, tt_hlo x) {
  bool mask[TT_MAX_RANK];
  memset(mask, true, sizeof mask);
  return tt_reduce_mask(reducer, x, mask);
}

static tt_hlo norm_of(tt_hlo x, double ord) {
  tt_hlo size = v_abs(x);
  if (isinf(ord)) {
    return reduce_all(ord > 0 ? TT_MAX : TT_MIN, size);
  }
  if (ord == 0) {
    return reduce_all(TT_SUM, tt_cast(v_ne(size, v_const(size, 0)), size ? size->dtype : TT_F32));
  }
  if (ord == 1) {
    return reduce_all(TT_SUM, size);
  }
  if (ord == 2) {
    return v_sqrt(reduce_all(TT_SUM, v_mul(size, size)));
  }
  tt_hlo sum = reduce_all(TT_SUM, tt_hlo_binary(TT_POWER, size, v_const(size, ord)));
  return tt_hlo_binary(TT_POWER, sum, v_const(sum, 1 / ord));
}

static void build_norm(tt_rule *r) {
  int32_t n = self_length(r);
  double ord = tt_static_double(r, "ord", 2);
  for (int32_t i = 0; i < n && !tt_failed(r); i++) {
    const tt_operand *x = tt_operand_at(r, "self", i);
    if (!x || tt_is_integral(x->dtype)) {
      tt_fail(r, TT_ERR_RUNTIME, "linalg.vector_norm: Expected a floating point or complex tensor as input. Got %s",
              tt_type_name(x ? x->dtype : TT_DTYPE_INVALID));
      return;
    }
    tt_hlo value = tt_in_at(r, "self", i);
    if (isinf(ord) && tt_hlo_numel(value) == 0) {
      tt_fail(r, TT_ERR_RUNTIME,
              "_foreach_norm cannot compute the infinity norm on an empty tensor because the operation does not have "
              "an identity");
      return;
    }
    if (ord < 0 && tt_hlo_numel(value) == 0) {
      tt_fail(r, TT_ERR_RUNTIME,
              "linalg.vector_norm cannot compute the %g norm on an empty tensor because the operation does not have "
              "an identity",
              ord);
      return;
    }
    tt_dtype dtype = tt_dtype_arg(r, "dtype", x->dtype);
    tt_hlo norm = norm_of(tt_cast(tt_cast(value, dtype), tt_opmath(dtype)), ord);
    tt_ret_list(r, 0, i, tt_cast(norm, tt_dtype_real(dtype)));
  }
}

#define UNARY(op_name, which) {.name = "aten::_foreach_" op_name, .build = build_unary, .kind = which}
#define BINARY(op_name, op, suffix, by) \
  {.name = "aten::_foreach_" op_name "." suffix, .build = build_binary, .kind = BINARY_KIND(op, by)}
#define ARITHMETIC(name, op)                                                             \
  BINARY(name, op, "Scalar", BY_SCALAR), BINARY(name, op, "ScalarList", BY_SCALAR_LIST), \
      BINARY(name, op, "List", BY_LIST)
#define KIND(op_name, function, which) {.name = "aten::_foreach_" op_name, .build = function, .kind = which}

const tt_rule_entry tt_rules_foreach[] = {
    UNARY("abs", PW_ABS),
    UNARY("acos", PW_ACOS),
    UNARY("asin", PW_ASIN),
    UNARY("atan", PW_ATAN),
    UNARY("ceil", PW_CEIL),
    UNARY("cos", PW_COS),
    UNARY("cosh", PW_COSH),
    UNARY("erf", PW_ERF),
    UNARY("erfc", PW_ERFC),
    UNARY("exp", PW_EXP),
    UNARY("expm1", PW_EXPM1),
    UNARY("floor", PW_FLOOR),
    UNARY("frac", PW_FRAC),
    UNARY("lgamma", PW_LGAMMA),
    UNARY("log", PW_LOG),
    UNARY("log10", PW_LOG10),
    UNARY("log1p", PW_LOG1P),
    UNARY("log2", PW_LOG2),
    UNARY("neg", PW_NEG),
    UNARY("reciprocal", PW_RECIPROCAL),
    UNARY("round", PW_ROUND),
    UNARY("rsqrt", PW_RSQRT),
    UNARY("sigmoid", PW_SIGMOID),
    UNARY("sign", PW_SIGN),
    UNARY("sin", PW_SIN),
    UNARY("sinh", PW_SINH),
    UNARY("sqrt", PW_SQRT),
    UNARY("tan", PW_TAN),
    UNARY("tanh", PW_TANH),
    UNARY("trunc", PW_TRUNC),
    KIND("zero", build_zero, 0),
    KIND("copy", build_copy, 0),
    ARITHMETIC("add", F_ADD),
    BINARY("add", F_ADD, "Tensor", BY_TENSOR),
    ARITHMETIC("sub", F_SUB),
    ARITHMETIC("mul", F_MUL),
    BINARY("mul", F_MUL, "Tensor", BY_TENSOR),
    ARITHMETIC("div", F_DIV),
    BINARY("div", F_DIV, "Tensor", BY_TENSOR),
    ARITHMETIC("maximum", F_CLAMP_MIN),
    ARITHMETIC("minimum", F_CLAMP_MAX),
    ARITHMETIC("clamp_min", F_CLAMP_MIN),
    ARITHMETIC("clamp_max", F_CLAMP_MAX),
    {.name = "aten::_foreach_pow.Scalar",
     .build = build_binary,
     .kind = BINARY_KIND(F_POW, BY_SCALAR),
     .special_values = "exponent=-2,-1,-0.5,0,0.5,1,2,3"},
    BINARY("pow", F_POW, "ScalarList", BY_SCALAR_LIST),
    BINARY("pow", F_POW, "List", BY_LIST),
    KIND("pow.ScalarAndTensor", build_pow_of_scalar, 0),
    KIND("addcmul.Scalar", build_addc, C_MUL),
    KIND("addcmul.ScalarList", build_addc, C_MUL),
    KIND("addcdiv.Scalar", build_addc, C_DIV),
    KIND("addcdiv.ScalarList", build_addc, C_DIV),
    KIND("lerp.Scalar", build_lerp, BY_SCALAR),
    KIND("lerp.ScalarList", build_lerp, BY_SCALAR_LIST),
    KIND("lerp.List", build_lerp, BY_LIST),
    {.name = "aten::_foreach_norm.Scalar", .build = build_norm, .static_args = "ord"},
    {.name = NULL},
};
