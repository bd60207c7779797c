// The format of an entry.
#include <string.h>

#include "cache/internal.h"

static const char magic[8] = {'T', 'T', 'C', 'A', 'C', 'H', 'E', '\n'};
// Where the fields are.
enum { VERSION = 8, HEADER_SIZE = 12, KEY = 16, PAYLOAD_SIZE = 48, COMPILE_NS = 56, TEMP_BYTES = 64, CHECKSUM = 96 };

static void put(unsigned char *at, uint64_t value, int bytes) {
  for (int i = 0; i < bytes; i++) {
    at[i] = (unsigned char)(value >> (8 * i));
  }
}

static uint64_t get(const unsigned char *at, int bytes) {
  uint64_t value = 0;
  for (int i = 0; i < bytes; i++) {
    value |= (uint64_t)at[i] << (8 * i);
  }
  return value;
}

// Of the header before the checksum, and of the payload.
static tt_digest checksum(const unsigned char *header, const void *payload, size_t size) {
  tt_digester digester;
  tt_digest_begin(&digester);
  tt_digest_add(&digester, header, CHECKSUM);
  tt_digest_add(&digester, payload, size);
  return tt_digest_end(&digester);
}

void tt_entry_header(const tt_entry *entry, unsigned char out_header[TT_ENTRY_HEADER]) {
  memset(out_header, 0, TT_ENTRY_HEADER);
  memcpy(out_header, magic, sizeof magic);
  put(out_header + VERSION, TT_ENTRY_VERSION, 4);
  put(out_header + HEADER_SIZE, TT_ENTRY_HEADER, 4);
  memcpy(out_header + KEY, entry->key.bytes, TT_DIGEST_SIZE);
  put(out_header + PAYLOAD_SIZE, entry->payload_size, 8);
  put(out_header + COMPILE_NS, (uint64_t)entry->compile_ns, 8);
  put(out_header + TEMP_BYTES, (uint64_t)entry->temp_bytes, 8);
  tt_digest sum = checksum(out_header, entry->payload, entry->payload_size);
  memcpy(out_header + CHECKSUM, sum.bytes, TT_DIGEST_SIZE);
}

const char *tt_entry_parse(const void *data, size_t size, const tt_digest *key, tt_entry *out_entry) {
  const unsigned char *header = data;
  *out_entry = (tt_entry){.payload = NULL};
  if (!size) {
    return "empty";
  }
  if (size < sizeof magic || memcmp(header, magic, sizeof magic)) {
    return "no entry of the compile cache";
  }
  if (size < TT_ENTRY_HEADER) {
    return "truncated";
  }
  if (get(header + VERSION, 4) != TT_ENTRY_VERSION || get(header + HEADER_SIZE, 4) != TT_ENTRY_HEADER) {
    return "of another format version";
  }
  if (get(header + PAYLOAD_SIZE, 8) != size - TT_ENTRY_HEADER) {
    return "truncated, or longer than it was written";
  }
  if (size == TT_ENTRY_HEADER) {
    return "without an executable";
  }
  tt_digest sum = checksum(header, header + TT_ENTRY_HEADER, size - TT_ENTRY_HEADER);
  if (memcmp(header + CHECKSUM, sum.bytes, TT_DIGEST_SIZE)) {
    return "damaged: the checksum differs";
  }
  if (key && memcmp(header + KEY, key->bytes, TT_DIGEST_SIZE)) {
    return "of another key";
  }
  uint64_t compile_ns = get(header + COMPILE_NS, 8), temp_bytes = get(header + TEMP_BYTES, 8);
  *out_entry = (tt_entry){.compile_ns = compile_ns > INT64_MAX ? 0 : (int64_t)compile_ns,
                          .temp_bytes = temp_bytes > INT64_MAX ? 0 : (int64_t)temp_bytes,
                          .payload = header + TT_ENTRY_HEADER,
                          .payload_size = size - TT_ENTRY_HEADER};
  memcpy(out_entry->key.bytes, header + KEY, TT_DIGEST_SIZE);
  return NULL;
}
