// Tested by tests/worker/eval/metrics/voc_metrics_test.cc.
// Tested by tests/worker/eval/metrics/metrics_golden_test.cc.
#include "worker/eval/metrics/average_precision.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "absl/strings/str_cat.h"

namespace pushpull {
namespace {

bool HasExtent(const PixelBox& box) { return box.ymin < box.ymax && box.xmin < box.xmax; }

}  // namespace

double AveragePrecision::Compute() const {
  if (truth_ == 0) return std::numeric_limits<double>::quiet_NaN();
  std::vector<Detection> sorted = detections_;
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const Detection& a, const Detection& b) { return a.score > b.score; });
  int64_t correct = 0;
  std::vector<double> precision(sorted.size());
  for (size_t i = 0; i < sorted.size(); ++i) {
    correct += sorted[i].correct ? 1 : 0;
    precision[i] = static_cast<double>(correct) / static_cast<double>(i + 1);
  }
  // Each correct detection raises the recall by 1 / truth_. The envelope is the largest precision
  // at that detection or any later one.
  double average = 0;
  double envelope = 0;
  for (size_t i = sorted.size(); i-- > 0;) {
    envelope = std::max(envelope, precision[i]);
    if (sorted[i].correct) average += envelope / static_cast<double>(truth_);
  }
  return average;
}

int64_t AveragePrecision::matches() const {
  return std::count_if(detections_.begin(), detections_.end(),
                       [](const Detection& detection) { return detection.correct; });
}

std::map<int32_t, ClassBoxes> BoxesByClass(const DetectionRecord& record) {
  std::map<int32_t, ClassBoxes> by_class;
  for (const TruthBox& truth : record.ground_truth) {
    by_class[truth.label].truth.push_back(&truth);
  }
  for (const DetectedBox& detection : record.detections) {
    if (HasExtent(detection.box)) by_class[detection.label].detections.push_back(&detection);
  }
  for (auto& [label, boxes] : by_class) {
    std::stable_sort(
        boxes.detections.begin(), boxes.detections.end(),
        [](const DetectedBox* a, const DetectedBox* b) { return a->score > b->score; });
  }
  return by_class;
}

std::optional<size_t> FindMatch(const DetectedBox& detection,
                                const std::vector<const TruthBox*>& truth) {
  double best_iou = 0;
  size_t best = truth.size();
  for (size_t i = 0; i < truth.size(); ++i) {
    const double iou = IntersectionOverUnion(detection.box, truth[i]->box);
    if (iou > best_iou) {
      best_iou = iou;
      best = i;
    }
  }
  if (best_iou < kMatchingOverlap) return std::nullopt;
  return best;
}

std::vector<MetricValue> AveragePrecisionValues(absl::string_view prefix,
                                                const std::vector<AveragePrecision>& classes,
                                                const DetectionMetricsOptions& options) {
  std::vector<MetricValue> values(1);
  double sum = 0;
  int64_t count = 0;
  for (size_t label = 0; label < classes.size(); ++label) {
    const double average = classes[label].Compute();
    if (!std::isnan(average)) {
      sum += average;
      ++count;
    }
    if (options.per_category) {
      values.push_back(
          {absl::StrCat(prefix, "_PerformanceByCategory/AP@0.5IOU/", options.class_names[label]),
           average});
    }
  }
  values[0] = {
      absl::StrCat(prefix, "_Precision/mAP@0.5IOU"),
      count > 0 ? sum / static_cast<double>(count) : std::numeric_limits<double>::quiet_NaN()};
  return values;
}

}  // namespace pushpull
