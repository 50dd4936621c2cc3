// Checks whether an address can be reached, to find out why gRPC reports UNAVAILABLE.
#ifndef PUSHPULL_COMMON_CLUSTER_ADDRESS_PROBE_H_
#define PUSHPULL_COMMON_CLUSTER_ADDRESS_PROBE_H_

#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

namespace pushpull {

// Resolves "host:port", or takes "unix:/path", and connects. Sends nothing, so OK does not mean
// that a ps_server listens there. The messages do not repeat the address.
//
// NOT_FOUND: the name does not resolve, or there is no such socket. UNAVAILABLE: the connection is
// refused, or there is no route. DEADLINE_EXCEEDED: no answer in time. INVALID_ARGUMENT: not an
// address.
//
// Blocks for at most `patience`. A name server that takes longer keeps a detached thread waiting,
// which ends when the name server answers. Thread-safe.
absl::Status ProbeAddress(const std::string& address, absl::Duration patience);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLUSTER_ADDRESS_PROBE_H_
