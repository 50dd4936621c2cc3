#include "worker/train/network_gradient_source.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/file_system.h"
#include "common/base/random.h"
#include "common/base/status_macros.h"
#include "common/model/model_layout.h"
#include "common/model/variable_checks.h"
#include "worker/data/augmentation.h"
#include "worker/data/image_source_factory.h"
#include "worker/sampling/sampler.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<ImageSource>> OpenTrainInput(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    StopRequested stopped) {
  ImageSourceOptions options;
  options.stopped = std::move(stopped);
  options.data_dir = data_dir;
  options.num_classes = NumClasses(config.model());
  options.annotation = config.model().has_ssd() ? Annotation::kBoxes : Annotation::kImageLabel;
  options.field_name = "train_input_reader";
  return OpenImageSource(config.train_input_reader(), options);
}

namespace {

// Reports the counts of matching and mining under the names that TensorFlow uses.
void AddDetectionMetrics(const StepResult& step,
                         absl::FunctionRef<void(const std::string&, double)> add) {
  const double images = static_cast<double>(step.samples);
  const SsdLossResult& counts = step.detection;
  add("TargetAssignment/AvgNumPositiveAnchorsPerImage",
      static_cast<double>(counts.matched_anchors) / images);
  add("TargetAssignment/AvgNumIgnoredAnchorsPerImage",
      static_cast<double>(counts.ignored_anchors) / images);
  add("HardExampleMiner/NumPositives", static_cast<double>(counts.mined_positives));
  add("HardExampleMiner/NumNegatives", static_cast<double>(counts.mined_negatives));
}

}  // namespace

NetworkGradientSource::NetworkGradientSource(const VariableLayout* layout,
                                             const NetworkSourceOptions& options)
    : layout_(layout), options_(options) {
  for (const VariableSpec& variable : layout->variables()) {
    has_l2_ = has_l2_ || variable.l2_weight > 0.0f;
  }
}

absl::StatusOr<std::unique_ptr<NetworkGradientSource>> NetworkGradientSource::Create(
    const config::TrainEvalPipelineConfig& config, const VariableLayout* layout,
    const NetworkSourceOptions& options) {
  std::unique_ptr<NetworkGradientSource> source(new NetworkGradientSource(layout, options));
  source->spec_ = BuildNetworkSpec(config.model());
  PP_ASSIGN_OR_RETURN(source->images_, OpenTrainInput(config, options.data_dir, options.stopped));
  if (!options.image_cache.folder.empty()) {
    PosixFileSystem files;
    PP_ASSIGN_OR_RETURN(source->images_,
                        OpenImageCache(files, std::move(source->images_), options.image_cache));
  }
  source->is_detector_ = source->spec_.detection.has_value();

  SamplerOptions& sampling = source->sampling_;
  sampling.mode = options.sync ? SamplerOptions::Mode::kSync : SamplerOptions::Mode::kAsync;
  sampling.seed = options.seed;
  sampling.num_examples = source->images_->size();
  sampling.batch_size = config.train_config().batch_size();
  // The number in the flags of a spare may be larger than the batch. The server then says which
  // part of the batch a replica has.
  sampling.num_replicas = options.num_replicas;
  if (options.sync && sampling.num_replicas > sampling.batch_size) {
    sampling.num_replicas = static_cast<int>(sampling.batch_size);
  }
  sampling.shuffle = config.train_input_reader().shuffle();

  InputPipelineOptions& input = source->input_options_;
  input.augmentation = ParseAugmentation(config.train_config().data_augmentation_options());
  input.shape = InputShapeOf(source->spec_);
  input.num_threads = options.input_threads;
  input.steps_in_a_row = config.train_config().local_steps();
  const bool on_device = options.compute.device != nullptr;
  input.format = on_device ? PixelFormat::kPackedImages : PixelFormat::kFloat;
  for (const int replica : input.replicas) source->prepared_[replica] = {};

  source->compute_ = std::make_unique<ComputeResources>(options.compute);
  PP_RETURN_IF_ERROR(source->Allocate(Sampler(sampling).MaxReplicaBatchSize()));
  return source;
}

absl::Status NetworkGradientSource::Allocate(int64_t samples) {
  input_ = staged_ = nullptr;
  step_is_staged_ = false;
  if (network_ != nullptr) network_->Finish();
  pipeline_.reset();
  network_.reset();
  RunnerOptions network;
  network.max_batch = samples;
  network.packed_images = input_options_.format == PixelFormat::kPackedImages;
  PP_ASSIGN_OR_RETURN(network_, compute_->MakeRunner(spec_, *layout_, network));
  input_options_.max_samples = samples;
  PP_ASSIGN_OR_RETURN(pipeline_, InputPipeline::Create(images_.get(), Sampler(sampling_),
                                                       input_options_, [this](int64_t bytes) {
                                                         return network_->AllocateImages(bytes);
                                                       }));
  max_samples_ = samples;
  return absl::OkStatus();
}

void NetworkGradientSource::NotePart(uint32_t replica, const BatchPart& part) {
  parts_[static_cast<int>(replica)] = part;
}

BatchPart NetworkGradientSource::PartOf(uint32_t replica) const {
  const auto part = parts_.find(static_cast<int>(replica));
  return part == parts_.end() ? BatchPart{} : part->second;
}

bool NetworkGradientSource::IsOf(const InputBatch* batch, uint64_t position,
                                 uint32_t replica) const {
  return batch != nullptr && batch->step == static_cast<int64_t>(position) &&
         batch->replica == static_cast<int>(replica) && batch->part == PartOf(replica);
}

absl::Status NetworkGradientSource::PrepareReplica(uint32_t replica) {
  const int wanted = static_cast<int>(replica);
  const BatchPart part = PartOf(replica);
  if (part.samples == 0 && wanted >= sampling_.num_replicas) {
    return absl::InternalError(absl::StrCat(
        "replica ", replica, " was granted, but there are only ", sampling_.num_replicas));
  }
  if (part.samples > sampling_.batch_size || part.first > sampling_.batch_size - part.samples) {
    return absl::InternalError(absl::StrCat("replica ", replica, " was granted ", part.samples,
                                            " samples from ", part.first, " on, of a batch of ",
                                            sampling_.batch_size));
  }
  const bool grows = part.samples > max_samples_;
  if (grows) {
    LOG(INFO) << "making room for " << part.samples << " samples per step, until now at most "
              << max_samples_;
    PP_RETURN_IF_ERROR(Allocate(part.samples));
  }
  const auto known = prepared_.find(wanted);
  const std::optional<int> expected = pipeline_->ExpectedReplica();
  const bool is_its_turn = !expected.has_value() || *expected == wanted;
  if (!grows && known != prepared_.end() && known->second == part && is_its_turn) {
    return absl::OkStatus();
  }
  // A replica that was taken over is added. The first granted replica replaces the guess of the
  // start. If the batch is divided anew, or a known replica comes out of turn, the clone may have
  // lost its other replicas; each is added again when it is asked for.
  if (!owns_replica_ || known != prepared_.end()) prepared_.clear();
  prepared_[wanted] = part;
  pipeline_->SetParts(prepared_);
  return absl::OkStatus();
}

absl::Status NetworkGradientSource::LoadInput(uint64_t position, uint32_t replica) {
  if (IsOf(input_, position, replica)) return absl::OkStatus();
  input_ = nullptr;
  // Next reuses the memory of the last batch. If it is asked for a batch that it did not expect, it
  // also drops the one that was staged. The device must not be reading either.
  const bool is_expected = staged_ == nullptr || IsOf(staged_, position, replica);
  if (step_is_staged_ || !is_expected) network_->CancelBatch();
  step_is_staged_ = false;
  staged_ = nullptr;
  PP_RETURN_IF_ERROR(PrepareReplica(replica));
  owns_replica_ = true;
  PP_ASSIGN_OR_RETURN(input_,
                      pipeline_->Next(static_cast<int64_t>(position), static_cast<int>(replica)));
  objects_.Assign(input_->boxes, input_->windows);
  return absl::OkStatus();
}

ImageBatch<float> NetworkGradientSource::LoadedBatch() {
  ImageBatch<float> batch;
  batch.images = input_->images;
  batch.packed_images = input_->packed_images;
  batch.labels = input_->labels.data();
  batch.samples = input_->n;
  batch.objects = objects_.spans();
  return batch;
}

// Each replica draws different random numbers in each step. In synchronous mode they depend on its
// part of the batch and not on what the clone's flags say.
uint64_t NetworkGradientSource::DropoutSeed(uint64_t position, uint32_t replica) const {
  const BatchPart part = PartOf(replica);
  const uint64_t number = part.samples > 0 ? position * sampling_.batch_size + part.first
                                           : position * options_.num_replicas + replica;
  return CounterRandom(options_.seed, number).NextUint64();
}

void NetworkGradientSource::StageNextImages() {
  if (staged_ != nullptr) return;
  staged_ = pipeline_->PeekNext();
  if (staged_ != nullptr) network_->StageImages(staged_->packed_images);
}

absl::StatusOr<std::shared_ptr<float>> NetworkGradientSource::AllocateVector(int64_t elements) {
  CHECK_EQ(elements, layout_->total_elements());
  PP_ASSIGN_OR_RETURN(std::unique_ptr<Memory> memory, network_->AllocateVector());
  const std::shared_ptr<Memory> owner = std::move(memory);
  return std::shared_ptr<float>(owner, static_cast<float*>(owner->data()));
}

void NetworkGradientSource::StageCompute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights) {
  const bool is_ready =
      IsOf(input_, position, replica) || IsOf(pipeline_->PeekNext(), position, replica);
  if (!is_ready || !LoadInput(position, replica).ok()) return;
  network_->StageStep(weights, LoadedBatch(), DropoutSeed(position, replica));
  step_is_staged_ = true;
}

void NetworkGradientSource::StageWeights(absl::Span<const float> weights, int64_t first,
                                         int64_t end) {
  network_->StageVariables(weights, first, end);
}

absl::StatusOr<GradientResult> NetworkGradientSource::Compute(
    uint64_t position, uint32_t replica, absl::Span<const float> weights,
    absl::Span<float> gradient, absl::FunctionRef<void(int64_t)> advance) {
  PP_RETURN_IF_ERROR(LoadInput(position, replica));
  step_is_staged_ = false;
  // While the device computes, the host computes the L2 term and prepares the next step.
  double regularization = 0.0;
  const auto under_way = [&] {
    StageNextImages();
    if (has_l2_) regularization = RegularizationLoss(*layout_, weights);
  };
  const auto ready = [&](int64_t first_final) {
    StageNextImages();
    advance(first_final);
  };
  PP_ASSIGN_OR_RETURN(
      const StepResult step,
      network_->ForwardBackward(weights, LoadedBatch(), DropoutSeed(position, replica), gradient,
                                under_way, ready));
  GradientResult result;
  result.samples = step.samples;
  result.loss = step.loss + regularization;
  const auto add = [&result](const std::string& name, double value) {
    ps::Metric& metric = result.metrics.emplace_back();
    metric.set_name(name);
    metric.set_value(value);
  };
  add("Loss/total_loss", result.loss);
  for (const LossComponent& component : step.components) {
    add(absl::StrCat("Loss/", component.name), component.value);
  }
  if (has_l2_) add("Loss/regularization_loss", regularization);
  if (is_detector_) {
    AddDetectionMetrics(step, add);
  } else {
    add("accuracy", static_cast<double>(step.correct_top1) / static_cast<double>(step.samples));
  }
  return result;
}

}  // namespace pushpull
