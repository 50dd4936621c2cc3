// The error of a system call that reads a file or a folder of a data set.
#ifndef PUSHPULL_WORKER_DATA_READ_ERROR_H_
#define PUSHPULL_WORKER_DATA_READ_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// Returns "<path>: cannot be read: <reason>" for an errno. NOT_FOUND: the path does not exist.
// INVALID_ARGUMENT: all others. IsPassing (common/base/passing_error.h) is true for errors that may
// pass, such as that of a disk or of a file server, so that the program's exit code says that a
// restart may help. Pure function.
absl::Status ReadError(absl::string_view path, int error);

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_DATA_READ_ERROR_H_
