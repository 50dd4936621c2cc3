// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/row_source.h"

#include <algorithm>
#include <cstring>

#include "common/base/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/row_source.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "kernels/cpu/vector_loads.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// Rows that are read together, so that the coefficients of a channel are loaded once for all.
constexpr int64_t kRowGroup = 8;

// Computes rows with `load` and writes them into panels. For a group of eight rows it goes through
// the channels a vector at a time; the vector's coefficients stay in registers for the eight rows.
// Reads are strided by a row, writes by a panel's width, but a group touches only eight rows, which
// stay in the L1 cache. Each value is used once here, so memory is the bound, not arithmetic.
// Each vector therefore prefetches that of the next group: a sixth off the time of a backward pass.
//
//   rows of x              panels of out
//   r0   |v0|v1|v2|..      | v0 v1 |  | v2 .. |     v: a vector of channels
//   r0+1 |v0|v1|v2|..      | v0 v1 |  | v2 .. |
//   ...                    ...
template <typename Load>
void PackRows(const Panels& panels, const Load& load, int64_t first, int64_t rows, float* out,
              int64_t out_rows, int64_t out_first) {
  const int64_t channels = panels.channels();
  for (int64_t r0 = 0; r0 < rows; r0 += kRowGroup) {
    const int64_t group = std::min(kRowGroup, rows - r0);
    for (int64_t p = 0; p < panels.count(); ++p) {
      const Panel panel = panels[p];
      float* to = out + out_rows * panel.start + (out_first + r0) * panel.width - panel.start;
      ForEachVector(panel.start, panel.start + panel.valid, [&](int64_t c, auto lanes) HWY_ATTR {
        const auto channel = load.At(lanes, c);
        const int64_t from = (first + r0) * channels + c;
        for (int64_t r = 0; r < group; ++r) {
          channel.Prefetch(from + (r + kRowGroup) * channels);
          lanes.StorePadded(to + r * panel.width + c, channel(lanes, from + r * channels));
        }
      });
    }
  }
}

void PackValues(const Panels& panels, const Lazy<float>& x, const LazyCoefficients& coefficients,
                int64_t first, int64_t rows, float* out, int64_t out_rows, int64_t out_first) {
  WithValueLoad(x, coefficients, [&](const auto& load) HWY_ATTR {
    PackRows(panels, load, first, rows, out, out_rows, out_first);
  });
}

void PackGradients(const Panels& panels, const OutputGradient<float>& dy,
                   const GradientCoefficients& coefficients, int64_t first, int64_t rows,
                   float* out, int64_t out_rows, int64_t out_first) {
  WithGradientLoad(dy, coefficients, [&](const auto& load) HWY_ATTR {
    PackRows(panels, load, first, rows, out, out_rows, out_first);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

namespace {

// Writes columns [column, column + count) of one packed row: a copy of `from`, or zeros if `from`
// is null. The part may cover several panels.
void PutSegment(const Panels& panels, int64_t column, int64_t count, const float* from, float* out,
                int64_t out_rows, int64_t row) {
  while (count > 0) {
    const Panel panel = panels[std::min(column / 16, panels.count() - 1)];
    const int64_t part = std::min(count, panel.start + panel.width - column);
    float* to = out + out_rows * panel.start + row * panel.width + column - panel.start;
    if (from == nullptr) {
      std::fill(to, to + part, 0.0f);
    } else {
      std::copy(from, from + part, to);
      from += part;
    }
    column += part;
    count -= part;
  }
}

// The sample and the position of the pixel with number `row`.
struct Pixel {
  Pixel(int64_t row, const Shape& shape)
      : n(row / (shape.h * shape.w)), h(row / shape.w % shape.h), w(row % shape.w) {}
  int64_t n, h, w;
};

}  // namespace

void ValueRows::Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
                     int64_t out_first) const {
  ForChosenCpuIsa(N_AVX2::PackValues, N_AVX3::PackValues)(panels_, x_, coefficients_, first, rows,
                                                          out, out_rows, out_first);
}

void GradientRows::Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
                        int64_t out_first) const {
  ForChosenCpuIsa(N_AVX2::PackGradients, N_AVX3::PackGradients)(panels_, dy_, coefficients_, first,
                                                                rows, out, out_rows, out_first);
}

void PatchRows::Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
                     int64_t out_first) const {
  const Shape& in = shape_.in;
  const int64_t line = shape_.kernel * in.c;  // a kernel row is contiguous in the input
  for (int64_t r = 0; r < rows; ++r) {
    const Pixel pixel(first + r, shape_.out());
    const int64_t w0 = pixel.w * shape_.stride - shape_.padding.left;
    const int64_t begin = std::clamp<int64_t>(-w0, 0, shape_.kernel);
    const int64_t end = std::clamp<int64_t>(in.w - w0, begin, shape_.kernel);
    for (int kh = 0; kh < shape_.kernel; ++kh) {
      const int64_t h = pixel.h * shape_.stride + kh - shape_.padding.top;
      const int64_t column = kh * line;
      const auto put = [&](int64_t from, int64_t to, const float* data) {
        PutSegment(panels_, column + from * in.c, (to - from) * in.c, data, out, out_rows,
                   out_first + r);
      };
      if (h < 0 || h >= in.h) {
        put(0, shape_.kernel, nullptr);
        continue;
      }
      put(0, begin, nullptr);
      if (begin < end) put(begin, end, x_ + ((pixel.n * in.h + h) * in.w + w0 + begin) * in.c);
      put(end, shape_.kernel, nullptr);
    }
  }
}

void TransposedPatchRows::Pack(int64_t first, int64_t rows, float* out, int64_t out_rows,
                               int64_t out_first) const {
  const Shape to = shape_.out();
  for (int64_t r = 0; r < rows; ++r) {
    const Pixel pixel(first + r, shape_.in);
    for (int kh = 0; kh < shape_.kernel; ++kh) {
      for (int kw = 0; kw < shape_.kernel; ++kw) {
        const int64_t h = pixel.h + shape_.padding.top - kh, w = pixel.w + shape_.padding.left - kw;
        const bool hit = h >= 0 && w >= 0 && h % shape_.stride == 0 && w % shape_.stride == 0 &&
                         h / shape_.stride < to.h && w / shape_.stride < to.w;
        const int64_t row = (pixel.n * to.h + h / shape_.stride) * to.w + w / shape_.stride;
        PutSegment(panels_, (int64_t{kh} * shape_.kernel + kw) * to.c, to.c,
                   hit ? dy_ + row * to.c : nullptr, out, out_rows, out_first + r);
      }
    }
  }
}

}  // namespace pushpull
#endif  // HWY_ONCE
