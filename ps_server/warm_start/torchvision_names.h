// Translates variable names to those of torchvision's MobileNetV2, MobileNetV3, ResNet and VGG
// (without batch norm). Pure functions.
#ifndef PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_NAMES_H_
#define PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_NAMES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {

// Returns whether the source is a state dict of one of these networks, judged by the names of its
// first layers.
bool IsTorchvision(const TensorSource& source);

// Returns torchvision's name for a variable, given without the scope FeatureExtractor:
// "features.0.0.weight" for "MobilenetV2/Conv/weights". The class scores become the last module of
// torchvision's classifier. Which modules a block of MobileNetV3 or VGG has is read from the
// source. Returns nullopt for a variable that torchvision's network does not have.
std::optional<std::string> TorchvisionName(absl::string_view variable, const TensorSource& source);

// Returns whether the tensor is of a dense layer, whose weights are [outputs, inputs]. A layer that
// reads a map reads it channel by channel.
bool IsTorchvisionDense(absl::string_view tensor);

// Returns the epsilon of the batch norms in torchvision's network: 0.001 in MobileNetV3, 0.00001 in
// the others.
float TorchvisionEpsilon(const TensorSource& source);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_NAMES_H_
