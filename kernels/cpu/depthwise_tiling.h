// Cuts a depthwise convolution into tasks. A task is a group of samples x a slab of channels. The
// rows of a slab that the kernel reads at a time fit in the second-level cache. The cut depends on
// the shape only, never on the number of threads or on the instruction set. Plain values.
#ifndef PUSHPULL_KERNELS_CPU_DEPTHWISE_TILING_H_
#define PUSHPULL_KERNELS_CPU_DEPTHWISE_TILING_H_

#include <cstdint>

#include "kernels/operators.h"

namespace pushpull {

inline constexpr int kMaxDepthwiseTaps = 7;  // the largest kernel

struct DepthwiseTiling {
  explicit DepthwiseTiling(const ConvolutionShape& shape);

  int64_t tasks() const { return groups * slabs; }
  int64_t GroupOf(int64_t task) const { return task / slabs; }
  int64_t FirstSample(int64_t task) const { return GroupOf(task) * group_samples; }
  int64_t EndSample(int64_t task, int64_t samples) const;
  int64_t FirstChannel(int64_t task) const { return task % slabs * slab; }
  int64_t Channels(int64_t task, int64_t channels) const;

  int64_t group_samples;  // the last group may have fewer
  int64_t groups;
  // The channels of a slab, a multiple of 8. It is also the distance of two pixels in a band, in
  // floats. The last slab may have fewer channels.
  int64_t slab;
  int64_t slabs;
};

// Calls f.operator()<rows, columns>(), which turns the number of taps that apply into compile-time
// constants. 0 <= rows <= kMaxDepthwiseTaps, 1 <= columns <= kMaxDepthwiseTaps.
template <int kRows = kMaxDepthwiseTaps, int kColumns = kMaxDepthwiseTaps, typename F>
inline void WithTaps(int rows, int columns, F f) {
  if constexpr (kRows > 0) {
    if (rows < kRows) return WithTaps<kRows - 1, kColumns>(rows, columns, f);
  }
  if constexpr (kColumns > 1) {
    if (columns < kColumns) return WithTaps<kRows, kColumns - 1>(rows, columns, f);
  }
  f.template operator()<kRows, kColumns>();
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_DEPTHWISE_TILING_H_
