// The key of a call: everything that its rule may look at, in words.
#ifndef TORCHTPU_EAGER_KEY_H
#define TORCHTPU_EAGER_KEY_H

#include "eager/internal.h"

enum { TT_INLINE_TENSORS = 24, TT_INLINE_WORDS = 384, TT_MAX_COPIES = 4 };

// One call in the making. Holds what the key builder found on the way.
typedef struct tt_call_state {
  tt_op *op;
  const tt_arg *args;
  int32_t arg_count;
  tt_engine *engine;
  tt_rule_env env;
  int32_t first_tensor[TT_MAX_ARGS];
  tt_call_tensor *tensors;
  int32_t tensor_count;
  tt_slot *slots;
  tt_storage **storages;  // [slot_count], borrowed from the arguments
  int32_t slot_count;
  uint64_t *words;
  int32_t word_count, word_capacity;
  uint64_t hash;  // of the words; set by who looks the key up
  // A tensor whose storage's value has another element type; the key can't be made before that is mended. NULL: none.
  const tt_tensor *retype;
  bool retype_copy;  // another operand needs the value as it is: retype a copy, for this tensor alone
  const tt_tensor *copied[TT_MAX_COPIES];
  tt_storage *copies[TT_MAX_COPIES];  // owned
  int32_t copy_count;
  tt_call_tensor inline_tensors[TT_INLINE_TENSORS];
  tt_slot inline_slots[TT_INLINE_TENSORS];
  tt_storage *inline_storages[TT_INLINE_TENSORS];
  uint64_t inline_words[TT_INLINE_WORDS];
  int64_t inline_dims[TT_INLINE_TENSORS];  // of undefined storages
  int64_t *flat_dims;
  void *heap_tensors, *heap_words;
} tt_call_state;

// Sizes the arrays for the call. Release with tt_call_state_free.
TT_MUST_USE tt_status *tt_call_state_init(tt_call_state *state, tt_op *op, const tt_arg *args, int32_t count,
                                          tt_engine *engine);
void tt_call_state_free(tt_call_state *state);
// Makes the key's words; engine lock held. May be repeated.
TT_MUST_USE tt_status *tt_call_state_key(tt_call_state *state);
// Gives the storages the values that a call makes, which from here on are what later calls read; nobody else has seen
// them yet. In the order of the record's outputs, NULL for asserts. Engine lock held.
void tt_call_publish(const tt_call_state *state, const tt_record *record, tt_value *const *values, tt_results *out);
uint64_t tt_call_state_hash(const tt_call_state *state);  // of the words

#endif  // TORCHTPU_EAGER_KEY_H
