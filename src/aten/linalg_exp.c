// The exponential of a matrix: Taylor's polynomial of a matrix halved until it is small, then squared as often.
#include <math.h>

#include "aten/linalg.h"

enum { DEGREE = 16, STRIDE = 4 };

// state, each [batch]: scale, norm, number of halvings
static tt_hlo too_large(void *context, const tt_hlo *state) {
  return v_gtc(v_mul(state[0], state[1]), *(const double *)context);
}
static tt_hlo halve_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  return v_reduce_all(TT_ANY, too_large(context, state));
}
static void halve_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  tt_hlo large = too_large(context, state);
  out[0] = v_if(large, v_mulc(state[0], 0.5), state[0]);
  out[1] = state[1];
  out[2] = v_add(state[2], tt_hlo_convert(large, TT_S32));
}

// state: step, matrices, squarings of each [batch]
static tt_hlo square_cond(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return v_lt(state[0], v_reduce_all(TT_MAX, state[2]));
}
static void square_body(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)context;
  (void)b;
  tt_hlo more = v_gt(state[2], v_like(state[0], state[2]));
  out[0] = v_addc(state[0], 1);
  out[1] = v_if(la_each(more, state[1]), la_dot(state[1], state[1]), state[1]);
  out[2] = state[2];
}

// 1 + x + x^2/2 + ... + x^16/16!, by powers of x^4.
static tt_hlo taylor(tt_hlo x) {
  tt_hlo powers[STRIDE + 1] = {la_eye(x), x}, sum = NULL;
  double factorial[DEGREE + 1] = {1};
  for (int32_t i = 1; i <= DEGREE; i++) {
    factorial[i] = i * factorial[i - 1];
  }
  for (int32_t i = 2; i <= STRIDE; i++) {
    powers[i] = la_dot(powers[i - 1], x);
  }
  for (int32_t first = DEGREE - STRIDE; first >= 0; first -= STRIDE) {
    tt_hlo part = sum ? la_dot(sum, powers[STRIDE]) : v_mulc(powers[STRIDE], 1 / factorial[DEGREE]);
    for (int32_t i = STRIDE - 1; i >= 0; i--) {
      part = v_add(part, v_mulc(powers[i], 1 / factorial[first + i]));
    }
    sum = part;
  }
  return sum;
}

static tt_hlo matrix_exp(tt_hlo a) {
  if (!a || tt_hlo_numel(a) == 0 || a->dims[1] == 1) {
    return v_exp(a);
  }
  tt_hlo_builder *b = tt_hlo_builder_of(a);
  // The first term left out, norm^17 / 17!, is below half a unit of the last place.
  double small = a->dtype == TT_F64 || a->dtype == TT_C128 ? 0.75 : 2.5;
  tt_hlo norm = v_reduce(TT_MAX, v_reduce(TT_SUM, v_abs(a), 1), 1);
  tt_hlo counted = v_if(tt_hlo_unary(TT_IS_FINITE, norm), norm, v_const(norm, 0));
  const tt_hlo halving[] = {v_const(norm, 1), counted, norm ? tt_hlo_const(b, TT_S32, 0, norm->dims, 1) : NULL};
  tt_hlo halved[3], squared[3];
  tt_hlo_while(halving, 3, halve_cond, halve_body, &small, halved);
  tt_hlo scale = halved[0] ? tt_hlo_convert(halved[0], a->dtype) : NULL;
  const tt_hlo squaring[] = {tt_hlo_scalar(b, TT_S32, 0), taylor(v_mul(a, la_each(scale, a))), halved[2]};
  tt_hlo_while(squaring, 3, square_cond, square_body, NULL, squared);
  tt_hlo finite = tt_hlo_unary(TT_IS_FINITE, norm);
  return v_if(la_each(finite, a), squared[1], v_const(a, NAN));
}

static void build_matrix_exp(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  if (!x || !la_check_square(r, x, "linalg.matrix_exp", "A")) {
    return;
  }
  if (!tt_dtype_is_float(x->dtype) && !tt_dtype_is_complex(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "linalg.matrix_exp: Expected a floating point or complex tensor as input. Got %s",
            tt_type_name(x->dtype));
    return;
  }
  tt_hlo a = tt_in_as(r, "self", tt_opmath(x->dtype));
  tt_ret(r, 0, tt_cast(v_reshape_like(matrix_exp(la_flat(a, 2)), a), x->dtype));
}

const tt_rule_entry tt_rules_linalg_exp[] = {
    {.name = "aten::linalg_matrix_exp", .build = build_matrix_exp},
    {0},
};
