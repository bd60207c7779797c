// A directory of entries: reading, writing, removing one.
#include <errno.h>
#include <fcntl.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/internal.h"

static const int64_t largest_entry = INT64_C(8) << 30;
static const time_t touch_after_s = 3600;  // the time of use is kept this exactly

char *tt_folder_entry_path(const tt_folder *folder, const tt_digest *key) {
  char text[TT_DIGEST_TEXT];
  tt_digest_print(key, text);
  tt_strbuf path = {0};
  tt_strbuf_printf(&path, "%s/%.2s/%s.entry", folder->path, text, text);
  if (path.failed) {
    tt_strbuf_free(&path);
  }
  return path.data;
}

// ---- reading ----
static bool read_all(int file, char *data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t got = read(file, data + done, size - done);
    if (got < 0 && errno == EINTR) {
      continue;
    }
    if (got <= 0) {
      return false;  // shorter than it was: somebody cut it
    }
    done += (size_t)got;
  }
  return true;
}

// Read, not mapped: a file that is cut while it is mapped would kill the process.
bool tt_folder_read_file(int parent, const char *name, bool touch, tt_image *out_image) {
  *out_image = (tt_image){NULL, 0};
  int file = openat(parent, name, O_RDONLY | O_CLOEXEC | O_NOCTTY | O_NONBLOCK);  // a pipe must not make us wait
  if (file < 0) {
    return false;
  }
  struct stat info;
  bool good = !fstat(file, &info) && S_ISREG(info.st_mode) && info.st_size >= 0 && info.st_size <= largest_entry &&
              (out_image->data = malloc((size_t)info.st_size + 1)) &&
              read_all(file, out_image->data, (size_t)info.st_size);
  if (good) {
    out_image->size = (size_t)info.st_size;
    if (touch && time(NULL) - info.st_mtime > touch_after_s) {
      futimens(file, NULL);  // to now; where it is refused the entry merely seems older
    }
  } else {
    free(out_image->data);
    out_image->data = NULL;
  }
  close(file);
  return good;
}

bool tt_folder_read(const tt_folder *folder, const tt_digest *key, tt_image *out_image) {
  *out_image = (tt_image){NULL, 0};
  char *path = folder->path ? tt_folder_entry_path(folder, key) : NULL;
  bool found = path && tt_folder_read_file(AT_FDCWD, path, true, out_image);
  free(path);
  return found;
}

void tt_folder_remove(const tt_folder *folder, const tt_digest *key) {
  char *path = folder->path ? tt_folder_entry_path(folder, key) : NULL;
  if (path) {
    unlink(path);
  }
  free(path);
}

// ---- writing ----
// Makes `path` and what is above it; its own only for the user where it isn't shared.
static int make_directories(char *path, mode_t mode) {
  for (char *slash = path + 1; (slash = strchr(slash, '/')); slash++) {
    *slash = '\0';
    int failed = mkdir(path, mode) && errno != EEXIST ? errno : 0;
    *slash = '/';
    if (failed && failed != EROFS && failed != EACCES && failed != EPERM) {  // those say it of what exists too
      return failed;
    }
  }
  return mkdir(path, mode) && errno != EEXIST ? errno : 0;
}

static int write_all(int file, const void *data, size_t size) {
  for (size_t done = 0; done < size;) {
    ssize_t put = write(file, (const char *)data + done, size - done);
    if (put < 0 && errno != EINTR) {
      return errno;
    }
    done += put > 0 ? (size_t)put : 0;
  }
  return 0;
}

// Opens a file of its own beside the entry; `temporary` has room for its path.
static int open_temporary(const char *entry, mode_t mode, char *temporary, size_t size) {
  static atomic_uint counter;
  int directory = (int)(strrchr(entry, '/') - entry);
  for (int attempt = 0; attempt < 100; attempt++) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    snprintf(temporary, size, "%.*s/tmp.%ld.%u.%09ld", directory, entry, (long)getpid(), atomic_fetch_add(&counter, 1),
             now.tv_nsec);
    int file = open(temporary, O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, mode);
    if (file >= 0 || errno != EEXIST) {
      return file;
    }
  }
  return -1;
}

static int write_file(const char *temporary, int file, const char *path, const tt_entry *entry) {
  unsigned char header[TT_ENTRY_HEADER];
  tt_entry_header(entry, header);
  int error = write_all(file, header, sizeof header);
  error = error ? error : write_all(file, entry->payload, entry->payload_size);
  // Some file systems report a full disk or quota here only.
  if (close(file) && !error) {
    error = errno;
  }
  if (!error && rename(temporary, path)) {
    error = errno;
  }
  if (error) {
    unlink(temporary);
  }
  return error;
}

static int write_entry(const tt_folder *folder, const tt_entry *entry, const char *path) {
  size_t size = strlen(path) + 64;
  char *temporary = malloc(size);
  if (!temporary) {
    return ENOMEM;
  }
  mode_t mode = folder->is_shared ? 0666 : 0600;
  int file = open_temporary(path, mode, temporary, size), error = file < 0 ? errno : 0;
  // More than once: somebody who clears the cache may remove the directory that was just made.
  for (int attempt = 0; error == ENOENT && attempt < 3; attempt++) {
    char *directory = strndup(path, (size_t)(strrchr(path, '/') - path));
    error = directory ? make_directories(directory, folder->is_shared ? 0777 : 0700) : ENOMEM;
    free(directory);
    if (error) {
      break;
    }
    file = open_temporary(path, mode, temporary, size);
    error = file < 0 ? errno : 0;
  }
  if (!error) {
    error = write_file(temporary, file, path, entry);
  }
  free(temporary);
  return error;
}

// Of the moment, or of that entry alone (a directory is in its place).
static bool may_pass(int error) {
  return error == EMFILE || error == ENFILE || error == ENOMEM || error == EINTR || error == EISDIR;
}

int64_t tt_folder_write(tt_folder *folder, const tt_entry *entry) {
  if (!folder->path || atomic_load(&folder->read_only)) {
    return 0;
  }
  char *path = tt_folder_entry_path(folder, &entry->key);
  int error = path ? write_entry(folder, entry, path) : ENOMEM;
  free(path);
  if (error && !may_pass(error) && !atomic_exchange(&folder->read_only, true)) {
    TT_LOG(WARN, "the %scompile cache %s can't be written to (%s): nothing more is stored there",
           folder->is_shared ? "shared " : "", folder->path, strerror(error));
  }
  return error ? 0 : (int64_t)(TT_ENTRY_HEADER + entry->payload_size);
}

int tt_folder_open_lock(const tt_folder *folder) {
  if (!folder->path || atomic_load(&folder->read_only)) {
    return -1;
  }
  tt_strbuf path = {0};
  tt_strbuf_printf(&path, "%s/lock", folder->path);
  mode_t mode = folder->is_shared ? 0666 : 0600;
  int file = path.failed ? -1 : open(path.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, mode);
  if (file < 0 && errno == ENOENT && !path.failed) {
    char *directory = strdup(folder->path);
    if (directory && !make_directories(directory, folder->is_shared ? 0777 : 0700)) {
      file = open(path.data, O_RDWR | O_CREAT | O_CLOEXEC | O_NOCTTY, mode);
    }
    free(directory);
  }
  tt_strbuf_free(&path);
  return file;
}
