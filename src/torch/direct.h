// Calls without the dispatcher's stack: for kernels with the C++ signature of their operator.
#pragma once

#include "kernel.h"

namespace torchtpu {

// One call in the making; the arguments' tensors and lists must outlive it.
template <size_t count>
class DirectCall {
 public:
  explicit DirectCall(const Kernel &kernel) : kernel_(kernel) {}

  void tensor(size_t i, const at::Tensor &tensor) {
    args_[i].tag = TT_ARG_TENSOR;
    describe(tensor, kernel_.name().c_str(), args_[i].u.tensor);
    if (device_ < 0 && args_[i].u.tensor.storage) {
      device_ = tt_storage_device(args_[i].u.tensor.storage);
    }
  }
  void optional_tensor(size_t i, const std::optional<at::Tensor> &value) {
    if (value && value->defined()) {
      tensor(i, *value);
    } else {
      args_[i].tag = TT_ARG_NONE;
    }
  }
  void number(size_t i, const tt_number &value) {
    args_[i].tag = TT_ARG_NUMBER;
    args_[i].u.number = value;
  }
  void integers(size_t i, c10::IntArrayRef values) {
    args_[i].tag = TT_ARG_INTS;
    args_[i].count = static_cast<uint32_t>(values.size());
    args_[i].u.ints = values.data();
  }
  void ignore(size_t i) { args_[i].tag = TT_ARG_IGNORED; }

  // The only result.
  at::Tensor run() const { return kernel_.call_for_one(args_, static_cast<int32_t>(count), device_); }

 private:
  const Kernel &kernel_;
  int32_t device_ = -1;
  tt_arg args_[count];  // each is described before the call; `count` counts in lists alone
};

// Whether the tensor is nothing but a strided tensor with its values in memory as they are: no lazy conjugate, no
// names, no subclass, and whatever else its dispatch keys might say.
inline bool is_plain(const at::Tensor &tensor) {
  constexpr c10::DispatchKeySet kPlain({c10::DispatchKey::PrivateUse1, c10::DispatchKey::AutogradPrivateUse1,
                                        c10::DispatchKey::AutocastPrivateUse1, c10::DispatchKey::ADInplaceOrView});
  return tensor.device().type() == kTpu && !(tensor.key_set().raw_repr() & ~kPlain.raw_repr());
}

// A kernel with the C++ signature of the operator, where that is a common one. Nothing: it has to be boxed.
std::optional<torch::CppFunction> direct_function(std::unique_ptr<Kernel> &kernel, const c10::FunctionSchema &schema);

}  // namespace torchtpu
