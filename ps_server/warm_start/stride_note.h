// Compares the strides of a network with those of the network that its weights come from. Weights
// do not tell strides, so a warm start with other strides succeeds. Thread-safe, without state.
#ifndef PUSHPULL_PS_SERVER_WARM_START_STRIDE_NOTE_H_
#define PUSHPULL_PS_SERVER_WARM_START_STRIDE_NOTE_H_

#include <string>

#include "absl/functional/function_ref.h"

#include "common/model/network_spec.h"

namespace pushpull {

// Returns a sentence on the convolutions of `network` that have another stride than those of the
// same name in `source`; empty if there are none. A leading "FeatureExtractor/" is no part of a
// name. Only convolutions count whose weights were restored.
// is_restored: takes an index into network.variables.
std::string StrideNote(const NetworkSpec& network, const NetworkSpec& source,
                       absl::FunctionRef<bool(int)> is_restored);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WARM_START_STRIDE_NOTE_H_
