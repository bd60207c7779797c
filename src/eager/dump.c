// TORCH_TPU_DUMP_MODULES=FOLDER: every module that is compiled, as a file named by the rule that built it and by a hash
// of its text. tests/tpu/ gives them to the TPU compiler; docs/design/tpu.md says why it is done this way.
//
// TORCH_TPU_DUMP_LAUNCHES=FILE beside it: a line for each launch, the name of the module's file.
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "base/hash.h"
#include "base/log.h"
#include "eager/internal.h"

static bool write_all(int file, const char *text, size_t size) {
  while (size) {
    ssize_t wrote = write(file, text, size);
    if (wrote < 0 && errno != EINTR) {
      return false;
    }
    text += wrote > 0 ? wrote : 0;
    size -= wrote > 0 ? (size_t)wrote : 0;
  }
  return true;
}

// "aten::add.Tensor" as part of a file's name.
static void file_name(char *out, size_t size, const char *rule, uint64_t hash) {
  const char *plain = strncmp(rule, "aten::", 6) ? rule : rule + 6;
  int length = snprintf(out, size, "%s-%016llx.mlir", plain, (unsigned long long)hash);
  for (int i = 0; i < length && (size_t)i < size && out[i]; i++) {
    out[i] = out[i] == ':' || out[i] == '/' ? '_' : out[i];
  }
}

void tt_dump_module(tt_record *record, const char *text) {
  const char *folder = getenv("TORCH_TPU_DUMP_MODULES");
  if (!folder || !*folder) {
    return;
  }
  size_t size = strlen(text);
  char name[256], path[PATH_MAX], temporary[PATH_MAX + 32];
  record->module_hash = tt_hash_bytes(text, size, 0);
  file_name(name, sizeof name, record->op->rule->name, record->module_hash);
  int length = snprintf(path, sizeof path, "%s/%s", folder, name);
  if (length < 0 || (size_t)length >= sizeof path || !access(path, F_OK)) {
    return;
  }
  // Whole or not at all, whoever dies meanwhile.
  snprintf(temporary, sizeof temporary, "%s.%ld", path, (long)getpid());
  int file = open(temporary, O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  bool good = file >= 0 && write_all(file, text, size);
  int error = errno;
  if (file >= 0) {
    close(file);
  }
  if (!good || rename(temporary, path)) {
    TT_LOG_ONCE(WARN, "TORCH_TPU_DUMP_MODULES: %s: %s", path, strerror(good ? errno : error));
    unlink(temporary);
  }
}

// ---- launches ----
static pthread_once_t launches_once = PTHREAD_ONCE_INIT;
static int launches_file = -1;

static void open_launches(void) {
  const char *path = getenv("TORCH_TPU_DUMP_LAUNCHES");
  if (path && *path) {
    launches_file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0644);
    if (launches_file < 0) {
      TT_LOG(WARN, "TORCH_TPU_DUMP_LAUNCHES: %s: %s", path, strerror(errno));
    }
  }
}

void tt_dump_launch(const tt_record *record) {
  if (!record->module_hash) {
    return;
  }
  pthread_once(&launches_once, open_launches);
  if (launches_file >= 0) {
    char line[256 + 1];
    file_name(line, sizeof line - 1, record->op->rule->name, record->module_hash);
    size_t length = strlen(line);
    line[length] = '\n';
    if (!write_all(launches_file, line, length + 1)) {
      TT_LOG_ONCE(WARN, "TORCH_TPU_DUMP_LAUNCHES: %s", strerror(errno));
    }
  }
}
