// Builds the network and the variable layout of a pipeline config. The worker trains the network,
// and the server stores the variables. The config must come from LoadValidConfig or
// ParseValidConfig; an invalid one may end the process, and so may one of an external model in the
// functions that build a network. Thread-safe functions.
#ifndef PUSHPULL_COMMON_MODEL_MODEL_LAYOUT_H_
#define PUSHPULL_COMMON_MODEL_MODEL_LAYOUT_H_

#include "common/model/network_spec.h"
#include "common/model/variable_layout.h"
#include "protos/pipeline.pb.h"

namespace pushpull {

NetworkSpec BuildNetworkSpec(const config::DetectionModel& model);

// Returns num_classes of the classifier or detector, without a detector's background class. Returns
// 0 if `model` has neither.
int NumClasses(const config::DetectionModel& model);

// Returns the network's variables after applying train_config, as the legacy trainer does:
// - If add_regularization_loss is false, no variable has an L2 weight.
// - If bias_grad_multiplier is not 0, it is the gradient_multiplier of the trainable variables that
//   have `/biases` in their names.
// - If update_trainable_variables is not empty, trainable variables that match none of its patterns
//   are frozen.
// - Trainable variables that match a pattern of freeze_variables are frozen.
//
// The patterns are ECMAScript regular expressions. Like Python's re.match, they match at the start
// of a name and need not reach its end. They never apply to moving statistics, which only a frozen
// batch norm freezes. A warning is logged for each pattern that matches no trainable variable; it
// says so if the pattern would match further on in a name. Warnings are also logged if there are no
// biases for bias_grad_multiplier, and if all trainable variables are frozen.
VariableLayout BuildVariableLayout(const config::TrainEvalPipelineConfig& config);

// The same for an external model: returns the variables that a clone has declared after applying
// train_config. Variables that are declared frozen stay so. Applying it twice changes nothing more.
VariableLayout BuildExternalLayout(const config::TrainConfig& train_config,
                                   const VariableLayout& declared);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_MODEL_LAYOUT_H_
