// Embedding tables: rows by index, bags of rows, and their gradients.
#include <math.h>

#include "aten/dims.h"

static bool check_indices(tt_rule *r, const char *name) {
  const tt_operand *indices = tt_operand_of(r, name);
  if (indices && indices->dtype != TT_S64 && indices->dtype != TT_S32) {
    tt_fail(
        r, TT_ERR_RUNTIME,
        "Expected tensor for argument #1 'indices' to have one of the following scalar types: Long, Int; but got %s "
        "instead (while checking arguments for %s)",
        tt_type_name(indices->dtype), tt_rule_name(r));
  }
  return indices && !tt_failed(r);
}

static void build_embedding(tt_rule *r) {
  tt_hlo weight = tt_in(r, "weight"), indices = tt_in(r, "indices");
  if (!weight || !indices || !check_indices(r, "indices")) {
    return;
  }
  if (weight->rank != 2) {
    tt_fail(r, TT_ERR_RUNTIME, "'weight' must be 2-D");
    return;
  }
  tt_hlo rows = tt_take_slices(weight, 0, v_flat(tt_positions(r, indices, weight->dims[0], false, "index")));
  int64_t dims[V_DIMS];
  memcpy(dims, indices->dims, sizeof(*dims) * (size_t)indices->rank);
  dims[indices->rank] = weight->dims[1];
  tt_ret(r, 0, tt_hlo_reshape(rows, dims, indices->rank + 1));
}

// Positions with those of the padding row moved outside.
static tt_hlo without_padding(tt_rule *r, tt_hlo positions, int64_t rows) {
  const int64_t padding = tt_int(r, "padding_idx", -1);
  if (!positions || padding < 0 || padding >= rows) {
    return positions;
  }
  return v_if(v_eqc(positions, (double)padding), v_const(positions, -1), positions);
}

// How often each of `size` positions occurs.
static tt_hlo occurrences(tt_hlo positions, int64_t size) {
  if (!positions) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(positions);
  tt_hlo one = tt_hlo_const(b, TT_S32, 1, positions->dims, positions->rank);
  return tt_put_flat(TT_SCATTER_ADD, tt_hlo_const(b, TT_S32, 0, &size, 1), positions, one);
}

static tt_hlo per_row(tt_hlo row_values, tt_hlo rows) {
  return rows ? v_along(row_values, rows->dims, rows->rank, 0) : NULL;
}

// Gradient rows [M, D] summed into [num_weights, D] at positions [M].
static tt_hlo sum_rows(tt_rule *r, tt_hlo rows, tt_hlo positions, int64_t num_weights) {
  if (!rows || !positions) {
    return NULL;
  }
  if (tt_bool(r, "scale_grad_by_freq", false)) {
    tt_hlo count = tt_cast(tt_take_flat(occurrences(positions, num_weights), positions), rows->dtype);
    rows = v_div(rows, per_row(count, rows));
  }
  if (!rows) {
    return NULL;
  }
  tt_hlo zeros = tt_hlo_const(tt_b(r), rows->dtype, 0, (int64_t[]){num_weights, rows->dims[1]}, 2);
  return tt_put_slices(TT_SCATTER_ADD, zeros, 0, positions, rows);
}

static void build_embedding_backward(tt_rule *r) {
  const tt_operand *operand = tt_operand_of(r, "grad_output");
  const int64_t num_weights = tt_int(r, "num_weights", 0);
  if (!operand || !check_indices(r, "indices")) {
    return;
  }
  if (operand->ndim < 1) {
    tt_fail(r, TT_ERR_INDEX, "Dimension specified as -1 but tensor has no dimensions");
    return;
  }
  tt_hlo positions = v_flat(tt_positions(r, tt_in(r, "indices"), num_weights, false, "index"));
  const int64_t dims[] = {tt_hlo_numel(positions), operand->sizes[operand->ndim - 1]};
  tt_hlo rows = tt_hlo_reshape(tt_in_as(r, "grad_output", tt_sum_type(operand->dtype)), dims, 2);
  tt_hlo grad = sum_rows(r, rows, without_padding(r, positions, num_weights), num_weights);
  tt_ret(r, 0, tt_cast(grad, operand->dtype));
}

// ---- embedding_bag ----
enum { MODE_SUM, MODE_MEAN, MODE_MAX };

// The bag of each of `count` indices: how many bags begin at or before it, less one.
static tt_hlo bag_of_each(tt_hlo offsets, int64_t bags, int64_t count) {
  offsets = tt_hlo_slice_dim(offsets, 0, 0, bags, 1);
  tt_hlo begins = occurrences(tt_cast(offsets, v_position_type(count)), count);
  return v_addc(tt_running(TT_SUM, begins, 0), -1);
}

typedef struct bags {
  int64_t rows, columns, indices, bags;  // of the weight; how many of each
  tt_hlo positions;                      // [M], -1 for padding
  tt_hlo bag;                            // s32 [M], -1 for padding
  tt_hlo size;                           // s32 [B], without padding
} bags;

static bool read_bags(tt_rule *r, bags *b) {
  tt_hlo weight = tt_in(r, "weight"), indices = tt_in(r, "indices"), offsets = tt_in(r, "offsets");
  if (!weight || !indices || !offsets || !check_indices(r, "indices") || !check_indices(r, "offsets")) {
    return false;
  }
  if (weight->rank != 2 || indices->rank != 1 || offsets->rank != 1) {
    tt_fail(r, TT_ERR_RUNTIME, "expected a 2-D weight and 1-D indices and offsets");
    return false;
  }
  b->rows = weight->dims[0];
  b->columns = weight->dims[1];
  b->indices = indices->dims[0];
  b->bags = offsets->dims[0] - (tt_bool(r, "include_last_offset", false) ? 1 : 0);
  if (b->bags < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "include_last_offset: numBags should be at least 1");
    return false;
  }
  tt_hlo at = tt_positions(r, indices, b->rows, false, "index");
  b->positions = without_padding(r, at, b->rows);
  b->bag = bag_of_each(offsets, b->bags, b->indices);
  if (!b->positions || !b->bag) {
    return false;
  }
  b->bag = v_if(v_ltc(b->positions, 0), v_const(b->bag, -1), b->bag);
  b->size = occurrences(b->bag, b->bags);
  return true;
}

// The greatest row of each bag, column by column, and the index that it came from; 0 for an empty bag.
static tt_hlo bag_max(tt_rule *r, const bags *b, tt_hlo rows, tt_hlo *index) {
  const int64_t dims[] = {b->bags, b->columns};
  tt_hlo low = v_fill(tt_hlo_min_value(tt_b(r), rows->dtype), dims, 2);
  tt_hlo max = tt_put_slices(TT_SCATTER_MAX, low, 0, b->bag, rows);
  if (!max) {
    return NULL;
  }
  tt_hlo hit = v_or(v_eq(rows, tt_take_slices(max, 0, b->bag)), v_isnan(rows));
  tt_hlo at = v_iota(rows, TT_S32, 0), none = v_const(at, (double)b->indices);
  tt_hlo first = tt_hlo_const(tt_b(r), TT_S32, (double)b->indices, dims, 2);
  first = tt_put_slices(TT_SCATTER_MIN, first, 0, b->bag, v_if(hit, at, none));
  tt_hlo empty = v_along(v_eqc(b->size, 0), dims, 2, 0);
  *index = tt_take_flat(tt_cast(tt_in(r, "indices"), TT_S64), first);
  *index = *index ? v_if(empty, v_const(*index, 0), *index) : NULL;
  return v_if(empty, v_const(max, 0), max);
}

static void build_embedding_bag(tt_rule *r) {
  bags b;
  if (!read_bags(r, &b)) {
    return;
  }
  const int64_t mode = tt_int(r, "mode", MODE_SUM), dims[] = {b.bags, b.columns};
  const tt_dtype dtype = tt_operand_of(r, "weight")->dtype, compute = tt_opmath(dtype);
  const tt_dtype index_type = tt_operand_of(r, "indices")->dtype;
  tt_hlo rows = tt_cast(tt_take_slices(tt_in(r, "weight"), 0, b.positions), compute);
  if (!rows) {
    return;
  }
  if (tt_operand_of(r, "per_sample_weights")) {
    if (mode != MODE_SUM) {
      tt_fail(r, TT_ERR_RUNTIME, "per_sample_weights only supported with mode='sum'");
      return;
    }
    rows = v_mul(rows, per_row(tt_in_as(r, "per_sample_weights", compute), rows));
  }
  const int64_t none = 0;
  tt_hlo result, index = tt_hlo_const(tt_b(r), index_type, 0, &none, 1);
  if (mode == MODE_MAX) {
    result = bag_max(r, &b, rows, &index);
  } else {
    result = tt_put_slices(TT_SCATTER_ADD, tt_hlo_const(tt_b(r), compute, 0, dims, 2), 0, b.bag, rows);
    if (mode == MODE_MEAN && b.size) {
      result = v_div(result, per_row(tt_cast(v_max(b.size, v_const(b.size, 1)), compute), result));
    }
  }
  tt_ret(r, 0, tt_cast(result, dtype));
  // As CUDA (and Meta) returns them, whatever the mode: the gradient needs them.
  tt_ret(r, 1, tt_cast(bag_of_each(tt_in(r, "offsets"), b.bags, b.indices), index_type));
  tt_hlo size = tt_cast(b.size, index_type);
  tt_ret(r, 2, size ? v_pad0(size, 0, 0, tt_operand_of(r, "offsets")->sizes[0] - b.bags, 0) : NULL);
  tt_ret(r, 3, tt_cast(index, index_type));
}

// The gradient of the weight. maximum_indices [B, D] are empty but for mode max.
static void build_embedding_bag_backward(tt_rule *r) {
  const tt_operand *operand = tt_operand_of(r, "grad");
  const int64_t mode = tt_int(r, "mode", MODE_SUM), num_weights = tt_int(r, "num_weights", 0);
  if (!operand || !check_indices(r, "indices")) {
    return;
  }
  if (operand->ndim != 2) {
    tt_fail(r, TT_ERR_RUNTIME, "grad must be 2-D");
    return;
  }
  if (tt_bool(r, "sparse", false)) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "sparse gradients are not supported on this device");
    return;
  }
  const tt_dtype compute = tt_sum_type(operand->dtype);
  tt_hlo grad = tt_in_as(r, "grad", compute), size = tt_in_as(r, "bag_size", TT_S32);
  tt_hlo indices = tt_in(r, "indices"), bag = tt_in_as(r, "offset2bag", TT_S32);
  if (!grad || !indices || !size || !bag) {
    return;
  }
  if (indices->rank != 1 || bag->rank != 1) {
    tt_fail(r, TT_ERR_RUNTIME, "indices and offset2bag must be 1-D");
    return;
  }
  size = tt_hlo_slice_dim(size, 0, 0, operand->sizes[0], 1);
  tt_hlo result;
  if (mode == MODE_MAX) {
    const int64_t dims[] = {num_weights, operand->sizes[1]};
    tt_hlo zeros = tt_hlo_const(tt_b(r), compute, 0, dims, 2);
    tt_hlo at = tt_cast(tt_in(r, "maximum_indices"), v_position_type(num_weights));
    at = at ? v_if(per_row(v_eqc(size, 0), at), v_const(at, -1), at) : NULL;
    tt_hlo flat = tt_put_flat(TT_SCATTER_ADD, v_flat(zeros), tt_flat_positions(zeros, 0, at), grad);
    result = tt_hlo_reshape(flat, dims, 2);
  } else {
    if (bag->dims[0] != indices->dims[0]) {
      bag = bag_of_each(tt_in(r, "offsets"), operand->sizes[0], indices->dims[0]);
    }
    tt_hlo rows = tt_take_slices(grad, 0, bag);
    if (mode == MODE_MEAN && rows) {
      rows = v_div(rows, per_row(tt_cast(tt_take_flat(size, bag), compute), rows));
    }
    if (tt_operand_of(r, "per_sample_weights")) {
      rows = v_mul(rows, per_row(tt_in_as(r, "per_sample_weights", compute), rows));
    }
    tt_hlo at = tt_positions(r, indices, num_weights, false, "index");
    result = sum_rows(r, rows, without_padding(r, at, num_weights), num_weights);
  }
  tt_ret(r, 0, tt_cast(result, operand->dtype));
}

static void build_per_sample_weights_backward(tt_rule *r) {
  tt_hlo grad = tt_in(r, "grad"), weight = tt_in(r, "weight"), indices = tt_in(r, "indices");
  tt_hlo bag = tt_in_as(r, "offset2bag", TT_S32);
  if (!grad || !weight || !indices || !bag || !check_indices(r, "indices")) {
    return;
  }
  if (tt_int(r, "mode", MODE_SUM) != MODE_SUM) {
    tt_fail(r, TT_ERR_RUNTIME, "only supported for mode='sum'");
    return;
  }
  if (grad->rank != 2 || weight->rank != 2 || indices->rank != 1 || bag->rank != 1) {
    tt_fail(r, TT_ERR_RUNTIME, "grad and weight must be 2-D, indices and offset2bag 1-D");
    return;
  }
  if (bag->dims[0] != indices->dims[0]) {
    bag = bag_of_each(tt_in(r, "offsets"), grad->dims[0], indices->dims[0]);
  }
  const tt_dtype compute = tt_opmath(grad->dtype);
  tt_hlo at = without_padding(r, tt_positions(r, indices, weight->dims[0], false, "index"), weight->dims[0]);
  tt_hlo rows = tt_cast(tt_take_slices(weight, 0, at), compute);
  tt_hlo dot = v_reduce(TT_SUM, v_mul(tt_cast(tt_take_slices(grad, 0, bag), compute), rows), 1);
  dot = dot && at ? v_if(v_ltc(at, 0), v_const(dot, 0), dot) : NULL;
  tt_ret(r, 0, tt_cast(dot, grad->dtype));
}

// ---- embedding_renorm_: rows that `indices` names are scaled down to max_norm ----
static void build_embedding_renorm(tt_rule *r) {
  const double p = tt_static_double(r, "norm_type", 2);
  tt_hlo self = tt_in(r, "self"), indices = tt_in(r, "indices");
  if (!self || !indices || !check_indices(r, "indices")) {
    return;
  }
  if (self->rank != 2) {
    tt_fail(r, TT_ERR_RUNTIME, "'self' must be 2-D");
    return;
  }
  tt_hlo named = occurrences(v_flat(tt_positions(r, indices, self->dims[0], false, "index")), self->dims[0]);
  tt_hlo x = tt_cast(self, tt_opmath(self->dtype)), size = v_abs(x);
  if (!size || !named) {
    return;
  }
  tt_hlo norm;
  if (isinf(p)) {
    norm = v_reduce(TT_MAX, size, 1);
  } else if (p == 2) {
    norm = v_sqrt(v_reduce(TT_SUM, v_mul(x, x), 1));
  } else {
    norm = v_reduce(TT_SUM, tt_hlo_binary(TT_POWER, size, v_const(size, p)), 1);
    norm = norm ? tt_hlo_binary(TT_POWER, norm, v_const(norm, 1 / p)) : NULL;
  }
  tt_hlo limit = norm ? v_like(tt_scalar(r, "max_norm", norm->dtype), norm) : NULL;
  tt_hlo factor = v_div(limit, v_addc(norm, 1e-7));
  tt_hlo too_long = v_and(v_gt(norm, limit), v_gtc(named, 0));
  factor = v_if(too_long, factor, v_const(factor, 1));
  tt_ret_like(r, 0, tt_cast(v_mul(x, per_row(factor, x)), self->dtype), "self");
}

#define ENTRY(rule_name, function) {.name = "aten::" rule_name, .build = function}

const tt_rule_entry tt_rules_embedding[] = {
    ENTRY("embedding", build_embedding),
    ENTRY("embedding_dense_backward", build_embedding_backward),
    ENTRY("_embedding_bag", build_embedding_bag),
    ENTRY("_embedding_bag_forward_only", build_embedding_bag),
    ENTRY("_embedding_bag_backward", build_embedding_bag_backward),
    ENTRY("_embedding_bag_dense_backward", build_embedding_bag_backward),
    ENTRY("_embedding_bag_per_sample_weights_backward", build_per_sample_weights_backward),
    {.name = "aten::embedding_renorm", .build = build_embedding_renorm, .static_args = "norm_type"},
    {.name = NULL},
};
