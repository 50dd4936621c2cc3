#include "scripts/bench/paced/paced_device.h"

#include <sys/mman.h>

#include <algorithm>
#include <string>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"
#include "glog/logging.h"

#include "kernels/profiled_operators.h"

namespace pushpull {
namespace {

class UntouchedMemory final : public Memory {
 public:
  UntouchedMemory(void* data, int64_t bytes) : Memory(data, bytes) {}
  ~UntouchedMemory() override { munmap(data(), bytes()); }
};

// A queue that only knows when its last entry will be done.
struct PacedQueue {
  absl::Time done = absl::InfinitePast();

  void Add(absl::Duration duration, absl::Time not_before = absl::InfinitePast()) {
    done = std::max({done, not_before, absl::Now()}) + duration;
  }
};

struct PacedEvent final : DeviceEvent {
  absl::Time done = absl::InfinitePast();
};

struct PacedGraph final : DeviceGraph {
  absl::Duration duration;
};

// Operators that do nothing and need no workspace.
template <typename T>
class IdleOperators final : public Operators<T> {
  using P = ParameterOf<T>;

 public:
  int64_t ConvolutionWorkspace(const ConvolutionShape&) const override { return 0; }
  int64_t DepthwiseWorkspace(const ConvolutionShape&) const override { return 0; }
  int64_t PoolWorkspace(const Shape&) const override { return 0; }
  int64_t SsdLossWorkspace(int64_t, int64_t) const override { return 0; }
  void Apply(const Lazy<T>&, T*) override {}
  void Convolution(const ConvolutionShape&, const Lazy<T>&, const P*, const P*, T*,
                   const StatisticsOut<T>&, const Workspace&) override {}
  void ConvolutionBackward(const ConvolutionShape&, const Lazy<T>&, const P*,
                           const OutputGradient<T>&, P*, P*, const InputGradient<T>&,
                           const Workspace&) override {}
  void DepthwiseConvolution(const ConvolutionShape&, const Lazy<T>&, const P*, T*,
                            const StatisticsOut<T>&, const Workspace&) override {}
  void DepthwiseConvolutionBackward(const ConvolutionShape&, const Lazy<T>&, const P*,
                                    const OutputGradient<T>&, P*, const InputGradient<T>&,
                                    const Workspace&) override {}
  void GlobalAveragePool(const Lazy<T>&, T*) override {}
  void GlobalAveragePoolBackward(const Lazy<T>&, const T*, const InputGradient<T>&,
                                 const Workspace&) override {}
  void Run(const Gather<T>&) override {}
  void Dropout(int64_t, const T*, double, const uint64_t*, uint64_t, T*) override {}
  void SoftmaxCrossEntropy(int64_t, int64_t, const T*, const int32_t*, double, T*,
                           ClassificationResult*) override {}
  void SsdLoss(const SsdLossArguments<T>&, SsdLossResult*, const Workspace&) override {}
  void ConvertFromFloat(int64_t, const float*, T*) override {}
  void ConvertToFloat(int64_t, const T*, float*) override {}
  void SampleImages(const ImageInput&, int64_t, const void*, T*) override {}
  void Zero(int64_t, P*) override {}
  void AddTo(int64_t, const P*, P*) override {}
  void MovingStatistics(absl::Span<const PushedStatistics<P>>) override {}
  void CorrectStatistics(int64_t, double, const P*, const P*, P*, P*) override {}
};

class PacedDevice final : public Device, OperatorProfiler {
 public:
  explicit PacedDevice(const DevicePace& pace)
      : pace_(pace),
        float_operators_(MakeProfiledOperators<float>(&idle_float_, this)),
        bfloat16_operators_(MakeProfiledOperators<Bfloat16>(&idle_bfloat16_, this)) {}

  std::string description() const override { return "a GPU that only takes time"; }
  std::string model() const override { return "paced"; }
  std::string uuid() const override { return "GPU-paced"; }
  bool uses_libraries() const override { return false; }
  int64_t free_bytes() const override { return int64_t{1} << 40; }
  int64_t free_bytes_without_others() const override { return free_bytes(); }

  absl::StatusOr<std::unique_ptr<Memory>> Allocate(int64_t bytes) override {
    const int64_t wanted = std::max<int64_t>(bytes, 1);
    void* const data = mmap(nullptr, wanted, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (data == MAP_FAILED) {
      return absl::ResourceExhaustedError(absl::StrCat("no address space for ", wanted, " bytes"));
    }
    return std::make_unique<UntouchedMemory>(data, wanted);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocatePinned(int64_t bytes) override {
    return HostMemory()->Allocate(std::max<int64_t>(bytes, 1));
  }
  void Write(void*, const void*, int64_t) override {}

  Operators<float>* float_operators() override { return float_operators_.get(); }
  Operators<Bfloat16>* bfloat16_operators() override { return bfloat16_operators_.get(); }

  void CopyToDevice(void*, const void*, int64_t bytes) override { compute_.Add(CopyTime(bytes)); }
  void Upload(void*, const void*, int64_t bytes, DeviceEvent* after) override {
    uploads_.Add(CopyTime(bytes), after == nullptr ? absl::InfinitePast() : TimeOf(after));
  }
  void CopyToHost(void*, const void*, int64_t bytes, DeviceEvent* after) override {
    copies_.Add(CopyTime(bytes), TimeOf(after));
  }
  std::unique_ptr<DeviceEvent> MakeEvent() override { return std::make_unique<PacedEvent>(); }
  void RecordCompute(DeviceEvent* event) override { Mark(event, compute_); }
  void RecordCopy(DeviceEvent* event) override { Mark(event, copies_); }
  void RecordUpload(DeviceEvent* event) override { Mark(event, uploads_); }
  void ComputeAfter(DeviceEvent* event) override {
    compute_.Add(absl::ZeroDuration(), TimeOf(event));
  }
  absl::Status Wait(DeviceEvent* event) override {
    absl::SleepFor(TimeOf(event) - absl::Now());
    return absl::OkStatus();
  }
  absl::StatusOr<double> MillisecondsBetween(DeviceEvent* first, DeviceEvent* second) override {
    return absl::ToDoubleMilliseconds(TimeOf(second) - TimeOf(first));
  }

  std::unique_ptr<DeviceGraph> Record(absl::FunctionRef<void()> work) override {
    auto graph = std::make_unique<PacedGraph>();
    recording_ = graph.get();
    work();
    recording_ = nullptr;
    return graph;
  }
  void Launch(DeviceGraph* graph) override {
    compute_.Add(static_cast<PacedGraph*>(graph)->duration);
  }
  absl::Status status() const override { return absl::OkStatus(); }

 private:
  static absl::Time TimeOf(const DeviceEvent* event) {
    return static_cast<const PacedEvent*>(event)->done;
  }
  static void Mark(DeviceEvent* event, const PacedQueue& queue) {
    static_cast<PacedEvent*>(event)->done = std::max(queue.done, absl::Now());
  }
  absl::Duration CopyTime(int64_t bytes) const {
    return absl::Seconds(pace_.copy_seconds + bytes / pace_.link_bytes_per_second);
  }

  // Lets the time of an operator pass that did nothing.
  void Record(const OperatorRecord& record) override {
    const absl::Duration duration = absl::Seconds(
        std::max(pace_.operator_seconds, record.bytes / pace_.memory_bytes_per_second));
    if (recording_ != nullptr) {
      recording_->duration += duration;
    } else {
      compute_.Add(duration);
    }
  }

  const DevicePace pace_;
  IdleOperators<float> idle_float_;
  IdleOperators<Bfloat16> idle_bfloat16_;
  const std::unique_ptr<Operators<float>> float_operators_;
  const std::unique_ptr<Operators<Bfloat16>> bfloat16_operators_;
  PacedQueue compute_, copies_, uploads_;
  PacedGraph* recording_ = nullptr;
};

}  // namespace

std::unique_ptr<Device> MakePacedDevice(const DevicePace& pace) {
  return std::make_unique<PacedDevice>(pace);
}

}  // namespace pushpull
