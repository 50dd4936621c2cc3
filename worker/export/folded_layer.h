// A convolution with its batch norm multiplied in. Pure functions.
#ifndef PUSHPULL_WORKER_EXPORT_FOLDED_LAYER_H_
#define PUSHPULL_WORKER_EXPORT_FOLDED_LAYER_H_

#include <cstdint>
#include <vector>

#include "common/model/network_spec.h"
#include "worker/export/inference_model.h"

namespace pushpull {

// conv(x, w) followed by gamma (y + b - mean) / sqrt(variance + epsilon) + beta is conv(x, w s)
// plus (b - mean) s + beta with s = gamma / sqrt(variance + epsilon), channel by channel.
struct FoldedLayer {
  std::vector<int64_t> shape;  // [out, in, k, k]; depthwise [channels, 1, k, k]
  std::vector<float> weights;
  std::vector<float> biases;  // one per output channel
};

// Computed in double. CHECKs that the layer has weights.
FoldedLayer FoldLayer(const LayerSpec& layer, const InferenceModel& model);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EXPORT_FOLDED_LAYER_H_
