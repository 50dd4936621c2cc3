// Runs a trained detector on single images.
#ifndef PUSHPULL_WORKER_EVAL_DETECTOR_H_
#define PUSHPULL_WORKER_EVAL_DETECTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"
#include "worker/eval/detection_decoder.h"
#include "worker/model/compute.h"
#include "worker/model/network_runner.h"

namespace pushpull {

struct DetectorOptions {
  int64_t step = -1;                 // step of the checkpoint; negative: the newest one
  bool use_moving_averages = false;  // use the EMA instead of the raw weights
  ComputeOptions compute = {};
};

// Not thread-safe. Computes on internal threads or on the GPU.
class Detector {
 public:
  // Loads the checkpoint from `checkpoint_dir`. Blocks on the disk. `files` is used only during the
  // call; options.compute.device must outlive the detector.
  // FAILED_PRECONDITION: the config's model is not a detector, or the checkpoint belongs to another
  // model. NOT_FOUND: there is no such checkpoint (the message lists the existing ones), or it has
  // no EMA. DATA_LOSS: the checkpoint does not verify.
  static absl::StatusOr<std::unique_ptr<Detector>> Load(
      FileSystem& files, const std::string& checkpoint_dir,
      const config::TrainEvalPipelineConfig& config, const DetectorOptions& options);

  uint64_t step() const { return step_; }

  // Returns the detections on the image, those with the highest score first, with boxes in its
  // pixels. The record has no ground truth. `image_id` is copied into it. Blocks until computed.
  absl::StatusOr<DetectionRecord> Detect(const Image& image, const std::string& image_id);

 private:
  Detector(NetworkSpec spec, const ComputeOptions& compute);

  const NetworkSpec spec_;
  ComputeResources compute_;
  std::unique_ptr<NetworkRunner> network_;
  const InputShape input_shape_;
  Preprocessor preprocessor_;
  DetectionDecoder decoder_;
  std::vector<float> variables_;
  std::vector<float> input_;
  uint64_t step_ = 0;
  int64_t updates_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DETECTOR_H_
