// A small HTTP server for pages that are read and never written: GET and HEAD, one thread, bounded
// in every way.
//
// libmicrohttpd parses and frames. Bounds: connections (further ones wait in the listen queue), the
// memory of a connection and so its request line and headers (414, 431), the time of a connection
// from accept to close whatever it sends, one request per connection, no request bodies (405), and
// rounds of work per second, so that a flood of requests costs a small share of one core.
#ifndef PUSHPULL_PS_SERVER_WATCH_HTTP_SERVER_H_
#define PUSHPULL_PS_SERVER_WATCH_HTTP_SERVER_H_

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

namespace pushpull {

struct HttpRequest {
  absl::string_view path;  // without the query
  absl::string_view host;  // the Host header; empty: there is none
};

struct HttpResponse {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body;
  std::vector<std::pair<std::string, std::string>> headers;  // further ones
};

struct HttpServerOptions {
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free one
  int max_connections = 64;
  size_t connection_memory_bytes = 16 << 10;
  absl::Duration connection_deadline = absl::Seconds(10);
  absl::Duration tick_interval = absl::Seconds(1);
};

// Both are called by the server's one thread only and must not block: while they run nobody is
// answered.
struct HttpCallbacks {
  std::function<HttpResponse(const HttpRequest&)> get;
  std::function<void()> tick;  // every tick_interval, and at the start
};

// Thread-safe.
class HttpServer {
 public:
  virtual ~HttpServer() = default;  // closes all connections; within about a tenth of a second

  virtual int port() const = 0;
  // Now, for tests.
  virtual int connections() const = 0;
};

// ALREADY_EXISTS: somebody listens there; INVALID_ARGUMENT: no such host; UNAVAILABLE: another
// reason, named. UNIMPLEMENTED: this build has no HTTP server.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpServer(const HttpServerOptions& options,
                                                            HttpCallbacks callbacks);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_WATCH_HTTP_SERVER_H_
