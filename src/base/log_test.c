#include "base/log.h"

#include <errno.h>
#include <fcntl.h>
#include <unistd.h>

#include "base/test.h"
#include "base/thread.h"

// Stderr goes to a file between capture_begin() and capture_end(), which returns what was written.
static FILE *capture;
static int saved_stderr;
static char captured[1 << 20];

static void capture_begin(void) {
  fflush(stderr);
  capture = tmpfile();
  REQUIRE(capture != NULL);
  saved_stderr = dup(STDERR_FILENO);
  dup2(fileno(capture), STDERR_FILENO);
  // Appending, as the threads' writes must be.
  fcntl(STDERR_FILENO, F_SETFL, O_APPEND);
}

static const char *capture_end(void) {
  dup2(saved_stderr, STDERR_FILENO);
  close(saved_stderr);
  rewind(capture);
  size_t length = fread(captured, 1, sizeof captured - 1, capture);
  captured[length] = '\0';
  fclose(capture);
  return captured;
}

static int evaluated;
static int evaluate(void) { return ++evaluated; }

// First: the level is read from the environment once.
static void test_environment(void) {
  setenv("TORCH_TPU_LOG", "INFO", 1);
  capture_begin();
  TT_LOG(INFO, "seen");
  TT_LOG(DEBUG, "unseen");
  CHECK_STR(capture_end(), "torch_tpu: info: seen\n");
  setenv("TORCH_TPU_LOG", "error", 1);
  CHECK(tt_log_enabled(TT_LOG_INFO));
}

static void test_levels(void) {
  static const char *const expected[] = {
      "torch_tpu: error: 1\n",
      "torch_tpu: error: 1\ntorch_tpu: warning: 2\n",
      "torch_tpu: error: 1\ntorch_tpu: warning: 2\ntorch_tpu: info: 3\n",
      "torch_tpu: error: 1\ntorch_tpu: warning: 2\ntorch_tpu: info: 3\ntorch_tpu: debug: 4\n",
  };
  for (int level = TT_LOG_ERROR; level <= TT_LOG_DEBUG; level++) {
    tt_log_set_level((tt_log_level)level);
    capture_begin();
    evaluated = 0;
    TT_LOG(ERROR, "%d", evaluate());
    TT_LOG(WARN, "%d", evaluate());
    TT_LOG(INFO, "%d", evaluate());
    TT_LOG(DEBUG, "%d", evaluate());
    CHECK_STR(capture_end(), expected[level]);
    CHECK_INT(evaluated, level + 1);  // what isn't said isn't computed
  }
}

static void test_once(void) {
  tt_log_set_level(TT_LOG_WARN);
  capture_begin();
  for (int i = 0; i < 3; i++) {
    TT_LOG_ONCE(WARN, "first %d", i);
    TT_LOG_ONCE(WARN, "second %d", i);
    TT_LOG_ONCE(DEBUG, "off");
  }
  CHECK_STR(capture_end(), "torch_tpu: warning: first 0\ntorch_tpu: warning: second 0\n");
}

static void test_first(void) {
  CHECK(tt_log_first("aten::foo"));
  CHECK(!tt_log_first("aten::foo"));
  CHECK(tt_log_first("aten::bar"));
  CHECK(!tt_log_first("aten::bar"));
}

static void test_long_message_is_cut(void) {
  static char text[10000];
  memset(text, 'x', sizeof text - 1);
  tt_log_set_level(TT_LOG_WARN);
  capture_begin();
  TT_LOG(WARN, "%s", text);
  TT_LOG(WARN, "short");
  const char *got = capture_end();
  CHECK_CONTAINS(got, "xxx...\ntorch_tpu: warning: short\n");
  CHECK(strlen(got) < 5000);
}

static void chatter(void *data) {
  for (int i = 0; i < 200; i++) {
    TT_LOG(WARN, "<%s>", (const char *)data);
    tt_log_first("from all threads");
  }
}

static void test_lines_of_threads_stay_whole(void) {
  tt_log_set_level(TT_LOG_WARN);
  capture_begin();
  tt_thread *threads[4];
  static char *const texts[] = {"aaaaaaaaaaaaaaaaaaaa", "bbbbbbbbbbbbbbbbbbbb", "cccccccccccccccccccc",
                                "dddddddddddddddddddd"};
  for (int i = 0; i < 4; i++) {
    REQUIRE_OK(tt_thread_create("chatter", 0, chatter, texts[i], &threads[i]));
  }
  for (int i = 0; i < 4; i++) {
    tt_thread_join(threads[i]);
  }
  char *got = (char *)capture_end(), *rest = NULL;
  int lines = 0;
  for (char *line = strtok_r(got, "\n", &rest); line; line = strtok_r(NULL, "\n", &rest), lines++) {
    const char *open = strstr(line, "torch_tpu: warning: <");
    CHECK(open == line && strlen(line) == strlen("torch_tpu: warning: <>") + 20);
  }
  CHECK_INT(lines, 800);
}

static void test_errno_survives(void) {
  tt_log_set_level(TT_LOG_ERROR);
  capture_begin();
  errno = ENOENT;
  TT_LOG(ERROR, "x");
  int after = errno;
  capture_end();
  CHECK_INT(after, ENOENT);
}

TEST_MAIN(TEST(test_environment), TEST(test_levels), TEST(test_once), TEST(test_first), TEST(test_long_message_is_cut),
          TEST(test_lines_of_threads_stay_whole), TEST(test_errno_survives))
