// The accessors of rule.h: arguments, parameters, device asserts and random numbers.
#include "aten/rule.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "aten/internal.h"

void *tt_rule_grow(tt_rule *r, void *array, int32_t count, int32_t *capacity, size_t size) {
  if (count < *capacity) {
    return array;
  }
  int32_t larger = *capacity ? 2 * *capacity : 8;
  void *copy = tt_arena_alloc(&r->out->arena, (size_t)larger * size);
  if (!copy) {
    tt_fail(r, TT_ERR_OUT_OF_MEMORY, "out of host memory");
    return NULL;
  }
  if (array) {
    memcpy(copy, array, (size_t)count * size);
  }
  *capacity = larger;
  return copy;
}

// ---- about the call ----
int32_t tt_rule_kind(const tt_rule *r) { return r->call->op->rule->kind; }
tt_hlo_builder *tt_b(tt_rule *r) { return r->b; }
const char *tt_rule_name(const tt_rule *r) { return r->call->op->short_name; }
bool tt_rule_is_cpu(const tt_rule *r) { return r->call->env.is_cpu; }
bool tt_rule_has_host_kernels(const tt_rule *r) { return r->call->env.is_cpu && r->call->env.has_host_kernels; }
tt_hlo_precision tt_matmul_precision(const tt_rule *r) { return r->call->env.precision; }
tt_dtype tt_default_dtype(const tt_rule *r) { return r->call->env.default_dtype; }
bool tt_failed(const tt_rule *r) { return r->failed || tt_hlo_status(r->b); }

void tt_fail(tt_rule *r, tt_code code, const char *format, ...) {
  char text[1024];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  r->failed = true;
  tt_hlo_fail(r->b, tt_error(code, "%s(): %s", tt_rule_name(r), text));
}

// ---- arguments ----
int32_t tt_rule_arg_index(const tt_rule *r, const char *name) {
  const tt_op *op = r->call->op;
  for (int32_t i = 0; i < op->arg_count && i < r->call->arg_count; i++) {
    if (!strcmp(op->args[i].name, name)) {
      return i;
    }
  }
  return -1;
}

const tt_arg *tt_rule_arg(const tt_rule *r, const char *name) {
  int32_t i = tt_rule_arg_index(r, name);
  return i < 0 || r->call->args[i].tag == TT_ARG_NONE ? NULL : &r->call->args[i];
}

bool tt_has(tt_rule *r, const char *name) { return tt_rule_arg(r, name) != NULL; }

int32_t tt_rule_tensor_index(tt_rule *r, const char *name, int32_t element) {
  const tt_arg *arg = tt_rule_arg(r, name);
  if (!arg) {
    return -1;
  }
  int32_t count = arg->tag == TT_ARG_TENSOR ? 1 : arg->tag == TT_ARG_TENSORS ? (int32_t)arg->count : 0;
  if (element < 0 || element >= count) {
    tt_fail(r, TT_ERR_INTERNAL, "argument '%s' has no tensor %d", name, element);
    return -1;
  }
  int32_t index = r->call->first_tensor[arg - r->call->args] + element;
  return r->call->tensors[index].tensor->is_none ? -1 : index;
}

static const tt_operand *operand(tt_rule *r, int32_t index) { return index < 0 ? NULL : &r->operands[index]; }

const tt_operand *tt_operand_of(tt_rule *r, const char *name) {
  const tt_arg *arg = tt_rule_arg(r, name);
  if (arg && arg->tag != TT_ARG_TENSOR && arg->tag != TT_ARG_TENSORS) {
    return NULL;  // a number
  }
  return operand(r, tt_rule_tensor_index(r, name, 0));
}
const tt_operand *tt_operand_at(tt_rule *r, const char *name, int32_t index) {
  return operand(r, tt_rule_tensor_index(r, name, index));
}

tt_hlo tt_rule_add_param(tt_rule *r, tt_param param, const int64_t *dims, int32_t rank) {
  tt_lowered *out = r->out;
  out->params = tt_rule_grow(r, out->params, out->param_count, &r->param_capacity, sizeof *out->params);
  if (!out->params) {
    return NULL;
  }
  out->params[out->param_count++] = param;
  return tt_hlo_parameter(r->b, param.dtype, dims, rank);
}

static tt_hlo slot_value(tt_rule *r, tt_slot *slot) {
  if (!slot->original) {
    if (slot->defined) {
      slot->parameter = r->out->param_count;
      tt_param param = {
          .kind = TT_PARAM_SLOT, .dtype = (uint8_t)slot->dtype, .index = (int32_t)(slot - r->call->slots)};
      slot->original = tt_rule_add_param(r, param, slot->shape.dims, slot->shape.rank);
    } else {
      // Memory that nothing was stored in reads as zeros, behind a barrier: the compiler folds operations on constants,
      // and an integer division by zero would end the process there.
      slot->original =
          tt_hlo_optimization_barrier(tt_hlo_const(r->b, slot->dtype, 0, slot->shape.dims, slot->shape.rank));
    }
  }
  return slot->original;
}

// The view's offset as an operand, made once per tensor.
static tt_hlo tensor_offset(tt_rule *r, int32_t index) {
  tt_call_tensor *t = &r->call->tensors[index];
  if (!t->offset && tt_view_needs_offset(t->kind)) {
    tt_dtype dtype = tt_view_offset_dtype(r->call->slots[t->slot].shape.numel);
    t->offset =
        tt_rule_add_param(r, (tt_param){.kind = TT_PARAM_OFFSET, .dtype = (uint8_t)dtype, .index = index}, NULL, 0);
  }
  return t->offset;
}

static tt_hlo host_value(tt_rule *r, int32_t index, tt_dtype dtype) {
  return tt_rule_add_param(r, (tt_param){.kind = TT_PARAM_HOST, .dtype = (uint8_t)dtype, .index = index}, NULL, 0);
}

tt_hlo tt_rule_tensor_value(tt_rule *r, int32_t index) {
  if (index < 0) {
    return NULL;
  }
  tt_call_tensor *t = &r->call->tensors[index];
  if (!t->value) {
    if (t->slot < 0) {
      t->value = host_value(r, index, (tt_dtype)t->tensor->dtype);
    } else {
      tt_hlo base = slot_value(r, &r->call->slots[t->slot]);
      tt_view view = {t->tensor->ndim, t->tensor->sizes, t->tensor->strides, 0};
      t->value = tt_view_read(base, t->kind, &view, tensor_offset(r, index));
    }
  }
  return t->value;
}

static tt_hlo required(tt_rule *r, const char *name, int32_t index) {
  if (index < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "argument '%s' must be a tensor, not None", name);
  }
  return tt_rule_tensor_value(r, index);
}

static tt_hlo tensor_as(tt_rule *r, int32_t index, tt_dtype dtype) {
  if (index >= 0 && r->call->tensors[index].slot < 0 && (tt_dtype)r->call->tensors[index].tensor->dtype != dtype) {
    return host_value(r, index, dtype);  // the host converts
  }
  return tt_cast(tt_rule_tensor_value(r, index), dtype);
}

tt_hlo tt_in(tt_rule *r, const char *name) { return required(r, name, tt_rule_tensor_index(r, name, 0)); }

tt_hlo tt_in_as(tt_rule *r, const char *name, tt_dtype dtype) {
  int32_t index = tt_rule_tensor_index(r, name, 0);
  return index < 0 ? required(r, name, index) : tensor_as(r, index, dtype);
}

bool tt_in_memory(tt_rule *r, const char *name, tt_hlo *out_memory, tt_hlo *out_offset) {
  *out_memory = *out_offset = NULL;
  const int32_t index = tt_rule_tensor_index(r, name, 0);
  if (index < 0 || r->call->tensors[index].slot < 0) {
    return false;
  }
  tt_slot *slot = &r->call->slots[r->call->tensors[index].slot];
  *out_memory = tt_hlo_reshape(slot_value(r, slot), &slot->shape.numel, 1);
  *out_offset = tensor_offset(r, index);
  if (!*out_offset) {
    *out_offset = tt_hlo_scalar(r->b, TT_S32, 0);
  }
  return *out_memory && *out_offset;
}

int32_t tt_list_length(tt_rule *r, const char *name) {
  const tt_arg *arg = tt_rule_arg(r, name);
  return arg ? (int32_t)arg->count : 0;
}

tt_hlo tt_in_at(tt_rule *r, const char *name, int32_t index) {
  return tt_rule_tensor_value(r, tt_rule_tensor_index(r, name, index));
}

tt_hlo tt_in_at_as(tt_rule *r, const char *name, int32_t index, tt_dtype dtype) {
  int32_t tensor = tt_rule_tensor_index(r, name, index);
  return tensor < 0 ? NULL : tensor_as(r, tensor, dtype);
}

int64_t tt_int(tt_rule *r, const char *name, int64_t if_none) {
  const tt_arg *arg = tt_rule_arg(r, name);
  return !arg ? if_none : arg->tag == TT_ARG_NUMBER && arg->u.number.type != TT_F64 ? arg->u.number.u.i : arg->u.i;
}

bool tt_bool(tt_rule *r, const char *name, bool if_none) { return tt_int(r, name, if_none) != 0; }

const int64_t *tt_ints(tt_rule *r, const char *name, int32_t *out_count) {
  const tt_arg *arg = tt_rule_arg(r, name);
  bool is_list = arg && arg->tag == TT_ARG_INTS;
  *out_count = is_list ? (int32_t)arg->count : 0;
  static const int64_t none[1];
  return is_list ? (arg->count ? arg->u.ints : none) : NULL;
}

int64_t tt_ints_numel(tt_rule *r, const char *name) {
  int32_t count;
  const int64_t *sizes = tt_ints(r, name, &count);
  int64_t numel = 1;
  for (int32_t i = 0; i < count; i++) {
    if (sizes[i] < 0 || __builtin_mul_overflow(numel, sizes[i], &numel)) {
      tt_fail(r, TT_ERR_RUNTIME, "invalid size %lld in '%s'", (long long)sizes[i], name);
      return 0;
    }
  }
  return numel;
}

const char *tt_string(tt_rule *r, const char *name) {
  const tt_arg *arg = tt_rule_arg(r, name);
  return arg && arg->tag == TT_ARG_STRING ? arg->u.string : NULL;
}

tt_dtype tt_dtype_arg(tt_rule *r, const char *name, tt_dtype if_none) { return (tt_dtype)tt_int(r, name, if_none); }

tt_dtype tt_asked_dtype(tt_rule *r, tt_dtype if_none) {
  const tt_operand *out = r->out_dtype == TT_OUT_ANY ? tt_operand_of(r, "out") : NULL;
  return tt_dtype_arg(r, "dtype", out ? out->dtype : if_none);
}

void tt_accept_out_dtype(tt_rule *r, tt_out_dtype accepted) { r->out_dtype = accepted; }

// ---- numbers ----
static const tt_number *number_at(tt_rule *r, const char *name, int32_t index) {
  const tt_arg *arg = tt_rule_arg(r, name);
  if (!arg) {
    return NULL;
  }
  if (arg->tag == TT_ARG_NUMBERS) {
    return index >= 0 && (uint32_t)index < arg->count ? &arg->u.numbers[index] : NULL;
  }
  return arg->tag == TT_ARG_NUMBER ? &arg->u.number : NULL;
}

tt_dtype tt_scalar_type_at(tt_rule *r, const char *name, int32_t index) {
  const tt_number *number = number_at(r, name, index);
  return !number ? TT_DTYPE_INVALID : number->type == TT_U64 ? TT_S64 : number->type;
}

tt_dtype tt_scalar_type(tt_rule *r, const char *name) { return tt_scalar_type_at(r, name, 0); }

static bool number_known(tt_rule *r, const char *name, const tt_number *number, double *out_value) {
  const tt_op_arg *arg = &r->call->op->args[tt_rule_arg_index(r, name)];
  if (!number || (!arg->is_static && !tt_op_arg_known(arg, number))) {
    return false;
  }
  *out_value = tt_number_double(number);
  return true;
}

bool tt_scalar_known(tt_rule *r, const char *name, double *out_value) {
  const tt_number *number = number_at(r, name, 0);
  return number && number_known(r, name, number, out_value);
}

double tt_static_double(tt_rule *r, const char *name, double if_none) {
  const tt_number *number = number_at(r, name, 0);
  return number ? tt_number_double(number) : if_none;
}

bool tt_operand_known(tt_rule *r, const char *name, double *out_value) {
  int32_t index = tt_rule_tensor_index(r, name, 0);
  return index >= 0 && r->call->tensors[index].slot < 0 &&
         number_known(r, name, &r->call->tensors[index].tensor->host, out_value);
}

tt_hlo tt_scalar_at(tt_rule *r, const char *name, int32_t index, tt_dtype dtype) {
  const tt_number *number = number_at(r, name, index);
  int32_t arg = tt_rule_arg_index(r, name);
  if (!number) {
    tt_fail(r, TT_ERR_RUNTIME, "argument '%s' must be a number, not None", name);
    return NULL;
  }
  return tt_rule_add_param(
      r, (tt_param){.kind = TT_PARAM_NUMBER, .dtype = (uint8_t)dtype, .arg = (int16_t)arg, .index = index}, NULL, 0);
}

tt_hlo tt_scalar(tt_rule *r, const char *name, tt_dtype dtype) { return tt_scalar_at(r, name, 0, dtype); }

// ---- device asserts ----
void tt_device_assert(tt_rule *r, tt_hlo all_true, tt_code code, const char *format, ...) {
  char text[512];
  va_list args;
  va_start(args, format);
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  if (!all_true) {
    return;
  }
  bool mask[TT_MAX_RANK];
  memset(mask, true, sizeof mask);
  tt_hlo flag = tt_reduce_mask(TT_ALL, all_true, mask);
  int32_t capacity = r->assert_capacity;
  tt_lowered *out = r->out;
  out->asserts = tt_rule_grow(r, out->asserts, out->assert_count, &r->assert_capacity, sizeof *out->asserts);
  r->assert_flags = tt_rule_grow(r, r->assert_flags, out->assert_count, &capacity, sizeof *r->assert_flags);
  if (!out->asserts || !r->assert_flags) {
    return;
  }
  r->assert_flags[out->assert_count] = flag;
  out->asserts[out->assert_count++] =
      (tt_assert){code, tt_arena_printf(&out->arena, "%s(): %s", tt_rule_name(r), text)};
}

// ---- random numbers ----
tt_hlo tt_random_bits(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank) {
  tt_lowered *out = r->out;
  if (!r->random_state) {
    r->random_state = tt_rule_add_param(r, (tt_param){.kind = TT_PARAM_RANDOM, .dtype = TT_U64}, (int64_t[]){2}, 1);
    out->generator_arg = tt_rule_arg_index(r, "generator");
  }
  // Each draw starts where the one before it ended: THREE_FRY yields 64 bits a counter.
  int64_t step[] = {0, (int64_t)out->random_elements};
  tt_hlo state = tt_hlo_binary(TT_ADD, r->random_state, tt_hlo_const_ints(r->b, TT_U64, step, 2));
  uint64_t elements = 1;
  for (int32_t i = 0; i < rank; i++) {
    elements *= (uint64_t)dims[i];
  }
  out->random_elements += elements;
  return tt_hlo_random_bits(state, dtype, dims, rank);
}

// ---- running ----
static void describe_operands(tt_rule *r) {
  for (int32_t i = 0; i < r->call->tensor_count; i++) {
    tt_call_tensor *t = &r->call->tensors[i];
    t->value = t->offset = NULL;
    r->operands[i] = (tt_operand){.dtype = (tt_dtype)t->tensor->dtype,
                                  .ndim = t->tensor->ndim,
                                  .sizes = t->tensor->sizes,
                                  .strides = t->tensor->strides,
                                  .is_wrapped = t->tensor->is_wrapped,
                                  .is_host = t->slot < 0};
  }
  for (int32_t i = 0; i < r->call->slot_count; i++) {
    r->call->slots[i].original = r->call->slots[i].current = NULL;
    r->call->slots[i].parameter = -1;
  }
}

tt_status *tt_rule_run(const tt_call_info *call, tt_lowered *out) {
  *out = (tt_lowered){.generator_arg = -1, .resize_arg = -1};
  tt_rule rule = {.call = call, .out = out, .out_dtype = call->op->out_dtype};
  rule.operands = tt_arena_alloc(&out->arena, sizeof *rule.operands * (size_t)(call->tensor_count + 1));
  if (!rule.operands) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  TT_TRY(tt_hlo_builder_create(call->op->short_name, &rule.b));
  describe_operands(&rule);
  if (tt_tpu_has_operands(&rule)) {
    call->op->rule->build(&rule);
  }
  tt_status *status = tt_rule_finish(&rule);
  tt_hlo_builder_free(rule.b);
  if (status) {
    tt_lowered_free(out);
  }
  return status;
}

void tt_lowered_free(tt_lowered *lowered) {
  free(lowered->text);
  tt_arena_free(&lowered->arena);
  *lowered = (tt_lowered){0};
}
