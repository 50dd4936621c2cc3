// Tested by tests/kernels/detection/detection_units_test.cc.
// Tested by tests/kernels/detection/detection_golden_test.cc.
#include "kernels/detection/ssd_anchors.h"

#include <cmath>

#include "glog/logging.h"

namespace pushpull {
namespace {

// The scale of the first shape in a reduced lowest layer; a constant of TensorFlow's generator.
constexpr double kSmallestScale = 0.1;

// Returns the scale of each layer, and 1.0 after the last.
std::vector<double> LayerScales(const SsdAnchorSpec& spec) {
  std::vector<double> scales;
  for (int i = 0; i < spec.num_layers; ++i) {
    if (!spec.scales.empty()) {
      scales.push_back(spec.scales[i]);
    } else if (spec.num_layers == 1) {
      scales.push_back(spec.min_scale);
    } else {
      scales.push_back(spec.min_scale +
                       (double{spec.max_scale} - spec.min_scale) * i / (spec.num_layers - 1));
    }
  }
  scales.push_back(1.0);
  return scales;
}

}  // namespace

std::vector<std::vector<AnchorShape>> SsdAnchorShapes(const SsdAnchorSpec& spec) {
  const std::vector<double> scales = LayerScales(spec);
  std::vector<std::vector<AnchorShape>> layers(spec.num_layers);
  for (int i = 0; i < spec.num_layers; ++i) {
    if (i == 0 && spec.reduce_boxes_in_lowest_layer) {
      layers[i] = {{kSmallestScale, 1.0}, {scales[0], 2.0}, {scales[0], 0.5}};
      continue;
    }
    for (const float ratio : spec.aspect_ratios) layers[i].push_back({scales[i], ratio});
    if (spec.interpolated_scale_aspect_ratio > 0.0f) {
      layers[i].push_back(
          {std::sqrt(scales[i] * scales[i + 1]), spec.interpolated_scale_aspect_ratio});
    }
  }
  return layers;
}

std::vector<BoundingBox> GenerateSsdAnchors(const SsdAnchorSpec& spec,
                                            const std::vector<DetectionHead>& heads) {
  const std::vector<std::vector<AnchorShape>> shapes = SsdAnchorShapes(spec);
  CHECK_EQ(shapes.size(), heads.size());
  std::vector<BoundingBox> anchors;
  for (size_t i = 0; i < heads.size(); ++i) {
    const DetectionHead& map = heads[i];
    CHECK_EQ(static_cast<int>(shapes[i].size()), map.anchors_per_location);
    for (int y = 0; y < map.height; ++y) {
      for (int x = 0; x < map.width; ++x) {
        const double center_y = (y + 0.5) / map.height;
        const double center_x = (x + 0.5) / map.width;
        for (const AnchorShape& shape : shapes[i]) {
          const double root = std::sqrt(shape.aspect_ratio);
          const double half_height = 0.5 * shape.scale / root * spec.base_anchor_height;
          const double half_width = 0.5 * shape.scale * root * spec.base_anchor_width;
          anchors.push_back({static_cast<float>(center_y - half_height),
                             static_cast<float>(center_x - half_width),
                             static_cast<float>(center_y + half_height),
                             static_cast<float>(center_x + half_width)});
        }
      }
    }
  }
  return anchors;
}

}  // namespace pushpull
