// The shapes of activations and convolutions. They are plain values; thread-compatible.
#ifndef PUSHPULL_KERNELS_SHAPE_H_
#define PUSHPULL_KERNELS_SHAPE_H_

#include <cstdint>

namespace pushpull {

// The shape of an activation, a dense NHWC tensor: n samples of height h, width w and c channels.
// One vector per sample has the shape [n, 1, 1, c].
struct Shape {
  int64_t n = 0, h = 1, w = 1, c = 0;

  // The pixels of all samples: the number of values that a per-channel statistic runs over.
  int64_t rows() const { return n * h * w; }
  int64_t size() const { return rows() * c; }
  bool operator==(const Shape&) const = default;
};

// Zero padding around height and width, in pixels. The zeros are put around the activated value, so
// batch norm and activation do not apply to them.
struct Padding {
  int top = 0, bottom = 0, left = 0, right = 0;
  bool operator==(const Padding&) const = default;
};

// The shape of a convolution with a square kernel. A dense convolution has the weights
// [kernel, kernel, in.c, out_channels] (HWIO), a depthwise one [kernel, kernel, in.c, 1] and
// out_channels == in.c. A fully connected layer is a 1x1 convolution of an input [n, 1, 1, c].
// The CPU operators take only shapes that CheckConvolution accepts; others may have no output.
struct ConvolutionShape {
  Shape in;
  int64_t out_channels = 0;
  int kernel = 1;
  int stride = 1;
  Padding padding;

  int64_t out_h() const { return (in.h + padding.top + padding.bottom - kernel) / stride + 1; }
  int64_t out_w() const { return (in.w + padding.left + padding.right - kernel) / stride + 1; }
  Shape out() const { return {in.n, out_h(), out_w(), out_channels}; }
  int64_t dense_weights() const { return int64_t{kernel} * kernel * in.c * out_channels; }
  int64_t depthwise_weights() const { return int64_t{kernel} * kernel * in.c; }
  bool operator==(const ConvolutionShape&) const = default;
};

// CHECKs that kernel and stride are at least 1, that the padding on each side is at least 0 and
// less than the kernel, so that every position of the kernel meets the input, and that the kernel
// fits into the padded input. NetworkBuilder makes no other convolutions.
void CheckConvolution(const ConvolutionShape& shape);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_SHAPE_H_
