// Tested by tests/ps_server/transport/server_limits_test.cc.
#include "ps_server/transport/descriptor_budget.h"

#include <algorithm>
#include <cstdint>
#include <optional>

#include "glog/logging.h"

#include "common/base/descriptor_limit.h"

namespace pushpull {
namespace {

// One descriptor in gRPC, and its duplicate in the connection table.
constexpr int64_t kPerConnection = 2;
// For files, epoll, logs, and connections that are being closed.
constexpr int64_t kOthers = 256;

}  // namespace

int FitConnections(int wanted, int listeners) {
  const int64_t per_connection = kPerConnection * std::max(1, listeners);
  const int64_t needed = kOthers + per_connection * wanted;
  const std::optional<int64_t> allowed = RaiseDescriptorLimit();
  if (!allowed || *allowed >= needed) return wanted;
  const int fit = static_cast<int>(std::max<int64_t>(1, (*allowed - kOthers) / per_connection));
  LOG(WARNING) << "this process may have " << *allowed << " open files, enough for " << fit
               << " connections to each address instead of " << wanted
               << ": raise the limit (ulimit -n, LimitNOFILE=) or lower --max_connections";
  return fit;
}

}  // namespace pushpull
