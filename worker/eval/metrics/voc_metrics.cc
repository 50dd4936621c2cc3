#include "worker/eval/metrics/voc_metrics.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr double kMatchingIou = 0.5;

bool HasExtent(const PixelBox& box) { return box.ymin < box.ymax && box.xmin < box.xmax; }

}  // namespace

VocMetrics::VocMetrics(DetectionMetricsOptions options)
    : options_(std::move(options)), classes_(options_.class_names.size()) {}

absl::Status VocMetrics::AddImage(const DetectionRecord& record) {
  PP_RETURN_IF_ERROR(CheckRecord(record, static_cast<int>(classes_.size())));
  struct Boxes {
    std::vector<const TruthBox*> truth;
    std::vector<const DetectedBox*> detections;
  };
  std::map<int32_t, Boxes> by_class;
  for (const TruthBox& truth : record.ground_truth) {
    by_class[truth.label].truth.push_back(&truth);
  }
  for (const DetectedBox& detection : record.detections) {
    if (HasExtent(detection.box)) by_class[detection.label].detections.push_back(&detection);
  }
  for (auto& [label, boxes] : by_class) {
    AddClass(std::move(boxes.truth), std::move(boxes.detections), &classes_[label]);
  }
  return absl::OkStatus();
}

void VocMetrics::AddClass(std::vector<const TruthBox*> truth,
                          std::vector<const DetectedBox*> detections, ClassState* state) {
  for (const TruthBox* box : truth) state->truth += MustBeFound(*box) ? 1 : 0;
  std::stable_sort(detections.begin(), detections.end(),
                   [](const DetectedBox* a, const DetectedBox* b) { return a->score > b->score; });
  std::vector<bool> claimed(truth.size());
  for (const DetectedBox* detection : detections) {
    double best_iou = 0;
    size_t best = truth.size();
    for (size_t i = 0; i < truth.size(); ++i) {
      const double iou = IntersectionOverUnion(detection->box, truth[i]->box);
      if (iou > best_iou) {
        best_iou = iou;
        best = i;
      }
    }
    bool correct = false;
    if (best_iou >= kMatchingIou) {
      if (truth[best]->difficult) continue;
      correct = !claimed[best];
      claimed[best] = true;
    }
    state->detections.push_back({detection->score, correct});
  }
}

std::vector<MetricValue> VocMetrics::Compute() const {
  std::vector<MetricValue> values(1);
  double sum = 0;
  int64_t count = 0;
  for (size_t label = 0; label < classes_.size(); ++label) {
    const ClassState& state = classes_[label];
    double average = std::numeric_limits<double>::quiet_NaN();
    if (state.truth > 0) {
      std::vector<Detection> sorted = state.detections;
      std::stable_sort(sorted.begin(), sorted.end(),
                       [](const Detection& a, const Detection& b) { return a.score > b.score; });
      int64_t correct = 0;
      std::vector<double> precision(sorted.size());
      for (size_t i = 0; i < sorted.size(); ++i) {
        correct += sorted[i].correct ? 1 : 0;
        precision[i] = static_cast<double>(correct) / static_cast<double>(i + 1);
      }
      // Each correct detection raises the recall by 1 / truth. The envelope is the largest
      // precision at that detection or any later one.
      average = 0;
      double envelope = 0;
      for (size_t i = sorted.size(); i-- > 0;) {
        envelope = std::max(envelope, precision[i]);
        if (sorted[i].correct) average += envelope / static_cast<double>(state.truth);
      }
      sum += average;
      ++count;
    }
    if (options_.per_category) {
      values.push_back({absl::StrCat("PascalBoxes_PerformanceByCategory/AP@0.5IOU/",
                                     options_.class_names[label]),
                        average});
    }
  }
  values[0] = {"PascalBoxes_Precision/mAP@0.5IOU", count > 0
                                                       ? sum / static_cast<double>(count)
                                                       : std::numeric_limits<double>::quiet_NaN()};
  return values;
}

int64_t VocMetrics::matches(int32_t label) const {
  const std::vector<Detection>& detections = classes_.at(label).detections;
  return std::count_if(detections.begin(), detections.end(),
                       [](const Detection& detection) { return detection.correct; });
}

}  // namespace pushpull
