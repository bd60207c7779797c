// Products of quantised matrices: float8 operands with scales, int8 weights with one scale a row.
#include <math.h>

#include "aten/dims.h"

static bool is_float8(const tt_operand *x) { return x && (x->dtype == TT_F8E4M3FN || x->dtype == TT_F8E5M2); }

// ---- _scaled_mm ----

typedef struct scaled {
  const tt_operand *a, *b;
  tt_hlo scale_a, scale_b;  // of one element, or [m, 1] and [1, n]
  tt_dtype out;
} scaled;

static bool matrices_fit(tt_rule *r, scaled *s) {
  s->a = tt_operand_of(r, "self");
  s->b = tt_operand_of(r, "mat2");
  const tt_operand *bias = tt_operand_of(r, "bias"), *out = tt_operand_of(r, "out");
  if (!s->a || !s->b) {
    return false;
  }
  s->out = tt_dtype_arg(r, "out_dtype", out ? out->dtype : s->a->dtype);
  if (s->a->ndim != 2 || s->b->ndim != 2) {
    tt_fail(r, TT_ERR_RUNTIME, "%s must be a matrix", s->a->ndim != 2 ? "mat1" : "mat2");
  } else if (s->a->sizes[1] != s->b->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "mat1 and mat2 shapes cannot be multiplied (%" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64 ")",
            s->a->sizes[0], s->a->sizes[1], s->b->sizes[0], s->b->sizes[1]);
  } else if (bias && tt_operand_numel(bias) != s->b->sizes[1]) {
    tt_fail(r, TT_ERR_RUNTIME, "Bias must be size %" PRId64 " but got %" PRId64, s->b->sizes[1],
            tt_operand_numel(bias));
  } else if (out && out->dtype != s->out) {
    tt_fail(r, TT_ERR_RUNTIME, "out_dtype must match output matrix type");
  } else if ((bias && !tt_dtype_is_float(bias->dtype)) || !tt_dtype_is_float(s->out) || s->out == TT_F64) {
    tt_fail(r, TT_ERR_RUNTIME, "float/bfloat16/half/fp8 tensors are expected, not %s",
            tt_type_name(tt_dtype_is_float(s->out) && s->out != TT_F64 ? bias->dtype : s->out));
  }
  return !tt_failed(r);
}

static bool is_row_scale(const tt_operand *x, int64_t rows, int64_t columns) {
  return x->dtype == TT_F32 && x->ndim == 2 && x->sizes[0] == rows && x->sizes[1] == columns &&
         x->strides[0] == columns && x->strides[1] == 1;
}

// oneDNN, which has products of one type, rounds to float16 first, and its float8_e4m3fn overflows to NaN where a cast
// stops at 448.
static tt_hlo to_output(tt_hlo x, tt_dtype dtype, bool mixed) {
  if (mixed || (dtype != TT_F8E4M3FN && dtype != TT_F8E5M2)) {
    return tt_cast(x, dtype);
  }
  x = tt_cast(tt_cast(x, TT_F16), TT_F32);
  return tt_cast(dtype == TT_F8E4M3FN ? v_if(v_gtc(v_abs(x), 464), v_const(x, (double)NAN), x) : x, dtype);
}

static void ret_product(tt_rule *r, const scaled *s) {
  tt_hlo product = tt_matmul(r, tt_in_as(r, "self", TT_F32), tt_in_as(r, "mat2", TT_F32));
  product = v_mul(product, v_like(s->scale_a, product));
  product = v_mul(product, v_like(s->scale_b, product));
  if (!product) {
    return;
  }
  if (tt_has(r, "bias")) {
    tt_hlo bias = tt_hlo_reshape(tt_in_as(r, "bias", TT_F32), &s->b->sizes[1], 1);
    product = v_add(product, v_like(bias, product));
  }
  if (tt_has(r, "scale_result") && (s->out == TT_F8E4M3FN || s->out == TT_F8E5M2)) {
    tt_hlo by = tt_hlo_reshape(tt_in_as(r, "scale_result", TT_F32), NULL, 0);
    product = v_div(product, v_like(by, product));
  }
  tt_ret(r, 0, to_output(product, s->out, s->a->dtype != s->b->dtype));
}

static void build_scaled_mm(tt_rule *r) {
  scaled s = {0};
  const tt_operand *scale_a = tt_operand_of(r, "scale_a"), *scale_b = tt_operand_of(r, "scale_b");
  if (!matrices_fit(r, &s) || !scale_a || !scale_b) {
    return;
  }
  const bool whole = tt_operand_numel(scale_a) == 1 && tt_operand_numel(scale_b) == 1;
  if (!is_float8(s.a)) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected mat1 to be Float8 matrix got %s", tt_type_name(s.a->dtype));
  } else if (!is_float8(s.b) ||
             (!whole && !(is_row_scale(scale_a, s.a->sizes[0], 1) && is_row_scale(scale_b, 1, s.b->sizes[1])))) {
    tt_fail(r, TT_ERR_VALUE, "Invalid scaling configuration.");
  } else {
    s.scale_a = tt_in_as(r, "scale_a", TT_F32);
    s.scale_b = tt_in_as(r, "scale_b", TT_F32);
    if (whole) {
      s.scale_a = tt_hlo_reshape(s.scale_a, NULL, 0);
      s.scale_b = tt_hlo_reshape(s.scale_b, NULL, 0);
    }
    ret_product(r, &s);
  }
}

// ---- _scaled_mm_v2 ----

enum { TENSOR_WISE, ROW_WISE };  // at::blas::ScalingType; the CPU has no others

static int64_t only_int(tt_rule *r, const char *name) {
  int32_t count;
  const int64_t *values = tt_ints(r, name, &count);
  return count == 1 ? values[0] : -1;
}

static tt_hlo scale_v2(tt_rule *r, const char *name, int64_t recipe, int64_t rows, int64_t columns) {
  const tt_operand *x = tt_operand_at(r, name, 0);
  if (!x) {
    return NULL;
  }
  if (recipe == TENSOR_WISE) {
    if (tt_operand_numel(x) != 1 || x->dtype != TT_F32) {
      tt_fail(r, TT_ERR_VALUE, "%s must have 1 Float element", name);
      return NULL;
    }
    return tt_hlo_reshape(tt_in_at(r, name, 0), NULL, 0);
  }
  const int32_t wanted = x->ndim < 1 ? 0 : 1;
  if (x->ndim < 2) {
    tt_fail(r, TT_ERR_INDEX,
            x->ndim ? "Dimension out of range (expected to be in range of [-1, 0], but got %d)"
                    : "Dimension specified as %d but tensor has no dimensions",
            wanted);
  } else if (!is_row_scale(x, rows, columns)) {
    tt_fail(r, TT_ERR_VALUE, "%s must have shape [%" PRId64 ", %" PRId64 "], got [%s]", name, rows, columns,
            tt_dims_text(x->sizes, x->ndim).text);
  }
  return tt_failed(r) ? NULL : tt_in_at(r, name, 0);
}

static void build_scaled_mm_v2(tt_rule *r) {
  scaled s = {0};
  int32_t dims_count;
  const int64_t *dims = tt_ints(r, "contraction_dim", &dims_count);
  if (dims_count == 2 && (s.a = tt_operand_of(r, "self"), s.b = tt_operand_of(r, "mat2"), s.a && s.b) &&
      (dims[0] != 1 || dims[1] != 0)) {
    tt_fail(r, TT_ERR_VALUE,
            "mat_a and mat_b shapes cannot be multiplied with contraction dims mat_a: %" PRId64 ", mat_b: %" PRId64,
            dims[0], dims[1]);
    return;
  }
  if (!matrices_fit(r, &s)) {
    return;
  }
  const int64_t recipe = only_int(r, "recipe_a");
  const bool single = tt_list_length(r, "scale_a") == 1 && tt_list_length(r, "scale_b") == 1;
  if (!single || recipe != only_int(r, "recipe_b") || (recipe != TENSOR_WISE && recipe != ROW_WISE) ||
      !is_float8(s.a) || !is_float8(s.b)) {
    tt_fail(r, TT_ERR_VALUE, "Invalid scaling configuration.");
    return;
  }
  if (only_int(r, "swizzle_a") > 0 || only_int(r, "swizzle_b") > 0) {
    tt_fail(r, TT_ERR_VALUE, "CPU does not support swizzle.");
    return;
  }
  s.scale_a = scale_v2(r, "scale_a", recipe, s.a->sizes[0], 1);
  s.scale_b = scale_v2(r, "scale_b", recipe, 1, s.b->sizes[1]);
  if (!tt_failed(r)) {
    ret_product(r, &s);
  }
}

// ---- _weight_int8pack_mm ----

static bool packed_fits(tt_rule *r, const tt_operand *a, const tt_operand *b, const tt_operand *scales) {
  if (a->dtype != TT_F32 && a->dtype != TT_F16 && a->dtype != TT_BF16) {
    tt_fail(r, TT_ERR_RUNTIME, "expect A to be either 32-bit or 16-bit float tensor.");
  } else if (a->ndim != 2 || b->ndim != 2) {
    tt_fail(r, a->ndim < 2 ? TT_ERR_INDEX : TT_ERR_RUNTIME, "expect A and B to be 2d tensors.");
  } else if (a->sizes[1] > 1 && a->strides[1] != 1) {
    tt_fail(r, TT_ERR_RUNTIME, "A must be contiguous on the last dimension.");
  } else if (b->dtype != TT_S8) {
    tt_fail(r, TT_ERR_RUNTIME, "expect B to be int8 tensor.");
  } else if (b->strides[1] != 1 || b->strides[0] != b->sizes[1]) {
    tt_fail(r, TT_ERR_RUNTIME, "expect B to be contiguous.");
  } else if (b->sizes[1] != a->sizes[1]) {
    tt_fail(r, TT_ERR_RUNTIME, "expect B.size(1) == %" PRId64, a->sizes[1]);
  } else if (scales->ndim != 1 || scales->sizes[0] != b->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME, "expect scales to be 1d tensor with size %" PRId64, b->sizes[0]);
  } else if (scales->dtype != a->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(a->dtype),
            tt_type_name(scales->dtype));
  }
  return !tt_failed(r);
}

static void build_int8pack(tt_rule *r) {
  static const int32_t swap[] = {1, 0};
  const tt_operand *a = tt_operand_of(r, "self"), *b = tt_operand_of(r, "mat2"), *scales = tt_operand_of(r, "scales");
  if (!a || !b || !scales || !packed_fits(r, a, b, scales)) {
    return;
  }
  tt_hlo y = tt_matmul(r, tt_in_as(r, "self", TT_F32), tt_hlo_transpose(tt_in_as(r, "mat2", TT_F32), swap));
  tt_ret(r, 0, tt_cast(v_mul(y, v_like(tt_in_as(r, "scales", TT_F32), y)), a->dtype));
}

const tt_rule_entry tt_rules_scaled_mm[] = {
    {.name = "aten::_scaled_mm", .build = build_scaled_mm},
    {.name = "aten::_scaled_mm_v2", .build = build_scaled_mm_v2},
    {.name = "aten::_weight_int8pack_mm", .build = build_int8pack},
    {0},
};
