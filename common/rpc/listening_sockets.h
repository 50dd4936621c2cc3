// Binds the sockets of a server's address.
#ifndef PUSHPULL_COMMON_RPC_LISTENING_SOCKETS_H_
#define PUSHPULL_COMMON_RPC_LISTENING_SOCKETS_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace pushpull {

// Owns listening, non-blocking sockets; a unix socket's file goes with them. Not thread-safe.
class ListeningSockets {
 public:
  // address: "host:port" (port 0: any free one; a host with several addresses listens on all of
  // them; "0.0.0.0" and "[::]" both mean every address of either family) or "unix:/path" (a stale
  // socket file is replaced, a live one is not). ALREADY_EXISTS: somebody listens there;
  // INVALID_ARGUMENT or UNAVAILABLE: another reason why it cannot be bound, named.
  static absl::StatusOr<ListeningSockets> Bind(const std::string& address);

  ListeningSockets() = default;
  ~ListeningSockets() { Close(); }
  ListeningSockets(ListeningSockets&& other) noexcept { *this = std::move(other); }
  ListeningSockets& operator=(ListeningSockets&& other) noexcept;

  void Close();
  const std::vector<int>& descriptors() const { return descriptors_; }
  // With the real port.
  const std::string& address() const { return address_; }

 private:
  absl::Status BindTcp(const std::string& address);
  absl::Status BindUnix(const std::string& address);

  std::vector<int> descriptors_;
  std::string address_;
  std::string unix_path_;    // to be removed; empty: none
  uint64_t unix_inode_ = 0;  // of the socket there when this object bound it
};

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_LISTENING_SOCKETS_H_
