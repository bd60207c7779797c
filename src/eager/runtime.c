// The one runtime object: settings, plugin, client, engines, and what every entry point asks first.
#include <dirent.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "eager/explain.h"
#include "eager/fused.h"
#include "eager/recompile.h"
#include "kernels/handlers.h"

tt_runtime tt_the_runtime = {
    .lock = PTHREAD_MUTEX_INITIALIZER, .mode = -1, .precision = TT_PRECISION_HIGHEST, .default_dtype = TT_F32};
static _Thread_local int32_t current_device;

static const char *setting(const char *name) {
  const char *value = getenv(name);
  return value && *value ? value : NULL;
}

// ---- which plugin ----
void tt_set_plugin_candidates(const char *tpu_plugin, const char *cpu_plugin) {
  tt_runtime *rt = &tt_the_runtime;
  pthread_mutex_lock(&rt->lock);
  if (!rt->client) {
    free(rt->tpu_plugin);
    free(rt->cpu_plugin);
    rt->tpu_plugin = tpu_plugin ? strdup(tpu_plugin) : NULL;
    rt->cpu_plugin = cpu_plugin ? strdup(cpu_plugin) : NULL;
  }
  pthread_mutex_unlock(&rt->lock);
}

static tt_status *choose_plugin(const char **out_path, bool *out_is_named) {
  const char *named = setting("TORCH_TPU_PJRT_PLUGIN");
  const char *platform = setting("TORCH_TPU_PLATFORM");
  const char *tpu = tt_the_runtime.tpu_plugin, *cpu = tt_the_runtime.cpu_plugin;
  *out_is_named = named != NULL;
  *out_path = NULL;
  if (platform && strcmp(platform, "auto") && strcmp(platform, "tpu") && strcmp(platform, "cpu")) {
    return tt_error(TT_ERR_VALUE, "TORCH_TPU_PLATFORM is \"%s\"; it must be auto, tpu or cpu", platform);
  }
  if (named) {
    *out_path = named;
  } else if (platform && !strcmp(platform, "tpu")) {
    *out_path = tpu;
  } else if (platform && !strcmp(platform, "cpu")) {
    *out_path = cpu;
  } else {
    *out_path = tpu ? tpu : cpu;
  }
  if (*out_path) {
    return NULL;
  }
  return tt_error(TT_ERR_UNAVAILABLE,
                  "no PJRT plugin%s%s was found: install torchtpu with its dependencies (fastatomstruct-xla-cpu for "
                  "XLA:CPU, libtpu on a machine with a TPU), or set TORCH_TPU_PJRT_PLUGIN to a plugin's path",
                  platform ? " for TORCH_TPU_PLATFORM=" : "", platform ? platform : "");
}

bool tt_is_available(void) {
  const char *path;
  bool named;
  if (atomic_load(&tt_the_runtime.initialized) || atomic_load(&tt_the_runtime.forked)) {
    return !atomic_load(&tt_the_runtime.forked);
  }
  pthread_mutex_lock(&tt_the_runtime.lock);  // the candidates may be set meanwhile
  tt_status *status = choose_plugin(&path, &named);
  bool available = !status && access(path, R_OK) == 0;
  pthread_mutex_unlock(&tt_the_runtime.lock);
  tt_status_free(status);
  return available;
}

// 0 for what is no number of devices.
static int32_t requested_devices(void) {
  const char *text = setting("TORCH_TPU_CPU_DEVICES");
  char *end = NULL;
  long count = text ? strtol(text, &end, 10) : 1;
  return count >= 1 && count <= TT_MAX_DEVICES && (!end || !*end) ? (int32_t)count : 0;
}

// ---- memory budget of XLA:CPU ----
static int64_t read_number(const char *path) {
  FILE *file = fopen(path, "re");
  long long value = -1;
  if (file) {
    if (fscanf(file, "%lld", &value) != 1) {
      value = -1;
    }
    fclose(file);
  }
  return value;
}

static int64_t host_memory(void) {
  int64_t total = (int64_t)sysconf(_SC_PHYS_PAGES) * sysconf(_SC_PAGESIZE);
  static const char *const limits[] = {"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"};
  for (size_t i = 0; i < sizeof limits / sizeof *limits; i++) {
    int64_t limit = read_number(limits[i]);
    if (limit > 0 && limit < total) {
      total = limit;
    }
  }
  return total;
}

static int64_t memory_budget(int32_t device) {
  int64_t in_use, limit;
  if (!tt_pjrt_device_memory(tt_the_runtime.client, device, &in_use, &limit) || limit <= 0) {
    limit = host_memory() / tt_the_runtime.device_count;
  }
  const char *text = setting("TORCH_TPU_MEMORY_FRACTION");
  double fraction = text ? strtod(text, NULL) : 0.8;
  return (int64_t)((double)limit * (fraction > 0 && fraction <= 1 ? fraction : 0.8));
}

// ---- compile options ----
static tt_status *add_option(char *name, char *value) {
  tt_runtime *rt = &tt_the_runtime;
  size_t size = sizeof(char *) * (size_t)(rt->option_count + 1);
  const char **names = realloc(rt->option_names, size), **values = realloc(rt->option_values, size);
  rt->option_names = names ? names : rt->option_names;
  rt->option_values = values ? values : rt->option_values;
  if (!names || !values || !name || !value) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  names[rt->option_count] = name;
  values[rt->option_count++] = value;
  return NULL;
}

static tt_status *read_options(void) {
  if (tt_the_runtime.is_cpu) {
    // Else a NaN in the second operand of a maximum or minimum is lost, in reductions too.
    TT_TRY(add_option(strdup("xla_cpu_enable_fast_min_max"), strdup("false")));
  }
  const char *fast = setting("TORCH_TPU_FAST_COMPILE");
  if (fast && strcmp(fast, "0") && tt_the_runtime.is_cpu) {
    TT_TRY(add_option(strdup("xla_backend_optimization_level"), strdup("0")));
    TT_TRY(add_option(strdup("xla_cpu_use_fusion_emitters"), strdup("false")));
  }
  const char *list = setting("TORCH_TPU_XLA_OPTIONS");
  while (list && *list) {
    size_t length = strcspn(list, ",");
    const char *equals = memchr(list, '=', length);
    if (!equals || equals == list) {
      return tt_error(TT_ERR_VALUE, "TORCH_TPU_XLA_OPTIONS must be name=value,...: \"%.*s\" is not", (int)length, list);
    }
    TT_TRY(
        add_option(strndup(list, (size_t)(equals - list)), strndup(equals + 1, length - (size_t)(equals + 1 - list))));
    list += length + (list[length] == ',');
  }
  return NULL;
}

// ---- start and stop ----
static void after_fork_in_child(void) {
  if (atomic_load(&tt_the_runtime.initialized)) {
    atomic_store(&tt_the_runtime.forked, true);
  }
}

static void stop_runtime(void) {
  tt_runtime *rt = &tt_the_runtime;
  if (!tt_runtime_ready()) {
    return;
  }
  tt_cache_stop(rt->cache);
  tt_compiler_stop();
  for (int32_t i = 0; i < rt->device_count; i++) {
    tt_queue_stop(&rt->engines[i]);
  }
  // The plugin's own destructors run after this; nothing may call it any more.
  atomic_store(&rt->stopped, true);
}

static tt_status *start_engine(tt_engine *engine, int32_t device) {
  engine->device = device;
  pthread_mutex_init(&engine->lock, NULL);
  engine->limit = memory_budget(device);
  return tt_queue_start(engine);
}

static tt_status *open_cache(void) {
  tt_runtime *rt = &tt_the_runtime;
  tt_cache_config config;
  tt_cache_config_read(&config);
  tt_status *status = tt_cache_open(&config, rt->plugin, rt->client, &rt->cache);
  tt_cache_config_free(&config);
  return status;
}

static tt_status *start_client(const char *path, bool named) {
  tt_runtime *rt = &tt_the_runtime;
  const char *platform = setting("TORCH_TPU_PLATFORM");
  bool is_tpu = !named && rt->tpu_plugin && path == rt->tpu_plugin;
  is_tpu = is_tpu || (named && platform && !strcmp(platform, "tpu"));
  // Asked for only where it is set: XLA:CPU prints a line about it.
  bool ask = !is_tpu && setting("TORCH_TPU_CPU_DEVICES");
  if (ask && !requested_devices()) {
    return tt_error(TT_ERR_VALUE, "TORCH_TPU_CPU_DEVICES is \"%s\"; it must be a number from 1 to %d",
                    setting("TORCH_TPU_CPU_DEVICES"), TT_MAX_DEVICES);
  }
  tt_pjrt_client_options options = {.cpu_device_count = ask ? requested_devices() : 0};
  TT_TRY(tt_pjrt_client_create(rt->plugin, &options, &rt->client));
  rt->is_cpu = tt_pjrt_client_is_cpu(rt->client);
  rt->has_host_kernels = tt_kernels_register(rt->client);  // before anything is compiled, or loaded from the cache
  if (rt->is_cpu && !tt_pjrt_plugin_pool_memory(rt->plugin, host_memory())) {
    TT_LOG(DEBUG, "memory of %s is not pooled", path);
  }
  int32_t count = tt_pjrt_client_device_count(rt->client);
  if (rt->is_cpu && count > requested_devices()) {
    count = requested_devices();  // some builds of XLA:CPU make four unasked
  }
  if (count < 1) {
    return tt_error(TT_ERR_UNAVAILABLE, "the plugin %s has no device", path);
  }
  if (count > TT_MAX_DEVICES) {
    return tt_error(TT_ERR_UNAVAILABLE, "the plugin %s has %d devices; a process can use %d", path, count,
                    TT_MAX_DEVICES);
  }
  TT_TRY(read_options());
  TT_TRY(open_cache());
  size_t size = (size_t)count * sizeof *rt->engines;
  rt->engines = aligned_alloc(_Alignof(tt_engine), size);  // the queue's counters have cache lines of their own
  if (!rt->engines) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  memset(rt->engines, 0, size);
  rt->device_count = count;
  for (int32_t i = 0; i < count; i++) {
    TT_TRY(start_engine(&rt->engines[i], i));
  }
  return NULL;
}

// Back to where the next tt_init() may begin anew.
static void undo_start(void) {
  tt_runtime *rt = &tt_the_runtime;
  for (int32_t i = 0; rt->engines && i < rt->device_count; i++) {
    tt_queue_stop(&rt->engines[i]);
  }
  free(rt->engines);
  rt->engines = NULL;
  rt->device_count = 0;
  tt_cache_free(rt->cache);
  rt->cache = NULL;
  tt_pjrt_client_free(rt->client);
  rt->client = NULL;
  for (; rt->option_count > 0; rt->option_count--) {
    free((char *)rt->option_names[rt->option_count - 1]);
    free((char *)rt->option_values[rt->option_count - 1]);
  }
}

static tt_status *start(void) {
  tt_runtime *rt = &tt_the_runtime;
  const char *path;
  bool named;
  TT_TRY(choose_plugin(&path, &named));
  if (rt->plugin && strcmp(tt_pjrt_plugin_path(rt->plugin), path) != 0) {
    tt_pjrt_plugin_free(rt->plugin);  // chosen by an attempt that failed
    rt->plugin = NULL;
  }
  if (!rt->plugin) {
    TT_TRY(tt_pjrt_plugin_load(path, &rt->plugin));
  }
  tt_status *status = start_client(path, named);
  if (status) {
    undo_start();
    return status;
  }
  static bool hooked;
  if (!hooked) {
    pthread_atfork(NULL, NULL, after_fork_in_child);
    atexit(stop_runtime);
    hooked = true;
  }
  if (rt->is_cpu && !setting("TORCH_TPU_PLATFORM") && !named) {
    fprintf(stderr,
            "torch_tpu: no TPU on this machine; device \"tpu\" runs on XLA:CPU "
            "(TORCH_TPU_PLATFORM=cpu says so and silences this)\n");
  }
  atomic_store_explicit(&rt->initialized, true, memory_order_release);
  return NULL;
}

tt_status *tt_init(void) {
  if (tt_runtime_ready()) {
    return atomic_load_explicit(&tt_the_runtime.stopped, memory_order_relaxed)
               ? tt_error(TT_ERR_RUNTIME, "tpu was used while the process exits")
               : NULL;
  }
  if (atomic_load(&tt_the_runtime.forked)) {
    return tt_error(TT_ERR_RUNTIME,
                    "Cannot re-initialize tpu in forked subprocess. To use tpu with multiprocessing, you must use the "
                    "'spawn' start method");
  }
  pthread_mutex_lock(&tt_the_runtime.lock);
  tt_status *status = atomic_load(&tt_the_runtime.initialized) ? NULL : start();
  pthread_mutex_unlock(&tt_the_runtime.lock);
  return status;
}

bool tt_is_initialized(void) { return tt_runtime_ready(); }
bool tt_in_bad_fork(void) { return atomic_load(&tt_the_runtime.forked); }

static int32_t tpu_chips(void) {
  int32_t count = 0;
  DIR *folder = opendir("/dev");
  for (struct dirent *entry; folder && (entry = readdir(folder));) {
    count += !strncmp(entry->d_name, "accel", 5) && entry->d_name[5] >= '0' && entry->d_name[5] <= '9';
  }
  if (folder) {
    closedir(folder);
  }
  return count;
}

int32_t tt_device_count(void) {
  tt_runtime *rt = &tt_the_runtime;
  if (atomic_load(&rt->initialized)) {
    return rt->device_count;
  }
  const char *path;
  bool named;
  pthread_mutex_lock(&rt->lock);
  tt_status *status = choose_plugin(&path, &named);
  bool is_tpu = !status && rt->tpu_plugin && path == rt->tpu_plugin;
  pthread_mutex_unlock(&rt->lock);
  if (status) {
    tt_status_free(status);
    return 0;
  }
  int32_t chips = is_tpu ? tpu_chips() : 0;
  return chips ? chips : requested_devices();
}

tt_status *tt_engine_of(int32_t device, tt_engine **out_engine) {
  *out_engine = NULL;
  TT_TRY(tt_init());
  if (device < 0) {
    device = current_device;
  }
  if (device >= tt_the_runtime.device_count) {
    return tt_error(TT_ERR_RUNTIME, "tpu:%d does not exist: this process has %d tpu device%s", device,
                    tt_the_runtime.device_count, tt_the_runtime.device_count == 1 ? "" : "s");
  }
  *out_engine = &tt_the_runtime.engines[device];
  return NULL;
}

// ---- facts ----
tt_status *tt_platform(const char **out_name) {
  TT_TRY(tt_init());
  *out_name = tt_pjrt_client_platform(tt_the_runtime.client);
  return NULL;
}

tt_status *tt_platform_version(const char **out_version) {
  TT_TRY(tt_init());
  *out_version = tt_pjrt_client_platform_version(tt_the_runtime.client);
  return NULL;
}

tt_status *tt_device_name(int32_t device, const char **out_name) {
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  *out_name = tt_the_runtime.is_cpu ? "XLA:CPU (no TPU)" : tt_pjrt_device_kind(tt_the_runtime.client, engine->device);
  return NULL;
}

tt_status *tt_plugin_info(const char **out_path, int *out_major, int *out_minor) {
  TT_TRY(tt_init());
  *out_path = tt_pjrt_plugin_path(tt_the_runtime.plugin);
  tt_pjrt_plugin_version(tt_the_runtime.plugin, out_major, out_minor);
  return NULL;
}

int32_t tt_current_device(void) { return current_device; }

tt_status *tt_set_current_device(int32_t device) {
  int32_t count = tt_device_count();
  if (device < 0 || device >= (count ? count : 1)) {
    return tt_error(TT_ERR_RUNTIME, "tpu:%d does not exist: this process has %d tpu device%s", device, count,
                    count == 1 ? "" : "s");
  }
  current_device = device;
  return NULL;
}

tt_eager_mode tt_get_eager_mode(void) {
  int mode = atomic_load_explicit(&tt_the_runtime.mode, memory_order_relaxed);
  if (mode < 0) {
    const char *text = setting("TORCH_TPU_EAGER_MODE");
    mode = text && !strcmp(text, "debug")   ? TT_MODE_DEBUG
           : text && !strcmp(text, "fused") ? TT_MODE_FUSED
                                            : TT_MODE_STRICT;
    atomic_store(&tt_the_runtime.mode, mode);
  }
  return (tt_eager_mode)mode;
}

void tt_set_eager_mode(tt_eager_mode mode) { atomic_store(&tt_the_runtime.mode, mode); }
void tt_set_check_nan(bool enabled) { atomic_store(&tt_the_runtime.check_nan, enabled); }
void tt_set_matmul_precision(int32_t precision) {
  if (precision >= TT_PRECISION_DEFAULT && precision <= TT_PRECISION_HIGHEST) {
    atomic_store(&tt_the_runtime.precision, precision);
  }
}
int32_t tt_get_matmul_precision(void) { return atomic_load(&tt_the_runtime.precision); }
void tt_set_default_dtype(tt_dtype dtype) { atomic_store(&tt_the_runtime.default_dtype, dtype); }

// ---- synchronisation ----
tt_status *tt_synchronize(int32_t device) {
  if (!atomic_load(&tt_the_runtime.initialized)) {
    return NULL;  // nothing was ever enqueued
  }
  tt_engine *engine;
  TT_TRY(tt_engine_of(device, &engine));
  tt_count(&tt_the_runtime.counters.syncs, 1);
  tt_explain_note(TT_NOTE_SYNC, "synchronize", 0);
  tt_recompile_turn();
  tt_status *first = NULL;
  for (int32_t i = 0; i < tt_the_runtime.device_count; i++) {
    if (device >= 0 && i != device) {
      continue;
    }
    tt_queue_drain(&tt_the_runtime.engines[i]);
    tt_status *status = tt_queue_take_error(&tt_the_runtime.engines[i]);
    if (first) {
      tt_status_free(status);
    } else {
      first = status;
    }
  }
  tt_explain_place();
  tt_recompile_warn();
  return first;
}

bool tt_is_idle(int32_t device) {
  tt_runtime *rt = &tt_the_runtime;
  for (int32_t i = 0; tt_runtime_ready() && i < rt->device_count; i++) {
    tt_queue *queue = &rt->engines[i].queue;
    if ((device < 0 || i == device) &&
        (atomic_load(&queue->launched) != atomic_load(&queue->pushed) || atomic_load(&queue->busy))) {
      return false;
    }
  }
  return true;
}
