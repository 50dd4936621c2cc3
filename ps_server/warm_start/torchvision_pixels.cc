#include "ps_server/warm_start/torchvision_pixels.h"

#include <array>
#include <cstddef>
#include <vector>

#include "glog/logging.h"

namespace pushpull {
namespace {

constexpr size_t kColours = 3;
constexpr std::array<double, kColours> kMean = {0.485, 0.456, 0.406};
constexpr std::array<double, kColours> kDeviation = {0.229, 0.224, 0.225};

}  // namespace

void AdaptToOurPixels(absl::Span<float> weights, absl::Span<float> moving_mean) {
  const size_t outputs = moving_mean.size();
  CHECK_GT(outputs, 0u);
  CHECK_EQ(weights.size() % (kColours * outputs), 0u);
  std::vector<double> shifted(outputs);
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t colour = i / outputs % kColours;
    shifted[i % outputs] += weights[i] * (0.5 - kMean[colour]) / kDeviation[colour];
    weights[i] = static_cast<float>(weights[i] * 0.5 / kDeviation[colour]);
  }
  for (size_t o = 0; o < outputs; ++o) {
    moving_mean[o] = static_cast<float>(moving_mean[o] - shifted[o]);
  }
}

}  // namespace pushpull
