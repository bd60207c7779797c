// The fused cells that at::lstm and at::gru call for a backend of its own. Formulas: ATen/native/cuda/RNN.cu. The
// workspaces hold what the gradients need; only these rules read them.
#include "aten/dims.h"

enum { LSTM_GATES = 4, GRU_GATES = 3, GRU_SAVED = 5 };

// Part i of `count` equal ones of the last dim.
static tt_hlo part(tt_hlo x, int32_t i, int32_t count) {
  if (!x || x->rank == 0) {
    return NULL;
  }
  const int64_t width = x->dims[x->rank - 1] / count;
  return tt_hlo_slice_dim(x, x->rank - 1, i * width, (i + 1) * width, 1);
}

static tt_hlo joined(const tt_hlo *parts, int32_t count) {
  return parts[0] ? tt_hlo_concatenate(parts, count, parts[0]->rank - 1) : NULL;
}

static tt_hlo sigmoid(tt_hlo x) { return tt_hlo_unary(TT_LOGISTIC, x); }
static tt_hlo tanh_of(tt_hlo x) { return tt_hlo_unary(TT_TANH, x); }
static tt_hlo times_slope(tt_hlo g, tt_hlo y) { return v_mul(g, v_mul(y, v_csub(1, y))); }       // y = sigmoid
static tt_hlo times_tanh_slope(tt_hlo g, tt_hlo y) { return v_mul(g, v_csub(1, v_mul(y, y))); }  // y = tanh

static bool check_gates(tt_rule *r, const tt_operand *gates, const tt_operand *hidden, const tt_operand *state,
                        int32_t count) {
  if (!gates || !hidden || !state) {
    return false;
  }
  const int32_t last = state->ndim - 1;
  if (gates->ndim != 2 || hidden->ndim != 2 || state->ndim != 2 || gates->sizes[1] != count * state->sizes[last] ||
      hidden->sizes[1] != gates->sizes[1] || hidden->sizes[0] != gates->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME, "gates of size %s and %s don't fit a hidden state of size %s",
            tt_dims_text(gates->sizes, gates->ndim).text, tt_dims_text(hidden->sizes, hidden->ndim).text,
            tt_dims_text(state->sizes, state->ndim).text);
    return false;
  }
  if (!tt_dtype_is_float(gates->dtype)) {
    tt_fail_dtype(r, tt_rule_name(r), gates->dtype);
    return false;
  }
  return true;
}

// A bias along the last dim of the gates, added if there is one.
static tt_hlo with_bias(tt_rule *r, const char *name, tt_hlo gates) {
  if (!gates || !tt_operand_of(r, name)) {
    return gates;
  }
  return v_add(gates, v_along(tt_in_as(r, name, gates->dtype), gates->dims, gates->rank, gates->rank - 1));
}

static void build_lstm(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "input_gates"), *h = tt_operand_of(r, "hidden_gates");
  const tt_operand *c = tt_operand_of(r, "cx");
  if (!check_gates(r, x, h, c, LSTM_GATES)) {
    return;
  }
  const tt_dtype compute = tt_opmath(x->dtype);
  tt_hlo a = with_bias(r, "input_bias", tt_in_as(r, "input_gates", compute));
  a = v_add(a, with_bias(r, "hidden_bias", tt_in_as(r, "hidden_gates", compute)));
  const tt_hlo gates[] = {sigmoid(part(a, 0, LSTM_GATES)), sigmoid(part(a, 1, LSTM_GATES)),
                          tanh_of(part(a, 2, LSTM_GATES)), sigmoid(part(a, 3, LSTM_GATES))};
  tt_hlo cy = v_add(v_mul(gates[1], tt_in_as(r, "cx", compute)), v_mul(gates[0], gates[2]));
  tt_ret(r, 0, tt_cast(v_mul(gates[3], tanh_of(cy)), x->dtype));
  tt_ret(r, 1, tt_cast(cy, x->dtype));
  tt_ret(r, 2, tt_cast(joined(gates, LSTM_GATES), x->dtype));
}

// The parts that the forward pass left in the workspace.
static bool read_saved(tt_rule *r, tt_dtype compute, int32_t count, tt_hlo *parts) {
  const tt_operand *w = tt_operand_of(r, "workspace");
  if (w->ndim != 2 || w->sizes[1] % count) {
    tt_fail(r, TT_ERR_RUNTIME, "a workspace of size %s, which the forward pass did not make",
            tt_dims_text(w->sizes, w->ndim).text);
    return false;
  }
  tt_hlo saved = tt_in_as(r, "workspace", compute);
  for (int32_t i = 0; i < count; i++) {
    parts[i] = part(saved, i, count);
  }
  return !tt_failed(r);
}

// Sums over all but the last dim: a bias' gradient.
static void ret_bias(tt_rule *r, int32_t i, tt_hlo g, tt_dtype dtype) {
  if (tt_bool(r, "has_bias", false)) {
    tt_ret(r, i, tt_cast(v_reduce(TT_SUM, g, 0), dtype));
  } else {
    tt_ret_none(r, i);
  }
}

static void build_lstm_backward(tt_rule *r) {
  const tt_operand *gy = tt_operand_of(r, "grad_hy"), *gc = tt_operand_of(r, "grad_cy"),
                   *w = tt_operand_of(r, "workspace");
  if (!w || (!gy && !gc)) {
    for (int32_t i = 0; i < 3; i++) {
      tt_ret_none(r, i);
    }
    return;
  }
  const tt_dtype compute = tt_opmath(w->dtype);
  tt_hlo gate[LSTM_GATES];
  if (!read_saved(r, compute, LSTM_GATES, gate)) {
    return;
  }
  tt_hlo tanh_c = tanh_of(tt_in_as(r, "cy", compute)), dh = gy ? tt_in_as(r, "grad_hy", compute) : v_const(tanh_c, 0);
  tt_hlo dc = times_tanh_slope(v_mul(dh, gate[3]), tanh_c);
  dc = gc ? v_add(dc, tt_in_as(r, "grad_cy", compute)) : dc;
  const tt_hlo parts[] = {times_slope(v_mul(dc, gate[2]), gate[0]),
                          times_slope(v_mul(dc, tt_in_as(r, "cx", compute)), gate[1]),
                          times_tanh_slope(v_mul(dc, gate[0]), gate[2]), times_slope(v_mul(dh, tanh_c), gate[3])};
  tt_hlo grad = joined(parts, LSTM_GATES);
  tt_ret(r, 0, tt_cast(grad, w->dtype));
  tt_ret(r, 1, tt_cast(v_mul(dc, gate[1]), w->dtype));
  ret_bias(r, 2, grad, w->dtype);
}

static void build_gru(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "input_gates"), *h = tt_operand_of(r, "hidden_gates");
  const tt_operand *state = tt_operand_of(r, "hx");
  if (!check_gates(r, x, h, state, GRU_GATES)) {
    return;
  }
  const tt_dtype compute = tt_opmath(x->dtype);
  tt_hlo a = with_bias(r, "input_bias", tt_in_as(r, "input_gates", compute));
  tt_hlo b = with_bias(r, "hidden_bias", tt_in_as(r, "hidden_gates", compute)), hx = tt_in_as(r, "hx", compute);
  tt_hlo reset = sigmoid(v_add(part(a, 0, GRU_GATES), part(b, 0, GRU_GATES)));
  tt_hlo update = sigmoid(v_add(part(a, 1, GRU_GATES), part(b, 1, GRU_GATES)));
  tt_hlo hidden = part(b, 2, GRU_GATES), fresh = tanh_of(v_add(part(a, 2, GRU_GATES), v_mul(reset, hidden)));
  const tt_hlo saved[] = {reset, update, fresh, hx, hidden};
  tt_ret(r, 0, tt_cast(v_add(fresh, v_mul(update, v_sub(hx, fresh))), x->dtype));
  tt_ret(r, 1, tt_cast(joined(saved, GRU_SAVED), x->dtype));
}

static void build_gru_backward(tt_rule *r) {
  const tt_operand *w = tt_operand_of(r, "workspace");
  if (!w) {
    return;
  }
  const tt_dtype compute = tt_opmath(w->dtype);
  tt_hlo dh = tt_in_as(r, "grad_hy", compute), of[GRU_SAVED];
  if (!read_saved(r, compute, GRU_SAVED, of)) {
    return;
  }
  tt_hlo reset = of[0], update = of[1], fresh = of[2], hx = of[3], hidden = of[4];
  tt_hlo d_update = times_slope(v_mul(dh, v_sub(hx, fresh)), update);
  tt_hlo d_fresh = times_tanh_slope(v_mul(dh, v_csub(1, update)), fresh);
  tt_hlo d_reset = times_slope(v_mul(d_fresh, hidden), reset);
  const tt_hlo input[] = {d_reset, d_update, d_fresh}, hidden_parts[] = {d_reset, d_update, v_mul(d_fresh, reset)};
  tt_hlo d_input = joined(input, GRU_GATES), d_hidden = joined(hidden_parts, GRU_GATES);
  tt_ret(r, 0, tt_cast(d_input, w->dtype));
  tt_ret(r, 1, tt_cast(d_hidden, w->dtype));
  tt_ret(r, 2, tt_cast(v_mul(dh, update), w->dtype));
  ret_bias(r, 3, d_input, w->dtype);
  ret_bias(r, 4, d_hidden, w->dtype);
}

const tt_rule_entry tt_rules_rnn[] = {
    {.name = "aten::_thnn_fused_lstm_cell", .build = build_lstm},
    {.name = "aten::_thnn_fused_lstm_cell_backward_impl", .build = build_lstm_backward},
    {.name = "aten::_thnn_fused_gru_cell", .build = build_gru},
    {.name = "aten::_thnn_fused_gru_cell_backward", .build = build_gru_backward},
    {0},
};
