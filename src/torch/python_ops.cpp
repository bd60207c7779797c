// Operators that exist for the Python package, which has no other way to a C++ object of PyTorch.
#include <ATen/core/Generator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <torch/library.h>

namespace {

// PyTorch infers an optional for a returned generator, so the schema says so.
at::Generator default_generator(int64_t device) {
  // Not through at::globalContext(), which would create the client.
  return at::detail::getPrivateUse1Hooks().getDefaultGenerator(static_cast<c10::DeviceIndex>(device));
}

}  // namespace

TORCH_LIBRARY_FRAGMENT(torchtpu, library) {
  library.def("default_generator(int device) -> Generator?", &default_generator);
}
