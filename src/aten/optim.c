// Fused optimizer steps and the gradient scaler, over lists of tensors: one program a step.
#include <string.h>

#include "aten/pointwise.h"

// Numbers are taken as float64, so that 1 - beta keeps its digits, and rounded once to the computing type.
static tt_hlo number(tt_rule *r, const char *name) { return tt_in_number(r, name, TT_F64); }

// Full size, in the type of `like`.
static tt_hlo spread(tt_hlo scalar, tt_hlo like) { return like ? v_like(tt_cast(scalar, like->dtype), like) : NULL; }

static tt_hlo scalar_of(tt_hlo x) { return tt_hlo_reshape(x, NULL, 0); }

typedef struct {
  int32_t index;
  tt_dtype compute;
  bool maximize;
  tt_hlo grad_scale, found_inf, skip;  // NULL, or 0-d
} step_call;

static step_call begin(tt_rule *r) {
  step_call c = {.maximize = tt_bool(r, "maximize", false)};
  if (tt_has(r, "grad_scale")) {
    c.grad_scale = scalar_of(tt_in_as(r, "grad_scale", TT_F32));
  }
  if (tt_has(r, "found_inf")) {
    c.found_inf = scalar_of(tt_in_as(r, "found_inf", TT_F32));
    c.skip = v_eqc(c.found_inf, 1);
  }
  return c;
}

static tt_hlo list_in(tt_rule *r, const step_call *c, const char *name) {
  return tt_in_at_as(r, name, c->index, c->compute);
}

// Stores a new value, unless the step is to be skipped.
static void list_out(tt_rule *r, const step_call *c, const char *name, tt_hlo old, tt_hlo value) {
  const tt_operand *x = tt_operand_at(r, name, c->index);
  if (x) {
    tt_write_at(r, name, c->index, tt_cast(c->skip ? v_if(c->skip, old, value) : value, x->dtype));
  }
}

// The gradient unscaled (and stored so, as the CPU kernels do), negated when maximizing.
static tt_hlo gradient(tt_rule *r, const step_call *c) {
  tt_hlo g = list_in(r, c, "grads");
  if (c->grad_scale) {
    tt_hlo unscaled = v_div(g, spread(c->grad_scale, g));
    list_out(r, c, "grads", g, unscaled);
    g = unscaled;
  }
  return c->maximize ? v_neg(g) : g;
}

static bool lists_fit(tt_rule *r, const char *const *names, int32_t count) {
  int32_t n = tt_list_length(r, "self");
  for (int32_t i = 0; i < count; i++) {
    if (tt_list_length(r, names[i]) != n) {
      tt_fail(r, TT_ERR_RUNTIME, "Tensor lists must have the same number of tensors, got %d and %d", n,
              tt_list_length(r, names[i]));
      return false;
    }
  }
  for (int32_t i = 0; i < n; i++) {
    const tt_operand *x = tt_operand_at(r, "self", i);
    if (!x || !tt_dtype_is_float(x->dtype)) {
      tt_fail_dtype(r, "fused_kernel", x ? x->dtype : TT_DTYPE_INVALID);
      return false;
    }
  }
  return true;
}

// ---- Adam and AdamW: FusedAdamKernel.cpp ----
enum { ADAM, ADAMW };

typedef struct {
  tt_hlo lr, beta1, beta2, weight_decay, eps;
  bool amsgrad, decoupled;
} adam_numbers;

static void adam_step(tt_rule *r, const step_call *c, const adam_numbers *a) {
  tt_hlo param = list_in(r, c, "self"), m = list_in(r, c, "exp_avgs"), v = list_in(r, c, "exp_avg_sqs");
  tt_hlo step = scalar_of(tt_in_at_as(r, "state_steps", c->index, TT_F64));
  tt_hlo correction1 = v_csub(1, tt_hlo_binary(TT_POWER, a->beta1, step));
  tt_hlo correction2 = v_csub(1, tt_hlo_binary(TT_POWER, a->beta2, step));
  tt_hlo step_size = v_div(a->lr, correction1);
  tt_hlo g = gradient(r, c);
  tt_hlo decayed = param;
  double known;
  if (tt_scalar_known(r, "weight_decay", &known) && known == 0) {
    // the parameter takes no part, whatever it holds
  } else if (a->decoupled) {
    decayed = v_mul(param, spread(v_csub(1, v_mul(a->lr, a->weight_decay)), param));
  } else {
    g = v_add(g, v_mul(param, spread(a->weight_decay, param)));
  }
  tt_hlo new_m = v_add(m, v_mul(v_sub(g, m), spread(v_csub(1, a->beta1), m)));
  tt_hlo new_v = v_add(v_mul(v, spread(a->beta2, v)), v_mul(v_mul(g, g), spread(v_csub(1, a->beta2), v)));
  tt_hlo second = new_v;
  if (a->amsgrad) {
    tt_hlo most = list_in(r, c, "max_exp_avg_sqs");
    second = v_max(most, new_v);
    list_out(r, c, "max_exp_avg_sqs", most, second);
  }
  tt_hlo scaled = v_mul(v_sqrt(second), spread(v_cdiv(1, v_sqrt(correction2)), second));
  tt_hlo update = v_div(new_m, v_add(scaled, spread(a->eps, scaled)));
  list_out(r, c, "self", param, v_sub(decayed, v_mul(update, spread(step_size, update))));
  list_out(r, c, "exp_avgs", m, new_m);
  list_out(r, c, "exp_avg_sqs", v, new_v);
}

static void build_adam(tt_rule *r) {
  static const char *const names[] = {"grads", "exp_avgs", "exp_avg_sqs", "state_steps", "max_exp_avg_sqs"};
  adam_numbers a = {.amsgrad = tt_bool(r, "amsgrad", false), .decoupled = tt_rule_kind(r) == ADAMW};
  if (!lists_fit(r, names, a.amsgrad ? 5 : 4)) {
    return;
  }
  a.lr = scalar_of(number(r, "lr"));
  a.beta1 = number(r, "beta1");
  a.beta2 = number(r, "beta2");
  a.weight_decay = number(r, "weight_decay");
  a.eps = number(r, "eps");
  step_call c = begin(r);
  for (c.index = 0; c.index < tt_list_length(r, "self") && !tt_failed(r); c.index++) {
    c.compute = tt_opmath(tt_operand_at(r, "self", c.index)->dtype);
    adam_step(r, &c, &a);
  }
}

// ---- SGD: FusedSGDKernel.cpp ----

typedef struct {
  tt_hlo lr, momentum, dampening, weight_decay;
  bool nesterov, first;
} sgd_numbers;

static void sgd_step(tt_rule *r, const step_call *c, const sgd_numbers *s) {
  tt_hlo param = list_in(r, c, "self");
  tt_hlo g = gradient(r, c);
  double known;
  if (!(tt_scalar_known(r, "weight_decay", &known) && known == 0)) {
    g = v_add(g, v_mul(param, spread(s->weight_decay, param)));
  }
  if (s->momentum) {
    tt_hlo old = list_in(r, c, "momentum_buffer_list"), buffer = g;
    if (!s->first) {
      buffer = v_add(v_mul(old, spread(s->momentum, old)), v_mul(g, spread(v_csub(1, s->dampening), g)));
    }
    list_out(r, c, "momentum_buffer_list", old, buffer);
    g = s->nesterov ? v_add(g, v_mul(buffer, spread(s->momentum, buffer))) : buffer;
  }
  list_out(r, c, "self", param, v_sub(param, v_mul(g, spread(s->lr, g))));
}

static void build_sgd(tt_rule *r) {
  static const char *const names[] = {"grads", "momentum_buffer_list"};
  bool has_momentum = tt_list_length(r, "momentum_buffer_list") > 0;
  if (!lists_fit(r, names, has_momentum ? 2 : 1)) {
    return;
  }
  sgd_numbers s = {.lr = scalar_of(number(r, "lr")),
                   .momentum = has_momentum ? number(r, "momentum") : NULL,
                   .dampening = number(r, "dampening"),
                   .weight_decay = number(r, "weight_decay"),
                   .nesterov = tt_bool(r, "nesterov", false),
                   .first = tt_bool(r, "is_first_step", false)};
  step_call c = begin(r);
  for (c.index = 0; c.index < tt_list_length(r, "self") && !tt_failed(r); c.index++) {
    c.compute = tt_opmath(tt_operand_at(r, "self", c.index)->dtype);
    sgd_step(r, &c, &s);
  }
}

// ---- Adagrad: FusedAdagradKernel.cpp ----

static void build_adagrad(tt_rule *r) {
  static const char *const names[] = {"grads", "state_sums", "state_steps"};
  if (!lists_fit(r, names, 3)) {
    return;
  }
  tt_hlo lr = scalar_of(number(r, "lr")), lr_decay = number(r, "lr_decay"), eps = number(r, "eps");
  tt_hlo weight_decay = number(r, "weight_decay");
  step_call c = begin(r);
  for (c.index = 0; c.index < tt_list_length(r, "self") && !tt_failed(r); c.index++) {
    c.compute = tt_opmath(tt_operand_at(r, "self", c.index)->dtype);
    tt_hlo param = list_in(r, &c, "self"), sum = list_in(r, &c, "state_sums");
    tt_hlo step = scalar_of(tt_in_at_as(r, "state_steps", c.index, TT_F64));
    tt_hlo rate = v_div(lr, v_addc(v_mul(v_addc(step, -1), lr_decay), 1));
    tt_hlo g = gradient(r, &c);
    double known;
    if (!(tt_scalar_known(r, "weight_decay", &known) && known == 0)) {
      g = v_add(g, v_mul(param, spread(weight_decay, param)));
    }
    tt_hlo new_sum = v_add(sum, v_mul(g, g));
    tt_hlo deviation = v_sqrt(new_sum);
    tt_hlo update = v_div(g, v_add(deviation, spread(eps, deviation)));
    list_out(r, &c, "self", param, v_sub(param, v_mul(update, spread(rate, update))));
    list_out(r, &c, "state_sums", sum, new_sum);
  }
}

// ---- gradient scaler ----

static void build_unscale(tt_rule *r) {
  int32_t n = tt_list_length(r, "self");
  const tt_operand *flag = tt_operand_of(r, "found_inf"), *scale = tt_operand_of(r, "inv_scale");
  if (n == 0 || !flag || !scale) {
    return;
  }
  bool all[TT_MAX_RANK];
  memset(all, true, sizeof all);
  tt_hlo inv_scale = scalar_of(tt_in_as(r, "inv_scale", TT_F32)), finite = NULL;
  for (int32_t i = 0; i < n && !tt_failed(r); i++) {
    const tt_operand *x = tt_operand_at(r, "self", i);
    if (!x || !tt_dtype_is_float(x->dtype)) {
      tt_fail_dtype(r, "_amp_foreach_non_finite_check_and_unscale_cpu", x ? x->dtype : TT_DTYPE_INVALID);
      return;
    }
    tt_hlo g = tt_in_at_as(r, "self", i, tt_opmath(x->dtype));
    tt_hlo ok = tt_reduce_mask(TT_ALL, tt_hlo_unary(TT_IS_FINITE, g), all);
    finite = finite ? v_and(finite, ok) : ok;
    tt_write_at(r, "self", i, tt_cast(v_mul(g, spread(inv_scale, g)), x->dtype));
  }
  tt_hlo found = tt_in(r, "found_inf");
  tt_write(r, "found_inf", v_if(finite, found, v_const(found, 1)));
}

static void build_update_scale(tt_rule *r) {
  const tt_operand *scale = tt_operand_of(r, "self"), *tracker = tt_operand_of(r, "growth_tracker");
  if (!scale || !tracker) {
    return;
  }
  tt_hlo old = tt_in(r, "self"), count = tt_in(r, "growth_tracker");
  tt_hlo found = v_ne(scalar_of(tt_in_as(r, "found_inf", TT_F32)), tt_hlo_scalar(tt_b(r), TT_F32, 0));
  tt_hlo successes = v_addc(count, 1);
  tt_hlo grows = v_eqc(successes, (double)tt_int(r, "growth_interval", 0));
  tt_hlo grown = v_mul(old, spread(tt_scalar(r, "scale_growth_factor", TT_F64), old));
  tt_hlo shrunk = v_mul(old, spread(tt_scalar(r, "scale_backoff_factor", TT_F64), old));
  grown = v_if(tt_hlo_unary(TT_IS_FINITE, grown), grown, old);
  tt_hlo all_grow = tt_hlo_reshape(grows, scale->sizes, scale->ndim);
  tt_ret(r, 0, v_if(found, shrunk, v_if(all_grow, grown, old)));
  tt_write(r, "growth_tracker", v_if(found, v_const(count, 0), v_if(grows, v_const(count, 0), successes)));
}

#define STEP(op_name, function, which) \
  {.name = "aten::" op_name, .build = function, .kind = which, .special_values = "weight_decay=0"}
#define RULE(op_name, function) {.name = "aten::" op_name, .build = function}

const tt_rule_entry tt_rules_optim[] = {
    STEP("_fused_adam_", build_adam, ADAM),
    STEP("_fused_adam_.tensor_lr", build_adam, ADAM),
    STEP("_fused_adamw_", build_adam, ADAMW),
    STEP("_fused_adamw_.tensor_lr", build_adam, ADAMW),
    STEP("_fused_sgd_", build_sgd, 0),
    STEP("_fused_sgd_.tensor_lr", build_sgd, 0),
    STEP("_fused_adagrad_", build_adagrad, 0),
    STEP("_fused_adagrad_.tensor_lr", build_adagrad, 0),
    RULE("_amp_foreach_non_finite_check_and_unscale_", build_unscale),
    RULE("_amp_update_scale_", build_update_scale),
    {.name = NULL},
};
