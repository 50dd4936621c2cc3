// Tested by tests/worker/eval/metrics/voc_metrics_test.cc.
// Tested by tests/worker/eval/metrics/coco_metrics_test.cc.
#include "worker/eval/metrics/detection_record.h"

#include <algorithm>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"

#include "common/base/status_macros.h"

namespace pushpull {
namespace {

double Intersection(const PixelBox& a, const PixelBox& b) {
  const double height = std::min<double>(a.ymax, b.ymax) - std::max<double>(a.ymin, b.ymin);
  const double width = std::min<double>(a.xmax, b.xmax) - std::max<double>(a.xmin, b.xmin);
  return height > 0 && width > 0 ? height * width : 0;
}

absl::Status CheckBox(const PixelBox& box, int32_t label, int num_classes, absl::string_view what,
                      size_t index, const std::string& image_id) {
  if (label < 0 || label >= num_classes) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image '", image_id, "', ", what, " ", index, ": label ", label, " is outside 0..",
        num_classes - 1, "; the label map must name every class of the data and of the model"));
  }
  if (!std::isfinite(box.ymin) || !std::isfinite(box.xmin) || !std::isfinite(box.ymax) ||
      !std::isfinite(box.xmax)) {
    return absl::InvalidArgumentError(absl::StrCat(
        "image '", image_id, "', ", what, " ", index, ": edges [", box.ymin, ", ", box.xmin, ", ",
        box.ymax, ", ", box.xmax, "] (ymin, xmin, ymax, xmax) are not all finite"));
  }
  return absl::OkStatus();
}

}  // namespace

double BoxArea(const PixelBox& box) {
  return (double{box.ymax} - box.ymin) * (double{box.xmax} - box.xmin);
}

double IntersectionOverUnion(const PixelBox& a, const PixelBox& b) {
  const double both = Intersection(a, b);
  return both > 0 ? both / (BoxArea(a) + BoxArea(b) - both) : 0;
}

double IntersectionOverDetection(const PixelBox& detection, const PixelBox& truth) {
  const double both = Intersection(detection, truth);
  return both > 0 ? both / BoxArea(detection) : 0;
}

absl::Status CheckRecord(const DetectionRecord& record, int num_classes) {
  for (size_t i = 0; i < record.ground_truth.size(); ++i) {
    const TruthBox& truth = record.ground_truth[i];
    PP_RETURN_IF_ERROR(
        CheckBox(truth.box, truth.label, num_classes, "ground truth box", i, record.image_id));
    if (!std::isfinite(truth.area) || truth.area < 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("image '", record.image_id, "', ground truth box ", i, ": area ", truth.area,
                       " expected to be at least 0 square pixels"));
    }
  }
  for (size_t i = 0; i < record.detections.size(); ++i) {
    const DetectedBox& detection = record.detections[i];
    PP_RETURN_IF_ERROR(
        CheckBox(detection.box, detection.label, num_classes, "detection", i, record.image_id));
    if (!std::isfinite(detection.score)) {
      return absl::InvalidArgumentError(absl::StrCat("image '", record.image_id, "', detection ", i,
                                                     ": score ", detection.score,
                                                     ", expected a finite number"));
    }
  }
  return absl::OkStatus();
}

}  // namespace pushpull
