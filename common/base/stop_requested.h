// How work that takes long asks whether it is to end.
#ifndef PUSHPULL_COMMON_BASE_STOP_REQUESTED_H_
#define PUSHPULL_COMMON_BASE_STOP_REQUESTED_H_

#include <functional>

#include "absl/functional/function_ref.h"

namespace pushpull {

// Both return whether to end early, and are called from any thread. StoppedFn is for a parameter
// that is used during the call only, StopRequested for what is kept.
using StoppedFn = absl::FunctionRef<bool()>;
using StopRequested = std::function<bool()>;

inline bool NeverStopped() { return false; }

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_STOP_REQUESTED_H_
