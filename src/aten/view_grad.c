// Gradients of views, and views with some elements replaced: select, slice, diagonal, unfold.
#include "aten/dims.h"

// ---- positions that vary from call to call ----

// A dynamic int argument as s64; `if_none` where it is None.
static tt_hlo position_in(tt_rule *r, const char *name, int64_t if_none) {
  return tt_has(r, name) ? tt_scalar(r, name, TT_S64) : tt_hlo_const_int(tt_b(r), TT_S64, if_none, NULL, 0);
}

static tt_hlo wrapped(tt_hlo position, int64_t size) {
  return v_if(v_ltc(position, 0), v_addc(position, (double)size), position);
}

// As slicing does it: negative values count from the end, the rest is clamped to [0, size].
static tt_hlo clamped(tt_rule *r, tt_hlo position, int64_t size) {
  return tt_hlo_clamp(tt_hlo_const_int(tt_b(r), TT_S64, 0, NULL, 0), wrapped(position, size),
                      tt_hlo_const_int(tt_b(r), TT_S64, size, NULL, 0));
}

static tt_hlo update_at(tt_rule *r, tt_hlo x, tt_hlo update, int32_t dim, tt_hlo start) {
  tt_hlo starts[V_DIMS];
  const tt_dtype type = x ? v_position_type(x->dims[dim]) : TT_S32;
  for (int32_t i = 0; x && i < x->rank; i++) {
    starts[i] = i == dim ? tt_cast(start, type) : tt_hlo_const_int(tt_b(r), type, 0, NULL, 0);
  }
  return x ? tt_hlo_dynamic_update_slice(x, update, starts) : NULL;
}

// ---- select ----

// x with its slice at "index" along dim replaced by `slice` (which lacks that dim).
static tt_hlo replace_slice(tt_rule *r, tt_hlo x, tt_hlo slice, int32_t dim, bool check) {
  if (!x || !slice) {
    return NULL;
  }
  const int64_t size = x->dims[dim];
  tt_hlo index = wrapped(position_in(r, "index", 0), size);
  if (check && index) {
    tt_device_assert(r, v_and(v_gec(index, 0), v_ltc(index, (double)size)), TT_ERR_INDEX,
                     "index out of range for dimension %d with size %" PRId64, dim, size);
  }
  const tt_dtype type = v_position_type(size);
  return v_if(v_eq(v_iota(x, type, dim), v_like(tt_cast(index, type), x)), v_spread(slice, x, dim), x);
}

static void build_select_backward(tt_rule *r) {
  int32_t rank;
  const int64_t *sizes = tt_ints(r, "input_sizes", &rank);
  tt_hlo grad = tt_in(r, "grad_output");
  const int32_t dim = tt_dim(r, "dim", rank);
  if (grad && !tt_failed(r)) {
    tt_ret(r, 0, replace_slice(r, tt_hlo_const(tt_b(r), grad->dtype, 0, sizes, rank), grad, dim, false));
  }
}

static void build_select_scatter(tt_rule *r) {
  tt_hlo self = tt_in(r, "self");
  const int32_t dim = tt_dim(r, "dim", self ? self->rank : 0);
  if (!self || tt_failed(r)) {
    return;
  }
  tt_hlo src = tt_in_as(r, "src", self->dtype);
  bool fits = src && src->rank == self->rank - 1;
  for (int32_t i = 0; fits && i < src->rank; i++) {
    fits = src->dims[i] == self->dims[i < dim ? i : i + 1];
  }
  if (src && !fits) {
    tt_fail(r, TT_ERR_RUNTIME, "expected src to have a size equal to the slice of self. src size = %s, self size = %s",
            tt_dims_text(src->dims, src->rank).text, tt_dims_text(self->dims, self->rank).text);
    return;
  }
  tt_ret_like(r, 0, replace_slice(r, self, src, dim, true), "self");
}

// ---- slice ----

// x with x[start::step] along dim replaced by `slice`, which fits.
static tt_hlo replace_range(tt_rule *r, tt_hlo x, tt_hlo slice, int32_t dim, tt_hlo start, int64_t step) {
  if (!x || !slice || slice->dims[dim] == 0) {
    return x;
  }
  if (step == 1) {
    return slice->dims[dim] == x->dims[dim] ? slice : update_at(r, x, slice, dim, start);
  }
  // Spread out, with gaps through which x shows.
  const tt_dtype type = v_position_type(x->dims[dim]);
  tt_hlo spread = update_at(r, v_const(x, 0), v_pad0(slice, dim, 0, 0, step - 1), dim, start);
  tt_hlo offset = v_sub(v_iota(x, type, dim), v_like(tt_cast(start, type), x));
  tt_hlo in_range = v_and(v_gec(offset, 0), v_ltc(offset, (double)(slice->dims[dim] * step)));
  tt_hlo on_step = v_eqc(tt_hlo_binary(TT_REMAINDER, offset, v_const(offset, (double)step)), 0);
  return v_if(v_and(in_range, on_step), spread, x);
}

static bool check_sliced(tt_rule *r, int32_t rank, int64_t step) {
  if (rank < 1) {
    tt_fail(r, TT_ERR_INDEX, "slice() cannot be applied to a 0-dim tensor.");
  } else if (step < 1) {
    tt_fail(r, TT_ERR_RUNTIME, "slice step must be positive");
  }
  return !tt_failed(r);
}

static void build_slice_backward(tt_rule *r) {
  int32_t rank;
  const int64_t *sizes = tt_ints(r, "input_sizes", &rank), step = tt_int(r, "step", 1);
  tt_hlo grad = tt_in(r, "grad_output");
  const int32_t dim = tt_dim(r, "dim", rank);
  if (!grad || tt_failed(r) || !check_sliced(r, rank, step)) {
    return;
  }
  tt_hlo zeros = tt_hlo_const(tt_b(r), grad->dtype, 0, sizes, rank);
  tt_hlo start = clamped(r, position_in(r, "start", 0), sizes[dim]);
  if (step > 1 && grad->dims[dim] > 0) {
    tt_ret(r, 0, update_at(r, zeros, v_pad0(grad, dim, 0, 0, step - 1), dim, start));
  } else {
    tt_ret(r, 0, replace_range(r, zeros, grad, dim, start, step));
  }
}

static void build_slice_scatter(tt_rule *r) {
  tt_hlo self = tt_in(r, "self");
  const int32_t dim = tt_dim(r, "dim", self ? self->rank : 0);
  const int64_t step = tt_int(r, "step", 1);
  if (!self || tt_failed(r) || !check_sliced(r, self->rank, step)) {
    return;
  }
  tt_hlo src = tt_in_as(r, "src", self->dtype);
  const int64_t size = self->dims[dim], length = src && src->rank == self->rank ? src->dims[dim] : -1;
  bool fits = length == 0 || (length > 0 && length - 1 <= (size - 1) / step);
  for (int32_t i = 0; fits && i < src->rank; i++) {
    fits = i == dim || src->dims[i] == self->dims[i];
  }
  if (src && !fits) {
    tt_fail(r, TT_ERR_RUNTIME, "expected src to have a size equal to the slice of self. src size = %s, self size = %s",
            tt_dims_text(src->dims, src->rank).text, tt_dims_text(self->dims, self->rank).text);
    return;
  }
  tt_hlo start = clamped(r, position_in(r, "start", 0), size), end = clamped(r, position_in(r, "end", size), size);
  if (start && (tt_has(r, "start") || tt_has(r, "end"))) {
    // The range is known only now: it must have src's length.
    tt_hlo span = v_max(v_sub(end, start), v_const(start, 0));
    tt_hlo count = span ? v_div(v_addc(span, (double)(step - 1)), v_const(span, (double)step)) : NULL;
    tt_device_assert(r, v_eqc(count, (double)length), TT_ERR_RUNTIME,
                     "expected src to have a size equal to the slice of self. src size = %s",
                     src ? tt_dims_text(src->dims, src->rank).text : "");
  }
  tt_ret_like(r, 0, replace_range(r, self, src, dim, start, step), "self");
}

// ---- diagonals ----
typedef struct diagonal {
  int64_t offset;
  int32_t dim1, dim2;
} diagonal;

static bool read_diagonal(tt_rule *r, int32_t rank, diagonal *d) {
  d->offset = tt_int(r, "offset", 0);
  d->dim1 = tt_dim(r, "dim1", rank);
  d->dim2 = tt_dim(r, "dim2", rank);
  if (!tt_failed(r) && d->dim1 == d->dim2) {
    tt_fail(r, TT_ERR_RUNTIME, "diagonal dimensions cannot be identical %" PRId64 ", %" PRId64, tt_int(r, "dim1", 0),
            tt_int(r, "dim2", 0));
  }
  return !tt_failed(r);
}

static int64_t diagonal_length(const int64_t *sizes, const diagonal *d) {
  const int64_t rows = sizes[d->dim1] + (d->offset < 0 ? d->offset : 0);
  const int64_t columns = sizes[d->dim2] - (d->offset > 0 ? d->offset : 0);
  const int64_t length = rows < columns ? rows : columns;
  return length > 0 ? length : 0;
}

// x with the diagonal replaced by `values`, whose last dim runs along it.
static tt_hlo replace_diagonal(tt_rule *r, tt_hlo x, tt_hlo values, const diagonal *d) {
  if (!x || !values) {
    return NULL;
  }
  const int64_t length = diagonal_length(x->dims, d);
  bool fits = values->rank == x->rank - 1 && values->dims[values->rank - 1] == length;
  int32_t mapping[V_DIMS], next = 0;
  for (int32_t i = 0; i < x->rank && fits; i++) {
    if (i != d->dim1 && i != d->dim2) {
      fits = values->dims[next] == x->dims[i];
      mapping[next++] = i;
    }
  }
  if (!fits) {
    tt_fail(r, TT_ERR_RUNTIME, "expected src to have a size equal to the slice of self. src size = %s, self size = %s",
            tt_dims_text(values->dims, values->rank).text, tt_dims_text(x->dims, x->rank).text);
    return NULL;
  }
  if (length == 0) {
    return x;
  }
  // The k-th element stands at row k, or, below the main diagonal, at column k.
  const int32_t along = d->offset >= 0 ? d->dim1 : d->dim2;
  mapping[next] = along;
  tt_hlo padded = v_pad0(values, values->rank - 1, 0, x->dims[along] - length, 0);
  tt_hlo everywhere = tt_hlo_broadcast_in_dim(padded, x->dims, x->rank, mapping);
  tt_hlo row = v_iota(x, TT_S32, d->dim1), column = v_iota(x, TT_S32, d->dim2);
  return v_if(v_eq(v_addc(row, (double)d->offset), column), everywhere, x);
}

static void build_diagonal_backward(tt_rule *r) {
  int32_t rank;
  const int64_t *sizes = tt_ints(r, "input_sizes", &rank);
  tt_hlo grad = tt_in(r, "grad_output");
  diagonal d;
  if (grad && read_diagonal(r, rank, &d)) {
    tt_ret(r, 0, replace_diagonal(r, tt_hlo_const(tt_b(r), grad->dtype, 0, sizes, rank), grad, &d));
  }
}

static void build_diagonal_scatter(tt_rule *r) {
  tt_hlo self = tt_in(r, "self");
  diagonal d;
  if (self && read_diagonal(r, self->rank, &d)) {
    tt_ret_like(r, 0, replace_diagonal(r, self, tt_in_as(r, "src", self->dtype), &d), "self");
  }
}

static void build_diag_embed(tt_rule *r) {
  tt_hlo self = tt_in(r, "self");
  diagonal d;
  if (!self || !read_diagonal(r, self->rank + 1, &d)) {
    return;
  }
  int64_t dims[V_DIMS];
  if (d.offset < -INT32_MAX || d.offset > INT32_MAX) {
    tt_fail(r, TT_ERR_RUNTIME, "the offset %lld is too large", (long long)d.offset);
    return;
  }
  const int64_t shift = d.offset < 0 ? -d.offset : d.offset, size = self->dims[self->rank - 1] + shift;
  for (int32_t i = 0, next = 0; i <= self->rank; i++) {
    dims[i] = i == d.dim1 || i == d.dim2 ? size : self->dims[next++];
  }
  tt_ret(r, 0, replace_diagonal(r, tt_hlo_const(tt_b(r), self->dtype, 0, dims, self->rank + 1), self, &d));
}

// ---- unfold ----
enum { MAX_OVERLAP = 64 };

// Windows [..., count, size, ...] at `dim`, `step` apart, added up where they overlap. Elements are grouped by step:
// element q * step + s of window w belongs to block w + q.
static tt_hlo add_windows(tt_hlo windows, int32_t dim, int64_t step) {
  if (!windows) {
    return NULL;
  }
  const int64_t count = windows->dims[dim], size = windows->dims[dim + 1], overlap = (size + step - 1) / step;
  tt_hlo padded = v_unsqueeze(v_pad0(windows, dim + 1, 0, overlap * step - size, 0), dim + 2);
  int64_t dims[V_DIMS];
  if (!padded) {
    return NULL;
  }
  memcpy(dims, padded->dims, sizeof(*dims) * (size_t)padded->rank);
  dims[dim + 1] = overlap;
  dims[dim + 2] = step;
  tt_hlo groups = tt_hlo_reshape(padded, dims, padded->rank), sum = NULL;
  for (int64_t q = 0; q < overlap; q++) {
    tt_hlo part = v_squeeze(tt_hlo_slice_dim(groups, dim + 1, q, q + 1, 1), dim + 1);
    part = v_pad0(part, dim, q, overlap - 1 - q, 0);
    sum = sum ? v_add(sum, part) : part;
  }
  memmove(dims + dim + 1, dims + dim + 3, sizeof(*dims) * (size_t)(padded->rank - dim - 3));
  dims[dim] = (count + overlap - 1) * step;
  return tt_hlo_reshape(sum, dims, padded->rank - 2);
}

// The same by a scatter, for long windows with a small step.
static tt_hlo scatter_windows(tt_rule *r, tt_hlo windows, tt_hlo zeros, int32_t dim, int64_t step) {
  if (!windows || !zeros) {
    return NULL;
  }
  const int64_t pair[] = {windows->dims[dim], windows->dims[dim + 1]};
  const tt_dtype type = v_position_type(zeros->dims[dim]);
  tt_hlo window = tt_hlo_iota(tt_b(r), type, pair, 2, 0), element = tt_hlo_iota(tt_b(r), type, pair, 2, 1);
  tt_hlo at = v_flat(v_add(v_mulc(window, (double)step), element));
  int64_t dims[V_DIMS];
  memcpy(dims, windows->dims, sizeof(*dims) * (size_t)(dim + 1));
  dims[dim] *= pair[1];
  memcpy(dims + dim + 1, windows->dims + dim + 2, sizeof(*dims) * (size_t)(windows->rank - dim - 2));
  return tt_put_slices(TT_SCATTER_ADD, zeros, dim, at, tt_hlo_reshape(windows, dims, windows->rank - 1));
}

static void build_unfold_backward(tt_rule *r) {
  int32_t rank;
  const int64_t *sizes = tt_ints(r, "input_sizes", &rank), size = tt_int(r, "size", 1), step = tt_int(r, "step", 1);
  tt_hlo grad = tt_in(r, "grad_in");
  tt_ints_numel(r, "input_sizes");  // fails for sizes that are none
  const int32_t dim = tt_dim(r, "dim", rank);
  if (!grad || tt_failed(r)) {
    return;
  }
  if (rank == 0) {
    tt_ret(r, 0, tt_hlo_reshape(grad, NULL, 0));
    return;
  }
  tt_hlo windows = v_last_to_dim(tt_cast(grad, tt_sum_type(grad->dtype)), dim + 1), result;
  if (step > INT32_MAX || size > INT32_MAX) {
    tt_fail(r, TT_ERR_RUNTIME, "size %lld and step %lld are too large", (long long)size, (long long)step);
    return;
  }
  if (!windows || windows->rank != rank + 1 || size < 1 || step < 1 || tt_hlo_numel(grad) == 0) {
    tt_ret(r, 0, tt_hlo_const(tt_b(r), grad->dtype, 0, sizes, rank));
    return;
  }
  if (size / step < MAX_OVERLAP) {
    result = add_windows(windows, dim, step);
    result = result ? v_pad0(result, dim, 0, sizes[dim] - result->dims[dim], 0) : NULL;
  } else {
    result = scatter_windows(r, windows, tt_hlo_const(tt_b(r), windows->dtype, 0, sizes, rank), dim, step);
  }
  tt_ret(r, 0, tt_cast(result, grad->dtype));
}

const tt_rule_entry tt_rules_view_grad[] = {
    {.name = "aten::select_backward", .build = build_select_backward, .dynamic_args = "index"},
    {.name = "aten::select_scatter", .build = build_select_scatter, .dynamic_args = "index"},
    {.name = "aten::slice_backward", .build = build_slice_backward, .dynamic_args = "start,end"},
    {.name = "aten::slice_scatter", .build = build_slice_scatter, .dynamic_args = "start,end"},
    {.name = "aten::diagonal_backward", .build = build_diagonal_backward},
    {.name = "aten::diagonal_scatter", .build = build_diagonal_scatter},
    {.name = "aten::diag_embed", .build = build_diag_embed},
    {.name = "aten::unfold_backward", .build = build_unfold_backward},
    {.name = NULL},
};
