// Costs of programs written by hand, field by field.
#include "cost.h"

#include "base/strbuf.h"
#include "base/test.h"

// ---- writing a proto ----
static void put_number(tt_strbuf *out, uint64_t value) {
  for (; value > 127; value >>= 7) {
    tt_strbuf_append(out, (char[]){(char)((value & 127) | 128)}, 1);
  }
  tt_strbuf_append(out, (char[]){(char)value}, 1);
}

static void put_value(tt_strbuf *out, unsigned number, uint64_t value) {
  put_number(out, number << 3);
  put_number(out, value);
}

static void put_bytes(tt_strbuf *out, unsigned number, const void *data, size_t size) {
  put_number(out, number << 3 | 2);
  put_number(out, size);
  if (size) {
    tt_strbuf_append(out, data, size);
  }
}

static void put_text(tt_strbuf *out, unsigned number, const char *text) { put_bytes(out, number, text, strlen(text)); }

// Takes the part.
static void put_part(tt_strbuf *out, unsigned number, tt_strbuf *part) {
  put_bytes(out, number, part->data, part->length);
  tt_strbuf_free(part);
}

// f32[rows,columns] in tiles of 8 by 128.
static tt_strbuf shape(uint64_t rows, uint64_t columns, uint64_t memory_space) {
  tt_strbuf out = {0}, dims = {0}, layout = {0}, tile = {0}, order = {0};
  put_value(&out, 2, 11);
  put_number(&dims, rows);
  put_number(&dims, columns);
  put_part(&out, 3, &dims);
  put_number(&order, 1);
  put_number(&order, 0);
  put_part(&layout, 1, &order);
  put_value(&tile, 1, 8);  // not packed
  put_value(&tile, 1, 128);
  put_part(&layout, 6, &tile);
  put_value(&layout, 8, memory_space);
  put_part(&out, 5, &layout);
  return out;
}

typedef struct op {
  uint64_t id;
  const char *opcode, *config;
  uint64_t operand, called;  // 0: none
  uint64_t memory_space;
} op;

static void put_computation(tt_strbuf *module, uint64_t id, const op *ops, size_t count) {
  tt_strbuf out = {0};
  for (size_t i = 0; i < count; i++) {
    tt_strbuf one = {0}, numbers = {0}, type = shape(10, 100, ops[i].memory_space);  // 16 by 128 with the tiles
    put_text(&one, 1, ops[i].opcode);
    put_text(&one, 2, ops[i].opcode);
    put_part(&one, 3, &type);
    put_value(&one, 35, ops[i].id);
    if (ops[i].operand) {
      put_number(&numbers, ops[i].operand);
      put_part(&one, 36, &numbers);
    }
    if (ops[i].called) {
      put_number(&numbers, ops[i].called);
      put_part(&one, 38, &numbers);
    }
    put_text(&one, 43, ops[i].config ? ops[i].config : "");
    put_part(&out, 2, &one);
  }
  put_value(&out, 5, id);
  put_part(module, 3, &out);
}

static tt_strbuf finish(tt_strbuf *module, uint64_t entry) {
  tt_strbuf out = {0};
  put_value(module, 6, entry);
  put_part(&out, 1, module);
  return out;
}

enum { ARRAY = 16 * 128 * 4 };

// ---- tests ----
static void test_sums(void) {
  tt_strbuf module = {0};
  const op ops[] = {
      {.id = 1, .opcode = "parameter"},
      {.id = 2, .opcode = "fusion", .operand = 1, .config = "{\"window_config\":{\"estimated_cycles\":\"2100\"}}"},
      {.id = 3, .opcode = "fusion", .operand = 2, .memory_space = 1, .config = "{\"estimated_cycles\":\"3000\"}"},
      {.id = 4, .opcode = "copy-start", .operand = 3, .config = "{}"},
      {.id = 5, .opcode = "copy-done", .operand = 4},
      {.id = 6, .opcode = "negate", .operand = 3, .memory_space = 1},
      {.id = 7, .opcode = "custom-call", .operand = 1},
  };
  put_computation(&module, 9, ops, sizeof ops / sizeof *ops);
  tt_strbuf program = finish(&module, 9);
  tt_cost cost;
  REQUIRE_OK(tt_cost_read(program.data, program.length, &cost));
  CHECK_INT(cost.cycles, 5100);
  CHECK_INT(cost.bytes, 4 * ARRAY);  // two of the first fusion, one of the second, one copied
  CHECK_INT(cost.copied_bytes, ARRAY);
  CHECK_INT(cost.instructions, 2);
  CHECK_INT(cost.unknown_loops, 0);
  CHECK_INT(cost.item_count, 3);
  CHECK_INT(cost.items[0].cycles, 3000);
  CHECK_INT(cost.items[2].bytes, ARRAY);
  tt_cost_free(&cost);
  tt_strbuf_free(&program);
}

static void test_loops(void) {
  tt_strbuf module = {0};
  const op inner[] = {{.id = 1, .opcode = "fusion", .config = "\"estimated_cycles\":\"10\""}};
  const op outer[] = {{.id = 1, .opcode = "while", .called = 1, .config = "{\"known_trip_count\":{\"n\":\"7\"}}"},
                      {.id = 2, .opcode = "add", .config = "\"estimated_cycles\":\"5\""}};
  const op entry[] = {{.id = 1, .opcode = "while", .called = 2, .config = "{\"known_trip_count\":{\"n\":\"3\"}}"},
                      {.id = 2, .opcode = "call", .called = 1},
                      {.id = 3, .opcode = "while", .called = 1, .config = "{}"},
                      {.id = 4, .opcode = "fusion", .called = 1, .config = "\"estimated_cycles\":\"1\""}};
  put_computation(&module, 3, entry, 4);
  put_computation(&module, 1, inner, 1);
  put_computation(&module, 2, outer, 2);
  tt_strbuf program = finish(&module, 3);
  tt_cost cost;
  REQUIRE_OK(tt_cost_read(program.data, program.length, &cost));
  CHECK_INT(cost.cycles, 3 * 7 * 10 + 3 * 5 + 10 + 10 + 1);
  CHECK_INT(cost.instructions, 21 + 3 + 1 + 1 + 1);
  CHECK_INT(cost.unknown_loops, 1);
  CHECK_INT(cost.items[0].times, 23);
  tt_cost_free(&cost);
  tt_strbuf_free(&program);
}

static void test_refused(void) {
  tt_cost cost;
  CHECK_ERROR(tt_cost_read("", 0, &cost), TT_ERR_VALUE, "no module");
  CHECK_ERROR(tt_cost_read("\x0a\x7f", 2, &cost), TT_ERR_VALUE, "no module");  // longer than what there is
  CHECK_ERROR(tt_cost_read("\x0a\x00", 2, &cost), TT_ERR_VALUE, "can't be read");
  tt_strbuf module = {0};
  const op circle[] = {{.id = 1, .opcode = "call", .called = 1}};
  put_computation(&module, 1, circle, 1);
  tt_strbuf program = finish(&module, 1);
  CHECK_ERROR(tt_cost_read(program.data, program.length, &cost), TT_ERR_VALUE, "circle");
  for (size_t size = 0; size < program.length; size++) {  // cut short
    tt_status *status = tt_cost_read(program.data, size, &cost);
    CHECK(status != NULL);
    tt_status_free(status);
  }
  tt_strbuf_free(&program);
  put_computation(&module, 1, circle, 0);
  program = finish(&module, 2);
  CHECK_ERROR(tt_cost_read(program.data, program.length, &cost), TT_ERR_VALUE, "no entry");
  tt_strbuf_free(&program);
}

// Loops in loops saturate.
static void test_saturates(void) {
  tt_strbuf module = {0};
  const char *often = "{\"known_trip_count\":{\"n\":\"99999999999999999999999\"}}";
  for (uint64_t i = 1; i < 8; i++) {
    const op ops[] = {{.id = 1, .opcode = "while", .called = i + 1, .config = often},
                      {.id = 2, .opcode = "add", .config = "\"estimated_cycles\":\"9007199254740992\""}};
    put_computation(&module, i, ops, 2);
  }
  tt_strbuf program = finish(&module, 1);
  tt_cost cost;
  REQUIRE_OK(tt_cost_read(program.data, program.length, &cost));
  CHECK_INT(cost.cycles, INT64_MAX);
  tt_cost_free(&cost);
  tt_strbuf_free(&program);
}

TEST_MAIN(TEST(test_sums), TEST(test_loops), TEST(test_refused), TEST(test_saturates))
