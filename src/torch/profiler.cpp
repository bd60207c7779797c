// torch.profiler: what the C core records becomes activities of Kineto, PyTorch's tracing library, and the names of
// record_function reach the C core.
#include <ATen/record_function.h>
#include <torch/csrc/profiler/stubs/base.h>

#include <ctime>

#include "shim.h"
#include "torchtpu/observe.h"

#if __has_include(<IActivityProfiler.h>)
#define USE_KINETO
#define FMT_HEADER_ONLY 1  // PyTorch does not export its copy
#include <torch/csrc/profiler/standalone/privateuse1_profiler.h>
// After it.
#include <libkineto.h>

#include <unistd.h>

namespace torchtpu {
namespace {

using libkineto::ActivityType;

const std::set<ActivityType> &activity_types() {
  static const auto &types = *new std::set<ActivityType>{ActivityType::CONCURRENT_KERNEL, ActivityType::GPU_MEMCPY,
                                                         ActivityType::PRIVATEUSE1_RUNTIME};
  return types;
}

// The rows of a device in the trace: programs, and transfers.
enum Row { kPrograms, kTransfers };

class Session final : public libkineto::IActivityProfilerSession {
 public:
  explicit Session(std::set<ActivityType> wanted) : wanted_(std::move(wanted)) {}

  void start() override {
    tt_profile_start();
    status_ = libkineto::TraceStatus::RECORDING;
  }
  void stop() override {
    tt_profile_stop();
    status_ = libkineto::TraceStatus::PROCESSING;
  }
  std::vector<std::string> errors() override { return {}; }

  void processTrace(libkineto::ActivityLogger &logger) override {
    processTrace(logger, [](int32_t) { return nullptr; }, INT64_MIN, INT64_MAX);
  }
  void processTrace(libkineto::ActivityLogger &logger, libkineto::getLinkedActivityCallback linked, int64_t begin,
                    int64_t end) override {
    tt_activity activity;
    for (size_t i = 0; tt_profile_activity_at(i, &activity); i++) {
      if (activity.end_ns >= begin && activity.begin_ns <= end && wanted_.count(type_of(activity))) {
        add(activity, linked);
      }
    }
    for (const auto &added : buffer_->activities) {
      added->log(logger);
    }
  }

  std::unique_ptr<libkineto::DeviceInfo> getDeviceInfo() override {
    return std::make_unique<libkineto::DeviceInfo>(libkineto::DeviceInfo{0, 5000000, "tpu", "tpu:0"});
  }
  std::vector<libkineto::ResourceInfo> getResourceInfos() override {
    std::vector<libkineto::ResourceInfo> rows;
    for (int32_t device = 0; device < tt_device_count(); device++) {
      rows.push_back({kPrograms, 0, device, "programs"});
      rows.push_back({kTransfers, 1, device, "transfers"});
    }
    return rows;
  }
  std::unique_ptr<libkineto::CpuTraceBuffer> getTraceBuffer() override { return std::move(buffer_); }

  void pushCorrelationId(uint64_t id) override { tt_profile_push(id); }
  void popCorrelationId() override { tt_profile_pop(); }

 private:
  static ActivityType type_of(const tt_activity &activity) {
    switch (activity.kind) {
      case TT_ACTIVITY_PROGRAM:
        return ActivityType::CONCURRENT_KERNEL;
      case TT_ACTIVITY_TO_DEVICE:
      case TT_ACTIVITY_TO_HOST:
        return ActivityType::GPU_MEMCPY;
      default:
        return ActivityType::PRIVATEUSE1_RUNTIME;
    }
  }
  static std::string name_of(const tt_activity &activity) {
    switch (activity.kind) {
      case TT_ACTIVITY_TO_DEVICE:
        return "Memcpy HtoD (host -> tpu)";
      case TT_ACTIVITY_TO_HOST:
        return "Memcpy DtoH (tpu -> host)";
      case TT_ACTIVITY_COMPILE:
        return std::string("compile ") + activity.name;
      case TT_ACTIVITY_LAUNCH:
        return "tpu launch";
      default:
        return std::string("program ") + activity.name;
    }
  }

  void add(const tt_activity &activity, const libkineto::getLinkedActivityCallback &linked) {
    ActivityType type = type_of(activity);
    buffer_->emplace_activity(buffer_->span, type, name_of(activity));
    libkineto::GenericTraceActivity &added = *buffer_->activities.back();
    bool on_device = type != ActivityType::PRIVATEUSE1_RUNTIME;
    added.startTime = activity.begin_ns;
    added.endTime = activity.end_ns;
    added.device = on_device ? activity.device : static_cast<int32_t>(getpid());
    added.resource = !on_device                         ? static_cast<int32_t>(activity.thread)
                     : type == ActivityType::GPU_MEMCPY ? kTransfers
                                                        : kPrograms;
    added.threadId = static_cast<int32_t>(activity.thread);
    added.id = static_cast<int32_t>(activity.correlation);
    if (activity.correlation) {
      added.linked = linked(static_cast<int32_t>(activity.correlation));
    }
    if (*activity.name) {
      added.addMetadataQuoted("program", escaped(activity.name));
    }
    if (*activity.label) {
      added.addMetadataQuoted("label", escaped(activity.label));
    }
    if (activity.nbytes) {
      added.addMetadata("bytes", activity.nbytes);
    }
  }

  // What is between quotes in JSON.
  static std::string escaped(const char *text) {
    std::string out;
    for (; *text; text++) {
      if (*text == '"' || *text == '\\') {
        out += '\\';
      }
      out += static_cast<unsigned char>(*text) < ' ' ? ' ' : *text;
    }
    return out;
  }

  std::set<ActivityType> wanted_;
  std::unique_ptr<libkineto::CpuTraceBuffer> buffer_ = std::make_unique<libkineto::CpuTraceBuffer>();
};

class Profiler final : public libkineto::IActivityProfiler {
 public:
  const std::string &name() const override { return name_; }
  const std::set<ActivityType> &availableActivities() const override { return activity_types(); }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(const std::set<ActivityType> &wanted,
                                                                 const libkineto::Config &) override {
    std::set<ActivityType> both;
    for (ActivityType type : wanted) {
      if (activity_types().count(type)) {
        both.insert(type);
      }
    }
    return both.empty() ? nullptr : std::make_unique<Session>(std::move(both));
  }
  std::unique_ptr<libkineto::IActivityProfilerSession> configure(int64_t, int64_t, const std::set<ActivityType> &wanted,
                                                                 const libkineto::Config &config) override {
    return configure(wanted, config);
  }

 private:
  std::string name_ = "tpu";
};

REGISTER_PRIVATEUSE1_PROFILER(Profiler);

}  // namespace
}  // namespace torchtpu
#endif

namespace torchtpu {
namespace {

// torch.autograd.profiler without Kineto: an event before and after each operator, which ends what fused mode holds.
struct Stubs final : torch::profiler::impl::ProfilerStubs {
  using Event = torch::profiler::impl::ProfilerVoidEventStub;

  void record(c10::DeviceIndex *device, Event *event, int64_t *cpu_ns) const override {
    tt_event *created = nullptr;
    check(tt_event_create(&created));
    *event = Event(created, [](void *handle) { tt_event_free(static_cast<tt_event *>(handle)); });
    int32_t current = tt_current_device();
    if (device) {
      *device = static_cast<c10::DeviceIndex>(current);
    }
    if (cpu_ns) {
      timespec now;
      clock_gettime(CLOCK_REALTIME, &now);
      *cpu_ns = static_cast<int64_t>(now.tv_sec) * 1000000000 + now.tv_nsec;
    }
    check(tt_event_record(created, current));
  }
  float elapsed(const Event *start, const Event *end) const override {
    double ms = 0;
    check(tt_event_elapsed(static_cast<tt_event *>(start->get()), static_cast<tt_event *>(end->get()), &ms));
    return static_cast<float>(ms * 1000);  // microseconds
  }
  void mark(const char *) const override {}
  void rangePush(const char *name) const override { tt_label_push(name); }
  void rangePop() const override { tt_label_pop(); }
  bool enabled() const override { return true; }
  void onEachDevice(std::function<void(int)> function) const override {
    for (int32_t i = 0; i < tt_device_count(); i++) {
      function(i);
    }
  }
  void synchronize() const override { check(tt_synchronize(-1)); }
};
const bool g_stubs = (torch::profiler::impl::registerPrivateUse1Methods(new Stubs), true);

// Names of record_function, and no other: their threads say so to the C core. Operators pay nothing for it.
std::unique_ptr<at::ObserverContext> enter_label(const at::RecordFunction &function) {
  tt_label_push(function.name());
  return nullptr;
}
void leave_label(const at::RecordFunction &, at::ObserverContext *) { tt_label_pop(); }

void warn(const char *text) {
  c10::warn(c10::Warning(c10::UserWarning(), {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, text, true));
}
const bool g_warner = (tt_set_warner(warn), true);
const at::CallbackHandle g_labels =
    at::addGlobalCallback(at::RecordFunctionCallback(enter_label, leave_label).scopes({at::RecordScope::USER_SCOPE}));

}  // namespace
}  // namespace torchtpu
