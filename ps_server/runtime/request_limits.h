// Limits on the text and lists that clones put into requests. The server keeps and logs them,
// and shows them to others. All functions are thread-safe.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_REQUEST_LIMITS_H_
#define PUSHPULL_PS_SERVER_RUNTIME_REQUEST_LIMITS_H_

#include <cstddef>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

inline constexpr size_t kMaxNameBytes = 256;  // name of a peer, a GPU or a metric
inline constexpr size_t kMaxVariableNameBytes = 1024;
inline constexpr int kMaxMetrics = 64;  // in one contribution

// INVALID_ARGUMENT: `text` is longer than max_bytes or has a control character, which a terminal
// that shows the log would obey. The message names `field`.
absl::Status CheckText(absl::string_view field, absl::string_view text, size_t max_bytes);

// How long a pull may wait for its version: request.wait_milliseconds, capped at 15 minutes, the
// limit of any call. 0 in the request stands for the cap.
absl::Duration LongestWait(const ps::PullRequest& request);

// INVALID_ARGUMENT: a text of the request fails CheckText, or it has too many metrics.
absl::Status CheckRequestLimits(const ps::RegisterRequest& request);
absl::Status CheckRequestLimits(const ps::DeclareRequest& request);
absl::Status CheckRequestLimits(const ps::HeartbeatRequest& request);
absl::Status CheckRequestLimits(const ps::CommitRequest& request);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_REQUEST_LIMITS_H_
