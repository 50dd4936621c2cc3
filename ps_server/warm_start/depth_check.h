// Refuses the weights of a network that is deeper than the config's. Every variable of the config's
// network would take its tensor, but the layers after a block that has lost its last units were
// trained on the output of those units. A pure function.
#ifndef PUSHPULL_PS_SERVER_WARM_START_DEPTH_CHECK_H_
#define PUSHPULL_PS_SERVER_WARM_START_DEPTH_CHECK_H_

#include <optional>
#include <string>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"

#include "protos/pipeline.pb.h"
#include "ps_server/warm_start/tensor_source.h"

namespace pushpull {

// Returns FAILED_PRECONDITION if the source has a unit that would follow the last unit of a block
// of the network: resnet_v1_50/block3/unit_7, expanded_conv_17 or vgg_a/conv3/conv3_3, by whatever
// name the source has for it. The message names the first tensor of the first such unit, and the
// type of the network that fits if it is known. source_name(variable) returns the name in the
// source of a variable, which need not be one of this network, or nullopt if the source cannot have
// it. `model` is valid.
absl::Status CheckDepth(
    const config::DetectionModel& model, const TensorSource& source,
    absl::FunctionRef<std::optional<std::string>(const std::string&)> source_name);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_DEPTH_CHECK_H_
