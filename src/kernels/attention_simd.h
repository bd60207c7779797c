// Attention over blocks of queries and keys, in whatever vectors simd.h was included with.
#ifndef TORCHTPU_KERNELS_ATTENTION_SIMD_H
#define TORCHTPU_KERNELS_ATTENTION_SIMD_H

#include "kernels/kernels.h"
#include "kernels/simd.h"

enum {
  Q_BLOCK = TT_WIDTH == 8 ? 30 : 24,  // whole tiles
  K_BLOCK = 128,
  FEW_ROWS = 4,  // for so few queries turning the keys costs more than it saves
};

static inline int64_t least(int64_t x, int64_t y) { return x < y ? x : y; }

// One head's matrix.
typedef struct plane {
  const float *data;
  int64_t row, column;
} plane;
static inline plane plane_of(const tt_rows *x, int64_t batch, int64_t head) {
  return (plane){x->data ? x->data + batch * x->batch + head * x->head : NULL, x->row, x->column};
}
static inline const float *row_of(const plane *x, int64_t row) { return x->data + row * x->row; }

// Rows that a product can read whole vectors of: where they are, or copied and padded.
static plane whole_rows(float *scratch, const plane *x, int64_t first, int64_t rows, int64_t width) {
  if (x->column == 1 && width % TT_WIDTH == 0) {
    return (plane){row_of(x, first), x->row, 1};
  }
  pack_rows(scratch, padded(width), row_of(x, first), x->row, x->column, rows, width);
  return (plane){scratch, padded(width), 1};
}

static bool plane_is_finite(const plane *x, int64_t rows, int64_t width) {
  return all_finite(x->data, x->row, x->column, rows, width);
}

static float *take(float **next, int64_t count) {
  float *taken = *next;
  *next += (count + 15) / 16 * 16;
  return taken;
}

// ---- one row of scores ----
typedef struct row_view {
  float *scores;
  int64_t columns, limit;  // whole vectors; those from `limit` on are not attended to
  const float *bias;       // of this row; NULL: none
  int64_t bias_column;
  float scale;
} row_view;

TT_INLINE vec bias_at(const row_view *row, int64_t j) {
  if (row->bias_column == 1 && j + TT_WIDTH <= row->limit) {
    return load(row->bias + j);
  }
  vec x = splat(0);
  for (int64_t i = 0; i < TT_WIDTH && j + i < row->limit; i++) {
    x[i] = row->bias[(j + i) * row->bias_column];
  }
  return x;
}

// scale * score + bias of columns j to j + TT_WIDTH.
TT_INLINE vec score_at(const row_view *row, int64_t j) {
  const vec x = load(row->scores + j) * splat(row->scale);
  return row->bias ? x + bias_at(row, j) : x;
}

// Something else in what is not attended to.
TT_INLINE vec masked(const row_view *row, int64_t j, vec x, float outside) {
  if (j + TT_WIDTH <= row->limit) {
    return x;
  }
  const int32_t seen = row->limit > j ? (int32_t)(row->limit - j) : 0;
  return choose(lanes < isplat(seen), x, splat(outside));
}

// ---- forward ----
typedef struct forward {
  const tt_attention *a;
  plane query, key, value, bias;
  int64_t first_row, row_count;  // of the piece
  int64_t v_padded;
  bool skips;  // what lies above the diagonal isn't looked at
  float *turned_keys, *values, *scores, *out, *top, *total, *row_copy;
} forward;

static size_t layout_forward(forward *f, const tt_attention *a, float *scratch) {
  float *next = scratch;
  f->v_padded = padded(a->v_width);
  f->turned_keys = take(&next, a->width * K_BLOCK);
  f->values = take(&next, f->v_padded * K_BLOCK);
  f->scores = take(&next, Q_BLOCK * K_BLOCK);
  f->out = take(&next, a->item_rows * f->v_padded);
  f->top = take(&next, a->item_rows);
  f->total = take(&next, a->item_rows);
  f->row_copy = take(&next, a->width);
  return (size_t)(next - scratch);
}

// Turns a row of scores into weights; the greatest score, the sum and the row of the output follow.
static void soften(const row_view *row, float *top, float *total, float *out, int64_t out_columns, bool is_first) {
  vec most = splat(-INFINITY), sum = splat(0);
  for (int64_t j = 0; j < row->columns; j += TT_WIDTH) {
    const vec x = masked(row, j, score_at(row, j), -INFINITY);
    store(row->scores + j, x);
    most = choose(x > most, x, most);
  }
  const float before = is_first ? -INFINITY : *top;
  const float found = max_lanes(most), now = found > before ? found : before;
  const float base = now == -INFINITY ? 0 : now;  // all weights are zero then
  for (int64_t j = 0; j < row->columns; j += TT_WIDTH) {
    const vec p = exponential(load(row->scores + j) - splat(base));
    store(row->scores + j, p);
    sum += p;
  }
  *top = now;
  if (is_first) {
    *total = sum_lanes(sum);
    return;
  }
  const float shrink = now == before ? 1 : exponential(splat(before - base))[0];
  *total = *total * shrink + sum_lanes(sum);
  for (int64_t j = 0; shrink != 1 && j < out_columns; j += TT_WIDTH) {
    store(out + j, load(out + j) * splat(shrink));
  }
}

// Scores of a few rows: the keys as they lie.
static void score_few(forward *f, int64_t first, int64_t rows, int64_t first_key, int64_t keys) {
  const int64_t width = f->a->width;
  for (int64_t i = 0; i < rows; i++) {
    const float *query = row_of(&f->query, first + i);
    if (f->query.column != 1) {
      pack_rows(f->row_copy, width, query, 0, f->query.column, 1, width);
      query = f->row_copy;
    }
    for (int64_t j = 0; j < keys; j++) {
      f->scores[i * K_BLOCK + j] = dot(query, row_of(&f->key, first_key + j), width);
    }
    for (int64_t j = keys; j < padded(keys); j++) {
      f->scores[i * K_BLOCK + j] = 0;
    }
  }
}

static void attend_block(forward *f, int64_t first, int64_t rows, int64_t first_key, int64_t keys, bool is_turned,
                         const plane *values) {
  const tt_attention *a = f->a;
  float *out = f->out + (first - f->first_row) * f->v_padded;
  if (is_turned) {
    const matrices scores = {.a = row_of(&f->query, first),
                             .a_row = f->query.row,
                             .a_column = f->query.column,
                             .b = f->turned_keys,
                             .b_row = K_BLOCK,
                             .c = f->scores,
                             .c_row = K_BLOCK,
                             .depth = a->width};
    multiply(&scores, rows, padded(keys));
  } else {
    score_few(f, first, rows, first_key, keys);
  }
  for (int64_t i = 0; i < rows; i++) {
    const int64_t seen = a->causal ? least(keys, first + i + 1 - first_key) : keys;
    const row_view row = {
        .scores = f->scores + i * K_BLOCK,
        .columns = padded(keys),
        .limit = seen,
        .bias = f->bias.data ? row_of(&f->bias, first + i) + first_key * f->bias.column : NULL,
        .bias_column = f->bias.column,
        .scale = a->scale,
    };
    const int64_t r = first + i - f->first_row;
    soften(&row, &f->top[r], &f->total[r], out + i * f->v_padded, f->v_padded, first_key == 0);
  }
  const matrices weighted = {.a = f->scores,
                             .a_row = K_BLOCK,
                             .a_column = 1,
                             .b = values->data,
                             .b_row = values->row,
                             .c = out,
                             .c_row = f->v_padded,
                             .depth = keys,
                             .add = first_key > 0};
  multiply(&weighted, rows, f->v_padded);
}

static void finish_rows(const forward *f, int64_t batch, int64_t head) {
  const tt_attention *a = f->a;
  float *lse = a->lse + (batch * a->q_heads + head) * a->q_length;
  for (int64_t r = 0; r < f->row_count; r++) {
    const float total = f->total[r], inverse = total == 0 ? 0 : 1 / total;
    const int64_t row = f->first_row + r;
    float *to = a->out.data + batch * a->out.batch + head * a->out.head + row * a->out.row;
    put_row(to, a->out.column, f->out + r * f->v_padded, a->v_width, inverse);
    lse[row] = total == 0 ? 0 : f->top[r] == INFINITY ? INFINITY : f->top[r] + logf(total);
  }
}

static void attend(const tt_attention *a, int64_t item, float *scratch) {
  const int64_t pieces = (a->q_length + a->item_rows - 1) / a->item_rows, index = item / pieces;
  const int64_t batch = index / a->q_heads, head = index % a->q_heads, k_head = head / (a->q_heads / a->k_heads);
  forward f = {.a = a, .first_row = item % pieces * a->item_rows};
  layout_forward(&f, a, scratch);
  f.query = plane_of(&a->query, batch, head);
  f.key = plane_of(&a->key, batch, k_head);
  f.value = plane_of(&a->value, batch, k_head);
  f.bias = plane_of(&a->bias, batch, head);
  f.row_count = least(a->item_rows, a->q_length - f.first_row);
  // A weight of zero doesn't hide an infinite or undefined value: then every key counts.
  f.skips = a->causal && plane_is_finite(&f.value, a->k_length, a->v_width);
  const int64_t end_row = f.first_row + f.row_count, end_key = f.skips ? least(a->k_length, end_row) : a->k_length;
  const bool turns = f.row_count >= FEW_ROWS || f.key.column != 1;
  for (int64_t k = 0; k < end_key; k += K_BLOCK) {
    const int64_t keys = least(K_BLOCK, end_key - k);
    if (turns) {
      pack_turned(f.turned_keys, K_BLOCK, row_of(&f.key, k), f.key.row, f.key.column, keys, a->width);
    }
    const plane values = whole_rows(f.values, &f.value, k, keys, a->v_width);
    for (int64_t i = f.first_row; i < end_row; i += Q_BLOCK) {
      const int64_t rows = least(Q_BLOCK, end_row - i), seen = f.skips ? least(keys, i + rows - k) : keys;
      if (seen > 0) {
        attend_block(&f, i, rows, k, seen, turns, &values);
      }
    }
  }
  finish_rows(&f, batch, head);
}

static size_t attend_scratch(const tt_attention *a) {
  forward f;
  return layout_forward(&f, a, NULL);
}

// ---- backward ----
// One key head and the query heads over it. Rows count through all of these heads.
typedef struct backward {
  const tt_attention *a;
  plane key, value;
  int64_t width, v_width;  // padded
  bool skips;
  float *turned_keys, *turned_values, *keys, *queries, *grads, *weights, *slopes, *delta;
  float *grad_query, *grad_key, *grad_value;
} backward;

static size_t layout_backward(backward *f, const tt_attention *a, float *scratch) {
  const int64_t rows = a->q_heads / a->k_heads * a->q_length;
  float *next = scratch;
  f->width = padded(a->width);
  f->v_width = padded(a->v_width);
  f->turned_keys = take(&next, a->width * K_BLOCK);
  f->turned_values = take(&next, a->v_width * K_BLOCK);
  f->keys = take(&next, f->width * K_BLOCK);
  f->queries = take(&next, f->width * Q_BLOCK);
  f->grads = take(&next, f->v_width * Q_BLOCK);
  f->weights = take(&next, Q_BLOCK * K_BLOCK);
  f->slopes = take(&next, Q_BLOCK * K_BLOCK);
  f->delta = take(&next, rows);
  f->grad_query = take(&next, rows * f->width);
  f->grad_key = take(&next, f->width * K_BLOCK);
  f->grad_value = take(&next, f->v_width * K_BLOCK);
  return (size_t)(next - scratch);
}

// What a query head brings.
typedef struct query_head {
  int64_t number;  // among those of the key head
  plane query, grad, bias;
  const float *lse;
} query_head;
static query_head query_head_of(const tt_attention *a, int64_t batch, int64_t head, int64_t number) {
  return (query_head){.number = number,
                      .query = plane_of(&a->query, batch, head),
                      .grad = plane_of(&a->grad_out, batch, head),
                      .bias = plane_of(&a->bias, batch, head),
                      .lse = a->saved_lse + (batch * a->q_heads + head) * a->q_length};
}

// The rows of grad_out times those of out, summed; whether all of it is finite.
static bool sum_deltas(const tt_attention *a, const plane *grad, const plane *out, float *delta) {
  float zeros = 0;
  for (int64_t i = 0; i < a->q_length; i++) {
    const float *x = row_of(grad, i), *y = row_of(out, i);
    if (grad->column == 1 && out->column == 1) {
      delta[i] = dot(x, y, a->v_width);
    } else {
      delta[i] = 0;
      for (int64_t j = 0; j < a->v_width; j++) {
        delta[i] += x[j * grad->column] * y[j * out->column];
      }
    }
    zeros += delta[i] * 0;
  }
  return zeros == 0;
}

// Scores become weights; the slopes, which hold grad_out v^T, the gradients of the scores.
static void derive(const row_view *row, float *slopes, float lse, float delta) {
  for (int64_t j = 0; j < row->columns; j += TT_WIDTH) {
    const vec p = masked(row, j, exponential(score_at(row, j) - splat(lse)), 0);
    store(row->scores + j, p);
    store(slopes + j, p * (load(slopes + j) - splat(delta)));
  }
}

static void fill_weights(backward *f, const query_head *h, int64_t first, int64_t rows, int64_t first_key,
                         int64_t keys) {
  const tt_attention *a = f->a;
  matrices m = {.a = row_of(&h->query, first),
                .a_row = h->query.row,
                .a_column = h->query.column,
                .b = f->turned_keys,
                .b_row = K_BLOCK,
                .c = f->weights,
                .c_row = K_BLOCK,
                .depth = a->width};
  multiply(&m, rows, padded(keys));
  m.a = row_of(&h->grad, first);
  m.a_row = h->grad.row;
  m.a_column = h->grad.column;
  m.b = f->turned_values;
  m.c = f->slopes;
  m.depth = a->v_width;
  multiply(&m, rows, padded(keys));
  for (int64_t i = 0; i < rows; i++) {
    const row_view row = {
        .scores = f->weights + i * K_BLOCK,
        .columns = padded(keys),
        .limit = a->causal ? least(keys, first + i + 1 - first_key) : keys,
        .bias = h->bias.data ? row_of(&h->bias, first + i) + first_key * h->bias.column : NULL,
        .bias_column = h->bias.column,
        .scale = a->scale,
    };
    derive(&row, f->slopes + i * K_BLOCK, h->lse[first + i], f->delta[h->number * a->q_length + first + i]);
  }
}

static void derive_block(backward *f, const query_head *h, int64_t first, int64_t rows, int64_t first_key, int64_t keys,
                         const plane *key_rows) {
  const tt_attention *a = f->a;
  fill_weights(f, h, first, rows, first_key, keys);
  const plane grads = whole_rows(f->grads, &h->grad, first, rows, a->v_width);
  const plane queries = whole_rows(f->queries, &h->query, first, rows, a->width);
  matrices m = {.a = f->weights,
                .a_row = 1,
                .a_column = K_BLOCK,
                .b = grads.data,
                .b_row = grads.row,
                .c = f->grad_value,
                .c_row = f->v_width,
                .depth = rows,
                .add = true};
  multiply(&m, keys, f->v_width);
  m.a = f->slopes;
  m.b = queries.data;
  m.b_row = queries.row;
  m.c = f->grad_key;
  m.c_row = f->width;
  multiply(&m, keys, f->width);
  m.a_row = K_BLOCK;
  m.a_column = 1;
  m.b = key_rows->data;
  m.b_row = key_rows->row;
  m.c = f->grad_query + (h->number * a->q_length + first) * f->width;
  m.depth = keys;
  m.add = first_key > 0;
  multiply(&m, rows, f->width);
}

static void put_rows(const tt_rows_out *to, int64_t batch, int64_t head, int64_t first, int64_t rows, int64_t width,
                     const float *from, int64_t from_row, float scale) {
  float *data = to->data + batch * to->batch + head * to->head + first * to->row;
  for (int64_t i = 0; i < rows; i++) {
    put_row(data + i * to->row, to->column, from + i * from_row, width, scale);
  }
}

static void derive_keys(backward *f, int64_t batch, int64_t k_head, int64_t k, int64_t keys) {
  const tt_attention *a = f->a;
  const int64_t group = a->q_heads / a->k_heads;
  pack_turned(f->turned_keys, K_BLOCK, row_of(&f->key, k), f->key.row, f->key.column, keys, a->width);
  pack_turned(f->turned_values, K_BLOCK, row_of(&f->value, k), f->value.row, f->value.column, keys, a->v_width);
  const plane key_rows = whole_rows(f->keys, &f->key, k, keys, a->width);
  memset(f->grad_key, 0, sizeof(float) * (size_t)(keys * f->width));
  memset(f->grad_value, 0, sizeof(float) * (size_t)(keys * f->v_width));
  for (int64_t g = 0; g < group; g++) {
    const query_head h = query_head_of(a, batch, k_head * group + g, g);
    for (int64_t i = 0; i < a->q_length; i += Q_BLOCK) {
      const int64_t rows = least(Q_BLOCK, a->q_length - i), seen = f->skips ? least(keys, i + rows - k) : keys;
      if (seen > 0) {
        derive_block(f, &h, i, rows, k, seen, &key_rows);
      }
    }
  }
  put_rows(&a->grad_key, batch, k_head, k, keys, a->width, f->grad_key, f->width, a->scale);
  put_rows(&a->grad_value, batch, k_head, k, keys, a->v_width, f->grad_value, f->v_width, 1);
}

static void attend_backward(const tt_attention *a, int64_t item, float *scratch) {
  const int64_t batch = item / a->k_heads, k_head = item % a->k_heads, group = a->q_heads / a->k_heads;
  backward f = {.a = a, .skips = a->causal};
  layout_backward(&f, a, scratch);
  f.key = plane_of(&a->key, batch, k_head);
  f.value = plane_of(&a->value, batch, k_head);
  for (int64_t g = 0; g < group; g++) {
    const query_head h = query_head_of(a, batch, k_head * group + g, g);
    const plane out = plane_of(&a->saved_out, batch, k_head * group + g);
    const bool finite = sum_deltas(a, &h.grad, &out, f.delta + g * a->q_length);
    f.skips = f.skips && finite && plane_is_finite(&h.query, a->q_length, a->width) &&
              plane_is_finite(&h.grad, a->q_length, a->v_width);
  }
  f.skips =
      f.skips && plane_is_finite(&f.key, a->k_length, a->width) && plane_is_finite(&f.value, a->k_length, a->v_width);
  for (int64_t k = 0; k < a->k_length; k += K_BLOCK) {
    derive_keys(&f, batch, k_head, k, least(K_BLOCK, a->k_length - k));
  }
  for (int64_t g = 0; g < group; g++) {
    put_rows(&a->grad_query, batch, k_head * group + g, 0, a->q_length, a->width,
             f.grad_query + g * a->q_length * f.width, f.width, a->scale);
  }
}

static size_t attend_backward_scratch(const tt_attention *a) {
  backward f;
  return layout_backward(&f, a, NULL);
}

#endif  // TORCHTPU_KERNELS_ATTENTION_SIMD_H
