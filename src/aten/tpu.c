// What TPUs lack, in one table: asked before a module is built, so that the error is ours and says what to do. Kept
// true by tests/tpu/check.py, which compiles every rule for every generation; docs/reference/tpu.md has its results.
#include <stdlib.h>
#include <string.h>

#include "aten/internal.h"

#define BIT(dtype) (1u << (dtype))

typedef struct limit {
  const char *rules;  // names of rules that begin so
  const char *kinds;  // device kinds, with commas; NULL: every generation
  const char *what;   // for the message: "of float64 and complex128"
  const char *cure;
  uint32_t dtypes;  // of operands
  int64_t most;     // points along a dim; 0: none at all
} limit;

static const limit limits[] = {
    // The compiler has no FFT of float64. fft.c multiplies by the transform's matrix, which has the square of the
    // points: 1 GiB here.
    {"aten::_fft_", NULL, "Fourier transforms of float64 and complex128 over more than 8192 points",
     "convert the operand to float32 or complex64, or move it to the CPU", BIT(TT_F64) | BIT(TT_C128), 8192},
    // No convolution of int64; conv.c has another form for the forward pass, and autograd has no gradient of integers.
    {"aten::convolution_backward", NULL, "gradients of int64 convolutions", "convert the operands to int32 or float32",
     BIT(TT_S64), 0},
};

bool tt_tpu_limit_at(int32_t index, const char **out_rules, const char **out_kinds, const char **out_what) {
  if (index < 0 || (size_t)index >= sizeof limits / sizeof *limits) {
    return false;
  }
  *out_rules = limits[index].rules;
  *out_kinds = limits[index].kinds;
  *out_what = limits[index].what;
  return true;
}

static bool has_kind(const char *kinds, const char *kind) {
  size_t size = kind ? strlen(kind) : 0;
  for (const char *at = kinds; at; at = strchr(at, ',') ? strchr(at, ',') + 1 : NULL) {
    if (size && strcspn(at, ",") == size && !memcmp(at, kind, size)) {
      return true;
    }
  }
  return !kinds;
}

static const limit *find(const tt_rule *r, tt_dtype dtype) {
  const tt_rule_env *env = &r->call->env;
  for (size_t i = 0; !env->is_cpu && i < sizeof limits / sizeof *limits; i++) {
    const limit *l = &limits[i];
    if (!strncmp(r->call->op->rule->name, l->rules, strlen(l->rules)) && (l->dtypes & BIT(dtype)) &&
        has_kind(l->kinds, env->device_kind)) {
      return l;
    }
  }
  return NULL;
}

bool tt_tpu_has(tt_rule *r, tt_dtype dtype, int64_t points) {
  const limit *l = find(r, dtype);
  if (!l || (l->most && points <= l->most)) {
    return true;
  }
  const char *kind = r->call->env.device_kind ? r->call->env.device_kind : "TPU";
  if (l->most) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "%s has no %s, here %lld: %s", kind, l->what, (long long)points, l->cure);
  } else {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "%s has no %s: %s", kind, l->what, l->cure);
  }
  return false;
}

bool tt_tpu_has_operands(tt_rule *r) {
  for (int32_t i = 0; !r->call->env.is_cpu && i < r->call->tensor_count; i++) {
    const tt_operand *x = &r->operands[i];
    const limit *l = find(r, x->dtype);
    if (l && !l->most && !tt_tpu_has(r, x->dtype, 0)) {
      return false;
    }
  }
  return true;
}
