// Layer normalisation of dense rows, in whatever vectors simd.h was included with.
#ifndef TORCHTPU_KERNELS_NORM_SIMD_H
#define TORCHTPU_KERNELS_NORM_SIMD_H

#include "kernels/kernels.h"
#include "kernels/simd.h"

enum {
  SUM_BLOCK = 4096,  // elements that are summed in single precision
  SUM_ROWS = 64,     // rows whose columns are
};

// The sums of x - base and, unless NULL, of its square.
TT_INLINE void sum_from(const float *x, float base, int64_t count, double *out_sum, double *out_squares) {
  *out_sum = 0;
  for (int64_t first = 0; first < count; first += SUM_BLOCK) {
    const int64_t end = count - first < SUM_BLOCK ? count : first + SUM_BLOCK;
    vec sum = splat(0), other = splat(0), squares = splat(0), other_squares = splat(0);
    int64_t j = first;
    for (; j + 2 * TT_WIDTH <= end; j += 2 * TT_WIDTH) {
      const vec a = load(x + j) - splat(base), b = load(x + j + TT_WIDTH) - splat(base);
      sum += a;
      other += b;
      squares += a * a;
      other_squares += b * b;
    }
    float rest = 0, rest_squares = 0;
    for (; j < end; j++) {
      rest += x[j] - base;
      rest_squares += (x[j] - base) * (x[j] - base);
    }
    *out_sum += (double)sum_lanes(sum + other) + (double)rest;
    if (out_squares) {
      *out_squares += (double)sum_lanes(squares + other_squares) + (double)rest_squares;
    }
  }
}

// As distances from the first element, then from about the mean: what is left of it is corrected. So the size of the
// mean costs no accuracy, and equal elements have a variance of exactly 0.
static void measure_row(const float *x, int64_t n, float *out_mean, float *out_variance) {
  double sum, squares = 0;
  sum_from(x, x[0], n, &sum, NULL);
  const float about = (float)((double)x[0] + sum / (double)n);
  sum_from(x, about, n, &sum, &squares);
  const double off = sum / (double)n, variance = squares / (double)n - off * off;
  *out_mean = (float)((double)about + off);
  *out_variance = variance < 0 ? 0 : (float)variance;  // undefined stays so
}

static void normalise_row(const tt_norm *p, int64_t row) {
  const int64_t n = p->columns;
  const float *x = p->x + row * n, *weight = p->weight, *bias = p->bias;
  float mean, variance;
  measure_row(x, n, &mean, &variance);
  const float rstd = 1 / sqrtf(variance + p->eps);
  float *y = p->y + row * n;
  int64_t j = 0;
  for (; j + TT_WIDTH <= n; j += TT_WIDTH) {
    vec v = (load(x + j) - splat(mean)) * splat(rstd);
    v = weight ? v * load(weight + j) : v;
    store(y + j, bias ? v + load(bias + j) : v);
  }
  for (; j < n; j++) {
    const float v = (x[j] - mean) * rstd * (weight ? weight[j] : 1);
    y[j] = bias ? v + bias[j] : v;
  }
  p->mean[row] = mean;
  p->rstd[row] = rstd;
}

static void normalise(const tt_norm *p, int64_t item) {
  const int64_t first = item * p->item_rows, left = p->rows - first;
  for (int64_t i = 0; i < (left < p->item_rows ? left : p->item_rows); i++) {
    normalise_row(p, first + i);
  }
}

// ---- backward ----
// The means of g and of g * xhat, g being the gradient of xhat.
static void slope_means(const tt_norm *p, int64_t row, float *out_plain, float *out_weighted) {
  const int64_t n = p->columns;
  const float *x = p->x + row * n, *dy = p->grad_out + row * n, mean = p->mean[row], rstd = p->rstd[row];
  double plain = 0, weighted = 0;
  for (int64_t first = 0; first < n; first += SUM_BLOCK) {
    const int64_t end = n - first < SUM_BLOCK ? n : first + SUM_BLOCK;
    vec sum = splat(0), product = splat(0);
    int64_t j = first;
    for (; j + TT_WIDTH <= end; j += TT_WIDTH) {
      const vec xhat = (load(x + j) - splat(mean)) * splat(rstd);
      const vec g = p->weight ? load(dy + j) * load(p->weight + j) : load(dy + j);
      sum += g;
      product += g * xhat;
    }
    float rest = 0, rest_product = 0;
    for (; j < end; j++) {
      const float g = dy[j] * (p->weight ? p->weight[j] : 1);
      rest += g;
      rest_product += g * ((x[j] - mean) * rstd);
    }
    plain += (double)sum_lanes(sum) + (double)rest;
    weighted += (double)sum_lanes(product) + (double)rest_product;
  }
  *out_plain = (float)(plain / (double)n);
  *out_weighted = (float)(weighted / (double)n);
}

static void derive_row(const tt_norm *p, int64_t row) {
  const int64_t n = p->columns;
  const float *x = p->x + row * n, *dy = p->grad_out + row * n, mean = p->mean[row], rstd = p->rstd[row];
  float a, b;
  slope_means(p, row, &a, &b);
  float *dx = p->grad_x + row * n;
  int64_t j = 0;
  for (; j + TT_WIDTH <= n; j += TT_WIDTH) {
    const vec xhat = (load(x + j) - splat(mean)) * splat(rstd);
    const vec g = p->weight ? load(dy + j) * load(p->weight + j) : load(dy + j);
    store(dx + j, (g - (splat(a) + xhat * splat(b))) * splat(rstd));
  }
  for (; j < n; j++) {
    const float g = dy[j] * (p->weight ? p->weight[j] : 1);
    dx[j] = (g - (a + (x[j] - mean) * rstd * b)) * rstd;
  }
}

// Adds a row to the sums over rows: of dy * xhat, and of dy.
static void add_row(const tt_norm *p, int64_t row, float *scaled, float *plain) {
  const int64_t n = p->columns;
  const float *x = p->x + row * n, *dy = p->grad_out + row * n, mean = p->mean[row], rstd = p->rstd[row];
  int64_t j = 0;
  for (; j + TT_WIDTH <= n; j += TT_WIDTH) {
    const vec v = load(dy + j);
    store(scaled + j, load(scaled + j) + v * ((load(x + j) - splat(mean)) * splat(rstd)));
    store(plain + j, load(plain + j) + v);
  }
  for (; j < n; j++) {
    scaled[j] += dy[j] * ((x[j] - mean) * rstd);
    plain[j] += dy[j];
  }
}

static size_t derive_scratch(const tt_norm *p) { return p->partial ? (size_t)(2 * p->columns) : 0; }

static void derive_norm(const tt_norm *p, int64_t item, float *scratch) {
  const int64_t first = item * p->item_rows, n = p->columns;
  const int64_t end = p->rows - first < p->item_rows ? p->rows : first + p->item_rows;
  float *total = p->partial ? p->partial + item * 2 * n : NULL;
  if (total) {
    memset(total, 0, sizeof *total * (size_t)(2 * n));
  }
  for (int64_t block = first; block < end; block += SUM_ROWS) {
    const int64_t block_end = end - block < SUM_ROWS ? end : block + SUM_ROWS;
    if (total) {
      memset(scratch, 0, sizeof *scratch * (size_t)(2 * n));
    }
    for (int64_t row = block; row < block_end; row++) {
      if (p->grad_x) {
        derive_row(p, row);
      }
      if (total) {
        add_row(p, row, scratch, scratch + n);
      }
    }
    for (int64_t j = 0; total && j < 2 * n; j++) {
      total[j] += scratch[j];
    }
  }
}

#endif  // TORCHTPU_KERNELS_NORM_SIMD_H
