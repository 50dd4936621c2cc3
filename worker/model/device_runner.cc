#include "worker/model/device_runner.h"

#include <algorithm>
#include <optional>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/cord.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "worker/model/device_buffers.h"
#include "worker/model/device_inputs.h"
#include "worker/model/network.h"
#include "worker/model/step_pieces.h"

namespace pushpull {
namespace {

// The granularity of a GPU's memory allocations.
constexpr int64_t kBlockBytes = int64_t{2} << 20;

template <typename T>
class DeviceRunner final : public NetworkRunner {
 public:
  DeviceRunner(const NetworkSpec& network, int64_t total_elements, Device* device,
               const DeviceRunnerOptions& options)
      : NetworkRunner(network, total_elements, options.runner),
        device_(*device),
        operators_(*OperatorsOf<T>(device)),
        device_options_(options),
        buffers_(device, DeviceBufferSizes(network, total_elements, options.runner, sizeof(T))),
        inputs_(&spec(), &this->options(), device, &operators_, &buffers_),
        computed_(device->MakeEvent()),
        copied_(device->MakeEvent()) {}

  absl::Status AllocateOnDevice(const VariableLayout& layout);
  absl::Status AllocateOnHost() { return buffers_.AllocateOnHost(); }

  absl::StatusOr<std::unique_ptr<Memory>> AllocateImages(int64_t bytes) override {
    return device_.AllocatePinned(bytes);
  }
  absl::StatusOr<std::unique_ptr<Memory>> AllocateVector() override {
    return device_.AllocatePinned(total_elements() * kFloatBytes);
  }
  void StageImages(const PackedImages& packed_images) override {
    inputs_.StageImages(packed_images);
  }
  void CancelBatch() override {
    GiveUpBegunStep();
    inputs_.CancelImages();
  }
  void Finish() override;
  void StageVariables(absl::Span<const float> variables, int64_t first, int64_t end) override;
  std::vector<const float*> outputs() const override;
  int64_t arena_bytes() const override { return network_->arena_bytes(); }

 private:
  static constexpr bool kConverts = !std::is_same_v<T, float>;

  // A step that has begun and whose backward pass is not queued yet.
  struct BegunStep {
    const float* variables = nullptr;
    ImageBatch<float> batch;
    uint64_t dropout_seed = 0;
    size_t forward_pieces = 0;  // that have been queued

    bool IsOf(const float* other_variables, const ImageBatch<float>& other,
              uint64_t other_seed) const {
      return variables == other_variables && dropout_seed == other_seed &&
             batch.images == other.images && batch.packed_images.data == other.packed_images.data &&
             batch.labels == other.labels && batch.objects == other.objects &&
             batch.samples == other.samples;
    }
  };
  struct PieceEvents {
    std::unique_ptr<DeviceEvent> computed;
    std::unique_ptr<DeviceEvent> copied;
  };

  void BeginStaged(const float* variables, const ImageBatch<float>& batch,
                   uint64_t dropout_seed) override;
  absl::StatusOr<ObjectiveResult> RunStep(const float* variables, const ImageBatch<float>& batch,
                                          uint64_t dropout_seed, float* gradient,
                                          StepUnderWay under_way, GradientReady ready) override;
  absl::Status RunInference(const float* variables, const ImageBatch<float>& batch,
                            int64_t num_updates) override;
  absl::StatusOr<ObjectiveResult> RunEvaluation(const float* variables,
                                                const ImageBatch<float>& batch,
                                                int64_t num_updates) override;

  // Queues the upload of the batch, and begins its step without queueing any operators. Gives up a
  // step that has begun before.
  absl::Status BeginStep(const float* variables, const ImageBatch<float>& batch,
                         uint64_t dropout_seed);
  // Forgets the step that has begun, if there is one. Waits for what is queued of it, because the
  // next call overwrites what that reads.
  void GiveUpBegunStep();
  // Queues those next pieces of the forward pass that read only variables below element
  // `available`. staged: StageVariables uploads the variables, so the pieces wait for that.
  void QueueForward(int64_t available, bool staged);
  // Queues the whole backward pass, and the copies of its pieces to `gradient` on the host. Returns
  // the first element of each piece, in the order in which the pieces become final.
  std::vector<int64_t> QueueBackward(float* gradient);
  // Queues the copy of elements [first, end) of the gradient, which are those of the piece with
  // this number, to the host. The result of the step goes with piece 0.
  void QueueCopyBack(size_t piece, int64_t first, int64_t end, float* gradient);
  // Queues the upload of the batch, and of the variables unless they are staged, and the network's
  // forward pass for inference. with_targets: also uploads labels or objects.
  absl::Status QueueInference(const float* variables, const ImageBatch<float>& batch,
                              bool with_targets, int64_t num_updates);
  // Queues the copy of the outputs to the host, as floats. In the buffer they follow one another,
  // each with room for the largest batch.
  void QueueOutputs(int64_t samples);

  Device& device_;
  Operators<T>& operators_;
  const DeviceRunnerOptions device_options_;
  DeviceBuffers buffers_;
  DeviceInputs<T> inputs_;
  std::unique_ptr<Network<T>> network_;
  std::unique_ptr<StepPieces<T>> pieces_;
  std::optional<BegunStep> begun_;
  std::vector<PieceEvents> events_;  // of the pieces of the backward pass
  // Used by inference; computed_ also when a begun step is given up.
  const std::unique_ptr<DeviceEvent> computed_;
  const std::unique_ptr<DeviceEvent> copied_;
};

template <typename T>
absl::Status DeviceRunner<T>::AllocateOnDevice(const VariableLayout& layout) {
  NetworkOptions network;
  network.max_batch = options().max_batch;
  network.training = options().training;
  network.memory = &device_;
  PP_ASSIGN_OR_RETURN(network_, Network<T>::Create(spec(), layout, &operators_, network));
  const auto elements = [](int64_t bytes) { return std::max<int64_t>(bytes / kFloatBytes, 1); };
  pieces_ = std::make_unique<StepPieces<T>>(
      network_.get(), &device_,
      StepPieceOptions{elements(device_options_.forward_piece_bytes),
                       elements(device_options_.piece_bytes), device_options_.record_steps});
  return buffers_.AllocateOnDevice();
}

template <typename T>
void DeviceRunner<T>::GiveUpBegunStep() {
  if (!begun_.has_value()) return;
  begun_.reset();
  device_.RecordCompute(computed_.get());
  device_.Wait(computed_.get()).IgnoreError();  // the error sticks: the next call reports it
}

template <typename T>
void DeviceRunner<T>::Finish() {
  CancelBatch();
  inputs_.AwaitStagedVariables();
  device_.RecordCompute(computed_.get());
  device_.Wait(computed_.get()).IgnoreError();  // the error sticks: the next call reports it
}

template <typename T>
absl::Status DeviceRunner<T>::BeginStep(const float* variables, const ImageBatch<float>& batch,
                                        uint64_t dropout_seed) {
  GiveUpBegunStep();
  PP_RETURN_IF_ERROR(device_.status());
  PP_ASSIGN_OR_RETURN(const bool addresses_changed, inputs_.UploadBatch(batch, true, dropout_seed));
  if (addresses_changed) pieces_->Forget();
  typename Network<T>::Step step;
  step.variables = static_cast<const float*>(buffers_.variables->data());
  step.batch = inputs_.BatchOnDevice(batch.samples);
  step.dropout_seed = buffers_.small.on_device<uint64_t>(DeviceBuffers::kSeedAt);
  step.gradient = static_cast<float*>(buffers_.gradient->data());
  step.result = buffers_.small.on_device<ObjectiveResult>(DeviceBuffers::kResultAt);
  pieces_->Begin(step);
  begun_ = {variables, batch, dropout_seed, 0};
  return absl::OkStatus();
}

template <typename T>
void DeviceRunner<T>::BeginStaged(const float* variables, const ImageBatch<float>& batch,
                                  uint64_t dropout_seed) {
  // After an error begun_ is empty, so RunStep begins the step again and reports the error.
  BeginStep(variables, batch, dropout_seed).IgnoreError();
}

template <typename T>
void DeviceRunner<T>::StageVariables(absl::Span<const float> variables, int64_t first,
                                     int64_t end) {
  // Queued operators of the begun step read variables that are about to be overwritten.
  if (first == 0 && begun_.has_value() && begun_->forward_pieces > 0) GiveUpBegunStep();
  inputs_.StageVariables(variables.data(), first, end);
  if (begun_.has_value() && begun_->variables == variables.data()) {
    QueueForward(inputs_.StagedEnd(variables.data()), /*staged=*/true);
  }
}

template <typename T>
void DeviceRunner<T>::QueueForward(int64_t available, bool staged) {
  const std::vector<int64_t>& stops = pieces_->forward_stops();
  for (size_t& piece = begun_->forward_pieces; piece < stops.size() && stops[piece] <= available;
       ++piece) {
    if (staged) inputs_.AwaitStagedVariables();
    pieces_->QueueForward();
  }
}

template <typename T>
void DeviceRunner<T>::QueueCopyBack(size_t piece, int64_t first, int64_t end, float* gradient) {
  if (piece == events_.size()) events_.push_back({device_.MakeEvent(), device_.MakeEvent()});
  const PieceEvents& events = events_[piece];
  device_.RecordCompute(events.computed.get());
  if (piece == 0) {
    device_.CopyToHost(buffers_.small.on_host<char>(DeviceBuffers::kResultAt),
                       buffers_.small.on_device<char>(DeviceBuffers::kResultAt),
                       sizeof(ObjectiveResult), events.computed.get());
  }
  device_.CopyToHost(gradient + first, static_cast<const float*>(buffers_.gradient->data()) + first,
                     (end - first) * kFloatBytes, events.computed.get());
  device_.RecordCopy(events.copied.get());
}

template <typename T>
std::vector<int64_t> DeviceRunner<T>::QueueBackward(float* gradient) {
  std::vector<int64_t> firsts;
  int64_t end = total_elements();
  while (end > 0) {
    const int64_t first = pieces_->QueueBackward();
    QueueCopyBack(firsts.size(), first, end, gradient);
    firsts.push_back(first);
    end = first;
  }
  return firsts;
}

template <typename T>
absl::StatusOr<ObjectiveResult> DeviceRunner<T>::RunStep(const float* variables,
                                                         const ImageBatch<float>& batch,
                                                         uint64_t dropout_seed, float* gradient,
                                                         StepUnderWay under_way,
                                                         GradientReady ready) {
  const bool staged = inputs_.StagedEnd(variables) == total_elements();
  if (!staged || !begun_.has_value() || !begun_->IsOf(variables, batch, dropout_seed)) {
    PP_RETURN_IF_ERROR(BeginStep(variables, batch, dropout_seed));
  }
  if (!staged) inputs_.UploadVariables(variables, total_elements());
  QueueForward(total_elements(), staged);
  const std::vector<int64_t> firsts = QueueBackward(gradient);
  begun_.reset();
  under_way();
  for (size_t piece = 0; piece < firsts.size(); ++piece) {
    PP_RETURN_IF_ERROR(device_.Wait(events_[piece].copied.get()));
    ready(firsts[piece]);
  }
  return *buffers_.small.on_host<ObjectiveResult>(DeviceBuffers::kResultAt);
}

template <typename T>
void DeviceRunner<T>::QueueOutputs(int64_t samples) {
  const std::vector<const T*> values = network_->outputs();
  const std::vector<int> nodes = OutputNodes(spec());
  std::vector<const float*> floats;
  int64_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t elements = spec().nodes[nodes[i]].shape.num_elements();
    if constexpr (kConverts) {
      float* const to = buffers_.outputs.on_device<float>() + at;
      operators_.ConvertToFloat(samples * elements, values[i], to);
      floats.push_back(to);
    } else {
      floats.push_back(values[i]);
    }
    at += options().max_batch * elements;
  }
  device_.RecordCompute(computed_.get());
  const std::vector<const float*> hosts = outputs();
  for (size_t i = 0; i < floats.size(); ++i) {
    const int64_t elements = spec().nodes[nodes[i]].shape.num_elements();
    device_.CopyToHost(const_cast<float*>(hosts[i]), floats[i], samples * elements * kFloatBytes,
                       computed_.get());
  }
}

template <typename T>
std::vector<const float*> DeviceRunner<T>::outputs() const {
  std::vector<const float*> result;
  const float* at = buffers_.outputs.on_host<float>();
  for (const int node : OutputNodes(spec())) {
    result.push_back(at);
    at += options().max_batch * spec().nodes[node].shape.num_elements();
  }
  return result;
}

template <typename T>
absl::Status DeviceRunner<T>::QueueInference(const float* variables, const ImageBatch<float>& batch,
                                             bool with_targets, int64_t num_updates) {
  GiveUpBegunStep();
  PP_RETURN_IF_ERROR(device_.status());
  PP_ASSIGN_OR_RETURN(const bool addresses_changed, inputs_.UploadBatch(batch, with_targets, 0));
  if (addresses_changed) pieces_->Forget();
  if (inputs_.StagedEnd(variables) == total_elements()) {
    inputs_.AwaitStagedVariables();
  } else {
    inputs_.UploadVariables(variables, total_elements());
  }
  network_->Infer(static_cast<const float*>(buffers_.variables->data()),
                  inputs_.BatchOnDevice(batch.samples), num_updates);
  return absl::OkStatus();
}

template <typename T>
absl::Status DeviceRunner<T>::RunInference(const float* variables, const ImageBatch<float>& batch,
                                           int64_t num_updates) {
  PP_RETURN_IF_ERROR(QueueInference(variables, batch, false, num_updates));
  QueueOutputs(batch.samples);
  device_.RecordCopy(copied_.get());
  return device_.Wait(copied_.get());
}

template <typename T>
absl::StatusOr<ObjectiveResult> DeviceRunner<T>::RunEvaluation(const float* variables,
                                                               const ImageBatch<float>& batch,
                                                               int64_t num_updates) {
  PP_RETURN_IF_ERROR(QueueInference(variables, batch, true, num_updates));
  network_->Evaluate(buffers_.small.on_device<ObjectiveResult>(DeviceBuffers::kResultAt));
  QueueOutputs(batch.samples);
  device_.CopyToHost(buffers_.small.on_host<char>(DeviceBuffers::kResultAt),
                     buffers_.small.on_device<char>(DeviceBuffers::kResultAt),
                     sizeof(ObjectiveResult), computed_.get());
  device_.RecordCopy(copied_.get());
  PP_RETURN_IF_ERROR(device_.Wait(copied_.get()));
  return *buffers_.small.on_host<ObjectiveResult>(DeviceBuffers::kResultAt);
}

// The device memory that a runner allocates, in bytes.
template <typename T>
absl::StatusOr<int64_t> RequiredBytes(const NetworkSpec& spec, const VariableLayout& layout,
                                      Device* device, const RunnerOptions& options) {
  NetworkOptions network;
  network.max_batch = options.max_batch;
  network.training = options.training;
  network.memory = device;
  PP_ASSIGN_OR_RETURN(std::vector<int64_t> blocks,
                      Network<T>::RequiredBlocks(spec, layout, *OperatorsOf<T>(device), network));
  const DeviceBufferSizes sizes(spec, layout.total_elements(), options, sizeof(T));
  for (const int64_t block : sizes.DeviceBlocks()) blocks.push_back(block);
  int64_t bytes = 0;
  for (const int64_t block : blocks) bytes += (block + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
  return bytes;
}

// The bytes that are free but for a runner that does not fit: now, and if no other process used the
// GPU.
struct FreeMemory {
  int64_t now;
  int64_t without_others;
};

// The error of a runner that does not fit into the free memory. Finds the largest batch that fits
// by bisection.
template <typename T>
absl::Status OutOfMemory(const NetworkSpec& spec, const VariableLayout& layout, Device* device,
                         const RunnerOptions& options, const FreeMemory& free) {
  RunnerOptions tried = options;
  PP_ASSIGN_OR_RETURN(const int64_t needed, RequiredBytes<T>(spec, layout, device, tried));
  // If `needed` bytes are free and the allocation failed nevertheless, the memory is fragmented:
  // the batch that was refused must not be recommended.
  const int64_t available = std::min(free.now, needed - 1);
  int64_t fits = 0;
  int64_t too_large = options.max_batch;
  while (too_large - fits > 1) {
    tried.max_batch = fits + (too_large - fits) / 2;
    PP_ASSIGN_OR_RETURN(const int64_t bytes, RequiredBytes<T>(spec, layout, device, tried));
    (bytes <= available ? fits : too_large) = tried.max_batch;
  }
  constexpr double kGib = 1 << 30;
  const std::string advice =
      fits == 0
          ? "not even 1 would fit: take a GPU with more memory, or smaller images"
          : absl::StrCat(fits, " would fit: lower ",
                         options.training ? "train_config.batch_size or, in synchronous mode, "
                                            "use more clones"
                                          : "eval_config.batch_size");
  const std::string problem =
      absl::StrFormat("%s: a batch of %d needs %.2f GiB of GPU memory, %.2f GiB are free; ",
                      device->description(), options.max_batch, needed / kGib, free.now / kGib);
  if (needed <= free.now || needed > free.without_others) {
    return absl::ResourceExhaustedError(problem + advice);
  }
  absl::Status status = absl::ResourceExhaustedError(absl::StrFormat(
      "%s%s; or try again later, because %.2f GiB would be free if no other process, such as "
      "another clone, used the GPU",
      problem, advice, free.without_others / kGib));
  status.SetPayload(kMayBecomeFreeUrl, absl::Cord("yes"));
  return status;
}

template <typename T>
absl::StatusOr<std::unique_ptr<NetworkRunner>> Make(const NetworkSpec& spec,
                                                    const VariableLayout& layout, Device* device,
                                                    const DeviceRunnerOptions& options) {
  PP_RETURN_IF_ERROR(CheckBatch(options.runner));
  FreeMemory free = {device->free_bytes(), device->free_bytes_without_others()};
  auto runner = std::make_unique<DeviceRunner<T>>(spec, layout.total_elements(), device, options);
  const absl::Status allocated = runner->AllocateOnDevice(layout);
  if (absl::IsResourceExhausted(allocated)) {
    // Other processes may have taken memory while the runner allocated. Later they may have given
    // it back, because they did not fit, either.
    const int64_t ours = free.without_others - device->free_bytes_without_others();
    free.now = std::min(free.now, device->free_bytes() + ours);
    runner.reset();
    return OutOfMemory<T>(spec, layout, device, options.runner, free);
  }
  PP_RETURN_IF_ERROR(allocated);
  PP_RETURN_IF_ERROR(runner->AllocateOnHost());
  return runner;
}

}  // namespace

bool MemoryMayBecomeFree(const absl::Status& status) {
  return status.GetPayload(kMayBecomeFreeUrl).has_value();
}

absl::StatusOr<std::unique_ptr<NetworkRunner>> MakeDeviceRunner(
    const NetworkSpec& spec, const VariableLayout& layout, Device* device,
    const DeviceRunnerOptions& options) {
  switch (options.precision) {
    case Precision::kFloat:
      return Make<float>(spec, layout, device, options);
    case Precision::kBfloat16:
      return Make<Bfloat16>(spec, layout, device, options);
  }
  LOG(FATAL) << "no precision " << static_cast<int>(options.precision);
}

}  // namespace pushpull
