// Numbers of any Scalar type as the bytes of an element type, with C's conversions.
#ifndef TORCHTPU_EAGER_NUMBER_H
#define TORCHTPU_EAGER_NUMBER_H

#include "torchtpu/torchtpu.h"

// Writes tt_dtype_size(dtype) bytes. False if `checked` and an integer type can't hold the value.
bool tt_number_to_bytes(const tt_number *number, tt_dtype dtype, bool checked, unsigned char out[16]);
// The number that an element's bytes are.
tt_number tt_number_from_bytes(const void *bytes, tt_dtype dtype);

#endif  // TORCHTPU_EAGER_NUMBER_H
