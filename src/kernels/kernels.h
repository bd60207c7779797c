// Kernels that XLA:CPU calls on the host: attention and its gradients, and batched products, in float32. XLA:CPU runs a
// batched product on one thread, and attention as a dozen loops over scores that lie in memory; these use all threads,
// and keep a block of scores in the cache.
//
// Operands are strided, so that a view needs no copy. Nothing here looks at what it is given: the handlers do
// (handlers.c), once a call.
#ifndef TORCHTPU_KERNELS_KERNELS_H
#define TORCHTPU_KERNELS_KERNELS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

// ---- problems ----
// Strides in elements.
typedef struct tt_rows {
  const float *data;
  int64_t batch, head, row, column;
} tt_rows;
typedef struct tt_rows_out {
  float *data;
  int64_t batch, head, row, column;
} tt_rows_out;

// Query head h attends to key head h / (q_heads / k_heads). Causal: row i sees the keys up to i. All sizes above 0.
typedef struct tt_attention {
  int64_t batch, q_heads, k_heads, q_length, k_length, width, v_width;
  bool causal;
  float scale;
  tt_rows query, key, value, bias;  // bias.data NULL: none
  // forward
  tt_rows_out out;
  float *lse;  // [batch, q_heads, q_length]: the logarithm of the sum of e^score; 0 where there is nothing to attend to
  // backward
  tt_rows grad_out, saved_out;
  const float *saved_lse;
  tt_rows_out grad_query, grad_key, grad_value;
  int64_t item_rows;  // forward: queries of one piece of work; set by tt_attention_items()
} tt_attention;

// c[i] = a[i] b[i] for i below `batch`; c is dense. All sizes above 0 but depth.
typedef struct tt_product {
  int64_t batch, rows, depth, columns;
  const float *a, *b;
  float *c;
  int64_t a_batch, a_row, a_column, b_batch, b_row, b_column;
  int64_t item_rows;  // of one piece of work; set by tt_product_items()
} tt_product;

// Layer normalisation of dense x[rows][columns]. All sizes above 0.
typedef struct tt_norm {
  int64_t rows, columns;
  const float *x, *weight, *bias;  // NULL: 1, 0
  float eps;
  float *mean, *rstd;  // [rows]; backward reads them
  float *y;            // forward
  // backward; NULL: not wanted
  const float *grad_out;
  float *grad_x, *grad_weight, *grad_bias;
  // set by tt_norm_items(), and by tt_norm_backward()
  int64_t item_rows;
  float *partial;  // [items][2][columns]: sums over a piece's rows; NULL: not wanted
} tt_norm;

// ---- kernels for one set of instructions ----
// Each does one of the problem's pieces; pieces are independent. `scratch` holds as many floats as the size function
// says, aligned to 64 bytes.
typedef struct tt_kernels {
  const char *name;
  void (*attend)(const tt_attention *a, int64_t item, float *scratch);
  size_t (*attend_scratch)(const tt_attention *a);
  void (*attend_backward)(const tt_attention *a, int64_t item, float *scratch);
  size_t (*attend_backward_scratch)(const tt_attention *a);
  void (*multiply)(const tt_product *p, int64_t item, float *scratch);
  size_t (*multiply_scratch)(const tt_product *p);
  void (*normalise)(const tt_norm *p, int64_t item);
  void (*derive_norm)(const tt_norm *p, int64_t item, float *scratch);
  size_t (*derive_norm_scratch)(const tt_norm *p);
} tt_kernels;

// The best that this processor runs; the i-th that it runs, best first, NULL behind the last.
const tt_kernels *tt_kernels_best(void);
const tt_kernels *tt_kernels_at(int32_t i);

// ---- threads ----
// Where work can be given away. `schedule` runs `task(data)` once on any thread, at any time or before it returns;
// false: it won't.
typedef struct tt_team {
  bool (*schedule)(void *context, void (*task)(void *data), void *data);
  void *context;
  int32_t threads;  // 1: none but the caller's
} tt_team;

// Into how many pieces a problem is cut for so many threads. Results don't depend on it.
int64_t tt_attention_items(tt_attention *a, int32_t threads);
int64_t tt_attention_backward_items(const tt_attention *a);
int64_t tt_product_items(tt_product *p, int32_t threads);

// Does all of a problem, on the caller's thread and those of the team that come in time. False: no memory.
bool tt_attend(const tt_kernels *kernels, const tt_team *team, tt_attention *a);
bool tt_attend_backward(const tt_kernels *kernels, const tt_team *team, const tt_attention *a);
bool tt_multiply(const tt_kernels *kernels, const tt_team *team, tt_product *p);
bool tt_normalise(const tt_kernels *kernels, const tt_team *team, tt_norm *p);
bool tt_norm_backward(const tt_kernels *kernels, const tt_team *team, tt_norm *p);

// Runs `piece(context, i, scratch)` for every i below `count`. Helpers that come late find nothing to do; the caller
// waits only for pieces that a helper has begun. `work`: an estimate in nanoseconds, below which the team isn't asked.
bool tt_team_run(const tt_team *team, int64_t count, int64_t work, size_t scratch,
                 void (*piece)(void *context, int64_t i, float *scratch), void *context);

#endif  // TORCHTPU_KERNELS_KERNELS_H
