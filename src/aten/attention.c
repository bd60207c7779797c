// Scaled dot-product attention and its gradients: the pair that F.scaled_dot_product_attention calls for a backend of
// its own. Everything around the products is [batch * key heads, rows, columns], where rows are the queries of the
// heads that share a key head (grouped-query attention needs no repeated keys). Scores stay in float32.
#include <math.h>

#include "aten/dims.h"
#include "aten/host.h"
#include "kernels/handlers.h"

typedef struct attention {
  int64_t batch, q_heads, k_heads, q_length, k_length, width, v_width;
  int64_t groups, rows;  // batch * k_heads, q_heads / k_heads * q_length
  tt_dtype dtype, compute;
  bool causal, has_bias, dropout;
  bool scale_first;  // queries are scaled rather than scores: fewer, but half types would be rounded once more
} attention;

// ---- arguments ----

static bool check(tt_rule *r, const tt_operand *q, const tt_operand *k, const tt_operand *v) {
  if ((q->ndim != 3 && q->ndim != 4) || k->ndim != q->ndim || v->ndim != q->ndim) {
    tt_fail(r, TT_ERR_RUNTIME, "query, key and value must be 3D or 4D, got %dD, %dD and %dD", q->ndim, k->ndim,
            v->ndim);
  } else if (q->dtype != k->dtype || q->dtype != v->dtype) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Expected query, key, and value to have the same dtype, but got query.dtype: %s key.dtype: %s and "
            "value.dtype: %s instead.",
            tt_type_meta_name(q->dtype), tt_type_meta_name(k->dtype), tt_type_meta_name(v->dtype));
  } else if (!tt_dtype_is_float(q->dtype)) {
    tt_fail_dtype(r, "flash_attention", q->dtype);
  } else {
    const int64_t *qs = q->sizes + q->ndim - 3, *ks = k->sizes + q->ndim - 3, *vs = v->sizes + q->ndim - 3;
    const bool batches = q->ndim == 3 || (q->sizes[0] == k->sizes[0] && q->sizes[0] == v->sizes[0]);
    if (!batches || ks[0] != vs[0] || ks[1] != vs[1] || qs[2] != ks[2] || ks[0] == 0 || qs[0] % ks[0]) {
      tt_fail(r, TT_ERR_RUNTIME, "query %s, key %s and value %s don't fit together",
              tt_dims_text(q->sizes, q->ndim).text, tt_dims_text(k->sizes, k->ndim).text,
              tt_dims_text(v->sizes, v->ndim).text);
    }
  }
  return !tt_failed(r);
}

static bool read_attention(tt_rule *r, attention *a) {
  const tt_operand *q = tt_operand_of(r, "query"), *k = tt_operand_of(r, "key"), *v = tt_operand_of(r, "value");
  if (!q || !k || !v || !check(r, q, k, v)) {
    return false;
  }
  const int64_t *qs = q->sizes + q->ndim - 3, *ks = k->sizes + q->ndim - 3;
  double p = 1;
  *a = (attention){.batch = q->ndim == 4 ? q->sizes[0] : 1,
                   .q_heads = qs[0],
                   .k_heads = ks[0],
                   .q_length = qs[1],
                   .k_length = ks[1],
                   .width = qs[2],
                   .v_width = v->sizes[v->ndim - 1],
                   .dtype = q->dtype,
                   .compute = tt_opmath(q->dtype),
                   .scale_first = tt_opmath(q->dtype) == q->dtype,
                   .causal = tt_bool(r, "is_causal", false),
                   .has_bias = tt_operand_of(r, "attn_bias") != NULL,
                   .dropout = !(tt_scalar_known(r, "dropout_p", &p) && p == 0)};
  a->groups = a->batch * a->k_heads;
  a->rows = a->q_heads / a->k_heads * a->q_length;
  return true;
}

// ---- values ----

static tt_hlo as_3d(tt_hlo x, int64_t groups, int64_t rows, int64_t width) {
  const int64_t dims[] = {groups, rows, width};
  return tt_hlo_reshape(x, dims, 3);
}
static tt_hlo q_like(const attention *a, tt_hlo x, int64_t width) { return as_3d(x, a->groups, a->rows, width); }
static tt_hlo k_like(const attention *a, tt_hlo x, int64_t width) { return as_3d(x, a->groups, a->k_length, width); }

// A row's value over its columns.
static tt_hlo over_columns(tt_hlo row, int64_t columns) {
  if (!row) {
    return NULL;
  }
  const int64_t dims[] = {row->dims[0], row->dims[1], columns};
  const int32_t mapping[] = {0, 1};
  return tt_hlo_broadcast_in_dim(row, dims, 3, mapping);
}

// Batched product in the type to accumulate in. Operands go in the inputs' dtype, as on the CPU: bfloat16 products are
// exact, and float16 has no faster form.
static tt_hlo product(tt_rule *r, const attention *a, tt_hlo x, tt_hlo y, int32_t x_dim, int32_t y_dim) {
  const int32_t zero = 0;
  const tt_hlo_dot_dims dims = {.lhs_batch = &zero,
                                .rhs_batch = &zero,
                                .lhs_contract = &x_dim,
                                .rhs_contract = &y_dim,
                                .batch_count = 1,
                                .contract_count = 1};
  if (a->dtype == TT_BF16) {  // XLA:CPU has no kernel for it but rounds the same
    x = tt_hlo_convert(x, TT_BF16);
    y = tt_hlo_convert(y, TT_BF16);
  }
  const tt_dtype type = a->dtype == TT_BF16 && !tt_rule_is_cpu(r) ? TT_BF16 : a->compute;
  x = x ? tt_hlo_convert(x, type) : NULL;
  y = y ? tt_hlo_convert(y, type) : NULL;
  return x && y ? tt_hlo_dot_general(x, y, &dims, tt_matmul_precision(r), a->compute) : NULL;
}

static tt_hlo scaled(tt_rule *r, const attention *a, tt_hlo x) {
  if (!tt_has(r, "scale")) {
    return v_mulc(x, 1 / sqrt((double)a->width));
  }
  return x ? v_mul(x, v_like(tt_scalar(r, "scale", x->dtype), x)) : NULL;
}

// A [rows of one head, columns] value, or anything that broadcasts to [B, H, Tq, Tk], over all scores.
static tt_hlo over_scores(tt_rule *r, const attention *a, tt_hlo x) {
  const int64_t dims[] = {a->batch, a->q_heads, a->q_length, a->k_length};
  for (int32_t i = 0; x && i < x->rank; i++) {
    const int64_t want = x->rank > 4 ? -1 : dims[4 - x->rank + i];
    if (x->dims[i] != want && x->dims[i] != 1) {
      tt_fail(r, TT_ERR_RUNTIME, "attn_bias of size %s doesn't broadcast to %s", tt_dims_text(x->dims, x->rank).text,
              tt_dims_text(dims, 4).text);
      return NULL;
    }
  }
  return x ? q_like(a, tt_hlo_broadcast_to(x, dims, 4), a->k_length) : NULL;
}

static tt_hlo queries(tt_rule *r, const attention *a) {
  tt_hlo q = q_like(a, tt_in(r, "query"), a->width);
  return a->scale_first ? scaled(r, a, q) : q;
}
static tt_hlo scaled_after(tt_rule *r, const attention *a, tt_hlo x) { return a->scale_first ? x : scaled(r, a, x); }

// q k^T * scale + bias, -inf above the diagonal if causal.
static tt_hlo scores(tt_rule *r, const attention *a, tt_hlo q, tt_hlo k) {
  tt_hlo s = scaled_after(r, a, product(r, a, q, k, 2, 2));
  if (a->has_bias) {
    s = v_add(s, over_scores(r, a, tt_in_as(r, "attn_bias", a->compute)));
  }
  if (a->causal && s) {
    const int64_t dims[] = {a->q_length, a->k_length};
    tt_hlo row = tt_hlo_iota(tt_b(r), TT_S32, dims, 2, 0), column = tt_hlo_iota(tt_b(r), TT_S32, dims, 2, 1);
    s = v_if(over_scores(r, a, v_le(column, row)), s, v_const(s, -INFINITY));
  }
  return s;
}

// 1 / (1 - p) where an element is kept, else 0. The same for the same state.
static tt_hlo dropout_factors(tt_rule *r, const attention *a, tt_hlo state) {
  const int64_t dims[] = {a->groups, a->rows, a->k_length};
  tt_hlo bits = tt_hlo_random_bits(state, TT_U32, dims, 3);
  if (!bits) {
    return NULL;
  }
  bits = tt_hlo_binary(TT_SHIFT_RIGHT_LOGICAL, bits, v_const(bits, 8));
  tt_hlo u = v_mulc(tt_hlo_convert(bits, a->compute), ldexp(1, -24)), p = tt_scalar(r, "dropout_p", a->compute);
  tt_hlo kept = v_like(v_cdiv(1, v_csub(1, p)), u);
  return u ? v_if(v_ge(u, v_like(p, u)), kept, v_const(u, 0)) : NULL;
}

// ---- results ----
// Query's order of dims in memory, as PyTorch allocates the output.
static void ret_as_query(tt_rule *r, int32_t i, tt_hlo value) {
  const tt_host_result layout = tt_host_result_like(tt_operand_of(r, "query"));
  tt_ret_ordered(r, i, value, layout.order);
}

static tt_hlo seed_value(tt_hlo state, int64_t i) {  // element i of ui64[2] as a 0-d int64
  const int64_t dim = 0;
  return tt_hlo_bitcast_convert(tt_hlo_reshape(tt_hlo_slice_dim(state, 0, i, i + 1, 1), &dim, 0), TT_S64);
}

// ---- by a kernel of the host ----
// Scores never lie in memory, views aren't copied, and all threads take part. Half types are converted around it.
static bool on_host(tt_rule *r, const attention *a) {
  return tt_rule_has_host_kernels(r) && a->compute == TT_F32 && !a->dropout && a->batch > 0 && a->q_length > 0 &&
         a->k_length > 0 && a->width > 0 && a->v_width > 0;
}

static void host_view(tt_rule *r, tt_host_call *c, const char *name) {
  int64_t strides[TT_MAX_RANK] = {0};
  tt_host_view(r, c, name, strides);
  const tt_operand *x = tt_operand_of(r, name);
  tt_host_strides(c, strides, x ? x->ndim : 0, 4);
}

static tt_host_call host_call(const attention *a) {
  tt_host_call c = {.number_count = 0};
  const int64_t numbers[TT_HOST_ATTENTION] = {
      [TT_HOST_BATCH] = a->batch,       [TT_HOST_Q_HEADS] = a->q_heads,   [TT_HOST_K_HEADS] = a->k_heads,
      [TT_HOST_Q_LENGTH] = a->q_length, [TT_HOST_K_LENGTH] = a->k_length, [TT_HOST_WIDTH] = a->width,
      [TT_HOST_V_WIDTH] = a->v_width,   [TT_HOST_CAUSAL] = a->causal,     [TT_HOST_BIAS] = a->has_bias,
  };
  for (int32_t i = 0; i < TT_HOST_ATTENTION; i++) {
    tt_host_number(&c, numbers[i]);
  }
  return c;
}

static void host_layout(tt_host_call *c, const tt_host_result *result) {
  int64_t strides[TT_MAX_RANK] = {0};
  tt_host_result_strides(result, strides);
  tt_host_strides(c, strides, result->rank, 4);
}

// The bias as it broadcasts to the scores.
static void host_bias(tt_rule *r, const attention *a, tt_host_call *c) {
  int64_t strides[TT_MAX_RANK] = {0};
  const tt_operand *x = tt_operand_of(r, "attn_bias");
  if (!a->has_bias || !x) {
    tt_host_strides(c, strides, 0, 4);
    return;
  }
  const int64_t dims[] = {a->batch, a->q_heads, a->q_length, a->k_length};
  bool fits = x->ndim <= 4;
  for (int32_t i = 0; fits && i < x->ndim; i++) {
    fits = x->sizes[i] == 1 || x->sizes[i] == dims[4 - x->ndim + i];
  }
  if (!fits) {
    tt_fail(r, TT_ERR_RUNTIME, "attn_bias of size %s doesn't broadcast to %s", tt_dims_text(x->sizes, x->ndim).text,
            tt_dims_text(dims, 4).text);
    return;
  }
  tt_host_view(r, c, "attn_bias", strides);
  for (int32_t i = 0; i < x->ndim; i++) {
    strides[i] = x->sizes[i] == 1 ? 0 : strides[i];
  }
  tt_host_strides(c, strides, x->ndim, 4);
}

static void host_scale(tt_rule *r, const attention *a, tt_host_call *c) {
  tt_host_operand(c, tt_has(r, "scale") ? tt_scalar(r, "scale", TT_F32)
                                        : tt_hlo_scalar(tt_b(r), TT_F32, 1 / sqrt((double)a->width)));
}

static void ret_forward(tt_rule *r, const attention *a, tt_hlo out, tt_hlo lse, tt_hlo state) {
  const tt_operand *query = tt_operand_of(r, "query");
  int64_t dims[4], lse_dims[] = {a->batch, a->q_heads, a->q_length};
  memcpy(dims, query->sizes, sizeof *dims * (size_t)query->ndim);
  dims[query->ndim - 1] = a->v_width;
  ret_as_query(r, 0, tt_cast(tt_hlo_reshape(out, dims, query->ndim), a->dtype));
  tt_ret(r, 1, tt_hlo_reshape(lse, lse_dims, 3));
  tt_ret_none(r, 2);
  tt_ret_none(r, 3);
  tt_ret(r, 6, state ? seed_value(state, 0) : tt_hlo_scalar(tt_b(r), TT_S64, 0));
  tt_ret(r, 7, state ? seed_value(state, 1) : tt_hlo_scalar(tt_b(r), TT_S64, 0));
  tt_ret_none(r, 8);
}

static void build_host_attention(tt_rule *r, const attention *a) {
  tt_host_call c = host_call(a);
  host_view(r, &c, "query");
  host_view(r, &c, "key");
  host_view(r, &c, "value");
  const tt_operand *query = tt_operand_of(r, "query");
  tt_host_result results[2] = {tt_host_result_like(query),
                               {.rank = 3, .sizes = {a->batch, a->q_heads, a->q_length}, .order = {0, 1, 2}}};
  results[0].sizes[query->ndim - 1] = a->v_width;
  host_layout(&c, &results[0]);
  host_bias(r, a, &c);
  host_scale(r, a, &c);
  tt_hlo out[2] = {NULL};
  tt_host_make(r, &c, TT_HOST_FORWARD, results, 2, out);
  ret_forward(r, a, out[0], out[1], NULL);
}

// ---- operators ----

static void build_attention(tt_rule *r) {
  attention a;
  if (!read_attention(r, &a)) {
    return;
  }
  if (on_host(r, &a)) {
    build_host_attention(r, &a);
    return;
  }
  tt_hlo s = scores(r, &a, queries(r, &a), k_like(&a, tt_in(r, "key"), a.width));
  tt_hlo top = v_reduce(TT_MAX, s, 2);
  if (a.has_bias && top) {  // a row with nothing to attend to: zeros, not NaN
    top = v_if(v_eqc(top, -INFINITY), v_const(top, 0), top);
  }
  tt_hlo e = s ? v_exp(v_sub(s, over_columns(top, a.k_length))) : NULL, total = v_reduce(TT_SUM, e, 2);
  tt_hlo inverse = total ? v_cdiv(1, total) : NULL, lse = v_add(top, v_log(total)), state = NULL;
  if (a.has_bias && total) {
    tt_hlo nothing = v_eqc(total, 0);
    inverse = v_if(nothing, v_const(total, 0), inverse);
    lse = v_if(nothing, v_const(total, 0), lse);
  }
  if (a.dropout) {
    const int64_t two = 2;
    state = tt_random_bits(r, TT_U64, &two, 1);
    e = v_mul(e, dropout_factors(r, &a, state));
  }
  tt_hlo out = product(r, &a, e, k_like(&a, tt_in(r, "value"), a.v_width), 2, 1);
  ret_forward(r, &a, v_mul(out, over_columns(inverse, a.v_width)), lse, state);
}

static tt_hlo saved_state(tt_rule *r) {
  const int64_t one = 1;
  tt_hlo parts[] = {tt_hlo_reshape(tt_in(r, "philox_seed"), &one, 1),
                    tt_hlo_reshape(tt_in(r, "philox_offset"), &one, 1)};
  return tt_hlo_bitcast_convert(tt_hlo_concatenate(parts, 2, 0), TT_U64);
}

// x^T y over the rows, as (y^T x)^T: the product that XLA:CPU does fastest, then a transpose.
static tt_hlo over_rows(tt_rule *r, const attention *a, tt_hlo x, tt_hlo y) {
  static const int32_t swap[] = {0, 2, 1};
  return tt_hlo_transpose(product(r, a, y, x, 1, 1), swap);
}

static tt_hlo bias_gradient(tt_rule *r, const attention *a, tt_hlo ds) {
  const tt_operand *bias = tt_operand_of(r, "attn_bias");
  const int64_t dims[] = {a->batch, a->q_heads, a->q_length, a->k_length};
  bool over[TT_MAX_RANK] = {false};
  for (int32_t d = 0; d < 4; d++) {
    const int32_t own = d - (4 - bias->ndim);
    over[d] = own < 0 || (bias->sizes[own] == 1 && dims[d] != 1);
  }
  return tt_hlo_reshape(tt_reduce_mask(TT_SUM, tt_hlo_reshape(ds, dims, 4), over), bias->sizes, bias->ndim);
}

static void ret_wanted(tt_rule *r, int32_t i, const bool *want, tt_hlo value, const char *like) {
  const tt_operand *x = tt_operand_of(r, like);
  if (want[i] && x) {
    tt_ret_like(r, i, tt_cast(tt_hlo_reshape(value, x->sizes, x->ndim), x->dtype), like);
  } else {
    tt_ret_none(r, i);
  }
}

static void build_host_backward(tt_rule *r, const attention *a, const bool *want) {
  tt_host_call c = host_call(a);
  static const char *const like[] = {"query", "key", "value"};
  for (int32_t i = 0; i < 3; i++) {
    host_view(r, &c, like[i]);
  }
  host_view(r, &c, "out");
  tt_host_result results[3];
  for (int32_t i = 0; i < 3; i++) {
    results[i] = tt_host_result_like(tt_operand_of(r, like[i]));
    host_layout(&c, &results[i]);
  }
  host_view(r, &c, "grad_out");
  host_bias(r, a, &c);
  tt_host_operand(&c, v_flat(tt_in_as(r, "logsumexp", TT_F32)));
  host_scale(r, a, &c);
  tt_hlo out[3] = {NULL};
  tt_host_make(r, &c, TT_HOST_BACKWARD, results, 3, out);
  for (int32_t i = 0; i < 3; i++) {
    ret_wanted(r, i, want, want[i] ? out[i] : NULL, like[i]);
  }
  tt_ret_none(r, 3);
}

static void build_backward(tt_rule *r) {
  attention a;
  if (!read_attention(r, &a)) {
    return;
  }
  int32_t count;
  const int64_t *mask = tt_ints(r, "grad_input_mask", &count);
  bool want[4];
  for (int32_t i = 0; i < 4; i++) {
    want[i] = i < count && mask[i] && (i < 3 || a.has_bias);
  }
  if (on_host(r, &a) && !want[3]) {
    build_host_backward(r, &a, want);
    return;
  }
  tt_hlo q = queries(r, &a), k = k_like(&a, tt_in(r, "key"), a.width);
  tt_hlo g = q_like(&a, tt_in_as(r, "grad_out", a.compute), a.v_width);
  const int64_t flat[] = {a.groups, a.rows};
  tt_hlo lse = tt_hlo_reshape(tt_in_as(r, "logsumexp", a.compute), flat, 2);
  tt_hlo s = scores(r, &a, q, k), p = s ? v_exp(v_sub(s, over_columns(lse, a.k_length))) : NULL;
  tt_hlo factors = a.dropout ? dropout_factors(r, &a, saved_state(r)) : NULL;
  tt_hlo dp = product(r, &a, g, k_like(&a, tt_in(r, "value"), a.v_width), 2, 2);
  tt_hlo dv = want[2] ? over_rows(r, &a, factors ? v_mul(p, factors) : p, g) : NULL;
  dp = factors ? v_mul(dp, factors) : dp;
  tt_hlo delta = v_reduce(TT_SUM, v_mul(g, q_like(&a, tt_in_as(r, "out", a.compute), a.v_width)), 2);
  tt_hlo ds = v_mul(p, v_sub(dp, over_columns(delta, a.k_length)));
  ret_wanted(r, 0, want, want[0] ? scaled(r, &a, product(r, &a, ds, k, 2, 1)) : NULL, "query");
  ret_wanted(r, 1, want, want[1] ? scaled_after(r, &a, over_rows(r, &a, ds, q)) : NULL, "key");
  ret_wanted(r, 2, want, dv, "value");
  ret_wanted(r, 3, want, want[3] ? bias_gradient(r, &a, ds) : NULL, "attn_bias");
}

const tt_rule_entry tt_rules_attention[] = {
    {.name = "aten::_scaled_dot_product_fused_attention_overrideable", .build = build_attention},
    {.name = "aten::_scaled_dot_product_fused_attention_overrideable_backward",
     .build = build_backward,
     .special_values = "dropout_p=0"},
    {0},
};
