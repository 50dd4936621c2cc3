// Draws the ground truth and the detections of an image on a copy of it, for display.
//
// A detection has a solid frame in the colour of its class, with its name and score in a strip of
// that colour above. A ground truth box has a dashed frame in the colour of its class, with its
// name in a black strip below. The detection with the highest score is drawn last, on top.
//
// Thread rule: functions without shared state.
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
  float min_score = 0.5f;   // detections with a lower score are not drawn
  int max_detections = 20;  // only this many detections with the highest scores are drawn
};

// Returns a bright colour (R, G, B). Consecutive labels have very different colours.
std::array<uint8_t, 3> ClassColor(int32_t label);

// Returns an RGB image of the same size with the boxes on it. Clips them to the image and leaves
// out boxes with an edge that is not finite. A label without a name is shown as its id. CHECKs
// that the image has 1 or 3 channels and that image.pixels has the matching size.
Image DrawBoxes(const Image& image, const DetectionRecord& record,
                const std::vector<std::string>& class_names, const DrawOptions& options);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_DRAW_BOXES_H_
