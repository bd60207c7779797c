// Element types: the ones that PyTorch and StableHLO share.
#ifndef TORCHTPU_BASE_DTYPE_H
#define TORCHTPU_BASE_DTYPE_H

#include <stdbool.h>
#include <stddef.h>

#ifdef __cplusplus
extern "C" {
#endif
#pragma GCC visibility push(default)

typedef enum tt_dtype {
  TT_DTYPE_INVALID = 0,
  TT_PRED,  // bool
  TT_S8,
  TT_S16,
  TT_S32,
  TT_S64,
  TT_U8,
  TT_U16,
  TT_U32,
  TT_U64,
  TT_F16,
  TT_BF16,
  TT_F32,
  TT_F64,
  TT_C64,   // complex of two f32
  TT_C128,  // complex of two f64
  TT_F8E4M3FN,
  TT_F8E5M2,
  TT_DTYPE_COUNT
} tt_dtype;

size_t tt_dtype_size(tt_dtype dtype);             // bytes; 0 for TT_DTYPE_INVALID
const char *tt_dtype_hlo_name(tt_dtype dtype);    // "f32", "i64", "ui8", "complex<f32>"
const char *tt_dtype_torch_name(tt_dtype dtype);  // "float32", "int64"
bool tt_dtype_is_float(tt_dtype dtype);           // the real floating types
bool tt_dtype_is_complex(tt_dtype dtype);
bool tt_dtype_is_signed_int(tt_dtype dtype);
bool tt_dtype_is_unsigned_int(tt_dtype dtype);  // u8 to u64, without bool
bool tt_dtype_is_int(tt_dtype dtype);           // either, without bool
tt_dtype tt_dtype_real(tt_dtype dtype);         // C64 -> F32, C128 -> F64, others themselves
tt_dtype tt_dtype_complex(tt_dtype dtype);      // F64 -> C128, other floats -> C64, complex themselves

#pragma GCC visibility pop
#ifdef __cplusplus
}
#endif

#endif  // TORCHTPU_BASE_DTYPE_H
