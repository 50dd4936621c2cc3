#include "common/wire/transport_security.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/un.h>

#include <cstdint>
#include <utility>

#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/strip.h"

#include "common/base/utf8.h"

namespace pushpull {
namespace {

// Returns the host of "host:port", "[v6]:port", "[v6]", "v6" or "host".
absl::string_view HostOf(absl::string_view address) {
  if (absl::StartsWith(address, "[")) {
    const size_t end = address.find(']');
    return end == absl::string_view::npos ? address : address.substr(1, end - 1);
  }
  const size_t colon = address.find(':');
  const bool one_colon = colon != absl::string_view::npos && colon == address.rfind(':');
  return one_colon ? address.substr(0, colon) : address;
}

// Splits "host:port" and "[v6]:port" before the port's colon. Without a port, all of the address is
// the host.
std::pair<absl::string_view, absl::string_view> SplitPort(absl::string_view address) {
  const size_t colon = address.rfind(':');
  if (colon == absl::string_view::npos || absl::EndsWith(address, "]")) return {address, ""};
  return {address.substr(0, colon), address.substr(colon)};
}

// Whether a server that listens at this host listens on all addresses of its machine.
bool IsWildcard(absl::string_view host) {
  if (absl::ConsumePrefix(&host, "[")) absl::ConsumeSuffix(&host, "]");
  in_addr v4{};
  if (inet_pton(AF_INET, std::string(host).c_str(), &v4) == 1) return v4.s_addr == INADDR_ANY;
  in6_addr v6{};
  return inet_pton(AF_INET6, std::string(host).c_str(), &v6) == 1 && IN6_IS_ADDR_UNSPECIFIED(&v6);
}

}  // namespace

absl::StatusOr<std::string> UnixSocketPath(absl::string_view address) {
  constexpr size_t kMaxBytes = sizeof(sockaddr_un::sun_path) - 1;
  constexpr absl::string_view kReserved("#%,?\0", 5);
  const absl::string_view path = absl::StripPrefix(address, kUnixPrefix);
  const auto refuse = [](absl::string_view why) {
    return absl::InvalidArgumentError(absl::StrCat("the path of the Unix socket ", why));
  };
  if (path.empty()) return refuse("is empty, expected unix:/path");
  if (path.size() > kMaxBytes) {
    return refuse(absl::StrCat("has ", path.size(), " bytes, allowed are 1 to ", kMaxBytes,
                               "; choose a shorter one"));
  }
  if (const size_t bad = path.find_first_of(kReserved); bad != absl::string_view::npos) {
    return refuse(absl::StrCat("has the character ", absl::CEscape(path.substr(bad, 1)),
                               ", with which no client can reach it; choose a path without any of "
                               "# % , ?"));
  }
  // unix:///path is an absolute path; gRPC takes what follows two slashes for a host.
  if (absl::StartsWith(path, "//") && !absl::StartsWith(path, "///")) {
    return refuse("begins with two slashes; leave one out");
  }
  if (!IsUtf8(path)) return refuse("is not UTF-8; choose one that is");
  return std::string(path);
}

std::string AddressOfTask(const std::string& announced, const std::string& address_of_task_0) {
  if (absl::StartsWith(address_of_task_0, kUnixPrefix)) return announced;
  const auto [host, port] = SplitPort(announced);
  if (!IsWildcard(host)) return announced;
  return absl::StrCat(SplitPort(address_of_task_0).first, port);
}

bool IsLocalAddress(absl::string_view address) {
  if (absl::StartsWith(address, kUnixPrefix)) return true;
  const std::string host(HostOf(address));
  if (absl::EqualsIgnoreCase(host, "localhost")) return true;
  in_addr v4{};
  if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
  in6_addr v6{};
  if (inet_pton(AF_INET6, host.c_str(), &v6) != 1) return false;
  if (IN6_IS_ADDR_V4MAPPED(&v6)) return v6.s6_addr[12] == 127;
  return IN6_IS_ADDR_LOOPBACK(&v6) != 0;
}

bool HasHostName(absl::string_view address) {
  if (absl::StartsWith(address, kUnixPrefix)) return false;
  const std::string host(HostOf(address));
  in6_addr any{};  // large enough for both families
  return inet_pton(AF_INET, host.c_str(), &any) != 1 &&
         inet_pton(AF_INET6, host.c_str(), &any) != 1;
}

absl::Status CheckExposure(const TransportSecurity& security,
                           const std::vector<std::string>& addresses) {
  if (security.tls.has_value() || security.insecure) return absl::OkStatus();
  for (const std::string& address : addresses) {
    if (IsLocalAddress(address)) continue;
    return absl::FailedPreconditionError(absl::StrCat(
        "the address ", address,
        " is not of this machine alone, and without TLS everybody who reaches it can read and "
        "change the training: give --tls_ca, --tls_cert and --tls_key (scripts/make_certs.sh makes "
        "them), stay on 127.0.0.1 or unix:/path, or say --insecure in a network that you trust"));
  }
  return absl::OkStatus();
}

}  // namespace pushpull
