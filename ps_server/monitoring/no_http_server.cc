// Replaces http_server.cc in a build without libmicrohttpd (PUSHPULL_HTTP=OFF).
// Not tested: its one call only returns an error.
#include "absl/status/status.h"

#include "ps_server/monitoring/http_server.h"

namespace pushpull {

absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpServer(const HttpServerOptions&,
                                                            HttpCallbacks) {
  return absl::UnimplementedError(
      "this build has no HTTP server: leave --metrics_port out, or build with PUSHPULL_HTTP=ON");
}

}  // namespace pushpull
