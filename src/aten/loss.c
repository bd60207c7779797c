// Losses and their gradients.
#include <math.h>

#include "aten/dims.h"

enum { REDUCE_NONE, REDUCE_MEAN, REDUCE_SUM };

static int64_t reduction(tt_rule *r) { return tt_int(r, "reduction", REDUCE_MEAN); }

// Returns a loss, reduced as asked, rounded once.
static void ret_loss(tt_rule *r, tt_hlo loss, tt_dtype dtype) {
  const int64_t how = reduction(r);
  if (how == REDUCE_NONE) {
    tt_ret_elementwise(r, 0, tt_cast(loss, dtype));
    return;
  }
  tt_hlo sum = v_reduce_all(TT_SUM, loss);
  tt_ret(r, 0, tt_cast(how == REDUCE_MEAN ? tt_mean_of(sum, tt_hlo_numel(loss)) : sum, dtype));
}

// A gradient divided by the number of elements when the loss is their mean.
static tt_hlo scaled(tt_rule *r, tt_hlo grad) {
  return reduction(r) == REDUCE_MEAN && grad ? v_div(grad, v_const(grad, (double)tt_hlo_numel(grad))) : grad;
}

static bool check_float(tt_rule *r, tt_dtype dtype, const char *kernel) {
  if (dtype && !tt_dtype_is_float(dtype)) {
    tt_fail_dtype(r, kernel, dtype);
  }
  return dtype && !tt_failed(r);
}

// The named tensors in one compute type and shape; returns the promoted type.
static tt_dtype read_together(tt_rule *r, const char *const *names, tt_hlo *values, int32_t count, const char *kernel) {
  const tt_dtype dtype = tt_result_type(r, names, count);
  if (!check_float(r, dtype, kernel)) {
    return TT_DTYPE_INVALID;
  }
  for (int32_t i = 0; i < count; i++) {
    values[i] = tt_cast(tt_in_as(r, names[i], dtype), tt_opmath(dtype));
  }
  return tt_broadcast(r, values, count) ? dtype : TT_DTYPE_INVALID;
}

static const char *const SELF_TARGET[] = {"self", "target"};
static const char *const GRAD_SELF_TARGET[] = {"grad_output", "self", "target"};

// A float argument as x's elements.
static tt_hlo number_like(tt_rule *r, const char *name, tt_hlo x) {
  return x ? v_like(tt_scalar(r, name, x->dtype), x) : NULL;
}

// ---- losses of the difference ----
enum { KIND_MSE, KIND_SMOOTH_L1, KIND_HUBER };
static const char *const DIFFERENCE_KERNELS[] = {"mse_cpu", "smooth_l1_cpu", "huber_cpu"};

// A parameter that must not be negative (or zero); its default is neither.
static tt_hlo bound_like(tt_rule *r, const char *name, tt_hlo x, bool positive, const char *complaint) {
  tt_hlo bound = number_like(r, name, x);
  double known;
  if (bound && !tt_scalar_known(r, name, &known)) {
    tt_device_assert(r, positive ? v_gtc(bound, 0) : v_gec(bound, 0), TT_ERR_RUNTIME, "%s", complaint);
  }
  return bound;
}

static void build_difference_loss(tt_rule *r) {
  const int32_t kind = tt_rule_kind(r);
  tt_hlo v[2];
  const tt_dtype dtype = read_together(r, SELF_TARGET, v, 2, DIFFERENCE_KERNELS[kind]);
  if (!dtype) {
    return;
  }
  tt_hlo d = v_sub(v[0], v[1]), loss;
  if (kind == KIND_MSE) {
    loss = v_mul(d, d);
  } else if (kind == KIND_SMOOTH_L1) {
    tt_hlo z = v_abs(d),
           beta = bound_like(r, "beta", z, false, "smooth_l1_loss does not support negative values for beta.");
    loss = v_if(v_lt(z, beta), v_div(v_mul(v_mulc(z, 0.5), z), beta), v_sub(z, v_mulc(beta, 0.5)));
  } else {
    tt_hlo z = v_abs(d);
    tt_hlo delta = bound_like(r, "delta", z, true, "huber_loss does not support non-positive values for delta.");
    loss = v_if(v_le(z, delta), v_mul(v_mulc(z, 0.5), z), v_mul(delta, v_sub(z, v_mulc(delta, 0.5))));
  }
  ret_loss(r, loss, dtype);
}

static void build_difference_loss_backward(tt_rule *r) {
  const int32_t kind = tt_rule_kind(r);
  tt_hlo v[3];
  const tt_dtype dtype = read_together(r, GRAD_SELF_TARGET, v, 3, DIFFERENCE_KERNELS[kind]);
  if (!dtype) {
    return;
  }
  tt_hlo d = v_sub(v[1], v[2]), slope = v_mulc(d, 2);
  if (kind != KIND_MSE) {
    tt_hlo bound = number_like(r, kind == KIND_SMOOTH_L1 ? "beta" : "delta", d);
    tt_hlo far = kind == KIND_SMOOTH_L1 ? v_const(d, 1) : bound;
    slope = kind == KIND_SMOOTH_L1 ? v_div(d, bound) : d;
    slope = v_if(v_le(d, v_neg(bound)), v_neg(far), v_if(v_ge(d, bound), far, slope));
  }
  tt_ret(r, 0, tt_cast(scaled(r, v_mul(slope, v[0])), dtype));
}

// ---- binary cross entropy ----
static tt_hlo weighted(tt_rule *r, tt_hlo x) {
  if (!x || !tt_operand_of(r, "weight")) {
    return x;
  }
  tt_hlo v[] = {x, tt_in_as(r, "weight", x->dtype)};
  return tt_broadcast(r, v, 2) ? v_mul(v[0], v[1]) : NULL;
}

static void build_bce(tt_rule *r) {
  tt_hlo v[2];
  const tt_dtype dtype = read_together(r, SELF_TARGET, v, 2, "binary_cross_entropy");
  if (!dtype) {
    return;
  }
  tt_hlo x = v[0], y = v[1], floor = v_const(x, -100);
  tt_device_assert(r, v_and(v_gec(x, 0), v_lec(x, 1)), TT_ERR_RUNTIME,
                   "all elements of input should be between 0 and 1");
  tt_hlo log_x = v_max(v_log(x), floor), log_not_x = v_max(tt_hlo_unary(TT_LOG1P, v_neg(x)), floor);
  tt_hlo loss = v_sub(v_mul(v_addc(y, -1), log_not_x), v_mul(y, log_x));
  ret_loss(r, weighted(r, loss), dtype);
}

static void build_bce_backward(tt_rule *r) {
  tt_hlo v[3];
  const tt_dtype dtype = read_together(r, GRAD_SELF_TARGET, v, 3, "binary_cross_entropy_backward");
  if (!dtype) {
    return;
  }
  tt_hlo x = v[1], scale = v_max(v_mul(v_csub(1, x), x), v_const(x, 1e-12));
  tt_hlo grad = v_mul(v[0], v_div(v_sub(x, v[2]), scale));
  tt_ret_elementwise(r, 0, tt_cast(scaled(r, weighted(r, grad)), dtype));
}

static void build_bce_with_logits(tt_rule *r) {
  tt_hlo v[2];
  const tt_dtype dtype = read_together(r, SELF_TARGET, v, 2, "binary_cross_entropy_with_logits");
  if (!dtype) {
    return;
  }
  tt_hlo x = v[0], y = v[1];
  tt_hlo log_sigmoid = v_sub(v_min(x, v_const(x, 0)), tt_hlo_unary(TT_LOG1P, v_exp(v_neg(v_abs(x)))));
  if (tt_operand_of(r, "pos_weight")) {
    tt_hlo p[] = {x, tt_in_as(r, "pos_weight", x->dtype)};
    if (!tt_broadcast(r, p, 2)) {
      return;
    }
    log_sigmoid = v_mul(log_sigmoid, v_addc(v_mul(v_addc(p[1], -1), y), 1));
  }
  ret_loss(r, weighted(r, v_sub(v_mul(v_csub(1, y), x), log_sigmoid)), dtype);
}

// ---- soft margin ----
static void build_soft_margin(tt_rule *r) {
  tt_hlo v[2];
  const tt_dtype dtype = read_together(r, SELF_TARGET, v, 2, "soft_margin_loss");
  if (dtype) {
    ret_loss(r, tt_hlo_unary(TT_LOG1P, v_exp(v_neg(v_mul(v[1], v[0])))), dtype);
  }
}

static void build_soft_margin_backward(tt_rule *r) {
  tt_hlo v[3];
  const tt_dtype dtype = read_together(r, GRAD_SELF_TARGET, v, 3, "soft_margin_loss_backward");
  if (!dtype) {
    return;
  }
  tt_hlo z = v_exp(v_neg(v_mul(v[2], v[1])));
  tt_hlo grad = v_mul(v_div(v_mul(v_neg(v[2]), z), v_addc(z, 1)), v[0]);
  tt_ret_elementwise(r, 0, tt_cast(scaled(r, grad), dtype));
}

// ---- negative log likelihood: input [N, C, ...] or [C], target without the class dim ----
typedef struct nll {
  tt_hlo x;       // in the compute type
  tt_hlo target;  // s32, 0 where it is ignored or invalid
  tt_hlo kept;    // false where the target is to be ignored
  tt_hlo weight;  // of each target, 0 where ignored
  tt_dtype dtype;
  int32_t dim;
  int64_t classes;
} nll;

static bool check_nll_shapes(tt_rule *r, bool is_2d) {
  const tt_operand *x = tt_operand_of(r, "self"), *t = tt_operand_of(r, "target"), *w = tt_operand_of(r, "weight");
  if (!x || !t) {
    return false;
  }
  if (is_2d && (x->ndim != 4 || t->ndim != 3)) {
    tt_fail(r, TT_ERR_RUNTIME, "only batches of spatial %s, but got %s of dimension: %d",
            t->ndim != 3 ? "targets supported (3D tensors)" : "inputs supported (4D tensors)",
            t->ndim != 3 ? "targets" : "input", t->ndim != 3 ? t->ndim : x->ndim);
  } else if (!is_2d && (x->ndim < 1 || x->ndim > 2)) {
    tt_fail(r, TT_ERR_RUNTIME, "input tensor should be 1D or 2D");
  } else if (!is_2d && (t->ndim > 1 || (x->ndim == 1 && t->ndim == 1 && t->sizes[0] != 1))) {
    tt_fail(r, TT_ERR_RUNTIME, "0D or 1D target tensor expected, multi-target not supported");
  } else if (t->dtype != TT_S64 && t->dtype != TT_U8) {
    tt_fail(r, TT_ERR_RUNTIME, "expected target dtype to be Long or Byte, but got %s", tt_type_name(t->dtype));
  } else {
    bool same = x->ndim == 1 || (t->ndim >= 1 && t->sizes[0] == x->sizes[0]);
    for (int32_t i = 2; i < x->ndim; i++) {
      same = same && t->sizes[i - 1] == x->sizes[i];
    }
    const int64_t classes = x->ndim == 1 ? x->sizes[0] : x->sizes[1];
    if (!same) {
      tt_fail(r, TT_ERR_RUNTIME, "size mismatch (got input: %s, target: %s)", tt_dims_text(x->sizes, x->ndim).text,
              tt_dims_text(t->sizes, t->ndim).text);
    } else if (w && (w->ndim != 1 || w->sizes[0] != classes)) {
      tt_fail(r, TT_ERR_RUNTIME,
              "weight tensor should be defined either for all %" PRId64
              " classes or no classes but got weight tensor of "
              "shape: %s",
              classes, tt_dims_text(w->sizes, w->ndim).text);
    } else if (w && w->dtype != x->dtype) {
      tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(x->dtype),
              tt_type_name(w->dtype));
    }
  }
  return !tt_failed(r) && check_float(r, x->dtype, is_2d ? "nll_loss2d" : "nll_loss_out_frame");
}

static bool read_nll(tt_rule *r, bool is_2d, nll *n) {
  if (!check_nll_shapes(r, is_2d)) {
    return false;
  }
  const tt_operand *self = tt_operand_of(r, "self");
  n->dtype = self->dtype;
  n->dim = self->ndim == 1 ? 0 : 1;
  n->classes = self->sizes[n->dim];
  n->x = tt_in_as(r, "self", tt_opmath(self->dtype));
  tt_hlo target = tt_in_as(r, "target", TT_S64);
  if (self->ndim == 1) {
    target = tt_hlo_reshape(target, NULL, 0);
  }
  if (!n->x || !target) {
    return false;
  }
  n->kept = v_ne(target, v_const(target, (double)tt_int(r, "ignore_index", -100)));
  tt_hlo valid = v_and(v_gec(target, 0), v_ltc(target, (double)n->classes));
  tt_device_assert(r, v_or(valid, v_not(n->kept)), TT_ERR_INDEX,
                   "Target is out of bounds: expected values in [0, %" PRId64 ")", n->classes);
  n->kept = v_and(n->kept, valid);
  n->target = tt_cast(v_if(n->kept, target, v_const(target, 0)), TT_S32);
  tt_hlo one = tt_cast(n->kept, n->x->dtype);
  n->weight = one;
  if (tt_operand_of(r, "weight") && n->classes > 0) {
    tt_hlo weight = tt_take_flat(tt_in_as(r, "weight", n->x->dtype), n->target);
    n->weight = v_if(n->kept, weight, v_const(one, 0));
  }
  return n->weight != NULL;
}

static void build_nll(tt_rule *r) {
  const bool is_2d = tt_rule_kind(r);
  nll n = {0};
  if (!read_nll(r, is_2d, &n)) {
    return;
  }
  tt_hlo loss = v_const(n.weight, 0);
  if (n.classes > 0) {
    tt_hlo picked = tt_take_along(n.x, n.dim, v_unsqueeze(n.target, n.dim));
    loss = v_if(n.kept, v_neg(v_mul(v_squeeze(picked, n.dim), n.weight)), loss);
  }
  const int64_t how = reduction(r);
  tt_hlo total = v_reduce_all(TT_SUM, n.weight), sum = v_reduce_all(TT_SUM, loss);
  if (how == REDUCE_NONE) {
    tt_ret(r, 0, tt_cast(loss, n.dtype));
    // CPU leaves the total at 0 here, but for a single sample.
    tt_ret(r, 1, tt_cast(n.x->rank == 1 || !total ? total : v_const(total, 0), n.dtype));
    return;
  }
  tt_ret(r, 0, tt_cast(how == REDUCE_MEAN ? v_div(sum, total) : sum, n.dtype));
  tt_ret(r, 1, tt_cast(total, n.dtype));
}

static void build_nll_backward(tt_rule *r) {
  const bool is_2d = tt_rule_kind(r);
  nll n = {0};
  if (!read_nll(r, is_2d, &n)) {
    return;
  }
  tt_hlo grad = tt_in_as(r, "grad_output", n.x->dtype);
  if (reduction(r) == REDUCE_MEAN) {
    grad = v_div(grad, v_reshape_like(tt_in_as(r, "total_weight", n.x->dtype), grad));
  }
  if (reduction(r) != REDUCE_NONE || n.x->rank == 1) {
    grad = v_like(tt_hlo_reshape(grad, NULL, 0), n.weight);
  }
  grad = v_if(n.kept, v_neg(v_mul(grad, n.weight)), v_const(n.weight, 0));
  // One class an element: a comparison, not a scatter.
  tt_hlo here = v_eq(v_iota(n.x, TT_S32, n.dim), v_spread(n.target, n.x, n.dim));
  tt_hlo result = v_if(here, v_spread(grad, n.x, n.dim), v_const(n.x, 0));
  tt_ret(r, 0, tt_cast(result, n.dtype));
}

// ---- multi-class margins: input [N, C] or [C] ----
typedef struct margins {
  tt_hlo x;                            // [N, C]
  tt_hlo target;                       // s32 [N]
  tt_hlo is_target, weight, distance;  // [N, C]; weight NULL if none
  tt_dtype dtype;
} margins;

// An input of the margin losses: a vector or matrix of classes; gives its rows and columns.
static bool read_classes(tt_rule *r, const char *kernel, int64_t dims[2]) {
  const tt_operand *self = tt_operand_of(r, "self");
  if (!self || !check_float(r, self->dtype, kernel)) {
    return false;
  }
  dims[0] = self->ndim == 2 ? self->sizes[0] : 1;
  dims[1] = self->ndim ? self->sizes[self->ndim - 1] : 1;
  if (self->ndim > 2 || dims[1] == 0) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected non-empty vector or matrix with optional 0-dim batch size, but got: %s",
            tt_dims_text(self->sizes, self->ndim).text);
    return false;
  }
  return true;
}

static bool check_margins(tt_rule *r, const int64_t dims[2]) {
  const tt_operand *target = tt_operand_of(r, "target"), *weight = tt_operand_of(r, "weight");
  const double p = tt_static_double(r, "p", 1);
  if (p != 1 && p != 2) {
    tt_fail(r, TT_ERR_RUNTIME, "only p == 1 and p == 2 supported");
  } else if (target->ndim > 1 || (target->ndim == 1 && target->sizes[0] != dims[0])) {
    tt_fail(r, TT_ERR_RUNTIME,
            "The target tensor should be 1-D with size equal to the input's batch size. Expected target size [%" PRId64
            "], but got %s",
            dims[0], tt_dims_text(target->sizes, target->ndim).text);
  } else if (weight && (weight->ndim > 1 || (weight->ndim ? weight->sizes[0] : 1) != dims[1])) {
    tt_fail(r, TT_ERR_RUNTIME, "inconsistent weight size, expected %" PRId64 " but got %s", dims[1],
            tt_dims_text(weight->sizes, weight->ndim).text);
  } else if (target->dtype != TT_S64) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type Long but found %s", tt_type_name(target->dtype));
  }
  return !tt_failed(r);
}

static bool read_margins(tt_rule *r, margins *m) {
  const tt_operand *self = tt_operand_of(r, "self");
  int64_t dims[2];
  if (!read_classes(r, "multi_margin_loss", dims) || !tt_operand_of(r, "target") || !check_margins(r, dims)) {
    return false;
  }
  m->dtype = self->dtype;
  m->x = tt_hlo_reshape(tt_in_as(r, "self", tt_opmath(self->dtype)), dims, 2);
  m->target = tt_positions(r, v_flat(tt_in(r, "target")), dims[1], false, "target");
  if (!m->x || !m->target) {
    return false;
  }
  m->target = tt_cast(m->target, TT_S32);
  m->is_target = v_eq(v_iota(m->x, TT_S32, 1), v_spread(m->target, m->x, 1));
  tt_hlo zero = v_const(m->x, 0), at_target = v_reduce(TT_SUM, v_if(m->is_target, m->x, zero), 1);
  m->distance = v_add(v_sub(number_like(r, "margin", m->x), v_spread(at_target, m->x, 1)), m->x);
  m->weight = NULL;
  if (tt_operand_of(r, "weight")) {
    m->weight = v_spread(tt_take_flat(tt_in_as(r, "weight", m->x->dtype), m->target), m->x, 1);
  }
  return m->distance != NULL;
}

static void build_multi_margin(tt_rule *r) {
  margins m;
  if (!read_margins(r, &m)) {
    return;
  }
  tt_hlo zero = v_const(m.x, 0), z = v_max(m.distance, zero);
  z = tt_static_double(r, "p", 1) == 2 ? v_mul(z, z) : z;
  z = v_if(m.is_target, zero, m.weight ? v_mul(z, m.weight) : z);
  tt_hlo loss = tt_mean_of(v_reduce(TT_SUM, z, 1), m.x->dims[1]);
  if (reduction(r) == REDUCE_NONE) {
    const tt_operand *target = tt_operand_of(r, "target");
    tt_ret(r, 0, tt_cast(tt_hlo_reshape(loss, target->sizes, target->ndim), m.dtype));
  } else {
    ret_loss(r, loss, m.dtype);
  }
}

static void build_multi_margin_backward(tt_rule *r) {
  margins m;
  if (!read_margins(r, &m)) {
    return;
  }
  const double c = (double)m.x->dims[1];
  tt_hlo zero = v_const(m.x, 0);
  tt_hlo slope = tt_static_double(r, "p", 1) == 2 ? v_mulc(v_max(m.distance, zero), 2 / c) : v_const(m.x, 1 / c);
  slope = v_if(v_gtc(m.distance, 0), m.weight ? v_mul(slope, m.weight) : slope, zero);
  slope = v_if(m.is_target, zero, slope);
  slope = v_if(m.is_target, v_neg(v_spread(v_reduce(TT_SUM, slope, 1), m.x, 1)), slope);
  tt_hlo grad = tt_in_as(r, "grad_output", m.x->dtype);
  const bool each = reduction(r) == REDUCE_NONE && grad && grad->rank == 1;
  grad = each ? v_spread(grad, m.x, 1) : v_like(tt_hlo_reshape(grad, NULL, 0), m.x);
  slope = reduction(r) == REDUCE_MEAN ? v_mulc(slope, 1 / (double)m.x->dims[0]) : slope;
  tt_ret(r, 0, tt_cast(v_reshape_like(v_mul(slope, grad), tt_in(r, "self")), m.dtype));
}

// ---- multi-label margins: targets are class numbers up to the first -1 ----
typedef struct labels {
  tt_hlo x, target, listed;  // [N, C]; listed: before the first -1
  tt_dtype dtype;
} labels;

static bool read_labels(tt_rule *r, labels *l) {
  const tt_operand *self = tt_operand_of(r, "self"), *target = tt_operand_of(r, "target");
  int64_t dims[2];
  if (!target || !read_classes(r, "multilabel_margin_loss", dims)) {
    return false;
  }
  if (target->ndim > 2 || target->ndim != self->ndim ||
      memcmp(target->sizes, self->sizes, sizeof(int64_t) * (size_t)self->ndim)) {
    tt_fail(r, TT_ERR_RUNTIME, "inconsistent target size: %s for input of size: %s",
            tt_dims_text(target->sizes, target->ndim).text, tt_dims_text(self->sizes, self->ndim).text);
    return false;
  }
  l->dtype = self->dtype;
  l->x = tt_hlo_reshape(tt_in_as(r, "self", tt_opmath(self->dtype)), dims, 2);
  l->target = tt_hlo_reshape(tt_cast(tt_in(r, "target"), TT_S32), dims, 2);
  l->listed = l->target ? tt_running(TT_ALL, v_gec(l->target, 0), 1) : NULL;
  if (l->target) {
    tt_device_assert(r, v_and(v_gec(l->target, -1), v_ltc(l->target, (double)dims[1])), TT_ERR_RUNTIME,
                     "argument target is out of range");
  }
  return l->listed != NULL;
}

// [N, C(k), C(j)]: x along j, target and listed along k.
static tt_hlo cube(const labels *l, tt_hlo value, bool along_k) {
  const int64_t dims[] = {l->x->dims[0], l->x->dims[1], l->x->dims[1]};
  return tt_hlo_broadcast_in_dim(value, dims, 3, along_k ? (const int32_t[]){0, 1} : (const int32_t[]){0, 2});
}

// x at the k-th target: [N, C].
static tt_hlo at_targets(const labels *l, tt_hlo matches) {
  tt_hlo x = cube(l, l->x, false);
  return x ? v_reduce(TT_SUM, v_if(matches, x, v_const(x, 0)), 2) : NULL;
}

static tt_hlo label_matches(const labels *l) {  // target k is listed and is class j
  tt_hlo target = cube(l, l->target, true);
  return target ? v_and(v_eq(v_iota(target, TT_S32, 2), target), cube(l, l->listed, true)) : NULL;
}

static void build_multilabel_margin(tt_rule *r) {
  labels l;
  if (!read_labels(r, &l)) {
    return;
  }
  tt_hlo matches = label_matches(&l), is_target = v_reduce(TT_ANY, matches, 1);
  tt_hlo z = v_sub(cube(&l, l.x, false), cube(&l, at_targets(&l, matches), true));
  z = z ? v_max(v_addc(z, 1), v_const(z, 0)) : NULL;
  tt_hlo counted = v_and(cube(&l, l.listed, true), v_not(cube(&l, is_target, false)));
  z = z ? v_if(counted, z, v_const(z, 0)) : NULL;
  tt_hlo loss = tt_mean_of(v_reduce(TT_SUM, v_reduce(TT_SUM, z, 2), 1), l.x->dims[1]);
  const tt_operand *self = tt_operand_of(r, "self"), *target = tt_operand_of(r, "target");
  if (reduction(r) == REDUCE_NONE) {
    tt_ret(r, 0, tt_cast(tt_hlo_reshape(loss, self->sizes, self->ndim == 2 ? 1 : 0), l.dtype));
  } else {
    ret_loss(r, loss, l.dtype);
  }
  tt_ret(r, 1, tt_hlo_reshape(tt_cast(is_target, l.dtype), target->sizes, target->ndim));
}

static void build_multilabel_margin_backward(tt_rule *r) {
  labels l;
  if (!read_labels(r, &l)) {
    return;
  }
  tt_hlo matches = label_matches(&l);
  tt_hlo is_target = tt_hlo_reshape(tt_in_as(r, "is_target", TT_PRED), l.x->dims, 2);
  tt_hlo z = v_sub(cube(&l, l.x, false), cube(&l, at_targets(&l, matches), true));
  z = z ? v_addc(z, 1) : NULL;
  tt_hlo active = z ? v_and(v_gtc(z, 0), v_and(cube(&l, l.listed, true), v_not(cube(&l, is_target, false)))) : NULL;
  tt_hlo one = tt_cast(active, l.x->dtype);
  // +1 for each j of an active pair, -1 for each k's class.
  tt_hlo pulls = cube(&l, v_reduce(TT_SUM, one, 2), true);
  tt_hlo minus = pulls ? v_reduce(TT_SUM, v_if(matches, pulls, v_const(pulls, 0)), 1) : NULL;
  tt_hlo slope = v_mulc(v_sub(v_reduce(TT_SUM, one, 1), minus), 1 / (double)l.x->dims[1]);
  tt_hlo grad = tt_in_as(r, "grad_output", l.x->dtype);
  const bool each = reduction(r) == REDUCE_NONE && grad && grad->rank == 1;
  grad = each ? v_spread(grad, l.x, 1) : v_like(tt_hlo_reshape(grad, NULL, 0), l.x);
  slope = reduction(r) == REDUCE_MEAN ? v_mulc(slope, 1 / (double)l.x->dims[0]) : slope;
  tt_ret(r, 0, tt_cast(v_reshape_like(v_mul(slope, grad), tt_in(r, "self")), l.dtype));
}

#define ENTRY(rule_name, function, rule_kind) {.name = "aten::" rule_name, .build = function, .kind = rule_kind}

#define DIFFERENCE(rule_name, function, rule_kind) \
  {.name = "aten::" rule_name, .build = function, .kind = rule_kind, .out_dtype = TT_OUT_CAST}

const tt_rule_entry tt_rules_loss[] = {
    DIFFERENCE("mse_loss", build_difference_loss, KIND_MSE),
    DIFFERENCE("smooth_l1_loss", build_difference_loss, KIND_SMOOTH_L1),
    DIFFERENCE("huber_loss", build_difference_loss, KIND_HUBER),
    DIFFERENCE("mse_loss_backward", build_difference_loss_backward, KIND_MSE),
    DIFFERENCE("smooth_l1_loss_backward", build_difference_loss_backward, KIND_SMOOTH_L1),
    ENTRY("huber_loss_backward", build_difference_loss_backward, KIND_HUBER),
    ENTRY("binary_cross_entropy", build_bce, 0),
    {.name = "aten::binary_cross_entropy_backward", .build = build_bce_backward, .out_dtype = TT_OUT_EXACT},
    ENTRY("binary_cross_entropy_with_logits", build_bce_with_logits, 0),
    ENTRY("soft_margin_loss", build_soft_margin, 0),
    ENTRY("soft_margin_loss_backward", build_soft_margin_backward, 0),
    ENTRY("nll_loss_forward", build_nll, 0),
    ENTRY("nll_loss2d_forward", build_nll, 1),
    ENTRY("nll_loss_backward", build_nll_backward, 0),
    ENTRY("nll_loss2d_backward", build_nll_backward, 1),
    {.name = "aten::multi_margin_loss", .build = build_multi_margin, .static_args = "p"},
    {.name = "aten::multi_margin_loss_backward", .build = build_multi_margin_backward, .static_args = "p"},
    ENTRY("multilabel_margin_loss_forward", build_multilabel_margin, 0),
    ENTRY("multilabel_margin_loss_backward", build_multilabel_margin_backward, 0),
    {.name = NULL},
};
