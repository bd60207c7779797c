// Speed of the kernels on one thread, against plain loops: `kernels_bench [name of a set]`.
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/thread.h"
#include "kernels/kernels.h"

static float *random_floats(int64_t count) {
  float *x = malloc(sizeof *x * (size_t)count);
  if (!x) {
    abort();
  }
  for (int64_t i = 0; i < count; i++) {
    x[i] = (float)rand() / (float)RAND_MAX - 0.5F;
  }
  return x;
}

// The shortest of some runs, in seconds.
static double shortest(void (*run)(void *context), void *context) {
  double best = 1e9, total = 0;
  run(context);
  for (int32_t i = 0; i < 200 && total < 0.3; i++) {
    const int64_t start = tt_now_ns();
    run(context);
    const double seconds = (double)(tt_now_ns() - start) * 1e-9;
    best = seconds < best ? seconds : best;
    total += seconds;
  }
  return best;
}

static const tt_kernels *kernels;

static void report(const char *what, const char *shape, double flops, double seconds) {
  printf("%-9s %-22s %-28s %10.1f us %8.1f GFLOP/s\n", kernels ? kernels->name : "plain", what, shape, seconds * 1e6,
         flops / seconds * 1e-9);
}

// ---- products ----
static void run_product(void *context) {
  if (!tt_multiply(kernels, NULL, context)) {
    abort();
  }
}
static void run_plain_product(void *context) {
  const tt_product *p = context;
  for (int64_t g = 0; g < p->batch; g++) {
    for (int64_t i = 0; i < p->rows; i++) {
      for (int64_t j = 0; j < p->columns; j++) {
        float sum = 0;
        for (int64_t k = 0; k < p->depth; k++) {
          sum += p->a[g * p->a_batch + i * p->a_row + k * p->a_column] *
                 p->b[g * p->b_batch + k * p->b_row + j * p->b_column];
        }
        p->c[(g * p->rows + i) * p->columns + j] = sum;
      }
    }
  }
}

static void bench_product(int64_t batch, int64_t rows, int64_t depth, int64_t columns, bool turned) {
  float *a = random_floats(batch * rows * depth), *b = random_floats(batch * depth * columns);
  float *c = random_floats(batch * rows * columns);
  tt_product p = {.batch = batch,
                  .rows = rows,
                  .depth = depth,
                  .columns = columns,
                  .a = a,
                  .b = b,
                  .c = c,
                  .a_batch = rows * depth,
                  .a_row = depth,
                  .a_column = 1,
                  .b_batch = depth * columns,
                  .b_row = turned ? 1 : columns,
                  .b_column = turned ? depth : 1};
  char shape[64];
  snprintf(shape, sizeof shape, "[%d,%d,%d]x[%d,%d]%s", (int)batch, (int)rows, (int)depth, (int)depth, (int)columns,
           turned ? "^T" : "");
  report("product", shape, 2.0 * (double)(batch * rows * depth * columns),
         shortest(kernels ? run_product : run_plain_product, &p));
  free(a);
  free(b);
  free(c);
}

// ---- attention ----
static void run_forward(void *context) {
  if (!tt_attend(kernels, NULL, context)) {
    abort();
  }
}
static void run_backward(void *context) {
  if (!tt_attend_backward(kernels, NULL, context)) {
    abort();
  }
}

static tt_rows rows_of(const float *data, int64_t heads, int64_t length, int64_t width) {
  return (tt_rows){data, heads * length * width, length * width, width, 1};
}
static tt_rows_out rows_to(float *data, int64_t heads, int64_t length, int64_t width) {
  return (tt_rows_out){data, heads * length * width, length * width, width, 1};
}

static void bench_attention(int64_t batch, int64_t heads, int64_t length, int64_t width, bool causal) {
  const int64_t count = batch * heads * length * width;
  float *memory[8], *lse = random_floats(batch * heads * length);
  for (int32_t i = 0; i < 8; i++) {
    memory[i] = random_floats(count);
  }
  tt_attention a = {.batch = batch,
                    .q_heads = heads,
                    .k_heads = heads,
                    .q_length = length,
                    .k_length = length,
                    .width = width,
                    .v_width = width,
                    .causal = causal,
                    .scale = 1 / sqrtf((float)width),
                    .query = rows_of(memory[0], heads, length, width),
                    .key = rows_of(memory[1], heads, length, width),
                    .value = rows_of(memory[2], heads, length, width),
                    .out = rows_to(memory[3], heads, length, width),
                    .lse = lse,
                    .grad_out = rows_of(memory[4], heads, length, width),
                    .saved_out = rows_of(memory[3], heads, length, width),
                    .saved_lse = lse,
                    .grad_query = rows_to(memory[5], heads, length, width),
                    .grad_key = rows_to(memory[6], heads, length, width),
                    .grad_value = rows_to(memory[7], heads, length, width)};
  char shape[64];
  snprintf(shape, sizeof shape, "[%d,%d,%d,%d]%s", (int)batch, (int)heads, (int)length, (int)width,
           causal ? " causal" : "");
  const double flops = 2.0 * (double)count * (double)length * (causal ? 0.5 : 1);
  report("attention", shape, 2 * flops, shortest(run_forward, &a));
  report("attention backward", shape, 5 * flops, shortest(run_backward, &a));
  for (int32_t i = 0; i < 8; i++) {
    free(memory[i]);
  }
  free(lse);
}

int main(int argc, char **argv) {
  for (int32_t i = 0; (kernels = tt_kernels_at(i)); i++) {
    if (argc > 1 && strcmp(argv[1], kernels->name) != 0) {
      continue;
    }
    for (int32_t turned = 0; turned < 2; turned++) {
      bench_product(96, 128, 32, 128, turned);
      bench_product(96, 128, 128, 32, turned);
      bench_product(4, 512, 512, 512, turned);
    }
    for (int32_t causal = 0; causal < 2; causal++) {
      bench_attention(16, 6, 128, 32, causal);
      bench_attention(4, 4, 32, 16, causal);
      bench_attention(1, 8, 1024, 64, causal);
    }
  }
  kernels = NULL;
  bench_product(96, 128, 32, 128, false);
  bench_product(96, 128, 128, 32, true);
  return 0;
}
