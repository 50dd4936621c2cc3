// Prints what a program was started for, such as the JSON of `detect`, so that a result that is
// lost is an error. Logs and progress go to stderr by other means and may be lost.
#ifndef PUSHPULL_COMMON_CLI_PRINT_RESULT_H_
#define PUSHPULL_COMMON_CLI_PRINT_RESULT_H_

#include <ostream>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

// Writes the text to `out`, which is std::cout or the stream of a test, and flushes it. Blocks as
// long as the stream does. FAILED_PRECONDITION: the text could not be written, for example because
// the disk is full, which IsPassing recognises. OK if the reader of a pipe has ended: it wants no
// more. Not thread-safe.
absl::Status PrintResult(std::ostream& out, absl::string_view text);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_PRINT_RESULT_H_
