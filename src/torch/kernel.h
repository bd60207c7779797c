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
  static std::unique_ptr<Kernel> create(const std::string &rule, const c10::OperatorHandle &handle);

  void operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet keys, torch::jit::Stack *stack);

  const std::string &name() const { return name_; }
  // Whether operator() does no more than call_boxed().
  bool is_simple() const;
  void call_boxed(torch::jit::Stack &stack) const;
  // A call whose arguments are described already, of a form that gives one new tensor.
  at::Tensor call_for_one(const tt_arg *args, int32_t count, int32_t device) const;

 private:
  struct Arg {
    tt_arg_kind kind;
    bool is_operand;  // travels as a number
    bool is_device;   // a Device argument
    bool is_written;  // in-place: must not overlap itself
    bool is_apart;    // must not lie in the memory of a written tensor
  };
  at::Tensor narrow_expanded(torch::jit::Stack *stack) const;
  bool dot_lazily(torch::jit::Stack &stack) const;
  tt_arg_schema add_argument(const c10::Argument &argument);
  void complete(torch::jit::Stack &stack) const;

  tt_op *op_ = nullptr;
  std::string name_;
  std::vector<Arg> args_;
  std::vector<size_t> written_;  // tensor arguments that the operator writes
  std::vector<int> return_alias_;
  std::vector<bool> return_is_list_, return_is_int_;
  bool is_generated_ = false;  // an out= form whose operands may lie anywhere
  bool is_fill_ = false;       // writes expanded tensors too: an element that is written twice gets the same both times
  bool is_scatter_ = false;    // the inverse of a view, which keeps the strides of `self`
  bool is_dot_ = false;        // dot, vdot: some conjugates come out as they went in
  int self_ = -1;              // the tensor that `indices` index
  int indices_ = -1;           // a list of indices: boolean masks are expanded first
  int total_ = -1;  // repeat_interleave's output_size: the sum of the repeats, read back when it is not given

  friend struct Call;
};

}  // namespace torchtpu
