// Says how the parameter server's port is protected: by mutual TLS, or deliberately not at all.
// Only plain values and rules about addresses; common/wire/security does the rest. Thread-safe.
#ifndef PUSHPULL_COMMON_WIRE_TRANSPORT_SECURITY_H_
#define PUSHPULL_COMMON_WIRE_TRANSPORT_SECURITY_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// How the address of a Unix socket begins; its path follows.
inline constexpr absl::string_view kUnixPrefix = "unix:";

// Returns the path of "unix:/path". INVALID_ARGUMENT: no server can bind a socket there, or no
// client can reach it, because the path is empty, longer than 107 bytes or not UTF-8, begins with
// two slashes, or has one of the characters # % , ? NUL, which gRPC does not take as they are. The
// message says which and what to do; the caller adds where the address comes from.
absl::StatusOr<std::string> UnixSocketPath(absl::string_view address);

// Paths of PEM files. Flags and logs carry only the paths, never the contents.
struct TlsFiles {
  std::string ca;    // the authorities whose certificates are accepted from peers
  std::string cert;  // this process's certificate, followed by those of its issuers
  // The private key of `cert`. Must be readable by its owner alone; the group may read it if root
  // owns it (common/wire/security/private_file.h).
  std::string key;
};

// Filled by TransportSecurityFromFlags (common/cli/security_flags.h).
struct TransportSecurity {
  std::optional<TlsFiles> tls = {};  // nullopt: plaintext
  bool insecure = false;             // --insecure allows plaintext beyond this machine
};

// Returns true for unix:..., "localhost" and numeric loopback addresses, with or without a port.
// Never resolves another name, because its address may change later.
bool IsLocalAddress(absl::string_view address);

// Returns true if the address has a host name, which is looked up, and neither a numeric address
// nor a path.
bool HasHostName(absl::string_view address);

// Returns the address of another ps task for a client that reaches task 0 at `address_of_task_0`.
// `announced` is what task 0 says in GetJob. Tasks that listen on all addresses of their machine
// (0.0.0.0 or [::]) do not know under which one a client reaches it; they are in one process with
// task 0, so that its host is theirs.
std::string AddressOfTask(const std::string& announced, const std::string& address_of_task_0);

// Checks that plaintext does not leave this machine unless security.insecure allows it.
// FAILED_PRECONDITION: it would; the message has the address and what to do about it.
absl::Status CheckExposure(const TransportSecurity& security,
                           const std::vector<std::string>& addresses);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_TRANSPORT_SECURITY_H_
