// The boxed kernel: one object per operator form, from the dispatcher's stack to tt_call and back.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <memory>
#include <vector>

#include "shim.h"

namespace torchtpu {

class Kernel final : public c10::OperatorKernel {
 public:
  // NULL if the core has no rule `rule`, or the schema has an argument that no rule can take.
  static std::unique_ptr<Kernel> create(const std::string &rule, const c10::FunctionSchema &schema);

  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);

 private:
  struct Arg {
    tt_arg_kind kind;
    bool is_operand;  // travels as a number
    bool is_device;   // a Device argument
    bool is_written;  // in-place: must not overlap itself
    bool is_indices;  // a list of indices: boolean masks are expanded first
    bool is_total;    // repeat_interleave's output_size: the sum of the repeats, read back when it is not given
  };
  at::Tensor narrow_expanded(torch::jit::Stack *stack) const;
  tt_arg_schema add_argument(const c10::Argument &argument);

  tt_op *op_ = nullptr;
  std::string name_;
  std::vector<Arg> args_;
  std::vector<size_t> written_;  // tensor arguments that the operator writes
  std::vector<int> return_alias_;
  std::vector<bool> return_is_list_, return_is_int_;
  int mutated_list_ = -1;  // the list of tensors that an operator without results writes
  int self_ = -1;          // the tensor that `indices` index
  bool by_index_ = false;  // an operand may not be the tensor that is written, where elementwise operators allow it
  bool is_fill_ = false;   // writes expanded tensors too: an element that is written twice gets the same both times

  friend struct Call;
};

}  // namespace torchtpu
