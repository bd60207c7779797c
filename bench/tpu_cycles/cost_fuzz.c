// Whatever the bytes are, reading a program's cost neither crashes nor takes long.
//
// With libFuzzer: clang -fsanitize=fuzzer,address -Isrc bench/tpu_cycles/cost_fuzz.c bench/tpu_cycles/cost.c
// src/base/*.c Without: -DTT_FUZZ_MAIN gives a main() that runs files (`cost_fuzz FILE...`), or random programs
// (`cost_fuzz COUNT`).
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "cost.h"
#include "support/files.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  tt_cost cost;
  tt_status *status = tt_cost_read(data, size, &cost);
  if (!status && (cost.cycles < 0 || cost.bytes < cost.copied_bytes)) {
    abort();
  }
  if (!status) {
    tt_cost_free(&cost);
  }
  tt_status_free(status);
  return 0;
}

#ifdef TT_FUZZ_MAIN
// ---- random programs: mostly well formed, with faults ----
typedef struct maker {
  uint64_t state;
  uint8_t bytes[4096];
  size_t size;
} maker;

static unsigned pick(maker *m, unsigned n) {
  m->state ^= m->state << 13;
  m->state ^= m->state >> 7;
  m->state ^= m->state << 17;
  return (unsigned)((m->state >> 24) % n);
}

static void put(maker *m, uint8_t byte) {
  if (m->size < sizeof m->bytes) {
    m->bytes[m->size++] = pick(m, 1500) ? byte : (uint8_t)pick(m, 256);
  }
}

static void put_number(maker *m, uint64_t value) {
  for (; value > 127; value >>= 7) {
    put(m, (uint8_t)((value & 127) | 128));
  }
  put(m, (uint8_t)value);
}

static void put_value(maker *m, unsigned number, uint64_t value) {
  put_number(m, number << 3);
  put_number(m, value);
}

static void put_text(maker *m, unsigned number, const char *text) {
  put_number(m, number << 3 | 2);
  put_number(m, strlen(text));
  for (; *text; text++) {
    put(m, (uint8_t)*text);
  }
}

// A part's length stands before it in two bytes; returns where the part begins.
static size_t begin(maker *m, unsigned number) {
  put_number(m, number << 3 | 2);
  m->size = m->size + 2 <= sizeof m->bytes ? m->size + 2 : sizeof m->bytes;
  return m->size;
}

static void end(maker *m, size_t start) {
  size_t length = m->size - start;
  if (start >= 2) {
    m->bytes[start - 2] = (uint8_t)((length & 127) | 128);
    m->bytes[start - 1] = (uint8_t)((length >> 7) & 127);
  }
}

static void put_shape(maker *m, unsigned number, int depth) {
  size_t shape = begin(m, number);
  put_value(m, 2, pick(m, 34));
  for (unsigned i = pick(m, 5); i > 0; i--) {
    put_value(m, 3, pick(m, 20) ? pick(m, 300) : UINT64_MAX >> pick(m, 64));
  }
  if (!pick(m, 4) && depth < 80) {
    put_shape(m, 4, depth + 1 + (pick(m, 3) ? 0 : 70));
  }
  size_t layout = begin(m, 5);
  for (unsigned i = pick(m, 4); i > 0; i--) {
    put_value(m, 1, i - 1);
  }
  size_t tile = begin(m, 6);
  put_value(m, 1, 8);
  put_value(m, 1, pick(m, 10) ? 128 : UINT64_MAX);
  end(m, tile);
  put_value(m, 8, pick(m, 2));
  end(m, layout);
  end(m, shape);
}

static void put_instruction(maker *m, unsigned id, unsigned computations) {
  static const char *const opcodes[] = {"fusion", "while", "call", "conditional", "copy-start", "copy-done", "add"};
  static const char *const configs[] = {"{\"estimated_cycles\":\"2000\"}", "{\"known_trip_count\":{\"n\":\"9\"}}",
                                        "\"known_trip_count\"", "\"estimated_cycles\":\"99999999999999999999", ""};
  size_t start = begin(m, 2);
  put_text(m, 2, opcodes[pick(m, sizeof opcodes / sizeof *opcodes)]);
  put_shape(m, 3, 0);
  put_value(m, 35, id);
  size_t operands = begin(m, 36);
  put_number(m, pick(m, id + 1));
  end(m, operands);
  size_t called = begin(m, 38);
  put_number(m, pick(m, computations + 1));
  put_number(m, pick(m, computations + 1));
  end(m, called);
  put_text(m, 43, configs[pick(m, sizeof configs / sizeof *configs)]);
  end(m, start);
}

static void make(maker *m, uint64_t seed) {
  *m = (maker){.state = seed * 0x9E3779B97F4A7C15u + 1};
  size_t module = begin(m, 1);
  unsigned computations = 1 + pick(m, 6);
  for (unsigned c = 0; c < computations; c++) {
    size_t computation = begin(m, 3);
    for (unsigned i = pick(m, 5); i > 0; i--) {
      put_instruction(m, i, c);
    }
    put_value(m, 5, c);
    end(m, computation);
  }
  put_value(m, 6, computations - 1);
  end(m, module);
  m->size = pick(m, 10) ? m->size : pick(m, (unsigned)m->size + 1);
}

int main(int argc, char **argv) {
  char *rest = NULL;
  unsigned long count = argc > 1 ? strtoul(argv[1], &rest, 10) : 100000, good = 0;
  if (rest && *rest) {
    return fuzz_files(argv + 1, argc - 1, LLVMFuzzerTestOneInput);
  }
  for (unsigned long seed = 0; seed < count; seed++) {
    static maker m;
    make(&m, seed);
    uint8_t *exact = malloc(m.size + 1);  // so that a sanitizer sees its end
    if (!exact) {
      return 1;
    }
    memcpy(exact + 1, m.bytes, m.size);
    LLVMFuzzerTestOneInput(exact + 1, m.size);
    tt_cost cost;
    tt_status *status = tt_cost_read(exact + 1, m.size, &cost);
    good += status == NULL;
    if (!status) {
      tt_cost_free(&cost);
    }
    tt_status_free(status);
    free(exact);
  }
  fprintf(stderr, "%lu inputs, %lu programs\n", count, good);
  return 0;
}
#endif
