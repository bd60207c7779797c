// Functions of ours that programs of XLA:CPU call. The extension and its structs are declared here: not every
// package of PJRT headers has them.
#include <string.h>

#include "pjrt/internal.h"

typedef struct register_args {
  size_t struct_size;
  const char *target_name;
  size_t target_name_size;
  void *handler;  // XLA_FFI_Handler
  const char *platform_name;
  size_t platform_name_size;
  int traits;
} register_args;

typedef struct ffi_extension {
  PJRT_Extension_Base base;
  void *type_register, *user_data_add;
  PJRT_Error *(*register_handler)(register_args *args);
} ffi_extension;

static const ffi_extension *find_extension(const PJRT_Api *api) {
  int32_t left = 64;  // a list without an end is a fault of the plugin
  for (const PJRT_Extension_Base *e = api->extension_start; e && left; e = e->next, left--) {
    if (e->type == PJRT_Extension_Type_FFI && e->struct_size >= sizeof(ffi_extension)) {
      return (const ffi_extension *)(const void *)e;
    }
  }
  return NULL;
}

tt_status *tt_pjrt_register_handler(tt_pjrt_client *client, const char *name, tt_pjrt_handler *handler) {
  const ffi_extension *extension = client->is_cpu ? find_extension(client->api) : NULL;
  if (!extension || !extension->register_handler) {
    return tt_error(TT_ERR_NOT_IMPLEMENTED, "the PJRT plugin can't call functions of this library");
  }
  register_args args = {.struct_size = sizeof args,
                        .target_name = name,
                        .target_name_size = strlen(name),
                        .platform_name = "Host",
                        .platform_name_size = strlen("Host")};
  memcpy(&args.handler, &handler, sizeof args.handler);
  return tt_pjrt_take_error(client->api, extension->register_handler(&args), "registering a function");
}
