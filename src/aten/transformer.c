// The inference paths of nn.MultiheadAttention and nn.TransformerEncoderLayer: one program for what is a call each.
// Values round to the tensors' type where PyTorch's operators end.
#include <math.h>

#include "aten/dims.h"

typedef struct heads {
  tt_dtype dtype;
  int64_t batch, length, width, count, size;  // of heads: count of size each
} heads;

static tt_hlo rounded(const heads *h, tt_hlo x) { return tt_cast(x, h->dtype); }
static tt_hlo widened(const heads *h, tt_hlo x) { return tt_cast(x, tt_opmath(h->dtype)); }

// x + bias, along the last dim, in the type to compute in.
static tt_hlo plus_bias(tt_rule *r, const heads *h, tt_hlo x, const char *bias) {
  tt_hlo b = tt_in_as(r, bias, tt_opmath(h->dtype)), wide = widened(h, x);
  if (!b || !wide) {
    return NULL;
  }
  const int64_t size = wide->dims[wide->rank - 1];
  if (b->rank != 1 || (b->dims[0] != size && b->dims[0] != 1)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "The expanded size of the tensor (%" PRId64 ") must match the existing size: tensor sizes: %s", size,
            tt_dims_text(b->dims, b->rank).text);
    return NULL;
  }
  return v_add(wide, tt_hlo_broadcast_to(b, wide->dims, wide->rank));
}

// x [rows, in] times a [out, in] weight.
static tt_hlo project(tt_rule *r, const heads *h, tt_hlo x, tt_hlo weight) {
  if (!x || !weight) {
    return NULL;
  }
  if (weight->dtype != h->dtype || weight->rank != 2 || weight->dims[1] != x->dims[1]) {
    tt_fail(r, TT_ERR_RUNTIME, "expected a weight of dtype %s for mat1 of sizes %s, but got %s of sizes %s",
            tt_type_name(h->dtype), tt_dims_text(x->dims, x->rank).text, tt_type_name(weight->dtype),
            tt_dims_text(weight->dims, weight->rank).text);
    return NULL;
  }
  return tt_matmul(r, x, tt_hlo_transpose(weight, (const int32_t[]){1, 0}));
}

// [batch, length, width] <-> [batch, heads, length, size]
static tt_hlo split_heads(const heads *h, tt_hlo x) {
  const int64_t dims[] = {h->batch, h->length, h->count, h->size};
  x = tt_hlo_reshape(x, dims, 4);
  return x ? tt_hlo_transpose(x, (const int32_t[]){0, 2, 1, 3}) : NULL;
}
static tt_hlo join_heads(const heads *h, tt_hlo x) {
  const int64_t dims[] = {h->batch * h->length, h->width};
  x = x ? tt_hlo_transpose(x, (const int32_t[]){0, 2, 1, 3}) : NULL;
  return tt_hlo_reshape(x, dims, 2);
}

// Batched product over (batch, heads).
static tt_hlo each_head(tt_rule *r, const heads *h, tt_hlo x, tt_hlo y) {
  if (!x || !y) {
    return NULL;
  }
  const int64_t n = h->batch * h->count, xs[] = {n, x->dims[2], x->dims[3]}, ys[] = {n, y->dims[2], y->dims[3]};
  const int64_t dims[] = {h->batch, h->count, x->dims[2], y->dims[3]};
  return tt_hlo_reshape(tt_matmul(r, tt_hlo_reshape(x, xs, 3), tt_hlo_reshape(y, ys, 3)), dims, 4);
}

static tt_hlo part_of_three(tt_hlo x, int32_t dim, int32_t i) {
  const int64_t size = x ? x->dims[dim] / 3 : 0;
  return tt_hlo_slice_dim(x, dim, i * size, (i + 1) * size, 1);
}

// ---- _transform_bias_rescale_qkv ----

static bool check_float(tt_rule *r, tt_dtype dtype) {
  if (!tt_dtype_is_float(dtype)) {
    tt_fail_dtype(r, "transform_bias_rescale_qkv", dtype);
  }
  return !tt_failed(r);
}

// Three values [rows, width], with their biases, as heads; the queries divided by the root of a head's size.
static void make_heads(const heads *h, const tt_hlo *biased, tt_hlo *out) {
  for (int32_t i = 0; i < 3; i++) {
    tt_hlo x = i == 0 && biased[0] ? v_mulc(biased[0], 1 / sqrt((double)h->size)) : biased[i];
    out[i] = split_heads(h, rounded(h, x));
  }
}

static void build_transform(tt_rule *r) {
  tt_hlo x = tt_in(r, "qkv");
  const int64_t count = tt_int(r, "num_heads", 1);
  if (!x) {
    return;
  }
  if (x->rank != 3 || count < 1 || x->dims[2] % 3 != 0 || x->dims[2] / 3 % count != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected D %% num_head == 0 to be true, but got false.");
    return;
  }
  const heads h = {x->dtype, x->dims[0], x->dims[1], x->dims[2] / 3, count, x->dims[2] / 3 / count};
  if (!check_float(r, h.dtype)) {
    return;
  }
  tt_hlo all = plus_bias(r, &h, x, "qkv_bias"), parts[3], out[3];
  for (int32_t i = 0; i < 3; i++) {
    parts[i] = part_of_three(all, 2, i);
  }
  make_heads(&h, parts, out);
  for (int32_t i = 0; i < 3; i++) {
    tt_ret(r, i, out[i]);
  }
}

// ---- attention ----

// The mask over all scores: 0: [length, length], 1: [batch, length] of keys, 2: as the scores.
static bool read_mask(tt_rule *r, tt_hlo scores, tt_hlo *mask) {
  *mask = tt_has(r, "mask") ? tt_in_as(r, "mask", TT_PRED) : NULL;
  if (!*mask) {
    return !tt_failed(r);
  }
  const int64_t type = tt_int(r, "mask_type", -1), *dims = scores->dims;
  const tt_hlo m = *mask;
  if (!tt_has(r, "mask_type")) {
    tt_fail(r, TT_ERR_RUNTIME, "Mask Type should be defined");
  } else if (type < 0 || type > 2) {
    tt_fail(r, TT_ERR_RUNTIME, "Mask Type should be 0 (src_mask) or 1 (src_key_padding_mask), or 2 (default_mask)");
  } else if (m->rank == 2 && type == 0 && m->dims[0] == dims[2] && m->dims[1] == dims[3]) {
    *mask = tt_hlo_broadcast_to(m, dims, 4);
  } else if (m->rank == 2 && type == 1 && m->dims[0] == dims[0] && m->dims[1] == dims[3]) {
    *mask = tt_hlo_broadcast_in_dim(m, dims, 4, (const int32_t[]){0, 3});
  } else if (!tt_hlo_same_dims(m, scores)) {
    tt_fail(r, TT_ERR_RUNTIME, "For mask_type == %" PRId64 " mask shape should be %s, but is %s", type,
            type == 0   ? "(L, L)"
            : type == 1 ? "(B, L)"
                        : "that of the scores",
            tt_dims_text(m->dims, m->rank).text);
  }
  return !tt_failed(r);
}

static bool check_projection(tt_rule *r, const heads *h) {
  const tt_operand *weight = tt_operand_of(r, "qkv_weight"), *bias = tt_operand_of(r, "qkv_bias");
  if (!weight || weight->ndim != 2 || weight->sizes[0] != 3 * h->width) {
    tt_fail(r, TT_ERR_RUNTIME, "expected `qkv_weight` first dim to be 3x embed_dim");
  } else if (weight->sizes[1] != h->width) {
    tt_fail(r, TT_ERR_RUNTIME, "expected `qkv_weight` second dim to be embed_Dim");
  } else if (!bias || bias->ndim != 1 || bias->sizes[0] != 3 * h->width) {
    tt_fail(r, TT_ERR_RUNTIME, "expected `qkv_bias` first dim and first dim of query to be equal");
  } else if (h->count < 1 || h->width % h->count != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "`embed_dim` must divide evenly by `num_heads`");
  }
  return !tt_failed(r);
}

static bool read_heads(tt_rule *r, tt_hlo query, int64_t count, heads *h) {
  const int64_t width = tt_int(r, "embed_dim", 0);
  if (!query) {
    return false;
  }
  if (query->rank != 3) {
    tt_fail(r, TT_ERR_RUNTIME, "expected 3-D `query`, got %d-D tensor", query->rank);
    return false;
  }
  if (query->dims[2] != width) {
    tt_fail(r, TT_ERR_RUNTIME, "passed-in embed_dim %" PRId64 " didn't match last dim of query %" PRId64, width,
            query->dims[2]);
    return false;
  }
  *h = (heads){query->dtype, query->dims[0], query->dims[1], width, count, count > 0 ? width / count : 0};
  return check_projection(r, h) && check_float(r, h->dtype);
}

// Attention of [batch, length, width] values; the weights too, [batch, heads, length, length].
static tt_hlo attend(tt_rule *r, const heads *h, const tt_hlo *inputs, tt_hlo *weights) {
  const int64_t rows[] = {h->batch * h->length, h->width};
  tt_hlo weight = tt_in(r, "qkv_weight"), biases = tt_in_as(r, "qkv_bias", tt_opmath(h->dtype)), parts[3], head[3];
  const bool same = inputs[0] == inputs[1] && inputs[1] == inputs[2];
  tt_hlo all = same ? project(r, h, tt_hlo_reshape(inputs[0], rows, 2), weight) : NULL;
  for (int32_t i = 0; i < 3; i++) {
    tt_hlo x = same ? part_of_three(all, 1, i)
                    : project(r, h, tt_hlo_reshape(inputs[i], rows, 2), part_of_three(weight, 0, i));
    tt_hlo bias = part_of_three(biases, 0, i);
    parts[i] = x && bias ? v_add(widened(h, x), v_along(bias, rows, 2, 1)) : NULL;
  }
  make_heads(h, parts, head);
  tt_hlo keys = head[1] ? tt_hlo_transpose(head[1], (const int32_t[]){0, 1, 3, 2}) : NULL, mask;
  tt_hlo scores = widened(h, each_head(r, h, head[0], keys));
  if (!scores || !read_mask(r, scores, &mask)) {
    return NULL;
  }
  *weights = rounded(h, tt_masked_softmax(scores, mask, 3));
  tt_hlo context = join_heads(h, each_head(r, h, *weights, head[2]));
  return plus_bias(r, h, project(r, h, context, tt_in(r, "proj_weight")), "proj_bias");
}

static void build_attention(tt_rule *r) {
  tt_hlo x[] = {tt_in(r, "query"), tt_in(r, "key"), tt_in(r, "value")}, weights = NULL;
  heads h;
  if (!x[1] || !x[2] || !read_heads(r, x[0], tt_int(r, "num_head", 0), &h)) {
    return;
  }
  if (!tt_hlo_same_dims(x[0], x[1]) || !tt_hlo_same_dims(x[0], x[2])) {
    tt_fail(r, TT_ERR_RUNTIME, "expected `query`/`key`/`value` shapes to match");
    return;
  }
  if (tt_hlo_numel(x[0]) == 0) {
    tt_ret_like(r, 0, x[0], "query");
    tt_ret_none(r, 1);
    return;
  }
  tt_hlo result = attend(r, &h, x, &weights);
  if (!result) {
    return;
  }
  tt_ret(r, 0, tt_hlo_reshape(rounded(&h, result), (const int64_t[]){h.batch, h.length, result->dims[1]}, 3));
  if (!tt_bool(r, "need_weights", true)) {
    tt_ret_none(r, 1);
  } else if (tt_bool(r, "average_attn_weights", true)) {
    tt_hlo sum = rounded(&h, v_reduce(TT_SUM, widened(&h, weights), 1));
    tt_ret(r, 1, rounded(&h, tt_mean_of(widened(&h, sum), h.count)));
  } else {
    tt_ret(r, 1, weights);
  }
}

// ---- the encoder layer: rows are [batch * length, width] of the tensors' type ----

static tt_hlo normalize(tt_rule *r, const heads *h, tt_hlo x, const char *weight, const char *bias) {
  tt_hlo wide = widened(h, x), scale = tt_in_as(r, weight, tt_opmath(h->dtype));
  if (!wide || !scale) {
    return NULL;
  }
  if (scale->rank != 1 || scale->dims[0] != h->width) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected weight to be of same shape as normalized_shape, but got weight of shape %s",
            tt_dims_text(scale->dims, scale->rank).text);
    return NULL;
  }
  tt_hlo centred = v_sub(wide, v_spread(tt_mean_of(v_reduce(TT_SUM, wide, 1), h->width), wide, 1));
  tt_hlo variance = tt_mean_of(v_reduce(TT_SUM, v_mul(centred, centred), 1), h->width);
  tt_hlo eps = tt_scalar(r, "eps", wide->dtype);
  tt_hlo inverse = tt_hlo_unary(TT_RSQRT, v_add(variance, v_like(eps, variance)));
  tt_hlo normal = v_mul(centred, v_spread(inverse, wide, 1));
  return rounded(h, plus_bias(r, h, v_mul(normal, v_along(scale, wide->dims, 2, 1)), bias));
}

static tt_hlo add_rows(const heads *h, tt_hlo x, tt_hlo y) { return rounded(h, v_add(widened(h, x), widened(h, y))); }

static tt_hlo feed_forward(tt_rule *r, const heads *h, tt_hlo x) {
  tt_hlo y = widened(h, rounded(h, plus_bias(r, h, project(r, h, x, tt_in(r, "ffn_weight_1")), "ffn_bias_1")));
  if (!y) {
    return NULL;
  }
  if (tt_bool(r, "use_gelu", false)) {
    y = v_mul(v_mulc(y, 0.5), v_addc(tt_hlo_unary(TT_ERF, v_mulc(y, M_SQRT1_2)), 1));
  } else {
    y = v_max(y, v_const(y, 0));
  }
  return rounded(h, plus_bias(r, h, project(r, h, rounded(h, y), tt_in(r, "ffn_weight_2")), "ffn_bias_2"));
}

static void build_encoder_layer(tt_rule *r) {
  tt_hlo source = tt_in(r, "src"), weights = NULL;
  const bool norm_first = tt_bool(r, "norm_first", false);
  heads h;
  if (!read_heads(r, source, tt_int(r, "num_heads", 0), &h)) {
    return;
  }
  if (tt_hlo_numel(source) == 0) {
    tt_ret_like(r, 0, source, "src");
    return;
  }
  const int64_t rows[] = {h.batch * h.length, h.width};
  tt_hlo flat = tt_hlo_reshape(source, rows, 2), x = flat;
  x = norm_first ? normalize(r, &h, x, "norm_weight_1", "norm_bias_1") : x;
  x = tt_hlo_reshape(x, source->dims, 3);
  const tt_hlo inputs[] = {x, x, x};
  x = rounded(&h, attend(r, &h, inputs, &weights));
  if (x && !tt_hlo_same_dims(x, flat)) {
    tt_fail(r, TT_ERR_RUNTIME, "proj_weight gives %" PRId64 " values where %" PRId64 " come in", x->dims[1], h.width);
    return;
  }
  x = add_rows(&h, x, flat);
  x = norm_first ? x : normalize(r, &h, x, "norm_weight_1", "norm_bias_1");
  tt_hlo y = feed_forward(r, &h, norm_first ? normalize(r, &h, x, "norm_weight_2", "norm_bias_2") : x);
  if (y && !tt_hlo_same_dims(y, flat)) {
    tt_fail(r, TT_ERR_RUNTIME, "ffn_weight_2 gives %" PRId64 " values where %" PRId64 " come in", y->dims[1], h.width);
    return;
  }
  x = add_rows(&h, y, x);
  x = norm_first ? x : normalize(r, &h, x, "norm_weight_2", "norm_bias_2");
  tt_ret(r, 0, tt_hlo_reshape(x, source->dims, 3));
}

const tt_rule_entry tt_rules_transformer[] = {
    {.name = "aten::_transform_bias_rescale_qkv", .build = build_transform},
    {.name = "aten::_native_multi_head_attention", .build = build_attention},
    {.name = "aten::_transformer_encoder_layer_fwd", .build = build_encoder_layer},
    {0},
};
