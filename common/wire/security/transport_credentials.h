// The gRPC credentials of a process: plaintext, or TLS 1.2 or newer with certificates on both
// sides. The certificate files may be replaced while the process runs.
//
// OpenSSL checks the signature, the dates and the purpose of a peer's certificate. In addition,
// ConnectionVerifier (transport_credentials.cc) checks that the certificate has an identity of the
// same job. A server's certificate must also have the role ps and be valid for the host of the
// address, except on unix sockets. This replaces gRPC's host name check, which does not know URIs.
//
// New connections use replaced files within seconds; open connections keep the old ones, up to
// TransportOptions::max_connection_age. Replace a file by renaming the new one over it. While the
// files do not fit together, new connections fail, and a warning is logged.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_TRANSPORT_CREDENTIALS_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_TRANSPORT_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/wire/security/peer_identity.h"
#include "common/wire/transport_security.h"

namespace pushpull {

// Thread-safe. A process has one for each purpose. It may be destroyed before the channels and
// servers that were made with it.
class TransportCredentials {
 public:
  virtual ~TransportCredentials() = default;

  // Never returns null. roles: the roles that the certificate may have; empty means any. Blocks for
  // at most 5 s, while files that do not fit together are being replaced. Errors: those of
  // AwaitTlsFiles, and INVALID_ARGUMENT if the certificate has another role.
  static absl::StatusOr<std::shared_ptr<const TransportCredentials>> Create(
      const TransportSecurity& security, const std::vector<PeerRole>& roles);

  // The identity in this process's certificate; nullopt in plaintext.
  virtual const std::optional<PeerIdentity>& identity() const = 0;
  bool encrypted() const { return identity().has_value(); }

  // address: that of the server, as given to the channel.
  virtual std::shared_ptr<grpc::ChannelCredentials> ForChannel(
      const std::string& address) const = 0;
  // With TLS, the credentials include an AccessProcessor.
  virtual std::shared_ptr<grpc::ServerCredentials> ForServer() const = 0;
};

// Checks before any call what a server would refuse later. INVALID_ARGUMENT: this process has a
// worker's certificate that does not cover all of `ids`.
absl::Status CheckOwnWorkerIds(const TransportCredentials& credentials, WorkerIdRange ids);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_TRANSPORT_CREDENTIALS_H_
