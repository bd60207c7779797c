#include "aten/axis.h"

#include <stdlib.h>

enum { MAX_UNROLLED = 4 };

tt_hlo tt_axis_values(tt_hlo x, int32_t dim, const double *values, int64_t count) {
  if (!x) {
    return NULL;
  }
  tt_hlo_builder *b = tt_hlo_builder_of(x);
  for (int64_t i = 1; i < count; i++) {
    if (values[i] != values[0]) {
      return v_along(tt_hlo_const_floats(b, x->dtype, values, count), x->dims, x->rank, dim);
    }
  }
  return tt_hlo_const_like(x, count ? values[0] : 0);
}

tt_hlo tt_axis_ints(tt_hlo x, int32_t dim, tt_dtype dtype, const int64_t *values, int64_t count) {
  return x ? v_along(tt_hlo_const_ints(tt_hlo_builder_of(x), dtype, values, count), x->dims, x->rank, dim) : NULL;
}

static bool is_progression(const int64_t *p, int64_t count, int64_t *step) {
  *step = count > 1 ? p[1] - p[0] : 1;
  for (int64_t i = 1; i < count; i++) {
    if (p[i] - p[i - 1] != *step) {
      return false;
    }
  }
  return *step > 0;
}

// Each of consecutive positions `times` times.
static bool is_repetition(const int64_t *p, int64_t count, int64_t *times) {
  *times = 1;
  while (*times < count && p[*times] == p[0]) {
    ++*times;
  }
  if (count % *times) {
    return false;
  }
  for (int64_t i = 0; i < count; i++) {
    if (p[i] != p[0] + i / *times) {
      return false;
    }
  }
  return true;
}

static tt_hlo repeat(tt_hlo x, int32_t dim, int64_t times) {
  if (!x || times == 1) {
    return x;
  }
  int64_t dims[V_DIMS], joined[V_DIMS];
  int32_t mapping[V_DIMS];
  for (int32_t i = 0; i < x->rank; i++) {
    joined[i] = x->dims[i] * (i == dim ? times : 1);
    mapping[i] = i > dim ? i + 1 : i;
    dims[mapping[i]] = x->dims[i];
  }
  dims[dim + 1] = times;
  return tt_hlo_reshape(tt_hlo_broadcast_in_dim(x, dims, x->rank + 1, mapping), joined, x->rank);
}

tt_hlo tt_axis_take(tt_hlo x, int32_t dim, const int64_t *positions, int64_t count) {
  int64_t step, times;
  if (!x) {
    return NULL;
  }
  if (count == 0) {
    return tt_hlo_slice_dim(x, dim, 0, 0, 1);
  }
  if (is_progression(positions, count, &step)) {
    if (count == x->dims[dim] && step == 1) {
      return x;
    }
    return tt_hlo_slice_dim(x, dim, positions[0], positions[count - 1] + 1, step);
  }
  if (is_repetition(positions, count, &times)) {
    return repeat(tt_hlo_slice_dim(x, dim, positions[0], positions[count - 1] + 1, 1), dim, times);
  }
  return tt_take_slices(x, dim, tt_hlo_const_ints(tt_hlo_builder_of(x), TT_S32, positions, count));
}

static tt_hlo even_window_sum(tt_hlo x, int32_t dim, int64_t start, int64_t length, int64_t count) {
  int64_t dims[V_DIMS];
  tt_hlo used = tt_hlo_slice_dim(x, dim, start, start + length * count, 1);
  if (!used || length == 1) {
    return used;
  }
  for (int32_t i = 0; i < x->rank; i++) {
    dims[i > dim ? i + 1 : i] = x->dims[i];
  }
  dims[dim] = count;
  dims[dim + 1] = length;
  return v_reduce(TT_SUM, tt_hlo_reshape(used, dims, x->rank + 1), dim + 1);
}

// All windows laid out side by side, `longest` places each, and summed.
static tt_hlo gathered_window_sum(tt_hlo x, int32_t dim, const int64_t *start, const int64_t *lengths, int64_t longest,
                                  int64_t count) {
  int64_t *positions = malloc(sizeof *positions * (size_t)(count * longest)), dims[V_DIMS];
  if (!positions) {
    return tt_hlo_fail(tt_hlo_builder_of(x), tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"));
  }
  for (int64_t i = 0; i < count * longest; i++) {
    const int64_t p = start[i / longest] + i % longest;
    positions[i] = p < x->dims[dim] ? p : x->dims[dim] - 1;
  }
  tt_hlo all = tt_axis_take(x, dim, positions, count * longest);
  free(positions);
  if (!all) {
    return NULL;
  }
  for (int32_t i = 0; i < x->rank; i++) {
    dims[i > dim ? i + 1 : i] = x->dims[i];
  }
  dims[dim] = count;
  dims[dim + 1] = longest;
  all = tt_hlo_reshape(all, dims, x->rank + 1);
  tt_hlo inside = v_lt(v_iota(all, TT_S32, dim + 1), tt_axis_ints(all, dim, TT_S32, lengths, count));
  return v_reduce(TT_SUM, v_if(inside, all, v_const(all, 0)), dim + 1);
}

static tt_hlo unrolled_window_sum(tt_hlo x, int32_t dim, const int64_t *start, const int64_t *lengths, int64_t longest,
                                  int64_t count) {
  int64_t *positions = malloc(sizeof *positions * (size_t)count);
  if (!positions) {
    return tt_hlo_fail(tt_hlo_builder_of(x), tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"));
  }
  tt_hlo sum = NULL;
  for (int64_t t = 0; t < longest; t++) {
    bool all_inside = true;
    for (int64_t i = 0; i < count; i++) {
      const bool inside = t < lengths[i];
      all_inside = all_inside && inside;
      const int64_t p = start[i] + t;
      positions[i] = p < x->dims[dim] ? p : x->dims[dim] - 1;
    }
    tt_hlo term = tt_axis_take(x, dim, positions, count);
    if (!all_inside && term) {
      tt_hlo length = tt_axis_ints(term, dim, TT_S32, lengths, count);
      term = v_if(v_gtc(length, (double)t), term, v_const(term, 0));
    }
    sum = sum ? v_add(sum, term) : term;
  }
  free(positions);
  return sum;
}

tt_hlo tt_axis_window_sum(tt_hlo x, int32_t dim, const int64_t *start, const int64_t *end, int64_t count) {
  if (!x) {
    return NULL;
  }
  int64_t *lengths = malloc(sizeof *lengths * (size_t)(count + 1)), longest = 0;
  if (!lengths) {
    return tt_hlo_fail(tt_hlo_builder_of(x), tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"));
  }
  bool even = true;
  for (int64_t i = 0; i < count; i++) {
    lengths[i] = end[i] > start[i] ? end[i] - start[i] : 0;
    longest = lengths[i] > longest ? lengths[i] : longest;
  }
  for (int64_t i = 0; i < count; i++) {
    even = even && lengths[i] == longest && start[i] == start[0] + i * longest;
  }
  tt_hlo sum;
  if (longest == 0 || count == 0 || x->dims[dim] == 0) {
    int64_t dims[V_DIMS];
    memcpy(dims, x->dims, sizeof *dims * (size_t)x->rank);
    dims[dim] = count;
    sum = tt_hlo_const(tt_hlo_builder_of(x), x->dtype, 0, dims, x->rank);
  } else if (even) {
    sum = even_window_sum(x, dim, start[0], longest, count);
  } else if (longest <= MAX_UNROLLED) {
    sum = unrolled_window_sum(x, dim, start, lengths, longest, count);
  } else {
    sum = gathered_window_sum(x, dim, start, lengths, longest, count);
  }
  free(lengths);
  return sum;
}
