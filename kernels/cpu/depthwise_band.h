// The rows of an image that a depthwise convolution reads at a time, in its cache. Plain values.
// The guard lets this header in once per instruction set, as that of simd.h.
#if defined(PUSHPULL_KERNELS_CPU_DEPTHWISE_BAND_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_DEPTHWISE_BAND_H_
#undef PUSHPULL_KERNELS_CPU_DEPTHWISE_BAND_H_
#else
#define PUSHPULL_KERNELS_CPU_DEPTHWISE_BAND_H_
#endif

#include <algorithm>
#include <cstdint>

#include "kernels/cpu/vector_loads.h"
#include "kernels/operators.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

// A band of an image in scratch memory: the last `rows` rows that were loaded, each of `columns`
// pixels of `slab` channels. The band is a ring: a row stays until the row of the image that is
// `rows` below it takes its place. The pixels of the image begin at column `left`; the columns
// before and after them are zero, so the kernel can slide over the border without tests.
//
//       left     width of the image   the other columns
//     .------.----------------------.-----.
//     |  0   |  row 3               |  0  |    with 3 rows, after row 4 of the image was loaded;
//     |  0   |  row 4               |  0  |    each cell is a pixel: `slab` floats
//     |  0   |  row 2               |  0  |
//     '------'----------------------'-----'
struct Band {
  int64_t left;
  int64_t rows;
  int64_t columns;
  int64_t slab;
  float* data;

  // Returns the place of row `h` of the image, which holds it once LoadRow has loaded it.
  float* Row(int64_t h) const { return data + h % rows * columns * slab; }
  // Zeroes the columns to the left and to the right of an image of this width.
  void ClearBorder(int64_t width) const {
    for (int64_t i = 0; i < rows; ++i) {
      std::fill(Row(i), Row(i) + left * slab, 0.0f);
      std::fill(Row(i) + (left + width) * slab, Row(i) + columns * slab, 0.0f);
    }
  }

  // Loads row `h` of sample `n`, channels [c0, c0 + channels). `load` computes the values of the
  // tensor (vector_loads.h). Pixels are taken eight at a time, so that a vector of channels loads
  // its batch norm coefficients into registers once for eight pixels. This is a streaming pass,
  // bound by memory. Its reads are too far apart for the processor to foresee, so each vector
  // prefetches that of the next group: a quarter to a third off the time of a depthwise convolution
  // with AVX2, a fifth with AVX-512.
  template <typename Load>
  void LoadRow(const Load& load, const Shape& shape, int64_t n, int64_t h, int64_t c0,
               int64_t channels) const {
    float* to = Row(h) + left * slab - c0;
    const int64_t from = (n * shape.h + h) * shape.w * shape.c;
    constexpr int64_t kGroup = 8;  // pixels read together
    for (int64_t w0 = 0; w0 < shape.w; w0 += kGroup) {
      const int64_t w1 = std::min(w0 + kGroup, shape.w);
      ForEachVector(c0, c0 + channels, [&](int64_t c, auto lanes) HWY_ATTR {
        const auto channel = load.At(lanes, c);
        for (int64_t w = w0; w < w1; ++w) {
          channel.Prefetch(from + (w + kGroup) * shape.c + c);
          lanes.StorePadded(to + w * slab + c, channel(lanes, from + w * shape.c + c));
        }
      });
    }
  }
};

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_DEPTHWISE_BAND_H_
