// `psctl state list` and `psctl state clean`: mapped state on this machine, without a server.
#ifndef PUSHPULL_PS_SERVER_PSCTL_STATE_COMMAND_H_
#define PUSHPULL_PS_SERVER_PSCTL_STATE_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"

#include "common/file_system.h"
#include "ps_server/psctl/command.h"

namespace pushpull {

// command.kind: kStateList or kStateClean. Returns what goes to stdout: a table, or a JSON array
// with one object per file. NOT_FOUND: clean names a file that the folder does not have.
// FAILED_PRECONDITION: clean names a file that is in use; nothing is removed then.
absl::StatusOr<std::string> RunStateCommand(const PsctlCommand& command, FileSystem& files,
                                            const std::string& folder);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_PSCTL_STATE_COMMAND_H_
