// The coordinator at work: its state machine under a lock, a timer, and a thread for the small
// files of the train_dir.
#ifndef PUSHPULL_PS_SERVER_SERVICE_COORDINATOR_RUNTIME_H_
#define PUSHPULL_PS_SERVER_SERVICE_COORDINATOR_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/container/flat_hash_set.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"

#include "common/clock.h"
#include "common/log_limiter.h"
#include "common/monotonic_wait.h"
#include "common/ps_handler.h"
#include "common/serial_executor.h"
#include "ps_server/core/coordinator.h"
#include "ps_server/service/call_table.h"
#include "ps_server/service/checkpointer.h"
#include "ps_server/service/coordinator_trace.h"
#include "ps_server/service/grant_seals.h"
#include "ps_server/service/shard_peer.h"

namespace pushpull {

// What the coordinator tells the rest of the process, without locks. The first two are called by
// the runtime's file thread and may block; the others come from any thread and must not.
struct CoordinatorListener {
  // Writes EPOCH, durably.
  std::function<absl::Status(uint64_t epoch)> persist_epoch;
  // The job is restored for the first time: writes the server's files in train_dir.
  std::function<absl::Status()> take_over;
  std::function<void(const coordinator_action::StepApplied&)> step_applied;
  std::function<void(const coordinator_action::Serving&)> serving;
  // Final checkpoint published (OK), drained (CANCELLED), or stopped by a failure (its reason).
  std::function<void(const absl::Status&)> ended;
  // An operator has called Drain: the process is to end, as by SIGTERM.
  std::function<void()> end_wanted;
};

// Thread-safe. No call blocks.
class CoordinatorRuntime {
 public:
  // Everything must outlive the runtime; checkpointer is used by its file thread only. trace: null,
  // or gets what the coordinator does.
  CoordinatorRuntime(CoordinatorOptions options, Checkpointer* checkpointer, Clock* clock,
                     CoordinatorListener listener,
                     std::unique_ptr<CoordinatorTrace> trace = nullptr);
  ~CoordinatorRuntime();

  // Shard i is peers[i]. Recovers what there is and begins to serve. Called once.
  void Start(std::vector<std::unique_ptr<ShardPeer>> peers, uint64_t stored_epoch);
  // No event is handled and nothing is called any more but answers under way; the shards must still
  // be there.
  void Stop();
  // SIGTERM: listener.ended comes when the last checkpoint is published or could not be.
  void Drain();
  // Operators' calls. That of Drain is answered at once, listener.end_wanted comes, and then it is
  // as SIGTERM.
  void Checkpoint(const ps::CheckpointRequest& request, PsHandler::Done<ps::CheckpointReply> done);
  void Drain(const ps::DrainRequest& request, PsHandler::Done<ps::DrainReply> done);
  void Evict(const ps::EvictRequest& request, PsHandler::Done<ps::EvictReply> done);

  void Register(const ps::RegisterRequest& request, PsHandler::Done<ps::RegisterReply> done);
  void Heartbeat(const ps::HeartbeatRequest& request, PsHandler::Done<ps::HeartbeatReply> done);
  void Commit(const ps::CommitRequest& request, PsHandler::Done<ps::CommitReply> done);

  // EVICTED, with the operator's reason, or OK.
  absl::Status CheckNotEvicted(uint32_t worker_id) const;
  ps::StatusReply Status() const;
  // Every clone alive has been told that training has ended, or why it was stopped. After a
  // finished run this server has also answered for a lease, so that clones that an earlier, killed
  // server could not tell have come back, or as many clones as there are slots know already.
  bool EveryCloneKnowsOfTheEnd() const;
  uint64_t epoch() const;
  uint64_t version() const;
  absl::Duration Now() const { return clock_->Now(); }

  // Once more to every ps task of another process that has not heard it: the job has ended, as
  // `end` says (listener.ended), and the checkpoint of verified_step has been read back. True: all
  // have. Blocks for a second per task that does not answer; by one thread, before Stop.
  bool TellTasksOfTheEnd(const absl::Status& end, std::optional<uint64_t> verified_step);

 private:
  // Keeps `done` and gives the event the number of its call.
  template <typename Event, typename Reply>
  Event Open(Event event, CallTable<Reply>* table, PsHandler::Done<Reply> done) {
    absl::MutexLock lock(&mutex_);
    table->Add(event.call = ++last_call_, std::move(done));
    return event;
  }
  void Post(const CoordinatorEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);
  // Only takes notes under the lock: everything is carried out by the answers.
  void Carry(CoordinatorAction action, Answers* answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void CallShard(const coordinator_action::CallShard& order);
  void SealGrants(uint32_t worker, google::protobuf::RepeatedPtrField<ps::SlotGrant>* grants) const;
  void NoteTold(uint32_t worker) ABSL_LOCKS_EXCLUDED(mutex_);
  void RunTimer();

  Checkpointer* const checkpointer_;
  Clock* const clock_;
  const CoordinatorListener listener_;
  const std::string run_id_;
  const absl::Duration lease_;
  const std::unique_ptr<CoordinatorTrace> trace_;
  std::vector<std::unique_ptr<ShardPeer>> peers_;  // set by Start
  std::vector<bool> told_tasks_;                   // of TellTasksOfTheEnd

  const GrantSeals seals_;

  mutable absl::Mutex mutex_;
  Coordinator coordinator_ ABSL_GUARDED_BY(mutex_);
  CallId last_call_ ABSL_GUARDED_BY(mutex_) = 0;
  CallTable<ps::RegisterReply> registers_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::HeartbeatReply> heartbeats_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::CommitReply> commits_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::CheckpointReply> checkpoints_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::DrainReply> drains_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::EvictReply> evictions_ ABSL_GUARDED_BY(mutex_);
  absl::flat_hash_set<uint32_t> told_of_end_ ABSL_GUARDED_BY(mutex_);  // worker ids
  // When clones could first register or hear that the run is finished.
  absl::Duration answering_since_ ABSL_GUARDED_BY(mutex_) = absl::InfiniteDuration();
  // Anybody may come and go as a spare: no more than a line every two seconds in the long run.
  LogLimiter spare_notices_ ABSL_GUARDED_BY(mutex_){20, absl::Seconds(2)};
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar stopped_;  // told when stop_ becomes true

  std::thread timer_;
  std::unique_ptr<SerialExecutor> file_thread_;  // last: its work posts events
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_COORDINATOR_RUNTIME_H_
