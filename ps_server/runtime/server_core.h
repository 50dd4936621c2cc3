// ServerCore is one ps_server process without its network: the shards of this process, the
// coordinator if task 0 is among them, their files and threads. Server adds listeners; tests
// call the handlers directly.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_SERVER_CORE_H_
#define PUSHPULL_PS_SERVER_RUNTIME_SERVER_CORE_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/file_system.h"
#include "common/base/monotonic_wait.h"
#include "common/base/output_folder.h"
#include "common/base/stop_requested.h"
#include "common/base/thread_pool.h"
#include "common/checkpoint/train_dir.h"
#include "common/trace/trace_writer.h"
#include "common/wire/default_lease.h"
#include "ps_server/runtime/changed_counts.h"
#include "ps_server/runtime/checkpointer.h"
#include "ps_server/runtime/coordinator_runtime.h"
#include "ps_server/runtime/finished_run.h"
#include "ps_server/runtime/job_spec.h"
#include "ps_server/runtime/run_files.h"
#include "ps_server/runtime/shard_peer.h"
#include "ps_server/runtime/shard_runtime.h"
#include "ps_server/runtime/task_handler.h"
#include "ps_server/runtime/training_monitor.h"
#include "ps_server/store/state_file.h"

namespace pushpull {

// The options that a Server passes on to its ServerCore as they are.
struct SharedServerOptions {
  std::string train_dir;
  // The lock of train_dir, for a process of task 0 that has taken it before it opens the server.
  // Null: the server takes it.
  std::shared_ptr<TrainDir> locked_train_dir = nullptr;
  uint32_t num_replicas = 0;  // 0: as many as the first clone announces
  std::string state_dir;      // created if absent; empty: anonymous memory
  // Recover from a checkpoint, not from mapped state. NOT_FOUND: there is none.
  bool from_checkpoint = false;
  std::optional<uint64_t> from_step = std::nullopt;  // step of that checkpoint; nullopt: the newest
  int apply_threads = 1;
  absl::Duration lease = kDefaultLease;
  // Records what the server does. May be null; must outlive the server and its last pull.
  TraceWriter* trace = nullptr;
  // Asked, from any thread, while the start verifies and restores a checkpoint, draws initial
  // values, waits for task 0 in another process or waits for the variables of an external model. If
  // it returns true, the start fails with CANCELLED; after Open, recovery stands still until Drain.
  StopRequested stop_requested = NeverStopped;
};

struct ServerCoreOptions : SharedServerOptions {
  int first_task = 0;  // this process holds first_task .. first_task + num_tasks - 1
  int num_tasks = 1;
  std::string run_id;  // 16 bytes, from task 0; unused in the process of task 0
  // Asks task 0, which is in another process, to drain the job. WRONG_RUN: task 0 serves another
  // run, which goes on. FENCED: another process has this task. Unused in the process of task 0. May
  // block for seconds.
  std::function<absl::Status()> drain_job;
  // Called before a shard of this process is restored, by the thread of its store, which it may
  // block for seconds. An error is the answer to the restore, which then changes nothing.
  std::function<absl::Status()> may_restore = [] { return absl::OkStatus(); };
  // Called when a shard of this process has been restored, by the thread of its store. Must
  // not block.
  std::function<void()> on_restored = [] {};
};

// Call order: Open, Start (only in the process of task 0), WaitForEnd any number of times,
// AnnounceEnd, Close; all from one thread. Destruction without Close has the effect of SIGKILL:
// only the files in state_dir and the checkpoints remain.
class ServerCore {
 public:
  // Opens train_dir (in the process of task 0) and the shards; serves nothing yet. `files` and
  // `clock` must outlive the core. UNAVAILABLE: another server uses train_dir. Also returns
  // the errors of the checkpoints and the state files.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Open(JobSpec job, ServerCoreOptions options,
                                                          FileSystem* files, Clock* clock);
  // No call to a handler may be running or come later. Stops the threads.
  ~ServerCore();

  // The handler of task first_task + i, owned by the core.
  PsHandler* handler(int i) { return handlers_[i].get(); }

  // Starts recovery in the background. addresses: of all tasks, as clones are to use them.
  // remote: one peer for each task that this process does not hold, in order. on_serving is
  // called at the end of each recovery, from any thread, and must not block.
  void Start(std::vector<std::string> addresses, std::vector<std::unique_ptr<ShardPeer>> remote,
             std::function<void()> on_serving);

  // Blocks until the job has ended, for at most `patience`. Returns nullopt if it has not
  // ended. OK: training is done and the last checkpoint is published. CANCELLED: drained. Any
  // other status is the failure that stopped training. When task 0 in another process has been
  // silent for a lease (5 seconds at least), it reads train_dir, and calls EndAsFound if the run is
  // finished there. It reads once in a lease.
  std::optional<absl::Status> WaitForEnd(absl::Duration patience);
  // Makes WaitForEnd return `status` from now on. Only the first call counts. Thread-safe.
  void End(const absl::Status& status);
  // Makes WaitForEnd return OK, unless End was called, because train_dir shows that the run is
  // finished. This is not what task 0 has said: a later End counts, and if task 0 restores a shard
  // of this process after all, WaitForEnd returns nullopt again. Thread-safe.
  void EndAsFound(const EndOfRun& found) ABSL_LOCKS_EXCLUDED(mutex_);
  // Starts a clean end, as SIGTERM asks: finishes or gives up the open step (Steps::IsGivenUpBy)
  // and publishes a checkpoint. Does not block; WaitForEnd returns the end. No step is complete
  // without every task, so a process without task 0 asks task 0 to drain the whole job and stays
  // until task 0 ends it. It gives up with CANCELLED when task 0 has not answered for 5 seconds or
  // has not ended the job after 28 seconds.
  void Drain();
  // Returns whether the process has to end once WaitForEnd has returned an end, even if it would
  // otherwise stay: an administrator has called Drain, or task 0 has ended this task. Thread-safe.
  bool end_wanted() const { return end_wanted_.load(); }
  // Tells the tasks of other processes that the job has ended. Blocks until they have answered and
  // until the live clones have learnt of the end from their heartbeats, for about a lease at most.
  // If the job was drained, it does not wait for the clones, because they continue with the next
  // server, and it waits for the other tasks only until 25 seconds after the drain began, because a
  // scheduler may soon kill the process. Each task is told at least once. Returns at once in a
  // process without task 0, and if another server goes on with the job (core/stop_reason.h). `end`
  // is what WaitForEnd returned.
  void AnnounceEnd(const absl::Status& end);
  // Stops the threads and closes the files. Removes the mapped state if a checkpoint that has
  // just been read back is at least as new (core/run_state.h). No call to a handler may be
  // running or come later. Blocks on the disk, and for a few seconds if a shard of another process
  // does not answer.
  void Close();
  // Ends the threads of the core; on_serving is not called afterwards. Close and the
  // destructor call it. Blocks for the work in progress.
  void StopThreads();

  // Returns whether task 0 in another process has made no call for five seconds. Until the job ends
  // it calls every shard once a second. A --check_cluster of somebody else counts as a call too.
  // Thread-safe.
  bool CoordinatorIsSilent() const ABSL_LOCKS_EXCLUDED(mutex_);

  // Empty in processes without task 0. Thread-safe.
  ps::StatusReply Status() const;
  TrainingFigures Figures() const;
  // As TrainingMonitor::TakeLosses.
  LossSum TakeLosses() const;
  const JobSpec& job() const { return job_; }

 private:
  ServerCore(JobSpec job, ServerCoreOptions options, FileSystem* files, Clock* clock);

  bool IsCoordinator() const { return options_.first_task == 0; }
  absl::Status OpenTrainDir();
  // Returns the state files that the run has in state_dir with another number of tasks.
  absl::StatusOr<std::vector<StateFileInfo>> StateOfOtherTasks() const;
  // FAILED_PRECONDITION: state_dir holds a version that is newer than the newest checkpoint, which
  // only a server with another number of tasks can continue, and the user does not go back to a
  // checkpoint anyway. Otherwise such state is set aside when the job is restored.
  absl::Status CheckStateOfOtherTasks();
  // Logs the same in a process without task 0, which cannot decide from where the job goes on. Its
  // machine may have state that task 0 does not see.
  void WarnOfStateOfOtherTasks() const;
  absl::StatusOr<StateOwner> StateOwnerOf(int shard) const;
  absl::Status OpenShard(int shard);
  absl::Status OpenCoordinator();
  // Sets the number of replicas: that of psctl scale, else that of the options.
  // FAILED_PRECONDITION: the batch has fewer samples.
  absl::Status ChooseReplicas(CoordinatorOptions* options) const;
  // Returns the step of the newest checkpoint if it can be read back and verified. The first
  // call reads the checkpoint; to be called after the job has ended. In a process without task
  // 0 it returns what task 0 or EndAsFound has told.
  std::optional<uint64_t> VerifiedStep() ABSL_LOCKS_EXCLUDED(mutex_);
  // Remembers when the process was told to drain, by a signal or an administrator.
  void NoteDrain() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether --from_checkpoint discards this end: the shards of this process are not all
  // restored yet, or were restored in a later epoch than that of the checkpoint.
  bool IsGivenUp(const EndOfRun& found) const;
  // Undoes EndAsFound: task 0 goes on with the run.
  void TakeBackFoundEnd() ABSL_LOCKS_EXCLUDED(mutex_);
  // Returns whether task 0 in another process has made no call for this long, and the job goes on.
  bool CoordinatorIsSilentFor(absl::Duration duration) const ABSL_LOCKS_EXCLUDED(mutex_);
  // Ends this task as the coordinator in another process orders.
  void EndAsTold(const ps::EndTaskRequest& request);
  // Has task 0 drain the job, or ends this task alone; runs on drain_.
  void DrainJob();

  const JobSpec job_;
  const ServerCoreOptions options_;
  FileSystem* const files_;
  Clock* const clock_;

  std::string run_id_;  // 16 bytes
  std::function<void()> on_serving_;
  RunFiles run_files_;
  EarlierConfigs earlier_configs_;  // empty after the job has served once
  // In the process of task 0: of the newest checkpoint at the start; nothing: there was none.
  std::optional<uint64_t> checkpoint_step_;
  FinishedRun finished_run_;  // unused in the process of task 0
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<TrainingMonitor> monitor_;
  std::unique_ptr<CoordinatorRuntime> coordinator_;
  // Removes state_dir if this process has made it and no state file stays. Destroyed after the
  // shards. May be null.
  std::unique_ptr<OutputFolder> state_folder_;
  std::vector<std::unique_ptr<ShardRuntime>> shards_;
  std::vector<std::unique_ptr<TaskHandler>> handlers_;

  std::atomic<bool> end_wanted_{false};
  mutable absl::Mutex mutex_;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  bool end_is_found_ ABSL_GUARDED_BY(mutex_) = false;  // end_ is from EndAsFound
  // What VerifiedStep has found or, without the coordinator, what task 0 or EndAsFound has told.
  std::optional<uint64_t> verified_step_ ABSL_GUARDED_BY(mutex_);
  bool has_verified_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Duration drain_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();  // see NoteDrain
  MonotonicCondVar end_changed_;  // notified when end_ is set or closing_ becomes true
  std::thread drain_;             // runs DrainJob
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_SERVER_CORE_H_
