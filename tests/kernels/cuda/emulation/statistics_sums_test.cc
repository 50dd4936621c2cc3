// Statistics that the last block of a kernel combines (kernels/cuda/statistics_sums.cuh). The
// kernel here only writes given parts, so that their counts and numbers can be any.
#include "kernels/cuda/statistics_sums.cuh"

#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"

#include "common/base/random.h"
#include "kernels/cuda/launch.cuh"
#include "tests/kernels/cuda/device_array.h"
#include "tests/testkit/kernels/compare.h"

namespace pushpull::emulated_cuda {
namespace {

// Block (part, group) copies its part of `from` to sums.parts. Every part is written once, so a
// block that comes last too early finds guards, which are huge negative numbers.
template <int kGroup>
__global__ void CopyParts(StatisticsSums sums, const float* from) {
  const int channel = blockIdx.y * kGroup + threadIdx.x;
  if (threadIdx.x < kGroup && channel < sums.channels) {
    for (int i = 0; i < 3; ++i) {
      const int64_t place = (int64_t{blockIdx.x} * 3 + i) * sums.channels + channel;
      sums.parts[place] = from[place];
    }
  }
  CombineStatistics<kGroup>(sums, blockIdx.y, SharedBytes());
}

struct Combined {
  std::vector<float> mean, variance;
};

template <int kGroup>
Combined Combine(Queue* queue, const std::vector<float>& triples, int64_t parts, int64_t channels) {
  DeviceArray<float> from(triples), workspace(parts * 3 * channels), mean(channels),
      variance(channels);
  const StatisticsSums sums = SumsFor<float>(queue, {mean.data(), variance.data()}, parts, channels,
                                             kGroup, workspace.data());
  const dim3 grid(parts, (channels + kGroup - 1) / kGroup);
  const auto shared = static_cast<size_t>(StatisticsSharedBytes(parts, kGroup));
  Launch(queue, "CopyParts", {grid, dim3(kStatisticsThreads), shared}, CopyParts<kGroup>, sums,
         from.data());
  return {mean.Take(), variance.Take()};
}

std::vector<unsigned> Counters(const Queue& queue) {
  return {queue.arrivals, queue.arrivals + kArrivalCounters};
}

template <int kGroup>
void CheckGroup() {
  DefaultQueue queue;
  for (const int64_t parts : {1, 2, 5, 33, 700}) {
    for (const int64_t channels : {1, 31, 300}) {
      // Part p has p % 4 samples, so some have none. Their mean is far from 0.
      std::vector<float> triples(parts * 3 * channels);
      std::vector<double> means(channels), variances(channels);
      for (int64_t c = 0; c < channels; ++c) {
        std::vector<double> all;
        for (int64_t p = 0; p < parts; ++p) {
          const int64_t count = parts == 1 ? 3 : (p + 1) % 4;
          CounterRandom random(12, 1000 * p + c);
          double sum = 0, squares = 0;
          std::vector<double> samples;
          for (int64_t i = 0; i < count; ++i) samples.push_back(300 + random.NextNormal());
          for (const double v : samples) sum += v;
          const double mean = count > 0 ? sum / count : 0;
          for (const double v : samples) squares += (v - mean) * (v - mean);
          float* const part = &triples[p * 3 * channels + c];
          part[0] = static_cast<float>(count);
          part[channels] = static_cast<float>(mean);
          part[2 * channels] = static_cast<float>(squares);
          all.insert(all.end(), samples.begin(), samples.end());
        }
        for (const double v : all) means[c] += v / all.size();
        for (const double v : all) variances[c] += (v - means[c]) * (v - means[c]) / all.size();
      }
      const std::string label = absl::StrCat(parts, " parts, ", channels, " channels ");
      const Combined got = Combine<kGroup>(&queue, triples, parts, channels);
      ExpectClose(label + "mean", means, ToDoubles(got.mean), 1e-7);
      ExpectClose(label + "variance", variances, ToDoubles(got.variance), 1e-4);
      // The counters are zeros again, and another launch with another order of threads gives the
      // same bits.
      EXPECT_EQ(Counters(queue), std::vector<unsigned>(kArrivalCounters, 0)) << label;
      for (const Order order : {Order::kBackward, Order::kShuffled}) {
        SetOrder(order);
        const Combined again = Combine<kGroup>(&queue, triples, parts, channels);
        EXPECT_TRUE(SameBits(got.mean, again.mean)) << label;
        EXPECT_TRUE(SameBits(got.variance, again.variance)) << label;
      }
      SetOrder(Order::kForward);
    }
  }
}

TEST(StatisticsSumsTest, CombinesGroupsOf32) { CheckGroup<32>(); }
TEST(StatisticsSumsTest, CombinesGroupsOf64) { CheckGroup<64>(); }
TEST(StatisticsSumsTest, CombinesGroupsOf128) { CheckGroup<128>(); }

TEST(StatisticsSumsTest, MoreGroupsThanCountersAreAnError) {
  DefaultQueue queue;
  float out = 0;
  SumsFor<float>(&queue, {&out, &out}, 1, kArrivalCounters * 32, 32, nullptr);
  EXPECT_EQ(queue.error, cudaSuccess);
  SumsFor<float>(&queue, {&out, &out}, 1, kArrivalCounters * 32 + 1, 32, nullptr);
  EXPECT_EQ(queue.error, cudaErrorInvalidValue);
}

}  // namespace
}  // namespace pushpull::emulated_cuda
