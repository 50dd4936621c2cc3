// Checks the parts of a model's config that classifiers and detectors have in common. Each function
// adds its problems to `checker`; `field` is the name of the message. Thread-safe.
#ifndef PUSHPULL_COMMON_CONFIG_LAYER_CHECKS_H_
#define PUSHPULL_COMMON_CONFIG_LAYER_CHECKS_H_

#include <array>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

#include "common/config/field_checker.h"
#include "common/config/model_types.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// These limits, and the largest number of classes, keep every dimension in a network below 2^31.
// The elements of a variable are counted with 64 bits.
inline constexpr int kMaxSide = 4096;    // of a network's input, in pixels
inline constexpr int kMaxDepth = 16384;  // channels of a layer
inline constexpr float kMaxDepthMultiplier = 4.0f;

inline constexpr int kImageChannels = 3;  // of a color image

// Adds that `field`, a feature_extractor.type, has a value that is not one of `types`.
void AddUnknownType(const std::string& field, const std::string& type,
                    absl::Span<const absl::string_view> types, FieldChecker* checker);

void CheckInitializer(const config::WeightInitializer& initializer, const std::string& field,
                      FieldChecker* checker);

void CheckHyperparams(const config::Hyperparams& hyperparams, const std::string& field,
                      BatchNormUse batch_norm, FieldChecker* checker);

// Layers in a row without batch norm need an initializer that fits their sizes: batch norm corrects
// initial weights that do not, biases do not.
void CheckInitializerWithoutBatchNorm(const config::Hyperparams& hyperparams,
                                      const std::string& field, FieldChecker* checker);

// Returns the height and the width of the network's input.
std::array<int, 2> InputSides(const config::ImageResizer& resizer);

// Each side of the network's input must have `min_side` to kMaxSide pixels.
void CheckImageResizer(const config::ImageResizer& resizer, const std::string& field, int min_side,
                       FieldChecker* checker);

// Appends a sentence to `warnings` if the resizer asks for images without padding, which the
// network cannot take.
void WarnAboutPadding(const config::ImageResizer& resizer, const std::string& field,
                      std::vector<std::string>* warnings);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CONFIG_LAYER_CHECKS_H_
