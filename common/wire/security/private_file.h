// Reads security-relevant files: certificates, private keys, the ps tasks' shared secret. All
// functions are thread-safe.
#ifndef PUSHPULL_COMMON_WIRE_SECURITY_PRIVATE_FILE_H_
#define PUSHPULL_COMMON_WIRE_SECURITY_PRIVATE_FILE_H_

#include <string>

#include "absl/status/statusor.h"

namespace pushpull {

enum class Secrecy { kPublic, kPrivate };

// Returns the contents of a file. Error messages say what is wrong, but contain neither the path
// nor anything from the file.
//   NOT_FOUND: there is no such file.
//   PERMISSION_DENIED: the file cannot be read, or `secrecy` is kPrivate and its mode is too open.
//     A private file may give no access to "others", and none to the group. The group may read it
//     if it belongs to root and this process runs as another user, as with a mounted Kubernetes
//     secret.
//   INTERNAL: the file cannot be read now, which may pass (common/base/passing_error.h).
//   INVALID_ARGUMENT: the file is not a regular file, or larger than 1 MiB.
absl::StatusOr<std::string> ReadSecurityFile(const std::string& path, Secrecy secrecy);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_SECURITY_PRIVATE_FILE_H_
