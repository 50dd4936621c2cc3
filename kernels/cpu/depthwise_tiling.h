// Cuts a depthwise convolution into tasks and bands. A task is a group of samples x a slab of
// channels. Within a task each image is cut into bands of rows that fit in the second-level cache.
// The cut depends on the shape only, never on the number of threads. Plain values and views.
#ifndef PUSHPULL_KERNELS_CPU_DEPTHWISE_TILING_H_
#define PUSHPULL_KERNELS_CPU_DEPTHWISE_TILING_H_

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vector_loads.h"
#include "kernels/operators.h"

namespace pushpull {

inline constexpr int kMostDepthwiseTaps = 7;  // the largest kernel

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
  int64_t band_rows;  // output rows of a forward band, input rows of a backward band
};

// A band of an image in scratch memory: rows of `columns` pixels of `slab` channels. The pixels of
// the image begin at column `left`; the columns before and after them are zero, so the kernel can
// slide over the border without tests.
//
//       left     width of the image   the other columns
//     .------.----------------------.-----.
//     |  0   |  row 0               |  0  |    each cell is a pixel: `slab` floats
//     |  0   |  row 1               |  0  |
//     '------'----------------------'-----'
struct Band {
  int64_t left;
  int64_t columns;
  int64_t slab;
  float* data;

  float* Row(int64_t i) const { return data + i * columns * slab; }
  // Zeroes the columns to the left and to the right of an image of this width.
  void ClearBorder(int64_t rows, int64_t width) const {
    for (int64_t i = 0; i < rows; ++i) {
      std::fill(Row(i), Row(i) + left * slab, 0.0f);
      std::fill(Row(i) + (left + width) * slab, Row(i) + columns * slab, 0.0f);
    }
  }

  // Writes row `h` of sample `n` to row i of the band, channels [c0, c0 + channels). `load`
  // computes the values of the tensor (vector_loads.h). Pixels are taken eight at a time, so that a
  // vector of channels loads its batch norm coefficients into registers once for eight pixels. This
  // is a streaming pass, so it is probably bound by memory.
  template <typename Load>
  void LoadRow(const Load& load, const Shape& shape, int64_t n, int64_t h, int64_t c0,
               int64_t channels, int64_t i) const {
    float* to = Row(i) + left * slab - c0;
    const int64_t from = (n * shape.h + h) * shape.w * shape.c;
    constexpr int64_t kGroup = 8;  // pixels read together
    for (int64_t w0 = 0; w0 < shape.w; w0 += kGroup) {
      const int64_t w1 = std::min(w0 + kGroup, shape.w);
      ForEachVector(c0, c0 + channels, [&](int64_t c, auto lanes) {
        const auto channel = load.At(c);
        for (int64_t w = w0; w < w1; ++w) {
          _mm256_storeu_ps(to + w * slab + c, channel(lanes, from + w * shape.c + c));
        }
      });
    }
  }
};

// Calls f.operator()<rows, columns>(), which turns the number of taps that apply into compile-time
// constants. 0 <= rows <= kMostDepthwiseTaps, 1 <= columns <= kMostDepthwiseTaps.
template <int kRows = kMostDepthwiseTaps, int kColumns = kMostDepthwiseTaps, typename F>
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
