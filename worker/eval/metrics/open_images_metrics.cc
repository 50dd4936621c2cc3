#include "worker/eval/metrics/open_images_metrics.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "common/base/status_macros.h"

namespace pushpull {

OpenImagesMetrics::OpenImagesMetrics(DetectionMetricsOptions options)
    : options_(std::move(options)), classes_(options_.class_names.size()) {}

absl::Status OpenImagesMetrics::AddImage(const DetectionRecord& record) {
  PP_RETURN_IF_ERROR(CheckRecord(record, static_cast<int>(classes_.size())));
  for (const auto& [label, boxes] : BoxesByClass(record)) {
    AveragePrecision& state = classes_[label];
    std::vector<const TruthBox*> single;
    std::vector<const TruthBox*> groups;
    for (const TruthBox* box : boxes.truth) (box->is_group_of ? groups : single).push_back(box);
    for (size_t i = 0; i < single.size(); ++i) state.AddTruth();
    std::vector<bool> claimed(single.size());
    for (const DetectedBox* detection : boxes.detections) {
      const std::optional<size_t> match = FindMatch(*detection, single);
      const bool correct = match.has_value() && !claimed[*match];
      if (correct) claimed[*match] = true;
      const auto covers = [detection](const TruthBox* group) {
        return IntersectionOverDetection(detection->box, group->box) >= kMatchingOverlap;
      };
      if (!correct && std::any_of(groups.begin(), groups.end(), covers)) continue;
      state.AddDetection(detection->score, correct);
    }
  }
  return absl::OkStatus();
}

std::vector<MetricValue> OpenImagesMetrics::Compute() const {
  return AveragePrecisionValues("OpenImagesV2", classes_, options_);
}

int64_t OpenImagesMetrics::matches(int32_t label) const { return classes_.at(label).matches(); }

}  // namespace pushpull
