// Tested by tests/ps_server/transport/cluster_check_test.cc.
#include "common/cluster/address_probe.h"

#include <arpa/inet.h>
#include <errno.h>
#include <netdb.h>
#include <poll.h>
#include <string.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <memory>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/synchronization/mutex.h"

#include "common/base/monotonic_wait.h"
#include "common/base/status_macros.h"
#include "common/wire/transport_security.h"

namespace pushpull {
namespace {

struct SocketAddress {
  sockaddr_storage storage = {};
  socklen_t size = 0;
  std::string text;  // "10.0.0.3 port 2222"
};

struct HostPort {
  std::string host;
  std::string port;
};

absl::StatusOr<HostPort> Split(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError("is not host:port or unix:/path");
  }
  HostPort parts{address.substr(0, colon), address.substr(colon + 1)};
  if (parts.host.front() == '[' && parts.host.back() == ']') {
    parts.host = parts.host.substr(1, parts.host.size() - 2);
  }
  return parts;
}

std::string TextOf(const addrinfo& item) {
  char host[NI_MAXHOST] = "";
  char port[NI_MAXSERV] = "";
  getnameinfo(item.ai_addr, item.ai_addrlen, host, sizeof(host), port, sizeof(port),
              NI_NUMERICHOST | NI_NUMERICSERV);
  return absl::StrCat(host, " port ", port);
}

absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& parts) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(parts.host.c_str(), parts.port.c_str(), &hints, &list);
  if (code != 0) {
    return absl::NotFoundError(
        absl::StrCat("the name \"", parts.host, "\" does not resolve (", gai_strerror(code), ")"));
  }
  std::vector<SocketAddress> result;
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    SocketAddress address;
    memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
    address.size = item->ai_addrlen;
    address.text = TextOf(*item);
    result.push_back(std::move(address));
  }
  freeaddrinfo(list);
  return result;
}

// Shared by the resolver's thread and the caller, who may have timed out and returned.
struct Resolution {
  absl::Mutex mutex;
  MonotonicCondVar resolved;
  std::optional<absl::StatusOr<std::vector<SocketAddress>>> result ABSL_GUARDED_BY(mutex);
};

// Resolves on a detached thread, because getaddrinfo has no timeout and cannot be cancelled.
absl::StatusOr<std::vector<SocketAddress>> ResolveWithin(const HostPort& parts,
                                                         absl::Duration patience) {
  auto shared = std::make_shared<Resolution>();
  std::thread([shared, parts] {
    auto result = Resolve(parts);
    absl::MutexLock lock(&shared->mutex);
    shared->result = std::move(result);
    shared->resolved.NotifyAll();
  }).detach();
  absl::MutexLock lock(&shared->mutex);
  const auto resolved = [&shared]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(shared->mutex) {
    return shared->result.has_value();
  };
  if (!shared->resolved.Await(&shared->mutex, resolved, patience)) {
    return absl::DeadlineExceededError(
        absl::StrCat("the name \"", parts.host, "\" did not resolve in ",
                     absl::FormatDuration(patience), ": the name server does not answer"));
  }
  return *std::move(shared->result);
}

absl::StatusOr<SocketAddress> UnixAddress(const std::string& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  PP_ASSIGN_OR_RETURN(const std::string path, UnixSocketPath(address));
  memcpy(name.sun_path, path.data(), path.size());
  SocketAddress result;
  memcpy(&result.storage, &name, sizeof(name));
  result.size = sizeof(name);
  result.text = path;
  return result;
}

absl::Status Explain(int error, const SocketAddress& address, absl::Duration patience) {
  switch (error) {
    case ENOENT:
      return absl::NotFoundError(absl::StrCat("there is no socket ", address.text));
    case ECONNREFUSED:
      return absl::UnavailableError(
          absl::StrCat("connection refused by ", address.text, ": nothing listens there"));
    case ETIMEDOUT:
      return absl::DeadlineExceededError(absl::StrCat("no answer from ", address.text, " in ",
                                                      absl::FormatDuration(patience),
                                                      ": host down, or a firewall drops packets"));
    default:
      return absl::UnavailableError(
          absl::StrCat("cannot connect to ", address.text, ": ", strerror(error)));
  }
}

// Returns 0, or the errno of the attempt to connect.
int Connect(const SocketAddress& address, absl::Duration patience) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return errno;
  int error = 0;
  if (connect(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) != 0) {
    error = errno;
  }
  if (error == EINPROGRESS) {
    pollfd item{fd, POLLOUT, 0};
    const int64_t wait = std::max<int64_t>(1, absl::ToInt64Milliseconds(patience));
    socklen_t size = sizeof(error);
    if (poll(&item, 1, static_cast<int>(wait)) <= 0) {
      error = ETIMEDOUT;
    } else if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &error, &size) != 0) {
      error = errno;
    }
  }
  close(fd);
  return error == EAGAIN ? 0 : error;  // EAGAIN: a unix socket whose backlog is full; it is alive
}

}  // namespace

absl::Status ProbeAddress(const std::string& address, absl::Duration patience) {
  const Deadline deadline(patience);
  std::vector<SocketAddress> candidates;
  if (absl::StartsWith(address, kUnixPrefix)) {
    PP_ASSIGN_OR_RETURN(SocketAddress socket, UnixAddress(address));
    candidates.push_back(std::move(socket));
  } else {
    PP_ASSIGN_OR_RETURN(const HostPort parts, Split(address));
    PP_ASSIGN_OR_RETURN(candidates, ResolveWithin(parts, patience));
  }
  // A name may have several addresses; it can be reached if one of them can.
  absl::Status first;
  for (const SocketAddress& candidate : candidates) {
    const int error = Connect(candidate, deadline.Left());
    if (error == 0) return absl::OkStatus();
    if (first.ok()) first = Explain(error, candidate, patience);
    if (deadline.HasPassed()) break;
  }
  return first;
}

}  // namespace pushpull
