// Layer normalisation: how it is cut. The cuts depend on the sizes alone, and so do the sums over rows.
#include <stdlib.h>

#include "kernels/kernels.h"

enum {
  PIECE = 1 << 14,    // elements of a forward piece
  FEWEST_ROWS = 64,   // of a backward piece
  MOST_PIECES = 128,  // backward: each has sums of its own
};

typedef struct norm_run {
  const tt_norm *p;
  const tt_kernels *kernels;
} norm_run;

static void forward_piece(void *context, int64_t i, float *scratch) {
  (void)scratch;
  const norm_run *run = context;
  run->kernels->normalise(run->p, i);
}

static void backward_piece(void *context, int64_t i, float *scratch) {
  const norm_run *run = context;
  run->kernels->derive_norm(run->p, i, scratch);
}

static int64_t work_of(const tt_norm *p, double nanoseconds) {
  const double work = (double)p->rows * (double)p->columns * nanoseconds;
  return work < 1e15 ? (int64_t)work : INT64_MAX;
}

bool tt_normalise(const tt_kernels *kernels, const tt_team *team, tt_norm *p) {
  p->item_rows = PIECE / p->columns > 1 ? PIECE / p->columns : 1;
  norm_run run = {p, kernels};
  return tt_team_run(team, (p->rows + p->item_rows - 1) / p->item_rows, work_of(p, 0.3), 1, forward_piece, &run);
}

// Adds up what the pieces summed.
static void gather(const tt_norm *p, int64_t items) {
  for (int side = 0; side < 2; side++) {
    float *out = side ? p->grad_bias : p->grad_weight;
    for (int64_t j = 0; out && j < p->columns; j++) {
      out[j] = p->partial[side * p->columns + j];
    }
    for (int64_t i = 1; out && i < items; i++) {
      const float *from = p->partial + (2 * i + side) * p->columns;
      for (int64_t j = 0; j < p->columns; j++) {
        out[j] += from[j];
      }
    }
  }
}

bool tt_norm_backward(const tt_kernels *kernels, const tt_team *team, tt_norm *p) {
  const int64_t even = (p->rows + MOST_PIECES - 1) / MOST_PIECES;
  p->item_rows = (even + FEWEST_ROWS - 1) / FEWEST_ROWS * FEWEST_ROWS;
  const int64_t items = (p->rows + p->item_rows - 1) / p->item_rows;
  p->partial = NULL;
  if (p->grad_weight || p->grad_bias) {
    p->partial = calloc((size_t)items * 2, sizeof *p->partial * (size_t)p->columns);
    if (!p->partial) {
      return false;
    }
  }
  norm_run run = {p, kernels};
  const size_t scratch = kernels->derive_norm_scratch(p) + 1;
  const bool done = tt_team_run(team, items, work_of(p, 0.7), scratch, backward_piece, &run);
  if (done && p->partial) {
    gather(p, items);
  }
  free(p->partial);
  p->partial = NULL;
  return done;
}
