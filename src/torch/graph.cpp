// Compiled graphs: the operators that run one and that record one.
#include <c10/util/SmallVector.h>
#include <dlfcn.h>
#include <torch/library.h>

#include <memory>
#include <vector>

#include "shim.h"
#include "torchtpu/graph.h"

namespace torchtpu {
namespace {

using torch::jit::Stack;

// Keeps the stand-ins alive while the thread records.
thread_local std::vector<at::Tensor> t_stand_ins;

// The interpreter's lock, where there is an interpreter: dropping a tensor that Python holds takes it, each time anew
// unless the thread has it. The two functions have been the same in all versions.
class PythonLock {
 public:
  PythonLock() : state_(kEnsure && kRelease && kIsInitialized && kIsInitialized() ? kEnsure() : -1) {}
  ~PythonLock() {
    if (state_ >= 0) {
      kRelease(state_);
    }
  }
  PythonLock(const PythonLock &) = delete;
  PythonLock &operator=(const PythonLock &) = delete;

 private:
  template <typename Function>
  static Function *find(const char *name) {
    return reinterpret_cast<Function *>(dlsym(RTLD_DEFAULT, name));
  }
  inline static int (*const kEnsure)() = find<int()>("PyGILState_Ensure");
  inline static void (*const kRelease)(int) = find<void(int)>("PyGILState_Release");
  inline static int (*const kIsInitialized)() = find<int()>("Py_IsInitialized");
  int state_;
};

tt_graph *graph_of(int64_t handle) { return reinterpret_cast<tt_graph *>(static_cast<intptr_t>(handle)); }

// The arguments (int graph, Tensor[] inputs, int[] numbers) on the stack, described.
struct Arguments {
  c10::ArrayRef<c10::IValue> tensors;
  c10::SmallVector<tt_tensor, 64> inputs;
  c10::SmallVector<int64_t, 8> numbers;
  tt_graph *graph;
  tt_graph_call call{};

  explicit Arguments(const Stack &stack) {
    const c10::IValue *arguments = &stack[stack.size() - 3];
    graph = graph_of(arguments[0].toInt());
    tensors = arguments[1].toListRef();
    inputs.reserve(tensors.size());
    for (const c10::IValue &tensor : tensors) {
      inputs.push_back(describe(tensor.toTensor(), "a compiled graph"));
    }
    for (const c10::IValue &number : arguments[2].toListRef()) {
      numbers.push_back(number.toInt());
    }
    call = {.inputs = inputs.data(),
            .input_count = static_cast<int32_t>(inputs.size()),
            .number_count = static_cast<int32_t>(numbers.size()),
            .numbers = numbers.data()};
  }
};

at::Tensor view_of(const c10::Storage &storage, c10::ScalarType type, c10::IntArrayRef sizes, c10::IntArrayRef strides,
                   int64_t offset) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

c10::List<at::Tensor> take_results(const Arguments &arguments, const tt_graph_results &results) {
  c10::SmallVector<c10::Storage, 16> storages;
  for (int32_t i = 0; i < results.storage_count; i++) {
    storages.push_back(make_storage(results.storages[i]));
  }
  c10::List<at::Tensor> list;
  list.reserve(static_cast<size_t>(results.count));
  for (int32_t i = 0; i < results.count; i++) {
    const tt_graph_result &result = results.results[i];
    const at::Tensor *input =
        result.input < 0 ? nullptr : &arguments.tensors[static_cast<size_t>(result.input)].toTensor();
    if (result.is_input) {
      list.push_back(*input);
      continue;
    }
    const size_t ndim = static_cast<size_t>(result.ndim);
    list.push_back(view_of(input ? input->storage() : storages[static_cast<size_t>(result.storage)],
                           to_scalar_type(result.dtype), {result.sizes, ndim}, {result.strides, ndim}, result.offset));
  }
  return list;
}

void run_graph(const c10::OperatorHandle &, Stack *stack) {
  Arguments arguments(*stack);
  tt_graph_results results;
  check(tt_graph_run(arguments.graph, &arguments.call, &results));
  auto list = take_results(arguments, results);
  tt_graph_results_release(&results);
  const bool found = results.found;
  {
    PythonLock lock;
    stack->resize(stack->size() - 3);
  }
  stack->emplace_back(std::move(list));
  stack->emplace_back(found);
}

void begin_graph(const c10::OperatorHandle &, Stack *stack) {
  const std::vector<int64_t> dying = stack->back().toIntVector();
  stack->pop_back();
  Arguments arguments(*stack);
  const size_t count = arguments.inputs.size();
  auto dies = std::make_unique<bool[]>(count + 1);
  for (int64_t i : dying) {
    TORCH_CHECK_INDEX(i >= 0 && i < static_cast<int64_t>(count), "a graph has no input ", i);
    dies[static_cast<size_t>(i)] = true;
  }
  std::vector<tt_storage *> storages(count + 1);
  std::vector<int32_t> storage_of(count + 1);
  int32_t storage_count = 0;
  check(
      tt_graph_begin(arguments.graph, &arguments.call, dies.get(), storages.data(), &storage_count, storage_of.data()));
  std::vector<c10::Storage> held;
  for (int32_t i = 0; i < storage_count; i++) {
    held.push_back(make_storage(storages[static_cast<size_t>(i)]));
  }
  c10::List<at::Tensor> list;
  for (size_t i = 0; i < count; i++) {
    const tt_tensor &input = arguments.inputs[i];
    const size_t ndim = static_cast<size_t>(input.ndim);
    at::Tensor stand_in = view_of(held[static_cast<size_t>(storage_of[i])], to_scalar_type(input.dtype),
                                  {input.sizes, ndim}, {input.strides, ndim}, input.storage ? input.offset : 0);
    const at::Tensor &real = arguments.tensors[i].toTensor();
    stand_in._set_conj(real.is_conj());
    stand_in._set_neg(real.is_neg());
    list.push_back(stand_in);
    t_stand_ins.push_back(std::move(stand_in));
  }
  stack->resize(stack->size() - 3);
  stack->emplace_back(std::move(list));
}

void end_graph(const at::TensorList results) {
  std::vector<tt_tensor> described;
  for (const at::Tensor &result : results) {
    described.push_back(describe(result, "a compiled graph"));
    TORCH_CHECK_NOT_IMPLEMENTED(described.back().storage, "a compiled graph has a result on ", result.device());
  }
  tt_status *status = tt_graph_end(described.data(), static_cast<int32_t>(described.size()));
  t_stand_ins.clear();
  check(status);
}

void abort_graph() {
  tt_graph_abort();
  t_stand_ins.clear();
}

// XLA options, as C has them; they live as long as the vectors.
struct Options {
  std::vector<const char *> names, values;
  int32_t count;

  Options(const std::vector<std::string> &of_names, const std::vector<std::string> &of_values)
      : count(static_cast<int32_t>(of_names.size())) {
    TORCH_CHECK_VALUE(of_names.size() == of_values.size(), "XLA options: ", of_names.size(), " names, ",
                      of_values.size(), " values");
    for (size_t i = 0; i < of_names.size(); i++) {
      names.push_back(of_names[i].c_str());
      values.push_back(of_values[i].c_str());
    }
  }
};

int64_t create_graph(std::string name) {
  tt_graph *graph = nullptr;
  check(tt_graph_create(name.c_str(), &graph));
  return static_cast<int64_t>(reinterpret_cast<intptr_t>(graph));
}

void set_graph_options(int64_t handle, std::vector<std::string> names, std::vector<std::string> values) {
  const Options options(names, values);
  check(tt_graph_set_options(graph_of(handle), options.names.data(), options.values.data(), options.count));
}

void check_options(std::vector<std::string> names, std::vector<std::string> values) {
  const Options options(names, values);
  check(tt_graph_check_options(options.names.data(), options.values.data(), options.count));
}

void free_graph(int64_t handle) { tt_graph_free(graph_of(handle)); }

}  // namespace

// Kernels for every device and for autograd alike: what runs a graph has done with both.
TORCH_LIBRARY_FRAGMENT(torchtpu, library) {
  library.def("run_graph(int graph, Tensor[] inputs, int[] numbers) -> (Tensor[], bool)",
              torch::CppFunction::makeFromBoxedFunction<&run_graph>());
  library.def("begin_graph(int graph, Tensor[] inputs, int[] numbers, int[] dying=[]) -> Tensor[]",
              torch::CppFunction::makeFromBoxedFunction<&begin_graph>());
  library.def("end_graph(Tensor[] results) -> ()", &end_graph);
  library.def("abort_graph() -> ()", &abort_graph);
  library.def("create_graph(str name) -> int", &create_graph);
  library.def("set_graph_options(int graph, str[] options, str[] values) -> ()", &set_graph_options);
  library.def("check_options(str[] options, str[] values) -> ()", &check_options);
  library.def("free_graph(int graph) -> ()", &free_graph);
}

}  // namespace torchtpu
