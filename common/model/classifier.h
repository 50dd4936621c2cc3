// Builds classifiers as TensorFlow slim does, with slim's variable names. Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_CLASSIFIER_H_
#define PUSHPULL_COMMON_MODEL_CLASSIFIER_H_

#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Builds the network that feature_extractor.type names: the convolutions of its family, its head (a
// global average pool, or dense layers that read the whole map), an optional dense hidden layer
// (`Logits/Conv2d_1b_1x1`) and a dense layer for the class scores (`Logits/Conv2d_1c_1x1`). If
// depth_multiplier is below 1, Conv_1 of MobileNetV2 and of EdgeTPU and Conv_2 of MobileNetV3 keep
// their depth, as in the small classifiers that slim publishes.
//
// The scopes are those of most families; ClassifierFamily says what differs. Where a network has
// the activations of its paper, the activation of conv_hyperparams is that of the hidden layer
// alone.
//
// Without conv_hyperparams slim's training scope of MobileNetV2 applies: truncated normal 0.09, L2
// weight 4e-5 on all but depthwise weights, ReLU6, and batch norm with scale, center, decay 0.997
// and epsilon 0.001. Inception v2 and VGG have scopes of their own. With conv_hyperparams
// all its fields apply, including their defaults; only an absent initializer still means truncated
// normal 0.09.
//
// `classifier` must be part of a valid config.
NetworkSpec BuildClassifier(const config::Classifier& classifier);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_CLASSIFIER_H_
