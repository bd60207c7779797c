// Numbers of fields are those of xla/service/hlo.proto and xla/xla_data.proto.
#include "cost.h"

#include <stdlib.h>
#include <string.h>

#include "wire.h"

enum { MAX_DEPTH = 64, MAX_RANK = 64 };
// Above it no estimate of a program's cycles makes sense.
#define MAX_CYCLES ((int64_t)1 << 53)

typedef struct instruction {
  int64_t id;
  tt_wire name, opcode, config;
  tt_wire operands, called;  // packed numbers
  int64_t bytes;             // of the result, in HBM
  int64_t cycles;            // -1: no estimate
} instruction;

typedef struct computation {
  int64_t id;
  size_t first, count;  // its instructions, ascending by id
  int64_t times;        // how often the program runs it
  bool entered, done;   // by the walk
} computation;

typedef struct program {
  computation *computations;  // ascending by id, once read
  instruction *instructions;
  size_t computation_count, computation_room, instruction_count, instruction_room;
  int64_t entry;
  computation **order;  // callers before what they call
  size_t order_count;
} program;

static tt_status *no_memory(void) { return tt_error(TT_ERR_OUT_OF_MEMORY, "out of host memory"); }
static tt_status *malformed(const char *what) { return tt_error(TT_ERR_VALUE, "no HLO program: %s", what); }

static int64_t add(int64_t a, int64_t b) {
  int64_t sum;
  return __builtin_add_overflow(a, b, &sum) ? INT64_MAX : sum;
}

static int64_t multiply(int64_t a, int64_t b) {
  int64_t product;
  return __builtin_mul_overflow(a, b, &product) ? INT64_MAX : product;
}

static bool is(tt_wire text, const char *word) {
  return tt_wire_left(&text) == strlen(word) && !memcmp(text.at, word, strlen(word));
}

static bool ends_with(tt_wire text, const char *word) {
  size_t length = strlen(word);
  return tt_wire_left(&text) >= length && !memcmp(text.end - length, word, length);
}

// An item more, zeroed.
static void *grow(void *items, size_t *count, size_t *room, size_t size) {
  char *more = items;
  if (*count == *room) {
    *room = *room ? 2 * *room : 64;
    more = realloc(items, *room * size);
  }
  if (more) {
    memset(more + *count * size, 0, size);
    ++*count;
  }
  return more;
}

// ---- shapes ----
static int64_t bits_of(uint64_t type) {
  static const uint8_t bits[] = {[1] = 8,    [2] = 8,  [3] = 16,  [4] = 32,  [5] = 64,  [6] = 8,   [7] = 16,
                                 [8] = 32,   [9] = 64, [10] = 16, [11] = 32, [12] = 64, [15] = 64, [16] = 16,
                                 [18] = 128, [19] = 8, [20] = 8,  [21] = 4,  [22] = 4,  [23] = 8,  [24] = 8,
                                 [25] = 8,   [26] = 2, [27] = 2,  [28] = 8,  [29] = 8};
  return type < sizeof bits ? bits[type] : 0;
}

static size_t read_numbers(const tt_field *field, int64_t *out, size_t count, size_t room) {
  if (!field->is_bytes) {
    if (count < room) {
      out[count++] = (int64_t)field->value;
    }
    return count;
  }
  tt_wire numbers = field->bytes;
  uint64_t value;
  while (count < room && numbers.at < numbers.end && tt_wire_number(&numbers, &value)) {
    out[count++] = (int64_t)value;
  }
  return count;
}

typedef struct layout {
  int64_t order[MAX_RANK], tile[MAX_RANK];  // order: the most minor dimension first
  size_t order_count, tile_count;
  uint64_t memory_space;
} layout;

static bool read_layout(tt_wire wire, layout *out) {
  *out = (layout){0};
  bool tiled = false;
  tt_field field, part;
  while (tt_wire_next(&wire, &field)) {
    if (field.number == 1) {
      out->order_count = read_numbers(&field, out->order, out->order_count, MAX_RANK);
    } else if (field.number == 6 && field.is_bytes && !tiled) {  // further tiles lie within the first
      tiled = true;
      tt_wire tile = field.bytes;
      while (tt_wire_next(&tile, &part)) {
        if (part.number == 1) {
          out->tile_count = read_numbers(&part, out->tile, out->tile_count, MAX_RANK);
        }
      }
      wire.bad |= tile.bad;
    } else if (field.number == 8 && !field.is_bytes) {
      out->memory_space = field.value;
    }
  }
  return !wire.bad;
}

static int64_t array_bytes(uint64_t type, int64_t *dims, size_t rank, const layout *layout) {
  for (size_t i = 0; i < layout->tile_count && i < layout->order_count; i++) {
    int64_t tile = layout->tile[layout->tile_count - 1 - i], dim = layout->order[i];
    if (tile > 1 && dim >= 0 && (size_t)dim < rank && dims[dim] > 0) {
      dims[dim] = multiply((dims[dim] - 1) / tile + 1, tile);
    }
  }
  int64_t count = 1;
  for (size_t i = 0; i < rank; i++) {
    count = dims[i] < 0 ? 0 : multiply(count, dims[i]);
  }
  return multiply(count, bits_of(type)) / 8;
}

// What of the shape lies in HBM: memory space 0.
static bool read_shape(tt_wire wire, int depth, int64_t *out_bytes) {
  static const layout plain;
  layout layout = plain;
  int64_t dims[MAX_RANK], bytes = 0;
  uint64_t type = 0;
  size_t rank = 0;
  bool good = depth < MAX_DEPTH;
  tt_field field;
  while (good && tt_wire_next(&wire, &field)) {
    if (field.number == 2 && !field.is_bytes) {
      type = field.value;
    } else if (field.number == 3) {
      rank = read_numbers(&field, dims, rank, MAX_RANK);
    } else if (field.number == 4 && field.is_bytes) {
      int64_t part;
      good = read_shape(field.bytes, depth + 1, &part);
      bytes = good ? add(bytes, part) : 0;
    } else if (field.number == 5 && field.is_bytes) {
      good = read_layout(field.bytes, &layout);
    }
  }
  *out_bytes = layout.memory_space ? bytes : add(bytes, array_bytes(type, dims, rank, &layout));
  return good && !wire.bad;
}

// ---- the program ----
// The number behind "key" in the compiler's JSON, in quotes or not, in an object {"n": ...} or not; -1: none.
static int64_t config_number(tt_wire config, const char *key) {
  size_t length = strlen(key);
  const uint8_t *at = config.at < config.end ? memmem(config.at, tt_wire_left(&config), key, length) : NULL;
  if (!at) {
    return -1;
  }
  at += length;
  while (at < config.end && strchr("\":{n ", *at) && *at) {
    at++;
  }
  int64_t value = at < config.end && *at >= '0' && *at <= '9' ? 0 : -1;
  for (; at < config.end && *at >= '0' && *at <= '9'; at++) {
    value = add(multiply(value, 10), *at - '0');
  }
  return value;
}

static tt_status *read_instruction(program *p, tt_wire wire) {
  void *more = grow(p->instructions, &p->instruction_count, &p->instruction_room, sizeof *p->instructions);
  if (!more) {
    return no_memory();
  }
  p->instructions = more;
  instruction *i = &p->instructions[p->instruction_count - 1];
  tt_field field;
  while (tt_wire_next(&wire, &field)) {
    if (field.number == 35 && !field.is_bytes) {
      i->id = (int64_t)field.value;
    } else if (field.is_bytes) {
      switch (field.number) {
        case 1:
          i->name = field.bytes;
          break;
        case 2:
          i->opcode = field.bytes;
          break;
        case 3:
          if (!read_shape(field.bytes, 0, &i->bytes)) {
            return malformed("a shape can't be read");
          }
          break;
        case 36:
          i->operands = field.bytes;
          break;
        case 38:
          i->called = field.bytes;
          break;
        case 43:
          i->config = field.bytes;
          break;
        default:
          break;
      }
    }
  }
  i->cycles = config_number(i->config, "\"estimated_cycles\"");
  i->cycles = i->cycles > MAX_CYCLES ? -1 : i->cycles;
  return wire.bad ? malformed("an instruction can't be read") : NULL;
}

static int by_instruction_id(const void *a, const void *b) {
  int64_t x = ((const instruction *)a)->id, y = ((const instruction *)b)->id;
  return x < y ? -1 : x > y;
}

static int by_computation_id(const void *a, const void *b) {
  int64_t x = ((const computation *)a)->id, y = ((const computation *)b)->id;
  return x < y ? -1 : x > y;
}

static tt_status *read_computation(program *p, tt_wire wire) {
  void *more = grow(p->computations, &p->computation_count, &p->computation_room, sizeof *p->computations);
  if (!more) {
    return no_memory();
  }
  p->computations = more;
  computation *c = &p->computations[p->computation_count - 1];
  c->first = p->instruction_count;
  tt_field field;
  while (tt_wire_next(&wire, &field)) {
    if (field.number == 2 && field.is_bytes) {
      TT_TRY(read_instruction(p, field.bytes));
    } else if (field.number == 5 && !field.is_bytes) {
      c->id = (int64_t)field.value;
    }
  }
  c->count = p->instruction_count - c->first;
  if (c->count) {
    qsort(p->instructions + c->first, c->count, sizeof *p->instructions, by_instruction_id);
  }
  return wire.bad ? malformed("a computation can't be read") : NULL;
}

static tt_status *read_module(program *p, tt_wire wire) {
  tt_field field;
  while (tt_wire_next(&wire, &field)) {
    if (field.number == 3 && field.is_bytes) {
      TT_TRY(read_computation(p, field.bytes));
    } else if (field.number == 6 && !field.is_bytes) {
      p->entry = (int64_t)field.value;
    }
  }
  if (wire.bad || !p->computation_count) {
    return malformed("its module can't be read");
  }
  qsort(p->computations, p->computation_count, sizeof *p->computations, by_computation_id);
  return NULL;
}

static computation *find_computation(const program *p, int64_t id) {
  computation key = {.id = id};
  return bsearch(&key, p->computations, p->computation_count, sizeof key, by_computation_id);
}

static const instruction *find_operand(const program *p, const computation *c, int64_t id) {
  instruction key = {.id = id};
  return c->count ? bsearch(&key, p->instructions + c->first, c->count, sizeof key, by_instruction_id) : NULL;
}

// ---- how often ----
// Whether the computations that it names are run as such; those of a fusion or a reduction are a part of it.
static bool runs_others(const instruction *i) {
  return is(i->opcode, "while") || is(i->opcode, "call") || is(i->opcode, "conditional");
}

// 1 for what is no loop.
static int64_t trips(const instruction *i, int64_t *out_unknown) {
  if (!is(i->opcode, "while")) {
    return 1;
  }
  int64_t trip = config_number(i->config, "\"known_trip_count\"");
  *out_unknown += trip < 0;
  return trip < 0 ? 1 : trip;
}

// Depth first; puts a computation into the order behind all that it runs.
static tt_status *walk(program *p, computation *c, int depth) {
  if (c->done) {
    return NULL;
  }
  if (c->entered || depth == MAX_DEPTH) {
    return malformed("computations call each other in a circle, or too deep");
  }
  c->entered = true;
  for (size_t k = c->first; k < c->first + c->count; k++) {
    const instruction *i = &p->instructions[k];
    tt_wire called = i->called;
    uint64_t id;
    while (runs_others(i) && called.at < called.end && tt_wire_number(&called, &id)) {
      computation *other = find_computation(p, (int64_t)id);
      if (other) {
        TT_TRY(walk(p, other, depth + 1));
      }
    }
  }
  c->done = true;
  p->order[p->order_count++] = c;
  return NULL;
}

// Hands on how often `c` runs to what it runs.
static void spread(program *p, const computation *c, tt_cost *cost) {
  for (size_t k = c->first; k < c->first + c->count; k++) {
    const instruction *i = &p->instructions[k];
    tt_wire called = i->called;
    if (!runs_others(i)) {
      continue;
    }
    int64_t times = multiply(c->times, trips(i, &cost->unknown_loops));
    uint64_t id;
    while (called.at < called.end && tt_wire_number(&called, &id)) {
      computation *other = find_computation(p, (int64_t)id);
      if (other) {
        other->times = add(other->times, times);
      }
    }
  }
}

// ---- the sums ----
// What moves no bytes itself.
static bool moves_nothing(const instruction *i) {
  static const char *const free_ones[] = {
      "parameter",   "constant",  "get-tuple-element", "tuple", "bitcast",        "while",       "call",
      "conditional", "after-all", "opt-barrier",       "iota",  "add-dependency", "async-update"};
  for (size_t k = 0; k < sizeof free_ones / sizeof *free_ones; k++) {
    if (is(i->opcode, free_ones[k])) {
      return true;
    }
  }
  return ends_with(i->opcode, "-done") || (is(i->opcode, "custom-call") && i->cycles < 0);
}

static bool is_asynchronous(const instruction *i) { return ends_with(i->opcode, "-start"); }

static int64_t moved_bytes(const program *p, const computation *c, const instruction *i) {
  if (moves_nothing(i)) {
    return 0;
  }
  int64_t bytes = i->bytes;
  tt_wire operands = i->operands;
  uint64_t id;
  // The start of a copy has its operand among its results.
  while (!is_asynchronous(i) && operands.at < operands.end && tt_wire_number(&operands, &id)) {
    const instruction *operand = find_operand(p, c, (int64_t)id);
    bytes = operand ? add(bytes, operand->bytes) : bytes;
  }
  return bytes;
}

static void count_instruction(const program *p, const computation *c, const instruction *i, tt_cost *cost) {
  tt_cost_item item = {(const char *)i->name.at,
                       (const char *)i->opcode.at,
                       tt_wire_left(&i->name),
                       tt_wire_left(&i->opcode),
                       c->times,
                       i->cycles > 0 ? i->cycles : 0,
                       moved_bytes(p, c, i)};
  cost->cycles = add(cost->cycles, multiply(item.times, item.cycles));
  cost->bytes = add(cost->bytes, multiply(item.times, item.bytes));
  if (is_asynchronous(i)) {
    cost->copied_bytes = add(cost->copied_bytes, multiply(item.times, item.bytes));
  }
  cost->instructions = add(cost->instructions, item.cycles ? item.times : 0);
  if (item.times && (item.cycles || item.bytes)) {
    cost->items[cost->item_count++] = item;
  }
}

static int dearest_first(const void *a, const void *b) {
  const tt_cost_item *x = a, *y = b;
  int64_t cx = multiply(x->times, x->cycles), cy = multiply(y->times, y->cycles);
  int64_t bx = multiply(x->times, x->bytes), by = multiply(y->times, y->bytes);
  return cx != cy ? (cx < cy ? 1 : -1) : bx != by ? (bx < by ? 1 : -1) : 0;
}

static tt_status *sum(program *p, tt_cost *cost) {
  computation *entry = find_computation(p, p->entry);
  if (!entry) {
    return malformed("it has no entry");
  }
  p->order = malloc(p->computation_count * sizeof(computation *));
  cost->items = malloc((p->instruction_count + 1) * sizeof *cost->items);
  if (!p->order || !cost->items) {
    return no_memory();
  }
  TT_TRY(walk(p, entry, 0));
  entry->times = 1;
  for (size_t n = p->order_count; n-- > 0;) {
    const computation *c = p->order[n];
    spread(p, c, cost);
    for (size_t k = c->first; k < c->first + c->count; k++) {
      count_instruction(p, c, &p->instructions[k], cost);
    }
  }
  qsort(cost->items, cost->item_count, sizeof *cost->items, dearest_first);
  return NULL;
}

tt_status *tt_cost_read(const void *data, size_t size, tt_cost *out_cost) {
  *out_cost = (tt_cost){0};
  program p = {0};
  tt_wire wire = tt_wire_of(data, size);
  tt_field field;
  tt_status *status = malformed("it has no module");
  while (tt_wire_next(&wire, &field)) {
    if (field.number == 1 && field.is_bytes) {
      tt_status_free(status);
      status = read_module(&p, field.bytes);
      break;
    }
  }
  if (!status) {
    status = sum(&p, out_cost);
  }
  free(p.computations);
  free(p.instructions);
  free(p.order);
  if (status) {
    tt_cost_free(out_cost);
  }
  return status;
}

void tt_cost_free(tt_cost *cost) {
  free(cost->items);
  *cost = (tt_cost){0};
}
