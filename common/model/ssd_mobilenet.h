// Builds SSD detectors (Liu et al., ECCV 2016; SSDLite: Sandler et al., CVPR 2018) on MobileNetV1
// and MobileNetV2 as the TensorFlow Object Detection API does, with its variable names.
// Thread-safe.
#ifndef PUSHPULL_COMMON_MODEL_SSD_MOBILENET_H_
#define PUSHPULL_COMMON_MODEL_SSD_MOBILENET_H_

#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// Builds an `ssd_mobilenet_v1` or `ssd_mobilenet_v2` network. The backbone is under
// FeatureExtractor/MobilenetV<n>. Extra feature maps follow, each half the size of the previous
// one. After them come the heads, one per feature map, with the scopes
// BoxPredictor_<i>/BoxEncodingPredictor and BoxPredictor_<i>/ClassPredictor.
//
// The backbone has slim's training scope: truncated normal 0.09, L2 weight 4e-5 on all but
// depthwise weights, and batch norm with decay 0.9997 and epsilon 0.001. With
// override_base_feature_extractor_hyperparams it has the conv_hyperparams of the feature extractor.
// The extra maps and the heads always follow their conv_hyperparams. Their regularizer covers
// depthwise weights too, as in slim's separable_conv2d.
//
// `ssd` must be part of a valid config.
NetworkSpec BuildSsdMobilenet(const config::Ssd& ssd);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_SSD_MOBILENET_H_
