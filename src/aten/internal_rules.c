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

// The first `count` elements, zeros after the old end.
static tt_hlo take(tt_hlo x, int64_t count) {
  int64_t zero = 0, more = x ? count - tt_hlo_numel(x) : 0;
  return more ? tt_hlo_pad(x, tt_hlo_scalar(tt_hlo_builder_of(x), x->dtype, 0), &zero, &more, NULL) : x;
}

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
    // Bytes that make no whole element are kept in one more, for when the type changes back.
    int64_t ratio = (int64_t)(to / from), whole = (tt_hlo_numel(x) + ratio - 1) / ratio;
    return tt_hlo_bitcast_convert(tt_hlo_reshape(take(x, whole * ratio), (int64_t[]){whole, ratio}, 2), dtype);
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
    int64_t whole = x ? (tt_hlo_numel(x) + 1) / 2 : 0;
    x = tt_hlo_reshape(take(x, 2 * whole), (int64_t[]){whole, 2}, 2);
    return tt_hlo_complex(flat(tt_hlo_slice_dim(x, 1, 0, 1, 1)), flat(tt_hlo_slice_dim(x, 1, 1, 2, 1)));
  }
  return bitcast_flat(x, dtype);
}

// The bytes of `self` as `count` elements of another type, in `sizes` if they fit.
static void build_retype(tt_rule *r) {
  int32_t rank;
  const int64_t *sizes = tt_ints(r, "sizes", &rank);
  tt_hlo value = from_plain(to_plain(flat(tt_in(r, "self"))), tt_dtype_arg(r, "dtype", TT_U8));
  int64_t numel = tt_ints_numel(r, "sizes"), count = tt_int(r, "count", -1);
  value = count < 0 ? value : take(value, count);
  tt_ret(r, 0, sizes && numel == tt_hlo_numel(value) ? tt_hlo_reshape(value, sizes, rank) : value);
}

static void build_resize(tt_rule *r) {
  tt_hlo x = flat(tt_in(r, "self"));
  int64_t count = tt_int(r, "count", -1);
  tt_ret(r, 0, count < 0 ? x : take(x, count));
}

const tt_rule_entry tt_rules_internal[] = {
    {.name = "tt::copy_", .build = build_copy, .overwrites = true},
    {.name = "tt::contiguous", .build = build_contiguous},
    {.name = "tt::retype", .build = build_retype},
    {.name = "tt::resize", .build = build_resize},
    {0},
};
