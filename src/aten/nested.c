// Between jagged values, sequences one after the other, and a batch padded to one length. Where the sequences begin is
// data: every position of the result looks up what it holds.
#include "aten/dims.h"

// values [T, ...], offsets [B + 1] of the narrowest type that holds T.
static tt_hlo read_offsets(tt_rule *r, tt_hlo offsets, int64_t total) {
  if (!offsets || offsets->rank != 1 || offsets->dims[0] == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "expected offsets to be a 1-D tensor that is not empty");
    return NULL;
  }
  if (!tt_is_integral(offsets->dtype) || offsets->dtype == TT_PRED) {
    tt_fail(r, TT_ERR_RUNTIME, "expected offsets of integers, got %s", tt_type_name(offsets->dtype));
    return NULL;
  }
  tt_hlo wide = tt_cast(offsets, TT_S64), last = wide ? v_const(wide, (double)total) : NULL;
  tt_device_assert(r, last ? v_and(v_gec(wide, 0), v_le(wide, last)) : NULL, TT_ERR_RUNTIME,
                   "%s: an offset lies outside the values", tt_rule_name(r));
  return tt_cast(tt_hlo_clamp(v_zero(wide), wide, tt_hlo_const_int(tt_b(r), TT_S64, total, NULL, 0)),
                 v_position_type(total));
}

static tt_hlo starts_of(tt_hlo offsets) {
  return offsets ? tt_hlo_slice_dim(offsets, 0, 0, offsets->dims[0] - 1, 1) : NULL;
}
static tt_hlo lengths_of(tt_hlo offsets) {
  return offsets ? v_sub(tt_hlo_slice_dim(offsets, 0, 1, offsets->dims[0], 1), starts_of(offsets)) : NULL;
}

// `values` (of as many dims, the first two now the batch and the length), padded.
static void build_jagged_to_padded(tt_rule *r) {
  int32_t count;
  const int64_t *most = tt_ints(r, "max_lengths", &count);
  tt_hlo values = tt_in(r, "values");
  if (!values || tt_list_length(r, "offsets") != 1 || count != 1 || values->rank == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "only a single jagged dim is supported");
    return;
  }
  if (most[0] < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Trying to create tensor with negative dimension %" PRId64, most[0]);
    return;
  }
  tt_hlo offsets = read_offsets(r, tt_in_at(r, "offsets", 0), values->dims[0]);
  tt_hlo padding = tt_scalar(r, "padding_value", values->dtype);
  if (!offsets || !padding) {
    return;
  }
  int64_t dims[V_DIMS] = {offsets->dims[0] - 1, most[0]};
  memcpy(dims + 2, values->dims + 1, sizeof *dims * (size_t)(values->rank - 1));
  tt_hlo padded = v_fill(padding, dims, values->rank + 1);
  if (padded && values->dims[0] > 0 && dims[0] > 0 && dims[1] > 0) {
    tt_hlo place = tt_hlo_iota(tt_b(r), v_position_type(most[0]), dims, 2, 1);
    place = tt_cast(place, offsets->dtype);
    tt_hlo inside = v_lt(place, v_along(lengths_of(offsets), dims, 2, 0));
    tt_hlo position = v_flat(v_add(place, v_along(starts_of(offsets), dims, 2, 0)));
    tt_hlo taken = v_reshape_like(tt_take_slices(values, 0, position), padded);
    padded = v_if(tt_hlo_broadcast_in_dim(inside, dims, values->rank + 1, (const int32_t[]){0, 1}), taken, padded);
  }
  tt_ret(r, 0, padded);
}

// The other way. `total`: of the lengths.
static void build_padded_to_jagged(tt_rule *r) {
  tt_hlo dense = tt_in(r, "dense");
  const int64_t total = tt_int(r, "total", 0);
  if (!dense || dense->rank < 2 || total < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "expected a padded tensor of 2 dims or more");
    return;
  }
  tt_hlo offsets = read_offsets(r, tt_in(r, "offsets"), total);
  if (!offsets) {
    return;
  }
  const int64_t batch = dense->dims[0], most = dense->dims[1];
  if (offsets->dims[0] != batch + 1) {
    tt_fail(r, TT_ERR_RUNTIME, "expected %" PRId64 " offsets for a batch of %" PRId64 ", got %" PRId64, batch + 1,
            batch, offsets->dims[0]);
    return;
  }
  tt_hlo last = tt_hlo_slice_dim(offsets, 0, batch, batch + 1, 1), lengths = lengths_of(offsets);
  tt_device_assert(r, v_eqc(last, (double)total), TT_ERR_RUNTIME, "final offset should match total_L value");
  tt_device_assert(r, lengths ? v_le(tt_cast(lengths, TT_S64), v_const(tt_cast(lengths, TT_S64), (double)most)) : NULL,
                   TT_ERR_RUNTIME, "found a batch item longer than the padded input's %" PRId64, most);
  int64_t dims[V_DIMS] = {total};
  memcpy(dims + 1, dense->dims + 2, sizeof *dims * (size_t)(dense->rank - 2));
  tt_hlo result = v_fill(v_zero(dense), dims, dense->rank - 1);
  if (result && total > 0 && tt_hlo_numel(dense) > 0) {
    const tt_dtype type = v_position_type(batch * most);
    tt_hlo element = tt_hlo_iota(tt_b(r), offsets->dtype, (const int64_t[]){1, total}, 2, 1);
    tt_hlo row = tt_insertion_points(v_unsqueeze(offsets, 0), element, true);
    row = v_flat(v_addc(row, -1));  // -1: before the first sequence
    tt_hlo known = v_gec(row, 0);
    row = v_max(row, v_const(row, 0));
    tt_hlo place = v_sub(v_flat(element), tt_take_flat(starts_of(offsets), row));
    tt_hlo position = v_add(v_mulc(tt_cast(row, type), (double)most), tt_cast(place, type));
    int64_t flat[V_DIMS] = {batch * most};
    memcpy(flat + 1, dims + 1, sizeof *flat * (size_t)(dense->rank - 2));
    tt_hlo taken = tt_take_slices(tt_hlo_reshape(dense, flat, dense->rank - 1), 0, position);
    result = v_if(v_along(known, dims, dense->rank - 1, 0), taken, result);
  }
  tt_ret(r, 0, result);
}

const tt_rule_entry tt_rules_nested[] = {
    {.name = "aten::_jagged_to_padded_dense_forward", .build = build_jagged_to_padded},
    {.name = "torchtpu::padded_to_jagged", .build = build_padded_to_jagged},
    {0},
};
