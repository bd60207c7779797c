// Compilation, execution and topologies.
#include <stdlib.h>
#include <string.h>

#include "fake.h"

// ---- executables ----
static PJRT_Error *load(PJRT_Client *client, fake_program *program, PJRT_LoadedExecutable **out_loaded) {
  PJRT_Device *device = fake_client_device(client, program->device_id);
  if (!device) {
    PJRT_Error *error = fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "no device has the id %d", program->device_id);
    fake_program_unref(program);
    return error;
  }
  PJRT_LoadedExecutable *loaded = malloc(sizeof *loaded);
  if (!loaded) {
    abort();
  }
  *loaded = (PJRT_LoadedExecutable){.program = program, .device = device};
  atomic_fetch_add(&fake_count.loaded_executables, 1);
  *out_loaded = loaded;
  return NULL;
}

static PJRT_Executable *executable_new(fake_program *program) {
  PJRT_Executable *executable = malloc(sizeof *executable);
  if (!executable) {
    abort();
  }
  executable->program = program;
  atomic_fetch_add(&fake_count.executables, 1);
  return executable;
}

static PJRT_Error *check_format(const PJRT_Program *program) {
  if (!program || program->format_size != 4 || memcmp(program->format, "mlir", 4) || !program->code) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "only mlir is understood");
  }
  if (program->code[program->code_size]) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "the text isn't terminated: XLA would read on");
  }
  return NULL;
}

PJRT_Error *fake_PJRT_Client_Compile(PJRT_Client_Compile_Args *args) {
  ENTER(PJRT_Client_Compile);
  args->executable = NULL;
  if (fake_lies(FAKE_PJRT_Client_Compile)) {
    return NULL;
  }
  fake_sleep_us(atomic_load(&fake_set.compile_delay_us));
  fake_program *program;
  PJRT_Error *error = check_format(args->program);
  if (!error) {
    error = fake_program_new(args->program->code, args->program->code_size, args->compile_options,
                             args->compile_options_size, &program);
  }
  if (!error) {
    error = load(args->client, program, &args->executable);
  }
  atomic_fetch_add(&fake_count.compiles, !error);
  return error;
}

PJRT_Error *fake_PJRT_Executable_Destroy(PJRT_Executable_Destroy_Args *args) {
  if (args->executable) {
    fake_program_unref(args->executable->program);
    free(args->executable);
    atomic_fetch_sub(&fake_count.executables, 1);
  }
  return fake_enter(FAKE_PJRT_Executable_Destroy);
}

PJRT_Error *fake_PJRT_Executable_Name(PJRT_Executable_Name_Args *args) {
  ENTER(PJRT_Executable_Name);
  args->executable_name = "fake";
  args->executable_name_size = 4;
  return NULL;
}

PJRT_Error *fake_PJRT_Executable_NumReplicas(PJRT_Executable_NumReplicas_Args *args) {
  ENTER(PJRT_Executable_NumReplicas);
  args->num_replicas = 1;
  return NULL;
}

PJRT_Error *fake_PJRT_Executable_NumPartitions(PJRT_Executable_NumPartitions_Args *args) {
  ENTER(PJRT_Executable_NumPartitions);
  args->num_partitions = 1;
  return NULL;
}

PJRT_Error *fake_PJRT_Executable_NumOutputs(PJRT_Executable_NumOutputs_Args *args) {
  ENTER(PJRT_Executable_NumOutputs);
  args->num_outputs = fake_lies(FAKE_PJRT_Executable_NumOutputs) ? SIZE_MAX : args->executable->program->result_count;
  return NULL;
}

PJRT_Error *fake_PJRT_Executable_OutputElementTypes(PJRT_Executable_OutputElementTypes_Args *args) {
  ENTER(PJRT_Executable_OutputElementTypes);
  args->output_types = args->executable->program->result_types;
  args->num_output_types = args->executable->program->result_count;
  return NULL;
}

static int64_t total(const fake_type *types, size_t count) {
  size_t size = 0;
  for (size_t i = 0; i < count; i++) {
    size += types[i].size;
  }
  return (int64_t)size;
}

PJRT_Error *fake_PJRT_Executable_GetCompiledMemoryStats(PJRT_Executable_GetCompiledMemoryStats_Args *args) {
  ENTER(PJRT_Executable_GetCompiledMemoryStats);
  const fake_program *program = args->executable->program;
  args->generated_code_size_in_bytes = (int64_t)program->text_size;
  args->argument_size_in_bytes = total(program->parameters, program->parameter_count);
  args->output_size_in_bytes = total(program->results, program->result_count);
  args->temp_size_in_bytes = atomic_load(&fake_set.temp_bytes);
  return NULL;
}

// A serialized executable: this text, the device's id, the program's text.
#define MAGIC "fake executable\n"

struct PJRT_SerializedExecutable {
  char data[1];
};

static void free_serialized(PJRT_SerializedExecutable *serialized) {
  free(serialized);
  atomic_fetch_sub(&fake_count.serialized, 1);
}

PJRT_Error *fake_PJRT_Executable_Serialize(PJRT_Executable_Serialize_Args *args) {
  ENTER(PJRT_Executable_Serialize);
  const fake_program *program = args->executable->program;
  size_t magic = strlen(MAGIC), size = magic + sizeof program->device_id + program->text_size;
  char *data = malloc(size);
  if (!data) {
    abort();
  }
  memcpy(data, MAGIC, magic);
  memcpy(data + magic, &program->device_id, sizeof program->device_id);
  memcpy(data + magic + sizeof program->device_id, program->text, program->text_size);
  atomic_fetch_add(&fake_count.serialized, 1);
  args->serialized_executable = (PJRT_SerializedExecutable *)data;
  args->serialized_executable_deleter = free_serialized;
  bool lies = fake_lies(FAKE_PJRT_Executable_Serialize);
  args->serialized_bytes = lies ? NULL : data;
  args->serialized_bytes_size = lies ? SIZE_MAX : size;
  return NULL;
}

PJRT_Error *fake_PJRT_Executable_DeserializeAndLoad(PJRT_Executable_DeserializeAndLoad_Args *args) {
  ENTER(PJRT_Executable_DeserializeAndLoad);
  args->loaded_executable = NULL;
  if (fake_lies(FAKE_PJRT_Executable_DeserializeAndLoad)) {
    return NULL;
  }
  size_t magic = strlen(MAGIC), header = magic + sizeof(int), size = args->serialized_executable_size;
  if (size < header || memcmp(args->serialized_executable, MAGIC, magic)) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "not a serialized executable");
  }
  int device_id;
  memcpy(&device_id, args->serialized_executable + magic, sizeof device_id);
  bool longer = args->struct_size >= PJRT_Executable_DeserializeAndLoad_Args_STRUCT_SIZE;
  if (longer && args->overridden_serialized_compile_options_size) {
    PJRT_Error *error = fake_options_device(args->overridden_serialized_compile_options,
                                            args->overridden_serialized_compile_options_size, &device_id);
    if (error) {
      return error;
    }
  }
  static const char options[] = {0x1a, 4, 0x20, 1, 0x28, 1};
  fake_program *program;
  PJRT_Error *error =
      fake_program_new(args->serialized_executable + header, size - header, options, sizeof options, &program);
  if (error) {
    return error;
  }
  program->device_id = device_id;
  error = load(args->client, program, &args->loaded_executable);
  atomic_fetch_add(&fake_count.deserializes, !error);
  return error;
}

PJRT_Error *fake_PJRT_LoadedExecutable_Destroy(PJRT_LoadedExecutable_Destroy_Args *args) {
  if (args->executable) {
    fake_program_unref(args->executable->program);
    free(args->executable);
    atomic_fetch_sub(&fake_count.loaded_executables, 1);
  }
  return fake_enter(FAKE_PJRT_LoadedExecutable_Destroy);
}

PJRT_Error *fake_PJRT_LoadedExecutable_GetExecutable(PJRT_LoadedExecutable_GetExecutable_Args *args) {
  ENTER(PJRT_LoadedExecutable_GetExecutable);
  args->executable = fake_lies(FAKE_PJRT_LoadedExecutable_GetExecutable)
                         ? NULL
                         : executable_new(fake_program_ref(args->loaded_executable->program));
  return NULL;
}

PJRT_Error *fake_PJRT_LoadedExecutable_AddressableDevices(PJRT_LoadedExecutable_AddressableDevices_Args *args) {
  ENTER(PJRT_LoadedExecutable_AddressableDevices);
  args->addressable_devices = &args->executable->device;
  args->num_addressable_devices = 1;
  return NULL;
}

// ---- execution ----
typedef struct execution {
  fake_task base;
  fake_program *program;
  bool fails;
  fake_state *done;
  size_t input_count, output_count;
  fake_state **inputs, **outputs;        // references
  fake_memory **input_memory, **memory;  // references: what is read, what is written
} execution;

// The bytes of one, as a real number; a complex one is a pair of a real one and zero.
static size_t one_of(PJRT_Buffer_Type type, unsigned char out[16]) {
  memset(out, 0, 16);
  size_t size = fake_type_bytes(type);
  switch (type) {
    case PJRT_Buffer_Type_F16:
      memcpy(out, &(uint16_t){0x3c00}, 2);
      break;
    case PJRT_Buffer_Type_BF16:
      memcpy(out, &(uint16_t){0x3f80}, 2);
      break;
    case PJRT_Buffer_Type_F32:
    case PJRT_Buffer_Type_C64:
      memcpy(out, &(float){1}, 4);
      break;
    case PJRT_Buffer_Type_F64:
    case PJRT_Buffer_Type_C128:
      memcpy(out, &(double){1}, 8);
      break;
    default:
      out[0] = 1;  // integers, little-endian
  }
  return size;
}

static void fill_result(const fake_type *type, fake_memory *memory) {
  unsigned char element[16];
  size_t size = one_of(type->type, element);
  memset(memory->data, 0, memory->size);
  for (size_t at = 0; atomic_load(&fake_set.ones) && size && at + size <= memory->size; at += size) {
    memcpy((char *)memory->data + at, element, size);
  }
}

static void run_execution(fake_task *base) {
  execution *one = (execution *)base;
  PJRT_Error_Code code = one->fails ? (PJRT_Error_Code)atomic_load(&fake_set.fail_code) : PJRT_Error_Code_OK;
  const char *message = "injected failure of an execution";
  for (size_t i = 0; i < one->input_count; i++) {
    fake_state_await(one->inputs[i]);
    if (!code && (code = fake_state_code(one->inputs[i]))) {
      message = "an argument of the program has an error";
    }
    fake_state_unref(one->inputs[i]);
  }
  for (size_t i = 0; i < one->output_count; i++) {
    fill_result(&one->program->results[i], one->memory[i]);
    fake_memory_unref(one->memory[i]);
    fake_state_finish(one->outputs[i], code, message);
    fake_state_unref(one->outputs[i]);
  }
  for (size_t i = 0; i < one->input_count; i++) {
    fake_memory_unref(one->input_memory[i]);
  }
  fake_sleep_us(atomic_load(&fake_set.done_delay_us));
  fake_state_finish(one->done, code, message);
  fake_state_unref(one->done);
  fake_program_unref(one->program);
  free(one->inputs);
  free(one);
}

static bool has(const int64_t *indices, size_t count, size_t index) {
  for (size_t i = 0; i < count; i++) {
    if (indices[i] == (int64_t)index) {
      return true;
    }
  }
  return false;
}

static bool is_donated(const fake_program *program, const PJRT_ExecuteOptions *options, size_t index) {
  return program->parameters[index].donor &&
         !has(options->non_donatable_input_indices, options->num_non_donatable_input_indices, index);
}

static PJRT_Error *check_argument(const PJRT_LoadedExecutable *loaded, const PJRT_ExecuteOptions *options,
                                  PJRT_Buffer *const *arguments, size_t index) {
  const fake_type *want = &loaded->program->parameters[index];
  PJRT_Buffer *got = arguments[index];
  if (!got) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu is NULL: XLA would crash here", index);
  }
  if (got->device != loaded->device) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu is on device %s, the program on %s", index,
                      got->device->description.name, loaded->device->description.name);
  }
  if (got->type != want->type || got->rank != want->rank ||
      memcmp(got->dims, want->dims, got->rank * sizeof *got->dims)) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu has another type than the parameter", index);
  }
  fake_memory *memory = fake_buffer_memory(got);
  if (!memory) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu: Buffer has been deleted or donated.", index);
  }
  fake_memory_unref(memory);
  for (size_t i = 0; i < loaded->program->parameter_count; i++) {
    if (i != index && arguments[i] == got && is_donated(loaded->program, options, index)) {
      return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "arguments %zu and %zu are one buffer, which is donated",
                        index, i);
    }
  }
  return NULL;
}

// The parameter that is donated to this result, or -1.
static int64_t donated_to(const fake_program *program, const PJRT_ExecuteOptions *options, size_t result) {
  for (size_t i = 0; i < program->parameter_count; i++) {
    if (program->parameters[i].alias == (int)result && is_donated(program, options, i)) {
      return (int64_t)i;
    }
  }
  return -1;
}

static void drop_outputs(PJRT_Buffer **outputs, size_t count) {
  for (size_t i = 0; i < count; i++) {
    fake_buffer_free(outputs[i]);
    outputs[i] = NULL;
  }
}

static PJRT_Error *make_outputs(PJRT_LoadedExecutable *loaded, const PJRT_ExecuteOptions *options,
                                PJRT_Buffer *const *arguments, PJRT_Buffer **outputs) {
  const fake_program *program = loaded->program;
  // Fresh results first, so that a failure leaves the donated arguments as they were.
  for (size_t i = 0; i < program->result_count; i++) {
    outputs[i] = NULL;
    PJRT_Error *error = donated_to(program, options, i) >= 0
                            ? NULL
                            : fake_buffer_new(loaded->device, &program->results[i], &outputs[i]);
    if (error) {
      drop_outputs(outputs, i);
      return error;
    }
  }
  for (size_t i = 0; i < program->result_count; i++) {
    if (!outputs[i]) {
      PJRT_Buffer *argument = arguments[donated_to(program, options, i)];
      outputs[i] = fake_buffer_over(loaded->device, &program->results[i], fake_buffer_memory(argument));
    }
  }
  return NULL;
}

static execution *execution_new(PJRT_LoadedExecutable *loaded, PJRT_Buffer *const *arguments,
                                PJRT_Buffer *const *outputs) {
  fake_program *program = loaded->program;
  execution *one = calloc(1, sizeof *one);
  size_t count = program->parameter_count + program->result_count;
  void **room = calloc(2 * count + 1, sizeof *room);
  if (!one || !room) {
    abort();
  }
  *one = (execution){.base = {.delay_us = atomic_load(&fake_set.execute_delay_us), .run = run_execution},
                     .program = fake_program_ref(program),
                     .fails = fake_execution_fails(),
                     .done = fake_state_new(),
                     .input_count = program->parameter_count,
                     .output_count = program->result_count};
  one->inputs = (fake_state **)room;
  one->outputs = one->inputs + one->input_count;
  one->input_memory = (fake_memory **)(room + count);
  one->memory = one->input_memory + one->input_count;
  for (size_t i = 0; i < one->input_count; i++) {
    one->inputs[i] = fake_state_ref(arguments[i]->ready);
    one->input_memory[i] = fake_buffer_memory(arguments[i]);
  }
  for (size_t i = 0; i < one->output_count; i++) {
    one->outputs[i] = fake_state_ref(outputs[i]->ready);
    one->memory[i] = fake_buffer_memory(outputs[i]);
  }
  return one;
}

static bool can_run_now(const execution *one) {
  if (one->base.delay_us || atomic_load(&fake_set.done_delay_us) || one->fails) {
    return false;
  }
  for (size_t i = 0; i < one->input_count; i++) {
    if (!fake_state_ready(one->inputs[i])) {
      return false;
    }
  }
  return true;
}

PJRT_Error *fake_PJRT_LoadedExecutable_Execute(PJRT_LoadedExecutable_Execute_Args *args) {
  ENTER(PJRT_LoadedExecutable_Execute);
  PJRT_LoadedExecutable *loaded = args->executable;
  fake_program *program = loaded->program;
  if (args->num_devices != 1 || args->num_args != program->parameter_count) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu arguments on %zu devices, wanted %zu on 1", args->num_args,
                      args->num_devices, program->parameter_count);
  }
  PJRT_Buffer *const *arguments = args->argument_lists[0];
  PJRT_Buffer **outputs = args->output_lists[0];
  PJRT_Error *error = NULL;
  for (size_t i = 0; i < program->parameter_count && !error; i++) {
    error = check_argument(loaded, args->options, arguments, i);
  }
  if (!error) {
    error = make_outputs(loaded, args->options, arguments, outputs);
  }
  if (error) {
    return error;
  }
  execution *one = execution_new(loaded, arguments, outputs);
  for (size_t i = 0; i < program->parameter_count; i++) {
    if (is_donated(program, args->options, i)) {
      fake_memory_unref(fake_buffer_take(arguments[i]));
      atomic_fetch_add(&fake_count.donations, 1);
    }
  }
  if (args->device_complete_events) {
    args->device_complete_events[0] = fake_event_new(one->done);
  }
  atomic_fetch_add(&fake_count.executes, 1);
  // Behind waiting work, which may read what a donation would overwrite, it waits as well.
  if (can_run_now(one) && fake_client_idle(loaded->device->client)) {
    run_execution(&one->base);
  } else {
    fake_client_enqueue(loaded->device->client, &one->base);
  }
  if (fake_lies(FAKE_PJRT_LoadedExecutable_Execute) && program->result_count) {
    fake_buffer_free(outputs[0]);
    outputs[0] = NULL;
  }
  return NULL;
}

// ---- topologies ----
struct PJRT_TopologyDescription {
  PJRT_DeviceDescription description, *list[1];
};

PJRT_Error *fake_PJRT_TopologyDescription_Create(PJRT_TopologyDescription_Create_Args *args) {
  ENTER(PJRT_TopologyDescription_Create);
  args->topology = NULL;
  if (fake_lies(FAKE_PJRT_TopologyDescription_Create)) {
    return NULL;
  }
  if (args->topology_name_size < 5 || memcmp(args->topology_name, "fake:", 5)) {
    return fake_error(PJRT_Error_Code_INVALID_ARGUMENT, "unknown topology %.*s", (int)args->topology_name_size,
                      args->topology_name);
  }
  PJRT_TopologyDescription *topology = calloc(1, sizeof *topology);
  if (!topology) {
    abort();
  }
  topology->list[0] = &topology->description;
  atomic_fetch_add(&fake_count.topologies, 1);
  args->topology = topology;
  return NULL;
}

PJRT_Error *fake_PJRT_TopologyDescription_Destroy(PJRT_TopologyDescription_Destroy_Args *args) {
  free(args->topology);
  atomic_fetch_sub(&fake_count.topologies, args->topology != NULL);
  return fake_enter(FAKE_PJRT_TopologyDescription_Destroy);
}

PJRT_Error *fake_PJRT_TopologyDescription_PlatformName(PJRT_TopologyDescription_PlatformName_Args *args) {
  ENTER(PJRT_TopologyDescription_PlatformName);
  args->platform_name = "fake";
  args->platform_name_size = 4;
  return NULL;
}

PJRT_Error *fake_PJRT_TopologyDescription_GetDeviceDescriptions(
    PJRT_TopologyDescription_GetDeviceDescriptions_Args *args) {
  ENTER(PJRT_TopologyDescription_GetDeviceDescriptions);
  args->descriptions = args->topology->list;
  args->num_descriptions = fake_lies(FAKE_PJRT_TopologyDescription_GetDeviceDescriptions) ? 0 : 1;
  return NULL;
}

PJRT_Error *fake_PJRT_Compile(PJRT_Compile_Args *args) {
  ENTER(PJRT_Compile);
  args->executable = NULL;
  if (fake_lies(FAKE_PJRT_Compile)) {
    return NULL;
  }
  fake_program *program;
  PJRT_Error *error = check_format(args->program);
  if (!error) {
    error = fake_program_new(args->program->code, args->program->code_size, args->compile_options,
                             args->compile_options_size, &program);
  }
  if (error) {
    return error;
  }
  args->executable = executable_new(program);
  atomic_fetch_add(&fake_count.compiles, 1);
  return NULL;
}
