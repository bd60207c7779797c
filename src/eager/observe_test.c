// Notes with places, warnings of loops that compile, activities, labels; on the fake plugin.
#include "eager/explain.h"
#include "eager/key_part.h"
#include "eager/label.h"
#include "eager/profile.h"
#include "support/eager.h"

static fake_control fake;

// ---- places ----
static char place[64];
static int32_t place_flags;
static int located;

static int32_t locate(char *out, size_t size) {
  // No lock may be held here: calls that take them come back.
  tt_memory_stats stats;
  CHECK_OK(tt_get_memory_stats(0, &stats));
  CHECK_OK(tt_empty_cache());
  located++;
  snprintf(out, size, "%s", place);
  return place_flags;
}

static void be_at(const char *text, int32_t flags) {
  snprintf(place, sizeof place, "%s", text);
  place_flags = flags;
}

static void start(void) {
  fake = eager_start(2);
  tt_set_locator(locate);
  tt_set_eager_mode(TT_MODE_STRICT);
}

static tt_note find_note(int32_t kind, const char *what, const char *where) {
  tt_note note;
  for (int32_t i = 0; tt_explain_note_at(i, &note); i++) {
    if (note.kind == kind && !strcmp(note.what, what) && !strcmp(note.place, where)) {
      return note;
    }
  }
  return (tt_note){.kind = -1};
}

// ---- explain ----
static void read_float(const tensor *t) {
  char bytes[256];
  tt_tensor tt = ref(t);
  CHECK_OK(tt_copy_to_host(&tt, bytes));
}

static void test_notes(void) {
  start();
  tensor x = make_filled(TT_F32, DIMS(5)), z;
  tt_set_eager_mode(TT_MODE_FUSED);
  located = 0;
  be_at("b.py:0", 0);
  CHECK_OK(add(&x, &x, &z));
  drop(&z);
  CHECK_OK(tt_synchronize(0));
  CHECK_INT(located, 1);  // where it compiled, and no more: nobody asked
  CHECK_OK(tt_clear_compile_cache());
  tt_explain_start();
  for (int turn = 0; turn < 4; turn++) {
    be_at("a.py:1", 0);
    tt_label_push("twice");  // as the first turn calls it
    CHECK_OK(add(&x, &x, &z));
    tt_label_pop();
    tensor y;
    CHECK_OK(add(&z, &x, &y));
    be_at("a.py:2", 0);
    tt_explain_item();
    read_float(&y);
    be_at("a.py:3", 0);
    CHECK_OK(tt_synchronize(0));
    drop(&y);
    drop(&z);
    tt_wait_for_compiles();
  }
  be_at("a.py:4", 0);
  tt_explain_fallback("aten::slow");
  tt_explain_stop();
  CHECK_INT(find_note(TT_NOTE_CUT, "host read: item()", "a.py:2").count, 4);
  CHECK_INT(find_note(TT_NOTE_SYNC, "item()", "a.py:2").count, 4);
  CHECK_INT(find_note(TT_NOTE_SYNC, "item()", "a.py:2").amount, 4 * 20);
  CHECK_INT(find_note(TT_NOTE_SYNC, "synchronize", "a.py:3").count, 4);
  CHECK_INT(find_note(TT_NOTE_COMPILE, "aten::add.Tensor", "a.py:1").count, 2);
  CHECK_INT(find_note(TT_NOTE_COMPILE, "tpu::fused", "").count, 1);
  CHECK_INT(find_note(TT_NOTE_STRETCH, "program", "a.py:2").count, 2);
  CHECK_INT(find_note(TT_NOTE_STRETCH, "program", "a.py:2").amount, 4);
  CHECK_INT(find_note(TT_NOTE_FALLBACK, "aten::slow", "a.py:4").count, 1);
  // The next start forgets.
  tt_explain_start();
  tt_explain_stop();
  tt_note note;
  CHECK(!tt_explain_note_at(0, &note));
  CHECK(!tt_explain_note_at(-1, &note));
  drop(&x);
  eager_check_empty(&fake);
}

// ---- recompile ----
static char warning[2048];
static int warnings;
static void warn(const char *text) {
  tt_memory_stats stats;
  CHECK_OK(tt_get_memory_stats(0, &stats));
  snprintf(warning, sizeof warning, "%s", text);
  warnings++;
}

static tensor base;
static void add_of(int64_t rows, int64_t columns) {
  tensor x = base, z;
  x.ndim = 2;
  x.sizes[0] = rows, x.sizes[1] = columns, x.strides[0] = columns, x.strides[1] = 1;
  CHECK_OK(add(&x, &x, &z));
  drop(&z);
}

static void test_warnings(void) {
  start();
  CHECK_OK(tt_clear_compile_cache());
  tt_set_warner(warn);
  base = make_filled(TT_F32, DIMS(10000));
  be_at("loop.py:7", 0);
  for (int64_t n = 31; n < 50; n++) {
    add_of(3, n);
  }
  CHECK_INT(warnings, 1);
  CHECK(strstr(warning,
               "loop.py:7: aten::add.Tensor is compiled again and again: size 1 of operand 'self' was ..., "
               "32, 33, 34, 35, 36, 37, 38, 39 (9 programs so far)."));
  // Known by now; another place with keys that are not.
  be_at("loop.py:8", 0);
  for (int64_t n = 31; n < 50; n++) {
    add_of(3, n);
  }
  CHECK_INT(warnings, 1);
  for (int64_t n = 1; n < 20; n += 2) {
    add_of(n, 11);
    add_of(n, 13);  // two chains
  }
  CHECK_INT(warnings, 2);
  CHECK(strstr(warning, "size 0 of operand 'self' was ..., 5, 7, 9, 11, 13, 15, 17, 19"));
  // In a pass through a network, a chain alone proves nothing; with reads between, it does.
  CHECK_OK(tt_clear_compile_cache());
  be_at("net.py:1", TT_PLACE_IN_MODULE);
  for (int64_t n = 20; n < 40; n++) {
    add_of(4, n);
  }
  CHECK_INT(warnings, 2);
  CHECK_OK(tt_clear_compile_cache());
  for (int64_t n = 20; n < 40; n++) {
    add_of(4, n);
    read_float(&(tensor){.storage = base.storage, .sizes = {1}, .strides = {1}, .ndim = 1, .dtype = TT_F32});
  }
  CHECK_INT(warnings, 3);
  // A few sizes in turn are used again.
  CHECK_OK(tt_clear_compile_cache());
  be_at("few.py:1", 0);
  for (int64_t n = 0; n < 60; n++) {
    add_of(5, 1 + n % 8);
    add_of(6, n < 30 ? 1 + n / 5 : 2);
  }
  // No progression: sizes come back, or two of them change.
  for (int64_t n = 0; n < 20; n++) {
    add_of(10 + n % 3, 10 + n / 3);
  }
  CHECK_INT(warnings, 3);
  tt_set_warner(NULL);
  drop(&base);
  eager_check_empty(&fake);
}

static void test_parts(void) {
  tt_op_arg args[] = {{.name = "tensors"}, {.name = "dim"}, {.name = "alpha", .is_operand = true}};
  tt_rule_entry rule = {.name = "x"};
  tt_op op = {.rule = &rule, .arg_count = 3, .args = args};
  tt_key_part parts[32];
  uint64_t tensor_head = TT_ARG_TENSOR | 1u << 8 | 2u << 16 | 1u << 26;
  const uint64_t words[] = {1,
                            2,                            // operator, settings
                            TT_ARG_TENSORS | 2ull << 32,  // of two, the first with strides and its storage's
                            tensor_head,
                            3,
                            4,
                            8,
                            1,
                            1 | 1u << 8,
                            99,  // size
                            TT_ARG_NONE,
                            TT_ARG_INT,
                            5,
                            TT_ARG_NUMBER};
  int32_t count = sizeof words / sizeof *words;
  REQUIRE(tt_key_parts(&op, words, count, parts));
  static const char *const names[] = {[4] = "size 0 of operand 'tensors'[0]",
                                      [5] = "size 1 of operand 'tensors'[0]",
                                      [7] = "stride 1 of operand 'tensors'[0]",
                                      [9] = "size 0 of what operand 'tensors' is a view of[0]",
                                      [12] = "argument 'dim'"};
  for (int32_t i = 0; i < (int32_t)(sizeof names / sizeof *names); i++) {
    tt_strbuf text = {0};
    tt_key_part_describe(&op, &parts[i], &text);
    if (names[i]) {
      CHECK_STR(tt_strbuf_text(&text), names[i]);
    } else if (i != 6) {
      CHECK_INT(parts[i].kind, TT_PART_HEAD);
    }
    tt_strbuf_free(&text);
  }
  for (int32_t cut = 3; cut < count; cut++) {  // what is cut short is refused, or ends behind an argument
    (void)tt_key_parts(&op, words, cut, parts);
  }
  CHECK(!tt_key_parts(&op, words, 6, parts));
  CHECK(!tt_key_parts(&op, words, 12, parts));
}

// ---- profile ----
static void test_activities(void) {
  start();
  CHECK_OK(tt_clear_compile_cache());
  tensor x = make_filled(TT_F32, DIMS(6)), z;
  fake.set("execute_delay_us", 2000);
  tt_profile_start();
  int64_t begin = tt_profile_time();
  tt_profile_push(41);
  tt_profile_push(42);
  tt_label_push("forward");
  CHECK_OK(add(&x, &x, &z));
  drop(&z);
  CHECK_OK(add(&x, &x, &z));
  tt_label_pop();
  tt_profile_pop();
  read_float(&z);
  drop(&z);
  tensor y = make_filled(TT_F32, DIMS(7));
  CHECK_OK(tt_synchronize(0));
  tt_profile_stop();
  int64_t end = tt_profile_time(), last = begin;
  CHECK_OK(add(&x, &x, &z));  // not recorded
  drop(&z);
  int32_t counts[5] = {0};
  tt_activity a;
  for (size_t i = 0; tt_profile_activity_at(i, &a); i++) {
    counts[a.kind]++;
    CHECK(begin <= a.begin_ns && a.begin_ns <= a.end_ns && a.end_ns <= end);
    if (a.kind == TT_ACTIVITY_PROGRAM) {
      CHECK(a.begin_ns >= last);
      CHECK(a.end_ns - a.begin_ns > 500000);
      last = a.end_ns;
      CHECK_STR(a.name, "aten::add.Tensor");
      CHECK_STR(a.label, "forward");
      CHECK_INT(a.correlation, 42);
    } else if (a.kind == TT_ACTIVITY_TO_HOST) {
      CHECK_INT(a.correlation, 41);
      CHECK_INT(a.nbytes, 24);
      CHECK_STR(a.label, "");
    } else if (a.kind == TT_ACTIVITY_TO_DEVICE) {
      CHECK_INT(a.nbytes, 28);
    }
  }
  CHECK_INT(counts[TT_ACTIVITY_PROGRAM], 2);
  CHECK_INT(counts[TT_ACTIVITY_LAUNCH], 2);
  CHECK_INT(counts[TT_ACTIVITY_COMPILE], 1);
  CHECK_INT(counts[TT_ACTIVITY_TO_HOST], 1);
  CHECK_INT(counts[TT_ACTIVITY_TO_DEVICE], 1);
  // What was left open is not the next profile's.
  tt_profile_start();
  CHECK_OK(add(&x, &x, &z));
  CHECK_OK(tt_synchronize(0));
  tt_profile_stop();
  CHECK(tt_profile_activity_at(0, &a) && a.correlation == 0);
  drop(&z);
  fake.set("execute_delay_us", 0);
  drop(&x);
  drop(&y);
  eager_check_empty(&fake);
}

static void test_labels(void) {
  const char *text =
      "module @x {\n  func.func public @main(%arg0: tensor<f32>) -> (tensor<f32>) {\n"
      "    %0 = \"stablehlo.reduce\"(%arg0) ({\n      %1 = stablehlo.add %2, %3 : tensor<f32>\n    }) : x\n"
      "    %4 = stablehlo.abs %0 : tensor<f32> loc(\"mine\")\n    return %4 : tensor<f32>\n  }\n}\n";
  CHECK(!tt_label_text(text, "sum"));
  tt_label_push("a \"b\"\n");
  for (int i = 0; i < 40; i++) {
    tt_label_push("deep");
  }
  for (int i = 0; i < 40; i++) {
    tt_label_pop();
  }
  char *labelled = tt_label_text(text, "sum");
  REQUIRE(labelled);
  CHECK(strstr(labelled, "stablehlo.add %2, %3 : tensor<f32> loc(\"a \\22b\\22\\0A/sum\")\n"));
  CHECK(strstr(labelled, "(%arg0) ({\n"));
  CHECK(strstr(labelled, "loc(\"mine\")\n"));
  CHECK(strstr(labelled, "return %4 : tensor<f32>\n"));
  CHECK_INT(strlen(labelled), strlen(text) + strlen(" loc(\"a \\22b\\22\\0A/sum\")"));
  free(labelled);
  tt_label_pop();
  tt_label_pop();  // one too many
  CHECK(!tt_label_any());
}

TEST_MAIN(TEST(test_notes), TEST(test_warnings), TEST(test_parts), TEST(test_activities), TEST(test_labels))
