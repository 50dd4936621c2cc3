// Tested by tests/common/wire/grpc/status_mapping_test.cc.
#include "common/wire/error_detail.h"

#include <optional>

#include "absl/strings/cord.h"

namespace pushpull {
namespace {

constexpr char kTypeUrl[] = "pushpull/ps.ErrorDetail";

absl::StatusCode CodeOf(ps::ErrorDetail::Kind kind) {
  switch (kind) {
    case ps::ErrorDetail::WRONG_RUN:
    case ps::ErrorDetail::LAYOUT_MISMATCH:
    case ps::ErrorDetail::VERSION_GONE:
    case ps::ErrorDetail::JOB_CHANGED:
      return absl::StatusCode::kFailedPrecondition;
    case ps::ErrorDetail::EPOCH_CHANGED:
    case ps::ErrorDetail::STALE:
      return absl::StatusCode::kAborted;
    case ps::ErrorDetail::STEP_TOO_NEW:
      return absl::StatusCode::kOutOfRange;
    case ps::ErrorDetail::FENCED:
    case ps::ErrorDetail::EVICTED:
      return absl::StatusCode::kPermissionDenied;
    case ps::ErrorDetail::CHUNK_CONFLICT:
      return absl::StatusCode::kAlreadyExists;
    case ps::ErrorDetail::BAD_CHUNK:
    case ps::ErrorDetail::NON_FINITE:
      return absl::StatusCode::kInvalidArgument;
    case ps::ErrorDetail::BAD_CHECKSUM:
      return absl::StatusCode::kDataLoss;
    case ps::ErrorDetail::DRAINING:
    case ps::ErrorDetail::NOT_READY:
      return absl::StatusCode::kUnavailable;
    case ps::ErrorDetail::STOPPED:
      return absl::StatusCode::kCancelled;
    default:
      return absl::StatusCode::kUnknown;
  }
}

}  // namespace

absl::Status MakeError(ps::ErrorDetail detail, absl::string_view message) {
  absl::Status status(CodeOf(detail.kind()), message);
  AttachErrorDetail(detail, &status);
  return status;
}

ps::ErrorDetail GetErrorDetail(const absl::Status& status) {
  ps::ErrorDetail detail;
  const auto payload = status.GetPayload(kTypeUrl);
  if (payload.has_value() && !detail.ParseFromString(std::string(*payload))) detail.Clear();
  return detail;
}

void AttachErrorDetail(const ps::ErrorDetail& detail, absl::Status* status) {
  status->SetPayload(kTypeUrl, absl::Cord(detail.SerializeAsString()));
}

}  // namespace pushpull
