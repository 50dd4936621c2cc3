#include "kernels/shape.h"

#include "glog/logging.h"

namespace pushpull {

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

}  // namespace pushpull
