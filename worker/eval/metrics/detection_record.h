// What one image contributes to detection metrics: its ground truth and what was detected on it.
//
// Thread rule: plain data and pure functions.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_DETECTION_RECORD_H_
#define PUSHPULL_WORKER_EVAL_METRICS_DETECTION_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace pushpull {

// Edges in pixels of the original image, not clipped and not rounded.
struct PixelBox {
  float ymin = 0;
  float xmin = 0;
  float ymax = 0;
  float xmax = 0;
};

struct TruthBox {
  PixelBox box;
  int32_t label = 0;       // 0-based: a label map's id less 1
  bool difficult = false;  // Pascal VOC: neither found nor missed
  bool is_crowd = false;   // COCO: one box around many objects
  float area = 0;          // of the object's mask in square pixels; 0: that of the box
};

struct DetectedBox {
  PixelBox box;
  int32_t label = 0;
  float score = 0;
};

struct DetectionRecord {
  std::string image_id;  // for messages
  std::vector<TruthBox> ground_truth;
  std::vector<DetectedBox> detections;  // in any order
};

// (ymax - ymin) * (xmax - xmin), negative where one side is.
double BoxArea(const PixelBox& box);

// Area that both share over the area that either covers; 0 where they do not overlap.
double IntersectionOverUnion(const PixelBox& a, const PixelBox& b);

// Area that both share over the detection's own: how COCO compares with a crowd.
double IntersectionOverDetection(const PixelBox& detection, const PixelBox& crowd);

// INVALID_ARGUMENT, with image and box: a label outside 0 <= label < num_classes, an edge, area or
// score that is not finite, a negative area. Boxes without extent are allowed.
absl::Status CheckRecord(const DetectionRecord& record, int num_classes);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_DETECTION_RECORD_H_
