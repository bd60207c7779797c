#include "base/arena.h"

#include "base/test.h"

static void test_memory_is_zeroed_aligned_and_apart(void) {
  tt_arena arena = {0};
  unsigned char *all[2000];
  size_t sizes[2000];
  for (int i = 0; i < 2000; i++) {
    sizes[i] = (size_t)(i * 37 % 300);
    all[i] = tt_arena_alloc(&arena, sizes[i]);
    REQUIRE(all[i] != NULL);
    CHECK_INT((uintptr_t)all[i] % 16, 0);
    for (size_t j = 0; j < sizes[i]; j++) {
      if (all[i][j]) {
        CHECK(!"memory is not zeroed");
        break;
      }
    }
    memset(all[i], i & 0xff, sizes[i]);
  }
  for (int i = 0; i < 2000; i++) {
    for (size_t j = 0; j < sizes[i]; j++) {
      if (all[i][j] != (unsigned char)i) {
        CHECK(!"allocations overlap");
        break;
      }
    }
  }
  tt_arena_free(&arena);
}

static void test_big_allocation_leaves_the_current_block_in_use(void) {
  tt_arena arena = {0};
  char *first = tt_arena_alloc(&arena, 16);
  char *big = tt_arena_alloc(&arena, 1 << 20);
  char *second = tt_arena_alloc(&arena, 16);
  REQUIRE(first && big && second);
  memset(big, 1, 1 << 20);
  CHECK(second == first + 16);
  tt_arena_free(&arena);
  // A big one first.
  big = tt_arena_alloc(&arena, 1 << 20);
  REQUIRE(big != NULL);
  memset(big, 1, 1 << 20);
  CHECK(tt_arena_alloc(&arena, 1) != NULL);
  tt_arena_free(&arena);
}

static void test_too_much_is_null(void) {
  tt_arena arena = {0};
  CHECK(tt_arena_alloc(&arena, SIZE_MAX) == NULL);
  CHECK(tt_arena_alloc(&arena, SIZE_MAX - 8) == NULL);
  CHECK(tt_arena_copy(&arena, "", SIZE_MAX) == NULL);
  CHECK(tt_arena_alloc(&arena, 8) != NULL);
  tt_arena_free(&arena);
}

static void test_copy_and_printf(void) {
  tt_arena arena = {0};
  int numbers[3] = {1, 2, 3};
  int *copy = tt_arena_copy(&arena, numbers, sizeof numbers);
  REQUIRE(copy != NULL);
  CHECK(copy != numbers && !memcmp(copy, numbers, sizeof numbers));
  CHECK(tt_arena_copy(&arena, NULL, 0) != NULL);
  CHECK_STR(tt_arena_printf(&arena, "%s-%d", "a", 5), "a-5");
  CHECK_STR(tt_arena_printf(&arena, "%s", ""), "");
  tt_arena_free(&arena);
}

static void test_free_is_repeatable_and_the_arena_usable(void) {
  tt_arena arena = {0};
  tt_arena_free(&arena);
  CHECK(tt_arena_alloc(&arena, 10) != NULL);
  tt_arena_free(&arena);
  tt_arena_free(&arena);
  CHECK(tt_arena_alloc(&arena, 10) != NULL);
  tt_arena_free(&arena);
}

TEST_MAIN(TEST(test_memory_is_zeroed_aligned_and_apart), TEST(test_big_allocation_leaves_the_current_block_in_use),
          TEST(test_too_much_is_null), TEST(test_copy_and_printf), TEST(test_free_is_repeatable_and_the_arena_usable))
