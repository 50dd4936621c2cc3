#include "ps_server/warm_start/pixel_values.h"

#include "glog/logging.h"

namespace pushpull {

std::vector<double> AdaptToOurPixels(const PixelValues& theirs, absl::Span<float> weights,
                                     size_t outputs) {
  const size_t colours = theirs.mean.size();
  CHECK_GT(outputs, 0u);
  CHECK_EQ(weights.size() % (colours * outputs), 0u);
  std::vector<double> missing(outputs);
  for (size_t i = 0; i < weights.size(); ++i) {
    const size_t colour = i / outputs % colours;
    missing[i % outputs] += weights[i] * (0.5 - theirs.mean[colour]) / theirs.deviation[colour];
    weights[i] = static_cast<float>(weights[i] * 0.5 / theirs.deviation[colour]);
  }
  return missing;
}

}  // namespace pushpull
