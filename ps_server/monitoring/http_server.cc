#include "ps_server/monitoring/http_server.h"

#include <errno.h>
#include <microhttpd.h>
#include <netdb.h>
#include <netinet/in.h>
#include <poll.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <set>
#include <thread>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/clock.h"
#include "common/base/status_macros.h"

namespace pushpull {
namespace {

constexpr int kBacklog = 256;
constexpr int kLongestNapMilliseconds = 100;
// Pause after each wake-up, however much work there was. It bounds the CPU time.
constexpr int kShortestNapMilliseconds = 10;

// Removes the brackets of an IPv6 address.
absl::string_view WithoutBrackets(absl::string_view host) {
  if (!absl::StartsWith(host, "[") || !absl::EndsWith(host, "]")) return host;
  return host.substr(1, host.size() - 2);
}

// Returns a listening socket, or -1 with errno set.
int Listen(const addrinfo& item) {
  const int fd =
      socket(item.ai_family, item.ai_socktype | SOCK_CLOEXEC | SOCK_NONBLOCK, item.ai_protocol);
  if (fd < 0) return -1;
  const int yes = 1;
  const int no = 0;
  if (item.ai_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  if (setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes)) == 0 &&
      bind(fd, item.ai_addr, item.ai_addrlen) == 0 && listen(fd, kBacklog) == 0) {
    return fd;
  }
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

// Returns a listening socket. Has the errors of StartHttpServer.
absl::StatusOr<int> Bind(const HttpServerOptions& options) {
  const std::string where = HttpAuthority(options.host, options.port);
  const std::string host(WithoutBrackets(options.host));
  // A socket on "::" serves both families. A machine may have no IPv6.
  std::vector<std::string> hosts = {host};
  if (host == "0.0.0.0") hosts = {"::", host};
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE | AI_NUMERICSERV;
  int error = 0;
  for (const std::string& each : hosts) {
    addrinfo* list = nullptr;
    const int code = getaddrinfo(each.c_str(), absl::StrCat(options.port).c_str(), &hints, &list);
    if (code != 0) {
      return absl::InvalidArgumentError(
          absl::StrCat("cannot serve HTTP on ", where, ": ", gai_strerror(code)));
    }
    int result = -1;
    for (const addrinfo* item = list; item != nullptr && result < 0; item = item->ai_next) {
      result = Listen(*item);
      if (result < 0) error = errno;
    }
    freeaddrinfo(list);
    if (result >= 0) return result;
    if (error == EADDRINUSE) {
      return absl::AlreadyExistsError(
          absl::StrCat("cannot serve HTTP on ", where,
                       ": another process listens there; stop it or choose another port"));
    }
  }
  return absl::UnavailableError(
      absl::StrCat("cannot serve HTTP on ", where, ": ", strerror(error)));
}

int PortOf(int fd) {
  sockaddr_storage address{};
  socklen_t size = sizeof(address);
  char port[16] = "0";
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&address), &size) == 0) {
    getnameinfo(reinterpret_cast<sockaddr*>(&address), size, nullptr, 0, port, sizeof(port),
                NI_NUMERICSERV);
  }
  return atoi(port);
}

void FreeBody(void* body) { delete static_cast<std::shared_ptr<const std::string>*>(body); }

MHD_Result Queue(MHD_Connection* connection, const HttpResponse& response) {
  static const auto nothing = std::make_shared<const std::string>();
  auto* body = new std::shared_ptr<const std::string>(response.body ? response.body : nothing);
  MHD_Response* const answer = MHD_create_response_from_buffer_with_free_callback_cls(
      (*body)->size(), const_cast<char*>((*body)->data()), FreeBody, body);
  if (answer == nullptr) {
    FreeBody(body);
    return MHD_NO;
  }
  MHD_add_response_header(answer, MHD_HTTP_HEADER_CONTENT_TYPE, response.content_type.c_str());
  // With one request per connection, the deadline of the connection bounds the request.
  MHD_add_response_header(answer, MHD_HTTP_HEADER_CONNECTION, "close");
  for (const auto& [name, value] : response.headers) {
    MHD_add_response_header(answer, name.c_str(), value.c_str());
  }
  const MHD_Result queued =
      MHD_queue_response(connection, static_cast<unsigned int>(response.code), answer);
  MHD_destroy_response(answer);  // our reference
  return queued;
}

// An accepted socket and the time when it was accepted.
struct Accepted {
  absl::Duration since;
  int fd = -1;
};

class HttpServerImpl final : public HttpServer {
 public:
  HttpServerImpl(const HttpServerOptions& options, HttpCallbacks callbacks)
      : options_(options), callbacks_(std::move(callbacks)) {}

  ~HttpServerImpl() override {
    if (thread_.joinable()) {
      const uint64_t one = 1;
      PCHECK(write(stop_fd_, &one, sizeof(one)) == sizeof(one));
      thread_.join();
    }
    if (daemon_ != nullptr) MHD_stop_daemon(daemon_);  // closes the sockets
    if (stop_fd_ >= 0) close(stop_fd_);
  }

  absl::Status Start() {
    stop_fd_ = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
    if (stop_fd_ < 0) return absl::ErrnoToStatus(errno, "eventfd");
    PP_ASSIGN_OR_RETURN(const int listen_fd, Bind(options_));
    port_ = PortOf(listen_fd);
    daemon_ = MHD_start_daemon(MHD_USE_EPOLL, 0, nullptr, nullptr, &HttpServerImpl::OnRequest, this,
                               MHD_OPTION_LISTEN_SOCKET, listen_fd, MHD_OPTION_CONNECTION_LIMIT,
                               static_cast<unsigned int>(options_.max_connections),
                               MHD_OPTION_CONNECTION_MEMORY_LIMIT, options_.connection_memory_bytes,
                               MHD_OPTION_NOTIFY_CONNECTION, &HttpServerImpl::OnConnection, this,
                               MHD_OPTION_END);
    if (daemon_ == nullptr) {
      return absl::InternalError(absl::StrCat("libmicrohttpd did not start on ", options_.host));
    }
    const MHD_DaemonInfo* const info = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_EPOLL_FD);
    if (info == nullptr) return absl::InternalError("libmicrohttpd has no epoll descriptor");
    epoll_fd_ = info->epoll_fd;
    thread_ = std::thread([this] { Run(); });
    return absl::OkStatus();
  }

  int port() const override { return port_; }
  int connections() const override { return num_connections_; }

 private:
  static MHD_Result OnRequest(void* self, MHD_Connection* connection, const char* url,
                              const char* method, const char*, const char*, size_t*, void**) {
    return static_cast<HttpServerImpl*>(self)->Answer(connection, url, method);
  }

  MHD_Result Answer(MHD_Connection* connection, const char* url, absl::string_view method) {
    if (method != MHD_HTTP_METHOD_GET && method != MHD_HTTP_METHOD_HEAD) {
      HttpResponse refusal;
      refusal.code = MHD_HTTP_METHOD_NOT_ALLOWED;
      refusal.body = std::make_shared<const std::string>("only GET and HEAD\n");
      refusal.headers = {{MHD_HTTP_HEADER_ALLOW, "GET, HEAD"}};
      return Queue(connection, refusal);
    }
    const char* const host =
        MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_HOST);
    return Queue(connection, callbacks_.get({url, host == nullptr ? "" : host}));
  }

  static void OnConnection(void* self, MHD_Connection* connection, void** context,
                           MHD_ConnectionNotificationCode code) {
    static_cast<HttpServerImpl*>(self)->NoteConnection(connection, context, code);
  }

  void NoteConnection(MHD_Connection* connection, void** context,
                      MHD_ConnectionNotificationCode code) {
    if (code == MHD_CONNECTION_NOTIFY_STARTED) {
      const MHD_ConnectionInfo* const info =
          MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
      auto* accepted = new Accepted{clock_.Now(), info == nullptr ? -1 : info->connect_fd};
      accepted_.insert(accepted);
      *context = accepted;
    } else if (auto* accepted = static_cast<Accepted*>(*context); accepted != nullptr) {
      accepted_.erase(accepted);
      delete accepted;
      *context = nullptr;
    }
    num_connections_ = static_cast<int>(accepted_.size());
  }

  // libmicrohttpd only has a timeout for idle connections. A client that sends a byte now and
  // then would never reach it.
  void EndOldConnections() {
    const absl::Duration oldest = clock_.Now() - options_.connection_deadline;
    for (const Accepted* accepted : accepted_) {
      if (accepted->since < oldest && accepted->fd >= 0) shutdown(accepted->fd, SHUT_RDWR);
    }
  }

  // Sleeps until the time is over, the server is stopped or, with for_work, the library has
  // work. Returns whether the server is being stopped.
  bool Nap(int milliseconds, bool for_work) {
    pollfd fds[2] = {{stop_fd_, POLLIN, 0}, {epoll_fd_, POLLIN, 0}};
    poll(fds, for_work ? 2 : 1, milliseconds);
    return (fds[0].revents & POLLIN) != 0;
  }

  void Run() {
    absl::Duration next_tick = clock_.Now();
    for (;;) {
      if (clock_.Now() >= next_tick) {
        callbacks_.tick();
        next_tick = clock_.Now() + options_.tick_interval;
      }
      MHD_UNSIGNED_LONG_LONG timeout = kLongestNapMilliseconds;
      if (MHD_get_timeout(daemon_, &timeout) != MHD_YES) timeout = kLongestNapMilliseconds;
      const auto nap =
          static_cast<int>(std::min<MHD_UNSIGNED_LONG_LONG>(timeout, kLongestNapMilliseconds));
      if (Nap(nap, /*for_work=*/true)) return;
      MHD_run(daemon_);
      EndOldConnections();
      if (Nap(kShortestNapMilliseconds, /*for_work=*/false)) return;
    }
  }

  const HttpServerOptions options_;
  const HttpCallbacks callbacks_;
  const SteadyClock clock_;
  int stop_fd_ = -1;
  int epoll_fd_ = -1;  // owned by libmicrohttpd
  int port_ = 0;
  MHD_Daemon* daemon_ = nullptr;
  // Used by the thread only. An element is freed when the library closes its connection.
  std::set<Accepted*> accepted_;
  std::atomic<int> num_connections_{0};
  std::thread thread_;
};

}  // namespace

std::string HttpAuthority(absl::string_view host, int port) {
  const bool needs_brackets = absl::StrContains(host, ':') && !absl::StartsWith(host, "[");
  return needs_brackets ? absl::StrCat("[", host, "]:", port) : absl::StrCat(host, ":", port);
}

absl::StatusOr<std::unique_ptr<HttpServer>> StartHttpServer(const HttpServerOptions& options,
                                                            HttpCallbacks callbacks) {
  auto server = std::make_unique<HttpServerImpl>(options, std::move(callbacks));
  PP_RETURN_IF_ERROR(server->Start());
  return server;
}

}  // namespace pushpull
