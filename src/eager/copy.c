// Copies between host and device, between devices, and what changes a storage as a whole.
#include <stdlib.h>
#include <string.h>

#include "eager/capture.h"
#include "eager/explain.h"
#include "eager/internal.h"
#include "eager/number.h"
#include "eager/recompile.h"

// ---- internal operators ----
typedef enum internal_op { OP_COPY, OP_CONTIGUOUS, OP_RETYPE, OP_RESIZE, OP_COUNT } internal_op;

static tt_op *internal_ops[OP_COUNT];

static void register_internal_ops(void) {
  static const tt_arg_schema self = {.name = "self", .kind = TT_KIND_TENSOR};
  const tt_arg_schema copy[] = {self, {.name = "src", .kind = TT_KIND_TENSOR}};
  const tt_arg_schema retype[] = {self,
                                  {.name = "dtype", .kind = TT_KIND_DTYPE},
                                  {.name = "sizes", .kind = TT_KIND_INTS},
                                  {.name = "count", .kind = TT_KIND_INT}};
  const tt_arg_schema resize[] = {self, {.name = "count", .kind = TT_KIND_INT}};
  static const int32_t in_place[] = {0}, fresh[] = {-1};
  static const bool single[] = {false};
  const tt_op_schema schemas[OP_COUNT] = {
      [OP_COPY] = {"tt::copy_", 2, copy, 1, in_place, single, -1},
      [OP_CONTIGUOUS] = {"tt::contiguous", 1, &self, 1, fresh, single, -1},
      [OP_RETYPE] = {"tt::retype", 4, retype, 1, fresh, single, -1},
      [OP_RESIZE] = {"tt::resize", 2, resize, 1, fresh, single, -1},
  };
  for (int32_t i = 0; i < OP_COUNT; i++) {
    internal_ops[i] = tt_op_register(schemas[i].name, &schemas[i]);
  }
}

static tt_status *call_internal(internal_op op, const tt_arg *args, int32_t count, int32_t device, tt_storage **out) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, register_internal_ops);
  tt_results results;
  if (!internal_ops[op]) {
    return tt_error(TT_ERR_INTERNAL, "an internal operator has no rule");
  }
  TT_TRY(tt_call(internal_ops[op], args, count, device, &results));
  if (out) {
    *out = results.count == 1 ? results.storages[0] : NULL;
  }
  tt_results_release(&results);
  return out && !*out ? tt_error(TT_ERR_INTERNAL, "an internal operator has no result") : NULL;
}

static tt_arg tensor_arg(const tt_tensor *tensor) { return (tt_arg){.tag = TT_ARG_TENSOR, .u.tensor = *tensor}; }

// ---- facts of a tensor ----
static int64_t numel_of(const tt_tensor *t) {
  int64_t numel = 1;
  for (int32_t i = 0; i < t->ndim; i++) {
    numel *= t->sizes[i];
  }
  return numel;
}

static bool is_row_major(const tt_tensor *t) {
  int64_t stride = 1;
  for (int32_t i = t->ndim - 1; i >= 0; i--) {
    if (t->sizes[i] != 1 && t->strides[i] != stride) {
      return false;
    }
    stride *= t->sizes[i];
  }
  return t->offset == 0;
}

// Row-major, and nothing else in the storage.
static bool is_whole(const tt_tensor *t) {
  return is_row_major(t) && (size_t)numel_of(t) * tt_dtype_size((tt_dtype)t->dtype) == t->storage->nbytes;
}

static tt_status *check(const tt_tensor *t) {
  if (!t->storage) {
    return tt_error(TT_ERR_INTERNAL, "a copy of a tensor that is not on tpu");
  }
  if (tt_dtype_size((tt_dtype)t->dtype) == 0) {
    return tt_error(TT_ERR_TYPE, "copy_(): a tensor of a dtype that is not supported on tpu");
  }
  if (t->ndim > TT_MAX_RANK) {
    return tt_error(TT_ERR_RUNTIME, "copy_(): a tensor of %d dimensions; at most %d are supported on tpu", t->ndim,
                    TT_MAX_RANK);
  }
  return NULL;
}

// A tensor that is all of `storage`.
static tt_tensor whole_tensor(tt_storage *storage, tt_dtype dtype, const tt_shape *shape, int64_t *strides) {
  int64_t stride = 1;
  for (int32_t i = shape->rank - 1; i >= 0; i--) {
    strides[i] = stride;
    stride *= shape->dims[i] > 1 ? shape->dims[i] : 1;
  }
  return (tt_tensor){
      .storage = storage, .sizes = shape->dims, .strides = strides, .ndim = shape->rank, .dtype = (uint8_t)dtype};
}

static void set_value(tt_engine *engine, tt_storage *storage, tt_value *value) {
  pthread_mutex_lock(&engine->lock);
  tt_storage_set_value(storage, value);
  pthread_mutex_unlock(&engine->lock);
}

static tt_value *hold_value(tt_engine *engine, tt_storage *storage) {
  pthread_mutex_lock(&engine->lock);
  tt_value *value = storage->value;
  if (value) {
    tt_value_ref(value);
    value->owners++;  // not to be donated while it is read
  }
  pthread_mutex_unlock(&engine->lock);
  return value;
}

// ---- host ----
static tt_status *check_memory(tt_engine *engine, size_t nbytes, const char *what) {
  pthread_mutex_lock(&engine->lock);  // it may end a stretch
  tt_status *status = tt_memory_check(engine, nbytes, what);
  pthread_mutex_unlock(&engine->lock);
  return status;
}

tt_status *tt_copy_from_host(const tt_tensor *destination, const void *data) {
  TT_TRY(check(destination));
  TT_TRY(tt_capture_check_write(destination->storage));
  tt_engine *engine;
  TT_TRY(tt_engine_of(destination->storage->device, &engine));
  if (numel_of(destination) == 0) {
    return NULL;
  }
  size_t nbytes = (size_t)numel_of(destination) * tt_dtype_size((tt_dtype)destination->dtype);
  TT_TRY(check_memory(engine, nbytes, "a copy to the device"));
  tt_recompile_turn();
  tt_value *value;
  TT_TRY(tt_value_from_host(engine, data, (tt_dtype)destination->dtype, destination->sizes, destination->ndim, &value));
  if (is_whole(destination)) {
    set_value(engine, destination->storage, value);
    return NULL;
  }
  tt_storage *staging;
  tt_status *status = tt_storage_create(engine->device, nbytes, &staging);
  if (status) {
    tt_value_unref(value);
    return status;
  }
  set_value(engine, staging, value);
  int64_t strides[TT_MAX_RANK];
  tt_shape shape = {destination->ndim, destination->sizes, numel_of(destination)};
  tt_tensor source = whole_tensor(staging, (tt_dtype)destination->dtype, &shape, strides);
  tt_arg args[] = {tensor_arg(destination), tensor_arg(&source)};
  status = call_internal(OP_COPY, args, 2, engine->device, NULL);
  tt_storage_free(staging);
  return status;
}

// Whether the storage's value has `nbytes` bytes, or there is none. A value whose elements don't divide the storage
// ends with an element that is partly outside.
static bool fills(tt_engine *engine, const tt_storage *storage, size_t nbytes) {
  pthread_mutex_lock(&engine->lock);
  bool same = !storage->value || storage->value->nbytes == nbytes;
  pthread_mutex_unlock(&engine->lock);
  return same;
}

// Waits until the value has its buffer.
static tt_status *wait_for_value(tt_engine *engine, const tt_value *value) {
  tt_tape_settle(engine);
  tt_queue_wait(engine, value->sequence);
  if (value->error) {
    return tt_status_clone(value->error);
  }
  return value->buffer ? NULL : tt_error(TT_ERR_RUNTIME, "tpu was used while the process exits");
}

static tt_status *read_value(tt_engine *engine, tt_value *value, void *data, size_t nbytes) {
  tt_tape_settle(engine);
  tt_queue_wait(engine, value->sequence);
  TT_TRY(tt_queue_take_error(engine));
  TT_TRY(wait_for_value(engine, value));
  if (value->nbytes != nbytes) {
    return tt_error(TT_ERR_INTERNAL, "a value of %zu bytes where %zu are read", value->nbytes, nbytes);
  }
  tt_explain_read((int64_t)nbytes);
  tt_recompile_turn();
  tt_count(&tt_the_runtime.counters.d2h, 1);
  tt_count(&tt_the_runtime.counters.d2h_bytes, (int64_t)nbytes);
  int64_t begin = tt_profile_now();
  tt_status *status = tt_pjrt_buffer_to_host(tt_the_runtime.client, value->buffer, data, nbytes);
  if (value->sequence > atomic_load(&engine->queue.read)) {
    atomic_store(&engine->queue.read, value->sequence);
  }
  tt_profile_add(TT_ACTIVITY_TO_HOST, "", engine->device, begin, (int64_t)nbytes);
  tt_explain_place();
  tt_recompile_warn();
  return status;
}

static tt_status *read_storage(tt_engine *engine, tt_storage *storage, void *data, size_t nbytes) {
  tt_value *value = hold_value(engine, storage);
  if (!value) {
    memset(data, 0, nbytes);
    return NULL;
  }
  tt_status *status = read_value(engine, value, data, nbytes);
  tt_value_disown(value);
  return status;
}

tt_status *tt_copy_to_host(const tt_tensor *source, void *data) {
  TT_TRY(check(source));
  tt_engine *engine;
  TT_TRY(tt_engine_of(source->storage->device, &engine));
  size_t nbytes = (size_t)numel_of(source) * tt_dtype_size((tt_dtype)source->dtype);
  if (nbytes == 0) {
    return NULL;
  }
  if (is_whole(source) && fills(engine, source->storage, nbytes)) {
    return read_storage(engine, source->storage, data, nbytes);
  }
  tt_storage *packed;
  tt_arg arg = tensor_arg(source);
  TT_TRY(call_internal(OP_CONTIGUOUS, &arg, 1, engine->device, &packed));
  tt_status *status = read_storage(engine, packed, data, nbytes);
  tt_storage_free(packed);
  return status;
}

// ---- device ----
static bool same_layout(const tt_tensor *a, const tt_tensor *b) {
  return a->dtype == b->dtype && a->ndim == b->ndim && a->offset == 0 && b->offset == 0 &&
         a->storage->nbytes == b->storage->nbytes && !memcmp(a->sizes, b->sizes, sizeof(int64_t) * (size_t)a->ndim) &&
         !memcmp(a->strides, b->strides, sizeof(int64_t) * (size_t)a->ndim) &&
         (size_t)numel_of(a) * tt_dtype_size((tt_dtype)a->dtype) == a->storage->nbytes;
}

static bool covers_all(const tt_tensor *t) {
  tt_shape flat = {1, (int64_t[]){numel_of(t)}, numel_of(t)};
  tt_view view = {t->ndim, t->sizes, t->strides, t->offset};
  return tt_view_classify(&flat, &view) == TT_VIEW_FULL;
}

// Two storages whose tensors lie alike share the immutable value.
static tt_status *share_value(tt_engine *engine, tt_storage *destination, tt_storage *source) {
  pthread_mutex_lock(&engine->lock);
  tt_value *value = source->value;
  if (destination != source) {
    if (value) {
      tt_value_ref(value);
    }
    tt_storage_set_value(destination, value);
  }
  pthread_mutex_unlock(&engine->lock);
  return NULL;
}

static tt_status *copy_across(const tt_tensor *destination, const tt_tensor *source) {
  tt_engine *from, *to;
  TT_TRY(tt_engine_of(source->storage->device, &from));
  TT_TRY(tt_engine_of(destination->storage->device, &to));
  TT_TRY(check_memory(to, (size_t)numel_of(source) * tt_dtype_size((tt_dtype)source->dtype), "copy_"));
  tt_storage *packed, *arrived;
  tt_arg arg = tensor_arg(source);
  TT_TRY(call_internal(OP_CONTIGUOUS, &arg, 1, from->device, &packed));
  tt_value *value = hold_value(from, packed), *moved = NULL;
  tt_explain_note(TT_NOTE_SYNC, "copy to another device", 0);
  tt_status *status = wait_for_value(from, value);
  if (!status && !(moved = tt_value_create(to->device, value->dtype, value->dims, value->shape.rank))) {
    status = tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  if (!status) {
    status = tt_pjrt_buffer_copy_to_device(tt_the_runtime.client, value->buffer, to->device, &moved->buffer);
  }
  if (!status) {
    status = tt_storage_create(to->device, value->nbytes, &arrived);
  }
  tt_value_disown(value);
  tt_storage_free(packed);
  if (status) {
    tt_value_unref(moved);
    return status;
  }
  set_value(to, arrived, moved);
  int64_t strides[TT_MAX_RANK];
  tt_shape shape = {source->ndim, source->sizes, numel_of(source)};
  tt_tensor local = whole_tensor(arrived, (tt_dtype)source->dtype, &shape, strides);
  tt_arg args[] = {tensor_arg(destination), tensor_arg(&local)};
  status = call_internal(OP_COPY, args, 2, to->device, NULL);
  tt_storage_free(arrived);
  return status;
}

tt_status *tt_copy(const tt_tensor *destination, const tt_tensor *source) {
  TT_TRY(check(destination));
  TT_TRY(check(source));
  TT_TRY(tt_capture_check_write(destination->storage));
  if (numel_of(destination) == 0) {
    return NULL;
  }
  if (destination->storage->device != source->storage->device) {
    return copy_across(destination, source);
  }
  tt_engine *engine;
  TT_TRY(tt_engine_of(destination->storage->device, &engine));
  if (same_layout(destination, source) && covers_all(source)) {
    return share_value(engine, destination->storage, source->storage);
  }
  tt_arg args[] = {tensor_arg(destination), tensor_arg(source)};
  return call_internal(OP_COPY, args, 2, engine->device, NULL);
}

// ---- storages as a whole ----
// Elements that hold `nbytes` bytes.
static int64_t element_count(size_t nbytes, tt_dtype dtype) {
  size_t size = tt_dtype_size(dtype);
  return (int64_t)(nbytes / size + (nbytes % size != 0));
}

// Runs `op` on all of the storage (its argument 0 is filled in here) and gives the result.
static tt_status *transform(tt_storage *storage, tt_value *value, internal_op op, tt_arg *args, int32_t count,
                            tt_storage **out) {
  tt_storage *alias;
  TT_TRY(tt_storage_create(storage->device, value->nbytes, &alias));
  tt_value_ref(value);
  set_value(&tt_the_runtime.engines[storage->device], alias, value);
  int64_t strides[TT_MAX_RANK];
  tt_tensor self = whole_tensor(alias, value->dtype, &value->shape, strides);
  args[0] = tensor_arg(&self);
  tt_status *status = call_internal(op, args, count, storage->device, out);
  tt_storage_free(alias);
  return status;
}

// Moves the value of `from`, which is freed, to `to` if that still has `expected`: another thread may have stored
// something since.
static void move_value(tt_engine *engine, tt_storage *to, tt_value *expected, tt_storage *from) {
  pthread_mutex_lock(&engine->lock);
  tt_value *value = from->value;
  if (to->value == expected && value) {
    tt_value_ref(value);
    tt_storage_set_value(to, value);
  }
  pthread_mutex_unlock(&engine->lock);
  tt_storage_free(from);
}

static tt_status *fresh_zeros(tt_engine *engine, tt_storage *storage, tt_dtype dtype) {
  int64_t numel = (int64_t)(storage->nbytes / tt_dtype_size(dtype));
  void *zeros = calloc(storage->nbytes ? storage->nbytes : 1, 1);
  tt_value *value = NULL;
  if (!zeros) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  tt_status *status = tt_value_from_host(engine, zeros, dtype, &numel, 1, &value);
  free(zeros);
  pthread_mutex_lock(&engine->lock);
  if (!status && !storage->value) {
    tt_storage_set_value(storage, value);
    value = NULL;
  }
  pthread_mutex_unlock(&engine->lock);
  tt_value_unref(value);
  return status;
}

tt_status *tt_storage_retype(const tt_tensor *tensor, tt_storage **out_copy) {
  tt_storage *storage = tensor->storage, *fresh;
  tt_engine *engine;
  TT_TRY(tt_engine_of(storage->device, &engine));
  tt_value *value;
  while (!(value = hold_value(engine, storage))) {  // nothing stored: another operand gave it a type in this call
    TT_TRY(fresh_zeros(engine, storage, (tt_dtype)tensor->dtype));
    if (!out_copy) {
      return NULL;
    }
  }
  tt_arg args[4] = {{0},
                    {.tag = TT_ARG_INT, .u.i = tensor->dtype},
                    {.tag = TT_ARG_INTS, .count = (uint32_t)tensor->ndim, .u.ints = tensor->sizes},
                    {.tag = TT_ARG_INT, .u.i = element_count(storage->nbytes, (tt_dtype)tensor->dtype)}};
  if (!is_whole(tensor)) {
    args[2].tag = TT_ARG_NONE;
  }
  tt_status *status = transform(storage, value, OP_RETYPE, args, 4, &fresh);
  if (!status && out_copy) {
    *out_copy = fresh;
  } else if (!status) {
    move_value(engine, storage, value, fresh);
  }
  tt_value_disown(value);
  return status;
}

tt_status *tt_storage_resize(tt_storage *storage, size_t nbytes) {
  tt_engine *engine;
  TT_TRY(tt_engine_of(storage->device, &engine));
  TT_TRY(nbytes > storage->nbytes ? tt_allocation_check(engine, nbytes - storage->nbytes) : NULL);
  void *address = tt_vspace_alloc(nbytes);
  if (!address) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "no address space for %zu bytes on tpu:%d", nbytes, storage->device);
  }
  tt_value *value = hold_value(engine, storage);
  tt_status *status = NULL;
  if (value && nbytes == 0) {
    set_value(engine, storage, NULL);
  } else if (value) {
    tt_storage *fresh;
    tt_arg args[2] = {{0}, {.tag = TT_ARG_INT, .u.i = element_count(nbytes, value->dtype)}};
    status = transform(storage, value, OP_RESIZE, args, 2, &fresh);
    if (!status) {
      move_value(engine, storage, value, fresh);
    }
  }
  tt_value_disown(value);
  if (status) {
    tt_vspace_free(address, nbytes);
    return status;
  }
  tt_vspace_free(storage->address, storage->nbytes);
  pthread_mutex_lock(&engine->lock);
  tt_allocated_add(engine, (int64_t)nbytes - (int64_t)storage->nbytes);
  storage->address = address;
  storage->nbytes = nbytes;
  storage->size_class = tt_vspace_class(nbytes);
  pthread_mutex_unlock(&engine->lock);
  return NULL;
}
