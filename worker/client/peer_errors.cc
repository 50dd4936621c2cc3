// Tested by tests/worker/client/ps_session_test.cc.
#include "worker/client/peer_errors.h"

#include "absl/strings/cord.h"

#include "common/wire/error_detail.h"

namespace pushpull {
namespace {

constexpr char kPeerLost[] = "pushpull/peer_lost";

}  // namespace

absl::Status MarkPeerLost(absl::Status error) {
  error.SetPayload(kPeerLost, absl::Cord("1"));
  return error;
}

bool IsPeerLost(const absl::Status& status) { return status.GetPayload(kPeerLost).has_value(); }

bool IsTransient(const absl::Status& status) {
  if (IsPeerLost(status)) return false;
  const ps::ErrorDetail::Kind kind = GetErrorDetail(status).kind();
  if (kind == ps::ErrorDetail::NOT_READY || kind == ps::ErrorDetail::DRAINING) return true;
  return kind == ps::ErrorDetail::UNKNOWN &&
         (absl::IsUnavailable(status) || absl::IsDeadlineExceeded(status));
}

}  // namespace pushpull
