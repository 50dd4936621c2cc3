// SSD detectors on MobileNetV1 and MobileNetV2 (Liu et al., ECCV 2016; SSDLite: Sandler et al.,
// CVPR 2018) as the TensorFlow Object Detection API builds them, with its variable names.
#ifndef PUSHPULL_COMMON_MODEL_SSD_MOBILENET_H_
#define PUSHPULL_COMMON_MODEL_SSD_MOBILENET_H_

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// `ssd_mobilenet_v1` or `ssd_mobilenet_v2`: the backbone under FeatureExtractor/MobilenetV<n>,
// extra feature maps of half the size each, and per map BoxPredictor_<i>/BoxEncodingPredictor and
// /ClassPredictor. All heads come after the feature extractor.
//
// The backbone has slim's training scope (truncated normal 0.09, L2 4e-5 but on depthwise weights,
// batch-norm decay 0.9997, epsilon 0.001) unless override_base_feature_extractor_hyperparams;
// everything else what conv_hyperparams says, whose regularizer covers depthwise weights too, as
// slim's separable_conv2d has it.
//
// INVALID_ARGUMENT lists all problems with the message, each naming its field.
absl::StatusOr<NetworkSpec> BuildSsdMobilenet(const config::Ssd& ssd);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_SSD_MOBILENET_H_
