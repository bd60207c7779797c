// What the words of a key stand for: key.c writes them, this reads them back, to say how two keys differ.
#ifndef TORCHTPU_EAGER_KEY_PART_H
#define TORCHTPU_EAGER_KEY_PART_H

#include "base/strbuf.h"
#include "eager/internal.h"

typedef enum tt_part_kind {
  TT_PART_HEAD,  // the operator, types, ranks: with another one it is another kind of call
  TT_PART_SIZE,  // `dim` of a tensor
  TT_PART_STRIDE,
  TT_PART_HELD,    // `dim` of what the tensor is a view of
  TT_PART_INT,     // of a structural argument
  TT_PART_DOUBLE,  // its bits
} tt_part_kind;
typedef struct tt_key_part {
  uint8_t kind;     // tt_part_kind
  int16_t arg;      // of the operator
  int32_t element;  // of a list; -1: it is none
  int32_t dim;
} tt_key_part;

// Fills parts[count]. False for a key that it can't read.
bool tt_key_parts(const tt_op *op, const uint64_t *words, int32_t count, tt_key_part *parts);
// "size 1 of operand 'self'"
void tt_key_part_describe(const tt_op *op, const tt_key_part *part, tt_strbuf *out);

#endif  // TORCHTPU_EAGER_KEY_PART_H
