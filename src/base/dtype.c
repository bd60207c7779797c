#include "base/dtype.h"

static const struct {
  unsigned char size;
  const char *hlo, *torch;
} info[TT_DTYPE_COUNT] = {
    [TT_DTYPE_INVALID] = {0, "invalid", "invalid"},
    [TT_PRED] = {1, "i1", "bool"},
    [TT_S8] = {1, "i8", "int8"},
    [TT_S16] = {2, "i16", "int16"},
    [TT_S32] = {4, "i32", "int32"},
    [TT_S64] = {8, "i64", "int64"},
    [TT_U8] = {1, "ui8", "uint8"},
    [TT_U16] = {2, "ui16", "uint16"},
    [TT_U32] = {4, "ui32", "uint32"},
    [TT_U64] = {8, "ui64", "uint64"},
    [TT_F16] = {2, "f16", "float16"},
    [TT_BF16] = {2, "bf16", "bfloat16"},
    [TT_F32] = {4, "f32", "float32"},
    [TT_F64] = {8, "f64", "float64"},
    [TT_C64] = {8, "complex<f32>", "complex64"},
    [TT_C128] = {16, "complex<f64>", "complex128"},
    [TT_F8E4M3FN] = {1, "f8E4M3FN", "float8_e4m3fn"},
    [TT_F8E5M2] = {1, "f8E5M2", "float8_e5m2"},
};

static tt_dtype known(tt_dtype dtype) { return (unsigned)dtype < TT_DTYPE_COUNT ? dtype : TT_DTYPE_INVALID; }

size_t tt_dtype_size(tt_dtype dtype) { return info[known(dtype)].size; }
const char *tt_dtype_hlo_name(tt_dtype dtype) { return info[known(dtype)].hlo; }
const char *tt_dtype_torch_name(tt_dtype dtype) { return info[known(dtype)].torch; }

bool tt_dtype_is_float(tt_dtype dtype) {
  return (dtype >= TT_F16 && dtype <= TT_F64) || dtype == TT_F8E4M3FN || dtype == TT_F8E5M2;
}
bool tt_dtype_is_complex(tt_dtype dtype) { return dtype == TT_C64 || dtype == TT_C128; }
bool tt_dtype_is_signed_int(tt_dtype dtype) { return dtype >= TT_S8 && dtype <= TT_S64; }
bool tt_dtype_is_unsigned_int(tt_dtype dtype) { return dtype >= TT_U8 && dtype <= TT_U64; }
bool tt_dtype_is_int(tt_dtype dtype) { return tt_dtype_is_signed_int(dtype) || tt_dtype_is_unsigned_int(dtype); }

tt_dtype tt_dtype_real(tt_dtype dtype) { return dtype == TT_C64 ? TT_F32 : dtype == TT_C128 ? TT_F64 : dtype; }
tt_dtype tt_dtype_complex(tt_dtype dtype) {
  return tt_dtype_is_complex(dtype) ? dtype : dtype == TT_F64 ? TT_C128 : TT_C64;
}
