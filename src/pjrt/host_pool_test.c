#include "pjrt/host_pool.h"

#include <dlfcn.h>
#include <pthread.h>
#include <unistd.h>

#include "base/test.h"

enum { MEGABYTE = 1 << 20, MEMORY = 256 * MEGABYTE };

static size_t resident(void) {
  long total = 0, pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &total, &pages) != 2) {
    pages = 0;
  }
  if (file) {
    fclose(file);
  }
  return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void test_small_is_not_taken(void) {
  REQUIRE(tt_host_pool_open(MEMORY));
  CHECK(tt_host_pool_alloc(0) == NULL);
  CHECK(tt_host_pool_alloc(1000) == NULL);
  CHECK(tt_host_pool_alloc(SIZE_MAX) == NULL);
  CHECK(tt_host_pool_alloc((size_t)PTRDIFF_MAX) == NULL);
  int local;
  CHECK(!tt_host_pool_free(&local) && !tt_host_pool_free(NULL));
  CHECK(tt_host_pool_size(&local) == 0);
}

static void test_memory_is_reused(void) {
  char *a = tt_host_pool_alloc(3 * MEGABYTE + 1);
  REQUIRE(a && (uintptr_t)a % TT_HOST_POOL_ALIGNMENT == 0);
  CHECK(tt_host_pool_size(a) > 3 * MEGABYTE);
  memset(a, 1, 3 * MEGABYTE + 1);
  CHECK(tt_host_pool_free(a));
  CHECK(tt_host_pool_alloc(3 * MEGABYTE + 1) == a);
  CHECK(a[3 * MEGABYTE] == 1);  // as it was left
  CHECK(tt_host_pool_free(a));
  // Free neighbours are one block, whatever the order in which they were freed.
  char *blocks[3];
  for (int i = 0; i < 3; i++) {
    REQUIRE(blocks[i] = tt_host_pool_alloc(MEGABYTE));
  }
  CHECK(tt_host_pool_free(blocks[0]) && tt_host_pool_free(blocks[2]) && tt_host_pool_free(blocks[1]));
  char *whole = tt_host_pool_alloc(3 * MEGABYTE);
  CHECK(whole == blocks[0]);
  CHECK(tt_host_pool_free(whole));
  CHECK_INT(tt_host_pool_read().used, 0);
}

static void test_trim_gives_back(void) {
  const size_t size = 64 * MEGABYTE;
  char *a = tt_host_pool_alloc(size);
  REQUIRE(a);
  memset(a, 1, size);
  CHECK(tt_host_pool_free(a));
  CHECK(tt_host_pool_read().kept >= size);
  const size_t before = resident();
  tt_host_pool_trim();
  CHECK_INT(tt_host_pool_read().kept, 0);
  CHECK(before - resident() > size / 2);
  CHECK(tt_host_pool_alloc(size) == a);
  CHECK(a[size / 2] == 0);
  CHECK(tt_host_pool_free(a));
}

static void test_keeps_at_most_half(void) {
  tt_host_pool_trim();
  char *blocks[5];
  for (int i = 0; i < 5; i++) {
    REQUIRE(blocks[i] = tt_host_pool_alloc(50 * MEGABYTE));
  }
  for (int i = 0; i < 5; i++) {
    CHECK(tt_host_pool_free(blocks[i]));
    CHECK(tt_host_pool_read().used + tt_host_pool_read().kept <= MEMORY / 2 || tt_host_pool_read().kept == 0);
  }
  CHECK(tt_host_pool_read().kept > 0);
}

// A large block whose memory was given back takes it anew: not beside all that is kept.
static void test_memory_taken_anew_counts(void) {
  tt_host_pool_trim();
  char *small[10], *large;
  for (int i = 0; i < 10; i++) {
    REQUIRE(small[i] = tt_host_pool_alloc(10 * MEGABYTE));
  }
  REQUIRE(large = tt_host_pool_alloc(100 * MEGABYTE));
  CHECK(tt_host_pool_free(large));  // more than half: given back
  for (int i = 0; i < 10; i += 2) {
    CHECK(tt_host_pool_free(small[i]));
  }
  CHECK(tt_host_pool_read().kept > 0);
  REQUIRE(large = tt_host_pool_alloc(100 * MEGABYTE));
  CHECK_INT(tt_host_pool_read().kept, 0);
  CHECK(tt_host_pool_free(large));
  for (int i = 1; i < 10; i += 2) {
    CHECK(tt_host_pool_free(small[i]));
  }
  CHECK_INT(tt_host_pool_read().used, 0);
}

// Blocks of random sizes, each filled with a number of its own, from several threads.
static void *work(void *seed_of) {
  unsigned seed = *(unsigned *)seed_of;
  enum { SLOTS = 12 };
  struct {
    uint32_t *at, mark;
    size_t count;
  } slots[SLOTS] = {0};
  for (int turn = 0; turn < 1000; turn++) {
    seed = seed * 1664525u + 1013904223u;
    const int i = (int)(seed >> 16) % SLOTS;
    if (slots[i].at) {
      for (size_t k = 0; k < slots[i].count; k += 1021) {
        CHECK(slots[i].at[k] == slots[i].mark);
      }
      CHECK(slots[i].at[slots[i].count - 1] == slots[i].mark);
      CHECK(tt_host_pool_free(slots[i].at));
      slots[i].at = NULL;
      continue;
    }
    slots[i].count = (128 << 8) + (seed >> 8) % 300000;
    slots[i].mark = seed;
    slots[i].at = tt_host_pool_alloc(slots[i].count * sizeof *slots[i].at);
    if (!slots[i].at) {
      tt_test_check(__FILE__, __LINE__, "memory", false);
      continue;
    }
    for (size_t k = 0; k < slots[i].count; k += 1021) {
      slots[i].at[k] = seed;
    }
    slots[i].at[slots[i].count - 1] = seed;
  }
  for (int i = 0; i < SLOTS; i++) {
    CHECK(!slots[i].at || tt_host_pool_free(slots[i].at));
  }
  return NULL;
}

static void test_threads(void) {
  enum { THREADS = 4 };
  pthread_t threads[THREADS];
  unsigned seeds[THREADS];
  for (unsigned i = 0; i < THREADS; i++) {
    seeds[i] = i + 1;
    REQUIRE(!pthread_create(&threads[i], NULL, work, &seeds[i]));
  }
  for (int i = 0; i < THREADS; i++) {
    pthread_join(threads[i], NULL);
  }
  CHECK_INT(tt_host_pool_read().used, 0);
  tt_host_pool_trim();
  CHECK_INT(tt_host_pool_read().kept, 0);
}

static void test_attach_refuses(void) {
  setenv("TORCH_TPU_HOST_POOL", "0", 1);
  CHECK(!tt_host_pool_attach(NULL, MEMORY));
  unsetenv("TORCH_TPU_HOST_POOL");
}

// Whatever way a block comes back by, it is known whose it is.
static void test_every_reference_is_led(void) {
  const char *path = getenv("TT_TEST_POOL_PLUGIN");
  if (!path) {
    SKIP("TT_TEST_POOL_PLUGIN is not set");
  }
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  REQUIRE(library);
  void *(*take)(size_t size) = (void *(*)(size_t))dlsym(library, "pool_user_take");
  void *(*resize)(void *pointer, size_t size) = (void *(*)(void *, size_t))dlsym(library, "pool_user_resize");
  void (*give)(void *pointer) = (void (*)(void *))dlsym(library, "pool_user_give");
  void (*const *giver)(void *pointer) = (void (*const *)(void *))dlsym(library, "pool_user_giver");
  int (*processors)(void) = (int (*)(void))dlsym(library, "pool_user_processors");
  REQUIRE(take && resize && give && giver && processors);
  void *before = take(MEGABYTE);
  REQUIRE(before && tt_host_pool_attach(library, MEMORY));
  give(before);
  (*giver)(malloc(MEGABYTE));
  for (int i = 0; i < 3; i++) {
    char *block = take(MEGABYTE);
    REQUIRE(block);
    CHECK(tt_host_pool_read().used > MEGABYTE);
    block[MEGABYTE - 1] = 7;
    if (i == 0) {
      give(block);
    } else if (i == 1) {
      (*giver)(block);
    } else {
      block = resize(block, 2 * MEGABYTE);
      CHECK(block && block[MEGABYTE - 1] == 7);
      give(block);
    }
    CHECK_INT(tt_host_pool_read().used, 0);
  }
  const int all = processors();
  tt_host_pool_one_processor(true);
  CHECK_INT(processors(), 1);
  tt_host_pool_one_processor(false);
  CHECK_INT(processors(), all);
}

TEST_MAIN(TEST(test_small_is_not_taken), TEST(test_memory_is_reused), TEST(test_trim_gives_back),
          TEST(test_keeps_at_most_half), TEST(test_memory_taken_anew_counts), TEST(test_threads),
          TEST(test_attach_refuses), TEST(test_every_reference_is_led))
