// FinishedRun tells a ps task that hears nothing from task 0 whether the run is finished. Task 0
// may have ended with the run while this task could not be told, because it was killed and
// restarted, frozen or cut off; the task would then wait in vain.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_FINISHED_RUN_H_
#define PUSHPULL_PS_SERVER_RUNTIME_FINISHED_RUN_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>

#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/base/stop_requested.h"
#include "ps_server/runtime/job_spec.h"

namespace pushpull {

// The end of a run: its id (16 bytes), and the step and the epoch of its last checkpoint, which was
// read whole.
struct EndOfRun {
  std::string run_id;
  uint64_t step = 0;
  uint64_t epoch = 0;
};

// Used by one thread at a time.
class FinishedRun {
 public:
  // `files` and `clock` must outlive the object. patience: time from construction to the first
  // read of train_dir, and the shortest time between two reads. A read ends early, without a
  // result, once stop_requested returns true.
  FinishedRun(FileSystem* files, Clock* clock, std::string train_dir, absl::Duration patience,
              StopRequested stop_requested = NeverStopped)
      : files_(files),
        clock_(clock),
        train_dir_(std::move(train_dir)),
        patience_(patience),
        stop_requested_(std::move(stop_requested)),
        next_look_(clock->Now() + patience) {}

  // Returns the end of the run if the newest checkpoint of train_dir's run is the final checkpoint
  // of the job. Returns nullopt if it is not, if it cannot be read, if train_dir has no run or
  // another one than `run_id` (16 bytes; empty: any), if the job has no last step, or if it is too
  // early for a read. Blocks on the disk when it reads: the manifests, and the whole checkpoint
  // only if the newest one says that the run is finished.
  std::optional<EndOfRun> Look(const JobSpec& job, absl::string_view run_id = {});

 private:
  FileSystem* const files_;
  Clock* const clock_;
  const std::string train_dir_;
  const absl::Duration patience_;
  const StopRequested stop_requested_;
  absl::Duration next_look_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_FINISHED_RUN_H_
