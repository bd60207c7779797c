// Kernels with C++ signatures. The dispatcher would pack the arguments of a boxed kernel into a stack on the heap, and
// count references to each, which takes about a fifth of what a call takes the calling thread.
#include "direct.h"

namespace torchtpu {
namespace {

using at::Tensor;
using c10::Scalar;

// What only the boxed kernel deals with.
bool needs_stack(const Tensor &tensor) {
  return C10_UNLIKELY(!tensor.defined() || tensor.is_conj() || tensor.is_neg());
}
bool needs_stack(const Scalar &) { return false; }

template <size_t count>
void put(DirectCall<count> &call, size_t i, const Tensor &tensor) {
  call.tensor(i, tensor);
}
template <size_t count>
void put(DirectCall<count> &call, size_t i, const Scalar &scalar) {
  call.number(i, to_number(scalar));
}

template <class... Args>
Tensor call(const Kernel &kernel, const Args &...args) {
  if ((needs_stack(args) || ...)) {
    torch::jit::Stack stack{c10::IValue(args)...};
    kernel.call_boxed(stack);
    return std::move(stack.back()).toTensor();
  }
  DirectCall<sizeof...(Args)> direct(kernel);
  size_t i = 0;
  (put(direct, i++, args), ...);
  return direct.run();
}

template <class... Args>
torch::CppFunction function_of(std::unique_ptr<Kernel> kernel) {
  return torch::CppFunction(
      [kernel = std::move(kernel)](const Args &...args) -> Tensor { return call(*kernel, args...); });
}

// "TTS": two tensors and a Scalar; empty for a form that takes or gives anything else.
std::string signature_of(const c10::FunctionSchema &schema) {
  std::string signature;
  for (const auto &argument : schema.arguments()) {
    const auto kind = argument.real_type()->kind();
    if (argument.alias_info() || (kind != c10::TypeKind::TensorType && kind != c10::TypeKind::NumberType)) {
      return "";
    }
    signature += kind == c10::TypeKind::TensorType ? 'T' : 'S';
  }
  const auto &returns = schema.returns();
  bool fits = returns.size() == 1 && !returns[0].alias_info() && returns[0].type()->kind() == c10::TypeKind::TensorType;
  return fits ? signature : "";
}

}  // namespace

std::optional<torch::CppFunction> direct_function(std::unique_ptr<Kernel> &kernel, const c10::FunctionSchema &schema) {
  const std::string signature = kernel->is_simple() ? signature_of(schema) : "";
  if (signature == "T") {
    return function_of<Tensor>(std::move(kernel));
  } else if (signature == "TT") {
    return function_of<Tensor, Tensor>(std::move(kernel));
  } else if (signature == "TTT") {
    return function_of<Tensor, Tensor, Tensor>(std::move(kernel));
  } else if (signature == "TS") {
    return function_of<Tensor, Scalar>(std::move(kernel));
  } else if (signature == "TTS") {
    return function_of<Tensor, Tensor, Scalar>(std::move(kernel));
  } else if (signature == "TTTSS") {
    return function_of<Tensor, Tensor, Tensor, Scalar, Scalar>(std::move(kernel));
  }
  return std::nullopt;
}

}  // namespace torchtpu
