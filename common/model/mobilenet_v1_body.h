// The convolutions of MobileNetV1 (Howard et al., 2017) as TensorFlow slim builds them.
#ifndef PUSHPULL_COMMON_MODEL_MOBILENET_V1_BODY_H_
#define PUSHPULL_COMMON_MODEL_MOBILENET_V1_BODY_H_

#include <string>

#include "common/model/hyperparams.h"
#include "common/model/network_builder.h"

namespace pushpull {

struct MobilenetV1Endpoints {
  int conv2d_11_pointwise = 0;  // stride 16
  int conv2d_13_pointwise = 0;  // stride 32
};

// Slim's rule for MobileNetV1 and SSD's extra layers: depth * multiplier cut to an integer, at
// least min_depth.
int ScaleDepth(double depth, double multiplier, int min_depth);

// Adds Conv2d_0 to Conv2d_13_pointwise under `scope`, reading the image.
MobilenetV1Endpoints AddMobilenetV1Body(const std::string& scope, double multiplier, int min_depth,
                                        const LayerHyperparams& hyperparams,
                                        NetworkBuilder* builder);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_MOBILENET_V1_BODY_H_
