// Operators that exist for the Python package, which has no other way to a C++ object of PyTorch.
#include <ATen/Context.h>
#include <ATen/core/Generator.h>
#include <torch/library.h>

namespace {

// PyTorch infers an optional for a returned generator, so the schema says so.
at::Generator default_generator(int64_t device) {
  return at::globalContext().defaultGenerator(
      c10::Device(c10::DeviceType::PrivateUse1, static_cast<c10::DeviceIndex>(device)));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torchtpu, library) {
  library.def("default_generator(int device) -> Generator?", &default_generator);
}
