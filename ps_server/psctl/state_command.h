// Runs `psctl state list` and `psctl state clean`, which show and remove mapped state on this
// machine. They need no server.
#ifndef PUSHPULL_PS_SERVER_PSCTL_STATE_COMMAND_H_
#define PUSHPULL_PS_SERVER_PSCTL_STATE_COMMAND_H_

#include <string>

#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "ps_server/psctl/command.h"

namespace pushpull {

// command.kind: kStateList or kStateClean. default_folder: the folder of the state files if
// command.state_dir is empty. Returns the text for stdout: a table, or a JSON array with one object
// per file. Blocks on the disk. None of these errors removes a file. NOT_FOUND: there is no folder
// command.state_dir, or clean names a file that is not in the folder. FAILED_PRECONDITION: clean
// names a file that is in use.
absl::StatusOr<std::string> RunStateCommand(const PsctlCommand& command, FileSystem& files,
                                            const std::string& default_folder);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_PSCTL_STATE_COMMAND_H_
