// Fractional max pooling over 2 or 3 spatial dims: windows of one size whose places depend on random numbers.
#include <math.h>

#include "aten/dims.h"

enum { MAX_SPATIAL = 3, POOL_2D = 2, POOL_3D = 3 };

typedef struct fractional {
  int32_t n;  // spatial dims
  bool batched;
  int64_t planes, batch, channels;
  int64_t in[MAX_SPATIAL], out[MAX_SPATIAL], kernel[MAX_SPATIAL];
  int64_t in_numel, out_numel;  // of a plane
  int64_t out_dims[TT_MAX_RANK];
  int32_t rank;
} fractional;

static bool read_sizes(tt_rule *r, fractional *f) {
  static const char *const names[] = {"time", "height", "width"};
  int32_t kernels, outs;
  const int64_t *kernel = tt_ints(r, "kernel_size", &kernels), *out = tt_ints(r, "output_size", &outs);
  const tt_operand *self = tt_operand_of(r, "self");
  const int32_t n = tt_rule_kind(r);
  *f = (fractional){.n = n, .planes = 1, .batch = 1, .in_numel = 1, .out_numel = 1};
  if (!self || tt_failed(r)) {
    return false;
  }
  if (kernels != n || outs != n) {
    tt_fail(r, TT_ERR_RUNTIME, "%s must either be a single Int or tuple of Ints",
            kernels != n ? "kernel_size" : "output_size");
    return false;
  }
  f->rank = self->ndim;
  f->batched = self->ndim == n + 2;
  if (self->ndim != n + 1 && self->ndim != n + 2) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected %dD or %dD tensor, but got: %s", n + 1, n + 2,
            tt_dims_text(self->sizes, self->ndim).text);
    return false;
  }
  const int32_t lead = self->ndim - n;
  for (int32_t i = 0; i < self->ndim; i++) {
    if (self->sizes[i] == 0 && (i > 0 || !f->batched)) {
      tt_fail(r, TT_ERR_RUNTIME,
              "Expected input to have non-zero size for non-batch dimensions, but got%s with dimension %d being empty.",
              tt_dims_text(self->sizes, self->ndim).text, i);
      return false;
    }
    f->planes *= i < lead ? self->sizes[i] : 1;
    f->out_dims[i] = i < lead ? self->sizes[i] : out[i - lead];
  }
  f->channels = self->sizes[lead - 1];
  f->batch = f->batched ? self->sizes[0] : 1;
  for (int32_t i = 0; i < n; i++) {
    f->in[i] = self->sizes[lead + i];
    f->out[i] = out[i];
    f->kernel[i] = kernel[i];
    if (out[i] < 0 || kernel[i] < 0 || out[i] > f->in[i] || kernel[i] > f->in[i] || out[i] + kernel[i] - 1 > f->in[i]) {
      tt_fail(r, TT_ERR_RUNTIME, "pool %s %" PRId64 " too large relative to input %s %" PRId64,
              names[MAX_SPATIAL - n + i], kernel[i], names[MAX_SPATIAL - n + i], f->in[i]);
      return false;
    }
    f->in_numel *= f->in[i];
    f->out_numel *= f->out[i];
  }
  return true;
}

static bool check_samples(tt_rule *r, const fractional *f, const tt_operand *self) {
  const tt_operand *samples = tt_operand_of(r, "random_samples");
  if (!samples) {
    return false;
  }
  if (samples->dtype != self->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "Expect _random_samples to have the same dtype as input");
  } else if (samples->ndim != 3) {
    tt_fail(r, TT_ERR_RUNTIME, "Expect _random_samples to have 3 dimensions, got %d", samples->ndim);
  } else if (samples->sizes[0] < f->batch) {
    tt_fail(r, TT_ERR_RUNTIME, "Expect _random_samples.size(0) no less then input batch size.");
  } else if (samples->sizes[1] != f->channels) {
    tt_fail(r, TT_ERR_RUNTIME, "Expect _random_samples.size(1) equals to input channel size.");
  } else if (samples->sizes[2] != f->n) {
    tt_fail(r, TT_ERR_RUNTIME, "Expect _random_samples.size(2) equals to %d; got %" PRId64 ".", f->n,
            samples->sizes[2]);
  }
  return !tt_failed(r);
}

// Each product and sum rounds to the tensor's type, in which PyTorch computes the windows' places.
static tt_hlo rounded(tt_hlo x, tt_dtype dtype) { return tt_cast(tt_cast(x, dtype), x ? x->dtype : dtype); }

// Where the windows of each plane start along a spatial dim: [planes, out]. `sample`: [planes].
static tt_hlo window_starts(const fractional *f, tt_hlo sample, int32_t i, tt_dtype dtype) {
  const int64_t dims[] = {f->planes, f->out[i]}, room = f->in[i] - f->kernel[i];
  if (!sample) {
    return NULL;
  }
  tt_hlo at = tt_hlo_iota(tt_hlo_builder_of(sample), TT_S32, dims, 2, 1);
  if (!at || f->out[i] < 2) {
    return at ? v_const(at, (double)room) : NULL;
  }
  tt_hlo x = v_along(sample, dims, 2, 0);
  const double exact = (double)room / (double)(f->out[i] - 1);
  tt_hlo alpha =
      x ? rounded(v_const(x, x->dtype == TT_F64 ? exact : (double)((float)room / (float)(f->out[i] - 1))), dtype)
        : NULL;
  tt_hlo moved = rounded(v_mul(rounded(v_add(tt_cast(at, x ? x->dtype : dtype), x), dtype), alpha), dtype);
  tt_hlo start = v_sub(tt_cast(moved, TT_S32), tt_cast(rounded(v_mul(x, alpha), dtype), TT_S32));
  return v_if(v_ltc(at, (double)(f->out[i] - 1)), start, v_const(start, (double)room));
}

// The positions in a plane at which windows start: [planes, out...].
static tt_hlo window_origins(tt_rule *r, const fractional *f, tt_dtype type) {
  const tt_operand *self = tt_operand_of(r, "self");
  tt_hlo samples = tt_in_as(r, "random_samples", tt_opmath(self->dtype)), sum = NULL;
  samples = samples ? tt_hlo_slice_dim(samples, 0, 0, f->batch, 1) : NULL;
  int64_t dims[MAX_SPATIAL + 1] = {f->planes, f->out[0], f->out[1], f->out[2]}, stride = f->in_numel;
  for (int32_t i = 0; i < f->n; i++) {
    stride /= f->in[i];
    const int32_t which = f->n == POOL_2D ? 1 - i : i;  // in two dims the first number is the width's
    tt_hlo sample = v_flat(tt_hlo_slice_dim(samples, 2, which, which + 1, 1));
    tt_hlo start = v_mulc(tt_cast(window_starts(f, sample, i, self->dtype), type), (double)stride);
    start = start ? tt_hlo_broadcast_in_dim(start, dims, f->n + 1, (const int32_t[]){0, i + 1}) : NULL;
    sum = sum ? v_add(sum, start) : start;
  }
  return sum;
}

// ---- the greatest element of each window: a loop over its elements. State: tap, greatest, its position ----

typedef struct tap_loop {
  const fractional *f;
  tt_hlo x;       // flat
  tt_hlo origin;  // in a plane
  tt_hlo plane;   // where the plane begins in x
  int64_t taps;
} tap_loop;

static tt_hlo more_taps(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)b;
  return v_ltc(state[0], (double)((const tap_loop *)context)->taps);
}

static void look_at_tap(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  const tap_loop *loop = context;
  const fractional *f = loop->f;
  (void)b;
  tt_hlo tap = state[0], offset = NULL, rest = tap;
  int64_t stride = 1;
  for (int32_t i = f->n - 1; i >= 0 && rest; i--) {
    tt_hlo size = v_const(rest, (double)f->kernel[i]);
    tt_hlo step = v_mulc(tt_hlo_binary(TT_REMAINDER, rest, size), (double)stride);
    offset = offset ? v_add(offset, step) : step;
    rest = v_div(rest, size);
    stride *= f->in[i];
  }
  tt_hlo at = v_add(loop->origin, v_like(tt_cast(offset, loop->origin->dtype), loop->origin));
  tt_hlo seen = tt_take_flat(loop->x, v_add(loop->plane, at));
  tt_hlo take = seen ? v_or(v_gt(seen, state[1]), v_isnan(seen)) : NULL;
  out[0] = tap ? v_addc(tap, 1) : NULL;
  out[1] = v_if(take, seen, state[1]);
  out[2] = v_if(take, at, state[2]);
}

static void build_fractional(tt_rule *r) {
  fractional f;
  const tt_operand *self = tt_operand_of(r, "self");
  if (!read_sizes(r, &f) || !check_samples(r, &f, self)) {
    return;
  }
  if (!tt_dtype_is_float(self->dtype)) {
    tt_fail_dtype(r, f.n == POOL_2D ? "fractional_max_pool2d_out_frame" : "fractional_max_pool3d_out_frame",
                  self->dtype);
    return;
  }
  tap_loop loop = {.f = &f, .x = v_flat(tt_in(r, "self")), .taps = 1};
  const tt_dtype type = v_position_type(f.planes * f.in_numel);
  for (int32_t i = 0; i < f.n; i++) {
    loop.taps *= f.kernel[i];
  }
  loop.origin = window_origins(r, &f, type);
  loop.plane = loop.origin ? v_mulc(v_iota(loop.origin, type, 0), (double)f.in_numel) : NULL;
  if (!loop.x || !loop.plane) {
    return;
  }
  tt_hlo state[] = {tt_hlo_scalar(tt_b(r), TT_S32, 0),
                    tt_hlo_const(tt_b(r), loop.x->dtype, -INFINITY, loop.origin->dims, loop.origin->rank), loop.origin};
  if (loop.taps > 0) {
    tt_hlo_while(state, 3, more_taps, look_at_tap, &loop, state);
  }
  tt_ret(r, 0, tt_hlo_reshape(state[1], f.out_dims, f.rank));
  tt_ret(r, 1, tt_cast(tt_hlo_reshape(state[2], f.out_dims, f.rank), TT_S64));
}

// ---- gradient ----
static void build_fractional_backward(tt_rule *r) {
  fractional f;
  if (!read_sizes(r, &f)) {
    return;
  }
  const tt_operand *self = tt_operand_of(r, "self"), *grad = tt_operand_of(r, "grad_output");
  const tt_operand *indices = tt_operand_of(r, "indices");
  bool fits = grad && indices && grad->ndim == f.rank && indices->ndim == f.rank;
  for (int32_t i = 0; fits && i < f.rank; i++) {
    fits = grad->sizes[i] == f.out_dims[i] && indices->sizes[i] == f.out_dims[i];
  }
  if (!fits) {
    tt_fail(r, TT_ERR_RUNTIME, "gradOutput sizes unexpected");
  } else if (indices->dtype != TT_S64) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type Long but found %s", tt_type_name(indices->dtype));
  } else if (grad->dtype != self->dtype) {
    tt_fail(r, TT_ERR_RUNTIME, "expected scalar type %s but found %s", tt_type_name(self->dtype),
            tt_type_name(grad->dtype));
  } else if (!tt_dtype_is_float(self->dtype)) {
    tt_fail_dtype(
        r, f.n == POOL_2D ? "fractional_max_pool2d_backward_out_frame" : "fractional_max_pool3d_backward_out_frame",
        self->dtype);
  }
  if (tt_failed(r)) {
    return;
  }
  const int64_t dims[] = {f.planes, f.out_numel}, numel = f.planes * f.in_numel;
  const tt_dtype compute = tt_opmath(self->dtype), type = v_position_type(numel);
  tt_hlo index = tt_hlo_reshape(tt_in(r, "indices"), dims, 2);
  tt_hlo inside = index ? v_and(v_gec(index, 0), v_ltc(index, (double)f.in_numel)) : NULL;
  tt_device_assert(r, inside, TT_ERR_RUNTIME, "an index is outside of the input");
  tt_hlo at = tt_cast(index, type);
  at = at ? v_add(at, v_mulc(v_iota(at, type, 0), (double)f.in_numel)) : NULL;
  at = at ? v_if(inside, at, v_const(at, -1)) : NULL;
  tt_hlo sums = tt_put_flat(TT_SCATTER_ADD, tt_hlo_const(tt_b(r), compute, 0, &numel, 1), at,
                            tt_hlo_reshape(tt_in_as(r, "grad_output", compute), dims, 2));
  tt_ret(r, 0, tt_hlo_reshape(tt_cast(sums, self->dtype), self->sizes, self->ndim));
}

const tt_rule_entry tt_rules_fractional_pool[] = {
    {.name = "aten::fractional_max_pool2d", .build = build_fractional, .kind = POOL_2D},
    {.name = "aten::fractional_max_pool3d", .build = build_fractional, .kind = POOL_3D},
    {.name = "aten::fractional_max_pool2d_backward", .build = build_fractional_backward, .kind = POOL_2D},
    {.name = "aten::fractional_max_pool3d_backward", .build = build_fractional_backward, .kind = POOL_3D},
    {0},
};
