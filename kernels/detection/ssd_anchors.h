// The anchors of an SSD detector (Liu et al., ECCV 2016) as TensorFlow's ssd_anchor_generator makes
// them. Pure functions.
#ifndef PUSHPULL_KERNELS_DETECTION_SSD_ANCHORS_H_
#define PUSHPULL_KERNELS_DETECTION_SSD_ANCHORS_H_

#include <vector>

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"

namespace pushpull {

// One anchor shape of a feature map: height = scale / sqrt(aspect_ratio) and width = scale *
// sqrt(aspect_ratio), as shares of the image.
struct AnchorShape {
  double scale = 0.0;
  double aspect_ratio = 1.0;
};

// Per feature map, the shapes at each of its locations in the order of the predictor's channels.
// With reduce_boxes_in_lowest_layer the first map has (0.1, 1), (s0, 2), (s0, 1/2); every other has
// one per aspect ratio at its own scale and one at the geometric mean with the next scale (1.0
// after the last).
std::vector<std::vector<AnchorShape>> SsdAnchorShapes(const SsdAnchorSpec& spec);

// All anchors: per feature map, row, column, shape. Centres at ((y + 0.5) / height, (x + 0.5) /
// width) of the map; nothing is clipped. Heights and widths grow with base_anchor_height and
// base_anchor_width. `heads` gives the maps' sizes; its anchors_per_location must be what
// SsdAnchorShapes says (CHECK).
std::vector<BoundingBox> GenerateSsdAnchors(const SsdAnchorSpec& spec,
                                            const std::vector<DetectionHead>& heads);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_SSD_ANCHORS_H_
