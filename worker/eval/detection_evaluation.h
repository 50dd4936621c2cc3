// Detection metrics and losses over the examples of eval_input_reader.
#ifndef PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_
#define PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "kernels/detection/bounding_box.h"
#include "kernels/detection/post_processing.h"
#include "worker/eval/evaluation.h"
#include "worker/eval/evaluation_run.h"
#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

class DetectionEvaluation final : public Evaluation {
 public:
  // As MakeEvaluation. eval_config.metrics_set names the metrics, Pascal VOC's without one.
  static absl::StatusOr<std::unique_ptr<DetectionEvaluation>> Create(
      const config::TrainEvalPipelineConfig& config, const std::string& data_dir, int num_threads);

  const VariableLayout& layout() const override { return run_->layout(); }
  double UnsettledShare(int64_t num_updates) const override {
    return run_->UnsettledShare(num_updates);
  }

  // The metrics under TensorFlow's tags, the mAP of the first set before all; then
  // Losses/Loss/localization_loss and classification_loss, means over the images, each normalised
  // within its batch. An mAP of 0, or one that is not defined, is explained.
  absl::StatusOr<EvaluationReport> Run(absl::Span<const float> variables, int64_t num_updates,
                                       const std::atomic<bool>& stop) override;

 private:
  DetectionEvaluation(const config::EvalConfig& config, std::unique_ptr<EvaluationRun> run);

  std::vector<std::unique_ptr<DetectionMetrics>> MakeMetrics() const;
  // What the network's outputs of the last batch say, image by image.
  std::vector<std::vector<Detection>> DetectBatch(int64_t samples);

  const config::EvalConfig config_;
  const std::unique_ptr<EvaluationRun> run_;
  const DetectionSpec& spec_;
  const std::vector<BoundingBox> anchors_;
  std::vector<float> codes_, scores_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_
