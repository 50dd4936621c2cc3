#include "kernels/cuda/channel_sums.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "tests/kernels/cuda/device_array.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/testkit/kernels/compare.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int64_t kParts[] = {1, 2, 5, 33, 700};
constexpr int64_t kSizes[] = {1, 31, 300};

using ChannelSums = DeviceFixture<testing::Test>;

TEST_F(ChannelSums, AddsPartsUpWithMoreThanFloatPrecision) {
  for (const int64_t parts : kParts) {
    for (const int64_t size : kSizes) {
      const std::vector<float> values = RandomNumbers<float>(parts * size, 1, 1.0, 1000);
      std::vector<double> expected(size);
      for (int64_t i = 0; i < parts * size; ++i) expected[i % size] += values[i];
      const Operand<float> in(memory(), values), out(memory(), size);
      CombineGradients(queue(), {{}, {in.data(), parts, size, out.data()}, {}});
      ExpectClose(absl::StrCat(parts, " parts of ", size), expected, out.Read("sums"), 1e-7);
    }
  }
}

TEST_F(ChannelSums, NormGradientsAreScaledSums) {
  for (const int64_t parts : kParts) {
    for (const int64_t channels : kSizes) {
      const std::vector<float> pairs = RandomNumbers<float>(parts * 2 * channels, 3, 1.0, 2),
                               gamma(channels, 3.0f),
                               variance = RandomNumbers<float>(channels, 4, 1.0, 9);
      std::vector<double> dbeta(channels), dgamma(channels);
      for (int64_t p = 0; p < parts; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          dbeta[c] += pairs[p * 2 * channels + c];
          dgamma[c] += pairs[(p * 2 + 1) * channels + c] / std::sqrt(variance[c] + 1e-2);
        }
      }
      const Operand<float> in(memory(), pairs), scale(memory(), gamma), spread(memory(), variance),
          beta_out(memory(), channels), gamma_out(memory(), channels);
      const BatchNorm<float> norm{scale.data(),  scale.data(), scale.data(),
                                  spread.data(), 1e-2,         Statistics::kBatch};
      CombineGradients(
          queue(),
          {{in.data(), parts, channels, &norm, beta_out.data(), gamma_out.data()}, {}, {}});
      const std::string label = absl::StrCat(parts, " parts, ", channels, " channels ");
      ExpectClose(label + "dbeta", dbeta, beta_out.Read("dbeta"), 1e-6);
      ExpectClose(label + "dgamma", dgamma, gamma_out.Read("dgamma"), 1e-6);
    }
  }
}

// Sums of different sizes and numbers of parts, which share one launch.
TEST_F(ChannelSums, CombinesAllGradientsOfAnOperator) {
  constexpr int64_t kChannels = 40, kWeights = 1000, kBiases = 3;
  const std::vector<float> pairs = RandomNumbers<float>(5 * 2 * kChannels, 5),
                           weights = RandomNumbers<float>(9 * kWeights, 6),
                           biases = RandomNumbers<float>(100 * kBiases, 7), ones(kChannels, 1.0f);
  std::vector<double> dbeta(kChannels), dgamma(kChannels), dweights(kWeights), dbiases(kBiases);
  for (int64_t p = 0; p < 5; ++p) {
    for (int64_t c = 0; c < kChannels; ++c) {
      dbeta[c] += pairs[p * 2 * kChannels + c];
      dgamma[c] += pairs[(p * 2 + 1) * kChannels + c] / std::sqrt(1.0 + 1e-2);
    }
  }
  for (int64_t i = 0; i < 9 * kWeights; ++i) dweights[i % kWeights] += weights[i];
  for (int64_t i = 0; i < 100 * kBiases; ++i) dbiases[i % kBiases] += biases[i];
  const Operand<float> pairs_in(memory(), pairs), weights_in(memory(), weights),
      biases_in(memory(), biases), scale(memory(), ones), beta_out(memory(), kChannels),
      gamma_out(memory(), kChannels), weights_out(memory(), kWeights),
      biases_out(memory(), kBiases);
  const BatchNorm<float> norm{scale.data(), scale.data(), scale.data(),
                              scale.data(), 1e-2,         Statistics::kBatch};
  CombineGradients(queue(),
                   {{pairs_in.data(), 5, kChannels, &norm, beta_out.data(), gamma_out.data()},
                    {weights_in.data(), 9, kWeights, weights_out.data()},
                    {biases_in.data(), 100, kBiases, biases_out.data()}});
  ExpectClose("dbeta", dbeta, beta_out.Read("dbeta"), 1e-6);
  ExpectClose("dgamma", dgamma, gamma_out.Read("dgamma"), 1e-6);
  ExpectClose("weights", dweights, weights_out.Read("weights"), 1e-6);
  ExpectClose("biases", dbiases, biases_out.Read("biases"), 1e-6);
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
