// Tested by tests/worker/eval/evaluator_test.cc.
#include "worker/eval/evaluation.h"

#include "common/base/status_macros.h"
#include "worker/eval/classifier_evaluation.h"
#include "worker/eval/detection_evaluation.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<Evaluation>> MakeEvaluation(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    const ComputeOptions& compute, FileSystem* files, const std::atomic<bool>& stop) {
  if (config.model().has_ssd()) {
    return DetectionEvaluation::Create(config, data_dir, compute, files, stop);
  }
  return ClassifierEvaluation::Create(config, data_dir, compute, stop);
}

}  // namespace pushpull
