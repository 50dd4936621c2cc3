// Tested by tests/kernels/detection/detection_units_test.cc.
// Tested by tests/kernels/detection/detection_golden_test.cc.
#include "kernels/detection/anchors.h"

#include <cmath>
#include <utility>

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

std::vector<std::vector<AnchorShape>> ShapesOf(const SsdAnchorSpec& spec) {
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

std::vector<std::vector<AnchorShape>> ShapesOf(const MultiscaleAnchorSpec& spec) {
  std::vector<std::vector<AnchorShape>> layers;
  for (int level = spec.min_level; level <= spec.max_level; ++level) {
    std::vector<AnchorShape>& shapes = layers.emplace_back();
    for (const float ratio : spec.aspect_ratios) {
      for (int i = 0; i < spec.scales_per_octave; ++i) {
        const double octave = static_cast<double>(i) / spec.scales_per_octave;
        shapes.push_back({std::exp2(level + octave) * spec.anchor_scale, ratio});
      }
    }
  }
  return layers;
}

// How one axis of a map and of its anchors is placed in the image.
struct Axis {
  double first_center = 0.0;  // fraction of the image
  double step = 0.0;          // from one centre to the next
  double size = 1.0;          // fraction of the image for a shape of height or width 1
};

// `strides` and `offsets` hold a number of pixels for each map, or nothing.
Axis PlacedAxis(const std::vector<int>& strides, const std::vector<int>& offsets, int map,
                int cells, int pixels, double size) {
  Axis axis;
  axis.step = strides.empty() ? 1.0 / cells : static_cast<double>(strides.at(map)) / pixels;
  axis.first_center =
      offsets.empty() ? 0.5 * axis.step : static_cast<double>(offsets.at(map)) / pixels;
  axis.size = size;
  return axis;
}

Axis RowsOf(const SsdAnchorSpec& spec, int map, const DetectionHead& head) {
  return PlacedAxis(spec.height_stride, spec.height_offset, map, head.height, spec.image_height,
                    spec.base_anchor_height);
}

Axis ColumnsOf(const SsdAnchorSpec& spec, int map, const DetectionHead& head) {
  return PlacedAxis(spec.width_stride, spec.width_offset, map, head.width, spec.image_width,
                    spec.base_anchor_width);
}

Axis AxisOf(const MultiscaleAnchorSpec& spec, int map, int pixels) {
  const int stride = 1 << (spec.min_level + map);
  const double offset = pixels % stride == 0 ? stride / 2.0 : 0.0;
  return {offset / pixels, static_cast<double>(stride) / pixels, 1.0 / pixels};
}

Axis RowsOf(const MultiscaleAnchorSpec& spec, int map, const DetectionHead& /*head*/) {
  return AxisOf(spec, map, spec.image_height);
}

Axis ColumnsOf(const MultiscaleAnchorSpec& spec, int map, const DetectionHead& /*head*/) {
  return AxisOf(spec, map, spec.image_width);
}

}  // namespace

std::vector<std::vector<AnchorShape>> AnchorShapes(const AnchorSpec& spec) {
  return std::visit([](const auto& anchors) { return ShapesOf(anchors); }, spec);
}

std::vector<BoundingBox> GenerateAnchors(const AnchorSpec& spec,
                                         const std::vector<DetectionHead>& heads) {
  const std::vector<std::vector<AnchorShape>> shapes = AnchorShapes(spec);
  CHECK_EQ(shapes.size(), heads.size());
  std::vector<BoundingBox> anchors;
  for (size_t i = 0; i < heads.size(); ++i) {
    const DetectionHead& map = heads[i];
    CHECK_EQ(static_cast<int>(shapes[i].size()), map.anchors_per_location);
    const auto [rows, columns] = std::visit(
        [&](const auto& anchor_spec) {
          const int index = static_cast<int>(i);
          return std::pair(RowsOf(anchor_spec, index, map), ColumnsOf(anchor_spec, index, map));
        },
        spec);
    for (int y = 0; y < map.height; ++y) {
      for (int x = 0; x < map.width; ++x) {
        const double center_y = rows.first_center + y * rows.step;
        const double center_x = columns.first_center + x * columns.step;
        for (const AnchorShape& shape : shapes[i]) {
          const double root = std::sqrt(shape.aspect_ratio);
          const double half_height = 0.5 * shape.scale / root * rows.size;
          const double half_width = 0.5 * shape.scale * root * columns.size;
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
