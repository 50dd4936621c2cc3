#include "kernels/shape.h"

#include <algorithm>

#include "glog/logging.h"

namespace pushpull {

namespace {

int64_t TotalPadding(int64_t in, int kernel, int stride) {
  const int64_t out = (in + stride - 1) / stride;
  return std::max<int64_t>((out - 1) * stride + kernel - in, 0);
}

}  // namespace

void CheckConvolution(const ConvolutionShape& shape) {
  CHECK_GE(shape.kernel, 1);
  CHECK_GE(shape.stride, 1);
  const Padding& padding = shape.padding;
  for (const int pixels : {padding.top, padding.bottom, padding.left, padding.right}) {
    CHECK(pixels >= 0 && pixels < shape.kernel)
        << "a padding of " << pixels << " pixels for a kernel of " << shape.kernel;
  }
  CHECK(shape.in.h + padding.top + padding.bottom >= shape.kernel &&
        shape.in.w + padding.left + padding.right >= shape.kernel)
      << "a kernel of " << shape.kernel << " does not fit into an input of " << shape.in.h << "x"
      << shape.in.w << " pixels and its padding";
}

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
