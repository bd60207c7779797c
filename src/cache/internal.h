// Shared by the files of src/cache only.
#ifndef TORCHTPU_CACHE_INTERNAL_H
#define TORCHTPU_CACHE_INTERNAL_H

#include <stdatomic.h>
#include <sys/types.h>

#include "base/digest.h"
#include "base/strbuf.h"
#include "cache/cache.h"

// ---- entries (entry.c) ----
// A file: a header of fixed size, then the serialized executable. Numbers are little-endian. What the header says of
// the module comes from the process that compiled it.
enum { TT_ENTRY_VERSION = 1, TT_ENTRY_HEADER = 128 };
typedef struct tt_entry {
  tt_digest key;
  int64_t compile_ns, temp_bytes;
  const void *payload;  // borrowed
  size_t payload_size;
} tt_entry;
void tt_entry_header(const tt_entry *entry, unsigned char out_header[TT_ENTRY_HEADER]);
// NULL if the bytes are a whole and undamaged entry, else what is wrong with them. `key` NULL: any key will do.
// `*out_entry` borrows from `data`; it is zeroed where something is wrong.
const char *tt_entry_parse(const void *data, size_t size, const tt_digest *key, tt_entry *out_entry);

// ---- directories (folder.c) ----
// DIRECTORY/ab/abcd...ef.entry; files being written are DIRECTORY/ab/tmp.*; DIRECTORY/lock.
typedef struct tt_folder {
  char *path;  // owned; NULL: there is none
  bool is_shared;
  atomic_bool read_only;  // writing has failed
} tt_folder;
typedef struct tt_image {
  void *data;  // malloc'ed
  size_t size;
} tt_image;

// Where the entry is, or NULL when memory is gone; the caller frees it.
char *tt_folder_entry_path(const tt_folder *folder, const tt_digest *key);
// The entry's bytes, unchecked, for the caller to free; marks it as used. False: there is none, or it can't be read.
bool tt_folder_read(const tt_folder *folder, const tt_digest *key, tt_image *out_image);
bool tt_folder_read_file(int parent, const char *name, bool touch, tt_image *out_image);
// Replaces the entry at once or not at all. Returns the bytes of the file; 0: not written. The first failure that will
// not pass is a warning, and nothing is written to the folder any more.
int64_t tt_folder_write(tt_folder *folder, const tt_entry *entry);
void tt_folder_remove(const tt_folder *folder, const tt_digest *key);
// Opens DIRECTORY/lock, made if it isn't there. -1 if that is impossible.
int tt_folder_open_lock(const tt_folder *folder);

// ---- locks (lock.c) ----
// A byte of DIRECTORY/lock for each key, so that nothing is left behind. The kernel releases it when the holder dies.
// Held by an open file, not by a process: two threads exclude each other too.
enum { TT_LOCK_STATE = 0, TT_LOCK_EVICT = 1, TT_LOCK_KEYS = 16 };
int64_t tt_lock_place(const tt_digest *key);
typedef enum tt_lock_result { TT_LOCK_TAKEN, TT_LOCK_TAKEN_LATE, TT_LOCK_NOT_TAKEN } tt_lock_result;
// Waits until it has the lock, `timeout_ns` have passed, or `*stop` (NULL is allowed).
tt_lock_result tt_lock_take(int file, int64_t place, int64_t timeout_ns, const atomic_bool *stop);
void tt_lock_release(int file, int64_t place);

// ---- the size bound, and what the command line does (sweep.c) ----
// Counts `bytes` more in the folder, and evicts the least recently used entries if the bound is passed. Returns how
// many went.
int64_t tt_folder_grew(tt_folder *folder, int64_t bytes, int64_t limit);

// ---- what an executable depends on (key.c) ----
// Everything but module and compile options.
TT_MUST_USE tt_status *tt_cache_identity(const char *version, const tt_pjrt_plugin *plugin,
                                         const tt_pjrt_client *client, tt_digest *out_digest);

#endif  // TORCHTPU_CACHE_INTERNAL_H
