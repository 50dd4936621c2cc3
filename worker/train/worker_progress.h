// WorkerProgress puts the reports of a worker's clones together, for the progress line and for the
// summary at the end.
#ifndef PUSHPULL_WORKER_TRAIN_WORKER_PROGRESS_H_
#define PUSHPULL_WORKER_TRAIN_WORKER_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/time/time.h"

#include "common/cli/progress_line.h"
#include "worker/train/supervisor.h"

namespace pushpull {

// How much data the job trains on.
struct TrainingSize {
  int64_t num_examples = 0;  // of the data set; 0: unknown
  int64_t batch_size = 0;    // examples of one step, in all of its mini-batches
};

// Not thread-safe.
class WorkerProgress {
 public:
  explicit WorkerProgress(const TrainingSize& size) : size_(size) {}

  // For a job that has changed.
  void set_size(const TrainingSize& size) { size_ = size; }

  // Returns the progress of all clones together: the newest step, the sum of their rates, and the
  // means of the rest. Clones that are spares are left out unless all running clones are. Returns
  // nullopt if the worker waits; *waiting_for then says for what. Call it for every new state of
  // the clones.
  std::optional<Progress> Combine(const std::vector<CloneState>& clones, std::string* waiting_for);

  // Returns lines for the log about everything that Combine was called with, in the time that the
  // worker has run:
  //   contributed up to step 300 of 300 in 1m5s: 28800 images, 443 img/s
  //   last loss 0.025, accuracy 0.990
  // The server need not have applied the last of these steps. The images are those that this worker
  // has contributed; reports that were lost with a clone that died do not count.
  std::vector<std::string> Summary(absl::Duration time) const;

 private:
  // Returns the progress without regard to what the worker waits for, or nullopt before the first
  // step.
  std::optional<Progress> Merge(const std::vector<CloneState>& clones) const;
  void CountImages(const std::vector<CloneState>& clones);

  TrainingSize size_;
  std::optional<Progress> last_;        // the last result of Merge that is not nullopt
  std::vector<uint64_t> clone_images_;  // in the last report of each clone's process
  uint64_t earlier_images_ = 0;         // of processes that were replaced
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_WORKER_PROGRESS_H_
