#include "base/strbuf.h"

#include "base/test.h"

static void test_appends(void) {
  tt_strbuf buffer = {0};
  CHECK_STR(tt_strbuf_text(&buffer), "");
  tt_strbuf_puts(&buffer, "func");
  tt_strbuf_append(&buffer, "(%arg)", 5);
  tt_strbuf_printf(&buffer, " -> %s%d", "f", 32);
  CHECK_STR(tt_strbuf_text(&buffer), "func(%arg -> f32");
  CHECK_INT(buffer.length, strlen("func(%arg -> f32"));
  CHECK(!buffer.failed);
  tt_strbuf_free(&buffer);
  CHECK_STR(tt_strbuf_text(&buffer), "");
}

static void test_empty_appends(void) {
  tt_strbuf buffer = {0};
  tt_strbuf_append(&buffer, NULL, 0);
  tt_strbuf_puts(&buffer, "");
  tt_strbuf_printf(&buffer, "%s", "");
  CHECK_STR(tt_strbuf_text(&buffer), "");
  CHECK_INT(buffer.length, 0);
  tt_strbuf_free(&buffer);
}

static void test_grows(void) {
  tt_strbuf buffer = {0};
  for (int i = 0; i < 20000; i++) {
    tt_strbuf_printf(&buffer, "%05d", i);
  }
  CHECK_INT(buffer.length, 100000);
  CHECK(!strncmp(tt_strbuf_text(&buffer) + 5 * 12345, "1234512346", 10));
  static char text[70000];
  memset(text, 'y', sizeof text - 1);
  tt_strbuf_printf(&buffer, "%s|", text);
  CHECK_INT(buffer.length, 170000);
  CHECK(buffer.data[buffer.length] == '\0' && buffer.data[buffer.length - 1] == '|');
  tt_strbuf_free(&buffer);
}

static void test_keeps_zero_bytes(void) {
  tt_strbuf buffer = {0};
  tt_strbuf_append(&buffer, "a\0b", 3);
  CHECK_INT(buffer.length, 3);
  CHECK(!memcmp(buffer.data, "a\0b", 4));
  tt_strbuf_free(&buffer);
}

static void test_after_a_failure_nothing_is_appended(void) {
  tt_strbuf buffer = {0};
  tt_strbuf_puts(&buffer, "before");
  tt_strbuf_append(&buffer, "x", SIZE_MAX / 2);  // refused before it is read
  CHECK(buffer.failed);
  tt_strbuf_puts(&buffer, "after");
  tt_strbuf_printf(&buffer, "%d", 1);
  CHECK_STR(tt_strbuf_text(&buffer), "before");
  tt_strbuf_free(&buffer);
  tt_strbuf_puts(&buffer, "new");
  CHECK_STR(tt_strbuf_text(&buffer), "new");
  tt_strbuf_free(&buffer);
}

TEST_MAIN(TEST(test_appends), TEST(test_empty_appends), TEST(test_grows), TEST(test_keeps_zero_bytes),
          TEST(test_after_a_failure_nothing_is_appended))
