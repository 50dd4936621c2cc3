#include "worker/eval/metrics/metrics_explanation.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"

namespace pushpull {
namespace {

// Edges that are shares of the image stay below this value; edges in pixels exceed it.
constexpr float kLargestShare = 2.0f;

float LargestEdge(const PixelBox& box) {
  return std::max({std::abs(box.ymin), std::abs(box.xmin), std::abs(box.ymax), std::abs(box.xmax)});
}

ClassCounts Sum(const std::vector<ClassCounts>& counts) {
  ClassCounts sum;
  for (const ClassCounts& count : counts) {
    sum.ground_truth += count.ground_truth;
    sum.ignored += count.ignored;
    sum.detections += count.detections;
    sum.matches += count.matches;
  }
  return sum;
}

}  // namespace

MetricsExplanation::MetricsExplanation(const DetectionMetrics* metrics,
                                       std::vector<std::string> class_names)
    : metrics_(metrics), class_names_(std::move(class_names)), counts_(class_names_.size()) {}

void MetricsExplanation::AddImage(const DetectionRecord& record) {
  ++images_;
  for (const DetectedBox& detection : record.detections) {
    ++counts_.at(detection.label).detections;
    largest_detection_ = std::max(largest_detection_, LargestEdge(detection.box));
  }
  for (const TruthBox& truth : record.ground_truth) {
    largest_truth_ = std::max(largest_truth_, LargestEdge(truth.box));
    if (!metrics_->MustBeFound(truth)) {
      ++counts_.at(truth.label).ignored;
      continue;
    }
    ++counts_.at(truth.label).ground_truth;
    double same = 0;
    double other = 0;
    for (const DetectedBox& detection : record.detections) {
      double& best = detection.label == truth.label ? same : other;
      best = std::max(best, IntersectionOverUnion(detection.box, truth.box));
    }
    best_iou_ = std::max(best_iou_, same);
    if (same < 0.5 && other >= 0.5) ++other_class_;
  }
}

std::vector<ClassCounts> MetricsExplanation::Counts() const {
  std::vector<ClassCounts> counts = counts_;
  for (size_t label = 0; label < counts.size(); ++label) {
    counts[label].matches = metrics_->matches(static_cast<int32_t>(label));
  }
  return counts;
}

std::string MetricsExplanation::Table() const {
  const auto line = [](const std::string& name, const ClassCounts& count) {
    return absl::StrFormat("%-20s %12d %8d %10d %10d\n", name, count.ground_truth, count.ignored,
                           count.detections, count.matches);
  };
  std::string table = absl::StrFormat("%-20s %12s %8s %10s %10s\n", "class", "ground truth",
                                      "ignored", "detections", "matches");
  const std::vector<ClassCounts> counts = Counts();
  for (size_t label = 0; label < counts.size(); ++label) {
    const ClassCounts& count = counts[label];
    if (count.ground_truth + count.ignored + count.detections == 0) continue;
    absl::StrAppend(&table, line(class_names_[label], count));
  }
  return absl::StrCat(table, line("all", Sum(counts)));
}

std::string MetricsExplanation::Explain(double mean_precision) const {
  if (mean_precision > 0) return "";
  const ClassCounts sum = Sum(Counts());
  if (images_ == 0) {
    return "mAP is undefined because no image was evaluated: check the evaluation data set and the "
           "number of examples.";
  }
  if (sum.ground_truth == 0) {
    return absl::StrFormat(
        "mAP is undefined because none of the %d images has a ground truth box that counts (%d are "
        "ignored as difficult, crowd or group): check the annotations and the label map.",
        images_, sum.ignored);
  }
  if (sum.detections == 0) {
    return absl::StrFormat(
        "mAP is 0 because nothing was detected on %d images with %d boxes: check the score "
        "threshold of the post-processing, or train for longer.",
        images_, sum.ground_truth);
  }
  if ((largest_truth_ > kLargestShare) != (largest_detection_ > kLargestShare)) {
    return absl::StrFormat(
        "mAP is 0 because the boxes have different units: edges reach %g in the ground truth and "
        "%g in the detections; both must be in pixels.",
        largest_truth_, largest_detection_);
  }
  if (other_class_ > 0) {
    return absl::StrFormat(
        "mAP is 0 because no detection has the class of the box it covers: %d of %d boxes are "
        "covered (IoU 0.5) by a detection of another class; check that the label maps of training "
        "and evaluation agree.",
        other_class_, sum.ground_truth);
  }
  // Rounded down: 0.4999 is not the 0.5 that is needed.
  const double best_iou = std::floor(best_iou_ * 1000) / 1000;
  return absl::StrFormat(
      "mAP is 0 because none of %d detections counts as a match for one of %d boxes: the largest "
      "IoU of the same class is %.3f, 0.5 is needed; train for longer, or look at the drawn boxes.",
      sum.detections, sum.ground_truth, best_iou);
}

}  // namespace pushpull
