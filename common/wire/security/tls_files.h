// Reads and checks the three TLS files before gRPC uses them, so that a wrong file shows as a clear
// message and not as a failed handshake on another machine. All functions are thread-safe.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_TLS_FILES_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_TLS_FILES_H_

#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/wire/security/peer_identity.h"
#include "common/wire/transport_security.h"

namespace pushpull {

// What this process's certificate says.
struct OwnCertificate {
  PeerIdentity identity;
  absl::Time not_before;
  absl::Time not_after;
  std::string fingerprint;  // SHA-256 in hex; changes when the certificate is replaced

  // An authority, or a certificate between it and this one.
  struct Signer {
    std::string subject;
    absl::Time not_before;
    absl::Time not_after;
  };
  // The signer that expires first, if it expires before this certificate. From then on this one is
  // refused too.
  std::optional<Signer> first_to_expire;
};

// Checks the files and returns what the certificate says. Error messages name the file and what is
// wrong with it, but never quote the file.
//   NOT_FOUND: a file does not exist.
//   PERMISSION_DENIED: a file cannot be read, or the key's mode is too open (ReadSecurityFile).
//   INVALID_ARGUMENT: a file is not PEM, the key is encrypted or belongs to another certificate, or
//     the certificate is not valid at `now`, is not signed by an authority in the CA file, has no
//     identity, or has a key usage that does not fit its role (ps: server and client; others:
//     client).
// The message of a problem does not change with `now`.
absl::StatusOr<OwnCertificate> CheckTlsFiles(const TlsFiles& files, absl::Time now);

// Checks the files at the present time, for a process that starts. The files are replaced one after
// the other, so they do not fit together for a moment. If they are wrong and one of them has
// changed within the last 5 s, this function checks them again, for at most 5 s, before it returns
// the error.
absl::StatusOr<OwnCertificate> AwaitTlsFiles(const TlsFiles& files);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_TLS_FILES_H_
