// Measures detection metrics and losses on the examples of eval_input_reader, and draws detections
// on some of its images.
//
// Thread rule: as Evaluation.
#ifndef PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_
#define PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"

#include "common/base/file_system.h"
#include "worker/eval/detection_decoder.h"
#include "worker/eval/evaluation.h"
#include "worker/eval/evaluation_run.h"
#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

class DetectionEvaluation final : public Evaluation {
 public:
  // Arguments and errors as MakeEvaluation. eval_config.metrics_set selects the metrics; if it is
  // empty, those of Pascal VOC are used.
  static absl::StatusOr<std::unique_ptr<DetectionEvaluation>> Create(
      const config::TrainEvalPipelineConfig& config, const std::string& data_dir,
      const ComputeOptions& compute, FileSystem* files, const std::atomic<bool>& stop);

  const VariableLayout& layout() const override { return run_->layout(); }
  double UnsettledShare(int64_t num_updates) const override {
    return run_->UnsettledShare(num_updates);
  }

  // The report has the following parts:
  //   - Scalars: the metrics under TensorFlow's tags, beginning with the mAP of the first set, then
  //     Losses/Loss/localization_loss and Losses/Loss/classification_loss. The losses are
  //     normalised within each batch and averaged over the images.
  //   - Explanation: that the model has diverged, or the likely reason if the mAP of the first set
  //     is 0 or undefined.
  //   - Images: the first eval_config.num_visualizations examples with detections and ground truth.
  // If eval_config.export_path is set, writes all detections to that file in COCO's results format;
  // image_id is the index of the example. An error of that file is in report.export_status.
  absl::StatusOr<EvaluationReport> Run(absl::Span<const float> variables, int64_t num_updates,
                                       const std::atomic<bool>& stop,
                                       const ProgressFn& progress) override;

 private:
  DetectionEvaluation(const config::EvalConfig& config, std::unique_ptr<EvaluationRun> run,
                      FileSystem* files);

  absl::StatusOr<EvaluationImage> DrawExample(int64_t index, const DetectionRecord& record) const;

  const config::EvalConfig config_;
  const std::unique_ptr<EvaluationRun> run_;
  FileSystem* const files_;
  DetectionDecoder decoder_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DETECTION_EVALUATION_H_
