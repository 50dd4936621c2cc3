// From a pipeline config to the network and its variables: what the worker trains and the server
// stores.
#ifndef PUSHPULL_COMMON_MODEL_MODEL_LAYOUT_H_
#define PUSHPULL_COMMON_MODEL_MODEL_LAYOUT_H_

#include "absl/status/statusor.h"

#include "common/model/network_spec.h"
#include "common/variable_layout.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

// INVALID_ARGUMENT names the field that is missing, unknown or out of range.
absl::StatusOr<NetworkSpec> BuildNetworkSpec(const config::DetectionModel& model);

// Of whichever model the config has, without a detector's background; 0 without a model.
int NumClasses(const config::DetectionModel& model);

// The network's variables with train_config applied, in the legacy trainer's order:
// - add_regularization_loss false: no L2.
// - bias_grad_multiplier other than 0: learning_rate_multiplier of names that match `.*/biases`.
// - update_trainable_variables, if any: trainable variables that match none are frozen.
// - freeze_variables: trainable variables that match one are frozen.
// A regular expression (ECMAScript) has to match from the start of the name, not to its end, as
// Python's re.match. Moving statistics are not touched by either list: only a frozen batch norm
// freezes them. A pattern that matches no variable is logged. INVALID_ARGUMENT: as above, or a
// malformed expression.
absl::StatusOr<VariableLayout> BuildVariableLayout(const config::TrainEvalPipelineConfig& config);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_MODEL_LAYOUT_H_
