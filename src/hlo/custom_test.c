// Calls of functions that the plugin was given.
#include "base/test.h"
#include "hlo/hlo.h"

static tt_hlo_builder *new_builder(void) {
  tt_hlo_builder *b = NULL;
  CHECK_OK(tt_hlo_builder_create("test", &b));
  return b;
}

static const int64_t sizes[] = {2, 3};
static const tt_hlo_type_spec matrix = {TT_F32, 2, sizes}, scalar = {TT_S64, 0, NULL};

static void test_text(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo operands[] = {tt_hlo_parameter(b, TT_F32, sizes, 2), tt_hlo_parameter(b, TT_S32, NULL, 0)}, results[2];
  const tt_hlo_numbers numbers[] = {{"numbers", sizes, 2}, {"more", sizes, 1}};
  tt_hlo_custom_call(b, "some.function", operands, 2, numbers, 2, (tt_hlo_type_spec[]){matrix, scalar}, 2, results);
  char *text = NULL;
  REQUIRE_OK(tt_hlo_finish(b, &results[1], 1, &text));
  CHECK_CONTAINS(text,
                 "%0:2 = stablehlo.custom_call @some.function(%arg0, %arg1) {api_version = 4 : i32, "
                 "backend_config = {numbers = array<i64: 2, 3>, more = array<i64: 2>}, "
                 "operand_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<> : tensor<0xindex>], "
                 "result_layouts = [dense<[1, 0]> : tensor<2xindex>, dense<> : tensor<0xindex>]} : "
                 "(tensor<2x3xf32>, tensor<i32>) -> (tensor<2x3xf32>, tensor<i64>)\n");
  CHECK_CONTAINS(text, "return %0#1 : tensor<i64>");
  free(text);
  tt_hlo_builder_free(b);
}

static void refuses(const char *target, const tt_hlo_numbers *numbers, const tt_hlo_type_spec *type, int32_t count) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = tt_hlo_parameter(b, TT_F32, sizes, 2), results[20];
  tt_hlo_custom_call(b, target, &x, 1, numbers, 1, type, count, results);
  CHECK(count < 1 || !results[0]);
  CHECK(tt_hlo_status(b) != NULL);
  tt_hlo_builder_free(b);
}

static void test_refusals(void) {
  const tt_hlo_numbers fine = {"numbers", sizes, 2}, unnamed = {"a b", sizes, 2}, empty = {"numbers", sizes, 0};
  const int64_t negative = -1;
  const tt_hlo_type_spec no_type = {TT_F32, 1, &negative}, no_dtype = {TT_DTYPE_INVALID, 0, NULL};
  refuses("", &fine, &matrix, 1);
  refuses(NULL, &fine, &matrix, 1);
  refuses("a(b", &fine, &matrix, 1);
  refuses("1a", &fine, &matrix, 1);
  refuses("a", &unnamed, &matrix, 1);
  refuses("a", &empty, &matrix, 1);
  refuses("a", &fine, &no_type, 1);
  refuses("a", &fine, &no_dtype, 1);
  refuses("a", &fine, NULL, 1);
  refuses("a", &fine, &matrix, 0);
  refuses("a", &fine, &matrix, 20);
}

static void test_null_is_silent(void) {
  tt_hlo_builder *b = new_builder();
  const tt_hlo_numbers numbers = {"numbers", sizes, 2};
  tt_hlo none = NULL, result = tt_hlo_scalar(b, TT_F32, 0);
  tt_hlo_custom_call(b, "a", &none, 1, &numbers, 1, &matrix, 1, &result);
  CHECK(!result && !tt_hlo_status(b));
  tt_hlo_builder_free(b);
}

TEST_MAIN(TEST(test_text), TEST(test_refusals), TEST(test_null_is_silent))
