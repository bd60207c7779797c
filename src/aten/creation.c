// Fills, ranges and index tables.
#include <math.h>
#include <stdlib.h>

#include "aten/internal.h"
#include "aten/pointwise.h"

// ---- fills ----

static void build_fill(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  bool by_tensor = tt_scalar_type(r, "value") == TT_DTYPE_INVALID;
  const tt_operand *value = by_tensor ? tt_operand_of(r, "value") : NULL;
  if (!self || (by_tensor && !value)) {
    return;
  }
  if (value && value->ndim != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "fill_ only supports 0-dimension value tensor but got tensor with %d dimensions.",
            value->ndim);
    return;
  }
  tt_dtype from = value ? value->dtype : tt_scalar_type(r, "value");
  if (!value && tt_dtype_is_complex(from) && !tt_dtype_is_complex(self->dtype) && self->dtype != TT_PRED) {
    tt_fail_overflow(r, self->dtype);
    return;
  }
  tt_ret(r, 0, tt_hlo_broadcast_to(tt_in_number(r, "value", self->dtype), self->sizes, self->ndim));
}

static void build_zero(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (self) {
    tt_ret(r, 0, tt_hlo_const(tt_b(r), self->dtype, 0, self->sizes, self->ndim));
  }
}

// ---- ranges: they write `out` ----

// The result in out's shape if that holds as many elements.
static void ret_out(tt_rule *r, tt_hlo value) {
  const tt_operand *out = tt_operand_of(r, "out");
  int64_t numel = 1;
  for (int32_t i = 0; out && i < out->ndim; i++) {
    numel *= out->sizes[i];
  }
  if (out && value && numel == value->dims[0]) {
    value = tt_hlo_reshape(value, out->sizes, out->ndim);
  }
  tt_ret(r, 0, value);
}

typedef struct {
  double start, end, step;
} range_call;

static bool range_fits(tt_rule *r, const range_call *c, tt_dtype dtype, const char *kernel) {
  if (dtype == TT_PRED || tt_dtype_is_complex(dtype)) {
    tt_fail_dtype(r, kernel, dtype);
  } else if (!(c->step > 0 || c->step < 0)) {
    tt_fail(r, TT_ERR_RUNTIME, "step must be nonzero");
  } else if (!isfinite(c->start) || !isfinite(c->end)) {
    tt_fail(r, TT_ERR_RUNTIME, "unsupported range: %g -> %g", c->start, c->end);
  } else if ((c->step > 0 && c->end < c->start) || (c->step < 0 && c->end > c->start)) {
    tt_fail(r, TT_ERR_RUNTIME, "upper bound and lower bound inconsistent with step sign");
  }
  return !tt_failed(r);
}

static tt_hlo iota(tt_rule *r, tt_dtype dtype, int64_t size) { return tt_hlo_iota(tt_b(r), dtype, &size, 1, 0); }

// arange (RangeFactories.cpp, arange_out) and range, which includes its end. The ends are operands; what depends on
// them is how many elements there are, and whether float32 holds every one exactly.
enum { R_ARANGE, R_RANGE };

static double number_of(const tt_arg *arg) { return arg->tag == TT_ARG_NUMBER ? tt_number_double(&arg->u.number) : 1; }

static int64_t int_of(const tt_arg *arg) {
  if (arg->tag != TT_ARG_NUMBER || arg->u.number.type != TT_F64) {
    return arg->tag != TT_ARG_NUMBER ? 1 : arg->u.number.u.i;
  }
  double x = arg->u.number.u.f[0];
  return x >= 0x1p63 ? INT64_MAX : x > -0x1p63 ? (int64_t)x : INT64_MIN;  // NaN: as the CPU converts
}

// -1 where there is no size.
static int64_t range_size(const tt_arg *args, tt_dtype dtype, bool inclusive) {
  double start = number_of(&args[0]), end = number_of(&args[1]), step = number_of(&args[2]);
  double size = inclusive ? floor((end - start) / step) + 1 : ceil((end - start) / step);
  if (dtype == TT_S64 && !inclusive && int_of(&args[2]) != 0) {
    __int128 by = int_of(&args[2]), span = (__int128)int_of(&args[1]) - int_of(&args[0]);
    size = (double)((span + by - (by > 0 ? 1 : -1)) / by);
  }
  return size >= 0 && size < 0x1p61 ? (int64_t)size : -1;  // more than any memory; less than would overflow in the key
}

static bool exact_in_f32(const tt_arg *args, int64_t size) {
  double start = number_of(&args[0]), step = number_of(&args[2]);
  return start == floor(start) && step == floor(step) && fabs(start) + fabs(step) * (double)size < 16777216;
}

static int64_t range_structure(const tt_arg *args, int32_t count, bool inclusive) {
  tt_dtype dtype = count == 4 && args[3].tag == TT_ARG_TENSOR ? (tt_dtype)args[3].u.tensor.dtype : TT_DTYPE_INVALID;
  int64_t size = range_size(args, dtype, inclusive);
  return size < 0 ? -1 : 2 * size + exact_in_f32(args, size);
}

static int64_t arange_structure(const tt_arg *args, int32_t count) { return range_structure(args, count, false); }
static int64_t inclusive_structure(const tt_arg *args, int32_t count) { return range_structure(args, count, true); }

static void build_range(tt_rule *r) {
  bool inclusive = tt_rule_kind(r) == R_RANGE;
  const tt_operand *out = tt_operand_of(r, "out");
  if (!out) {
    return;
  }
  range_call c = {tt_static_double(r, "start", 0), tt_static_double(r, "end", 0), tt_static_double(r, "step", 1)};
  if (!range_fits(r, &c, out->dtype, inclusive ? "range_cpu" : "arange_cpu")) {
    return;
  }
  bool is_int = tt_dtype_is_int(out->dtype);
  if (is_int && int_of(tt_rule_arg(r, "step")) == 0) {
    tt_fail(r, TT_ERR_VALUE, "step must be nonzero");
    return;
  }
  int64_t size = range_size(r->call->args, out->dtype, inclusive);
  if (size < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "invalid size, possible overflow?");
    return;
  }
  bool narrow = exact_in_f32(r->call->args, size) && out->dtype != TT_F64;
  tt_dtype compute = is_int ? TT_S64 : narrow ? TT_F32 : TT_F64;
  tt_hlo i = iota(r, compute, size);
  tt_hlo start = v_like(tt_scalar(r, "start", compute), i), step = v_like(tt_scalar(r, "step", compute), i);
  ret_out(r, tt_cast(v_add(v_mul(i, step), start), out->dtype));
}

// ---- linspace, logspace: from the nearer end, as the CPU kernels ----

tt_hlo tt_linspace(tt_hlo start, tt_hlo end, int64_t steps) {
  if (!start || !end) {
    return NULL;
  }
  const tt_dtype compute = start->dtype, real = tt_dtype_real(compute);
  if (steps == 1) {
    return tt_hlo_broadcast_to(start, &steps, 1);
  }
  tt_hlo range = v_sub(end, start);
  tt_hlo step = tt_dtype_is_complex(compute) ? v_div(range, v_const(range, (double)(steps - 1)))
                                             : v_divc(range, (double)(steps - 1));
  tt_hlo i = tt_hlo_iota(tt_hlo_builder_of(start), real, &steps, 1, 0);
  tt_hlo from_start = tt_cast(i, compute), from_end = tt_cast(v_csub((double)(steps - 1), i), compute);
  tt_hlo wide_step = v_like(step, from_start);
  tt_hlo low = v_add(v_like(start, from_start), v_mul(wide_step, from_start));
  tt_hlo high = v_sub(v_like(end, from_start), v_mul(wide_step, from_end));
  return v_if(v_ltc(i, (double)(steps / 2)), low, high);
}

enum { S_LINEAR, S_LOG };

static void build_space(tt_rule *r) {
  const tt_operand *out = tt_operand_of(r, "out");
  int64_t steps = tt_int(r, "steps", 0);
  if (!out) {
    return;
  }
  if (steps < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "number of steps must be non-negative");
    return;
  }
  bool is_log = tt_rule_kind(r) == S_LOG;
  if (out->dtype == TT_PRED) {
    tt_fail_dtype(r, is_log ? "logspace_cpu" : "linspace_cpu", out->dtype);
    return;
  }
  tt_dtype compute = tt_dtype_is_int(out->dtype) ? TT_F64 : tt_opmath(out->dtype);
  // Integer types round their ends first.
  tt_hlo start = tt_cast(tt_scalar(r, "start", out->dtype), compute);
  tt_hlo value = tt_linspace(start, tt_cast(tt_scalar(r, "end", out->dtype), compute), steps);
  if (is_log) {
    value = tt_hlo_binary(TT_POWER, v_like(tt_scalar(r, "base", compute), value), value);
  }
  ret_out(r, tt_cast(value, out->dtype));
}

// ---- eye ----

static void build_eye(tt_rule *r) {
  const tt_operand *out = tt_operand_of(r, "out");
  int64_t n = tt_int(r, "n", 0), m = tt_int(r, "m", n);
  if (n < 0 || m < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "%s must be greater or equal to 0, got %lld", n < 0 ? "n" : "m",
            (long long)(n < 0 ? n : m));
    return;
  }
  if (out) {
    const int64_t dims[] = {n, m};
    tt_hlo diagonal = v_eq(tt_hlo_iota(tt_b(r), TT_S32, dims, 2, 0), tt_hlo_iota(tt_b(r), TT_S32, dims, 2, 1));
    tt_ret(r, 0, tt_cast(diagonal, out->dtype));
  }
}

// ---- tril_indices, triu_indices ----

typedef struct {
  int64_t rows, cols, offset, count;
  bool upper;
} triangle;

static int64_t clamp_int(int64_t x, int64_t low, int64_t high) { return x < low ? low : x > high ? high : x; }

static int64_t first_col(const triangle *t, int64_t row) {
  return t->upper ? clamp_int(row + t->offset, 0, t->cols) : 0;
}
static int64_t row_length(const triangle *t, int64_t row) {
  return t->upper ? t->cols - first_col(t, row) : clamp_int(row + t->offset + 1, 0, t->cols);
}

// A table in the program for small ones.
static tt_hlo triangle_table(tt_rule *r, const triangle *t) {
  int64_t *table = malloc(sizeof *table * 2 * (size_t)(t->count + 1));
  if (!table) {
    return NULL;
  }
  int64_t at = 0;
  for (int64_t row = 0; row < t->rows; row++) {
    for (int64_t i = 0; i < row_length(t, row); i++, at++) {
      table[at] = row;
      table[t->count + at] = first_col(t, row) + i;
    }
  }
  tt_hlo flat = tt_hlo_const_ints(tt_b(r), TT_S64, table, 2 * t->count);
  free(table);
  return tt_hlo_reshape(flat, (const int64_t[]){2, t->count}, 2);
}

// Row of element k: how many rows end at or before k; column: k less where that row begins. The rows' bounds are
// piecewise quadratic, so they are summed from the rows' lengths rather than solved for.
static tt_hlo triangle_search(tt_rule *r, const triangle *t) {
  int64_t *ends = malloc(sizeof *ends * (size_t)(t->rows + 1));
  int64_t *shifts = malloc(sizeof *shifts * (size_t)(t->rows + 1));
  tt_hlo result = NULL;
  if (ends && shifts) {
    int64_t total = 0;
    for (int64_t row = 0; row < t->rows; row++) {
      int64_t shift = first_col(t, row) - total;
      shifts[row] = row ? shift - (first_col(t, row - 1) - (total - row_length(t, row - 1))) : shift;
      total += row_length(t, row);
      ends[row] = total;
    }
    tt_hlo_builder *b = tt_b(r);
    const int64_t dims[] = {t->count, t->rows};
    tt_hlo k = tt_hlo_iota(b, TT_S64, dims, 2, 0);
    tt_hlo bounds = tt_hlo_broadcast_in_dim(tt_hlo_const_ints(b, TT_S64, ends, t->rows), dims, 2, (int32_t[]){1});
    const int32_t last = 1;
    tt_hlo row = tt_hlo_reduce(TT_SUM, tt_cast(v_ge(k, bounds), TT_S64), &last, 1);
    // Each row passed adds its step to the shift from k to the column.
    tt_hlo steps = tt_hlo_broadcast_in_dim(tt_hlo_const_ints(b, TT_S64, shifts, t->rows), dims, 2, (int32_t[]){1});
    tt_hlo reached = v_le(tt_hlo_iota(b, TT_S64, dims, 2, 1), tt_hlo_broadcast_in_dim(row, dims, 2, (int32_t[]){0}));
    tt_hlo shift = tt_hlo_reduce(TT_SUM, v_if(reached, steps, v_const(steps, 0)), &last, 1);
    tt_hlo col = v_add(iota(r, TT_S64, t->count), shift);
    const int64_t one[] = {1, t->count};
    result = tt_hlo_concatenate((const tt_hlo[]){tt_hlo_reshape(row, one, 2), tt_hlo_reshape(col, one, 2)}, 2, 0);
  }
  free(ends);
  free(shifts);
  return result;
}

static void build_triangle(tt_rule *r) {
  enum { MAX_TABLE = 4096 };
  triangle t = {tt_int(r, "row", 0), tt_int(r, "col", 0), tt_int(r, "offset", 0), 0, tt_rule_kind(r)};
  if (t.rows < 0 || t.cols < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "%s must be non-negative, got%lld", t.rows < 0 ? "row" : "col",
            (long long)(t.rows < 0 ? t.rows : t.cols));
    return;
  }
  const int64_t most = INT64_C(1) << 20;
  if (t.rows > most || t.cols > INT64_C(1) << 40) {
    tt_fail(r, TT_ERR_RUNTIME, "at most %lld rows are supported on tpu", (long long)most);
    return;
  }
  t.offset = clamp_int(t.offset, -most, INT64_C(1) << 40);
  for (int64_t row = 0; row < t.rows; row++) {
    t.count += row_length(&t, row);
  }
  tt_hlo value = t.count <= MAX_TABLE ? triangle_table(r, &t) : triangle_search(r, &t);
  tt_ret(r, 0, tt_cast(value, tt_dtype_arg(r, "dtype", TT_S64)));
}

#define KIND(op_name, function, which) {.name = "aten::" op_name, .build = function, .kind = which}
#define OVERWRITE(op_name, function) {.name = "aten::" op_name, .build = function, .overwrites = true}

const tt_rule_entry tt_rules_creation[] = {
    OVERWRITE("fill_.Scalar", build_fill),
    OVERWRITE("fill_.Tensor", build_fill),
    OVERWRITE("zero_", build_zero),
    {.name = "aten::arange.start_out",
     .out_dtype = TT_OUT_ANY,
     .build = build_range,
     .kind = R_ARANGE,
     .structure = arange_structure},
    {.name = "aten::range.out",
     .out_dtype = TT_OUT_ANY,
     .build = build_range,
     .kind = R_RANGE,
     .structure = inclusive_structure},
    KIND("linspace.out", build_space, S_LINEAR),
    KIND("logspace.out", build_space, S_LOG),
    KIND("eye.out", build_eye, 0),
    KIND("eye.m_out", build_eye, 0),
    KIND("tril_indices", build_triangle, 0),
    KIND("triu_indices", build_triangle, 1),
    {.name = NULL},
};
