// Layer, group, batch and weight normalisation, and renorm.
#include "aten/dims.h"
#include "aten/host.h"
#include "kernels/handlers.h"

// Statistics are computed in two passes, in the compute type. Layer and batch norm keep them in it, for float16 and
// bfloat16 inputs float32, as CUDA does and the Meta functions that AOTAutograd trusts (CPU rounds them).

static bool wanted(tt_rule *r, int32_t i) {
  int32_t count;
  const int64_t *mask = tt_ints(r, "output_mask", &count);
  return !mask || (i < count && mask[i]);
}

static bool check_float(tt_rule *r, const char *name, const char *kernel) {
  const tt_operand *x = tt_operand_of(r, name);
  if (x && !tt_dtype_is_float(x->dtype)) {
    tt_fail_dtype(r, kernel, x->dtype);
  }
  return x && !tt_failed(r);
}

static tt_hlo inverse_std(tt_hlo var, tt_hlo eps) { return tt_hlo_unary(TT_RSQRT, v_add(var, v_like(eps, var))); }

// With `eps` from the call: its default needn't be an operand.
static tt_hlo inverse_std_of(tt_rule *r, tt_hlo var) {
  double eps;
  if (var && tt_scalar_known(r, "eps", &eps)) {
    return tt_hlo_unary(TT_RSQRT, v_addc(var, eps));
  }
  return var ? inverse_std(var, tt_scalar(r, "eps", var->dtype)) : NULL;
}

// (x - mean) * factor, both given without the masked dims.
static tt_hlo centred_times(tt_hlo x, tt_hlo mean, tt_hlo factor, const bool *mask) {
  if (!x) {
    return NULL;
  }
  tt_hlo centred = v_sub(x, tt_expand_reduced(mean, x->dims, x->rank, mask));
  return v_mul(centred, tt_expand_reduced(factor, x->dims, x->rank, mask));
}

static tt_hlo variance(tt_hlo x, tt_hlo mean, const bool *mask, int64_t count) {
  if (!x) {
    return NULL;
  }
  tt_hlo centred = v_sub(x, tt_expand_reduced(mean, x->dims, x->rank, mask));
  return tt_mean_of(tt_reduce_mask(TT_SUM, v_mul(centred, centred), mask), count);
}

// rstd * (g - (mean(g) + xhat * mean(g * xhat))) over rows: the gradient through xhat. The last operation has two
// full-size operands (docs/design/xla_cpu.md).
static tt_hlo normalised_backward(tt_hlo g, tt_hlo xhat, tt_hlo rstd, const bool *mask, int64_t count) {
  if (!g) {
    return NULL;
  }
  tt_hlo a = tt_mean_of(tt_reduce_mask(TT_SUM, g, mask), count);
  tt_hlo b = tt_mean_of(tt_reduce_mask(TT_SUM, v_mul(g, xhat), mask), count);
  tt_hlo shift =
      v_add(tt_expand_reduced(a, g->dims, g->rank, mask), v_mul(xhat, tt_expand_reduced(b, g->dims, g->rank, mask)));
  return v_mul(v_sub(g, shift), tt_expand_reduced(rstd, g->dims, g->rank, mask));
}

static const bool ROWS[2] = {false, true}, COLUMNS[2] = {true, false};

// ---- layer norm: [M, N], statistics over N ----
typedef struct layer_dims {
  int64_t m, n, stat_dims[TT_MAX_RANK];
  int32_t rank;
} layer_dims;

static bool read_layer_dims(tt_rule *r, layer_dims *d) {
  *d = (layer_dims){1, 1, {0}, 0};
  const tt_operand *x = tt_operand_of(r, "input");
  int32_t count;
  const int64_t *shape = tt_ints(r, "normalized_shape", &count);
  if (!x || count < 1) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected normalized_shape to be at least 1-dimensional");
    return false;
  }
  const int32_t axis = x->ndim - count;
  if (axis < 0 || memcmp(x->sizes + axis, shape, sizeof(*shape) * (size_t)count) != 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Given normalized_shape=%s, expected input with shape [*, %s, but got input of size%s",
            tt_dims_text(shape, count).text, tt_dims_text(shape, count).text + 1, tt_dims_text(x->sizes, x->ndim).text);
    return false;
  }
  for (int32_t i = 0; i < x->ndim; i++) {
    *(i < axis ? &d->m : &d->n) *= x->sizes[i];
    d->stat_dims[i] = i < axis ? x->sizes[i] : 1;
  }
  d->rank = x->ndim;
  return true;
}

// Whether an affine parameter is there and of normalized_shape.
static bool has_layer_parameter(tt_rule *r, const char *name) {
  const tt_operand *p = tt_operand_of(r, name);
  if (!p) {
    return false;
  }
  int32_t count;
  const int64_t *shape = tt_ints(r, "normalized_shape", &count);
  if (p->ndim != count || memcmp(p->sizes, shape, sizeof(*shape) * (size_t)count) != 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Expected %s to be of same shape as normalized_shape, but got %s of shape %s and normalized_shape = %s",
            name, name, tt_dims_text(p->sizes, p->ndim).text, tt_dims_text(shape, count).text);
    return false;
  }
  return true;
}

// As [N] along the rows' dims; NULL if it is None.
static tt_hlo layer_parameter(tt_rule *r, const char *name, tt_dtype dtype, const layer_dims *d) {
  return has_layer_parameter(r, name) ? v_along(v_flat(tt_in_as(r, name, dtype)), (int64_t[]){d->m, d->n}, 2, 1) : NULL;
}

// What the statistics are kept in: the input's type, or that of wider parameters.
static tt_dtype stat_dtype(tt_rule *r, tt_dtype dtype) {
  static const char *const names[] = {"weight", "bias", "running_mean", "running_var"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    const tt_operand *p = tt_operand_of(r, names[i]);
    dtype = p ? tt_promote_types(dtype, p->dtype) : dtype;
  }
  return dtype;
}

enum { LAYER_NORM_NATIVE, LAYER_NORM_ALONE };  // alone: without the statistics

static void ret_layer_norm(tt_rule *r, const layer_dims *d, tt_hlo y, tt_hlo mean, tt_hlo rstd) {
  const tt_operand *x = tt_operand_of(r, "input");
  tt_ret(r, 0, tt_cast(tt_hlo_reshape(y, x->sizes, x->ndim), x->dtype));
  if (tt_rule_kind(r) == LAYER_NORM_ALONE) {
    return;
  }
  const tt_dtype stat = stat_dtype(r, x->dtype);
  tt_ret(r, 1, tt_cast(tt_hlo_reshape(mean, d->stat_dims, d->rank), stat));
  tt_ret(r, 2, tt_cast(tt_hlo_reshape(rstd, d->stat_dims, d->rank), stat));
}

// ---- by a kernel of the host: XLA:CPU makes a dozen loops of a norm and its gradient, most of them on one thread ----
static bool on_host(tt_rule *r, tt_dtype compute, const layer_dims *d) {
  return tt_rule_has_host_kernels(r) && compute == TT_F32 && d->m > 0 && d->n > 0;
}

static tt_host_result result_of(const int64_t *sizes, int32_t rank) {
  tt_host_result result = {.rank = rank, .order = {0, 1}};
  memcpy(result.sizes, sizes, sizeof *sizes * (size_t)rank);
  return result;
}

static void host_layer_numbers(tt_host_call *c, const layer_dims *d, int64_t has, int64_t want) {
  tt_host_number(c, d->m);
  tt_host_number(c, d->n);
  tt_host_number(c, has);
  tt_host_number(c, want);
}

static void host_operand(tt_rule *r, tt_host_call *c, const char *name) {
  tt_host_operand(c, v_flat(tt_in_as(r, name, TT_F32)));
}

static bool host_parameter(tt_rule *r, tt_host_call *c, const char *name) {
  const bool has = has_layer_parameter(r, name);
  if (has) {
    host_operand(r, c, name);
  }
  return has;
}

static void build_host_layer_norm(tt_rule *r, const layer_dims *d) {
  tt_host_call c = {.number_count = 0};
  host_operand(r, &c, "input");
  const bool weight = host_parameter(r, &c, "weight"), bias = host_parameter(r, &c, "bias");
  double eps;
  const bool known = tt_scalar_known(r, "eps", &eps);
  tt_host_operand(&c, known ? tt_hlo_const(tt_b(r), TT_F32, eps, NULL, 0) : tt_scalar(r, "eps", TT_F32));
  host_layer_numbers(&c, d, weight + 2 * bias, 0);
  const int64_t dims[] = {d->m, d->n};
  const tt_host_result results[] = {result_of(dims, 2), result_of(dims, 1), result_of(dims, 1)};
  tt_hlo out[3] = {NULL};
  tt_host_make(r, &c, TT_HOST_NORM, results, 3, out);
  ret_layer_norm(r, d, out[0], out[1], out[2]);
}

// Both parameters are of the input's dtype, or float32 where that is a half.
static bool check_layer_dtypes(tt_rule *r) {
  const tt_operand *x = tt_operand_of(r, "input"), *weight = tt_operand_of(r, "weight"),
                   *bias = tt_operand_of(r, "bias");
  const tt_operand *p = weight ? weight : bias;
  if (!p || (p->dtype == x->dtype && !tt_dtype_is_float(x->dtype))) {
    return true;  // the latter is refused for what it is
  }
  if ((!bias || p->dtype == bias->dtype) &&
      (p->dtype == x->dtype || ((x->dtype == TT_BF16 || x->dtype == TT_F16) && p->dtype == TT_F32))) {
    return true;
  }
  tt_fail(r, TT_ERR_RUNTIME, "mixed dtype: expected weight and bias of the input's dtype, or float32 beside a half");
  return false;
}

static void build_layer_norm(tt_rule *r) {
  layer_dims d;
  if (!check_layer_dtypes(r) || !check_float(r, "input", "LayerNormKernelImpl") || !read_layer_dims(r, &d)) {
    return;
  }
  const tt_dtype dtype = tt_operand_of(r, "input")->dtype, compute = tt_opmath(dtype);
  if (on_host(r, compute, &d)) {
    build_host_layer_norm(r, &d);
    return;
  }
  tt_hlo input = tt_in_as(r, "input", compute), x = tt_hlo_reshape(input, (int64_t[]){d.m, d.n}, 2);
  tt_hlo mean = tt_mean_of(tt_reduce_mask(TT_SUM, x, ROWS), d.n);
  tt_hlo rstd = inverse_std_of(r, variance(x, mean, ROWS, d.n));
  tt_hlo y = centred_times(x, mean, rstd, ROWS);
  tt_hlo weight = layer_parameter(r, "weight", compute, &d), bias = layer_parameter(r, "bias", compute, &d);
  y = weight ? v_mul(y, weight) : y;
  ret_layer_norm(r, &d, bias ? v_add(y, bias) : y, mean, rstd);
}

// A gradient of an affine parameter: of its dtype and shape.
static void ret_parameter_grad(tt_rule *r, int32_t i, const char *name, tt_hlo grad) {
  const tt_operand *p = tt_operand_of(r, name);
  if (!p || !wanted(r, i)) {
    tt_ret_none(r, i);
  } else {
    tt_ret(r, i, tt_cast(tt_hlo_reshape(grad, p->sizes, p->ndim), p->dtype));
  }
}

static void build_host_layer_norm_backward(tt_rule *r, const layer_dims *d) {
  tt_host_call c = {.number_count = 0};
  static const char *const names[] = {"input", "grad_out", "mean", "rstd"};
  for (int32_t i = 0; i < 4; i++) {
    host_operand(r, &c, names[i]);
  }
  const bool weight = host_parameter(r, &c, "weight"), bias = tt_operand_of(r, "bias");
  host_layer_numbers(&c, d, weight, wanted(r, 0) + 2 * (weight && wanted(r, 1)) + 4 * (bias && wanted(r, 2)));
  const int64_t dims[] = {d->m, d->n};
  const tt_host_result results[] = {result_of(dims, 2), result_of(dims + 1, 1), result_of(dims + 1, 1)};
  tt_hlo out[3] = {NULL};
  tt_host_make(r, &c, TT_HOST_NORM_BACKWARD, results, 3, out);
  const tt_operand *x = tt_operand_of(r, "input");
  if (wanted(r, 0)) {
    tt_ret(r, 0, tt_cast(tt_hlo_reshape(out[0], x->sizes, x->ndim), x->dtype));
  } else {
    tt_ret_none(r, 0);
  }
  ret_parameter_grad(r, 1, "weight", out[1]);
  ret_parameter_grad(r, 2, "bias", out[2]);
}

static bool is_numel(tt_rule *r, const char *name, int64_t count) {
  const tt_operand *x = tt_operand_of(r, name);
  return x && tt_operand_numel(x) == count;
}

static void build_layer_norm_backward(tt_rule *r) {
  layer_dims d;
  if (!check_float(r, "input", "LayerNormBackwardKernelImpl") || !read_layer_dims(r, &d)) {
    return;
  }
  const tt_dtype dtype = tt_operand_of(r, "input")->dtype, compute = tt_opmath(dtype);
  const int64_t dims[] = {d.m, d.n};
  if (on_host(r, compute, &d) && is_numel(r, "grad_out", d.m * d.n) && is_numel(r, "mean", d.m) &&
      is_numel(r, "rstd", d.m)) {
    build_host_layer_norm_backward(r, &d);
    return;
  }
  tt_hlo input = tt_in_as(r, "input", compute);
  tt_hlo dy = tt_hlo_reshape(tt_in_as(r, "grad_out", compute), dims, 2);
  tt_hlo mean = v_flat(tt_in_as(r, "mean", compute)), rstd = v_flat(tt_in_as(r, "rstd", compute));
  tt_hlo xhat = centred_times(tt_hlo_reshape(input, dims, 2), mean, rstd, ROWS);
  if (wanted(r, 0)) {
    tt_hlo weight = layer_parameter(r, "weight", compute, &d);
    tt_hlo dx = normalised_backward(weight ? v_mul(dy, weight) : dy, xhat, rstd, ROWS, d.n);
    tt_ret(r, 0, tt_cast(v_reshape_like(dx, input), dtype));
  } else {
    tt_ret_none(r, 0);
  }
  ret_parameter_grad(r, 1, "weight", tt_reduce_mask(TT_SUM, v_mul(dy, xhat), COLUMNS));
  ret_parameter_grad(r, 2, "bias", tt_reduce_mask(TT_SUM, dy, COLUMNS));
}

// ---- group norm: [N * G, D * HxW] for the statistics, [N, C, HxW] for the parameters ----
typedef struct group_dims {
  int64_t n, c, hw, groups, rows[2], channels[3];
} group_dims;

static bool read_group_dims(tt_rule *r, group_dims *d) {
  *d = (group_dims){
      .n = tt_int(r, "N", 0), .c = tt_int(r, "C", 0), .hw = tt_int(r, "HxW", 0), .groups = tt_int(r, "group", 1)};
  const tt_operand *x = tt_operand_of(r, "input");
  if (!x || d->groups < 1 || d->c % d->groups != 0) {
    tt_fail(r, TT_ERR_RUNTIME,
            "Expected number of channels in input to be divisible by num_groups, but got input of shape %s and "
            "num_groups=%" PRId64,
            x ? tt_dims_text(x->sizes, x->ndim).text : "[]", d->groups);
    return false;
  }
  if (__builtin_mul_overflow(d->n, d->groups, &d->rows[0]) ||
      __builtin_mul_overflow(d->c / d->groups, d->hw, &d->rows[1])) {
    tt_fail(r, TT_ERR_RUNTIME, "the sizes N, C, HxW and group are too large");
    return false;
  }
  d->channels[0] = d->n;
  d->channels[1] = d->c;
  d->channels[2] = d->hw;
  return true;
}

static tt_hlo channel_parameter(tt_rule *r, const char *name, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  return tt_has(r, name) && tt_operand_of(r, name) ? v_along(v_flat(tt_in_as(r, name, dtype)), dims, rank, 1) : NULL;
}

static void build_group_norm(tt_rule *r) {
  group_dims d;
  if (!check_float(r, "input", "GroupNormKernelImpl") || !read_group_dims(r, &d)) {
    return;
  }
  const tt_operand *operand = tt_operand_of(r, "input");
  const tt_dtype compute = tt_opmath(operand->dtype);
  tt_hlo input = tt_in_as(r, "input", compute), x = tt_hlo_reshape(input, d.rows, 2);
  tt_hlo mean = tt_mean_of(tt_reduce_mask(TT_SUM, x, ROWS), d.rows[1]);
  tt_hlo rstd = inverse_std(variance(x, mean, ROWS, d.rows[1]), tt_scalar(r, "eps", compute));
  tt_hlo y = tt_hlo_reshape(centred_times(x, mean, rstd, ROWS), d.channels, 3);
  tt_hlo weight = channel_parameter(r, "weight", compute, d.channels, 3);
  tt_hlo bias = channel_parameter(r, "bias", compute, d.channels, 3);
  y = weight ? v_mul(y, weight) : y;
  y = bias ? v_add(y, bias) : y;
  tt_ret_format(r, 0, tt_cast(v_reshape_like(y, input), operand->dtype), tt_is_channels_last(operand));
  // These statistics have the parameters' type, on every device.
  const tt_operand *parameter = tt_operand_of(r, "weight");
  const tt_dtype stat = parameter ? parameter->dtype : operand->dtype;
  tt_ret(r, 1, tt_cast(tt_hlo_reshape(mean, (int64_t[]){d.n, d.groups}, 2), stat));
  tt_ret(r, 2, tt_cast(tt_hlo_reshape(rstd, (int64_t[]){d.n, d.groups}, 2), stat));
}

static void build_group_norm_backward(tt_rule *r) {
  group_dims d;
  if (!check_float(r, "input", "GroupNormBackwardKernelImpl") || !read_group_dims(r, &d)) {
    return;
  }
  static const bool all_but_channel[3] = {true, false, true};
  const tt_operand *operand = tt_operand_of(r, "input");
  const tt_dtype compute = tt_opmath(operand->dtype);
  tt_hlo input = tt_in_as(r, "input", compute);
  tt_hlo dy = tt_hlo_reshape(tt_in_as(r, "grad_out", compute), d.channels, 3);
  tt_hlo mean = v_flat(tt_in_as(r, "mean", compute)), rstd = v_flat(tt_in_as(r, "rstd", compute));
  tt_hlo xhat = centred_times(tt_hlo_reshape(input, d.rows, 2), mean, rstd, ROWS);
  if (wanted(r, 0)) {
    tt_hlo weight = channel_parameter(r, "weight", compute, d.channels, 3);
    tt_hlo g = tt_hlo_reshape(weight ? v_mul(dy, weight) : dy, d.rows, 2);
    tt_hlo dx = normalised_backward(g, xhat, rstd, ROWS, d.rows[1]);
    tt_ret_format(r, 0, tt_cast(v_reshape_like(dx, input), operand->dtype), tt_is_channels_last(operand));
  } else {
    tt_ret_none(r, 0);
  }
  tt_hlo product = v_mul(dy, tt_hlo_reshape(xhat, d.channels, 3));
  ret_parameter_grad(r, 1, "weight", tt_reduce_mask(TT_SUM, product, all_but_channel));
  // bias is no argument of the backward: its gradient is like weight's.
  if (wanted(r, 2) && tt_operand_of(r, "weight")) {
    tt_ret(r, 2, tt_cast(tt_reduce_mask(TT_SUM, dy, all_but_channel), tt_operand_of(r, "weight")->dtype));
  } else {
    tt_ret_none(r, 2);
  }
}

// ---- batch norm: statistics over all dims but the channel's ----
enum { FORM_TRAIN = 1, FORM_EVAL = 2, FORM_RESERVE = 4, FORM_FUNCTIONAL = 8 };

typedef struct batch_dims {
  bool mask[TT_MAX_RANK];
  int64_t count, channels;
} batch_dims;

static bool read_batch_dims(tt_rule *r, batch_dims *d) {
  *d = (batch_dims){.count = 1};
  const tt_operand *x = tt_operand_of(r, "input");
  if (!x || x->ndim < 2) {
    tt_fail(r, TT_ERR_RUNTIME, "expected an input of at least 2 dimensions");
    return false;
  }
  for (int32_t i = 0; i < x->ndim; i++) {
    d->mask[i] = i != 1;
    d->count *= i != 1 ? x->sizes[i] : 1;
  }
  d->channels = x->sizes[1];
  return true;
}

// old * (1 - momentum) + momentum * statistic
static tt_hlo updated(tt_rule *r, const char *name, tt_hlo statistic) {
  if (!statistic) {
    return NULL;
  }
  tt_hlo old = tt_in_as(r, name, statistic->dtype);
  tt_hlo momentum = v_like(tt_scalar(r, "momentum", statistic->dtype), statistic);
  return v_add(v_mul(old, v_csub(1, momentum)), v_mul(momentum, statistic));
}

static void ret_running(tt_rule *r, int32_t form, bool train, tt_hlo mean, tt_hlo var, const batch_dims *d) {
  if (!tt_operand_of(r, "running_mean") || !tt_operand_of(r, "running_var")) {
    return;
  }
  tt_hlo new_mean = NULL, new_var = NULL;
  if (train) {
    // The running variance is unbiased.
    tt_hlo unbiased = var ? v_div(v_mulc(var, (double)d->count), v_const(var, (double)(d->count - 1))) : NULL;
    new_mean = updated(r, "running_mean", mean);
    new_var = updated(r, "running_var", unbiased);
  }
  if (form & FORM_FUNCTIONAL) {
    const int32_t at = form & FORM_RESERVE ? 4 : 3;
    const tt_dtype dtype = tt_operand_of(r, "running_mean")->dtype;
    tt_ret(r, at, train ? tt_cast(new_mean, dtype) : tt_in(r, "running_mean"));
    tt_ret(r, at + 1, train ? tt_cast(new_var, dtype) : tt_in(r, "running_var"));
  } else if (train) {
    tt_write(r, "running_mean", new_mean);
    tt_write(r, "running_var", new_var);
  }
}

static void build_batch_norm(tt_rule *r) {
  batch_dims d;
  if (!check_float(r, "input", "batch_norm") || !read_batch_dims(r, &d)) {
    return;
  }
  const int32_t form = tt_rule_kind(r);
  const bool train = form & FORM_TRAIN || (!(form & FORM_EVAL) && tt_bool(r, "training", false));
  const tt_operand *operand = tt_operand_of(r, "input");
  const tt_dtype compute = tt_opmath(operand->dtype);
  tt_hlo x = tt_in_as(r, "input", compute), mean, var;
  if (train && d.count == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "input tensor must have at least one element, but got input_sizes = %s",
            tt_dims_text(operand->sizes, operand->ndim).text);
    return;
  }
  if (train) {
    mean = tt_mean_of(tt_reduce_mask(TT_SUM, x, d.mask), d.count);
    var = variance(x, mean, d.mask, d.count);
  } else {
    mean = tt_in_as(r, "running_mean", compute);
    var = tt_in_as(r, "running_var", compute);
  }
  tt_hlo invstd = inverse_std(var, tt_scalar(r, "eps", compute));
  tt_hlo weight = tt_operand_of(r, "weight") ? tt_in_as(r, "weight", compute) : NULL;
  tt_hlo y = centred_times(x, mean, weight ? v_mul(invstd, weight) : invstd, d.mask);
  tt_hlo bias = channel_parameter(r, "bias", compute, operand->sizes, operand->ndim);
  y = bias ? v_add(y, bias) : y;
  tt_ret_format(r, 0, tt_cast(y, operand->dtype), tt_is_channels_last(operand));
  const int64_t none = 0;  // CPU saves empty statistics in evaluation
  const tt_dtype stat = stat_dtype(r, operand->dtype);
  tt_ret(r, 1, train ? tt_cast(mean, stat) : tt_hlo_const(tt_b(r), stat, 0, &none, 1));
  tt_ret(r, 2, train ? tt_cast(invstd, stat) : tt_hlo_const(tt_b(r), stat, 0, &none, 1));
  if (form & FORM_RESERVE) {
    tt_ret(r, 3, tt_hlo_const(tt_b(r), TT_U8, 0, &none, 1));
  }
  ret_running(r, form, train, mean, var, &d);
}

static void build_batch_norm_statistics(tt_rule *r) {
  batch_dims d;
  const tt_operand *operand = tt_operand_of(r, "input");
  if (operand && operand->ndim < 2) {
    tt_fail(r, TT_ERR_INDEX, "Dimension out of range (expected to be in range of [%d, %d], but got 1)", -1, 0);
    return;
  }
  if (!check_float(r, "input", "batch_norm_update_stats_cpu") || !read_batch_dims(r, &d)) {
    return;
  }
  if (d.count == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "input tensor must have at least one element, but got input_sizes = %s",
            tt_dims_text(operand->sizes, operand->ndim).text);
    return;
  }
  tt_hlo x = tt_in_as(r, "input", tt_opmath(operand->dtype));
  tt_hlo mean = tt_mean_of(tt_reduce_mask(TT_SUM, x, d.mask), d.count), var = variance(x, mean, d.mask, d.count);
  ret_running(r, FORM_TRAIN, true, mean, var, &d);
  const tt_dtype stat = stat_dtype(r, operand->dtype);
  tt_ret(r, 0, tt_cast(mean, stat));
  tt_ret(r, 1, tt_cast(var, stat));
}

static void build_batch_norm_backward(tt_rule *r) {
  batch_dims d;
  if (!check_float(r, "input", "batch_norm_backward") || !read_batch_dims(r, &d)) {
    return;
  }
  const bool native = tt_rule_kind(r) == 0, train = tt_bool(r, native ? "train" : "update", false);
  const tt_operand *operand = tt_operand_of(r, "input"), *p = tt_operand_of(r, "weight");
  const tt_dtype compute = tt_opmath(operand->dtype);
  tt_hlo x = tt_in_as(r, "input", compute), dy = tt_in_as(r, "grad_out", compute), mean, invstd;
  if (train) {
    mean = tt_in_as(r, "save_mean", compute);
    invstd = tt_in_as(r, native ? "save_invstd" : "save_var", compute);
  } else {
    mean = tt_in_as(r, "running_mean", compute);
    invstd = inverse_std(tt_in_as(r, "running_var", compute), tt_scalar(r, "eps", compute));
  }
  tt_hlo xhat = centred_times(x, mean, invstd, d.mask);
  tt_hlo sum_dy = tt_reduce_mask(TT_SUM, dy, d.mask), sum_dy_xhat = tt_reduce_mask(TT_SUM, v_mul(dy, xhat), d.mask);
  if (wanted(r, 0) && dy) {
    tt_hlo factor = p ? v_mul(invstd, tt_in_as(r, "weight", compute)) : invstd;
    tt_hlo dx = train ? normalised_backward(dy, xhat, factor, d.mask, d.count)
                      : v_mul(dy, tt_expand_reduced(factor, dy->dims, dy->rank, d.mask));
    tt_ret_format(r, 0, tt_cast(dx, operand->dtype), tt_is_channels_last(operand));
  } else {
    tt_ret_none(r, 0);
  }
  const tt_dtype parameter = p ? p->dtype : operand->dtype;
  for (int32_t i = 1; i < 3; i++) {
    if (wanted(r, i)) {
      tt_ret(r, i, tt_cast(i == 1 ? sum_dy_xhat : sum_dy, parameter));
    } else {
      tt_ret_none(r, i);
    }
  }
}

// ---- weight norm: v * (g / |v|), the norm over all dims but `dim` ----
static void build_weight_norm(tt_rule *r) {
  const tt_operand *g_operand = tt_operand_of(r, "g");
  tt_hlo v = tt_in(r, "v"), g = tt_in(r, "g");
  const int32_t dim = tt_dim(r, "dim", v ? v->rank : 0);
  if (!v || !g || tt_failed(r)) {
    return;
  }
  bool mask[TT_MAX_RANK];
  for (int32_t i = 0; i < v->rank; i++) {
    mask[i] = i != dim;
  }
  const tt_dtype compute = tt_opmath(v->dtype);
  tt_hlo wide = tt_cast(v, compute);
  tt_hlo norm = v_sqrt(tt_reduce_mask(TT_SUM, v_mul(wide, wide), mask));
  tt_hlo factor = v_div(v_flat(tt_cast(g, compute)), norm);
  tt_ret(r, 0, tt_cast(v_mul(wide, tt_expand_reduced(factor, v->dims, v->rank, mask)), v->dtype));
  tt_ret(r, 1, tt_cast(tt_hlo_reshape(norm, g_operand->sizes, g_operand->ndim), compute));
}

static void build_weight_norm_backward(tt_rule *r) {
  tt_hlo dw = tt_in(r, "grad_w"), v = tt_in(r, "saved_v"), g = tt_in(r, "saved_g");
  const int32_t dim = tt_dim(r, "dim", v ? v->rank : 0);
  if (!dw || !v || !g || tt_failed(r)) {
    return;
  }
  bool mask[TT_MAX_RANK];
  for (int32_t i = 0; i < v->rank; i++) {
    mask[i] = i != dim;
  }
  const tt_dtype compute = tt_opmath(v->dtype);
  tt_hlo wide = tt_cast(v, compute), wide_g = v_flat(tt_cast(g, compute)),
         norm = v_flat(tt_in_as(r, "saved_norms", compute));
  tt_hlo grad = tt_cast(dw, compute), dot = tt_reduce_mask(TT_SUM, v_mul(grad, wide), mask);
  tt_hlo along = v_div(dot, v_mul(norm, norm));  // dw's part along v, in units of v
  tt_hlo across = v_sub(grad, v_mul(wide, tt_expand_reduced(along, v->dims, v->rank, mask)));
  tt_hlo dv = v_mul(across, tt_expand_reduced(v_div(wide_g, norm), v->dims, v->rank, mask));
  tt_ret(r, 0, tt_cast(dv, v->dtype));
  tt_ret(r, 1, tt_cast(v_reshape_like(v_div(dot, norm), g), g->dtype));
}

// ---- renorm: slices along `dim` whose p-norm exceeds maxnorm are scaled down to it ----
static void build_renorm(tt_rule *r) {
  const double p = tt_static_double(r, "p", 2);
  tt_hlo self = tt_in(r, "self");
  const int32_t dim = tt_dim(r, "dim", self ? self->rank : 0);
  if (!self || tt_failed(r)) {
    return;
  }
  if (!(p > 0) || self->rank < 2) {
    tt_fail(r, TT_ERR_RUNTIME, p > 0 ? "input needs at least 2 dimensions" : "non-positive norm degree");
    return;
  }
  bool mask[TT_MAX_RANK];
  for (int32_t i = 0; i < self->rank; i++) {
    mask[i] = i != dim;
  }
  tt_hlo x = tt_cast(self, tt_opmath(self->dtype)), size = v_abs(x);
  tt_hlo power = p == 2 ? v_mul(size, size) : size && p != 1 ? tt_hlo_binary(TT_POWER, size, v_const(size, p)) : size;
  tt_hlo norm = tt_reduce_mask(p > 1e300 ? TT_MAX : TT_SUM, p > 1e300 ? size : power, mask);
  if (p <= 1e300 && p != 1 && norm) {
    norm = p == 2 ? v_sqrt(norm) : tt_hlo_binary(TT_POWER, norm, v_const(norm, 1 / p));
  }
  if (!norm) {
    return;
  }
  tt_hlo limit = v_like(tt_scalar(r, "maxnorm", norm->dtype), norm);
  tt_hlo factor = v_if(v_gt(norm, limit), v_div(limit, v_addc(norm, 1e-7)), v_const(norm, 1));
  tt_hlo result = v_mul(x, tt_expand_reduced(tt_cast(factor, x->dtype), x->dims, x->rank, mask));
  tt_ret(r, 0, tt_cast(result, self->dtype));
}

#define ENTRY(rule_name, function, rule_kind) {.name = "aten::" rule_name, .build = function, .kind = rule_kind}

const tt_rule_entry tt_rules_norm[] = {
    ENTRY("native_layer_norm", build_layer_norm, LAYER_NORM_NATIVE),
    {.name = "torchtpu::layer_norm", .build = build_layer_norm, .kind = LAYER_NORM_ALONE},
    ENTRY("native_layer_norm_backward", build_layer_norm_backward, 0),
    ENTRY("native_group_norm", build_group_norm, 0),
    ENTRY("native_group_norm_backward", build_group_norm_backward, 0),
    ENTRY("native_batch_norm", build_batch_norm, 0),
    ENTRY("_native_batch_norm_legit", build_batch_norm, 0),
    ENTRY("_native_batch_norm_legit.no_stats", build_batch_norm, FORM_TRAIN),
    ENTRY("_native_batch_norm_legit_no_training", build_batch_norm, FORM_EVAL),
    ENTRY("_native_batch_norm_legit_functional", build_batch_norm, FORM_FUNCTIONAL),
    ENTRY("_batch_norm_with_update", build_batch_norm, FORM_TRAIN | FORM_RESERVE),
    ENTRY("_batch_norm_with_update_functional", build_batch_norm, FORM_TRAIN | FORM_RESERVE | FORM_FUNCTIONAL),
    ENTRY("_batch_norm_no_update", build_batch_norm, FORM_EVAL | FORM_RESERVE),
    ENTRY("batch_norm_update_stats", build_batch_norm_statistics, 0),
    ENTRY("native_batch_norm_backward", build_batch_norm_backward, 0),
    ENTRY("batch_norm_backward", build_batch_norm_backward, 1),
    ENTRY("_weight_norm_interface", build_weight_norm, 0),
    ENTRY("_weight_norm_interface_backward", build_weight_norm_backward, 0),
    {.name = "aten::renorm", .build = build_renorm, .static_args = "p"},
    {.name = NULL},
};
