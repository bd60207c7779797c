// Kernels for every rule: the functional form, and the in-place and out= forms that the schemas offer.
#include <torch/library.h>

#include <cstdlib>
#include <set>

#include "direct.h"

namespace torchtpu {
namespace {

struct Name {
  std::string base, overload;  // "aten::add", "Tensor"
  explicit Name(const std::string &full) {
    size_t dot = full.find('.');
    base = full.substr(0, dot);
    overload = dot == std::string::npos ? "" : full.substr(dot + 1);
  }
  Name(std::string b, std::string o) : base(std::move(b)), overload(std::move(o)) {}
};

bool same_type(const c10::Argument &a, const c10::Argument &b) { return *a.type() == *b.type(); }

// Whether `form` takes the functional form's operands: each argument of the form that is not out= appears there with
// the same name and type, and the functional form has no others but dtype, layout, device and pin_memory.
bool same_operands(const c10::FunctionSchema &functional, const c10::FunctionSchema &form) {
  std::set<std::string> seen;
  for (const auto &argument : form.arguments()) {
    if (argument.is_out()) {
      continue;
    }
    bool found = false;
    for (const auto &other : functional.arguments()) {
      found = found || (other.name() == argument.name() && same_type(other, argument));
    }
    if (!found) {
      return false;
    }
    seen.insert(argument.name());
  }
  static const std::set<std::string> factory = {"dtype", "layout", "device", "pin_memory", "memory_format"};
  for (const auto &argument : functional.arguments()) {
    if (!seen.count(argument.name()) && !factory.count(argument.name())) {
      return false;
    }
  }
  return true;
}

class Registrar {
 public:
  explicit Registrar(torch::Library &library) : library_(library) {}

  void add_rule(const std::string &rule) {
    Name name(rule);
    auto functional = find(name);
    if (!functional) {
      return;  // an operator of another PyTorch
    }
    install(rule, *functional);
    auto in_place = find(Name(name.base + "_", name.overload));
    if (in_place && same_operands(functional->schema(), in_place->schema())) {
      install(rule, *in_place);
    }
    for (const std::string &overload : out_overloads(name.overload)) {
      auto out = find(Name(name.base, overload));
      if (out && same_operands(functional->schema(), out->schema()) && has_out(out->schema())) {
        install(rule, *out);
        break;
      }
    }
  }

 private:
  static std::optional<c10::OperatorHandle> find(const Name &name) {
    return c10::Dispatcher::singleton().findSchema({name.base, name.overload});
  }
  static bool has_out(const c10::FunctionSchema &schema) {
    return !schema.arguments().empty() && schema.arguments().back().is_out();
  }
  // How PyTorch names the out= form of an overload.
  static std::vector<std::string> out_overloads(const std::string &overload) {
    if (overload.empty()) {
      return {
          "out",    "grad_input", "output",    "forward",    "values", "Tensor_out", "default_out", "correction_out",
          "x_out",  "all_out",    "unary_out", "dtype_out",  "L",      "X",          "a",           "inverse",
          "result", "sign",       "U",         "eigenvalues"};
    }
    const std::string last = overload.substr(overload.rfind('_') + 1);  // sum.dim_IntList, sum.IntList_out
    return {overload + "_out",
            last + "_out",
            "out",
            "out_" + overload,
            overload + "_max",
            overload + "_min",
            overload + "_values",
            "dim_max",
            "dim_min",
            "grad_input",
            "values_" + overload,
            "dim_values",
            "values",
            "out_mode",
            "L",
            "output"};
  }
  void install(const std::string &rule, const c10::OperatorHandle &handle) {
    const auto &schema = handle.schema();
    std::string name = schema.name() + (schema.overload_name().empty() ? "" : "." + schema.overload_name());
    if (!installed_.insert(name).second) {
      return;
    }
    auto kernel = Kernel::create(rule, handle);
    if (kernel) {
      auto function = direct_function(kernel, schema);
      library_.impl(name.substr(name.find("::") + 2).c_str(),
                    function ? std::move(*function) : torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)));
    }
  }

  torch::Library &library_;
  std::set<std::string> installed_;
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, library) {
  Registrar registrar(library);
  for (int32_t i = 0;; i++) {
    const char *rule = tt_rule_name_at(i);
    if (!rule) {
      break;
    }
    if (!std::strncmp(rule, "aten::", 6)) {
      registrar.add_rule(rule);
    }
  }
}

}  // namespace
}  // namespace torchtpu
