#include <stdlib.h>
#include <string.h>

#include "pjrt/internal.h"

void tt_pjrt_drop_error(const PJRT_Api *api, PJRT_Error *error) {
  if (error) {
    PJRT_Error_Destroy_Args args = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE, .error = error};
    api->PJRT_Error_Destroy(&args);
  }
}

static tt_code code_of(const PJRT_Api *api, const PJRT_Error *error) {
  PJRT_Error_GetCode_Args args = {.struct_size = PJRT_Error_GetCode_Args_STRUCT_SIZE, .error = error};
  PJRT_Error *second = api->PJRT_Error_GetCode(&args);
  if (second) {
    tt_pjrt_drop_error(api, second);
    return TT_ERR_RUNTIME;
  }
  switch (args.code) {
    case PJRT_Error_Code_RESOURCE_EXHAUSTED:
      return TT_ERR_OUT_OF_MEMORY;
    case PJRT_Error_Code_UNIMPLEMENTED:
      return TT_ERR_NOT_IMPLEMENTED;
    case PJRT_Error_Code_UNAVAILABLE:
      return TT_ERR_UNAVAILABLE;
    default:
      return TT_ERR_RUNTIME;
  }
}

tt_status *tt_pjrt_take_error(const PJRT_Api *api, PJRT_Error *error, const char *what) {
  if (!error) {
    return NULL;
  }
  PJRT_Error_Message_Args args = {.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE, .error = error};
  api->PJRT_Error_Message(&args);
  size_t size = args.message ? args.message_size : 0;
  tt_status *status = tt_error(code_of(api, error), "%s: %.*s", what,
                               (int)(size < TT_PJRT_MAX_TEXT ? size : TT_PJRT_MAX_TEXT), size ? args.message : "");
  tt_pjrt_drop_error(api, error);
  return status;
}

char *tt_pjrt_copy_text(const char *text, size_t size) {
  size = !text ? 0 : size < TT_PJRT_MAX_TEXT ? size : TT_PJRT_MAX_TEXT;
  char *copy = malloc(size + 1);
  if (copy) {
    if (size) {
      memcpy(copy, text, size);
    }
    copy[size] = '\0';
  }
  return copy;
}
