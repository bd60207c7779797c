// BLAKE2b after RFC 7693, without a key. Chosen over SHA-256 because it takes a third of its time in portable C.
#include "base/digest.h"

#include <string.h>

static const uint64_t initial[8] = {
    UINT64_C(0x6a09e667f3bcc908), UINT64_C(0xbb67ae8584caa73b), UINT64_C(0x3c6ef372fe94f82b),
    UINT64_C(0xa54ff53a5f1d36f1), UINT64_C(0x510e527fade682d1), UINT64_C(0x9b05688c2b3e6c1f),
    UINT64_C(0x1f83d9abfb41bd6b), UINT64_C(0x5be0cd19137e2179),
};

// Which word of the block goes where, in each of the ten distinct rounds.
static const uint8_t order[10][16] = {
    {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15}, {14, 10, 4, 8, 9, 15, 13, 6, 1, 12, 0, 2, 11, 7, 5, 3},
    {11, 8, 12, 0, 5, 2, 15, 13, 10, 14, 3, 6, 7, 1, 9, 4}, {7, 9, 3, 1, 13, 12, 11, 14, 2, 6, 5, 10, 4, 0, 15, 8},
    {9, 0, 5, 7, 2, 4, 10, 15, 14, 1, 11, 12, 6, 8, 3, 13}, {2, 12, 6, 10, 0, 11, 8, 3, 4, 13, 7, 5, 15, 14, 1, 9},
    {12, 5, 1, 15, 14, 13, 4, 10, 0, 7, 6, 3, 9, 2, 8, 11}, {13, 11, 7, 14, 12, 1, 3, 9, 5, 0, 15, 4, 8, 6, 2, 10},
    {6, 15, 14, 9, 11, 3, 0, 8, 12, 2, 13, 7, 1, 4, 10, 5}, {10, 2, 8, 4, 7, 6, 1, 5, 15, 11, 9, 14, 3, 12, 13, 0},
};

static uint64_t rotate(uint64_t word, int bits) { return word >> bits | word << (64 - bits); }

static uint64_t load(const unsigned char *bytes) {
  uint64_t word = 0;
  for (int i = 0; i < 8; i++) {
    word |= (uint64_t)bytes[i] << (8 * i);
  }
  return word;
}

static void mix(uint64_t v[16], int a, int b, int c, int d, uint64_t x, uint64_t y) {
  v[a] += v[b] + x;
  v[d] = rotate(v[d] ^ v[a], 32);
  v[c] += v[d];
  v[b] = rotate(v[b] ^ v[c], 24);
  v[a] += v[b] + y;
  v[d] = rotate(v[d] ^ v[a], 16);
  v[c] += v[d];
  v[b] = rotate(v[b] ^ v[c], 63);
}

static void compress(tt_digester *digester, const unsigned char *block, uint64_t last) {
  uint64_t m[16], v[16];
  for (int i = 0; i < 16; i++) {
    m[i] = load(block + 8 * i);
    v[i] = i < 8 ? digester->state[i] : initial[i - 8];
  }
  v[12] ^= digester->count[0];
  v[13] ^= digester->count[1];
  v[14] ^= last;
  for (int round = 0; round < 12; round++) {
    const uint8_t *s = order[round % 10];
    mix(v, 0, 4, 8, 12, m[s[0]], m[s[1]]);
    mix(v, 1, 5, 9, 13, m[s[2]], m[s[3]]);
    mix(v, 2, 6, 10, 14, m[s[4]], m[s[5]]);
    mix(v, 3, 7, 11, 15, m[s[6]], m[s[7]]);
    mix(v, 0, 5, 10, 15, m[s[8]], m[s[9]]);
    mix(v, 1, 6, 11, 12, m[s[10]], m[s[11]]);
    mix(v, 2, 7, 8, 13, m[s[12]], m[s[13]]);
    mix(v, 3, 4, 9, 14, m[s[14]], m[s[15]]);
  }
  for (int i = 0; i < 8; i++) {
    digester->state[i] ^= v[i] ^ v[i + 8];
  }
}

static void advance(tt_digester *digester, size_t bytes) {
  digester->count[0] += bytes;
  digester->count[1] += digester->count[0] < bytes;
}

void tt_digest_begin(tt_digester *digester) {
  *digester = (tt_digester){.used = 0};
  memcpy(digester->state, initial, sizeof initial);
  digester->state[0] ^= UINT64_C(0x01010000) ^ TT_DIGEST_SIZE;  // the parameters: no key, one leaf, this size
}

void tt_digest_add(tt_digester *digester, const void *data, size_t size) {
  const unsigned char *bytes = data;
  while (size) {
    // A full block waits until more follows: the last one is compressed in another way.
    if (digester->used == TT_DIGEST_BLOCK) {
      advance(digester, TT_DIGEST_BLOCK);
      compress(digester, digester->block, 0);
      digester->used = 0;
    }
    for (; !digester->used && size > TT_DIGEST_BLOCK; bytes += TT_DIGEST_BLOCK, size -= TT_DIGEST_BLOCK) {
      advance(digester, TT_DIGEST_BLOCK);
      compress(digester, bytes, 0);
    }
    size_t part = TT_DIGEST_BLOCK - digester->used < size ? TT_DIGEST_BLOCK - digester->used : size;
    memcpy(digester->block + digester->used, bytes, part);
    digester->used += part;
    bytes += part;
    size -= part;
  }
}

void tt_digest_add_field(tt_digester *digester, const void *data, size_t size) {
  unsigned char length[8];
  for (int i = 0; i < 8; i++) {
    length[i] = (unsigned char)((uint64_t)size >> (8 * i));
  }
  tt_digest_add(digester, length, sizeof length);
  tt_digest_add(digester, data, size);
}

tt_digest tt_digest_end(tt_digester *digester) {
  advance(digester, digester->used);
  memset(digester->block + digester->used, 0, TT_DIGEST_BLOCK - digester->used);
  compress(digester, digester->block, UINT64_MAX);
  tt_digest digest;
  for (int i = 0; i < TT_DIGEST_SIZE; i++) {
    digest.bytes[i] = (unsigned char)(digester->state[i / 8] >> (8 * (i % 8)));
  }
  return digest;
}

tt_digest tt_digest_of(const void *data, size_t size) {
  tt_digester digester;
  tt_digest_begin(&digester);
  tt_digest_add(&digester, data, size);
  return tt_digest_end(&digester);
}

void tt_digest_print(const tt_digest *digest, char out_text[TT_DIGEST_TEXT]) {
  static const char digits[] = "0123456789abcdef";
  for (int i = 0; i < TT_DIGEST_SIZE; i++) {
    out_text[2 * i] = digits[digest->bytes[i] >> 4];
    out_text[2 * i + 1] = digits[digest->bytes[i] & 15];
  }
  out_text[2 * TT_DIGEST_SIZE] = '\0';
}
