// Replaces monitoring_server.cc in a build without an HTTP server (PUSHPULL_HTTP=OFF).
// Not tested: its one function only returns an error.
#include "absl/status/status.h"

#include "ps_server/monitoring/monitoring_server.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<MonitoringServer>> MonitoringServer::Start(
    const HttpServerOptions&) {
  return absl::UnimplementedError(
      "this build has no HTTP server: leave --metrics_port out, or build with PUSHPULL_HTTP=ON");
}

}  // namespace pushpull
