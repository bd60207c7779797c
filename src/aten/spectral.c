// Householder reflections, shared by the spectral decompositions.
#include "aten/spectral.h"

static tt_hlo steps_left(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  return v_ltc(state[0], (double)*(const int64_t *)context);
}

void sp_repeat(const tt_hlo *inits, int32_t count, tt_hlo_while_body body, void *context, tt_hlo *results) {
  tt_hlo_while(inits, count, steps_left, body, context, results);
}

bool sp_check_out(tt_rule *r, const char *name, tt_dtype dtype) {
  const tt_operand *x = tt_operand_of(r, name);
  if (x && x->dtype != dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected out tensor to have dtype %s, but got %s instead", tt_type_meta_name(dtype),
            tt_type_meta_name(x->dtype));
    return false;
  }
  return true;
}

sp_reflector sp_reflect(tt_hlo x, tt_hlo at) {
  tt_hlo i = sp_index(x, 1), k = v_like(at, i);
  if (!i || !k) {
    return (sp_reflector){NULL, NULL, NULL};
  }
  tt_hlo is_pivot = v_eq(i, k), tail = v_if(v_gt(i, k), x, v_const(x, 0));
  tt_hlo pivot = v_reduce(TT_SUM, v_if(is_pivot, x, v_const(x, 0)), 1), re = la_real(pivot);
  tt_hlo rest = v_reduce(TT_SUM, la_square(tail), 1), norm = v_sqrt(v_add(la_square(pivot), rest));
  if (tt_dtype_is_complex(x->dtype)) {
    tt_hlo im = tt_hlo_unary(TT_IMAG, pivot);
    rest = v_add(rest, v_mul(im, im));
  }
  tt_hlo idle = v_eqc(rest, 0), beta = v_if(idle, re, v_if(v_ltc(re, 0), norm, v_neg(norm)));
  tt_hlo zero = v_const(pivot, 0), one = v_const(pivot, 1), moved = v_sub(pivot, la_as(beta, pivot));
  tt_hlo tau = v_if(idle, zero, v_neg(v_div(moved, v_if(idle, one, la_as(beta, pivot)))));
  tt_hlo inverse = v_if(idle, zero, v_div(one, v_if(idle, one, moved)));
  tt_hlo v = v_if(is_pivot, v_const(x, 1), v_mul(tail, la_each(inverse, x)));
  return (sp_reflector){v, tau, beta};
}

// Each row that `on` [batch, rows] wants, reflected: row - tau v (v^H row).
static tt_hlo reflect_rows(tt_hlo rows, tt_hlo v, tt_hlo tau, tt_hlo on) {
  tt_hlo g = la_contract(rows, 2, la_conj(v), 1);
  g = v_mul(g, la_each(tau, g));
  return v_sub(rows, sp_outer(on ? v_if(on, g, v_const(g, 0)) : g, v, rows));
}

// state: step j, rows (before j: v), tau, diagonal
static void factor_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)context;
  (void)b;
  tt_hlo j = state[0], at = v_like(j, state[2]);
  sp_reflector h = sp_reflect(sp_row(state[1], j), j);
  tt_hlo i = sp_index(state[2], 1);
  out[0] = v_addc(j, 1);
  out[1] = sp_put_row(reflect_rows(state[1], h.v, la_conj(h.tau), v_gt(i, at)), h.v, j);
  out[2] = v_if(v_eq(i, at), la_each(h.tau, state[2]), state[2]);
  out[3] = v_if(v_eq(i, at), la_each(h.beta, state[3]), state[3]);
}

typedef struct reflectors {
  int64_t times;
  tt_hlo v, tau;
} reflectors;

// state: step, rows of the basis. The reflections from the last to the first.
static void basis_step(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const reflectors *h = context;
  tt_hlo j = v_sub(tt_hlo_scalar(b, TT_S32, (double)h->times - 1), state[0]);
  tt_hlo tau = v_squeeze(sp_row(v_unsqueeze(h->tau, 2), j), 1);
  out[0] = v_addc(state[0], 1);
  out[1] = reflect_rows(state[1], sp_row(h->v, j), tau, NULL);
}

tt_hlo sp_orthonormal(tt_hlo rows, int64_t count, tt_hlo *diagonal) {
  *diagonal = NULL;
  if (!rows) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(rows);
  const int64_t batch = rows->dims[0], k = rows->dims[1], m = rows->dims[2];
  tt_hlo step = tt_hlo_scalar(b, TT_S32, 0);
  reflectors h = {.times = k};
  tt_hlo state[4] = {step, rows, tt_hlo_const(b, rows->dtype, 0, rows->dims, 2),
                     tt_hlo_const(b, tt_dtype_real(rows->dtype), 0, rows->dims, 2)};
  sp_repeat(state, 4, factor_step, &h, state);
  h.v = state[1];
  h.tau = state[2];
  *diagonal = state[3];
  tt_hlo basis[2] = {step, sp_eye(b, rows->dtype, batch, count, m)};
  sp_repeat(basis, 2, basis_step, &h, basis);
  return basis[1];
}
