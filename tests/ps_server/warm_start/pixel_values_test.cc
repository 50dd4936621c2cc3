#include "ps_server/warm_start/pixel_values.h"

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

void ExpectTheSameResponse(const PixelValues& pixels) {
  std::mt19937 random(7);
  std::normal_distribution<float> normal;
  std::vector<float> weights(kTaps * 3 * kOutputs), mean(kOutputs);
  for (float& value : weights) value = normal(random);
  for (float& value : mean) value = normal(random);
  std::vector<float> adapted_weights = weights, adapted_mean = mean;
  const std::vector<double> missing =
      AdaptToOurPixels(pixels, absl::MakeSpan(adapted_weights), kOutputs);
  for (int o = 0; o < kOutputs; ++o) adapted_mean[o] -= static_cast<float>(missing[o]);

  std::uniform_real_distribution<double> pixel(0.0, 1.0);
  for (int window = 0; window < 20; ++window) {
    std::vector<double> theirs, ours;
    for (int i = 0; i < kTaps * 3; ++i) {
      const double p = pixel(random);
      theirs.push_back((p - pixels.mean[i % 3]) / pixels.deviation[i % 3]);
      ours.push_back(2 * p - 1);
    }
    const std::vector<double> expected = Response(weights, mean, theirs);
    const std::vector<double> found = Response(adapted_weights, adapted_mean, ours);
    const double tolerance = 2e-6 / pixels.deviation[0];
    for (int o = 0; o < kOutputs; ++o) EXPECT_NEAR(found[o], expected[o], tolerance) << o;
  }
}

TEST(PixelValuesTest, TheFirstLayerGivesWhatItGaveForTorchvisionsPixels) {
  ExpectTheSameResponse({{0.485, 0.456, 0.406}, {0.229, 0.224, 0.225}});
  EXPECT_EQ(kTorchvisionPixels.mean[2], 0.406);
  EXPECT_EQ(kTorchvisionPixels.deviation[2], 0.225);
}

// slim subtracts 123.68 from a red pixel of 0 to 255, for example.
TEST(PixelValuesTest, TheFirstLayerGivesWhatItGaveForPixelsWithoutTheirMean) {
  ExpectTheSameResponse(kChannelMeanPixels);
  const double red = 200;
  EXPECT_NEAR((red / 255 - kChannelMeanPixels.mean[0]) / kChannelMeanPixels.deviation[0],
              red - 123.68, 1e-9);
}

}  // namespace
}  // namespace pushpull
