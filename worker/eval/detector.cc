#include "worker/eval/detector.h"

#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/model/model_layout.h"

namespace pushpull {

Detector::Detector(NetworkSpec spec, const ComputeOptions& compute)
    : spec_(std::move(spec)),
      compute_(compute),
      input_shape_(InputShapeOf(spec_)),
      preprocessor_(input_shape_),
      decoder_(*spec_.detection),
      input_(spec_.input.num_elements()) {}

absl::StatusOr<std::unique_ptr<Detector>> Detector::Load(
    FileSystem& files, const std::string& checkpoint_dir,
    const config::TrainEvalPipelineConfig& config, const DetectorOptions& options) {
  NetworkSpec spec = BuildNetworkSpec(config.model());
  if (!spec.detection.has_value()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model in ", checkpoint_dir, " is a classifier, expected a detector"));
  }
  const VariableLayout layout = BuildVariableLayout(config);
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                      OpenCheckpoint(files, checkpoint_dir, options.step, {"", &layout}));
  std::unique_ptr<Detector> detector(new Detector(std::move(spec), options.compute));
  detector->step_ = checkpoint->manifest().step;
  detector->updates_ = static_cast<int64_t>(checkpoint->manifest().updates);
  const ElementRange all = {0, layout.total_elements()};
  detector->variables_.resize(all.size());
  PP_RETURN_IF_ERROR(options.use_moving_averages
                         ? checkpoint->ReadEma(layout, all, detector->variables_.data())
                         : checkpoint->ReadWeights(layout, all, detector->variables_.data()));
  RunnerOptions network;
  network.training = false;
  PP_ASSIGN_OR_RETURN(detector->network_,
                      detector->compute_.MakeRunner(detector->spec_, layout, network));
  detector->network_->StageVariables(detector->variables_, 0, layout.total_elements());
  return detector;
}

absl::StatusOr<DetectionRecord> Detector::Detect(const Image& image, const std::string& image_id) {
  preprocessor_.Run(ViewPixels(image), {}, input_.data());
  ImageBatch<float> batch;
  batch.images = input_.data();
  batch.samples = 1;
  PP_RETURN_IF_ERROR(network_->Infer(variables_, batch, updates_));
  const InputWindow window = WindowOf(input_shape_, {image.height, image.width});
  const auto detections = decoder_.Decode(network_->outputs(), {window}, compute_.pool());
  return MakeDetectionRecord(image_id, image.height, image.width, {}, detections[0]);
}

}  // namespace pushpull
