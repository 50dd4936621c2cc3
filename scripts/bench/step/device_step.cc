#include "scripts/bench/step/device_step.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "common/base/status_macros.h"
#include "scripts/bench/median.h"
#include "worker/model/network.h"

namespace pushpull {
namespace {

// Records an event after every operator between Begin and End.
class EventProfiler : public OperatorProfiler {
 public:
  explicit EventProfiler(Device* device) : device_(*device) {}

  void Begin() {
    records_.clear();
    recording_ = true;
    RecordEvent(0);
  }
  void End() { recording_ = false; }

  void Record(const OperatorRecord& record) override {
    if (!recording_) return;
    records_.push_back(record);
    RecordEvent(records_.size());
  }

  const std::vector<OperatorRecord>& records() const { return records_; }

  // Call after End. Blocks until the last operator is done.
  absl::StatusOr<std::vector<double>> Milliseconds() {
    PP_RETURN_IF_ERROR(device_.Wait(events_[records_.size()].get()));
    std::vector<double> times;
    for (size_t i = 0; i < records_.size(); ++i) {
      PP_RETURN_IF_ERROR(device_.Wait(events_[i].get()));
      PP_ASSIGN_OR_RETURN(const double time,
                          device_.MillisecondsBetween(events_[i].get(), events_[i + 1].get()));
      times.push_back(time);
    }
    return times;
  }

 private:
  void RecordEvent(size_t index) {
    if (index == events_.size()) events_.push_back(device_.MakeEvent());
    device_.RecordCompute(events_[index].get());
  }

  Device& device_;
  bool recording_ = false;
  std::vector<OperatorRecord> records_;
  std::vector<std::unique_ptr<DeviceEvent>> events_;
};

template <typename T>
class TypedDeviceStep final : public DeviceStep {
 public:
  TypedDeviceStep(const BenchNetwork& network, const BenchBatch& batch, Device* device)
      : device_(*device),
        total_elements_(network.layout.total_elements()),
        samples_(batch.samples),
        image_input_(ImageInputOf(network.spec)),
        image_elements_(static_cast<int64_t>(batch.images.size())),
        detects_(network.spec.detection.has_value()),
        profiler_(device),
        operators_(MakeProfiledOperators(OperatorsOf<T>(device), &profiler_)),
        begin_(device->MakeEvent()),
        end_(device->MakeEvent()) {}

  absl::Status Prepare(const BenchNetwork& network, const BenchBatch& batch) {
    NetworkOptions options;
    options.max_batch = samples_;
    options.memory = &device_;
    PP_ASSIGN_OR_RETURN(
        network_, Network<T>::Create(network.spec, network.layout, operators_.get(), options));
    PP_ASSIGN_OR_RETURN(variables_, device_.Allocate(total_elements_ * sizeof(float)));
    PP_ASSIGN_OR_RETURN(gradient_, device_.Allocate(total_elements_ * sizeof(float)));
    PP_ASSIGN_OR_RETURN(typed_images_, device_.Allocate(image_elements_ * sizeof(T)));
    PP_ASSIGN_OR_RETURN(seed_, device_.Allocate(sizeof(uint64_t)));
    PP_ASSIGN_OR_RETURN(result_, device_.Allocate(sizeof(ObjectiveResult)));
    PP_ASSIGN_OR_RETURN(packed_images_, Upload(batch.packed_images));
    PP_ASSIGN_OR_RETURN(labels_, Upload(batch.labels));
    PP_ASSIGN_OR_RETURN(objects_, Upload(batch.objects));
    PP_ASSIGN_OR_RETURN(first_object_, Upload(batch.first_object));
    PP_ASSIGN_OR_RETURN(host_gradient_, device_.AllocatePinned(total_elements_ * sizeof(float)));
    PP_ASSIGN_OR_RETURN(host_result_, device_.AllocatePinned(sizeof(ObjectiveResult)));
    return device_.status();
  }

  absl::Status SetVariables(absl::Span<const float> variables) override {
    device_.Write(variables_->data(), variables.data(), total_elements_ * sizeof(float));
    return device_.status();
  }

  absl::StatusOr<double> Measure(int steps) override {
    PP_RETURN_IF_ERROR(RecordOnce());
    device_.RecordCompute(begin_.get());
    for (int i = 0; i < steps; ++i) device_.Launch(graph_.get());
    device_.RecordCompute(end_.get());
    PP_RETURN_IF_ERROR(device_.Wait(begin_.get()));
    PP_RETURN_IF_ERROR(device_.Wait(end_.get()));
    PP_ASSIGN_OR_RETURN(const double milliseconds,
                        device_.MillisecondsBetween(begin_.get(), end_.get()));
    return milliseconds / steps;
  }

  absl::StatusOr<double> Step(absl::Span<float> gradient) override {
    PP_RETURN_IF_ERROR(RecordOnce());
    device_.Launch(graph_.get());
    device_.RecordCompute(begin_.get());
    device_.CopyToHost(host_result_->data(), result_->data(), sizeof(ObjectiveResult),
                       begin_.get());
    device_.CopyToHost(host_gradient_->data(), gradient_->data(), host_gradient_->bytes(),
                       begin_.get());
    device_.RecordCopy(end_.get());
    PP_RETURN_IF_ERROR(device_.Wait(end_.get()));
    std::memcpy(gradient.data(), host_gradient_->data(), total_elements_ * sizeof(float));
    const auto* const result = static_cast<const ObjectiveResult*>(host_result_->data());
    return detects_ ? result->detection.classification_loss + result->detection.localization_loss
                    : result->classification.loss;
  }

  absl::StatusOr<std::vector<OperatorTime>> Profile(int steps) override {
    PP_RETURN_IF_ERROR(RecordOnce());
    std::vector<std::vector<double>> times;
    for (int step = 0; step < steps; ++step) {
      // While these launches run, the host queues the profiled step ahead of the device.
      device_.Launch(graph_.get());
      device_.Launch(graph_.get());
      profiler_.Begin();
      QueueStep();
      profiler_.End();
      PP_ASSIGN_OR_RETURN(std::vector<double> milliseconds, profiler_.Milliseconds());
      times.push_back(std::move(milliseconds));
    }
    std::vector<OperatorTime> result;
    for (size_t i = 0; i < profiler_.records().size(); ++i) {
      std::vector<double> of_operator;
      for (const std::vector<double>& step : times) of_operator.push_back(step[i]);
      result.push_back({profiler_.records()[i], Median(std::move(of_operator))});
    }
    return result;
  }

  int64_t arena_bytes() const override { return network_->arena_bytes(); }

 private:
  template <typename V>
  absl::StatusOr<std::unique_ptr<Memory>> Upload(const std::vector<V>& values) {
    const int64_t bytes = static_cast<int64_t>(values.size() * sizeof(V));
    PP_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory,
                        device_.Allocate(std::max<int64_t>(bytes, sizeof(V))));
    if (bytes > 0) device_.Write(memory->data(), values.data(), bytes);
    return memory;
  }

  // Only calls operators. Making the network's input from the images is part of the step.
  void QueueStep() {
    auto* const typed = static_cast<T*>(typed_images_->data());
    operators_->SampleImages(image_input_, samples_, packed_images_->data(), typed);
    typename Network<T>::Step step;
    step.batch.images = typed;
    step.batch.samples = samples_;
    step.batch.labels = static_cast<const int32_t*>(labels_->data());
    step.batch.objects = static_cast<const LabeledBox*>(objects_->data());
    step.batch.first_object = static_cast<const int32_t*>(first_object_->data());
    step.variables = static_cast<const float*>(variables_->data());
    step.dropout_seed = static_cast<const uint64_t*>(seed_->data());
    step.gradient = static_cast<float*>(gradient_->data());
    step.result = static_cast<ObjectiveResult*>(result_->data());
    network_->BeginStep(step);
    network_->ContinueForward(total_elements_);
    while (network_->ContinueStep(total_elements_) > 0) {
    }
  }

  absl::Status RecordOnce() {
    if (graph_ == nullptr) {
      // A kernel is loaded at its first use, which cannot be recorded.
      QueueStep();
      device_.RecordCompute(end_.get());
      PP_RETURN_IF_ERROR(device_.Wait(end_.get()));
      graph_ = device_.Record([this] { QueueStep(); });
    }
    return device_.status();
  }

  Device& device_;
  const int64_t total_elements_;
  const int64_t samples_;
  const ImageInput image_input_;
  const int64_t image_elements_;
  const bool detects_;
  EventProfiler profiler_;
  const std::unique_ptr<Operators<T>> operators_;
  const std::unique_ptr<DeviceEvent> begin_;
  const std::unique_ptr<DeviceEvent> end_;
  std::unique_ptr<Network<T>> network_;
  std::unique_ptr<Memory> variables_, gradient_, packed_images_, typed_images_, labels_, objects_,
      first_object_, seed_, result_;
  std::unique_ptr<Memory> host_gradient_, host_result_;
  std::unique_ptr<DeviceGraph> graph_;
};

template <typename T>
absl::StatusOr<std::unique_ptr<DeviceStep>> MakeTyped(const BenchNetwork& network,
                                                      const BenchBatch& batch, Device* device) {
  auto step = std::make_unique<TypedDeviceStep<T>>(network, batch, device);
  PP_RETURN_IF_ERROR(step->Prepare(network, batch));
  return step;
}

}  // namespace

absl::StatusOr<std::unique_ptr<DeviceStep>> DeviceStep::Create(const BenchNetwork& network,
                                                               const BenchBatch& batch,
                                                               Precision precision,
                                                               Device* device) {
  return precision == Precision::kFloat ? MakeTyped<float>(network, batch, device)
                                        : MakeTyped<Bfloat16>(network, batch, device);
}

absl::StatusOr<double> MeasureCopyBandwidth(Device* device, int64_t bytes) {
  constexpr int kCopies = 10;
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Memory> from, device->Allocate(bytes));
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Memory> to, device->Allocate(bytes));
  constexpr int64_t kChannels = 64;
  Lazy<float> values;
  values.shape = {1, 1, bytes / static_cast<int64_t>(kChannels * sizeof(float)), kChannels};
  values.raw = static_cast<const float*>(from->data());
  const std::unique_ptr<DeviceEvent> begin = device->MakeEvent();
  const std::unique_ptr<DeviceEvent> end = device->MakeEvent();
  Operators<float>* const operators = device->float_operators();
  for (int i = 0; i <= kCopies; ++i) {
    operators->Apply(values, static_cast<float*>(to->data()));
    if (i == 0) device->RecordCompute(begin.get());
  }
  device->RecordCompute(end.get());
  PP_RETURN_IF_ERROR(device->Wait(begin.get()));
  PP_RETURN_IF_ERROR(device->Wait(end.get()));
  PP_ASSIGN_OR_RETURN(const double milliseconds,
                      device->MillisecondsBetween(begin.get(), end.get()));
  return 2.0 * values.shape.size() * sizeof(float) * kCopies / (milliseconds / 1e3);
}

}  // namespace pushpull
