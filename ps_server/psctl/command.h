// The commands of psctl, between its flags and a client of the coordinator.
#ifndef PUSHPULL_PS_SERVER_PSCTL_COMMAND_H_
#define PUSHPULL_PS_SERVER_PSCTL_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/ps_client.h"

namespace pushpull {

struct PsctlCommand {
  enum class Kind { kStatus, kCheckpoint, kDrain, kEvict, kStateList, kStateClean };
  enum class Output { kText, kJson };
  Kind kind = Kind::kStatus;
  Output output = Output::kText;
  uint32_t worker_id = 0;  // evict
  std::string reason;      // evict
  std::vector<std::string>
      state_files;  // kStateClean: names of files to remove besides the abandoned
  absl::Duration timeout = absl::Seconds(10);
};

struct PsctlFlags {
  std::string output = "text";
  int worker_id = -1;  // -1: not given
  std::string reason = "";
  absl::Duration timeout = absl::Seconds(10);
};

// arguments: what the command line has besides flags, "evict 2". INVALID_ARGUMENT with exit
// code 64.
absl::StatusOr<PsctlCommand> ParsePsctlCommand(const std::vector<std::string>& arguments,
                                               const PsctlFlags& flags);

// For every kind but those of state (state_command.h). Blocks for at most the timeout; returns what
// goes to stdout. Errors of the call, with the exit code they mean: 200 no answer (the address is
// named), 66 no such clone, 70 training was stopped.
absl::StatusOr<std::string> RunPsctlCommand(const PsctlCommand& command, PsClient* client);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_PSCTL_COMMAND_H_
