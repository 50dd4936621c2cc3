// Runs a trained classifier on single images.
#ifndef PUSHPULL_WORKER_EVAL_IMAGE_CLASSIFIER_H_
#define PUSHPULL_WORKER_EVAL_IMAGE_CLASSIFIER_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "protos/pipeline.pb.h"
#include "worker/data/image_source.h"
#include "worker/eval/trained_network.h"

namespace pushpull {

struct ClassProbability {
  int label = 0;             // counted from 0, as in the training data
  double probability = 0.0;  // the probabilities of all classes sum to 1
};

// Not thread-safe. Computes on internal threads or on the GPU.
class ImageClassifier {
 public:
  // Arguments and errors as TrainedNetwork::Load, and FAILED_PRECONDITION if the config's model is
  // not a classifier.
  static absl::StatusOr<std::unique_ptr<ImageClassifier>> Load(
      FileSystem& files, const std::string& checkpoint_dir,
      const config::TrainEvalPipelineConfig& config, const TrainedNetworkOptions& options);

  uint64_t step() const { return network_->step(); }

  // Returns the `count` (>= 1) most probable classes, or all if there are fewer; the most probable
  // one is first, and among equal ones that with the lowest label. Blocks until computed. Logs a
  // warning that begins with `image_id` if the network's scores are not finite, so that the
  // probabilities are NaN.
  absl::StatusOr<std::vector<ClassProbability>> Classify(const Image& image,
                                                         const std::string& image_id, int count);

 private:
  explicit ImageClassifier(std::unique_ptr<TrainedNetwork> network)
      : network_(std::move(network)) {}

  const std::unique_ptr<TrainedNetwork> network_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_IMAGE_CLASSIFIER_H_
