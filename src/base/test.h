// The unit test header: checks, and a runner over a table of tests. Included by `*_test.c` files only.
//
//   static void test_adds(void) {
//     CHECK(1 + 1 == 2);
//     CHECK_INT(1 + 1, 2);
//     CHECK_STR(tt_dtype_hlo_name(TT_F32), "f32");
//     CHECK_OK(tt_do_something());
//     CHECK_ERROR(tt_do_wrong(), TT_ERR_INDEX, "out of range");
//   }
//
//   TEST_MAIN(TEST(test_adds), TEST(test_other))
//
// A failed CHECK is printed and counted and the test goes on; a failed REQUIRE leaves the test (use it before what
// would crash otherwise). Checks may run on any thread, REQUIRE and SKIP on the test's own only. An argument of the
// program is a substring that chooses tests by name.
#ifndef TORCHTPU_BASE_TEST_H
#define TORCHTPU_BASE_TEST_H

#include <inttypes.h>
#include <math.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "base/status.h"

typedef struct tt_test {
  const char *name;
  void (*run)(void);
} tt_test;

static atomic_int tt_test_failures;  // failed checks of the running test
static jmp_buf tt_test_exit;
static const char *tt_test_skip_reason;

#define CHECK(condition) tt_test_check(__FILE__, __LINE__, #condition, (condition))

// Leaves the test when the condition does not hold.
#define REQUIRE(condition)      \
  do {                          \
    if (!CHECK(condition)) {    \
      longjmp(tt_test_exit, 1); \
    }                           \
  } while (0)

// The status must be success; frees it either way.
#define CHECK_OK(status) tt_test_check_ok(__FILE__, __LINE__, #status, (status))
#define REQUIRE_OK(status)      \
  do {                          \
    if (!CHECK_OK(status)) {    \
      longjmp(tt_test_exit, 1); \
    }                           \
  } while (0)

// The status must be an error of this code whose message contains the text; frees it.
#define CHECK_ERROR(status, code, text) tt_test_check_error(__FILE__, __LINE__, #status, (status), (code), (text))

// Equality that prints both sides.
#define CHECK_INT(got, want) tt_test_check_int(__FILE__, __LINE__, #got, (intmax_t)(got), (intmax_t)(want))
#define CHECK_STR(got, want) tt_test_check_str(__FILE__, __LINE__, #got, (got), (want))
#define CHECK_NEAR(got, want, tolerance) \
  tt_test_check_near(__FILE__, __LINE__, #got, (double)(got), (double)(want), (double)(tolerance))
// `text` contains `part`.
#define CHECK_CONTAINS(text, part) tt_test_check_contains(__FILE__, __LINE__, #text, (text), (part))

// Leaves the test, counted as skipped: what it needs is not there.
#define SKIP(reason) (tt_test_skip_reason = (reason), longjmp(tt_test_exit, 1))

#define TEST(function) {#function, function}
#define TEST_MAIN(...)                                                           \
  int main(int argc, char **argv) {                                              \
    static const tt_test tests[] = {__VA_ARGS__};                                \
    return tt_test_main(argc, argv, tests, (int)(sizeof tests / sizeof *tests)); \
  }

__attribute__((unused, format(printf, 3, 4))) static bool tt_test_fail(const char *file, int line, const char *format,
                                                                       ...) {
  va_list args;
  va_start(args, format);
  char text[2048];
  vsnprintf(text, sizeof text, format, args);
  va_end(args);
  fprintf(stderr, "%s:%d: check failed: %s\n", file, line, text);
  atomic_fetch_add(&tt_test_failures, 1);
  return false;
}

__attribute__((unused)) static bool tt_test_check(const char *file, int line, const char *what, bool holds) {
  return holds || tt_test_fail(file, line, "%s", what);
}

__attribute__((unused)) static bool tt_test_check_ok(const char *file, int line, const char *what, tt_status *status) {
  if (!status) {
    return true;
  }
  tt_test_fail(file, line, "%s: unexpected %s: %s", what, tt_code_name(tt_status_code(status)),
               tt_status_message(status));
  tt_status_free(status);
  return false;
}

__attribute__((unused)) static bool tt_test_check_error(const char *file, int line, const char *what, tt_status *status,
                                                        tt_code code, const char *text) {
  bool good = true;
  if (!status) {
    good = tt_test_fail(file, line, "%s: succeeded, wanted %s \"%s\"", what, tt_code_name(code), text);
  } else if (tt_status_code(status) != code || !strstr(tt_status_message(status), text)) {
    good = tt_test_fail(file, line, "%s: got %s \"%s\", wanted %s \"%s\"", what, tt_code_name(tt_status_code(status)),
                        tt_status_message(status), tt_code_name(code), text);
  }
  tt_status_free(status);
  return good;
}

__attribute__((unused)) static bool tt_test_check_int(const char *file, int line, const char *what, intmax_t got,
                                                      intmax_t want) {
  return got == want || tt_test_fail(file, line, "%s is %" PRIdMAX ", wanted %" PRIdMAX, what, got, want);
}

__attribute__((unused)) static bool tt_test_check_str(const char *file, int line, const char *what, const char *got,
                                                      const char *want) {
  bool same = got && want ? !strcmp(got, want) : got == want;
  return same ||
         tt_test_fail(file, line, "%s is \"%s\", wanted \"%s\"", what, got ? got : "(null)", want ? want : "(null)");
}

__attribute__((unused)) static bool tt_test_check_near(const char *file, int line, const char *what, double got,
                                                       double want, double tolerance) {
  bool near = got == want || (isnan(got) && isnan(want)) || fabs(got - want) <= tolerance;
  return near || tt_test_fail(file, line, "%s is %.17g, wanted %.17g within %g", what, got, want, tolerance);
}

__attribute__((unused)) static bool tt_test_check_contains(const char *file, int line, const char *what,
                                                           const char *text, const char *part) {
  return (text && strstr(text, part)) ||
         tt_test_fail(file, line, "%s is \"%s\", which lacks \"%s\"", what, text ? text : "(null)", part);
}

__attribute__((unused)) static int tt_test_main(int argc, char **argv, const tt_test *tests, int count) {
  const char *only = argc > 1 ? argv[1] : "";
  // Volatile: they change between setjmp and longjmp.
  volatile int passed = 0, failed = 0, skipped = 0;
  for (volatile int i = 0; i < count; i++) {
    if (!strstr(tests[i].name, only)) {
      continue;
    }
    atomic_store(&tt_test_failures, 0);
    tt_test_skip_reason = NULL;
    if (!setjmp(tt_test_exit)) {
      tests[i].run();
    }
    if (atomic_load(&tt_test_failures)) {
      fprintf(stderr, "FAILED %s\n", tests[i].name);
      failed++;
    } else if (tt_test_skip_reason) {
      printf("skipped %s: %s\n", tests[i].name, tt_test_skip_reason);
      skipped++;
    } else {
      passed++;
    }
  }
  printf("%d passed, %d failed", passed, failed);
  if (skipped) {
    printf(", %d skipped", skipped);
  }
  printf("\n");
  // A name that chooses nothing is a mistake of the caller, not a success.
  return failed || passed + skipped == 0;
}

#endif  // TORCHTPU_BASE_TEST_H
