// A PJRT plugin that passes every call on to the plugin named by the environment variable COUNT_PJRT_REAL and counts
// on the way, so that tests need not believe our own counters. Load the library by the same path (ctypes) to read:
//
//   int64_t count_pjrt_get(const char *name);   -1 for an unknown name
//   void count_pjrt_reset(void);                zeroes all but the live_* counts
//
// Names: compiles, deserializes, executes (successes; a failed call counts in compile_errors, deserialize_errors,
// execute_errors), arguments and results of the executions, buffers_created, buffers_destroyed, h2d_calls, h2d_bytes,
// d2h_calls, d2h_bytes (ToHostBuffer), host_pointers (UnsafePointer), copies (to a device or memory), awaits;
// live_buffers, live_executables, live_clients.
//
// COUNT_PJRT_PLATFORM=tpu in the environment: the plugin says that it is of this platform, whatever it is; so the forms
// that rules have for a TPU run on XLA:CPU.
//
// Buffers made by functions newer than the header we build with are not counted, nor is their destruction balanced.
#include <dlfcn.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_c_api.h"

#define EXPORT __attribute__((visibility("default")))

static struct {
  atomic_llong live_buffers, live_executables, live_clients, compiles, deserializes, executes, compile_errors,
      deserialize_errors, execute_errors, arguments, results, buffers_created, buffers_destroyed, h2d_calls, h2d_bytes,
      d2h_calls, d2h_bytes, host_pointers, copies, awaits;
} count;

#define COUNTER(name) {#name, &count.name}
static const struct {
  const char *name;
  atomic_llong *value;
} counters[] = {
    COUNTER(live_buffers),      COUNTER(live_executables), COUNTER(live_clients),   COUNTER(compiles),
    COUNTER(deserializes),      COUNTER(executes),         COUNTER(compile_errors), COUNTER(deserialize_errors),
    COUNTER(execute_errors),    COUNTER(arguments),        COUNTER(results),        COUNTER(buffers_created),
    COUNTER(buffers_destroyed), COUNTER(h2d_calls),        COUNTER(h2d_bytes),      COUNTER(d2h_calls),
    COUNTER(d2h_bytes),         COUNTER(host_pointers),    COUNTER(copies),         COUNTER(awaits),
};
#undef COUNTER
enum { COUNTER_COUNT = sizeof counters / sizeof *counters, LIVE_COUNT = 3 };

static PJRT_Api real;      // what both sides know of the real plugin's table
static PJRT_Api *wrapped;  // ours: as long as the real one

static void add(atomic_llong *counter, long long amount) {
  atomic_fetch_add_explicit(counter, amount, memory_order_relaxed);
}

EXPORT int64_t count_pjrt_get(const char *name);
EXPORT int64_t count_pjrt_get(const char *name) {
  for (int i = 0; i < COUNTER_COUNT; i++) {
    if (!strcmp(counters[i].name, name)) {
      return atomic_load(counters[i].value);
    }
  }
  return -1;
}

EXPORT void count_pjrt_reset(void);
EXPORT void count_pjrt_reset(void) {
  for (int i = LIVE_COUNT; i < COUNTER_COUNT; i++) {
    atomic_store(counters[i].value, 0);
  }
}

static void created(long long number) {
  add(&count.buffers_created, number);
  add(&count.live_buffers, number);
}

// ---- how many results an executable has: asked once, kept by its address ----
typedef struct entry {
  PJRT_LoadedExecutable *key;  // NULL: free; TOMB: was used
  size_t results;
} entry;
#define TOMB ((PJRT_LoadedExecutable *)1)

static pthread_rwlock_t map_lock = PTHREAD_RWLOCK_INITIALIZER;
static entry *map;
static size_t map_size, map_used;  // a power of two; used includes tombs

static size_t slot_of(const entry *entries, size_t size, PJRT_LoadedExecutable *key) {
  size_t slot = (size_t)(((uintptr_t)key >> 4) * 0x9E3779B97F4A7C15u) & (size - 1);
  while (entries[slot].key && entries[slot].key != key) {
    slot = (slot + 1) & (size - 1);
  }
  return slot;
}

static void map_put(PJRT_LoadedExecutable *key, size_t results) {
  pthread_rwlock_wrlock(&map_lock);
  if (map_used * 2 >= map_size) {
    size_t size = 64;
    for (size_t i = 0, live = 0; i < map_size; i++) {
      live += map[i].key && map[i].key != TOMB;
      while (live * 4 > size) {
        size *= 2;
      }
    }
    entry *larger = calloc(size, sizeof *larger);
    if (!larger) {
      abort();
    }
    map_used = 0;
    for (size_t i = 0; i < map_size; i++) {
      if (map[i].key && map[i].key != TOMB) {
        larger[slot_of(larger, size, map[i].key)] = map[i];
        map_used++;
      }
    }
    free(map);
    map = larger;
    map_size = size;
  }
  size_t slot = slot_of(map, map_size, key);
  map_used += !map[slot].key;
  map[slot] = (entry){key, results};
  pthread_rwlock_unlock(&map_lock);
}

static bool map_get(PJRT_LoadedExecutable *key, size_t *out_results) {
  pthread_rwlock_rdlock(&map_lock);
  size_t slot = map_size ? slot_of(map, map_size, key) : 0;
  bool found = map_size && map[slot].key == key;
  *out_results = found ? map[slot].results : 0;
  pthread_rwlock_unlock(&map_lock);
  return found;
}

static void map_remove(PJRT_LoadedExecutable *key) {
  pthread_rwlock_wrlock(&map_lock);
  size_t slot = map_size ? slot_of(map, map_size, key) : 0;
  if (map_size && map[slot].key == key) {
    map[slot].key = TOMB;
  }
  pthread_rwlock_unlock(&map_lock);
}

static void drop_error(PJRT_Error *error) {
  PJRT_Error_Destroy_Args args = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE, .error = error};
  real.PJRT_Error_Destroy(&args);
}

static size_t result_count(PJRT_LoadedExecutable *loaded) {
  size_t results;
  if (map_get(loaded, &results)) {
    return results;
  }
  PJRT_LoadedExecutable_GetExecutable_Args get = {.struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
                                                  .loaded_executable = loaded};
  PJRT_Error *error = real.PJRT_LoadedExecutable_GetExecutable(&get);
  if (error || !get.executable) {
    drop_error(error);
    return 0;  // the execution will fail by itself
  }
  PJRT_Executable_NumOutputs_Args outputs = {.struct_size = PJRT_Executable_NumOutputs_Args_STRUCT_SIZE,
                                             .executable = get.executable};
  error = real.PJRT_Executable_NumOutputs(&outputs);
  if (error) {
    drop_error(error);
    outputs.num_outputs = 0;
  }
  PJRT_Executable_Destroy_Args destroy = {.struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE,
                                          .executable = get.executable};
  drop_error(real.PJRT_Executable_Destroy(&destroy));
  map_put(loaded, outputs.num_outputs);
  return outputs.num_outputs;
}

// ---- the wrapped functions ----
static PJRT_Error *count_compile(PJRT_Client_Compile_Args *args) {
  PJRT_Error *error = real.PJRT_Client_Compile(args);
  add(error ? &count.compile_errors : &count.compiles, 1);
  add(&count.live_executables, !error);
  return error;
}

static PJRT_Error *count_deserialize(PJRT_Executable_DeserializeAndLoad_Args *args) {
  PJRT_Error *error = real.PJRT_Executable_DeserializeAndLoad(args);
  add(error ? &count.deserialize_errors : &count.deserializes, 1);
  add(&count.live_executables, !error);
  return error;
}

static PJRT_Error *count_executable_destroy(PJRT_LoadedExecutable_Destroy_Args *args) {
  if (args->executable) {
    map_remove(args->executable);  // before: its address may be used again at once
    add(&count.live_executables, -1);
  }
  return real.PJRT_LoadedExecutable_Destroy(args);
}

static PJRT_Error *count_execute(PJRT_LoadedExecutable_Execute_Args *args) {
  size_t results = result_count(args->executable) * args->num_devices;
  PJRT_Error *error = real.PJRT_LoadedExecutable_Execute(args);
  if (error) {
    add(&count.execute_errors, 1);
    return error;
  }
  add(&count.executes, 1);
  add(&count.arguments, (long long)(args->num_args * args->num_devices));
  add(&count.results, (long long)results);
  created((long long)results);
  return NULL;
}

static long long type_size(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_S16:
    case PJRT_Buffer_Type_U16:
    case PJRT_Buffer_Type_F16:
    case PJRT_Buffer_Type_BF16:
      return 2;
    case PJRT_Buffer_Type_S32:
    case PJRT_Buffer_Type_U32:
    case PJRT_Buffer_Type_F32:
      return 4;
    case PJRT_Buffer_Type_S64:
    case PJRT_Buffer_Type_U64:
    case PJRT_Buffer_Type_F64:
    case PJRT_Buffer_Type_C64:
      return 8;
    case PJRT_Buffer_Type_C128:
      return 16;
    default:
      return 1;  // also what is packed into less
  }
}

static PJRT_Error *count_from_host(PJRT_Client_BufferFromHostBuffer_Args *args) {
  long long bytes = type_size(args->type);
  for (size_t i = 0; i < args->num_dims; i++) {
    bytes *= args->dims[i];
  }
  PJRT_Error *error = real.PJRT_Client_BufferFromHostBuffer(args);
  if (!error) {
    add(&count.h2d_calls, 1);
    add(&count.h2d_bytes, bytes);
    created(args->buffer != NULL);
  }
  return error;
}

static PJRT_Error *count_buffer_destroy(PJRT_Buffer_Destroy_Args *args) {
  add(&count.buffers_destroyed, args->buffer != NULL);
  add(&count.live_buffers, -(args->buffer != NULL));
  return real.PJRT_Buffer_Destroy(args);
}

static PJRT_Error *count_to_host(PJRT_Buffer_ToHostBuffer_Args *args) {
  bool copies = args->dst != NULL;  // else it only asks for the size
  PJRT_Error *error = real.PJRT_Buffer_ToHostBuffer(args);
  add(&count.d2h_calls, !error && copies);
  add(&count.d2h_bytes, !error && copies ? (long long)args->dst_size : 0);
  return error;
}

static PJRT_Error *count_host_pointer(PJRT_Buffer_UnsafePointer_Args *args) {
  add(&count.host_pointers, 1);
  return real.PJRT_Buffer_UnsafePointer(args);
}

static PJRT_Error *count_copy_to_device(PJRT_Buffer_CopyToDevice_Args *args) {
  PJRT_Error *error = real.PJRT_Buffer_CopyToDevice(args);
  add(&count.copies, !error);
  created(!error);
  return error;
}

static PJRT_Error *count_copy_to_memory(PJRT_Buffer_CopyToMemory_Args *args) {
  PJRT_Error *error = real.PJRT_Buffer_CopyToMemory(args);
  add(&count.copies, !error);
  created(!error);
  return error;
}

static PJRT_Error *count_uninitialized(PJRT_Client_CreateUninitializedBuffer_Args *args) {
  PJRT_Error *error = real.PJRT_Client_CreateUninitializedBuffer(args);
  created(!error);
  return error;
}

static PJRT_Error *count_view(PJRT_Client_CreateViewOfDeviceBuffer_Args *args) {
  PJRT_Error *error = real.PJRT_Client_CreateViewOfDeviceBuffer(args);
  created(!error);
  return error;
}

static PJRT_Error *count_alias(PJRT_Client_CreateAliasBuffer_Args *args) {
  PJRT_Error *error = real.PJRT_Client_CreateAliasBuffer(args);
  created(!error);
  return error;
}

static PJRT_Error *count_retrieve(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *args) {
  PJRT_Error *error = real.PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(args);
  created(!error);
  return error;
}

static PJRT_Error *count_await(PJRT_Event_Await_Args *args) {
  add(&count.awaits, 1);
  return real.PJRT_Event_Await(args);
}

static PJRT_Error *count_client_create(PJRT_Client_Create_Args *args) {
  PJRT_Error *error = real.PJRT_Client_Create(args);
  add(&count.live_clients, !error);
  return error;
}

static PJRT_Error *count_client_destroy(PJRT_Client_Destroy_Args *args) {
  add(&count.live_clients, -(args->client != NULL));
  return real.PJRT_Client_Destroy(args);
}

static PJRT_Error *count_platform(PJRT_Client_PlatformName_Args *args) {
  const char *name = getenv("COUNT_PJRT_PLATFORM");
  if (!name || !*name) {
    return real.PJRT_Client_PlatformName(args);
  }
  args->platform_name = name;
  args->platform_name_size = strlen(name);
  return NULL;
}

// ---- loading ----
EXPORT const PJRT_Api *GetPjrtApi(void);

static const PJRT_Api *load_real(void) {
  const char *path = getenv("COUNT_PJRT_REAL");
  if (!path || !*path) {
    fprintf(stderr, "count_pjrt: set COUNT_PJRT_REAL to the PJRT plugin to count\n");
    return NULL;
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  void *symbol = library ? dlsym(library, "GetPjrtApi") : NULL;
  if (!symbol) {
    const char *cause = dlerror();
    fprintf(stderr, "count_pjrt: can't load %s: %s\n", path, cause ? cause : "no GetPjrtApi");
    return NULL;
  }
  const PJRT_Api *(*get_api)(void);
  memcpy(&get_api, &symbol, sizeof get_api);
  if (get_api == GetPjrtApi) {
    fprintf(stderr, "count_pjrt: COUNT_PJRT_REAL names count_pjrt itself\n");
    return NULL;
  }
  return get_api();
}

// Replaces a function that the real plugin has.
#define WRAP(name, function)      \
  do {                            \
    if (real.name) {              \
      wrapped->name = (function); \
    }                             \
  } while (0)

static void wrap(void) {
  const PJRT_Api *theirs = load_real();
  if (!theirs) {
    return;
  }
  size_t size = theirs->struct_size;
  memcpy(&real, theirs, size < sizeof real ? size : sizeof real);
  PJRT_Api *ours = calloc(1, size > sizeof *ours ? size : sizeof *ours);
  if (!ours) {
    return;
  }
  memcpy(ours, theirs, size);
  wrapped = ours;
  WRAP(PJRT_Client_Compile, count_compile);
  WRAP(PJRT_Executable_DeserializeAndLoad, count_deserialize);
  WRAP(PJRT_LoadedExecutable_Destroy, count_executable_destroy);
  WRAP(PJRT_LoadedExecutable_Execute, count_execute);
  WRAP(PJRT_Client_BufferFromHostBuffer, count_from_host);
  WRAP(PJRT_Buffer_Destroy, count_buffer_destroy);
  WRAP(PJRT_Buffer_ToHostBuffer, count_to_host);
  WRAP(PJRT_Buffer_UnsafePointer, count_host_pointer);
  WRAP(PJRT_Buffer_CopyToDevice, count_copy_to_device);
  WRAP(PJRT_Buffer_CopyToMemory, count_copy_to_memory);
  WRAP(PJRT_Client_CreateUninitializedBuffer, count_uninitialized);
  WRAP(PJRT_Client_CreateViewOfDeviceBuffer, count_view);
  WRAP(PJRT_Client_CreateAliasBuffer, count_alias);
  WRAP(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, count_retrieve);
  WRAP(PJRT_Event_Await, count_await);
  WRAP(PJRT_Client_PlatformName, count_platform);
  WRAP(PJRT_Client_Create, count_client_create);
  WRAP(PJRT_Client_Destroy, count_client_destroy);
}

EXPORT const PJRT_Api *GetPjrtApi(void) {
  // Until it succeeds: the variable may be set later.
  static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
  pthread_mutex_lock(&lock);
  if (!wrapped) {
    wrap();
  }
  const PJRT_Api *api = wrapped;
  pthread_mutex_unlock(&lock);
  return api;
}
