// A trained detector for single pictures.
#ifndef PUSHPULL_WORKER_EVAL_DETECTOR_H_
#define PUSHPULL_WORKER_EVAL_DETECTOR_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/file_system.h"
#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"
#include "worker/eval/detection_decoder.h"
#include "worker/model/compute.h"
#include "worker/model/network_runner.h"

namespace pushpull {

struct DetectorOptions {
  int64_t step = -1;  // -1: the newest checkpoint
  bool use_moving_averages = false;
  ComputeOptions compute = {};
};

// Not thread-safe; threads of its own compute.
class Detector {
 public:
  // FAILED_PRECONDITION: the config's model is no detector, or the checkpoint is of another one.
  // NOT_FOUND: no such checkpoint, with those that are there; or no EMA. DATA_LOSS: it does not
  // verify.
  static absl::StatusOr<std::unique_ptr<Detector>> Load(
      FileSystem& files, const std::string& checkpoint_dir,
      const config::TrainEvalPipelineConfig& config, const DetectorOptions& options);

  uint64_t step() const { return step_; }

  // Boxes in the picture's pixels, best first. `image_id` is for the record.
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
