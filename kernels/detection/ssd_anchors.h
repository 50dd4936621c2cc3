// Generates the anchors of an SSD detector (Liu et al., ECCV 2016) like TensorFlow's
// ssd_anchor_generator. Pure functions.
#ifndef PUSHPULL_KERNELS_DETECTION_SSD_ANCHORS_H_
#define PUSHPULL_KERNELS_DETECTION_SSD_ANCHORS_H_

#include <vector>

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"

namespace pushpull {

// One anchor shape of a feature map: height = scale / sqrt(aspect_ratio), width = scale *
// sqrt(aspect_ratio), as fractions of the image.
struct AnchorShape {
  double scale = 0.0;
  double aspect_ratio = 1.0;
};

// Returns for each feature map the shapes at each of its locations, in the order of the predictor's
// channels. A map has a shape for each aspect ratio at the map's scale, and, if
// interpolated_scale_aspect_ratio is positive, one more with that aspect ratio at the geometric
// mean of this scale and the next map's (1.0 after the last). With reduce_boxes_in_lowest_layer the
// first map instead has the (scale, aspect ratio) pairs (0.1, 1), (s0, 2), (s0, 1/2), where s0 is
// its scale.
std::vector<std::vector<AnchorShape>> SsdAnchorShapes(const SsdAnchorSpec& spec);

// Returns all anchors, ordered by feature map, row, column and shape. The centres are at
// ((y + 0.5) / height, (x + 0.5) / width), where height and width are those of the map. Heights and
// widths are multiplied by base_anchor_height and base_anchor_width. Anchors are not clipped.
// `heads` gives the sizes of the maps; its anchors_per_location must be the number of shapes that
// SsdAnchorShapes returns (CHECK).
std::vector<BoundingBox> GenerateSsdAnchors(const SsdAnchorSpec& spec,
                                            const std::vector<DetectionHead>& heads);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_SSD_ANCHORS_H_
