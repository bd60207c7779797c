// Every set of kernels that this processor runs against plain loops in double.
#include "kernels/kernels.h"

#include "base/test.h"
#include "base/thread.h"

// ---- random problems ----
static uint64_t seed;
static int64_t pick(int64_t low, int64_t high) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return low + (int64_t)((seed >> 33) % (uint64_t)(high - low + 1));
}
static float uniform(void) { return (float)pick(-1000, 1000) / 500.0F; }

// Everything that a problem allocates.
static void *taken[64];
static int32_t taken_count;
static float *floats(int64_t count) {
  float *x = malloc(sizeof *x * (size_t)(count > 0 ? count : 1));
  if (!x || taken_count == 64) {
    abort();
  }
  taken[taken_count++] = x;
  for (int64_t i = 0; i < count; i++) {
    x[i] = uniform();
  }
  return x;
}
static void free_all(void) {
  while (taken_count) {
    free(taken[--taken_count]);
  }
}

// Strides of a random layout of [batch, heads, length, width]: any order of the dims, perhaps with gaps. Exactly as
// many floats as the layout covers, so that a sanitizer sees what reads past them.
static tt_rows_out strided(int64_t batch, int64_t heads, int64_t length, int64_t width) {
  const int64_t sizes[] = {batch, heads, length, width};
  int64_t strides[4], next = 1, last = 1;
  int32_t order[] = {3, 2, 1, 0};
  for (int32_t i = 3; i > 0 && pick(0, 2) == 0; i--) {
    const int32_t other = (int32_t)pick(0, i), kept = order[i];
    order[i] = order[other];
    order[other] = kept;
  }
  for (int32_t i = 0; i < 4; i++) {
    strides[order[i]] = next;
    last += next * (sizes[order[i]] - 1);
    next = next * sizes[order[i]] + (pick(0, 3) == 0 ? pick(1, 3) : 0);
  }
  return (tt_rows_out){floats(last), strides[0], strides[1], strides[2], strides[3]};
}
static tt_rows input(int64_t batch, int64_t heads, int64_t length, int64_t width) {
  const tt_rows_out x = strided(batch, heads, length, width);
  return (tt_rows){x.data, x.batch, x.head, x.row, x.column};
}
static tt_rows reading(const tt_rows_out *x) { return (tt_rows){x->data, x->batch, x->head, x->row, x->column}; }
static double get(const tt_rows *x, int64_t b, int64_t h, int64_t i, int64_t j) {
  return x->data[b * x->batch + h * x->head + i * x->row + j * x->column];
}
static void set(const tt_rows *x, int64_t b, int64_t h, int64_t i, int64_t j, float value) {
  ((float *)x->data)[b * x->batch + h * x->head + i * x->row + j * x->column] = value;
}

static tt_attention random_attention(int64_t most_length, bool with_bias) {
  tt_attention a = {.batch = pick(1, 3), .k_heads = pick(1, 3), .causal = pick(0, 1), .scale = uniform()};
  a.q_heads = a.k_heads * pick(1, 3);
  a.q_length = pick(0, 3) ? pick(1, most_length) : pick(1, 4);
  a.k_length = pick(0, 3) ? pick(1, most_length) : pick(1, 4);
  a.width = pick(0, 2) ? pick(1, 70) : 16 * pick(1, 4);
  a.v_width = pick(0, 2) ? a.width : pick(1, 70);
  a.query = input(a.batch, a.q_heads, a.q_length, a.width);
  a.key = input(a.batch, a.k_heads, a.k_length, a.width);
  a.value = input(a.batch, a.k_heads, a.k_length, a.v_width);
  a.out = strided(a.batch, a.q_heads, a.q_length, a.v_width);
  a.lse = floats(a.batch * a.q_heads * a.q_length);
  a.grad_out = input(a.batch, a.q_heads, a.q_length, a.v_width);
  a.saved_out = reading(&a.out);
  a.saved_lse = a.lse;
  a.grad_query = strided(a.batch, a.q_heads, a.q_length, a.width);
  a.grad_key = strided(a.batch, a.k_heads, a.k_length, a.width);
  a.grad_value = strided(a.batch, a.k_heads, a.k_length, a.v_width);
  if (with_bias) {
    const bool over_rows = pick(0, 3) == 0, over_columns = pick(0, 3) == 0;
    a.bias = input(a.batch, 1, over_rows ? 1 : a.q_length, over_columns ? 1 : a.k_length);
    a.bias.head = 0;
    a.bias.row = over_rows ? 0 : a.bias.row;
    a.bias.column = over_columns ? 0 : a.bias.column;
  }
  return a;
}

// ---- the reference: weights of one row, and what follows from them ----
static double row_weights(const tt_attention *a, int64_t b, int64_t h, int64_t i, double *weights) {
  const int64_t kh = h / (a->q_heads / a->k_heads);
  double top = -INFINITY, total = 0;
  for (int64_t j = 0; j < a->k_length; j++) {
    double s = 0;
    for (int64_t d = 0; d < a->width; d++) {
      s += get(&a->query, b, h, i, d) * get(&a->key, b, kh, j, d);
    }
    s = s * (double)a->scale + (a->bias.data ? get(&a->bias, b, h, i, j) : 0);
    weights[j] = a->causal && j > i ? -INFINITY : s;
    top = weights[j] > top ? weights[j] : top;
  }
  const double base = top == -INFINITY ? 0 : top;
  for (int64_t j = 0; j < a->k_length; j++) {
    weights[j] = exp(weights[j] - base);
    total += weights[j];
  }
  for (int64_t j = 0; j < a->k_length; j++) {
    // An infinite score makes the others' weights zero, and its own undefined.
    weights[j] = total == 0 || (top == INFINITY && !isnan(weights[j])) ? 0 : weights[j] / total;
  }
  return total == 0 ? 0 : top == INFINITY ? INFINITY : base + log(total);
}

static double scaled_error(double got, double want) {
  return isnan(got) && isnan(want) ? 0 : got == want ? 0 : fabs(got - want) / (1 + fabs(want));
}

static double forward_error(const tt_attention *a) {
  double *weights = malloc(sizeof *weights * (size_t)a->k_length), worst = 0;
  const tt_rows out = reading(&a->out);
  for (int64_t b = 0; b < a->batch; b++) {
    for (int64_t h = 0; h < a->q_heads; h++) {
      for (int64_t i = 0; i < a->q_length; i++) {
        const double lse = row_weights(a, b, h, i, weights);
        worst = fmax(worst, scaled_error((double)a->lse[(b * a->q_heads + h) * a->q_length + i], lse));
        for (int64_t d = 0; d < a->v_width; d++) {
          double sum = 0;
          for (int64_t j = 0; j < a->k_length; j++) {
            sum += weights[j] * get(&a->value, b, h / (a->q_heads / a->k_heads), j, d);
          }
          const double error = scaled_error(get(&out, b, h, i, d), sum);
          worst = isnan(error) ? INFINITY : fmax(worst, error);
        }
      }
    }
  }
  free(weights);
  return worst;
}

typedef struct gradients {
  double *query, *key, *value;  // dense
} gradients;

static void backward_row(const tt_attention *a, int64_t b, int64_t h, int64_t i, double *weights, gradients *g) {
  const int64_t kh = h / (a->q_heads / a->k_heads), width = a->width;
  row_weights(a, b, h, i, weights);
  for (int64_t j = i + 1; a->causal && j < a->k_length; j++) {
    weights[j] = 0;  // whatever the row holds
  }
  double delta = 0;
  for (int64_t d = 0; d < a->v_width; d++) {
    double out = 0;
    for (int64_t j = 0; j < a->k_length; j++) {
      out += weights[j] * get(&a->value, b, kh, j, d);
    }
    delta += out * get(&a->grad_out, b, h, i, d);
  }
  for (int64_t j = 0; j < a->k_length; j++) {
    double slope = -delta;
    const int64_t key_row = (b * a->k_heads + kh) * a->k_length + j;
    for (int64_t d = 0; d < a->v_width; d++) {
      slope += get(&a->grad_out, b, h, i, d) * get(&a->value, b, kh, j, d);
      g->value[key_row * a->v_width + d] += weights[j] * get(&a->grad_out, b, h, i, d);
    }
    slope *= weights[j] * (double)a->scale;
    for (int64_t d = 0; d < width; d++) {
      g->query[((b * a->q_heads + h) * a->q_length + i) * width + d] += slope * get(&a->key, b, kh, j, d);
      g->key[key_row * width + d] += slope * get(&a->query, b, h, i, d);
    }
  }
}

static double compare(const tt_rows_out *got, const double *want, int64_t batch, int64_t heads, int64_t length,
                      int64_t width) {
  const tt_rows x = reading(got);
  double worst = 0, scale = 1;
  const int64_t count = batch * heads * length * width;
  for (int64_t i = 0; i < count; i++) {
    scale = isfinite(want[i]) ? fmax(scale, fabs(want[i])) : scale;
  }
  for (int64_t i = 0; i < count; i++) {
    const double value = get(&x, i / width / length / heads, i / width / length % heads, i / width % length, i % width);
    const double error = value == want[i] ? 0 : fabs(value - want[i]) / scale;
    worst = isnan(error) ? (isnan(value) && isnan(want[i]) ? worst : INFINITY) : fmax(worst, error);
  }
  return worst;
}

static double backward_error(const tt_attention *a) {
  const int64_t queries = a->batch * a->q_heads * a->q_length, keys = a->batch * a->k_heads * a->k_length;
  gradients g = {calloc((size_t)(queries * a->width), sizeof(double)),
                 calloc((size_t)(keys * a->width), sizeof(double)),
                 calloc((size_t)(keys * a->v_width), sizeof(double))};
  double *weights = malloc(sizeof *weights * (size_t)a->k_length);
  for (int64_t row = 0; row < queries; row++) {
    backward_row(a, row / a->q_length / a->q_heads, row / a->q_length % a->q_heads, row % a->q_length, weights, &g);
  }
  double worst = compare(&a->grad_query, g.query, a->batch, a->q_heads, a->q_length, a->width);
  worst = fmax(worst, compare(&a->grad_key, g.key, a->batch, a->k_heads, a->k_length, a->width));
  worst = fmax(worst, compare(&a->grad_value, g.value, a->batch, a->k_heads, a->k_length, a->v_width));
  free(g.query);
  free(g.key);
  free(g.value);
  free(weights);
  return worst;
}

// ---- teams ----
// A thread for each task, some of which come late.
typedef struct pool {
  tt_thread *threads[4096];
  atomic_int count;
} pool;
typedef struct late_task {
  void (*task)(void *data);
  void *data;
} late_task;
static void run_late(void *argument) {
  late_task *late = argument;
  if ((uintptr_t)late % 3 == 0) {
    tt_sleep_ns(200 * 1000);
  }
  late->task(late->data);
  free(late);
}
static bool schedule_thread(void *context, void (*task)(void *data), void *data) {
  pool *p = context;
  late_task *late = malloc(sizeof *late);
  if (!late || atomic_load(&p->count) >= 4096) {
    abort();
  }
  *late = (late_task){task, data};
  CHECK_OK(tt_thread_create("helper", 0, run_late, late, &p->threads[atomic_fetch_add(&p->count, 1)]));
  return true;
}
static void join_all(pool *p) {
  for (int32_t i = 0; i < atomic_load(&p->count); i++) {
    tt_thread_join(p->threads[i]);
  }
  atomic_store(&p->count, 0);
}
static pool the_pool;
static const tt_team threads = {schedule_thread, &the_pool, 3};

// ---- tests ----
static void check_attention(const tt_kernels *kernels, tt_attention *a, const tt_team *team) {
  REQUIRE(tt_attend(kernels, team, a));
  const double forward = forward_error(a);
  REQUIRE(tt_attend_backward(kernels, team, a));
  const double backward = backward_error(a);
  if (!CHECK(forward < 1e-4) || !CHECK(backward < 2e-4)) {
    fprintf(stderr, "%s: batch %d heads %d/%d lengths %d %d widths %d %d causal %d bias %d: %g %g\n", kernels->name,
            (int)a->batch, (int)a->q_heads, (int)a->k_heads, (int)a->q_length, (int)a->k_length, (int)a->width,
            (int)a->v_width, a->causal, a->bias.data != NULL, forward, backward);
  }
}

static void test_attention(void) {
  seed = 1;
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    for (int32_t i = 0; i < 40; i++) {
      tt_attention a = random_attention(i < 37 ? 40 : 200, i % 3 == 0);
      check_attention(tt_kernels_at(k), &a, i % 4 ? NULL : &threads);
      free_all();
    }
  }
  join_all(&the_pool);
}

static void test_nothing_to_attend_to(void) {
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    seed = 5;
    tt_attention a = random_attention(40, false);
    a.causal = false;
    a.bias = input(a.batch, a.q_heads, a.q_length, a.k_length);
    for (int64_t j = 0; j < a.k_length; j++) {
      for (int64_t i = 0; i < a.q_length; i += 2) {
        set(&a.bias, 0, 0, i, j, -INFINITY);
      }
    }
    check_attention(tt_kernels_at(k), &a, NULL);
    const tt_rows out = reading(&a.out);
    CHECK(get(&out, 0, 0, 0, 0) == 0 && a.lse[0] == 0);
    free_all();
  }
}

// Where the reference has a NaN the kernels have one, and nowhere else.
static void test_not_finite(void) {
  static const float values[] = {NAN, INFINITY, -INFINITY};
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    for (int32_t i = 0; i < 36; i++) {
      seed = (uint64_t)i + 7;
      tt_attention a = random_attention(i % 2 ? 30 : 150, i % 5 == 0);
      const tt_rows *operands[] = {&a.query, &a.key, &a.value, &a.grad_out};
      const tt_rows *x = operands[i % 4];
      const bool is_query = i % 4 == 0 || i % 4 == 3;
      set(x, a.batch - 1, 0, pick(0, (is_query ? a.q_length : a.k_length) - 1), 0, values[i % 3]);
      REQUIRE(tt_attend(tt_kernels_at(k), NULL, &a));
      CHECK(forward_error(&a) < 1e-4);
      REQUIRE(tt_attend_backward(tt_kernels_at(k), NULL, &a));
      if (!CHECK(backward_error(&a) < 2e-4)) {
        fprintf(stderr, "%s, %d: %g\n", tt_kernels_at(k)->name, i, backward_error(&a));
      }
      free_all();
    }
  }
}

static double product_error(const tt_product *p) {
  double worst = 0;
  for (int64_t i = 0; i < p->batch * p->rows * p->columns; i++) {
    const int64_t g = i / p->columns / p->rows, row = i / p->columns % p->rows, column = i % p->columns;
    double sum = 0;
    for (int64_t k = 0; k < p->depth; k++) {
      sum += (double)p->a[g * p->a_batch + row * p->a_row + k * p->a_column] *
             (double)p->b[g * p->b_batch + k * p->b_row + column * p->b_column];
    }
    worst = fmax(worst, scaled_error((double)p->c[i], sum));
  }
  return worst;
}

static tt_product random_product(void) {
  tt_product p = {.batch = pick(1, 5),
                  .rows = pick(1, 60),
                  .depth = pick(0, 9) ? pick(1, 80) : pick(0, 600),
                  .columns = pick(1, 90)};
  const tt_rows a = input(p.batch, 1, p.rows, p.depth > 0 ? p.depth : 1);
  const tt_rows b = input(p.batch, 1, p.depth > 0 ? p.depth : 1, p.columns);
  p.a = a.data;
  p.a_batch = a.batch;
  p.a_row = a.row;
  p.a_column = a.column;
  p.b = b.data;
  p.b_batch = b.batch;
  p.b_row = b.row;
  p.b_column = b.column;
  p.c = floats(p.batch * p.rows * p.columns);
  return p;
}

static void test_product(void) {
  seed = 3;
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    for (int32_t i = 0; i < 200; i++) {
      tt_product p = random_product();
      REQUIRE(tt_multiply(tt_kernels_at(k), i % 4 ? NULL : &threads, &p));
      if (!CHECK(product_error(&p) < 1e-4)) {
        fprintf(stderr, "%s: batch %d, %dx%dx%d, strides %d %d, %d %d: %g\n", tt_kernels_at(k)->name, (int)p.batch,
                (int)p.rows, (int)p.depth, (int)p.columns, (int)p.a_row, (int)p.a_column, (int)p.b_row, (int)p.b_column,
                product_error(&p));
      }
      free_all();
    }
  }
  join_all(&the_pool);
}

// The same bits whoever does it.
static void test_threads_change_nothing(void) {
  seed = 11;
  for (int32_t i = 0; i < 6; i++) {
    tt_attention a = random_attention(300, i == 0);
    const int64_t count = a.batch * a.q_heads * a.q_length;
    REQUIRE(tt_attend(tt_kernels_best(), NULL, &a));
    float *lse = floats(count), first = a.out.data[0];
    memcpy(lse, a.lse, sizeof *lse * (size_t)count);
    REQUIRE(tt_attend(tt_kernels_best(), &threads, &a));
    CHECK(!memcmp(lse, a.lse, sizeof *lse * (size_t)count) && first == a.out.data[0]);
    free_all();
  }
  // 194 rows end in a piece of two for many threads.
  tt_product p = {.batch = 2, .rows = 194, .depth = 301, .columns = 40, .a_row = 301, .a_column = 1, .b_row = 1};
  p.a = floats((int64_t)p.rows * 301);
  p.b = floats((int64_t)p.columns * 301);
  p.b_column = 301;
  p.c = floats((int64_t)p.batch * p.rows * p.columns);
  float *alone = p.c;
  REQUIRE(tt_multiply(tt_kernels_best(), NULL, &p));
  p.c = floats((int64_t)p.batch * p.rows * p.columns);
  REQUIRE(tt_multiply(tt_kernels_best(), &threads, &p));
  CHECK(!memcmp(alone, p.c, sizeof *alone * (size_t)(p.batch * p.rows * p.columns)));
  free_all();
  join_all(&the_pool);
}

// ---- the team alone ----
static atomic_int times_done[1000];
static void count_piece(void *context, int64_t i, float *scratch) {
  scratch[0] = 1;
  atomic_fetch_add((atomic_int *)context + i, 1);
}
static bool refuse(void *context, void (*task)(void *data), void *data) {
  (void)context;
  (void)task;
  (void)data;
  return false;
}
static bool run_at_once(void *context, void (*task)(void *data), void *data) {
  (void)context;
  task(data);
  return true;
}
// Tasks that come when the run is over.
static late_task waiting[64];
static int32_t waiting_count;
static bool keep_waiting(void *context, void (*task)(void *data), void *data) {
  (void)context;
  waiting[waiting_count++] = (late_task){task, data};
  return true;
}

static void test_team_does_each_piece_once(void) {
  const tt_team teams[] = {
      {NULL, NULL, 1}, {refuse, NULL, 4}, {run_at_once, NULL, 4}, {keep_waiting, NULL, 16}, threads};
  for (size_t t = 0; t < sizeof teams / sizeof *teams; t++) {
    memset(times_done, 0, sizeof times_done);
    CHECK(tt_team_run(&teams[t], 1000, INT64_MAX, 16, count_piece, times_done));
    for (int32_t i = 0; i < 1000; i++) {
      CHECK_INT(times_done[i], 1);
    }
  }
  CHECK_INT(waiting_count, 15);
  for (int32_t i = 0; i < waiting_count; i++) {
    waiting[i].task(waiting[i].data);
  }
  join_all(&the_pool);
  CHECK(!tt_team_run(NULL, 1, 0, SIZE_MAX / 4, count_piece, times_done));
  CHECK(!tt_team_run(&(tt_team){run_at_once, NULL, 2}, 2, INT64_MAX, SIZE_MAX / 4, count_piece, times_done));
}

TEST_MAIN(TEST(test_attention), TEST(test_nothing_to_attend_to), TEST(test_not_finite), TEST(test_product),
          TEST(test_threads_change_nothing), TEST(test_team_does_each_piece_once))
