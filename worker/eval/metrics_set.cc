// Tested by tests/worker/eval/detection_evaluation_test.cc.
// Tested by tests/worker/eval/detections_file_test.cc.
#include "worker/eval/metrics_set.h"

#include <limits>
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

#include "common/base/status_macros.h"
#include "worker/eval/metrics/coco_metrics.h"
#include "worker/eval/metrics/open_images_metrics.h"
#include "worker/eval/metrics/voc_metrics.h"

namespace pushpull {
namespace {

constexpr char kCocoMetrics[] = "coco_detection_metrics";
constexpr char kOpenImagesMetrics[] = "oid_V2_detection_metrics";
constexpr char kOpenImagesMetricsOfOld[] = "open_images_V2_detection_metrics";  // the former name

std::vector<std::unique_ptr<DetectionMetrics>> MakeMetrics(
    const config::EvalConfig& config, const std::vector<std::string>& class_names) {
  DetectionMetricsOptions options;
  options.class_names = class_names;
  std::vector<std::unique_ptr<DetectionMetrics>> metrics;
  std::set<std::string> chosen;  // each once, for a metric that is named twice has the same tags
  for (const std::string& name : config.metrics_set()) {
    if (!chosen.insert(name == kOpenImagesMetricsOfOld ? kOpenImagesMetrics : name).second)
      continue;
    if (name == kCocoMetrics) {
      options.per_category = config.include_metrics_per_category();
      metrics.push_back(std::make_unique<CocoMetrics>(options));
    } else if (name == kOpenImagesMetrics || name == kOpenImagesMetricsOfOld) {
      options.per_category = true;
      metrics.push_back(std::make_unique<OpenImagesMetrics>(options));
    } else {
      options.per_category = true;
      metrics.push_back(std::make_unique<VocMetrics>(options));
    }
  }
  if (metrics.empty()) metrics.push_back(std::make_unique<VocMetrics>(options));
  return metrics;
}

}  // namespace

MetricsSet::MetricsSet(const config::EvalConfig& config,
                       const std::vector<std::string>& class_names)
    : metrics_(MakeMetrics(config, class_names)),
      explanation_(metrics_.front().get(), class_names) {}

absl::Status MetricsSet::AddImage(const DetectionRecord& record) {
  for (const auto& metric : metrics_) PP_RETURN_IF_ERROR(metric->AddImage(record));
  explanation_.AddImage(record);
  ++images_;
  return absl::OkStatus();
}

void MetricsSet::Report(EvaluationReport* report) const {
  const size_t first = report->scalars.size();
  for (const auto& metric : metrics_) {
    for (const MetricValue& value : metric->Compute()) {
      // COCO's metrics are -1 where there is nothing to find. Such a value is not worse than
      // another one, but undefined.
      const bool is_defined = value.value >= 0;
      report->scalars.push_back(
          {value.tag, is_defined ? value.value : std::numeric_limits<double>::quiet_NaN()});
    }
  }
  if (diverged_images_ > 0) {
    report->explanation = absl::StrFormat(
        "the model has diverged: on %d of %d images the outputs of the network are not all finite, "
        "and their detections are left out. Lower the learning rate or clip gradients, and go back "
        "to an earlier checkpoint with ps_server --from_checkpoint.",
        diverged_images_, images_);
    return;
  }
  report->explanation = explanation_.Explain(report->scalars[first].value);
  if (!report->explanation.empty()) {
    absl::StrAppend(&report->explanation, "\n", explanation_.Table());
  }
}

}  // namespace pushpull
