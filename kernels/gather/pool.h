// Pooling over a window, and upsampling. Elements outside the input take no part. The backward pass
// computes each element of dx from the windows that contain it, so that sums have a fixed order on
// every device.
#ifndef PUSHPULL_KERNELS_GATHER_POOL_H_
#define PUSHPULL_KERNELS_GATHER_POOL_H_

#include <cstdint>

#include "kernels/gather/numbers.h"
#include "kernels/host_device.h"
#include "kernels/shape.h"

namespace pushpull::gather {

// The windows of a pool.
struct PoolWindows {
  PoolWindows(const Shape& in_shape, int kernel_size, int window_stride, const Padding& zeros)
      : in(in_shape), kernel(kernel_size), stride(window_stride), padding(zeros) {
    const ConvolutionShape shape{in, in.c, kernel, stride, padding};
    out_h = shape.out_h();
    out_w = shape.out_w();
  }
  // The index of an element of the pool's output.
  PUSHPULL_HOST_DEVICE int64_t IndexOf(int64_t n, int64_t oh, int64_t ow, int64_t c) const {
    return ((n * out_h + oh) * out_w + ow) * in.c + c;
  }
  Shape in;
  int kernel, stride;
  Padding padding;
  int64_t out_h, out_w;
};

// The part of an axis that a window covers: [begin, end).
struct Interval {
  int64_t begin, end;
};

PUSHPULL_HOST_DEVICE inline Interval Intersect(int64_t begin, int64_t end, int64_t size) {
  return {begin < 0 ? 0 : begin, end > size ? size : end};
}

// The elements of an input axis of `size` elements that window `o` covers.
PUSHPULL_HOST_DEVICE inline Interval Covered(const PoolWindows& s, int64_t o, int padding,
                                             int64_t size) {
  const int64_t begin = o * s.stride - padding;
  return Intersect(begin, begin + s.kernel, size);
}

// The windows, of `count` on an axis, that cover element `i`.
PUSHPULL_HOST_DEVICE inline Interval Covering(const PoolWindows& s, int64_t i, int padding,
                                              int64_t count) {
  const int64_t from = i + padding - s.kernel;  // the first window begins after this element
  return Intersect(from < 0 ? 0 : from / s.stride + 1, (i + padding) / s.stride + 1, count);
}

// The number of elements of the input that window (oh, ow) covers.
PUSHPULL_HOST_DEVICE inline int64_t CoveredCount(const PoolWindows& s, int64_t oh, int64_t ow) {
  const Interval rows = Covered(s, oh, s.padding.top, s.in.h);
  const Interval columns = Covered(s, ow, s.padding.left, s.in.w);
  return (rows.end - rows.begin) * (columns.end - columns.begin);
}

// A pixel, from its number over all samples.
struct Pixel {
  int64_t n, h, w;
};

PUSHPULL_HOST_DEVICE inline Pixel PixelOf(int64_t row, int64_t height, int64_t width) {
  return {row / (height * width), row / width % height, row % width};
}

// The index of the first largest element of x in the window at output pixel (n, oh, ow), row by
// row. If there are NaNs, it is the index of the last one. The window must contain an element of x.
template <typename T>
PUSHPULL_HOST_DEVICE int64_t LargestOf(const PoolWindows& s, const T* x, int64_t n, int64_t oh,
                                       int64_t ow, int64_t c) {
  const Interval rows = Covered(s, oh, s.padding.top, s.in.h);
  const Interval columns = Covered(s, ow, s.padding.left, s.in.w);
  int64_t best = -1;
  for (int64_t h = rows.begin; h < rows.end; ++h) {
    for (int64_t w = columns.begin; w < columns.end; ++w) {
      const int64_t i = ((n * s.in.h + h) * s.in.w + w) * s.in.c + c;
      const WideOf<T> value = Widen(x[i]);
      if (best < 0 || value > Widen(x[best]) || value != value) best = i;
    }
  }
  return best;
}

// Returns whether LargestOf gives element `i`, which must be in the window. Stops at the first
// element that is larger.
template <typename T>
PUSHPULL_HOST_DEVICE bool IsLargest(const PoolWindows& s, const T* x, int64_t n, int64_t oh,
                                    int64_t ow, int64_t c, int64_t i) {
  const Interval rows = Covered(s, oh, s.padding.top, s.in.h);
  const Interval columns = Covered(s, ow, s.padding.left, s.in.w);
  const WideOf<T> candidate = Widen(x[i]);
  const bool is_nan = candidate != candidate;
  for (int64_t h = rows.begin; h < rows.end; ++h) {
    for (int64_t w = columns.begin; w < columns.end; ++w) {
      const int64_t other = ((n * s.in.h + h) * s.in.w + w) * s.in.c + c;
      const WideOf<T> value = Widen(x[other]);
      if (value != value ? !is_nan || other > i
                         : value > candidate || (value == candidate && other < i)) {
        return false;
      }
    }
  }
  return true;
}

// The sum of part(n, oh, ow) over the windows that contain input pixel `row`.
template <typename W, typename Part>
PUSHPULL_HOST_DEVICE W SumOverWindows(const PoolWindows& s, int64_t row, Part part) {
  const Pixel in = PixelOf(row, s.in.h, s.in.w);
  const Interval rows = Covering(s, in.h, s.padding.top, s.out_h);
  const Interval columns = Covering(s, in.w, s.padding.left, s.out_w);
  W sum = 0;
  for (int64_t h = rows.begin; h < rows.end; ++h) {
    for (int64_t w = columns.begin; w < columns.end; ++w) sum += part(in.n, h, w);
  }
  return sum;
}

template <typename T>
struct MaxPoolForward {
  static constexpr char kName[] = "max_pool";
  int64_t rows, channels;  // of y
  PoolWindows windows;
  const T* x;
  T* y;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const Pixel out = PixelOf(row, windows.out_h, windows.out_w);
    y[row * channels + c] = x[LargestOf(windows, x, out.n, out.h, out.w, c)];
  }
};

// The gradient of a window goes to its first largest element.
template <typename T>
struct MaxPoolBackward {
  static constexpr char kName[] = "max_pool_backward";
  int64_t rows, channels;  // of dx
  PoolWindows windows;
  const T* x;
  const T* dy;
  T* dx;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    using W = WideOf<T>;
    const int64_t i = row * channels + c;
    const W sum = SumOverWindows<W>(windows, row, [&](int64_t n, int64_t oh, int64_t ow) {
      if (!IsLargest(windows, x, n, oh, ow, c, i)) return W(0);
      return Widen(dy[windows.IndexOf(n, oh, ow, c)]);
    });
    Narrow(sum, dx + i);
  }
};

// The mean over the elements of the window that are inside the input, as TensorFlow's.
template <typename T>
struct AveragePoolForward {
  static constexpr char kName[] = "average_pool";
  int64_t rows, channels;  // of y
  PoolWindows windows;
  const T* x;
  T* y;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const Pixel out = PixelOf(row, windows.out_h, windows.out_w);
    const Interval covered_h = Covered(windows, out.h, windows.padding.top, windows.in.h);
    const Interval covered_w = Covered(windows, out.w, windows.padding.left, windows.in.w);
    WideOf<T> sum = 0;
    for (int64_t h = covered_h.begin; h < covered_h.end; ++h) {
      for (int64_t w = covered_w.begin; w < covered_w.end; ++w) {
        sum += Widen(x[((out.n * windows.in.h + h) * windows.in.w + w) * channels + c]);
      }
    }
    Narrow(sum / WideOf<T>(CoveredCount(windows, out.h, out.w)), y + row * channels + c);
  }
};

template <typename T>
struct AveragePoolBackward {
  static constexpr char kName[] = "average_pool_backward";
  int64_t rows, channels;  // of dx
  PoolWindows windows;
  const T* dy;
  T* dx;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    using W = WideOf<T>;
    const W sum = SumOverWindows<W>(windows, row, [&](int64_t n, int64_t oh, int64_t ow) {
      return Widen(dy[windows.IndexOf(n, oh, ow, c)]) / W(CoveredCount(windows, oh, ow));
    });
    Narrow(sum, dx + row * channels + c);
  }
};

// y[n, h, w, c] = x[n, h / factor, w / factor, c]: nearest neighbours.
template <typename T>
struct UpsampleForward {
  static constexpr char kName[] = "upsample";
  int64_t rows, channels;  // of y
  Shape in;
  int64_t factor;
  const T* x;
  T* y;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const Pixel out = PixelOf(row, in.h * factor, in.w * factor);
    const int64_t from = (out.n * in.h + out.h / factor) * in.w + out.w / factor;
    y[row * channels + c] = x[from * channels + c];
  }
};

template <typename T>
struct UpsampleBackward {
  static constexpr char kName[] = "upsample_backward";
  int64_t rows, channels;  // of dx
  Shape in;
  int64_t factor;
  const T* dy;
  T* dx;

  PUSHPULL_HOST_DEVICE void operator()(int64_t row, int64_t c) const {
    const Pixel to = PixelOf(row, in.h, in.w);
    WideOf<T> sum = 0;
    for (int64_t h = 0; h < factor; ++h) {
      for (int64_t w = 0; w < factor; ++w) {
        const int64_t from =
            (to.n * in.h * factor + to.h * factor + h) * in.w * factor + to.w * factor + w;
        sum += Widen(dy[from * channels + c]);
      }
    }
    Narrow(sum, dx + row * channels + c);
  }
};

}  // namespace pushpull::gather

#endif  // PUSHPULL_KERNELS_GATHER_POOL_H_
