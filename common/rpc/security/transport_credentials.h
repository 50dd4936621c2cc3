// gRPC credentials of a process: plaintext, or TLS 1.2 and newer with certificates on both sides,
// from files that may be replaced while it runs.
//
// Of a peer's certificate OpenSSL checks the signature, the dates and the key's purpose; we check
// that it names an identity of our own job and, of a server, that it is a ps certificate for the
// host of the address (not asked of unix sockets). gRPC's own check of host names knows no URIs, so
// ours stands in for it (ConnectionVerifier, transport_credentials.cc).
//
// Files that change are taken within seconds for new connections; open ones stay, up to
// TransportOptions::max_connection_age. Replace files by renaming new ones over them. Files that do
// not fit together make new connections fail until they do; a warning says so.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_TRANSPORT_CREDENTIALS_H_
#define PUSHPULL_COMMON_RPC_SECURITY_TRANSPORT_CREDENTIALS_H_

#include <grpcpp/security/credentials.h>
#include <grpcpp/security/server_credentials.h>

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

#include "common/rpc/security/peer_identity.h"
#include "common/transport_security.h"

namespace pushpull {

// Thread-safe. One per process and purpose; channels and servers keep what they need of it alive.
class TransportCredentials {
 public:
  virtual ~TransportCredentials() = default;

  // Errors as CheckTlsFiles; also INVALID_ARGUMENT when the certificate's role is not among `roles`
  // (empty: any). Never null.
  static absl::StatusOr<std::shared_ptr<const TransportCredentials>> Create(
      const TransportSecurity& security, const std::vector<PeerRole>& roles);

  // Who we are; none in plaintext.
  virtual const std::optional<PeerIdentity>& identity() const = 0;
  bool encrypted() const { return identity().has_value(); }

  virtual std::shared_ptr<grpc::ChannelCredentials> ForChannel(
      const std::string& address) const = 0;
  // With an AccessProcessor where there is TLS.
  virtual std::shared_ptr<grpc::ServerCredentials> ForServer() const = 0;
};

// INVALID_ARGUMENT when the certificate, if any, does not name all of these worker_ids: what a
// server would answer later, said before.
absl::Status CheckOwnWorkerIds(const TransportCredentials& credentials, WorkerIdRange ids);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_TRANSPORT_CREDENTIALS_H_
