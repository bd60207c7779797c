// A StableHLO builder that checks what it builds.
//
// One builder makes one module with one public function `main`. Every function below infers the type of its
// result from its operands and verifies them; a bad operand records an error in the builder (the first one
// stays) and yields NULL, and every function accepts NULL operands by yielding NULL, so that a caller composes
// freely and looks at the status once, at the end. Nothing here aborts on any input.
//
// Values belong to their builder and live until it is freed. A builder is used by one thread at a time.
#ifndef TORCHTPU_HLO_HLO_H
#define TORCHTPU_HLO_HLO_H

#include <stdbool.h>
#include <stdint.h>

#include "base/dtype.h"
#include "base/status.h"
#include "base/strbuf.h"

enum { TT_MAX_RANK = 32 };

typedef struct tt_hlo_builder tt_hlo_builder;

// A value: the result of an operation. Fields are read-only outside the builder.
typedef struct tt_hlo_value {
  tt_dtype dtype;
  int32_t rank;
  const int64_t *dims;   // rank of them, none negative
  struct tt_hlo_op *op;  // the operation that yields it
  int32_t result;        // which of its results
} tt_hlo_value;
typedef const tt_hlo_value *tt_hlo;

// ---- builder ----
TT_MUST_USE tt_status *tt_hlo_builder_create(const char *module_name, tt_hlo_builder **out_builder);
void tt_hlo_builder_free(tt_hlo_builder *builder);
// The first error so far, owned by the builder; NULL if all is well.
const tt_status *tt_hlo_status(const tt_hlo_builder *b);
// Records an error (takes ownership of `status`) if there is none yet; returns NULL for use in expressions.
tt_hlo tt_hlo_fail(tt_hlo_builder *b, tt_status *status);
// Everything recorded from here on carries this name as its location (an operator's name); NULL: none.
void tt_hlo_set_location(tt_hlo_builder *b, const char *name);
// The module's text. Operations that no result needs are left out. `results` become main's results in order.
// Parameters stay in order, used or not. Fails with the recorded error, or when a result is NULL.
// `*out_text` is malloc'ed, the caller frees it.
TT_MUST_USE tt_status *tt_hlo_finish(tt_hlo_builder *b, const tt_hlo *results, int32_t count, char **out_text);

// ---- parameters and constants ----
tt_hlo tt_hlo_parameter(tt_hlo_builder *b, tt_dtype dtype, const int64_t *dims, int32_t rank);
// Marks a parameter as `tf.aliasing_output = result`: its memory may be reused by that result of main, which
// must have the same type.
void tt_hlo_alias(tt_hlo_builder *b, tt_hlo parameter, int32_t result);
// Every element equal. The value is converted to `dtype` (out of range for an integer type, or NaN: an error;
// pred: true unless 0; floats round to nearest even, f8e4m3fn saturates, as in PyTorch). Equal constants of a
// region are one.
tt_hlo tt_hlo_const(tt_hlo_builder *b, tt_dtype dtype, double value, const int64_t *dims, int32_t rank);
tt_hlo tt_hlo_const_int(tt_hlo_builder *b, tt_dtype dtype, int64_t value, const int64_t *dims, int32_t rank);
// 0-d, of an unsigned type: values beyond int64 too.
tt_hlo tt_hlo_const_bits(tt_hlo_builder *b, tt_dtype dtype, uint64_t bits);
// 1-d constants.
tt_hlo tt_hlo_const_ints(tt_hlo_builder *b, tt_dtype dtype, const int64_t *values, int64_t count);
tt_hlo tt_hlo_const_floats(tt_hlo_builder *b, tt_dtype dtype, const double *values, int64_t count);
tt_hlo tt_hlo_scalar(tt_hlo_builder *b, tt_dtype dtype, double value);  // 0-d
// A constant of x's dtype and shape.
tt_hlo tt_hlo_const_like(tt_hlo x, double value);
// The lowest and the highest value of a type (-inf, inf for floats), 0-d.
tt_hlo tt_hlo_min_value(tt_hlo_builder *b, tt_dtype dtype);
tt_hlo tt_hlo_max_value(tt_hlo_builder *b, tt_dtype dtype);
tt_hlo tt_hlo_iota(tt_hlo_builder *b, tt_dtype dtype, const int64_t *dims, int32_t rank, int32_t dim);

// The builder of a value.
tt_hlo_builder *tt_hlo_builder_of(tt_hlo x);

// ---- elementwise: operands of one shape, no implicit broadcasting, no implicit conversion ----
typedef enum tt_hlo_unary_kind {
  TT_ABS,  // complex gives its real type; unsigned is returned as it is
  TT_NEGATE,
  TT_SIGN,
  TT_NOT,  // pred: logical, integers: bitwise
  TT_EXP,
  TT_EXPM1,
  TT_LOG,
  TT_LOG1P,
  TT_SQRT,
  TT_RSQRT,
  TT_CBRT,
  TT_LOGISTIC,
  TT_TANH,
  TT_SIN,
  TT_COS,
  TT_TAN,
  TT_FLOOR,
  TT_CEIL,
  TT_ROUND_EVEN,
  TT_ROUND_AWAY,
  TT_POPCNT,
  TT_CLZ,
  TT_IS_FINITE,  // gives pred
  TT_REAL,       // of complex
  TT_IMAG,
  // CHLO, which both XLA:CPU and libtpu accept
  TT_ACOS,
  TT_ACOSH,
  TT_ASIN,
  TT_ASINH,
  TT_ATAN,
  TT_ATANH,
  TT_COSH,
  TT_SINH,
  TT_ERF,
  TT_ERFC,
  TT_ERF_INV,
  TT_LGAMMA,
  TT_DIGAMMA,
  TT_BESSEL_I1E,
  TT_CONJ,
  TT_UNARY_COUNT
} tt_hlo_unary_kind;
tt_hlo tt_hlo_unary(tt_hlo_unary_kind kind, tt_hlo x);

typedef enum tt_hlo_binary_kind {
  TT_ADD,
  TT_SUBTRACT,
  TT_MULTIPLY,
  TT_DIVIDE,     // integers: towards zero
  TT_REMAINDER,  // sign of the dividend; complex is refused (it kills XLA)
  TT_MAXIMUM,    // propagates NaN
  TT_MINIMUM,
  TT_POWER,
  TT_ATAN2,
  TT_AND,
  TT_OR,
  TT_XOR,
  TT_SHIFT_LEFT,
  TT_SHIFT_RIGHT_ARITHMETIC,
  TT_SHIFT_RIGHT_LOGICAL,
  TT_NEXT_AFTER,  // CHLO
  TT_POLYGAMMA,
  TT_ZETA,
  TT_BINARY_COUNT
} tt_hlo_binary_kind;
tt_hlo tt_hlo_binary(tt_hlo_binary_kind kind, tt_hlo x, tt_hlo y);

typedef enum tt_hlo_compare_kind { TT_EQ, TT_NE, TT_LT, TT_LE, TT_GT, TT_GE } tt_hlo_compare_kind;
tt_hlo tt_hlo_compare(tt_hlo_compare_kind kind, tt_hlo x, tt_hlo y);  // complex: EQ and NE only
// `pred` has the operands' shape, or rank 0.
tt_hlo tt_hlo_select(tt_hlo pred, tt_hlo on_true, tt_hlo on_false);
tt_hlo tt_hlo_clamp(tt_hlo low, tt_hlo x, tt_hlo high);  // bounds: x's shape, or rank 0
tt_hlo tt_hlo_complex(tt_hlo real, tt_hlo imaginary);
// Complex to real drops the imaginary part. Float to integer truncates (out of range: as XLA; see tt_cast in
// aten/rule.h for PyTorch's rules).
tt_hlo tt_hlo_convert(tt_hlo x, tt_dtype dtype);
// As StableHLO: equal element sizes keep the shape; to a smaller type adds a last dim, to a larger removes it.
tt_hlo tt_hlo_bitcast_convert(tt_hlo x, tt_dtype dtype);
tt_hlo tt_hlo_reduce_precision(tt_hlo x, int32_t exponent_bits, int32_t mantissa_bits);
tt_hlo tt_hlo_optimization_barrier(tt_hlo x);

// ---- shape ----
tt_hlo tt_hlo_reshape(tt_hlo x, const int64_t *dims, int32_t rank);
tt_hlo tt_hlo_transpose(tt_hlo x, const int32_t *permutation);  // result dim i is x's dim permutation[i]
// x's dim i becomes result dim mapping[i] (increasing or not), and has that size, or 1.
tt_hlo tt_hlo_broadcast_in_dim(tt_hlo x, const int64_t *dims, int32_t rank, const int32_t *mapping);
// Trailing dimensions align (NumPy's rule).
tt_hlo tt_hlo_broadcast_to(tt_hlo x, const int64_t *dims, int32_t rank);
tt_hlo tt_hlo_slice(tt_hlo x, const int64_t *start, const int64_t *limit, const int64_t *stride /* NULL: 1s */);
// One dim only: x[..., start:limit:stride, ...].
tt_hlo tt_hlo_slice_dim(tt_hlo x, int32_t dim, int64_t start, int64_t limit, int64_t stride);
// `start`: x->rank 0-d integers of one type. Starts clamp, as XLA does.
tt_hlo tt_hlo_dynamic_slice(tt_hlo x, const tt_hlo *start, const int64_t *sizes);
tt_hlo tt_hlo_dynamic_update_slice(tt_hlo x, tt_hlo update, const tt_hlo *start);
tt_hlo tt_hlo_concatenate(const tt_hlo *xs, int32_t count, int32_t dim);
// low and high may be negative; interior not. NULL: zeros.
tt_hlo tt_hlo_pad(tt_hlo x, tt_hlo value, const int64_t *low, const int64_t *high, const int64_t *interior);
tt_hlo tt_hlo_reverse(tt_hlo x, const int32_t *dims, int32_t count);

// ---- reductions and windows ----
typedef enum tt_hlo_reducer { TT_SUM, TT_PROD, TT_MAX, TT_MIN, TT_ALL, TT_ANY } tt_hlo_reducer;
// The 0-d neutral element of a reducer.
tt_hlo tt_hlo_reducer_init(tt_hlo_builder *b, tt_hlo_reducer reducer, tt_dtype dtype);
// Removes `dims`. Accumulates in x's dtype: convert first.
tt_hlo tt_hlo_reduce(tt_hlo_reducer reducer, tt_hlo x, const int32_t *dims, int32_t count);
// Several operands of one shape reduced together, for argmax and the like. `body(context, b, left, right, out)`
// gets `count` 0-d values for each side and fills `out`; it must be associative and commutative. Of the values built
// outside it may use constants only.
typedef void (*tt_hlo_reduce_body)(void *context, tt_hlo_builder *b, const tt_hlo *left, const tt_hlo *right,
                                   tt_hlo *out);
// Fills `results[count]` (NULLs on error).
void tt_hlo_reduce_multi(const tt_hlo *xs, const tt_hlo *inits, int32_t count, const int32_t *dims, int32_t dim_count,
                         tt_hlo_reduce_body body, void *context, tt_hlo *results);

typedef struct tt_hlo_window {
  const int64_t *sizes;               // rank of them
  const int64_t *strides;             // NULL: 1s
  const int64_t *base_dilation;       // NULL: 1s
  const int64_t *dilation;            // NULL: 1s
  const int64_t *pad_low, *pad_high;  // NULL: 0s
} tt_hlo_window;
tt_hlo tt_hlo_reduce_window(tt_hlo_reducer reducer, tt_hlo x, const tt_hlo_window *window);
void tt_hlo_reduce_window_multi(const tt_hlo *xs, const tt_hlo *inits, int32_t count, const tt_hlo_window *window,
                                tt_hlo_reduce_body body, void *context, tt_hlo *results);

// ---- products ----
typedef enum tt_hlo_precision { TT_PRECISION_DEFAULT, TT_PRECISION_HIGH, TT_PRECISION_HIGHEST } tt_hlo_precision;
typedef struct tt_hlo_dot_dims {
  const int32_t *lhs_batch, *rhs_batch, *lhs_contract, *rhs_contract;
  int32_t batch_count, contract_count;
} tt_hlo_dot_dims;
// Result: batch dims, lhs's free dims, rhs's free dims. `dtype`: of the result (INVALID: the operands').
tt_hlo tt_hlo_dot_general(tt_hlo lhs, tt_hlo rhs, const tt_hlo_dot_dims *dims, tt_hlo_precision precision,
                          tt_dtype dtype);

// lhs [N, C, spatial...], rhs and result in the layouts that the dim numbers give.
typedef struct tt_hlo_conv_dims {
  int32_t spatial_rank;
  int32_t lhs_batch, lhs_feature, rhs_in_feature, rhs_out_feature, out_batch, out_feature;
  const int32_t *lhs_spatial, *rhs_spatial, *out_spatial;
  const int64_t *strides, *pad_low, *pad_high, *lhs_dilation, *rhs_dilation;  // NULL: 1s (pads: 0s)
  const bool *reverse;                                                        // window reversal; NULL: none
  int64_t feature_groups, batch_groups;                                       // 0 means 1
} tt_hlo_conv_dims;
tt_hlo tt_hlo_convolution(tt_hlo lhs, tt_hlo rhs, const tt_hlo_conv_dims *dims, tt_hlo_precision precision);

// ---- gather and scatter, as StableHLO's ----
typedef struct tt_hlo_gather_dims {
  const int32_t *offset_dims, *collapsed_dims, *operand_batching_dims, *indices_batching_dims, *start_index_map;
  int32_t offset_count, collapsed_count, batching_count, start_index_count;
  int32_t index_vector_dim;
} tt_hlo_gather_dims;
tt_hlo tt_hlo_gather(tt_hlo x, tt_hlo indices, const tt_hlo_gather_dims *dims, const int64_t *slice_sizes,
                     bool indices_sorted);

typedef struct tt_hlo_scatter_dims {
  const int32_t *update_window_dims, *inserted_window_dims, *input_batching_dims, *indices_batching_dims,
      *scatter_dims_to_operand_dims;
  int32_t update_window_count, inserted_count, batching_count, scatter_dims_count;
  int32_t index_vector_dim;
} tt_hlo_scatter_dims;
typedef enum tt_hlo_scatter_kind {
  TT_SCATTER_SET,  // the update replaces
  TT_SCATTER_ADD,
  TT_SCATTER_MULTIPLY,
  TT_SCATTER_MAX,
  TT_SCATTER_MIN
} tt_hlo_scatter_kind;
// Out-of-range indices drop their update.
tt_hlo tt_hlo_scatter(tt_hlo_scatter_kind kind, tt_hlo x, tt_hlo indices, tt_hlo updates,
                      const tt_hlo_scatter_dims *dims, bool indices_sorted, bool indices_unique);

// Gradient of max pooling: scatters `source` to the position of each window's greatest element (the first of equal
// ones; a NaN is passed over). No dilation.
tt_hlo tt_hlo_select_and_scatter(tt_hlo x, tt_hlo source, tt_hlo init, const tt_hlo_window *window);

// ---- the rest ----
// Sorts `count` operands of one shape together along `dim`, by operand 0 (then, if `by_two`, operand 1
// ascending). Total order for floats: NaN greatest, -0 equal to +0. Fills results[count].
void tt_hlo_sort(const tt_hlo *xs, int32_t count, int32_t dim, bool descending, bool stable, bool by_two,
                 tt_hlo *results);
// CHLO top_k over the last dim: values (descending) and s32 indices.
void tt_hlo_top_k(tt_hlo x, int64_t k, tt_hlo *values, tt_hlo *indices);
// THREE_FRY. `state`: ui64[2]. Bits of `dtype` (ui32 or ui64).
tt_hlo tt_hlo_random_bits(tt_hlo state, tt_dtype dtype, const int64_t *dims, int32_t rank);
tt_hlo tt_hlo_cholesky(tt_hlo x, bool lower);
tt_hlo tt_hlo_triangular_solve(tt_hlo a, tt_hlo b, bool left_side, bool lower, bool unit_diagonal, bool transpose,
                               bool conjugate);
typedef enum tt_hlo_fft_kind { TT_FFT, TT_IFFT, TT_RFFT, TT_IRFFT } tt_hlo_fft_kind;
tt_hlo tt_hlo_fft(tt_hlo_fft_kind kind, tt_hlo x, const int64_t *lengths, int32_t count);  // last dims, 1 to 3
// `count` loop-carried values; `results` may be `inits`. cond yields a 0-d pred; body fills out[count] with the
// same types. Both may use values built outside.
typedef tt_hlo (*tt_hlo_while_cond)(void *context, tt_hlo_builder *b, const tt_hlo *state);
typedef void (*tt_hlo_while_body)(void *context, tt_hlo_builder *b, const tt_hlo *state, tt_hlo *out);
void tt_hlo_while(const tt_hlo *inits, int32_t count, tt_hlo_while_cond cond, tt_hlo_while_body body, void *context,
                  tt_hlo *results);

// ---- calls of what isn't StableHLO ----
typedef struct tt_hlo_type_spec {
  tt_dtype dtype;
  int32_t rank;
  const int64_t *dims;
} tt_hlo_type_spec;
// A list of 64-bit integers, by name.
typedef struct tt_hlo_numbers {
  const char *name;
  const int64_t *values;
  int32_t count;  // 1 or more
} tt_hlo_numbers;
// A function that the plugin was given (api_version 4, no side effects); all arrays are row-major. What it is given
// isn't checked against what it takes: the function does that. Fills results[result_count].
void tt_hlo_custom_call(tt_hlo_builder *b, const char *target, const tt_hlo *operands, int32_t count,
                        const tt_hlo_numbers *attributes, int32_t attribute_count, const tt_hlo_type_spec *types,
                        int32_t result_count, tt_hlo *results);

// ---- helpers ----
int64_t tt_hlo_numel(tt_hlo x);  // 0 for NULL
bool tt_hlo_same_dims(tt_hlo x, tt_hlo y);

// ---- text ----
// A type as modules have it: "tensor<4x5xf32>".
void tt_hlo_append_type(tt_strbuf *text, tt_dtype dtype, const int64_t *dims, int32_t rank);

#endif  // TORCHTPU_HLO_HLO_H
