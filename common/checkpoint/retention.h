// Decides which checkpoints to keep, and deletes the others. A checkpoint is renamed to .trash-*
// before it is deleted, so a reader finds either the whole checkpoint or none. If the server is
// killed in between, its next start removes the rest, or gives a checkpoint its name back that an
// evaluator protects (TrainDir::Sweep).
//
// Not thread-safe for one directory.
#ifndef PUSHPULL_COMMON_CHECKPOINT_RETENTION_H_
#define PUSHPULL_COMMON_CHECKPOINT_RETENTION_H_

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"

#include "common/base/file_system.h"
#include "common/base/stop_requested.h"

namespace pushpull {

struct RetentionPolicy {
  // Keep this many of the newest checkpoints; 0 keeps all.
  uint64_t max_to_keep = 5;
  // Also keep the first checkpoint of every period of this length since the start of the run, the
  // period of the start itself excepted.
  absl::Duration keep_every = absl::InfiniteDuration();
};

struct CheckpointAge {
  uint64_t step = 0;
  bool readable = true;        // the manifest verifies; otherwise max_to_keep does not count it
  absl::Duration since_start;  // from the start of the run until it was saved
};

// Returns the steps to delete, in the order of `ages`. A pure function.
//
// `ages` must be sorted: first the unreadable checkpoints, then the others from old to new (by
// epoch, then step). An unreadable checkpoint is deleted when its step is below that of the oldest
// one that max_to_keep keeps. The steps in `pinned` are never deleted, and nothing is deleted while
// fewer than max_to_keep checkpoints are readable.
std::vector<uint64_t> SelectForDeletion(const std::vector<CheckpointAge>& ages,
                                        const RetentionPolicy& policy,
                                        const std::vector<uint64_t>& pinned);

// The checkpoint that the evaluator found best. Stored in <directory>/eval/best_checkpoint as
//   {"config_digest": "<64 hex digits>", "epoch": 3, "metric": "accuracy",
//    "run_id": "<32 hex digits>", "step": 1200, "value": 0.98}
struct BestCheckpoint {
  uint64_t step = 0;
  std::string metric;
  double value = 0.0;
  // Those of the checkpoint's manifest: a step can be trained again, from other weights. Files of
  // older versions have neither.
  std::string run_id = {};             // empty: not known
  std::optional<uint64_t> epoch = {};  // nullopt: not known
  // The EvaluationDigest of the config with which the value was measured. Values of different
  // digests do not compare. Files of older versions have none.
  std::string config_digest = {};  // empty: not known
};
inline constexpr char kBestCheckpointFile[] = "best_checkpoint";

// Reads best_checkpoint; nullopt: the file does not exist. DATA_LOSS: the file is malformed.
absl::StatusOr<std::optional<BestCheckpoint>> ReadBestCheckpoint(FileSystem& files,
                                                                 const std::string& eval_directory);
// Replaces best_checkpoint atomically.
absl::Status WriteBestCheckpoint(FileSystem& files, const std::string& eval_directory,
                                 const BestCheckpoint& best);

// Says which checkpoint an evaluator measures, for as long as the object lives. Retention keeps
// that checkpoint, so that it can still become the best one. Stored in <directory>/eval/evaluating
// as
//   {"step": 1200}
// A file that a killed evaluator has left keeps one checkpoint until the next evaluation. Of
// several evaluators with the same folder only the one that began last has this protection.
class EvaluationRecord {
 public:
  // Writes the file and blocks on the disk. Logs a failure. `files` must outlive the object.
  EvaluationRecord(FileSystem* files, const std::string& eval_directory, uint64_t step);
  // Removes the file, unless another evaluator has replaced it.
  ~EvaluationRecord();
  EvaluationRecord(const EvaluationRecord&) = delete;
  EvaluationRecord& operator=(const EvaluationRecord&) = delete;

 private:
  FileSystem* const files_;
  const std::string path_;
  const uint64_t step_;
};
inline constexpr char kEvaluatingFile[] = "evaluating";

// Returns the steps that an evaluator protects in the train_dir `directory`: of the best checkpoint
// and of the one that is being evaluated. DATA_LOSS: best_checkpoint or evaluating is malformed.
absl::StatusOr<std::vector<uint64_t>> ReadPinnedSteps(FileSystem& files,
                                                      const std::string& directory);

// Deletes the checkpoints of the run that the policy does not keep, except for the best one and the
// one that is being evaluated. A checkpoint of another run does not count and is never deleted; one
// whose manifest does not verify may be of any run and is treated as one of this run. If there is
// anything to delete, it first reads the newest checkpoint of the run back and verifies it.
//   run_id: hex, as in the manifests
//   stopped: is asked before each block of a file that is read back and before each deletion
// On an error, including an unreadable best_checkpoint or evaluating, it deletes nothing more and
// returns the reason. CANCELLED: `stopped` has returned true. Blocks on the disk.
absl::Status ApplyRetention(FileSystem& files, const std::string& directory,
                            absl::string_view run_id, const RetentionPolicy& policy,
                            const StopRequested& stopped = NeverStopped);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_CHECKPOINT_RETENTION_H_
