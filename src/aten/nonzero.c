// Positions of the elements that are not zero, into an array of a given size.
#include "aten/dims.h"
#include "aten/internal.h"

// The places of the first `size` elements that are not zero, in order; -1 after them. `mask` is flat.
static tt_hlo places(tt_hlo mask, tt_dtype type, int64_t size) {
  const int64_t count = mask ? mask->dims[0] : 0;
  tt_hlo_builder *b = tt_hlo_builder_of(mask);
  // An element's place is the number of others before it; what has none lands past the end and is dropped.
  tt_hlo before = tt_hlo_binary(TT_SUBTRACT, tt_running(TT_SUM, tt_hlo_convert(mask, type), 0),
                                tt_hlo_const_int(b, type, 1, &count, 1));
  tt_hlo place = tt_hlo_select(mask, before, tt_hlo_const_int(b, type, size, &count, 1));
  static const int32_t zero[] = {0};
  tt_hlo_scatter_dims dims = {.inserted_window_dims = zero,
                              .inserted_count = 1,
                              .scatter_dims_to_operand_dims = zero,
                              .scatter_dims_count = 1,
                              .index_vector_dim = 1};
  return tt_hlo_scatter(TT_SCATTER_SET, tt_hlo_const_int(b, type, -1, &size, 1), place,
                        tt_hlo_iota(b, type, &count, 1, 0), &dims, false, false);
}

// The indices along each dim of x's elements at flat positions; `fill` for those at -1.
static void coordinates(tt_hlo flat, tt_hlo x, int64_t fill, tt_hlo *columns) {
  tt_hlo_builder *b = tt_hlo_builder_of(x);
  const tt_dtype type = flat ? flat->dtype : TT_S32;
  const int64_t size = flat ? flat->dims[0] : 0;
  tt_hlo found = tt_hlo_compare(TT_GE, flat, tt_hlo_const_int(b, type, 0, &size, 1));
  int64_t stride = 1;
  for (int32_t d = x->rank - 1; d >= 0; d--) {
    int64_t extent = x->dims[d] ? x->dims[d] : 1;
    tt_hlo along = tt_hlo_binary(TT_DIVIDE, flat, tt_hlo_const_int(b, type, stride, &size, 1));
    along = tt_hlo_binary(TT_REMAINDER, along, tt_hlo_const_int(b, type, extent, &size, 1));
    columns[d] = tt_hlo_select(found, tt_hlo_convert(along, TT_S64), tt_hlo_const_int(b, TT_S64, fill, &size, 1));
    stride *= extent;
  }
}

static void build_nonzero_static(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  const int64_t size = tt_int(r, "size", 0), fill = tt_int(r, "fill_value", -1), count = x ? tt_hlo_numel(x) : 0;
  if (!x) {
    return;
  }
  if (!x->rank) {
    tt_ret(r, 0, tt_hlo_const_int(tt_b(r), TT_S64, 0, (int64_t[]){size, 0}, 2));
    return;
  }
  // Positions are 32 bits wide where they fit: a scatter of 64 bits takes libtpu 15 s to compile.
  const tt_dtype type = v_position_type(count > size ? count : size);
  tt_hlo columns[TT_MAX_RANK];
  coordinates(places(tt_hlo_reshape(tt_cast(x, TT_PRED), &count, 1), type, size), x, fill, columns);
  for (int32_t d = 0; d < x->rank; d++) {
    columns[d] = tt_hlo_reshape(columns[d], (int64_t[]){size, 1}, 2);
  }
  tt_ret(r, 0, tt_hlo_concatenate(columns, x->rank, 1));
}

// The indices of all elements that are not zero, one dim after the other without gaps, in room for all of x's; how many
// there are. One program serves every number.
static void build_nonzero_columns(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  const int64_t count = x ? tt_hlo_numel(x) : 0, room = x ? count * x->rank : 0;
  if (!x || !x->rank) {
    return;
  }
  const tt_dtype type = v_position_type(room);
  tt_hlo mask = tt_hlo_reshape(tt_cast(x, TT_PRED), &count, 1);
  tt_hlo columns[TT_MAX_RANK], number = v_reduce(TT_SUM, tt_hlo_convert(mask, type), 0);
  coordinates(places(mask, type, count), x, 0, columns);
  tt_hlo all = tt_hlo_const_int(tt_b(r), TT_S64, 0, &room, 1), at = tt_hlo_scalar(tt_b(r), type, 0);
  for (int32_t d = 0; d < x->rank; d++) {
    all = tt_hlo_dynamic_update_slice(all, columns[d], &at);  // over what lies after the one before
    at = v_add(at, number);
  }
  tt_ret(r, 0, all);
  tt_ret(r, 1, tt_hlo_convert(number, TT_S64));
}

const tt_rule_entry tt_rules_nonzero[] = {
    {.name = "aten::nonzero_static", .build = build_nonzero_static},
    {.name = "torchtpu::nonzero_columns", .build = build_nonzero_columns},
    {0},
};
