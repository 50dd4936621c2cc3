// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/channel_coefficients.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "kernels/cpu/kernel_loop.h"
#include "kernels/cpu/panels.h"

namespace pushpull {

namespace {

constexpr int64_t kGroup = 128;  // the channels that a task combines

double InverseDeviation(const BatchNorm<float>& norm, int64_t c) {
  return 1.0 / std::sqrt(static_cast<double>(norm.variance[c]) + norm.epsilon);
}

// Calls f(first channel, number of channels) for each group, on the pool's threads.
template <typename F>
void ForEachGroup(int64_t channels, ThreadPool* pool, F f) {
  const int64_t groups = (channels + kGroup - 1) / kGroup;
  KernelLoop(pool, groups, [&](int64_t g) {
    const int64_t begin = g * kGroup;
    f(begin, std::min(kGroup, channels - begin));
  });
}

// Adds the sums of all blocks for the `count` channels that begin at `sums`, in order.
void AddBlocks(const float* sums, int64_t blocks, int64_t stride, int64_t count, double* out) {
  for (int64_t b = 0; b < blocks; ++b) {
    for (int64_t c = 0; c < count; ++c) out[c] += sums[b * stride + c];
  }
}

}  // namespace

int64_t PaddedChannels(int64_t channels) { return PadToPanel(channels); }

LazyCoefficients::LazyCoefficients(int64_t channels, Arena* arena)
    : scale(arena->Floats(PaddedChannels(channels))),
      shift(arena->Floats(PaddedChannels(channels))),
      mean(arena->Floats(PaddedChannels(channels))) {}

void LazyCoefficients::Compute(const BatchNorm<float>& norm, int64_t channels) const {
  for (int64_t c = 0; c < channels; ++c) {
    const double s = norm.gamma[c] * InverseDeviation(norm, c);
    scale[c] = static_cast<float>(s);
    shift[c] = static_cast<float>(norm.beta[c] - s * norm.mean[c]);
    mean[c] = norm.mean[c];
  }
  for (int64_t c = channels; c < PaddedChannels(channels); ++c) scale[c] = shift[c] = mean[c] = 0;
}

GradientCoefficients::GradientCoefficients(int64_t channels, Arena* arena)
    : a(arena->Floats(PaddedChannels(channels))),
      b(arena->Floats(PaddedChannels(channels))),
      c(arena->Floats(PaddedChannels(channels))) {}

void GradientCoefficients::Compute(const Shape& shape, const BatchNorm<float>& norm,
                                   const float* dbeta, const float* dgamma) const {
  const double count = static_cast<double>(shape.rows());
  for (int64_t i = 0; i < shape.c; ++i) {
    const double inverse = InverseDeviation(norm, i);
    const double scale = norm.gamma[i] * inverse;
    a[i] = static_cast<float>(scale);
    b[i] = c[i] = 0;
    if (norm.statistics == Statistics::kFrozen) continue;
    const double slope = -scale * inverse * dgamma[i] / count;
    b[i] = static_cast<float>(slope);
    c[i] = static_cast<float>(-scale * dbeta[i] / count - slope * norm.mean[i]);
  }
  for (int64_t i = shape.c; i < PaddedChannels(shape.c); ++i) a[i] = b[i] = c[i] = 0;
}

BlockSums::BlockSums(int64_t blocks, int64_t channels, Arena* arena)
    : blocks(blocks),
      stride(PaddedChannels(channels)),
      first(arena->Floats(blocks * stride)),
      second(arena->Floats(blocks * stride)) {}

void CombineStatistics(const BlockSums& sums, absl::FunctionRef<int64_t(int64_t)> rows_of,
                       int64_t channels, float* mean, float* variance, ThreadPool* pool) {
  std::vector<double> weights(sums.blocks);
  double rows = 0;
  for (int64_t b = 0; b < sums.blocks; ++b) rows += weights[b] = static_cast<double>(rows_of(b));
  ForEachGroup(channels, pool, [&](int64_t begin, int64_t count) {
    double means[kGroup] = {}, squares[kGroup] = {};
    for (int64_t b = 0; b < sums.blocks; ++b) {
      const float* block_mean = sums.First(b) + begin;
      for (int64_t c = 0; c < count; ++c) means[c] += weights[b] * block_mean[c];
    }
    for (int64_t c = 0; c < count; ++c) means[c] /= rows;
    for (int64_t b = 0; b < sums.blocks; ++b) {
      const float* block_mean = sums.First(b) + begin;
      const float* block_squares = sums.Second(b) + begin;
      for (int64_t c = 0; c < count; ++c) {
        const double offset = block_mean[c] - means[c];
        squares[c] += block_squares[c] + weights[b] * offset * offset;
      }
    }
    for (int64_t c = 0; c < count; ++c) {
      mean[begin + c] = static_cast<float>(means[c]);
      variance[begin + c] = static_cast<float>(squares[c] / rows);
    }
  });
}

void CombineGradients(const BlockSums& sums, const BatchNorm<float>& norm, int64_t channels,
                      float* dbeta, float* dgamma, ThreadPool* pool) {
  ForEachGroup(channels, pool, [&](int64_t begin, int64_t count) {
    double first_sums[kGroup] = {}, second_sums[kGroup] = {};
    AddBlocks(sums.first + begin, sums.blocks, sums.stride, count, first_sums);
    AddBlocks(sums.second + begin, sums.blocks, sums.stride, count, second_sums);
    for (int64_t c = 0; c < count; ++c) {
      dbeta[begin + c] = static_cast<float>(first_sums[c]);
      dgamma[begin + c] = static_cast<float>(second_sums[c] * InverseDeviation(norm, begin + c));
    }
  });
}

void CombineSums(const float* sums, int64_t blocks, int64_t channels, float* out,
                 ThreadPool* pool) {
  ForEachGroup(channels, pool, [&](int64_t begin, int64_t count) {
    double totals[kGroup] = {};
    AddBlocks(sums + begin, blocks, PaddedChannels(channels), count, totals);
    for (int64_t c = 0; c < count; ++c) out[begin + c] = static_cast<float>(totals[c]);
  });
}

}  // namespace pushpull
