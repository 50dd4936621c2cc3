// How the parameter server's port is protected: TLS with certificates on both sides, or a decision
// against it. Plain values and rules about addresses; common/rpc/security does the rest.
#ifndef PUSHPULL_COMMON_TRANSPORT_SECURITY_H_
#define PUSHPULL_COMMON_TRANSPORT_SECURITY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// Paths of PEM files. Only paths travel through flags and logs, never what the files hold.
struct TlsFiles {
  std::string ca;    // certificates of the authorities that peers are accepted from
  std::string cert;  // our certificate, its issuers behind it
  std::string key;   // its private key; nobody but its owner may read it
};

// Filled by TransportSecurityFromFlags (common/cli/security_flags.h).
struct TransportSecurity {
  std::optional<TlsFiles> tls = {};  // none: plaintext
  bool insecure = false;             // --insecure: plaintext also beyond this machine
};

// True for unix:..., "localhost" and numeric loopback addresses, with or without a port. Other
// names are never resolved: what they stand for may change.
bool IsLocalAddress(absl::string_view address);

// FAILED_PRECONDITION, naming the address and the ways out, when plaintext would leave this machine
// and nobody has said that this is meant.
absl::Status CheckExposure(const TransportSecurity& security,
                           const std::vector<std::string>& addresses);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_TRANSPORT_SECURITY_H_
