// Reads the protobuf wire format: fields, one after the other.
#ifndef TORCHTPU_TPU_CYCLES_WIRE_H
#define TORCHTPU_TPU_CYCLES_WIRE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

typedef struct tt_wire {
  const uint8_t *at, *end;
  bool bad;  // once, and there are no more fields
} tt_wire;

typedef struct tt_field {
  uint64_t number;
  bool is_bytes;   // else a number
  uint64_t value;  // fixed 32 and 64 bit fields too
  tt_wire bytes;   // of a message, a string or packed numbers
} tt_field;

static inline tt_wire tt_wire_of(const void *data, size_t size) {
  return (tt_wire){data, (const uint8_t *)data + size, false};
}

static inline size_t tt_wire_left(const tt_wire *wire) { return (size_t)(wire->end - wire->at); }

// The next number of packed ones, or a part of a field. False at the end, or at what is none: `bad`.
static inline bool tt_wire_number(tt_wire *wire, uint64_t *out_value) {
  uint64_t value = 0;
  for (unsigned shift = 0; wire->at < wire->end && shift < 64; shift += 7) {
    uint8_t byte = *wire->at++;
    value |= (uint64_t)(byte & 127) << shift;
    if (byte < 128) {
      *out_value = value;
      return true;
    }
  }
  wire->bad = true;
  return false;
}

static inline bool tt_wire_fixed(tt_wire *wire, size_t size, uint64_t *out_value) {
  if (tt_wire_left(wire) < size) {
    wire->bad = true;
    return false;
  }
  *out_value = 0;
  for (size_t i = 0; i < size; i++) {
    *out_value |= (uint64_t)wire->at[i] << 8 * i;
  }
  wire->at += size;
  return true;
}

// False at the end, or at what is no field: `bad`.
static inline bool tt_wire_next(tt_wire *wire, tt_field *out_field) {
  uint64_t tag, size;
  if (wire->bad || wire->at == wire->end || !tt_wire_number(wire, &tag)) {
    return false;
  }
  *out_field = (tt_field){.number = tag >> 3};
  switch (tag & 7) {
    case 0:
      return tt_wire_number(wire, &out_field->value);
    case 1:
      return tt_wire_fixed(wire, 8, &out_field->value);
    case 5:
      return tt_wire_fixed(wire, 4, &out_field->value);
    case 2:
      if (tt_wire_number(wire, &size) && size <= tt_wire_left(wire)) {
        out_field->is_bytes = true;
        out_field->bytes = (tt_wire){wire->at, wire->at + size, false};
        wire->at += size;
        return true;
      }
      break;
    default:
      break;  // groups are in no proto of XLA's
  }
  wire->bad = true;
  return false;
}

#endif  // TORCHTPU_TPU_CYCLES_WIRE_H
