// Tested by tests/kernels/detection/detection_units_test.cc.
// Tested by tests/kernels/detection/detection_golden_test.cc.
#include "kernels/detection/post_processing.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "glog/logging.h"

#include "kernels/detection/box_coder.h"
#include "kernels/detection/non_max_suppression.h"

namespace pushpull {
namespace {

// Converts one row of scores; the background is in column 0.
void ConvertScores(const PostProcessingSpec& spec, absl::Span<const float> in, float* out) {
  const double scale = spec.logit_scale;
  switch (spec.score_converter) {
    case PostProcessingSpec::ScoreConverter::kIdentity:
      for (size_t c = 0; c < in.size(); ++c) out[c] = static_cast<float>(in[c] / scale);
      break;
    case PostProcessingSpec::ScoreConverter::kSigmoid:
      for (size_t c = 0; c < in.size(); ++c) {
        out[c] = static_cast<float>(1.0 / (1.0 + std::exp(-in[c] / scale)));
      }
      break;
    case PostProcessingSpec::ScoreConverter::kSoftmax: {
      const double largest = *std::max_element(in.begin(), in.end()) / scale;
      double sum = 0.0;
      for (const float score : in) sum += std::exp(score / scale - largest);
      for (size_t c = 0; c < in.size(); ++c) {
        out[c] = static_cast<float>(std::exp(in[c] / scale - largest) / sum);
      }
      break;
    }
  }
}

bool IsFinite(const BoundingBox& box) {
  return std::isfinite(box.ymin) && std::isfinite(box.xmin) && std::isfinite(box.ymax) &&
         std::isfinite(box.xmax);
}

// Clips a box and expresses it in fractions of the window, which must have a positive area.
BoundingBox ClipToWindow(const BoundingBox& box, const BoundingBox& window) {
  const auto y = [&](float value) {
    return (std::clamp(value, window.ymin, window.ymax) - window.ymin) / window.height();
  };
  const auto x = [&](float value) {
    return (std::clamp(value, window.xmin, window.xmax) - window.xmin) / window.width();
  };
  return {y(box.ymin), x(box.xmin), y(box.ymax), x(box.xmax)};
}

}  // namespace

std::vector<Detection> PostProcess(const DetectionSpec& spec, absl::Span<const BoundingBox> anchors,
                                   absl::Span<const float> box_codes,
                                   absl::Span<const float> class_scores,
                                   const BoundingBox& window) {
  const int num_anchors = static_cast<int>(anchors.size());
  const int columns = spec.num_classes + 1;
  CHECK_EQ(box_codes.size(), anchors.size() * kBoxCodeSize);
  CHECK_EQ(class_scores.size(), anchors.size() * columns);
  std::vector<float> row(columns);
  std::vector<std::vector<float>> scores(spec.num_classes, std::vector<float>(num_anchors));
  std::vector<BoundingBox> boxes(num_anchors);
  for (int a = 0; a < num_anchors; ++a) {
    const float* const code = box_codes.data() + int64_t{a} * kBoxCodeSize;
    boxes[a] = DecodeBox(spec.box_coder, {code[0], code[1], code[2], code[3]}, anchors[a]);
    const bool finite = IsFinite(boxes[a]);
    ConvertScores(spec.post_processing, class_scores.subspan(int64_t{a} * columns, columns),
                  row.data());
    for (int c = 0; c < spec.num_classes; ++c) {
      scores[c][a] = finite && std::isfinite(row[c + 1]) ? row[c + 1]
                                                         : -std::numeric_limits<float>::infinity();
    }
  }

  SuppressionOptions suppression;
  suppression.iou_threshold = spec.post_processing.iou_threshold;
  suppression.max_boxes = spec.post_processing.max_detections_per_class;
  suppression.score_threshold = spec.post_processing.score_threshold;
  std::vector<Detection> detections;
  for (int c = 0; c < spec.num_classes; ++c) {
    for (const int a : SuppressNonMaxima(boxes, scores[c], suppression)) {
      const BoundingBox box = ClipToWindow(boxes[a], window);
      if (!(box.height() > 0.0f && box.width() > 0.0f)) continue;
      detections.push_back({box, c, scores[c][a]});
    }
  }
  std::stable_sort(detections.begin(), detections.end(),
                   [](const Detection& a, const Detection& b) { return a.score > b.score; });
  const size_t limit = static_cast<size_t>(spec.post_processing.max_total_detections);
  if (detections.size() > limit) detections.resize(limit);
  return detections;
}

}  // namespace pushpull
