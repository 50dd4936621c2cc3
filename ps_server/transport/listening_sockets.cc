// Tested by tests/ps_server/transport/listen_test.cc.
#include "ps_server/transport/listening_sockets.h"

#include <arpa/inet.h>
#include <errno.h>
#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <string.h>
#include <sys/file.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <utility>

#include "absl/cleanup/cleanup.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/string_view.h"
#include "absl/time/clock.h"
#include "absl/time/time.h"

#include "common/base/file_system.h"
#include "common/base/status_macros.h"
#include "common/wire/transport_security.h"

namespace pushpull {
namespace {

struct HostPort {
  std::string host;
  int port = 0;
};

absl::StatusOr<HostPort> SplitHostPort(const std::string& address) {
  const size_t colon = address.rfind(':');
  if (colon == std::string::npos || colon == 0 || colon + 1 == address.size()) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address \"", address, "\": expected host:port or unix:/path"));
  }
  HostPort result{address.substr(0, colon)};
  const std::string port = address.substr(colon + 1);
  if (!absl::SimpleAtoi(port, &result.port) || result.port < 0 || result.port > 65535) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address \"", address, "\": port \"", port, "\" is not in 0..65535"));
  }
  if (result.host.front() == '[' && result.host.back() == ']') {
    result.host = result.host.substr(1, result.host.size() - 2);
  }
  return result;
}

absl::Status InUse(const std::string& address) {
  return absl::AlreadyExistsError(
      absl::StrCat("listen address ", address,
                   " is in use: another process listens there; stop it or choose another port"));
}

absl::Status CannotListen(const std::string& address, int error) {
  if (error == EADDRINUSE) return InUse(address);
  return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", strerror(error)));
}

int PortOf(int fd) {
  sockaddr_storage name{};
  socklen_t size = sizeof(name);
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&name), &size) != 0) return 0;
  return ntohs(name.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(&name)->sin6_port
                                          : reinterpret_cast<sockaddr_in*>(&name)->sin_port);
}

// Returns a listening socket bound to `name`, or -1 with errno set.
int ListenTcp(const sockaddr* name, socklen_t size) {
  const int fd = socket(name->sa_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return -1;
  const int yes = 1;
  const int no = 0;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &yes, sizeof(yes));
  if (name->sa_family == AF_INET6) setsockopt(fd, IPPROTO_IPV6, IPV6_V6ONLY, &no, sizeof(no));
  if (bind(fd, name, size) == 0 && listen(fd, SOMAXCONN) == 0) return fd;
  const int error = errno;
  close(fd);
  errno = error;
  return -1;
}

void SetPort(int port, sockaddr_storage* name) {
  auto& field = name->ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6*>(name)->sin6_port
                                            : reinterpret_cast<sockaddr_in*>(name)->sin_port;
  field = htons(static_cast<uint16_t>(port));
}

// How long to wait for the lock of a socket's folder. Servers hold it for less than a millisecond.
constexpr absl::Duration kFolderPatience = absl::Seconds(2);

// Opens the folder of a unix socket and locks it, so that one server at a time looks at the sockets
// in it. The lock needs no file of its own, which would have to stay behind. Returns the
// descriptor, whose close releases the lock, or -1 if the folder cannot be opened: bind says what
// is wrong, or needs less access. Blocks for up to 2 s. address: for messages. UNAVAILABLE: another
// process keeps the folder locked.
absl::StatusOr<int> LockFolder(const std::string& folder, const std::string& address) {
  constexpr absl::Duration kPause = absl::Milliseconds(1);
  const int fd = open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  absl::Duration waited;
  while (fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK && errno != EINTR) break;  // folders cannot be locked there (NFS)
    if (waited >= kFolderPatience) {
      close(fd);
      return absl::UnavailableError(
          absl::StrCat("cannot listen on ", address, ": another process keeps the folder ", folder,
                       " locked (flock); stop that process or choose another folder"));
    }
    absl::SleepFor(kPause);
    waited += kPause;
  }
  return fd;
}

bool IsWildcard(const std::string& host) { return host == "0.0.0.0" || host == "::"; }

// Returns a socket that listens on all addresses of both families, or -1 with errno set.
int ListenOnAllAddresses(int port) {
  sockaddr_storage any{};
  any.ss_family = AF_INET6;
  SetPort(port, &any);
  return ListenTcp(reinterpret_cast<const sockaddr*>(&any), sizeof(sockaddr_in6));
}

}  // namespace

ListeningSockets& ListeningSockets::operator=(ListeningSockets&& other) noexcept {
  if (this == &other) return *this;
  Close();
  descriptors_ = std::exchange(other.descriptors_, {});
  address_ = std::exchange(other.address_, {});
  unix_path_ = std::exchange(other.unix_path_, {});
  unix_inode_ = other.unix_inode_;
  return *this;
}

void ListeningSockets::Close() {
  // The file goes while the socket still listens: a server that starts at the path meanwhile finds
  // it in use. After the close that server would have replaced the file, perhaps with a new one of
  // the same inode number, which would be removed here.
  const std::string path = std::exchange(unix_path_, {});
  struct stat info {};
  if (!path.empty() && lstat(path.c_str(), &info) == 0 && info.st_ino == unix_inode_) {
    unlink(path.c_str());
  }
  for (const int fd : std::exchange(descriptors_, {})) close(fd);
}

absl::StatusOr<ListeningSockets> ListeningSockets::Bind(const std::string& address) {
  ListeningSockets sockets;
  PP_RETURN_IF_ERROR(absl::StartsWith(address, kUnixPrefix) ? sockets.BindUnix(address)
                                                            : sockets.BindTcp(address));
  return sockets;
}

absl::Status ListeningSockets::BindTcp(const std::string& address) {
  PP_ASSIGN_OR_RETURN(const HostPort parts, SplitHostPort(address));
  if (IsWildcard(parts.host)) {
    const int fd = ListenOnAllAddresses(parts.port);
    if (fd >= 0) {
      descriptors_.push_back(fd);
    } else if (errno == EADDRINUSE || parts.host == "::") {
      return CannotListen(address, errno);
    }
  }
  if (descriptors_.empty()) PP_RETURN_IF_ERROR(BindEachAddress(parts.host, parts.port, address));
  address_ = absl::StrCat(address.substr(0, address.rfind(':')), ":", PortOf(descriptors_[0]));
  return absl::OkStatus();
}

absl::Status ListeningSockets::BindEachAddress(const std::string& host, int port,
                                               const std::string& address) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_PASSIVE;
  addrinfo* list = nullptr;
  const int code = getaddrinfo(host.c_str(), /*service=*/nullptr, &hints, &list);
  if (code != 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address ", address, ": ", gai_strerror(code)));
  }
  absl::Status status;
  for (const addrinfo* item = list; item != nullptr && status.ok(); item = item->ai_next) {
    sockaddr_storage name{};
    memcpy(&name, item->ai_addr, item->ai_addrlen);
    // If any free port will do, the kernel chooses one for the first address, and the other
    // addresses use the same.
    SetPort(descriptors_.empty() ? port : PortOf(descriptors_[0]), &name);
    const int fd = ListenTcp(reinterpret_cast<const sockaddr*>(&name), item->ai_addrlen);
    if (fd >= 0) {
      descriptors_.push_back(fd);
    } else if (errno != EAFNOSUPPORT && !(errno == EADDRNOTAVAIL && item->ai_next != nullptr)) {
      status = CannotListen(address, errno);
    }
  }
  freeaddrinfo(list);
  if (!status.ok() && (absl::IsAlreadyExists(status) || descriptors_.empty())) return status;
  if (!descriptors_.empty()) return absl::OkStatus();
  return absl::UnavailableError(
      absl::StrCat("cannot listen on ", address, ": this machine has no such address"));
}

absl::Status ListeningSockets::BindUnix(const std::string& address) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  const absl::StatusOr<std::string> path = UnixSocketPath(address);
  if (!path.ok()) {
    return absl::InvalidArgumentError(
        absl::StrCat("listen address \"", address, "\": ", path.status().message()));
  }
  memcpy(name.sun_path, path->data(), path->size());
  const auto* generic = reinterpret_cast<const sockaddr*>(&name);
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (fd < 0) return absl::ErrnoToStatus(errno, absl::StrCat("socket for ", address));
  descriptors_.push_back(fd);
  // Another server that starts meanwhile could find the same dead socket, and remove it after this
  // server has put a live one in its place.
  PP_ASSIGN_OR_RETURN(const int folder, LockFolder(FolderOf(*path), address));
  const auto unlock = absl::MakeCleanup([folder] {
    if (folder >= 0) close(folder);
  });
  // The socket of a running server accepts connections; the file of a dead one has to be removed.
  const int probe = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (probe < 0) return absl::ErrnoToStatus(errno, absl::StrCat("socket for ", address));
  const int answer = connect(probe, generic, sizeof(name)) == 0 ? 0 : errno;
  close(probe);
  if (answer == 0 || answer == EAGAIN) return InUse(address);
  struct stat info {};
  if (lstat(name.sun_path, &info) == 0) {
    if (!S_ISSOCK(info.st_mode)) {
      return absl::AlreadyExistsError(
          absl::StrCat("listen address ", address, ": there is a file that is not a socket"));
    }
    // Another user's socket may forbid the connection although a server listens there.
    const int error = answer != ECONNREFUSED ? answer : unlink(name.sun_path) != 0 ? errno : 0;
    if (error != 0) {
      return absl::AlreadyExistsError(
          absl::StrCat("listen address ", address,
                       ": the socket that is there cannot be replaced (", strerror(error),
                       "); if no server uses it, remove it as its owner, or choose another path"));
    }
  }
  if (bind(fd, generic, sizeof(name)) != 0 || listen(fd, SOMAXCONN) != 0) {
    return absl::UnavailableError(absl::StrCat("cannot listen on ", address, ": ", strerror(errno),
                                               "; check that its folder exists and is writable"));
  }
  if (lstat(name.sun_path, &info) == 0) {
    unix_path_ = name.sun_path;
    unix_inode_ = info.st_ino;
  }
  address_ = address;
  return absl::OkStatus();
}

}  // namespace pushpull
