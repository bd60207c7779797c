// One rule per ATen operator: a C function that reads its operands, builds StableHLO and names its results. Sizes,
// dtypes, strides and aliasing of the results fall out of what it builds; it is the operator's shape function and
// its lowering in one.
//
// A rule runs once per operator key (dtypes, shapes, strides, structural arguments); what varies from call to call
// (Scalar and float arguments, offsets of views, random seeds) is an operand of the executable and can't be looked
// at. Errors stick: a rule reports with tt_fail() or by building something wrong, returns, and the first error
// becomes the Python exception. Every accessor is safe after a failure.
//
// Arguments are named as in the operator's schema, so one rule serves the functional, the in-place and the out=
// form: the framework derives those from the schema's alias marks. An argument that a form does not have reads
// as None.
#ifndef TORCHTPU_ATEN_RULE_H
#define TORCHTPU_ATEN_RULE_H

#include "hlo/hlo.h"

typedef struct tt_rule tt_rule;
struct tt_arg;

// Which dtypes an out= tensor may have beside the result's own.
typedef enum tt_out_dtype {
  TT_OUT_AUTO,   // TT_OUT_CAST for results of tt_ret_elementwise(), TT_OUT_EXACT for others
  TT_OUT_EXACT,  // none
  TT_OUT_CAST,   // those that the result's may be cast to: not from complex to real, float to integer, number to bool
  TT_OUT_ANY,
} tt_out_dtype;

typedef struct tt_rule_entry {
  const char *name;  // "aten::add.Tensor": the functional form, or an in-place one that has no functional
  void (*build)(tt_rule *r);
  int32_t kind;              // for functions that serve several operators; read with tt_rule_kind()
  const char *static_args;   // Scalar or float arguments that go into the key by value: "p,ord"; NULL: none
  const char *dynamic_args;  // int arguments that are operands: "index,start"; NULL: none
  // Values of Scalar arguments (wrapped numbers among tensors too) for which the rule has a form of its own, so
  // that they are looked at: "exponent=0,0.5,1,2,3". A value that equals the schema's default always is.
  const char *special_values;
  // A number made of the arguments that goes into the key, where a shape depends on operands (arange's size); NULL:
  // none.
  int64_t (*structure)(const struct tt_arg *args, int32_t count);
  tt_out_dtype out_dtype;
  // Operands whose memory the written tensor must not share: "self,index". Others may be the written tensor itself, but
  // not lie across it. NULL: none.
  const char *apart;
  bool overwrites;  // the rule does not read the tensor that it returns (zero_): what that held is not in the key
} tt_rule_entry;

// The families; each ends with an entry whose name is NULL. The list of all of them is in table.c.
extern const tt_rule_entry *const tt_rule_families[];

// ---- about the call ----
int32_t tt_rule_kind(const tt_rule *r);
tt_hlo_builder *tt_b(tt_rule *r);
const char *tt_rule_name(const tt_rule *r);  // "add", "add_", for messages
bool tt_rule_is_cpu(const tt_rule *r);       // compiling for XLA:CPU: a rule may choose other forms
// True on XLA:CPU, and on a TPU that has this rule for this dtype, along a dim of so many points; else fails. (Operands
// of a dtype that a TPU lacks altogether are refused before the rule runs.)
bool tt_tpu_has(tt_rule *r, tt_dtype dtype, int64_t points);
// XLA:CPU, and it calls the kernels of src/kernels (aten/host.h).
bool tt_rule_has_host_kernels(const tt_rule *r);
tt_hlo_precision tt_matmul_precision(const tt_rule *r);
tt_dtype tt_default_dtype(const tt_rule *r);  // torch.get_default_dtype()
bool tt_failed(const tt_rule *r);
// Records the first error; the message is prefixed with the operator's name.
void tt_fail(tt_rule *r, tt_code code, const char *format, ...) TT_PRINTF(3, 4);

// ---- arguments ----
bool tt_has(tt_rule *r, const char *name);  // present and not None

typedef struct tt_operand {
  tt_dtype dtype;
  int32_t ndim;
  const int64_t *sizes, *strides;  // strides in elements
  bool is_wrapped;                 // a Python number that became a tensor: weakest in type promotion
  bool is_host;                    // a 0-d CPU tensor (wrapped numbers are that too)
} tt_operand;
// NULL (and no failure) when the argument is None or a number.
const tt_operand *tt_operand_of(tt_rule *r, const char *name);
const tt_operand *tt_operand_at(tt_rule *r, const char *name, int32_t index);  // element of a tensor list

int64_t tt_operand_numel(const tt_operand *x);
bool tt_operand_is_contiguous(const tt_operand *x);  // as Tensor::is_contiguous(): an empty one always is

// A tensor argument as a value: the view applied, so that it has the tensor's sizes and dtype.
tt_hlo tt_in(tt_rule *r, const char *name);
// The same, converted as PyTorch converts (tt_cast).
tt_hlo tt_in_as(tt_rule *r, const char *name, tt_dtype dtype);
// A tensor argument as it lies in memory: all of its storage, 1-D, and the element where the tensor begins, a 0-d
// integer; the tensor's strides do the rest. False: a host scalar, or a failure.
bool tt_in_memory(tt_rule *r, const char *name, tt_hlo *out_memory, tt_hlo *out_offset);
int32_t tt_list_length(tt_rule *r, const char *name);          // tensor, int, float or Scalar list; 0 for None
tt_hlo tt_in_at(tt_rule *r, const char *name, int32_t index);  // NULL without failure for None in an optional list
tt_hlo tt_in_at_as(tt_rule *r, const char *name, int32_t index, tt_dtype dtype);

// Structural arguments.
int64_t tt_int(tt_rule *r, const char *name, int64_t if_none);
bool tt_bool(tt_rule *r, const char *name, bool if_none);
const int64_t *tt_ints(tt_rule *r, const char *name, int32_t *out_count);  // NULL and 0 for None
// The product of a list of sizes; fails, and is 0, for a negative size or more than an int64 holds.
int64_t tt_ints_numel(tt_rule *r, const char *name);
const char *tt_string(tt_rule *r, const char *name);                    // NULL for None
tt_dtype tt_dtype_arg(tt_rule *r, const char *name, tt_dtype if_none);  // a ScalarType? argument
// The type that the call asks for: by dtype=, or by out= in a rule that takes any (TT_OUT_ANY).
tt_dtype tt_asked_dtype(tt_rule *r, tt_dtype if_none);
// Dimension argument, wrapped to [0, ndim); IndexError as PyTorch's when out of range (ndim 0 counts as 1).
int32_t tt_dim(tt_rule *r, const char *name, int32_t ndim);
int32_t tt_wrap_dim(tt_rule *r, int64_t dim, int32_t ndim);
// Dimension list as a mask of ndim flags; None or (if empty_is_all) an empty list means all. Duplicates fail.
// Returns how many are set.
int32_t tt_dim_mask(tt_rule *r, const char *name, int32_t ndim, bool empty_is_all, bool out_mask[TT_MAX_RANK]);

// Scalar (number) arguments: operands unless static, special or default.
tt_dtype tt_scalar_type(tt_rule *r, const char *name);  // TT_PRED, TT_S64, TT_F64 or TT_C128; INVALID for None
tt_dtype tt_scalar_type_at(tt_rule *r, const char *name, int32_t index);  // of an element of a Scalar[]
// As a 0-d operand of `dtype`; the host converts. For Scalar, float, dynamic int and ScalarList elements.
tt_hlo tt_scalar(tt_rule *r, const char *name, tt_dtype dtype);
tt_hlo tt_scalar_at(tt_rule *r, const char *name, int32_t index, tt_dtype dtype);
// True if the argument's value is known to the rule (static, special, or equal to the default).
bool tt_scalar_known(tt_rule *r, const char *name, double *out_value);
double tt_static_double(tt_rule *r, const char *name, double if_none);  // of an argument in static_args
// A 0-d wrapped number or host tensor whose value is in special_values.
bool tt_operand_known(tt_rule *r, const char *name, double *out_value);

// ---- types ----
// PyTorch's promotion over the named tensor and Scalar arguments (None is skipped), by category: tensors with
// dims, then 0-d tensors, then numbers.
tt_dtype tt_result_type(tt_rule *r, const char *const *names, int32_t count);
tt_dtype tt_promote_types(tt_dtype a, tt_dtype b);
// An integer or bool type becomes the default float type.
tt_dtype tt_float_type(const tt_rule *r, tt_dtype dtype);
// The type to compute in: float32 for float16 and bfloat16, others themselves.
tt_dtype tt_opmath(tt_dtype dtype);
// Conversion with PyTorch's meaning: to bool is != 0; float to integer truncates and wraps as the CPU does;
// complex to real drops the imaginary part; integers wrap.
tt_hlo tt_cast(tt_hlo x, tt_dtype dtype);

// ---- building ----
// Broadcasts values to their common shape (NumPy's rule), RuntimeError in PyTorch's words when there is none.
bool tt_broadcast(tt_rule *r, tt_hlo *values, int32_t count);
// The two tensor arguments of a binary operator, promoted together, cast and broadcast; returns the dtype.
tt_dtype tt_binary_in(tt_rule *r, const char *x_name, const char *y_name, tt_hlo *x, tt_hlo *y);
tt_hlo tt_mean_of(tt_hlo sum, int64_t count);  // sum / count, in sum's dtype
// Dimensions kept as size 1: a reduced value reshaped so.
tt_hlo tt_keepdim(tt_hlo reduced, tt_hlo like, const bool *mask);
tt_hlo tt_reduce_mask(tt_hlo_reducer reducer, tt_hlo x, const bool *mask);
// A value without the masked dims, broadcast back to the full shape `dims`.
tt_hlo tt_expand_reduced(tt_hlo reduced, const int64_t *dims, int32_t rank, const bool *mask);

// Sets the device-side assert flag when a 0-d or larger pred has a false element: IndexError (or the code given)
// with this text at the next synchronisation.
void tt_device_assert(tt_rule *r, tt_hlo all_true, tt_code code, const char *format, ...) TT_PRINTF(4, 5);
// Index operand checked against [-size, size) (or [0, size) if not `wrap`), negative values wrapped. The device
// assert is set for the rest; the value returned for them is out of range (so that gathers clamp and scatters drop).
tt_hlo tt_checked_index(tt_rule *r, tt_hlo index, int64_t size, bool wrap, const char *what);

// ---- random numbers (the "generator" argument, or the device's default) ----
// Uniform bits, [0, 1) floats and standard normals of `dtype`, each call independent of the others in this rule.
tt_hlo tt_random_bits(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank);
tt_hlo tt_random_uniform(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank);
tt_hlo tt_random_normal(tt_rule *r, tt_dtype dtype, const int64_t *dims, int32_t rank);

// ---- results ----
// In place of the entry's, where it depends on the operands. Before the result is named.
void tt_accept_out_dtype(tt_rule *r, tt_out_dtype accepted);
bool tt_can_cast(tt_dtype from, tt_dtype to);  // as TT_OUT_CAST says
// Result i. Where the schema says that result i aliases an argument (in-place, out=) this writes that argument,
// cast to its dtype; in-place shapes must agree. New tensors are contiguous.
void tt_ret(tt_rule *r, int32_t i, tt_hlo value);
// The same with strides as TensorIterator gives them: from the layout of the call's full-size tensor operands.
// For elementwise operators.
void tt_ret_elementwise(tt_rule *r, int32_t i, tt_hlo value);
// The same, laid out as the named operand where that is dense (preserve_format), e.g. for empty_like results.
void tt_ret_like(tt_rule *r, int32_t i, tt_hlo value, const char *name);
// Dense strides given by the order of dims in memory, outermost first.
void tt_ret_ordered(tt_rule *r, int32_t i, tt_hlo value, const int32_t *order);
// The same; where the order is not that of the dims, one of size 0 makes the strides outside it 0, as in
// TensorIterator.
void tt_ret_iterated(tt_rule *r, int32_t i, tt_hlo value, const int32_t *order);
// Result i is an undefined tensor (a gradient that the output mask does not want).
void tt_ret_none(tt_rule *r, int32_t i);
// One element of a Tensor[] result; call with index 0, 1, ... in order.
void tt_ret_list(tt_rule *r, int32_t i, int32_t index, tt_hlo value);
// A new value for a tensor argument that the operator mutates without returning it (running statistics, lists of
// parameters). Cast to its dtype; the shape must agree.
void tt_write(tt_rule *r, const char *name, tt_hlo value);
void tt_write_at(tt_rule *r, const char *name, int32_t index, tt_hlo value);

// ---- internal sub-rules shared by families ----
tt_hlo tt_matmul(tt_rule *r, tt_hlo x, tt_hlo y);  // 2-d or batched 3-d product of equal dtypes, precision applied

#endif  // TORCHTPU_ATEN_RULE_H
