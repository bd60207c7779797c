// Unique elements and counts of integers. How many there are has to reach the host (src/torch/sized.cpp): these rules
// give arrays with room for all, and the number.
#include "aten/dims.h"

// The keys to sort and compare by.
static tt_hlo keys_of(tt_hlo x) { return x && x->dtype == TT_PRED ? tt_cast(x, TT_U8) : x; }

typedef struct runs {
  tt_hlo place;   // [n] of each element: which run it is in
  tt_hlo first;   // [n]: where run k begins; n for those that there aren't
  tt_hlo counts;  // [n]: how long run k is
  tt_hlo count;   // 0-d: the number of runs
} runs;

// `differs`: [n - 1], whether element i + 1 differs from element i. n > 0.
static runs runs_of(tt_hlo differs, int64_t n) {
  const tt_dtype type = v_position_type(n);
  runs s = {0};
  if (!differs) {
    return s;
  }
  tt_hlo begins = v_pad(differs, tt_hlo_scalar(tt_hlo_builder_of(differs), TT_PRED, 1), 0, 1, 0, 0);
  tt_hlo ordinal = tt_running(TT_SUM, tt_hlo_convert(begins, type), 0);
  s.place = ordinal ? v_addc(ordinal, -1) : NULL;
  if (!s.place) {
    return s;
  }
  // Positions travel, not values: a scatter of 64 bits takes libtpu 15 s to compile.
  tt_hlo end = v_const(s.place, (double)n), at = v_iota(s.place, type, 0);
  s.first = tt_put_flat(TT_SCATTER_SET, end, v_if(begins, s.place, end), at);
  tt_hlo next = v_pad(s.first, tt_hlo_scalar(tt_hlo_builder_of(differs), type, (double)n), 0, -1, 1, 0);
  s.counts = v_sub(next, s.first);
  s.count = tt_hlo_reshape(tt_hlo_slice_dim(ordinal, 0, n - 1, n, 1), NULL, 0);
  return s;
}

static tt_hlo first_of(tt_hlo sorted, const runs *s) {
  return s->first ? tt_take_slices(sorted, 0, v_min(s->first, v_const(s->first, (double)(s->first->dims[0] - 1))))
                  : NULL;
}

static tt_hlo neighbours_differ(tt_hlo x) {
  const int64_t n = x ? x->dims[0] : 0;
  tt_hlo later = tt_hlo_slice_dim(x, 0, 1, n, 1), earlier = tt_hlo_slice_dim(x, 0, 0, n - 1, 1);
  return v_ne(later, earlier);
}

static tt_hlo nothing(tt_rule *r) {
  const int64_t zero = 0;
  return tt_hlo_const_int(tt_b(r), TT_S64, 0, &zero, 1);
}

static void ret_runs(tt_rule *r, tt_hlo values, tt_hlo inverse, const runs *s) {
  tt_ret(r, 0, values);
  tt_ret(r, 1, inverse ? tt_cast(inverse, TT_S64) : nothing(r));
  tt_ret(r, 2, tt_bool(r, "counts", true) ? tt_cast(s->counts, TT_S64) : nothing(r));
  tt_ret(r, 3, tt_cast(s->count, TT_S64));
}

// What belongs to element i of the sorted order goes to where that element came from.
static tt_hlo unsort(tt_hlo place, tt_hlo positions) {
  return place ? tt_put_flat(TT_SCATTER_SET, v_const(place, 0), positions, place) : NULL;
}

static void build_unique(tt_rule *r) {
  tt_hlo self = tt_in(r, "self"), x = self ? keys_of(v_flat(self)) : NULL, place, sorted[2] = {x, NULL};
  const bool sort = tt_bool(r, "sort", true), inverse = tt_bool(r, "inverse", false);
  if (!x) {
    return;
  }
  const int64_t n = x->dims[0];
  if (sort) {
    tt_hlo operands[] = {x, v_iota(x, v_position_type(n), 0)};
    tt_hlo_sort(operands, inverse ? 2 : 1, 0, false, true, false, sorted);
  }
  const runs s = runs_of(neighbours_differ(sorted[0]), n);
  place = sort && inverse ? unsort(s.place, sorted[1]) : s.place;
  ret_runs(r, tt_cast(first_of(sorted[0], &s), self->dtype), inverse ? v_reshape_like(place, self) : NULL, &s);
}

// ---- rows ----

// Sorting rows: by each column from the last to the first, stably. State: columns left, order.
static tt_hlo columns_left(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  (void)b;
  return v_gtc(state[0], 0);
}
static void sort_by_column(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  tt_hlo columns = *(const tt_hlo *)context, order = state[1];
  tt_hlo left = v_addc(state[0], -1);
  tt_hlo start[] = {left, tt_hlo_scalar(b, left ? left->dtype : TT_S32, 0)};
  const int64_t one[] = {1, columns->dims[1]};
  tt_hlo column = v_flat(tt_hlo_dynamic_slice(columns, start, one));
  tt_hlo operands[] = {tt_take_flat(column, order), order}, sorted[2] = {NULL, NULL};
  tt_hlo_sort(operands, 2, 0, false, true, false, sorted);
  out[0] = left;
  out[1] = sorted[1];
}

static tt_hlo row_order(tt_hlo rows) {
  static const int32_t swap[] = {1, 0};
  tt_hlo columns = tt_hlo_transpose(rows, swap);
  if (!columns) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(rows);
  tt_hlo state[] = {tt_hlo_scalar(b, v_position_type(columns->dims[0]), (double)columns->dims[0]),
                    tt_hlo_iota(b, v_position_type(columns->dims[1]), &columns->dims[1], 1, 0)};
  tt_hlo_while(state, 2, columns_left, sort_by_column, &columns, state);
  return state[1];
}

// Along dim 0; n > 0 rows of at least one element.
static void build_unique_rows(tt_rule *r) {
  tt_hlo self = v_at_least_1d(tt_in(r, "self"));
  if (!self) {
    return;
  }
  const int64_t n = self->dims[0], flat[] = {n, n ? tt_hlo_numel(self) / n : 0};
  tt_hlo rows = keys_of(tt_hlo_reshape(self, flat, 2)), order = NULL;
  if (tt_bool(r, "sort", true)) {
    order = row_order(rows);
    rows = tt_take_slices(rows, 0, order);
  }
  const runs s = runs_of(v_reduce(TT_ANY, neighbours_differ(rows), 1), n);
  tt_hlo values = v_reshape_like(tt_cast(first_of(rows, &s), self->dtype), self);
  ret_runs(r, values, order ? unsort(s.place, order) : s.place, &s);
}

// ---- bincount ----
// `size` is at least the largest element plus 1.
static void build_bincount(tt_rule *r) {
  tt_hlo self = tt_in(r, "self"), weights = tt_has(r, "weights") ? tt_in(r, "weights") : NULL;
  const int64_t size = tt_int(r, "size", 0);
  if (!self) {
    return;
  }
  const tt_dtype type = v_position_type(tt_hlo_numel(self));
  weights = weights ? tt_cast(weights, weights->dtype == TT_F32 ? TT_F32 : TT_F64)
                    : tt_hlo_const(tt_b(r), type, 1, self->dims, self->rank);
  if (weights) {
    tt_hlo none = tt_hlo_const(tt_b(r), weights->dtype, 0, &size, 1);
    tt_hlo sums = tt_put_flat(TT_SCATTER_ADD, none, tt_cast(self, v_position_type(size)), weights);
    tt_ret(r, 0, weights->dtype == type ? tt_cast(sums, TT_S64) : sums);
  }
}

const tt_rule_entry tt_rules_unique[] = {
    {.name = "torchtpu::unique", .build = build_unique},
    {.name = "torchtpu::unique_rows", .build = build_unique_rows},
    {.name = "torchtpu::bincount", .build = build_bincount},
    {0},
};
