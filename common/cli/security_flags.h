// The security flags of every program that is a parameter server or connects to one: --tls_ca,
// --tls_cert, --tls_key and --insecure. A program gets these flags by calling a function of this
// header. For the main thread only.
#ifndef PUSHPULL_COMMON_CLI_SECURITY_FLAGS_H_
#define PUSHPULL_COMMON_CLI_SECURITY_FLAGS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/wire/transport_security.h"

namespace pushpull {

// Reads the flags. Does not read the files; TransportCredentials::Create (common/wire/security)
// does. UsageError (exit code 64): some but not all of the three files are given, or files together
// with --insecure.
absl::StatusOr<TransportSecurity> TransportSecurityFromFlags();

// Calls CheckExposure and returns its error as a UsageError. With --insecure, logs a warning that
// names the first address beyond this machine.
absl::Status CheckAddresses(const TransportSecurity& security,
                            const std::vector<std::string>& addresses);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_SECURITY_FLAGS_H_
