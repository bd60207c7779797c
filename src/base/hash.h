// A fast 64-bit hash of bytes, for tables in memory. Its values may change between versions and machines: never store
// them. It resists accidents, not an attacker; what must not collide compares whole keys.
#ifndef TORCHTPU_BASE_HASH_H
#define TORCHTPU_BASE_HASH_H

#include <stddef.h>
#include <stdint.h>
#include <string.h>

#define TT_HASH_K0 UINT64_C(0x9e3779b97f4a7c15)
#define TT_HASH_K1 UINT64_C(0xbf58476d1ce4e5b9)
#define TT_HASH_K2 UINT64_C(0x94d049bb133111eb)

// The 128-bit product folded to 64 bits: each bit of the result depends on every bit of both operands.
static inline uint64_t tt_hash_mix(uint64_t a, uint64_t b) {
  unsigned __int128 product = (unsigned __int128)a * b;
  return (uint64_t)product ^ (uint64_t)(product >> 64);
}

static inline uint64_t tt_hash_load(const unsigned char *data, size_t size) {
  uint64_t word = 0;
  memcpy(&word, data, size);
  return word;
}

// Extends `hash` by another number, in order.
static inline uint64_t tt_hash_combine(uint64_t hash, uint64_t value) {
  return tt_hash_mix(hash ^ TT_HASH_K0, value ^ TT_HASH_K1) + value;
}

static inline uint64_t tt_hash_bytes(const void *data, size_t size, uint64_t seed) {
  const unsigned char *p = data;
  uint64_t a = seed ^ TT_HASH_K0, b = seed ^ TT_HASH_K1;
  size_t left = size;
  // Two lanes, so that their multiplications overlap. Adding the input back keeps a lane alive whose product is zero.
  for (; left > 32; left -= 32, p += 32) {
    uint64_t w0 = tt_hash_load(p, 8), w1 = tt_hash_load(p + 8, 8);
    uint64_t w2 = tt_hash_load(p + 16, 8), w3 = tt_hash_load(p + 24, 8);
    a = tt_hash_mix(w0 ^ TT_HASH_K1, w1 ^ a) + w0;
    b = tt_hash_mix(w2 ^ TT_HASH_K2, w3 ^ b) + w2;
  }
  for (; left > 8; left -= 8, p += 8) {
    a = tt_hash_combine(a, tt_hash_load(p, 8));
  }
  uint64_t last = left == 8 ? tt_hash_load(p, 8) : left ? tt_hash_load(p, left) : 0;
  a = tt_hash_mix(last ^ a ^ TT_HASH_K2, b ^ (uint64_t)size) + last;
  return tt_hash_mix(a ^ TT_HASH_K0, TT_HASH_K2);
}

#endif  // TORCHTPU_BASE_HASH_H
