#include "kernels/cuda/channel_sums.h"

#include <cmath>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "tests/kernels/cuda/device_fixture.h"
#include "tests/testkit/kernels/compare.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int64_t kParts[] = {1, 2, 5, 33, 700};
constexpr int64_t kSizes[] = {1, 31, 300};

std::vector<float> Normal(int64_t count, uint64_t stream, double offset = 0) {
  CounterRandom random(12, stream);
  std::vector<float> values(count);
  for (float& value : values) value = static_cast<float>(offset + random.NextNormal());
  return values;
}

using ChannelSums = DeviceFixture<testing::Test>;

TEST_F(ChannelSums, AddsPartsUpWithMoreThanFloatPrecision) {
  for (const int64_t parts : kParts) {
    for (const int64_t size : kSizes) {
      const std::vector<float> values = Normal(parts * size, 1, 1000);
      std::vector<double> expected(size);
      for (int64_t i = 0; i < parts * size; ++i) expected[i % size] += values[i];
      const Operand<float> in(memory(), values), out(memory(), size);
      CombineParts(queue(), in.data(), parts, size, out.data());
      ExpectClose(absl::StrCat(parts, " parts of ", size), expected, out.Read("sums"), 1e-7);
    }
  }
}

TEST_F(ChannelSums, CombinesTheStatisticsOfAllSamples) {
  for (const int64_t parts : kParts) {
    for (const int64_t channels : kSizes) {
      // Part p has p % 4 samples, so some have none. Their mean is far from 0.
      std::vector<float> triples(parts * 3 * channels);
      std::vector<double> means(channels), variances(channels);
      for (int64_t c = 0; c < channels; ++c) {
        std::vector<double> all;
        for (int64_t p = 0; p < parts; ++p) {
          const int64_t count = parts == 1 ? 3 : (p + 1) % 4;
          const std::vector<float> samples = Normal(count, 1000 * p + c, 300);
          double sum = 0, squares = 0;
          for (const float v : samples) sum += v;
          const float mean = static_cast<float>(count > 0 ? sum / count : 0);
          for (const float v : samples) squares += (v - sum / count) * (v - sum / count);
          float* const part = &triples[p * 3 * channels + c];
          part[0] = static_cast<float>(count);
          part[channels] = mean;
          part[2 * channels] = static_cast<float>(squares);
          all.insert(all.end(), samples.begin(), samples.end());
        }
        for (const double v : all) means[c] += v / all.size();
        for (const double v : all) variances[c] += (v - means[c]) * (v - means[c]) / all.size();
      }
      const Operand<float> in(memory(), triples), mean(memory(), channels),
          variance(memory(), channels);
      CombineStatistics(queue(), in.data(), parts, channels, mean.data(), variance.data());
      const std::string label = absl::StrCat(parts, " parts, ", channels, " channels ");
      ExpectClose(label + "mean", means, mean.Read("mean"), 1e-7);
      ExpectClose(label + "variance", variances, variance.Read("variance"), 1e-4);
    }
  }
}

TEST_F(ChannelSums, NormGradientsAreScaledSums) {
  for (const int64_t parts : kParts) {
    for (const int64_t channels : kSizes) {
      const std::vector<float> pairs = Normal(parts * 2 * channels, 3, 2), gamma(channels, 3.0f),
                               variance = Normal(channels, 4, 9);
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
      CombineNormGradients(queue(), in.data(), parts, channels, norm, beta_out.data(),
                           gamma_out.data());
      const std::string label = absl::StrCat(parts, " parts, ", channels, " channels ");
      ExpectClose(label + "dbeta", dbeta, beta_out.Read("dbeta"), 1e-6);
      ExpectClose(label + "dgamma", dgamma, gamma_out.Read("dgamma"), 1e-6);
    }
  }
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
