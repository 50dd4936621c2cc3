// Opening a file of a data set, and the error of a system call that reads such a file or a folder.
#ifndef PUSHPULL_WORKER_DATA_READ_ERROR_H_
#define PUSHPULL_WORKER_DATA_READ_ERROR_H_

#include <cstdio>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// Returns "<path>: cannot be read: <reason>" for an errno. NOT_FOUND: the path does not exist.
// INVALID_ARGUMENT: all others. IsPassing (common/base/passing_error.h) is true for errors that may
// pass, such as that of a disk or of a file server, so that the program's exit code says that a
// restart may help. Pure function.
absl::Status ReadError(absl::string_view path, int error);

using FileToRead = std::unique_ptr<std::FILE, int (*)(std::FILE*)>;

// Opens a file for reading. Errors as ReadError; INVALID_ARGUMENT also for what is not a regular
// file, such as a pipe, which might never be written.
absl::StatusOr<FileToRead> OpenToRead(const std::string& path);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_READ_ERROR_H_
