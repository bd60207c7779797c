// Locks between processes, and between the threads of one: byte ranges that belong to an open file ("OFD locks").
// flock() would need a file a key, POSIX's own fcntl() locks don't exclude threads.
#include <errno.h>
#include <fcntl.h>

#include "base/thread.h"
#include "cache/internal.h"

enum { SHORTEST_SLEEP_NS = 500 * 1000, LONGEST_SLEEP_NS = 50 * 1000 * 1000 };

int64_t tt_lock_place(const tt_digest *key) {
  int64_t place = 0;
  for (int i = 0; i < 7; i++) {  // 56 bits: two keys that share a byte of the file merely wait for each other
    place = place << 8 | key->bytes[i];
  }
  return TT_LOCK_KEYS + place;
}

static int set_lock(int file, short type, int64_t place) {
  struct flock range = {.l_type = type, .l_whence = SEEK_SET, .l_start = place, .l_len = 1};
  int result;
  do {
    result = fcntl(file, F_OFD_SETLK, &range);
  } while (result && errno == EINTR);
  return result ? errno : 0;
}

tt_lock_result tt_lock_take(int file, int64_t place, int64_t timeout_ns, const atomic_bool *stop) {
  int64_t begin = tt_now_ns(), pause = SHORTEST_SLEEP_NS;
  for (bool late = false;; late = true) {
    int error = set_lock(file, F_WRLCK, place);
    if (!error) {
      return late ? TT_LOCK_TAKEN_LATE : TT_LOCK_TAKEN;
    }
    bool held_by_another = error == EAGAIN || error == EACCES;
    int64_t left = timeout_ns - (tt_now_ns() - begin);
    if (!held_by_another || left <= 0 || (stop && atomic_load(stop))) {
      return TT_LOCK_NOT_TAKEN;  // a file system without locks is no reason to wait
    }
    tt_sleep_ns(pause < left ? pause : left);
    pause = 2 * pause < LONGEST_SLEEP_NS ? 2 * pause : LONGEST_SLEEP_NS;
  }
}

// Explicitly: the file may be open in a forked child too, which would keep the lock otherwise.
void tt_lock_release(int file, int64_t place) { set_lock(file, F_UNLCK, place); }
