// Who is at the other end of a socket, in the two forms that limits need.
#ifndef PUSHPULL_COMMON_RPC_PEER_ADDRESS_H_
#define PUSHPULL_COMMON_RPC_PEER_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

struct PeerAddress {
  std::string host;  // "127.0.0.1", "fe80::1", "user 1000" on a unix socket
  std::string key;   // "127.0.0.1 40123", one connection's; empty on a unix socket
};

// Of an accepted socket. An IPv4 address that came to an IPv6 socket is IPv4 again.
PeerAddress PeerAddressOf(int fd, const sockaddr_storage& name);

// PeerAddress::key of grpc::ServerContext::peer(); empty where there is none.
std::string KeyOfGrpcPeer(absl::string_view peer);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_PEER_ADDRESS_H_
