#include "worker/data/read_error.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

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

absl::StatusOr<FileToRead> OpenToRead(const std::string& path) {
  // O_NONBLOCK keeps the opening of a pipe without a writer from blocking. It has no effect on
  // regular files.
  const int descriptor = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (descriptor < 0) return ReadError(path, errno);
  FileToRead file(::fdopen(descriptor, "rb"), std::fclose);
  struct stat info;
  if (file == nullptr || ::fstat(descriptor, &info) != 0) {
    const int error = errno;
    if (file == nullptr) ::close(descriptor);
    return ReadError(path, error);
  }
  if (!S_ISREG(info.st_mode)) {
    return absl::InvalidArgumentError(absl::StrCat(path, " is not a regular file"));
  }
  return file;
}

}  // namespace pushpull
