// Device memory, and pinned host memory.
#include <ATen/CPUGeneratorImpl.h>
#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/alloc_cpu.h>

#include <map>
#include <mutex>

#include "shim.h"

namespace torchtpu {
namespace {

class TpuAllocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    tt_storage *storage = nullptr;
    check(tt_storage_create(-1, nbytes, &storage));
    return make_data_ptr(storage);
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void *, const void *, size_t) const override {
    TORCH_CHECK(false, "tpu memory has no address on the host: copy tensors, not pointers");
  }

  bool initialized() override { return tt_is_initialized(); }
  void emptyCache(c10::MempoolId_t) override { check(tt_empty_cache()); }
  void recordStream(const c10::DataPtr &, c10::Stream) override {}  // one in-order queue: nothing to track
  void resetAccumulatedStats(c10::DeviceIndex device) override { check(tt_reset_accumulated_memory(device)); }
  void resetPeakStats(c10::DeviceIndex device) override { check(tt_reset_peak_memory(device)); }

  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    tt_memory_stats stats;
    check(tt_get_memory_stats(device, &stats));
    c10::CachingDeviceAllocator::DeviceStats out;
    auto set = [](auto &stat, int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
      stat[0].current = current;
      stat[0].peak = peak;
      stat[0].allocated = allocated;
      stat[0].freed = freed;
    };
    set(out.allocated_bytes, stats.allocated, stats.allocated_peak, stats.allocated_total, stats.freed_total);
    set(out.active_bytes, stats.allocated, stats.allocated_peak, stats.allocated_total, stats.freed_total);
    set(out.requested_bytes, stats.allocated, stats.allocated_peak, stats.allocated_total, stats.freed_total);
    set(out.reserved_bytes, stats.reserved, stats.reserved_peak, stats.reserved, 0);
    set(out.allocation, stats.active, stats.active, stats.allocation_count, stats.free_count);
    out.num_ooms = stats.oom_count;
    return out;
  }

  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    check(tt_init());
    tt_memory_stats stats;
    check(tt_get_memory_stats(device, &stats));
    int64_t used = std::max(stats.reserved, stats.allocated);
    return {static_cast<size_t>(std::max<int64_t>(stats.limit - used, 0)), static_cast<size_t>(stats.limit)};
  }
};

// Pinned memory: page-locking buys nothing until a transfer is asynchronous, so this is aligned host memory that
// PyTorch can tell apart.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t nbytes) override {
    void *data = c10::alloc_cpu(nbytes);
    if (data) {
      std::lock_guard<std::mutex> lock(mutex_);
      blocks_[data] = nbytes;
    }
    return {data, data, &release, c10::Device(c10::DeviceType::CPU)};
  }
  c10::DeleterFnPtr raw_deleter() const override { return &release; }
  void copy_data(void *destination, const void *source, size_t count) const override {
    default_copy_data(destination, source, count);
  }
  // Nothing is cached, and a transfer is done with the memory when it returns.
  bool record_event(void *, void *, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override { return {}; }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {}

  bool contains(const void *data) {
    std::lock_guard<std::mutex> lock(mutex_);
    auto after = blocks_.upper_bound(const_cast<void *>(data));
    if (after == blocks_.begin()) {
      return false;
    }
    --after;
    auto start = static_cast<const char *>(after->first);
    return static_cast<const char *>(data) < start + std::max<size_t>(after->second, 1);
  }

 private:
  static void release(void *data);
  std::mutex mutex_;
  std::map<void *, size_t> blocks_;
};

TpuAllocator g_allocator;
// Never destroyed: tensors may outlive every static object.
PinnedAllocator &g_pinned = *new PinnedAllocator;

void PinnedAllocator::release(void *data) {
  if (data) {
    std::lock_guard<std::mutex> lock(g_pinned.mutex_);
    g_pinned.blocks_.erase(data);
  }
  c10::free_cpu(data);
}

const bool g_registered = (c10::SetAllocator(kTpu, &g_allocator), at::setHostAllocator(kTpu, &g_pinned), true);

}  // namespace

c10::Allocator *allocator() { return &g_allocator; }
c10::Allocator *pinned_allocator() { return &g_pinned; }
bool is_pinned(const void *data) { return data && g_pinned.contains(data); }

}  // namespace torchtpu
