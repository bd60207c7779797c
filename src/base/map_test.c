#include "base/map.h"

#include "base/test.h"

static void *number(size_t n) { return (void *)(uintptr_t)n; }

static void test_empty(void) {
  tt_map map = {0};
  void *value = number(1);
  tt_map_entry entry;
  size_t cursor = 0;
  CHECK(tt_map_get(&map, "a", 1) == NULL);
  CHECK(!tt_map_find(&map, "a", 1, &value) && value == NULL);
  CHECK(tt_map_remove(&map, "a", 1) == NULL);
  CHECK(!tt_map_next(&map, &cursor, &entry));
  tt_map_free(&map, free);
}

static void test_sets_replaces_removes(void) {
  tt_map map = {0};
  void *old = number(9);
  CHECK(tt_map_set(&map, "one", 3, number(1), &old) && old == NULL);
  CHECK(tt_map_set(&map, "two", 3, number(2), NULL));
  CHECK(tt_map_set(&map, "one", 3, number(11), &old) && old == number(1));
  CHECK_INT(map.count, 2);
  CHECK(tt_map_get(&map, "one", 3) == number(11));
  CHECK(tt_map_remove(&map, "one", 3) == number(11));
  CHECK(tt_map_get(&map, "one", 3) == NULL);
  CHECK(tt_map_get(&map, "two", 3) == number(2));
  CHECK_INT(map.count, 1);
  tt_map_free(&map, NULL);
  CHECK_INT(map.count, 0);
}

static void test_keys_are_compared_whole(void) {
  tt_map map = {0};
  char key[8] = "a\0b";
  CHECK(tt_map_set(&map, key, 3, number(1), NULL));
  key[2] = 'c';  // the map has a copy
  CHECK(tt_map_get(&map, "a\0b", 3) == number(1));
  CHECK(tt_map_get(&map, "a\0c", 3) == NULL);
  CHECK(tt_map_get(&map, "a\0b", 4) == NULL);
  CHECK(tt_map_get(&map, "a", 1) == NULL);
  CHECK(tt_map_set(&map, NULL, 0, number(2), NULL));
  CHECK(tt_map_get(&map, "", 0) == number(2));
  tt_map_free(&map, NULL);
}

static void test_null_value_is_found(void) {
  tt_map map = {0};
  void *value = number(1);
  CHECK(tt_map_set(&map, "k", 1, NULL, NULL));
  CHECK(tt_map_find(&map, "k", 1, &value) && value == NULL);
  tt_map_free(&map, NULL);
}

static void test_equal_hashes(void) {
  tt_map map = {0};
  for (size_t i = 0; i < 100; i++) {
    CHECK(tt_map_set_hashed(&map, 42, &i, sizeof i, number(i + 1), NULL));
  }
  for (size_t i = 0; i < 100; i++) {
    CHECK(tt_map_get_hashed(&map, 42, &i, sizeof i) == number(i + 1));
  }
  size_t absent = 100;
  CHECK(tt_map_get_hashed(&map, 42, &absent, sizeof absent) == NULL);
  tt_map_free(&map, NULL);
}

// Random operations against an array that says what must be there.
static void test_against_a_model(void) {
  enum { KEYS = 97, STEPS = 200000 };
  tt_map map = {0};
  void *model[KEYS] = {0};
  uint64_t random = 1;
  size_t count = 0;
  for (size_t step = 1; step <= STEPS; step++) {
    random = random * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    unsigned key = (unsigned)(random >> 33) % KEYS;
    // Phases of growth and of shrinking.
    bool add = (random >> 60) < (step / 5000 % 2 ? 12 : 4);
    if (add) {
      void *old;
      REQUIRE(tt_map_set(&map, &key, sizeof key, number(step), &old));
      CHECK(old == model[key]);
      count += !model[key];
      model[key] = number(step);
    } else {
      CHECK(tt_map_remove(&map, &key, sizeof key) == model[key]);
      count -= model[key] != NULL;
      model[key] = NULL;
    }
    REQUIRE(map.count == count);
    if (step % 500 == 0) {
      for (unsigned k = 0; k < KEYS; k++) {
        REQUIRE(tt_map_get(&map, &k, sizeof k) == model[k]);
      }
    }
  }
  tt_map_free(&map, NULL);
}

static void test_iterates_over_every_entry_once(void) {
  tt_map map = {0};
  enum { COUNT = 10000 };
  static int seen[COUNT];
  for (int i = 0; i < COUNT; i++) {
    REQUIRE(tt_map_set(&map, &i, sizeof i, number((size_t)i), NULL));
  }
  size_t cursor = 0;
  tt_map_entry entry;
  while (tt_map_next(&map, &cursor, &entry)) {
    int key;
    REQUIRE(entry.size == sizeof key);
    memcpy(&key, entry.key, sizeof key);
    REQUIRE(key >= 0 && key < COUNT && entry.value == number((size_t)key));
    seen[key]++;
    // A value may be replaced on the way.
    REQUIRE(tt_map_set(&map, &key, sizeof key, number((size_t)key + 1), NULL));
  }
  for (int i = 0; i < COUNT; i++) {
    if (seen[i] != 1) {
      CHECK_INT(seen[i], 1);
    }
  }
  tt_map_free(&map, NULL);
}

static void test_free_frees_values(void) {
  tt_map map = {0};
  for (int i = 0; i < 50; i++) {
    CHECK(tt_map_set(&map, &i, sizeof i, malloc(10), NULL));  // AddressSanitizer sees what is forgotten
  }
  tt_map_free(&map, free);
  CHECK(tt_map_set(&map, "again", 5, number(1), NULL));
  tt_map_free(&map, NULL);
}

static void test_a_key_too_large_is_refused(void) {
  tt_map map = {0};
  CHECK(!tt_map_set_hashed(&map, 1, "x", SIZE_MAX, number(1), NULL));
  CHECK(tt_map_set(&map, "x", 1, number(1), NULL));
  CHECK_INT(map.count, 1);
  tt_map_free(&map, NULL);
}

TEST_MAIN(TEST(test_empty), TEST(test_sets_replaces_removes), TEST(test_keys_are_compared_whole),
          TEST(test_null_value_is_found), TEST(test_equal_hashes), TEST(test_against_a_model),
          TEST(test_iterates_over_every_entry_once), TEST(test_free_frees_values),
          TEST(test_a_key_too_large_is_refused))
