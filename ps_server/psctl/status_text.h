// What `psctl status` shows people: the job, its step, for whom it waits, and a table of its
// clones.
#ifndef PUSHPULL_PS_SERVER_PSCTL_STATUS_TEXT_H_
#define PUSHPULL_PS_SERVER_PSCTL_STATUS_TEXT_H_

#include <string>

#include "absl/strings/string_view.h"

#include "protos/parameter_server.pb.h"

namespace pushpull {

// Lines that end with a newline each. Names that came from clones are printed without their control
// characters.
std::string FormatStatus(const ps::StatusReply& status, absl::string_view address);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_PSCTL_STATUS_TEXT_H_
