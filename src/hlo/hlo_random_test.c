// Random sequences of builder calls, good and bad: none may crash, and a module has either a text or an error
// (hlo_fuzz.c aborts otherwise).
#undef TT_FUZZ_MAIN
#include "hlo/hlo_fuzz.c"

#include "base/test.h"

static void test_random_sequences(void) {
  uint64_t state = 88172645463325252u;
  int good = 0;
  for (int run = 0; run < 30000; run++) {
    uint8_t bytes[256];
    size_t size = 8 + (size_t)run % (sizeof bytes - 8);
    for (size_t i = 0; i < size; i++) {
      state ^= state << 13;
      state ^= state >> 7;
      state ^= state << 17;
      bytes[i] = (uint8_t)(state >> 24);
    }
    char *text = build(bytes, size);
    good += text != NULL;
    if (text) {
      CHECK_CONTAINS(text, "func.func public @main(");
      CHECK_CONTAINS(text, "    return");
    }
    free(text);
  }
  CHECK(good > 1000);
  CHECK(good < 29000);
}

static void test_constant_bytes(void) {
  for (int value = 0; value < 256; value++) {
    uint8_t bytes[300];
    memset(bytes, value, sizeof bytes);
    CHECK_INT(LLVMFuzzerTestOneInput(bytes, sizeof bytes), 0);
  }
  CHECK_INT(LLVMFuzzerTestOneInput(NULL, 0), 0);
}

TEST_MAIN(TEST(test_random_sequences), TEST(test_constant_bytes))
