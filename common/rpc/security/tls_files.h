// Reads and checks the three files of TLS before anything uses them, so that a wrong one is named
// by a message and not by a handshake that fails somewhere else. Thread-safe.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_TLS_FILES_H_
#define PUSHPULL_COMMON_RPC_SECURITY_TLS_FILES_H_

#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/rpc/security/peer_identity.h"
#include "common/transport_security.h"

namespace pushpull {

struct OwnCertificate {
  PeerIdentity identity;
  absl::Time not_before;
  absl::Time not_after;
  std::string fingerprint;  // SHA-256 in hex: tells a replaced certificate from the one before
};

// Every error names the file and what is wrong with it, never what it holds. NOT_FOUND: there is no
// such file. PERMISSION_DENIED: it cannot be read, or others may read the key: any access for
// "others" is refused, and for the group too unless the file is root's and we are not (as a
// Kubernetes secret is mounted). INVALID_ARGUMENT: no PEM, encrypted key, key of another
// certificate, outside its dates at `now`, not signed by an authority in the CA file, no identity,
// or a key usage that does not fit the role (ps: server and client; others: client).
absl::StatusOr<OwnCertificate> CheckTlsFiles(const TlsFiles& files, absl::Time now);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_TLS_FILES_H_
