// Translates variable names to those of the Keras networks in TensorFlow 2: Keras's MobileNet V1,
// V2 and V3 and ResNet, and the detectors of the Object Detection API that are built on them. Pure
// functions.
#ifndef PUSHPULL_PS_SERVER_WARM_START_KERAS_NAMES_H_
#define PUSHPULL_PS_SERVER_WARM_START_KERAS_NAMES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {

// Returns whether the source has one of these networks, judged by the names of its first layers.
// Keras's own ResNet is none of them: its convolutions have biases, which ours have not.
bool IsKeras(const TensorSource& source);

// Returns Keras's name for a variable, given without the scope FeatureExtractor: "Conv1/kernel" for
// "MobilenetV2/Conv/weights". The layers of a detector have a scope in front that depends on its
// class ("ssd_mobile_net_v2_fpn_keras_feature_extractor/"), which is looked up in the source.
// Returns nullopt for a variable that Keras's network does not have.
std::optional<std::string> KerasName(absl::string_view variable, const TensorSource& source);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_KERAS_NAMES_H_
