// conv_hyperparams resolved to what a layer needs.
#ifndef PUSHPULL_COMMON_MODEL_HYPERPARAMS_H_
#define PUSHPULL_COMMON_MODEL_HYPERPARAMS_H_

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

struct LayerHyperparams {
  config::WeightInitializer initializer;
  float l2_weight = 0.0f;
  bool regularize_depthwise = false;
  ActivationFunction activation = ActivationFunction::kRelu6;
  std::optional<BatchNormSpec> batch_norm = BatchNormSpec();
};

// Slim's training scope of MobileNetV2, for a config without conv_hyperparams.
LayerHyperparams SlimHyperparams();

// Without batch_norm in the message there is none in the result. INVALID_ARGUMENT names the field:
// a decay outside [0, 1), an epsilon or deviation not positive, a negative L2 weight. `field` is
// the path of the message for errors.
absl::StatusOr<LayerHyperparams> ResolveHyperparams(const config::Hyperparams& hyperparams,
                                                    absl::string_view field);

// INVALID_ARGUMENT names the missing field.
absl::Status RequireBatchNorm(const LayerHyperparams& hyperparams, absl::string_view field);

// The initializer of a weight tensor [..., in, out]. Variance scaling follows slim: n = fan in, out
// or their mean with the leading dimensions as the receptive field (so a depthwise [k, k, c, 1] has
// fan in k*k*c); uniform within sqrt(3 factor / n), or normal truncated at two deviations of
// sqrt(1.3 factor / n).
Initializer ResolveInitializer(const config::WeightInitializer& initializer,
                               const std::vector<int64_t>& shape);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_HYPERPARAMS_H_
