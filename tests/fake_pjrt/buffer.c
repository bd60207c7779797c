#include <stdlib.h>
#include <string.h>

#include "fake.h"

static fake_memory *memory_new(PJRT_Client *client, size_t size) {
  fake_memory *memory = calloc(1, sizeof *memory);
  if (!memory || !(memory->data = calloc(1, size ? size : 1))) {
    abort();
  }
  atomic_init(&memory->references, 1);
  memory->client = client;
  memory->size = size;
  return memory;
}

void fake_memory_unref(fake_memory *memory) {
  if (memory && atomic_fetch_sub(&memory->references, 1) == 1) {
    atomic_fetch_sub(&memory->client->bytes, (long long)memory->size);
    atomic_fetch_sub(&fake_count.buffer_bytes, (long long)memory->size);
    free(memory->data);
    free(memory);
  }
}

PJRT_Buffer *fake_buffer_over(PJRT_Device *device, const fake_type *type, fake_memory *memory) {
  PJRT_Buffer *buffer = calloc(1, sizeof *buffer);
  if (!buffer) {
    abort();
  }
  pthread_mutex_init(&buffer->lock, NULL);
  buffer->device = device;
  buffer->type = type->type;
  buffer->rank = type->rank;
  memcpy(buffer->dims, type->dims, sizeof buffer->dims);
  buffer->size = type->size;
  buffer->memory = memory;
  buffer->ready = fake_state_new();
  atomic_fetch_add(&fake_count.buffers, 1);
  return buffer;
}

PJRT_Error *fake_buffer_new(PJRT_Device *device, const fake_type *type, PJRT_Buffer **out_buffer) {
  PJRT_Client *client = device->client;
  long long size = (long long)type->size, limit = atomic_load(&fake_set.memory_limit);
  long long before = atomic_fetch_add(&client->bytes, size);
  if (limit && before + size > limit) {
    atomic_fetch_sub(&client->bytes, size);
    return fake_error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "Out of memory allocating %lld bytes; %lld of %lld in use",
                      size, before, limit);
  }
  atomic_fetch_add(&fake_count.buffer_bytes, size);
  *out_buffer = fake_buffer_over(device, type, memory_new(client, type->size));
  return NULL;
}

void fake_buffer_free(PJRT_Buffer *buffer) {
  if (buffer) {
    fake_memory_unref(buffer->memory);
    fake_state_unref(buffer->ready);
    pthread_mutex_destroy(&buffer->lock);
    free(buffer);
    atomic_fetch_sub(&fake_count.buffers, 1);
  }
}

fake_memory *fake_buffer_memory(PJRT_Buffer *buffer) {
  pthread_mutex_lock(&buffer->lock);
  fake_memory *memory = buffer->memory;
  if (memory) {
    atomic_fetch_add(&memory->references, 1);
  }
  pthread_mutex_unlock(&buffer->lock);
  return memory;
}

fake_memory *fake_buffer_take(PJRT_Buffer *buffer) {
  pthread_mutex_lock(&buffer->lock);
  fake_memory *memory = buffer->memory;
  buffer->memory = NULL;
  pthread_mutex_unlock(&buffer->lock);
  return memory;
}

static PJRT_Error *deleted(void) {
  return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "Buffer has been deleted or donated.");
}

// ---- copies, at once or by the client's worker after a delay ----
typedef struct copy_task {
  fake_task base;
  fake_memory *from, *to;  // references; `to` may be NULL
  void *host;              // destination where `to` is NULL
  fake_state *after;       // the source's state: its error is passed on
  fake_state *done;
} copy_task;

static void run_copy(fake_task *base) {
  copy_task *task = (copy_task *)base;
  fake_state_await(task->after);
  PJRT_Error_Code code = fake_state_code(task->after);
  if (!code) {
    memcpy(task->to ? task->to->data : task->host, task->from->data, task->from->size);
  }
  fake_state_finish(task->done, code, "the copied buffer has an error");
  fake_memory_unref(task->from);
  fake_memory_unref(task->to);
  fake_state_unref(task->after);
  fake_state_unref(task->done);
  free(task);
}

// Takes the references of both memories; runs now if it can.
static void start_copy(PJRT_Buffer *source, fake_memory *from, fake_memory *to, void *host, fake_state *done) {
  copy_task *task = malloc(sizeof *task);
  if (!task) {
    abort();
  }
  *task = (copy_task){.base = {.delay_us = atomic_load(&fake_set.transfer_delay_us), .run = run_copy},
                      .from = from,
                      .to = to,
                      .host = host,
                      .after = fake_state_ref(source->ready),
                      .done = fake_state_ref(done)};
  if (task->base.delay_us || !fake_state_ready(source->ready)) {
    fake_client_enqueue(source->device->client, &task->base);
  } else {
    run_copy(&task->base);
  }
}

PJRT_Error *fake_PJRT_Client_BufferFromHostBuffer(PJRT_Client_BufferFromHostBuffer_Args *args) {
  ENTER(PJRT_Client_BufferFromHostBuffer);
  fake_type type = {.type = args->type, .rank = args->num_dims, .size = fake_type_bytes(args->type)};
  if (!type.size || type.rank > FAKE_MAX_RANK || args->num_byte_strides || !args->device ||
      args->device->client != args->client) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "bad type, rank, strides or device");
  }
  for (size_t i = 0; i < type.rank; i++) {
    type.dims[i] = args->dims[i];
    if (args->dims[i] < 0 || __builtin_mul_overflow(type.size, (size_t)args->dims[i], &type.size)) {
      return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "bad dimensions: XLA would abort here");
    }
  }
  args->buffer = NULL;
  args->done_with_host_buffer = NULL;
  if (fake_lies(FAKE_PJRT_Client_BufferFromHostBuffer)) {
    return NULL;
  }
  PJRT_Error *error = fake_buffer_new(args->device, &type, &args->buffer);
  if (error) {
    return error;
  }
  memcpy(args->buffer->memory->data, args->data, type.size);
  atomic_fetch_add(&fake_count.h2d_bytes, (long long)type.size);
  fake_state_finish(args->buffer->ready, PJRT_Error_Code_OK, NULL);
  args->done_with_host_buffer = fake_event_new(args->buffer->ready);
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_Destroy(PJRT_Buffer_Destroy_Args *args) {
  fake_buffer_free(args->buffer);
  return fake_enter(FAKE_PJRT_Buffer_Destroy);
}

PJRT_Error *fake_PJRT_Buffer_ElementType(PJRT_Buffer_ElementType_Args *args) {
  ENTER(PJRT_Buffer_ElementType);
  args->type = fake_lies(FAKE_PJRT_Buffer_ElementType) ? PJRT_Buffer_Type_TOKEN : args->buffer->type;
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_Dimensions(PJRT_Buffer_Dimensions_Args *args) {
  ENTER(PJRT_Buffer_Dimensions);
  bool lies = fake_lies(FAKE_PJRT_Buffer_Dimensions);
  args->dims = lies ? NULL : args->buffer->dims;
  args->num_dims = lies ? SIZE_MAX : args->buffer->rank;
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_UnpaddedDimensions(PJRT_Buffer_UnpaddedDimensions_Args *args) {
  ENTER(PJRT_Buffer_UnpaddedDimensions);
  args->unpadded_dims = args->buffer->dims;
  args->num_dims = args->buffer->rank;
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_OnDeviceSizeInBytes(PJRT_Buffer_OnDeviceSizeInBytes_Args *args) {
  ENTER(PJRT_Buffer_OnDeviceSizeInBytes);
  args->on_device_size_in_bytes = args->buffer->size;
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_Device(PJRT_Buffer_Device_Args *args) {
  ENTER(PJRT_Buffer_Device);
  args->device = args->buffer->device;
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_Delete(PJRT_Buffer_Delete_Args *args) {
  fake_memory_unref(fake_buffer_take(args->buffer));
  return fake_enter(FAKE_PJRT_Buffer_Delete);
}

PJRT_Error *fake_PJRT_Buffer_IsDeleted(PJRT_Buffer_IsDeleted_Args *args) {
  ENTER(PJRT_Buffer_IsDeleted);
  fake_memory *memory = fake_buffer_memory(args->buffer);
  args->is_deleted = !memory;
  fake_memory_unref(memory);
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_CopyToDevice(PJRT_Buffer_CopyToDevice_Args *args) {
  ENTER(PJRT_Buffer_CopyToDevice);
  PJRT_Buffer *buffer = args->buffer;
  args->dst_buffer = NULL;
  if (fake_lies(FAKE_PJRT_Buffer_CopyToDevice)) {
    return NULL;
  }
  fake_memory *from = fake_buffer_memory(buffer);
  if (!from) {
    return deleted();
  }
  fake_type type = {.type = buffer->type, .rank = buffer->rank, .size = buffer->size};
  memcpy(type.dims, buffer->dims, sizeof type.dims);
  PJRT_Error *error = fake_buffer_new(args->dst_device, &type, &args->dst_buffer);
  if (error) {
    fake_memory_unref(from);
    return error;
  }
  start_copy(buffer, from, fake_buffer_memory(args->dst_buffer), NULL, args->dst_buffer->ready);
  return NULL;
}

static bool is_row_major(const PJRT_Buffer_MemoryLayout *layout, size_t rank) {
  if (!layout) {
    return true;
  }
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled || layout->tiled.num_tiles ||
      layout->tiled.minor_to_major_size != rank) {
    return false;
  }
  for (size_t i = 0; i < rank; i++) {
    if (layout->tiled.minor_to_major[i] != (int64_t)(rank - 1 - i)) {
      return false;
    }
  }
  return true;
}

PJRT_Error *fake_PJRT_Buffer_ToHostBuffer(PJRT_Buffer_ToHostBuffer_Args *args) {
  ENTER(PJRT_Buffer_ToHostBuffer);
  args->event = NULL;
  if (!args->dst) {
    args->dst_size = args->src->size;
    return NULL;
  }
  if (!is_row_major(args->host_layout, args->src->rank) || args->dst_size < args->src->size) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "bad layout or size");
  }
  fake_memory *from = fake_buffer_memory(args->src);
  if (!from) {
    return deleted();
  }
  atomic_fetch_add(&fake_count.d2h_bytes, (long long)args->src->size);
  fake_state *done = fake_state_new();
  args->event = fake_event_new(done);
  start_copy(args->src, from, NULL, args->dst, done);
  fake_state_unref(done);
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_IsOnCpu(PJRT_Buffer_IsOnCpu_Args *args) {
  ENTER(PJRT_Buffer_IsOnCpu);
  args->is_on_cpu = !atomic_load(&fake_set.tpu);
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_ReadyEvent(PJRT_Buffer_ReadyEvent_Args *args) {
  ENTER(PJRT_Buffer_ReadyEvent);
  fake_memory *memory = fake_buffer_memory(args->buffer);
  if (!memory) {
    return deleted();
  }
  fake_memory_unref(memory);
  args->event = fake_event_new(args->buffer->ready);
  return NULL;
}

PJRT_Error *fake_PJRT_Buffer_UnsafePointer(PJRT_Buffer_UnsafePointer_Args *args) {
  ENTER(PJRT_Buffer_UnsafePointer);
  if (atomic_load(&fake_set.tpu)) {
    return fake_error(PJRT_Error_Code_UNIMPLEMENTED, "no host pointer on a TPU");
  }
  fake_memory *memory = fake_buffer_memory(args->buffer);
  if (!memory) {
    return deleted();
  }
  if (!fake_state_ready(args->buffer->ready)) {
    fake_memory_unref(memory);
    return fake_error(PJRT_Error_Code_FAILED_PRECONDITION, "the buffer isn't ready: XLA would give the pointer");
  }
  args->buffer_pointer = (uintptr_t)memory->data;
  fake_memory_unref(memory);
  return NULL;
}
