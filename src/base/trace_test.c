#include "base/trace.h"

#include <unistd.h>

#include "base/test.h"
#include "base/thread.h"

static char path[64];
static char *text;  // of the file; owned

static const char *stop_and_read(void) {
  snprintf(path, sizeof path, "trace_test_%d.json", (int)getpid());
  free(text);
  text = NULL;
  REQUIRE_OK(tt_trace_stop(path));
  FILE *file = fopen(path, "rb");
  REQUIRE(file != NULL);
  fseek(file, 0, SEEK_END);
  long size = ftell(file);
  rewind(file);
  text = calloc(1, (size_t)size + 1);
  REQUIRE(text != NULL);
  CHECK_INT(fread(text, 1, (size_t)size, file), size);
  fclose(file);
  unlink(path);
  return text;
}

static int occurrences(const char *whole, const char *part) {
  int count = 0;
  size_t length = strlen(part);
  // Not strstr(): the sanitizers check the whole rest of the string at each call.
  for (const char *at = whole; *at; at++) {
    count += *at == *part && !strncmp(at, part, length);
  }
  return count;
}

// A strict reader of JSON: the end of the value at `at`, NULL where there is none.
static const char *blanks(const char *at) { return at + strspn(at, " \t\r\n"); }

static const char *json_string(const char *at) {
  if (*at++ != '"') {
    return NULL;
  }
  for (; *at != '"'; at++) {
    if ((unsigned char)*at < 0x20) {
      return NULL;
    }
    if (*at == '\\') {
      at++;
      if (*at == 'u') {
        if (strspn(at + 1, "0123456789abcdef") < 4) {
          return NULL;
        }
        at += 4;
      } else if (!*at || !strchr("\"\\/bfnrt", *at)) {
        return NULL;
      }
    }
  }
  return at + 1;
}

static const char *json_value(const char *at) {
  at = blanks(at);
  if (*at == '"') {
    return json_string(at);
  }
  if (*at == '{' || *at == '[') {
    char close = *at == '{' ? '}' : ']';
    at = blanks(at + 1);
    if (*at == close) {
      return at + 1;
    }
    for (;;) {
      if (close == '}') {
        at = json_string(at);
        if (!at || *(at = blanks(at)) != ':') {
          return NULL;
        }
        at++;
      }
      at = json_value(at);
      if (!at) {
        return NULL;
      }
      at = blanks(at);
      if (*at == close) {
        return at + 1;
      }
      if (*at != ',') {
        return NULL;
      }
      at = blanks(at + 1);
    }
  }
  size_t digits = strspn(at, "-0123456789.");
  return digits ? at + digits : NULL;
}

static bool is_json(const char *whole) {
  const char *end = json_value(whole);
  return end && *blanks(end) == '\0';
}

static void test_records_nested_spans(void) {
  tt_trace_begin("before");
  tt_trace_end();
  tt_trace_start();
  CHECK(tt_trace_enabled());
  tt_trace_begin("outer");
  tt_trace_begin("inner");
  tt_sleep_ns(2000000);
  tt_trace_end();
  tt_trace_end();
  tt_trace_begin("never ended");
  const char *json = stop_and_read();
  CHECK(!tt_trace_enabled());
  CHECK(is_json(json));
  CHECK_INT(occurrences(json, "\"ph\":\"X\""), 2);
  CHECK_CONTAINS(json, "\"name\":\"outer\"");
  CHECK_CONTAINS(json, "\"name\":\"inner\"");
  CHECK_CONTAINS(json, "\"name\":\"thread_name\"");
  CHECK_CONTAINS(json, "\"lost_spans\":0");
  const char *inner = strstr(json, "\"name\":\"inner\""), *outer = strstr(json, "\"name\":\"outer\"");
  REQUIRE(inner && outer);
  double inner_start, inner_time, outer_start, outer_time;
  REQUIRE(sscanf(strstr(inner, "\"ts\":"), "\"ts\":%lf,\"dur\":%lf", &inner_start, &inner_time) == 2);
  REQUIRE(sscanf(strstr(outer, "\"ts\":"), "\"ts\":%lf,\"dur\":%lf", &outer_start, &outer_time) == 2);
  CHECK(inner_time >= 2000 && outer_time >= inner_time);
  CHECK(outer_start >= 0 && inner_start >= outer_start);
  CHECK(inner_start + inner_time <= outer_start + outer_time + 0.001);
}

static void test_start_and_stop_inside_spans(void) {
  tt_trace_begin("opened before the start");
  tt_trace_start();
  tt_trace_begin("whole");
  tt_trace_end();
  tt_trace_end();
  tt_trace_begin("closed after the stop");
  const char *json = stop_and_read();
  CHECK_INT(occurrences(json, "\"ph\":\"X\""), 1);
  CHECK_CONTAINS(json, "\"name\":\"whole\"");
  tt_trace_end();
  // What was open in an earlier trace isn't taken for a span of the next.
  tt_trace_start();
  tt_trace_end();
  tt_trace_begin("second");
  tt_trace_end();
  json = stop_and_read();
  CHECK(is_json(json));
  CHECK_INT(occurrences(json, "\"ph\":\"X\""), 1);
  CHECK_CONTAINS(json, "\"name\":\"second\"");
}

static void test_names_are_escaped(void) {
  tt_trace_start();
  static const char *const names[] = {"say \"hi\"",        "back\\slash",       "line\nbreak\ttab\x01",
                                      "\xc3\xa9t\xc3\xa9", "bad \xff\xc3 utf8", ""};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++) {
    tt_trace_begin(names[i]);
    tt_trace_end();
  }
  char longer[200];
  memset(longer, 'n', sizeof longer - 1);
  longer[sizeof longer - 1] = '\0';
  tt_trace_begin(longer);
  tt_trace_end();
  const char *json = stop_and_read();
  CHECK(is_json(json));
  CHECK_CONTAINS(json, "\"say \\\"hi\\\"\"");
  CHECK_CONTAINS(json, "\"back\\\\slash\"");
  CHECK_CONTAINS(json, "\"line\\u000abreak\\u0009tab\\u0001\"");
  CHECK_CONTAINS(json, "\"\xc3\xa9t\xc3\xa9\"");
  CHECK_CONTAINS(json, "\"bad \\ufffd\\ufffd utf8\"");
  CHECK_CONTAINS(json, "\"name\":\"\"");
  longer[63] = '\0';
  CHECK_CONTAINS(json, longer);
  CHECK(!strstr(json, "nnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnnn"));
}

static void test_the_last_spans_are_kept(void) {
  tt_trace_start();
  tt_trace_begin("first");
  tt_trace_end();
  for (int i = 0; i < 32768 + 9; i++) {
    tt_trace_begin("later");
    tt_trace_end();
  }
  const char *json = stop_and_read();
  CHECK(is_json(json));
  CHECK(!strstr(json, "\"first\""));
  CHECK_INT(occurrences(json, "\"later\""), 32768);
  CHECK_CONTAINS(json, "\"lost_spans\":10");
}

static void test_deep_nesting(void) {
  tt_trace_start();
  for (int i = 0; i < 200; i++) {
    tt_trace_begin("deep");
  }
  for (int i = 0; i < 300; i++) {
    tt_trace_end();
  }
  CHECK_INT(occurrences(stop_and_read(), "\"deep\""), 64);
}

static void test_without_a_start(void) {
  const char *json = stop_and_read();
  CHECK(is_json(json));
  CHECK_INT(occurrences(json, "\"ph\""), 0);
  CHECK_OK(tt_trace_stop(NULL));
}

static void test_bad_path(void) {
  tt_trace_start();
  CHECK_ERROR(tt_trace_stop("/nowhere/at/all.json"), TT_ERR_RUNTIME, "\"/nowhere/at/all.json\"");
  CHECK(!tt_trace_enabled());
  if (access("/dev/full", W_OK) == 0) {
    tt_trace_start();
    CHECK_ERROR(tt_trace_stop("/dev/full"), TT_ERR_RUNTIME, "No space left");
  }
}

static atomic_bool enough;
static atomic_int rounds;

static void work(void *data) {
  (void)data;
  while (!atomic_load(&enough)) {
    tt_trace_begin("work");
    tt_trace_begin("part");
    tt_trace_end();
    tt_trace_end();
    atomic_fetch_add(&rounds, 1);
  }
}

static void once(void *data) {
  (void)data;
  tt_trace_begin("once");
  tt_trace_end();
}

static void test_threads_while_it_starts_and_stops(void) {
  tt_thread *threads[3];
  atomic_store(&enough, false);
  for (int i = 0; i < 3; i++) {
    REQUIRE_OK(tt_thread_create("worker", 0, work, NULL, &threads[i]));
  }
  for (int i = 0; i < 10; i++) {
    tt_trace_start();
    tt_sleep_ns(1000000);
    CHECK_OK(tt_trace_stop(NULL));
  }
  tt_trace_start();
  // One round a thread may have begun before the start; after more than those, one is whole.
  for (int before = atomic_load(&rounds); atomic_load(&rounds) < before + 4;) {
    tt_sleep_ns(100000);
  }
  // The spans of a thread that has ended are there, too.
  tt_thread *thread;
  REQUIRE_OK(tt_thread_create("short-lived", 0, once, NULL, &thread));
  tt_thread_join(thread);
  const char *json = stop_and_read();
  atomic_store(&enough, true);
  for (int i = 0; i < 3; i++) {
    tt_thread_join(threads[i]);
  }
  CHECK(is_json(json));
  CHECK_INT(occurrences(json, "\"once\""), 1);
  CHECK_CONTAINS(json, "{\"name\":\"short-lived\"}");
  CHECK_CONTAINS(json, "{\"name\":\"worker\"}");
  CHECK_CONTAINS(json, "\"part\"");
  // They are forgotten with the next start.
  tt_trace_start();
  CHECK_INT(occurrences(stop_and_read(), "\"once\""), 0);
  free(text);
  text = NULL;
}

TEST_MAIN(TEST(test_records_nested_spans), TEST(test_start_and_stop_inside_spans), TEST(test_names_are_escaped),
          TEST(test_the_last_spans_are_kept), TEST(test_deep_nesting), TEST(test_without_a_start), TEST(test_bad_path),
          TEST(test_threads_while_it_starts_and_stops))
