#include "eager/key_part.h"

#include <string.h>

enum { MOST_SLOTS = 512 };

typedef struct reader {
  const tt_op *op;
  const uint64_t *words;
  int32_t count, at;
  tt_key_part *parts;
  int16_t arg;
  int32_t element;
  bool failed;
  bool unkeyed[MOST_SLOTS];
} reader;

static uint64_t take(reader *r, tt_part_kind kind, int32_t dim) {
  if (r->at >= r->count) {
    r->failed = true;
    return 0;
  }
  r->parts[r->at] = (tt_key_part){.kind = (uint8_t)kind, .arg = r->arg, .element = r->element, .dim = dim};
  return r->words[r->at++];
}

static void take_all(reader *r, tt_part_kind kind, int64_t count) {
  for (int32_t i = 0; i < count && !r->failed; i++) {
    take(r, kind, i);
  }
}

// The shape of what the tensor's storage holds.
static void read_slot(reader *r, int32_t rank) {
  uint64_t head = take(r, TT_PART_HEAD, 0);
  bool same = head >> 1 & 1;
  int32_t held = (int32_t)(head >> 8);
  if (!same) {
    take_all(r, TT_PART_HELD, held);
  } else if (held != rank) {
    r->failed = true;
  }
}

static void read_tensor(reader *r, const tt_op_arg *arg) {
  uint64_t head = take(r, TT_PART_HEAD, 0);
  if ((head & 255) == TT_ARG_NONE || head >> 25 & 1) {  // none, or a number of the host's
    return;
  }
  int32_t rank = (int32_t)(head >> 16 & 255);
  bool first = head >> 26 & 1, canonical = head >> 27 & 1;
  uint64_t kind = head >> 28 & 4095, slot = head >> 40;
  int32_t sizes = r->at;
  take_all(r, TT_PART_SIZE, rank);
  if (!canonical) {
    take_all(r, TT_PART_STRIDE, rank);
  }
  if (r->failed || (head & 255) != TT_ARG_TENSOR || slot >= MOST_SLOTS) {
    r->failed = true;
    return;
  }
  bool empty = false;
  for (int32_t i = 0; i < rank; i++) {
    empty = empty || r->words[sizes + i] == 0;
  }
  bool overwritten = first && r->op->rule->overwrites && arg->is_written && kind == TT_VIEW_FULL && !empty;
  if (first ? !overwritten : r->unkeyed[slot]) {
    read_slot(r, rank);
  }
  r->unkeyed[slot] = first && overwritten;
}

static void read_number(reader *r, const tt_op_arg *arg) {
  uint64_t head = take(r, TT_PART_HEAD, 0);
  if (arg->is_static || !arg->is_operand) {
    uint64_t type = head >> 8 & 255;
    tt_part_kind kind = type == TT_F64 || type == TT_C128 ? TT_PART_DOUBLE : TT_PART_INT;
    take_all(r, kind, 2);
  }
}

static void read_list(reader *r, const tt_op_arg *arg, uint64_t tag, int64_t count) {
  for (int32_t i = 0; i < count && !r->failed; i++) {
    r->element = i;
    if (tag == TT_ARG_TENSORS) {
      read_tensor(r, arg);
    } else if (tag == TT_ARG_NUMBERS) {
      read_number(r, arg);
    } else {
      take(r, tag == TT_ARG_FLOATS ? TT_PART_DOUBLE : TT_PART_INT, 0);
    }
  }
}

static void read_arg(reader *r, const tt_op_arg *arg) {
  r->element = -1;
  uint64_t head = r->words[r->at], tag = head & 255;
  switch ((tt_arg_tag)tag) {
    case TT_ARG_TENSOR:
      read_tensor(r, arg);
      return;
    case TT_ARG_NUMBER:
      read_number(r, arg);
      return;
    case TT_ARG_INT:
      take(r, TT_PART_HEAD, 0);
      take(r, TT_PART_INT, 0);
      return;
    case TT_ARG_TENSORS:
    case TT_ARG_NUMBERS:
    case TT_ARG_INTS:
    case TT_ARG_FLOATS:
      take(r, TT_PART_HEAD, 0);
      read_list(r, arg, tag, (int64_t)(head >> 32));
      return;
    case TT_ARG_STRING:
      take(r, TT_PART_HEAD, 0);
      take_all(r, TT_PART_HEAD, (int64_t)((head >> 32) + 7) / 8);
      return;
    case TT_ARG_NONE:
    case TT_ARG_GENERATOR:
    case TT_ARG_IGNORED:
      take(r, TT_PART_HEAD, 0);
      return;
  }
  r->failed = true;
}

bool tt_key_parts(const tt_op *op, const uint64_t *words, int32_t count, tt_key_part *parts) {
  reader r = {.op = op, .words = words, .count = count, .parts = parts, .arg = -1, .element = -1};
  take_all(&r, TT_PART_HEAD, 2);
  int32_t end = count - (op->rule->structure ? 1 : 0);
  for (r.arg = 0; r.at < end && r.arg < op->arg_count && !r.failed; r.arg++) {
    read_arg(&r, &op->args[r.arg]);
  }
  r.arg = -1;
  r.element = -1;
  if (op->rule->structure) {
    take(&r, TT_PART_HEAD, 0);
  }
  return !r.failed && r.at == count;
}

void tt_key_part_describe(const tt_op *op, const tt_key_part *part, tt_strbuf *out) {
  const char *name = part->arg >= 0 && part->arg < op->arg_count ? op->args[part->arg].name : "?";
  switch ((tt_part_kind)part->kind) {
    case TT_PART_SIZE:
      tt_strbuf_printf(out, "size %d of operand '%s'", part->dim, name);
      break;
    case TT_PART_STRIDE:
      tt_strbuf_printf(out, "stride %d of operand '%s'", part->dim, name);
      break;
    case TT_PART_HELD:
      tt_strbuf_printf(out, "size %d of what operand '%s' is a view of", part->dim, name);
      break;
    default:
      tt_strbuf_printf(out, "argument '%s'", name);
      break;
  }
  if (part->element >= 0) {
    tt_strbuf_printf(out, "[%d]", part->element);
  }
}
