#include <stdlib.h>
#include <string.h>

#include "pjrt/host_pool.h"
#include "pjrt/internal.h"

static void destroy_loaded(const PJRT_Api *api, PJRT_LoadedExecutable *loaded) {
  PJRT_LoadedExecutable_Destroy_Args args = {.struct_size = PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE,
                                             .executable = loaded};
  tt_pjrt_drop_error(api, api->PJRT_LoadedExecutable_Destroy(&args));
}

static void destroy_executable(const PJRT_Api *api, PJRT_Executable *executable) {
  PJRT_Executable_Destroy_Args args = {.struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE,
                                       .executable = executable};
  tt_pjrt_drop_error(api, api->PJRT_Executable_Destroy(&args));
}

void tt_pjrt_executable_free(tt_pjrt_client *client, tt_pjrt_executable *executable) {
  if (!executable) {
    return;
  }
  if (executable->executable) {
    destroy_executable(client->api, executable->executable);
  }
  if (executable->loaded) {
    destroy_loaded(client->api, executable->loaded);
  }
  free(executable);
}

void tt_pjrt_memory_stats(const tt_pjrt_table *table, PJRT_Executable *executable,
                          PJRT_Executable_GetCompiledMemoryStats_Args *out_stats) {
  PJRT_Executable_GetCompiledMemoryStats_Args zero = {.struct_size = table->memory_stats_size,
                                                      .executable = executable};
  *out_stats = zero;
  if (table->api.PJRT_Executable_GetCompiledMemoryStats) {
    PJRT_Error *error = table->api.PJRT_Executable_GetCompiledMemoryStats(out_stats);
    if (error) {
      tt_pjrt_drop_error(&table->api, error);
      *out_stats = zero;
    }
  }
}

static tt_status *find_device(tt_pjrt_client *client, tt_pjrt_executable *executable) {
  PJRT_LoadedExecutable_AddressableDevices_Args args = {
      .struct_size = PJRT_LoadedExecutable_AddressableDevices_Args_STRUCT_SIZE, .executable = executable->loaded};
  TT_PJRT_TRY(client->api, client->api->PJRT_LoadedExecutable_AddressableDevices(&args), "devices of an executable");
  executable->device = -1;
  if (args.num_addressable_devices == 1 && args.addressable_devices) {
    for (int32_t i = 0; i < client->device_count; i++) {
      if (client->devices[i].device == args.addressable_devices[0]) {
        executable->device = i;
      }
    }
  }
  return NULL;
}

static tt_status *describe(tt_pjrt_client *client, tt_pjrt_executable *executable) {
  const PJRT_Api *api = client->api;
  PJRT_LoadedExecutable_GetExecutable_Args get = {.struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
                                                  .loaded_executable = executable->loaded};
  TT_PJRT_TRY(api, api->PJRT_LoadedExecutable_GetExecutable(&get), "executable");
  if (!get.executable) {
    return tt_error(TT_ERR_RUNTIME, "the PJRT plugin gave no executable");
  }
  executable->executable = get.executable;
  PJRT_Executable_NumOutputs_Args outputs = {.struct_size = PJRT_Executable_NumOutputs_Args_STRUCT_SIZE,
                                             .executable = get.executable};
  TT_PJRT_TRY(api, api->PJRT_Executable_NumOutputs(&outputs), "number of results");
  if (outputs.num_outputs > TT_PJRT_MAX_RESULTS) {
    return tt_error(TT_ERR_RUNTIME, "the PJRT plugin says that an executable has %zu results", outputs.num_outputs);
  }
  executable->result_count = (int32_t)outputs.num_outputs;
  TT_TRY(find_device(client, executable));
  PJRT_Executable_GetCompiledMemoryStats_Args stats;
  tt_pjrt_memory_stats(client->table, get.executable, &stats);
  executable->temp_bytes = stats.temp_size_in_bytes > 0 ? stats.temp_size_in_bytes : 0;
  return NULL;
}

// Takes ownership of `loaded`.
static tt_status *wrap(tt_pjrt_client *client, PJRT_LoadedExecutable *loaded, bool may_donate,
                       tt_pjrt_executable **out_executable) {
  if (!loaded) {
    return tt_error(TT_ERR_RUNTIME, "the PJRT plugin gave no executable");
  }
  tt_pjrt_executable *executable = calloc(1, sizeof *executable);
  if (!executable) {
    destroy_loaded(client->api, loaded);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  executable->loaded = loaded;
  executable->may_donate = may_donate;
  tt_status *status = describe(client, executable);
  if (status) {
    tt_pjrt_executable_free(client, executable);
    return status;
  }
  *out_executable = executable;
  return NULL;
}

// Whether a program names a donation at all: "tf.aliasing_output", "jax.buffer_donor", "mhlo.input_output_alias".
static bool mentions_donation(const char *mlir, size_t size) {
  return memmem(mlir, size, "alias", 5) || memmem(mlir, size, "donor", 5);
}

enum { MOST_FOR_ONE_PROCESSOR = 1 << 17 };

// Elements of the largest tensor type in the text.
static int64_t largest_tensor(const char *mlir, size_t size) {
  int64_t largest = 0;
  const char *end = mlir + size, *at = mlir;
  while ((at = memmem(at, (size_t)(end - at), "tensor<", 7))) {
    int64_t count = 1, dim = 0;
    for (at += 7; at < end && ((*at >= '0' && *at <= '9') || *at == 'x'); at++) {
      if (*at == 'x') {
        count = dim && count > INT64_MAX / dim ? INT64_MAX : count * dim;
        dim = 0;
      } else if (dim < INT64_MAX / 16) {
        dim = 10 * dim + (*at - '0');
      }
    }
    largest = count > largest ? count : largest;
  }
  return largest;
}

tt_status *tt_pjrt_compile(tt_pjrt_client *client, const char *mlir, size_t size,
                           const tt_pjrt_compile_options *options, int32_t device,
                           tt_pjrt_executable **out_executable) {
  *out_executable = NULL;
  TT_TRY(tt_pjrt_check_device(client, device));
  tt_pjrt_job job;
  TT_TRY(tt_pjrt_job_init(&job, mlir, size, options, client->devices[device].id));
  PJRT_Client_Compile_Args args = {.struct_size = PJRT_Client_Compile_Args_STRUCT_SIZE,
                                   .client = client->client,
                                   .program = &job.program,
                                   .compile_options = job.options,
                                   .compile_options_size = job.options_size};
  // XLA:CPU splits loops over a few 100 KB among the processors that it may use, and waking another thread for so
  // little takes longer than it saves.
  tt_host_pool_one_processor(tt_pjrt_client_is_cpu(client) && largest_tensor(mlir, size) <= MOST_FOR_ONE_PROCESSOR);
  tt_status *status = tt_pjrt_take_error(client->api, client->api->PJRT_Client_Compile(&args), "compile");
  tt_host_pool_one_processor(false);
  tt_pjrt_job_free(&job);
  TT_TRY(status);
  return wrap(client, args.executable, mentions_donation(mlir, size), out_executable);
}

int32_t tt_pjrt_executable_result_count(const tt_pjrt_executable *executable) { return executable->result_count; }
int64_t tt_pjrt_executable_temp_bytes(const tt_pjrt_executable *executable) { return executable->temp_bytes; }
int32_t tt_pjrt_executable_device(const tt_pjrt_executable *executable) { return executable->device; }

tt_status *tt_pjrt_serialize(const PJRT_Api *api, PJRT_Executable *executable, void **out_data, size_t *out_size) {
  *out_data = NULL;
  *out_size = 0;
  if (!api->PJRT_Executable_Serialize) {
    return tt_error(TT_ERR_NOT_IMPLEMENTED, "the PJRT plugin can't serialize executables");
  }
  PJRT_Executable_Serialize_Args args = {.struct_size = PJRT_Executable_Serialize_Args_STRUCT_SIZE,
                                         .executable = executable};
  TT_PJRT_TRY(api, api->PJRT_Executable_Serialize(&args), "serialize");
  tt_status *status = NULL;
  if (!args.serialized_bytes || !args.serialized_bytes_size || args.serialized_bytes_size > PTRDIFF_MAX) {
    status = tt_error(TT_ERR_RUNTIME, "serialize: the PJRT plugin gave no bytes");
  } else if (!(*out_data = malloc(args.serialized_bytes_size))) {
    status = tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  } else {
    memcpy(*out_data, args.serialized_bytes, args.serialized_bytes_size);
    *out_size = args.serialized_bytes_size;
  }
  if (args.serialized_executable_deleter && args.serialized_executable) {
    args.serialized_executable_deleter(args.serialized_executable);
  }
  return status;
}

static bool is_feature_character(char c) {
  return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || strchr("+-,._", c);
}

// XLA:CPU's loader compares the features of the compiler's target with those of the host, and takes LLVM's tuning
// preferences ("+prefer-no-gather"), which no host reports, for features: two long lines on stderr at each load, on the
// machine that compiled it. It adds them wherever the list has AVX-512, so a minus takes both out of the comparison:
// the machine code is there already, and whether the host is another is what the compile cache's key says.
static void quiet_loader(char *data, size_t size) {
  static const char preference[] = ",+prefer-";
  char *list = memmem(data, size, preference, sizeof preference - 1), *end = list;
  if (!list) {
    return;
  }
  while (list > data && list[-1] && is_feature_character(list[-1])) {
    list--;
  }
  for (; end < data + size && *end && is_feature_character(*end); end++) {
  }
  for (char *at = list; at < end; at++) {
    size_t left = (size_t)(end - at);
    if (*at == '+' && ((left > 7 && !memcmp(at, "+avx512", 7)) || (left > 8 && !memcmp(at, "+prefer-", 8)))) {
      *at = '-';
    }
  }
}

tt_status *tt_pjrt_executable_serialize(tt_pjrt_client *client, tt_pjrt_executable *executable, void **out_data,
                                        size_t *out_size) {
  TT_TRY(tt_pjrt_serialize(client->api, executable->executable, out_data, out_size));
  if (client->is_cpu) {
    quiet_loader(*out_data, *out_size);
  }
  return NULL;
}

static tt_status *deserialize(tt_pjrt_client *client, const void *data, size_t size, const char *options,
                              size_t options_size, tt_pjrt_executable **out_executable) {
  if (!data || !size) {
    return tt_error(TT_ERR_INTERNAL, "deserialize: no bytes");
  }
  if (!client->api->PJRT_Executable_DeserializeAndLoad) {
    return tt_error(TT_ERR_NOT_IMPLEMENTED, "the PJRT plugin can't load serialized executables");
  }
  PJRT_Executable_DeserializeAndLoad_Args args = {.struct_size = client->table->deserialize_size,
                                                  .client = client->client,
                                                  .serialized_executable = data,
                                                  .serialized_executable_size = size,
                                                  .overridden_serialized_compile_options = options,
                                                  .overridden_serialized_compile_options_size = options_size};
  TT_PJRT_TRY(client->api, client->api->PJRT_Executable_DeserializeAndLoad(&args), "deserialize");
  return wrap(client, args.loaded_executable, true, out_executable);
}

tt_status *tt_pjrt_executable_deserialize(tt_pjrt_client *client, const void *data, size_t size,
                                          tt_pjrt_executable **out_executable) {
  *out_executable = NULL;
  return deserialize(client, data, size, NULL, 0, out_executable);
}

tt_status *tt_pjrt_executable_deserialize_on(tt_pjrt_client *client, const void *data, size_t size,
                                             const tt_pjrt_compile_options *options, int32_t device,
                                             tt_pjrt_executable **out_executable) {
  *out_executable = NULL;
  TT_TRY(tt_pjrt_check_device(client, device));
  char *encoded;
  size_t encoded_size;
  TT_TRY(tt_pjrt_encode_options(options, client->devices[device].id, &encoded, &encoded_size));
  tt_pjrt_executable *executable = NULL;
  tt_status *status = deserialize(client, data, size, encoded, encoded_size, &executable);
  free(encoded);
  TT_TRY(status);
  if (executable->device != device) {
    status = tt_error(TT_ERR_NOT_IMPLEMENTED, "deserialize: the executable is for device %d and can't be moved to %d",
                      executable->device, device);
    tt_pjrt_executable_free(client, executable);
    return status;
  }
  *out_executable = executable;
  return NULL;
}

void tt_pjrt_executable_restore(tt_pjrt_executable *executable, const char *mlir, size_t size, int64_t temp_bytes) {
  executable->may_donate = mentions_donation(mlir, size);
  executable->temp_bytes = executable->temp_bytes ? executable->temp_bytes : temp_bytes;
}
