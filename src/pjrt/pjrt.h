// The PJRT C API as this library uses it: plugin, client, device, buffer, executable, topology.
//
// Every call goes through one table that tt_pjrt_plugin_load() has checked: the API's major version, the size of
// its table, and that each function we need is there. No function here aborts; a fatal check in a plugin is kept
// away by validation (dtype, dims and count of Execute's arguments are the caller's to check, see eager/).
#ifndef TORCHTPU_PJRT_PJRT_H
#define TORCHTPU_PJRT_PJRT_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/strbuf.h"

typedef struct tt_pjrt_plugin tt_pjrt_plugin;
typedef struct tt_pjrt_client tt_pjrt_client;
typedef struct tt_pjrt_buffer tt_pjrt_buffer;          // a PJRT_Buffer
typedef struct tt_pjrt_executable tt_pjrt_executable;  // a PJRT_LoadedExecutable and what is known of it
typedef struct tt_pjrt_event tt_pjrt_event;            // a PJRT_Event
typedef struct tt_pjrt_topology tt_pjrt_topology;

// ---- plugin ----
// Loads `path`, checks it and initialises it. Errors (TT_ERR_UNAVAILABLE) name the path and the cause: no such
// file, not a shared library, no GetPjrtApi, another major version, too old (API 0.x where 0.y is needed), a
// function missing (by name). Plugins stay loaded until the process ends: unloading XLA is not safe.
TT_MUST_USE tt_status *tt_pjrt_plugin_load(const char *path, tt_pjrt_plugin **out_plugin);
void tt_pjrt_plugin_free(tt_pjrt_plugin *plugin);  // the handle only
void tt_pjrt_plugin_version(const tt_pjrt_plugin *plugin, int *out_major, int *out_minor);
const char *tt_pjrt_plugin_path(const tt_pjrt_plugin *plugin);
// XLA:CPU only: has the plugin's large blocks kept when they are freed (host_pool.h), on a machine with so many bytes.
bool tt_pjrt_plugin_pool_memory(tt_pjrt_plugin *plugin, int64_t memory);
void tt_pjrt_trim_memory(void);  // gives back to the system what is kept

// ---- client ----
typedef struct tt_pjrt_client_options {
  int32_t cpu_device_count;  // virtual devices of XLA:CPU; 0: don't pass the option
} tt_pjrt_client_options;
TT_MUST_USE tt_status *tt_pjrt_client_create(tt_pjrt_plugin *plugin, const tt_pjrt_client_options *options,
                                             tt_pjrt_client **out_client);
void tt_pjrt_client_free(tt_pjrt_client *client);
const char *tt_pjrt_client_platform(const tt_pjrt_client *client);          // "cpu", "tpu"; owned by the client
const char *tt_pjrt_client_platform_version(const tt_pjrt_client *client);  // owned by the client
bool tt_pjrt_client_is_cpu(const tt_pjrt_client *client);
int32_t tt_pjrt_client_device_count(const tt_pjrt_client *client);  // addressable devices
// "TPU v5 lite", "cpu"; owned by the client.
const char *tt_pjrt_device_kind(const tt_pjrt_client *client, int32_t device);
// Bytes in use and the device's limit, where the plugin knows them (XLA:CPU does not): false otherwise.
bool tt_pjrt_device_memory(tt_pjrt_client *client, int32_t device, int64_t *out_in_use, int64_t *out_limit);

// ---- buffers ----
// Copies `data` (dense, row-major) to the device; returns after the plugin needs the memory no more.
TT_MUST_USE tt_status *tt_pjrt_buffer_from_host(tt_pjrt_client *client, int32_t device, const void *data,
                                                tt_dtype dtype, const int64_t *dims, int32_t rank,
                                                tt_pjrt_buffer **out_buffer);
// Waits for the buffer and copies it to `data` (dense, row-major), `size` bytes, which must be the buffer's.
TT_MUST_USE tt_status *tt_pjrt_buffer_to_host(tt_pjrt_client *client, tt_pjrt_buffer *buffer, void *data, size_t size);
// XLA:CPU only: waits for the buffer and gives the address of its bytes, valid while the buffer lives. NULL and
// success where the device's memory can't be read by the host.
TT_MUST_USE tt_status *tt_pjrt_buffer_host_pointer(tt_pjrt_client *client, tt_pjrt_buffer *buffer,
                                                   const void **out_pointer);
// Waits until the buffer's contents exist; an error of the program that makes it comes back here.
TT_MUST_USE tt_status *tt_pjrt_buffer_await(tt_pjrt_client *client, tt_pjrt_buffer *buffer);
TT_MUST_USE tt_status *tt_pjrt_buffer_copy_to_device(tt_pjrt_client *client, tt_pjrt_buffer *buffer, int32_t device,
                                                     tt_pjrt_buffer **out_buffer);
void tt_pjrt_buffer_free(tt_pjrt_client *client, tt_pjrt_buffer *buffer);  // NULL is allowed

// ---- executables ----
typedef struct tt_pjrt_compile_options {
  // XLA debug options by name (`env_option_overrides`), e.g. {"xla_backend_optimization_level", "0"}.
  const char *const *option_names;
  const char *const *option_values;
  int32_t option_count;
} tt_pjrt_compile_options;
// Compiles StableHLO text for one device; the text need not be terminated. Safe from several threads.
TT_MUST_USE tt_status *tt_pjrt_compile(tt_pjrt_client *client, const char *mlir, size_t size,
                                       const tt_pjrt_compile_options *options, int32_t device,
                                       tt_pjrt_executable **out_executable);
void tt_pjrt_executable_free(tt_pjrt_client *client, tt_pjrt_executable *executable);
int32_t tt_pjrt_executable_result_count(const tt_pjrt_executable *executable);
// Bytes of temporary memory while it runs; 0 where the plugin doesn't say.
int64_t tt_pjrt_executable_temp_bytes(const tt_pjrt_executable *executable);
// `*out_data` is malloc'ed, the caller frees it.
TT_MUST_USE tt_status *tt_pjrt_executable_serialize(tt_pjrt_client *client, tt_pjrt_executable *executable,
                                                    void **out_data, size_t *out_size);
// Never feed it bytes that were not checked (digest and key): a corrupt one can kill the process.
TT_MUST_USE tt_status *tt_pjrt_executable_deserialize(tt_pjrt_client *client, const void *data, size_t size,
                                                      tt_pjrt_executable **out_executable);

// Runs on one device. `arguments[count]` are borrowed; `donate[i]` false puts i in non_donatable_input_indices
// (a parameter without aliasing is never donated); NULL donates nothing. A donated buffer is consumed: free it,
// don't use it.
// `out_results[result count]` receive new buffers (NULLs on error). `out_done`, if not NULL, receives the
// event of the program's completion, which the caller frees.
TT_MUST_USE tt_status *tt_pjrt_execute(tt_pjrt_client *client, tt_pjrt_executable *executable, int32_t device,
                                       tt_pjrt_buffer *const *arguments, const bool *donate, int32_t count,
                                       tt_pjrt_buffer **out_results, tt_pjrt_event **out_done);

// ---- events ----
TT_MUST_USE tt_status *tt_pjrt_event_await(tt_pjrt_client *client, tt_pjrt_event *event);
TT_MUST_USE tt_status *tt_pjrt_event_is_ready(tt_pjrt_client *client, tt_pjrt_event *event, bool *out_ready);
// Calls `callback(context, error or NULL)` once, on any thread, perhaps before this returns. The callback owns
// the status.
TT_MUST_USE tt_status *tt_pjrt_event_on_ready(tt_pjrt_client *client, tt_pjrt_event *event,
                                              void (*callback)(void *context, tt_status *status), void *context);
void tt_pjrt_event_free(tt_pjrt_client *client, tt_pjrt_event *event);  // NULL is allowed

// ---- ahead of time ----
// A topology needs no device: "v5e:2x2". Compiles to a serialized executable, whose optimized program can be read.
TT_MUST_USE tt_status *tt_pjrt_topology_create(tt_pjrt_plugin *plugin, const char *name,
                                               tt_pjrt_topology **out_topology);
void tt_pjrt_topology_free(tt_pjrt_topology *topology);
int32_t tt_pjrt_topology_device_count(const tt_pjrt_topology *topology);
typedef struct tt_pjrt_aot_result {
  void *serialized;  // malloc'ed; release with tt_pjrt_aot_result_free
  size_t serialized_size;
  void *optimized;  // what the compiler made code of: field 1 is an HloModuleProto; NULL where the plugin gives none
  size_t optimized_size;
  int64_t argument_bytes, output_bytes, temp_bytes, code_bytes;
} tt_pjrt_aot_result;
TT_MUST_USE tt_status *tt_pjrt_topology_compile(tt_pjrt_topology *topology, const char *mlir, size_t size,
                                                const tt_pjrt_compile_options *options, tt_pjrt_aot_result *out_result);
void tt_pjrt_aot_result_free(tt_pjrt_aot_result *result);

// ---- appended ----
// As tt_pjrt_plugin_load(), for a process that will only make topologies: where the file is a libtpu, sets
// TPU_SKIP_MDS_QUERY=1 in the environment first (unless it is set), without which libtpu asks a metadata server that
// isn't there for minutes. The only place where this library sets a variable; call it before other threads run.
// More than one process with libtpu also needs ALLOW_MULTIPLE_LIBTPU_LOAD=1, which is the caller's to set.
TT_MUST_USE tt_status *tt_pjrt_plugin_load_for_topology(const char *path, tt_pjrt_plugin **out_plugin);
// The buffer's element type and logical shape. `*out_dims` is the buffer's, valid while it lives. An error for a
// type that has no tt_dtype.
TT_MUST_USE tt_status *tt_pjrt_buffer_shape(tt_pjrt_client *client, tt_pjrt_buffer *buffer, tt_dtype *out_dtype,
                                            const int64_t **out_dims, int32_t *out_rank);
// The device that the executable runs on; tt_pjrt_execute() refuses another. -1: not exactly one of the client's.
int32_t tt_pjrt_executable_device(const tt_pjrt_executable *executable);
// As tt_pjrt_executable_deserialize(), which loads for the device that the bytes were compiled for; this loads for
// `device`. `options` must be those of the compilation. TT_ERR_NOT_IMPLEMENTED where the plugin can't.
TT_MUST_USE tt_status *tt_pjrt_executable_deserialize_on(tt_pjrt_client *client, const void *data, size_t size,
                                                         const tt_pjrt_compile_options *options, int32_t device,
                                                         tt_pjrt_executable **out_executable);
// Gives a deserialized executable what it doesn't say of itself: whether the program that it was compiled from donates,
// and the temporary memory that was known then.
void tt_pjrt_executable_restore(tt_pjrt_executable *executable, const char *mlir, size_t size, int64_t temp_bytes);
// Whether the plugin has the functions at all; whether tt_pjrt_executable_deserialize_on() can load for a device that
// the bytes weren't compiled for.
bool tt_pjrt_can_serialize(const tt_pjrt_client *client);
bool tt_pjrt_can_move(const tt_pjrt_client *client);
// Appends what plugin and devices are: versions, the file's build, attributes, the devices. Where two are equal,
// executables can be exchanged, as far as it depends on them (XLA:CPU's also depend on the host's processor).
TT_MUST_USE tt_status *tt_pjrt_describe(const tt_pjrt_plugin *plugin, const tt_pjrt_client *client, tt_strbuf *out);
// The compile options as the plugin gets them, `device` -1: for no device in particular. Malloc'ed, the caller frees
// `*out_data`.
TT_MUST_USE tt_status *tt_pjrt_options_bytes(const tt_pjrt_client *client, const tt_pjrt_compile_options *options,
                                             int32_t device, void **out_data, size_t *out_size);

// Lets programs of XLA:CPU call `handler`, an XLA_FFI_Handler (kernels/ffi.h), as custom call `name`; before any that
// does is compiled or loaded. It must stay for as long as the process. The same name and function again is fine.
// TT_ERR_NOT_IMPLEMENTED where the plugin can't, or is not XLA:CPU's.
struct tt_ffi_frame;
typedef void *tt_pjrt_handler(struct tt_ffi_frame *frame);
TT_MUST_USE tt_status *tt_pjrt_register_handler(tt_pjrt_client *client, const char *name, tt_pjrt_handler *handler);

#endif  // TORCHTPU_PJRT_PJRT_H
