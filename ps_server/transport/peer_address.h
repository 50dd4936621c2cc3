// Names the peer of a socket in the two forms that the limits use. All functions are thread-safe.
#ifndef PUSHPULL_PS_SERVER_TRANSPORT_PEER_ADDRESS_H_
#define PUSHPULL_PS_SERVER_TRANSPORT_PEER_ADDRESS_H_

#include <sys/socket.h>

#include <string>

#include "absl/strings/string_view.h"

namespace pushpull {

struct PeerAddress {
  std::string host;  // "127.0.0.1", "fe80::1"; "user 1000" on a unix socket
  std::string key;   // names one connection: "127.0.0.1 40123"; empty on a unix socket
};

// fd, name: an accepted socket and the peer's address from accept. An IPv4-mapped IPv6 address is
// returned as IPv4.
PeerAddress PeerAddressOf(int fd, const sockaddr_storage& name);

// Converts the result of grpc::ServerContext::peer() to PeerAddress::key. Empty if it names no TCP
// connection.
std::string KeyOfGrpcPeer(absl::string_view peer);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_TRANSPORT_PEER_ADDRESS_H_
