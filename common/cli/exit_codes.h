// What a process ends with. Schedulers read it: below 128 a restart would fail the same way, from
// 128 on it may help (Kubeflow's ExitCode policy, systemd's RestartPreventExitStatus).
#ifndef PUSHPULL_COMMON_CLI_EXIT_CODES_H_
#define PUSHPULL_COMMON_CLI_EXIT_CODES_H_

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace pushpull {

enum ExitCode : int {
  kExitDone = 0,
  kExitUsage = 64,         // bad flags
  kExitBadInput = 65,      // bad config or data
  kExitMissingInput = 66,  // a file or folder that does not exist
  kExitInternal = 70,      // an inconsistency of our own, or a machine that cannot run us
  kExitEvicted = 77,       // an operator has taken this clone out of the job
  kExitStopped = 143,      // SIGTERM or SIGINT, handled
  kExitPeerLost = 200,     // a peer was not reached before the deadline
  kExitGpuLost = 201,      // the GPU failed under the process; another one may have it again
};

// The code attached by WithExitCode, else by the status: OK 0; NOT_FOUND 66; INTERNAL and UNKNOWN
// 70; CANCELLED 143; UNAVAILABLE, DEADLINE_EXCEEDED and ABORTED 200; every other 65.
ExitCode ExitCodeOf(const absl::Status& status);

// The status with a code of its own, for cases that its kind does not tell apart.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// INVALID_ARGUMENT with kExitUsage: flags that are wrong or contradict each other.
absl::Status UsageError(absl::string_view message);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_EXIT_CODES_H_
