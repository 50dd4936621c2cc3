#include "ps_server/warm_start/torchvision_pixels.h"

#include <array>

#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr size_t kColours = 3;
constexpr std::array<double, kColours> kMean = {0.485, 0.456, 0.406};
constexpr std::array<double, kColours> kDeviation = {0.229, 0.224, 0.225};

}  // namespace

std::vector<double> AdaptToOurPixels(absl::Span<float> weights, size_t outputs) {
  CHECK_GT(outputs, 0u);
  CHECK_EQ(weights.size() % (kColours * outputs), 0u);
  std::vector<double> missing(outputs);
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t colour = i / outputs % kColours;
    missing[i % outputs] += weights[i] * (0.5 - kMean[colour]) / kDeviation[colour];
    weights[i] = static_cast<float>(weights[i] * 0.5 / kDeviation[colour]);
  }
  return missing;
}

}  // namespace pushpull
