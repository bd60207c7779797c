// The op cache: records by key, compared whole.
#include <stdlib.h>
#include <string.h>

#include "eager/internal.h"

tt_record *tt_op_cache_find(const tt_op_cache *cache, const uint64_t *key, int32_t words, uint64_t hash) {
  tt_record *record = cache->bucket_count ? cache->buckets[hash & (cache->bucket_count - 1)] : NULL;
  while (record && (record->hash != hash || record->key_words != words ||
                    memcmp(record->key, key, sizeof *key * (size_t)words) != 0)) {
    record = record->next;
  }
  if (record) {
    record->used = true;
  }
  return record;
}

static tt_record **recent_place(tt_op_cache *cache, const tt_op *op) {
  return &cache->recent[((uint64_t)(uintptr_t)op * 0x9e3779b97f4a7c15u) >> (64 - TT_RECENT_BITS)];
}

tt_record *tt_op_cache_recent(tt_op_cache *cache, const tt_op *op, const uint64_t *key, int32_t words) {
  tt_record *record = *recent_place(cache, op);
  if (!record || record->op != op || record->key_words != words ||
      memcmp(record->key, key, sizeof *key * (size_t)words) != 0) {
    return NULL;
  }
  record->used = true;
  return record;
}

void tt_op_cache_note(tt_op_cache *cache, tt_record *record) { *recent_place(cache, record->op) = record; }

// Drops the records that were not used since the last sweep; programs in flight keep theirs.
static void sweep(tt_op_cache *cache) {
  memset(cache->recent, 0, sizeof cache->recent);
  for (size_t i = 0; i < cache->bucket_count; i++) {
    for (tt_record **at = &cache->buckets[i]; *at;) {
      tt_record *record = *at;
      if (record->used) {
        record->used = false;
        at = &record->next;
        continue;
      }
      *at = record->next;
      cache->count--;
      tt_record_unref(record);
    }
  }
}

static bool grow(tt_op_cache *cache) {
  size_t count = cache->bucket_count ? 2 * cache->bucket_count : 1024;
  tt_record **buckets = calloc(count, sizeof *buckets);
  if (!buckets) {
    return cache->bucket_count > 0;
  }
  for (size_t i = 0; i < cache->bucket_count; i++) {
    for (tt_record *record = cache->buckets[i], *next; record; record = next) {
      next = record->next;
      record->next = buckets[record->hash & (count - 1)];
      buckets[record->hash & (count - 1)] = record;
    }
  }
  free(cache->buckets);
  cache->buckets = buckets;
  cache->bucket_count = count;
  return true;
}

tt_status *tt_op_cache_insert(tt_op_cache *cache, tt_record *record) {
  if (cache->count >= TT_OP_CACHE_LIMIT) {
    sweep(cache);
    if (cache->count >= TT_OP_CACHE_LIMIT / 2) {
      sweep(cache);  // all were in use: start over rather than sweep at each miss
    }
  }
  if (cache->count >= cache->bucket_count && !grow(cache)) {
    tt_record_unref(record);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  tt_record **bucket = &cache->buckets[record->hash & (cache->bucket_count - 1)];
  record->next = *bucket;
  *bucket = record;
  cache->count++;
  return NULL;
}

void tt_op_cache_clear(tt_op_cache *cache) {
  memset(cache->recent, 0, sizeof cache->recent);
  for (size_t i = 0; i < cache->bucket_count; i++) {
    for (tt_record *record = cache->buckets[i], *next; record; record = next) {
      next = record->next;
      tt_record_unref(record);
    }
    cache->buckets[i] = NULL;
  }
  cache->count = 0;
}

void tt_record_unref(tt_record *record) {
  if (!record || atomic_fetch_sub_explicit(&record->refs, 1, memory_order_acq_rel) != 1) {
    return;
  }
  if (record->executable && !atomic_load(&tt_the_runtime.stopped)) {
    tt_pjrt_executable_free(tt_the_runtime.client, record->executable);
  }
  tt_lowered_free(&record->lowered);
  free(record->key);
  free(record->title);
  free(record);
}
