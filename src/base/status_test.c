#include "base/status.h"

#include "base/test.h"

static void test_error_has_code_and_message(void) {
  tt_status *status = tt_error(TT_ERR_INDEX, "index %d is out of range for %s", 7, "dim 0");
  CHECK_INT(tt_status_code(status), TT_ERR_INDEX);
  CHECK_STR(tt_status_message(status), "index 7 is out of range for dim 0");
  tt_status_free(status);
}

static void test_success_is_null(void) {
  CHECK_INT(tt_status_code(NULL), TT_OK);
  CHECK_STR(tt_status_message(NULL), "");
  CHECK(tt_status_clone(NULL) == NULL);
  CHECK(tt_status_prefix(NULL, "while testing") == NULL);
  tt_status_free(NULL);
}

static void test_long_message_is_whole(void) {
  static char text[100000];
  memset(text, 'x', sizeof text - 1);
  tt_status *status = tt_error(TT_ERR_VALUE, "%s!", text);
  CHECK_INT(strlen(tt_status_message(status)), sizeof text);
  // A prefix of any length, too.
  status = tt_status_prefix(status, "%s", text);
  CHECK_INT(strlen(tt_status_message(status)), 2 * sizeof text + 1);
  CHECK_INT(tt_status_code(status), TT_ERR_VALUE);
  tt_status_free(status);
}

static void test_prefix(void) {
  tt_status *status = tt_error(TT_ERR_TYPE, "expected %s", "float32");
  status = tt_status_prefix(status, "aten::%s", "mm");
  status = tt_status_prefix(status, "while compiling");
  CHECK_ERROR(status, TT_ERR_TYPE, "while compiling: aten::mm: expected float32");
}

static void test_clone_is_independent(void) {
  tt_status *status = tt_error(TT_ERR_LINALG, "100%% singular");
  tt_status *copy = tt_status_clone(status);
  tt_status_free(status);
  CHECK_ERROR(copy, TT_ERR_LINALG, "100% singular");
}

static void test_an_error_is_never_ok(void) {
  tt_status *status = tt_error(TT_OK, "oops");
  CHECK_ERROR(status, TT_ERR_INTERNAL, "oops");
}

static tt_status *fails_if(bool fail) { return fail ? tt_error(TT_ERR_RUNTIME, "failed") : NULL; }

static tt_status *tries(bool first, bool second, int *out_reached) {
  *out_reached = 0;
  TT_TRY(fails_if(first));
  *out_reached = 1;
  TT_TRY(fails_if(second));
  *out_reached = 2;
  return NULL;
}

static void test_try(void) {
  int reached;
  CHECK_ERROR(tries(true, false, &reached), TT_ERR_RUNTIME, "failed");
  CHECK_INT(reached, 0);
  CHECK_ERROR(tries(false, true, &reached), TT_ERR_RUNTIME, "failed");
  CHECK_INT(reached, 1);
  CHECK_OK(tries(false, false, &reached));
  CHECK_INT(reached, 2);
}

static void test_code_names(void) {
  for (int i = TT_OK; i <= TT_ERR_INTERNAL; i++) {
    CHECK(tt_code_name((tt_code)i) && *tt_code_name((tt_code)i));
    CHECK(strcmp(tt_code_name((tt_code)i), "unknown") != 0);
  }
  CHECK_STR(tt_code_name((tt_code)99), "unknown");
  CHECK_STR(tt_code_name((tt_code)-1), "unknown");
}

TEST_MAIN(TEST(test_error_has_code_and_message), TEST(test_success_is_null), TEST(test_long_message_is_whole),
          TEST(test_prefix), TEST(test_clone_is_independent), TEST(test_an_error_is_never_ok), TEST(test_try),
          TEST(test_code_names))
