// Says what the reason for which a server stops means for the job. Pure functions.
#ifndef PUSHPULL_PS_SERVER_CORE_STOP_REASON_H_
#define PUSHPULL_PS_SERVER_CORE_STOP_REASON_H_

#include "absl/status/status.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"

namespace pushpull {

// Returns whether the job goes on with another server: one that has taken the folder over
// (ABORTED), or one that is started after this one because the error may pass. Clones and other
// tasks then wait for that server. After all other reasons they are told that training was stopped.
inline bool AnotherServerGoesOn(const absl::Status& reason) {
  return absl::IsAborted(reason) || IsPassing(reason);
}

// Returns whether the job ended in order before training was done. STOPPED has the code CANCELLED
// too.
inline bool IsDrained(const absl::Status& end) {
  return absl::IsCancelled(end) && GetErrorDetail(end).kind() != ps::ErrorDetail::STOPPED;
}

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_STOP_REASON_H_
