// Builds the layers of ResNet-50, 101 and 152 (He et al., CVPR 2016) with TensorFlow slim's
// variable names. As in torchvision, the stride of a block is that of the first unit's 3x3
// convolution, and padding does not depend on the size of the input.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_RESNET_V1_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_RESNET_V1_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

struct ResnetV1Options {
  int layers = 50;  // 50, 101 or 152 (CHECKed)
  double multiplier = 1.0;
  int min_depth = 8;
};

// Adds a convolution, a max pool and four blocks of bottleneck units under `scope`, and returns the
// node of the last sum's activation, at stride 32. The first layer reads the image. All activations
// are ReLU; that of `hyperparams` is not used. CHECKs that `hyperparams` has a batch norm.
int AddResnetV1Body(const std::string& scope, const ResnetV1Options& options,
                    const LayerHyperparams& hyperparams, NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_RESNET_V1_H_
