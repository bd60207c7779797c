// What goes into a compilation. CompileOptionsProto is written by hand: the few fields that we set of
// xla/pjrt/proto/compile_options.proto.
#include <stdlib.h>
#include <string.h>

#include "base/strbuf.h"
#include "pjrt/internal.h"

enum {
  VARINT = 0,
  BYTES = 2,
  // CompileOptionsProto
  EXECUTABLE_BUILD_OPTIONS = 3,
  ENV_OPTION_OVERRIDES = 7,  // map<string, OptionOverrideProto>: messages {key = 1, value = 2}
  OVERRIDE_STRING = 1,
  OVERRIDE_BOOL = 2,
  // ExecutableBuildOptionsProto
  DEVICE_ORDINAL = 1,
  NUM_REPLICAS = 4,
  NUM_PARTITIONS = 5,
  DEVICE_ASSIGNMENT = 9,
  // DeviceAssignmentProto
  REPLICA_COUNT = 1,
  COMPUTATION_COUNT = 2,
  COMPUTATION_DEVICES = 3,
  REPLICA_DEVICE_IDS = 1,
};

static void put_varint(tt_strbuf *buffer, uint64_t value) {
  char bytes[10];
  size_t count = 0;
  do {
    bytes[count++] = (char)((value & 127) | (value > 127 ? 128 : 0));
    value >>= 7;
  } while (value);
  tt_strbuf_append(buffer, bytes, count);
}

static void put_int(tt_strbuf *buffer, int field, int64_t value) {
  put_varint(buffer, (uint64_t)field << 3 | VARINT);
  put_varint(buffer, (uint64_t)value);
}

static void put_bytes(tt_strbuf *buffer, int field, const char *data, size_t size) {
  put_varint(buffer, (uint64_t)field << 3 | BYTES);
  put_varint(buffer, size);
  tt_strbuf_append(buffer, data, size);
}

// Appends `message` and releases it.
static void put_message(tt_strbuf *buffer, int field, tt_strbuf *message) {
  put_bytes(buffer, field, tt_strbuf_text(message), message->length);
  buffer->failed = buffer->failed || message->failed;
  tt_strbuf_free(message);
}

static void put_build_options(tt_strbuf *buffer, int device_id) {
  tt_strbuf devices = {0}, assignment = {0}, build = {0};
  put_int(&devices, REPLICA_DEVICE_IDS, device_id);
  put_int(&assignment, REPLICA_COUNT, 1);
  put_int(&assignment, COMPUTATION_COUNT, 1);
  put_message(&assignment, COMPUTATION_DEVICES, &devices);
  put_int(&build, DEVICE_ORDINAL, -1);  // the assignment says it
  put_int(&build, NUM_REPLICAS, 1);     // zero of either is fatal in XLA
  put_int(&build, NUM_PARTITIONS, 1);
  put_message(&build, DEVICE_ASSIGNMENT, &assignment);
  put_message(buffer, EXECUTABLE_BUILD_OPTIONS, &build);
}

// As a string: XLA parses it by the option's own type, so "0" serves an int, a float and a string option. But of
// truth values it reads only "True" and "False", so "true" and "false" go as what they are.
static void put_override(tt_strbuf *buffer, const char *name, const char *value) {
  tt_strbuf override = {0}, entry = {0};
  bool is_true = !strcmp(value, "true");
  if (is_true || !strcmp(value, "false")) {
    put_int(&override, OVERRIDE_BOOL, is_true);
  } else {
    put_bytes(&override, OVERRIDE_STRING, value, strlen(value));
  }
  put_bytes(&entry, 1, name, strlen(name));
  put_message(&entry, 2, &override);
  put_message(buffer, ENV_OPTION_OVERRIDES, &entry);
}

tt_status *tt_pjrt_encode_options(const tt_pjrt_compile_options *options, int device_id, char **out_data,
                                  size_t *out_size) {
  *out_data = NULL;
  *out_size = 0;
  tt_strbuf buffer = {0};
  put_build_options(&buffer, device_id);
  for (int32_t i = 0; options && i < options->option_count; i++) {
    const char *name = options->option_names[i], *value = options->option_values[i];
    if (!name || !*name || !value) {
      tt_strbuf_free(&buffer);
      return tt_error(TT_ERR_VALUE, "compile option %d has no %s", i, name && *name ? "value" : "name");
    }
    if (i >= 32 || !(options->skipped >> i & 1)) {
      put_override(&buffer, name, value);
    }
  }
  if (buffer.failed) {
    tt_strbuf_free(&buffer);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  *out_data = buffer.data;
  *out_size = buffer.length;
  return NULL;
}

tt_status *tt_pjrt_job_init(tt_pjrt_job *job, const char *mlir, size_t size, const tt_pjrt_compile_options *options,
                            int device_id) {
  *job = (tt_pjrt_job){0};
  if (!mlir || !size) {
    return tt_error(TT_ERR_INTERNAL, "compile: an empty program");
  }
  TT_TRY(tt_pjrt_encode_options(options, device_id, &job->options, &job->options_size));
  job->text = size < PTRDIFF_MAX ? malloc(size + 1) : NULL;
  if (!job->text) {
    tt_pjrt_job_free(job);
    return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory");
  }
  memcpy(job->text, mlir, size);
  job->text[size] = '\0';
  job->program = (PJRT_Program){.struct_size = PJRT_Program_STRUCT_SIZE,
                                .code = job->text,
                                .code_size = size,
                                .format = "mlir",
                                .format_size = strlen("mlir")};
  return NULL;
}

void tt_pjrt_job_free(tt_pjrt_job *job) {
  free(job->text);
  free(job->options);
}
