// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/depthwise_tiling.h"

#include <algorithm>

#include "kernels/cpu/channel_coefficients.h"

namespace pushpull {

namespace {

// The target size of a band, kernel * in.w * slab floats (192 KiB).
constexpr int64_t kBandFloats = 48 << 10;
// The tasks that there should be for the threads of a large machine, if the channels suffice.
constexpr int64_t kMinTasks = 8;
constexpr int64_t kNarrowestSlab = 32;
// With fewer pixels in a group, writing and adding its partial sums would cost more than the work.
constexpr int64_t kRowsPerGroup = 512;
constexpr int64_t kMaxGroups = 16;

}  // namespace

DepthwiseTiling::DepthwiseTiling(const ConvolutionShape& shape) {
  const Shape in = shape.in;
  groups = std::clamp<int64_t>(in.rows() / kRowsPerGroup, 1, std::min(kMaxGroups, in.n));
  group_samples = (in.n + groups - 1) / groups;
  groups = (in.n + group_samples - 1) / group_samples;
  // A slab of all channels reads and writes whole rows of the tensor, which the processor foresees:
  // that is up to twice as fast as slabs of 32 channels if the tensor is not in the cache.
  const int64_t widest = std::max(kNarrowestSlab, kBandFloats / (shape.kernel * in.w));
  const int64_t wanted = std::min((kMinTasks + groups - 1) / groups, in.c / kNarrowestSlab);
  slabs = std::max((in.c + widest - 1) / widest, wanted);
  slab = PaddedChannels((in.c + slabs - 1) / slabs);
  slabs = (in.c + slab - 1) / slab;
}

int64_t DepthwiseTiling::EndSample(int64_t task, int64_t samples) const {
  return std::min(samples, FirstSample(task) + group_samples);
}

int64_t DepthwiseTiling::Channels(int64_t task, int64_t channels) const {
  return std::min(slab, channels - FirstChannel(task));
}

}  // namespace pushpull
