// A 256-bit digest that nobody can make two inputs for: BLAKE2b (RFC 7693) with 32 bytes of result. For what is stored
// or compared by its digest alone; tables in memory use base/hash.h. The same on every machine.
#ifndef TORCHTPU_BASE_DIGEST_H
#define TORCHTPU_BASE_DIGEST_H

#include <stddef.h>
#include <stdint.h>

enum { TT_DIGEST_SIZE = 32, TT_DIGEST_BLOCK = 128, TT_DIGEST_TEXT = 2 * TT_DIGEST_SIZE + 1 };

typedef struct tt_digest {
  unsigned char bytes[TT_DIGEST_SIZE];
} tt_digest;

typedef struct tt_digester {
  uint64_t state[8], count[2];
  unsigned char block[TT_DIGEST_BLOCK];
  size_t used;  // bytes of `block`
} tt_digester;

void tt_digest_begin(tt_digester *digester);
void tt_digest_add(tt_digester *digester, const void *data, size_t size);
// As tt_digest_add(), the size first, so that the border between two fields counts.
void tt_digest_add_field(tt_digester *digester, const void *data, size_t size);
tt_digest tt_digest_end(tt_digester *digester);
tt_digest tt_digest_of(const void *data, size_t size);
// In hexadecimal, terminated.
void tt_digest_print(const tt_digest *digest, char out_text[TT_DIGEST_TEXT]);

#endif  // TORCHTPU_BASE_DIGEST_H
