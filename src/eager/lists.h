// Elementwise operators over lists of arrays, as one call of a host kernel: what lists.c and list_text.c share.
#ifndef TORCHTPU_EAGER_LISTS_H
#define TORCHTPU_EAGER_LISTS_H

#include "eager/compose.h"

typedef enum tt_node_kind {
  TT_NODE_INPUT,     // a parameter that is an array
  TT_NODE_NUMBER,    // a parameter that is a number of the call
  TT_NODE_CONSTANT,  // the same in every element
  TT_NODE_SAME,      // its operand, in another shape
  TT_NODE_OP,
  TT_NODE_OPAQUE  // anything else that makes float32
} tt_node_kind;

typedef struct tt_list_node {
  tt_node_kind kind;
  int32_t code, operand_count;  // TT_NODE_OP
  int32_t operands[3];          // nodes of the function
  float constant;
  bool is_uniform;  // made of numbers alone: the same in every element
  bool is_mask;     // i1
  int64_t elements;
  tt_span type, line;  // line: behind "stablehlo."
} tt_list_node;

// Nodes: the parameters, then %0, %1, ...
typedef struct tt_list_function {
  int32_t param_count, node_count;
  tt_list_node *nodes;
  int32_t *returns;  // nodes
} tt_list_function;

// False: no memory. *out_function is NULL if the record is something else; else it lives in the arena.
bool tt_list_read(tt_arena *arena, const tt_function *function, tt_list_function **out_function);

#endif  // TORCHTPU_EAGER_LISTS_H
