// Tested by tests/common/cli/main_support_test.cc.
#include "common/cli/exit_codes.h"

#include <optional>
#include <string>

#include "absl/strings/cord.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"

#include "common/base/passing_error.h"
#include "common/wire/error_detail.h"

namespace pushpull {
namespace {

constexpr char kExitCodeUrl[] = "pushpull/exit_code";

}  // namespace

ExitCode ExitCodeOf(const absl::Status& status) {
  if (status.ok()) return kExitDone;
  const auto payload = status.GetPayload(kExitCodeUrl);
  int code = 0;
  if (payload.has_value() && absl::SimpleAtoi(std::string(*payload), &code))
    return static_cast<ExitCode>(code);
  switch (GetErrorDetail(status).kind()) {
    case ps::ErrorDetail::STOPPED:
      return kExitInternal;
    case ps::ErrorDetail::EVICTED:
      return kExitEvicted;
    case ps::ErrorDetail::JOB_CHANGED:
      return kExitJobChanged;
    default:
      break;
  }
  if (IsPassing(status)) return kExitPeerLost;
  switch (status.code()) {
    case absl::StatusCode::kNotFound:
      return kExitMissingInput;
    case absl::StatusCode::kInternal:
    case absl::StatusCode::kUnknown:
      return kExitInternal;
    case absl::StatusCode::kCancelled:
      return kExitStopped;
    case absl::StatusCode::kUnavailable:
    case absl::StatusCode::kDeadlineExceeded:
    case absl::StatusCode::kAborted:
      return kExitPeerLost;
    default:
      return kExitBadInput;
  }
}

absl::Status WithExitCode(absl::Status status, ExitCode code) {
  status.SetPayload(kExitCodeUrl, absl::Cord(absl::StrCat(static_cast<int>(code))));
  return status;
}

absl::Status UsageError(absl::string_view message) {
  return WithExitCode(absl::InvalidArgumentError(message), kExitUsage);
}

}  // namespace pushpull
