// Tested by tests/worker/data/synthetic_source_test.cc.
#include "worker/data/synthetic_shapes.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr std::array<absl::string_view, kMaxSyntheticClasses> kClassNames = {
    "disc",  "square",  "triangle",       "cross",        "ring",      "diamond",
    "frame", "saltire", "horizontal_bar", "vertical_bar", "half_disc", "crescent"};

}  // namespace

absl::string_view SyntheticClassName(int shape) {
  CHECK_GE(shape, 0);
  CHECK_LT(shape, kMaxSyntheticClasses);
  return kClassNames[shape];
}

std::vector<std::string> SyntheticClassNames(int count) {
  std::vector<std::string> names;
  for (int shape = 0; shape < count; ++shape) {
    names.push_back(std::string(SyntheticClassName(shape)));
  }
  return names;
}

bool InsideShape(int shape, float u, float v) {
  const float a = std::fabs(u);
  const float b = std::fabs(v);
  const float r2 = u * u + v * v;
  switch (shape) {
    case 0:
      return r2 <= 0.72f;
    case 1:
      return std::max(a, b) <= 0.7f;
    case 2:  // equilateral, with one corner at the top
      return v <= 0.5f && a <= (v + 1.0f) * 0.57735f;
    case 3:
      return std::min(a, b) <= 0.25f && std::max(a, b) <= 0.9f;
    case 4:
      return r2 <= 0.9f && r2 >= 0.3f;
    case 5:
      return a * 1.6f + b <= 1.0f;
    case 6:
      return std::max(a, b) <= 0.7f && std::max(a, b) >= 0.4f;
    case 7:  // the cross, turned by 45 degrees
      return std::min(std::fabs(u + v), std::fabs(u - v)) <= 0.35f && a + b <= 1.25f && r2 <= 0.9f;
    case 8:
      return a <= 0.95f && b <= 0.26f;
    case 9:
      return b <= 0.95f && a <= 0.26f;
    case 10:
      return r2 <= 0.9f && v >= 0.0f;
    default:
      return r2 <= 0.9f && (u - 0.45f) * (u - 0.45f) + v * v >= 0.45f;
  }
}

}  // namespace pushpull
