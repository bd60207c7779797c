// Operators without a rule run on the CPU: counted, named once, or refused.
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>
#include <map>
#include <mutex>

#include "shim.h"
#include "torchtpu/graph.h"
#include "torchtpu/observe.h"

namespace torchtpu {
namespace {

enum Mode { kSilent, kWarn, kError };
std::atomic<int> g_mode{kWarn};
std::mutex &g_mutex = *new std::mutex;
std::map<std::string, int64_t> &g_counts = *new std::map<std::string, int64_t>;

}  // namespace

void cpu_fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) {
  const auto &schema = op.schema();
  std::string name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
  TORCH_CHECK_NOT_IMPLEMENTED(!tt_graph_is_capturing(), name, " has no rule for tpu");
  int mode = g_mode;
  TORCH_CHECK_NOT_IMPLEMENTED(mode != kError, name,
                              " has no rule for tpu, and the CPU fallback is off: allow it with "
                              "torch.tpu.cpu_fallback(\"warn\")");
  bool first;
  {
    std::lock_guard<std::mutex> lock(g_mutex);
    first = g_counts[name]++ == 0;
  }
  tt_count_fallback();
  tt_explain_fallback(name.c_str());
  if (first && mode == kWarn) {
    TORCH_WARN(name,
               " has no rule for tpu and runs on the CPU, with copies there and back. torch.tpu.fallback_ops() "
               "lists such operators.");
  }
  at::native::cpu_fallback(op, stack);
}

extern "C" {
__attribute__((visibility("default"))) void tt_shim_set_fallback_mode(int mode) { g_mode = mode; }
__attribute__((visibility("default"))) int tt_shim_get_fallback_mode() { return g_mode; }
// Lines "name count"; valid until the thread's next call.
__attribute__((visibility("default"))) const char *tt_shim_fallback_ops() {
  thread_local std::string text;
  text.clear();
  std::lock_guard<std::mutex> lock(g_mutex);
  for (const auto &[name, count] : g_counts) {
    text += name + " " + std::to_string(count) + "\n";
  }
  return text.c_str();
}
}

namespace {
void boxed_fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack) { cpu_fallback(op, stack); }

TORCH_LIBRARY_IMPL(_, PrivateUse1, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&boxed_fallback>());
}
}  // namespace

}  // namespace torchtpu
