// Fourier transforms. XLA transforms the last 1 to 3 dims, its inverses divide by their length. Layouts of results are
// those of ATen/native/mkl/SpectralOps.cpp: batch dims by stride, then the transformed ones.
#include <math.h>

#include "aten/dims.h"

enum { MAX_AT_ONCE = 3 };
enum { NORM_NONE, NORM_BY_ROOT_N, NORM_BY_N };

typedef struct layout {  // dims in memory, outermost first
  int32_t order[TT_MAX_RANK], rank;
} layout;

static bool contains(const int32_t *dims, int32_t count, int32_t dim) {
  for (int32_t i = 0; i < count; i++) {
    if (dims[i] == dim) {
      return true;
    }
  }
  return false;
}

static layout layout_of(const tt_operand *x) {
  layout l = {.rank = x->ndim};
  for (int32_t d = 0; d < x->ndim; d++) {
    int32_t at = d;
    while (at > 0 && x->strides[l.order[at - 1]] < x->strides[d]) {
      l.order[at] = l.order[at - 1];
      at--;
    }
    l.order[at] = d;
  }
  return l;
}

// The layout after a transform of these dims (`last`: the dim that stays innermost, or -1).
static layout transformed(const layout *l, const int32_t *dims, int32_t count, int32_t last) {
  layout next = {.rank = l->rank};
  int32_t at = 0;
  for (int32_t pass = 0; pass < 2; pass++) {
    for (int32_t i = 0; i < l->rank; i++) {
      const int32_t d = l->order[i];
      if (d != last && contains(dims, count, d) == (pass == 1)) {
        next.order[at++] = d;
      }
    }
  }
  if (last >= 0) {
    next.order[at++] = last;
  }
  return next;
}

// ---- a form for TPUs, whose compiler has no FFT of float64: a product with the matrix of the transform ----

// exp(sign 2 pi i j k / n), j and k from 0 to n - 1. jk is reduced modulo n as an integer, so that angles are exact to
// the last place.
static tt_hlo roots_of_unity(tt_hlo_builder *b, int64_t n, double sign) {
  const int64_t dims[] = {n, n};
  tt_hlo j = tt_hlo_iota(b, TT_S64, dims, 2, 0), k = tt_hlo_iota(b, TT_S64, dims, 2, 1);
  tt_hlo angle = tt_cast(tt_hlo_binary(TT_REMAINDER, v_mul(j, k), v_const(j, (double)n)), TT_F64);
  angle = v_mulc(angle, sign * 6.283185307179586476925286766559 / (double)n);
  return tt_hlo_complex(tt_hlo_unary(TT_COS, angle), tt_hlo_unary(TT_SIN, angle));
}

// The plain sum along one dim, of any length; for an inverse divided by the length.
static tt_hlo product_along(tt_hlo x, int32_t dim, bool forward) {
  tt_hlo roots = x ? roots_of_unity(tt_hlo_builder_of(x), x->dims[dim], forward ? -1 : 1) : NULL;
  const int32_t first = 0;
  tt_hlo_dot_dims by = {.lhs_contract = &dim, .rhs_contract = &first, .contract_count = 1};
  tt_hlo y = tt_hlo_dot_general(x, roots, &by, TT_PRECISION_HIGHEST, TT_C128);  // the dim is now the last
  int32_t back[TT_MAX_RANK];
  for (int32_t i = 0; y && i < y->rank; i++) {
    back[i] = i < dim ? i : i == dim ? y->rank - 1 : i - 1;
  }
  y = y ? tt_hlo_transpose(y, back) : NULL;
  return y && !forward ? v_mulc(y, 1 / (double)y->dims[dim]) : y;
}

static tt_hlo first_along(tt_hlo x, int32_t dim, int64_t from, int64_t to) {
  int64_t start[TT_MAX_RANK] = {0}, limit[TT_MAX_RANK];
  if (!x) {
    return NULL;
  }
  memcpy(limit, x->dims, sizeof *limit * (size_t)x->rank);
  start[dim] = from;
  limit[dim] = to;
  return tt_hlo_slice(x, start, limit, NULL);
}

// The other half of a spectrum of a real signal: conjugates, in reverse order.
static tt_hlo both_sides(tt_hlo x, int32_t dim, int64_t length) {
  tt_hlo rest = first_along(x, dim, 1, (length + 1) / 2);
  if (!rest || !rest->dims[dim]) {
    return x;
  }
  rest = tt_hlo_reverse(rest, &dim, 1);
  rest = tt_hlo_complex(tt_hlo_unary(TT_REAL, rest), v_neg(tt_hlo_unary(TT_IMAG, rest)));
  return tt_hlo_concatenate((tt_hlo[]){x, rest}, 2, dim);
}

static tt_hlo transform_by_products(tt_rule *r, tt_hlo_fft_kind kind, tt_hlo x, const int32_t *dims,
                                    const int64_t *lengths, int32_t count) {
  for (int32_t i = 0; i < count; i++) {
    if (!tt_tpu_has(r, TT_F64, lengths[i])) {
      return NULL;
    }
  }
  if (kind == TT_RFFT) {
    x = tt_cast(x, TT_C128);
  } else if (kind == TT_IRFFT) {
    x = both_sides(x, dims[count - 1], lengths[count - 1]);
  }
  for (int32_t i = 0; i < count; i++) {
    x = product_along(x, dims[i], kind == TT_FFT || kind == TT_RFFT);
  }
  if (kind == TT_RFFT) {
    return first_along(x, dims[count - 1], 0, lengths[count - 1] / 2 + 1);
  }
  return x && kind == TT_IRFFT ? tt_hlo_unary(TT_REAL, x) : x;
}

// One call to XLA: the dims, at most 3, moved to the end and back. `lengths` are the signal's.
static tt_hlo transform(tt_rule *r, tt_hlo_fft_kind kind, tt_hlo x, const int32_t *dims, const int64_t *lengths,
                        int32_t count) {
  int32_t forth[TT_MAX_RANK], back[TT_MAX_RANK], at = 0;
  if (!x) {
    return NULL;
  }
  if (!tt_rule_is_cpu(r) && tt_dtype_real(x->dtype) == TT_F64) {
    return transform_by_products(r, kind, x, dims, lengths, count);
  }
  for (int32_t d = 0; d < x->rank; d++) {
    if (!contains(dims, count, d)) {
      forth[at++] = d;
    }
  }
  for (int32_t i = 0; i < count; i++) {
    forth[at++] = dims[i];
  }
  for (int32_t i = 0; i < x->rank; i++) {
    back[forth[i]] = i;
  }
  x = tt_hlo_fft(kind, tt_hlo_transpose(x, forth), lengths, count);
  return x ? tt_hlo_transpose(x, back) : NULL;
}

static tt_hlo complex_transform(tt_rule *r, tt_hlo x, const int32_t *dims, int32_t count, bool forward) {
  for (int32_t done = 0; done < count && x; done += MAX_AT_ONCE) {
    const int32_t now = count - done < MAX_AT_ONCE ? count - done : MAX_AT_ONCE;
    int64_t lengths[MAX_AT_ONCE];
    for (int32_t i = 0; i < now; i++) {
      lengths[i] = x->dims[dims[done + i]];
    }
    x = transform(r, forward ? TT_FFT : TT_IFFT, x, dims + done, lengths, now);
  }
  return x;
}

// The factor PyTorch applies to the plain sum over n points; an inverse of XLA's has divided by n already.
static tt_hlo normalized(tt_rule *r, tt_hlo x, double n, bool inverse) {
  const int64_t mode = tt_int(r, "normalization", NORM_NONE);
  const double factor = (mode == NORM_BY_N ? 1 / n : mode == NORM_BY_ROOT_N ? 1 / sqrt(n) : 1) * (inverse ? n : 1);
  return factor == 1 || !x ? x : v_mulc(x, factor);
}

static int32_t read_dims(tt_rule *r, int32_t rank, int32_t *dims) {
  int32_t count;
  const int64_t *values = tt_ints(r, "dim", &count);
  for (int32_t i = 0; i < count && i < TT_MAX_RANK; i++) {
    dims[i] = tt_wrap_dim(r, values[i], rank);
  }
  return count < TT_MAX_RANK ? count : TT_MAX_RANK;
}

static bool check_complex(tt_rule *r, const tt_operand *x) {
  if (x && !tt_dtype_is_complex(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "Only supports complex dtypes, but found: %s", tt_type_name(x->dtype));
  }
  return x && !tt_failed(r);
}

// The layout is that of a new tensor: an empty out= becomes row-major.
static void ret_laid_out(tt_rule *r, tt_hlo y, const layout *l) {
  if (tt_has(r, "out")) {
    tt_ret(r, 0, y);
  } else {
    tt_ret_ordered(r, 0, y, l->order);
  }
}

static void build_c2c(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  int32_t dims[TT_MAX_RANK];
  if (!check_complex(r, x)) {
    return;
  }
  const int32_t count = read_dims(r, x->ndim, dims);
  const bool forward = tt_bool(r, "forward", true);
  tt_hlo y = tt_in(r, "self");
  double n = 1;
  for (int32_t i = 0; i < count; i++) {
    n *= (double)x->sizes[dims[i]];
  }
  if (count && tt_hlo_numel(y)) {
    y = normalized(r, complex_transform(r, y, dims, count, forward), n, !forward);
  }
  const layout before = layout_of(x), after = transformed(&before, dims, count, -1);
  ret_laid_out(r, y, &after);
}

static tt_hlo empty_complex(tt_rule *r, const tt_operand *x, int32_t last, int64_t size) {
  int64_t dims[TT_MAX_RANK];
  memcpy(dims, x->sizes, sizeof *dims * (size_t)x->ndim);
  dims[last] = size;
  return tt_hlo_const(tt_b(r), tt_dtype_complex(x->dtype), 0, dims, x->ndim);
}

static void build_r2c(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  int32_t dims[TT_MAX_RANK];
  if (!x) {
    return;
  }
  if (!tt_dtype_is_float(x->dtype)) {
    tt_fail(r, TT_ERR_RUNTIME, "Only supports floating-point dtypes, but found: %s", tt_type_name(x->dtype));
    return;
  }
  if (x->dtype != TT_F32 && x->dtype != TT_F64) {
    tt_fail(r, TT_ERR_RUNTIME, "FFT doesn't support tensors of type: %s", tt_type_name(x->dtype));
    return;
  }
  const int32_t count = read_dims(r, x->ndim, dims), last = count ? dims[count - 1] : -1;
  if (count == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "at least one dimension must be transformed");
    return;
  }
  const bool one_sided = tt_bool(r, "onesided", true);
  const int64_t length = x->sizes[last];
  tt_hlo y = tt_in(r, "self");
  double n = 1;
  for (int32_t i = 0; i < count; i++) {
    n *= (double)x->sizes[dims[i]];
  }
  if (tt_hlo_numel(y) == 0) {
    y = empty_complex(r, x, last, one_sided ? length / 2 + 1 : length);
  } else if (one_sided) {
    y = complex_transform(r, transform(r, TT_RFFT, y, &last, &length, 1), dims, count - 1, true);
    y = normalized(r, y, n, false);
  } else {
    y = normalized(r, complex_transform(r, tt_cast(y, tt_dtype_complex(x->dtype)), dims, count, true), n, false);
  }
  const layout before = layout_of(x), after = transformed(&before, dims, count - 1, last);
  ret_laid_out(r, y, &after);
}

static void build_c2r(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self");
  int32_t dims[TT_MAX_RANK];
  if (!check_complex(r, x)) {
    return;
  }
  const int32_t count = read_dims(r, x->ndim, dims), last = count ? dims[count - 1] : -1;
  const int64_t length = tt_int(r, "last_dim_size", 0), half = length / 2 + 1;
  if (count == 0 || length < 1) {
    tt_fail(r, TT_ERR_RUNTIME, "Invalid number of data points (%lld) specified", (long long)length);
    return;
  }
  tt_hlo y = tt_in(r, "self");
  double n = (double)length;
  for (int32_t i = 0; i + 1 < count; i++) {
    n *= (double)x->sizes[dims[i]];
  }
  if (tt_hlo_numel(y) == 0) {
    int64_t sizes[TT_MAX_RANK];
    memcpy(sizes, x->sizes, sizeof *sizes * (size_t)x->ndim);
    sizes[last] = length;
    y = tt_hlo_const(tt_b(r), tt_dtype_real(x->dtype), 0, sizes, x->ndim);
  } else {
    y = v_pad0(y, last, 0, half - x->sizes[last], 0);
    y = transform(r, TT_IRFFT, complex_transform(r, y, dims, count - 1, false), &last, &length, 1);
    y = normalized(r, y, n, true);
  }
  layout l = layout_of(x);
  l = count > 1 ? transformed(&l, dims, count - 1, -1) : l;
  l = transformed(&l, &last, 1, -1);
  ret_laid_out(r, y, &l);
}

const tt_rule_entry tt_rules_fft[] = {
    {.name = "aten::_fft_c2c", .build = build_c2c, .out_dtype = TT_OUT_ANY},
    {.name = "aten::_fft_r2c", .build = build_r2c, .out_dtype = TT_OUT_ANY},
    {.name = "aten::_fft_c2r", .build = build_c2r, .out_dtype = TT_OUT_ANY},
    {0},
};
