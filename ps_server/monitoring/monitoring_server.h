// MonitoringServer is the HTTP server of --metrics_port: / (the status page), /status.json,
// /metrics and /healthz.
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
// A process listens before it knows its job, which can take as long as ps task 0 or the first clone
// is away. Until Show is called /healthz answers "ok", and the other pages 503 with a text that
// says so. Thread-safe.
class MonitoringServer {
 public:
  virtual ~MonitoringServer() = default;

  // Starts to listen. Returns the errors of StartHttpServer. UNIMPLEMENTED: this build has no HTTP
  // server.
  static absl::StatusOr<std::unique_ptr<MonitoringServer>> Start(const HttpServerOptions& options);

  // The pages are served for as long as this exists. It may outlive the MonitoringServer.
  class Shown {
   public:
    virtual ~Shown() = default;
  };
  // What `sources` refers to must outlive the result, after whose destruction no function of
  // `sources` runs any more. Called once.
  [[nodiscard]] virtual std::unique_ptr<Shown> Show(MonitoringIdentity identity,
                                                    MonitoringSources sources) = 0;

  virtual int port() const = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_MONITORING_SERVER_H_
