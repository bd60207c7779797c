// What reaches a module's results within one fusion.
#include "base/test.h"
#include "eager/fused.h"

static bool reaches(const char *text, bool first, bool second) {
  const bool params[] = {first, second};
  bool answer = !first;
  CHECK_OK(tt_text_reaches(text, params, 2, &answer));
  return answer;
}

#define HEAD "module @m {\n  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32>) -> (tensor<4xf32>) {\n"
#define TAIL "  }\n}\n"

static void test_elements_pass(void) {
  const char *text = HEAD
      "    %0 = stablehlo.constant dense<1.0> : tensor<4xf32>\n"
      "    %1 = stablehlo.add %arg0, %0 : tensor<4xf32>\n"
      "    %2 = stablehlo.reverse %1, dims = [0] : tensor<4xf32>\n"
      "    return %2 : tensor<4xf32>\n" TAIL;
  CHECK(reaches(text, true, false));
  CHECK(!reaches(text, false, true));
  CHECK(!reaches(text, false, false));
}

static void test_barriers_stop(void) {
  const char *text = HEAD
      "    %0:2 = \"stablehlo.sort\"(%arg0, %arg1) <{dimension = 0 : i64}> ({\n"
      "    ^bb0(%arg2: tensor<f32>, %arg3: tensor<f32>):\n"
      "      %1 = stablehlo.compare LT, %arg2, %arg3, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n"
      "      stablehlo.return %1 : tensor<i1>\n"
      "    }) : (tensor<4xf32>, tensor<4xf32>) -> (tensor<4xf32>, tensor<4xf32>)\n"
      "    %2 = stablehlo.add %0#1, %0#0 : tensor<4xf32>\n"
      "    %3 = stablehlo.multiply %2, %arg1 : tensor<4xf32>\n"
      "    return %3 : tensor<4xf32>\n" TAIL;
  CHECK(!reaches(text, true, false));
  CHECK(reaches(text, false, true));  // beside the sort
}

static void test_results_of_one_operation(void) {
  const char *text = HEAD
      "    %0 = stablehlo.dot_general %arg0, %arg1, contracting_dims = [0] x [0] : (tensor<4xf32>, tensor<4xf32>) -> "
      "tensor<f32>\n"
      "    %1 = stablehlo.broadcast_in_dim %0, dims = [] : (tensor<f32>) -> tensor<4xf32>\n"
      "    %2 = stablehlo.reduce(%arg1 init: %0) applies stablehlo.add across dimensions = [0] : (tensor<4xf32>, "
      "tensor<f32>) -> tensor<f32>\n"
      "    return %1, %2 : tensor<4xf32>, tensor<f32>\n" TAIL;
  CHECK(!reaches(text, true, false));
  CHECK(reaches(text, false, true));
}

static void test_odd_texts(void) {
  CHECK(!reaches("", true, true));
  CHECK(!reaches("%", true, true));
  CHECK(!reaches("return %arg", true, true));
  CHECK(!reaches("return %arg7 %99999999999999999999 %0", true, true));
  CHECK(!reaches("%0", true, true));
  CHECK(!reaches("%99999999999999999999 = stablehlo.add %arg0\nreturn %0", true, true));
  CHECK(reaches("return %arg1", false, true));
}

TEST_MAIN(TEST(test_elements_pass), TEST(test_barriers_stop), TEST(test_results_of_one_operation), TEST(test_odd_texts))
