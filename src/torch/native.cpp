// Operators that are about storages, not values: allocation, views, copies, resizing, and what needs the host.
#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/native/UnaryOps.h>
#include <ATen/ops/_conj.h>
#include <ATen/ops/_neg_view.h>
#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/arange.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/clone.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_strided.h>
#include <ATen/ops/eq.h>
#include <ATen/ops/index.h>
#include <ATen/ops/narrow.h>
#include <ATen/ops/nonzero.h>
#include <ATen/ops/scalar_tensor.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <c10/core/impl/VirtualGuardImpl.h>
#include <torch/library.h>

#include "direct.h"
#include "internal_ops.h"
#include "shim.h"
#include "torchtpu/observe.h"

namespace torchtpu {
namespace {

using at::IntArrayRef;
using at::Tensor;

// ---- allocation ----
c10::ScalarType supported(std::optional<c10::ScalarType> dtype) {
  c10::ScalarType type = c10::dtype_or_default(dtype);
  TORCH_CHECK_TYPE(to_dtype(type) != TT_DTYPE_INVALID, "dtype ", type, " is not supported on tpu");
  return type;
}

tt_storage *new_storage(std::optional<c10::Device> device, size_t nbytes) {
  tt_storage *storage = nullptr;
  check(tt_storage_create(device && device->has_index() ? device->index() : -1, nbytes, &storage));
  return storage;
}

void refuse_pinning(std::optional<bool> pin) {
  TORCH_CHECK(!pin.value_or(false), "Only dense CPU tensors can be pinned");
}

Tensor empty_strided(IntArrayRef sizes, IntArrayRef strides, std::optional<c10::ScalarType> dtype,
                     std::optional<c10::Layout> layout, std::optional<c10::Device> device, std::optional<bool> pin) {
  refuse_pinning(pin);
  TORCH_CHECK(!layout || *layout == c10::kStrided, "tpu tensors are strided, not ", *layout);
  c10::ScalarType type = supported(dtype);
  at::detail::check_size_nonnegative(sizes);
  size_t nbytes = at::detail::computeStorageNbytes(sizes, strides, c10::elementSize(type));
  return make_tensor(new_storage(device, nbytes), type, sizes, strides);
}

Tensor empty(IntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
             std::optional<c10::Device> device, std::optional<bool> pin, std::optional<at::MemoryFormat> format) {
  refuse_pinning(pin);
  TORCH_CHECK(!layout || *layout == c10::kStrided, "tpu tensors are strided, not ", *layout);
  c10::ScalarType type = supported(dtype);
  at::detail::check_size_nonnegative(sizes);
  size_t nbytes = at::detail::computeStorageNbytesContiguous(sizes, c10::elementSize(type));
  Tensor tensor = make_tensor(new_storage(device, nbytes), type, {0}, {1});
  tensor.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  if (format && *format != at::MemoryFormat::Contiguous && *format != at::MemoryFormat::Preserve) {
    tensor.unsafeGetTensorImpl()->empty_tensor_restride(*format);
  }
  return tensor;
}

// ---- views ----
Tensor as_strided(const Tensor &self, IntArrayRef sizes, IntArrayRef strides, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, sizes, strides, offset);
}
Tensor view(const Tensor &self, IntArrayRef sizes) { return at::native::view(self, sizes); }
Tensor reshape_alias(const Tensor &self, IntArrayRef sizes, IntArrayRef strides) {
  return at::native::_reshape_alias(self, sizes, strides);
}
Tensor unfold(const Tensor &self, int64_t dim, int64_t size, int64_t step) {
  return at::native::unfold(self, dim, size, step);
}
Tensor view_as_real(const Tensor &self) { return at::native::view_as_real(self); }
Tensor view_as_complex(const Tensor &self) { return at::native::view_as_complex(self); }

// A copy of a part. The part is a view first, so that one program serves every place.
Tensor part_of(const Tensor &self, int64_t dim, const c10::SymInt &from, const c10::SymInt &count) {
  int64_t start = from.expect_int(), length = count.expect_int();
  TORCH_CHECK(self.dim() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  TORCH_CHECK(dim < self.dim(), "narrow_copy(): dim ", dim, " is beyond the last of ", self.dim());
  int64_t size = self.size(dim);
  TORCH_CHECK_INDEX(-size <= start && start <= size, "start out of range (expected to be in range of [", -size, ", ",
                    size, "], but got ", start, ")");
  start += start < 0 ? size : 0;
  TORCH_CHECK(length >= 0 && start <= size - length, "start (", start, ") + length (", length,
              ") exceeds dimension size (", size, ").");
  return at::narrow(self, dim, start, length);
}
Tensor narrow_copy(const Tensor &self, int64_t dim, c10::SymInt start, c10::SymInt length) {
  return at::clone(part_of(self, dim, start, length), at::MemoryFormat::Contiguous);
}
Tensor &narrow_copy_out(const Tensor &self, int64_t dim, c10::SymInt start, c10::SymInt length, Tensor &out) {
  Tensor part = part_of(self, dim, start, length);
  TORCH_CHECK(out.scalar_type() == self.scalar_type(), "Expected out tensor to have dtype ", self.scalar_type(),
              ", but got ", out.scalar_type(), " instead");
  at::native::resize_output(out, part.sizes());
  return out.copy_(part);
}

// Zeros without memory, with which autograd stands for tangents and gradients that are not there. PyTorch makes real
// ones of them before an operator here sees them.
Tensor zero_tensor(c10::SymIntArrayRef sizes, std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                   std::optional<c10::Device> device, std::optional<bool>) {
  c10::ScalarType type = supported(dtype);
  c10::Device place = device.value_or(c10::Device(kTpu));
  if (!place.has_index()) {
    place = c10::Device(kTpu, c10::impl::VirtualGuardImpl(kTpu).getDevice().index());
  }
  at::native::ZeroTensorAllocator none(place);
  c10::DispatchKeySet keys({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor});
  return at::detail::empty_generic_symint(sizes, &none, keys, type, std::nullopt);
}

// ---- resizing and rebinding ----
void grow_storage(const Tensor &tensor) {
  c10::TensorImpl *impl = tensor.unsafeGetTensorImpl();
  if (impl->numel() == 0) {
    return;
  }
  size_t need = at::detail::computeStorageNbytes(impl->sizes(), impl->strides(), impl->itemsize(),
                                                 static_cast<size_t>(impl->storage_offset()));
  if (need > impl->storage().nbytes()) {
    at::detail::getPrivateUse1Hooks().resizePrivateUse1Bytes(impl->storage(), need);
  }
}

const Tensor &resize(const Tensor &self, IntArrayRef sizes, std::optional<at::MemoryFormat> format) {
  at::detail::check_size_nonnegative(sizes);
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  if (impl->sizes() != sizes) {
    impl->set_sizes_contiguous(sizes);
    grow_storage(self);
  }
  if (format) {
    TORCH_CHECK(*format != at::MemoryFormat::Preserve, "Unsupported memory format ", *format);
    impl->empty_tensor_restride(*format);
  }
  return self;
}

Tensor &set_storage_offset(Tensor &self, at::Storage source, int64_t offset, IntArrayRef sizes, IntArrayRef strides) {
  at::native::checkSetStorage(self, std::move(source), offset, sizes, strides);
  c10::TensorImpl *impl = self.unsafeGetTensorImpl();
  if (strides.data()) {
    impl->set_sizes_and_strides(sizes, strides, offset);
  } else {
    impl->set_sizes_contiguous(sizes);
    impl->set_storage_offset(offset);
  }
  grow_storage(self);
  return self;
}

Tensor &set_storage(Tensor &self, at::Storage source) {
  int64_t count = static_cast<int64_t>(source.nbytes() / self.itemsize());
  return set_storage_offset(self, std::move(source), 0, {count}, {1});
}

Tensor &set_tensor(Tensor &self, const Tensor &source) {
  return self.unsafeGetTensorImpl() == source.unsafeGetTensorImpl()
             ? self
             : set_storage_offset(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
}

Tensor &set_empty(Tensor &self) {
  c10::Storage storage(c10::Storage::use_byte_size_t(), 0, make_data_ptr(new_storage(self.device(), 0)), allocator(),
                       true);
  return set_storage_offset(self, std::move(storage), 0, {0}, {});
}

bool is_set_to(const Tensor &self, const Tensor &other) {
  return self.storage().unsafeGetStorageImpl() == other.storage().unsafeGetStorageImpl() &&
         self.storage_offset() == other.storage_offset() && self.sizes() == other.sizes() &&
         self.strides() == other.strides();
}

// Module.to() keeps its Parameter objects if their data may be swapped between the CPU and tpu.
bool compatible(const Tensor &self, const Tensor &from) {
  auto plain = [](const Tensor &t) { return (t.is_cpu() || t.device().type() == kTpu) && t.layout() == c10::kStrided; };
  return (plain(self) && plain(from)) || self.unsafeGetTensorImpl()->has_compatible_shallow_copy_type(from.key_set());
}

// ---- copies ----
// The tensor without its conjugate and negative bits: what lies in memory.
Tensor physical(const Tensor &tensor) {
  Tensor plain = tensor.is_conj() ? at::_conj(tensor) : tensor;
  return plain.is_neg() ? at::_neg_view(plain) : plain;
}

void apply_bits(const Tensor &memory, bool conjugate, bool negate) {
  if (conjugate) {
    memory.conj_physical_();
  }
  if (negate) {
    memory.neg_();
  }
}

void copy_to_device(const Tensor &source, const Tensor &destination) {
  Tensor host = source.resolve_conj().resolve_neg().to(destination.scalar_type());
  Tensor memory = physical(destination);
  if (destination.is_conj() || destination.is_neg()) {
    host = host.clone();
    apply_bits(host, destination.is_conj(), destination.is_neg());
  }
  host = host.expand(memory.sizes()).contiguous();
  tt_tensor description = describe(memory, "copy_");
  check(tt_copy_from_host(&description, host.const_data_ptr()));
}

void copy_to_host(const Tensor &source, const Tensor &destination) {
  Tensor memory = physical(source);
  tt_tensor description = describe(memory, "copy_");
  bool direct = destination.scalar_type() == source.scalar_type() && destination.is_contiguous() &&
                destination.sizes() == source.sizes() && !destination.is_conj() && !destination.is_neg();
  Tensor host = direct ? destination : at::empty(source.sizes(), source.options().device(c10::kCPU));
  check(tt_copy_to_host(&description, host.mutable_data_ptr()));
  apply_bits(host, source.is_conj(), source.is_neg());
  if (!direct) {
    destination.copy_(host);
  }
}

void copy_memory(const Tensor &from, const Tensor &to) {
  tt_tensor from_description = describe(from, "copy_"), to_description = describe(to, "copy_");
  check(tt_copy(&to_description, &from_description));
}

void copy_on_device(const Tensor &source, const Tensor &destination) {
  at::assert_no_internal_overlap(destination);
  at::assert_no_partial_overlap(destination, source);
  Tensor from = physical(source), to = physical(destination);
  copy_memory(from, to);
  apply_bits(to, source.is_conj() != destination.is_conj(), source.is_neg() != destination.is_neg());
}

// The destination's shape is not broadcast. Empty tensors don't reach a program that would see it.
void check_shapes(const Tensor &source, const Tensor &destination) {
  if (C10_UNLIKELY(source.sizes() != destination.sizes())) {
    auto shape = at::infer_size_dimvector(destination.sizes(), source.sizes());
    TORCH_CHECK(destination.sizes() == IntArrayRef(shape), "output with shape ", destination.sizes(),
                " doesn't match the broadcast shape ", IntArrayRef(shape));
  }
}

// Two tensors that are the same memory in the same way: there is nothing to copy, even where elements overlap.
bool same_data(const Tensor &a, const Tensor &b) {
  return a.storage().unsafeGetStorageImpl() == b.storage().unsafeGetStorageImpl() &&
         a.storage_offset() == b.storage_offset() && a.sizes() == b.sizes() && a.strides() == b.strides() &&
         a.scalar_type() == b.scalar_type() && a.is_conj() == b.is_conj() && a.is_neg() == b.is_neg();
}

Tensor copy_from(const Tensor &source, const Tensor &destination, bool) {
  check_shapes(source, destination);
  if (C10_UNLIKELY(same_data(source, destination))) {
    return destination;
  }
  if (!source.device().is_cpu() && source.device().type() != kTpu) {
    return copy_from(source.cpu(), destination, false);
  }
  if (source.device().type() == kTpu && destination.device().type() == kTpu) {
    // A complex source of a real destination, and the like, conjugates first.
    bool mixed = source.is_conj() && !destination.is_complex();
    copy_on_device(mixed ? physical(source) : source, destination);
  } else if (source.device().type() == kTpu) {
    if (destination.is_cpu()) {
      copy_to_host(source, destination);
    } else {
      destination.copy_(source.cpu());
    }
  } else {
    copy_to_device(source, destination);
  }
  return destination;
}

// What PyTorch's own copy_ comes to between tensors of the device, which asks the dispatcher for `_copy_from`.
Tensor &copy(Tensor &self, const Tensor &source, bool non_blocking) {
  if (C10_UNLIKELY(!is_plain(self) || !is_plain(source))) {
    return at::native::copy_(self, source, non_blocking);
  }
  check_shapes(source, self);
  if (C10_LIKELY(!same_data(source, self))) {
    at::assert_no_internal_overlap(self);
    at::assert_no_partial_overlap(self, source);
    copy_memory(source, self);
  }
  return self;
}

Tensor copy_from_and_resize(const Tensor &source, const Tensor &destination) {
  destination.resize_(source.sizes());
  return copy_from(source, destination, false);
}

c10::Scalar local_scalar_dense(const Tensor &self) {
  TORCH_CHECK(self.numel() == 1, "a Tensor with ", self.numel(), " elements cannot be converted to Scalar");
  alignas(16) unsigned char bytes[16];
  tt_tensor description = describe(self, "item");
  tt_explain_item();
  check(tt_copy_to_host(&description, bytes));
  return to_scalar(bytes, self.scalar_type());
}

// ---- what needs the host ----
bool equal(const Tensor &self, const Tensor &other) {
  if (self.sizes() != other.sizes()) {
    return false;
  }
  return self.numel() == 0 || at::eq(self, other).all().item<bool>();
}

// How many there are has to reach the host; where they are needn't. The result is the head of an array with room for
// all, so that one program serves every count.
Tensor nonzero_kernel(const Tensor &self) {
  if (self.numel() == 0 || self.dim() == 0) {
    const int64_t count = self.numel() && self.is_nonzero() ? 1 : 0;
    return at::empty_strided({count, self.dim()}, {1, count}, self.options().dtype(c10::kLong));
  }
  static auto op = internal_op<std::tuple<Tensor, Tensor>(const Tensor &)>("torchtpu::nonzero_columns");
  auto [columns, number] = op.call(self);
  const int64_t count = number.item<int64_t>();
  return columns.as_strided({count, self.dim()}, {1, count});
}

// For out= forms that do not take one of their operands.
void refuse_overlap(const Tensor &out, std::initializer_list<Tensor> operands) {
  at::assert_no_internal_overlap(out);
  for (const Tensor &operand : operands) {
    at::assert_no_overlap(out, operand);
  }
}

Tensor &nonzero_out(const Tensor &self, Tensor &out) {
  TORCH_CHECK(out.scalar_type() == c10::kLong, "nonzero: Expected out tensor to have scalar type Long but got ",
              out.scalar_type());
  refuse_overlap(out, {self});
  Tensor result = nonzero_kernel(self);
  if (at::native::resize_output(out, result.sizes())) {
    out.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
  }
  return out.copy_(result);
}

Tensor masked_select(const Tensor &self, const Tensor &mask) {
  TORCH_CHECK(mask.scalar_type() == c10::kBool, "masked_select: expected BoolTensor for mask");
  const Tensor chosen = mask.dim() ? mask : mask.unsqueeze(0), from = self.dim() ? self : self.unsqueeze(0);
  auto expanded = at::expand_outplace(chosen, from);
  return at::index(*std::get<1>(expanded), {std::optional<Tensor>(*std::get<0>(expanded))});
}

Tensor &masked_select_out(const Tensor &self, const Tensor &mask, Tensor &out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  refuse_overlap(out, {self, mask});
  Tensor result = masked_select(self, mask);
  at::native::resize_output(out, result.sizes());
  return out.copy_(result);
}

Tensor make_dep_token(std::optional<c10::ScalarType> dtype, std::optional<c10::Layout> layout,
                      std::optional<c10::Device> device, std::optional<bool> pin,
                      std::optional<c10::MemoryFormat> format) {
  return at::empty({}, dtype, layout, device, pin, format);
}

void record_stream(Tensor &, at::Stream) {}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", TORCH_FN(empty));
  m.impl("empty_strided", TORCH_FN(empty_strided));
  m.impl("as_strided", TORCH_FN(as_strided));
  m.impl("view", TORCH_FN(view));
  m.impl("_reshape_alias", TORCH_FN(reshape_alias));
  m.impl("unfold", TORCH_FN(unfold));
  m.impl("view_as_real", TORCH_FN(view_as_real));
  m.impl("view_as_complex", TORCH_FN(view_as_complex));
  m.impl("narrow_copy", TORCH_FN(narrow_copy));
  m.impl("narrow_copy.out", TORCH_FN(narrow_copy_out));
  m.impl("_efficientzerotensor", TORCH_FN(zero_tensor));
  m.impl("resize_", TORCH_FN(resize));
  m.impl("set_.source_Storage", TORCH_FN(set_storage));
  m.impl("set_.source_Storage_storage_offset", TORCH_FN(set_storage_offset));
  m.impl("set_.source_Tensor", TORCH_FN(set_tensor));
  m.impl("set_", TORCH_FN(set_empty));
  m.impl("is_set_to", TORCH_FN(is_set_to));
  m.impl("_has_compatible_shallow_copy_type", TORCH_FN(compatible));
  m.impl("copy_", TORCH_FN(copy));
  m.impl("_copy_from", TORCH_FN(copy_from));
  m.impl("_copy_from_and_resize", TORCH_FN(copy_from_and_resize));
  m.impl("_local_scalar_dense", TORCH_FN(local_scalar_dense));
  m.impl("equal", TORCH_FN(equal));
  m.impl("nonzero", TORCH_FN(nonzero_kernel));
  m.impl("nonzero.out", TORCH_FN(nonzero_out));
  m.impl("masked_select", TORCH_FN(masked_select));
  m.impl("masked_select.out", TORCH_FN(masked_select_out));
  m.impl("_make_dep_token", TORCH_FN(make_dep_token));
  m.impl("record_stream", TORCH_FN(record_stream));
}

// Copies look at the bits themselves: resolving them first would copy again, and so on.
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", torch::CppFunction::makeFallthrough()); }

}  // namespace

// ---- indices ----
static void expand_mask(const Tensor &self, const Tensor &mask, int64_t at_dim, std::vector<Tensor> &out) {
  for (int64_t d = 0; d < mask.dim(); d++) {
    TORCH_CHECK_INDEX(at_dim + d < self.dim() && mask.size(d) == self.size(at_dim + d), "The shape of the mask ",
                      mask.sizes(), " at index ", d, " does not match the shape of the indexed tensor ", self.sizes(),
                      " at index ", at_dim + d);
  }
  Tensor positions = at::nonzero(mask);
  for (int64_t d = 0; d < mask.dim(); d++) {
    out.push_back(positions.select(1, d));
  }
}

c10::List<std::optional<Tensor>> expand_indices(const Tensor &self, const c10::List<std::optional<Tensor>> &indices) {
  std::vector<Tensor> flat;
  int64_t given = 0;
  for (const std::optional<Tensor> &entry : indices) {
    given++;
    if (!entry || !entry->defined()) {
      flat.emplace_back();
      continue;
    }
    Tensor index = *entry;
    c10::ScalarType type = index.scalar_type();
    TORCH_CHECK_INDEX(type == c10::kLong || type == c10::kInt || type == c10::kByte || type == c10::kBool,
                      "tensors used as indices must be long, int, byte or bool tensors");
    if (index.is_cpu() && self.device().type() == kTpu) {
      index = index.to(self.device());
    }
    if (type == c10::kByte || type == c10::kBool) {
      expand_mask(self, index, static_cast<int64_t>(flat.size()), flat);
    } else {
      flat.push_back(index);
    }
  }
  TORCH_CHECK_INDEX(static_cast<int64_t>(flat.size()) <= self.dim(), "too many indices for tensor of dimension ",
                    self.dim(), " (got ", flat.size(), ")");
  c10::List<std::optional<Tensor>> out;
  out.reserve(flat.size());
  for (const Tensor &index : flat) {
    out.push_back(index.defined() ? std::optional<Tensor>(index) : std::nullopt);
  }
  return out;
}

}  // namespace torchtpu

namespace at::native {
// torch.kaiser_window asks the stub, whose output holds nothing yet.
static void kaiser_window(TensorIteratorBase &iter, int64_t length, double beta) {
  Tensor window = iter.tensor(0);
  at::arange_out(window, length);
  window.mul_(2.0 / static_cast<double>(length - 1)).sub_(1).square_().neg_().add_(1).sqrt_().mul_(beta).i0_();
  window.div_(at::scalar_tensor(beta, at::kDouble).i0_().item<double>());
}
REGISTER_PRIVATEUSE1_DISPATCH(kaiser_window_stub, &kaiser_window)
}  // namespace at::native
