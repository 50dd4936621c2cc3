#include "worker/eval/metrics/voc_metrics.h"

#include <optional>
#include <utility>

#include "common/base/status_macros.h"

namespace pushpull {

VocMetrics::VocMetrics(DetectionMetricsOptions options)
    : options_(std::move(options)), classes_(options_.class_names.size()) {}

absl::Status VocMetrics::AddImage(const DetectionRecord& record) {
  PP_RETURN_IF_ERROR(CheckRecord(record, static_cast<int>(classes_.size())));
  for (const auto& [label, boxes] : BoxesByClass(record)) {
    AveragePrecision& state = classes_[label];
    for (const TruthBox* box : boxes.truth) {
      if (MustBeFound(*box)) state.AddTruth();
    }
    std::vector<bool> claimed(boxes.truth.size());
    for (const DetectedBox* detection : boxes.detections) {
      bool correct = false;
      if (const std::optional<size_t> match = FindMatch(*detection, boxes.truth)) {
        if (boxes.truth[*match]->difficult) continue;
        correct = !claimed[*match];
        claimed[*match] = true;
      }
      state.AddDetection(detection->score, correct);
    }
  }
  return absl::OkStatus();
}

std::vector<MetricValue> VocMetrics::Compute() const {
  return AveragePrecisionValues("PascalBoxes", classes_, options_);
}

int64_t VocMetrics::matches(int32_t label) const { return classes_.at(label).matches(); }

}  // namespace pushpull
