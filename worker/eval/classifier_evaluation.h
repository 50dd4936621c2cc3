// Measures the top-1 accuracy, top-5 accuracy and loss of a classifier on the examples of
// eval_input_reader.
//
// Thread rule: as Evaluation.
#ifndef PUSHPULL_WORKER_EVAL_CLASSIFIER_EVALUATION_H_
#define PUSHPULL_WORKER_EVAL_CLASSIFIER_EVALUATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "worker/eval/evaluation.h"
#include "worker/eval/evaluation_run.h"

namespace pushpull {

// Among equal scores the label has the last place, so a network that cannot tell classes apart has
// an accuracy of 0. (ImageClassifier, which has to name one of them, names the lowest label.)
struct ClassificationMetrics {
  double accuracy = 0.0;       // share of examples whose label has the highest score
  double accuracy_top5 = 0.0;  // share of examples whose label has one of the five highest scores
  double loss = 0.0;           // mean cross-entropy, without L2 regularisation
  int64_t examples = 0;
};

class ClassifierEvaluation final : public Evaluation {
 public:
  // Arguments and errors as MakeEvaluation.
  static absl::StatusOr<std::unique_ptr<ClassifierEvaluation>> Create(
      const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
      const ComputeOptions& compute, const std::atomic<bool>& stop);

  const VariableLayout& layout() const override { return run_->layout(); }
  int64_t num_examples() const { return run_->num_examples(); }
  double UnsettledShare(int64_t num_updates) const override {
    return run_->UnsettledShare(num_updates);
  }

  // Arguments and errors as Run; returns the metrics as numbers.
  absl::StatusOr<ClassificationMetrics> Measure(absl::Span<const float> variables,
                                                int64_t num_updates, const std::atomic<bool>& stop,
                                                const ProgressFn& progress = nullptr);
  // Reports the scalars accuracy, accuracy_top5 and loss, and in the explanation that the model has
  // diverged.
  absl::StatusOr<EvaluationReport> Run(absl::Span<const float> variables, int64_t num_updates,
                                       const std::atomic<bool>& stop,
                                       const ProgressFn& progress) override;

 private:
  explicit ClassifierEvaluation(std::unique_ptr<EvaluationRun> run) : run_(std::move(run)) {}

  const std::unique_ptr<EvaluationRun> run_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_CLASSIFIER_EVALUATION_H_
