#include "worker/eval/detector.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"

namespace pushpull {

Detector::Detector(std::unique_ptr<TrainedNetwork> network)
    : network_(std::move(network)), decoder_(*network_->spec().detection) {}

absl::StatusOr<std::unique_ptr<Detector>> Detector::Load(
    FileSystem& files, const std::string& checkpoint_dir,
    const config::TrainEvalPipelineConfig& config, const TrainedNetworkOptions& options) {
  if (!config.model().has_ssd()) {
    return absl::FailedPreconditionError(
        absl::StrCat("the model in ", checkpoint_dir, " is a classifier, expected a detector"));
  }
  PP_ASSIGN_OR_RETURN(std::unique_ptr<TrainedNetwork> network,
                      TrainedNetwork::Load(files, checkpoint_dir, config, options));
  return std::unique_ptr<Detector>(new Detector(std::move(network)));
}

absl::StatusOr<DetectionRecord> Detector::Detect(const Image& image, const std::string& image_id) {
  PP_RETURN_IF_ERROR(network_->Infer(image));
  const InputWindow window = WindowOf(network_->input_shape(), {image.height, image.width});
  const auto detections = decoder_.Decode(network_->outputs(), {window}, network_->pool());
  LOG_IF(WARNING, decoder_.diverged()[0])
      << image_id << ": the outputs of the network are not all finite, and their detections are "
      << "left out: the model of step " << step() << " has diverged; use an earlier checkpoint";
  return MakeDetectionRecord(image_id, image.height, image.width, {}, detections[0]);
}

}  // namespace pushpull
