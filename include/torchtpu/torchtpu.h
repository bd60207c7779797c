// The C API of libtorchtpu: the runtime (one per process), device memory, the eager engine, random generators,
// events and statistics. Everything that PyTorch's dispatcher shim and the Python package do goes through here.
//
// Unless a call says otherwise it may be made from any thread, does not abort on any input, and reports failure
// by a tt_status that the caller owns. No call creates the PJRT client but those that say "initialises".
#ifndef TORCHTPU_TORCHTPU_H
#define TORCHTPU_TORCHTPU_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

// ======== runtime ========
// Settings come from the environment when first needed: TORCH_TPU_PLATFORM (auto, tpu, cpu),
// TORCH_TPU_PJRT_PLUGIN (a path), TORCH_TPU_CPU_DEVICES (count), TORCH_TPU_MEMORY_FRACTION, TORCH_TPU_EAGER_MODE
// (strict, debug), TORCH_TPU_FAST_COMPILE (1: little optimisation, for tests), TORCH_TPU_XLA_OPTIONS
// (name=value,...), TORCH_TPU_DUMP_MODULES (a folder: every module that is compiled is kept there), and for the compile
// cache TORCH_TPU_CACHE (0: none on disk), TORCH_TPU_CACHE_DIR (a folder; $XDG_CACHE_HOME or ~/.cache has it
// otherwise), TORCH_TPU_CACHE_SIZE (its bound: bytes, or with K, M, G; 2G), TORCH_TPU_SHARED_CACHE_DIR (a second
// folder, shared with other machines; whoever can write there can make programs for those who read it),
// TORCH_TPU_RECOMPILE_WARNING (how often a loop may compile before it is told; 0: always), TORCH_TPU_HOST_POOL (0:
// memory that XLA:CPU frees goes back to the C library at once). Where to look for plugins; either may be NULL. Copied.
// Has no effect once the client exists.
void tt_set_plugin_candidates(const char *tpu_plugin, const char *cpu_plugin);
// Creates the client if there is none. Errors: no plugin found, a bad plugin, a forked child.
TT_MUST_USE tt_status *tt_init(void);
bool tt_is_initialized(void);
bool tt_in_bad_fork(void);   // this process was forked from one that had a client
bool tt_is_available(void);  // a plugin was named or found; does not load it
// Number of devices: the client's if there is one, else what the client would have.
int32_t tt_device_count(void);
// Initialise. Strings live as long as the process.
TT_MUST_USE tt_status *tt_platform(const char **out_name);  // "cpu" or "tpu"
TT_MUST_USE tt_status *tt_platform_version(const char **out_version);
TT_MUST_USE tt_status *tt_device_name(int32_t device, const char **out_name);
// Path of the loaded plugin, and its API version.
TT_MUST_USE tt_status *tt_plugin_info(const char **out_path, int *out_major, int *out_minor);

// The calling thread's current device.
int32_t tt_current_device(void);
TT_MUST_USE tt_status *tt_set_current_device(int32_t device);

typedef enum tt_eager_mode { TT_MODE_STRICT = 0, TT_MODE_DEBUG = 1, TT_MODE_FUSED = 2 } tt_eager_mode;
tt_eager_mode tt_get_eager_mode(void);
void tt_set_eager_mode(tt_eager_mode mode);
void tt_wait_for_compiles(void);      // fused mode: until nothing is left to compile in the background
void tt_set_check_nan(bool enabled);  // debug mode: a NaN in a floating result raises RuntimeError
// Precision of float32 products: 0 default (fast), 1 high, 2 highest.
void tt_set_matmul_precision(int32_t precision);
int32_t tt_get_matmul_precision(void);
// Of the calling thread: the number of the backward pass that its next calls belong to, -1: none. Fused mode may end a
// stretch where it changes.
void tt_set_section(int section);
void tt_set_default_dtype(tt_dtype dtype);  // torch.get_default_dtype(), kept in step by the shim

// Waits for everything enqueued on `device` (-1: all), then raises what failed: the first error, once.
TT_MUST_USE tt_status *tt_synchronize(int32_t device);
bool tt_is_idle(int32_t device);  // nothing queued and nothing running on it (-1: on any)

// ======== statistics ========
typedef struct tt_counters {
  int64_t compiles;  // modules compiled, not those that came from the compile cache
  int64_t compile_ns;
  int64_t executions;                      // programs launched
  int64_t cache_hits, cache_misses;        // of the op cache
  int64_t host_to_device, device_to_host;  // transfers
  int64_t host_to_device_bytes, device_to_host_bytes;
  int64_t synchronizations;
  int64_t fallbacks;  // operators run on the CPU for want of a rule
  // Of the compile cache on disk: modules that came from it, modules compiled while it was on, entries written, entries
  // rejected, bytes, and the time of the compiler that it saved.
  int64_t disk_hits, shared_hits, disk_misses, disk_stores, disk_rejected, disk_evicted, disk_lock_waits;
  int64_t disk_read_bytes, disk_written_bytes, disk_saved_ns;
} tt_counters;
void tt_get_counters(tt_counters *out_counters);
void tt_count_fallback(void);

typedef struct tt_memory_stats {
  int64_t allocated, allocated_peak;             // bytes of live storages
  int64_t allocated_total, freed_total;          // bytes of storages made, freed, since the last reset
  int64_t reserved, reserved_peak;               // bytes of PJRT buffers, pending results included
  int64_t allocation_count, free_count, active;  // storages: since the last reset, and now
  int64_t limit;                                 // the budget; initialises nothing: 0 before the client exists
  int64_t oom_count;
} tt_memory_stats;
TT_MUST_USE tt_status *tt_get_memory_stats(int32_t device, tt_memory_stats *out_stats);
TT_MUST_USE tt_status *tt_reset_peak_memory(int32_t device);
TT_MUST_USE tt_status *tt_reset_accumulated_memory(int32_t device);  // totals and counts begin at 0 again
TT_MUST_USE tt_status *tt_empty_cache(
    void);  // forgets interned scalars and what else is only kept for speed: XLA:CPU's free memory
// Frees every compiled operator in memory. Values and tensors stay valid. The compile cache on disk stays:
// tt_compile_cache_inspect() clears that.
TT_MUST_USE tt_status *tt_clear_compile_cache(void);

// ======== the compile cache on disk ========
// What the environment chooses: paths into buffers of `size` bytes ("": none, or too long), and the bound in bytes.
void tt_compile_cache_settings(char *out_directory, char *out_shared, size_t size, int64_t *out_limit);
typedef enum tt_cache_action {
  TT_CACHE_COUNT,   // looks at names and sizes
  TT_CACHE_VERIFY,  // reads every entry
  TT_CACHE_REPAIR,  // and removes those that are bad, and what a dead writer left
  TT_CACHE_CLEAR,   // removes everything that is the cache's, nothing else
} tt_cache_action;
typedef struct tt_cache_summary {
  int64_t entries, bytes;  // before anything was removed
  int64_t bad;             // damaged or foreign; 0 unless they were read
  int64_t unfinished;      // files being written, now or by somebody who died
  int64_t removed;
  int64_t oldest, newest;  // last use, seconds since 1970; 0: no entry
} tt_cache_summary;
// Needs no plugin, and may run while processes use the directory. `report` (NULL is allowed) hears of each bad entry.
// An error: the directory can't be read. One that doesn't exist is empty.
TT_MUST_USE tt_status *tt_compile_cache_inspect(const char *directory, tt_cache_action action,
                                                void (*report)(void *context, const char *file, const char *fault),
                                                void *context, tt_cache_summary *out_summary);

// Trace spans, as Chrome's trace JSON.
void tt_trace_start_all(void);
TT_MUST_USE tt_status *tt_trace_stop_to(const char *path);

// PyTorch numbers devices with 8 bits.
enum { TT_MAX_DEVICES = 128 };

// ======== storages ========
// The memory behind tensors: `nbytes` bytes at an address in a reserved, inaccessible range. Its contents are an
// immutable value that operators replace.
typedef struct tt_storage tt_storage;
// Contents undefined (read as zeros). Initialises. The result is owned by the caller.
TT_MUST_USE tt_status *tt_storage_create(int32_t device, size_t nbytes, tt_storage **out_storage);
void tt_storage_free(tt_storage *storage);  // NULL is allowed; safe in a forked child
void *tt_storage_address(const tt_storage *storage);
size_t tt_storage_nbytes(const tt_storage *storage);
int32_t tt_storage_device(const tt_storage *storage);
// Fused mode: whether the program that makes its value is only recorded.
bool tt_storage_is_deferred(const tt_storage *storage);
// Grows or shrinks, keeping the common prefix. The address changes.
TT_MUST_USE tt_status *tt_storage_resize(tt_storage *storage, size_t nbytes);

// ======== calls ========
typedef struct tt_number {
  tt_dtype type;  // TT_PRED, TT_S64, TT_F64 or TT_C128; TT_U64 for what is above INT64_MAX
  union {
    int64_t i;  // TT_PRED: 0 or 1; TT_U64: its bits
    double f[2];
  } u;
} tt_number;

typedef struct tt_tensor {
  tt_storage *storage;  // borrowed; NULL: a 0-d CPU tensor, whose value is `host`
  const int64_t *sizes, *strides;
  int64_t offset;  // elements
  int32_t ndim;
  uint8_t dtype;    // tt_dtype
  bool is_wrapped;  // a Python number
  bool is_none;     // in a list of optional tensors
  tt_number host;
} tt_tensor;

typedef enum tt_arg_tag {
  TT_ARG_NONE,
  TT_ARG_TENSOR,
  TT_ARG_TENSORS,
  TT_ARG_NUMBER,  // a Scalar, float, or int that is an operand
  TT_ARG_NUMBERS,
  TT_ARG_INT,  // structural: int, bool, ScalarType (as tt_dtype)
  TT_ARG_INTS,
  TT_ARG_FLOATS,  // structural
  TT_ARG_STRING,
  TT_ARG_GENERATOR,
  TT_ARG_IGNORED,  // layout, device, pin_memory, non_blocking
} tt_arg_tag;

typedef struct tt_generator tt_generator;

typedef struct tt_arg {
  uint8_t tag;     // tt_arg_tag
  uint32_t count;  // of a list
  union {
    tt_tensor tensor;
    const tt_tensor *tensors;
    tt_number number;
    const tt_number *numbers;
    int64_t i;
    const int64_t *ints;
    const double *floats;
    const char *string;
    tt_generator *generator;
  } u;
} tt_arg;

// What the schema says of an argument.
typedef enum tt_arg_kind {
  TT_KIND_TENSOR,
  TT_KIND_TENSORS,
  TT_KIND_NUMBER,   // Scalar
  TT_KIND_NUMBERS,  // Scalar[]
  TT_KIND_FLOAT,
  TT_KIND_FLOATS,
  TT_KIND_INT,
  TT_KIND_INTS,
  TT_KIND_BOOL,
  TT_KIND_DTYPE,
  TT_KIND_STRING,
  TT_KIND_GENERATOR,
  TT_KIND_OTHER
} tt_arg_kind;
typedef struct tt_arg_schema {
  const char *name;
  tt_arg_kind kind;
  bool has_default;  // of a number or float
  tt_number default_value;
  bool is_out;  // an out= argument
} tt_arg_schema;
typedef struct tt_op_schema {
  const char *name;  // the registered form: "aten::add_.Tensor"
  int32_t arg_count;
  const tt_arg_schema *args;
  int32_t return_count;
  const int32_t *return_alias;  // index of the argument that return i is (in-place, out=), or -1
  const bool *return_is_list;
  int32_t mutated_list;  // a list argument that an in-place form without returns writes, or -1
  bool is_generated;     // PyTorch makes this out= form of the functional one: it takes the result's dtype alone
} tt_op_schema;

// An operator form bound to its rule. Lives as long as the process.
typedef struct tt_op tt_op;
// `rule` is the functional name that has the rule ("aten::add.Tensor"). Copies the schema. NULL if there is none.
tt_op *tt_op_register(const char *rule, const tt_op_schema *schema);
// Whether argument i of the op travels as a number (an operand) rather than structurally.
bool tt_op_arg_is_operand(const tt_op *op, int32_t i);
// Whether argument i must not share memory with a tensor that the op writes.
bool tt_op_arg_is_apart(const tt_op *op, int32_t i);
// The list of tensors that an op without results writes; -1: none.
int32_t tt_op_mutated_list(const tt_op *op);
// The names that have rules, in table order; NULL past the end.
const char *tt_rule_name_at(int32_t index);
// What TPUs lack, an entry each: the beginning of rules' names, device kinds (NULL: all), what it is. False past the
// end.
bool tt_tpu_limit_at(int32_t index, const char **out_rules, const char **out_kinds, const char **out_what);

typedef enum tt_result_kind {
  TT_RESULT_NEW,    // a new tensor over a new storage
  TT_RESULT_ALIAS,  // the argument `alias`
  TT_RESULT_NONE,   // an undefined tensor
} tt_result_kind;
typedef struct tt_result {
  uint8_t kind;  // tt_result_kind
  uint8_t dtype;
  bool in_list;      // an element of a Tensor[] result
  int16_t position;  // which result of the schema
  int16_t alias;
  int32_t ndim;
  const int64_t *sizes, *strides;
  size_t nbytes;
} tt_result;

enum { TT_INLINE_RESULTS = 16 };
typedef struct tt_results {
  int32_t count;
  const tt_result *results;  // owned by the op cache
  struct tt_record *pin;     // keeps `results` alive until tt_results_release
  tt_storage **storages;     // [count]; owned by the caller for TT_RESULT_NEW, else NULL
  tt_storage *inline_storages[TT_INLINE_RESULTS];
  // The out= argument must first be resized to these sizes and strides (NULL: contiguous), and the call made again;
  // then count is 0.
  int32_t resize_arg;  // -1: no
  int32_t resize_ndim;
  const int64_t *resize_sizes, *resize_strides;
} tt_results;
// Runs an operator: all tensors on one device. On a miss it builds and compiles first. Initialises.
TT_MUST_USE tt_status *tt_call(tt_op *op, const tt_arg *args, int32_t count, int32_t device, tt_results *out_results);
// Frees what `results` holds but not the storages, which are the caller's.
void tt_results_release(tt_results *results);

// ======== copies ========
// Between a tensor on a device and dense row-major host memory of the same sizes and dtype. Writing goes through
// the view. The host memory is free to change after the call. Initialise.
TT_MUST_USE tt_status *tt_copy_from_host(const tt_tensor *destination, const void *data);
// Waits for the value, raises pending errors.
TT_MUST_USE tt_status *tt_copy_to_host(const tt_tensor *source, void *data);
// Device to device, with conversion and broadcasting of `source` to the destination's sizes. Between two devices too.
TT_MUST_USE tt_status *tt_copy(const tt_tensor *destination, const tt_tensor *source);

// ======== random generators ========
TT_MUST_USE tt_status *tt_generator_create(int32_t device, tt_generator **out_generator);
void tt_generator_free(tt_generator *generator);
tt_generator *tt_default_generator(int32_t device);  // borrowed; NULL for a device that does not exist
void tt_generator_set(tt_generator *generator, uint64_t seed, uint64_t offset);
void tt_generator_get(tt_generator *generator, uint64_t *out_seed, uint64_t *out_offset);

// ======== events ========
typedef struct tt_event tt_event;
// An event that completes with the last program enqueued on `device` before tt_event_record().
TT_MUST_USE tt_status *tt_event_create(tt_event **out_event);
void tt_event_free(tt_event *event);
TT_MUST_USE tt_status *tt_event_record(tt_event *event, int32_t device);
bool tt_event_query(tt_event *event);  // completed (or never recorded)
TT_MUST_USE tt_status *tt_event_synchronize(tt_event *event);
// Milliseconds between the completions. Error if either was not recorded; waits for both.
TT_MUST_USE tt_status *tt_event_elapsed(tt_event *start, tt_event *end, double *out_ms);

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif  // TORCHTPU_TORCHTPU_H
