// The flags of every program that speaks to or as a parameter server: --tls_ca, --tls_cert,
// --tls_key, --insecure. Main thread only. A program has them once its main calls these functions.
#ifndef PUSHPULL_COMMON_CLI_SECURITY_FLAGS_H_
#define PUSHPULL_COMMON_CLI_SECURITY_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/transport_security.h"

namespace pushpull {

// UsageError (64): some but not all of the three files, or files together with --insecure. The
// files themselves are checked by TransportCredentials::Create (common/rpc/security).
absl::StatusOr<TransportSecurity> TransportSecurityFromFlags();

// CheckExposure as a UsageError; with --insecure a warning names the first address that is not of
// this machine.
absl::Status CheckAddresses(const TransportSecurity& security,
                            const std::vector<std::string>& addresses);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_SECURITY_FLAGS_H_
