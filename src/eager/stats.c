// Counters, memory statistics and caches.
#include "base/trace.h"
#include "eager/internal.h"
#include "eager/recompile.h"

void tt_get_counters(tt_counters *out) {
  tt_runtime *rt = &tt_the_runtime;
  tt_cache_stats cache;
  tt_cache_get_stats(atomic_load(&rt->initialized) ? rt->cache : NULL, &cache);
  *out = (tt_counters){
      .compiles = atomic_load(&rt->counters.compiles),
      .compile_ns = atomic_load(&rt->counters.compile_ns),
      .executions = atomic_load(&rt->counters.executions),
      .cache_hits = atomic_load(&rt->counters.hits),
      .cache_misses = atomic_load(&rt->counters.misses),
      .host_to_device = atomic_load(&rt->counters.h2d),
      .device_to_host = atomic_load(&rt->counters.d2h),
      .host_to_device_bytes = atomic_load(&rt->counters.h2d_bytes),
      .device_to_host_bytes = atomic_load(&rt->counters.d2h_bytes),
      .synchronizations = atomic_load(&rt->counters.syncs),
      .fallbacks = atomic_load(&rt->counters.fallbacks),
      .disk_hits = cache.disk_hits,
      .shared_hits = cache.shared_hits,
      .disk_misses = cache.misses,
      .disk_stores = cache.stores,
      .disk_rejected = cache.rejected,
      .disk_evicted = cache.evicted,
      .disk_lock_waits = cache.lock_waits,
      .disk_read_bytes = cache.read_bytes,
      .disk_written_bytes = cache.written_bytes,
      .disk_saved_ns = cache.saved_ns,
  };
}

void tt_count_fallback(void) { tt_count(&tt_the_runtime.counters.fallbacks, 1); }

static int64_t freed_total(tt_engine *engine) {
  return atomic_load(&engine->allocated_total) - atomic_load(&engine->allocated);
}

tt_status *tt_get_memory_stats(int32_t device, tt_memory_stats *out) {
  *out = (tt_memory_stats){0};
  if (!tt_runtime_ready()) {
    return NULL;
  }
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  *out = (tt_memory_stats){
      .allocated = atomic_load(&engine->allocated),
      .allocated_peak = atomic_load(&engine->allocated_peak),
      .allocated_total = atomic_load(&engine->allocated_total) - atomic_load(&engine->total_mark),
      .freed_total = freed_total(engine) - atomic_load(&engine->freed_mark),
      .reserved = atomic_load(&engine->reserved),
      .reserved_peak = atomic_load(&engine->reserved_peak),
      .allocation_count = atomic_load(&engine->allocation_count) - atomic_load(&engine->allocation_mark),
      .free_count = atomic_load(&engine->free_count) - atomic_load(&engine->free_mark),
      .active = atomic_load(&engine->allocation_count) - atomic_load(&engine->free_count),
      .limit = engine->limit,
      .oom_count = atomic_load(&engine->oom_count) - atomic_load(&engine->oom_mark),
  };
  return NULL;
}

tt_status *tt_reset_peak_memory(int32_t device) {
  if (!tt_runtime_ready()) {
    return NULL;
  }
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  atomic_store(&engine->allocated_peak, atomic_load(&engine->allocated));
  atomic_store(&engine->reserved_peak, atomic_load(&engine->reserved));
  return NULL;
}

tt_status *tt_reset_accumulated_memory(int32_t device) {
  if (!tt_runtime_ready()) {
    return NULL;
  }
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  atomic_store(&engine->total_mark, atomic_load(&engine->allocated_total));
  atomic_store(&engine->freed_mark, freed_total(engine));
  atomic_store(&engine->allocation_mark, atomic_load(&engine->allocation_count));
  atomic_store(&engine->free_mark, atomic_load(&engine->free_count));
  atomic_store(&engine->oom_mark, atomic_load(&engine->oom_count));
  return NULL;
}

tt_status *tt_empty_cache(void) {
  for (int32_t i = 0; tt_runtime_ready() && i < tt_the_runtime.device_count; i++) {
    tt_engine *engine = &tt_the_runtime.engines[i];
    pthread_mutex_lock(&engine->lock);
    tt_scalar_cache_clear(&engine->scalars);
    pthread_mutex_unlock(&engine->lock);
  }
  tt_pjrt_trim_memory();
  return NULL;
}

tt_status *tt_clear_compile_cache(void) {
  tt_recompile_forget();
  for (int32_t i = 0; tt_runtime_ready() && i < tt_the_runtime.device_count; i++) {
    tt_engine *engine = &tt_the_runtime.engines[i];
    pthread_mutex_lock(&engine->lock);
    tt_tape_clear(engine);
    tt_op_cache_clear(&engine->cache);
    pthread_mutex_unlock(&engine->lock);
  }
  return NULL;
}

void tt_trace_start_all(void) { tt_trace_start(); }
tt_status *tt_trace_stop_to(const char *path) { return tt_trace_stop(path); }
