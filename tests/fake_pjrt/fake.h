// An instrumented PJRT plugin without XLA, for tests. Programs don't compute: the results are zeros of the types that
// the MLIR text of `main` declares. It counts what lives, injects faults on demand, and is stricter than XLA: Execute
// compares element types and dimensions, not sizes. Thread-safe.
//
// Exported besides GetPjrtApi:
//   int fake_pjrt_control(const char *key, int64_t value);   0, or -1 for an unknown key
//   int64_t fake_pjrt_get(const char *name);                 -1 for an unknown name
//
// Keys of fake_pjrt_control; each without a function's name can be preset in the environment, as FAKE_PJRT_TPU=1:
//   reset                   every setting back to its default, counts of calls to 0 (the value is ignored)
//   major, minor, struct_size, null_api   what GetPjrtApi answers next time (0: the truth)
//   missing:<function>      1: the function is NULL in the table
//   fail:<function>         N: the Nth call from now fails once; -1: every call fails
//   fail_code               the PJRT_Error_Code of injected errors (13, INTERNAL)
//   fail_execution          N: the Nth execution from now fails in its events, not in Execute; -1: every one
//   lie:<function>          1: the function succeeds without giving what it should (NULL, 0 or an absurd count)
//   devices                 how many devices where the client's option cpu_device_count is absent (1)
//   tpu                     1: the platform is "tpu" and buffers have no host pointer; 5, 6, 7: the device's kind is
//                           that of a TPU v5e, v6e, 7x
//   ones                    1: results are ones (true), not zeros, so that no device assert fails
//   execute_delay_us, compile_delay_us, transfer_delay_us   a delay makes executions and transfers asynchronous
//   done_delay_us           a program's completion is told so long after its results are there
//   unknown_options         1: no compile option whose name has "emitters" in it is known; 2: none is
//   memory_limit            bytes per client; more is RESOURCE_EXHAUSTED (0: none)
//   temp_bytes              what GetCompiledMemoryStats says
// Names of fake_pjrt_get:
//   clients, buffers, buffer_bytes, events, errors, executables, loaded_executables, topologies, serialized   alive now
//   compiles, deserializes, executes, donations, h2d_bytes, d2h_bytes   since load or reset
//   options                 env_option_overrides in the last compilation
//   calls:<function>        since load or reset
#ifndef TORCHTPU_TESTS_FAKE_H
#define TORCHTPU_TESTS_FAKE_H

#include <pthread.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>

#include "pjrt_c_api.h"

#define FAKE_EXPORT __attribute__((visibility("default")))

// clang-format off
#define FAKE_FUNCTIONS(X)                            \
  X(PJRT_Error_Destroy)                              \
  X(PJRT_Error_Message)                              \
  X(PJRT_Error_GetCode)                              \
  X(PJRT_Plugin_Initialize)                          \
  X(PJRT_Plugin_Attributes)                          \
  X(PJRT_Event_Destroy)                              \
  X(PJRT_Event_IsReady)                              \
  X(PJRT_Event_Error)                                \
  X(PJRT_Event_Await)                                \
  X(PJRT_Event_OnReady)                              \
  X(PJRT_Client_Create)                              \
  X(PJRT_Client_Destroy)                             \
  X(PJRT_Client_PlatformName)                        \
  X(PJRT_Client_ProcessIndex)                        \
  X(PJRT_Client_PlatformVersion)                     \
  X(PJRT_Client_Devices)                             \
  X(PJRT_Client_AddressableDevices)                  \
  X(PJRT_Client_Compile)                             \
  X(PJRT_Client_BufferFromHostBuffer)                \
  X(PJRT_DeviceDescription_Id)                       \
  X(PJRT_DeviceDescription_ProcessIndex)             \
  X(PJRT_DeviceDescription_Attributes)               \
  X(PJRT_DeviceDescription_Kind)                     \
  X(PJRT_DeviceDescription_DebugString)              \
  X(PJRT_DeviceDescription_ToString)                 \
  X(PJRT_Device_GetDescription)                      \
  X(PJRT_Device_IsAddressable)                       \
  X(PJRT_Device_LocalHardwareId)                     \
  X(PJRT_Device_MemoryStats)                         \
  X(PJRT_Executable_Destroy)                         \
  X(PJRT_Executable_Name)                            \
  X(PJRT_Executable_NumReplicas)                     \
  X(PJRT_Executable_NumPartitions)                   \
  X(PJRT_Executable_NumOutputs)                      \
  X(PJRT_Executable_Serialize)                       \
  X(PJRT_LoadedExecutable_Destroy)                   \
  X(PJRT_LoadedExecutable_GetExecutable)             \
  X(PJRT_LoadedExecutable_AddressableDevices)        \
  X(PJRT_LoadedExecutable_Execute)                   \
  X(PJRT_Executable_DeserializeAndLoad)              \
  X(PJRT_Buffer_Destroy)                             \
  X(PJRT_Buffer_ElementType)                         \
  X(PJRT_Buffer_Dimensions)                          \
  X(PJRT_Buffer_UnpaddedDimensions)                  \
  X(PJRT_Buffer_OnDeviceSizeInBytes)                 \
  X(PJRT_Buffer_Device)                              \
  X(PJRT_Buffer_Delete)                              \
  X(PJRT_Buffer_IsDeleted)                           \
  X(PJRT_Buffer_CopyToDevice)                        \
  X(PJRT_Buffer_ToHostBuffer)                        \
  X(PJRT_Buffer_IsOnCpu)                             \
  X(PJRT_Buffer_ReadyEvent)                          \
  X(PJRT_Buffer_UnsafePointer)                       \
  X(PJRT_TopologyDescription_Create)                 \
  X(PJRT_TopologyDescription_Destroy)                \
  X(PJRT_TopologyDescription_PlatformName)           \
  X(PJRT_TopologyDescription_GetDeviceDescriptions)  \
  X(PJRT_Compile)                                    \
  X(PJRT_Executable_OutputElementTypes)              \
  X(PJRT_Executable_GetCompiledMemoryStats)
// clang-format on

typedef enum fake_function {
#define FAKE_ENUM(name) FAKE_##name,
  FAKE_FUNCTIONS(FAKE_ENUM)
#undef FAKE_ENUM
      FAKE_FUNCTION_COUNT
} fake_function;

// The implementations: fake_PJRT_Error_Destroy and so on.
#define FAKE_DECLARE(name) extern name fake_##name;
FAKE_FUNCTIONS(FAKE_DECLARE)
#undef FAKE_DECLARE

// ---- control ----
typedef struct fake_settings {
  atomic_llong major, minor, struct_size, null_api, fail_code, fail_execution, devices, tpu, ones, execute_delay_us,
      compile_delay_us, transfer_delay_us, done_delay_us, memory_limit, temp_bytes, unknown_options;
} fake_settings;
extern fake_settings fake_set;

typedef struct fake_counts {
  atomic_llong clients, buffers, buffer_bytes, events, errors, executables, loaded_executables, topologies, serialized,
      compiles, deserializes, executes, donations, h2d_bytes, d2h_bytes, options;
} fake_counts;
extern fake_counts fake_count;

// Counts the call; the injected error, or NULL. Returned first thing (destructors: last thing) by each function.
PJRT_Error *fake_enter(fake_function function);
bool fake_lies(fake_function function);
bool fake_execution_fails(void);
PJRT_Error *fake_error(PJRT_Error_Code code, const char *format, ...) __attribute__((format(printf, 2, 3)));

#define ENTER(name)                                  \
  do {                                               \
    PJRT_Error *injected_ = fake_enter(FAKE_##name); \
    if (injected_) {                                 \
      return injected_;                              \
    }                                                \
  } while (0)

// ---- events: shared states, and handles to them ----
typedef struct fake_state fake_state;
fake_state *fake_state_new(void);  // pending, one reference
fake_state *fake_state_ref(fake_state *state);
void fake_state_unref(fake_state *state);
void fake_state_finish(fake_state *state, PJRT_Error_Code code, const char *message);
void fake_state_await(fake_state *state);
bool fake_state_ready(fake_state *state);
PJRT_Error *fake_state_error(fake_state *state);     // a new error, NULL for none; the state is ready
PJRT_Error_Code fake_state_code(fake_state *state);  // of a ready state
PJRT_Event *fake_event_new(fake_state *state);       // takes its own reference

// ---- programs ----
enum { FAKE_MAX_RANK = 64 };
typedef struct fake_type {
  PJRT_Buffer_Type type;
  size_t rank, size;
  int64_t dims[FAKE_MAX_RANK];
  int alias;   // of a parameter: the result it aliases, -1 none
  bool donor;  // of a parameter: aliased, or a buffer donor
} fake_type;

typedef struct fake_program {
  atomic_int references;
  char *text;
  size_t text_size;
  int device_id;
  size_t parameter_count, result_count;
  fake_type *parameters, *results;
  PJRT_Buffer_Type *result_types;
} fake_program;

PJRT_Error *fake_program_new(const char *text, size_t size, const char *options, size_t options_size,
                             fake_program **out_program);
fake_program *fake_program_ref(fake_program *program);
void fake_program_unref(fake_program *program);
// The global id in the options' device assignment, 0 without one; an error for options that XLA would die of.
PJRT_Error *fake_options_device(const char *options, size_t size, int *out_device);
size_t fake_type_bytes(PJRT_Buffer_Type type);  // 0: unknown

// ---- clients ----
typedef struct fake_task {
  struct fake_task *next;
  int64_t delay_us;
  void (*run)(struct fake_task *task);  // frees the task
} fake_task;

struct PJRT_DeviceDescription {
  int id;
  char name[32];
};

struct PJRT_Device {
  PJRT_Client *client;
  PJRT_DeviceDescription description;
};

struct PJRT_Client {
  size_t device_count;
  PJRT_Device *devices, **device_list;
  atomic_llong bytes;
  pthread_mutex_t lock;  // guards the queue
  pthread_cond_t wake;
  pthread_t worker;
  bool worker_runs, closing, busy;  // busy: a task runs
  fake_task *first, *last;
};

void fake_client_enqueue(PJRT_Client *client, fake_task *task);
bool fake_client_idle(PJRT_Client *client);  // no task waits or runs
void fake_sleep_us(int64_t us);
PJRT_Device *fake_client_device(PJRT_Client *client, int id);  // NULL: none

struct PJRT_Executable {
  fake_program *program;
};

struct PJRT_LoadedExecutable {
  fake_program *program;
  PJRT_Device *device;
};

// ---- buffers ----
typedef struct fake_memory {
  atomic_int references;
  PJRT_Client *client;
  size_t size;
  void *data;  // never NULL
} fake_memory;

struct PJRT_Buffer {
  pthread_mutex_t lock;  // guards memory
  PJRT_Device *device;
  PJRT_Buffer_Type type;
  size_t rank;
  int64_t dims[FAKE_MAX_RANK];
  size_t size;
  fake_memory *memory;  // NULL once deleted or donated
  fake_state *ready;
};

// Zeroed memory and a pending state; RESOURCE_EXHAUSTED over the limit.
PJRT_Error *fake_buffer_new(PJRT_Device *device, const fake_type *type, PJRT_Buffer **out_buffer);
// The same over memory that exists; takes the reference.
PJRT_Buffer *fake_buffer_over(PJRT_Device *device, const fake_type *type, fake_memory *memory);
void fake_buffer_free(PJRT_Buffer *buffer);
fake_memory *fake_buffer_memory(PJRT_Buffer *buffer);  // a new reference, NULL if deleted
fake_memory *fake_buffer_take(PJRT_Buffer *buffer);    // the buffer's reference, NULL if deleted
void fake_memory_unref(fake_memory *memory);

#endif  // TORCHTPU_TESTS_FAKE_H
