// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/row_source.h"

#include <algorithm>
#include <cstring>
#include <type_traits>

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
template <typename Load, typename P>
void PackRows(const Panels& panels, const PanelRange& range, const Load& load, int64_t first,
              int64_t rows, P* out, int64_t out_rows, int64_t out_first) {
  const int64_t channels = panels.channels();
  const int64_t start = panels[range.begin].start;
  for (int64_t r0 = 0; r0 < rows; r0 += kRowGroup) {
    const int64_t group = std::min(kRowGroup, rows - r0);
    for (int64_t p = range.begin; p < range.end; ++p) {
      const Panel panel = panels[p];
      P* to = out + out_rows * (panel.start - start) + (out_first + r0) * panel.width;
      ForEachVector(panel.start, panel.start + panel.valid, [&](int64_t c, auto lanes) HWY_ATTR {
        const auto channel = load.At(lanes, c);
        const int64_t from = (first + r0) * channels + c;
        for (int64_t r = 0; r < group; ++r) {
          channel.Prefetch(from + (r + kRowGroup) * channels);
          lanes.StorePadded(to + r * panel.width + c - panel.start,
                            channel(lanes, from + r * channels));
        }
      });
    }
  }
}

template <typename P>
void PackValues(const Panels& panels, const PanelRange& range, const Lazy<TensorOf<P>>& x,
                const LazyCoefficients& coefficients, int64_t first, int64_t rows, P* out,
                int64_t out_rows, int64_t out_first) {
  WithValueLoad(x, coefficients, [&](const auto& load) HWY_ATTR {
    PackRows(panels, range, load, first, rows, out, out_rows, out_first);
  });
}

template <typename P>
void PackGradients(const Panels& panels, const PanelRange& range,
                   const OutputGradient<TensorOf<P>>& dy, const GradientCoefficients& coefficients,
                   int64_t first, int64_t rows, P* out, int64_t out_rows, int64_t out_first) {
  WithGradientLoad(dy, coefficients, [&](const auto& load) HWY_ATTR {
    PackRows(panels, range, load, first, rows, out, out_rows, out_first);
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

namespace {

// Rows of patches that are packed together.
constexpr int64_t kPatchGroup = 8;

// The sample and the position of the pixel with number `row`.
struct Pixel {
  Pixel() = default;
  Pixel(int64_t row, const Shape& shape)
      : n(row / (shape.h * shape.w)), h(row / shape.w % shape.h), w(row % shape.w) {}
  void Next(const Shape& shape) {
    if (++w < shape.w) return;
    w = 0;
    if (++h < shape.h) return;
    h = 0;
    ++n;
  }
  int64_t n, h, w;
};

// Where rows are packed: the panels of a range of the rows of a group, in a block of out_rows rows.
template <typename P>
struct PackedGroup {
  const Panels& panels;
  int64_t begin, end;  // the channels of the range, with padding
  int64_t rows;
  P* out;
  int64_t out_rows;
  int64_t out_first;
};

// Returns a number of a tensor as it is packed.
template <typename P>
P Packed(TensorOf<P> number) {
  if constexpr (std::is_same_v<P, BfloatAsFloat>) {
    return {ToFloat(number)};
  } else {
    return number;
  }
}

// Copies kCount numbers, or writes zeros if `from` is null. Since the compiler knows the count,
// this is a move of a few vectors.
template <int kCount, typename P>
void CopyNumbers(const TensorOf<P>* from, P* to) {
  if (from == nullptr) {
    std::memset(static_cast<void*>(to), 0, kCount * sizeof(P));
  } else if constexpr (std::is_same_v<P, TensorOf<P>>) {
    std::memcpy(to, from, kCount * sizeof(P));
  } else {
    for (int i = 0; i < kCount; ++i) to[i] = Packed<P>(from[i]);
  }
}

// Writes those of the columns [column, column + count) that are in the group's range, for each row
// of the group: a copy of from[row], or zeros where from[row] is null. It goes panel by panel and
// there row by row, so that the writes to a panel are next to each other. The columns may cover
// several panels. Memory is the bound.
template <typename P>
void CopyColumns(const PackedGroup<P>& group, int64_t column, int64_t count,
                 const TensorOf<P>* const from[kPatchGroup]) {
  const int64_t last = std::min(column + count, group.end);
  for (int64_t at = std::max(column, group.begin); at < last;) {
    const Panel panel = group.panels[group.panels.IndexOf(at)];
    const int64_t part = std::min(last, panel.start + panel.width) - at;
    P* to = group.out + group.out_rows * (panel.start - group.begin) +
            group.out_first * panel.width + at - panel.start;
    for (int64_t r = 0; r < group.rows; ++r, to += panel.width) {
      const TensorOf<P>* source = from[r] != nullptr ? from[r] + (at - column) : nullptr;
      if (part == 32) {
        CopyNumbers<32>(source, to);
      } else if (part == 16) {
        CopyNumbers<16>(source, to);
      } else if (part == 24) {
        CopyNumbers<24>(source, to);
      } else if (part == 8) {
        CopyNumbers<8>(source, to);
      } else if (source == nullptr) {
        std::fill_n(to, part, P());
      } else {
        std::transform(source, source + part, to, Packed<P>);
      }
    }
    at += part;
  }
}

// The rows and columns of taps that a patch has.
struct TapGrid {
  int rows, columns;
};

// Packs rows of patches group by group. The rows are those of the pixels of `shape`. tap(pixel, tap
// row, tap column) returns the `channels` numbers of a tap, or null for zeros.
template <typename P, typename F>
void PackPatches(const Panels& panels, const PanelRange& range, const Shape& shape,
                 const TapGrid& taps, int64_t channels, int64_t first, int64_t rows, P* out,
                 int64_t out_rows, int64_t out_first, F tap) {
  const Panel last = panels[range.end - 1];
  const int64_t begin = panels[range.begin].start, end = last.start + last.width;
  Pixel pixel(first, shape);
  for (int64_t r0 = 0; r0 < rows; r0 += kPatchGroup) {
    const PackedGroup<P> group{panels, begin,    end,           std::min(kPatchGroup, rows - r0),
                               out,    out_rows, out_first + r0};
    Pixel pixels[kPatchGroup];
    for (int64_t r = 0; r < group.rows; ++r, pixel.Next(shape)) pixels[r] = pixel;
    const TensorOf<P>* from[kPatchGroup] = {};
    // The columns that pad the last panel.
    CopyColumns(group, panels.channels(), panels.padded() - panels.channels(), from);
    for (int kh = 0; kh < taps.rows; ++kh) {
      for (int kw = 0; kw < taps.columns; ++kw) {
        const int64_t column = (int64_t{kh} * taps.columns + kw) * channels;
        if (column + channels <= begin || column >= end) continue;
        for (int64_t r = 0; r < group.rows; ++r) from[r] = tap(pixels[r], kh, kw);
        CopyColumns(group, column, channels, from);
      }
    }
  }
}

// Packs rows of patches of an input with few channels, like that of the first layer: the input
// under a row of the kernel is a line of at most kMost numbers, and a patch is put together from
// lines before it is cut into panels. A line is copied as kMost numbers; what follows it in the
// patch is written later.
template <int kMost, typename P>
void PackLines(const Panels& panels, const PanelRange& range, const ConvolutionShape& shape,
               const TensorOf<P>* x, int64_t first, int64_t rows, P* out, int64_t out_rows,
               int64_t out_first) {
  const Shape& in = shape.in;
  const int64_t line = shape.kernel * in.c;
  const Shape output = shape.out();
  P patch[(kMost + 1) * kMost];  // the kernel is no larger than a line
  Pixel pixel(first, output);
  for (int64_t r = 0; r < rows; ++r, pixel.Next(output)) {
    const int64_t h0 = pixel.h * shape.stride - shape.padding.top;
    const int64_t w0 = pixel.w * shape.stride - shape.padding.left;
    for (int kh = 0; kh < shape.kernel; ++kh) {
      P* to = patch + kh * line;
      const int64_t begin = ((pixel.n * in.h + h0 + kh) * in.w + w0) * in.c;
      const bool inside = h0 + kh >= 0 && h0 + kh < in.h;
      if (inside && w0 >= 0 && w0 + shape.kernel <= in.w && begin + kMost <= in.size()) {
        CopyNumbers<kMost>(x + begin, to);
        continue;
      }
      for (int64_t i = 0; i < line; ++i) {
        const int64_t w = w0 + i / in.c;
        to[i] = inside && w >= 0 && w < in.w ? Packed<P>(x[begin + i]) : P();
      }
    }
    std::fill(patch + panels.channels(), patch + panels.padded(), P());
    for (int64_t p = range.begin; p < range.end; ++p) {
      const Panel panel = panels[p];
      P* to = out + out_rows * (panel.start - panels[range.begin].start) +
              (out_first + r) * panel.width;
      if (panel.width == 16) {
        std::memcpy(to, patch + panel.start, 16 * sizeof(P));
      } else {
        std::copy_n(patch + panel.start, panel.width, to);
      }
    }
  }
}

}  // namespace

template <typename P>
void ValueRows<P>::Pack(const PanelRange& range, int64_t first, int64_t rows, P* out,
                        int64_t out_rows, int64_t out_first) const {
  PUSHPULL_FOR_CHOSEN_ISA(PackValues<P>)
  (this->panels_, range, x_, coefficients_, first, rows, out, out_rows, out_first);
}

template <typename P>
void ValueRows<P>::AddTo(Prefetcher* prefetcher, int64_t first, int64_t rows) const {
  const int64_t channels = x_.shape.c;
  if (x_.applied != nullptr) return prefetcher->Add(x_.applied + first * channels, rows * channels);
  prefetcher->Add(x_.raw + first * channels, rows * channels);
  if (x_.skip != nullptr) prefetcher->Add(x_.skip + first * channels, rows * channels);
}

template <typename P>
void GradientRows<P>::Pack(const PanelRange& range, int64_t first, int64_t rows, P* out,
                           int64_t out_rows, int64_t out_first) const {
  PUSHPULL_FOR_CHOSEN_ISA(PackGradients<P>)
  (this->panels_, range, dy_, coefficients_, first, rows, out, out_rows, out_first);
}

template <typename P>
void GradientRows<P>::AddTo(Prefetcher* prefetcher, int64_t first, int64_t rows) const {
  const int64_t channels = this->panels_.channels();
  prefetcher->Add(dy_.dz + first * channels, rows * channels);
  if (dy_.batch_norm != nullptr && dy_.batch_norm->statistics == Statistics::kBatch) {
    prefetcher->Add(dy_.raw + first * channels, rows * channels);
  }
}

template <typename P>
void PatchRows<P>::Pack(const PanelRange& range, int64_t first, int64_t rows, P* out,
                        int64_t out_rows, int64_t out_first) const {
  const Shape& in = shape_.in;
  const Panels& panels = this->panels_;
  if (shape_.kernel * in.c <= 16) {
    return PackLines<16>(panels, range, shape_, x_, first, rows, out, out_rows, out_first);
  }
  if (shape_.kernel * in.c <= 32) {
    return PackLines<32>(panels, range, shape_, x_, first, rows, out, out_rows, out_first);
  }
  PackPatches(panels, range, shape_.out(), {shape_.kernel, shape_.kernel}, in.c, first, rows, out,
              out_rows, out_first, [&](const Pixel& pixel, int kh, int kw) -> const TensorOf<P>* {
                const int64_t h = pixel.h * shape_.stride + kh - shape_.padding.top;
                const int64_t w = pixel.w * shape_.stride + kw - shape_.padding.left;
                if (h < 0 || h >= in.h || w < 0 || w >= in.w) return nullptr;
                return x_ + ((pixel.n * in.h + h) * in.w + w) * in.c;
              });
}

template <typename P>
void TransposedPatchRows<P>::Pack(const PanelRange& range, int64_t first, int64_t rows, P* out,
                                  int64_t out_rows, int64_t out_first) const {
  const Shape to = shape_.out();
  PackPatches(this->panels_, range, phase_.pixels, {phase_.tap_rows, phase_.tap_columns}, to.c,
              first, rows, out, out_rows, out_first,
              [&](const Pixel& pixel, int i, int j) -> const TensorOf<P>* {
                const int64_t h = pixel.h + phase_.output_h - i;
                const int64_t w = pixel.w + phase_.output_w - j;
                if (h < 0 || w < 0 || h >= to.h || w >= to.w) return nullptr;
                return dy_ + ((pixel.n * to.h + h) * to.w + w) * to.c;
              });
}

template class ValueRows<float>;
template class ValueRows<Bfloat16>;
template class ValueRows<BfloatAsFloat>;
template class GradientRows<float>;
template class GradientRows<Bfloat16>;
template class GradientRows<BfloatAsFloat>;
template class PatchRows<float>;
template class PatchRows<Bfloat16>;
template class PatchRows<BfloatAsFloat>;
template class TransposedPatchRows<float>;
template class TransposedPatchRows<Bfloat16>;
template class TransposedPatchRows<BfloatAsFloat>;

}  // namespace pushpull
#endif  // HWY_ONCE
