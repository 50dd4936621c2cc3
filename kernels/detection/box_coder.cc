#include "kernels/detection/box_coder.h"

#include <cmath>

namespace pushpull {
namespace {

constexpr double kEpsilon = 1e-8;

double CenterY(const BoundingBox& box) { return 0.5 * (double{box.ymin} + box.ymax); }
double CenterX(const BoundingBox& box) { return 0.5 * (double{box.xmin} + box.xmax); }
double Height(const BoundingBox& box) { return double{box.ymax} - box.ymin; }
double Width(const BoundingBox& box) { return double{box.xmax} - box.xmin; }

}  // namespace

BoxCode EncodeBox(const FasterRcnnBoxCoderSpec& spec, const BoundingBox& box,
                  const BoundingBox& anchor) {
  const double anchor_height = Height(anchor) + kEpsilon;
  const double anchor_width = Width(anchor) + kEpsilon;
  return {spec.y_scale * (CenterY(box) - CenterY(anchor)) / anchor_height,
          spec.x_scale * (CenterX(box) - CenterX(anchor)) / anchor_width,
          spec.height_scale * std::log((Height(box) + kEpsilon) / anchor_height),
          spec.width_scale * std::log((Width(box) + kEpsilon) / anchor_width)};
}

BoundingBox DecodeBox(const FasterRcnnBoxCoderSpec& spec, const BoxCode& code,
                      const BoundingBox& anchor) {
  const double center_y = code[0] / spec.y_scale * Height(anchor) + CenterY(anchor);
  const double center_x = code[1] / spec.x_scale * Width(anchor) + CenterX(anchor);
  const double half_height = 0.5 * std::exp(code[2] / spec.height_scale) * Height(anchor);
  const double half_width = 0.5 * std::exp(code[3] / spec.width_scale) * Width(anchor);
  return {static_cast<float>(center_y - half_height), static_cast<float>(center_x - half_width),
          static_cast<float>(center_y + half_height), static_cast<float>(center_x + half_width)};
}

}  // namespace pushpull
