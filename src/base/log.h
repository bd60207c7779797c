// Messages on stderr: "torch_tpu: warning: ...". TORCH_TPU_LOG=error|warn|info|debug chooses what is said; warn is the
// default. Thread-safe; a message is written whole.
#ifndef TORCHTPU_BASE_LOG_H
#define TORCHTPU_BASE_LOG_H

#include <stdatomic.h>
#include <stdbool.h>

#include "base/status.h"

typedef enum tt_log_level {
  TT_LOG_ERROR = 0,
  TT_LOG_WARN,
  TT_LOG_INFO,
  TT_LOG_DEBUG,
} tt_log_level;

// TT_LOG(DEBUG, "compiled %s in %d ms", name, ms): the arguments are evaluated only if the level is on.
#define TT_LOG(level, ...)                       \
  do {                                           \
    if (tt_log_enabled(TT_LOG_##level)) {        \
      tt_log_write(TT_LOG_##level, __VA_ARGS__); \
    }                                            \
  } while (0)

// Once per process from this line of code.
#define TT_LOG_ONCE(level, ...)                                                       \
  do {                                                                                \
    static atomic_flag tt_log_said_ = ATOMIC_FLAG_INIT;                               \
    if (tt_log_enabled(TT_LOG_##level) && !atomic_flag_test_and_set(&tt_log_said_)) { \
      tt_log_write(TT_LOG_##level, __VA_ARGS__);                                      \
    }                                                                                 \
  } while (0)

bool tt_log_enabled(tt_log_level level);
void tt_log_set_level(tt_log_level level);  // takes precedence over the environment
void tt_log_write(tt_log_level level, const char *format, ...) TT_PRINTF(2, 3);
// True the first time that the process asks with this key: for messages said once per operator, say. False when memory
// is gone.
bool tt_log_first(const char *key);

#endif  // TORCHTPU_BASE_LOG_H
