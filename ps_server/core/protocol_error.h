// Builds the protocol's errors that carry an epoch or a step (common/wire/error_detail.h).
#ifndef PUSHPULL_PS_SERVER_CORE_PROTOCOL_ERROR_H_
#define PUSHPULL_PS_SERVER_CORE_PROTOCOL_ERROR_H_

#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

#include "common/wire/error_detail.h"

namespace pushpull {

// `epoch` is the epoch to go on with. `step` is the current version or the step expected. Pass 0
// for one that does not help the peer.
inline absl::Status ProtocolError(ps::ErrorDetail::Kind kind, uint64_t epoch, uint64_t step,
                                  absl::string_view message) {
  ps::ErrorDetail detail;
  detail.set_kind(kind);
  detail.set_epoch(epoch);
  detail.set_step(step);
  return MakeError(detail, message);
}

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_PROTOCOL_ERROR_H_
