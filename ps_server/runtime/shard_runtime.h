// ShardRuntime runs one shard: the ShardAggregator state machine under a lock, a thread for the
// store, a thread for snapshots, a thread for copies, and the callbacks of waiting calls.
#ifndef PUSHPULL_PS_SERVER_RUNTIME_SHARD_RUNTIME_H_
#define PUSHPULL_PS_SERVER_RUNTIME_SHARD_RUNTIME_H_

#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"

#include "common/base/clock.h"
#include "common/base/monotonic_wait.h"
#include "common/base/serial_executor.h"
#include "common/wire/ps_handler.h"
#include "ps_server/core/shard_aggregator.h"
#include "ps_server/runtime/call_table.h"
#include "ps_server/runtime/grant_mac.h"
#include "ps_server/runtime/job_spec.h"
#include "ps_server/runtime/pull_copies.h"
#include "ps_server/runtime/shard_store.h"
#include "ps_server/runtime/shard_trace.h"

namespace pushpull {

// Thread-safe. Only the destructor and Stop block. PsHandler describes the calls.
class ShardRuntime {
 public:
  // Passes the commit that a push carries to the coordinator of this process. Only jobs with
  // one task have such pushes.
  using CommitFn = std::function<void(const ps::CommitRequest&, PsHandler::Done<ps::CommitReply>)>;

  // `job` and `clock` must outlive the runtime. trace: null, or records what the shard does.
  ShardRuntime(const JobSpec* job, ShardOptions options, std::unique_ptr<ShardStore> store,
               Clock* clock, CommitFn commit, std::shared_ptr<ShardTrace> trace = nullptr);
  ~ShardRuntime();
  // Ends the threads after their queued work. Waiting and later calls are dropped unanswered.
  // No PushChunk may be running or come later. Blocks for the queued work.
  void Stop();

  absl::Status PushChunk(const ps::PushChunk& header, const Payload& payload);
  CancelFn FinishPush(const ps::PushChunk& last, PsHandler::Done<ps::PushReply> done);
  CancelFn Pull(const ps::PullRequest& request, PsHandler::Done<PullSnapshot> done);
  absl::StatusOr<ps::OpenSharedMemoryReply> OpenSharedMemory(
      const ps::OpenSharedMemoryRequest& request) const;

  void GetState(PsHandler::Done<ps::ShardStateReply> done);
  void Restore(const ps::RestoreRequest& request, PsHandler::Done<ps::RestoreReply> done);
  void MeasureNorm(const ps::ApplyRequest& request, PsHandler::Done<ps::NormReply> done);
  void Apply(const ps::ApplyRequest& request, PsHandler::Done<ps::ApplyReply> done);
  void Snapshot(const ps::SnapshotRequest& request, PsHandler::Done<ps::SnapshotReply> done);

  // Answers every waiting and later call of a clone with `reason`.
  void Close(const absl::Status& reason);
  // Chunks that arrived more than once.
  uint64_t duplicate_chunks() const;
  // The epoch of the newest restore, 0 before the first one.
  uint64_t epoch() const;
  uint64_t boot_id() const { return boot_id_; }
  // Returns the time of the coordinator's newest call, which is any of those above from GetState to
  // Snapshot; now, while a restore for it goes on. Before the first call it is the time at which
  // the runtime was made.
  absl::Duration last_coordinator_call() const;
  ShardStore* store() { return store_.get(); }

 private:
  // Runs `work` and traces it as a span named `what`. Called by the store's thread.
  template <typename Work>
  auto Traced(absl::string_view what, uint64_t step, const Work& work) {
    if (trace_ == nullptr) return work();
    const absl::Duration begin = trace_->Now();
    auto result = work();
    trace_->OnStored(what, step, begin);
    return result;
  }
  CallId NewCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ++last_call_; }
  // Stores `done` under a new call number and returns the event with that number.
  template <typename Event, typename Reply>
  Event Open(Event event, CallTable<Reply>* table, PsHandler::Done<Reply> done,
             absl::Duration deadline = absl::InfiniteDuration()) {
    absl::MutexLock lock(&mutex_);
    table->Add(event.call = NewCall(), std::move(done), deadline);
    return event;
  }
  // Handles the event. `first` is called just before that in the same critical section.
  void Post(
      const ShardEvent& event, absl::FunctionRef<void()> first = [] {}) ABSL_LOCKS_EXCLUDED(mutex_);
  // Queues work on the threads. Replies are added to `answers`, which the caller runs after it
  // has unlocked mutex_.
  void Carry(ShardAction action, Answers* answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServePull(const shard_action::ServePull& order, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartSnapshot(shard_action::StoreSnapshot order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Checks run, epoch and the MAC of the grant before any work is done for a push.
  absl::Status CheckSender(const ps::PushKey& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  void NoteCoordinatorCall() { last_call_at_.store(absl::ToInt64Nanoseconds(clock_->Now())); }
  void CompletePush(CallId call, absl::StatusOr<ps::PushReply> reply);
  void CancelPush(CallId call);
  void CancelPull(CallId call);
  // Passes a copy of the snapshot to `done`. The copy is made on copy_thread_, because the
  // store's thread has more urgent work.
  void CopySnapshot(PullSnapshot snapshot, PsHandler::Done<PullSnapshot> done);
  void RunTimer();
  // Answers pulls whose deadline has passed with DEADLINE_EXCEEDED.
  void ExpirePulls();

  const JobSpec* const job_;
  const int shard_;
  const uint64_t boot_id_;
  Clock* const clock_;
  const CommitFn commit_;
  const std::shared_ptr<ShardTrace> trace_;
  const std::unique_ptr<ShardStore> store_;

  GrantMac macs_;
  PullCopies copies_;
  std::atomic<int64_t> last_call_at_;  // last_coordinator_call, in nanoseconds

  mutable absl::Mutex mutex_;
  ShardAggregator aggregator_ ABSL_GUARDED_BY(mutex_);
  CallId last_call_ ABSL_GUARDED_BY(mutex_) = 0;
  CallTable<ps::PushReply> pushes_ ABSL_GUARDED_BY(mutex_);
  CallTable<PullSnapshot> pulls_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::RestoreReply> restores_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::NormReply> norms_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::ApplyReply> applies_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::SnapshotReply> snapshots_ ABSL_GUARDED_BY(mutex_);
  int copies_asked_ ABSL_GUARDED_BY(mutex_) = 0;  // copies queued or being made
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar stopped_;  // notified when stop_ becomes true

  std::thread timer_;
  // The last members, so that they are destroyed first: their work posts events.
  std::unique_ptr<SerialExecutor> copy_thread_;
  std::unique_ptr<SerialExecutor> snapshot_thread_;
  std::unique_ptr<SerialExecutor> store_thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_RUNTIME_SHARD_RUNTIME_H_
