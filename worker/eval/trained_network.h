// A network with the variables of a checkpoint, which infers single images.
#ifndef PUSHPULL_WORKER_EVAL_TRAINED_NETWORK_H_
#define PUSHPULL_WORKER_EVAL_TRAINED_NETWORK_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "common/base/thread_pool.h"
#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"
#include "worker/data/image_source.h"
#include "worker/data/preprocessor.h"
#include "worker/model/compute.h"
#include "worker/model/network_runner.h"

namespace pushpull {

struct TrainedNetworkOptions {
  int64_t step = -1;                 // step of the checkpoint; negative: the run's newest
  bool use_moving_averages = false;  // use the EMA instead of the raw weights
  ComputeOptions compute = {};
};

// Not thread-safe. Computes on internal threads or on the GPU.
class TrainedNetwork {
 public:
  // Loads the checkpoint that OpenTrainedCheckpoint opens. Blocks on the disk. `files` is used only
  // during the call; options.compute.device must outlive the network.
  // FAILED_PRECONDITION: the checkpoint belongs to another model than `config` describes.
  // NOT_FOUND: there is no such checkpoint (the message lists the existing ones), or it has no EMA.
  // DATA_LOSS: the checkpoint does not verify.
  static absl::StatusOr<std::unique_ptr<TrainedNetwork>> Load(
      FileSystem& files, const std::string& checkpoint_dir,
      const config::TrainEvalPipelineConfig& config, const TrainedNetworkOptions& options);

  const NetworkSpec& spec() const { return spec_; }
  const InputShape& input_shape() const { return input_shape_; }
  uint64_t step() const { return step_; }
  ThreadPool* pool() { return compute_.pool(); }

  // Resizes and normalises the image as the evaluator does, and computes the outputs. Blocks until
  // computed. Errors as NetworkRunner::Infer.
  absl::Status Infer(const Image& image);
  // Returns the outputs of the last Infer, as NetworkRunner::outputs.
  std::vector<const float*> outputs() const { return network_->outputs(); }

 private:
  TrainedNetwork(NetworkSpec spec, const ComputeOptions& compute);

  const NetworkSpec spec_;
  ComputeResources compute_;
  std::unique_ptr<NetworkRunner> network_;
  const InputShape input_shape_;
  Preprocessor preprocessor_;
  std::vector<float> variables_;
  std::vector<float> input_;
  uint64_t step_ = 0;
  int64_t updates_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_TRAINED_NETWORK_H_
