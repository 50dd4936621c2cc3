// FormatStatus formats the output of `psctl status`: the job, its step, the clones it waits for,
// and a table of its clones.
#ifndef PUSHPULL_PS_SERVER_PSCTL_STATUS_TEXT_H_
#define PUSHPULL_PS_SERVER_PSCTL_STATUS_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Every line ends with a newline. Control characters in names that clones sent are replaced by
// '?'. address: of the server, for the first line. Thread-safe.
std::string FormatStatus(const ps::StatusReply& status, absl::string_view address);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_PSCTL_STATUS_TEXT_H_
