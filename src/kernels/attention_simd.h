// Attention over blocks of queries and keys, in whatever vectors simd.h was included with.
#ifndef TORCHTPU_KERNELS_ATTENTION_SIMD_H
#define TORCHTPU_KERNELS_ATTENTION_SIMD_H

#include "kernels/kernels.h"
#include "kernels/simd.h"

enum {
  Q_BLOCK = TT_WIDTH == 8 ? 30 : 24,  // whole tiles
  K_BLOCK = 128,
  QUERIES = 32,  // side by side
  FEW_ROWS = 3,  // so few would leave most of a vector empty
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
// Queries side by side in vectors, so that nothing is summed across a vector, and neither keys nor values are copied.
// Everything but the operands lies [something][QUERIES].
typedef struct forward {
  const tt_attention *a;
  plane query, key, value, bias;
  float *queries, *scores, *biases, *out, *top, *total;
} forward;

static size_t layout_forward(forward *f, const tt_attention *a, float *scratch) {
  const int64_t width = padded(a->width), v_width = padded(a->v_width);
  float *next = scratch;
  f->queries = take(&next, width * QUERIES);
  f->scores = take(&next, QUERIES * K_BLOCK);
  f->biases = take(&next, a->bias.data ? QUERIES * K_BLOCK : 0);
  f->out = take(&next, v_width * QUERIES);
  f->top = take(&next, QUERIES);
  f->total = take(&next, QUERIES);
  return (size_t)(next - scratch);
}

// What one vector of queries knows of a block of keys.
typedef struct column_view {
  float *scores, *top, *total, *out;
  const float *bias;  // NULL: none
  int64_t keys, seen_by_all, v_width;
  float scale;
  bool is_first;
} column_view;

// Scales and masks; the greatest score of each query.
TT_INLINE vec scale_column(const column_view *c) {
  vec most = splat(-INFINITY);
  for (int64_t j = 0; j < c->keys; j++) {
    float *at = c->scores + j * QUERIES;
    vec x = load(at) * splat(c->scale);
    x = c->bias ? x + load(c->bias + j * QUERIES) : x;
    if (j >= c->seen_by_all) {  // by the later queries alone
      x = choose(lanes > isplat((int32_t)least(j - c->seen_by_all, TT_WIDTH)), x, splat(-INFINITY));
    }
    store(at, x);
    most = greater(x, most);
  }
  return most;
}

// Turns scores into weights; the greatest score, the sum and the output follow.
static void soften_column(const column_view *c) {
  const vec most = scale_column(c), before = c->is_first ? splat(-INFINITY) : load(c->top);
  const vec now = greater(most, before);
  const vec base = choose(now == splat(-INFINITY), splat(0), now);  // all weights are zero then
  vec sum = splat(0);
  for (int64_t j = 0; j < c->keys; j++) {
    float *at = c->scores + j * QUERIES;
    const vec p = exponential(load(at) - base);
    store(at, p);
    sum += p;
  }
  store(c->top, now);
  if (!c->is_first) {
    const vec shrink = exponential(before - base);
    sum += load(c->total) * shrink;
    for (int64_t d = 0; d < c->v_width; d++) {
      store(c->out + d * QUERIES, load(c->out + d * QUERIES) * shrink);
    }
  }
  store(c->total, sum);
}

static void attend_block(forward *f, int64_t first, int64_t rows, int64_t first_key, int64_t keys) {
  const tt_attention *a = f->a;
  const matrices scores = {.a = row_of(&f->key, first_key),
                           .a_row = f->key.row,
                           .a_column = f->key.column,
                           .b = f->queries,
                           .b_row = QUERIES,
                           .c = f->scores,
                           .c_row = QUERIES,
                           .depth = a->width};
  multiply(&scores, keys, padded(rows));
  if (f->bias.data) {
    pack_turned(f->biases, QUERIES, row_of(&f->bias, first) + first_key * f->bias.column, f->bias.row, f->bias.column,
                rows, keys);
  }
  for (int64_t i = 0; i < rows; i += TT_WIDTH) {
    const int64_t seen = first + i + 1 - first_key;
    const column_view column = {.scores = f->scores + i,
                                .top = f->top + i,
                                .total = f->total + i,
                                .out = f->out + i,
                                .bias = f->bias.data ? f->biases + i : NULL,
                                .keys = keys,
                                .seen_by_all = !a->causal ? keys : seen,
                                .v_width = a->v_width,
                                .scale = a->scale,
                                .is_first = first_key == 0};
    soften_column(&column);
  }
  const matrices weighted = {.a = row_of(&f->value, first_key),
                             .a_row = f->value.column,
                             .a_column = f->value.row,
                             .b = f->scores,
                             .b_row = QUERIES,
                             .c = f->out,
                             .c_row = QUERIES,
                             .depth = keys,
                             .add = first_key > 0};
  multiply(&weighted, a->v_width, padded(rows));
}

static float log_of_sum(float top, float total) {
  return total == 0 ? 0 : top == INFINITY ? INFINITY : top + logf(total);
}

static void finish_block(forward *f, int64_t batch, int64_t head, int64_t first, int64_t rows) {
  const tt_attention *a = f->a;
  float *lse = a->lse + (batch * a->q_heads + head) * a->q_length + first;
  float *to = a->out.data + batch * a->out.batch + head * a->out.head + first * a->out.row;
  for (int64_t i = 0; i < rows; i++) {
    lse[i] = log_of_sum(f->top[i], f->total[i]);
  }
  for (int64_t i = 0; i < rows; i += TT_WIDTH) {
    const vec total = load(f->total + i);
    const vec inverse = choose(total == splat(0), splat(0), splat(1) / total);
    for (int64_t d = 0; d < a->v_width; d++) {
      store(f->out + d * QUERIES + i, load(f->out + d * QUERIES + i) * inverse);
    }
  }
  if (a->out.column == 1) {
    turn(to, a->out.row, f->out, QUERIES, 1, a->v_width, rows);
    return;
  }
  for (int64_t d = 0; d < a->v_width; d++) {
    for (int64_t i = 0; i < rows; i++) {
      to[i * a->out.row + d * a->out.column] = f->out[d * QUERIES + i];
    }
  }
}

// ---- forward, a few queries: a row of scores each ----
// For so few queries turning them would leave most of a vector empty. Both passes go by this, so that they round alike.
static bool has_few_rows(const tt_attention *a) { return a->q_length <= FEW_ROWS && a->key.column == 1; }

// One row of scores, the keys as they lie. `copy`: room for a query.
static void score_row(const tt_attention *a, const plane *queries, const plane *all_keys, int64_t i, int64_t first_key,
                      int64_t keys, float *scores, float *copy) {
  const float *query = row_of(queries, i);
  if (queries->column != 1) {
    pack_rows(copy, a->width, query, 0, queries->column, 1, a->width);
    query = copy;
  }
  for (int64_t j = 0; j < keys; j++) {
    scores[j] = dot(query, row_of(all_keys, first_key + j), a->width);
  }
  for (int64_t j = keys; j < padded(keys); j++) {
    scores[j] = 0;
  }
}

typedef struct few {
  const tt_attention *a;
  plane query, key, value, bias;
  int64_t v_width;
  float *values, *scores, *out, *query_row;
  float top[FEW_ROWS], total[FEW_ROWS];
} few;

static size_t layout_few(few *f, const tt_attention *a, float *scratch) {
  float *next = scratch;
  f->v_width = padded(a->v_width);
  f->values = take(&next, f->v_width * K_BLOCK);
  f->scores = take(&next, FEW_ROWS * K_BLOCK);
  f->out = take(&next, FEW_ROWS * f->v_width);
  f->query_row = take(&next, a->width);
  return (size_t)(next - scratch);
}

static void soften_row(const row_view *row, float *top, float *total, float *out, int64_t out_columns, bool is_first) {
  vec most = splat(-INFINITY), sum = splat(0);
  for (int64_t j = 0; j < row->columns; j += TT_WIDTH) {
    const vec x = masked(row, j, score_at(row, j), -INFINITY);
    store(row->scores + j, x);
    most = greater(x, most);
  }
  const float before = is_first ? -INFINITY : *top;
  const float found = max_lanes(most), now = found > before ? found : before;
  const float base = now == -INFINITY ? 0 : now;
  for (int64_t j = 0; j < row->columns; j += TT_WIDTH) {
    const vec p = exponential(load(row->scores + j) - splat(base));
    store(row->scores + j, p);
    sum += p;
  }
  *top = now;
  const float shrink = is_first ? 0 : exponential(splat(before - base))[0];
  *total = sum_lanes(sum) + (is_first ? 0 : *total * shrink);
  for (int64_t j = 0; !is_first && j < out_columns; j += TT_WIDTH) {
    store(out + j, load(out + j) * splat(shrink));
  }
}

static void weigh_row(few *f, int64_t i, int64_t first_key, int64_t keys) {
  const tt_attention *a = f->a;
  float *scores = f->scores + i * K_BLOCK;
  score_row(a, &f->query, &f->key, i, first_key, keys, scores, f->query_row);
  const row_view row = {
      .scores = scores,
      .columns = padded(keys),
      .limit = a->causal ? least(keys, i + 1 - first_key) : keys,
      .bias = f->bias.data ? row_of(&f->bias, i) + first_key * f->bias.column : NULL,
      .bias_column = f->bias.column,
      .scale = a->scale,
  };
  soften_row(&row, &f->top[i], &f->total[i], f->out + i * f->v_width, f->v_width, first_key == 0);
}

static void attend_few(few *f, int64_t batch, int64_t head, int64_t end_key) {
  const tt_attention *a = f->a;
  for (int64_t k = 0; k < end_key; k += K_BLOCK) {
    const int64_t keys = least(K_BLOCK, end_key - k);
    const plane values = whole_rows(f->values, &f->value, k, keys, a->v_width);
    for (int64_t i = 0; i < a->q_length; i++) {
      weigh_row(f, i, k, keys);
    }
    const matrices weighted = {.a = f->scores,
                               .a_row = K_BLOCK,
                               .a_column = 1,
                               .b = values.data,
                               .b_row = values.row,
                               .c = f->out,
                               .c_row = f->v_width,
                               .depth = keys,
                               .add = k > 0};
    multiply(&weighted, a->q_length, f->v_width);
  }
  float *lse = a->lse + (batch * a->q_heads + head) * a->q_length;
  float *to = a->out.data + batch * a->out.batch + head * a->out.head;
  for (int64_t i = 0; i < a->q_length; i++) {
    const float inverse = f->total[i] == 0 ? 0 : 1 / f->total[i];
    put_row(to + i * a->out.row, a->out.column, f->out + i * f->v_width, a->v_width, inverse);
    lse[i] = log_of_sum(f->top[i], f->total[i]);
  }
}

// ---- forward, a piece ----
static void attend(const tt_attention *a, int64_t item, float *scratch) {
  const int64_t pieces = (a->q_length + a->item_rows - 1) / a->item_rows, index = item / pieces;
  const int64_t batch = index / a->q_heads, head = index % a->q_heads, k_head = head / (a->q_heads / a->k_heads);
  const int64_t first = item % pieces * a->item_rows, end = first + least(a->item_rows, a->q_length - first);
  forward f = {.a = a,
               .query = plane_of(&a->query, batch, head),
               .key = plane_of(&a->key, batch, k_head),
               .value = plane_of(&a->value, batch, k_head),
               .bias = plane_of(&a->bias, batch, head)};
  layout_forward(&f, a, scratch);
  // A weight of zero doesn't hide an infinite or undefined value: then every key counts.
  const bool skips = a->causal && plane_is_finite(&f.value, a->k_length, a->v_width);
  if (has_few_rows(a)) {
    few g = {.a = a, .query = f.query, .key = f.key, .value = f.value, .bias = f.bias};
    layout_few(&g, a, scratch);
    attend_few(&g, batch, head, skips ? least(a->k_length, end) : a->k_length);
    return;
  }
  for (int64_t i = first; i < end; i += QUERIES) {
    const int64_t rows = least(QUERIES, end - i), end_key = skips ? least(a->k_length, i + rows) : a->k_length;
    pack_turned(f.queries, QUERIES, row_of(&f.query, i), f.query.row, f.query.column, rows, a->width);
    for (int64_t k = 0; k < end_key; k += K_BLOCK) {
      attend_block(&f, i, rows, k, least(K_BLOCK, end_key - k));
    }
    finish_block(&f, batch, head, i, rows);
  }
}

static size_t attend_scratch(const tt_attention *a) {
  forward f;
  few g;
  const size_t many = layout_forward(&f, a, NULL), some = layout_few(&g, a, NULL);
  return many > some ? many : some;
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
    store(row->scores + j, score_at(row, j));
  }
  // Rounded as in the forward pass, whose sum this is divided by: not one operation with the subtraction.
  __asm__ volatile("" : : : "memory");
  for (int64_t j = 0; j < row->columns; j += TT_WIDTH) {
    const vec p = masked(row, j, exponential(load(row->scores + j) - splat(lse)), 0);
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
  if (has_few_rows(a)) {
    for (int64_t i = 0; i < rows; i++) {
      score_row(a, &h->query, &f->key, first + i, first_key, keys, f->weights + i * K_BLOCK, f->queries);
    }
  } else {
    multiply(&m, rows, padded(keys));
  }
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
