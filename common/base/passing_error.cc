#include "common/base/passing_error.h"

#include <errno.h>

#include <utility>

#include "absl/strings/cord.h"

namespace pushpull {
namespace {

constexpr char kMayPassUrl[] = "pushpull/may_pass";

}  // namespace

absl::Status MarkPassing(absl::Status status) {
  status.SetPayload(kMayPassUrl, absl::Cord("1"));
  return status;
}

bool IsPassing(const absl::Status& status) { return status.GetPayload(kMayPassUrl).has_value(); }

bool IsPassingErrno(int error) {
  switch (error) {
    case ENOSPC:
    case EDQUOT:
    case EIO:
    case EROFS:  // the kernel makes a file system read-only after an error
    case EBUSY:
    case ENFILE:
    case ENOMEM:
    case ENOLCK:
    case EAGAIN:
    case EINTR:
    // Network file systems and file systems in user space.
    case ESTALE:
    case ETIMEDOUT:
    case ENOTCONN:
    case EHOSTDOWN:
    case EREMOTEIO:
      return true;
    default:
      return false;
  }
}

absl::Status Annotated(const absl::Status& from, absl::string_view message) {
  absl::Status result(from.code(), message);
  from.ForEachPayload([&result](absl::string_view url, const absl::Cord& payload) {
    result.SetPayload(url, payload);
  });
  return result;
}

}  // namespace pushpull
