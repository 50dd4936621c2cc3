// The ground truth and the detections of one image, as input of detection metrics.
//
// Thread rule: plain data and functions without shared state.
#ifndef PUSHPULL_WORKER_EVAL_METRICS_DETECTION_RECORD_H_
#define PUSHPULL_WORKER_EVAL_METRICS_DETECTION_RECORD_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"

namespace pushpull {

// A box with edges in pixels of the original image, neither clipped nor rounded.
struct PixelBox {
  float ymin = 0;
  float xmin = 0;
  float ymax = 0;
  float xmax = 0;
};

struct TruthBox {
  PixelBox box;
  int32_t label = 0;         // 0-based: the id in a label map minus 1
  bool difficult = false;    // Pascal VOC: counts neither as found nor as missed
  bool is_crowd = false;     // COCO: one box around many objects
  float area = 0;            // area of the object's mask in square pixels; 0: use the box's area
  bool is_group_of = false;  // Open Images: one box around several objects
};

struct DetectedBox {
  PixelBox box;
  int32_t label = 0;
  float score = 0;
};

struct DetectionRecord {
  std::string image_id;  // used in messages
  std::vector<TruthBox> ground_truth;
  std::vector<DetectedBox> detections;  // in any order
};

// Returns (ymax - ymin) * (xmax - xmin), which is negative if exactly one side is.
double BoxArea(const PixelBox& box);

// Returns the area of the intersection divided by the area of the union; 0 without overlap. It is
// computed in double, as pycocotools and TensorFlow's metrics do. Training and suppression use the
// one of kernels/detection/bounding_box.h, in float, as TensorFlow's graphs and our GPU kernels do.
double IntersectionOverUnion(const PixelBox& a, const PixelBox& b);

// Returns the area of the intersection divided by the area of the detection; 0 without overlap.
// COCO compares detections with crowd boxes this way, and Open Images with group boxes.
double IntersectionOverDetection(const PixelBox& detection, const PixelBox& truth);

// Checks the values of a record. Boxes with an area of 0 are allowed.
// INVALID_ARGUMENT: a label is not within 0 <= label < num_classes, an edge, area or score is not
// finite, or TruthBox::area is negative. The message names the image and the box.
absl::Status CheckRecord(const DetectionRecord& record, int num_classes);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_METRICS_DETECTION_RECORD_H_
