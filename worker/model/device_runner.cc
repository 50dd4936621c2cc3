#include "worker/model/device_runner.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <type_traits>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "glog/logging.h"

#include "common/status_macros.h"
#include "worker/model/device_buffers.h"
#include "worker/model/network.h"

namespace pushpull {
namespace {

constexpr int64_t kFloatBytes = sizeof(float);
constexpr size_t kMostRecordings = 8;
// What a GPU gives is a multiple of this.
constexpr int64_t kBlockBytes = int64_t{2} << 20;

template <typename T>
Operators<T>* OperatorsOf(Device* device) {
  if constexpr (std::is_same_v<T, float>) {
    return device->float_operators();
  } else {
    return device->bfloat16_operators();
  }
}

template <typename T>
class DeviceRunner final : public NetworkRunner {
 public:
  DeviceRunner(const NetworkSpec& spec, int64_t total_elements, Device* device,
               const DeviceRunnerOptions& options)
      : NetworkRunner(spec, total_elements, options.runner),
        device_(*device),
        operators_(*OperatorsOf<T>(device)),
        device_options_(options),
        buffers_(device, DeviceBufferSizes(spec, total_elements, options.runner, sizeof(T))),
        inference_done_(device->MakeEvent()),
        inference_copied_(device->MakeEvent()) {}

  absl::Status AllocateOnDevice(const VariableLayout& layout);
  absl::Status AllocateOnHost() { return buffers_.AllocateOnHost(); }

  absl::StatusOr<std::unique_ptr<Memory>> AllocateImages(int64_t bytes) override {
    return device_.AllocatePinned(bytes);
  }
  std::vector<const float*> outputs() const override;
  int64_t arena_bytes() const override { return network_->arena_bytes(); }

 private:
  static constexpr bool kConverts = !std::is_same_v<T, float>;

  // A stretch of a step after which a piece of the gradient is final.
  struct Piece {
    int64_t first = 0;  // element
    std::unique_ptr<DeviceGraph> graph;
  };
  struct Recording {
    bool seen = false;          // a step of this size has run
    std::vector<Piece> pieces;  // empty: not recorded yet
  };
  struct PieceEvents {
    std::unique_ptr<DeviceEvent> computed;
    std::unique_ptr<DeviceEvent> copied;
  };

  absl::StatusOr<ObjectiveResult> RunStep(const float* variables, const ImageBatch<float>& batch,
                                          uint64_t dropout_seed, float* gradient,
                                          GradientReady ready) override;
  absl::Status RunInference(const float* variables, const ImageBatch<float>& batch,
                            int64_t num_updates) override;
  absl::StatusOr<ObjectiveResult> RunEvaluation(const float* variables,
                                                const ImageBatch<float>& batch,
                                                int64_t num_updates) override;

  absl::Status Upload(const float* variables, const ImageBatch<float>& batch, bool with_targets,
                      uint64_t dropout_seed);
  NetworkBatch<T> BatchOnDevice(int64_t samples) const;
  void ConvertImages(int64_t samples);

  int64_t QueuePiece(size_t piece, int64_t samples);
  absl::StatusOr<std::vector<int64_t>> QueueStep(int64_t samples);
  void QueueCopyBack(size_t piece, int64_t first, int64_t end);
  void QueueOutputs(int64_t samples);

  Device& device_;
  Operators<T>& operators_;
  const DeviceRunnerOptions device_options_;
  DeviceBuffers buffers_;
  std::unique_ptr<Network<T>> network_;
  FlatObjects objects_;
  std::map<int64_t, Recording> recordings_;  // by samples
  std::vector<PieceEvents> events_;
  const std::unique_ptr<DeviceEvent> inference_done_;
  const std::unique_ptr<DeviceEvent> inference_copied_;
};

template <typename T>
absl::Status DeviceRunner<T>::AllocateOnDevice(const VariableLayout& layout) {
  NetworkOptions network;
  network.max_batch = options().max_batch;
  network.training = options().training;
  network.memory = &device_;
  PP_ASSIGN_OR_RETURN(network_, Network<T>::Create(spec(), layout, &operators_, network));
  return buffers_.AllocateOnDevice();
}

// Everything of the last call is done: its results have been waited for.
template <typename T>
absl::Status DeviceRunner<T>::Upload(const float* variables, const ImageBatch<float>& batch,
                                     bool with_targets, uint64_t dropout_seed) {
  PP_RETURN_IF_ERROR(device_.status());
  const auto stage = [this](const StagedMemory& memory, const void* from, int64_t bytes) {
    std::memcpy(memory.host->data(), from, bytes);
    device_.CopyToDevice(memory.device->data(), memory.host->data(), bytes);
  };
  if (with_targets && spec().detection.has_value()) {
    objects_.Assign(batch.objects, batch.samples);
    const int64_t bytes = static_cast<int64_t>(objects_.objects.size() * sizeof(LabeledBox));
    PP_ASSIGN_OR_RETURN(const bool moved, buffers_.GrowObjects(bytes));
    if (moved) recordings_.clear();
    if (bytes > 0) stage(buffers_.objects, objects_.objects.data(), bytes);
    std::memcpy(buffers_.small.on_host<char>(buffers_.first_object_at()), objects_.first.data(),
                objects_.first.size() * sizeof(int32_t));
  } else if (with_targets) {
    std::memcpy(buffers_.small.on_host<char>(DeviceBuffers::kLabelsAt), batch.labels,
                batch.samples * sizeof(int32_t));
  }
  *buffers_.small.on_host<uint64_t>(DeviceBuffers::kSeedAt) = dropout_seed;
  device_.CopyToDevice(buffers_.small.device->data(), buffers_.small.host->data(),
                       buffers_.small_bytes());
  stage(buffers_.variables, variables, total_elements() * kFloatBytes);
  const int64_t image_elements = batch.samples * spec().input.num_elements();
  if (options().byte_images) {
    device_.CopyToDevice(buffers_.images.device->data(), batch.bytes, image_elements);
  } else {
    stage(buffers_.images, batch.images, image_elements * kFloatBytes);
  }
  return absl::OkStatus();
}

template <typename T>
NetworkBatch<T> DeviceRunner<T>::BatchOnDevice(int64_t samples) const {
  NetworkBatch<T> batch;
  const Memory& images =
      buffers_.typed_images != nullptr ? *buffers_.typed_images : *buffers_.images.device;
  batch.images = static_cast<const T*>(images.data());
  batch.samples = samples;
  batch.labels = buffers_.small.on_device<int32_t>(DeviceBuffers::kLabelsAt);
  if (spec().detection.has_value()) {
    batch.objects = buffers_.objects.on_device<LabeledBox>();
    batch.first_object = buffers_.small.on_device<int32_t>(buffers_.first_object_at());
  }
  return batch;
}

template <typename T>
void DeviceRunner<T>::ConvertImages(int64_t samples) {
  if (buffers_.typed_images == nullptr) return;
  const int64_t size = samples * spec().input.num_elements();
  T* const to = static_cast<T*>(buffers_.typed_images->data());
  if (options().byte_images) {
    operators_.ConvertFromBytes(size, buffers_.images.on_device<uint8_t>(), to);
  } else {
    operators_.ConvertFromFloat(size, buffers_.images.on_device<float>(), to);
  }
}

// Calls operators only, so that it can be recorded. Returns the first element that is final.
template <typename T>
int64_t DeviceRunner<T>::QueuePiece(size_t piece, int64_t samples) {
  if (piece == 0) {
    ConvertImages(samples);
    typename Network<T>::Step step;
    step.variables = buffers_.variables.on_device<float>();
    step.batch = BatchOnDevice(samples);
    step.dropout_seed = buffers_.small.on_device<uint64_t>(DeviceBuffers::kSeedAt);
    step.gradient = buffers_.gradient.on_device<float>();
    step.result = buffers_.small.on_device<ObjectiveResult>(DeviceBuffers::kResultAt);
    network_->BeginStep(step);
  }
  return network_->ContinueStep(std::max<int64_t>(device_options_.piece_bytes / kFloatBytes, 1));
}

template <typename T>
void DeviceRunner<T>::QueueCopyBack(size_t piece, int64_t first, int64_t end) {
  if (piece == events_.size()) events_.push_back({device_.MakeEvent(), device_.MakeEvent()});
  const PieceEvents& events = events_[piece];
  device_.RecordCompute(events.computed.get());
  if (piece == 0) {
    device_.CopyToHost(buffers_.small.on_host<char>(DeviceBuffers::kResultAt),
                       buffers_.small.on_device<char>(DeviceBuffers::kResultAt),
                       sizeof(ObjectiveResult), events.computed.get());
  }
  device_.CopyToHost(buffers_.gradient.on_host<float>() + first,
                     buffers_.gradient.on_device<float>() + first, (end - first) * kFloatBytes,
                     events.computed.get());
  device_.RecordCopy(events.copied.get());
}

// Returns where the pieces begin.
template <typename T>
absl::StatusOr<std::vector<int64_t>> DeviceRunner<T>::QueueStep(int64_t samples) {
  if (recordings_.size() >= kMostRecordings && !recordings_.contains(samples)) recordings_.clear();
  Recording& recording = recordings_[samples];
  const bool replays = !recording.pieces.empty();
  const bool records = !replays && recording.seen && device_options_.record_steps;
  recording.seen = true;
  std::vector<Piece> recorded;
  std::vector<int64_t> firsts;
  int64_t end = total_elements();
  for (size_t piece = 0; end > 0; ++piece) {
    int64_t first = 0;
    if (replays) {
      first = recording.pieces[piece].first;
      device_.Launch(recording.pieces[piece].graph.get());
    } else if (records) {
      std::unique_ptr<DeviceGraph> graph =
          device_.Record([&] { first = QueuePiece(piece, samples); });
      PP_RETURN_IF_ERROR(device_.status());
      device_.Launch(graph.get());
      recorded.push_back({first, std::move(graph)});
    } else {
      first = QueuePiece(piece, samples);
    }
    QueueCopyBack(piece, first, end);
    firsts.push_back(first);
    end = first;
  }
  if (records) recording.pieces = std::move(recorded);
  return firsts;
}

template <typename T>
absl::StatusOr<ObjectiveResult> DeviceRunner<T>::RunStep(const float* variables,
                                                         const ImageBatch<float>& batch,
                                                         uint64_t dropout_seed, float* gradient,
                                                         GradientReady ready) {
  PP_RETURN_IF_ERROR(Upload(variables, batch, true, dropout_seed));
  PP_ASSIGN_OR_RETURN(const std::vector<int64_t> firsts, QueueStep(batch.samples));
  int64_t end = total_elements();
  for (size_t piece = 0; piece < firsts.size(); ++piece) {
    PP_RETURN_IF_ERROR(device_.Wait(events_[piece].copied.get()));
    const int64_t first = firsts[piece];
    std::memcpy(gradient + first, buffers_.gradient.on_host<float>() + first,
                (end - first) * kFloatBytes);
    ready(first);
    end = first;
  }
  return *buffers_.small.on_host<ObjectiveResult>(DeviceBuffers::kResultAt);
}

// The outputs lie one after another, each with room for the largest batch.
template <typename T>
void DeviceRunner<T>::QueueOutputs(int64_t samples) {
  const std::vector<const T*> values = network_->outputs();
  const std::vector<int> layers = OutputLayers(spec());
  std::vector<const float*> floats;
  int64_t at = 0;
  for (size_t i = 0; i < values.size(); ++i) {
    const int64_t elements = spec().layers[layers[i]].output_shape.num_elements();
    if constexpr (kConverts) {
      float* const to = buffers_.outputs.on_device<float>() + at;
      operators_.ConvertToFloat(samples * elements, values[i], to);
      floats.push_back(to);
    } else {
      floats.push_back(values[i]);
    }
    at += options().max_batch * elements;
  }
  device_.RecordCompute(inference_done_.get());
  const std::vector<const float*> hosts = outputs();
  for (size_t i = 0; i < floats.size(); ++i) {
    const int64_t elements = spec().layers[layers[i]].output_shape.num_elements();
    device_.CopyToHost(const_cast<float*>(hosts[i]), floats[i], samples * elements * kFloatBytes,
                       inference_done_.get());
  }
}

template <typename T>
std::vector<const float*> DeviceRunner<T>::outputs() const {
  std::vector<const float*> result;
  const float* at = buffers_.outputs.on_host<float>();
  for (const int l : OutputLayers(spec())) {
    result.push_back(at);
    at += options().max_batch * spec().layers[l].output_shape.num_elements();
  }
  return result;
}

template <typename T>
absl::Status DeviceRunner<T>::RunInference(const float* variables, const ImageBatch<float>& batch,
                                           int64_t num_updates) {
  PP_RETURN_IF_ERROR(Upload(variables, batch, false, 0));
  ConvertImages(batch.samples);
  network_->Infer(buffers_.variables.on_device<float>(), BatchOnDevice(batch.samples), num_updates);
  QueueOutputs(batch.samples);
  device_.RecordCopy(inference_copied_.get());
  return device_.Wait(inference_copied_.get());
}

template <typename T>
absl::StatusOr<ObjectiveResult> DeviceRunner<T>::RunEvaluation(const float* variables,
                                                               const ImageBatch<float>& batch,
                                                               int64_t num_updates) {
  PP_RETURN_IF_ERROR(Upload(variables, batch, true, 0));
  ConvertImages(batch.samples);
  network_->Infer(buffers_.variables.on_device<float>(), BatchOnDevice(batch.samples), num_updates);
  network_->Evaluate(buffers_.small.on_device<ObjectiveResult>(DeviceBuffers::kResultAt));
  QueueOutputs(batch.samples);
  device_.CopyToHost(buffers_.small.on_host<char>(DeviceBuffers::kResultAt),
                     buffers_.small.on_device<char>(DeviceBuffers::kResultAt),
                     sizeof(ObjectiveResult), inference_done_.get());
  device_.RecordCopy(inference_copied_.get());
  PP_RETURN_IF_ERROR(device_.Wait(inference_copied_.get()));
  return *buffers_.small.on_host<ObjectiveResult>(DeviceBuffers::kResultAt);
}

// What a runner takes of the device's memory.
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

// Says what would fit into the `free` bytes that there were.
template <typename T>
absl::Status OutOfMemory(const NetworkSpec& spec, const VariableLayout& layout, Device* device,
                         const RunnerOptions& options, int64_t free) {
  RunnerOptions tried = options;
  PP_ASSIGN_OR_RETURN(const int64_t needed, RequiredBytes<T>(spec, layout, device, tried));
  // Memory in pieces may hold less than its size says.
  const int64_t available = std::min(free, needed - 1);
  int64_t fits = 0;
  int64_t too_large = options.max_batch;
  while (too_large - fits > 1) {
    tried.max_batch = fits + (too_large - fits) / 2;
    PP_ASSIGN_OR_RETURN(const int64_t bytes, RequiredBytes<T>(spec, layout, device, tried));
    (bytes <= available ? fits : too_large) = tried.max_batch;
  }
  constexpr double kGib = 1 << 30;
  const std::string advice =
      fits == 0 ? "not even 1 would fit: take a GPU with more memory, or smaller images"
                : absl::StrCat(fits, " would fit: lower ",
                               options.training ? "train_config.batch_size or use more clones"
                                                : "eval_config.batch_size");
  return absl::ResourceExhaustedError(absl::StrFormat(
      "%s: a batch of %d needs %.2f GiB of GPU memory, %.2f GiB are free; %s",
      device->description(), options.max_batch, needed / kGib, free / kGib, advice));
}

template <typename T>
absl::StatusOr<std::unique_ptr<NetworkRunner>> Make(const NetworkSpec& spec,
                                                    const VariableLayout& layout, Device* device,
                                                    const DeviceRunnerOptions& options) {
  const int64_t free = device->free_bytes();
  auto runner = std::make_unique<DeviceRunner<T>>(spec, layout.total_elements(), device, options);
  const absl::Status allocated = runner->AllocateOnDevice(layout);
  if (absl::IsResourceExhausted(allocated)) {
    runner.reset();
    return OutOfMemory<T>(spec, layout, device, options.runner, free);
  }
  PP_RETURN_IF_ERROR(allocated);
  PP_RETURN_IF_ERROR(runner->AllocateOnHost());
  return runner;
}

}  // namespace

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
