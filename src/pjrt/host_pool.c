// Blocks lie in one range of addresses that is reserved at the start, each behind a header with its own size and that
// of the block before it. Free neighbours are joined; the smallest free block that is large enough is taken, and fresh
// addresses only where there is none.
#include "pjrt/host_pool.h"

#include <errno.h>
#include <pthread.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum {
  LINE = TT_HOST_POOL_ALIGNMENT,
  SMALLEST = 1 << 17,  // what is smaller, the C library keeps by itself
  // Sizes are seldom multiples of this, so that arrays that are read side by side don't lie a whole page apart.
  STAGGER = 5 * LINE,
};

typedef struct block {
  size_t size, size_before;  // with the header; 0 before the first
  size_t kept;               // of a free block: how much memory it may still have
  bool is_free;
  struct block *next, **link;  // of the free list
} block;
_Static_assert(sizeof(block) <= LINE, "a header is one line");

static struct {
  pthread_mutex_t lock;
  char *base;
  size_t reserved, used_end, last_size;  // used_end: where fresh addresses begin, behind a block of last_size
  size_t used, kept, limit;
  block *free;
} pool = {.lock = PTHREAD_MUTEX_INITIALIZER};

// ---- the range ----
static void lock_before_fork(void) { pthread_mutex_lock(&pool.lock); }
static void unlock_after_fork(void) { pthread_mutex_unlock(&pool.lock); }

bool tt_host_pool_open(int64_t memory) {
  if (pool.base || memory <= 0 || memory > INT64_MAX / 4) {
    return pool.base;
  }
  const size_t size = 4 * (size_t)memory;
  void *base = mmap(NULL, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  if (base == MAP_FAILED) {
    return false;
  }
  pthread_atfork(lock_before_fork, unlock_after_fork, unlock_after_fork);
  pool.reserved = size;
  pool.limit = (size_t)memory / 2;
  pool.base = base;
  return true;
}

// ---- blocks ----
static block *after(block *b) {
  char *end = (char *)b + b->size;
  return end < pool.base + pool.used_end ? (block *)(void *)end : NULL;
}

static block *before(block *b) { return b->size_before ? (block *)(void *)((char *)b - b->size_before) : NULL; }

static void set_size(block *b, size_t size) {
  b->size = size;
  block *next = after(b);
  if (next) {
    next->size_before = size;
  } else {
    pool.last_size = size;
  }
}

static void list(block *b, size_t kept) {
  b->is_free = true;
  b->kept = kept;
  b->next = pool.free;
  b->link = &pool.free;
  if (b->next) {
    b->next->link = &b->next;
  }
  pool.free = b;
  pool.kept += kept;
}

static void unlist(block *b) {
  b->is_free = false;
  *b->link = b->next;
  if (b->next) {
    b->next->link = b->link;
  }
  pool.kept -= b->kept;
}

static block *best_fit(size_t size) {
  block *best = NULL;
  for (block *b = pool.free; b; b = b->next) {
    if (b->size >= size && (!best || b->size < best->size)) {
      best = b;
    }
  }
  return best;
}

// The whole pages behind the header go back to the system.
static void give_back(block *b) {
  if (!b->kept) {
    return;
  }
  const uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  const uintptr_t start = ((uintptr_t)b + LINE + page - 1) & ~(page - 1), end = ((uintptr_t)b + b->size) & ~(page - 1);
  const int error = errno;  // free() leaves it alone
  if (start < end) {
    madvise((void *)start, end - start, MADV_DONTNEED);
  }
  errno = error;
  pool.kept -= b->kept;
  b->kept = 0;
}

static void give_back_all(void) {
  for (block *b = pool.free; b; b = b->next) {
    give_back(b);
  }
}

// A block at the end of what has been used, over the last one if that is free.
static block *fresh(size_t size) {
  block *last = pool.used_end ? (block *)(void *)(pool.base + pool.used_end - pool.last_size) : NULL;
  const size_t have = last && last->is_free ? last->size : 0;
  if (size - have > pool.reserved - pool.used_end) {
    return NULL;
  }
  if (have) {
    unlist(last);
  } else {
    last = (block *)(void *)(pool.base + pool.used_end);
    last->size_before = pool.last_size;
  }
  pool.used_end += size - have;
  last->size = pool.last_size = size;
  return last;
}

// Leaves a block of `size`; the rest is a free block of its own where one is of use.
static void split(block *b, size_t size) {
  const size_t left = b->size - size;
  if (left < SMALLEST) {
    return;
  }
  block *rest = (block *)(void *)((char *)b + size);
  rest->size_before = b->size = size;
  set_size(rest, left);
  list(rest, b->kept < left ? b->kept : left);
}

// ---- the allocator ----
void *tt_host_pool_alloc(size_t size) {
  if (!pool.base || size < SMALLEST || size > pool.reserved - 2 * LINE - STAGGER) {
    return NULL;
  }
  size = (size + LINE - 1) / LINE * LINE + LINE + STAGGER;
  pthread_mutex_lock(&pool.lock);
  block *b = best_fit(size);
  if (b) {
    unlist(b);
  }
  const size_t had = b ? b->kept : 0;  // addresses that were used before needn't have memory
  if (pool.used + pool.kept + (had > size ? had : size) > pool.limit) {
    give_back_all();
  }
  if (b) {
    split(b, size);
  } else if ((b = fresh(size))) {
    b->is_free = false;
  }
  pool.used += b ? b->size : 0;
  pthread_mutex_unlock(&pool.lock);
  return b ? (char *)b + LINE : NULL;
}

size_t tt_host_pool_size(const void *pointer) {
  const bool mine = pool.base && (uintptr_t)pointer - (uintptr_t)pool.base < pool.reserved;
  return mine ? ((const block *)(const void *)((const char *)pointer - LINE))->size - LINE : 0;
}

bool tt_host_pool_free(void *pointer) {
  if (!tt_host_pool_size(pointer)) {
    return false;
  }
  block *b = (block *)(void *)((char *)pointer - LINE);
  pthread_mutex_lock(&pool.lock);
  size_t kept = b->size;
  pool.used -= b->size;
  if (pool.used + pool.kept + kept > pool.limit) {
    pool.kept += b->kept = kept;
    give_back(b);
    kept = 0;
  }
  block *next = after(b), *previous = before(b);
  if (next && next->is_free) {
    kept += next->kept;
    unlist(next);
    set_size(b, b->size + next->size);
  }
  if (previous && previous->is_free) {
    kept += previous->kept;
    unlist(previous);
    set_size(previous, previous->size + b->size);
    b = previous;
  }
  list(b, kept);
  pthread_mutex_unlock(&pool.lock);
  return true;
}

void tt_host_pool_trim(void) {
  pthread_mutex_lock(&pool.lock);
  give_back_all();
  pthread_mutex_unlock(&pool.lock);
}

tt_host_pool_stats tt_host_pool_read(void) {
  pthread_mutex_lock(&pool.lock);
  tt_host_pool_stats stats = {pool.used, pool.kept};
  pthread_mutex_unlock(&pool.lock);
  return stats;
}
