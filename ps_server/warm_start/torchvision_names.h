// Translates variable names to those of torchvision's MobileNetV2. Pure functions.
#ifndef PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_NAMES_H_
#define PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_NAMES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {

// Returns whether the source is a state dict of torchvision's MobileNetV2, judged by the names of
// its first convolution and its last batch norm.
bool IsTorchvisionMobilenetV2(const TensorSource& source);

// Returns torchvision's name for a variable of this project's MobileNetV2, given without its scope
// up to "MobilenetV2/": "features.0.0.weight" for "Conv/weights". Logits/Conv2d_1c_1x1 becomes
// classifier.1. Returns nullopt for a variable that torchvision's network does not have.
std::optional<std::string> TorchvisionName(absl::string_view variable);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_TORCHVISION_NAMES_H_
