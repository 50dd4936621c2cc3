#include "worker/eval/detection_evaluation.h"

#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/status_macros.h"
#include "kernels/detection/ssd_anchors.h"
#include "worker/eval/metrics/coco_metrics.h"
#include "worker/eval/metrics/metrics_explanation.h"
#include "worker/eval/metrics/voc_metrics.h"
#include "worker/model/detection_outputs.h"

namespace pushpull {
namespace {

constexpr char kVocMetrics[] = "pascal_voc_detection_metrics";
constexpr char kCocoMetrics[] = "coco_detection_metrics";

PixelBox ToPixels(float ymin, float xmin, float ymax, float xmax, const ImageSize& size) {
  const float height = static_cast<float>(size.height);
  const float width = static_cast<float>(size.width);
  return {ymin * height, xmin * width, ymax * height, xmax * width};
}

DetectionRecord MakeRecord(const std::string& image_id, const ImageSize& size,
                           const std::vector<Box>& boxes,
                           const std::vector<Detection>& detections) {
  DetectionRecord record;
  record.image_id = image_id;
  for (const Box& box : boxes) {
    TruthBox truth;
    truth.box = ToPixels(box.ymin, box.xmin, box.ymax, box.xmax, size);
    truth.label = box.label;
    truth.difficult = box.difficult;
    truth.is_crowd = box.is_crowd;
    record.ground_truth.push_back(truth);
  }
  for (const Detection& detection : detections) {
    const BoundingBox& box = detection.box;
    record.detections.push_back(
        {ToPixels(box.ymin, box.xmin, box.ymax, box.xmax, size), detection.label, detection.score});
  }
  return record;
}

// Sums of what the batches report, for means over the images.
struct LossSums {
  double localization = 0.0;
  double classification = 0.0;
  int64_t images = 0;

  void Add(const StepResult& result) {
    const double samples = static_cast<double>(result.samples);
    localization += samples * result.detection.localization_loss;
    classification += samples * result.detection.classification_loss;
    images += result.samples;
  }
  void Report(EvaluationReport* report) const {
    const double count = static_cast<double>(images);
    report->scalars.push_back({"Losses/Loss/localization_loss", localization / count});
    report->scalars.push_back({"Losses/Loss/classification_loss", classification / count});
    report->examples = images;
  }
};

}  // namespace

DetectionEvaluation::DetectionEvaluation(const config::EvalConfig& config,
                                         std::unique_ptr<EvaluationRun> run)
    : config_(config),
      run_(std::move(run)),
      spec_(*run_->spec().detection),
      anchors_(GenerateSsdAnchors(spec_.anchors, spec_.heads)) {}

absl::StatusOr<std::unique_ptr<DetectionEvaluation>> DetectionEvaluation::Create(
    const config::TrainEvalPipelineConfig& config, const std::string& data_dir, int num_threads) {
  for (const std::string& name : config.eval_config().metrics_set()) {
    if (name != kVocMetrics && name != kCocoMetrics) {
      return absl::InvalidArgumentError(absl::StrCat("eval_config.metrics_set is \"", name,
                                                     "\", expected \"", kVocMetrics, "\" or \"",
                                                     kCocoMetrics, "\""));
    }
  }
  PP_ASSIGN_OR_RETURN(std::unique_ptr<EvaluationRun> run,
                      EvaluationRun::Create(config, data_dir, num_threads));
  return std::unique_ptr<DetectionEvaluation>(
      new DetectionEvaluation(config.eval_config(), std::move(run)));
}

std::vector<std::unique_ptr<DetectionMetrics>> DetectionEvaluation::MakeMetrics() const {
  DetectionMetricsOptions options;
  options.class_names = run_->source().class_names();
  std::vector<std::unique_ptr<DetectionMetrics>> metrics;
  for (const std::string& name : config_.metrics_set()) {
    if (name == kCocoMetrics) {
      options.per_category = config_.include_metrics_per_category();
      metrics.push_back(std::make_unique<CocoMetrics>(options));
    } else {
      options.per_category = true;
      metrics.push_back(std::make_unique<VocMetrics>(options));
    }
  }
  if (metrics.empty()) metrics.push_back(std::make_unique<VocMetrics>(options));
  return metrics;
}

std::vector<std::vector<Detection>> DetectionEvaluation::DetectBatch(int64_t samples) {
  const int64_t anchors = static_cast<int64_t>(anchors_.size());
  const int64_t columns = spec_.num_classes + 1;
  codes_.resize(samples * anchors * kBoxCodeSize);
  scores_.resize(samples * anchors * columns);
  GatherDetectionOutputs<float>(spec_, samples, run_->network().outputs(), codes_.data(),
                                scores_.data());
  std::vector<std::vector<Detection>> detections(samples);
  run_->pool().ParallelFor(samples, [&](int64_t i) {
    const absl::Span<const float> codes(codes_);
    const absl::Span<const float> scores(scores_);
    detections[i] = PostProcess(spec_, anchors_,
                                codes.subspan(i * anchors * kBoxCodeSize, anchors * kBoxCodeSize),
                                scores.subspan(i * anchors * columns, anchors * columns));
  });
  return detections;
}

absl::StatusOr<EvaluationReport> DetectionEvaluation::Run(absl::Span<const float> variables,
                                                          int64_t num_updates,
                                                          const std::atomic<bool>& stop) {
  const std::vector<std::unique_ptr<DetectionMetrics>> metrics = MakeMetrics();
  MetricsExplanation explanation(metrics.front().get(), run_->source().class_names());
  LossSums losses;
  const auto use = [&](const InputBatch& input, const StepResult& result) -> absl::Status {
    const std::vector<std::vector<Detection>> detections = DetectBatch(input.n);
    for (int64_t i = 0; i < input.n; ++i) {
      const DetectionRecord record =
          MakeRecord(absl::StrCat(input.samples[i].index), input.original_sizes[i], input.boxes[i],
                     detections[i]);
      for (const auto& metric : metrics) PP_RETURN_IF_ERROR(metric->AddImage(record));
      explanation.AddImage(record);
    }
    losses.Add(result);
    return absl::OkStatus();
  };
  PP_RETURN_IF_ERROR(run_->ForEachBatch(variables, num_updates, stop, use));

  EvaluationReport report;
  for (const auto& metric : metrics) {
    for (const MetricValue& value : metric->Compute()) {
      report.scalars.push_back({value.tag, value.value});
    }
  }
  losses.Report(&report);
  report.explanation = explanation.Explain();
  if (!report.explanation.empty()) absl::StrAppend(&report.explanation, "\n", explanation.Table());
  return report;
}

}  // namespace pushpull
