#include "base/dtype.h"

#include "base/test.h"

static void test_every_type_has_size_and_names(void) {
  for (int i = TT_DTYPE_INVALID + 1; i < TT_DTYPE_COUNT; i++) {
    tt_dtype dtype = (tt_dtype)i;
    CHECK(tt_dtype_size(dtype) > 0);
    REQUIRE(tt_dtype_hlo_name(dtype) != NULL);
    REQUIRE(tt_dtype_torch_name(dtype) != NULL);
    // Names are unique.
    for (int j = 0; j < i; j++) {
      CHECK(strcmp(tt_dtype_hlo_name(dtype), tt_dtype_hlo_name((tt_dtype)j)) != 0);
      CHECK(strcmp(tt_dtype_torch_name(dtype), tt_dtype_torch_name((tt_dtype)j)) != 0);
    }
    // Each is of exactly one class.
    int classes = (dtype == TT_PRED) + tt_dtype_is_float(dtype) + tt_dtype_is_complex(dtype) +
                  tt_dtype_is_signed_int(dtype) + tt_dtype_is_unsigned_int(dtype);
    CHECK_INT(classes, 1);
    CHECK(tt_dtype_is_int(dtype) == (tt_dtype_is_signed_int(dtype) || tt_dtype_is_unsigned_int(dtype)));
  }
}

static void test_known_values(void) {
  static const struct {
    tt_dtype dtype;
    size_t size;
    const char *hlo, *torch;
  } cases[] = {
      {TT_PRED, 1, "i1", "bool"},
      {TT_S64, 8, "i64", "int64"},
      {TT_U8, 1, "ui8", "uint8"},
      {TT_BF16, 2, "bf16", "bfloat16"},
      {TT_F32, 4, "f32", "float32"},
      {TT_C128, 16, "complex<f64>", "complex128"},
      {TT_F8E5M2, 1, "f8E5M2", "float8_e5m2"},
  };
  for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
    CHECK_INT(tt_dtype_size(cases[i].dtype), cases[i].size);
    CHECK_STR(tt_dtype_hlo_name(cases[i].dtype), cases[i].hlo);
    CHECK_STR(tt_dtype_torch_name(cases[i].dtype), cases[i].torch);
  }
}

static void test_bad_values_are_invalid(void) {
  // Read through a variable, as they come from outside.
  volatile int outside[] = {TT_DTYPE_INVALID, TT_DTYPE_COUNT, 255};
  for (size_t i = 0; i < sizeof outside / sizeof *outside; i++) {
    tt_dtype dtype = (tt_dtype)outside[i];
    CHECK_INT(tt_dtype_size(dtype), 0);
    CHECK_STR(tt_dtype_hlo_name(dtype), "invalid");
    CHECK_STR(tt_dtype_torch_name(dtype), "invalid");
    CHECK(!tt_dtype_is_float(dtype) && !tt_dtype_is_int(dtype) && !tt_dtype_is_complex(dtype));
  }
}

static void test_real_and_complex(void) {
  CHECK_INT(tt_dtype_real(TT_C64), TT_F32);
  CHECK_INT(tt_dtype_real(TT_C128), TT_F64);
  CHECK_INT(tt_dtype_real(TT_BF16), TT_BF16);
  CHECK_INT(tt_dtype_complex(TT_F32), TT_C64);
  CHECK_INT(tt_dtype_complex(TT_F16), TT_C64);
  CHECK_INT(tt_dtype_complex(TT_F64), TT_C128);
  CHECK_INT(tt_dtype_complex(TT_C64), TT_C64);
  CHECK_INT(tt_dtype_complex(TT_C128), TT_C128);
}

TEST_MAIN(TEST(test_every_type_has_size_and_names), TEST(test_known_values), TEST(test_bad_values_are_invalid),
          TEST(test_real_and_complex))
