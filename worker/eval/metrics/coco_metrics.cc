#include "worker/eval/metrics/coco_metrics.h"

#include <algorithm>
#include <limits>
#include <map>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int kMaxDetections = 100;
constexpr int kRecallPoints = 101;

struct AreaRange {
  double smallest;
  double largest;

  bool Holds(double area) const { return area >= smallest && area <= largest; }
};

// In square pixels, indexed by `area`.
constexpr AreaRange kAreaRanges[] = {{0, 1e10}, {0, 32 * 32}, {32 * 32, 96 * 96}, {96 * 96, 1e10}};
enum Area { kAll, kSmall, kMedium, kLarge };

// Indices of the IoU thresholds 0.50 and 0.75.
constexpr int kThreshold50 = 0;
constexpr int kThreshold75 = 5;

// Returns the same bits as numpy.linspace(0.5, 0.95, 10), since an IoU may equal a threshold
// exactly.
double IouThreshold(int index) { return index == 9 ? 0.95 : 0.5 + index * ((0.95 - 0.5) / 9); }

double TruthArea(const TruthBox& truth) { return truth.area > 0 ? truth.area : BoxArea(truth.box); }

// Sorts the detections by descending score, and drops those beyond kMaxDetections.
void KeepHighestScores(std::vector<const DetectedBox*>* detections) {
  std::stable_sort(detections->begin(), detections->end(),
                   [](const DetectedBox* a, const DetectedBox* b) { return a->score > b->score; });
  if (detections->size() > kMaxDetections) detections->resize(kMaxDetections);
}

// Returns the overlap of each detection with each ground truth, [detections, truth].
std::vector<double> Overlaps(const std::vector<const DetectedBox*>& detections,
                             const std::vector<const TruthBox*>& truth) {
  std::vector<double> overlaps;
  overlaps.reserve(detections.size() * truth.size());
  for (const DetectedBox* detection : detections) {
    for (const TruthBox* box : truth) {
      overlaps.push_back(box->is_crowd ? IntersectionOverDetection(detection->box, box->box)
                                       : IntersectionOverUnion(detection->box, box->box));
    }
  }
  return overlaps;
}

enum class Outcome { kUnmatched, kMatched, kMatchedIgnored };

// Matches the detections of one image and class with its ground truth, for one range of areas.
// Ground truth outside the range and crowds are ignored: they do not have to be found.
class Matching {
 public:
  // `overlaps` is that of Overlaps. Both vectors must outlive this object.
  Matching(const std::vector<const TruthBox*>* truth, const std::vector<double>* overlaps,
           const AreaRange& range)
      : truth_(*truth), overlaps_(*overlaps) {
    std::vector<int> ignored;
    for (int i = 0; i < static_cast<int>(truth_.size()); ++i) {
      const bool counts = !truth_[i]->is_crowd && range.Holds(TruthArea(*truth_[i]));
      (counts ? order_ : ignored).push_back(i);
    }
    num_counted_ = static_cast<int>(order_.size());
    order_.insert(order_.end(), ignored.begin(), ignored.end());
  }

  // Number of boxes that must be found.
  int num_counted() const { return num_counted_; }

  // Forgets all matches. Call it before the matching at each threshold.
  void Begin() { taken_.assign(order_.size(), false); }

  // Matches the detection with the free box of the largest overlap that reaches the threshold, and
  // marks the box as taken. Prefers any box that counts to all ignored ones. Among equal overlaps
  // the last box wins.
  Outcome Match(int detection, double threshold) {
    double best = std::min(threshold, 1 - 1e-10);
    int found = -1;
    for (int place = 0; place < static_cast<int>(order_.size()); ++place) {
      const int index = order_[place];
      if (taken_[place] && !truth_[index]->is_crowd) continue;
      if (found >= 0 && found < num_counted_ && place >= num_counted_) break;
      const double overlap = overlaps_[detection * order_.size() + index];
      if (overlap < best) continue;
      best = overlap;
      found = place;
    }
    if (found < 0) return Outcome::kUnmatched;
    taken_[found] = true;
    return found < num_counted_ ? Outcome::kMatched : Outcome::kMatchedIgnored;
  }

 private:
  const std::vector<const TruthBox*>& truth_;
  const std::vector<double>& overlaps_;
  std::vector<int> order_;  // indices in truth_: first those that count, then the ignored ones
  int num_counted_ = 0;
  std::vector<bool> taken_;  // indexed as order_
};

}  // namespace

// Computes a mean, which is -1 if there are no values.
class CocoMetrics::Summary {
 public:
  void Add(double value) {
    sum_ += value;
    ++count_;
  }
  double value() const { return count_ > 0 ? sum_ / static_cast<double>(count_) : -1; }

 private:
  double sum_ = 0;
  int64_t count_ = 0;
};

CocoMetrics::CocoMetrics(DetectionMetricsOptions options)
    : options_(std::move(options)), classes_(options_.class_names.size()) {}

absl::Status CocoMetrics::AddImage(const DetectionRecord& record) {
  PP_RETURN_IF_ERROR(CheckRecord(record, static_cast<int>(classes_.size())));
  std::map<int32_t, Boxes> by_class;
  for (const TruthBox& truth : record.ground_truth) {
    by_class[truth.label].truth.push_back(&truth);
  }
  for (const DetectedBox& detection : record.detections) {
    by_class[detection.label].detections.push_back(&detection);
  }
  for (auto& [label, boxes] : by_class) AddClass(std::move(boxes), &classes_[label]);
  return absl::OkStatus();
}

void CocoMetrics::AddClass(Boxes boxes, ClassState* state) {
  KeepHighestScores(&boxes.detections);
  const std::vector<const DetectedBox*>& detections = boxes.detections;
  const std::vector<double> overlaps = Overlaps(detections, boxes.truth);
  std::vector<Detection> results(detections.size());
  for (int area = 0; area < kAreas; ++area) {
    Matching matching(&boxes.truth, &overlaps, kAreaRanges[area]);
    state->truth[area] += matching.num_counted();
    for (int threshold = 0; threshold < kThresholds; ++threshold) {
      const uint64_t bit = Bit(area, threshold);
      matching.Begin();
      for (int i = 0; i < static_cast<int>(detections.size()); ++i) {
        const Outcome outcome = matching.Match(i, IouThreshold(threshold));
        if (outcome == Outcome::kMatched) {
          results[i].true_positive |= bit;
        } else if (outcome == Outcome::kUnmatched &&
                   kAreaRanges[area].Holds(BoxArea(detections[i]->box))) {
          results[i].false_positive |= bit;
        }
      }
    }
  }
  for (size_t i = 0; i < results.size(); ++i) {
    results[i].score = detections[i]->score;
    results[i].rank = static_cast<int32_t>(i);
    state->detections.push_back(results[i]);
  }
}

CocoMetrics::Point CocoMetrics::Evaluate(const std::vector<Detection>& sorted, int64_t truth,
                                         int area, int threshold, int max_rank) {
  const uint64_t bit = Bit(area, threshold);
  std::vector<double> precision;
  std::vector<double> recall;
  double true_positives = 0;
  double false_positives = 0;
  for (const Detection& detection : sorted) {
    if (detection.rank >= max_rank) continue;
    if (((detection.true_positive | detection.false_positive) & bit) == 0) continue;
    (detection.true_positive & bit ? true_positives : false_positives) += 1;
    precision.push_back(true_positives / (false_positives + true_positives +
                                          std::numeric_limits<double>::epsilon()));
    recall.push_back(true_positives / static_cast<double>(truth));
  }
  // Makes the precision monotone: at each recall it is the highest one at that recall or a larger.
  for (size_t i = precision.size(); i-- > 1;) {
    precision[i - 1] = std::max(precision[i - 1], precision[i]);
  }
  double sum = 0;
  size_t place = 0;
  for (int i = 0; i < kRecallPoints; ++i) {
    const double wanted = i == kRecallPoints - 1 ? 1.0 : i * (1.0 / (kRecallPoints - 1));
    while (place < recall.size() && recall[place] < wanted) ++place;
    if (place == recall.size()) break;
    sum += precision[place];
  }
  return {sum / kRecallPoints, recall.empty() ? 0 : recall.back()};
}

std::vector<MetricValue> CocoMetrics::Compute() const {
  Summary precision[kAreas], recall[kAreas], precision_50, precision_75, recall_1, recall_10;
  std::vector<Summary> by_class(classes_.size());
  for (size_t label = 0; label < classes_.size(); ++label) {
    const ClassState& state = classes_[label];
    std::vector<Detection> sorted = state.detections;
    std::stable_sort(sorted.begin(), sorted.end(),
                     [](const Detection& a, const Detection& b) { return a.score > b.score; });
    for (int area = 0; area < kAreas; ++area) {
      if (state.truth[area] == 0) continue;
      for (int threshold = 0; threshold < kThresholds; ++threshold) {
        const auto at = [&](int max_rank) {
          return Evaluate(sorted, state.truth[area], area, threshold, max_rank);
        };
        const Point point = at(kMaxDetections);
        precision[area].Add(point.average_precision);
        recall[area].Add(point.recall);
        if (area != kAll) continue;
        by_class[label].Add(point.average_precision);
        if (threshold == kThreshold50) precision_50.Add(point.average_precision);
        if (threshold == kThreshold75) precision_75.Add(point.average_precision);
        recall_1.Add(at(1).recall);
        recall_10.Add(at(10).recall);
      }
    }
  }
  std::vector<MetricValue> values = {
      {"DetectionBoxes_Precision/mAP", precision[kAll].value()},
      {"DetectionBoxes_Precision/mAP@.50IOU", precision_50.value()},
      {"DetectionBoxes_Precision/mAP@.75IOU", precision_75.value()},
      {"DetectionBoxes_Precision/mAP (small)", precision[kSmall].value()},
      {"DetectionBoxes_Precision/mAP (medium)", precision[kMedium].value()},
      {"DetectionBoxes_Precision/mAP (large)", precision[kLarge].value()},
      {"DetectionBoxes_Recall/AR@1", recall_1.value()},
      {"DetectionBoxes_Recall/AR@10", recall_10.value()},
      {"DetectionBoxes_Recall/AR@100", recall[kAll].value()},
      {"DetectionBoxes_Recall/AR@100 (small)", recall[kSmall].value()},
      {"DetectionBoxes_Recall/AR@100 (medium)", recall[kMedium].value()},
      {"DetectionBoxes_Recall/AR@100 (large)", recall[kLarge].value()}};
  if (options_.per_category) {
    for (size_t label = 0; label < classes_.size(); ++label) {
      values.push_back(
          {absl::StrCat("DetectionBoxes_PerformanceByCategory/mAP/", options_.class_names[label]),
           by_class[label].value()});
    }
  }
  return values;
}

int64_t CocoMetrics::matches(int32_t label) const {
  const std::vector<Detection>& detections = classes_.at(label).detections;
  return std::count_if(detections.begin(), detections.end(), [](const Detection& detection) {
    return (detection.true_positive & Bit(kAll, kThreshold50)) != 0;
  });
}

}  // namespace pushpull
