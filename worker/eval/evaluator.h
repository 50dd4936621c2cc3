// Evaluates the checkpoints of a training run as they appear, and ends when the run has ended. The
// checkpoints are all it knows of the run: no server, no worker.
#ifndef PUSHPULL_WORKER_EVAL_EVALUATOR_H_
#define PUSHPULL_WORKER_EVAL_EVALUATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>

#include "absl/status/status.h"
#include "absl/time/time.h"

#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/retention.h"
#include "common/cli/progress_line.h"
#include "common/clock.h"
#include "common/event_writer.h"
#include "common/file_system.h"
#include "worker/eval/checkpoint_watcher.h"
#include "worker/eval/evaluation.h"

namespace pushpull {

struct EvaluatorOptions {
  std::string checkpoint_dir;
  std::string eval_dir;
  // The newest checkpoint only, its metrics as JSON on `results`, then the end.
  bool run_once = false;
  // For the directory to appear; with run_once, for a first checkpoint too.
  absl::Duration wait = absl::Minutes(10);
  absl::Duration poll_interval = absl::Seconds(1);
  // Between the starts of two evaluations; the last checkpoint of a run does not wait.
  absl::Duration eval_interval = absl::ZeroDuration();
  uint64_t max_evals = 0;            // 0: no limit
  bool use_moving_averages = false;  // EMA instead of the raw weights
};

// What the evaluator works with; all of it must outlive it.
struct EvaluatorContext {
  FileSystem* files = nullptr;
  Clock* clock = nullptr;
  ProgressLine* progress = nullptr;
  std::ostream* results = nullptr;
  const std::atomic<bool>* stop = nullptr;  // set from another thread
};

// Polls until `path` exists, showing that it waits for it. NOT_FOUND after the time, CANCELLED on
// *stop.
absl::Status WaitForPath(const EvaluatorContext& context, const std::string& path,
                         absl::Duration wait);

class Evaluator {
 public:
  Evaluator(EvaluatorOptions options, EvaluatorContext context, Evaluation* evaluation);

  // Blocks until training has ended and its last checkpoint is evaluated (OK), or with run_once
  // until one is. CANCELLED: *stop. NOT_FOUND: nothing to evaluate appeared in time; or EMA asked
  // for and not there (named). FAILED_PRECONDITION: a checkpoint of another model (first different
  // variable named). DATA_LOSS: with run_once, there are checkpoints and none verifies.
  absl::Status Run();

 private:
  absl::Status EvaluateOne(const Checkpoint& checkpoint);
  absl::Status OpenEvents();
  absl::Status Report(const CheckpointManifest& manifest, const EvaluationReport& report);
  void KeepBest(uint64_t step, const ScalarSummary& metric);
  absl::Status CheckRunOnce(absl::Duration deadline);

  const EvaluatorOptions options_;
  const EvaluatorContext context_;
  Evaluation* const evaluation_;
  CheckpointWatcher watcher_;
  std::unique_ptr<EventWriter> events_;
  std::optional<BestCheckpoint> best_;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_EVALUATOR_H_
