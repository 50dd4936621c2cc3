// What --metrics_port serves: / (the status page), /status.json, /metrics, /healthz.
#ifndef PUSHPULL_PS_SERVER_WATCH_WATCH_SERVER_H_
#define PUSHPULL_PS_SERVER_WATCH_WATCH_SERVER_H_

#include <memory>

#include "absl/status/statusor.h"

#include "ps_server/watch/http_server.h"
#include "ps_server/watch/watcher.h"

namespace pushpull {

// Read-only, without secrets and without authentication. The server is looked at when somebody
// asks, at most four times a second however many ask, and once a second for the training's course.
//
// Where the address is a loopback one, requests whose Host names another machine are refused (421):
// a page from elsewhere that a browser on this machine shows must not read them.
absl::StatusOr<std::unique_ptr<HttpServer>> StartWatchServer(const HttpServerOptions& options,
                                                             WatchIdentity identity,
                                                             WatchSources sources);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WATCH_WATCH_SERVER_H_
