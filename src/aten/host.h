// Calls of the kernels of src/kernels, which XLA:CPU makes on the host (tt_rule_has_host_kernels).
#ifndef TORCHTPU_ATEN_HOST_H
#define TORCHTPU_ATEN_HOST_H

#include "aten/rule.h"

enum { TT_HOST_OPERANDS = 16, TT_HOST_NUMBERS = 64 };

// A call as it is put together.
typedef struct tt_host_call {
  tt_hlo operands[TT_HOST_OPERANDS];
  int64_t numbers[TT_HOST_NUMBERS];
  int32_t operand_count, number_count;
} tt_host_call;

void tt_host_number(tt_host_call *c, int64_t number);
// A result of a call with these sizes, whose dims lie in memory in this order, outermost first.
typedef struct tt_host_result {
  int32_t rank;
  int64_t sizes[TT_MAX_RANK];
  int32_t order[TT_MAX_RANK];
} tt_host_result;

// The strides of a tensor of `rank` dims, as numbers; zeros in front where it has fewer.
void tt_host_strides(tt_host_call *c, const int64_t *strides, int32_t ndim, int32_t rank);
// The operands of a view, float32, and in *out_strides, of TT_MAX_RANK, its strides. As it lies in memory, if it is
// float32; else converted, and dense.
void tt_host_view(tt_rule *r, tt_host_call *c, const char *name, int64_t *out_strides);
// A value as it is, 1-D or 0-d.
void tt_host_operand(tt_host_call *c, tt_hlo x);

// In whose order of dims a result is laid out.
tt_host_result tt_host_result_like(const tt_operand *x);
void tt_host_result_strides(const tt_host_result *result, int64_t *out_strides);
// Makes the call, all results float32; each comes back with the dims in their own order.
void tt_host_make(tt_rule *r, tt_host_call *c, const char *target, const tt_host_result *results, int32_t count,
                  tt_hlo *out);

#endif  // TORCHTPU_ATEN_HOST_H
