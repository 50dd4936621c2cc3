// Tested by tests/worker/eval/detection_evaluation_test.cc.
#include "worker/eval/metrics_set.h"

#include <set>

#include "worker/eval/metrics/coco_metrics.h"
#include "worker/eval/metrics/open_images_metrics.h"
#include "worker/eval/metrics/voc_metrics.h"

namespace pushpull {
namespace {

constexpr char kCocoMetrics[] = "coco_detection_metrics";
constexpr char kOpenImagesMetrics[] = "oid_V2_detection_metrics";
constexpr char kOpenImagesMetricsOfOld[] = "open_images_V2_detection_metrics";  // the former name

}  // namespace

std::vector<std::unique_ptr<DetectionMetrics>> MakeMetricsSet(
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

}  // namespace pushpull
