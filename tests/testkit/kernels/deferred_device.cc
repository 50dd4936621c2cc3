#include "tests/testkit/kernels/deferred_device.h"

#include <cstring>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "kernels/cpu/reference_operators.h"

namespace pushpull {
namespace {

class LimitedMemory final : public Memory {
 public:
  LimitedMemory(std::unique_ptr<Memory> memory, int64_t bytes, int64_t* free)
      : Memory(memory->data(), bytes), memory_(std::move(memory)), free_(free) {
    *free_ -= bytes;
  }
  ~LimitedMemory() override { *free_ += bytes(); }

 private:
  const std::unique_ptr<Memory> memory_;
  int64_t* const free_;
};

// A Lazy or an OutputGradient with a copy of its batch norm, because the original may change before
// the operator runs.
template <typename Operand>
class Kept {
 public:
  explicit Kept(const Operand& operand) : operand_(operand) {
    if (operand.batch_norm != nullptr) norm_ = *operand.batch_norm;
  }
  Operand get() const {
    Operand operand = operand_;
    if (norm_.has_value()) operand.batch_norm = &*norm_;
    return operand;
  }

 private:
  const Operand operand_;
  std::optional<BatchNorm<float>> norm_;
};
using KeptValue = Kept<Lazy<float>>;
using KeptGradient = Kept<OutputGradient<float>>;

class DeferredOperators final : public Operators<float> {
 public:
  explicit DeferredOperators(DeferredDevice* device)
      : device_(*device), reference_(MakeReferenceOperators<float>()) {}

  // The reference operators need no workspace; requiring some shows whether the runner provides it.
  int64_t ConvolutionWorkspace(const ConvolutionShape& shape) const override {
    return 4 * shape.in.n;
  }
  int64_t DepthwiseWorkspace(const ConvolutionShape& shape) const override {
    return 4 * shape.in.n;
  }
  int64_t PoolWorkspace(const Shape& shape) const override { return 4 * shape.n; }
  int64_t SsdLossWorkspace(int64_t samples, int64_t) const override { return 4 * samples; }

  void Apply(const Lazy<float>& x, float* out) override {
    device_.Queue([this, x = KeptValue(x), out] { reference_->Apply(x.get(), out); });
  }
  void Convolution(const ConvolutionShape& shape, const Lazy<float>& x, const float* weights,
                   const float* bias, float* y, const StatisticsOut<float>& statistics,
                   const Workspace& workspace) override {
    CHECK_GE(workspace.bytes, ConvolutionWorkspace(shape));
    device_.Queue([=, this, x = KeptValue(x)] {
      reference_->Convolution(shape, x.get(), weights, bias, y, statistics, workspace);
    });
  }
  void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<float>& x,
                           const float* weights, const OutputGradient<float>& dy, float* dweights,
                           float* dbias, const InputGradient<float>& dx,
                           const Workspace& workspace) override {
    CHECK_GE(workspace.bytes, ConvolutionWorkspace(shape));
    device_.Queue([=, this, x = KeptValue(x), dy = KeptGradient(dy)] {
      reference_->ConvolutionBackward(shape, x.get(), weights, dy.get(), dweights, dbias, dx,
                                      workspace);
    });
  }
  void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<float>& x,
                            const float* weights, float* y, const StatisticsOut<float>& statistics,
                            const Workspace& workspace) override {
    CHECK_GE(workspace.bytes, DepthwiseWorkspace(shape));
    device_.Queue([=, this, x = KeptValue(x)] {
      reference_->DepthwiseConvolution(shape, x.get(), weights, y, statistics, workspace);
    });
  }
  void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<float>& x,
                                    const float* weights, const OutputGradient<float>& dy,
                                    float* dweights, const InputGradient<float>& dx,
                                    const Workspace& workspace) override {
    CHECK_GE(workspace.bytes, DepthwiseWorkspace(shape));
    device_.Queue([=, this, x = KeptValue(x), dy = KeptGradient(dy)] {
      reference_->DepthwiseConvolutionBackward(shape, x.get(), weights, dy.get(), dweights, dx,
                                               workspace);
    });
  }
  void GlobalAveragePool(const Lazy<float>& x, float* y) override {
    device_.Queue([this, x = KeptValue(x), y] { reference_->GlobalAveragePool(x.get(), y); });
  }
  void GlobalAveragePoolBackward(const Lazy<float>& x, const float* dy,
                                 const InputGradient<float>& dx,
                                 const Workspace& workspace) override {
    device_.Queue([=, this, x = KeptValue(x)] {
      reference_->GlobalAveragePoolBackward(x.get(), dy, dx, workspace);
    });
  }
  void Run(const Gather<float>& gather) override {
    device_.Queue([this, gather] { reference_->Run(gather); });
  }
  void Dropout(int64_t size, const float* x, double rate, const uint64_t* seed, uint64_t salt,
               float* y) override {
    device_.Queue([=, this] { reference_->Dropout(size, x, rate, seed, salt, y); });
  }
  void SoftmaxCrossEntropy(int64_t samples, int64_t classes, const float* logits,
                           const int32_t* labels, double smoothing, float* dlogits,
                           ClassificationResult* result) override {
    device_.Queue([=, this] {
      reference_->SoftmaxCrossEntropy(samples, classes, logits, labels, smoothing, dlogits, result);
    });
  }
  void SsdLoss(const SsdLossArguments<float>& arguments, SsdLossResult* result,
               const Workspace& workspace) override {
    CHECK_GE(workspace.bytes, SsdLossWorkspace(arguments.samples, arguments.num_anchors));
    const std::vector<SsdHeadTensors<float>> heads(arguments.heads.begin(), arguments.heads.end());
    device_.Queue([=, this] {
      SsdLossArguments<float> kept = arguments;
      kept.heads = heads;
      reference_->SsdLoss(kept, result, workspace);
    });
  }
  void ConvertFromFloat(int64_t size, const float* from, float* to) override {
    device_.Queue([=, this] { reference_->ConvertFromFloat(size, from, to); });
  }
  void SampleImages(const ImageInput& input, int64_t samples, const void* block,
                    float* images) override {
    device_.Queue([=, this] { reference_->SampleImages(input, samples, block, images); });
  }
  void ConvertToFloat(int64_t size, const float* from, float* to) override {
    device_.Queue([=, this] { reference_->ConvertToFloat(size, from, to); });
  }
  void Zero(int64_t size, float* out) override {
    device_.Queue([=, this] { reference_->Zero(size, out); });
  }
  void AddTo(int64_t size, const float* x, float* sum) override {
    device_.Queue([=, this] { reference_->AddTo(size, x, sum); });
  }
  void MovingStatistics(absl::Span<const PushedStatistics<float>> norms) override {
    const std::vector<PushedStatistics<float>> kept(norms.begin(), norms.end());
    device_.Queue([=, this] { reference_->MovingStatistics(kept); });
  }
  void CorrectStatistics(int64_t channels, double left, const float* mean, const float* variance,
                         float* corrected_mean, float* corrected_variance) override {
    device_.Queue([=, this] {
      reference_->CorrectStatistics(channels, left, mean, variance, corrected_mean,
                                    corrected_variance);
    });
  }

 private:
  DeferredDevice& device_;
  const std::unique_ptr<Operators<float>> reference_;
};

}  // namespace

struct DeferredDevice::Event final : DeviceEvent {
  WorkQueue* queue = nullptr;
  int64_t place = 0;
};

struct DeferredDevice::Graph final : DeviceGraph {
  std::vector<std::function<void()>> work;
};

DeferredDevice::DeferredDevice(int64_t memory_bytes)
    : free_bytes_(memory_bytes), operators_(std::make_unique<DeferredOperators>(this)) {}

DeferredDevice::~DeferredDevice() = default;

absl::StatusOr<std::unique_ptr<Memory>> DeferredDevice::Allocate(int64_t bytes) {
  CheckNotRecording();
  if (bytes > free_bytes_) {
    return absl::ResourceExhaustedError(absl::StrCat("no ", bytes, " of ", free_bytes_, " bytes"));
  }
  PP_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory, HostMemory()->Allocate(bytes));
  return std::make_unique<LimitedMemory>(std::move(memory), bytes, &free_bytes_);
}

absl::StatusOr<std::unique_ptr<Memory>> DeferredDevice::AllocatePinned(int64_t bytes) {
  CheckNotRecording();
  return HostMemory()->Allocate(bytes);
}

void DeferredDevice::Write(void* to, const void* from, int64_t bytes) {
  CheckNotRecording();
  const char* const begin = static_cast<const char*>(from);
  Queue([to, kept = std::vector<char>(begin, begin + bytes)] {
    std::memcpy(to, kept.data(), kept.size());
  });
}

Operators<Bfloat16>* DeferredDevice::bfloat16_operators() {
  LOG(FATAL) << "the deferred device computes in float32";
}

void DeferredDevice::CopyToDevice(void* to, const void* from, int64_t bytes) {
  CheckNotRecording();
  copied_bytes_ += bytes;
  Queue([=] { std::memcpy(to, from, bytes); });
}

void DeferredDevice::Upload(void* to, const void* from, int64_t bytes, DeviceEvent* after) {
  CheckNotRecording();
  int64_t place = 0;
  if (after != nullptr) {
    CHECK(static_cast<Event*>(after)->queue == &compute_) << "the event has not been recorded";
    place = static_cast<Event*>(after)->place;
  }
  uploads_after_.push_back(place);
  uploads_.work.push_back([=, this] {
    uploads_after_.pop_front();
    RunUntil(&compute_, place);
    Perform([=] { std::memcpy(to, from, bytes); });
  });
  uploaded_bytes_ += bytes;
  if (when_uploads_ == Uploads::kAtOnce) RunUntil(&uploads_, uploads_.end());
  RunWhatIsNotDeferred();
}

void DeferredDevice::CopyToHost(void* to, const void* from, int64_t bytes, DeviceEvent* after) {
  CheckNotRecording();
  const Event event = *static_cast<Event*>(after);
  CHECK(event.queue == &compute_) << "a copy waits for an event that has not been recorded";
  copies_.work.push_back([=, this] {
    RunUntil(&compute_, event.place);
    Perform([=] { std::memcpy(to, from, bytes); });
  });
}

std::unique_ptr<DeviceEvent> DeferredDevice::MakeEvent() { return std::make_unique<Event>(); }

void DeferredDevice::Mark(DeviceEvent* event, WorkQueue* queue) {
  CheckNotRecording();
  static_cast<Event*>(event)->queue = queue;
  static_cast<Event*>(event)->place = queue->end();
}

void DeferredDevice::ComputeAfter(DeviceEvent* event) {
  CheckNotRecording();
  const Event awaited = *static_cast<Event*>(event);
  CHECK(awaited.queue == &uploads_) << "the event has not been recorded";
  compute_.work.push_back([=, this] { RunUntil(awaited.queue, awaited.place); });
}

absl::Status DeferredDevice::Wait(DeviceEvent* event) {
  CheckNotRecording();
  const Event& waited = *static_cast<Event*>(event);
  CHECK(waited.queue != nullptr) << "waiting for an event that has not been recorded";
  RunUntil(waited.queue, waited.place);
  return status_;
}

absl::StatusOr<double> DeferredDevice::MillisecondsBetween(DeviceEvent* first,
                                                           DeviceEvent* second) {
  const Event& begin = *static_cast<Event*>(first);
  const Event& end = *static_cast<Event*>(second);
  CHECK(begin.queue == &compute_ && end.queue == &compute_);
  CHECK(begin.place <= compute_.done && end.place <= compute_.done)
      << "the events have not been waited for";
  return static_cast<double>(end.place - begin.place);
}

std::unique_ptr<DeviceGraph> DeferredDevice::Record(absl::FunctionRef<void()> work) {
  CheckNotRecording();
  auto graph = std::make_unique<Graph>();
  recording_ = &graph->work;
  work();
  recording_ = nullptr;
  ++num_graphs_;
  return graph;
}

void DeferredDevice::Launch(DeviceGraph* graph) {
  CheckNotRecording();
  ++num_launches_;
  for (const std::function<void()>& work : static_cast<Graph*>(graph)->work) Queue(work);
}

void DeferredDevice::Queue(std::function<void()> work) {
  if (recording_ != nullptr) {
    recording_->push_back(std::move(work));
  } else {
    compute_.work.push_back([this, work = std::move(work)] { Perform(work); });
    RunWhatIsNotDeferred();
  }
}

void DeferredDevice::RunWhatIsNotDeferred() {
  if (when_uploads_ != Uploads::kNothingIsDeferred) return;
  RunUntil(&uploads_, uploads_.end());
  RunUntil(&compute_, compute_.end());
}

void DeferredDevice::RunUntil(WorkQueue* queue, int64_t place) {
  while (queue->done < place) {
    const std::function<void()> work = std::move(queue->work.front());
    queue->work.pop_front();
    ++queue->done;
    work();
    if (queue != &compute_ || when_uploads_ != Uploads::kBehindComputing) continue;
    if (!uploads_after_.empty() && uploads_after_.front() <= compute_.done) {
      RunUntil(&uploads_, uploads_.done + 1);
    }
  }
}

void DeferredDevice::Perform(const std::function<void()>& work) {
  if (work_left_ == 0) {
    status_ = absl::AbortedError("the deferred device fell off the bus");
    return;
  }
  --work_left_;
  ++performed_;
  work();
}

void DeferredDevice::CheckNotRecording() const {
  CHECK(recording_ == nullptr) << "only operators can be recorded";
}

}  // namespace pushpull
