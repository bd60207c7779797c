// Results of a rule: new tensors with their strides, writes through views, and the module that makes them.
#include <stdlib.h>
#include <string.h>

#include "aten/internal.h"
#include "aten/pointwise.h"
#include "base/strbuf.h"

// ---- layout ----

// Whether dim a belongs outside dim b (> 0), inside it (< 0), or neither is known (0), by TensorIterator's rule: the
// first operand whose strides decide.
static int compare_dims(const tt_operand *const *operands, int32_t count, const int64_t *sizes, int32_t ndim, int32_t a,
                        int32_t b) {
  for (int32_t i = 0; i < count; i++) {
    int32_t shift = ndim - operands[i]->ndim;
    int64_t stride[2] = {0, 0};
    for (int32_t side = 0; side < 2; side++) {
      int32_t dim = (side ? b : a) - shift;
      if (dim >= 0 && (operands[i]->sizes[dim] != 1 || sizes[dim + shift] == 1)) {
        stride[side] = operands[i]->strides[dim];
      }
    }
    if (stride[0] == 0 || stride[1] == 0) {
      continue;  // a broadcast dim says nothing
    }
    if (stride[0] != stride[1]) {
      return stride[0] > stride[1] ? 1 : -1;
    }
    if (sizes[a] > sizes[b]) {
      return 1;
    }
  }
  return 0;
}

// `order`: outermost first.
static void iterator_order(const tt_operand *const *operands, int32_t count, const int64_t *sizes, int32_t ndim,
                           int32_t *order) {
  int32_t inner_first[TT_MAX_RANK];
  for (int32_t i = 0; i < ndim; i++) {
    inner_first[i] = ndim - 1 - i;
  }
  for (int32_t i = 1; i < ndim; i++) {
    int32_t moving = i;
    for (int32_t j = i - 1; j >= 0; j--) {
      int comparison = compare_dims(operands, count, sizes, ndim, inner_first[j], inner_first[moving]);
      if (comparison > 0) {
        int32_t swap = inner_first[j];
        inner_first[j] = inner_first[moving];
        inner_first[moving] = swap;
        moving = j;
      } else if (comparison < 0) {
        break;
      }
    }
  }
  for (int32_t i = 0; i < ndim; i++) {
    order[i] = inner_first[ndim - 1 - i];
  }
}

static bool same_sizes(const tt_operand *x, const int64_t *sizes, int32_t ndim) {
  return x->ndim == ndim && !memcmp(x->sizes, sizes, sizeof *sizes * (size_t)ndim);
}

int64_t tt_operand_numel(const tt_operand *x) {
  int64_t numel = 1;
  for (int32_t i = 0; i < x->ndim; i++) {
    numel *= x->sizes[i];
  }
  return numel;
}

// No overlap and no gap; an empty tensor has neither.
static bool is_dense(const tt_operand *x) {
  int64_t numel = tt_operand_numel(x);
  for (int32_t i = 0; i < x->ndim && numel > 0; i++) {
    if (x->sizes[i] > 1 && x->strides[i] == 0) {
      return false;
    }
  }
  tt_view view = {x->ndim, x->sizes, x->strides, 0};
  tt_shape shape = {1, &numel, numel};
  return numel == 0 || tt_view_classify(&shape, &view) == TT_VIEW_FULL;
}

bool tt_operand_is_contiguous(const tt_operand *x) {
  int64_t stride = 1;
  bool row_major = true;
  for (int32_t i = x->ndim - 1; i >= 0; i--) {
    row_major = row_major && (x->sizes[i] == 1 || x->strides[i] == stride);
    stride *= x->sizes[i];
  }
  return row_major || tt_operand_numel(x) == 0;
}

static void identity_order(int32_t ndim, int32_t *order) {
  for (int32_t i = 0; i < ndim; i++) {
    order[i] = i;
  }
}

static bool is_identity(const int32_t *order, int32_t ndim) {
  bool same = true;
  for (int32_t i = 0; i < ndim; i++) {
    same = same && order[i] == i;
  }
  return same;
}

// Layout as TensorIterator allocates it for these operands; `broadcast` if there are others, of other sizes (numbers
// too), so that none of its short cuts is taken.
static void layout_from(tt_ret_record *ret, const tt_operand *const *operands, int32_t count, bool broadcast) {
  const int64_t *sizes = ret->value->dims;
  int32_t ndim = ret->value->rank;
  bool same = count > 0, contiguous = count > 0;
  for (int32_t i = 0; i < count; i++) {
    bool whole = same_sizes(operands[i], sizes, ndim) && !broadcast;
    contiguous = contiguous && whole && tt_operand_is_contiguous(operands[i]);
    same = same && whole && is_dense(operands[i]) &&
           !memcmp(operands[i]->strides, operands[0]->strides, sizeof *sizes * (size_t)ndim);
  }
  if (contiguous) {
    return;  // in order already, with the strides that follow from the sizes
  }
  if (same) {
    tt_view view = {ndim, sizes, operands[0]->strides, 0};
    tt_view_memory_order(&view, ret->order);
    ret->strides = operands[0]->strides;
  } else {
    iterator_order(operands, count, sizes, ndim, ret->order);
    ret->zero_strides = broadcast && !is_identity(ret->order, ndim);
  }
}

// Layout as empty_like() gives it: the operand's own strides where it is dense.
static void layout_like(tt_ret_record *ret, const tt_operand *like) {
  if (is_dense(like)) {
    tt_view view = {like->ndim, like->sizes, like->strides, 0};
    tt_view_memory_order(&view, ret->order);
    ret->strides = like->strides;
  } else {
    layout_from(ret, &like, 1, false);
  }
}

// ---- recording ----
static tt_ret_record *add_ret(tt_rule *r, int32_t position, tt_hlo value) {
  r->rets = tt_rule_grow(r, r->rets, r->ret_count, &r->ret_capacity, sizeof *r->rets);
  if (!r->rets) {
    return NULL;
  }
  tt_ret_record *ret = &r->rets[r->ret_count++];
  *ret = (tt_ret_record){.position = position, .value = value, .slot = -1, .tensor = -1};
  if (value) {
    identity_order(value->rank, ret->order);
  }
  return ret;
}

bool tt_can_cast(tt_dtype from, tt_dtype to) {
  bool to_float = tt_dtype_is_float(to) || tt_dtype_is_complex(to);
  return !(tt_dtype_is_complex(from) && !tt_dtype_is_complex(to)) && !(tt_dtype_is_float(from) && !to_float) &&
         !(from != TT_PRED && to == TT_PRED);
}

static const char *sizes_text(tt_rule *r, const int64_t *sizes, int32_t ndim) {
  tt_strbuf text = {0};
  for (int32_t i = 0; i < ndim; i++) {
    tt_strbuf_printf(&text, i ? ", %lld" : "%lld", (long long)sizes[i]);
  }
  char *copy = tt_arena_printf(&r->out->arena, "[%s]", tt_strbuf_text(&text));
  tt_strbuf_free(&text);
  return copy ? copy : "";
}

static bool fits(tt_rule *r, tt_dtype result, tt_dtype target) {
  if (!tt_can_cast(result, target)) {
    tt_fail(r, TT_ERR_RUNTIME, "result type %s can't be cast to the desired output type %s", tt_type_name(result),
            tt_type_name(target));
    return false;
  }
  return true;
}

// Whether a written tensor may have the dtype `dtype`. In-place results may always be cast.
static bool accepts_dtype(tt_rule *r, tt_hlo value, tt_dtype dtype, tt_out_dtype accepted) {
  if (value->dtype == dtype || accepted == TT_OUT_ANY) {
    return true;
  }
  if (accepted == TT_OUT_EXACT) {
    tt_fail(r, TT_ERR_RUNTIME, "Expected out tensor to have dtype %s, but got %s instead", tt_type_name(value->dtype),
            tt_type_name(dtype));
    return false;
  }
  return fits(r, value->dtype, dtype);
}

static const int64_t *dense_strides(tt_rule *r, tt_hlo value, const int32_t *order, bool zero_strides) {
  int64_t *strides = tt_arena_alloc(&r->out->arena, sizeof(int64_t) * (size_t)(value->rank + 1));
  int64_t stride = 1;
  for (int32_t i = value->rank - 1; strides && i >= 0; i--) {
    int32_t dim = order[i];
    strides[dim] = stride;
    stride *= value->dims[dim] > 1 || zero_strides ? value->dims[dim] : 1;
  }
  return strides;
}

// Records a write of `value` to a tensor among the arguments.
static void write_tensor(tt_rule *r, int32_t position, int32_t index, bool is_out, tt_out_dtype accepted,
                         tt_hlo value) {
  if (!value || index < 0 || tt_failed(r)) {
    return;
  }
  tt_call_tensor *t = &r->call->tensors[index];
  tt_dtype dtype = (tt_dtype)t->tensor->dtype;
  if (t->slot < 0) {
    tt_fail(r, TT_ERR_RUNTIME, "the tensor written to is on the CPU: move it to the device first");
    return;
  }
  if (!accepts_dtype(r, value, dtype, accepted)) {
    return;
  }
  if (!same_sizes(&r->operands[index], value->dims, value->rank)) {
    if (is_out) {
      if (r->out->resize_arg < 0) {
        r->out->resize_sizes = tt_arena_copy(&r->out->arena, value->dims, sizeof(int64_t) * (size_t)value->rank);
        r->out->resize_strides = r->out_order ? dense_strides(r, value, r->out_order, false) : NULL;
        r->out->resize_ndim = value->rank;
        for (int32_t i = 0; i < r->call->arg_count; i++) {
          if (r->call->first_tensor[i] == index && r->call->args[i].tag == TT_ARG_TENSOR) {
            r->out->resize_arg = i;
          }
        }
      }
      return;
    }
    tt_fail(r, TT_ERR_RUNTIME, "output with shape %s doesn't match the broadcast shape %s",
            sizes_text(r, t->tensor->sizes, t->tensor->ndim), sizes_text(r, value->dims, value->rank));
    return;
  }
  for (int32_t i = 0; i < t->tensor->ndim && tt_operand_numel(&r->operands[index]) > 0; i++) {
    if (t->tensor->strides[i] == 0 && t->tensor->sizes[i] > 1) {
      tt_fail(r, TT_ERR_RUNTIME,
              "unsupported operation: more than one element of the written-to tensor refers to a single memory "
              "location. Please clone() the tensor before performing the operation.");
      return;
    }
  }
  tt_ret_record *ret = add_ret(r, position, tt_cast(value, dtype));
  if (ret) {
    ret->slot = t->slot;
    ret->tensor = index;
  }
}

// The argument that result i of this form aliases; -1: a new tensor.
static int32_t alias_of(const tt_rule *r, int32_t i) {
  const tt_op *op = r->call->op;
  return i >= 0 && i < op->return_count ? op->return_alias[i] : -1;
}

// True if result i was recorded as a write.
static bool ret_is_write(tt_rule *r, int32_t i, tt_hlo value, tt_out_dtype usual) {
  int32_t alias = alias_of(r, i);
  if (alias < 0) {
    return false;
  }
  if (alias < r->call->arg_count && r->call->args[alias].tag == TT_ARG_TENSOR) {
    bool is_out = r->call->op->args[alias].is_out;
    tt_out_dtype accepted = r->out_dtype == TT_OUT_AUTO ? usual : r->out_dtype;
    if (!is_out && accepted == TT_OUT_EXACT) {
      accepted = TT_OUT_CAST;
    } else if (is_out && accepted == TT_OUT_ANY && tt_has(r, "dtype")) {
      accepted = TT_OUT_EXACT;
    }
    write_tensor(r, i, r->call->first_tensor[alias], is_out, accepted, value);
  }
  return true;
}

bool tt_result_fits(tt_rule *r, tt_dtype result) {
  const int32_t alias = alias_of(r, 0);
  if (alias < 0 || r->call->args[alias].tag != TT_ARG_TENSOR || r->call->op->args[alias].is_out) {
    return true;
  }
  return fits(r, result, (tt_dtype)r->call->tensors[r->call->first_tensor[alias]].tensor->dtype);
}

void tt_fail_dtype(tt_rule *r, const char *kernel, tt_dtype dtype) {
  if (tt_result_fits(r, dtype)) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "\"%s\" not implemented for '%s'", kernel, tt_type_name(dtype));
  }
}

void tt_ret(tt_rule *r, int32_t i, tt_hlo value) {
  if (value && !ret_is_write(r, i, value, TT_OUT_EXACT)) {
    add_ret(r, i, value);
  }
}

// The call's tensors that a result of these sizes is laid out by; whether there are others, of other sizes.
static int32_t full_operands(tt_rule *r, tt_hlo value, const tt_operand **operands, bool *broadcast) {
  int32_t count = 0;
  for (int32_t a = 0; a < r->call->arg_count; a++) {
    const char *name = r->call->op->args[a].name;
    if (r->call->args[a].tag == TT_ARG_NUMBER && (!strcmp(name, "other") || !strcmp(name, "self"))) {
      *broadcast = true;  // PyTorch makes it a tensor
    }
    if (r->call->args[a].tag != TT_ARG_TENSOR || r->call->op->args[a].is_out) {
      continue;
    }
    const tt_operand *x = &r->operands[r->call->first_tensor[a]];
    *broadcast = *broadcast || !same_sizes(x, value->dims, value->rank);
    if (!x->is_host && x->ndim <= value->rank) {
      operands[count++] = x;
    }
  }
  return count;
}

void tt_ret_elementwise(tt_rule *r, int32_t i, tt_hlo value) {
  if (!value) {
    return;
  }
  const tt_operand *operands[TT_MAX_ARGS];
  bool broadcast = false;
  const int32_t count = full_operands(r, value, operands, &broadcast);
  tt_ret_record layout = {.value = value};
  identity_order(value->rank, layout.order);
  layout_from(&layout, operands, count, broadcast);
  r->out_order = r->call->op->is_generated ? NULL : layout.order;
  bool is_write = ret_is_write(r, i, value, TT_OUT_CAST);
  r->out_order = NULL;
  tt_ret_record *ret = is_write ? NULL : add_ret(r, i, value);
  if (ret) {
    memcpy(ret->order, layout.order, sizeof layout.order);
    ret->strides = layout.strides;
    ret->zero_strides = layout.zero_strides;
  }
}

void tt_ret_like(tt_rule *r, int32_t i, tt_hlo value, const char *name) {
  if (!value || ret_is_write(r, i, value, TT_OUT_EXACT)) {
    return;
  }
  const tt_operand *like = tt_operand_of(r, name);
  tt_ret_record *ret = add_ret(r, i, value);
  if (ret && like && same_sizes(like, value->dims, value->rank)) {
    layout_like(ret, like);
  }
}

static tt_ret_record *ret_ordered(tt_rule *r, int32_t i, tt_hlo value, const int32_t *order) {
  r->out_order = order;
  bool is_write = !value || ret_is_write(r, i, value, TT_OUT_EXACT);
  r->out_order = NULL;
  if (is_write) {
    return NULL;
  }
  tt_ret_record *ret = add_ret(r, i, value);
  if (ret) {
    memcpy(ret->order, order, sizeof *order * (size_t)value->rank);
  }
  return ret;
}

void tt_ret_ordered(tt_rule *r, int32_t i, tt_hlo value, const int32_t *order) { ret_ordered(r, i, value, order); }

void tt_ret_iterated(tt_rule *r, int32_t i, tt_hlo value, const int32_t *order) {
  tt_ret_record *ret = ret_ordered(r, i, value, order);
  if (ret) {
    ret->zero_strides = !is_identity(order, value->rank);
  }
}

void tt_ret_none(tt_rule *r, int32_t i) {
  tt_ret_record *ret = add_ret(r, i, NULL);
  if (ret) {
    ret->none = true;
  }
}

void tt_ret_list(tt_rule *r, int32_t i, int32_t index, tt_hlo value) {
  if (!value) {
    return;
  }
  const tt_op *op = r->call->op;
  int32_t list = op->mutated_list >= 0 ? op->mutated_list : alias_of(r, i);
  if (list >= 0) {
    if (list < r->call->arg_count && r->call->args[list].tag == TT_ARG_TENSORS &&
        (uint32_t)index < r->call->args[list].count) {
      write_tensor(r, -1, r->call->first_tensor[list] + index, false, TT_OUT_CAST, value);
    }
    return;
  }
  tt_ret_record *ret = add_ret(r, i, value);
  if (!ret) {
    return;
  }
  ret->in_list = true;
  ret->list_index = index;
  const tt_arg *self = tt_rule_arg(r, "self");
  if (self && self->tag == TT_ARG_TENSORS && (uint32_t)index < self->count) {
    const tt_operand *like = tt_operand_at(r, "self", index);
    if (like && same_sizes(like, value->dims, value->rank)) {
      layout_like(ret, like);
    }
  }
}

void tt_write(tt_rule *r, const char *name, tt_hlo value) { tt_write_at(r, name, 0, value); }

void tt_write_at(tt_rule *r, const char *name, int32_t index, tt_hlo value) {
  write_tensor(r, -1, tt_rule_tensor_index(r, name, index), false, TT_OUT_CAST, value);
}

// ---- finishing ----
typedef struct output_list {
  tt_hlo *values;
  int32_t count, capacity, result_capacity;
} output_list;

static tt_output *add_output(tt_rule *r, output_list *list, tt_hlo value, tt_output_kind kind, int32_t index) {
  int32_t capacity = r->output_capacity;
  r->out->outputs = tt_rule_grow(r, r->out->outputs, list->count, &r->output_capacity, sizeof *r->out->outputs);
  list->values = tt_rule_grow(r, list->values, list->count, &capacity, sizeof *list->values);
  if (!value || !r->out->outputs || !list->values) {
    return NULL;
  }
  tt_output *output = &r->out->outputs[list->count];
  *output = (tt_output){.kind = (uint8_t)kind,
                        .dtype = (uint8_t)value->dtype,
                        .index = index,
                        .rank = value->rank,
                        .dims = tt_arena_copy(&r->out->arena, value->dims, sizeof(int64_t) * (size_t)value->rank),
                        .nbytes = (size_t)tt_hlo_numel(value) * tt_dtype_size(value->dtype)};
  list->values[list->count++] = value;
  r->out->output_count = list->count;
  return output;
}

static void add_result(tt_rule *r, output_list *list, tt_result result) {
  tt_lowered *out = r->out;
  out->results = tt_rule_grow(r, out->results, out->result_count, &list->result_capacity, sizeof *out->results);
  if (out->results) {
    out->results[out->result_count++] = result;
  }
}

static void finish_ret(tt_rule *r, output_list *list, const tt_ret_record *ret) {
  tt_result result = {.position = (int16_t)ret->position, .in_list = ret->in_list};
  if (ret->none) {
    result.kind = TT_RESULT_NONE;
  } else if (ret->slot >= 0) {
    result.kind = TT_RESULT_ALIAS;
    result.alias = (int16_t)alias_of(r, ret->position);
  } else {
    tt_output *output =
        add_output(r, list, tt_hlo_transpose(ret->value, ret->order), TT_OUTPUT_RESULT, r->out->result_count);
    if (!output) {
      return;
    }
    result.kind = TT_RESULT_NEW;
    result.dtype = output->dtype;
    result.ndim = ret->value->rank;
    result.sizes = tt_arena_copy(&r->out->arena, ret->value->dims, sizeof(int64_t) * (size_t)ret->value->rank);
    result.strides = ret->strides
                         ? tt_arena_copy(&r->out->arena, ret->strides, sizeof(int64_t) * (size_t)ret->value->rank)
                         : dense_strides(r, ret->value, ret->order, ret->zero_strides);
    result.nbytes = output->nbytes;
  }
  if (ret->position >= 0) {
    add_result(r, list, result);
  }
}

static void apply_write(tt_rule *r, const tt_ret_record *ret) {
  tt_call_tensor *t = &r->call->tensors[ret->tensor];
  tt_slot *slot = &r->call->slots[ret->slot];
  if (ret->value->dtype != slot->dtype) {
    tt_fail(r, TT_ERR_INTERNAL, "a write of %s to a storage of %s", tt_dtype_torch_name(ret->value->dtype),
            tt_dtype_torch_name(slot->dtype));
    return;
  }
  if (tt_hlo_numel(ret->value) == 0 && slot->shape.numel > 0) {
    return;  // an empty view: the storage stays as it is
  }
  tt_view view = {t->tensor->ndim, t->tensor->sizes, t->tensor->strides, 0};
  tt_hlo offset = NULL, base = slot->current;
  if (tt_view_needs_offset(t->kind)) {
    if (!t->offset) {
      tt_dtype dtype = tt_view_offset_dtype(slot->shape.numel);
      t->offset = tt_rule_add_param(
          r, (tt_param){.kind = TT_PARAM_OFFSET, .dtype = (uint8_t)dtype, .index = ret->tensor}, NULL, 0);
    }
    offset = t->offset;
    if (!base) {
      // Reading through the tensor makes the base, whatever the view.
      tt_rule_tensor_value(r, ret->tensor);
      base = slot->original;
    }
  }
  slot->current = tt_view_write(base, t->kind, &view, offset, ret->value);
}

static void finish_slots(tt_rule *r, output_list *list) {
  for (int32_t i = 0; i < r->call->slot_count; i++) {
    tt_slot *slot = &r->call->slots[i];
    if (!slot->current) {
      continue;
    }
    tt_hlo value = slot->current;
    if (slot->parameter >= 0 && tt_hlo_numel(value) == slot->shape.numel) {
      // Same bytes, same order: with the parameter's dims it can take the parameter's memory.
      value = tt_hlo_reshape(value, slot->shape.dims, slot->shape.rank);
    }
    int32_t index = list->count;
    if (!add_output(r, list, value, TT_OUTPUT_SLOT, i)) {
      return;
    }
    if (slot->parameter >= 0 && tt_hlo_same_dims(value, slot->original) && value != slot->original) {
      tt_hlo_alias(r->b, slot->original, index);
      r->out->params[slot->parameter].aliased = true;
      r->out->params[slot->parameter].alias = index;
    }
  }
}

static void sort_rets(tt_rule *r) {
  for (int32_t i = 1; i < r->ret_count; i++) {
    tt_ret_record moving = r->rets[i];
    int32_t place = i;
    while (place > 0 && (r->rets[place - 1].position > moving.position ||
                         (r->rets[place - 1].position == moving.position && moving.in_list &&
                          r->rets[place - 1].list_index > moving.list_index))) {
      r->rets[place] = r->rets[place - 1];
      place--;
    }
    r->rets[place] = moving;
  }
}

static tt_status *describe_failure(tt_rule *r) {
  tt_status *status = tt_status_clone(tt_hlo_status(r->b));
  if (r->failed) {
    return status;
  }
  tt_strbuf operands = {0};
  for (int32_t i = 0; i < r->call->tensor_count && i < 8; i++) {
    const tt_operand *x = &r->operands[i];
    tt_strbuf_printf(&operands, "%s%s%s", i ? ", " : "", tt_dtype_torch_name(x->dtype),
                     sizes_text(r, x->sizes, x->ndim));
  }
  status = tt_status_prefix(status, "%s(%s)", tt_rule_name(r), tt_strbuf_text(&operands));
  tt_strbuf_free(&operands);
  return status;
}

tt_status *tt_rule_finish(tt_rule *r) {
  output_list list = {0};
  if (!tt_failed(r) && r->out->resize_arg >= 0) {
    return NULL;  // the shim resizes and calls again
  }
  const tt_op *op = r->call->op;
  if (!tt_failed(r) && !r->ret_count && op->return_count && op->return_alias[0] < 0 && !op->return_is_list[0]) {
    tt_fail(r, TT_ERR_NOT_IMPLEMENTED, "there is no result for these operands on tpu");  // the rule left without a word
  }
  for (int32_t i = 0; i < r->ret_count && !tt_failed(r); i++) {
    if (r->rets[i].slot >= 0) {
      apply_write(r, &r->rets[i]);
    }
  }
  sort_rets(r);
  for (int32_t i = 0; i < r->ret_count && !tt_failed(r); i++) {
    finish_ret(r, &list, &r->rets[i]);
  }
  if (!tt_failed(r)) {
    finish_slots(r, &list);
  }
  for (int32_t i = 0; i < r->out->assert_count && !tt_failed(r); i++) {
    add_output(r, &list, r->assert_flags[i], TT_OUTPUT_ASSERT, i);
  }
  if (tt_failed(r)) {
    return describe_failure(r);
  }
  return list.count ? tt_hlo_finish(r->b, list.values, list.count, &r->out->text) : NULL;
}
