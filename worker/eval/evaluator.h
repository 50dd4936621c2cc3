// Evaluates the checkpoints of a training run as they appear, and ends when the run has ended. It
// reads only the checkpoint directory and does not talk to servers or workers.
#ifndef PUSHPULL_WORKER_EVAL_EVALUATOR_H_
#define PUSHPULL_WORKER_EVAL_EVALUATOR_H_

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <ostream>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/checkpoint/checkpoint_reader.h"
#include "common/checkpoint/retention.h"
#include "common/cli/progress_line.h"
#include "common/trace/event_writer.h"
#include "worker/eval/best_recorder.h"
#include "worker/eval/checkpoint_watcher.h"
#include "worker/eval/config_watcher.h"
#include "worker/eval/evaluation.h"

namespace pushpull {

struct EvaluatorOptions {
  std::string checkpoint_dir;
  std::string eval_dir;  // for event files, best_checkpoint and evaluating
  // Whether best_checkpoint and evaluating are written. Without them an event file that cannot be
  // written does not matter either.
  bool records_best = true;
  // Evaluate only the newest checkpoint, write its metrics as JSON to `results`, and end.
  bool run_once = false;
  // How long to wait for checkpoint_dir to appear, and with run_once for a first checkpoint, or for
  // the newest one if it cannot be read at the moment. An older one is evaluated after that.
  absl::Duration wait = absl::Minutes(10);
  absl::Duration poll_interval = absl::Seconds(1);
  // Shortest time between the starts of two evaluations. The last checkpoint of a run is evaluated
  // without this delay.
  absl::Duration eval_interval = absl::ZeroDuration();
  uint64_t max_evals = 0;            // end after this many evaluations; 0: no limit
  bool use_moving_averages = false;  // evaluate the EMA instead of the raw weights
  // The EvaluationDigest of the config. If the recorded best checkpoint has another one, its value
  // does not compare, and it is evaluated before all others. Empty: not known.
  std::string config_digest = {};
};

// The objects that the evaluator uses. All must outlive it.
struct EvaluatorContext {
  FileSystem* files = nullptr;
  Clock* clock = nullptr;
  ProgressLine* progress = nullptr;
  std::ostream* results = nullptr;
  const std::atomic<bool>* stop = nullptr;  // set from another thread
  ConfigWatcher* config = nullptr;          // null: the config does not change
};

// Polls every second until there is something at `path`, and shows the wait on the progress line.
// Blocks for at most about `wait`. DEADLINE_EXCEEDED: `path` did not appear in time; NOT_FOUND with
// a wait of 0. CANCELLED: *context.stop became true. Other errors of the file system.
absl::Status WaitForPath(const EvaluatorContext& context, const std::string& path,
                         absl::Duration wait);

// The same for a folder, or a link to one. FAILED_PRECONDITION, without a wait: `path`, or a folder
// on it, is a file.
absl::Status WaitForFolder(const EvaluatorContext& context, const std::string& path,
                           absl::Duration wait);

// Not thread-safe.
class Evaluator {
 public:
  // `evaluation` must outlive the evaluator.
  Evaluator(EvaluatorOptions options, EvaluatorContext context, Evaluation* evaluation);

  // Evaluates checkpoints, and in the end logs how many and which is the best. Blocks until
  // training has ended and its last checkpoint is evaluated, until max_evals evaluations are done
  // (with a warning if the last checkpoint is not among them), with run_once until one is done, or
  // until context.config has noticed a change; then returns OK. CANCELLED: *context.stop became
  // true. DEADLINE_EXCEEDED: the directory, or with run_once a checkpoint, did not appear in time;
  // NOT_FOUND with a wait of 0. NOT_FOUND also: the checkpoint has no EMA (the message names it).
  // FAILED_PRECONDITION: the checkpoint belongs to another model (the message names the first
  // variable that differs). With run_once also DATA_LOSS: a checkpoint was refused and none could
  // be evaluated; UNAVAILABLE: checkpoints could not be read in time, and no other could be
  // evaluated. Other errors of the evaluation, and of eval_dir, in which no file can be created;
  // one that may pass (passing_error.h) is logged, and the files are created later. A directory or
  // a checkpoint that cannot be read (IsReadFailure) is logged and read again, with run_once until
  // the wait is over. What cannot be written after an evaluation is logged and tried again: events
  // by EventWriter, best_checkpoint at each poll, and a few times before Run returns.
  absl::Status Run();

  // Returns whether Run has ended because the config has changed. Another evaluation then has to
  // begin anew.
  bool config_has_changed() const { return config_has_changed_; }

 private:
  // Does the work of Run up to the last evaluation. Run then records the best checkpoint and logs
  // the summary.
  absl::Status Follow();
  // Returns an error if the files of eval_dir could not be written after the first evaluation.
  absl::Status CheckEvalDir() const;
  // Evaluates the checkpoint that TakeNext returns. Returns its step, or nullopt: there is none, or
  // it cannot be read at the moment (see Unreadable) and is new again. With run_once and is_late,
  // an older one is evaluated instead.
  absl::StatusOr<std::optional<uint64_t>> EvaluateNext(bool is_late);
  // Sets config_has_changed_ and returns it. Logs a change.
  bool CheckConfig();
  // Returns whether `status` is a failure to read that is given time to pass.
  bool IsAwaited(const absl::Status& status, bool is_late) const;
  // Returns the checkpoint to evaluate now, or null: none is new, or the next evaluation must not
  // start before eval_interval has passed since the start of the last one. The last checkpoint of
  // the training may always be evaluated at once. is_late: options_.wait is over.
  std::unique_ptr<Checkpoint> TakeNext(bool is_late);
  // Returns the step of the recorded best checkpoint if it has to be evaluated before all others.
  // nullopt also: it is not known at the moment, or run_once evaluates the newest checkpoint.
  std::optional<uint64_t> StepToTakeFirst() const;
  // Returns whether Run ends after the evaluations that are done. Warns if it then leaves out the
  // last checkpoint of the training.
  bool HasEvaluatedEnough() const;
  void LogSummary() const;
  // Returns the variables to evaluate. Errors as Checkpoint::ReadWeights.
  absl::StatusOr<std::vector<float>> ReadVariables(const Checkpoint& checkpoint) const;
  absl::Status EvaluateOne(const CheckpointManifest& manifest, const std::vector<float>& variables);
  // Prepares the files of eval_dir for the evaluation of this checkpoint.
  absl::Status OpenFiles(const CheckpointManifest& manifest);
  void Report(const CheckpointManifest& manifest, const EvaluationReport& report);
  absl::Status PrintJson(uint64_t step, const EvaluationReport& report);
  // Records the best checkpoint as far as that is possible now, and logs the first failure.
  void SettleBest();
  // Calls SettleBest once per poll_interval until all is recorded, at most ten times. Logs an error
  // if something is not.
  void FinishBest();
  // The next three are for run_once. is_late: options_.wait is over.
  CheckpointWatcher::Unreadable HowToTake(bool is_late) const;
  // Names the checkpoints after `step`, which is evaluated, that cannot be used.
  void WarnOfUnusable(uint64_t step) const;
  // Returns an error if it is of no use to wait longer.
  absl::Status CheckRunOnce(bool is_late) const;

  const EvaluatorOptions options_;
  const EvaluatorContext context_;
  Evaluation* const evaluation_;
  CheckpointWatcher watcher_;
  std::string run_id_;  // of the last checkpoint; empty: none yet
  std::unique_ptr<EventWriter> events_;
  BestRecorder best_;
  bool best_failed_ = false;  // the last attempt to settle the best checkpoint
  // Protects the checkpoint that is evaluated until its measurement is settled.
  std::unique_ptr<EvaluationRecord> evaluating_;
  absl::Duration next_start_ = -absl::InfiniteDuration();  // of an evaluation
  uint64_t evaluated_ = 0;                                 // checkpoints
  bool config_has_changed_ = false;
};

}  // namespace pushpull

#endif  // PUSHPULL_WORKER_EVAL_EVALUATOR_H_
