// What the shim's files share: conversions between PyTorch's objects and the C core's.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Allocator.h>
#include <c10/util/Exception.h>

#include <string>

#include "torchtpu/torchtpu.h"

namespace torchtpu {

inline constexpr c10::DeviceType kTpu = c10::DeviceType::PrivateUse1;

// Throws the exception class that the status names; frees the status. NULL passes.
void check(tt_status *status);

tt_dtype to_dtype(c10::ScalarType type);  // TT_DTYPE_INVALID for what XLA does not have
c10::ScalarType to_scalar_type(uint8_t dtype);
tt_number to_number(const c10::Scalar &scalar);
c10::Scalar to_scalar(const void *bytes, c10::ScalarType type);

// The storage handle of a tpu tensor.
tt_storage *storage_in(const c10::DataPtr &data);  // refuses memory that is not the device's
tt_storage *storage_of(const at::Tensor &tensor);
// Describes a tensor; the sizes and strides are borrowed from it. A 0-d CPU tensor gives its value; any other device
// is an error that names `op`.
tt_tensor describe(const at::Tensor &tensor, const char *op);
void describe(const at::Tensor &tensor, const char *op, tt_tensor &out);  // where it is needed, without a copy

c10::Allocator *allocator();
// A DataPtr that owns the storage handle.
c10::DataPtr make_data_ptr(tt_storage *storage);
c10::Storage make_storage(tt_storage *storage);
at::Tensor make_tensor(tt_storage *storage, c10::ScalarType type, c10::IntArrayRef sizes, c10::IntArrayRef strides);

tt_generator *generator_of(const std::optional<at::Generator> &generator);

// Runs `op` on the CPU and copies back; counted, named once.
void cpu_fallback(const c10::OperatorHandle &op, torch::jit::Stack *stack);

bool is_pinned(const void *data);
c10::Allocator *pinned_allocator();

// index_put and index: boolean masks become integers, CPU indices move to the device.
c10::List<std::optional<at::Tensor>> expand_indices(const at::Tensor &self,
                                                    const c10::List<std::optional<at::Tensor>> &indices);

}  // namespace torchtpu
