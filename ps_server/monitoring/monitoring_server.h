// StartMonitoringServer starts the HTTP server of --metrics_port: / (the status page),
// /status.json, /metrics and /healthz.
#ifndef PUSHPULL_PS_SERVER_MONITORING_MONITORING_SERVER_H_
#define PUSHPULL_PS_SERVER_MONITORING_MONITORING_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"

#include "ps_server/monitoring/http_server.h"
#include "ps_server/monitoring/monitor.h"

namespace pushpull {

// The pages are read-only, hold no secrets and are served without authentication. They are
// computed on request, each page at most four times a second however many clients ask. The
// training history takes one more sample per second.
//
// If options.host is a loopback address, requests whose Host header names another machine are
// refused (421). Otherwise a foreign web page in a browser on this machine could read the pages
// by DNS rebinding.
//
// What `sources` refers to must outlive the returned server. Returns the errors of StartHttpServer.
// UNIMPLEMENTED: this build has no HTTP server.
absl::StatusOr<std::unique_ptr<HttpServer>> StartMonitoringServer(const HttpServerOptions& options,
                                                                  MonitoringIdentity identity,
                                                                  MonitoringSources sources);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_MONITORING_SERVER_H_
