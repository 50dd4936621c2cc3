// The GradientSource of training: runs a network on the training data.
#ifndef PUSHPULL_WORKER_TRAIN_NETWORK_GRADIENT_SOURCE_H_
#define PUSHPULL_WORKER_TRAIN_NETWORK_GRADIENT_SOURCE_H_

#include <cstdint>
#include <map>
#include <memory>
#include <string>

#include "absl/status/statusor.h"

#include "common/base/stop_requested.h"
#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"
#include "worker/client/gradient_source.h"
#include "worker/data/batch_objects.h"
#include "worker/data/image_cache.h"
#include "worker/data/image_source.h"
#include "worker/data/input_pipeline.h"
#include "worker/model/compute.h"
#include "worker/model/network_runner.h"
#include "worker/sampling/sampler.h"

namespace pushpull {

struct NetworkSourceOptions {
  std::string data_dir;
  ImageCacheOptions image_cache;  // without a folder: none; the cache was prepared by CheckJob
  bool sync = true;
  uint64_t seed = 1;
  // Replicas of the job. Sync: as far as known at the start; NotePart says what a replica computes.
  int num_replicas = 1;
  ComputeOptions compute = {};
  int input_threads = 1;                 // threads that decode and prepare images
  StopRequested stopped = NeverStopped;  // as in ImageSourceOptions
};

// Opens train_input_reader of the config. `stopped` as in ImageSourceOptions. Errors as
// OpenImageSource.
absl::StatusOr<std::unique_ptr<ImageSource>> OpenTrainInput(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    StopRequested stopped);

class NetworkGradientSource final : public GradientSource {
 public:
  // `layout` must outlive the object. CANCELLED: options.stopped returned true. Other errors are
  // those of the config, the data set, the image cache and ComputeResources::MakeRunner, and of a
  // batch that is smaller than the number of replicas.
  static absl::StatusOr<std::unique_ptr<NetworkGradientSource>> Create(
      const config::TrainEvalPipelineConfig& config, const VariableLayout* layout,
      const NetworkSourceOptions& options);

  absl::StatusOr<std::shared_ptr<float>> AllocateVector(int64_t elements) override;
  // Examples that train_input_reader.sample_1_of_n_examples leaves out do not count.
  uint64_t num_images() const override { return static_cast<uint64_t>(images_->size()); }
  void StageCompute(uint64_t position, uint32_t replica, absl::Span<const float> weights) override;
  void StageWeights(absl::Span<const float> weights, int64_t first, int64_t end) override;

  // A part with more samples than all before it makes the network and the input pipeline anew, with
  // more memory, in the next LoadInput.
  void NotePart(uint32_t replica, const BatchPart& part) override;

  // The input pipeline prepares batches for the replicas that are passed here in turn. One that is
  // left out when its turn comes is not prepared any more, until it is passed again.
  absl::Status LoadInput(uint64_t position, uint32_t replica) override;

  // Returns the batch that LoadInput is expected to ask for next if it is ready, else null. For
  // tests.
  const InputBatch* NextInput() { return pipeline_->PeekNext(); }

  absl::StatusOr<GradientResult> Compute(uint64_t position, uint32_t replica,
                                         absl::Span<const float> weights,
                                         absl::Span<float> gradient,
                                         absl::FunctionRef<void(int64_t)> advance) override;

 private:
  NetworkGradientSource(const VariableLayout* layout, const NetworkSourceOptions& options);
  // Makes the pipeline prepare batches for this replica too.
  absl::Status PrepareReplica(uint32_t replica);
  // Makes network and pipeline for batches of up to `samples`. Drops what was prepared and staged.
  absl::Status Allocate(int64_t samples);
  // Returns the part of the batch that the replica has; without samples where none is known.
  BatchPart PartOf(uint32_t replica) const;
  // Returns whether the batch is that of (position, replica) under the present division.
  bool IsOf(const InputBatch* batch, uint64_t position, uint32_t replica) const;
  // Returns input_ as the network reads it.
  ImageBatch<float> LoadedBatch();
  uint64_t DropoutSeed(uint64_t position, uint32_t replica) const;
  // Starts the upload of the next batch's images if the pipeline has them ready.
  void StageNextImages();

  const VariableLayout* const layout_;
  const NetworkSourceOptions options_;
  NetworkSpec spec_;
  SamplerOptions sampling_;
  InputPipelineOptions input_options_;
  bool has_l2_ = false;
  bool is_detector_ = false;
  BatchObjects objects_;
  std::unique_ptr<ImageSource> images_;
  const InputBatch* input_ = nullptr;   // the batch that is loaded, owned by the pipeline
  const InputBatch* staged_ = nullptr;  // the pipeline's next batch, if its upload was started
  bool step_is_staged_ = false;         // StageStep was called with input_
  std::map<int, BatchPart> parts_;      // sync: as NotePart said, by replica
  std::map<int, BatchPart> prepared_;   // the replicas that the pipeline prepares for
  bool owns_replica_ = false;           // false: prepared_ is a guess, made before the first grant
  int64_t max_samples_ = 0;             // that network and pipeline have memory for
  std::unique_ptr<ComputeResources> compute_;
  std::unique_ptr<NetworkRunner> network_;
  std::unique_ptr<InputPipeline> pipeline_;  // its memory comes from network_, so it goes first
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_NETWORK_GRADIENT_SOURCE_H_
