#include "kernel.h"

#include <ATen/MemoryOverlap.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/native/Resize.h>
#include <c10/core/AutogradState.h>
#include <c10/core/DefaultDtype.h>
#include <c10/core/InferenceMode.h>
#include <c10/util/SmallVector.h>
#include <torch/csrc/autograd/graph_task.h>

#include <algorithm>
#include <atomic>
#include <set>

namespace torchtpu {

using torch::jit::Stack;

namespace {

tt_arg_kind kind_of(const c10::TypePtr &type) {
  c10::TypePtr t = type;
  if (auto optional = t->cast<c10::OptionalType>()) {
    t = optional->getElementType();
  }
  switch (t->kind()) {
    case c10::TypeKind::TensorType:
      return TT_KIND_TENSOR;
    case c10::TypeKind::NumberType:
      return TT_KIND_NUMBER;
    case c10::TypeKind::FloatType:
      return TT_KIND_FLOAT;
    case c10::TypeKind::IntType:
    case c10::TypeKind::SymIntType:
      return TT_KIND_INT;
    case c10::TypeKind::BoolType:
      return TT_KIND_BOOL;
    case c10::TypeKind::ScalarTypeType:
      return TT_KIND_DTYPE;
    case c10::TypeKind::StringType:
      return TT_KIND_STRING;
    case c10::TypeKind::GeneratorType:
      return TT_KIND_GENERATOR;
    case c10::TypeKind::ListType:
      break;
    default:
      return TT_KIND_OTHER;
  }
  switch (kind_of(t->expectRef<c10::ListType>().getElementType())) {
    case TT_KIND_TENSOR:
      return TT_KIND_TENSORS;
    case TT_KIND_NUMBER:
      return TT_KIND_NUMBERS;
    case TT_KIND_FLOAT:
      return TT_KIND_FLOATS;
    case TT_KIND_INT:
    case TT_KIND_BOOL:
      return TT_KIND_INTS;
    default:
      return TT_KIND_OTHER;
  }
}

tt_number number_of(const c10::IValue &value) {
  tt_number number{};
  if (value.isDouble()) {
    number.type = TT_F64;
    number.u.f[0] = value.toDouble();
  } else if (value.isInt()) {
    number.type = TT_S64;
    number.u.i = value.toInt();
  } else {
    number = to_number(value.toScalar());
  }
  return number;
}

int64_t int_of_symbol(const c10::SymInt &symbol) {
  TORCH_CHECK(!symbol.is_symbolic() || !symbol.toSymNode()->is_nested_int(),
              "expected a concrete integer, not the size of a nested tensor's ragged dimension");
  return symbol.guard_int(__FILE__, __LINE__);
}

int64_t int_of(const c10::IValue &value) {
  return value.isInt()    ? value.toInt()
         : value.isBool() ? static_cast<int64_t>(value.toBool())
                          : int_of_symbol(value.toSymInt());
}

// torch.set_default_dtype() tells nobody, so each call looks.
void sync_default_dtype() {
  static std::atomic<c10::ScalarType> known{c10::ScalarType::Float};
  c10::ScalarType type = c10::get_default_dtype_as_scalartype();
  if (C10_UNLIKELY(type != known.load(std::memory_order_relaxed))) {
    tt_set_default_dtype(to_dtype(type));
    known = type;
  }
}

// Where a backward pass begins and ends, fused mode may end a stretch. On the caller's thread: with a thread of its own
// for each device, autograd and the caller would wake each other for every pass.
void sync_thread() {
  static thread_local int known = -1;
  static thread_local bool is_new = true;
  const int pass = torch::autograd::get_current_graph_task_id();
  if (C10_UNLIKELY(pass != known)) {
    known = pass;
    tt_set_section(pass);
  }
  if (C10_UNLIKELY(is_new) && !c10::InferenceMode::is_enabled()) {  // which sets back what is changed within
    is_new = false;
    c10::AutogradState::get_tls_state().set_multithreading_enabled(false);
  }
}

// Before each call.
void sync() {
  sync_default_dtype();
  sync_thread();
}

bool is_written(const c10::Argument &argument) { return argument.alias_info() && argument.alias_info()->isWrite(); }

int alias_of(const c10::FunctionSchema &schema, const c10::Argument &returned) {
  for (size_t i = 0; returned.alias_info() && i < schema.arguments().size(); i++) {
    const auto *alias = schema.arguments()[i].alias_info();
    if (alias && *alias == *returned.alias_info()) {
      return static_cast<int>(i);
    }
  }
  return -1;
}

}  // namespace

// Describes argument i for the core, and remembers what a call needs to know of it.
tt_arg_schema Kernel::add_argument(const c10::Argument &argument) {
  // The schema's type of a dtype, a layout and a memory format is int; the real one says what it is.
  tt_arg_kind kind = kind_of(argument.real_type());
  c10::TypePtr plain = argument.type();
  if (auto optional = plain->cast<c10::OptionalType>()) {
    plain = optional->getElementType();
  }
  const int position = static_cast<int>(args_.size());
  if (argument.name() == "self" && kind == TT_KIND_TENSOR) {
    self_ = position;
  } else if (argument.name() == "indices" && kind == TT_KIND_TENSORS && self_ >= 0) {
    indices_ = position;
  } else if (argument.name() == "output_size" && position && args_[0].kind == TT_KIND_TENSOR &&
             argument.type()->kind() == c10::TypeKind::OptionalType && kind == TT_KIND_INT) {
    total_ = position;
  }
  args_.push_back({.kind = kind,
                   .is_operand = false,
                   .is_device = plain->kind() == c10::TypeKind::DeviceObjType,
                   .is_written = is_written(argument) && kind == TT_KIND_TENSOR,
                   .is_apart = false});
  if (args_.back().is_written) {
    written_.push_back(args_.size() - 1);
  }
  tt_arg_schema schema{};
  schema.name = argument.name().c_str();
  schema.kind = kind;
  schema.is_out = argument.is_out();
  auto value = argument.default_value();
  if (value && (kind == TT_KIND_NUMBER || kind == TT_KIND_FLOAT) && !value->isNone()) {
    schema.has_default = true;
    schema.default_value = number_of(*value);
  }
  return schema;
}

static bool is_fill(const std::string &name) {
  return name == "fill_" || name == "zero_" || name == "masked_fill_" || name == "index_fill_";
}

static bool is_view_scatter(const std::string &name) {
  return name == "select_scatter" || name == "slice_scatter" || name == "diagonal_scatter";
}

std::unique_ptr<Kernel> Kernel::create(const std::string &rule, const c10::OperatorHandle &handle) {
  const c10::FunctionSchema &schema = handle.schema();
  auto kernel = std::make_unique<Kernel>();
  kernel->name_ = schema.name().substr(schema.name().find("::") + 2);
  kernel->is_fill_ = is_fill(kernel->name_) && !(kernel->name_ == "fill_" && schema.overload_name() == "Tensor");
  kernel->is_dot_ = (kernel->name_ == "dot" || kernel->name_ == "vdot") && schema.overload_name().empty();
  kernel->is_scatter_ = schema.overload_name().empty() && is_view_scatter(kernel->name_);
  std::vector<tt_arg_schema> args;
  int mutated_list = -1;
  for (const auto &argument : schema.arguments()) {
    args.push_back(kernel->add_argument(argument));
    if (mutated_list < 0 && schema.returns().empty() && is_written(argument) && args.back().kind == TT_KIND_TENSORS) {
      mutated_list = static_cast<int>(args.size()) - 1;
    }
  }
  auto is_list = std::make_unique<bool[]>(schema.returns().size() + 1);
  std::vector<int32_t> alias;
  for (const auto &returned : schema.returns()) {
    tt_arg_kind kind = kind_of(returned.type());
    is_list[alias.size()] = kind == TT_KIND_TENSORS;
    alias.push_back(alias_of(schema, returned));
    kernel->return_is_list_.push_back(kind == TT_KIND_TENSORS);
    kernel->return_is_int_.push_back(kind == TT_KIND_INT);
    kernel->return_alias_.push_back(alias.back());
  }
  std::string full = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  tt_op_schema description = {.name = full.c_str(),
                              .arg_count = static_cast<int32_t>(args.size()),
                              .args = args.data(),
                              .return_count = static_cast<int32_t>(alias.size()),
                              .return_alias = alias.data(),
                              .return_is_list = is_list.get(),
                              .mutated_list = mutated_list,
                              .is_generated = handle.hasTag(at::Tag::generated)};
  kernel->is_generated_ = description.is_generated;
  kernel->op_ = tt_op_register(rule.c_str(), &description);
  if (!kernel->op_) {
    return nullptr;
  }
  for (size_t i = 0; i < args.size(); i++) {
    kernel->args_[i].is_operand = tt_op_arg_is_operand(kernel->op_, static_cast<int32_t>(i));
    kernel->args_[i].is_apart = tt_op_arg_is_apart(kernel->op_, static_cast<int32_t>(i));
  }
  return kernel;
}

// A result that is a new tensor; undefined if it is none.
static at::Tensor take_new(tt_results &results, int32_t i) {
  const tt_result &result = results.results[i];
  if (result.kind != TT_RESULT_NEW) {
    return at::Tensor();
  }
  tt_storage *storage = results.storages[i];
  results.storages[i] = nullptr;
  return make_tensor(storage, to_scalar_type(result.dtype), {result.sizes, static_cast<size_t>(result.ndim)},
                     {result.strides, static_cast<size_t>(result.ndim)});
}

// One call: the arguments described, and what the descriptions borrow.
struct Call {
  const Kernel &kernel;
  Stack &stack;
  size_t base;
  int32_t device = -1;
  size_t resizes = 0;  // of out= tensors, at most one each
  c10::SmallVector<tt_arg, 16> args;
  c10::SmallVector<int64_t, 64> ints;
  c10::SmallVector<double, 8> floats;
  c10::SmallVector<tt_number, 8> numbers;
  c10::SmallVector<tt_tensor, 16> tensors;

  Call(const Kernel &k, Stack &s) : kernel(k), stack(s), base(s.size() - k.args_.size()) {
    args.resize(k.args_.size());
  }

  const c10::IValue &value(size_t i) const { return stack[base + i]; }

  void run() {
    reserve();
    for (size_t i = 0; i < args.size(); i++) {
      convert(i);
    }
    refuse_overlap();
    sync();
    tt_results results;
    check(tt_call(kernel.op_, args.data(), static_cast<int32_t>(args.size()), device, &results));
    if (C10_UNLIKELY(results.resize_arg >= 0)) {
      resize_out(results);
      return;
    }
    finish(results);
  }

 private:
  // As TensorIterator: a result may be an operand, but not lie across one. Some operators don't allow the former.
  void refuse_overlap() const {
    for (size_t written : kernel.written_) {
      if (args[written].tag != TT_ARG_TENSOR || kernel.is_generated_) {
        continue;
      }
      const tt_storage *storage = args[written].u.tensor.storage;
      for (size_t i = 0; i < args.size(); i++) {
        if (i != written && args[i].tag == TT_ARG_TENSOR && args[i].u.tensor.storage == storage) {
          const at::Tensor &out = value(written).toTensor(), &operand = value(i).toTensor();
          kernel.args_[i].is_apart ? at::assert_no_overlap(out, operand) : at::assert_no_partial_overlap(out, operand);
        } else if (C10_UNLIKELY(args[i].tag == TT_ARG_TENSORS && kernel.args_[i].is_apart)) {
          refuse_overlap(value(written).toTensor(), value(i));
        }
      }
    }
  }

  static void refuse_overlap(const at::Tensor &written, const c10::IValue &list) {
    for (const auto &element : list.toListRef()) {
      if (element.isTensor() && element.toTensor().defined() && element.toTensor().is_privateuseone()) {
        at::assert_no_overlap(written, element.toTensor());
      }
    }
  }

  // The lists are sized first: the descriptions point into them.
  void reserve() {
    size_t int_count = 0, float_count = 0, number_count = 0, tensor_count = 0;
    for (size_t i = 0; i < args.size(); i++) {
      tt_arg_kind kind = kernel.args_[i].kind;
      if (kind != TT_KIND_INTS && kind != TT_KIND_FLOATS && kind != TT_KIND_NUMBERS && kind != TT_KIND_TENSORS) {
        continue;
      }
      if (!value(i).isList()) {
        continue;
      }
      size_t count = value(i).toListRef().size();
      (kind == TT_KIND_INTS      ? int_count
       : kind == TT_KIND_FLOATS  ? float_count
       : kind == TT_KIND_NUMBERS ? number_count
                                 : tensor_count) += count;
    }
    ints.reserve(int_count);
    floats.reserve(float_count);
    numbers.reserve(number_count);
    tensors.reserve(tensor_count);
  }

  // A few operators (mm, bmm, dot, ...) let lazy conjugation and negation through to the backend.
  void resolve_bits(size_t i) {
    const at::Tensor &tensor = value(i).toTensor();
    at::Tensor plain = at::empty(tensor.sizes(), tensor.options());
    stack[base + i] = plain.copy_(tensor);
  }

  void convert_tensor(const Kernel::Arg &info, const at::Tensor &tensor, tt_arg &out) {
    if (!tensor.defined()) {
      return;
    }
    out.tag = TT_ARG_TENSOR;
    describe(tensor, kernel.name_.c_str(), out.u.tensor);
    if (device < 0 && out.u.tensor.storage) {
      device = tt_storage_device(out.u.tensor.storage);
    }
    if (info.is_written && !tensor.is_non_overlapping_and_dense()) {
      at::assert_no_internal_overlap(tensor);
    }
  }

  void convert_list(const Kernel::Arg &info, const c10::IValue &list, tt_arg &out) {
    auto elements = list.toListRef();
    out.count = static_cast<uint32_t>(elements.size());
    switch (info.kind) {
      case TT_KIND_INTS:
        out.tag = TT_ARG_INTS;
        out.u.ints = ints.end();
        for (const auto &element : elements) {
          ints.push_back(int_of(element));
        }
        break;
      case TT_KIND_FLOATS:
        out.tag = TT_ARG_FLOATS;
        out.u.floats = floats.end();
        for (const auto &element : elements) {
          floats.push_back(element.toDouble());
        }
        break;
      case TT_KIND_NUMBERS:
        out.tag = TT_ARG_NUMBERS;
        out.u.numbers = numbers.end();
        for (const auto &element : elements) {
          numbers.push_back(number_of(element));
        }
        break;
      default:
        out.tag = TT_ARG_TENSORS;
        out.u.tensors = tensors.end();
        for (const auto &element : elements) {
          tensors.push_back(list_element(element));
        }
    }
  }

  tt_tensor list_element(const c10::IValue &element) {
    tt_tensor out{};
    if (element.isNone() || !element.toTensor().defined()) {
      out.is_none = true;
      return out;
    }
    out = describe(element.toTensor(), kernel.name_.c_str());
    if (device < 0 && out.storage) {
      device = tt_storage_device(out.storage);
    }
    return out;
  }

  void convert(size_t i) {
    const Kernel::Arg &info = kernel.args_[i];
    const c10::IValue &v = value(i);
    tt_arg &out = args[i];
    out.tag = TT_ARG_NONE;
    out.count = 0;
    if (v.isNone()) {
      return;
    }
    switch (info.kind) {
      case TT_KIND_TENSOR:
        if (C10_UNLIKELY(v.toTensor().defined() && (v.toTensor().is_conj() || v.toTensor().is_neg()) &&
                         !info.is_written)) {
          resolve_bits(i);
        }
        convert_tensor(info, v.toTensor(), out);
        return;
      case TT_KIND_TENSORS:
      case TT_KIND_INTS:
      case TT_KIND_FLOATS:
      case TT_KIND_NUMBERS:
        convert_list(info, v, out);
        return;
      case TT_KIND_NUMBER:
      case TT_KIND_FLOAT:
        out.tag = TT_ARG_NUMBER;
        out.u.number = number_of(v);
        return;
      case TT_KIND_INT:
      case TT_KIND_BOOL:
        if (info.is_operand) {
          out.tag = TT_ARG_NUMBER;
          out.u.number = {.type = TT_S64, .u = {.i = int_of(v)}};
        } else {
          out.tag = TT_ARG_INT;
          out.u.i = int_of(v);
        }
        return;
      case TT_KIND_DTYPE:
        out.tag = TT_ARG_INT;
        out.u.i = to_dtype(v.toScalarType());
        TORCH_CHECK_TYPE(out.u.i != TT_DTYPE_INVALID, kernel.name_, "(): dtype ", v.toScalarType(),
                         " is not supported on tpu");
        return;
      case TT_KIND_STRING:
        out.tag = TT_ARG_STRING;
        out.u.string = v.toStringRef().c_str();
        return;
      case TT_KIND_GENERATOR:
        out.tag = TT_ARG_GENERATOR;
        out.u.generator = generator_of(v.toGenerator());
        return;
      case TT_KIND_OTHER:
        out.tag = TT_ARG_IGNORED;
        if (info.is_device && device < 0 && v.isDevice() && v.toDevice().has_index()) {
          device = v.toDevice().index();
        }
        return;
    }
  }

  void resize_out(const tt_results &results) {
    at::Tensor out = value(static_cast<size_t>(results.resize_arg)).toTensor();
    std::vector<int64_t> sizes(results.resize_sizes, results.resize_sizes + results.resize_ndim);
    std::vector<int64_t> strides;
    if (results.resize_strides) {
      strides.assign(results.resize_strides, results.resize_strides + results.resize_ndim);
    }
    tt_results copy = results;
    copy.storages = copy.inline_storages;
    tt_results_release(&copy);
    TORCH_CHECK(out.sizes() != c10::IntArrayRef(sizes), kernel.name_, "(): out= can't be resized to ", sizes);
    TORCH_CHECK(
        resizes < kernel.written_.size(), kernel.name_,
        "(): unsupported operation: out= is an operand too: some elements of the input tensor and the written-to "
        "tensor refer to a single memory location. Please clone() the tensor before performing the operation.");
    at::native::resize_output(out, sizes);
    if (!strides.empty()) {
      out.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
    }
    Call again(kernel, stack);
    again.resizes = resizes + 1;
    again.run();
  }

  at::Tensor take(tt_results &results, int32_t i) {
    const tt_result &result = results.results[i];
    switch (result.kind) {
      case TT_RESULT_NEW:
        return take_new(results, i);
      case TT_RESULT_ALIAS:
        return value(static_cast<size_t>(result.alias)).toTensor();
      default:
        return at::Tensor();
    }
  }

  void finish(tt_results &results) {
    c10::SmallVector<c10::IValue, 8> returns;
    int32_t next = 0;
    for (size_t position = 0; position < kernel.return_alias_.size(); position++) {
      int alias = kernel.return_alias_[position];
      if (kernel.return_is_list_[position]) {
        c10::List<at::Tensor> list;
        while (next < results.count && results.results[next].position == static_cast<int>(position)) {
          list.push_back(take(results, next++));
        }
        returns.emplace_back(alias >= 0 ? value(static_cast<size_t>(alias)) : c10::IValue(std::move(list)));
      } else if (next < results.count && results.results[next].position == static_cast<int>(position)) {
        returns.emplace_back(take(results, next++));
      } else if (alias >= 0) {
        returns.emplace_back(value(static_cast<size_t>(alias)));
      } else if (kernel.return_is_int_[position]) {
        returns.emplace_back(int64_t{0});
      } else {
        returns.emplace_back(at::Tensor());
      }
    }
    tt_results_release(&results);
    stack.resize(base);
    for (auto &returned : returns) {
      stack.push_back(std::move(returned));
    }
  }
};

// Whether two tensors of a list share memory: then one program over the list, which reads all before it writes any, is
// not what a loop over it does.
static bool shares_memory(const c10::IValue &list) {
  c10::SmallVector<const void *, 32> storages;
  for (const auto &element : list.toListRef()) {
    const at::Tensor &tensor = element.toTensor();
    if (tensor.defined() && tensor.has_storage()) {
      storages.push_back(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
    }
  }
  std::sort(storages.begin(), storages.end());
  return std::adjacent_find(storages.begin(), storages.end()) != storages.end();
}

// What only PyTorch can work out of the arguments before the core sees them.
void Kernel::complete(Stack &stack) const {
  c10::IValue *arguments = &stack[stack.size() - args_.size()];
  if (indices_ >= 0) {
    arguments[indices_] =
        expand_indices(arguments[self_].toTensor(), arguments[indices_].to<c10::List<std::optional<at::Tensor>>>());
  }
  if (total_ >= 0 && arguments[total_].isNone()) {
    arguments[total_] = arguments[0].toTensor().sum().item<int64_t>();
  }
}

// dot() of two lazy conjugates, and vdot() whose second operand alone is one, are lazy conjugates themselves.
bool Kernel::dot_lazily(Stack &stack) const {
  const at::Tensor x = stack[stack.size() - 2].toTensor(), y = stack.back().toTensor();
  if (C10_LIKELY(!y.is_conj() || x.is_conj() != (name_ == "dot"))) {
    return false;
  }
  stack.resize(stack.size() - 2);
  stack.emplace_back((name_ == "dot" ? x.conj() : x).dot(y.conj()).conj());
  return true;
}

bool Kernel::is_simple() const {
  return !is_fill_ && !is_scatter_ && !is_dot_ && indices_ < 0 && total_ < 0 && tt_op_mutated_list(op_) < 0;
}

void Kernel::call_boxed(Stack &stack) const { Call(*this, stack).run(); }

at::Tensor Kernel::call_for_one(const tt_arg *args, int32_t count, int32_t device) const {
  sync();
  tt_results results;
  check(tt_call(op_, args, count, device, &results));
  at::Tensor out = results.count ? take_new(results, 0) : at::Tensor();
  tt_results_release(&results);
  return out;
}

// A fill of an expanded tensor fills what was expanded: `self` is narrowed to that, and given back as it was.
at::Tensor Kernel::narrow_expanded(Stack *stack) const {
  c10::IValue *args = stack->data() + stack->size() - args_.size();
  const at::Tensor self = args[0].toTensor();
  if (C10_LIKELY(self.is_non_overlapping_and_dense() || self.numel() == 0)) {
    return at::Tensor();
  }
  bool by_mask = name_ == "masked_fill_";
  int64_t kept = name_ == "index_fill_" && self.dim() ? at::maybe_wrap_dim(args[1].toInt(), self.dim()) : -1;
  at::Tensor narrow = self, mask;
  for (int64_t d = 0; d < self.dim(); d++) {
    if (self.stride(d) == 0 && self.size(d) > 1 && d != kept) {
      narrow = narrow.narrow(d, 0, 1);
      mask = by_mask ? (mask.defined() ? mask : args[1].toTensor().expand(self.sizes())).any(d, true) : mask;
    }
  }
  if (narrow.is_same(self)) {
    return at::Tensor();
  }
  if (by_mask || kept >= 0) {
    TORCH_WARN("Use of ", name_, " on expanded tensors is deprecated. Please clone() the tensor before it.");
  }
  args[0] = narrow;
  if (mask.defined()) {
    args[1] = mask;
  }
  return self;
}

void Kernel::operator()(const c10::OperatorHandle &handle, c10::DispatchKeySet, Stack *stack) {
  constexpr auto kLoop = c10::DispatchKey::CompositeExplicitAutograd;
  const int32_t list = tt_op_mutated_list(op_);
  if (C10_UNLIKELY(list >= 0) && handle.hasKernelForDispatchKey(kLoop) &&
      shares_memory((*stack)[stack->size() - args_.size() + static_cast<size_t>(list)])) {
    handle.callBoxedForDispatchKey(kLoop, *stack);
    return;
  }
  constexpr auto kCopies = c10::DispatchKey::CompositeExplicitAutogradNonFunctional;
  if (C10_UNLIKELY(is_scatter_) && !(*stack)[stack->size() - args_.size()].toTensor().is_non_overlapping_and_dense() &&
      handle.hasKernelForDispatchKey(kCopies)) {
    handle.callBoxedForDispatchKey(kCopies, *stack);  // a copy with the gaps of `self`
    return;
  }
  if (C10_UNLIKELY(indices_ >= 0 || total_ >= 0)) {
    complete(*stack);
  }
  if (C10_UNLIKELY(is_dot_) && dot_lazily(*stack)) {
    return;
  }
  const at::Tensor expanded = is_fill_ ? narrow_expanded(stack) : at::Tensor();
  Call call(*this, *stack);
  call.run();
  if (C10_UNLIKELY(expanded.defined())) {
    stack->back() = expanded;
  }
}

}  // namespace torchtpu
