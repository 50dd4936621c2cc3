// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/depthwise_tiling.h"

#include <algorithm>

#include "kernels/cpu/channel_coefficients.h"

namespace pushpull {

namespace {

// The target size of a band, band_rows * in.w * slab floats (96 KiB). At stride 1 the backward pass
// holds a band of dy of about the same size beside it; at stride 2 the input of a forward band is
// twice as large.
constexpr int64_t kBandFloats = 24 << 10;
// With fewer pixels in a group, writing and adding its partial sums would cost more than the work.
constexpr int64_t kRowsPerGroup = 512;
constexpr int64_t kMostGroups = 16;

}  // namespace

DepthwiseTiling::DepthwiseTiling(const ConvolutionShape& shape) {
  const Shape in = shape.in;
  groups = std::clamp<int64_t>(in.rows() / kRowsPerGroup, 1, std::min(kMostGroups, in.n));
  group_samples = (in.n + groups - 1) / groups;
  groups = (in.n + group_samples - 1) / group_samples;
  const int64_t widest = in.w <= 32 ? 64 : 32;
  slabs = (in.c + widest - 1) / widest;
  slab = PaddedChannels((in.c + slabs - 1) / slabs);
  slabs = (in.c + slab - 1) / slab;
  const int64_t fit = kBandFloats / (in.w * slab);
  band_rows = std::clamp<int64_t>(fit, 4, std::max<int64_t>(in.h, 4));
}

int64_t DepthwiseTiling::EndSample(int64_t task, int64_t samples) const {
  return std::min(samples, FirstSample(task) + group_samples);
}

int64_t DepthwiseTiling::Channels(int64_t task, int64_t channels) const {
  return std::min(slab, channels - FirstChannel(task));
}

}  // namespace pushpull
