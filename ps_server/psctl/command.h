// The commands of psctl: parses the command line and calls the coordinator.
#ifndef PUSHPULL_PS_SERVER_PSCTL_COMMAND_H_
#define PUSHPULL_PS_SERVER_PSCTL_COMMAND_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/cluster/resolve_cluster.h"
#include "common/wire/ps_client.h"

namespace pushpull {

struct PsctlCommand {
  enum class Kind { kStatus, kCheckpoint, kDrain, kEvict, kScale, kStateList, kStateClean };
  enum class Output { kText, kJson };
  Kind kind = Kind::kStatus;
  Output output = Output::kText;
  uint32_t worker_id = 0;     // evict
  std::string reason;         // evict
  uint32_t num_replicas = 0;  // scale
  bool wait = false;          // scale: until a step with the new number is applied
  // kStateClean: files to remove in addition to the abandoned ones, by their names in the folder or
  // by the paths that kStateList shows.
  std::vector<std::string> state_files;
  // kStateList, kStateClean: the folder, which must exist; empty: the default one, which may be
  // missing.
  std::string state_dir;
  std::string address;  // of ps task 0, for the commands that contact a server
  absl::Duration timeout = absl::Seconds(10);
};

struct PsctlFlags {
  std::vector<std::string> ps = {kDefaultPsAddress};
  std::string output = "text";
  int worker_id = -1;  // -1: not given
  std::string reason = "";
  bool wait = false;
  std::string state_dir = "";  // empty: not given
  absl::Duration timeout = absl::Seconds(10);
};

// Returns the help: one line for each command.
std::string PsctlUsage();

// words: those of the command line that are not flags, for example "evict" and "2".
// INVALID_ARGUMENT, with exit code 64: the command line is wrong. The first address of flags.ps is
// checked as a worker checks it, if the command contacts a server.
absl::StatusOr<PsctlCommand> ParsePsctlCommand(const std::vector<std::string>& words,
                                               const PsctlFlags& flags);

// Runs every kind of command but kStateList and kStateClean, which state_command.h runs. Blocks
// for at most command.timeout, all calls and waits together. Returns the text for stdout. Returns
// the errors of the call, with these exit codes: 200: no answer (the message names the address);
// 66: no such clone; 70: training was stopped.
absl::StatusOr<std::string> RunPsctlCommand(const PsctlCommand& command, PsClient* client,
                                            Clock* clock);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_PSCTL_COMMAND_H_
