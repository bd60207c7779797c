// Errors as values. A function that can fail returns `tt_status *`: NULL is success, anything else is an
// error that the caller owns and must either return, or release with tt_status_free().
#ifndef TORCHTPU_BASE_STATUS_H
#define TORCHTPU_BASE_STATUS_H

#include <stdarg.h>
#include <stdbool.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

#define TT_MUST_USE __attribute__((warn_unused_result))
#define TT_PRINTF(fmt, first) __attribute__((format(printf, fmt, first)))

// What went wrong, in the terms of the Python exception that the user will see.
typedef enum tt_code {
  TT_OK = 0,
  TT_ERR_RUNTIME,          // RuntimeError: bad operands, and whatever has no better class
  TT_ERR_INDEX,            // IndexError: an index or a dimension out of range
  TT_ERR_TYPE,             // TypeError
  TT_ERR_VALUE,            // ValueError
  TT_ERR_NOT_IMPLEMENTED,  // NotImplementedError: the operator exists, this form of it does not
  TT_ERR_OUT_OF_MEMORY,    // torch.OutOfMemoryError
  TT_ERR_LINALG,           // torch.linalg.LinAlgError
  TT_ERR_UNAVAILABLE,      // RuntimeError: no plugin, no device, a forked child
  TT_ERR_INTERNAL,         // RuntimeError: a fault of this library
} tt_code;

typedef struct tt_status tt_status;

// Makes an error. Never returns NULL: when memory is gone it returns a static out-of-memory status.
TT_MUST_USE tt_status *tt_error(tt_code code, const char *format, ...) TT_PRINTF(2, 3);
TT_MUST_USE tt_status *tt_error_v(tt_code code, const char *format, va_list args) TT_PRINTF(2, 0);

// Returns a new status "<prefix>: <old message>" with the same code; takes ownership of `status`.
// NULL stays NULL; where memory is gone the old status comes back.
TT_MUST_USE tt_status *tt_status_prefix(tt_status *status, const char *format, ...) TT_PRINTF(2, 3);

tt_code tt_status_code(const tt_status *status);  // TT_OK for NULL
// The message; owned by the status, "" for NULL.
const char *tt_status_message(const tt_status *status);
TT_MUST_USE tt_status *tt_status_clone(const tt_status *status);
void tt_status_free(tt_status *status);  // NULL is allowed
const char *tt_code_name(tt_code code);

#define TT_TRY(expr)                    \
  do {                                  \
    tt_status *tt_try_status_ = (expr); \
    if (tt_try_status_) {               \
      return tt_try_status_;            \
    }                                   \
  } while (0)

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif  // TORCHTPU_BASE_STATUS_H
