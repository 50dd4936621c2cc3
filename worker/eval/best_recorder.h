// Keeps best_checkpoint, the file that names the checkpoint with the highest metric, up to date.
// Retention never deletes that checkpoint.
//
// Thread rule: not thread-safe. All methods that return a status block on the disk.
#ifndef PUSHPULL_WORKER_EVAL_BEST_RECORDER_H_
#define PUSHPULL_WORKER_EVAL_BEST_RECORDER_H_

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

#include "common/base/file_system.h"
#include "common/checkpoint/retention.h"

namespace pushpull {

class BestRecorder {
 public:
  // The file is in `eval_dir`, which is created if it is missing when a measurement is recorded.
  // `config_digest` is the EvaluationDigest of the config with which all measurements are made;
  // empty: not known, so that all values compare. `files` must outlive the recorder.
  BestRecorder(FileSystem* files, std::string checkpoint_dir, std::string eval_dir,
               std::string config_digest);

  // Adds the measurement of a checkpoint, with its run_id and epoch; the value is not NaN. Settle
  // decides about it.
  void Add(BestCheckpoint measured) { unsettled_.push_back(std::move(measured)); }

  // Returns the step of the recorded checkpoint if its value was measured with another config, so
  // that it does not compare; nullopt: there is none. Measure this checkpoint first: it stays
  // recorded, and protected from deletion, until then. Errors as Settle.
  absl::StatusOr<std::optional<uint64_t>> StepToMeasureAnew() const;

  // Makes the record of `step` with another config count as none, because that checkpoint cannot
  // be measured.
  void GiveUp(uint64_t step) { given_up_ = step; }

  // Compares each measurement that is not settled yet with the recorded best, and records it if it
  // is better, of another metric, or a new measurement of the recorded checkpoint. The file is read
  // before each comparison, because another evaluator may have written it. A recorded checkpoint
  // does not count if it is gone or damaged, if its step is now that of another run or epoch, or if
  // it is of another run than the run_id file of checkpoint_dir names, and neither does a file that
  // is malformed.
  // While StepToMeasureAnew returns a step, all measurements wait for the new one of that step,
  // which replaces the recorded value. A record without a digest is taken as one of this config.
  // An error: a file cannot be read or written now. The measurement stays unsettled; call again.
  absl::Status Settle();

  // Returns whether Settle has nothing left to do, except when StepToMeasureAnew is measured.
  bool settled() const { return waits_ || unsettled_.empty(); }

  // Returns the best checkpoint of this config that Settle found in the file or wrote; nullopt:
  // none yet.
  const std::optional<BestCheckpoint>& best() const { return best_; }

  // Forgets the best checkpoint and what is not settled. The file stays as it is.
  void Forget();

 private:
  absl::StatusOr<std::optional<BestCheckpoint>> ReadRecorded() const;
  bool MustBeMeasuredAnew(const std::optional<BestCheckpoint>& recorded) const;
  bool IsOfOtherConfig(const BestCheckpoint& recorded) const;
  // Writes the config's digest into the record that has none.
  absl::Status AddDigest();
  absl::Status Record(BestCheckpoint measured);

  FileSystem* const files_;
  const std::string checkpoint_dir_;
  const std::string eval_dir_;
  const std::string config_digest_;
  std::vector<BestCheckpoint> unsettled_;  // in the order in which they were measured
  std::optional<BestCheckpoint> best_;
  bool waits_ = false;                // for the new measurement of the recorded checkpoint
  std::optional<uint64_t> given_up_;  // the step of GiveUp
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_BEST_RECORDER_H_
