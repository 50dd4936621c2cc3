// Asks the system whether an address can be reached, to tell apart what gRPC calls "unavailable".
#ifndef PUSHPULL_COMMON_CLUSTER_ADDRESS_PROBE_H_
#define PUSHPULL_COMMON_CLUSTER_ADDRESS_PROBE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace pushpull {

// Resolves "host:port" or takes "unix:/path", and connects; what listens there is not asked.
// NOT_FOUND: the name does not resolve, or there is no such socket; UNAVAILABLE: refused or no way
// there; DEADLINE_EXCEEDED: no answer in time; INVALID_ARGUMENT: no address. Messages do not repeat
// the address. Blocks at most `patience`; a name server that is slower than that is left to a
// thread that ends by itself. Thread-safe.
absl::Status ProbeAddress(const std::string& address, absl::Duration patience);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_ADDRESS_PROBE_H_
