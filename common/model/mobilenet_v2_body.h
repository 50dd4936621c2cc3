// The convolutions of MobileNetV2 (Sandler et al., CVPR 2018) as TensorFlow slim builds them.
#ifndef PUSHPULL_COMMON_MODEL_MOBILENET_V2_BODY_H_
#define PUSHPULL_COMMON_MODEL_MOBILENET_V2_BODY_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

// Slim's rule for a scaled number of channels: the multiple of `divisor` nearest to `value` (halves
// go up), at least `minimum`, and not below 90 % of `value`.
int MakeDivisible(double value, int divisor, int minimum);

struct MobilenetV2Widths {
  double multiplier = 1.0;
  int min_depth = 8;
  // The last 1x1 convolution is not scaled below 1,280 channels.
  bool keep_last_depth = false;
};

struct MobilenetV2Endpoints {
  int layer_15_expansion = 0;  // stride 16: the expansion of expanded_conv_13
  int layer_19 = 0;            // stride 32: the last convolution
};

// Adds a convolution, 17 inverted residual blocks and a 1x1 convolution under `scope`, reading the
// image.
MobilenetV2Endpoints AddMobilenetV2Body(const std::string& scope, const MobilenetV2Widths& widths,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_MOBILENET_V2_BODY_H_
