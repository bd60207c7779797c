// Positions of the elements that are not zero, into an array of a given size.
#include "aten/dims.h"
#include "aten/internal.h"

static void build_nonzero_static(tt_rule *r) {
  tt_hlo x = tt_in(r, "self");
  int64_t size = tt_int(r, "size", 0), fill = tt_int(r, "fill_value", -1);
  if (!x) {
    return;
  }
  tt_hlo_builder *b = tt_b(r);
  int64_t count = tt_hlo_numel(x);
  tt_hlo mask = tt_hlo_reshape(tt_cast(x, TT_PRED), &count, 1);
  // An element's place is the number of others before it; what has none lands past the end and is dropped.
  // Positions are 32 bits wide where they fit: a scatter of 64 bits takes libtpu 15 s to compile.
  const tt_dtype type = v_position_type(count > size ? count : size);
  tt_hlo before = tt_hlo_binary(TT_SUBTRACT, tt_running(TT_SUM, tt_hlo_convert(mask, type), 0),
                                tt_hlo_const_int(b, type, 1, &count, 1));
  tt_hlo place = tt_hlo_select(mask, before, tt_hlo_const_int(b, type, size, &count, 1));
  static const int32_t zero[] = {0};
  tt_hlo_scatter_dims dims = {.inserted_window_dims = zero,
                              .inserted_count = 1,
                              .scatter_dims_to_operand_dims = zero,
                              .scatter_dims_count = 1,
                              .index_vector_dim = 1};
  tt_hlo flat = tt_hlo_scatter(TT_SCATTER_SET, tt_hlo_const_int(b, type, -1, &size, 1), place,
                               tt_hlo_iota(b, type, &count, 1, 0), &dims, false, false);
  tt_hlo found = tt_hlo_compare(TT_GE, flat, tt_hlo_const_int(b, type, 0, &size, 1));
  tt_hlo columns[TT_MAX_RANK];
  int64_t stride = 1, column[] = {size, 1};
  for (int32_t d = x->rank - 1; d >= 0; d--) {
    int64_t extent = x->dims[d] ? x->dims[d] : 1;
    tt_hlo along = tt_hlo_binary(TT_DIVIDE, flat, tt_hlo_const_int(b, type, stride, &size, 1));
    along = tt_hlo_binary(TT_REMAINDER, along, tt_hlo_const_int(b, type, extent, &size, 1));
    along = tt_hlo_select(found, tt_hlo_convert(along, TT_S64), tt_hlo_const_int(b, TT_S64, fill, &size, 1));
    columns[d] = tt_hlo_reshape(along, column, 2);
    stride *= extent;
  }
  tt_ret(r, 0,
         x->rank ? tt_hlo_concatenate(columns, x->rank, 1) : tt_hlo_const_int(b, TT_S64, 0, (int64_t[]){size, 0}, 2));
}

const tt_rule_entry tt_rules_nonzero[] = {
    {.name = "aten::nonzero_static", .build = build_nonzero_static},
    {0},
};
