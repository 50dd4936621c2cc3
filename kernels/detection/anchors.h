// Generates the anchors of a detector like TensorFlow's ssd_anchor_generator (Liu et al., ECCV
// 2016) and multiscale_anchor_generator (Lin et al., ICCV 2017). Pure functions.
#ifndef PUSHPULL_KERNELS_DETECTION_ANCHORS_H_
#define PUSHPULL_KERNELS_DETECTION_ANCHORS_H_

#include <vector>

#include "common/model/detection_spec.h"
#include "kernels/detection/bounding_box.h"

namespace pushpull {

// One anchor shape of a feature map: height = scale / sqrt(aspect_ratio), width = scale *
// sqrt(aspect_ratio). A scale is a fraction of the image, or for MultiscaleAnchorSpec a number of
// pixels.
struct AnchorShape {
  double scale = 0.0;
  double aspect_ratio = 1.0;
};

// Returns for each feature map the shapes at each of its locations, in the order of the predictor's
// channels.
//
// SsdAnchorSpec: A map has a shape for each aspect ratio at the map's scale, and, if
// interpolated_scale_aspect_ratio is positive, one more with that aspect ratio at the geometric
// mean of this scale and the next map's (1.0 after the last). With reduce_boxes_in_lowest_layer the
// first map instead has the (scale, aspect ratio) pairs (0.1, 1), (s0, 2), (s0, 1/2), where s0 is
// its scale.
//
// MultiscaleAnchorSpec: The map of a level has for each aspect ratio the scales
// 2^level * anchor_scale * 2^(i / scales_per_octave), i = 0, 1, ..., scales_per_octave - 1.
std::vector<std::vector<AnchorShape>> AnchorShapes(const AnchorSpec& spec);

// Returns all anchors, ordered by feature map, row, column and shape. Coordinates are fractions of
// the image. Anchors are not clipped. `heads` gives the sizes of the maps; its anchors_per_location
// must be the number of shapes that AnchorShapes returns (CHECK).
//
// SsdAnchorSpec: The centres are at ((y + 0.5) / height, (x + 0.5) / width), where height and width
// are those of the map. A stride of the map takes the place of image size / map size, and an offset
// that of half a stride. Heights and widths are multiplied by base_anchor_height and
// base_anchor_width.
//
// MultiscaleAnchorSpec: The centres are at (y, x) * stride + offset in pixels. In each direction
// the offset is half the stride if the stride divides the size of the image, otherwise 0.
std::vector<BoundingBox> GenerateAnchors(const AnchorSpec& spec,
                                         const std::vector<DetectionHead>& heads);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_DETECTION_ANCHORS_H_
