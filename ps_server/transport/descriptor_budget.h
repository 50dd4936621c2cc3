// Fits the number of connections to the process's limit of open files, which connections exhaust
// before any other resource.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_DESCRIPTOR_BUDGET_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_DESCRIPTOR_BUDGET_H_

#include <cstdint>

#include "absl/status/statusor.h"

#include "common/wire/grpc/server_limits.h"

namespace pushpull {

// Returns how many simultaneous connections each of `listeners` addresses can have: `wanted`, or
// fewer if the limit of open files (ulimit -n) does not allow that many. Raises the soft limit to
// the hard limit. Logs a warning when it returns less than `wanted`. RESOURCE_EXHAUSTED: the limit
// is too low for a server.
absl::StatusOr<int> FitConnections(int wanted, int listeners);

// The same for a process that may have `allowed` open files.
absl::StatusOr<int> ConnectionsWithin(int64_t allowed, int wanted, int listeners);

// Returns the limits for a server that can have this number of connections. If that is fewer than
// `limits` ask for, one host may have half of them at most.
ServerLimits WithConnections(ServerLimits limits, int connections);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_DESCRIPTOR_BUDGET_H_
