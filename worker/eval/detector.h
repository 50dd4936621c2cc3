// Runs a trained detector on single images.
#ifndef PUSHPULL_WORKER_EVAL_DETECTOR_H_
#define PUSHPULL_WORKER_EVAL_DETECTOR_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "protos/pipeline.pb.h"
#include "worker/data/image_source.h"
#include "worker/eval/detection_decoder.h"
#include "worker/eval/trained_network.h"

namespace pushpull {

// Not thread-safe. Computes on internal threads or on the GPU.
class Detector {
 public:
  // Arguments and errors as TrainedNetwork::Load, and FAILED_PRECONDITION if the config's model is
  // not a detector.
  static absl::StatusOr<std::unique_ptr<Detector>> Load(
      FileSystem& files, const std::string& checkpoint_dir,
      const config::TrainEvalPipelineConfig& config, const TrainedNetworkOptions& options);

  uint64_t step() const { return network_->step(); }

  // Returns the detections on the image, those with the highest score first, with boxes in its
  // pixels. The record has no ground truth. `image_id` is copied into it. Blocks until computed.
  // Logs a warning if outputs of the network are not finite, so that detections are missing.
  absl::StatusOr<DetectionRecord> Detect(const Image& image, const std::string& image_id);

 private:
  explicit Detector(std::unique_ptr<TrainedNetwork> network);

  const std::unique_ptr<TrainedNetwork> network_;
  DetectionDecoder decoder_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DETECTOR_H_
