#include "common/cli/print_result.h"

#include <cerrno>
#include <cstring>
#include <utility>

#include "absl/strings/str_cat.h"

#include "common/base/passing_error.h"

namespace pushpull {

absl::Status PrintResult(std::ostream& out, absl::string_view text) {
  errno = 0;
  out << text << std::flush;
  if (out.good() || errno == EPIPE) return absl::OkStatus();
  const int error = errno == 0 ? EIO : errno;
  absl::Status status = absl::FailedPreconditionError(
      absl::StrCat("the result cannot be written to stdout: ", std::strerror(error)));
  return IsPassingErrno(error) ? MarkPassing(std::move(status)) : status;
}

}  // namespace pushpull
