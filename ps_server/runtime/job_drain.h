// Drains the job from a ps task whose process does not have the coordinator: the task asks task 0
// until the job has ended.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_JOB_DRAIN_H_
#define PUSHPULL_PS_SERVER_RUNTIME_JOB_DRAIN_H_

#include <functional>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/base/clock.h"

namespace pushpull {

// How long task 0 in another process may stay silent before this task counts it as gone.
inline constexpr absl::Duration kSilentCoordinator = absl::Seconds(5);

// Calls `ask`, which asks task 0 to drain the job, again and again. Returns an empty string once
// the job has ended. Otherwise it returns why this task has to end without the job: task 0 has been
// silent for kSilentCoordinator, it has not ended the job within 28 seconds, it serves another run
// (the answer is WRONG_RUN), or another process has this task (FENCED). In all cases but the last
// it adds that steps may be in this task's mapped state only. Blocks. await_end: waits until the
// job has ended, for at most the given time, and returns whether it has.
std::string DrainThroughTask0(const std::function<absl::Status()>& ask,
                              const std::function<bool(absl::Duration)>& await_end, Clock* clock);

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_JOB_DRAIN_H_
