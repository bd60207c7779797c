// All entries of a directory: the size bound, and what the command line counts, verifies, repairs and clears.
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "base/log.h"
#include "cache/internal.h"
#include "torchtpu/torchtpu.h"

enum { FOREIGN, ENTRY, TEMPORARY };
static const time_t abandoned_after_s = 3600;  // a file that was being written, and whose writer is dead

// ---- visiting ----
typedef struct visit {
  int parent;  // the open directory that has it
  const char *path, *group, *name;
  int kind;
  struct stat info;
} visit;
typedef void (*visitor)(void *context, const visit *file);

static bool is_hex(const char *text, size_t count) { return strspn(text, "0123456789abcdef") == count; }

static int kind_of(const char *group, const char *name) {
  const size_t digits = 2 * TT_DIGEST_SIZE;
  if (is_hex(name, digits) && !strcmp(name + digits, ".entry") && !memcmp(name, group, 2)) {
    return ENTRY;
  }
  return !strncmp(name, "tmp.", 4) ? TEMPORARY : FOREIGN;
}

static void visit_group(int root, const char *path, const char *group, visitor visitor, void *context) {
  int parent = openat(root, group, O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC);
  DIR *files = parent >= 0 ? fdopendir(parent) : NULL;
  if (!files) {
    if (parent >= 0) {
      close(parent);
    }
    return;
  }
  for (struct dirent *item; (item = readdir(files));) {
    visit file = {
        .parent = parent, .path = path, .group = group, .name = item->d_name, .kind = kind_of(group, item->d_name)};
    if (file.kind != FOREIGN && !fstatat(parent, item->d_name, &file.info, AT_SYMLINK_NOFOLLOW) &&
        S_ISREG(file.info.st_mode)) {
      visitor(context, &file);
    }
  }
  closedir(files);
}

// 0, or why the directory can't be read. One that doesn't exist has no entries.
static int visit_all(const char *path, visitor visitor, void *context) {
  int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (root < 0) {
    return errno == ENOENT ? 0 : errno;
  }
  int second = dup(root);
  DIR *groups = second >= 0 ? fdopendir(second) : NULL;
  int error = groups ? 0 : errno;
  for (struct dirent *item; groups && (item = readdir(groups));) {
    if (is_hex(item->d_name, 2) && !item->d_name[2]) {
      visit_group(root, path, item->d_name, visitor, context);
    }
  }
  if (groups) {
    closedir(groups);
  } else if (second >= 0) {
    close(second);
  }
  close(root);
  return error;
}

// ---- the size bound ----
// What DIRECTORY/lock contains: bytes of all entries, as far as writers have counted, and stores since somebody looked.
// A wrong count does no harm: too much brings the next look, which corrects it, and so does the number of stores.
typedef struct state {
  uint64_t magic, bytes, stores;
} state;
#define STATE_MAGIC UINT64_C(0x31657a6973797474)
enum { STORES_BETWEEN_LOOKS = 4096 };
static const int64_t state_timeout_ns = 20 * 1000 * 1000;

// Adds to the state, with `looked` begins it anew. False: the entries should be looked at.
static bool update_state(int file, int64_t bytes, bool looked, int64_t limit) {
  if (tt_lock_take(file, TT_LOCK_STATE, state_timeout_ns, NULL) == TT_LOCK_NOT_TAKEN) {
    return true;
  }
  state now = {0};
  bool known = pread(file, &now, sizeof now, 0) == (ssize_t)sizeof now && now.magic == STATE_MAGIC;
  if (looked) {
    now = (state){STATE_MAGIC, (uint64_t)bytes, 0};
  } else if (known) {
    now.bytes += (uint64_t)bytes;
    now.stores++;
  }
  bool written = (!known && !looked) || pwrite(file, &now, sizeof now, 0) == (ssize_t)sizeof now;
  tt_lock_release(file, TT_LOCK_STATE);
  return written && known && now.bytes <= (uint64_t)limit && now.stores < STORES_BETWEEN_LOOKS;
}

typedef struct candidate {
  struct timespec used;
  int64_t bytes;
  char group[3], name[2 * TT_DIGEST_SIZE + sizeof ".entry"];
} candidate;
typedef struct candidates {
  candidate *items;
  size_t count, capacity;
  int64_t bytes;
  time_t now;
  bool failed;
} candidates;

static void collect(void *context, const visit *file) {
  candidates *all = context;
  if (file->kind == TEMPORARY) {
    if (all->now - file->info.st_mtime > abandoned_after_s) {
      unlinkat(file->parent, file->name, 0);
    }
    return;
  }
  all->bytes += file->info.st_size;
  if (all->count == all->capacity) {
    size_t capacity = all->capacity ? 2 * all->capacity : 256;
    candidate *items = realloc(all->items, capacity * sizeof *items);
    if (!items) {
      all->failed = true;
      return;
    }
    all->items = items;
    all->capacity = capacity;
  }
  candidate *item = &all->items[all->count++];
  *item = (candidate){.used = file->info.st_mtim, .bytes = file->info.st_size};
  memcpy(item->group, file->group, 2);
  memcpy(item->name, file->name, sizeof item->name - 1);
}

static int older_first(const void *a, const void *b) {
  const struct timespec *x = &((const candidate *)a)->used, *y = &((const candidate *)b)->used;
  if (x->tv_sec != y->tv_sec) {
    return x->tv_sec < y->tv_sec ? -1 : 1;
  }
  return x->tv_nsec < y->tv_nsec ? -1 : x->tv_nsec > y->tv_nsec;
}

// Down to seven eighths of the bound, so that the next store doesn't begin it again. What another process removes
// first counts as removed.
static int64_t evict(const char *path, int64_t limit, int64_t *out_left) {
  candidates all = {.now = time(NULL)};
  int64_t evicted = 0;
  visit_all(path, collect, &all);
  if (all.bytes > limit && all.count) {
    qsort(all.items, all.count, sizeof *all.items, older_first);
    int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    for (size_t i = 0; root >= 0 && i < all.count && all.bytes > limit - limit / 8; i++) {
      char name[sizeof all.items->group + sizeof all.items->name];
      memcpy(name, all.items[i].group, 2);
      name[2] = '/';
      memcpy(name + 3, all.items[i].name, sizeof all.items->name);
      bool removed = !unlinkat(root, name, 0);
      if (removed || errno == ENOENT) {
        all.bytes -= all.items[i].bytes;
        evicted += removed;
      }
    }
    if (root >= 0) {
      close(root);
    }
    TT_LOG(DEBUG, "compile cache %s: %lld least recently used entries removed, %lld bytes left", path,
           (long long)evicted, (long long)all.bytes);
  }
  free(all.items);
  *out_left = all.bytes;
  return evicted;
}

int64_t tt_folder_grew(tt_folder *folder, int64_t bytes, int64_t limit) {
  int file = tt_folder_open_lock(folder);
  if (file < 0) {
    return 0;
  }
  int64_t evicted = 0;
  // One process looks; what the others store meanwhile is missing from the count until the next look.
  if (!update_state(file, bytes, false, limit) && tt_lock_take(file, TT_LOCK_EVICT, 0, NULL) != TT_LOCK_NOT_TAKEN) {
    int64_t left;
    evicted = evict(folder->path, limit, &left);
    update_state(file, left, true, limit);
    tt_lock_release(file, TT_LOCK_EVICT);
  }
  close(file);
  return evicted;
}

// ---- the command line's ----
typedef struct inspection {
  tt_cache_action action;
  void (*report)(void *context, const char *file, const char *fault);
  void *context;
  tt_cache_summary *summary;
} inspection;

static void remove_visited(inspection *in, const visit *file) {
  if (!unlinkat(file->parent, file->name, 0)) {
    in->summary->removed++;
  }
}

// The key that the file's name says.
static void key_of_name(const char *name, tt_digest *out_key) {
  for (int i = 0; i < TT_DIGEST_SIZE; i++) {
    char digits[3] = {name[2 * i], name[2 * i + 1], '\0'};
    out_key->bytes[i] = (unsigned char)strtoul(digits, NULL, 16);
  }
}

static void verify(inspection *in, const visit *file) {
  tt_image image;
  tt_digest key;
  tt_entry entry;
  key_of_name(file->name, &key);
  const char *fault = "can't be read";
  if (tt_folder_read_file(file->parent, file->name, false, &image)) {
    fault = tt_entry_parse(image.data, image.size, &key, &entry);
    free(image.data);
  } else if (faccessat(file->parent, file->name, F_OK, 0)) {
    return;  // evicted meanwhile
  }
  if (!fault) {
    return;
  }
  in->summary->bad++;
  if (in->report) {
    tt_strbuf path = {0};
    tt_strbuf_printf(&path, "%s/%s/%s", file->path, file->group, file->name);
    in->report(in->context, tt_strbuf_text(&path), fault);
    tt_strbuf_free(&path);
  }
  if (in->action == TT_CACHE_REPAIR) {
    remove_visited(in, file);
  }
}

static void inspect(void *context, const visit *file) {
  inspection *in = context;
  if (file->kind == TEMPORARY) {
    bool abandoned = time(NULL) - file->info.st_mtime > abandoned_after_s;
    in->summary->unfinished++;
    if (in->action == TT_CACHE_CLEAR || (in->action == TT_CACHE_REPAIR && abandoned)) {
      remove_visited(in, file);
    }
    return;
  }
  tt_cache_summary *summary = in->summary;
  int64_t used = file->info.st_mtime;
  summary->entries++;
  summary->bytes += file->info.st_size;
  summary->oldest = summary->entries == 1 || used < summary->oldest ? used : summary->oldest;
  summary->newest = summary->entries == 1 || used > summary->newest ? used : summary->newest;
  if (in->action == TT_CACHE_CLEAR) {
    remove_visited(in, file);
  } else if (in->action != TT_CACHE_COUNT) {
    verify(in, file);
  }
}

// What is left when the entries are gone; a directory with anything else in it stays.
static void remove_empty(const char *path) {
  int root = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  for (int i = 0; root >= 0 && i < 256; i++) {
    char group[3] = {"0123456789abcdef"[i >> 4], "0123456789abcdef"[i & 15], '\0'};
    unlinkat(root, group, AT_REMOVEDIR);
  }
  if (root >= 0) {
    unlinkat(root, "lock", 0);
    close(root);
  }
}

tt_status *tt_compile_cache_inspect(const char *directory, tt_cache_action action,
                                    void (*report)(void *context, const char *file, const char *fault), void *context,
                                    tt_cache_summary *out_summary) {
  *out_summary = (tt_cache_summary){0};
  inspection in = {action, report, context, out_summary};
  int error = visit_all(directory, inspect, &in);
  if (error) {
    return tt_error(TT_ERR_RUNTIME, "the compile cache %s can't be read: %s", directory, strerror(error));
  }
  if (action == TT_CACHE_CLEAR) {
    remove_empty(directory);
  }
  return NULL;
}

void tt_compile_cache_settings(char *out_directory, char *out_shared, size_t size, int64_t *out_limit) {
  tt_cache_config config;
  tt_cache_config_read(&config);
  char *texts[] = {out_directory, out_shared};
  const char *values[] = {config.directory, config.shared_directory};
  for (int i = 0; i < 2; i++) {
    size_t length = values[i] ? strlen(values[i]) : 0;
    if (size) {
      memcpy(texts[i], length < size && values[i] ? values[i] : "", length < size ? length + 1 : 1);
    }
  }
  *out_limit = config.size_limit;
  tt_cache_config_free(&config);
}
