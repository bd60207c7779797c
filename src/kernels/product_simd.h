// Batched products, in whatever vectors simd.h was included with.
#ifndef TORCHTPU_KERNELS_PRODUCT_SIMD_H
#define TORCHTPU_KERNELS_PRODUCT_SIMD_H

#include "kernels/kernels.h"
#include "kernels/simd.h"

enum { DEPTH_BLOCK = 256, FEW = 3 };

static size_t multiply_scratch(const tt_product *p) {
  return (size_t)(DEPTH_BLOCK * TILE_COLUMNS + p->item_rows * TILE_COLUMNS);
}

// b[depth][columns] where a tile can read it: in place, or packed.
static const float *panel(const tt_product *p, const float *b, int64_t depth, int64_t columns, float *packed,
                          int64_t *out_row) {
  if (p->b_column == 1 && columns % TT_WIDTH == 0) {
    *out_row = p->b_row;
    return b;
  }
  *out_row = padded(columns);
  if (p->b_row == 1 && p->b_column != 1) {
    pack_turned(packed, *out_row, b, p->b_column, 1, columns, depth);
  } else {
    pack_rows(packed, *out_row, b, p->b_row, p->b_column, depth, columns);
  }
  return packed;
}

static void multiply_panel(const tt_product *p, const float *a, const float *b, float *c, int64_t rows, int64_t columns,
                           float *scratch) {
  float *packed = scratch, *edge = scratch + DEPTH_BLOCK * TILE_COLUMNS;
  const bool is_edge = columns % TT_WIDTH != 0;  // whole vectors would be stored over what is beside it
  for (int64_t k = 0; k < p->depth || k == 0; k += DEPTH_BLOCK) {
    const int64_t depth = p->depth - k < DEPTH_BLOCK ? p->depth - k : DEPTH_BLOCK;
    matrices m = {.a = a + k * p->a_column,
                  .a_row = p->a_row,
                  .a_column = p->a_column,
                  .c = is_edge ? edge : c,
                  .c_row = is_edge ? TILE_COLUMNS : p->columns,
                  .depth = depth,
                  .add = k > 0};
    m.b = panel(p, b + k * p->b_row, depth, columns, packed, &m.b_row);
    multiply(&m, rows, padded(columns));
  }
  for (int64_t i = 0; is_edge && i < rows; i++) {
    memcpy(c + i * p->columns, edge + i * TILE_COLUMNS, sizeof *c * (size_t)columns);
  }
}

static void multiply_item(const tt_product *p, int64_t item, float *scratch) {
  const int64_t pieces = (p->rows + p->item_rows - 1) / p->item_rows, batch = item / pieces;
  const int64_t first = item % pieces * p->item_rows;
  const int64_t rows = p->rows - first < p->item_rows ? p->rows - first : p->item_rows;
  const float *a = p->a + batch * p->a_batch + first * p->a_row, *b = p->b + batch * p->b_batch;
  float *c = p->c + (batch * p->rows + first) * p->columns;
  if ((p->rows <= FEW || p->columns <= FEW) && p->a_column == 1 && p->b_row == 1) {
    for (int64_t j = 0; j < p->columns; j++) {
      for (int64_t i = 0; i < rows; i++) {
        c[i * p->columns + j] = dot(a + i * p->a_row, b + j * p->b_column, p->depth);
      }
    }
    return;
  }
  for (int64_t j = 0; j < p->columns; j += TILE_COLUMNS) {
    const int64_t columns = p->columns - j < TILE_COLUMNS ? p->columns - j : TILE_COLUMNS;
    multiply_panel(p, a, b + j * p->b_column, c + j, rows, columns, scratch);
  }
}

#endif  // TORCHTPU_KERNELS_PRODUCT_SIMD_H
