// Interned scalar buffers: the same number as the same type is on the device once.
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"
#include "eager/number.h"

struct tt_scalar_entry {
  struct tt_scalar_entry *next;
  tt_dtype dtype;
  unsigned char bytes[16];
  tt_value *value;  // owned, and an owner
};

tt_status *tt_value_from_host(tt_engine *engine, const void *data, tt_dtype dtype, const int64_t *dims, int32_t rank,
                              tt_value **out_value) {
  tt_value *value = *out_value = tt_value_create(engine->device, dtype, dims, rank);
  if (!value) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  tt_status *status = tt_pjrt_buffer_from_host(tt_the_runtime.client, engine->device, data, dtype, dims, rank,
                                               &value->buffer);
  tt_count(&tt_the_runtime.counters.h2d, 1);
  tt_count(&tt_the_runtime.counters.h2d_bytes, (int64_t)value->nbytes);
  if (status) {
    tt_value_unref(value);
    *out_value = NULL;
  }
  return status;
}

void tt_scalar_cache_clear(tt_scalar_cache *cache) {
  for (int32_t i = 0; i < TT_SCALAR_BUCKETS; i++) {
    while (cache->buckets[i]) {
      struct tt_scalar_entry *entry = cache->buckets[i];
      cache->buckets[i] = entry->next;
      tt_value_unref(entry->value);
      free(entry);
    }
  }
  cache->count = 0;
}

static uint32_t hash_scalar(const unsigned char *bytes, tt_dtype dtype) {
  uint64_t words[2];
  memcpy(words, bytes, 16);
  uint64_t h = (words[0] ^ words[1] * 0x9e3779b97f4a7c15u ^ (uint64_t)dtype << 56) * 0xff51afd7ed558ccdu;
  return (uint32_t)(h >> 40) % TT_SCALAR_BUCKETS;
}

tt_status *tt_scalar_value(tt_engine *engine, const tt_number *number, tt_dtype dtype, bool checked,
                           tt_value **out_value) {
  tt_scalar_cache *cache = &engine->scalars;
  unsigned char bytes[16];
  *out_value = NULL;
  if (!tt_number_to_bytes(number, dtype, checked, bytes)) {
    return tt_error(TT_ERR_RUNTIME, "value cannot be converted to type %s without overflow", tt_dtype_torch_name(dtype));
  }
  struct tt_scalar_entry **bucket = &cache->buckets[hash_scalar(bytes, dtype)];
  for (struct tt_scalar_entry *entry = *bucket; entry; entry = entry->next) {
    if (entry->dtype == dtype && !memcmp(entry->bytes, bytes, 16)) {
      tt_value_ref(entry->value);
      *out_value = entry->value;
      return NULL;
    }
  }
  if (cache->count >= TT_SCALAR_LIMIT) {
    tt_scalar_cache_clear(cache);  // a program with ever new numbers: start over
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
  memcpy(entry->bytes, bytes, 16);
  atomic_fetch_add(&entry->value->owners, 1);
  entry->next = *bucket;
  *bucket = entry;
  cache->count++;
  tt_value_ref(entry->value);
  *out_value = entry->value;
  return NULL;
}
