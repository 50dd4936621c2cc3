#include "tests/testkit/kernels/same_convolution.h"

#include <algorithm>

namespace pushpull {

namespace {

int64_t TotalPadding(int64_t in, int kernel, int stride) {
  const int64_t out = (in + stride - 1) / stride;
  return std::max<int64_t>((out - 1) * stride + kernel - in, 0);
}

}  // namespace

ConvolutionShape SameConvolution(const Shape& in, int64_t out_channels, int kernel, int stride) {
  const int vertical = static_cast<int>(TotalPadding(in.h, kernel, stride));
  const int horizontal = static_cast<int>(TotalPadding(in.w, kernel, stride));
  return {in,
          out_channels,
          kernel,
          stride,
          {vertical / 2, vertical - vertical / 2, horizontal / 2, horizontal - horizontal / 2}};
}

}  // namespace pushpull
