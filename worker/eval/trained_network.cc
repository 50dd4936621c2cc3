// Tested by tests/worker/eval/detector_test.cc.
// Tested by tests/worker/eval/image_classifier_test.cc.
#include "worker/eval/trained_network.h"

#include <utility>

#include "common/base/status_macros.h"
#include "common/checkpoint/trained_checkpoint.h"
#include "common/model/model_layout.h"

namespace pushpull {

TrainedNetwork::TrainedNetwork(NetworkSpec spec, const ComputeOptions& compute)
    : spec_(std::move(spec)),
      compute_(compute),
      input_shape_(InputShapeOf(spec_)),
      preprocessor_(input_shape_),
      input_(spec_.input.num_elements()) {}

absl::StatusOr<std::unique_ptr<TrainedNetwork>> TrainedNetwork::Load(
    FileSystem& files, const std::string& checkpoint_dir,
    const config::TrainEvalPipelineConfig& config, const TrainedNetworkOptions& options) {
  const VariableLayout layout = BuildVariableLayout(config);
  PP_ASSIGN_OR_RETURN(const std::unique_ptr<Checkpoint> checkpoint,
                      OpenTrainedCheckpoint(files, checkpoint_dir, options.step, &layout, config));
  std::unique_ptr<TrainedNetwork> result(
      new TrainedNetwork(BuildNetworkSpec(config.model()), options.compute));
  result->step_ = checkpoint->manifest().step;
  result->updates_ = static_cast<int64_t>(checkpoint->manifest().updates);
  const ElementRange all = {0, layout.total_elements()};
  result->variables_.resize(all.size());
  PP_RETURN_IF_ERROR(options.use_moving_averages
                         ? checkpoint->ReadEma(layout, all, result->variables_.data())
                         : checkpoint->ReadWeights(layout, all, result->variables_.data()));
  RunnerOptions network;
  network.training = false;
  PP_ASSIGN_OR_RETURN(result->network_,
                      result->compute_.MakeRunner(result->spec_, layout, network));
  result->network_->StageVariables(result->variables_, 0, layout.total_elements());
  return result;
}

absl::Status TrainedNetwork::Infer(const Image& image) {
  preprocessor_.Run(ViewPixels(image), {}, input_.data());
  ImageBatch<float> batch;
  batch.images = input_.data();
  batch.samples = 1;
  return network_->Infer(variables_, batch, updates_);
}

}  // namespace pushpull
