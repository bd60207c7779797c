#include <dlfcn.h>
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "pjrt/host_pool.h"
#include "pjrt/internal.h"

#define CURE "set TORCH_TPU_PJRT_PLUGIN to a PJRT plugin with API 0.57 or newer"

#define FUNCTION(name) {#name, offsetof(PJRT_Api, name)}
// What eager execution can't do without. The rest (memory statistics, topologies, ahead-of-time compilation,
// serialization, host pointers) is checked where it is used.
static const struct {
  const char *name;
  size_t offset;
} required[] = {
    FUNCTION(PJRT_Error_Destroy),
    FUNCTION(PJRT_Error_Message),
    FUNCTION(PJRT_Error_GetCode),
    FUNCTION(PJRT_Plugin_Initialize),
    FUNCTION(PJRT_Event_Destroy),
    FUNCTION(PJRT_Event_IsReady),
    FUNCTION(PJRT_Event_Error),
    FUNCTION(PJRT_Event_Await),
    FUNCTION(PJRT_Event_OnReady),
    FUNCTION(PJRT_Client_Create),
    FUNCTION(PJRT_Client_Destroy),
    FUNCTION(PJRT_Client_PlatformName),
    FUNCTION(PJRT_Client_PlatformVersion),
    FUNCTION(PJRT_Client_AddressableDevices),
    FUNCTION(PJRT_Client_Compile),
    FUNCTION(PJRT_Client_BufferFromHostBuffer),
    FUNCTION(PJRT_DeviceDescription_Id),
    FUNCTION(PJRT_DeviceDescription_Kind),
    FUNCTION(PJRT_Device_GetDescription),
    FUNCTION(PJRT_Executable_Destroy),
    FUNCTION(PJRT_Executable_NumOutputs),
    FUNCTION(PJRT_LoadedExecutable_Destroy),
    FUNCTION(PJRT_LoadedExecutable_GetExecutable),
    FUNCTION(PJRT_LoadedExecutable_AddressableDevices),
    FUNCTION(PJRT_LoadedExecutable_Execute),
    FUNCTION(PJRT_Buffer_Destroy),
    FUNCTION(PJRT_Buffer_ElementType),
    FUNCTION(PJRT_Buffer_Dimensions),
    FUNCTION(PJRT_Buffer_CopyToDevice),
    FUNCTION(PJRT_Buffer_ToHostBuffer),
    FUNCTION(PJRT_Buffer_ReadyEvent),
};
#undef FUNCTION

// Every plugin ever loaded by this process. Guards against initialising one twice.
static pthread_mutex_t tables_lock = PTHREAD_MUTEX_INITIALIZER;
static tt_pjrt_table *tables;

static bool function_at(const PJRT_Api *api, size_t offset) {
  void (*function)(void);
  memcpy(&function, (const char *)api + offset, sizeof function);
  return function != NULL;
}

// Whether the file ends before a segment that the loader would map, whose pages it would then die of touching.
// What is not an ELF file is left to the loader, which refuses it.
static bool is_truncated(const char *path, off_t size) {
  int file = open(path, O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return false;
  }
  Elf64_Ehdr header;
  bool truncated = false;
  if (pread(file, &header, sizeof header, 0) == (ssize_t)sizeof header && !memcmp(header.e_ident, ELFMAG, SELFMAG) &&
      header.e_ident[EI_CLASS] == ELFCLASS64) {
    for (int i = 0; i < header.e_phnum && !truncated; i++) {
      Elf64_Phdr segment;
      ssize_t got = pread(file, &segment, sizeof segment, (off_t)(header.e_phoff + (Elf64_Off)i * sizeof segment));
      truncated = got != (ssize_t)sizeof segment ||
                  (segment.p_type == PT_LOAD &&
                   (segment.p_offset > (Elf64_Off)size || segment.p_filesz > (Elf64_Off)size - segment.p_offset));
    }
  }
  close(file);
  return truncated;
}

static tt_status *check_file(const char *path) {
  struct stat info;
  if (stat(path, &info)) {
    return tt_error(TT_ERR_UNAVAILABLE, "can't load the PJRT plugin %s: %s; " CURE, path, strerror(errno));
  }
  if (!S_ISREG(info.st_mode)) {
    return tt_error(TT_ERR_UNAVAILABLE, "can't load the PJRT plugin %s: not a regular file; " CURE, path);
  }
  if (is_truncated(path, info.st_size)) {
    return tt_error(TT_ERR_UNAVAILABLE, "can't load the PJRT plugin %s: the file is truncated; " CURE, path);
  }
  return NULL;
}

// Copies the part of the plugin's table that both sides know into `out_api`, the rest zeroed.
static tt_status *check_table(const char *path, const PJRT_Api *theirs, PJRT_Api *out_api) {
  memset(out_api, 0, sizeof *out_api);
  if (!theirs) {
    return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin %s: GetPjrtApi returned NULL; " CURE, path);
  }
  if (theirs->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy)) {
    return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin %s: its function table has only %zu bytes; " CURE, path,
                    theirs->struct_size);
  }
  int major = theirs->pjrt_api_version.major_version, minor = theirs->pjrt_api_version.minor_version;
  if (major != PJRT_API_MAJOR) {
    return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin %s has API %d.%d, major version %d is needed; " CURE, path,
                    major, minor, PJRT_API_MAJOR);
  }
  if (minor < TT_PJRT_MINOR_MIN) {
    return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin %s is too old: it has API %d.%d, %d.%d is needed; " CURE, path,
                    major, minor, PJRT_API_MAJOR, TT_PJRT_MINOR_MIN);
  }
  // Whole pointers only: a size that ends inside a field must not leave half a pointer.
  size_t size = theirs->struct_size < sizeof *out_api ? theirs->struct_size : sizeof *out_api;
  memcpy(out_api, theirs, size - size % sizeof(void *));
  for (size_t i = 0; i < sizeof required / sizeof *required; i++) {
    if (!function_at(out_api, required[i].offset)) {
      bool cut = theirs->struct_size < required[i].offset + sizeof(void *);
      return tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin %s (API %d.%d) lacks the function %s%s; " CURE, path, major,
                      minor, required[i].name, cut ? " (its table ends before it)" : "");
    }
  }
  return NULL;
}

// The minor versions are those of xla/pjrt/c/CHANGELOG.md.
static void set_sizes(tt_pjrt_table *table) {
  int minor = table->api.pjrt_api_version.minor_version;
  table->client_create_size =
      minor >= 61 ? PJRT_Client_Create_Args_STRUCT_SIZE : offsetof(PJRT_Client_Create_Args, kv_try_get_callback);
  table->execute_options_size = minor >= 78   ? PJRT_ExecuteOptions_STRUCT_SIZE
                                : minor >= 76 ? offsetof(PJRT_ExecuteOptions, num_tasks)
                                : minor >= 64 ? offsetof(PJRT_ExecuteOptions, call_location)
                                              : offsetof(PJRT_ExecuteOptions, context);
  table->deserialize_size =
      minor >= 71 ? PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE
                  : offsetof(PJRT_Executable_DeserializeAndLoad_Args, overridden_serialized_compile_options);
  table->memory_stats_size = minor >= 72 ? PJRT_Executable_GetCompiledMemoryStats_Args_STRUCT_SIZE
                                         : offsetof(PJRT_Executable_GetCompiledMemoryStats_Args, peak_memory_in_bytes);
}

static bool names_libtpu(const char *path) {
  const char *slash = strrchr(path, '/');
  return !strncmp(slash ? slash + 1 : path, "libtpu", 6);
}

// Checks and initialises `library`, or finds it among those already loaded. Holds tables_lock.
static tt_status *find_or_add_table(const char *path, void *library, const tt_pjrt_table **out_table) {
  void *symbol = dlsym(library, "GetPjrtApi");
  if (!symbol) {
    return tt_error(TT_ERR_UNAVAILABLE, "%s is a shared library but no PJRT plugin: it has no GetPjrtApi; " CURE, path);
  }
  const PJRT_Api *(*get_api)(void);
  memcpy(&get_api, &symbol, sizeof get_api);
  PJRT_Api api;
  TT_TRY(check_table(path, get_api(), &api));
  for (tt_pjrt_table *table = tables; table; table = table->next) {
    if (table->library == library && !memcmp(&table->api, &api, sizeof api)) {
      *out_table = table;
      return NULL;
    }
  }
  PJRT_Plugin_Initialize_Args args = {.struct_size = PJRT_Plugin_Initialize_Args_STRUCT_SIZE};
  tt_status *status = tt_pjrt_take_error(&api, api.PJRT_Plugin_Initialize(&args), "initialise");
  if (status) {
    tt_status *unavailable = tt_error(TT_ERR_UNAVAILABLE, "the PJRT plugin %s can't be initialised: %s; " CURE, path,
                                      tt_status_message(status));
    tt_status_free(status);
    return unavailable;
  }
  tt_pjrt_table *table = calloc(1, sizeof *table);
  if (!table) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  table->library = library;
  table->is_libtpu = names_libtpu(path);
  table->api = api;
  set_sizes(table);
  table->next = tables;
  tables = table;
  *out_table = table;
  return NULL;
}

tt_status *tt_pjrt_plugin_load(const char *path, tt_pjrt_plugin **out_plugin) {
  *out_plugin = NULL;
  if (!path || !*path) {
    return tt_error(TT_ERR_UNAVAILABLE, "no path of a PJRT plugin was given; " CURE);
  }
  TT_TRY(check_file(path));
  tt_pjrt_plugin *plugin = calloc(1, sizeof *plugin);
  char *copy = strdup(path);
  if (!plugin || !copy) {
    free(plugin);
    free(copy);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  plugin->path = copy;
  pthread_mutex_lock(&tables_lock);
  tt_status *status = NULL;
  // dlopen searches the library path for a name without a slash; a file that stat() found is meant.
  char *local = NULL;
  if (!strchr(path, '/') && (local = malloc(strlen(path) + 3))) {
    strcpy(local, "./");
    strcat(local, path);
  }
  void *library = dlopen(local ? local : path, RTLD_NOW | RTLD_LOCAL);
  free(local);
  if (library) {
    status = find_or_add_table(path, library, &plugin->table);
  } else {
    const char *cause = dlerror();
    status =
        tt_error(TT_ERR_UNAVAILABLE, "can't load the PJRT plugin %s: %s; " CURE, path, cause ? cause : "dlopen failed");
  }
  pthread_mutex_unlock(&tables_lock);
  if (status) {
    tt_pjrt_plugin_free(plugin);
    return status;
  }
  *out_plugin = plugin;
  return NULL;
}

tt_status *tt_pjrt_plugin_load_for_topology(const char *path, tt_pjrt_plugin **out_plugin) {
  if (path && names_libtpu(path)) {
    setenv("TPU_SKIP_MDS_QUERY", "1", 0);
  }
  return tt_pjrt_plugin_load(path, out_plugin);
}

void tt_pjrt_plugin_free(tt_pjrt_plugin *plugin) {
  if (plugin) {
    free(plugin->path);
    free(plugin);
  }
}

void tt_pjrt_plugin_version(const tt_pjrt_plugin *plugin, int *out_major, int *out_minor) {
  *out_major = plugin->table->api.pjrt_api_version.major_version;
  *out_minor = plugin->table->api.pjrt_api_version.minor_version;
}

const char *tt_pjrt_plugin_path(const tt_pjrt_plugin *plugin) { return plugin->path; }

bool tt_pjrt_plugin_pool_memory(tt_pjrt_plugin *plugin, int64_t memory) {
  return tt_host_pool_attach(plugin->table->library, memory);
}

void tt_pjrt_trim_memory(void) { tt_host_pool_trim(); }
