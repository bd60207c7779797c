// softmax and log_softmax, forward and backward.
#include <math.h>

#include "aten/dims.h"

static bool check_dtype(tt_rule *r, const char *name, const char *kernel) {
  const tt_operand *x = tt_operand_of(r, name);
  if (x && !tt_dtype_is_float(x->dtype)) {
    tt_fail_dtype(r, kernel, x->dtype);
  }
  return x && !tt_failed(r);
}

// exp(x - max) along a dim, and its sum.
static tt_hlo shifted_exp(tt_hlo x, int32_t dim, tt_hlo *shifted, tt_hlo *sum) {
  *shifted = v_sub(x, v_spread(v_reduce(TT_MAX, x, dim), x, dim));
  tt_hlo e = v_exp(*shifted);
  *sum = v_reduce(TT_SUM, e, dim);
  return e;
}

// e * (1 / sum): one division a row, and two full-size operands (docs/design/xla_cpu.md).
static tt_hlo softmax(tt_hlo x, int32_t dim) {
  tt_hlo shifted, sum, e = shifted_exp(x, dim, &shifted, &sum);
  tt_hlo inverse = sum ? v_div(v_const(sum, 1), sum) : NULL;
  return v_mul(e, v_spread(inverse, x, dim));
}

static tt_hlo log_softmax(tt_hlo x, int32_t dim) {
  tt_hlo shifted, sum;
  shifted_exp(x, dim, &shifted, &sum);
  return v_sub(shifted, v_spread(v_log(sum), x, dim));
}

enum { KIND_SOFTMAX, KIND_LOG_SOFTMAX };

static void build_softmax(tt_rule *r) {
  const bool is_log = tt_rule_kind(r) == KIND_LOG_SOFTMAX;
  if (!check_dtype(r, "self", is_log ? "log_softmax_lastdim_kernel_impl" : "softmax_kernel_impl")) {
    return;
  }
  const tt_operand *self = tt_operand_of(r, "self");
  tt_dtype dtype = self->dtype;
  if (tt_bool(r, "half_to_float", false)) {
    if (dtype != TT_F16 && dtype != TT_BF16) {
      tt_fail(r, TT_ERR_RUNTIME, "conversion is supported for Half and BFloat16 type only");
      return;
    }
    dtype = TT_F32;
  }
  const int32_t dim = tt_dim(r, "dim", self->ndim);
  tt_hlo x = tt_in_as(r, "self", tt_opmath(dtype)), line = v_at_least_1d(x);
  tt_hlo result = is_log ? log_softmax(line, dim) : softmax(line, dim);
  tt_ret(r, 0, tt_cast(v_reshape_like(result, x), dtype));
}

// Rows that are -inf throughout give zeros.
static void build_safe_softmax(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  const tt_dtype dtype = tt_dtype_arg(r, "dtype", self ? tt_float_type(r, self->dtype) : TT_F32);
  const int32_t dim = tt_dim(r, "dim", self ? self->ndim : 0);
  tt_hlo x = tt_in_as(r, "self", tt_opmath(dtype)), line = v_at_least_1d(x);
  if (!line) {
    return;
  }
  tt_hlo masked = v_reduce(TT_ALL, v_eq(line, v_const(line, -INFINITY)), dim);
  tt_hlo result = v_if(v_spread(masked, line, dim), v_const(line, 0), softmax(line, dim));
  tt_ret(r, 0, tt_cast(v_reshape_like(result, x), dtype));
}

// The gradient with respect to the input, of dtype `input_dtype`.
static void build_softmax_backward(tt_rule *r) {
  const bool is_log = tt_rule_kind(r) == KIND_LOG_SOFTMAX;
  const tt_operand *grad_in = tt_operand_of(r, "grad_output");
  if (!check_dtype(r, "grad_output", "softmax_backward")) {
    return;
  }
  const tt_dtype compute = tt_opmath(grad_in->dtype), dtype = tt_dtype_arg(r, "input_dtype", grad_in->dtype);
  const int32_t dim = tt_dim(r, "dim", grad_in->ndim);
  tt_hlo x = tt_in_as(r, "grad_output", compute);
  tt_hlo grad = v_at_least_1d(x), output = v_at_least_1d(tt_in_as(r, "output", compute));
  tt_hlo result;
  if (is_log) {
    result = v_sub(grad, v_mul(v_exp(output), v_spread(v_reduce(TT_SUM, grad, dim), grad, dim)));
  } else {
    tt_hlo sum = v_reduce(TT_SUM, v_mul(grad, output), dim);
    result = v_mul(v_sub(grad, v_spread(sum, grad, dim)), output);
  }
  tt_ret(r, 0, tt_cast(v_reshape_like(result, x), dtype));
}

// ---- _masked_softmax: the mask's true elements are left out ----

// The mask over all of x's dims. mask_type 0: [L, L] source mask, 1: [N, L] padding mask, 2: as x.
static tt_hlo full_mask(tt_rule *r, tt_hlo x) {
  tt_hlo mask = tt_in_as(r, "mask", TT_PRED);
  if (!mask || !x || tt_hlo_same_dims(mask, x)) {
    return mask;
  }
  const int64_t type = tt_int(r, "mask_type", 2);
  if (x->rank == 4 && mask->rank == 2 && type == 0) {
    return tt_hlo_broadcast_to(mask, x->dims, x->rank);
  }
  if (x->rank == 4 && mask->rank == 2 && type == 1) {
    return tt_hlo_broadcast_in_dim(mask, x->dims, x->rank, (const int32_t[]){0, 3});
  }
  tt_fail(r, TT_ERR_RUNTIME, "Mask shape should match input. mask: %s input: %s",
          tt_dims_text(mask->dims, mask->rank).text, tt_dims_text(x->dims, x->rank).text);
  return NULL;
}

tt_hlo tt_masked_softmax(tt_hlo x, tt_hlo mask, int32_t dim) {
  return softmax(x && mask ? v_if(mask, v_const(x, -INFINITY), x) : x, dim);
}

static void build_masked_softmax(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!check_dtype(r, "self", "masked_softmax")) {
    return;
  }
  tt_hlo x = tt_in_as(r, "self", tt_opmath(self->dtype));
  tt_hlo mask = v_at_least_1d(full_mask(r, x)), line = v_at_least_1d(x);
  if (!line || !mask) {
    return;
  }
  const int32_t dim = tt_wrap_dim(r, tt_int(r, "dim", self->ndim - 1), self->ndim);
  tt_hlo result = tt_masked_softmax(line, mask, dim);
  tt_ret(r, 0, tt_cast(v_reshape_like(result, x), self->dtype));
}

static void build_masked_softmax_backward(tt_rule *r) {
  const tt_operand *grad_in = tt_operand_of(r, "grad_output");
  if (!check_dtype(r, "grad_output", "masked_softmax_backward")) {
    return;
  }
  const tt_dtype compute = tt_opmath(grad_in->dtype);
  const int32_t dim = tt_wrap_dim(r, tt_int(r, "dim", grad_in->ndim - 1), grad_in->ndim);
  tt_hlo x = tt_in_as(r, "grad_output", compute), output = v_at_least_1d(tt_in_as(r, "output", compute));
  tt_hlo mask = v_at_least_1d(full_mask(r, x)), grad = v_at_least_1d(x);
  if (!grad || !mask) {
    return;
  }
  grad = v_if(mask, v_const(grad, 0), grad);
  tt_hlo sum = v_reduce(TT_SUM, v_mul(grad, output), dim);
  tt_hlo result = v_mul(v_sub(grad, v_spread(sum, grad, dim)), output);
  result = v_if(mask, v_const(result, 0), result);
  tt_ret(r, 0, tt_cast(v_reshape_like(result, x), grad_in->dtype));
}

const tt_rule_entry tt_rules_softmax[] = {
    {.name = "aten::_softmax", .build = build_softmax, .kind = KIND_SOFTMAX},
    {.name = "aten::_log_softmax", .build = build_softmax, .kind = KIND_LOG_SOFTMAX},
    {.name = "aten::_safe_softmax", .build = build_safe_softmax},
    {.name = "aten::_softmax_backward_data", .build = build_softmax_backward, .kind = KIND_SOFTMAX},
    {.name = "aten::_log_softmax_backward_data", .build = build_softmax_backward, .kind = KIND_LOG_SOFTMAX},
    {.name = "aten::_masked_softmax", .build = build_masked_softmax},
    {.name = "aten::_masked_softmax_backward", .build = build_masked_softmax_backward},
    {.name = NULL},
};
