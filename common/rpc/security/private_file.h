// Reads the files that security rests on: certificates, private keys, the ps tasks' shared secret.
#ifndef PUSHPULL_COMMON_RPC_SECURITY_PRIVATE_FILE_H_
#define PUSHPULL_COMMON_RPC_SECURITY_PRIVATE_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

enum class Secrecy { kPublic, kPrivate };

// The whole file. Errors say what is wrong, without the path and never what the file holds.
// NOT_FOUND: there is no such file. PERMISSION_DENIED: it cannot be read, or it is private and its
// mode lets others at it: any access for "others" is refused, and for the group too unless the file
// is root's and we are not (as a Kubernetes secret is mounted). INVALID_ARGUMENT: no regular file,
// or larger than 1 MiB.
absl::StatusOr<std::string> ReadSecurityFile(const std::string& path, Secrecy secrecy);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_RPC_SECURITY_PRIVATE_FILE_H_
