// The compile cache: executables in a directory, and in a second one that machines share. docs/design/cache.md says why
// it is as it is. Owner of everything here is one tt_cache; the runtime has it.
//
// Whatever is wrong with a directory or an entry, the module is compiled as if there were no cache: no function here
// fails because of them. Bytes reach the plugin only after key and checksum were compared. All are safe from several
// threads.
#ifndef TORCHTPU_CACHE_CACHE_H
#define TORCHTPU_CACHE_CACHE_H

#include <stdbool.h>
#include <stdint.h>

#include "pjrt/pjrt.h"

typedef struct tt_cache tt_cache;

typedef struct tt_cache_config {
  char *directory;         // owned; NULL: none
  char *shared_directory;  // owned; NULL: none. Read and written, nothing is ever evicted from it.
  int64_t size_limit;      // bytes of the entries in `directory`
  int64_t lock_timeout_ns;
  const char *version;  // of this library; borrowed
} tt_cache_config;

// From the environment: TORCH_TPU_CACHE (0: off), TORCH_TPU_CACHE_DIR, TORCH_TPU_SHARED_CACHE_DIR, TORCH_TPU_CACHE_SIZE
// (bytes, or with K, M, G). Paths become absolute. What can't be understood is a warning, and the default.
void tt_cache_config_read(tt_cache_config *out_config);
void tt_cache_config_free(tt_cache_config *config);

// `config` is copied, `client` must outlive the cache. Makes no directory: the first store does.
TT_MUST_USE tt_status *tt_cache_open(const tt_cache_config *config, const tt_pjrt_plugin *plugin,
                                     tt_pjrt_client *client, tt_cache **out_cache);
void tt_cache_free(tt_cache *cache);  // NULL is allowed
bool tt_cache_is_on(const tt_cache *cache);
// From now on nobody waits for another process, which may be what keeps this one from exiting.
void tt_cache_stop(tt_cache *cache);  // NULL is allowed

typedef enum tt_cache_source { TT_CACHE_COMPILED, TT_CACHE_DISK, TT_CACHE_SHARED } tt_cache_source;
typedef struct tt_cache_outcome {
  tt_cache_source source;
  int64_t compile_ns;  // of the compiler; 0 where it wasn't asked
  int64_t load_ns;     // from the call to the executable, where it came from a directory
} tt_cache_outcome;
const char *tt_cache_source_name(tt_cache_source source);  // "compiled", "disk cache", "shared cache"

typedef struct tt_cache_module {
  const char *mlir;
  size_t size;
  const char *labelled;  // the same with locations, which is what is compiled; not in the key. NULL: `mlir`
  const tt_pjrt_compile_options *options;
  int32_t device;
} tt_cache_module;
// As tt_pjrt_compile(), by way of the cache. The only errors are the compiler's.
TT_MUST_USE tt_status *tt_cache_compile(tt_cache *cache, const tt_cache_module *module,
                                        tt_pjrt_executable **out_executable, tt_cache_outcome *out_outcome);
// Loads it, where it is in a directory. False: it isn't.
bool tt_cache_load(tt_cache *cache, const tt_cache_module *module, tt_pjrt_executable **out_executable,
                   tt_cache_outcome *out_outcome);

typedef struct tt_cache_stats {
  int64_t disk_hits, shared_hits;
  int64_t misses;      // compiled while the cache was on
  int64_t stores;      // entries written, to either directory
  int64_t rejected;    // entries that were damaged, foreign or refused by the plugin, and removed
  int64_t evicted;     // entries removed by this process to keep within the bound
  int64_t lock_waits;  // modules that another thread or process was compiling already
  int64_t read_bytes, written_bytes;
  int64_t saved_ns;  // what the compiler took for what was loaded, less the loading
} tt_cache_stats;
void tt_cache_get_stats(const tt_cache *cache, tt_cache_stats *out_stats);  // zeros for NULL

#endif  // TORCHTPU_CACHE_CACHE_H
