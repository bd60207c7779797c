// What a compiled program will cost, by the estimates that the TPU compiler leaves in its optimized program.
#ifndef TORCHTPU_TPU_CYCLES_COST_H
#define TORCHTPU_TPU_CYCLES_COST_H

#include <stddef.h>
#include <stdint.h>

#include "base/status.h"

// An instruction that costs something. Text points into the program and is not terminated.
typedef struct tt_cost_item {
  const char *name, *opcode;
  size_t name_length, opcode_length;
  int64_t times;   // how often the program runs it
  int64_t cycles;  // of one run
  int64_t bytes;   // of one run: operands and results that lie in HBM
} tt_cost_item;

// Sums over all instructions that the program runs, each as often as its loops turn. They saturate.
typedef struct tt_cost {
  int64_t cycles;
  int64_t bytes;          // read from and written to HBM, padded to tiles; an operand counts in whole
  int64_t copied_bytes;   // of these, those of asynchronous copies, for which the compiler estimates nothing
  int64_t instructions;   // with an estimate
  int64_t unknown_loops;  // whose trip count the compiler doesn't say: counted once
  tt_cost_item *items;    // the dearest first; owned
  size_t item_count;
} tt_cost;

// `data` is an HloProto, or anything else whose field 1 is an HloModuleProto; it may be anything at all. Of the
// branches of a conditional every one counts.
TT_MUST_USE tt_status *tt_cost_read(const void *data, size_t size, tt_cost *out_cost);
void tt_cost_free(tt_cost *cost);

#endif  // TORCHTPU_TPU_CYCLES_COST_H
