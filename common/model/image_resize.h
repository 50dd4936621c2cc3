// How a picture of any size becomes the network's input, as data.
#ifndef PUSHPULL_COMMON_MODEL_IMAGE_RESIZE_H_
#define PUSHPULL_COMMON_MODEL_IMAGE_RESIZE_H_

#include <array>
#include <optional>

#include "protos/pipeline.pb.h"

namespace pushpull {

struct ImageSize {
  int height = 0;
  int width = 0;
  bool operator==(const ImageSize&) const = default;
};

// TensorFlow's keep_aspect_ratio_resizer with pad_to_max_dimension: the picture is scaled to a
// shorter side of min_dimension, or to a longer side of max_dimension where that makes it smaller,
// and lies in the upper left corner of a square of max_dimension.
struct AspectRatioResize {
  int min_dimension = 0;
  int max_dimension = 0;                // at least min_dimension
  std::array<float, 3> pad_value = {};  // of the rest, per channel, in 0..255
  bool operator==(const AspectRatioResize&) const = default;
};

// Of the picture within the square; at least one pixel each.
ImageSize ScaledSize(const AspectRatioResize& resize, const ImageSize& picture);

// Of the network's input.
ImageSize ResizedSize(const config::ImageResizer& resizer);
// nullopt: the picture fills the input (fixed_shape_resizer).
std::optional<AspectRatioResize> ResolveAspectRatioResize(const config::ImageResizer& resizer);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_IMAGE_RESIZE_H_
