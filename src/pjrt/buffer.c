#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

static const PJRT_Buffer_Type types[TT_DTYPE_COUNT] = {
    [TT_DTYPE_INVALID] = PJRT_Buffer_Type_INVALID,
    [TT_PRED] = PJRT_Buffer_Type_PRED,
    [TT_S8] = PJRT_Buffer_Type_S8,
    [TT_S16] = PJRT_Buffer_Type_S16,
    [TT_S32] = PJRT_Buffer_Type_S32,
    [TT_S64] = PJRT_Buffer_Type_S64,
    [TT_U8] = PJRT_Buffer_Type_U8,
    [TT_U16] = PJRT_Buffer_Type_U16,
    [TT_U32] = PJRT_Buffer_Type_U32,
    [TT_U64] = PJRT_Buffer_Type_U64,
    [TT_F16] = PJRT_Buffer_Type_F16,
    [TT_BF16] = PJRT_Buffer_Type_BF16,
    [TT_F32] = PJRT_Buffer_Type_F32,
    [TT_F64] = PJRT_Buffer_Type_F64,
    [TT_C64] = PJRT_Buffer_Type_C64,
    [TT_C128] = PJRT_Buffer_Type_C128,
    [TT_F8E4M3FN] = PJRT_Buffer_Type_F8E4M3FN,
    [TT_F8E5M2] = PJRT_Buffer_Type_F8E5M2,
};

PJRT_Buffer_Type tt_pjrt_type_of_dtype(tt_dtype dtype) {
  return (unsigned)dtype < TT_DTYPE_COUNT ? types[dtype] : PJRT_Buffer_Type_INVALID;
}

tt_dtype tt_pjrt_dtype_of_type(PJRT_Buffer_Type type) {
  for (int dtype = 1; dtype < TT_DTYPE_COUNT; dtype++) {
    if (types[dtype] == type) {
      return (tt_dtype)dtype;
    }
  }
  return TT_DTYPE_INVALID;
}

tt_status *tt_pjrt_dense_size(tt_dtype dtype, const int64_t *dims, size_t rank, size_t *out_size) {
  // XLA computes in int64 and dies of an overflow, also of the dimensions beside a zero: so count both.
  int64_t size = (int64_t)tt_dtype_size(dtype), nonzero = size;
  *out_size = 0;
  if (!size || rank > TT_PJRT_MAX_RANK || (rank && !dims)) {
    return tt_error(TT_ERR_INTERNAL, "not an array: dtype %s, rank %zu", tt_dtype_torch_name(dtype), rank);
  }
  for (size_t i = 0; i < rank; i++) {
    if (dims[i] < 0) {
      return tt_error(TT_ERR_RUNTIME, "dimension %zu is negative: %lld", i, (long long)dims[i]);
    }
    size *= dims[i] ? 1 : 0;
    if (dims[i] && __builtin_mul_overflow(nonzero, dims[i], &nonzero)) {
      return tt_error(TT_ERR_RUNTIME, "the array is too large: its size in bytes overflows 64 bits");
    }
  }
  *out_size = size ? (size_t)nonzero : 0;
  return NULL;
}

static PJRT_Buffer *unwrap(tt_pjrt_buffer *buffer) { return (PJRT_Buffer *)buffer; }

static tt_status *no_buffer(const char *what) { return tt_error(TT_ERR_INTERNAL, "%s: no buffer", what); }

void tt_pjrt_destroy_buffer(const PJRT_Api *api, PJRT_Buffer *buffer) {
  if (buffer) {
    PJRT_Buffer_Destroy_Args args = {.struct_size = PJRT_Buffer_Destroy_Args_STRUCT_SIZE, .buffer = buffer};
    tt_pjrt_drop_error(api, api->PJRT_Buffer_Destroy(&args));
  }
}

void tt_pjrt_buffer_free(tt_pjrt_client *client, tt_pjrt_buffer *buffer) {
  tt_pjrt_destroy_buffer(client->api, unwrap(buffer));
}

tt_status *tt_pjrt_buffer_from_host(tt_pjrt_client *client, int32_t device, const void *data, tt_dtype dtype,
                                    const int64_t *dims, int32_t rank, tt_pjrt_buffer **out_buffer) {
  static const char nothing[16];
  *out_buffer = NULL;
  TT_TRY(tt_pjrt_check_device(client, device));
  size_t size;
  if (rank < 0) {
    return tt_error(TT_ERR_INTERNAL, "the rank is negative: %d", rank);
  }
  TT_TRY(tt_pjrt_dense_size(dtype, dims, (size_t)rank, &size));
  if (size && !data) {
    return tt_error(TT_ERR_INTERNAL, "host to device: no data");
  }
  PJRT_Client_BufferFromHostBuffer_Args args = {
      .struct_size = PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE,
      .client = client->client,
      .data = size ? data : nothing,
      .type = types[dtype],
      .dims = rank ? dims : NULL,
      .num_dims = (size_t)rank,
      .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
      .device = client->devices[device].device,
  };
  TT_PJRT_TRY(client->api, client->api->PJRT_Client_BufferFromHostBuffer(&args), "host to device");
  tt_status *status = tt_pjrt_finish_event(client->api, args.done_with_host_buffer, "host to device");
  if (!status && !args.buffer) {
    status = tt_error(TT_ERR_RUNTIME, "host to device: the PJRT plugin gave no buffer");
  }
  if (status) {
    tt_pjrt_destroy_buffer(client->api, args.buffer);
    return status;
  }
  *out_buffer = (tt_pjrt_buffer *)args.buffer;
  return NULL;
}

tt_status *tt_pjrt_buffer_await(tt_pjrt_client *client, tt_pjrt_buffer *buffer) {
  if (!buffer) {
    return no_buffer("await");
  }
  PJRT_Buffer_ReadyEvent_Args args = {.struct_size = PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE, .buffer = unwrap(buffer)};
  TT_PJRT_TRY(client->api, client->api->PJRT_Buffer_ReadyEvent(&args), "await");
  return tt_pjrt_finish_event(client->api, args.event, "await");
}

tt_status *tt_pjrt_buffer_shape(tt_pjrt_client *client, tt_pjrt_buffer *buffer, tt_dtype *out_dtype,
                                const int64_t **out_dims, int32_t *out_rank) {
  const PJRT_Api *api = client->api;
  *out_dtype = TT_DTYPE_INVALID;
  *out_dims = NULL;
  *out_rank = 0;
  if (!buffer) {
    return no_buffer("shape");
  }
  PJRT_Buffer_ElementType_Args type = {.struct_size = PJRT_Buffer_ElementType_Args_STRUCT_SIZE,
                                       .buffer = unwrap(buffer)};
  TT_PJRT_TRY(api, api->PJRT_Buffer_ElementType(&type), "element type");
  PJRT_Buffer_Dimensions_Args dims = {.struct_size = PJRT_Buffer_Dimensions_Args_STRUCT_SIZE, .buffer = unwrap(buffer)};
  TT_PJRT_TRY(api, api->PJRT_Buffer_Dimensions(&dims), "dimensions");
  tt_dtype dtype = tt_pjrt_dtype_of_type(type.type);
  if (dtype == TT_DTYPE_INVALID || dims.num_dims > TT_PJRT_MAX_RANK || (dims.num_dims && !dims.dims)) {
    return tt_error(TT_ERR_RUNTIME, "a buffer of element type %d and rank %zu can't be read", (int)type.type,
                    dims.num_dims);
  }
  *out_dtype = dtype;
  *out_dims = dims.dims;
  *out_rank = (int32_t)dims.num_dims;
  return NULL;
}

tt_status *tt_pjrt_buffer_host_pointer(tt_pjrt_client *client, tt_pjrt_buffer *buffer, const void **out_pointer) {
  *out_pointer = NULL;
  if (!buffer) {
    return no_buffer("host pointer");
  }
  if (!client->is_cpu || !client->api->PJRT_Buffer_UnsafePointer) {
    return NULL;
  }
  TT_TRY(tt_pjrt_buffer_await(client, buffer));
  PJRT_Buffer_UnsafePointer_Args args = {.struct_size = PJRT_Buffer_UnsafePointer_Args_STRUCT_SIZE,
                                         .buffer = unwrap(buffer)};
  TT_PJRT_TRY(client->api, client->api->PJRT_Buffer_UnsafePointer(&args), "host pointer");
  *out_pointer = (const void *)args.buffer_pointer;
  return NULL;
}

// Asks the plugin for the bytes in row-major order, whatever the device's layout is.
static tt_status *transfer_to_host(tt_pjrt_client *client, PJRT_Buffer *buffer, int32_t rank, void *data, size_t size) {
  int64_t minor_to_major[TT_PJRT_MAX_RANK];
  for (int32_t i = 0; i < rank; i++) {
    minor_to_major[i] = rank - 1 - i;
  }
  PJRT_Buffer_MemoryLayout layout = {
      .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
      .tiled = {.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                .minor_to_major = minor_to_major,
                .minor_to_major_size = (size_t)rank},
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
  };
  PJRT_Buffer_ToHostBuffer_Args args = {.struct_size = PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE,
                                        .src = buffer,
                                        .host_layout = &layout,
                                        .dst = data,
                                        .dst_size = size};
  TT_PJRT_TRY(client->api, client->api->PJRT_Buffer_ToHostBuffer(&args), "device to host");
  return tt_pjrt_finish_event(client->api, args.event, "device to host");
}

tt_status *tt_pjrt_buffer_to_host(tt_pjrt_client *client, tt_pjrt_buffer *buffer, void *data, size_t size) {
  tt_dtype dtype;
  const int64_t *dims;
  int32_t rank;
  size_t actual;
  TT_TRY(tt_pjrt_buffer_shape(client, buffer, &dtype, &dims, &rank));
  TT_TRY(tt_pjrt_dense_size(dtype, dims, (size_t)rank, &actual));
  if (size != actual || (size && !data)) {
    return tt_error(TT_ERR_INTERNAL, "device to host: the buffer has %zu bytes, %zu were asked for%s", actual, size,
                    size && !data ? " without a place for them" : "");
  }
  if (!size) {
    return tt_pjrt_buffer_await(client, buffer);
  }
  const void *pointer;
  TT_TRY(tt_pjrt_buffer_host_pointer(client, buffer, &pointer));
  if (pointer) {
    memcpy(data, pointer, size);
    return NULL;
  }
  return transfer_to_host(client, unwrap(buffer), rank, data, size);
}

tt_status *tt_pjrt_buffer_copy_to_device(tt_pjrt_client *client, tt_pjrt_buffer *buffer, int32_t device,
                                         tt_pjrt_buffer **out_buffer) {
  *out_buffer = NULL;
  TT_TRY(tt_pjrt_check_device(client, device));
  if (!buffer) {
    return no_buffer("device to device");
  }
  PJRT_Buffer_CopyToDevice_Args args = {.struct_size = PJRT_Buffer_CopyToDevice_Args_STRUCT_SIZE,
                                        .buffer = unwrap(buffer),
                                        .dst_device = client->devices[device].device};
  TT_PJRT_TRY(client->api, client->api->PJRT_Buffer_CopyToDevice(&args), "device to device");
  if (!args.dst_buffer) {
    return tt_error(TT_ERR_RUNTIME, "device to device: the PJRT plugin gave no buffer");
  }
  *out_buffer = (tt_pjrt_buffer *)args.dst_buffer;
  return NULL;
}
