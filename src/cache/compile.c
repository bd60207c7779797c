// The way of a module through the cache.
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/log.h"
#include "base/thread.h"
#include "base/trace.h"
#include "cache/internal.h"

enum { FAILURES_IN_A_ROW = 8 };

struct tt_cache {
  tt_folder disk, shared;
  int64_t size_limit, lock_timeout_ns;
  tt_pjrt_client *client;  // borrowed
  tt_digest identity;
  atomic_bool off, stopping;
  atomic_int failures;  // executables in a row that couldn't be serialized
  atomic_int_fast64_t disk_hits, shared_hits, misses, stores, rejected, evicted, lock_waits, read_bytes, written_bytes,
      saved_ns;
};

typedef struct job {
  tt_cache *cache;
  tt_cache_module module;
  tt_digest key;
  int64_t begin_ns;
  tt_pjrt_executable *executable;
  tt_cache_outcome outcome;
} job;

static void count(atomic_int_fast64_t *counter, int64_t by) {
  atomic_fetch_add_explicit(counter, by, memory_order_relaxed);
}

const char *tt_cache_source_name(tt_cache_source source) {
  static const char *const names[] = {"compiled", "disk cache", "shared cache"};
  return names[source];
}

// ---- from a directory ----
static void reject(const job *j, tt_folder *folder, const char *why) {
  count(&j->cache->rejected, 1);
  char *path = tt_folder_entry_path(folder, &j->key);
  TT_LOG(INFO, "compile cache: %s is %s; it is removed and the module compiled", path ? path : folder->path, why);
  free(path);
  tt_folder_remove(folder, &j->key);
}

// The plugin's answer about bytes that are as they were written.
static bool load(job *j, tt_folder *folder, const tt_entry *entry) {
  tt_cache *cache = j->cache;
  tt_pjrt_client *client = cache->client;
  tt_status *status = tt_pjrt_can_move(client)
                          ? tt_pjrt_executable_deserialize_on(client, entry->payload, entry->payload_size,
                                                              j->module.options, j->module.device, &j->executable)
                          : tt_pjrt_executable_deserialize(client, entry->payload, entry->payload_size, &j->executable);
  if (status) {
    tt_code code = tt_status_code(status);
    if (code == TT_ERR_NOT_IMPLEMENTED) {
      TT_LOG(INFO, "compile cache: off: %s", tt_status_message(status));
      atomic_store(&cache->off, true);
    } else if (code != TT_ERR_OUT_OF_MEMORY) {
      reject(j, folder, tt_status_message(status));
    }
    tt_status_free(status);
    return false;
  }
  if (tt_pjrt_executable_device(j->executable) != j->module.device) {
    tt_pjrt_executable_free(cache->client, j->executable);
    j->executable = NULL;
    reject(j, folder, "for another device");
    return false;
  }
  tt_pjrt_executable_restore(j->executable, j->module.mlir, j->module.size, entry->temp_bytes);
  return true;
}

static bool look_into(job *j, tt_folder *folder) {
  tt_cache *cache = j->cache;
  tt_image image;
  if (!tt_folder_read(folder, &j->key, &image)) {
    return false;
  }
  tt_trace_begin("load compiled");
  count(&cache->read_bytes, (int64_t)image.size);
  tt_entry entry;
  const char *fault = tt_entry_parse(image.data, image.size, &j->key, &entry);
  bool found = false;
  if (fault) {
    reject(j, folder, fault);
  } else {
    found = load(j, folder, &entry);
  }
  if (found) {
    int64_t saved = entry.compile_ns - (tt_now_ns() - j->begin_ns);
    count(&cache->saved_ns, saved > 0 ? saved : 0);
    count(folder->is_shared ? &cache->shared_hits : &cache->disk_hits, 1);
    j->outcome.source = folder->is_shared ? TT_CACHE_SHARED : TT_CACHE_DISK;
    if (folder->is_shared) {
      int64_t bytes = entry.payload_size + TT_ENTRY_HEADER <= (uint64_t)cache->size_limit
                          ? tt_folder_write(&cache->disk, &entry)
                          : 0;
      count(&cache->written_bytes, bytes);
      count(&cache->evicted, bytes ? tt_folder_grew(&cache->disk, bytes, cache->size_limit) : 0);
    }
  }
  free(image.data);
  tt_trace_end();
  return found;
}

// ---- to the directories ----
static void store_entry(tt_cache *cache, const tt_entry *entry) {
  int64_t bytes = 0;
  if (entry->payload_size + TT_ENTRY_HEADER <= (uint64_t)cache->size_limit) {
    bytes = tt_folder_write(&cache->disk, entry);
    count(&cache->evicted, bytes ? tt_folder_grew(&cache->disk, bytes, cache->size_limit) : 0);
  }
  int64_t more = tt_folder_write(&cache->shared, entry);
  count(&cache->stores, (bytes > 0) + (more > 0));
  count(&cache->written_bytes, bytes + more);
}

// An executable may be one that can't be serialized (it calls into the host); if it is always so, it is the plugin.
static void not_serialized(tt_cache *cache, tt_status *status) {
  TT_LOG(DEBUG, "compile cache: not stored: %s", tt_status_message(status));
  if (atomic_fetch_add(&cache->failures, 1) + 1 >= FAILURES_IN_A_ROW && !atomic_exchange(&cache->off, true)) {
    TT_LOG(INFO, "compile cache: off, since the plugin serializes nothing: %s", tt_status_message(status));
  }
  tt_status_free(status);
}

static bool has_room(const tt_folder *folder) { return folder->path && !atomic_load(&folder->read_only); }

static void store(job *j) {
  tt_cache *cache = j->cache;
  if (!has_room(&cache->disk) && !has_room(&cache->shared)) {
    return;
  }
  tt_trace_begin("store compiled");
  void *data;
  size_t size;
  tt_status *status = tt_pjrt_executable_serialize(cache->client, j->executable, &data, &size);
  if (status) {
    not_serialized(cache, status);
  } else {
    atomic_store(&cache->failures, 0);
    store_entry(cache, &(tt_entry){.key = j->key,
                                   .compile_ns = j->outcome.compile_ns,
                                   .temp_bytes = tt_pjrt_executable_temp_bytes(j->executable),
                                   .payload = data,
                                   .payload_size = size});
    free(data);
  }
  tt_trace_end();
}

// ---- compiling ----
static tt_status *compile(job *j) {
  tt_trace_begin("compile");
  int64_t begin = tt_now_ns();
  const tt_cache_module *module = &j->module;
  const char *text = module->labelled ? module->labelled : module->mlir;
  tt_status *status = tt_pjrt_compile(j->cache->client, text, module->labelled ? strlen(text) : module->size,
                                      module->options, module->device, &j->executable);
  j->outcome.compile_ns = tt_now_ns() - begin;
  tt_trace_end();
  return status;
}

static tt_status *make_key(job *j) {
  void *options;
  size_t size;
  // Where an executable can be loaded for any device, what is compiled for one serves all.
  int32_t device = tt_pjrt_can_move(j->cache->client) ? -1 : j->module.device;
  TT_TRY(tt_pjrt_options_bytes(j->cache->client, j->module.options, device, &options, &size));
  tt_digester digester;
  tt_digest_begin(&digester);
  tt_digest_add_field(&digester, j->cache->identity.bytes, TT_DIGEST_SIZE);
  tt_digest_add_field(&digester, options, size);
  tt_digest_add_field(&digester, j->module.mlir, j->module.size);
  j->key = tt_digest_end(&digester);
  free(options);
  return NULL;
}

// With the lock of its key, so that of several who need a module one compiles it.
static tt_status *compile_once(job *j) {
  tt_cache *cache = j->cache;
  int file = tt_folder_open_lock(&cache->disk);
  int64_t place = tt_lock_place(&j->key);
  tt_lock_result lock =
      file < 0 ? TT_LOCK_NOT_TAKEN : tt_lock_take(file, place, cache->lock_timeout_ns, &cache->stopping);
  count(&cache->lock_waits, lock == TT_LOCK_TAKEN_LATE);
  tt_status *status = NULL;
  // Again, since the former holder has stored it between our look and the lock.
  if (lock == TT_LOCK_NOT_TAKEN || !look_into(j, &cache->disk)) {
    count(&cache->misses, 1);
    status = compile(j);
    if (!status) {
      store(j);
    }
  }
  if (file >= 0) {
    if (lock != TT_LOCK_NOT_TAKEN) {
      tt_lock_release(file, place);
    }
    close(file);
  }
  return status;
}

bool tt_cache_is_on(const tt_cache *cache) { return !atomic_load(&cache->off); }

static bool is_on(const tt_cache *cache, int32_t device) {
  return tt_cache_is_on(cache) && device >= 0 && device < tt_pjrt_client_device_count(cache->client);
}

static void finish(job *j, tt_pjrt_executable **out_executable, tt_cache_outcome *out_outcome) {
  if (j->outcome.source != TT_CACHE_COMPILED) {
    j->outcome.load_ns = tt_now_ns() - j->begin_ns;
  }
  *out_executable = j->executable;
  *out_outcome = j->outcome;
}

tt_status *tt_cache_compile(tt_cache *cache, const tt_cache_module *module, tt_pjrt_executable **out_executable,
                            tt_cache_outcome *out_outcome) {
  job j = {.cache = cache, .module = *module, .begin_ns = tt_now_ns()};
  tt_status *status = NULL;
  if (!is_on(cache, module->device)) {
    status = compile(&j);  // which says it of a device that doesn't exist
  } else if (!(status = make_key(&j)) && !look_into(&j, &cache->disk) && !look_into(&j, &cache->shared)) {
    status = compile_once(&j);
  }
  finish(&j, out_executable, out_outcome);
  return status;
}

bool tt_cache_load(tt_cache *cache, const tt_cache_module *module, tt_pjrt_executable **out_executable,
                   tt_cache_outcome *out_outcome) {
  job j = {.cache = cache, .module = *module, .begin_ns = tt_now_ns()};
  bool found = false;
  if (is_on(cache, module->device)) {
    tt_status *status = make_key(&j);
    found = !status && (look_into(&j, &cache->disk) || look_into(&j, &cache->shared));
    tt_status_free(status);
  }
  finish(&j, out_executable, out_outcome);
  return found;
}

// ---- life ----
static tt_status *set_up(tt_cache *cache, const tt_cache_config *config, const tt_pjrt_plugin *plugin) {
  cache->shared.is_shared = true;
  if ((config->directory && !(cache->disk.path = strdup(config->directory))) ||
      (config->shared_directory && !(cache->shared.path = strdup(config->shared_directory)))) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  bool on = config->directory || config->shared_directory;
  if (on && !tt_pjrt_can_serialize(cache->client)) {
    TT_LOG(INFO, "compile cache: off, since the plugin can't serialize executables");
    on = false;
  }
  tt_status *status = on ? tt_cache_identity(config->version, plugin, cache->client, &cache->identity) : NULL;
  if (status) {
    TT_LOG(WARN, "compile cache: off, since it isn't known what executables depend on: %s", tt_status_message(status));
    tt_status_free(status);
    on = false;
  }
  atomic_store(&cache->off, !on);
  return NULL;
}

tt_status *tt_cache_open(const tt_cache_config *config, const tt_pjrt_plugin *plugin, tt_pjrt_client *client,
                         tt_cache **out_cache) {
  *out_cache = NULL;
  tt_cache *cache = calloc(1, sizeof *cache);
  if (!cache) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  cache->client = client;
  cache->size_limit = config->size_limit;
  cache->lock_timeout_ns = config->lock_timeout_ns;
  tt_status *status = set_up(cache, config, plugin);
  if (status) {
    tt_cache_free(cache);
    return status;
  }
  *out_cache = cache;
  return NULL;
}

void tt_cache_free(tt_cache *cache) {
  if (cache) {
    free(cache->disk.path);
    free(cache->shared.path);
    free(cache);
  }
}

void tt_cache_stop(tt_cache *cache) {
  if (cache) {
    atomic_store(&cache->stopping, true);
  }
}

void tt_cache_get_stats(const tt_cache *cache, tt_cache_stats *out_stats) {
  *out_stats = (tt_cache_stats){0};
  if (cache) {
    *out_stats = (tt_cache_stats){.disk_hits = atomic_load(&cache->disk_hits),
                                  .shared_hits = atomic_load(&cache->shared_hits),
                                  .misses = atomic_load(&cache->misses),
                                  .stores = atomic_load(&cache->stores),
                                  .rejected = atomic_load(&cache->rejected),
                                  .evicted = atomic_load(&cache->evicted),
                                  .lock_waits = atomic_load(&cache->lock_waits),
                                  .read_bytes = atomic_load(&cache->read_bytes),
                                  .written_bytes = atomic_load(&cache->written_bytes),
                                  .saved_ns = atomic_load(&cache->saved_ns)};
  }
}
