// How the depthwise convolutions use their workspace. Views of an Arena's memory. Their layout
// depends on the shape and on the number of threads only.
#ifndef PUSHPULL_KERNELS_CPU_DEPTHWISE_PLAN_H_
#define PUSHPULL_KERNELS_CPU_DEPTHWISE_PLAN_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/arena.h"
#include "kernels/cpu/channel_coefficients.h"
#include "kernels/cpu/depthwise_tiling.h"
#include "kernels/operators.h"

namespace pushpull {

// Kernels read bands by whole vectors. A pixel is padded to 8 channels only, so a vector of 16 may
// read up to this many floats past the end of the band; those lanes are ignored.
inline constexpr int64_t kDepthwiseOverread = 8;

struct DepthwiseForwardPlan {
  DepthwiseForwardPlan(const ConvolutionShape& shape, int threads, Arena* arena)
      : tiling(shape),
        columns(std::max((shape.out_w() - 1) * shape.stride + shape.kernel,
                         shape.padding.left + shape.in.w)),
        coefficients(shape.in.c, arena),
        sums(tiling.groups, shape.in.c, arena),
        band_floats(shape.kernel * columns * tiling.slab),
        thread_floats(band_floats + tiling.slab + kDepthwiseOverread + shape.out_w() * tiling.slab),
        scratch(arena->Floats(threads * thread_floats)) {}

  DepthwiseTiling tiling;
  int64_t columns;  // of a band, with its zero columns
  LazyCoefficients coefficients;
  BlockSums sums;  // one block for each group of samples
  int64_t band_floats;
  int64_t thread_floats;
  float* scratch;  // for each thread, a band, the origin of the sums and a row of y
};

struct DepthwiseBackwardPlan {
  DepthwiseBackwardPlan(const ConvolutionShape& shape, int threads, Arena* arena)
      : tiling(shape),
        out_rows((shape.kernel - 1) / shape.stride + 1),
        left((std::max(shape.kernel - 1 - shape.padding.left, 0) + shape.stride - 1) /
             shape.stride),
        columns(left +
                std::max(shape.out_w(), (shape.in.w - 1 + shape.padding.left) / shape.stride + 1)),
        coefficients(shape.in.c, arena),
        gradient_coefficients(shape.in.c, arena),
        sums(tiling.groups, shape.in.c, arena),
        padded_channels(PaddedChannels(shape.in.c)),
        partial_floats(int64_t{shape.kernel} * shape.kernel * padded_channels),
        partial(arena->Floats(tiling.groups * partial_floats)),
        row_floats(shape.in.w * tiling.slab),
        dy_floats(out_rows * columns * tiling.slab),
        thread_floats(row_floats + dy_floats + row_floats + kDepthwiseOverread),
        scratch(arena->Floats(threads * thread_floats)) {}

  DepthwiseTiling tiling;
  int64_t out_rows;  // the most output rows that have a tap in one input row
  int64_t left;      // zero columns at the left of a band of dy
  int64_t columns;   // of a band of dy, with its zero columns
  LazyCoefficients coefficients;
  GradientCoefficients gradient_coefficients;
  BlockSums sums;  // one block for each group of samples
  int64_t padded_channels;
  int64_t partial_floats;
  float* partial;      // dweights of each group: [groups, kernel * kernel, padded channels]
  int64_t row_floats;  // of a row of x or dx
  int64_t dy_floats;
  int64_t thread_floats;
  float* scratch;  // for each thread, a row of x, a band of dy and a row of dx
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_DEPTHWISE_PLAN_H_
