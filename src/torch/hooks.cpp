// Random generators, and the hooks by which PyTorch asks a backend about itself.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/EmptyTensor.h>
#include <ATen/core/GeneratorForPrivateuseone.h>
#include <ATen/detail/PrivateUse1HooksInterface.h>

#include <cstring>
#include <mutex>

#include "shim.h"

namespace torchtpu {
namespace {

// The state is the seed and the offset: 16 bytes. The numbers themselves live in the C core.
class Generator final : public c10::GeneratorImpl {
 public:
  Generator(c10::DeviceIndex index, tt_generator *borrowed)
      : c10::GeneratorImpl(c10::Device(kTpu, index), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1)),
        handle_(borrowed) {
    if (!handle_) {
      check(tt_generator_create(index, &handle_));
      owned_ = true;
    }
  }
  ~Generator() override {
    if (owned_) {
      tt_generator_free(handle_);
    }
  }
  tt_generator *handle() const { return handle_; }

  void set_current_seed(uint64_t seed) override { tt_generator_set(handle_, seed, 0); }
  void set_offset(uint64_t offset) override { tt_generator_set(handle_, current_seed(), offset); }
  uint64_t get_offset() const override { return state(1); }
  uint64_t current_seed() const override { return state(0); }
  uint64_t seed() override {
    uint64_t seed = c10::detail::getNonDeterministicRandom();
    set_current_seed(seed);
    return seed;
  }
  void set_state(const c10::TensorImpl &state) override {
    TORCH_CHECK(state.device_type() == c10::DeviceType::CPU && state.dtype() == caffe2::TypeMeta::Make<uint8_t>() &&
                    state.numel() == 16 && state.is_contiguous(),
                "RNG state must be a contiguous CPU torch.ByteTensor of 16 elements");
    uint64_t words[2];
    std::memcpy(words, state.data(), sizeof words);
    tt_generator_set(handle_, words[0], words[1]);
  }
  c10::intrusive_ptr<c10::TensorImpl> get_state() const override {
    at::Tensor tensor = at::detail::empty_cpu({16}, c10::ScalarType::Byte);
    uint64_t words[2];
    tt_generator_get(handle_, &words[0], &words[1]);
    std::memcpy(tensor.mutable_data_ptr(), words, sizeof words);
    return tensor.getIntrusivePtr();
  }
  // The same stream of numbers under another handle (checkpointing under torch.compile).
  c10::intrusive_ptr<c10::GeneratorImpl> graphsafe_get_state() const override { return clone(); }
  void graphsafe_set_state(const c10::intrusive_ptr<c10::GeneratorImpl> &other) override {
    // The state that was taken up before hears how far it got.
    if (borrowed_) {
      borrowed_->set_current_seed(current_seed());
      borrowed_->set_offset(get_offset());
    }
    tt_generator_set(handle_, other->current_seed(), other->get_offset());
    borrowed_ = other;
  }

 private:
  uint64_t state(int which) const {
    uint64_t words[2];
    tt_generator_get(handle_, &words[0], &words[1]);
    return words[which];
  }
  Generator *clone_impl() const override {
    auto *copy = new Generator(device().index(), nullptr);
    uint64_t words[2];
    tt_generator_get(handle_, &words[0], &words[1]);
    tt_generator_set(copy->handle_, words[0], words[1]);
    return copy;
  }
  tt_generator *handle_;
  bool owned_ = false;
  c10::intrusive_ptr<c10::GeneratorImpl> borrowed_;
};

c10::DeviceIndex or_current(c10::DeviceIndex index) {
  return index < 0 ? static_cast<c10::DeviceIndex>(tt_current_device()) : index;
}

struct Hooks final : at::PrivateUse1HooksInterface {
  bool isBuilt() const override { return true; }
  bool isAvailable() const override { return tt_is_available(); }
  bool hasPrimaryContext(c10::DeviceIndex) const override { return tt_is_initialized(); }
  void init() const override { check(tt_init()); }
  c10::DeviceIndex deviceCount() const override { return static_cast<c10::DeviceIndex>(tt_device_count()); }
  void setCurrentDevice(c10::DeviceIndex index) const override { check(tt_set_current_device(index)); }
  c10::DeviceIndex getCurrentDevice() const override { return static_cast<c10::DeviceIndex>(tt_current_device()); }
  c10::DeviceIndex exchangeDevice(c10::DeviceIndex index) const override {
    c10::DeviceIndex old = getCurrentDevice();
    setCurrentDevice(index);
    return old;
  }
  c10::DeviceIndex maybeExchangeDevice(c10::DeviceIndex index) const override {
    c10::DeviceIndex old = getCurrentDevice();
    if (index >= 0) {
      setCurrentDevice(index);
    }
    return old;
  }

  const at::Generator &getDefaultGenerator(c10::DeviceIndex index) const override {
    static std::mutex mutex;
    static std::vector<at::Generator> &generators = *new std::vector<at::Generator>;
    index = or_current(index);
    tt_generator *handle = tt_default_generator(index);
    TORCH_CHECK(handle, "tpu:", static_cast<int>(index), " does not exist: this process has ", tt_device_count(),
                " tpu device(s)");
    std::lock_guard<std::mutex> lock(mutex);
    generators.reserve(TT_MAX_DEVICES);  // references stay valid
    while (generators.size() <= static_cast<size_t>(index)) {
      auto next = static_cast<c10::DeviceIndex>(generators.size());
      generators.push_back(at::make_generator<Generator>(next, tt_default_generator(next)));
    }
    return generators[static_cast<size_t>(index)];
  }
  at::Generator getNewGenerator(c10::DeviceIndex index) const override {
    return at::make_generator<Generator>(or_current(index), nullptr);
  }

  bool isPinnedPtr(const void *data) const override { return is_pinned(data); }
  c10::Allocator *getPinnedMemoryAllocator() const override { return pinned_allocator(); }
  at::Device getDeviceFromPtr(void *) const override { TORCH_CHECK(false, "a tpu address does not tell its device"); }

  void resizePrivateUse1Bytes(const c10::Storage &storage, size_t nbytes) const override {
    c10::StorageImpl *impl = storage.unsafeGetStorageImpl();
    auto *handle = storage_in(impl->data_ptr());
    TORCH_CHECK(handle, "resize of a tpu storage that holds nothing");
    check(tt_storage_resize(handle, nbytes));
    c10::DataPtr old = impl->set_data_ptr(make_data_ptr(handle));
    old.release_context();  // the handle moved
    impl->set_nbytes(nbytes);
  }
};

const bool g_registered = (at::RegisterPrivateUse1HooksInterface(new Hooks), true);

}  // namespace

tt_generator *generator_of(const std::optional<at::Generator> &generator) {
  if (!generator || !generator->defined()) {
    return nullptr;
  }
  TORCH_CHECK(generator->device().type() == kTpu, "Expected a 'tpu' device type for generator but found '",
              generator->device().type(), "'");
  return static_cast<Generator *>(generator->unsafeGetGeneratorImpl())->handle();
}

}  // namespace torchtpu
