// Layer normalisation by every set of kernels that this processor runs, against plain loops in double.
#include "base/test.h"
#include "kernels/kernels.h"

typedef struct problem {
  tt_norm p;
  float *x, *dy, *weight, *bias, *y, *mean, *rstd, *dx, *dw, *db;
} problem;

static uint64_t seed = 1;
static float *floats(int64_t count) {  // exactly so many, so that a sanitizer sees what reads past them
  float *x = malloc(sizeof *x * (size_t)count);
  if (!x) {
    abort();
  }
  for (int64_t i = 0; i < count; i++) {
    seed = seed * 6364136223846793005u + 1442695040888963407u;
    x[i] = (float)((double)(int64_t)(seed >> 33) / 1073741824.0 - 1);
  }
  return x;
}

static problem make(int64_t rows, int64_t columns) {
  const int64_t count = rows * columns;
  problem q = {.x = floats(count),
               .dy = floats(count),
               .weight = floats(columns),
               .bias = floats(columns),
               .y = floats(count),
               .mean = floats(rows),
               .rstd = floats(rows),
               .dx = floats(count),
               .dw = floats(columns),
               .db = floats(columns)};
  for (int64_t i = 0; i < count; i++) {
    q.x[i] = 3 * q.x[i] + 2;
  }
  q.p = (tt_norm){.rows = rows, .columns = columns, .x = q.x, .eps = 1e-5F, .mean = q.mean, .rstd = q.rstd, .y = q.y};
  return q;
}

static void release(problem *q) {
  float *all[] = {q->x, q->dy, q->weight, q->bias, q->y, q->mean, q->rstd, q->dx, q->dw, q->db};
  for (size_t i = 0; i < sizeof all / sizeof *all; i++) {
    free(all[i]);
  }
}

static bool near_to(double is, double wanted, double scale) {
  return fabs(is - wanted) <= 2e-6 * (fabs(wanted) + scale);
}

static void check_forward(const problem *q) {
  const int64_t n = q->p.columns;
  for (int64_t i = 0; i < q->p.rows; i++) {
    double sum = 0, squares = 0;
    for (int64_t j = 0; j < n; j++) {
      sum += (double)q->x[i * n + j];
    }
    const double mean = sum / (double)n;
    for (int64_t j = 0; j < n; j++) {
      squares += ((double)q->x[i * n + j] - mean) * ((double)q->x[i * n + j] - mean);
    }
    const double rstd = 1 / sqrt(squares / (double)n + (double)q->p.eps);
    CHECK(near_to((double)q->mean[i], mean, 1) && near_to((double)q->rstd[i], rstd, rstd));
    for (int64_t j = 0; j < n; j++) {
      const double v = ((double)q->x[i * n + j] - mean) * rstd * (q->p.weight ? (double)q->weight[j] : 1);
      CHECK(near_to((double)q->y[i * n + j], v + (q->p.bias ? (double)q->bias[j] : 0), 5 * (rstd + 1)));
    }
  }
}

// From the statistics that the forward pass left.
static void check_backward(const problem *q) {
  const int64_t n = q->p.columns;
  double *dw = calloc((size_t)n, sizeof *dw), *db = calloc((size_t)n, sizeof *db);
  REQUIRE(dw && db);
  for (int64_t i = 0; i < q->p.rows; i++) {
    const double mean = (double)q->mean[i], rstd = (double)q->rstd[i];
    double a = 0, b = 0;
    for (int64_t j = 0; j < n; j++) {
      const double xhat = ((double)q->x[i * n + j] - mean) * rstd, dy = (double)q->dy[i * n + j];
      const double g = dy * (q->p.weight ? (double)q->weight[j] : 1);
      a += g / (double)n;
      b += g * xhat / (double)n;
      dw[j] += dy * xhat;
      db[j] += dy;
    }
    for (int64_t j = 0; q->p.grad_x && j < n; j++) {
      const double xhat = ((double)q->x[i * n + j] - mean) * rstd;
      const double g = (double)q->dy[i * n + j] * (q->p.weight ? (double)q->weight[j] : 1);
      CHECK(near_to((double)q->dx[i * n + j], (g - (a + xhat * b)) * rstd, 5 * (rstd + 1)));
    }
  }
  const double scale = sqrt((double)q->p.rows) + 1;
  for (int64_t j = 0; j < n; j++) {
    CHECK(!q->p.grad_weight || near_to((double)q->dw[j], dw[j], scale));
    CHECK(!q->p.grad_bias || near_to((double)q->db[j], db[j], scale));
  }
  free(dw);
  free(db);
}

static bool run_at_once(void *context, void (*task)(void *data), void *data) {
  (void)context;
  task(data);
  return true;
}
static const tt_team team = {run_at_once, NULL, 4};

static const int64_t sizes[][2] = {{1, 1}, {3, 2}, {5, 17}, {2, 64}, {130, 33}, {200, 192}, {2, 9001}, {9001, 3}};

static void test_sizes(void) {
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    for (size_t s = 0; s < sizeof sizes / sizeof *sizes; s++) {
      for (int32_t form = 0; form < 4; form++) {
        problem q = make(sizes[s][0], sizes[s][1]);
        q.p.weight = form & 1 ? q.weight : NULL;
        q.p.bias = form & 2 ? q.bias : NULL;
        REQUIRE(tt_normalise(tt_kernels_at(k), form & 1 ? &team : NULL, &q.p));
        check_forward(&q);
        q.p.grad_out = q.dy;
        q.p.grad_x = form != 3 ? q.dx : NULL;
        q.p.grad_weight = form & 1 ? q.dw : NULL;
        q.p.grad_bias = form & 2 ? q.db : NULL;
        REQUIRE(tt_norm_backward(tt_kernels_at(k), form & 1 ? &team : NULL, &q.p));
        check_backward(&q);
        release(&q);
      }
    }
  }
}

static void test_threads_change_nothing(void) {
  problem q = make(1000, 100);
  q.p.weight = q.weight;
  q.p.grad_out = q.dy;
  q.p.grad_weight = q.dw;
  REQUIRE(tt_normalise(tt_kernels_best(), NULL, &q.p));
  REQUIRE(tt_norm_backward(tt_kernels_best(), NULL, &q.p));
  float alone[100];
  memcpy(alone, q.dw, sizeof alone);
  REQUIRE(tt_norm_backward(tt_kernels_best(), &team, &q.p));
  CHECK(!memcmp(alone, q.dw, sizeof alone));
  release(&q);
}

// A row of undefined values leaves the others as they are.
static void test_undefined_rows(void) {
  problem q = make(3, 20);
  q.x[20] = NAN;
  q.x[45] = INFINITY;
  REQUIRE(tt_normalise(tt_kernels_best(), NULL, &q.p));
  CHECK(isfinite(q.y[0]) && isfinite(q.y[19]));
  CHECK(isnan(q.y[20]) && isnan(q.y[39]) && isnan(q.y[40]));
  release(&q);
}

// Equal elements are all mean, and what surrounds them doesn't matter; a large mean costs the deviation nothing.
static void test_large_means(void) {
  static const float means[] = {-0.1F, 1234.567F, 1e8F, 1e30F};
  static const int64_t columns[] = {1, 7, 768, 5001};
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    for (int32_t i = 0; i < 16; i++) {
      const int64_t n = columns[i / 4];
      problem q = make(1, n);
      for (int64_t j = 0; j < n; j++) {
        q.x[j] = means[i % 4];
      }
      REQUIRE(tt_normalise(tt_kernels_at(k), NULL, &q.p));
      CHECK(q.mean[0] == means[i % 4] && q.y[0] == 0 && q.y[n - 1] == 0);
      CHECK_NEAR(q.rstd[0], 1 / sqrt(1e-5), 1e-3);
      for (int64_t j = 0; j < n; j++) {  // exact: multiples of the spacing of such numbers
        q.x[j] = 1e6F + (float)(j % 3) * 0.25F;
      }
      q.x[0] = n > 1000 ? -1e6F : q.x[0];  // far from all others
      REQUIRE(tt_normalise(tt_kernels_at(k), NULL, &q.p));
      double sum = 0, squares = 0;
      for (int64_t j = 0; j < n; j++) {
        sum += (double)q.x[j] / (double)n;
      }
      for (int64_t j = 0; j < n; j++) {
        squares += ((double)q.x[j] - sum) * ((double)q.x[j] - sum) / (double)n;
      }
      CHECK_NEAR(q.mean[0] / sum, 1, 1e-7);
      CHECK_NEAR(q.rstd[0] * sqrt(squares + 1e-5), 1, 1e-5);  // squares of 2^41 and 2^17 in one float sum
      release(&q);
    }
  }
}

TEST_MAIN(TEST(test_large_means), TEST(test_sizes), TEST(test_threads_change_nothing), TEST(test_undefined_rows))
