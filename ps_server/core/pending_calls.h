// Calls that the coordinator does not answer at once.
#ifndef PUSHPULL_PS_SERVER_CORE_PENDING_CALLS_H_
#define PUSHPULL_PS_SERVER_CORE_PENDING_CALLS_H_

#include <cstdint>
#include <vector>

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"

namespace pushpull {

// An asynchronous push that is committed and waits to be applied. `calls` are the Commit calls to
// answer, several if the worker repeated the call.
struct PendingPush {
  std::vector<CallId> calls;
  ps::CommitRequest request;
};

// A Checkpoint call of an operator.
struct CheckpointCall {
  CallId call = 0;
  uint64_t version = 0;  // applied when the call came
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_PENDING_CALLS_H_
