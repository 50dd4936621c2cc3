// The MobileNetV2 classifier as TensorFlow slim builds it, with slim's variable names.
#ifndef PUSHPULL_COMMON_MODEL_MOBILENET_V2_H_
#define PUSHPULL_COMMON_MODEL_MOBILENET_V2_H_

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// The classifier: convolution, 17 inverted residual blocks, 1x1 convolution, global average pool,
// an optional dense hidden layer (`MobilenetV2/Logits/Conv2d_1b_1x1`) and the classes
// (`MobilenetV2/Logits/Conv2d_1c_1x1`). Below width 1 the last convolution keeps its 1,280
// channels, as slim's published small classifiers do.
//
// Without conv_hyperparams slim's training scope applies: truncated normal 0.09, L2 weight 4e-5 on
// all but depthwise weights, ReLU6, batch norm with scale, centre, decay 0.997, epsilon 0.001. With
// conv_hyperparams every field means what it says there, defaults included; only an absent
// initializer falls back to 0.09.
//
// INVALID_ARGUMENT names the field: input below 32 pixels, channels other than 1 or 3, and the
// like.
absl::StatusOr<NetworkSpec> BuildMobilenetV2(const config::Classifier& classifier);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_MOBILENET_V2_H_
