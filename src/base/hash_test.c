#include "base/hash.h"

#include "base/test.h"

static int compare(const void *a, const void *b) {
  uint64_t x = *(const uint64_t *)a, y = *(const uint64_t *)b;
  return (x > y) - (x < y);
}

static void check_distinct(uint64_t *hashes, size_t count) {
  qsort(hashes, count, sizeof *hashes, compare);
  for (size_t i = 1; i < count; i++) {
    if (hashes[i] == hashes[i - 1]) {
      CHECK(!"two inputs have one hash");
      return;
    }
  }
}

static void test_same_bytes_same_hash_at_any_alignment(void) {
  unsigned char bytes[300];
  for (size_t i = 0; i < sizeof bytes; i++) {
    bytes[i] = (unsigned char)(i * 73);
  }
  for (size_t size = 0; size <= 256; size++) {
    uint64_t hash = tt_hash_bytes(bytes, size, 0);
    for (size_t shift = 1; shift < 9; shift++) {
      unsigned char moved[300];
      memcpy(moved + shift, bytes, size);
      CHECK(tt_hash_bytes(moved + shift, size, 0) == hash);
    }
  }
}

static void test_length_counts(void) {
  static const unsigned char zeros[1000];
  uint64_t hashes[1001];
  for (size_t size = 0; size <= 1000; size++) {
    hashes[size] = tt_hash_bytes(zeros, size, 0);
  }
  check_distinct(hashes, 1001);
}

static void test_every_bit_counts(void) {
  // Each bit of the input changes about half of the hash's, wherever it stands.
  for (size_t size = 1; size <= 100; size += 3) {
    unsigned char bytes[100];
    memset(bytes, 0x5a, sizeof bytes);
    uint64_t hash = tt_hash_bytes(bytes, size, 0);
    for (size_t bit = 0; bit < size * 8; bit++) {
      bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
      int changed = __builtin_popcountll(hash ^ tt_hash_bytes(bytes, size, 0));
      if (changed < 8 || changed > 56) {
        CHECK_INT(changed, 32);
      }
      bytes[bit / 8] ^= (unsigned char)(1u << bit % 8);
    }
  }
}

static void test_seed_counts(void) {
  uint64_t hashes[1000];
  for (uint64_t seed = 0; seed < 1000; seed++) {
    hashes[seed] = tt_hash_bytes("key", 3, seed);
  }
  check_distinct(hashes, 1000);
}

static void test_low_bits_spread(void) {
  // Keys like an op's: a few small integers. The low 10 bits choose the slot.
  enum { KEYS = 100 * 1024 };
  static int slots[1024];
  static uint64_t hashes[KEYS];
  for (int i = 0; i < KEYS; i++) {
    int64_t key[4] = {i % 32, i / 32 % 64, i / 2048, 1};
    hashes[i] = tt_hash_bytes(key, sizeof key, 0);
    slots[hashes[i] & 1023]++;
  }
  double chi = 0;
  for (int i = 0; i < 1024; i++) {
    chi += (slots[i] - 100.0) * (slots[i] - 100.0) / 100.0;
  }
  CHECK_NEAR(chi, 1023, 300);  // 1023 expected, standard deviation 45
  check_distinct(hashes, KEYS);
}

static void test_combine_keeps_order(void) {
  uint64_t ab = tt_hash_combine(tt_hash_combine(0, 1), 2), ba = tt_hash_combine(tt_hash_combine(0, 2), 1);
  CHECK(ab != ba);
  CHECK(tt_hash_combine(0, 0) != 0);
}

TEST_MAIN(TEST(test_same_bytes_same_hash_at_any_alignment), TEST(test_length_counts), TEST(test_every_bit_counts),
          TEST(test_seed_counts), TEST(test_low_bits_spread), TEST(test_combine_keeps_order))
