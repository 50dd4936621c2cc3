// Tested by tests/worker/eval/evaluator_test.cc.
#include "worker/eval/classifier_evaluation.h"

#include <cmath>
#include <utility>

#include "common/base/status_macros.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<ClassifierEvaluation>> ClassifierEvaluation::Create(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
    const ComputeOptions& compute, const std::atomic<bool>& stop) {
  PP_ASSIGN_OR_RETURN(std::unique_ptr<EvaluationRun> run,
                      EvaluationRun::Create(config, data_dir, compute, stop));
  return std::unique_ptr<ClassifierEvaluation>(new ClassifierEvaluation(std::move(run)));
}

absl::StatusOr<ClassificationMetrics> ClassifierEvaluation::Measure(
    absl::Span<const float> variables, int64_t num_updates, const std::atomic<bool>& stop,
    const ProgressFn& progress) {
  double loss = 0.0;
  int64_t top1 = 0;
  int64_t top5 = 0;
  int64_t examples = 0;
  PP_RETURN_IF_ERROR(run_->ForEachBatch(variables, num_updates, stop, progress,
                                        [&](const InputBatch&, const StepResult& result) {
                                          loss += result.loss * static_cast<double>(result.samples);
                                          top1 += result.correct_top1;
                                          top5 += result.correct_top5;
                                          examples += result.samples;
                                          return absl::OkStatus();
                                        }));
  const double count = static_cast<double>(examples);
  return ClassificationMetrics{static_cast<double>(top1) / count, static_cast<double>(top5) / count,
                               loss / count, examples};
}

absl::StatusOr<EvaluationReport> ClassifierEvaluation::Run(absl::Span<const float> variables,
                                                           int64_t num_updates,
                                                           const std::atomic<bool>& stop,
                                                           const ProgressFn& progress) {
  PP_ASSIGN_OR_RETURN(const ClassificationMetrics metrics,
                      Measure(variables, num_updates, stop, progress));
  EvaluationReport report;
  report.scalars = {{"accuracy", metrics.accuracy},
                    {"accuracy_top5", metrics.accuracy_top5},
                    {"loss", metrics.loss}};
  report.examples = metrics.examples;
  if (!std::isfinite(metrics.loss)) {
    report.explanation =
        "the model has diverged: the scores of the network are not all finite. Lower the learning "
        "rate or clip gradients, and go back to an earlier checkpoint with ps_server "
        "--from_checkpoint.";
  }
  return report;
}

}  // namespace pushpull
