// Padding by a constant, by reflection and by the edge, and the gradients.
#include "aten/dims.h"

static void build_constant_pad(tt_rule *r) {
  int32_t count;
  const int64_t *pad = tt_ints(r, "pad", &count);
  tt_hlo x = tt_in(r, "self");
  if (!x) {
    return;
  }
  if (count % 2 != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Length of pad must be even but instead it equals %d", count);
    return;
  }
  if (count / 2 > x->rank) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "Length of pad should be no more than twice the number of dimensions of the input. Pad length is %d while the "
        "input has %d dimensions.",
        count, x->rank);
    return;
  }
  int64_t low[TT_MAX_RANK] = {0}, high[TT_MAX_RANK] = {0};
  for (int32_t i = 0; i < count / 2; i++) {
    const int32_t dim = x->rank - 1 - i;
    low[dim] = pad[2 * i];
    high[dim] = pad[2 * i + 1];
    int64_t size;
    if (__builtin_add_overflow(low[dim], high[dim], &size) || __builtin_add_overflow(size, x->dims[dim], &size) ||
        size < 0) {
      tt_fail(r, TT_ERR_RUNTIME,
              "The input size %" PRId64 ", plus negative padding %" PRId64 " and %" PRId64
              ", resulted in a negative output size, which is invalid. Check dimension %d of your input.",
              x->dims[dim], low[dim], high[dim], dim);
      return;
    }
  }
  tt_hlo value = tt_has(r, "value") ? tt_scalar(r, "value", x->dtype) : v_zero(x);
  tt_ret_format(r, 0, tt_hlo_pad(x, value, low, high, NULL), tt_is_channels_last(tt_operand_of(r, "self")));
}

// ---- reflection and replication of the last n dims ----
enum { REPLICATE = 0, REFLECT = 8 };  // with the number of padded dims in the low bits

typedef struct edges {
  int32_t n, rank;
  int64_t low[3], high[3];  // of dim rank - n + i
  bool reflect;
} edges;

static bool read_edges(tt_rule *r, const char *name, edges *e) {
  const tt_operand *x = tt_operand_of(r, name);
  int32_t count;
  const int64_t *pad = tt_ints(r, "padding", &count);
  *e = (edges){.n = tt_rule_kind(r) & 7, .reflect = tt_rule_kind(r) & REFLECT};
  if (!x) {
    return false;
  }
  if (count != 2 * e->n) {
    tt_fail(r, TT_ERR_RUNTIME, "padding size is expected to be %d, but got: %d", 2 * e->n, count);
    return false;
  }
  bool valid = x->ndim == e->n + 1 || x->ndim == e->n + 2;
  for (int32_t i = x->ndim - e->n - 1; valid && i < x->ndim; i++) {
    valid = x->sizes[i] != 0;
  }
  if (!valid) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "Expected %dD or %dD (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for input, "
        "but got: %s",
        e->n + 1, e->n + 2, tt_dims_text(x->sizes, x->ndim).text);
    return false;
  }
  e->rank = x->ndim;
  for (int32_t i = 0; i < e->n; i++) {
    const int32_t dim = x->ndim - e->n + i;
    e->low[i] = pad[2 * (e->n - 1 - i)];
    e->high[i] = pad[2 * (e->n - 1 - i) + 1];
    if (e->reflect && (e->low[i] >= x->sizes[dim] || e->high[i] >= x->sizes[dim])) {
      tt_fail(r, TT_ERR_RUNTIME,
              "Padding size should be less than the corresponding input dimension, but got: padding (%" PRId64
              ", %" PRId64 ") at dimension %d of input %s",
              e->low[i], e->high[i], dim, tt_dims_text(x->sizes, x->ndim).text);
      return false;
    }
    int64_t size;
    if (__builtin_add_overflow(e->low[i], e->high[i], &size) || __builtin_add_overflow(size, x->sizes[dim], &size) ||
        size < 1) {
      tt_fail(r, TT_ERR_RUNTIME, "input (%s) is too small: calculated size of dimension %d is %" PRId64,
              tt_dims_text(x->sizes, x->ndim).text, dim, size);
      return false;
    }
  }
  return true;
}

static int64_t positive(int64_t x) { return x > 0 ? x : 0; }

// x[from:to] along dim, reversed.
static tt_hlo mirrored(tt_hlo x, int32_t dim, int64_t from, int64_t to) {
  return tt_hlo_reverse(tt_hlo_slice_dim(x, dim, from, to, 1), &dim, 1);
}

// One edge element, `count` times.
static tt_hlo stretched(tt_hlo x, int32_t dim, int64_t at, int64_t count) {
  tt_hlo edge = tt_hlo_slice_dim(x, dim, at, at + 1, 1);
  if (!edge) {
    return NULL;
  }
  int64_t dims[V_DIMS];
  memcpy(dims, edge->dims, sizeof(*dims) * (size_t)edge->rank);
  dims[dim] = count;
  return tt_hlo_broadcast_to(edge, dims, edge->rank);
}

static tt_hlo padded(tt_hlo x, int32_t dim, int64_t low, int64_t high, bool reflect) {
  if (!x) {
    return NULL;
  }
  const int64_t size = x->dims[dim];
  tt_hlo parts[3];
  int32_t n = 0;
  if (low > 0) {
    parts[n++] = reflect ? mirrored(x, dim, 1, low + 1) : stretched(x, dim, 0, low);
  }
  parts[n++] = tt_hlo_slice_dim(x, dim, 0, size, 1);
  if (high > 0) {
    parts[n++] = reflect ? mirrored(x, dim, size - high - 1, size - 1) : stretched(x, dim, size - 1, high);
  }
  tt_hlo all = n > 1 ? tt_hlo_concatenate(parts, n, dim) : parts[0];
  // Negative padding drops elements, padding from the other side included.
  const int64_t from = positive(-low), to = all ? all->dims[dim] - positive(-high) : 0;
  return tt_hlo_slice_dim(all, dim, from, to, 1);
}

// The gradient of `padded` for a dim of `size`.
static tt_hlo unpadded(tt_hlo grad, int32_t dim, int64_t size, int64_t low, int64_t high, bool reflect) {
  grad = v_pad0(grad, dim, positive(-low), positive(-high), 0);
  const int64_t left = positive(low), right = positive(high);
  tt_hlo sum = tt_hlo_slice_dim(grad, dim, left, left + size, 1);
  if (left > 0) {
    tt_hlo part = reflect ? mirrored(grad, dim, 0, left)
                          : v_unsqueeze(v_reduce(TT_SUM, tt_hlo_slice_dim(grad, dim, 0, left, 1), dim), dim);
    sum = v_add(sum, v_pad0(part, dim, reflect, size - (reflect ? left + 1 : 1), 0));
  }
  if (right > 0) {
    const int64_t from = left + size, to = from + right;
    tt_hlo part = reflect ? mirrored(grad, dim, from, to)
                          : v_unsqueeze(v_reduce(TT_SUM, tt_hlo_slice_dim(grad, dim, from, to, 1), dim), dim);
    sum = v_add(sum, v_pad0(part, dim, size - (reflect ? right + 1 : 1), reflect, 0));
  }
  return sum;
}

static void build_edge_pad(tt_rule *r) {
  edges e;
  if (!read_edges(r, "self", &e)) {
    return;
  }
  tt_hlo x = tt_in(r, "self");
  for (int32_t i = 0; i < e.n; i++) {
    x = padded(x, e.rank - e.n + i, e.low[i], e.high[i], e.reflect);
  }
  tt_ret_format(r, 0, x, tt_is_channels_last(tt_operand_of(r, "self")));
}

static void build_edge_pad_backward(tt_rule *r) {
  edges e;
  if (!read_edges(r, "self", &e)) {
    return;
  }
  const tt_operand *self = tt_operand_of(r, "self"), *grad = tt_operand_of(r, "grad_output");
  if (!grad) {
    return;
  }
  for (int32_t i = 0; i < self->ndim; i++) {
    const int32_t k = i - (e.rank - e.n);
    const int64_t expected = self->sizes[i] + (k >= 0 ? e.low[k] + e.high[k] : 0);
    if (grad->ndim != self->ndim || grad->sizes[i] != expected) {
      tt_fail(r, TT_ERR_RUNTIME, "grad_output has sizes %s, which padding an input of sizes %s can't give",
              tt_dims_text(grad->sizes, grad->ndim).text, tt_dims_text(self->sizes, self->ndim).text);
      return;
    }
  }
  tt_hlo x = tt_in_as(r, "grad_output", tt_sum_type(grad->dtype));
  for (int32_t i = e.n - 1; i >= 0; i--) {
    const int32_t dim = e.rank - e.n + i;
    x = unpadded(x, dim, self->sizes[dim], e.low[i], e.high[i], e.reflect);
  }
  tt_ret_format(r, 0, tt_cast(x, grad->dtype), tt_is_channels_last(self));
}

#define EDGE(rule_name, kind_bits)                                                              \
  {.name = "aten::" rule_name, .build = build_edge_pad, .kind = kind_bits}, {                   \
    .name = "aten::" rule_name "_backward", .build = build_edge_pad_backward, .kind = kind_bits \
  }

const tt_rule_entry tt_rules_pad[] = {
    {.name = "aten::constant_pad_nd", .build = build_constant_pad},
    EDGE("reflection_pad1d", REFLECT | 1),
    EDGE("reflection_pad2d", REFLECT | 2),
    EDGE("reflection_pad3d", REFLECT | 3),
    EDGE("replication_pad1d", REPLICATE | 1),
    EDGE("replication_pad2d", REPLICATE | 2),
    EDGE("replication_pad3d", REPLICATE | 3),
    {.name = NULL},
};
