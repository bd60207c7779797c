// Programs over lists of arrays: every set of kernels that this processor runs against a plain loop, bit by bit.
#include <math.h>

#include "base/test.h"
#include "kernels/kernels.h"

static uint64_t seed;
static int64_t pick(int64_t low, int64_t high) {
  seed = seed * 6364136223846793005u + 1442695040888963407u;
  return low + (int64_t)((seed >> 33) % (uint64_t)(high - low + 1));
}

static float any_float(void) {
  static const float odd[] = {0.0F, -0.0F, INFINITY, -INFINITY, NAN, 1.0F, -1.0F, 3e38F, -3e38F, 1.5e-38F};
  return pick(0, 5) ? (float)pick(-1000, 1000) / 64.0F : odd[pick(0, 9)];
}

static float *floats(int64_t count) {
  float *x = malloc(sizeof *x * (size_t)(count > 0 ? count : 1));
  if (!x) {
    abort();
  }
  for (int64_t i = 0; i < count; i++) {
    x[i] = any_float();
  }
  return x;
}

// ---- the reference: one element at a time ----
static float mask(bool is_true) {
  const uint32_t bits = is_true ? UINT32_MAX : 0;
  float value;
  memcpy(&value, &bits, sizeof value);
  return value;
}

static bool is_true(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits != 0;
}

static float one_op(int64_t code, float a, float b, float c) {
  switch (code) {
    case TT_LIST_ADD:
      return a + b;
    case TT_LIST_SUBTRACT:
      return a - b;
    case TT_LIST_MULTIPLY:
      return a * b;
    case TT_LIST_DIVIDE:
      return a / b;
    case TT_LIST_SQRT:
      return sqrtf(a);
    case TT_LIST_NEGATE:
      return -a;
    case TT_LIST_ABS:
      return fabsf(a);
    case TT_LIST_LT:
      return mask(a < b);
    case TT_LIST_LE:
      return mask(a <= b);
    case TT_LIST_GT:
      return mask(a > b);
    case TT_LIST_GE:
      return mask(a >= b);
    case TT_LIST_EQ:
      return mask(a == b);
    case TT_LIST_NE:
      return mask(a != b);
    default:
      return is_true(a) ? b : c;
  }
}

static void run_plainly(const tt_lists *l, int64_t g, int64_t at, float *results) {
  float registers[TT_LIST_REGISTERS] = {0};
  int64_t next = 0;
  for (int64_t i = 0; i < l->inputs; i++) {
    registers[next++] = l->in[g * l->inputs + i][at];
  }
  for (int64_t i = 0; i < l->numbers; i++) {
    registers[next++] = l->pack[l->places[g * l->numbers + i]];
  }
  for (int64_t i = 0; i < l->constants; i++) {
    const uint32_t bits = (uint32_t)l->constant_bits[i];
    memcpy(&registers[next++], &bits, sizeof bits);
  }
  for (const int64_t *op = l->ops; op < l->ops + l->op_count * TT_LIST_OP_WORDS; op += TT_LIST_OP_WORDS) {
    registers[op[1]] = one_op(op[0], registers[op[2]], registers[op[3]], registers[op[4]]);
  }
  for (int64_t i = 0; i < l->outputs; i++) {
    results[i] = registers[l->results[i]];
  }
}

// ---- random programs ----
enum { MOST_GROUPS = 4, MOST_ARRAYS = 40, MOST_OPS = 60, PACK = 7 };
typedef struct program {
  tt_lists l;
  int64_t constant_bits[MOST_ARRAYS], ops[MOST_OPS * TT_LIST_OP_WORDS], results[MOST_ARRAYS], counts[MOST_GROUPS];
  int64_t places[MOST_GROUPS * MOST_ARRAYS];
  const float *in[MOST_GROUPS * MOST_ARRAYS];
  float *out[MOST_GROUPS * MOST_ARRAYS], pack[PACK];
  float *own_in[MOST_GROUPS * MOST_ARRAYS], *want[MOST_GROUPS * MOST_ARRAYS];
  bool in_place[MOST_GROUPS * MOST_ARRAYS];
} program;

// `masks`: registers that hold one. A mask is what select reads first, and nothing else.
static void random_ops(program *p) {
  tt_lists *l = &p->l;
  const int64_t given = l->inputs + l->numbers + l->constants;
  bool masks[TT_LIST_REGISTERS] = {false}, made[TT_LIST_REGISTERS] = {false};
  for (int64_t i = 0; i < given; i++) {
    made[i] = true;
  }
  for (int64_t i = 0; i < l->op_count; i++) {
    int64_t *op = p->ops + i * TT_LIST_OP_WORDS;
    op[0] = pick(0, TT_LIST_CODES - 1);
    op[1] = given + (i < l->registers - given ? i : pick(0, l->registers - given - 1));
    for (int32_t k = 2; k < TT_LIST_OP_WORDS; k++) {
      do {
        op[k] = pick(0, l->registers - 1);
      } while (!made[op[k]] || masks[op[k]]);
    }
    if (op[0] == TT_LIST_SELECT) {
      int64_t chosen = -1;
      for (int64_t r = 0; r < l->registers; r++) {
        chosen = masks[r] && (chosen < 0 || pick(0, 1)) ? r : chosen;
      }
      op[0] = chosen < 0 ? TT_LIST_ADD : TT_LIST_SELECT;
      op[2] = chosen < 0 ? op[2] : chosen;
    }
    made[op[1]] = true;
    masks[op[1]] = op[0] >= TT_LIST_LT && op[0] <= TT_LIST_NE;
  }
  for (int64_t i = 0; i < l->outputs; i++) {
    p->results[i] = given + pick(0, (l->op_count < l->registers - given ? l->op_count : l->registers - given) - 1);
  }
}

// As a piece of a team, so that subnormal numbers count as zero here too.
static void plain_group(void *context, int64_t g, float *scratch) {
  const program *p = context;
  (void)scratch;
  for (int64_t at = 0; at < p->l.counts[g]; at++) {
    float results[MOST_ARRAYS];
    run_plainly(&p->l, g, at, results);
    for (int64_t i = 0; i < p->l.outputs; i++) {
      p->want[g * p->l.outputs + i][at] = results[i];
    }
  }
}

static void random_program(program *p, const int64_t *counts, int64_t groups) {
  memset(p, 0, sizeof *p);
  tt_lists *l = &p->l;
  *l = (tt_lists){.groups = groups, .inputs = pick(1, 6), .numbers = pick(0, 4), .constants = pick(0, 3)};
  l->registers = l->inputs + l->numbers + l->constants + pick(1, pick(0, 4) ? 8 : 51);
  l->op_count = pick(1, MOST_OPS);
  l->outputs = pick(1, 5);
  l->constant_bits = p->constant_bits;
  l->ops = p->ops;
  l->results = p->results;
  l->counts = p->counts;
  l->places = p->places;
  l->pack = p->pack;
  l->in = p->in;
  l->out = p->out;
  memcpy(p->counts, counts, sizeof *counts * (size_t)groups);
  for (int32_t i = 0; i < PACK; i++) {
    p->pack[i] = any_float();
  }
  for (int64_t i = 0; i < l->constants; i++) {
    const float value = any_float();
    uint32_t bits;
    memcpy(&bits, &value, sizeof bits);
    p->constant_bits[i] = pick(0, 1) ? (int64_t)bits : (int32_t)bits;  // as printed with %d
  }
  for (int64_t i = 0; i < groups * l->numbers; i++) {
    p->places[i] = pick(0, PACK - 1);
  }
  random_ops(p);
  for (int64_t g = 0; g < groups; g++) {
    for (int64_t i = 0; i < l->inputs; i++) {
      p->in[g * l->inputs + i] = p->own_in[g * l->inputs + i] = floats(counts[g]);
    }
    for (int64_t i = 0; i < l->outputs; i++) {
      const int64_t at = g * l->outputs + i;
      p->want[at] = floats(counts[g]);
      p->in_place[at] = i < l->inputs && pick(0, 1);
      p->out[at] = p->in_place[at] ? p->own_in[g * l->inputs + i] : floats(counts[g]);
    }
  }
  REQUIRE(tt_team_run(NULL, groups, 0, 1, plain_group, p));
}

static void free_program(program *p) {
  for (int64_t i = 0; i < p->l.groups * p->l.outputs; i++) {
    free(p->want[i]);
    if (!p->in_place[i]) {
      free(p->out[i]);
    }
  }
  for (int64_t i = 0; i < p->l.groups * p->l.inputs; i++) {
    free(p->own_in[i]);
  }
}

// The bits of a NaN that an operator makes are the processor's.
static bool same(float got, float want) {
  uint32_t bits[2];
  memcpy(&bits[0], &got, sizeof got);
  memcpy(&bits[1], &want, sizeof want);
  return bits[0] == bits[1] || (isnan(got) && isnan(want));
}

static bool agrees(const program *p) {
  for (int64_t g = 0; g < p->l.groups; g++) {
    for (int64_t i = 0; i < p->l.outputs; i++) {
      const int64_t at = g * p->l.outputs + i;
      for (int64_t k = 0; k < p->l.counts[g]; k++) {
        if (!same(p->out[at][k], p->want[at][k])) {
          fprintf(stderr, "group %d of %d elements, result %d, element %d: %a instead of %a\n", (int)g,
                  (int)p->l.counts[g], (int)i, (int)k, (double)p->out[at][k], (double)p->want[at][k]);
          return false;
        }
      }
    }
  }
  return true;
}

// Tasks are done at once, on this thread.
static bool run_at_once(void *context, void (*task)(void *data), void *data) {
  (void)context;
  task(data);
  return true;
}

static void check(const tt_kernels *kernels, uint64_t from, const int64_t *counts, int64_t groups) {
  static program p;
  const tt_team team = {run_at_once, NULL, 3};
  seed = from;
  random_program(&p, counts, groups);
  REQUIRE(tt_run_lists(kernels, from % 2 ? &team : NULL, &p.l));
  if (!CHECK(agrees(&p))) {
    fprintf(stderr, "%s, seed %d\n", kernels->name, (int)from);
  }
  free_program(&p);
}

static void test_sizes(void) {
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    for (int64_t count = 1; count <= 600; count++) {
      const int64_t counts[] = {count, pick(1, 3), pick(1, 600)};
      check(tt_kernels_at(k), (uint64_t)count, counts, 1 + count % 3);
    }
  }
}

static void test_pieces(void) {
  static const int64_t counts[][4] = {{TT_LIST_PIECE, 1, TT_LIST_PIECE + 1, 5},
                                      {3 * TT_LIST_PIECE, 2 * TT_LIST_PIECE - 1, 7, TT_LIST_PIECE},
                                      {1, 50001, 255, 16640}};
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    for (uint64_t i = 0; i < 9; i++) {
      check(tt_kernels_at(k), i + 1000, counts[i % 3], 4);
    }
  }
}

// Each operator on every pair of odd values, in vectors and in what is left over.
static void test_operators(void) {
  static const float odd[] = {0.0F, -0.0F, 1.0F, -2.5F, INFINITY, -INFINITY, NAN, 1e30F, 1e-7F};
  enum { ODD = sizeof odd / sizeof *odd, COUNT = 261 };
  float a[COUNT], b[COUNT], got[COUNT];
  for (int32_t i = 0; i < COUNT; i++) {
    a[i] = odd[i % ODD];
    b[i] = odd[i / ODD % ODD];
  }
  const float *in[] = {a, b};
  float *out[] = {got};
  const int64_t counts[] = {COUNT};
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    for (int64_t code = 0; code < TT_LIST_CODES; code++) {
      const int64_t ops[] = {TT_LIST_LT, 2, 0, 1, 0, code, 3, code == TT_LIST_SELECT ? 2 : 0, 1, 0};
      const int64_t result = 3;
      const tt_lists l = {.groups = 1,
                          .inputs = 2,
                          .registers = 4,
                          .op_count = 2,
                          .outputs = 1,
                          .ops = ops,
                          .results = &result,
                          .counts = counts,
                          .in = in,
                          .out = out};
      REQUIRE(tt_run_lists(tt_kernels_at(k), NULL, &l));
      for (int32_t i = 0; i < COUNT; i++) {
        const float want = one_op(code, code == TT_LIST_SELECT ? mask(a[i] < b[i]) : a[i], b[i], a[i]);
        if (!CHECK(same(got[i], want))) {
          fprintf(stderr, "%s: %d of %a, %a\n", tt_kernels_at(k)->name, (int)code, (double)a[i], (double)b[i]);
        }
      }
    }
  }
}

static void test_nothing(void) {
  const tt_lists l = {0};
  for (int32_t k = 0; tt_kernels_at(k); k++) {
    CHECK(tt_run_lists(tt_kernels_at(k), NULL, &l));
  }
}

TEST_MAIN(TEST(test_sizes), TEST(test_pieces), TEST(test_operators), TEST(test_nothing))
