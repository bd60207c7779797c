#include "base/digest.h"

#include "base/test.h"

static void check(const void *data, size_t size, const char *expected) {
  tt_digest digest = tt_digest_of(data, size);
  char text[TT_DIGEST_TEXT];
  tt_digest_print(&digest, text);
  CHECK_STR(text, expected);
}

// Computed with the reference implementation, as Python's hashlib.blake2b(data, digest_size=32) has it. The bytes are
// (7 i + 3) mod 251; the sizes lie around those of a block.
static const struct {
  size_t size;
  const char *digest;
} vectors[] = {
    {0, "0e5751c026e543b2e8ab2eb06099daa1d1e5df47778f7787faab45cdf12fe3a8"},
    {1, "e88bd757ad5b9bedf372d8d3f0cf6c962a469db61a265f6418e1ffed86da29ec"},
    {3, "9facd640130c81e7f318a8d5c660bc1b0f5d03861ffbd4cc1358e0e904593c28"},
    {63, "7d780c3264dedf1cddd683d6fe976ddc273c3caf2c54aeadbaba0d43c3ad287d"},
    {64, "e05ae5cb162ab39214830a09e62611c48d77b3a0ceec14483820101f3a74aa02"},
    {127, "7eb3d4fe699cedc52282a1c091627822fe7790ef178af8269c0261d367931246"},
    {128, "6afdad1409d770bce274b62a69123c97c86ffb40ce9708f3ff9ae4cbba8ba080"},
    {129, "69e98b10112e4b7ae396bfbddaee75cc5fe6a9dc1fffc2b11e7c0fc48de04ae5"},
    {255, "79133c6c55eafb6dd1aa1d75fe1622b86492ce7093b81ba85f29205f6d3a7a78"},
    {256, "fabff1fa6173588d4cecdeade31b3237760d62664249e44f621deba4b94367ad"},
    {257, "c069dcc3628f1598cd4f058da809c5f1c3a4ad536acd12dc514bcc0753f71f8c"},
    {1000, "655483217562ae552fae4c276411ebd441ae1615754212965b82aee8aa76e9d8"},
    {100000, "6b704932a175d8cd18d1efd0b707d636e0044d0414fd154e5ea7c4b2abaeff37"},
};
static unsigned char bytes[100000];

static void fill(void) {
  for (size_t i = 0; i < sizeof bytes; i++) {
    bytes[i] = (unsigned char)((i * 7 + 3) % 251);
  }
}

static void test_vectors(void) {
  fill();
  check("abc", 3, "bddd813c634239723171ef3fee98579b94964e3bb1cb3e427262c8c068d52319");
  for (size_t i = 0; i < sizeof vectors / sizeof *vectors; i++) {
    check(bytes, vectors[i].size, vectors[i].digest);
  }
}

static void test_pieces_make_the_whole(void) {
  fill();
  tt_digest whole = tt_digest_of(bytes, 1000);
  for (size_t piece = 1; piece < 400; piece += 7) {
    tt_digester digester;
    tt_digest_begin(&digester);
    for (size_t at = 0; at < 1000; at += piece) {
      tt_digest_add(&digester, bytes + at, piece < 1000 - at ? piece : 1000 - at);
      tt_digest_add(&digester, NULL, 0);
    }
    tt_digest digest = tt_digest_end(&digester);
    CHECK(!memcmp(&digest, &whole, sizeof whole));
  }
}

static void test_borders_of_fields_count(void) {
  tt_digester a, b;
  tt_digest_begin(&a);
  tt_digest_add_field(&a, "ab", 2);
  tt_digest_add_field(&a, "c", 1);
  tt_digest first = tt_digest_end(&a);
  char text[TT_DIGEST_TEXT];
  tt_digest_print(&first, text);
  CHECK_STR(text, "20263e794775e4edf2b306c0f306af9e50175c831c857604b481e847f790bf95");
  tt_digest_begin(&b);
  tt_digest_add_field(&b, "a", 1);
  tt_digest_add_field(&b, "bc", 2);
  tt_digest second = tt_digest_end(&b);
  CHECK(memcmp(&first, &second, sizeof first));
}

TEST_MAIN(TEST(test_vectors), TEST(test_pieces_make_the_whole), TEST(test_borders_of_fields_count))
