// WorkerProgress puts the reports of a worker's clones together, for the progress line.
#ifndef PUSHPULL_WORKER_TRAIN_WORKER_PROGRESS_H_
#define PUSHPULL_WORKER_TRAIN_WORKER_PROGRESS_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "common/cli/progress_line.h"
#include "worker/train/supervisor.h"

namespace pushpull {

// How much data the job trains on.
struct TrainingSize {
  int64_t num_examples = 0;  // of the data set; 0: unknown
  int64_t batch_size = 0;    // examples of one step
};

// Not thread-safe.
class WorkerProgress {
 public:
  explicit WorkerProgress(const TrainingSize& size) : size_(size) {}

  // Returns the progress of all clones together: the newest step, the sum of their rates, and the
  // means of the rest. Returns nullopt if the worker waits; *waiting_for then says for what.
  std::optional<Progress> Combine(const std::vector<CloneState>& clones,
                                  std::string* waiting_for) const;

 private:
  const TrainingSize size_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_TRAIN_WORKER_PROGRESS_H_
