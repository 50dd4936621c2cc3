// Draws an image's ground truth and detections on a copy of it, for people to look at.
//
// Detections: solid frames in the colour of their class, name and score in a filled strip above.
// Ground truth: dashed frames in the same colours, the name on black below. The best detection is
// on top.
//
// Thread rule: pure functions.
#ifndef PUSHPULL_WORKER_EVAL_DRAW_BOXES_H_
#define PUSHPULL_WORKER_EVAL_DRAW_BOXES_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "worker/data/image_source.h"
#include "worker/eval/metrics/detection_record.h"

namespace pushpull {

struct DrawOptions {
  float min_score = 0.5f;   // detections below are not drawn
  int max_detections = 20;  // the best
  int line_width = 2;       // of detections, in pixels; ground truth has half, at least 1
  int text_scale = 1;       // pixels per dot of the font
};

// Bright, and different for neighbouring labels. R, G, B.
std::array<uint8_t, 3> ClassColor(int32_t label);

// The image as RGB with the boxes on it, of the same size. What lies outside the image is cut off;
// boxes with edges that are not finite are left out. A label without a name is drawn as its number.
// Requires image.channels 1 or 3 and pixels of that size.
Image DrawBoxes(const Image& image, const DetectionRecord& record,
                const std::vector<std::string>& class_names, const DrawOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DRAW_BOXES_H_
