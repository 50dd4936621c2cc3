// Converts between absl::Status and grpc::Status. All functions are thread-safe.
//
// The codes have the same numbers. A ps::ErrorDetail travels where gRPC's rich error model puts it:
// as the only Any of a google.rpc.Status in "grpc-status-details-bin". Clients in other languages
// can therefore read it with the libraries they have. The mark of an error that may pass
// (common/base/passing_error.h) travels as a field of it.
#ifndef PUSHPULL_COMMON_WIRE_GRPC_STATUS_MAPPING_H_
#define PUSHPULL_COMMON_WIRE_GRPC_STATUS_MAPPING_H_

#include <grpcpp/support/status.h>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// Cuts very long messages (and drops a very long variable name from the detail): trailers have a
// size limit, and a call whose trailers exceed it loses its error.
grpc::Status ToGrpcStatus(const absl::Status& status);

// `context`, such as "Push to 127.0.0.1:2222", is put before the message of an error. Unknown codes
// become UNKNOWN. Malformed details are ignored.
absl::Status FromGrpcStatus(const grpc::Status& status, absl::string_view context);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_WIRE_GRPC_STATUS_MAPPING_H_
