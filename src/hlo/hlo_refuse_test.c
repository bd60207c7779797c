// What the builder refuses, and how errors travel.
#include "hlo/hlo.h"

#include "base/test.h"

// A builder with a few values to build wrong things from.
typedef struct bench {
  tt_hlo_builder *b, *other;
  tt_hlo f, g, i, p, c, s, foreign;  // f32[2,3], f32[3,2], s32[2,3], pred[2,3], c64[3,3], f32[], f32[2,3] elsewhere
} bench;

static tt_hlo matrix(tt_hlo_builder *b, tt_dtype dtype, int64_t rows, int64_t columns) {
  return tt_hlo_parameter(b, dtype, (int64_t[]){rows, columns}, 2);
}

static bench new_bench(void) {
  bench t = {0};
  CHECK_OK(tt_hlo_builder_create("test", &t.b));
  CHECK_OK(tt_hlo_builder_create("other", &t.other));
  t.f = matrix(t.b, TT_F32, 2, 3);
  t.g = matrix(t.b, TT_F32, 3, 2);
  t.i = matrix(t.b, TT_S32, 2, 3);
  t.p = matrix(t.b, TT_PRED, 2, 3);
  t.c = matrix(t.b, TT_C64, 3, 3);
  t.s = tt_hlo_parameter(t.b, TT_F32, NULL, 0);
  t.foreign = matrix(t.other, TT_F32, 2, 3);
  return t;
}

static void free_bench(bench *t) {
  tt_hlo_builder_free(t->b);
  tt_hlo_builder_free(t->other);
}

// The expression, in which `t` is a fresh bench, yields NULL and this error, at once and from finish.
#define REFUSES(expression, code, text)                               \
  do {                                                                \
    bench t = new_bench();                                            \
    tt_hlo refused_ = (expression);                                   \
    CHECK(refused_ == NULL);                                          \
    CHECK_ERROR(tt_status_clone(tt_hlo_status(t.b)), (code), (text)); \
    char *text_ = NULL;                                               \
    CHECK_ERROR(tt_hlo_finish(t.b, &t.f, 1, &text_), (code), (text)); \
    CHECK(text_ == NULL);                                             \
    free_bench(&t);                                                   \
  } while (0)

#define DIMS(...) ((int64_t[]){__VA_ARGS__})
#define LIST(...) ((int32_t[]){__VA_ARGS__})

// ---- how errors travel ----
static void test_first_error_stays(void) {
  bench t = new_bench();
  CHECK(!tt_hlo_binary(TT_ADD, t.f, t.g));
  CHECK(!tt_hlo_unary(TT_EXP, t.p));
  CHECK(!tt_hlo_unary(TT_EXP, t.f));
  tt_hlo_fail(t.b, tt_error(TT_ERR_VALUE, "later"));
  CHECK_ERROR(tt_status_clone(tt_hlo_status(t.b)), TT_ERR_RUNTIME,
              "add(tensor<2x3xf32>, tensor<3x2xf32>): the operands must have the same type");
  free_bench(&t);
}

static void test_null_is_silent(void) {
  bench t = new_bench();
  tt_hlo none = NULL, out[2] = {t.f, t.f};
  CHECK(!tt_hlo_unary(TT_EXP, NULL) && !tt_hlo_binary(TT_ADD, t.f, NULL) && !tt_hlo_binary(TT_ADD, NULL, t.f));
  CHECK(!tt_hlo_select(t.p, t.f, NULL) && !tt_hlo_reshape(NULL, NULL, 0) && !tt_hlo_const_like(NULL, 1));
  CHECK(!tt_hlo_concatenate((tt_hlo[]){t.f, NULL}, 2, 0) && !tt_hlo_reduce(TT_SUM, NULL, NULL, 0));
  CHECK(!tt_hlo_dynamic_slice(t.f, (tt_hlo[]){t.s, NULL}, DIMS(1, 1)) && !tt_hlo_pad(t.f, NULL, NULL, NULL, NULL));
  tt_hlo_sort(&none, 1, 0, false, false, false, out);
  CHECK(!out[0]);
  tt_hlo_top_k(NULL, 1, &out[0], &out[1]);
  CHECK(!out[1] && !tt_hlo_builder_of(NULL) && tt_hlo_numel(NULL) == 0 && !tt_hlo_same_dims(NULL, t.f));
  CHECK(!tt_hlo_scalar(NULL, TT_F32, 0) && !tt_hlo_fail(NULL, tt_error(TT_ERR_VALUE, "lost")));
  CHECK(!tt_hlo_status(t.b));
  char *text = NULL;
  CHECK_ERROR(tt_hlo_finish(t.b, &none, 1, &text), TT_ERR_INTERNAL, "result 0 of the module is no value");
  free_bench(&t);
  tt_hlo_builder_free(NULL);
}

static void test_other_builders(void) {
  REFUSES(tt_hlo_binary(TT_ADD, t.f, t.foreign), TT_ERR_INTERNAL, "operand 1 belongs to another module");
  bench t = new_bench();
  char *text = NULL;
  CHECK_ERROR(tt_hlo_finish(t.b, &t.foreign, 1, &text), TT_ERR_INTERNAL, "another module");
  free_bench(&t);
}

static void test_aliases(void) {
  char *text = NULL;
  bench t = new_bench();
  tt_hlo_alias(t.b, t.f, 0);
  CHECK_ERROR(tt_hlo_finish(t.b, &t.g, 1, &text), TT_ERR_INTERNAL, "must have the same type");
  free_bench(&t);
  t = new_bench();
  tt_hlo_alias(t.b, t.f, 3);
  CHECK_ERROR(tt_hlo_finish(t.b, &t.f, 1, &text), TT_ERR_INTERNAL, "aliased to result 3 of 1");
  free_bench(&t);
  t = new_bench();
  tt_hlo_alias(t.b, t.f, 0);
  tt_hlo_alias(t.b, t.g, 0);
  CHECK_ERROR(tt_hlo_finish(t.b, &t.f, 1, &text), TT_ERR_INTERNAL, "already");
  free_bench(&t);
  t = new_bench();
  tt_hlo_alias(t.b, tt_hlo_unary(TT_EXP, t.f), 0);
  CHECK_ERROR(tt_hlo_finish(t.b, &t.f, 1, &text), TT_ERR_INTERNAL, "no parameter");
  free_bench(&t);
}

// ---- types and constants ----
static void test_types(void) {
  REFUSES(tt_hlo_parameter(t.b, TT_F32, DIMS(-1), 1), TT_ERR_RUNTIME, "negative");
  REFUSES(tt_hlo_parameter(t.b, TT_F32, DIMS(INT64_MAX), 1), TT_ERR_RUNTIME, "overflows");
  REFUSES(tt_hlo_parameter(t.b, TT_F32, DIMS(1LL << 40, 1LL << 40), 2), TT_ERR_RUNTIME, "overflows");
  REFUSES(tt_hlo_parameter(t.b, TT_F32, DIMS(0, 1LL << 40, 1LL << 40), 3), TT_ERR_RUNTIME, "overflows");
  REFUSES(tt_hlo_parameter(t.b, TT_S8, DIMS((1LL << 62) + 1), 1), TT_ERR_RUNTIME, "2^62 bytes");
  REFUSES(tt_hlo_parameter(t.b, TT_F32, DIMS(1), 33), TT_ERR_RUNTIME, "rank");
  REFUSES(tt_hlo_parameter(t.b, TT_F32, NULL, 1), TT_ERR_RUNTIME, "rank");
  REFUSES(tt_hlo_parameter(t.b, TT_DTYPE_INVALID, NULL, 0), TT_ERR_RUNTIME, "element type");
  REFUSES(tt_hlo_parameter(t.b, TT_DTYPE_COUNT, NULL, 0), TT_ERR_RUNTIME, "element type");
  REFUSES(tt_hlo_convert(t.f, TT_DTYPE_INVALID), TT_ERR_RUNTIME, "element type");
}

static void test_constants(void) {
  REFUSES(tt_hlo_scalar(t.b, TT_S8, 128), TT_ERR_RUNTIME, "128 cannot be converted to type int8");
  REFUSES(tt_hlo_scalar(t.b, TT_U8, -1), TT_ERR_RUNTIME, "uint8");
  REFUSES(tt_hlo_scalar(t.b, TT_S32, NAN), TT_ERR_RUNTIME, "int32");
  REFUSES(tt_hlo_scalar(t.b, TT_S64, 0x1p63), TT_ERR_RUNTIME, "int64");
  REFUSES(tt_hlo_scalar(t.b, TT_U64, INFINITY), TT_ERR_RUNTIME, "uint64");
  REFUSES(tt_hlo_const_int(t.b, TT_U32, -1, NULL, 0), TT_ERR_RUNTIME, "uint32");
  REFUSES(tt_hlo_const_bits(t.b, TT_U8, 256), TT_ERR_RUNTIME, "uint8");
  REFUSES(tt_hlo_const_ints(t.b, TT_S8, DIMS(1, 1000), 2), TT_ERR_RUNTIME, "1000");
  REFUSES(tt_hlo_const_ints(t.b, TT_S8, DIMS(1), -1), TT_ERR_RUNTIME, "negative");
  REFUSES(tt_hlo_max_value(t.b, TT_C64), TT_ERR_NOT_IMPLEMENTED, "order");
  REFUSES(tt_hlo_reducer_init(t.b, TT_ALL, TT_F32), TT_ERR_NOT_IMPLEMENTED, "f32");
  REFUSES(tt_hlo_iota(t.b, TT_S32, DIMS(4), 1, 1), TT_ERR_INDEX, "dim 1");
  REFUSES(tt_hlo_iota(t.b, TT_PRED, DIMS(4), 1, 0), TT_ERR_NOT_IMPLEMENTED, "bool");
}

// ---- elementwise ----
static void test_elementwise(void) {
  REFUSES(tt_hlo_unary(TT_EXP, t.i), TT_ERR_NOT_IMPLEMENTED, "exponential(tensor<2x3xi32>): not implemented for int32");
  REFUSES(tt_hlo_unary(TT_CBRT, t.c), TT_ERR_NOT_IMPLEMENTED, "complex64");
  REFUSES(tt_hlo_unary(TT_REAL, t.f), TT_ERR_NOT_IMPLEMENTED, "float32");
  REFUSES(tt_hlo_unary(TT_UNARY_COUNT, t.f), TT_ERR_INTERNAL, "no such");
  REFUSES(tt_hlo_binary(TT_REMAINDER, t.c, t.c), TT_ERR_NOT_IMPLEMENTED, "remainder");
  REFUSES(tt_hlo_binary(TT_POLYGAMMA, t.i, t.i), TT_ERR_NOT_IMPLEMENTED, "polygamma");
  REFUSES(tt_hlo_binary(TT_MAXIMUM, t.c, t.c), TT_ERR_NOT_IMPLEMENTED, "complex64");
  REFUSES(tt_hlo_binary(TT_ADD, t.f, t.i), TT_ERR_RUNTIME, "same type");
  REFUSES(tt_hlo_binary(TT_ADD, t.f, t.s), TT_ERR_RUNTIME, "same type");
  REFUSES(tt_hlo_binary((tt_hlo_binary_kind)-1, t.f, t.f), TT_ERR_INTERNAL, "no such");
  REFUSES(tt_hlo_compare(TT_LT, t.c, t.c), TT_ERR_NOT_IMPLEMENTED, "order");
  REFUSES(tt_hlo_compare(TT_LT, t.f, t.g), TT_ERR_RUNTIME, "same type");
  REFUSES(tt_hlo_select(t.f, t.f, t.f), TT_ERR_RUNTIME, "boolean");
  REFUSES(tt_hlo_select(t.p, t.g, t.g), TT_ERR_RUNTIME, "0-d");
  REFUSES(tt_hlo_clamp(t.s, t.i, t.s), TT_ERR_RUNTIME, "bound");
  REFUSES(tt_hlo_clamp(t.g, t.f, t.s), TT_ERR_RUNTIME, "bound");
  REFUSES(tt_hlo_clamp(t.c, t.c, t.c), TT_ERR_NOT_IMPLEMENTED, "complex64");
  REFUSES(tt_hlo_complex(t.i, t.i), TT_ERR_NOT_IMPLEMENTED, "int32");
  REFUSES(tt_hlo_bitcast_convert(t.p, TT_S8), TT_ERR_NOT_IMPLEMENTED, "int8");
  REFUSES(tt_hlo_bitcast_convert(t.f, TT_F64), TT_ERR_RUNTIME, "last dim must be 2");
  REFUSES(tt_hlo_reduce_precision(t.f, 0, 1), TT_ERR_VALUE, "bits");
  REFUSES(tt_hlo_reduce_precision(t.i, 5, 10), TT_ERR_NOT_IMPLEMENTED, "int32");
}

// ---- shape ----
static void test_shape(void) {
  REFUSES(tt_hlo_reshape(t.f, DIMS(5), 1), TT_ERR_RUNTIME, "6 elements can't become 5");
  REFUSES(tt_hlo_reshape(t.f, DIMS(-6, -1), 2), TT_ERR_RUNTIME, "negative");
  REFUSES(tt_hlo_transpose(t.f, LIST(0, 0)), TT_ERR_RUNTIME, "appears twice");
  REFUSES(tt_hlo_transpose(t.f, LIST(0, 2)), TT_ERR_INDEX, "out of range");
  REFUSES(tt_hlo_broadcast_in_dim(t.f, DIMS(2, 3), 2, LIST(1, 0)), TT_ERR_RUNTIME, "can't become");
  REFUSES(tt_hlo_broadcast_in_dim(t.f, DIMS(2, 3), 2, LIST(0, 0)), TT_ERR_RUNTIME, "twice");
  REFUSES(tt_hlo_broadcast_in_dim(t.f, DIMS(2), 1, LIST(0, 1)), TT_ERR_INDEX, "out of range");
  REFUSES(tt_hlo_broadcast_to(t.f, DIMS(3), 1), TT_ERR_RUNTIME, "rank 1");
  REFUSES(tt_hlo_broadcast_to(t.f, DIMS(4, 3), 2), TT_ERR_RUNTIME, "can't become size 4");
  REFUSES(tt_hlo_slice(t.f, DIMS(0, 0), DIMS(2, 4), NULL), TT_ERR_INDEX, "0:4:1 is out of range for dim 1 of size 3");
  REFUSES(tt_hlo_slice(t.f, DIMS(-1, 0), DIMS(2, 3), NULL), TT_ERR_INDEX, "out of range");
  REFUSES(tt_hlo_slice(t.f, DIMS(2, 0), DIMS(1, 3), NULL), TT_ERR_INDEX, "out of range");
  REFUSES(tt_hlo_slice(t.f, DIMS(0, 0), DIMS(2, 3), DIMS(1, 0)), TT_ERR_INDEX, "out of range");
  REFUSES(tt_hlo_slice_dim(t.f, 2, 0, 1, 1), TT_ERR_INDEX, "dim 2");
  REFUSES(tt_hlo_dynamic_slice(t.f, (tt_hlo[]){t.s, t.s}, DIMS(1, 1)), TT_ERR_RUNTIME, "0-d integers");
  REFUSES(tt_hlo_concatenate((tt_hlo[]){t.f, t.g}, 2, 0), TT_ERR_RUNTIME, "operand 1");
  REFUSES(tt_hlo_concatenate((tt_hlo[]){t.f, t.i}, 2, 0), TT_ERR_RUNTIME, "operand 1");
  REFUSES(tt_hlo_concatenate(&t.s, 1, 0), TT_ERR_INDEX, "dim 0");
  REFUSES(tt_hlo_pad(t.f, t.f, NULL, NULL, NULL), TT_ERR_RUNTIME, "0-d");
  REFUSES(tt_hlo_pad(t.f, t.s, DIMS(-3, 0), NULL, NULL), TT_ERR_RUNTIME, "don't fit dim 0");
  REFUSES(tt_hlo_pad(t.f, t.s, NULL, NULL, DIMS(-1, 0)), TT_ERR_RUNTIME, "interior");
  REFUSES(tt_hlo_pad(t.f, t.s, DIMS(INT64_MAX, 0), DIMS(INT64_MAX, 0), NULL), TT_ERR_RUNTIME, "don't fit");
  REFUSES(tt_hlo_pad(t.f, t.s, NULL, NULL, DIMS(0, INT64_MAX)), TT_ERR_RUNTIME, "don't fit");
  REFUSES(tt_hlo_reverse(t.f, LIST(1, 1), 2), TT_ERR_RUNTIME, "twice");
}

static void test_dynamic_sizes(void) {
#define ZERO tt_hlo_scalar(t.b, TT_S32, 0)
  REFUSES(tt_hlo_dynamic_slice(t.f, (tt_hlo[]){ZERO, ZERO}, DIMS(1, 4)), TT_ERR_RUNTIME, "size 4 is out of range");
  REFUSES(tt_hlo_dynamic_slice(t.f, (tt_hlo[]){ZERO, ZERO}, DIMS(-1, 1)), TT_ERR_RUNTIME, "size -1");
  REFUSES(tt_hlo_dynamic_slice(t.f, (tt_hlo[]){ZERO, tt_hlo_scalar(t.b, TT_S64, 0)}, DIMS(1, 1)), TT_ERR_RUNTIME,
          "one type");
  REFUSES(tt_hlo_dynamic_update_slice(t.f, t.g, (tt_hlo[]){ZERO, ZERO}), TT_ERR_RUNTIME, "doesn't fit");
  REFUSES(tt_hlo_dynamic_update_slice(t.f, t.i, (tt_hlo[]){ZERO, ZERO}), TT_ERR_RUNTIME, "doesn't fit");
}

// ---- reductions and windows ----
static void leave_empty(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)context, (void)b, (void)left, (void)right, (void)out;
}

static void use_outside(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)b, (void)right;
  out[0] = tt_hlo_binary(TT_ADD, left[0], *(tt_hlo *)context);
}

static void wrong_type(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)context, (void)b;
  out[0] = tt_hlo_compare(TT_LT, left[0], right[0]);
}

static void smuggle(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right, tt_hlo *out) {
  (void)b;
  out[0] = tt_hlo_binary(TT_ADD, left[0], right[0]);
  *(tt_hlo *)context = out[0];
}

static tt_hlo reduce_with(bench *t, tt_hlo_reduce_body body, void *context) {
  tt_hlo init = tt_hlo_scalar(t->b, TT_F32, 0), out;
  tt_hlo_reduce_multi(&t->f, &init, 1, LIST(0), 1, body, context, &out);
  return out;
}

static void test_reductions(void) {
  REFUSES(tt_hlo_reduce(TT_SUM, t.f, LIST(1, 1), 2), TT_ERR_RUNTIME, "twice");
  REFUSES(tt_hlo_reduce(TT_SUM, t.f, LIST(2), 1), TT_ERR_INDEX, "out of range for rank 2");
  REFUSES(tt_hlo_reduce(TT_MAX, t.c, LIST(0), 1), TT_ERR_NOT_IMPLEMENTED, "complex64");
  REFUSES(tt_hlo_reduce(TT_ANY, t.f, LIST(0), 1), TT_ERR_NOT_IMPLEMENTED, "float32");
  REFUSES(tt_hlo_reduce((tt_hlo_reducer)9, t.f, LIST(0), 1), TT_ERR_NOT_IMPLEMENTED, "not defined");
  REFUSES(reduce_with(&t, leave_empty, NULL), TT_ERR_INTERNAL, "gives no value 0");
  REFUSES(reduce_with(&t, use_outside, &t.s), TT_ERR_INTERNAL, "can't be seen");
  REFUSES(reduce_with(&t, wrong_type, NULL), TT_ERR_RUNTIME, "must be a tensor<f32>");
  bench t = new_bench();
  tt_hlo inner, out;
  CHECK(reduce_with(&t, smuggle, &inner) != NULL);
  CHECK(!tt_hlo_unary(TT_EXP, inner));
  CHECK_ERROR(tt_status_clone(tt_hlo_status(t.b)), TT_ERR_INTERNAL, "can't be seen from this region");
  free_bench(&t);
  t = new_bench();
  tt_hlo_reduce_multi(&t.f, &t.f, 1, LIST(0), 1, smuggle, &inner, &out);
  CHECK_ERROR(tt_status_clone(tt_hlo_status(t.b)), TT_ERR_RUNTIME, "init 0 must be 0-d");
  free_bench(&t);
}

#define WINDOW(...) (&(tt_hlo_window){__VA_ARGS__})

static void test_windows(void) {
  REFUSES(tt_hlo_reduce_window(TT_SUM, t.f, NULL), TT_ERR_INTERNAL, "missing");
  REFUSES(tt_hlo_reduce_window(TT_SUM, t.f, WINDOW(.sizes = DIMS(0, 1))), TT_ERR_RUNTIME, "empty");
  REFUSES(tt_hlo_reduce_window(TT_SUM, t.f, WINDOW(.sizes = DIMS(1, 1), .strides = DIMS(0, 1))), TT_ERR_RUNTIME,
          "positive");
  REFUSES(tt_hlo_reduce_window(TT_SUM, t.f, WINDOW(.sizes = DIMS(1, 1), .pad_low = DIMS(0, -4))), TT_ERR_RUNTIME,
          "negative padding");
  REFUSES(tt_hlo_reduce_window(TT_SUM, t.f, WINDOW(.sizes = DIMS(1, INT64_MAX), .dilation = DIMS(1, 3))),
          TT_ERR_RUNTIME, "overflows");
  REFUSES(tt_hlo_select_and_scatter(t.f, t.f, t.s, WINDOW(.sizes = DIMS(2, 1))), TT_ERR_RUNTIME, "windowed shape");
  REFUSES(tt_hlo_select_and_scatter(t.f, t.f, t.s, WINDOW(.sizes = DIMS(1, 1), .dilation = DIMS(2, 1))),
          TT_ERR_NOT_IMPLEMENTED, "dilated");
  REFUSES(tt_hlo_select_and_scatter(t.f, t.i, t.s, WINDOW(.sizes = DIMS(1, 1))), TT_ERR_RUNTIME, "one element type");
}

// ---- products ----
static tt_hlo dot(tt_hlo x, tt_hlo y, int32_t left, int32_t right, int32_t count, tt_dtype dtype) {
  tt_hlo_dot_dims dims = {NULL, NULL, (int32_t[]){left, left}, (int32_t[]){right, right}, 0, count};
  return tt_hlo_dot_general(x, y, &dims, TT_PRECISION_DEFAULT, dtype);
}

static tt_hlo convolve(bench *t, int64_t features, int64_t kernel, int64_t groups, int64_t batch_groups,
                       int32_t batch_dim) {
  tt_hlo x = tt_hlo_parameter(t->b, TT_F32, DIMS(2, features, 5), 3),
         y = tt_hlo_parameter(t->b, TT_F32, DIMS(3, 2, kernel), 3);
  tt_hlo_conv_dims dims = {.spatial_rank = 1,
                           .lhs_batch = batch_dim,
                           .lhs_feature = 1,
                           .rhs_in_feature = 1,
                           .out_feature = 1,
                           .lhs_spatial = LIST(2),
                           .rhs_spatial = LIST(2),
                           .out_spatial = LIST(2),
                           .feature_groups = groups,
                           .batch_groups = batch_groups};
  return tt_hlo_convolution(x, y, &dims, TT_PRECISION_DEFAULT);
}

static void test_products(void) {
  REFUSES(dot(t.f, t.f, 1, 0, 1, TT_DTYPE_INVALID), TT_ERR_RUNTIME, "dims 1 and 0 differ in size");
  REFUSES(dot(t.f, t.f, 1, 1, 2, TT_DTYPE_INVALID), TT_ERR_RUNTIME, "twice");
  REFUSES(dot(t.f, t.f, 2, 0, 1, TT_DTYPE_INVALID), TT_ERR_INDEX, "out of range");
  REFUSES(dot(t.f, t.i, 1, 1, 1, TT_DTYPE_INVALID), TT_ERR_RUNTIME, "one element type");
  REFUSES(dot(t.f, t.g, 1, 0, 1, TT_S32), TT_ERR_NOT_IMPLEMENTED, "int32");
  REFUSES(tt_hlo_dot_general(t.f, t.f, NULL, TT_PRECISION_DEFAULT, TT_F32), TT_ERR_INTERNAL, "missing");
  REFUSES(convolve(&t, 4, 3, 0, 0, 0), TT_ERR_RUNTIME, "don't match a kernel of 2");
  REFUSES(convolve(&t, 4, 3, 2, 0, 0), TT_ERR_RUNTIME, "don't divide");
  REFUSES(convolve(&t, 2, 3, 0, 2, 0), TT_ERR_RUNTIME, "don't divide");
  REFUSES(convolve(&t, 4, 3, 2, 2, 0), TT_ERR_RUNTIME, "one must be 1");
  REFUSES(convolve(&t, 2, 3, -1, 0, 0), TT_ERR_RUNTIME, "groups");
  REFUSES(convolve(&t, 2, 0, 0, 0, 0), TT_ERR_RUNTIME, "empty");
  REFUSES(convolve(&t, 2, 3, 0, 0, 1), TT_ERR_RUNTIME, "twice");
  REFUSES(convolve(&t, 2, 3, 0, 0, 3), TT_ERR_INDEX, "out of range");
  bench t = new_bench();
  CHECK(convolve(&t, 2, 9, 0, 0, 0)->dims[2] == 0);
  free_bench(&t);
}

// ---- gather and scatter: a good one, with one thing changed ----
static tt_hlo gather(bench *t, tt_hlo_gather_dims change, int64_t slice, tt_dtype index_type) {
  static const int32_t zero[] = {0}, one[] = {1};
  tt_hlo_gather_dims g = {.offset_dims = change.offset_dims ? change.offset_dims : one,
                          .collapsed_dims = change.collapsed_dims ? change.collapsed_dims : zero,
                          .start_index_map = change.start_index_map ? change.start_index_map : zero,
                          .offset_count = 1,
                          .collapsed_count = change.collapsed_count ? change.collapsed_count : 1,
                          .start_index_count = change.start_index_count ? change.start_index_count : 1,
                          .index_vector_dim = change.index_vector_dim ? change.index_vector_dim : 1,
                          .batching_count = change.batching_count,
                          .operand_batching_dims = change.operand_batching_dims,
                          .indices_batching_dims = change.indices_batching_dims};
  return tt_hlo_gather(t->f, tt_hlo_parameter(t->b, index_type, DIMS(4), 1), &g, DIMS(slice, 3), false);
}

#define GATHER(...) gather(&t, (tt_hlo_gather_dims){__VA_ARGS__}, 1, TT_S64)

static void test_gather(void) {
  REFUSES(gather(&t, (tt_hlo_gather_dims){0}, 1, TT_F32), TT_ERR_RUNTIME, "integers");
  REFUSES(gather(&t, (tt_hlo_gather_dims){0}, 3, TT_S64), TT_ERR_RUNTIME, "slice size 3");
  REFUSES(gather(&t, (tt_hlo_gather_dims){0}, 2, TT_S64), TT_ERR_RUNTIME, "slices of size 1");
  REFUSES(gather(&t, (tt_hlo_gather_dims){0}, 0, TT_S64), TT_ERR_INDEX, "empty dim");
  REFUSES(gather(&t, (tt_hlo_gather_dims){0}, -1, TT_S64), TT_ERR_RUNTIME, "slice size -1");
  REFUSES(GATHER(.index_vector_dim = 2), TT_ERR_RUNTIME, "index_vector_dim");
  REFUSES(GATHER(.index_vector_dim = -1), TT_ERR_RUNTIME, "index_vector_dim");
  REFUSES(GATHER(.start_index_map = LIST(0, 1), .start_index_count = 2), TT_ERR_RUNTIME, "index vector");
  REFUSES(GATHER(.start_index_map = LIST(2)), TT_ERR_INDEX, "out of range");
  REFUSES(GATHER(.collapsed_dims = LIST(0, 0), .collapsed_count = 2), TT_ERR_RUNTIME, "twice");
  REFUSES(GATHER(.collapsed_dims = LIST(1, 0), .collapsed_count = 2), TT_ERR_RUNTIME, "sorted");
  REFUSES(GATHER(.collapsed_dims = LIST(0, 1), .collapsed_count = 2), TT_ERR_RUNTIME, "make up the operand's rank");
  REFUSES(GATHER(.offset_dims = LIST(2)), TT_ERR_INDEX, "out of range");
  REFUSES(GATHER(.batching_count = 1, .operand_batching_dims = LIST(0), .indices_batching_dims = LIST(0)),
          TT_ERR_RUNTIME, "twice");
  REFUSES(GATHER(.batching_count = 1), TT_ERR_RUNTIME, "missing");
  REFUSES(tt_hlo_gather(t.f, t.i, NULL, NULL, false), TT_ERR_INTERNAL, "missing");
}

static tt_hlo scatter(bench *t, int kind, tt_hlo x, tt_dtype index_type, tt_dtype update_type, int64_t rows,
                      int64_t columns) {
  static const int32_t zero[] = {0}, one[] = {1};
  tt_hlo_scatter_dims s = {one, zero, NULL, NULL, zero, 1, 1, 0, 1, 1};
  return tt_hlo_scatter((tt_hlo_scatter_kind)kind, x, tt_hlo_parameter(t->b, index_type, DIMS(4), 1),
                        matrix(t->b, update_type, rows, columns), &s, false, false);
}

static void test_scatter(void) {
  REFUSES(scatter(&t, 0, t.f, TT_PRED, TT_F32, 4, 3), TT_ERR_RUNTIME, "integers");
  REFUSES(scatter(&t, 0, t.f, TT_S64, TT_S32, 4, 3), TT_ERR_RUNTIME, "one element type");
  REFUSES(scatter(&t, 0, t.f, TT_S64, TT_F32, 5, 3), TT_ERR_RUNTIME, "doesn't match the indices");
  REFUSES(scatter(&t, 0, t.f, TT_S64, TT_F32, 4, 4), TT_ERR_RUNTIME, "larger than the operand");
  REFUSES(scatter(&t, 5, t.f, TT_S64, TT_F32, 4, 3), TT_ERR_INTERNAL, "no such kind");
  REFUSES(scatter(&t, TT_SCATTER_MAX, t.c, TT_S64, TT_C64, 4, 3), TT_ERR_NOT_IMPLEMENTED, "order");
  bench t = new_bench();
  CHECK(scatter(&t, TT_SCATTER_ADD, t.f, TT_S32, TT_F32, 4, 2) != NULL);
  free_bench(&t);
}

// ---- the rest ----
static tt_hlo sort_one(tt_hlo x, tt_hlo y, int32_t count, int32_t dim, bool by_two) {
  tt_hlo out[2];
  tt_hlo_sort((tt_hlo[]){x, y}, count, dim, false, false, by_two, out);
  return out[0];
}

static tt_hlo top(tt_hlo x, int64_t k) {
  tt_hlo values, indices;
  tt_hlo_top_k(x, k, &values, &indices);
  return indices;
}

static void test_sorts(void) {
  REFUSES(sort_one(t.f, t.g, 2, 0, false), TT_ERR_RUNTIME, "one shape");
  REFUSES(sort_one(t.f, NULL, 1, 2, false), TT_ERR_INDEX, "out of range");
  REFUSES(sort_one(t.f, NULL, 1, 0, true), TT_ERR_INTERNAL, "second");
  REFUSES(sort_one(t.c, NULL, 1, 0, false), TT_ERR_NOT_IMPLEMENTED, "order");
  REFUSES(sort_one(t.s, NULL, 1, 0, false), TT_ERR_INDEX, "rank 0");
  REFUSES(sort_one(matrix(t.b, TT_S8, 1LL << 19, 1LL << 19), NULL, 1, 0, false), TT_ERR_RUNTIME, "too many");
  REFUSES(top(t.f, 4), TT_ERR_RUNTIME, "k = 4");
  REFUSES(top(t.f, -1), TT_ERR_RUNTIME, "k = -1");
  REFUSES(top(t.s, 0), TT_ERR_RUNTIME, "k = 0");
  REFUSES(top(t.p, 1), TT_ERR_NOT_IMPLEMENTED, "bool");
  REFUSES(top(matrix(t.b, TT_S8, 1, 1LL << 32), 1), TT_ERR_RUNTIME, "too many");
}

static void test_linalg(void) {
  REFUSES(tt_hlo_random_bits(t.f, TT_U32, NULL, 0), TT_ERR_RUNTIME, "tensor<2xui64>");
  REFUSES(tt_hlo_random_bits(tt_hlo_const_ints(t.b, TT_U64, DIMS(1, 2), 2), TT_F32, NULL, 0), TT_ERR_NOT_IMPLEMENTED,
          "f32");
  REFUSES(tt_hlo_random_bits(tt_hlo_const_ints(t.b, TT_U64, DIMS(1, 2), 2), TT_U32, DIMS(-1), 1), TT_ERR_RUNTIME,
          "negative");
  REFUSES(tt_hlo_cholesky(t.f, true), TT_ERR_RUNTIME, "square");
  REFUSES(tt_hlo_cholesky(t.i, true), TT_ERR_NOT_IMPLEMENTED, "int32");
  REFUSES(tt_hlo_cholesky(t.s, true), TT_ERR_RUNTIME, "square");
  REFUSES(tt_hlo_triangular_solve(t.f, t.f, true, true, false, false, false), TT_ERR_RUNTIME, "square");
  REFUSES(tt_hlo_triangular_solve(t.c, matrix(t.b, TT_C64, 2, 3), true, true, false, false, false), TT_ERR_RUNTIME,
          "fit");
  REFUSES(tt_hlo_fft(TT_FFT, t.f, DIMS(3), 1), TT_ERR_NOT_IMPLEMENTED, "FFT is not implemented for float32");
  REFUSES(tt_hlo_fft(TT_RFFT, t.c, DIMS(3), 1), TT_ERR_NOT_IMPLEMENTED, "complex64");
  REFUSES(tt_hlo_fft(TT_RFFT, matrix(t.b, TT_F16, 2, 4), DIMS(4), 1), TT_ERR_NOT_IMPLEMENTED, "float16");
  REFUSES(tt_hlo_fft(TT_FFT, t.c, DIMS(4), 1), TT_ERR_RUNTIME, "length 4 doesn't match");
  REFUSES(tt_hlo_fft(TT_RFFT, t.f, DIMS(8), 1), TT_ERR_RUNTIME, "length 8 doesn't match");
  REFUSES(tt_hlo_fft(TT_IRFFT, t.c, DIMS(3), 1), TT_ERR_RUNTIME, "length 3 doesn't match");
  REFUSES(tt_hlo_fft(TT_FFT, t.c, DIMS(3, 3, 3), 3), TT_ERR_RUNTIME, "3 dims");
  REFUSES(tt_hlo_fft(TT_FFT, t.c, NULL, 0), TT_ERR_RUNTIME, "0 dims");
}

// ---- loops ----
static tt_hlo always(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context, (void)state;
  return tt_hlo_scalar(b, TT_PRED, 1);
}

static tt_hlo not_a_pred(void *context, tt_hlo_builder *b, const tt_hlo *state) {
  (void)context, (void)b;
  return state[0];
}

static void flip(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  (void)context, (void)b;
  out[0] = tt_hlo_transpose(state[0], LIST(1, 0));
}

static void nest(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out) {
  int *left = context;
  (void)b;
  out[0] = state[0];
  if (--*left > 0) {
    tt_hlo_while(state, 1, always, nest, left, out);
  }
}

static tt_hlo loop(tt_hlo x, tt_hlo_while_cond cond, tt_hlo_while_body body, void *context) {
  tt_hlo out;
  tt_hlo_while(&x, 1, cond, body, context, &out);
  return out;
}

static void test_loops(void) {
  REFUSES(loop(t.f, always, flip, NULL), TT_ERR_RUNTIME, "value 0 of the region must be a tensor<2x3xf32>");
  REFUSES(loop(t.f, not_a_pred, nest, NULL), TT_ERR_RUNTIME, "must be a tensor<i1>");
  REFUSES(loop(t.f, NULL, nest, NULL), TT_ERR_INTERNAL, "missing");
  REFUSES(loop(t.f, always, nest, &(int){65}), TT_ERR_RUNTIME, "deeper than 64");
  REFUSES(loop(t.f, always, nest, &(int){100000}), TT_ERR_RUNTIME, "deeper than 64");
  bench t = new_bench();
  CHECK(loop(t.f, always, nest, &(int){64}) != NULL);
  free_bench(&t);
}

TEST_MAIN(TEST(test_first_error_stays), TEST(test_null_is_silent), TEST(test_other_builders), TEST(test_aliases),
          TEST(test_types), TEST(test_constants), TEST(test_elementwise), TEST(test_shape), TEST(test_dynamic_sizes),
          TEST(test_reductions), TEST(test_windows), TEST(test_products), TEST(test_gather), TEST(test_scatter),
          TEST(test_sorts), TEST(test_linalg), TEST(test_loops))
