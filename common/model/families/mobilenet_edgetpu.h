// Builds the convolutions of MobileNet-EdgeTPU as TensorFlow slim does, with slim's variable names.
// Google published the network in its AI blog ("Introducing the Next Generation of On-Device Vision
// Models", November 2019).
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_EDGETPU_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_EDGETPU_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

struct MobilenetEdgetpuOptions {
  double multiplier = 1.0;
  int min_depth = 8;
};

// Nodes whose values are read by the rest of a network, as indices into NetworkSpec::nodes.
struct MobilenetEdgetpuEndpoints {
  int layer_18_expansion = 0;  // stride 16: the expansion of expanded_conv_16
  int layer_23 = 0;            // stride 32: the last block
};

// Adds a convolution and 22 blocks under `scope`, without the 1x1 convolution to 1,280 channels
// that only the classifier has. The first layer reads the image.
//
// A block is an inverted residual block as in MobileNetV2. In the blocks up to stride 8, a full
// convolution takes the place of the expansion and of the depthwise convolution; the first of them
// has no expansion at all. All activations are ReLU; that of `hyperparams` is not used. CHECKs that
// `hyperparams` has a batch norm.
MobilenetEdgetpuEndpoints AddMobilenetEdgetpuBody(const std::string& scope,
                                                  const MobilenetEdgetpuOptions& options,
                                                  const LayerHyperparams& hyperparams,
                                                  NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_EDGETPU_H_
