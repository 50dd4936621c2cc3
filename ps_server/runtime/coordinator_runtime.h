// CoordinatorRuntime runs the Coordinator state machine of a job. It holds the lock that guards
// the state machine, a timer thread, and a file thread for the small files of train_dir.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_COORDINATOR_RUNTIME_H_
#define PUSHPULL_PS_SERVER_RUNTIME_COORDINATOR_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <tuple>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

#include "common/base/clock.h"
#include "common/base/log_limiter.h"
#include "common/base/monotonic_wait.h"
#include "common/base/serial_executor.h"
#include "common/wire/ps_handler.h"
#include "ps_server/core/coordinator.h"
#include "ps_server/runtime/call_table.h"
#include "ps_server/runtime/checkpointer.h"
#include "ps_server/runtime/coordinator_trace.h"
#include "ps_server/runtime/grant_mac.h"
#include "ps_server/runtime/shard_peer.h"

namespace pushpull {

// Callbacks by which the coordinator informs the rest of the process. No lock is held during a
// call. The file thread of the runtime calls the first three, which may block. Any thread may call
// the others, which must not block.
struct CoordinatorListener {
  // Writes the EPOCH file and syncs it to disk.
  std::function<absl::Status(uint64_t epoch)> persist_epoch;
  // Writes the number of replicas that an administrator has set, and syncs it to disk.
  std::function<absl::Status(uint32_t num_replicas)> persist_replicas;
  // Writes the server's files in train_dir. Called when the job is restored for the first time,
  // with the version from which it goes on.
  std::function<absl::Status(uint64_t version)> take_over;
  std::function<void(const coordinator_action::StepApplied&)> step_applied;
  std::function<void(const coordinator_action::Serving&)> serving;
  // The job has ended here. OK: the final checkpoint is published. CANCELLED: drained. Any
  // other status is the failure that stopped training.
  std::function<void(const absl::Status&)> ended;
  // An administrator has called Drain: the process has to end, as after SIGTERM.
  std::function<void()> end_wanted;
};

// Thread-safe. Only the destructor, Stop and TellTasksOfTheEnd block.
class CoordinatorRuntime {
 public:
  // `checkpointer`, `clock` and whatever `listener` refers to must outlive the runtime, which
  // uses `checkpointer` on its file thread only. trace: null, or records what the coordinator
  // does.
  CoordinatorRuntime(CoordinatorOptions options, Checkpointer* checkpointer, Clock* clock,
                     CoordinatorListener listener,
                     std::unique_ptr<CoordinatorTrace> trace = nullptr);
  ~CoordinatorRuntime();

  // Starts recovery in the background; listener.serving reports its end. peers[i] reaches
  // shard i. stored_epoch: what the EPOCH file holds, 0 if there is no file. Called once.
  void Start(std::vector<std::unique_ptr<ShardPeer>> peers, uint64_t stored_epoch);
  // Ends the timer and the file thread after their current work. Later events are ignored, and
  // callbacks that already run on other threads finish. The shards must still exist. Blocks
  // for the work in progress.
  void Stop();
  // Finishes or gives up the open step (Steps::IsGivenUpBy) and publishes a checkpoint, as SIGTERM
  // asks. listener.ended follows when the checkpoint is published or has failed.
  void Drain();
  // Calls of administrators. The Drain below is answered at once and then calls
  // listener.end_wanted; the rest is as in Drain() above.
  void Checkpoint(const ps::CheckpointRequest& request, PsHandler::Done<ps::CheckpointReply> done);
  void Drain(const ps::DrainRequest& request, PsHandler::Done<ps::DrainReply> done);
  void Evict(const ps::EvictRequest& request, PsHandler::Done<ps::EvictReply> done);
  void Scale(const ps::ScaleRequest& request, PsHandler::Done<ps::ScaleReply> done);

  void Register(const ps::RegisterRequest& request, PsHandler::Done<ps::RegisterReply> done);
  void Heartbeat(const ps::HeartbeatRequest& request, PsHandler::Done<ps::HeartbeatReply> done);
  void Commit(const ps::CommitRequest& request, PsHandler::Done<ps::CommitReply> done);

  // EVICTED: an administrator evicted this clone; the message has the administrator's reason.
  absl::Status CheckNotEvicted(uint32_t worker_id) const;
  ps::StatusReply Status() const;
  // Returns whether every live clone has said that it knows that training has ended or why it was
  // stopped (CloneProgress.knows_end). It is not enough that the server has told a clone, because
  // the answer may be lost. After a finished run one of two more conditions must hold: the server
  // has answered requests for the length of a lease, or the clones of all replicas, whose ids are
  // below the number of replicas, have said so or were evicted. The lease is for clones that an
  // earlier server was killed before it could tell: it gives them time to come back.
  bool EveryCloneKnowsOfTheEnd() const;
  uint64_t epoch() const;
  uint64_t version() const;
  // The last step of the run; 0: there is none, or none is known yet.
  uint64_t last_step() const;
  // The number of replicas; 0: it is not known yet.
  uint32_t num_replicas() const;
  absl::Duration lease() const { return lease_; }
  absl::Duration Now() const { return clock_->Now(); }

  // Tells the ps tasks of other processes that the job has ended. Tasks that have answered an
  // earlier call are left out. `end` is the status of listener.ended; verified_step is the
  // step of a checkpoint that has been read back. Returns whether every task has answered.
  // Blocks for up to two seconds per task that does not answer. Called by one thread, before
  // Stop.
  bool TellTasksOfTheEnd(const absl::Status& end, std::optional<uint64_t> verified_step);

 private:
  // Stores `done` under a new call number and returns the event with that number.
  template <typename Event, typename Reply>
  Event Open(Event event, PsHandler::Done<Reply> done) {
    absl::MutexLock lock(&mutex_);
    std::get<CallTable<Reply>>(calls_).Add(event.call = ++last_call_, std::move(done));
    return event;
  }
  void Post(const CoordinatorEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);
  // Queues file work on the file thread. Replies, listener calls and calls to shards are added
  // to `answers`, which the caller runs after it has unlocked mutex_.
  void Carry(CoordinatorAction action, Answers* answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryCall(coordinator_action::CallShard order, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CarryServing(const coordinator_action::Serving& serving, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Writes the notice to the log, unless there are too many of its kind.
  void Log(coordinator_action::Notice notice) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CallShard(const coordinator_action::CallShard& order);
  // Both run on the file thread. Publish reports the checkpoint and then queues the second, because
  // no event may wait until the old checkpoints are removed. At the end of a run it calls
  // RemoveOld at once; any other end leaves old checkpoints to the next server, for which the
  // second is queued when the job serves for the first time. A new epoch stops
  // RemoveOldWhileTraining too; the old checkpoints that are left are removed after the next
  // checkpoint.
  void Publish(const coordinator_action::PublishCheckpoint& order, uint64_t num_replicas)
      ABSL_LOCKS_EXCLUDED(mutex_);
  void RemoveOldWhileTraining() ABSL_LOCKS_EXCLUDED(mutex_);
  // Makes all shards refuse clones with the reason, and then tells the listener.
  void EndStopped(const absl::Status& reason);
  // Adds the MAC to each grant.
  void SignGrants(uint32_t worker,
                  google::protobuf::RepeatedPtrField<ps::ReplicaGrant>* grants) const;
  // Notes that the clone has said that it knows of the end.
  void NoteThatItKnows(uint32_t worker) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTimer();

  Checkpointer* const checkpointer_;
  Clock* const clock_;
  const CoordinatorListener listener_;
  const std::string run_id_;
  const absl::Duration lease_;
  const std::unique_ptr<CoordinatorTrace> trace_;
  std::vector<std::unique_ptr<ShardPeer>> peers_;  // set by Start
  std::vector<bool> told_tasks_;                   // by task; used by TellTasksOfTheEnd only

  const GrantMac macs_;

  mutable absl::Mutex mutex_;
  Coordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  CallId last_call_ ABSL_GUARDED_BY(mutex_) = 0;
  // The calls that wait for their answer, one table for each type of reply.
  std::tuple<CallTable<ps::RegisterReply>, CallTable<ps::HeartbeatReply>,
             CallTable<ps::CommitReply>, CallTable<ps::CheckpointReply>, CallTable<ps::DrainReply>,
             CallTable<ps::EvictReply>, CallTable<ps::ScaleReply>>
      calls_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<uint32_t> know_the_end_ ABSL_GUARDED_BY(mutex_);  // worker ids
  // Since when clones can register or learn that the run is finished.
  absl::Duration answering_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  // Any peer can register and leave as a spare, so these notices are limited to one line every
  // two seconds on average.
  LogLimiter spare_notices_ ABSL_GUARDED_BY(mutex_){20, absl::Seconds(2)};
  bool has_served_ ABSL_GUARDED_BY(mutex_) = false;
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar stopped_;  // notified when stop_ becomes true

  std::thread timer_;
  // The last member, so that it is destroyed first: its work posts events.
  std::unique_ptr<SerialExecutor> file_thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_COORDINATOR_RUNTIME_H_
