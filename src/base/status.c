#include "base/status.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

struct tt_status {
  tt_code code;
  char message[];
};

// Returned when an error can't be allocated; never freed. `message` is empty, so the text comes from
// tt_status_message().
static tt_status no_memory_for_status = {.code = TT_ERR_OUT_OF_MEMORY};

tt_status *tt_error_v(tt_code code, const char *format, va_list args) {
  va_list again;
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  tt_status *status = length < 0 ? NULL : malloc(sizeof *status + (size_t)length + 1);
  if (status) {
    // An error that claims success would be lost by whoever asks for its code.
    status->code = code == TT_OK ? TT_ERR_INTERNAL : code;
    vsnprintf(status->message, (size_t)length + 1, format, again);
  }
  va_end(again);
  return status ? status : &no_memory_for_status;
}

tt_status *tt_error(tt_code code, const char *format, ...) {
  va_list args;
  va_start(args, format);
  tt_status *status = tt_error_v(code, format, args);
  va_end(args);
  return status;
}

tt_status *tt_status_prefix(tt_status *status, const char *format, ...) {
  if (!status || status == &no_memory_for_status) {
    return status;
  }
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int length = vsnprintf(NULL, 0, format, args);
  size_t old_size = strlen(status->message) + 1;
  tt_status *longer = length < 0 ? NULL : malloc(sizeof *longer + (size_t)length + 2 + old_size);
  if (longer) {
    longer->code = status->code;
    vsnprintf(longer->message, (size_t)length + 1, format, again);
    memcpy(longer->message + length, ": ", 2);
    memcpy(longer->message + length + 2, status->message, old_size);
    tt_status_free(status);
  }
  va_end(again);
  va_end(args);
  // Without memory the old error says more than a new one would.
  return longer ? longer : status;
}

tt_code tt_status_code(const tt_status *status) { return status ? status->code : TT_OK; }

const char *tt_status_message(const tt_status *status) {
  if (!status) {
    return "";
  }
  return status == &no_memory_for_status ? "out of host memory" : status->message;
}

tt_status *tt_status_clone(const tt_status *status) {
  return status ? tt_error(status->code, "%s", tt_status_message(status)) : NULL;
}

void tt_status_free(tt_status *status) {
  if (status != &no_memory_for_status) {
    free(status);
  }
}

const char *tt_code_name(tt_code code) {
  static const char *const names[] = {
      [TT_OK] = "ok",
      [TT_ERR_RUNTIME] = "runtime error",
      [TT_ERR_INDEX] = "index error",
      [TT_ERR_TYPE] = "type error",
      [TT_ERR_VALUE] = "value error",
      [TT_ERR_NOT_IMPLEMENTED] = "not implemented",
      [TT_ERR_OUT_OF_MEMORY] = "out of memory",
      [TT_ERR_LINALG] = "linalg error",
      [TT_ERR_UNAVAILABLE] = "unavailable",
      [TT_ERR_INTERNAL] = "internal error",
  };
  return (unsigned)code < sizeof names / sizeof *names ? names[code] : "unknown";
}
