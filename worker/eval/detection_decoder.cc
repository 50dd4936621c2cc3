// Tested by tests/worker/eval/detection_evaluation_test.cc.
#include "worker/eval/detection_decoder.h"

#include <algorithm>
#include <cmath>

#include "kernels/detection/anchors.h"
#include "worker/model/detection_outputs.h"

namespace pushpull {
namespace {

bool AllFinite(absl::Span<const float> values) {
  return std::all_of(values.begin(), values.end(),
                     [](float value) { return std::isfinite(value); });
}

}  // namespace

DetectionDecoder::DetectionDecoder(const DetectionSpec& spec)
    : spec_(spec), anchors_(GenerateAnchors(spec.anchors, spec.heads)) {}

std::vector<std::vector<Detection>> DetectionDecoder::Decode(
    absl::Span<const float* const> outputs, const std::vector<InputWindow>& windows,
    ThreadPool* pool) {
  const int64_t samples = static_cast<int64_t>(windows.size());
  const int64_t codes = static_cast<int64_t>(anchors_.size()) * kBoxCodeSize;
  const int64_t scores = static_cast<int64_t>(anchors_.size()) * (spec_.num_classes + 1);
  codes_.resize(samples * codes);
  scores_.resize(samples * scores);
  GatherDetectionOutputs(spec_, samples, outputs, codes_.data(), scores_.data());
  std::vector<std::vector<Detection>> detections(samples);
  diverged_.assign(samples, false);
  pool->ParallelFor(samples, [&](int64_t i) {
    const auto sample_codes = absl::MakeConstSpan(codes_).subspan(i * codes, codes);
    const auto sample_scores = absl::MakeConstSpan(scores_).subspan(i * scores, scores);
    diverged_[i] = !AllFinite(sample_codes) || !AllFinite(sample_scores);
    detections[i] = PostProcess(spec_, anchors_, sample_codes, sample_scores,
                                {0.0f, 0.0f, windows[i].height, windows[i].width});
  });
  return detections;
}

DetectionRecord MakeDetectionRecord(const std::string& image_id, int height, int width,
                                    const std::vector<Box>& boxes,
                                    const std::vector<Detection>& detections) {
  const auto pixels = [h = static_cast<float>(height),
                       w = static_cast<float>(width)](const auto& box) -> PixelBox {
    return {box.ymin * h, box.xmin * w, box.ymax * h, box.xmax * w};
  };
  DetectionRecord record;
  record.image_id = image_id;
  for (const Box& box : boxes) {
    TruthBox truth;
    truth.box = pixels(box);
    truth.label = box.label;
    truth.difficult = box.difficult;
    truth.is_crowd = box.is_crowd;
    truth.is_group_of = box.is_group_of;
    truth.area = box.area;
    record.ground_truth.push_back(truth);
  }
  for (const Detection& detection : detections) {
    record.detections.push_back({pixels(detection.box), detection.label, detection.score});
  }
  return record;
}

}  // namespace pushpull
