// torchvision's networks were trained on other pixel values than ours: on (p - mean) / deviation of
// ImageNet, for p in [0, 1], where ours read 2 p - 1. AdaptToOurPixels makes up for it in the first
// layer. Thread-safe.
#ifndef PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_PIXELS_H_
#define PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_PIXELS_H_

#include <cstddef>
#include <vector>

#include "absl/types/span.h"

namespace pushpull {

// Changes the weights [kernel, kernel, 3, outputs] of a network's first convolution, so that for
// pixels 2 p - 1 they give what they gave for torchvision's pixels of the same image:
//
//     weights'[y, x, c, o] = weights[y, x, c, o] * 0.5 / deviation[c]
//
// Returns what is then missing in each output, which the caller adds to the biases of the
// convolution or subtracts from the moving means of the batch norm after it:
//
//     missing[o] = sum over y, x, c: weights[y, x, c, o] * shift[c]
//     shift[c] = (0.5 - mean[c]) / deviation[c]
//
// That is exact but where a window reaches beyond the image, because the padding is 0 for both.
// mean and deviation are those that torchvision documents for its ImageNet weights: 0.485, 0.456,
// 0.406 and 0.229, 0.224, 0.225 for red, green and blue.
std::vector<double> AdaptToOurPixels(absl::Span<float> weights, size_t outputs);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_PIXELS_H_
