// Describes how an image of any size is scaled to the network's input. Thread-safe functions and
// plain values.
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

// TensorFlow's keep_aspect_ratio_resizer with pad_to_max_dimension; without it, the image is padded
// as well, since the network has one input size. The image is scaled so that its
// shorter side is min_dimension. If its longer side would then exceed max_dimension, it is scaled
// so that the longer side is max_dimension. It lies in the upper left corner of a square of
// max_dimension.
struct AspectRatioResize {
  int min_dimension = 0;
  int max_dimension = 0;                // >= min_dimension
  std::array<float, 3> pad_value = {};  // of the rest of the square, per channel, 0 to 255
  bool operator==(const AspectRatioResize&) const = default;
};

// Returns the size of the scaled image within the square, at least one pixel each way. `image` is
// the size of the original image.
ImageSize ScaledSize(const AspectRatioResize& resize, const ImageSize& image);

// Returns the size of the network's input.
ImageSize ResizedSize(const config::ImageResizer& resizer);

// Returns nullopt for fixed_shape_resizer, where the image fills the whole input.
std::optional<AspectRatioResize> ResolveAspectRatioResize(const config::ImageResizer& resizer);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_IMAGE_RESIZE_H_
