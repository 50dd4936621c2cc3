#include "worker/data/read_error.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/passing_error.h"

namespace pushpull {

absl::Status ReadError(absl::string_view path, int error) {
  const std::string message = absl::StrCat(path, ": cannot be read: ", std::strerror(error));
  if (error == ENOENT || error == ENOTDIR) return absl::NotFoundError(message);
  absl::Status status = absl::InvalidArgumentError(message);
  return IsPassingErrno(error) ? MarkPassing(std::move(status)) : status;
}

}  // namespace pushpull
