// The kernels as functions that programs of XLA:CPU call. What a call is made of is decided by the rules
// (aten/host.c) and checked here again, whole: a module is only text.
//
// Operands are pairs: a 1-D float32 array, all of a storage, and a 0-d integer, the element where the view begins. Its
// strides are among the numbers. Behind them stand the rest, as the names below say.
#ifndef TORCHTPU_KERNELS_HANDLERS_H
#define TORCHTPU_KERNELS_HANDLERS_H

#include <stdbool.h>

#include "pjrt/pjrt.h"

// The numbers of a call: the attribute `numbers`, an array of 64-bit integers.
enum {
  TT_HOST_BATCH,
  TT_HOST_Q_HEADS,
  TT_HOST_K_HEADS,
  TT_HOST_Q_LENGTH,
  TT_HOST_K_LENGTH,
  TT_HOST_WIDTH,
  TT_HOST_V_WIDTH,
  TT_HOST_CAUSAL,
  TT_HOST_BIAS,       // whether there is one
  TT_HOST_ATTENTION,  // here begin the strides, four for each: query, key, value, out
  // Forward: then those of bias. Operands: query, key, value, [bias], scale; results: out, lse.
  TT_HOST_FORWARD_COUNT = TT_HOST_ATTENTION + 5 * 4,
  // Backward: then grad_query, grad_key, grad_value, grad_out, bias. Operands: query, key, value, out, grad_out,
  // [bias], lse, scale; results: the gradients.
  TT_HOST_BACKWARD_COUNT = TT_HOST_ATTENTION + 9 * 4,
};
// A product: batch, rows, depth, columns, then three strides of each operand. Operands: a, b; result: c.
enum { TT_HOST_PRODUCT_COUNT = 4 + 2 * 3 };

// Layer normalisation. Operands, all dense: x, [weight], [bias], eps; results: y, mean, rstd.
// Backward: x, grad_out, mean, rstd, [weight]; results: the gradients of x, weight and bias, those that aren't wanted
// without contents.
enum {
  TT_HOST_NORM_ROWS,
  TT_HOST_NORM_COLUMNS,
  TT_HOST_NORM_HAS,   // bits: 1 weight, 2 bias; backward: 1 weight
  TT_HOST_NORM_WANT,  // backward, bits: 1 x, 2 weight, 4 bias
  TT_HOST_NORM_COUNT,
};

#define TT_HOST_FORWARD "torchtpu.attention.1"
#define TT_HOST_BACKWARD "torchtpu.attention_backward.1"
#define TT_HOST_PRODUCT "torchtpu.product.1"
#define TT_HOST_NORM "torchtpu.layer_norm.1"
#define TT_HOST_NORM_BACKWARD "torchtpu.layer_norm_backward.1"

// Makes them known to the plugin; false where that can't be, or TORCH_TPU_HOST_KERNELS=0.
bool tt_kernels_register(tt_pjrt_client *client);

struct tt_ffi_frame;
void *tt_handle_attention(struct tt_ffi_frame *frame);
void *tt_handle_attention_backward(struct tt_ffi_frame *frame);
void *tt_handle_product(struct tt_ffi_frame *frame);
void *tt_handle_norm(struct tt_ffi_frame *frame);
void *tt_handle_norm_backward(struct tt_ffi_frame *frame);

#endif  // TORCHTPU_KERNELS_HANDLERS_H
