// Tells a ps task that hears nothing from task 0 whether it waits for nothing: task 0 may have
// ended with the run while this task was killed and started again.
#ifndef PUSHPULL_PS_SERVER_SERVICE_FINISHED_RUN_H_
#define PUSHPULL_PS_SERVER_SERVICE_FINISHED_RUN_H_

#include <optional>
#include <string>
#include <utility>

#include "absl/time/time.h"

#include "common/clock.h"
#include "common/file_system.h"
#include "ps_server/service/job_spec.h"

namespace pushpull {

// Used by one thread.
class FinishedRun {
 public:
  // files and clock must outlive it. patience: how long task 0 may be silent before train_dir is
  // read, and the pause between two reads.
  FinishedRun(FileSystem* files, Clock* clock, std::string train_dir, absl::Duration patience)
      : files_(files),
        clock_(clock),
        train_dir_(std::move(train_dir)),
        patience_(patience),
        next_look_(clock->Now() + patience) {}

  // The id (16 bytes) of the run whose newest checkpoint in train_dir is of the job's last step.
  // Nothing: the patience is not over, or there is no such checkpoint, or it cannot be read. Blocks
  // on the disk.
  std::optional<std::string> Look(const JobSpec& job);

 private:
  FileSystem* const files_;
  Clock* const clock_;
  const std::string train_dir_;
  const absl::Duration patience_;
  absl::Duration next_look_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_FINISHED_RUN_H_
