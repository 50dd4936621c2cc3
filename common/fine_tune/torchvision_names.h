// The names torchvision's MobileNetV2 gives its parameters.
#ifndef PUSHPULL_COMMON_FINE_TUNE_TORCHVISION_NAMES_H_
#define PUSHPULL_COMMON_FINE_TUNE_TORCHVISION_NAMES_H_

#include <optional>
#include <string>

#include "absl/strings/string_view.h"

#include "common/fine_tune/tensor_source.h"

namespace pushpull {

// Whether the source has the first convolution of torchvision's MobileNetV2.
bool IsTorchvisionMobilenetV2(const TensorSource& source);

// Of a variable of our MobileNetV2, without the scope before "MobilenetV2/": "Conv/weights" is
// "features.0.0.weight". Nothing for a variable that torchvision's network does not have; its
// classifier (classifier.1) is that of Logits/Conv2d_1c_1x1.
std::optional<std::string> TorchvisionName(absl::string_view variable);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_FINE_TUNE_TORCHVISION_NAMES_H_
