// Which kernels this processor runs, and how problems are cut.
#include "kernels/sets.h"

const tt_kernels *tt_kernels_at(int32_t i) {
  const tt_kernels *sets[4] = {NULL};
  int32_t count = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("fma")) {
    sets[count++] = &tt_kernels_avx512;
  }
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) {
    sets[count++] = &tt_kernels_avx2;
  }
#endif
  sets[count++] = &tt_kernels_generic;
  return i >= 0 && i < count ? sets[i] : NULL;
}

const tt_kernels *tt_kernels_best(void) { return tt_kernels_at(0); }

// ---- pieces ----
enum {
  MOST_ROWS = 384,  // of a piece
  FEWEST_ROWS = 64,
  PIECES = 3,  // for each thread, so that one that comes late still finds some
};

// As many rows a piece as leave enough of them for all threads.
static int64_t rows_of_piece(int64_t rows, int64_t others, int32_t threads) {
  int64_t size = rows < MOST_ROWS ? rows : MOST_ROWS;
  while (threads > 1 && size > FEWEST_ROWS && others * ((rows + size - 1) / size) < (int64_t)threads * PIECES) {
    size = (size + 1) / 2;
  }
  return (size + 31) / 32 * 32 < rows ? (size + 31) / 32 * 32 : rows;
}

int64_t tt_attention_items(tt_attention *a, int32_t threads) {
  const int64_t heads = a->batch * a->q_heads;
  a->item_rows = rows_of_piece(a->q_length, heads, threads);
  return heads * ((a->q_length + a->item_rows - 1) / a->item_rows);
}

int64_t tt_attention_backward_items(const tt_attention *a) { return a->batch * a->k_heads; }

int64_t tt_product_items(tt_product *p, int32_t threads) {
  p->item_rows = rows_of_piece(p->rows, p->batch, threads);
  return p->batch * ((p->rows + p->item_rows - 1) / p->item_rows);
}

// ---- running ----
static int64_t nanoseconds(double operations) { return operations < 1e15 ? (int64_t)(operations / 40) : INT64_MAX; }

typedef struct attention_run {
  const tt_attention *a;
  void (*piece)(const tt_attention *a, int64_t item, float *scratch);
} attention_run;
static void attention_piece(void *context, int64_t i, float *scratch) {
  const attention_run *run = context;
  run->piece(run->a, i, scratch);
}

// Multiplications of one product over all scores.
static double attention_work(const tt_attention *a) {
  return (double)a->batch * (double)a->q_heads * (double)a->q_length * (double)a->k_length *
         ((double)a->width + (double)a->v_width + 32);
}

bool tt_attend(const tt_kernels *kernels, const tt_team *team, tt_attention *a) {
  const int64_t items = tt_attention_items(a, team ? team->threads : 1);
  attention_run run = {a, kernels->attend};
  return tt_team_run(team, items, nanoseconds(attention_work(a)), kernels->attend_scratch(a), attention_piece, &run);
}

bool tt_attend_backward(const tt_kernels *kernels, const tt_team *team, const tt_attention *a) {
  attention_run run = {a, kernels->attend_backward};
  return tt_team_run(team, tt_attention_backward_items(a), nanoseconds(2.5 * attention_work(a)),
                     kernels->attend_backward_scratch(a), attention_piece, &run);
}

typedef struct product_run {
  const tt_product *p;
  void (*piece)(const tt_product *p, int64_t item, float *scratch);
} product_run;
static void product_piece(void *context, int64_t i, float *scratch) {
  const product_run *run = context;
  run->piece(run->p, i, scratch);
}

bool tt_multiply(const tt_kernels *kernels, const tt_team *team, tt_product *p) {
  const int64_t items = tt_product_items(p, team ? team->threads : 1);
  product_run run = {p, kernels->multiply};
  const double work = (double)p->batch * (double)p->rows * (double)p->columns * ((double)p->depth + 8);
  return tt_team_run(team, items, nanoseconds(work), kernels->multiply_scratch(p), product_piece, &run);
}
