#include "ps_server/warm_start/torchvision_pixels.h"

#include <cmath>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr int kTaps = 3 * 3;
constexpr int kOutputs = 5;

// What a window of the image gives before the batch norm's scale: the convolution minus the mean.
std::vector<double> Response(const std::vector<float>& weights, const std::vector<float>& mean,
                             const std::vector<double>& window) {
  std::vector<double> response(mean.begin(), mean.end());
  for (double& value : response) value = -value;
  for (size_t i = 0; i < weights.size(); ++i) {
    response[i % kOutputs] += weights[i] * window[i / kOutputs];
  }
  return response;
}

TEST(TorchvisionPixelsTest, TheFirstLayerGivesWhatItGaveForTorchvisionsPixels) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> weights(kTaps * 3 * kOutputs), mean(kOutputs);
  for (float& value : weights) value = normal(random);
  for (float& value : mean) value = normal(random);
  std::vector<float> adapted_weights = weights, adapted_mean = mean;
  const std::vector<double> missing = AdaptToOurPixels(absl::MakeSpan(adapted_weights), kOutputs);
  for (int o = 0; o < kOutputs; ++o) adapted_mean[o] -= static_cast<float>(missing[o]);

  const double imagenet_mean[] = {0.485, 0.456, 0.406};
  const double imagenet_deviation[] = {0.229, 0.224, 0.225};
  std::uniform_real_distribution<double> pixel(0.0, 1.0);
  for (int window = 0; window < 20; ++window) {
    std::vector<double> theirs, ours;
    for (int i = 0; i < kTaps * 3; ++i) {
      const double p = pixel(random);
      theirs.push_back((p - imagenet_mean[i % 3]) / imagenet_deviation[i % 3]);
      ours.push_back(2 * p - 1);
    }
    const std::vector<double> expected = Response(weights, mean, theirs);
    const std::vector<double> found = Response(adapted_weights, adapted_mean, ours);
    for (int o = 0; o < kOutputs; ++o) EXPECT_NEAR(found[o], expected[o], 1e-5) << o;
  }
}

}  // namespace
}  // namespace pushpull
