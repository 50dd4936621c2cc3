// HttpServer is a small HTTP server for read-only pages. It answers GET and HEAD on one thread.
//
// libmicrohttpd does the parsing and framing. The use of resources is bounded:
//  - connections at a time; more wait in the listen queue
//  - memory per connection, and with it the request line and headers (414, 431)
//  - time from accept to close, whatever the client sends
//  - one request per connection; methods other than GET and HEAD are refused (405)
//  - wake-ups per second, so that a flood of requests costs a small share of one core
#ifndef PUSHPULL_PS_SERVER_MONITORING_HTTP_SERVER_H_
#define PUSHPULL_PS_SERVER_MONITORING_HTTP_SERVER_H_

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
  absl::string_view host;  // the Host header; empty if there is none
};

struct HttpResponse {
  int code = 200;
  std::string content_type = "text/plain; charset=utf-8";
  std::shared_ptr<const std::string> body;
  std::vector<std::pair<std::string, std::string>> headers;  // besides Content-Type
};

struct HttpServerOptions {
  // A name or an address; an IPv6 address may be in brackets. "0.0.0.0" and "::" both mean all
  // addresses of both families.
  std::string host = "127.0.0.1";
  int port = 0;  // 0: any free port
  int max_connections = 64;
  size_t connection_memory_bytes = 16 << 10;
  absl::Duration connection_deadline = absl::Seconds(10);
  absl::Duration tick_interval = absl::Seconds(1);
};

// Only the server's thread calls these. They must not block, because the server answers nobody
// while they run.
struct HttpCallbacks {
  std::function<HttpResponse(const HttpRequest&)> get;
  std::function<void()> tick;  // every tick_interval, and at the start
};

// Thread-safe.
class HttpServer {
 public:
  // Closes all connections. Blocks for about a tenth of a second at most.
  virtual ~HttpServer() = default;

  virtual int port() const = 0;
  // Open connections, for tests.
  virtual int connections() const = 0;
};

// Returns "host:port" as it stands in a URL: an IPv6 address is in brackets.
std::string HttpAuthority(absl::string_view host, int port);

// Starts to listen and serve. ALREADY_EXISTS: another process listens at this address.
// INVALID_ARGUMENT: no such host. UNAVAILABLE: the address cannot be used for another reason,
// which the message names. INTERNAL: libmicrohttpd did not start.
absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpServer(const HttpServerOptions& options,
                                                            HttpCallbacks callbacks);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_HTTP_SERVER_H_
