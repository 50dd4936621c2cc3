// Exit codes of all programs, and how they follow from a status. Schedulers read them (Kubeflow's
// ExitCode policy, systemd's RestartPreventExitStatus): after a code below 128 a restart would fail
// in the same way, after 128 or more it may help. Pure functions.
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
  // Training was stopped by a failure such as a non-finite loss, or there is a bug, or the machine
  // cannot run the program, for example because its CPU lacks instructions.
  kExitInternal = 70,
  kExitEvicted = 77,    // an administrator has evicted this clone from the job
  kExitStopped = 143,   // SIGTERM or SIGINT, handled
  kExitPeerLost = 200,  // a peer, a file or a disk could not be used now; later they may be
  kExitGpuLost = 201,   // the GPU failed or others hold its memory; a new process may succeed
  // The server came back with other settings than the process began with; a new one takes them.
  kExitJobChanged = 202,
};

// Returns the code attached by WithExitCode. If there is none, the first of these decides:
//   - ps::ErrorDetail (common/wire/error_detail.h): STOPPED, a failure elsewhere in the job, gives
//     70, EVICTED 77 and JOB_CHANGED 202. Their status codes would say a signal and bad input;
//   - an error that may pass (common/base/passing_error.h) gives 200;
//   - the status code: OK 0; NOT_FOUND 66; INTERNAL and UNKNOWN 70; CANCELLED 143; UNAVAILABLE,
//     DEADLINE_EXCEEDED and ABORTED 200; all others 65.
ExitCode ExitCodeOf(const absl::Status& status);

// Returns `status` with an exit code attached, for errors whose status code would give the wrong
// exit code. `status` must not be OK.
absl::Status WithExitCode(absl::Status status, ExitCode code);

// Returns INVALID_ARGUMENT with kExitUsage, for flags that are wrong or contradict each other.
absl::Status UsageError(absl::string_view message);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CLI_EXIT_CODES_H_
