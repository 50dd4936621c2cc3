// Bounds of what workers write into requests as text and lists: all of it is kept, logged, or sent
// on to others.
#ifndef PUSHPULL_PS_SERVER_SERVICE_REQUEST_LIMITS_H_
#define PUSHPULL_PS_SERVER_SERVICE_REQUEST_LIMITS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

inline constexpr size_t kMaxNameBytes = 256;  // of a peer, a GPU, a metric
inline constexpr size_t kMaxVariableNameBytes = 1024;
inline constexpr int kMaxMetrics = 64;  // of one contribution

// INVALID_ARGUMENT naming `field`: too long, or a control character (a log line or a terminal would
// obey it).
absl::Status CheckText(absl::string_view field, absl::string_view text, size_t max_bytes);

// How long a pull may wait for its version: what it asks for, at most as long as any call lasts.
absl::Duration LongestWait(const ps::PullRequest& request);

absl::Status CheckRequestLimits(const ps::RegisterRequest& request);
absl::Status CheckRequestLimits(const ps::HeartbeatRequest& request);
absl::Status CheckRequestLimits(const ps::CommitRequest& request);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_REQUEST_LIMITS_H_
