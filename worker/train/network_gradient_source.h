// Contributions of a real network on real data.
#ifndef PUSHPULL_WORKER_TRAIN_NETWORK_GRADIENT_SOURCE_H_
#define PUSHPULL_WORKER_TRAIN_NETWORK_GRADIENT_SOURCE_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "worker/data/batch_objects.h"
#include "worker/data/image_cache.h"
#include "worker/data/image_source.h"
#include "worker/data/input_pipeline.h"
#include "worker/model/compute.h"
#include "worker/model/network_runner.h"
#include "worker/train/gradient_source.h"

namespace pushpull {

struct NetworkSourceOptions {
  std::string data_dir;
  ImageCacheOptions image_cache;  // prepared by CheckJob
  bool sync = true;
  uint64_t seed = 1;
  int num_slots = 1;
  ComputeOptions compute = {};
  int input_threads = 1;
};

// Opens train_input_reader of the config. Errors of OpenImageSource.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenTrainInput(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir);

class NetworkGradientSource final : public GradientSource {
 public:
  // layout must outlive the object. Errors: of the data set, the config, or a batch smaller than
  // the slots.
  static absl::StatusOr<std::unique_ptr<NetworkGradientSource>> Create(
      const config::TrainEvalPipelineConfig& config, const VariableLayout* layout,
      const NetworkSourceOptions& options);

  absl::StatusOr<std::shared_ptr<float>> AllocateVector(int64_t elements) override;
  void StageCompute(uint64_t position, uint32_t slot, absl::Span<const float> weights) override;
  void StageWeights(absl::Span<const float> weights, int64_t first, int64_t end) override;

  // Also tells the input pipeline which slots to prepare for, so: the ones this clone owns.
  absl::Status LoadInput(uint64_t position, uint32_t slot) override;

  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t slot,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override;

 private:
  NetworkGradientSource(const VariableLayout* layout, const NetworkSourceOptions& options);
  absl::Status PrepareSlot(uint32_t slot);
  // Of the batch that is loaded.
  ImageBatch<float> LoadedBatch();
  uint64_t DropoutSeed(uint64_t position, uint32_t slot) const;
  // Brings the pictures of the next batch on their way to the device, once they are ready.
  void StageNextPictures();

  const VariableLayout* const layout_;
  const NetworkSourceOptions options_;
  bool has_l2_ = false;
  bool is_detector_ = false;
  BatchObjects objects_;
  std::unique_ptr<ImageSource> images_;
  const InputBatch* input_ = nullptr;   // the pipeline's last; null: to be loaded
  const InputBatch* staged_ = nullptr;  // the pipeline's next, if it is on its way
  bool step_is_staged_ = false;         // of input_
  std::vector<int> slots_;              // the pipeline's
  bool owns_slot_ = false;              // slots_ are ours, not the guess of the start
  std::unique_ptr<ComputeResources> compute_;
  std::unique_ptr<NetworkRunner> network_;
  std::unique_ptr<InputPipeline> pipeline_;  // after what gave it memory
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_NETWORK_GRADIENT_SOURCE_H_
