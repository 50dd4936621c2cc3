// Keeps best_checkpoint, the file that names the checkpoint with the highest metric, up to date.
// Retention never deletes that checkpoint.
//
// Thread rule: not thread-safe. All methods that return a status block on the disk.
#ifndef PUSHPULL_WORKER_EVAL_BEST_RECORDER_H_
#define PUSHPULL_WORKER_EVAL_BEST_RECORDER_H_

#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "common/checkpoint/retention.h"

namespace pushpull {

class BestRecorder {
 public:
  // The file is in `eval_dir`, which is created if it is missing when a measurement is recorded.
  // `files` must outlive the recorder.
  BestRecorder(FileSystem* files, std::string checkpoint_dir, std::string eval_dir);

  // Adds the measurement of a checkpoint, with its run_id and epoch; the value is not NaN. Settle
  // decides about it.
  void Add(BestCheckpoint measured) { unsettled_.push_back(std::move(measured)); }

  // Compares each measurement that is not settled yet with the recorded best, and records it if it
  // is better, of another metric, or a new measurement of the recorded checkpoint. The file is read
  // before each comparison, because another evaluator may have written it. A recorded checkpoint
  // does not count if it is gone or damaged, if its step is now that of another run or epoch, or if
  // it is of another run than the run_id file of checkpoint_dir names, and neither does a file that
  // is malformed.
  // An error: a file cannot be read or written now. The measurement stays unsettled; call again.
  absl::Status Settle();

  // Makes the next measurement that can be recorded replace the recorded best, whatever its value:
  // the values do not compare, because the evaluation has changed.
  void ReplaceRecorded() { replaces_recorded_ = true; }

  bool settled() const { return unsettled_.empty(); }

  // Returns the best checkpoint that Settle found in the file or wrote; nullopt: none yet.
  const std::optional<BestCheckpoint>& best() const { return best_; }

  // Forgets the best checkpoint and what is not settled. The file stays as it is.
  void Forget();

 private:
  absl::StatusOr<std::optional<BestCheckpoint>> ReadRecorded() const;
  absl::Status Record(const BestCheckpoint& measured);

  FileSystem* const files_;
  const std::string checkpoint_dir_;
  const std::string eval_dir_;
  std::vector<BestCheckpoint> unsettled_;  // in the order in which they were measured
  std::optional<BestCheckpoint> best_;
  bool replaces_recorded_ = false;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_BEST_RECORDER_H_
