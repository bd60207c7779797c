// What the builder prints.
#include "hlo/hlo.h"

#include "base/test.h"

static tt_hlo_builder *new_builder(void) {
  tt_hlo_builder *b = NULL;
  CHECK_OK(tt_hlo_builder_create("test", &b));
  return b;
}

static tt_hlo parameter(tt_hlo_builder *b, tt_dtype dtype, int32_t rank, int64_t d0, int64_t d1) {
  int64_t dims[] = {d0, d1};
  return tt_hlo_parameter(b, dtype, dims, rank);
}

// The text of a module with these results; frees the builder.
static char *finish(tt_hlo_builder *b, const tt_hlo *results, int32_t count) {
  char *text = NULL;
  CHECK_OK(tt_hlo_finish(b, results, count, &text));
  tt_hlo_builder_free(b);
  return text ? text : calloc(1, 1);
}

static void check_text(tt_hlo_builder *b, tt_hlo result, const char *part) {
  char *text = finish(b, &result, 1);
  CHECK_CONTAINS(text, part);
  free(text);
}

// ---- modules ----
static void test_whole_module(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 1, 4, 0), y = parameter(b, TT_F32, 1, 4, 0);
  tt_hlo_unary(TT_EXP, y);  // nobody needs it
  tt_hlo sum = tt_hlo_binary(TT_ADD, x, y);
  tt_hlo_alias(b, y, 1);
  char *text = finish(b, (tt_hlo[]){sum, sum}, 2);
  CHECK_STR(text,
            "module @test {\n"
            "  func.func public @main(%arg0: tensor<4xf32>, %arg1: tensor<4xf32> {tf.aliasing_output = 1 : i32}) -> "
            "(tensor<4xf32>, tensor<4xf32>) {\n"
            "    %0 = stablehlo.add %arg0, %arg1 : tensor<4xf32>\n"
            "    return %0, %0 : tensor<4xf32>, tensor<4xf32>\n"
            "  }\n"
            "}\n");
  free(text);
}

static void test_no_results(void) {
  tt_hlo_builder *b = new_builder();
  parameter(b, TT_F32, 0, 0, 0);
  char *text = finish(b, NULL, 0);
  CHECK_CONTAINS(text, "@main(%arg0: tensor<f32>) -> () {\n    return\n");
  free(text);
}

static void test_finish_twice(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 1, 4, 0), y = tt_hlo_unary(TT_EXP, x), z = tt_hlo_unary(TT_NEGATE, y);
  char *first = NULL, *second = NULL;
  CHECK_OK(tt_hlo_finish(b, &z, 1, &first));
  CHECK_OK(tt_hlo_finish(b, &y, 1, &second));
  CHECK_CONTAINS(first, "%1 = stablehlo.negate %0");
  CHECK(second && !strstr(second, "negate"));
  free(first);
  free(second);
  tt_hlo_builder_free(b);
}

static void test_names_and_locations(void) {
  tt_hlo_builder *b = NULL;
  CHECK_OK(tt_hlo_builder_create("9a.b\"c", &b));
  tt_hlo x = parameter(b, TT_F32, 0, 0, 0);
  tt_hlo_set_location(b, "aten::\"x\"\n");
  tt_hlo y = tt_hlo_unary(TT_EXP, x);
  tt_hlo_set_location(b, NULL);
  tt_hlo z = tt_hlo_unary(TT_LOG, y);
  char *text = finish(b, &z, 1);
  CHECK_CONTAINS(text, "module @_a_b_c {");
  CHECK_CONTAINS(text, "stablehlo.exponential %arg0 : tensor<f32> loc(\"aten::\\22x\\22\\0A\")\n");
  CHECK_CONTAINS(text, "stablehlo.log %0 : tensor<f32>\n");
  free(text);
}

// ---- literals ----
static void check_literal(tt_dtype dtype, double value, const char *want) {
  tt_hlo_builder *b = new_builder();
  char line[128];
  snprintf(line, sizeof line, "constant dense<%s> : tensor<%s>\n", want, tt_dtype_hlo_name(dtype));
  check_text(b, tt_hlo_scalar(b, dtype, value), line);
}

static void test_float_literals(void) {
  check_literal(TT_F32, 1, "1.0");
  check_literal(TT_F32, 0.1, "0.1");
  check_literal(TT_F32, -0.0, "-0.0");
  check_literal(TT_F32, 1e30, "1.0e+30");
  check_literal(TT_F32, 1.0 / 3, "0.33333334");
  check_literal(TT_F32, 1e-45, "1.4013e-45");
  check_literal(TT_F32, 1e39, "0x7F800000");
  check_literal(TT_F32, -INFINITY, "0xFF800000");
  check_literal(TT_F32, NAN, "0x7FC00000");
  check_literal(TT_F64, 0.1, "0.1");
  check_literal(TT_F64, 1.0 / 3, "0.3333333333333333");
  check_literal(TT_F64, INFINITY, "0x7FF0000000000000");
  check_literal(TT_F16, 65519, "65504.0");
  check_literal(TT_F16, 65520, "0x7C00");
  check_literal(TT_F16, 2.98e-8, "0.0");
  check_literal(TT_F16, 3e-8, "5.9604645e-08");
  check_literal(TT_BF16, 1.00390625, "1.0");       // a tie, to even
  check_literal(TT_BF16, 1.01171875, "1.015625");  // likewise
  check_literal(TT_BF16, NAN, "0x7FC0");
  check_literal(TT_F8E4M3FN, INFINITY, "448.0");
  check_literal(TT_F8E4M3FN, NAN, "0x7F");
  check_literal(TT_F8E5M2, -INFINITY, "0xFC");
  check_literal(TT_C64, 0.5, "(0.5, 0.0)");
  check_literal(TT_C128, NAN, "(0x7FF8000000000000, 0.0)");
}

static void test_integer_literals(void) {
  check_literal(TT_PRED, 1, "true");
  check_literal(TT_PRED, 0, "false");
  check_literal(TT_S8, -128, "-128");
  check_literal(TT_S32, -2.7, "-2");
  check_literal(TT_S64, -0x1p63, "-9223372036854775808");
  check_literal(TT_U64, 0x1p63, "9223372036854775808");
  tt_hlo_builder *b = new_builder();
  check_text(b, tt_hlo_max_value(b, TT_U64), "dense<18446744073709551615> : tensor<ui64>");
  b = new_builder();
  check_text(b, tt_hlo_reducer_init(b, TT_MAX, TT_S16), "dense<-32768>");
  b = new_builder();
  check_text(b, tt_hlo_reducer_init(b, TT_ALL, TT_U8), "dense<255>");
  b = new_builder();
  check_text(b, tt_hlo_reducer_init(b, TT_MIN, TT_F8E4M3FN), "dense<448.0>");
}

static void test_constants(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = tt_hlo_const_ints(b, TT_S64, (int64_t[]){1, -2}, 2), none = tt_hlo_const_ints(b, TT_S64, NULL, 0);
  tt_hlo f = tt_hlo_const_floats(b, TT_C64, (double[]){1, NAN}, 2);
  int64_t dims[] = {2, 3};
  tt_hlo splat = tt_hlo_const(b, TT_F32, 2, dims, 2);
  CHECK(splat == tt_hlo_const(b, TT_F32, 2, dims, 2));
  CHECK(splat != tt_hlo_scalar(b, TT_F32, 2));
  CHECK(splat == tt_hlo_broadcast_to(tt_hlo_scalar(b, TT_F32, 2), dims, 2));
  tt_hlo bits = tt_hlo_const_bits(b, TT_U64, UINT64_MAX - 1), iota = tt_hlo_iota(b, TT_S32, dims, 2, 1);
  char *text = finish(b, (tt_hlo[]){x, none, f, splat, bits, iota}, 6);
  CHECK_CONTAINS(text, "constant dense<[1, -2]> : tensor<2xi64>");
  CHECK_CONTAINS(text, "constant dense<> : tensor<0xi64>");
  CHECK_CONTAINS(text, "constant dense<[(1.0, 0.0), (0x7FC00000, 0.0)]> : tensor<2xcomplex<f32>>");
  CHECK_CONTAINS(text, "constant dense<2.0> : tensor<2x3xf32>");
  CHECK_CONTAINS(text, "constant dense<18446744073709551614> : tensor<ui64>");
  CHECK_CONTAINS(text, "stablehlo.iota dim = 1 : tensor<2x3xi32>");
  free(text);
}

// ---- operations ----
static void test_elementwise(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 1, 4, 0), c = parameter(b, TT_C64, 1, 4, 0), i = parameter(b, TT_U8, 1, 4, 0);
  tt_hlo p = tt_hlo_compare(TT_LT, x, x), s = tt_hlo_scalar(b, TT_F32, 0);
  tt_hlo results[] = {p,
                      tt_hlo_compare(TT_GE, i, i),
                      tt_hlo_select(p, x, tt_hlo_unary(TT_NEGATE, x)),
                      tt_hlo_clamp(s, x, s),
                      tt_hlo_unary(TT_ABS, c),
                      tt_hlo_unary(TT_IS_FINITE, x),
                      tt_hlo_unary(TT_ERF, x),
                      tt_hlo_binary(TT_ZETA, x, x),
                      tt_hlo_complex(x, x),
                      tt_hlo_convert(x, TT_BF16),
                      tt_hlo_bitcast_convert(x, TT_U16),
                      tt_hlo_reduce_precision(x, 5, 10),
                      tt_hlo_unary(TT_ABS, i)};
  CHECK(results[12] == i);
  CHECK(tt_hlo_convert(x, TT_F32) == x);
  char *text = finish(b, results, 13);
  CHECK_CONTAINS(text, "compare LT, %arg0, %arg0, FLOAT : (tensor<4xf32>, tensor<4xf32>) -> tensor<4xi1>");
  CHECK_CONTAINS(text, "compare GE, %arg2, %arg2, UNSIGNED");
  CHECK_CONTAINS(text, " : tensor<4xi1>, tensor<4xf32>\n");
  CHECK_CONTAINS(text, " : (tensor<f32>, tensor<4xf32>, tensor<f32>) -> tensor<4xf32>");
  CHECK_CONTAINS(text, "stablehlo.abs %arg1 : (tensor<4xcomplex<f32>>) -> tensor<4xf32>");
  CHECK_CONTAINS(text, "stablehlo.is_finite %arg0 : (tensor<4xf32>) -> tensor<4xi1>");
  CHECK_CONTAINS(text, "chlo.erf %arg0 : tensor<4xf32> -> tensor<4xf32>");
  CHECK_CONTAINS(text, "chlo.zeta %arg0, %arg0 : tensor<4xf32>, tensor<4xf32> -> tensor<4xf32>");
  CHECK_CONTAINS(text, "stablehlo.complex %arg0, %arg0 : tensor<4xcomplex<f32>>");
  CHECK_CONTAINS(text, "bitcast_convert %arg0 : (tensor<4xf32>) -> tensor<4x2xui16>");
  CHECK_CONTAINS(text, "reduce_precision %arg0, format = e5m10 : tensor<4xf32>");
  free(text);
}

static void test_shapes(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 2, 2, 3), i = parameter(b, TT_S32, 0, 0, 0), u = parameter(b, TT_F32, 2, 1, 1);
  tt_hlo zero = tt_hlo_scalar(b, TT_F32, 0);
  tt_hlo results[] = {tt_hlo_reshape(tt_hlo_reshape(x, (int64_t[]){6}, 1), (int64_t[]){3, 2}, 2),
                      tt_hlo_transpose(x, (int32_t[]){1, 0}),
                      tt_hlo_broadcast_to(x, (int64_t[]){4, 2, 3}, 3),
                      tt_hlo_slice(x, (int64_t[]){0, 1}, (int64_t[]){2, 3}, (int64_t[]){2, 1}),
                      tt_hlo_dynamic_slice(x, (tt_hlo[]){i, i}, (int64_t[]){1, 2}),
                      tt_hlo_dynamic_update_slice(x, u, (tt_hlo[]){i, i}),
                      tt_hlo_concatenate((tt_hlo[]){x, x}, 2, 1),
                      tt_hlo_pad(x, zero, (int64_t[]){-1, 0}, (int64_t[]){0, 2}, (int64_t[]){0, 1}),
                      tt_hlo_reverse(x, (int32_t[]){1}, 1)};
  char *text = finish(b, results, 9);
  CHECK_CONTAINS(text, "stablehlo.reshape %arg0 : (tensor<2x3xf32>) -> tensor<3x2xf32>");
  CHECK_CONTAINS(text, "transpose %arg0, dims = [1, 0] : (tensor<2x3xf32>) -> tensor<3x2xf32>");
  CHECK_CONTAINS(text, "broadcast_in_dim %arg0, dims = [1, 2] : (tensor<2x3xf32>) -> tensor<4x2x3xf32>");
  CHECK_CONTAINS(text, "slice %arg0 [0:2:2, 1:3] : (tensor<2x3xf32>) -> tensor<1x2xf32>");
  CHECK_CONTAINS(text, "dynamic_slice %arg0, %arg1, %arg1, sizes = [1, 2] : ");
  CHECK_CONTAINS(text, "dynamic_update_slice %arg0, %arg2, %arg1, %arg1 : ");
  CHECK_CONTAINS(text, "concatenate %arg0, %arg0, dim = 1 : (tensor<2x3xf32>, tensor<2x3xf32>) -> tensor<2x6xf32>");
  CHECK_CONTAINS(
      text, ", low = [-1, 0], high = [0, 2], interior = [0, 1] : (tensor<2x3xf32>, tensor<f32>) -> tensor<1x7xf32>");
  CHECK_CONTAINS(text, "reverse %arg0, dims = [1] : tensor<2x3xf32>");
  free(text);
}

static void test_nothing_to_do(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 2, 2, 3), i = parameter(b, TT_S32, 0, 0, 0), zero = tt_hlo_scalar(b, TT_F32, 0);
  CHECK(tt_hlo_reshape(x, x->dims, 2) == x);
  CHECK(tt_hlo_reshape(tt_hlo_reshape(x, (int64_t[]){6}, 1), x->dims, 2) == x);
  CHECK(tt_hlo_transpose(x, (int32_t[]){0, 1}) == x);
  CHECK(tt_hlo_broadcast_to(x, x->dims, 2) == x);
  CHECK(tt_hlo_slice(x, (int64_t[]){0, 0}, x->dims, NULL) == x);
  CHECK(tt_hlo_pad(x, zero, NULL, NULL, NULL) == x);
  CHECK(tt_hlo_concatenate(&x, 1, 0) == x);
  CHECK(tt_hlo_reverse(x, NULL, 0) == x);
  CHECK(tt_hlo_reduce(TT_SUM, x, NULL, 0) == x);
  CHECK(tt_hlo_dynamic_slice(x, (tt_hlo[]){i, i}, x->dims) == x);
  CHECK(tt_hlo_select(tt_hlo_compare(TT_EQ, x, x), x, x) == x);
  CHECK(!tt_hlo_status(b));
  tt_hlo_builder_free(b);
}

static void test_reductions(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 2, 4, 5);
  tt_hlo_window w = {.sizes = (int64_t[]){2, 1}, .strides = (int64_t[]){2, 1}, .pad_low = (int64_t[]){1, 0}};
  tt_hlo windows = tt_hlo_reduce_window(TT_MAX, x, &w);
  tt_hlo results[] = {tt_hlo_reduce(TT_SUM, x, (int32_t[]){1}, 1), windows,
                      tt_hlo_select_and_scatter(x, windows, tt_hlo_scalar(b, TT_F32, 0), &w)};
  char *text = finish(b, results, 3);
  CHECK_CONTAINS(text,
                 "stablehlo.reduce(%arg0 init: %3) applies stablehlo.add across dimensions = [1] : (tensor<4x5xf32>, "
                 "tensor<f32>) -> tensor<4xf32>");
  CHECK_CONTAINS(text,
                 "\"stablehlo.reduce_window\"(%arg0, %0) <{window_dimensions = array<i64: 2, 1>, window_strides = "
                 "array<i64: 2, 1>, padding = dense<[[1, 0], [0, 0]]> : tensor<2x2xi64>}> ({\n"
                 "    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):\n"
                 "      %2 = stablehlo.maximum %arg1, %arg2 : tensor<f32>\n"
                 "      stablehlo.return %2 : tensor<f32>\n"
                 "    }) : (tensor<4x5xf32>, tensor<f32>) -> tensor<2x5xf32>\n");
  CHECK_CONTAINS(text, "\"stablehlo.select_and_scatter\"(%arg0, %1, %3)");
  free(text);
}

static void arg_max(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)context;
  (void)b;
  tt_hlo greater = tt_hlo_compare(TT_GT, left[0], right[0]);
  out[0] = tt_hlo_select(greater, left[0], right[0]);
  out[1] = tt_hlo_select(greater, left[1], right[1]);
}

static void test_reduce_multi(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 2, 4, 5);
  tt_hlo both[2] = {x, tt_hlo_iota(b, TT_S64, x->dims, 2, 1)};
  tt_hlo inits[2] = {tt_hlo_min_value(b, TT_F32), tt_hlo_const_int(b, TT_S64, 0, NULL, 0)};
  tt_hlo_reduce_multi(both, inits, 2, (int32_t[]){1}, 1, arg_max, NULL, both);  // in place
  char *text = finish(b, &both[1], 1);
  CHECK_CONTAINS(text, "%3:2 = \"stablehlo.reduce\"(%arg0, %0, %1, %2) <{dimensions = array<i64: 1>}> ({");
  CHECK_CONTAINS(text, "^bb0(%arg1: tensor<f32>, %arg2: tensor<i64>, %arg3: tensor<f32>, %arg4: tensor<i64>):");
  CHECK_CONTAINS(text, "return %3#1 : tensor<4xi64>");
  free(text);
}

static void test_products(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = tt_hlo_parameter(b, TT_BF16, (int64_t[]){2, 3, 4}, 3),
         y = tt_hlo_parameter(b, TT_BF16, (int64_t[]){2, 4, 5}, 3);
  tt_hlo_dot_dims dims = {(int32_t[]){0}, (int32_t[]){0}, (int32_t[]){2}, (int32_t[]){1}, 1, 1};
  tt_hlo image = tt_hlo_parameter(b, TT_F32, (int64_t[]){1, 2, 8, 9}, 4),
         kernel = tt_hlo_parameter(b, TT_F32, (int64_t[]){4, 1, 3, 2}, 4);
  int32_t spatial[] = {2, 3};
  tt_hlo_conv_dims conv = {.spatial_rank = 2,
                           .lhs_feature = 1,
                           .rhs_in_feature = 1,
                           .out_feature = 1,
                           .lhs_spatial = spatial,
                           .rhs_spatial = spatial,
                           .out_spatial = spatial,
                           .strides = (int64_t[]){2, 1},
                           .pad_low = (int64_t[]){1, 0},
                           .reverse = (bool[]){true, false},
                           .feature_groups = 2};
  tt_hlo results[] = {tt_hlo_dot_general(x, y, &dims, TT_PRECISION_HIGHEST, TT_F32),
                      tt_hlo_convolution(image, kernel, &conv, TT_PRECISION_DEFAULT)};
  char *text = finish(b, results, 2);
  CHECK_CONTAINS(text,
                 "dot_general %arg0, %arg1, batching_dims = [0] x [0], contracting_dims = [2] x [1], precision = "
                 "[HIGHEST, HIGHEST] : (tensor<2x3x4xbf16>, tensor<2x4x5xbf16>) -> tensor<2x3x5xf32>");
  CHECK_CONTAINS(text,
                 "convolution(%arg2, %arg3) dim_numbers = [b, f, 0, 1]x[o, i, 0, 1]->[b, f, 0, 1], window = {stride = "
                 "[2, 1], pad = [[1, 0], [0, 0]], reverse = [true, false]} {batch_group_count = 1 : i64, "
                 "feature_group_count = 2 : i64} : (tensor<1x2x8x9xf32>, tensor<4x1x3x2xf32>) -> tensor<1x4x4x8xf32>");
  free(text);
}

// XLA dies of a kernel as large as the dilation of a longer input, next to a dim where swapping the operands pays.
static void test_deadly_convolution(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = tt_hlo_parameter(b, TT_F32, (int64_t[]){2, 2, 4, 3}, 4),
         y = tt_hlo_parameter(b, TT_F32, (int64_t[]){4, 2, 2, 4}, 4);
  int32_t spatial[] = {2, 3};
  tt_hlo_conv_dims conv = {.spatial_rank = 2,
                           .lhs_feature = 1,
                           .rhs_in_feature = 1,
                           .out_feature = 1,
                           .lhs_spatial = spatial,
                           .rhs_spatial = spatial,
                           .out_spatial = spatial,
                           .pad_high = (int64_t[]){0, 1},
                           .lhs_dilation = (int64_t[]){2, 1}};
  tt_hlo result = tt_hlo_convolution(x, y, &conv, TT_PRECISION_DEFAULT);
  char *text = finish(b, &result, 1);
  CHECK_CONTAINS(text, "%0 = stablehlo.reverse %arg1, dims = [2]");
  CHECK_CONTAINS(text, "reverse = [true, false]}");
  free(text);
}

// Other forms that XLA dies of, written differently.
static void test_deadly_forms(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 0, 0, 0), y = parameter(b, TT_F32, 0, 0, 0), z = parameter(b, TT_F32, 0, 0, 0);
  tt_hlo empty = parameter(b, TT_F32, 2, 0, 0);
  CHECK(tt_hlo_cholesky(empty, true) == empty);
  CHECK(tt_hlo_triangular_solve(empty, empty, true, true, false, false, false) == empty);
  int64_t dims[] = {4};
  tt_hlo results[] = {tt_hlo_select_and_scatter(x, y, z, &(tt_hlo_window){0}), tt_hlo_iota(b, TT_C64, dims, 1, 0)};
  char *text = finish(b, results, 2);
  CHECK_CONTAINS(text, "stablehlo.add %arg1, %arg2 : tensor<f32>");
  CHECK_CONTAINS(text, "stablehlo.iota dim = 0 : tensor<4xf32>");
  free(text);
}

static void test_indexing(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 2, 5, 3), i = parameter(b, TT_S64, 1, 4, 0), u = parameter(b, TT_F32, 2, 4, 3);
  int32_t zero[] = {0}, one[] = {1};
  tt_hlo_gather_dims g = {one, zero, NULL, NULL, zero, 1, 1, 0, 1, 1};
  tt_hlo_scatter_dims s = {one, zero, NULL, NULL, zero, 1, 1, 0, 1, 1};
  tt_hlo results[] = {tt_hlo_gather(x, i, &g, (int64_t[]){1, 3}, false),
                      tt_hlo_scatter(TT_SCATTER_SET, x, i, u, &s, false, true)};
  char *text = finish(b, results, 2);
  CHECK_CONTAINS(text,
                 "\"stablehlo.gather\"(%arg0, %arg1) <{dimension_numbers = #stablehlo.gather<offset_dims = [1], "
                 "collapsed_slice_dims = [0], start_index_map = [0], index_vector_dim = 1>, indices_are_sorted = "
                 "false, slice_sizes = array<i64: 1, 3>}> : (tensor<5x3xf32>, tensor<4xi64>) -> tensor<4x3xf32>");
  CHECK_CONTAINS(text,
                 "indices_are_sorted = false, unique_indices = true}> ({\n    ^bb0(%arg3: tensor<f32>, %arg4: "
                 "tensor<f32>):\n      stablehlo.return %arg4 : tensor<f32>\n");
  free(text);
}

static void test_sort(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 1, 4, 0), sorted, values, indices;
  tt_hlo_sort(&x, 1, 0, true, true, false, &sorted);
  tt_hlo_top_k(x, 3, &values, &indices);
  char *text = finish(b, (tt_hlo[]){sorted, values, indices}, 3);
  CHECK_CONTAINS(text,
                 "\"stablehlo.sort\"(%arg0) <{dimension = 0 : i64, is_stable = true}> ({\n"
                 "    ^bb0(%arg1: tensor<f32>, %arg2: tensor<f32>):\n"
                 "      %1 = stablehlo.compare LT, %arg2, %arg1, FLOAT : (tensor<f32>, tensor<f32>) -> tensor<i1>\n");
  CHECK_CONTAINS(text, ":2 = chlo.top_k(%arg0, k = 3) : tensor<4xf32> -> (tensor<3xf32>, tensor<3xi32>)");
  free(text);
}

static void test_the_rest(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo state = parameter(b, TT_U64, 1, 2, 0), a = parameter(b, TT_C64, 2, 3, 3), r = parameter(b, TT_F32, 1, 8, 0);
  tt_hlo results[] = {tt_hlo_random_bits(state, TT_U32, (int64_t[]){4}, 1), tt_hlo_cholesky(a, true),
                      tt_hlo_triangular_solve(a, a, true, false, false, true, true),
                      tt_hlo_fft(TT_RFFT, r, (int64_t[]){8}, 1)};
  char *text = finish(b, results, 4);
  CHECK_CONTAINS(text,
                 "%0:2 = stablehlo.rng_bit_generator %arg0, algorithm = THREE_FRY : (tensor<2xui64>) -> "
                 "(tensor<2xui64>, tensor<4xui32>)");
  CHECK_CONTAINS(text, "stablehlo.cholesky %arg1, lower = true : tensor<3x3xcomplex<f32>>");
  CHECK_CONTAINS(text,
                 "left_side = true, lower = false, unit_diagonal = false, transpose_a = #stablehlo<transpose ADJOINT>");
  CHECK_CONTAINS(text, "stablehlo.fft %arg2, type = RFFT, length = [8] : (tensor<8xf32>) -> tensor<5xcomplex<f32>>");
  CHECK_CONTAINS(text, "return %0#1, ");
  free(text);
}

// ---- loops ----
static tt_hlo below_ten(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context;
  return tt_hlo_compare(TT_LT, state[0], tt_hlo_scalar(b, TT_S32, 10));
}

static void add_outer(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)b;
  out[0] = tt_hlo_binary(TT_ADD, state[0], *(tt_hlo *)context);
  out[1] = state[1];
}

static void test_while(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo step = parameter(b, TT_S32, 0, 0, 0), state[2] = {tt_hlo_scalar(b, TT_S32, 0), parameter(b, TT_F32, 1, 4, 0)};
  tt_hlo_while(state, 2, below_ten, add_outer, &step, state);
  char *text = finish(b, state, 1);
  CHECK_CONTAINS(text,
                 "    %1:2 = stablehlo.while(%arg2 = %0, %arg3 = %arg1) : tensor<i32>, tensor<4xf32> cond {\n"
                 "      %2 = stablehlo.constant dense<10> : tensor<i32>\n"
                 "      %3 = stablehlo.compare LT, %arg2, %2, SIGNED : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
                 "      stablehlo.return %3 : tensor<i1>\n"
                 "    } do {\n"
                 "      %4 = stablehlo.add %arg2, %arg0 : tensor<i32>\n"
                 "      stablehlo.return %4, %arg3 : tensor<i32>, tensor<4xf32>\n"
                 "    }\n"
                 "    return %1#0 : tensor<i32>\n");
  free(text);
}

// A constant from outside is made again in a region that can't see it.
static void add_constant(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)b;
  out[0] = tt_hlo_binary(TT_ADD, left[0], tt_hlo_binary(TT_MULTIPLY, right[0], *(tt_hlo *)context));
}

static void test_captured_constant(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 1, 4, 0), one = tt_hlo_scalar(b, TT_F32, 1), zero = tt_hlo_scalar(b, TT_F32, 0), sum;
  tt_hlo_reduce_multi(&x, &zero, 1, (int32_t[]){0}, 1, add_constant, &one, &sum);
  check_text(b, sum, "      %2 = stablehlo.constant dense<1.0> : tensor<f32>\n      %3 = stablehlo.multiply %arg2, %2");
}

// ---- size ----
static void test_long_module(void) {
  tt_hlo_builder *b = new_builder();
  tt_hlo x = parameter(b, TT_F32, 1, 4, 0);
  for (int i = 0; i < 20000; i++) {
    x = tt_hlo_binary(TT_ADD, x, tt_hlo_const_like(x, i));
  }
  char *text = finish(b, &x, 1);
  CHECK_CONTAINS(text, "%39999 = stablehlo.add");
  free(text);
}

TEST_MAIN(TEST(test_whole_module), TEST(test_no_results), TEST(test_finish_twice), TEST(test_names_and_locations),
          TEST(test_float_literals), TEST(test_integer_literals), TEST(test_constants), TEST(test_elementwise),
          TEST(test_shapes), TEST(test_nothing_to_do), TEST(test_reductions), TEST(test_reduce_multi),
          TEST(test_products), TEST(test_deadly_convolution), TEST(test_deadly_forms), TEST(test_indexing),
          TEST(test_sort), TEST(test_the_rest), TEST(test_while), TEST(test_captured_constant), TEST(test_long_module))
