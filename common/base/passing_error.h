// Marks errors that may pass although nothing in the program, its config or its data changes, such
// as a full disk: a process that is started again later may succeed. The mark is a payload of the
// status, because the code cannot tell: a full disk is RESOURCE_EXHAUSTED, and so is a message that
// is too large. Pure functions.
#ifndef PUSHPULL_COMMON_BASE_PASSING_ERROR_H_
#define PUSHPULL_COMMON_BASE_PASSING_ERROR_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// Returns `status` with the mark. An OK status stays as it is.
absl::Status MarkPassing(absl::Status status);

// Returns whether `status` has the mark.
bool IsPassing(const absl::Status& status);

// Returns whether a system call that failed with this errno may succeed later without a change of
// its arguments: the disk is full, broken or read-only, a server of files does not answer, or the
// machine has no memory or descriptors left. A missing file, a missing permission, a file that is
// too large and the process's own limit of open files (EMFILE) are none of these.
bool IsPassingErrno(int error);

// Returns an error with the code and all payloads of `from`, among them the mark, and another
// message. Use this function to add to a message: a status that is made from the code alone loses
// the mark.
absl::Status Annotated(const absl::Status& from, absl::string_view message);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_BASE_PASSING_ERROR_H_
