// Tested by tests/common/model/families/mobilenet_v2_test.cc.
#include "common/model/families/depths.h"

#include <algorithm>

namespace pushpull {

int ScaleDepth(double depth, double multiplier, int min_depth) {
  return std::max(static_cast<int>(depth * multiplier), min_depth);
}

int MakeDivisible(double value, int divisor, int minimum) {
  const int rounded = static_cast<int>(value + divisor / 2.0) / divisor * divisor;
  const int result = std::max(minimum, rounded);
  return result < 0.9 * value ? result + divisor : result;
}

}  // namespace pushpull
