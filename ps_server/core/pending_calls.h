// Calls that the coordinator answers later than it hears of them.
#ifndef PUSHPULL_PS_SERVER_CORE_PENDING_CALLS_H_
#define PUSHPULL_PS_SERVER_CORE_PENDING_CALLS_H_

#include <cstdint>
#include <vector>

#include "protos/parameter_server.pb.h"
#include "ps_server/core/coordinator_events.h"

namespace pushpull {

// An asynchronous push that has been committed and waits for its turn; calls: those that asked.
struct PendingPush {
  std::vector<CallId> calls;
  ps::CommitRequest request;
};

// An operator's Checkpoint.
struct CheckpointCall {
  CallId call = 0;
  uint64_t version = 0;  // applied when it came
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_PENDING_CALLS_H_
