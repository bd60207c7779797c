// XLA's foreign function interface as a called function sees it, API 0.x: what the handlers need of it. Structs carry
// their size; a reader checks it, so that a newer or older XLA is refused rather than misread.
#ifndef TORCHTPU_KERNELS_FFI_H
#define TORCHTPU_KERNELS_FFI_H

#include <stddef.h>
#include <stdint.h>

enum {
  TT_FFI_METADATA = 1,  // extension
  TT_FFI_EXECUTE = 3,   // stage
  TT_FFI_BUFFER = 1,    // kind of argument and of result
  TT_FFI_ARRAY = 1,     // kind of attribute
  TT_FFI_S32 = 4,       // element types
  TT_FFI_S64 = 5,
  TT_FFI_F32 = 11,
  TT_FFI_INVALID_ARGUMENT = 3,  // errors
  TT_FFI_RESOURCE_EXHAUSTED = 8,
  TT_FFI_INTERNAL = 13,
};

typedef struct tt_ffi_extension {
  size_t struct_size;
  int32_t type;
  struct tt_ffi_extension *next;
} tt_ffi_extension;

typedef struct tt_ffi_version {
  size_t struct_size;
  tt_ffi_extension *extensions;
  int32_t major, minor;
} tt_ffi_version;

// What XLA asks a function about itself, in place of calling it.
typedef struct tt_ffi_metadata {
  size_t struct_size;
  tt_ffi_version version;  // out
  uint32_t traits;         // out
} tt_ffi_metadata;
typedef struct tt_ffi_metadata_extension {
  tt_ffi_extension base;
  tt_ffi_metadata *metadata;
} tt_ffi_metadata_extension;

typedef struct tt_ffi_error_args {
  size_t struct_size;
  tt_ffi_extension *extensions;
  const char *message;
  int32_t code;
} tt_ffi_error_args;
typedef struct tt_ffi_destroy_args {
  size_t struct_size;
  tt_ffi_extension *extensions;
  void *error;
} tt_ffi_destroy_args;
typedef struct tt_ffi_schedule_args {
  size_t struct_size;
  tt_ffi_extension *extensions;
  void *context;
  void (*task)(void *data);
  void *data;
} tt_ffi_schedule_args;
typedef struct tt_ffi_threads_args {
  size_t struct_size;
  tt_ffi_extension *extensions;
  void *context;
  int64_t *count;  // out
} tt_ffi_threads_args;

typedef struct tt_ffi_api {
  size_t struct_size;
  tt_ffi_extension *extensions;
  tt_ffi_version version;
  const void *internal;
  void *(*create_error)(tt_ffi_error_args *args);
  void *error_message;
  void (*destroy_error)(tt_ffi_destroy_args *args);
  void *unused[8];
  void *(*schedule)(tt_ffi_schedule_args *args);
  void *(*count_threads)(tt_ffi_threads_args *args);
} tt_ffi_api;

typedef struct tt_ffi_buffer {
  size_t struct_size;
  tt_ffi_extension *extensions;
  int32_t dtype;
  void *data;
  int64_t rank;
  const int64_t *dims;
} tt_ffi_buffer;

// Arguments or results.
typedef struct tt_ffi_list {
  size_t struct_size;
  tt_ffi_extension *extensions;
  int64_t count;
  const int32_t *kinds;
  void *const *items;
} tt_ffi_list;

typedef struct tt_ffi_name {
  const char *text;
  size_t length;
} tt_ffi_name;
typedef struct tt_ffi_array {
  int32_t dtype;
  size_t count;
  const void *data;
} tt_ffi_array;
typedef struct tt_ffi_attributes {
  size_t struct_size;
  tt_ffi_extension *extensions;
  int64_t count;
  const int32_t *kinds;
  tt_ffi_name *const *names;
  void *const *items;
} tt_ffi_attributes;

typedef struct tt_ffi_frame {
  size_t struct_size;
  tt_ffi_extension *extensions;
  const tt_ffi_api *api;
  void *context;
  int32_t stage;
  tt_ffi_list arguments, results;
  tt_ffi_attributes attributes;
} tt_ffi_frame;

#endif  // TORCHTPU_KERNELS_FFI_H
