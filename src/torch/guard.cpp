// Devices, streams and events. All streams of a device share its one in-order queue; an event completes with the last
// program enqueued before it.
#include <c10/core/impl/DeviceGuardImplInterface.h>

#include <atomic>

#include "shim.h"

namespace torchtpu {
namespace {

thread_local c10::StreamId t_streams[TT_MAX_DEVICES];  // the current stream of each device

struct Guard final : c10::impl::DeviceGuardImplInterface {
  static constexpr c10::DeviceType static_type = kTpu;
  Guard() = default;
  explicit Guard(c10::DeviceType) {}

  c10::DeviceType type() const override { return kTpu; }
  c10::Device getDevice() const override { return device(tt_current_device()); }
  void setDevice(c10::Device d) const override { check(tt_set_current_device(d.index())); }
  void uncheckedSetDevice(c10::Device d) const noexcept override { tt_status_free(tt_set_current_device(d.index())); }
  c10::Device exchangeDevice(c10::Device d) const override {
    c10::Device old = getDevice();
    if (old.index() != d.index()) {
      setDevice(d);
    }
    return old;
  }
  c10::DeviceCapability getDeviceCapability(c10::Device) const override {
    c10::DeviceCapability capability;
    for (size_t i = 0; i < c10::NUMBER_OF_DEVICE_CAPABILITIES; i++) {
      if (to_dtype(static_cast<c10::ScalarType>(i)) == TT_DTYPE_INVALID) {
        capability.capability_data.capability_bits &= ~(uint64_t{1} << i);
      }
    }
    return capability;
  }
  c10::DeviceIndex deviceCount() const noexcept override { return static_cast<c10::DeviceIndex>(tt_device_count()); }

  c10::Stream getStream(c10::Device d) const override { return stream(d, t_streams[index(d)]); }
  c10::Stream getDefaultStream(c10::Device d) const override { return stream(d, 0); }
  c10::Stream getStreamFromGlobalPool(c10::Device d, bool) const override { return getNewStream(d, 0); }
  c10::Stream getNewStream(c10::Device d, int) const override {
    static std::atomic<c10::StreamId> next{1};
    return stream(d, next++);
  }
  c10::Stream exchangeStream(c10::Stream s) const override {
    c10::Stream old = getStream(s.device());
    t_streams[index(s.device())] = s.id();
    return old;
  }
  void *getStreamNativeHandle(const c10::Stream) const override { return nullptr; }
  bool queryStream(const c10::Stream &s) const override { return tt_is_idle(index(s.device())); }
  void synchronizeStream(const c10::Stream &s) const override { check(tt_synchronize(index(s.device()))); }
  void synchronizeDevice(const c10::DeviceIndex i) const override { check(tt_synchronize(i)); }
  void recordDataPtrOnStream(const c10::DataPtr &, const c10::Stream &) const override {}

  void record(void **event, const c10::Stream &s, const c10::DeviceIndex, const c10::EventFlag) const override {
    if (!*event) {
      tt_event *created = nullptr;
      check(tt_event_create(&created));
      *event = created;
    }
    check(tt_event_record(static_cast<tt_event *>(*event), index(s.device())));
  }
  void block(void *, const c10::Stream &) const override {}  // streams share the queue: it is in order already
  bool queryEvent(void *event) const override { return !event || tt_event_query(static_cast<tt_event *>(event)); }
  void synchronizeEvent(void *event) const override {
    if (event) {
      check(tt_event_synchronize(static_cast<tt_event *>(event)));
    }
  }
  void destroyEvent(void *event, const c10::DeviceIndex) const noexcept override {
    if (event) {
      tt_event_free(static_cast<tt_event *>(event));
    }
  }
  double elapsedTime(void *start, void *end, const c10::DeviceIndex) const override {
    TORCH_CHECK(start && end, "Both events must be recorded before calculating elapsed time.");
    double ms = 0;
    check(tt_event_elapsed(static_cast<tt_event *>(start), static_cast<tt_event *>(end), &ms));
    return ms;
  }

 private:
  static c10::Device device(int i) { return {kTpu, static_cast<c10::DeviceIndex>(i)}; }
  static int index(c10::Device d) {
    int i = d.has_index() ? d.index() : tt_current_device();
    TORCH_CHECK(i >= 0 && i < TT_MAX_DEVICES, "tpu:", i, " does not exist");
    return i;
  }
  static c10::Stream stream(c10::Device d, c10::StreamId id) {
    return c10::Stream(c10::Stream::UNSAFE, device(index(d)), id);
  }
};

C10_REGISTER_GUARD_IMPL(PrivateUse1, Guard)

}  // namespace
}  // namespace torchtpu
