// What a rule is made of. Only aten/ and the engines that run rules include this.
#ifndef TORCHTPU_ATEN_INTERNAL_H
#define TORCHTPU_ATEN_INTERNAL_H

#include "aten/rule.h"
#include "aten/view.h"
#include "base/arena.h"
#include "torchtpu/torchtpu.h"

enum { TT_MAX_ARGS = 64, TT_MAX_SPECIAL = 8 };

// ---- operators ----
typedef struct tt_op_arg {
  char *name;
  tt_arg_kind kind;
  bool is_operand;  // travels as a number
  bool is_static;   // a number that goes into the key by value
  bool is_out;
  bool is_written;  // a result aliases it
  bool is_apart;    // shares no memory with a written tensor
  bool has_default;
  double default_value;
  int32_t special_count;
  double special[TT_MAX_SPECIAL];
} tt_op_arg;

struct tt_op {
  const tt_rule_entry *rule;
  char *name;        // "aten::add_.Tensor"
  char *short_name;  // "add_"
  int32_t arg_count, return_count;
  tt_op_arg *args;
  int32_t *return_alias;
  bool *return_is_list;
  int32_t mutated_list;
  bool is_generated;  // PyTorch's own copy of the functional form's results to its out= tensors
  tt_out_dtype out_dtype;
};

double tt_number_double(const tt_number *number);  // the real part

// 0 if the number is not one that the rule may look at, 1 if it equals the default, 2 + k if it is special[k].
int32_t tt_op_arg_known(const tt_op_arg *arg, const tt_number *number);

// ---- one run of a rule ----
// A distinct storage among the operands.
typedef struct tt_slot {
  tt_dtype dtype;
  tt_shape shape;  // of its value; flat if undefined
  bool defined;
  bool unkeyed;  // its shape is not in the key
  // while the rule runs:
  tt_hlo original;  // the parameter, or zeros; NULL until read
  tt_hlo current;   // after the writes so far; NULL: not written
  int32_t parameter;
} tt_slot;

// A tensor among the arguments, in order, lists flattened.
typedef struct tt_call_tensor {
  const tt_tensor *tensor;
  int16_t slot;  // -1: a host scalar or None
  uint8_t kind;  // tt_view_kind
  // while the rule runs:
  tt_hlo value;  // what tt_in gives
  tt_hlo offset;
} tt_call_tensor;

typedef enum tt_param_kind {
  TT_PARAM_SLOT,    // the value of slot `index`
  TT_PARAM_OFFSET,  // the offset of flattened tensor `index`, as dtype
  TT_PARAM_HOST,    // the value of the host scalar that is flattened tensor `index`, as dtype
  TT_PARAM_NUMBER,  // number `index` of argument `arg`, as dtype
  TT_PARAM_RANDOM,  // ui64[2]: seed and offset of the generator
} tt_param_kind;
typedef struct tt_param {
  uint8_t kind, dtype;
  int16_t arg;
  int32_t index;
  bool aliased;   // shares memory with an output
  int32_t alias;  // which one
} tt_param;

typedef enum tt_output_kind {
  TT_OUTPUT_RESULT,  // the storage of new tensor `index` (position in results)
  TT_OUTPUT_SLOT,    // the next value of slot `index`
  TT_OUTPUT_ASSERT,  // a 0-d pred: false raises assert `index`
} tt_output_kind;
typedef struct tt_output {
  uint8_t kind, dtype;
  int32_t index;
  int32_t rank;
  const int64_t *dims;
  size_t nbytes;
} tt_output;

typedef struct tt_assert {
  tt_code code;
  const char *message;
} tt_assert;

// What a rule leaves behind. Pointers are into `arena`.
typedef struct tt_lowered {
  tt_arena arena;
  char *text;  // the module; NULL when there is nothing to run
  tt_param *params;
  int32_t param_count;
  tt_output *outputs;
  int32_t output_count;
  tt_result *results;
  int32_t result_count;
  tt_assert *asserts;
  int32_t assert_count;
  uint64_t random_elements;  // 64-bit counters consumed
  int32_t generator_arg;     // -1: the default generator
  int32_t resize_arg;        // an out= argument to resize first, or -1
  int32_t resize_ndim;
  const int64_t *resize_sizes, *resize_strides;
} tt_lowered;

// Settings that are part of every key.
typedef struct tt_rule_env {
  tt_dtype default_dtype;
  tt_hlo_precision precision;
  bool is_cpu;
  bool has_host_kernels;    // the same for the whole process
  const char *device_kind;  // "TPU v5 lite"; NULL: not known. The same for the whole process
} tt_rule_env;

typedef struct tt_call_info {
  const tt_op *op;
  const tt_arg *args;
  int32_t arg_count;
  const int32_t *first_tensor;  // [arg_count]: index into tensors, for tensor and list arguments
  tt_call_tensor *tensors;
  int32_t tensor_count;
  tt_slot *slots;
  int32_t slot_count;
  tt_rule_env env;
} tt_call_info;

// Runs the rule. On success `*out` is filled, and owned by the caller (tt_lowered_free).
TT_MUST_USE tt_status *tt_rule_run(const tt_call_info *call, tt_lowered *out);
void tt_lowered_free(tt_lowered *lowered);

// ---- the rule's own state ----
typedef struct tt_ret_record {
  int32_t position, list_index;
  bool in_list, none;
  tt_hlo value;
  int32_t order[TT_MAX_RANK];  // dims in memory order, outermost first
  const int64_t *strides;      // exact strides, or NULL: dense in `order`
  bool zero_strides;           // a dim of size 0 makes the strides outside it 0
  int32_t slot;                // a write: the slot, else -1
  int32_t tensor;              // a write: the flattened tensor
} tt_ret_record;

struct tt_rule {
  const tt_call_info *call;
  tt_hlo_builder *b;
  tt_lowered *out;
  tt_operand *operands;  // [tensor_count]
  int32_t param_capacity, output_capacity, ret_count, ret_capacity, assert_count, assert_capacity;
  tt_ret_record *rets;
  tt_hlo *assert_flags;
  tt_hlo random_state;
  tt_out_dtype out_dtype;
  const int32_t *out_order;  // of the dims of an out= tensor that is resized; NULL: contiguous
  bool failed;
};

// tpu.c: whether no operand is of a dtype that this TPU has not got for this rule; fails otherwise.
bool tt_tpu_has_operands(tt_rule *r);

int32_t tt_rule_arg_index(const tt_rule *r, const char *name);  // -1 if the form has no such argument
const tt_arg *tt_rule_arg(const tt_rule *r, const char *name);  // NULL for that or None
// Index of element `element` of the named tensor (list) argument in call->tensors; -1 for None.
int32_t tt_rule_tensor_index(tt_rule *r, const char *name, int32_t element);
tt_hlo tt_rule_tensor_value(tt_rule *r, int32_t index);
tt_hlo tt_rule_add_param(tt_rule *r, tt_param param, const int64_t *dims, int32_t rank);
TT_MUST_USE tt_status *tt_rule_finish(tt_rule *r);
void *tt_rule_grow(tt_rule *r, void *array, int32_t count, int32_t *capacity, size_t size);

#endif  // TORCHTPU_ATEN_INTERNAL_H
