// The errors of a PsSession that a caller treats in another way than the rest. Pure functions.
#ifndef PUSHPULL_WORKER_CLIENT_PEER_ERRORS_H_
#define PUSHPULL_WORKER_CLIENT_PEER_ERRORS_H_

#include "absl/status/status.h"

namespace pushpull {

// Returns true for errors after which the same call should be repeated: the server is not ready or
// ends, or it did not answer, so that it is unknown what it did. Returns false if IsPeerLost.
bool IsTransient(const absl::Status& status);

// Returns whether the session has given up a server after the peer deadline.
bool IsPeerLost(const absl::Status& status);
// Returns `error` as one for which IsPeerLost is true.
absl::Status MarkPeerLost(absl::Status error);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_CLIENT_PEER_ERRORS_H_
