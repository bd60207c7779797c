#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

static tt_status *check_functions(const tt_pjrt_plugin *plugin) {
  const PJRT_Api *api = &plugin->table->api;
  if (!api->PJRT_TopologyDescription_Create || !api->PJRT_TopologyDescription_Destroy ||
      !api->PJRT_TopologyDescription_GetDeviceDescriptions || !api->PJRT_Compile) {
    return tt_error(TT_ERR_NOT_IMPLEMENTED, "the PJRT plugin %s can't compile ahead of time", plugin->path);
  }
  return NULL;
}

static tt_status *count_devices(tt_pjrt_topology *topology) {
  const PJRT_Api *api = &topology->table->api;
  PJRT_TopologyDescription_GetDeviceDescriptions_Args args = {
      .struct_size = PJRT_TopologyDescription_GetDeviceDescriptions_Args_STRUCT_SIZE, .topology = topology->topology};
  TT_PJRT_TRY(api, api->PJRT_TopologyDescription_GetDeviceDescriptions(&args), "devices of a topology");
  if (!args.num_descriptions || args.num_descriptions > TT_PJRT_MAX_DEVICES || !args.descriptions) {
    return tt_error(TT_ERR_RUNTIME, "the PJRT plugin gave a topology of %zu devices", args.num_descriptions);
  }
  topology->device_count = (int32_t)args.num_descriptions;
  return NULL;
}

tt_status *tt_pjrt_topology_create(tt_pjrt_plugin *plugin, const char *name, tt_pjrt_topology **out_topology) {
  *out_topology = NULL;
  TT_TRY(check_functions(plugin));
  const PJRT_Api *api = &plugin->table->api;
  tt_pjrt_topology *topology = calloc(1, sizeof *topology);
  if (!topology) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  topology->table = plugin->table;
  PJRT_TopologyDescription_Create_Args args = {.struct_size = PJRT_TopologyDescription_Create_Args_STRUCT_SIZE,
                                               .topology_name = name,
                                               .topology_name_size = strlen(name)};
  tt_status *status = tt_pjrt_take_error(api, api->PJRT_TopologyDescription_Create(&args), "topology");
  if (!status && !args.topology) {
    status = tt_error(TT_ERR_RUNTIME, "the PJRT plugin gave no topology");
  }
  if (!status) {
    topology->topology = args.topology;
    status = count_devices(topology);
  }
  if (status) {
    tt_pjrt_topology_free(topology);
    return tt_status_prefix(status, "%s", name);
  }
  *out_topology = topology;
  return NULL;
}

void tt_pjrt_topology_free(tt_pjrt_topology *topology) {
  if (topology && topology->topology) {
    const PJRT_Api *api = &topology->table->api;
    PJRT_TopologyDescription_Destroy_Args args = {.struct_size = PJRT_TopologyDescription_Destroy_Args_STRUCT_SIZE,
                                                  .topology = topology->topology};
    tt_pjrt_drop_error(api, api->PJRT_TopologyDescription_Destroy(&args));
  }
  free(topology);
}

int32_t tt_pjrt_topology_device_count(const tt_pjrt_topology *topology) { return topology->device_count; }

// A plugin need not have it, nor know the program in this form: then there is none.
static tt_status *read_optimized(const PJRT_Api *api, PJRT_Executable *executable, tt_pjrt_aot_result *result) {
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE};
  PJRT_Executable_OptimizedProgram_Args args = {
      .struct_size = PJRT_Executable_OptimizedProgram_Args_STRUCT_SIZE, .executable = executable, .program = &program};
  if (!api->PJRT_Executable_OptimizedProgram) {
    return NULL;
  }
  PJRT_Error *error = api->PJRT_Executable_OptimizedProgram(&args);
  // "hlo" or "hlo_with_config"
  if (error || !program.code_size || program.code_size > PTRDIFF_MAX || program.format_size < 3 || !program.format ||
      memcmp(program.format, "hlo", 3) != 0) {
    tt_pjrt_drop_error(api, error);
    return NULL;
  }
  size_t size = program.code_size;
  result->optimized = program.code = malloc(size);
  if (!program.code) {
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  result->optimized_size = size;
  return tt_pjrt_take_error(api, api->PJRT_Executable_OptimizedProgram(&args), "optimized program");
}

tt_status *tt_pjrt_topology_compile(tt_pjrt_topology *topology, const char *mlir, size_t size,
                                    const tt_pjrt_compile_options *options, tt_pjrt_aot_result *out_result) {
  const PJRT_Api *api = &topology->table->api;
  *out_result = (tt_pjrt_aot_result){0};
  tt_pjrt_job job;
  TT_TRY(tt_pjrt_job_init(&job, mlir, size, options, 0));
  PJRT_Compile_Args args = {.struct_size = PJRT_Compile_Args_STRUCT_SIZE,
                            .topology = topology->topology,
                            .program = &job.program,
                            .compile_options = job.options,
                            .compile_options_size = job.options_size};
  tt_status *status = tt_pjrt_take_error(api, api->PJRT_Compile(&args), "compile");
  tt_pjrt_job_free(&job);
  TT_TRY(status);
  if (!args.executable) {
    return tt_error(TT_ERR_RUNTIME, "the PJRT plugin gave no executable");
  }
  PJRT_Executable_GetCompiledMemoryStats_Args stats;
  tt_pjrt_memory_stats(topology->table, args.executable, &stats);
  status = tt_pjrt_serialize(api, args.executable, &out_result->serialized, &out_result->serialized_size);
  if (!status) {
    status = read_optimized(api, args.executable, out_result);
  }
  if (!status) {
    out_result->argument_bytes = stats.argument_size_in_bytes;
    out_result->output_bytes = stats.output_size_in_bytes;
    out_result->temp_bytes = stats.temp_size_in_bytes;
    out_result->code_bytes = stats.generated_code_size_in_bytes;
  }
  PJRT_Executable_Destroy_Args destroy = {.struct_size = PJRT_Executable_Destroy_Args_STRUCT_SIZE,
                                          .executable = args.executable};
  tt_pjrt_drop_error(api, api->PJRT_Executable_Destroy(&destroy));
  if (status) {
    tt_pjrt_aot_result_free(out_result);
  }
  return status;
}

void tt_pjrt_aot_result_free(tt_pjrt_aot_result *result) {
  free(result->serialized);
  free(result->optimized);
  *result = (tt_pjrt_aot_result){0};
}
