// Detection metrics, losses and pictures over the examples of eval_input_reader.
#ifndef PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_
#define PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/file_system.h"
#include "worker/eval/detection_decoder.h"
#include "worker/eval/evaluation.h"
#include "worker/eval/evaluation_run.h"
#include "worker/eval/metrics/detection_metrics.h"

namespace pushpull {

class DetectionEvaluation final : public Evaluation {
 public:
  // As MakeEvaluation. eval_config.metrics_set names the metrics, Pascal VOC's without one.
  static absl::StatusOr<std::unique_ptr<DetectionEvaluation>> Create(
      const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
      const ComputeOptions& compute, FileSystem* files);

  const VariableLayout& layout() const override { return run_->layout(); }
  double UnsettledShare(int64_t num_updates) const override {
    return run_->UnsettledShare(num_updates);
  }

  // The metrics under TensorFlow's tags, the mAP of the first set before all; then
  // Losses/Loss/localization_loss and classification_loss, means over the images, each normalised
  // within its batch. An mAP of 0, or one that is not defined, is explained. Pictures of the first
  // eval_config.num_visualizations examples, with detections and ground truth. With
  // eval_config.export_path all detections go there in COCO's results format, the example's number
  // as image_id.
  absl::StatusOr<EvaluationReport> Run(absl::Span<const float> variables, int64_t num_updates,
                                       const std::atomic<bool>& stop) override;

 private:
  DetectionEvaluation(const config::EvalConfig& config, std::unique_ptr<EvaluationRun> run,
                      FileSystem* files);

  std::vector<std::unique_ptr<DetectionMetrics>> MakeMetrics() const;
  absl::StatusOr<EvaluationImage> DrawExample(int64_t index, const DetectionRecord& record) const;

  const config::EvalConfig config_;
  const std::unique_ptr<EvaluationRun> run_;
  FileSystem* const files_;
  DetectionDecoder decoder_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_
