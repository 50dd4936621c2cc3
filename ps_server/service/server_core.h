// One ps_server process without its network: the shards it holds, with shard 0 the coordinator, and
// everything around them. Server puts listeners in front; tests call the handlers directly.
#ifndef PUSHPULL_PS_SERVER_SERVICE_SERVER_CORE_H_
#define PUSHPULL_PS_SERVER_SERVICE_SERVER_CORE_H_

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

#include "common/clock.h"
#include "common/file_system.h"
#include "common/monotonic_wait.h"
#include "common/thread_pool.h"
#include "common/trace/trace_writer.h"
#include "ps_server/service/checkpointer.h"
#include "ps_server/service/coordinator_runtime.h"
#include "ps_server/service/finished_run.h"
#include "ps_server/service/job_spec.h"
#include "ps_server/service/run_files.h"
#include "ps_server/service/shard_peer.h"
#include "ps_server/service/shard_runtime.h"
#include "ps_server/service/task_handler.h"
#include "ps_server/service/training_monitor.h"

namespace pushpull {

struct ServerCoreOptions {
  std::string train_dir;
  int first_task = 0;  // the tasks held here: first_task .. first_task + num_tasks - 1
  int num_tasks = 1;
  std::string run_id;  // 16 bytes, as task 0 says; unused in its own process
  // Asks task 0 to drain the job; unused in its own process.
  std::function<absl::Status()> drain_job;
  uint32_t num_replicas = 0;     // 0: what the first worker announces
  std::string state_dir;         // empty: anonymous memory
  bool from_checkpoint = false;  // goes back to a checkpoint whatever the mapped state holds
  std::optional<uint64_t> from_step = std::nullopt;  // of that checkpoint; nothing: the newest
  int apply_threads = 1;
  absl::Duration lease = absl::Seconds(10);
  // A shard of this process has been restored; by the thread of its store, must not block.
  std::function<void()> on_restored = [] {};
  TraceWriter* trace = nullptr;  // null: none; must outlive the core and its last pull
};

// Open, then Start (in task 0's process), WaitForEnd any number of times, Farewell, Close; all by
// one thread. Destroying it without Close is what SIGKILL does: only state_dir and checkpoints
// remain.
class ServerCore {
 public:
  // UNAVAILABLE: a second server on the train_dir. Others as of the config, the disk, and the state
  // files.
  static absl::StatusOr<std::unique_ptr<ServerCore>> Open(JobSpec job, ServerCoreOptions options,
                                                          FileSystem* files, Clock* clock);
  // No call may be in the handlers, and none may come.
  ~ServerCore();

  // Of task first_task + i.
  PsHandler* handler(int i) { return handlers_[i].get(); }

  // Recovers in the background and serves. addresses: of all tasks, for the workers; remote: of the
  // tasks after the ones held here; on_serving: at the end of each recovery, from any thread, must
  // not block.
  void Start(std::vector<std::string> addresses, std::vector<std::unique_ptr<ShardPeer>> remote,
             std::function<void()> on_serving);

  // Nothing while training goes on; OK: done and the last checkpoint published; CANCELLED: drained;
  // else the failure that stopped it. Blocks at most so long.
  std::optional<absl::Status> WaitForEnd(absl::Duration patience);
  // WaitForEnd returns this status from now on; of several calls the first one counts.
  void End(const absl::Status& status);
  // SIGTERM: finish the step and publish a checkpoint; WaitForEnd tells when. Of a task in another
  // process than the coordinator's: no step is complete without it, so it asks for the drain of the
  // whole job and stays until that has its checkpoint; if task 0 does not answer, half a minute.
  void Drain();
  // An operator has called Drain: the process is to end after WaitForEnd, even where it would stay.
  bool end_wanted() const { return end_wanted_.load(); }
  // After WaitForEnd has told `end`: gives living clones and the tasks of other processes the time
  // to hear of it, at most a lease. A drained job goes on with another server, so clones are not
  // waited for.
  void Farewell(const absl::Status& end);
  // Nothing is handled any more. Removes the mapped state if a checkpoint that has just been read
  // back is at least as new (core/run_state.h).
  void Close();
  // None of the core's threads works any more, and on_serving is not called. Close does it too.
  void StopThreads();

  // Of task 0's process; empty elsewhere.
  ps::StatusReply Status() const;
  TrainingFigures Figures() const;
  const JobSpec& job() const { return job_; }

 private:
  ServerCore(JobSpec job, ServerCoreOptions options, FileSystem* files, Clock* clock);

  bool IsCoordinator() const { return options_.first_task == 0; }
  absl::Status OpenTrainDir();
  absl::Status OpenShard(int shard);
  void OpenCoordinator();
  // The step of the newest checkpoint, if it can be read back and verified. After WaitForEnd; reads
  // the checkpoint once.
  std::optional<uint64_t> VerifiedStep();
  void EndAsTold(const ps::EndTaskRequest& request);
  void DrainJob();

  const JobSpec job_;
  const ServerCoreOptions options_;
  FileSystem* const files_;
  Clock* const clock_;

  std::string run_id_;  // 16 bytes
  std::function<void()> on_serving_;
  RunFiles run_files_;
  FinishedRun finished_run_;  // used in a process without the coordinator
  std::unique_ptr<ThreadPool> pool_;
  std::unique_ptr<Checkpointer> checkpointer_;
  std::unique_ptr<TrainingMonitor> monitor_;
  std::unique_ptr<CoordinatorRuntime> coordinator_;
  std::vector<std::unique_ptr<ShardRuntime>> shards_;
  std::vector<std::unique_ptr<TaskHandler>> handlers_;

  std::atomic<bool> end_wanted_{false};
  absl::Mutex mutex_;
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
  // Of VerifiedStep; of a task without coordinator: as it was told.
  std::optional<uint64_t> verified_step_ ABSL_GUARDED_BY(mutex_);
  bool has_verified_ ABSL_GUARDED_BY(mutex_) = false;
  bool closing_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar end_changed_;  // told when end_ is set or closing_ becomes true
  std::thread drain_;             // asks for the drain of the job
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_SERVER_CORE_H_
