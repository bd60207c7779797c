// Products of matrices and vectors. The composites over them (linear, matmul, einsum, outer, ...) decompose by
// themselves.
#include <inttypes.h>

#include "aten/dims.h"
#include "aten/host.h"
#include "kernels/handlers.h"

// ---- shared ----

static bool is_2d(const tt_operand *x) { return x && x->ndim == 2; }

// A product that TPUs have no instruction for: 64-bit integers, as one fused loop.
static tt_hlo product_by_sums(tt_hlo x, tt_hlo y, const tt_hlo_dot_dims *d) {
  int64_t dims[V_DIMS];
  int32_t x_to[V_DIMS], y_to[V_DIMS], over[V_DIMS], rank = d->batch_count;
  memset(x_to, -1, sizeof x_to);
  memset(y_to, -1, sizeof y_to);
  for (int32_t i = 0; i < d->batch_count; i++) {
    dims[i] = x->dims[d->lhs_batch[i]];
    x_to[d->lhs_batch[i]] = y_to[d->rhs_batch[i]] = i;
  }
  for (int32_t i = 0; i < d->contract_count; i++) {
    x_to[d->lhs_contract[i]] = y_to[d->rhs_contract[i]] = V_DIMS;
  }
  for (int32_t side = 0; side < 2; side++) {
    tt_hlo z = side ? y : x;
    int32_t *to = side ? y_to : x_to;
    for (int32_t i = 0; i < z->rank; i++) {
      if (to[i] < 0) {
        dims[rank] = z->dims[i];
        to[i] = rank++;
      }
    }
  }
  for (int32_t i = 0; i < d->contract_count; i++) {
    dims[rank] = x->dims[d->lhs_contract[i]];
    over[i] = x_to[d->lhs_contract[i]] = y_to[d->rhs_contract[i]] = rank;
    rank++;
  }
  tt_hlo p = v_mul(tt_hlo_broadcast_in_dim(x, dims, rank, x_to), tt_hlo_broadcast_in_dim(y, dims, rank, y_to));
  return tt_hlo_reduce(TT_SUM, p, over, d->contract_count);
}

// Integers narrower than 32 bits multiply modulo 2^32, which is exact modulo the narrower power too. The result is in
// the type to accumulate in; the caller rounds once.
static tt_hlo product(tt_rule *r, tt_hlo x, tt_hlo y, const tt_hlo_dot_dims *dims) {
  if (!x || !y) {
    return NULL;
  }
  const tt_dtype dtype = x->dtype;
  tt_dtype result = TT_DTYPE_INVALID;
  if (tt_dtype_is_int(dtype) && tt_dtype_size(dtype) == 8 && !tt_rule_is_cpu(r)) {
    return product_by_sums(x, y, dims);
  }
  if (dtype == TT_BF16 && !tt_rule_is_cpu(r)) {  // not every shape has a kernel in XLA:CPU
    result = TT_F32;
  } else if (tt_opmath(dtype) != dtype || (tt_dtype_is_int(dtype) && tt_dtype_size(dtype) < 4)) {
    const tt_dtype wide = tt_dtype_is_int(dtype) ? TT_S32 : TT_F32;
    x = tt_hlo_convert(x, wide);
    y = tt_hlo_convert(y, wide);
  }
  return tt_hlo_dot_general(x, y, dims, tt_matmul_precision(r), result);
}

static tt_hlo contract(tt_rule *r, tt_hlo x, tt_hlo y, int32_t x_dim, int32_t y_dim, bool batched) {
  const int32_t first = 0;
  const tt_hlo_dot_dims dims = {
      .lhs_batch = &first,
      .rhs_batch = &first,
      .lhs_contract = &x_dim,
      .rhs_contract = &y_dim,
      .batch_count = batched,
      .contract_count = 1,
  };
  return product(r, x, y, &dims);
}

// x as `dims`, by expand()'s rule and in its words.
static tt_hlo expand(tt_rule *r, tt_hlo x, const int64_t *dims, int32_t rank) {
  if (!x) {
    return NULL;
  }
  if (x->rank > rank) {
    tt_fail(r, TT_ERR_RUNTIME,
            "expand(%s, size=%s): the number of sizes provided (%d) must be greater or equal to the number of "
            "dimensions in the tensor (%d)",
            tt_dims_text(x->dims, x->rank).text, tt_dims_text(dims, rank).text, rank, x->rank);
    return NULL;
  }
  for (int32_t i = 0; i < x->rank; i++) {
    const int32_t d = rank - x->rank + i;
    if (x->dims[i] != 1 && x->dims[i] != dims[d]) {
      tt_fail(r, TT_ERR_RUNTIME,
              "The expanded size of the tensor (%" PRId64 ") must match the existing size (%" PRId64
              ") at non-singleton dimension %d.  Target sizes: %s.  Tensor sizes: %s",
              dims[d], x->dims[i], d, tt_dims_text(dims, rank).text, tt_dims_text(x->dims, x->rank).text);
      return NULL;
    }
  }
  return tt_hlo_broadcast_to(x, dims, rank);
}

// alpha * p + beta * self, in p's dtype. beta == 0 ignores self, NaN and all.
static tt_hlo scale_and_add(tt_rule *r, tt_hlo p) {
  if (!p) {
    return NULL;
  }
  double alpha = 0, beta = 1;
  const bool unit_alpha = !tt_has(r, "alpha") || (tt_scalar_known(r, "alpha", &alpha) && alpha == 1);
  const bool beta_known = !tt_has(r, "beta") || tt_scalar_known(r, "beta", &beta);
  if (!unit_alpha) {
    p = v_mul(p, v_like(tt_scalar(r, "alpha", p->dtype), p));
  }
  tt_hlo self = p ? expand(r, tt_in(r, "self"), p->dims, p->rank) : NULL;
  if (beta_known && beta == 0) {
    return p;
  }
  self = tt_cast(self, p->dtype);
  if (!beta_known || beta != 1) {
    self = v_mul(self, v_like(tt_scalar(r, "beta", p->dtype), self));
  }
  return v_add(p, self);
}

// What the CPU kernels take.
static bool dtype_ok(tt_rule *r, tt_dtype dtype, const char *kernel) {
  if (dtype == TT_PRED || tt_is_barebones_unsigned(dtype) || tt_dtype_size(dtype) == 0 || dtype == TT_F8E4M3FN ||
      dtype == TT_F8E5M2) {
    tt_fail_dtype(r, kernel, dtype);
    return false;
  }
  return true;
}

// The result's dtype: the operands', or that of the .dtype overloads.
static tt_dtype result_dtype(tt_rule *r, tt_dtype dtype) { return tt_dtype_arg(r, "out_dtype", dtype); }

// Multiplications in a product of two matrices that is small: XLA would wake its threads for it.
enum { SMALL_PRODUCT = 1 << 23 };

// XLA:CPU does a batched product on one thread, and copies an operand whose order of dims it dislikes. Half types are
// multiplied in float32 either way.
static bool is_for_host(const tt_rule *r, const tt_operand *x, const tt_operand *y) {
  const int32_t d = x->ndim - 2;
  const int64_t rows = x->sizes[d], depth = x->sizes[d + 1], columns = y->sizes[d + 1];
  if (!tt_rule_has_host_kernels(r) || tt_opmath(x->dtype) != TT_F32 || rows <= 0 || depth <= 0 || columns <= 0) {
    return false;
  }
  return d > 0 ? x->sizes[0] > 1 : (double)rows * (double)depth * (double)columns <= (double)SMALL_PRODUCT;
}

static tt_hlo host_product(tt_rule *r, const char *x_name, const char *y_name) {
  const tt_operand *x = tt_operand_of(r, x_name), *y = tt_operand_of(r, y_name);
  tt_host_call c = {.number_count = 0};
  const int32_t d = x->ndim - 2;
  const int64_t sizes[] = {d > 0 ? x->sizes[0] : 1, x->sizes[d], x->sizes[d + 1], y->sizes[d + 1]};
  for (int32_t i = 0; i < 4; i++) {
    tt_host_number(&c, sizes[i]);
  }
  int64_t strides[TT_MAX_RANK];
  tt_host_view(r, &c, x_name, strides);
  tt_host_strides(&c, strides, x->ndim, 3);
  tt_host_view(r, &c, y_name, strides);
  tt_host_strides(&c, strides, y->ndim, 3);
  tt_host_result result = {.rank = 3, .sizes = {sizes[0], sizes[1], sizes[3]}, .order = {0, 1, 2}};
  if (d == 0) {
    result = (tt_host_result){.rank = 2, .sizes = {sizes[1], sizes[3]}, .order = {0, 1}};
  }
  tt_hlo out;
  tt_host_make(r, &c, TT_HOST_PRODUCT, &result, 1, &out);
  return out;
}

// Of two matrices, or of two batches of them.
static tt_hlo matrix_product(tt_rule *r, const char *x_name, const char *y_name) {
  const tt_operand *x = tt_operand_of(r, x_name), *y = tt_operand_of(r, y_name);
  if (is_for_host(r, x, y)) {
    return host_product(r, x_name, y_name);
  }
  const int32_t d = x->ndim - 2;
  return contract(r, tt_in(r, x_name), tt_in(r, y_name), d + 1, d, d > 0);
}

static void build_mm(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self"), *y = tt_operand_of(r, "mat2");
  if (!is_2d(x) || !is_2d(y)) {
    tt_fail(r, TT_ERR_RUNTIME, "%s must be a matrix", is_2d(x) ? "mat2" : "self");
    return;
  }
  if (x->sizes[1] != y->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "mat1 and mat2 shapes cannot be multiplied (%" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64 ")",
            x->sizes[0], x->sizes[1], y->sizes[0], y->sizes[1]);
    return;
  }
  if (x->dtype != y->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected m1 and m2 to have the same dtype, but got: %s != %s",
            tt_type_meta_name(x->dtype), tt_type_meta_name(y->dtype));
    return;
  }
  if (dtype_ok(r, x->dtype, "addmm_impl_cpu_")) {
    tt_ret(r, 0, tt_cast(matrix_product(r, "self", "mat2"), result_dtype(r, x->dtype)));
  }
}

static bool check_addmm(tt_rule *r, const tt_operand *self, const tt_operand *x, const tt_operand *y) {
  if (self->dtype != y->dtype && !tt_has(r, "out_dtype")) {
    tt_fail(r, TT_ERR_RUNTIME, "self and mat2 must have the same dtype, but got %s and %s", tt_type_name(self->dtype),
            tt_type_name(y->dtype));
  } else if (x->dtype != y->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "mat1 and mat2 must have the same dtype, but got %s and %s", tt_type_name(x->dtype),
            tt_type_name(y->dtype));
  } else if (!is_2d(x) || !is_2d(y)) {
    tt_fail(r, TT_ERR_RUNTIME, "mat%d must be a matrix, got %d-D tensor", is_2d(x) ? 2 : 1,
            is_2d(x) ? y->ndim : x->ndim);
  } else if (x->sizes[1] != y->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "mat1 and mat2 shapes cannot be multiplied (%" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64 ")",
            x->sizes[0], x->sizes[1], y->sizes[0], y->sizes[1]);
  } else {
    return dtype_ok(r, x->dtype, "addmm_impl_cpu_");
  }
  return false;
}

enum { PLAIN, WITH_ACTIVATION };

// GELU in its erf form, which is what the CPU's _addmm_activation applies.
static tt_hlo activation(tt_hlo x, bool use_gelu) {
  if (!use_gelu) {
    return v_max(x, v_const(x, 0));
  }
  tt_hlo e = tt_hlo_unary(TT_ERF, v_mulc(x, 0.70710678118654752440));
  return v_mul(v_mulc(x, 0.5), v_addc(e, 1));
}

static void build_addmm(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self"), *x = tt_operand_of(r, "mat1"), *y = tt_operand_of(r, "mat2");
  if (!self || !x || !y || !check_addmm(r, self, x, y)) {
    return;
  }
  tt_hlo sum = scale_and_add(r, matrix_product(r, "mat1", "mat2"));
  if (tt_rule_kind(r) == WITH_ACTIVATION) {
    sum = activation(sum, tt_bool(r, "use_gelu", false));
  }
  tt_ret(r, 0, tt_cast(sum, result_dtype(r, x->dtype)));
}

static void build_int_mm(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self"), *y = tt_operand_of(r, "mat2"), *out = tt_operand_of(r, "out");
  if (!is_2d(x) || !is_2d(y)) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected %s to be of dimension 2 but got %d", is_2d(x) ? "mat2" : "self",
            is_2d(x) ? y->ndim : x->ndim);
  } else if (x->sizes[1] != y->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME, "self.size(1) needs to match mat2.size(0) but got %" PRId64 " and %" PRId64, x->sizes[1],
            y->sizes[0]);
  } else if (x->dtype != TT_S8 && x->dtype != TT_U8) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected self dtype to be int8 or uint8 but got %s", tt_type_meta_name(x->dtype));
  } else if (y->dtype != TT_S8) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected mat2 dtype to be int8 but got %s", tt_type_meta_name(y->dtype));
  } else if (out && out->dtype != TT_S32) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected result dtype to be of type kInt but got %s", tt_type_meta_name(out->dtype));
  } else if (out && (!is_2d(out) || out->sizes[0] != x->sizes[0] || out->sizes[1] != y->sizes[1])) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected result to be of size %" PRId64 " x %" PRId64, x->sizes[0], y->sizes[1]);
  } else {
    const bool native = !tt_rule_is_cpu(r) && x->dtype == TT_S8;
    tt_hlo a = tt_in(r, "self"), b = tt_in(r, "mat2");
    const int32_t one = 1, zero = 0;
    const tt_hlo_dot_dims dims = {.lhs_contract = &one, .rhs_contract = &zero, .contract_count = 1};
    a = native ? a : tt_hlo_convert(a, TT_S32);
    b = native ? b : tt_hlo_convert(b, TT_S32);
    tt_ret(r, 0, tt_hlo_dot_general(a, b, &dims, TT_PRECISION_DEFAULT, TT_S32));
  }
}

// ---- batches of matrices ----

static bool check_batches(tt_rule *r, const tt_operand *x, const tt_operand *y) {
  if (!x || !y || x->ndim != 3 || y->ndim != 3) {
    tt_fail(r, TT_ERR_RUNTIME, "batch%d must be a 3D tensor", x && x->ndim == 3 ? 2 : 1);
    return false;
  }
  if (y->sizes[0] != x->sizes[0] || y->sizes[1] != x->sizes[2]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Expected size for first two dimensions of batch2 tensor to be: [%" PRId64 ", %" PRId64
            "] but got: [%" PRId64 ", %" PRId64 "].",
            x->sizes[0], x->sizes[2], y->sizes[0], y->sizes[1]);
    return false;
  }
  return true;
}

static void build_bmm(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "self"), *y = tt_operand_of(r, "mat2");
  if (!check_batches(r, x, y)) {
    return;
  }
  if (x->dtype != y->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(x->dtype), tt_type_name(y->dtype));
    return;
  }
  if (dtype_ok(r, x->dtype, "bmm")) {
    tt_ret(r, 0, tt_cast(matrix_product(r, "self", "mat2"), result_dtype(r, x->dtype)));
  }
}

static void build_baddbmm(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self"), *x = tt_operand_of(r, "batch1"), *y = tt_operand_of(r, "batch2");
  if (!self || !check_batches(r, x, y)) {
    return;
  }
  if (x->dtype != y->dtype || (self->dtype != x->dtype && !tt_has(r, "out_dtype"))) {
    tt_fail(r, TT_ERR_RUNTIME, "Input dtypes must be the same, got: input %s, batch1: %s, batch2: %s",
            tt_type_meta_name(self->dtype), tt_type_meta_name(x->dtype), tt_type_meta_name(y->dtype));
    return;
  }
  if (dtype_ok(r, x->dtype, "baddbmm")) {
    tt_hlo sum = scale_and_add(r, matrix_product(r, "batch1", "batch2"));
    tt_ret(r, 0, tt_cast(sum, result_dtype(r, x->dtype)));
  }
}

static bool check_addbmm(tt_rule *r, const tt_operand *self, const tt_operand *x, const tt_operand *y) {
  if (!x || !y || x->ndim != 3 || y->ndim != 3) {
    tt_fail(r, TT_ERR_RUNTIME, "batch%d must be a 3D tensor", x && x->ndim == 3 ? 2 : 1);
  } else if (x->sizes[0] != y->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME, "batch1 and batch2 must have same number of batches, got %" PRId64 " and %" PRId64,
            x->sizes[0], y->sizes[0]);
  } else if (x->sizes[2] != y->sizes[1]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Incompatible matrix sizes for bmm (%" PRId64 "x%" PRId64 " and %" PRId64 "x%" PRId64 ")", x->sizes[1],
            x->sizes[2], y->sizes[1], y->sizes[2]);
  } else if (self->dtype != y->dtype || x->dtype != y->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "%s and mat2 must have the same dtype, but got %s and %s",
            self->dtype != y->dtype ? "self" : "mat1", tt_type_name(self->dtype != y->dtype ? self->dtype : x->dtype),
            tt_type_name(y->dtype));
  } else {
    return dtype_ok(r, x->dtype, "addmm_impl_cpu_");
  }
  return false;
}

static void build_addbmm(tt_rule *r) {
  const tt_operand *self = tt_operand_of(r, "self"), *x = tt_operand_of(r, "batch1"), *y = tt_operand_of(r, "batch2");
  if (!self || !check_addbmm(r, self, x, y)) {
    return;
  }
  const int32_t of_x[] = {0, 2}, of_y[] = {0, 1};
  const tt_hlo_dot_dims dims = {.lhs_contract = of_x, .rhs_contract = of_y, .contract_count = 2};
  tt_ret(r, 0, tt_cast(scale_and_add(r, product(r, tt_in(r, "batch1"), tt_in(r, "batch2"), &dims)), x->dtype));
}

// ---- vectors ----

static void build_addmv(tt_rule *r) {
  const bool with_self = tt_has(r, "mat");  // addmv(self, mat, vec) or mv(self, vec)
  const tt_operand *self = tt_operand_of(r, "self"), *x = tt_operand_of(r, with_self ? "mat" : "self");
  const tt_operand *y = tt_operand_of(r, "vec");
  if (!self || !x || !y) {
    return;
  }
  const int32_t self_ndim = with_self ? self->ndim : 1;
  if (!is_2d(x) || y->ndim != 1 || self_ndim > 1) {
    tt_fail(r, TT_ERR_RUNTIME, "vector + matrix @ vector expected, got %d, %d, %d", self_ndim, x->ndim, y->ndim);
    return;
  }
  const int64_t self_size = with_self && self->ndim ? self->sizes[0] : with_self ? 1 : x->sizes[0];
  if (x->sizes[1] != y->sizes[0] || (self_size != x->sizes[0] && self_size != 1)) {
    tt_fail(r, TT_ERR_RUNTIME,
            "size mismatch, got input (%" PRId64 "), mat (%" PRId64 "x%" PRId64 "), vec (%" PRId64 ")", self_size,
            x->sizes[0], x->sizes[1], y->sizes[0]);
    return;
  }
  if (x->dtype != y->dtype || self->dtype != x->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "addmv input tensors must have the same dtype, but got %s, %s, and %s",
            tt_type_name(self->dtype), tt_type_name(x->dtype), tt_type_name(y->dtype));
    return;
  }
  if (!dtype_ok(r, x->dtype, "addmv_impl_cpu")) {
    return;
  }
  tt_hlo p = contract(r, tt_in(r, with_self ? "mat" : "self"), tt_in(r, "vec"), 1, 0, false);
  tt_ret(r, 0, tt_cast(with_self ? scale_and_add(r, p) : p, x->dtype));
}

enum { DOT, VDOT };

static void build_dot(tt_rule *r) {
  const char *other = tt_rule_kind(r) == VDOT ? "other" : "tensor";
  const tt_operand *x = tt_operand_of(r, "self"), *y = tt_operand_of(r, other);
  if (!x || !y) {
    return;
  }
  if (x->ndim != 1 || y->ndim != 1) {
    tt_fail(r, TT_ERR_RUNTIME, "1D tensors expected, but got %dD and %dD tensors", x->ndim, y->ndim);
  } else if (x->dtype != y->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "dot : expected both vectors to have same dtype, but found %s and %s",
            tt_type_name(x->dtype), tt_type_name(y->dtype));
  } else if (x->sizes[0] != y->sizes[0]) {
    tt_fail(r, TT_ERR_RUNTIME,
            "inconsistent tensor size, expected tensor %s and src %s to have the same number of elements, but got "
            "%" PRId64 " and %" PRId64 " elements respectively",
            tt_dims_text(x->sizes, 1).text, tt_dims_text(y->sizes, 1).text, x->sizes[0], y->sizes[0]);
  } else if (dtype_ok(r, x->dtype, "dot")) {
    tt_hlo a = tt_in(r, "self");
    if (tt_rule_kind(r) == VDOT && tt_dtype_is_complex(x->dtype)) {
      a = tt_hlo_unary(TT_CONJ, a);
    }
    tt_ret(r, 0, tt_cast(contract(r, a, tt_in(r, other), 0, 0, false), x->dtype));
  }
}

// beta * self + alpha * outer(vec1, vec2). For bool, beta and alpha count as true or false.
static tt_hlo addr_scaled(tt_rule *r, const char *scale, tt_hlo x) {
  double value;
  if (!x || (tt_scalar_known(r, scale, &value) && value == 1)) {
    return x;
  }
  tt_hlo s = v_like(tt_scalar(r, scale, x->dtype), x);
  return x->dtype == TT_PRED ? v_and(s, x) : v_mul(s, x);
}

static void build_addr(tt_rule *r) {
  static const char *const names[] = {"self", "vec1", "vec2"}, *const scales[] = {"beta", "alpha"};
  const tt_operand *self = tt_operand_of(r, "self"), *x = tt_operand_of(r, "vec1"), *y = tt_operand_of(r, "vec2");
  if (!self || !x || !y) {
    return;
  }
  if (x->ndim != 1 || y->ndim != 1) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected 1-D argument %s, but got %d-D", x->ndim == 1 ? "vec2" : "vec1",
            x->ndim == 1 ? y->ndim : x->ndim);
    return;
  }
  const tt_dtype dtype = tt_result_type(r, names, 3), compute = tt_opmath(dtype);
  for (int32_t i = 0; i < 2; i++) {
    const tt_dtype scale = tt_scalar_type(r, scales[i]);
    if (tt_is_integral(dtype) && (tt_dtype_is_float(scale) || tt_dtype_is_complex(scale))) {
      tt_fail(r, TT_ERR_RUNTIME, "For integral input tensors, argument %s must not be a floating point number.",
              scales[i]);
    }
  }
  const int64_t dims[] = {x->sizes[0], y->sizes[0]};
  tt_hlo a = v_along(tt_in_as(r, "vec1", compute), dims, 2, 0), b = v_along(tt_in_as(r, "vec2", compute), dims, 2, 1);
  tt_hlo outer = addr_scaled(r, "alpha", compute == TT_PRED ? v_and(a, b) : v_mul(a, b));
  tt_hlo base = expand(r, tt_in_as(r, "self", compute), dims, 2);
  double beta;
  if (tt_scalar_known(r, "beta", &beta) && beta == 0) {
    base = NULL;
  }
  base = base ? addr_scaled(r, "beta", base) : NULL;
  tt_ret_elementwise(r, 0, tt_cast(!base ? outer : compute == TT_PRED ? v_or(base, outer) : v_add(base, outer), dtype));
}

const tt_rule_entry tt_rules_matmul[] = {
    {.name = "aten::mm", .build = build_mm},
    {.name = "aten::mm.dtype", .build = build_mm},
    {.name = "aten::bmm", .build = build_bmm},
    {.name = "aten::bmm.dtype", .build = build_bmm},
    {.name = "aten::addmm", .build = build_addmm, .kind = PLAIN, .special_values = "beta=0"},
    {.name = "aten::addmm.dtype", .build = build_addmm, .kind = PLAIN, .special_values = "beta=0"},
    {.name = "aten::_addmm_activation", .build = build_addmm, .kind = WITH_ACTIVATION, .special_values = "beta=0"},
    {.name = "aten::baddbmm", .build = build_baddbmm, .special_values = "beta=0"},
    {.name = "aten::baddbmm.dtype", .build = build_baddbmm, .special_values = "beta=0"},
    {.name = "aten::addbmm", .build = build_addbmm, .special_values = "beta=0"},
    {.name = "aten::addmv", .build = build_addmv, .special_values = "beta=0"},
    {.name = "aten::mv", .build = build_addmv},
    {.name = "aten::dot", .build = build_dot, .kind = DOT},
    {.name = "aten::vdot", .build = build_dot, .kind = VDOT},
    {.name = "aten::addr", .build = build_addr, .special_values = "beta=0"},
    {.name = "aten::_int_mm", .build = build_int_mm},
    {0},
};
