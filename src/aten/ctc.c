// Connectionist temporal classification: the forward-backward algorithm in log space, one step of a loop for each
// time step. src/torch/ctc.cpp has checked the lengths, which are operands: other lengths, the same program.
#include <math.h>

#include "aten/dims.h"

typedef struct ctc {
  int64_t steps, batch, labels, states;  // states: labels with a blank before, between and after them
  tt_hlo log_probs;                      // [steps, batch, labels]
  tt_hlo state_probs;                    // [steps, batch, states]: of each state's label
  tt_hlo label;                          // [batch, states], s32
  tt_hlo state;                          // [batch, states]: which state
  tt_hlo last;                           // [batch, states]: the target's last state
  tt_hlo input_length;                   // [batch, states]
  tt_hlo used;                           // [batch, states]: states of the target
} ctc;

// The target's labels: [batch, count]. Targets stand in rows, or all in one.
static tt_hlo target_labels(tt_rule *r, const ctc *c, tt_hlo lengths, int64_t count) {
  tt_hlo targets = tt_in_as(r, "targets", TT_S32);
  if (!targets || !lengths || targets->rank == 2) {
    return targets ? tt_hlo_slice_dim(targets, 1, 0, count, 1) : NULL;
  }
  const int64_t dims[] = {c->batch, count};
  tt_hlo start = v_sub(tt_running(TT_SUM, lengths, 0), lengths);
  tt_hlo at = v_add(v_along(start, dims, 2, 0), tt_hlo_iota(tt_b(r), TT_S32, dims, 2, 1));
  return at ? tt_take_flat(targets, v_min(at, v_const(at, (double)(targets->dims[0] - 1)))) : NULL;
}

static bool read_ctc(tt_rule *r, ctc *c) {
  tt_hlo x = tt_in(r, "log_probs"), lengths = tt_in_as(r, "lengths", TT_S32);
  const int64_t count = tt_int(r, "max_target", 0);
  const tt_operand *targets = tt_operand_of(r, "targets");
  if (!x || !lengths || !targets) {
    return false;
  }
  if (x->rank != 3 || lengths->rank != 2 || lengths->dims[0] != 2 || lengths->dims[1] != x->dims[1] ||
      targets->ndim < 1 || targets->ndim > 2 || tt_hlo_numel(x) == 0 || count < 0 || count > INT32_MAX / 2 - 1) {
    tt_fail(r, TT_ERR_RUNTIME, "log-probabilities [steps, batch, labels] and lengths [2, batch] are expected");
    return false;
  }
  *c = (ctc){.steps = x->dims[0], .batch = x->dims[1], .labels = x->dims[2], .states = 2 * count + 1, .log_probs = x};
  tt_hlo input_length = v_flat(tt_hlo_slice_dim(lengths, 0, 0, 1, 1));
  tt_hlo target_length = v_flat(tt_hlo_slice_dim(lengths, 0, 1, 2, 1));
  const int64_t rows[] = {c->batch, c->states}, cube[] = {c->steps, c->batch, c->states};
  tt_hlo blank = tt_hlo_scalar(tt_b(r), TT_S32, (double)tt_int(r, "blank", 0));
  c->label = count ? v_pad(target_labels(r, c, target_length, count), blank, 1, 1, 1, 1) : v_fill(blank, rows, 2);
  if (!c->label || !input_length || !target_length) {
    return false;
  }
  // What lies beyond a target's length is anything; it is not used, but read.
  tt_hlo none = v_const(c->label, 0), top = v_const(c->label, (double)(c->labels - 1));
  c->label = v_min(v_max(c->label, none), top);
  c->state_probs = tt_take_along(x, 2, tt_hlo_broadcast_in_dim(c->label, cube, 3, (const int32_t[]){1, 2}));
  c->state = v_iota(c->label, TT_S32, 1);
  c->last = v_mulc(v_along(target_length, rows, 2, 0), 2);
  c->input_length = v_along(input_length, rows, 2, 0);
  c->used = v_le(c->state, c->last);
  return c->state_probs && c->used;
}

// The states' values `by` states on; -inf for those that there aren't.
static tt_hlo shift(tt_hlo x, int64_t by) {
  return x ? v_pad(x, tt_hlo_scalar(tt_hlo_builder_of(x), x->dtype, -INFINITY), 1, by, -by, 0) : NULL;
}

static tt_hlo log_sum(const tt_hlo *xs, int32_t count) {
  tt_hlo most = xs[0], sum = NULL;
  for (int32_t i = 1; i < count; i++) {
    most = v_max(most, xs[i]);
  }
  most = most ? v_if(v_eqc(most, -INFINITY), v_const(most, 0), most) : NULL;
  for (int32_t i = 0; i < count; i++) {
    tt_hlo term = v_exp(v_sub(xs[i], most));
    sum = sum ? v_add(sum, term) : term;
  }
  return v_add(v_log(sum), most);
}

// One step: from a state itself, its neighbour, and the one after that where the label differs. `by`: 1 forward,
// -1 backward.
static tt_hlo advance(const ctc *c, tt_hlo x, int64_t by) {
  tt_hlo beyond = v_pad(c->label, tt_hlo_scalar(tt_hlo_builder_of(x), TT_S32, -1), 1, 2 * by, -2 * by, 0);
  tt_hlo skipped = v_if(v_ne(c->label, beyond), shift(x, 2 * by), v_const(x, -INFINITY));
  return log_sum((const tt_hlo[]){x, shift(x, by), skipped}, 3);
}

static tt_hlo row_at(tt_hlo x, tt_hlo step) {
  tt_hlo zero = v_zero(step), start[] = {step, zero, zero};
  const int64_t sizes[] = {1, x->dims[1], x->dims[2]};
  return v_squeeze(tt_hlo_dynamic_slice(x, start, sizes), 0);
}
static tt_hlo with_row(tt_hlo x, tt_hlo row, tt_hlo step) {
  tt_hlo zero = v_zero(step), start[] = {step, zero, zero};
  return tt_hlo_dynamic_update_slice(x, v_unsqueeze(row, 0), start);
}

// ---- forward. State: step, its alpha (the last one stays), all of them ----
static tt_hlo before_end(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  return v_ltc(state[0], (double)((const ctc *)context)->steps);
}
static void step_forward(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const ctc *c = context;
  (void)b;
  tt_hlo alpha = v_add(advance(c, state[1], 1), row_at(c->state_probs, state[0]));
  tt_hlo runs = v_gt(c->input_length, v_like(state[0], c->input_length));
  tt_hlo none = v_const(alpha, -INFINITY);
  alpha = v_if(c->used, alpha, none);
  out[0] = v_addc(state[0], 1);
  out[1] = v_if(runs, alpha, state[1]);
  out[2] = with_row(state[2], v_if(runs, alpha, none), state[0]);
}

static tt_hlo value_at(const ctc *c, tt_hlo x, tt_hlo state) {  // [batch]
  return v_reduce(TT_MAX, v_if(v_eq(c->state, state), x, v_const(x, -INFINITY)), 1);
}

static void build_ctc_loss(tt_rule *r) {
  ctc c;
  if (!read_ctc(r, &c)) {
    return;
  }
  const tt_dtype dtype = c.log_probs->dtype;
  tt_hlo first = v_squeeze(tt_hlo_slice_dim(c.state_probs, 0, 0, 1, 1), 0), none = v_const(first, -INFINITY);
  tt_hlo begins = v_and(v_and(c.used, v_ltc(c.state, 2)), v_gtc(c.input_length, 0));
  tt_hlo alpha = v_if(begins, first, none);
  tt_hlo all = v_pad(v_unsqueeze(alpha, 0), tt_hlo_scalar(tt_b(r), dtype, -INFINITY), 0, 0, c.steps - 1, 0);
  tt_hlo state[] = {tt_hlo_scalar(tt_b(r), TT_S32, 1), alpha, all};
  tt_hlo_while(state, 3, before_end, step_forward, &c, state);
  if (!state[1]) {
    return;
  }
  tt_hlo ends[] = {value_at(&c, state[1], c.last), value_at(&c, state[1], v_addc(c.last, -1))};
  tt_hlo likelihood = log_sum(ends, 2);
  // No step at all: certain for an empty target, else impossible.
  tt_hlo no_input = v_eqc(v_squeeze(tt_hlo_slice_dim(c.input_length, 1, 0, 1, 1), 1), 0);
  tt_hlo no_target = v_eqc(v_squeeze(tt_hlo_slice_dim(c.last, 1, 0, 1, 1), 1), 0);
  tt_hlo of_nothing = v_if(no_target, v_const(likelihood, 0), v_const(likelihood, -INFINITY));
  tt_ret(r, 0, v_neg(v_if(no_input, of_nothing, likelihood)));
  tt_ret(r, 1, tt_hlo_transpose(state[2], (const int32_t[]){1, 0, 2}));
}

// ---- backward. State: step, its beta, all of them ----
static tt_hlo after_begin(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return v_gec(state[0], 0);
}
static void step_backward(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const ctc *c = context;
  (void)b;
  tt_hlo row = row_at(c->state_probs, state[0]), none = v_const(row, -INFINITY);
  tt_hlo next = v_addc(v_like(state[0], c->input_length), 1);
  tt_hlo ends = v_ge(c->state, v_addc(c->last, -1));
  tt_hlo beta = v_if(v_eq(next, c->input_length), v_if(ends, row, none), v_add(advance(c, state[1], -1), row));
  beta = v_if(v_and(c->used, v_le(next, c->input_length)), beta, none);
  out[0] = v_addc(state[0], -1);
  out[1] = beta;
  out[2] = with_row(state[2], beta, state[0]);
}

// What each label's states have of the likelihood: [steps, batch, labels]. NaN where PyTorch's sum of logarithms is.
static tt_hlo posterior(tt_rule *r, const ctc *c, tt_hlo beta, tt_hlo runs, tt_hlo loss) {
  tt_hlo alpha = tt_hlo_transpose(tt_in(r, "log_alpha"), (const int32_t[]){1, 0, 2});
  if (!alpha || !beta || !tt_hlo_same_dims(alpha, beta)) {
    tt_fail(r, TT_ERR_RUNTIME, "log_alpha is not that of this loss");
    return NULL;
  }
  const tt_dtype dtype = beta->dtype;
  tt_hlo used = tt_hlo_broadcast_in_dim(c->used, beta->dims, 3, (const int32_t[]){1, 2});
  tt_hlo both = v_if(v_and(used, tt_hlo_broadcast_in_dim(runs, beta->dims, 3, (const int32_t[]){0, 1})),
                     v_add(alpha, beta), v_const(beta, -INFINITY));
  tt_hlo part = v_exp(v_add(v_sub(both, c->state_probs), v_along(loss, beta->dims, 3, 1)));
  tt_hlo label = tt_hlo_broadcast_in_dim(c->label, beta->dims, 3, (const int32_t[]){1, 2});
  const int64_t numel = tt_hlo_numel(c->log_probs);
  tt_hlo sums = tt_put_flat(TT_SCATTER_ADD, tt_hlo_const(tt_b(r), dtype, 0, &numel, 1),
                            tt_flat_positions(c->log_probs, 2, label), part);
  tt_hlo other = v_sub(v_const(c->log_probs, -INFINITY), c->log_probs);
  other = v_exp(v_add(other, v_along(loss, c->log_probs->dims, 3, 1)));
  return v_add(v_reshape_like(sums, c->log_probs), other);
}

static void build_ctc_loss_backward(tt_rule *r) {
  ctc c;
  if (!read_ctc(r, &c)) {
    return;
  }
  const int64_t *dims = c.log_probs->dims;
  tt_hlo loss = tt_in(r, "neg_log_likelihood"), grad = tt_in(r, "grad");
  tt_hlo none = v_const(c.state_probs, -INFINITY);
  tt_hlo state[] = {tt_hlo_scalar(tt_b(r), TT_S32, (double)(c.steps - 1)),
                    v_squeeze(tt_hlo_slice_dim(none, 0, 0, 1, 1), 0), none};
  tt_hlo_while(state, 3, after_begin, step_backward, &c, state);
  const int64_t rows[] = {c.steps, c.batch};
  tt_hlo length = v_squeeze(tt_hlo_slice_dim(c.input_length, 1, 0, 1, 1), 1);
  tt_hlo runs = v_lt(tt_hlo_iota(tt_b(r), TT_S32, rows, 2, 0), v_along(length, rows, 2, 1));
  tt_hlo part = posterior(r, &c, state[2], runs, loss);
  tt_hlo result = v_mul(v_sub(v_exp(c.log_probs), part), v_along(grad, dims, 3, 1));
  if (tt_bool(r, "zero_infinity", false) && loss) {
    runs = v_and(runs, v_along(v_not(v_eqc(loss, INFINITY)), rows, 2, 1));
  }
  runs = tt_hlo_broadcast_in_dim(runs, dims, 3, (const int32_t[]){0, 1});
  tt_ret(r, 0, result ? v_if(runs, result, v_const(result, 0)) : NULL);
}

const tt_rule_entry tt_rules_ctc[] = {
    {.name = "torchtpu::ctc_loss", .build = build_ctc_loss},
    {.name = "torchtpu::ctc_loss_backward", .build = build_ctc_loss_backward},
    {0},
};
