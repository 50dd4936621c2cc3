#include "common/model/image_resize.h"

#include <algorithm>
#include <cmath>

#include "common/config/layer_checks.h"

namespace pushpull {
namespace {

// Scales both sides by `factor` and rounds as TensorFlow does: in float32, halves to even.
ImageSize Scaled(const ImageSize& image, float factor) {
  const auto scaled = [factor](int size) {
    return std::max(1, static_cast<int>(std::nearbyint(static_cast<float>(size) * factor)));
  };
  return {scaled(image.height), scaled(image.width)};
}

}  // namespace

ImageSize ScaledSize(const AspectRatioResize& resize, const ImageSize& image) {
  const auto [shorter, longer] = std::minmax(image.height, image.width);
  const ImageSize large =
      Scaled(image, static_cast<float>(resize.min_dimension) / static_cast<float>(shorter));
  if (std::max(large.height, large.width) <= resize.max_dimension) return large;
  return Scaled(image, static_cast<float>(resize.max_dimension) / static_cast<float>(longer));
}

ImageSize ResizedSize(const config::ImageResizer& resizer) {
  const auto [height, width] = InputSides(resizer);
  return {height, width};
}

std::optional<AspectRatioResize> ResolveAspectRatioResize(const config::ImageResizer& resizer) {
  if (!resizer.has_keep_aspect_ratio_resizer()) return std::nullopt;
  const config::KeepAspectRatioResizer& in = resizer.keep_aspect_ratio_resizer();
  AspectRatioResize resize;
  resize.min_dimension = in.min_dimension();
  resize.max_dimension = in.max_dimension();
  for (int i = 0; i < std::min(in.per_channel_pad_value_size(), 3); ++i) {
    resize.pad_value[i] = in.per_channel_pad_value(i);
  }
  return resize;
}

}  // namespace pushpull
