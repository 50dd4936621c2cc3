// Makes the weights of an exported convolution. Thread-safe.
#ifndef PUSHPULL_WORKER_EXPORT_FOLDED_LAYER_H_
#define PUSHPULL_WORKER_EXPORT_FOLDED_LAYER_H_

#include <cstdint>
#include <vector>

#include "common/model/network_spec.h"
#include "worker/export/inference_model.h"

namespace pushpull {

// The weights and biases of a convolution that equals a convolution with batch norm. With
// s = gamma / sqrt(variance + epsilon) for each output channel:
//
//   gamma (conv(x, w) + b - mean) / sqrt(variance + epsilon) + beta
//     = conv(x, w s) + (b - mean) s + beta
struct FoldedLayer {
  std::vector<int64_t> shape;  // of weights: [out, in, k, k]; depthwise [channels, 1, k, k]
  std::vector<float> weights;
  std::vector<float> biases;  // one per output channel
};

// Folds `norm`, or nothing if it is null, into `convolution`, a convolution or depthwise
// convolution (CHECKed) of model.network. Computes in double precision.
FoldedLayer FoldLayer(const Node& convolution, const op::BatchNorm* norm,
                      const InferenceModel& model);

// The window of a convolution that need not be square.
struct TrimmedWindow {
  int height = 0;
  int width = 0;
  SpatialPadding padding;
};

// Removes the rows and columns of the kernel that read only padding, wherever the window lies, from
// the weights. On a map of 1x1 this leaves one weight per channel. OpenCV 4.14 computes depthwise
// 3x3 convolutions wrongly where a side of the map is 1. `window`, `input` and `output` are those
// of the convolution.
TrimmedWindow TrimKernel(const Window& window, const FeatureShape& input,
                         const FeatureShape& output, FoldedLayer* folded);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_FOLDED_LAYER_H_
