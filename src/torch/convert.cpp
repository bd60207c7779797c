// Types, numbers, errors and tensors between PyTorch and the C core.
#include <ATen/DeviceGuard.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>

#include <cstring>

#include "shim.h"

namespace torchtpu {

void check(tt_status *status) {
  if (C10_LIKELY(!status)) {
    return;
  }
  std::string message = tt_status_message(status);
  tt_code code = tt_status_code(status);
  tt_status_free(status);
  switch (code) {
    case TT_ERR_INDEX:
      C10_THROW_ERROR(IndexError, message);
    case TT_ERR_TYPE:
      C10_THROW_ERROR(TypeError, message);
    case TT_ERR_VALUE:
      C10_THROW_ERROR(ValueError, message);
    case TT_ERR_NOT_IMPLEMENTED:
      C10_THROW_ERROR(NotImplementedError, message);
    case TT_ERR_OUT_OF_MEMORY:
      C10_THROW_ERROR(OutOfMemoryError, message);
    case TT_ERR_LINALG:
      C10_THROW_ERROR(LinAlgError, message);
    default:
      C10_THROW_ERROR(Error, message);
  }
}

namespace {
struct TypePair {
  c10::ScalarType torch;
  tt_dtype dtype;
};
constexpr TypePair kTypes[] = {
    {c10::ScalarType::Bool, TT_PRED},          {c10::ScalarType::Char, TT_S8},
    {c10::ScalarType::Short, TT_S16},          {c10::ScalarType::Int, TT_S32},
    {c10::ScalarType::Long, TT_S64},           {c10::ScalarType::Byte, TT_U8},
    {c10::ScalarType::UInt16, TT_U16},         {c10::ScalarType::UInt32, TT_U32},
    {c10::ScalarType::UInt64, TT_U64},         {c10::ScalarType::Half, TT_F16},
    {c10::ScalarType::BFloat16, TT_BF16},      {c10::ScalarType::Float, TT_F32},
    {c10::ScalarType::Double, TT_F64},         {c10::ScalarType::ComplexFloat, TT_C64},
    {c10::ScalarType::ComplexDouble, TT_C128}, {c10::ScalarType::Float8_e4m3fn, TT_F8E4M3FN},
    {c10::ScalarType::Float8_e5m2, TT_F8E5M2},
};

struct TypeTables {
  uint8_t to_tt[static_cast<int>(c10::ScalarType::NumOptions)] = {};
  c10::ScalarType to_torch[TT_DTYPE_COUNT];
  TypeTables() {
    for (auto &type : to_torch) {
      type = c10::ScalarType::Undefined;
    }
    for (const TypePair &pair : kTypes) {
      to_tt[static_cast<int>(pair.torch)] = pair.dtype;
      to_torch[pair.dtype] = pair.torch;
    }
  }
};
const TypeTables kTables;
}  // namespace

tt_dtype to_dtype(c10::ScalarType type) {
  int index = static_cast<int>(type);
  return index < static_cast<int>(c10::ScalarType::NumOptions) ? static_cast<tt_dtype>(kTables.to_tt[index])
                                                               : TT_DTYPE_INVALID;
}

c10::ScalarType to_scalar_type(uint8_t dtype) {
  return dtype < TT_DTYPE_COUNT ? kTables.to_torch[dtype] : c10::ScalarType::Undefined;
}

tt_number to_number(const c10::Scalar &scalar) {
  tt_number number{};
  if (scalar.isBoolean()) {
    number.type = TT_PRED;
    number.u.i = scalar.toBool();
  } else if (scalar.isComplex()) {
    number.type = TT_C128;
    auto value = scalar.toComplexDouble();
    number.u.f[0] = value.real();
    number.u.f[1] = value.imag();
  } else if (scalar.isFloatingPoint()) {
    number.type = TT_F64;
    number.u.f[0] = scalar.toDouble();
  } else if (scalar.type() == c10::ScalarType::UInt64) {
    number.u.i = static_cast<int64_t>(scalar.toUInt64());
    number.type = number.u.i < 0 ? TT_U64 : TT_S64;
  } else {
    number.type = TT_S64;
    number.u.i = scalar.toLong();
  }
  return number;
}

c10::Scalar to_scalar(const void *bytes, c10::ScalarType type) {
  switch (type) {
#define TT_CASE(ctype, name)                  \
  case c10::ScalarType::name: {               \
    ctype value;                              \
    std::memcpy(&value, bytes, sizeof value); \
    return c10::Scalar(value);                \
  }
    AT_FORALL_SCALAR_TYPES_WITH_COMPLEX_EXCEPT_COMPLEX_HALF_F8NZ(TT_CASE)
    TT_CASE(uint16_t, UInt16)
    TT_CASE(uint32_t, UInt32)
    TT_CASE(uint64_t, UInt64)
#undef TT_CASE
    default:
      C10_THROW_ERROR(TypeError, std::string("tpu: no scalar of type ") + c10::toString(type));
  }
}

static const c10::DataPtr &data_ptr_of(const at::Tensor &tensor) {
  return tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl()->data_ptr();
}

static void free_storage(void *context) { tt_storage_free(static_cast<tt_storage *>(context)); }

// PyTorch makes storages of its own for the device: of a DLPack capsule, or to copy on write.
tt_storage *storage_in(const c10::DataPtr &data) {
  TORCH_CHECK(C10_LIKELY(data.get_deleter() == free_storage) || !data.get_context(),
              "a tpu tensor whose memory was not allocated by tpu (through DLPack?): copy it through the CPU");
  return static_cast<tt_storage *>(data.get_context());
}

tt_storage *storage_of(const at::Tensor &tensor) {
  TORCH_CHECK(tensor.unsafeGetTensorImpl()->has_storage(), "a tpu tensor without a storage");
  return storage_in(data_ptr_of(tensor));
}

static tt_number read_host_scalar(const at::Tensor &tensor) {
  const char *data = static_cast<const char *>(tensor.unsafeGetTensorImpl()->data());
  c10::ScalarType type = tensor.scalar_type();
  tt_number number{};
  if (type == c10::ScalarType::Double) {
    number.type = TT_F64;
    std::memcpy(&number.u.f[0], data, sizeof(double));
  } else if (type == c10::ScalarType::Long) {
    number.type = TT_S64;
    std::memcpy(&number.u.i, data, sizeof(int64_t));
  } else {
    number = to_number(to_scalar(data, type));
  }
  return number;
}

tt_tensor describe(const at::Tensor &tensor, const char *op) {
  tt_tensor out;
  describe(tensor, op, out);
  return out;
}

void describe(const at::Tensor &tensor, const char *op, tt_tensor &out) {
  c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  out.storage = nullptr;
  out.offset = 0;
  out.is_none = out.is_wrapped = false;
  auto sizes = impl->sizes();
  out.sizes = sizes.data();
  out.strides = impl->strides().data();
  out.ndim = static_cast<int32_t>(sizes.size());
  out.dtype = static_cast<uint8_t>(to_dtype(c10::typeMetaToScalarType(impl->dtype())));
  if (C10_LIKELY(impl->device_type() == kTpu)) {
    out.offset = impl->storage_offset();
    out.storage = storage_of(tensor);
    TORCH_CHECK(out.storage, op, "(): a tpu tensor whose storage holds nothing");
    return;
  }
  TORCH_CHECK(impl->device_type() == c10::DeviceType::CPU && sizes.empty(), op,
              "(): Expected all tensors to be on the same device, but found at least two devices, tpu:0 and ",
              tensor.device(), "! Move the operand of sizes ", sizes, " with .to(\"tpu\")");
  out.is_wrapped = impl->is_wrapped_number();
  out.host = read_host_scalar(tensor);
}

c10::DataPtr make_data_ptr(tt_storage *storage) {
  return {tt_storage_address(storage), storage, free_storage,
          c10::Device(kTpu, static_cast<c10::DeviceIndex>(tt_storage_device(storage)))};
}

c10::Storage make_storage(tt_storage *storage) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(),
                                                            tt_storage_nbytes(storage), make_data_ptr(storage),
                                                            allocator(), /*resizable=*/true));
}

at::Tensor make_tensor(tt_storage *storage, c10::ScalarType type, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  auto tensor = at::detail::make_tensor<c10::TensorImpl>(
      make_storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1), c10::scalarTypeToTypeMeta(type));
  if (sizes.size() != 1 || sizes[0] != 0 || strides[0] != 1) {
    tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  }
  return tensor;
}

}  // namespace torchtpu
