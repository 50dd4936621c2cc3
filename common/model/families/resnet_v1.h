// Builds the layers of ResNet-50, 101 and 152 (He et al., CVPR 2016) with TensorFlow slim's
// variable names. The padding of convolutions does not depend on the size of the input.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_RESNET_V1_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_RESNET_V1_H_

#include <array>
#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

// Says which layers halve the resolution the three times after the first max pool.
enum class ResnetStrides {
  // torchvision: by the 3x3 convolution of the first unit of blocks 2 to 4. The first max pool has
  // fixed padding; the others' has SAME padding.
  kMiddle,
  // TensorFlow 1's detectors: every second pixel is kept after blocks 1 to 3. With it, the
  // multiplier does not scale the first convolution.
  kAfterBlocks,
  // Keras: by the first 1x1 convolution of the first unit of blocks 2 to 4.
  kFirst,
};

struct ResnetV1Options {
  int layers = 50;  // 50, 101 or 152 (CHECKed)
  double multiplier = 1.0;
  int min_depth = 8;
  ResnetStrides strides = ResnetStrides::kMiddle;
  ActivationFunction sum_activation = ActivationFunction::kRelu;  // of each unit's sum
};

// The value of each block: at strides 4, 8, 16 and 32.
struct ResnetV1Endpoints {
  std::array<int, 4> blocks{};
};

// Adds a convolution, a max pool and four blocks of bottleneck units under `scope`. The first layer
// reads the image. The activation of `hyperparams` is that of all convolutions but a unit's last
// one. CHECKs that `hyperparams` has a batch norm.
ResnetV1Endpoints AddResnetV1Body(const std::string& scope, const ResnetV1Options& options,
                                  const LayerHyperparams& hyperparams, NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_RESNET_V1_H_
