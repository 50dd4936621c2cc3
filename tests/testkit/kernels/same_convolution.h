#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_SAME_CONVOLUTION_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_SAME_CONVOLUTION_H_

#include <cstdint>

#include "kernels/shape.h"

namespace pushpull {

// The convolution with TensorFlow's SAME padding: out = ceil(in / stride). If the padding is odd,
// the extra pixel goes to the bottom and to the right.
ConvolutionShape SameConvolution(const Shape& in, int64_t out_channels, int kernel, int stride);

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_SAME_CONVOLUTION_H_
