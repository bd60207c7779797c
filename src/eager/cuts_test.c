// Where stretches end: by the program's content alone.
#include "base/hash.h"
#include "base/test.h"
#include "eager/fused.h"

static uint64_t random_word(uint64_t *state) {
  *state += TT_HASH_K0;
  return tt_hash_mix(*state ^ TT_HASH_K1, TT_HASH_K2);
}

// Pushes a program that repeats `period` steps; marks which of the steps of turn `turn` begin a stretch.
static int cuts_in_turn(const uint64_t *program, int period, int start, int turn, bool *out_begins) {
  tt_cuts *cuts = calloc(1, sizeof *cuts);
  int count = 0;
  memset(out_begins, 0, sizeof *out_begins * (size_t)period);
  for (int64_t i = 0; i < (int64_t)period * (turn + 1) + TT_CUT_WINDOW; i++) {
    bool begins = tt_cuts_push(cuts, program[(i + start) % period]);
    int64_t step = i - TT_CUT_WINDOW;
    if (begins && step / period == turn) {
      out_begins[(step + start) % period] = true;
      count++;
    }
  }
  free(cuts);
  return count;
}

static void test_loops_are_cut_alike_in_each_turn(void) {
  static const int periods[] = {33, 40, 100, 127, 129, 300, 907, 1531};
  uint64_t state = 1, program[1531];
  bool first[1531], other[1531];
  for (size_t p = 0; p < sizeof periods / sizeof *periods; p++) {
    int period = periods[p];
    for (int i = 0; i < period; i++) {
      program[i] = random_word(&state) % 11;  // few kinds of operators
    }
    int enough = 1 + 2 * TT_CUT_WINDOW / period;
    int count = cuts_in_turn(program, period, 0, enough, first);
    CHECK(count >= 1);
    for (int start = 0; start < period; start += period / 5) {
      CHECK_INT(cuts_in_turn(program, period, start, enough + 1, other), count);
      CHECK(!memcmp(first, other, sizeof *first * (size_t)period));
    }
  }
}

static void test_chains_of_like_operators_stay_whole(void) {
  for (int period = 1; period < TT_CUT_NEAR; period++) {
    tt_cuts *cuts = calloc(1, sizeof *cuts);
    uint64_t state = 3;
    const int before = 500, chain = 1000;
    int count = 0;
    for (int i = 0; i < before + chain + before; i++) {
      const bool other = i < before || i >= before + chain;
      const int step = i - TT_CUT_WINDOW;  // that is cut before, if any
      // The last 8 records are the chain's at these steps.
      count += tt_cuts_push(cuts, other ? random_word(&state) : (uint64_t)(i % period)) && step >= before + 7 &&
               step < before + chain;
    }
    CHECK_INT(count, 0);
    free(cuts);
  }
}

static void test_stretches_have_a_size(void) {
  tt_cuts *cuts = calloc(1, sizeof *cuts);
  uint64_t state = 7;
  int64_t last = -1;
  int count = 0;
  for (int64_t i = 0; i < 100000; i++) {
    if (tt_cuts_push(cuts, random_word(&state))) {
      CHECK(last < 0 || i - last > TT_CUT_WINDOW);
      last = i;
      count++;
    }
  }
  CHECK(count > 200 && count < 100000 / TT_CUT_WINDOW);
  free(cuts);
}

TEST_MAIN(TEST(test_loops_are_cut_alike_in_each_turn), TEST(test_chains_of_like_operators_stay_whole),
          TEST(test_stretches_have_a_size))
