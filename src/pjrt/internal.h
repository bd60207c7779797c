// Shared by the files of src/pjrt only.
#ifndef TORCHTPU_PJRT_INTERNAL_H
#define TORCHTPU_PJRT_INTERNAL_H

#include "pjrt/pjrt.h"
#include "pjrt_c_api.h"

// The oldest plugin we drive. 0.57 rearranged the fields of PJRT_Api without a new major version, so nothing
// older can be read with this header; every function in `required` (plugin.c) is there since before 0.57.
enum { TT_PJRT_MINOR_MIN = 57 };

// Upper bounds on what a plugin may answer; anything beyond is a fault of the plugin, not a size to allocate.
enum {
  TT_PJRT_MAX_DEVICES = 1 << 16,
  TT_PJRT_MAX_RESULTS = 1 << 20,
  TT_PJRT_MAX_RANK = 255,
  TT_PJRT_MAX_TEXT = 1 << 16,
};

// A plugin's checked function table; one per loaded library, alive until the process ends (clients and buffers
// outlive the tt_pjrt_plugin that made them).
typedef struct tt_pjrt_table {
  struct tt_pjrt_table *next;
  void *library;  // from dlopen, never closed
  bool is_libtpu;
  PJRT_Api api;  // a copy; functions that the plugin lacks are NULL
  // Sizes of the structs that grew after 0.57, as the plugin's version knows them.
  size_t client_create_size, execute_options_size, deserialize_size, memory_stats_size;
} tt_pjrt_table;

struct tt_pjrt_plugin {
  const tt_pjrt_table *table;
  char *path;  // owned
};

typedef struct tt_pjrt_device {
  PJRT_Device *device;  // the client's
  int id;               // global, as in a device assignment
  char *kind;           // owned
} tt_pjrt_device;

struct tt_pjrt_client {
  const tt_pjrt_table *table;
  const PJRT_Api *api;  // &table->api
  PJRT_Client *client;
  char *platform, *platform_version;  // owned
  bool is_cpu;
  int32_t device_count;
  tt_pjrt_device *devices;  // owned
};

struct tt_pjrt_executable {
  PJRT_LoadedExecutable *loaded;
  PJRT_Executable *executable;
  int32_t result_count;
  int32_t device;   // index into the client's devices; -1: not exactly one
  bool may_donate;  // false: no parameter is aliased or a donor, so Execute needs no non-donatable indices
  int64_t temp_bytes;
};

struct tt_pjrt_topology {
  const tt_pjrt_table *table;
  PJRT_TopologyDescription *topology;
  int32_t device_count;
};

// Takes ownership of `error`; NULL is success. `what` names the call ("compile").
TT_MUST_USE tt_status *tt_pjrt_take_error(const PJRT_Api *api, PJRT_Error *error, const char *what);
// Destroys `error`, whatever it says.
void tt_pjrt_drop_error(const PJRT_Api *api, PJRT_Error *error);
#define TT_PJRT_TRY(api, call, what) TT_TRY(tt_pjrt_take_error((api), (call), (what)))

// Awaits and destroys; NULL counts as ready.
TT_MUST_USE tt_status *tt_pjrt_finish_event(const PJRT_Api *api, PJRT_Event *event, const char *what);
void tt_pjrt_destroy_event(const PJRT_Api *api, PJRT_Event *event);
void tt_pjrt_destroy_buffer(const PJRT_Api *api, PJRT_Buffer *buffer);

TT_MUST_USE tt_status *tt_pjrt_check_device(const tt_pjrt_client *client, int32_t device);
// The bytes of a dense array; an error for a negative dimension or an overflow.
TT_MUST_USE tt_status *tt_pjrt_dense_size(tt_dtype dtype, const int64_t *dims, size_t rank, size_t *out_size);
PJRT_Buffer_Type tt_pjrt_type_of_dtype(tt_dtype dtype);  // PJRT_Buffer_Type_INVALID for none
tt_dtype tt_pjrt_dtype_of_type(PJRT_Buffer_Type type);   // TT_DTYPE_INVALID for none
// Copies a text that a plugin gave as pointer and size; NULL when memory is gone.
char *tt_pjrt_copy_text(const char *text, size_t size);

// A serialized CompileOptionsProto for one device with global id `device_id`; the caller frees `*out_data`.
TT_MUST_USE tt_status *tt_pjrt_encode_options(const tt_pjrt_compile_options *options, int device_id, char **out_data,
                                              size_t *out_size);
// What a compilation needs. XLA's parser reads on until it finds a zero byte, whatever size it is told, so the program
// is a terminated copy.
typedef struct tt_pjrt_job {
  char *text, *options;  // owned
  size_t options_size;
  PJRT_Program program;  // over `text`
} tt_pjrt_job;
TT_MUST_USE tt_status *tt_pjrt_job_init(tt_pjrt_job *job, const char *mlir, size_t size,
                                        const tt_pjrt_compile_options *options, int device_id);
void tt_pjrt_job_free(tt_pjrt_job *job);
// Serializes `executable` into malloc'ed memory.
TT_MUST_USE tt_status *tt_pjrt_serialize(const PJRT_Api *api, PJRT_Executable *executable, void **out_data,
                                         size_t *out_size);
// Zeros where the plugin doesn't say.
void tt_pjrt_memory_stats(const tt_pjrt_table *table, PJRT_Executable *executable,
                          PJRT_Executable_GetCompiledMemoryStats_Args *out_stats);

#endif  // TORCHTPU_PJRT_INTERNAL_H
