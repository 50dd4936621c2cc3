// Tested by tests/ps_server/transport/connection_table_test.cc.
#include "ps_server/transport/peer_address.h"

#include <arpa/inet.h>
#include <netinet/in.h>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "absl/strings/strip.h"

namespace pushpull {
namespace {

PeerAddress Of(int family, const void* address, in_port_t port) {
  char text[INET6_ADDRSTRLEN] = "";
  inet_ntop(family, address, text, sizeof(text));
  return {text, absl::StrCat(text, " ", ntohs(port))};
}

}  // namespace

PeerAddress PeerAddressOf(int fd, const sockaddr_storage& name) {
  if (name.ss_family == AF_INET) {
    const auto& v4 = reinterpret_cast<const sockaddr_in&>(name);
    return Of(AF_INET, &v4.sin_addr, v4.sin_port);
  }
  if (name.ss_family == AF_INET6) {
    const auto& v6 = reinterpret_cast<const sockaddr_in6&>(name);
    if (IN6_IS_ADDR_V4MAPPED(&v6.sin6_addr)) {
      return Of(AF_INET, &v6.sin6_addr.s6_addr[12], v6.sin6_port);
    }
    return Of(AF_INET6, &v6.sin6_addr, v6.sin6_port);
  }
  ucred credentials{};
  socklen_t size = sizeof(credentials);
  getsockopt(fd, SOL_SOCKET, SO_PEERCRED, &credentials, &size);
  return {absl::StrCat("user ", credentials.uid), ""};
}

std::string KeyOfGrpcPeer(absl::string_view peer) {
  const bool is_v6 = absl::ConsumePrefix(&peer, "ipv6:");
  if (!is_v6 && !absl::ConsumePrefix(&peer, "ipv4:")) return "";
  // gRPC gives a URI, in which the brackets of an IPv6 address and the '%' before its zone are
  // percent-encoded.
  const std::string plain =
      absl::StrReplaceAll(peer, {{"%5B", "["}, {"%5D", "]"}, {"%5b", "["}, {"%5d", "]"}});
  const size_t colon = plain.rfind(':');
  if (colon == std::string::npos) return "";
  absl::string_view host = absl::string_view(plain).substr(0, colon);
  absl::ConsumePrefix(&host, "[");
  absl::ConsumeSuffix(&host, "]");
  host = host.substr(0, host.find('%'));
  return absl::StrCat(host, " ", plain.substr(colon + 1));
}

}  // namespace pushpull
