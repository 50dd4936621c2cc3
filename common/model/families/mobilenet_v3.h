// Builds the layers of MobileNetV3 (Howard et al., ICCV 2019) as TensorFlow slim does, with slim's
// variable names.
#ifndef PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V3_H_
#define PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V3_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

enum class MobilenetV3Size { kLarge, kSmall };

struct MobilenetV3Options {
  MobilenetV3Size size = MobilenetV3Size::kLarge;
  double multiplier = 1.0;
  int min_depth = 8;
  // Halves the depths of the blocks at stride 32 and of the last convolution, as the paper does for
  // detectors (section 6.3).
  bool reduced_tail = false;
};

// Nodes whose values are read by the rest of a network, as indices into NetworkSpec::nodes.
struct MobilenetV3Endpoints {
  // The expansion of the first block at stride 32, before its stride: TensorFlow's
  // layer_14/expansion_output (large) or layer_10/expansion_output (small).
  int stride_16_expansion = 0;
  // The last convolution: TensorFlow's layer_17 (large) or layer_13 (small).
  int stride_32 = 0;
};

// Adds a convolution, 15 (large) or 11 (small) inverted residual blocks and a 1x1 convolution under
// `scope`. The first layer reads the image.
//
// A block has ReLU or hard-swish, as the paper's tables say; the activation of `hyperparams` is
// not used. CHECKs that `hyperparams` has a batch norm.
MobilenetV3Endpoints AddMobilenetV3Body(const std::string& scope, const MobilenetV3Options& options,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder);

// Adds what follows the global average pool: a 1x1 convolution with biases and hard-swish to 1,280
// (large) or 1,024 (small) channels. A multiplier below 1 does not reduce them.
int AddMobilenetV3Top(const std::string& scope, int pool, const MobilenetV3Options& options,
                      const LayerHyperparams& hyperparams, NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_FAMILIES_MOBILENET_V3_H_
