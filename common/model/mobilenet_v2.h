// Builds the MobileNetV2 classifier as TensorFlow slim does, with slim's variable names.
// Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_MOBILENET_V2_H_
#define PUSHPULL_COMMON_MODEL_MOBILENET_V2_H_

#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Builds a classifier: a convolution, 17 inverted residual blocks, a 1x1 convolution, a global
// average pool, an optional dense hidden layer (`MobilenetV2/Logits/Conv2d_1b_1x1`) and a dense
// layer for the class scores (`MobilenetV2/Logits/Conv2d_1c_1x1`). If depth_multiplier is below 1,
// the 1x1 convolution keeps its 1,280 channels, as in the small classifiers that slim publishes.
//
// Without conv_hyperparams slim's training scope applies: truncated normal 0.09, L2 weight 4e-5 on
// all but depthwise weights, ReLU6, and batch norm with scale, center, decay 0.997 and epsilon
// 0.001. With conv_hyperparams all its fields apply, including their defaults; only an absent
// initializer still means truncated normal 0.09.
//
// `classifier` must be part of a valid config.
NetworkSpec BuildMobilenetV2(const config::Classifier& classifier);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_MOBILENET_V2_H_
