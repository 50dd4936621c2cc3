// Binds a server's address to listening sockets.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_LISTENING_SOCKETS_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_LISTENING_SOCKETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pushpull {

// Owns listening, non-blocking sockets, and the file of a unix socket. Not thread-safe.
class ListeningSockets {
 public:
  // address is "host:port" or "unix:/path".
  // - Port 0 means any free port. A host name with several addresses is bound on all of them.
  //   "0.0.0.0" and "[::]" both mean all addresses of both families.
  // - A stale socket file at the path is replaced, but not one that a server listens on. If several
  //   servers start at one path at once, one of them gets it. For that the folder of the path is
  //   locked meanwhile (flock), which may block for 2 s.
  // ALREADY_EXISTS: another process listens there, or the path is a file that is not a socket;
  // INVALID_ARGUMENT or UNAVAILABLE: the address cannot be bound for another reason, which the
  // message names.
  static absl::StatusOr<ListeningSockets> Bind(const std::string& address);

  ListeningSockets() = default;
  ~ListeningSockets() { Close(); }
  ListeningSockets(ListeningSockets&& other) noexcept { *this = std::move(other); }
  ListeningSockets& operator=(ListeningSockets&& other) noexcept;

  // Removes the socket file unless another server has replaced it, and closes the sockets.
  void Close();
  const std::vector<int>& descriptors() const { return descriptors_; }
  // The address with the port actually bound.
  const std::string& address() const { return address_; }

 private:
  absl::Status BindTcp(const std::string& address);
  // Binds all addresses that the host has, of whatever family. address: for messages.
  absl::Status BindEachAddress(const std::string& host, int port, const std::string& address);
  absl::Status BindUnix(const std::string& address);

  std::vector<int> descriptors_;
  std::string address_;
  std::string unix_path_;    // socket file that Close removes; empty: none
  uint64_t unix_inode_ = 0;  // inode of that file when this object created it
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_LISTENING_SOCKETS_H_
