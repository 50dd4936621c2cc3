// Adds a squeeze-and-excitation block (Hu et al., CVPR 2018) to a network.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_SQUEEZE_EXCITE_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_SQUEEZE_EXCITE_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

struct SqueezeExciteRequest {
  std::string scope;  // of the variables: "MobilenetV3/expanded_conv/squeeze_excite"
  int input = Node::kImage;
  int depth = 0;  // channels between the two 1x1 convolutions
  ActivationFunction activation = ActivationFunction::kRelu;   // of the first convolution
  ActivationFunction gate = ActivationFunction::kHardSigmoid;  // of the second one
};

// Multiplies each channel of the input by a factor that two 1x1 convolutions with biases compute
// from the means of all channels. Returns the node of the product.
int AddSqueezeExcite(const SqueezeExciteRequest& request, const LayerHyperparams& hyperparams,
                     NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_SQUEEZE_EXCITE_H_
