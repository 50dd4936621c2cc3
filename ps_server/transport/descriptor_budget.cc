// Tested by tests/ps_server/transport/server_limits_test.cc.
#include "ps_server/transport/descriptor_budget.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/descriptor_limit.h"

namespace pushpull {
namespace {

// One descriptor in gRPC, and its duplicate in the connection table.
constexpr int64_t kPerConnection = 2;
// For files, epoll, logs, and connections that are being closed, where the limit has room for that.
constexpr int64_t kOthers = 256;
// A process with one address has about 25 open, and each further one adds a few.
constexpr int64_t kMinOthers = 40;
constexpr int64_t kOthersPerListener = 8;
constexpr int64_t kMinConnections = 2;  // as for --max_connections

}  // namespace

absl::StatusOr<int> ConnectionsWithin(int64_t allowed, int wanted, int listeners) {
  const int64_t per_connection = kPerConnection * std::max(1, listeners);
  const int64_t min_others = kMinOthers + kOthersPerListener * std::max(1, listeners);
  const int64_t others = std::clamp(allowed / 2, min_others, std::max(min_others, kOthers));
  const int64_t fit = (allowed - others) / per_connection;
  if (fit >= wanted) return wanted;
  if (fit < kMinConnections) {
    return absl::ResourceExhaustedError(
        absl::StrCat("this process may have ", allowed, " open files, and it needs at least ",
                     min_others + per_connection * kMinConnections,
                     ": raise the limit (ulimit -n, LimitNOFILE=)"));
  }
  LOG(WARNING) << "this process may have " << allowed << " open files, enough for " << fit
               << " connections to each address instead of " << wanted
               << ": raise the limit (ulimit -n, LimitNOFILE=) or lower --max_connections";
  return static_cast<int>(fit);
}

ServerLimits WithConnections(ServerLimits limits, int connections) {
  if (connections >= limits.max_connections) return limits;
  limits.max_connections = connections;
  limits.max_connections_per_peer =
      std::min(limits.max_connections_per_peer, std::max(1, connections / 2));
  return limits;
}

absl::StatusOr<int> FitConnections(int wanted, int listeners) {
  const std::optional<int64_t> allowed = RaiseDescriptorLimit();
  if (!allowed.has_value()) return wanted;
  return ConnectionsWithin(*allowed, wanted, listeners);
}

}  // namespace pushpull
