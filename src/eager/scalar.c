// Interned scalar buffers: the same number as the same type is on the device once.
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"
#include "eager/number.h"

struct tt_scalar_entry {
  struct tt_scalar_entry *next;
  tt_dtype dtype;
  bool used;  // since the last sweep
  unsigned char bytes[16];
  tt_value *value;  // owned, and an owner
};

tt_status *tt_value_from_host(tt_engine *engine, const void *data, tt_dtype dtype, const int64_t *dims, int32_t rank,
                              tt_value **out_value) {
  tt_value *value = *out_value = tt_value_create(engine->device, dtype, dims, rank);
  if (!value) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  int64_t begin = tt_profile_now();
  tt_status *status =
      tt_pjrt_buffer_from_host(tt_the_runtime.client, engine->device, data, dtype, dims, rank, &value->buffer);
  tt_profile_add(TT_ACTIVITY_TO_DEVICE, "", engine->device, begin, (int64_t)value->nbytes);
  tt_count(&tt_the_runtime.counters.h2d, 1);
  tt_count(&tt_the_runtime.counters.h2d_bytes, (int64_t)value->nbytes);
  if (status) {
    tt_value_unref(value);
    *out_value = NULL;
  }
  return status;
}

// Frees the entries that were not used since the last sweep, or all.
static void sweep(tt_scalar_cache *cache, bool all) {
  for (int32_t i = 0; i < TT_SCALAR_BUCKETS; i++) {
    for (struct tt_scalar_entry **at = &cache->buckets[i]; *at;) {
      struct tt_scalar_entry *entry = *at;
      if (entry->used && !all) {
        entry->used = false;
        at = &entry->next;
        continue;
      }
      *at = entry->next;
      entry->value->owners--;
      tt_value_unref(entry->value);
      free(entry);
      cache->count--;
    }
  }
}

void tt_scalar_cache_clear(tt_scalar_cache *cache) { sweep(cache, true); }

static uint32_t hash_scalar(const unsigned char *bytes, tt_dtype dtype) {
  uint64_t words[2];
  memcpy(words, bytes, 16);
  uint64_t h = (words[0] ^ words[1] * 0x9e3779b97f4a7c15u ^ (uint64_t)dtype << 56) * 0xff51afd7ed558ccdu;
  return (uint32_t)(h >> 40) % TT_SCALAR_BUCKETS;
}

// As PyTorch's message names the type.
static const char *c_type_name(tt_dtype dtype) {
  static const char *const names[TT_DTYPE_COUNT] = {
      [TT_S8] = "int8_t",     [TT_S16] = "int16_t",        [TT_S32] = "int",      [TT_S64] = "int64_t",
      [TT_U8] = "uint8_t",    [TT_U16] = "uint16_t",       [TT_U32] = "uint32_t", [TT_U64] = "uint64_t",
      [TT_F16] = "c10::Half", [TT_BF16] = "c10::BFloat16", [TT_F32] = "float",    [TT_F64] = "double"};
  return (unsigned)dtype < TT_DTYPE_COUNT && names[dtype] ? names[dtype] : tt_dtype_torch_name(dtype);
}

tt_status *tt_scalar_overflow(tt_dtype dtype) {
  return tt_error(TT_ERR_RUNTIME, "value cannot be converted to type %s without overflow", c_type_name(dtype));
}

tt_status *tt_scalar_value(tt_engine *engine, const tt_number *number, tt_dtype dtype, bool checked,
                           tt_value **out_value) {
  unsigned char bytes[16];
  *out_value = NULL;
  return tt_number_to_bytes(number, dtype, checked, bytes) ? tt_scalar_intern(engine, bytes, dtype, out_value)
                                                           : tt_scalar_overflow(dtype);
}

tt_status *tt_scalar_intern(tt_engine *engine, const unsigned char *bytes, tt_dtype dtype, tt_value **out_value) {
  tt_scalar_cache *cache = &engine->scalars;
  *out_value = NULL;
  struct tt_scalar_entry **bucket = &cache->buckets[hash_scalar(bytes, dtype)];
  for (struct tt_scalar_entry *entry = *bucket; entry; entry = entry->next) {
    if (entry->dtype == dtype && !memcmp(entry->bytes, bytes, 16)) {
      tt_value_ref(entry->value);
      entry->used = true;
      *out_value = entry->value;
      return NULL;
    }
  }
  if (cache->count >= TT_SCALAR_LIMIT) {
    // Ever new numbers, as a learning rate's schedule has them: keep those that come again.
    sweep(cache, false);
    if (cache->count >= TT_SCALAR_LIMIT) {
      sweep(cache, false);
    }
  }
  struct tt_scalar_entry *entry = malloc(sizeof *entry);
  if (!entry) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  tt_status *status = tt_value_from_host(engine, bytes, dtype, NULL, 0, &entry->value);
  if (status) {
    free(entry);
    return status;
  }
  entry->dtype = dtype;
  entry->used = false;
  memcpy(entry->bytes, bytes, 16);
  entry->value->owners++;
  entry->next = *bucket;
  *bucket = entry;
  cache->count++;
  tt_value_ref(entry->value);
  *out_value = entry->value;
  return NULL;
}
