// Carries a ps::ErrorDetail inside an absl::Status, so that a program can tell errors of the same
// code apart. common/wire/grpc/status_mapping.h carries it through RPCs as well. Pure functions.
#ifndef PUSHPULL_COMMON_WIRE_ERROR_DETAIL_H_
#define PUSHPULL_COMMON_WIRE_ERROR_DETAIL_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Returns a status with `detail` attached. Its code is the one that parameter_server.proto assigns
// to detail.kind().
absl::Status MakeError(ps::ErrorDetail detail, absl::string_view message);

// Returns the attached detail. Without one, or if it does not parse, its kind is UNKNOWN.
ps::ErrorDetail GetErrorDetail(const absl::Status& status);

// Attaches `detail` and leaves the code of `status` as it is. For the receiving side of an RPC,
// where the code has arrived with the reply.
void AttachErrorDetail(const ps::ErrorDetail& detail, absl::Status* status);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_ERROR_DETAIL_H_
