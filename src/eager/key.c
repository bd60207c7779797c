#include "eager/key.h"

#include <stdlib.h>
#include <string.h>

static int32_t tensors_in(const tt_arg *arg) {
  return arg->tag == TT_ARG_TENSOR ? 1 : arg->tag == TT_ARG_TENSORS ? (int32_t)arg->count : 0;
}

tt_status *tt_call_state_init(tt_call_state *s, tt_op *op, const tt_arg *args, int32_t count, tt_engine *engine) {
  s->op = op;
  s->args = args;
  s->arg_count = count;
  s->engine = engine;
  s->heap_tensors = s->heap_words = NULL;
  s->copy_count = 0;
  s->words = s->inline_words;
  s->word_capacity = TT_INLINE_WORDS;
  s->env = (tt_rule_env){
      .default_dtype = (tt_dtype)atomic_load_explicit(&tt_the_runtime.default_dtype, memory_order_relaxed),
      .precision = (tt_hlo_precision)atomic_load_explicit(&tt_the_runtime.precision, memory_order_relaxed),
      .is_cpu = tt_the_runtime.is_cpu,
      .has_host_kernels = tt_the_runtime.has_host_kernels,
      .device_kind = tt_pjrt_device_kind(tt_the_runtime.client, engine->device)};
  s->tensor_count = 0;
  for (int32_t i = 0; i < count; i++) {
    s->first_tensor[i] = s->tensor_count;
    s->tensor_count += tensors_in(&args[i]);
  }
  if (s->tensor_count <= TT_INLINE_TENSORS) {
    s->tensors = s->inline_tensors;
    s->slots = s->inline_slots;
    s->storages = s->inline_storages;
    s->flat_dims = s->inline_dims;
    return NULL;
  }
  if (s->tensor_count > INT16_MAX) {  // tt_call_tensor.slot
    return tt_error(TT_ERR_RUNTIME, "%s(): a call with %d tensors; at most %d are supported on tpu", op->short_name,
                    s->tensor_count, INT16_MAX);
  }
  size_t n = (size_t)s->tensor_count;
  char *heap = s->heap_tensors =
      malloc(n * (sizeof *s->tensors + sizeof *s->slots + sizeof *s->storages + sizeof(int64_t)));
  if (!heap) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  s->tensors = (tt_call_tensor *)heap;
  s->slots = (tt_slot *)(s->tensors + n);
  s->storages = (tt_storage **)(s->slots + n);
  s->flat_dims = (int64_t *)(s->storages + n);
  return NULL;
}

void tt_call_state_free(tt_call_state *s) {
  for (int32_t i = 0; i < s->copy_count; i++) {
    tt_storage_free(s->copies[i]);
  }
  free(s->heap_tensors);
  free(s->heap_words);
}

// ---- words ----
static bool grow_words(tt_call_state *s, int32_t extra) {
  int32_t capacity = 2 * s->word_capacity + extra;
  uint64_t *words = realloc(s->heap_words, sizeof *words * (size_t)capacity);
  if (!words) {
    return false;
  }
  if (!s->heap_words) {
    memcpy(words, s->words, sizeof *words * (size_t)s->word_count);
  }
  s->heap_words = s->words = words;
  s->word_capacity = capacity;
  return true;
}

static inline bool reserve_words(tt_call_state *s, int32_t extra) {
  return s->word_count + extra <= s->word_capacity || grow_words(s, extra);
}

static inline void put(tt_call_state *s, uint64_t word) { s->words[s->word_count++] = word; }

// The loops over sizes are so short that a call of memcpy() or memcmp() would take longer.
static inline void put_all(tt_call_state *s, const int64_t *values, int32_t count) {
  uint64_t *word = s->words + s->word_count;
  for (int32_t i = 0; i < count; i++) {
    word[i] = (uint64_t)values[i];
  }
  s->word_count += count;
}

static bool is_canonical(const tt_tensor *t, int64_t *out_numel) {
  int64_t stride = 1, numel = 1;
  bool canonical = true;
  for (int32_t i = t->ndim - 1; i >= 0; i--) {
    canonical = canonical && t->strides[i] == stride;
    stride *= t->sizes[i] > 1 ? t->sizes[i] : 1;
    numel *= t->sizes[i];
  }
  *out_numel = numel;
  return canonical;
}

// ---- slots ----
static int32_t find_slot(tt_call_state *s, const tt_tensor *t, bool *out_first) {
  tt_storage *storage = t->storage;
  for (int32_t i = 0; i < s->copy_count; i++) {
    storage = s->copied[i] == t ? s->copies[i] : storage;
  }
  *out_first = storage->call != s->engine->calls;
  if (!*out_first) {
    return storage->slot;
  }
  int32_t index = s->slot_count++;
  storage->call = s->engine->calls;
  storage->slot = index;
  s->storages[index] = storage;
  tt_slot *slot = &s->slots[index];
  tt_value *value = storage->value;
  if (value) {
    *slot = (tt_slot){.dtype = value->dtype, .shape = value->shape, .defined = true};
  } else {
    tt_dtype dtype = (tt_dtype)t->dtype;
    s->flat_dims[index] = (int64_t)(storage->nbytes / tt_dtype_size(dtype));
    *slot = (tt_slot){.dtype = dtype, .shape = {1, &s->flat_dims[index], s->flat_dims[index]}};
  }
  return index;
}

static inline void put_slot(tt_call_state *s, const tt_slot *slot, const tt_tensor *t) {
  bool same = slot->shape.rank == t->ndim;
  for (int32_t i = 0; same && i < t->ndim; i++) {
    same = slot->shape.dims[i] == t->sizes[i];
  }
  put(s, (uint64_t)slot->defined | (uint64_t)same << 1 | (uint64_t)slot->shape.rank << 8);
  if (!same) {
    put_all(s, slot->shape.dims, slot->shape.rank);
  }
}

static tt_status *refuse_tensor(const tt_call_state *s, const tt_tensor *t) {
  if (t->ndim > TT_MAX_RANK) {
    return tt_error(TT_ERR_RUNTIME, "%s(): a tensor of %d dimensions; at most %d are supported on tpu",
                    s->op->short_name, t->ndim, TT_MAX_RANK);
  }
  if (tt_dtype_size((tt_dtype)t->dtype) == 0) {
    return tt_error(TT_ERR_TYPE, "%s(): an operand's dtype is not supported on tpu", s->op->short_name);
  }
  return tt_error(TT_ERR_RUNTIME,
                  "%s(): Expected all tensors to be on the same device, but found at least two devices, tpu:%d and "
                  "tpu:%d!",
                  s->op->short_name, s->engine->device, t->storage->device);
}

// A tensor may reach outside of its storage once that was resized, or filled from elsewhere. The value may reach
// outside too, with its last element.
static bool lies_within(const tt_tensor *t, int64_t numel) {
  int64_t whole = (int64_t)(t->storage->nbytes / tt_dtype_size((tt_dtype)t->dtype));
  numel = numel < whole ? numel : whole;
  int64_t last = t->offset, reach;
  for (int32_t i = 0; i < t->ndim; i++) {
    if (t->sizes[i] == 0) {
      return true;
    }
    if (t->strides[i] < 0 || __builtin_mul_overflow(t->sizes[i] - 1, t->strides[i], &reach) ||
        __builtin_add_overflow(last, reach, &last)) {
      return false;
    }
  }
  return t->offset >= 0 && last < numel;
}

static tt_status *key_tensor(tt_call_state *s, const tt_op_arg *arg, const tt_tensor *t, tt_call_tensor *out) {
  *out = (tt_call_tensor){.tensor = t, .slot = -1};
  if (t->is_none) {
    put(s, TT_ARG_NONE);
    return NULL;
  }
  const size_t element = tt_dtype_size((tt_dtype)t->dtype);
  if (__builtin_expect(t->ndim > TT_MAX_RANK || element == 0 || (t->storage && t->storage->device != s->engine->device),
                       0)) {
    return refuse_tensor(s, t);
  }
  if (!reserve_words(s, 2 * t->ndim + 64)) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  uint64_t head = TT_ARG_TENSOR | (uint64_t)t->dtype << 8 | (uint64_t)t->ndim << 16 | (uint64_t)t->is_wrapped << 24;
  if (!t->storage) {
    put(s, head | 1u << 25 | (uint64_t)tt_op_arg_known(arg, &t->host) << 32);
    return NULL;
  }
  bool first;
  int64_t numel;
  int32_t index = find_slot(s, t, &first);
  tt_slot *slot = &s->slots[index];
  out->slot = (int16_t)index;
  if (slot->dtype != (tt_dtype)t->dtype) {
    s->retype = t;
    s->retype_copy = !first;
    bool written = arg->is_out || arg->is_written || arg - s->op->args == s->op->mutated_list;
    return first || !written
               ? NULL  // a copy will do, unless it is written to
               : tt_error(TT_ERR_RUNTIME,
                          "%s(): %s shares its storage with an operand of another dtype: clone one of them",
                          s->op->short_name, arg->is_out ? "out=" : arg->name);
  }
  bool canonical = is_canonical(t, &numel);
  if (canonical && t->offset == 0 && numel == slot->shape.numel && (size_t)numel * element <= t->storage->nbytes) {
    out->kind = TT_VIEW_FULL;
  } else if (!lies_within(t, slot->shape.numel)) {
    return tt_error(TT_ERR_RUNTIME, "%s(): a tensor reaches outside of its storage of %zu bytes: was that resized?",
                    s->op->short_name, t->storage->nbytes);
  } else {
    tt_view view = {t->ndim, t->sizes, t->strides, t->offset};
    out->kind = (uint8_t)tt_view_classify(&slot->shape, &view);
  }
  put(s, head | (uint64_t)first << 26 | (uint64_t)canonical << 27 | (uint64_t)out->kind << 28 | (uint64_t)index << 40);
  put_all(s, t->sizes, t->ndim);
  if (!canonical) {
    put_all(s, t->strides, t->ndim);
  }
  // What a storage held is left out while nothing in this call can look at it. An empty tensor is FULL too, and leaves
  // its storage as it is.
  bool overwritten = first && s->op->rule->overwrites && arg->is_written && out->kind == TT_VIEW_FULL && numel > 0;
  if (first ? !overwritten : slot->unkeyed) {
    put_slot(s, slot, t);
  }
  slot->unkeyed = first && overwritten;
  return NULL;
}

static void key_number(tt_call_state *s, const tt_op_arg *arg, const tt_number *number) {
  put(s, TT_ARG_NUMBER | (uint64_t)number->type << 8 | (uint64_t)tt_op_arg_known(arg, number) << 16);
  if (arg->is_static || !arg->is_operand) {
    put(s, (uint64_t)number->u.i);  // the bits of a double too
    put(s, number->type == TT_C128 ? (uint64_t)((union {
                                       double f;
                                       uint64_t u;
                                     }){.f = number->u.f[1]})
                                         .u
                                   : 0);
  }
}

static void key_string(tt_call_state *s, const char *text) {
  size_t length = strlen(text);
  put(s, TT_ARG_STRING | (uint64_t)length << 32);
  for (size_t at = 0; at < length; at += 8) {
    uint64_t word = 0;
    memcpy(&word, text + at, length - at < 8 ? length - at : 8);
    put(s, word);
  }
}

// What an argument that is no tensor puts, at most. Whoever describes one leaves what it doesn't need as it was,
// `count` of what is no list among it.
static int32_t most_words(const tt_arg *arg) {
  switch ((tt_arg_tag)arg->tag) {
    case TT_ARG_TENSORS:
      return 16;  // each makes its own room
    case TT_ARG_NUMBERS:
    case TT_ARG_INTS:
    case TT_ARG_FLOATS:
      return 16 + 4 * (int32_t)arg->count;
    case TT_ARG_STRING:
      return 16 + (int32_t)strlen(arg->u.string) / 8;
    default:
      return 16;
  }
}

static tt_status *key_arg(tt_call_state *s, int32_t i) {
  const tt_arg *arg = &s->args[i];
  const tt_op_arg *info = &s->op->args[i];
  if (arg->tag == TT_ARG_TENSOR) {
    return key_tensor(s, info, &arg->u.tensor, &s->tensors[s->first_tensor[i]]);
  }
  if (!reserve_words(s, most_words(arg))) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  switch ((tt_arg_tag)arg->tag) {
    case TT_ARG_TENSOR:
      break;
    case TT_ARG_TENSORS:
      put(s, TT_ARG_TENSORS | (uint64_t)arg->count << 32);
      for (uint32_t j = 0; j < arg->count && !s->retype; j++) {
        TT_TRY(key_tensor(s, info, &arg->u.tensors[j], &s->tensors[s->first_tensor[i] + (int32_t)j]));
        if (!reserve_words(s, 16)) {
          return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
        }
      }
      return NULL;
    case TT_ARG_NUMBER:
      key_number(s, info, &arg->u.number);
      return NULL;
    case TT_ARG_NUMBERS:
      put(s, TT_ARG_NUMBERS | (uint64_t)arg->count << 32);
      for (uint32_t j = 0; j < arg->count; j++) {
        key_number(s, info, &arg->u.numbers[j]);
      }
      return NULL;
    case TT_ARG_INT:
      put(s, TT_ARG_INT);
      put(s, (uint64_t)arg->u.i);
      return NULL;
    case TT_ARG_INTS:
    case TT_ARG_FLOATS:
      put(s, arg->tag | (uint64_t)arg->count << 32);
      put_all(s, arg->u.ints, (int32_t)arg->count);
      return NULL;
    case TT_ARG_STRING:
      key_string(s, arg->u.string);
      return NULL;
    case TT_ARG_NONE:
    case TT_ARG_GENERATOR:
    case TT_ARG_IGNORED:
      put(s, TT_ARG_NONE);
      return NULL;
  }
  return tt_error(TT_ERR_INTERNAL, "%s(): argument %d has an unknown tag", s->op->short_name, i);
}

uint64_t tt_call_state_hash(const tt_call_state *s) {
  uint64_t h = 0x9e3779b97f4a7c15u ^ (uint64_t)s->word_count;
  for (int32_t i = 0; i < s->word_count; i++) {
    h = (h ^ s->words[i]) * 0xff51afd7ed558ccdu;
    h ^= h >> 32;
  }
  return h;
}

tt_status *tt_call_state_key(tt_call_state *s) {
  s->engine->calls++;
  s->slot_count = s->word_count = 0;
  s->retype = NULL;
  put(s, (uint64_t)(uintptr_t)s->op);
  put(s, (uint64_t)s->env.default_dtype | (uint64_t)s->env.precision << 8 | (uint64_t)s->engine->device << 16);
  for (int32_t i = 0; i < s->arg_count && !s->retype; i++) {
    TT_TRY(key_arg(s, i));
  }
  if (s->op->rule->structure && !s->retype) {
    put(s, (uint64_t)s->op->rule->structure(s->args, s->arg_count));
  }
  return NULL;
}
