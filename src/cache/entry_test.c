#include "cache/internal.h"

#include "base/test.h"

enum { PAYLOAD = 500, WHOLE = TT_ENTRY_HEADER + PAYLOAD };
static unsigned char payload[PAYLOAD], whole[WHOLE];
static tt_entry good;

static void make(void) {
  for (int i = 0; i < PAYLOAD; i++) {
    payload[i] = (unsigned char)(i * 31);
  }
  good = (tt_entry){.key = tt_digest_of("key", 3),
                    .compile_ns = 123456789,
                    .temp_bytes = 4096,
                    .payload = payload,
                    .payload_size = PAYLOAD};
  tt_entry_header(&good, whole);
  memcpy(whole + TT_ENTRY_HEADER, payload, PAYLOAD);
}

static void test_round_trip(void) {
  make();
  tt_entry entry;
  CHECK(!tt_entry_parse(whole, WHOLE, &good.key, &entry));
  CHECK(!memcmp(&entry.key, &good.key, sizeof good.key));
  CHECK_INT(entry.compile_ns, 123456789);
  CHECK_INT(entry.temp_bytes, 4096);
  CHECK(entry.payload == whole + TT_ENTRY_HEADER);
  CHECK_INT(entry.payload_size, PAYLOAD);
  CHECK(!tt_entry_parse(whole, WHOLE, NULL, &entry));
}

static void test_every_bit_is_protected(void) {
  make();
  for (int i = 0; i < WHOLE; i++) {
    for (int bit = 0; bit < 8; bit++) {
      tt_entry entry;
      whole[i] ^= (unsigned char)(1 << bit);
      if (!tt_entry_parse(whole, WHOLE, &good.key, &entry) || entry.payload) {
        tt_test_fail(__FILE__, __LINE__, "byte %d, bit %d", i, bit);
      }
      whole[i] ^= (unsigned char)(1 << bit);
    }
  }
}

static void test_every_length_is_checked(void) {
  make();
  for (size_t size = 0; size < WHOLE; size++) {
    tt_entry entry;
    unsigned char *part = malloc(size + !size);  // so that ASan sees a read behind the end
    REQUIRE(part != NULL);
    memcpy(part, whole, size);
    CHECK(tt_entry_parse(part, size, &good.key, &entry) != NULL);
    free(part);
  }
  unsigned char longer[WHOLE + 1] = {0};
  memcpy(longer, whole, WHOLE);
  tt_entry entry;
  CHECK_CONTAINS(tt_entry_parse(longer, sizeof longer, &good.key, &entry), "longer");
}

static void test_faults_are_named(void) {
  make();
  tt_entry entry;
  tt_digest other = tt_digest_of("other", 5);
  CHECK_STR(tt_entry_parse(whole, 0, NULL, &entry), "empty");
  CHECK_CONTAINS(tt_entry_parse("#!/bin/sh\n", 10, NULL, &entry), "no entry");
  CHECK_CONTAINS(tt_entry_parse(whole, 20, NULL, &entry), "truncated");
  CHECK_CONTAINS(tt_entry_parse(whole, WHOLE - 1, NULL, &entry), "truncated");
  CHECK_CONTAINS(tt_entry_parse(whole, WHOLE, &other, &entry), "another key");
  whole[8] ^= 2;
  CHECK_CONTAINS(tt_entry_parse(whole, WHOLE, NULL, &entry), "version");
  make();
  whole[WHOLE - 1] ^= 1;
  CHECK_CONTAINS(tt_entry_parse(whole, WHOLE, NULL, &entry), "checksum");
  // A header that is right in itself, over nothing.
  tt_entry nothing = {.key = good.key};
  tt_entry_header(&nothing, whole);
  CHECK_CONTAINS(tt_entry_parse(whole, TT_ENTRY_HEADER, NULL, &entry), "without an executable");
}

TEST_MAIN(TEST(test_round_trip), TEST(test_every_bit_is_protected), TEST(test_every_length_is_checked),
          TEST(test_faults_are_named))
