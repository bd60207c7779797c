// Bytes go through the parser of entries, as they are and as changes of a good entry. What it accepts must be an entry
// that was written so; nothing may read out of bounds.
//
//   cache_entry_fuzz [ITERATIONS [SEED]]
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cache/internal.h"

static unsigned char payload[300];
static long accepted;

// A good entry in exactly as much memory as it needs, so that ASan sees a read behind it.
static unsigned char *make_entry(size_t size, size_t *out_size) {
  tt_entry entry = {.compile_ns = 5, .temp_bytes = 6, .payload = payload, .payload_size = size};
  memset(entry.key.bytes, 7, sizeof entry.key.bytes);
  unsigned char *bytes = malloc(TT_ENTRY_HEADER + size);
  if (!bytes) {
    abort();
  }
  tt_entry_header(&entry, bytes);
  memcpy(bytes + TT_ENTRY_HEADER, payload, size);
  *out_size = TT_ENTRY_HEADER + size;
  return bytes;
}

static void check(const unsigned char *bytes, size_t size) {
  tt_entry entry;
  const char *fault = tt_entry_parse(bytes, size, NULL, &entry);
  if (fault) {
    if (entry.payload || entry.payload_size) {
      abort();
    }
    return;
  }
  accepted++;
  unsigned char header[TT_ENTRY_HEADER];
  tt_entry_header(&entry, header);
  if (memcmp(header, bytes, TT_ENTRY_HEADER) || entry.payload_size + TT_ENTRY_HEADER != size) {
    abort();
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned char *copy = calloc(size + !size, 1);
  if (!copy) {
    return 0;
  }
  if (size) {
    memcpy(copy, data, size);
  }
  check(copy, size);
  free(copy);
  if (size < 8) {
    return 0;
  }
  // The same bytes as instructions: where a good entry is changed, cut or grown.
  size_t whole, payload_size = 1 + data[0];
  unsigned char *entry = make_entry(payload_size, &whole);
  for (size_t i = 4; i + 2 < size && i < 40; i += 3) {
    entry[(data[i] | (size_t)data[i + 1] << 8) % whole] ^= data[i + 2];
  }
  check(entry, whole);
  size_t cut = (data[1] | (size_t)data[2] << 8) % whole;
  unsigned char *part = calloc(cut + !cut, 1);
  if (part) {
    memcpy(part, entry, cut);
    check(part, cut);
  }
  free(part);
  free(entry);
  return 0;
}

#ifdef TT_FUZZ_MAIN
int main(int argc, char **argv) {
  long iterations = argc > 1 ? atol(argv[1]) : 20000;
  uint64_t state = (argc > 2 ? strtoull(argv[2], NULL, 10) : 1) * 0x9e3779b97f4a7c15u + 1;
  for (long i = 0; i < iterations; i++) {
    uint8_t bytes[400];
    for (size_t at = 0; at < sizeof bytes; at++) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      bytes[at] = (uint8_t)(state >> 24);
    }
    // Without changes now and then, or nothing would ever be accepted; and beginning like an entry.
    if (i % 8 == 0) {
      memset(bytes + 4, 0, sizeof bytes - 4);
    } else if (i % 8 == 1) {
      tt_entry_header(&(tt_entry){.payload = payload, .payload_size = 272}, bytes);
    }
    LLVMFuzzerTestOneInput(bytes, i % 3 ? sizeof bytes : (size_t)(state % sizeof bytes));
  }
  printf("%ld iterations, %ld entries accepted\n", iterations, accepted);
  return iterations > 100 && !accepted;
}
#endif
