// Operators that no schema names: what copies and storages need.
#include "aten/internal.h"

// Writes `src`, converted and broadcast, to `self`.
static void build_copy(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  tt_hlo value = tt_in_as(r, "src", self->dtype);
  tt_ret(r, 0, tt_hlo_broadcast_to(value, self->sizes, self->ndim));
}

static void build_contiguous(tt_rule *r) { tt_ret(r, 0, tt_in(r, "self")); }

// The storage's elements one after the other.
static tt_hlo flat(tt_hlo x) { return tt_hlo_reshape(x, (int64_t[]){tt_hlo_numel(x)}, 1); }

// Bytes stay what they are; only types that bitcast_convert knows come out.
static tt_hlo to_plain(tt_hlo x) {
  if (!x || x->dtype == TT_PRED) {
    return tt_hlo_convert(x, TT_U8);
  }
  if (tt_dtype_is_complex(x->dtype)) {
    int64_t pair[] = {tt_hlo_numel(x), 1};
    tt_hlo parts[] = {tt_hlo_reshape(tt_hlo_unary(TT_REAL, x), pair, 2),
                      tt_hlo_reshape(tt_hlo_unary(TT_IMAG, x), pair, 2)};
    return flat(tt_hlo_concatenate(parts, 2, 1));
  }
  return x;
}

static tt_hlo bitcast_flat(tt_hlo x, tt_dtype dtype) {
  size_t from = x ? tt_dtype_size(x->dtype) : 1, to = tt_dtype_size(dtype);
  if (x && from < to) {
    int64_t ratio = (int64_t)(to / from), whole = tt_hlo_numel(x) / ratio;
    x = tt_hlo_slice_dim(x, 0, 0, whole * ratio, 1);  // bytes that make no whole element are out of reach
    return tt_hlo_bitcast_convert(tt_hlo_reshape(x, (int64_t[]){whole, ratio}, 2), dtype);
  }
  return flat(tt_hlo_bitcast_convert(x, dtype));
}

static tt_hlo from_plain(tt_hlo x, tt_dtype dtype) {
  if (dtype == TT_PRED) {
    x = bitcast_flat(x, TT_U8);
    return tt_hlo_compare(TT_NE, x, tt_hlo_const_like(x, 0));
  }
  if (tt_dtype_is_complex(dtype)) {
    x = bitcast_flat(x, tt_dtype_real(dtype));
    int64_t whole = tt_hlo_numel(x) / 2;
    x = tt_hlo_reshape(tt_hlo_slice_dim(x, 0, 0, 2 * whole, 1), (int64_t[]){whole, 2}, 2);
    return tt_hlo_complex(flat(tt_hlo_slice_dim(x, 1, 0, 1, 1)), flat(tt_hlo_slice_dim(x, 1, 1, 2, 1)));
  }
  return bitcast_flat(x, dtype);
}

// The bytes of `self` as elements of another type, in `sizes` if they fit.
static void build_retype(tt_rule *r) {
  int32_t rank;
  const int64_t *sizes = tt_ints(r, "sizes", &rank);
  tt_hlo value = from_plain(to_plain(flat(tt_in(r, "self"))), tt_dtype_arg(r, "dtype", TT_U8));
  int64_t numel = tt_ints_numel(r, "sizes");
  tt_ret(r, 0, sizes && numel == tt_hlo_numel(value) ? tt_hlo_reshape(value, sizes, rank) : value);
}

// The first `count` elements, zeros after the old end.
static void build_resize(tt_rule *r) {
  tt_hlo x = flat(tt_in(r, "self"));
  int64_t zero = 0, count = tt_int(r, "count", 0), more = count < 0 ? 0 : count - tt_hlo_numel(x);
  tt_ret(r, 0, tt_hlo_pad(x, x ? tt_hlo_scalar(tt_b(r), x->dtype, 0) : NULL, &zero, &more, NULL));
}

const tt_rule_entry tt_rules_internal[] = {
    {.name = "tt::copy_", .build = build_copy, .overwrites = true},
    {.name = "tt::contiguous", .build = build_contiguous},
    {.name = "tt::retype", .build = build_retype},
    {.name = "tt::resize", .build = build_resize},
    {0},
};
