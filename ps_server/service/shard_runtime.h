// One shard at work: the aggregator's state machine under a lock, the store on a thread of its own,
// snapshots on another, and the callbacks of calls that wait.
#ifndef PUSHPULL_PS_SERVER_SERVICE_SHARD_RUNTIME_H_
#define PUSHPULL_PS_SERVER_SERVICE_SHARD_RUNTIME_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <thread>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/synchronization/mutex.h"

#include "common/clock.h"
#include "common/monotonic_wait.h"
#include "common/ps_handler.h"
#include "common/serial_executor.h"
#include "ps_server/core/shard_aggregator.h"
#include "ps_server/service/call_table.h"
#include "ps_server/service/grant_seals.h"
#include "ps_server/service/job_spec.h"
#include "ps_server/service/pull_copies.h"
#include "ps_server/service/shard_store.h"
#include "ps_server/service/shard_trace.h"

namespace pushpull {

// Thread-safe. No call blocks; see PsHandler for what each means.
class ShardRuntime {
 public:
  // Hands a push's commit to the coordinator of the same process (one task only).
  using CommitFn = std::function<void(const ps::CommitRequest&, PsHandler::Done<ps::CommitReply>)>;

  // job and clock must outlive the runtime.
  // trace: null, or gets what the shard does.
  ShardRuntime(const JobSpec* job, ShardOptions options, std::unique_ptr<ShardStore> store,
               Clock* clock, CommitFn commit, std::shared_ptr<ShardTrace> trace = nullptr);
  ~ShardRuntime();
  // Its threads end; waiting calls and later ones are dropped unanswered. No push may come any
  // more.
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

  // Every waiting and later call of a worker is answered with `reason`.
  void Close(const absl::Status& reason);
  // Duplicates seen so far.
  uint64_t duplicate_chunks() const;
  // 0 until restored.
  uint64_t epoch() const;
  uint64_t boot_id() const { return boot_id_; }
  ShardStore* store() { return store_.get(); }

 private:
  // Runs the store's part of an action, on its thread, and traces it.
  template <typename Work>
  auto Traced(absl::string_view what, uint64_t step, const Work& work) {
    if (trace_ == nullptr) return work();
    const absl::Duration begin = trace_->Now();
    auto result = work();
    trace_->OnStored(what, step, begin);
    return result;
  }
  CallId NewCall() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return ++last_call_; }
  // Keeps `done` and gives the event the number of its call.
  template <typename Event, typename Reply>
  Event Open(Event event, CallTable<Reply>* table, PsHandler::Done<Reply> done,
             absl::Duration deadline = absl::InfiniteDuration()) {
    absl::MutexLock lock(&mutex_);
    table->Add(event.call = NewCall(), std::move(done), deadline);
    return event;
  }
  void Post(const ShardEvent& event) ABSL_LOCKS_EXCLUDED(mutex_);
  void Carry(ShardAction action, Answers* answers) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void ServePull(const shard_action::ServePull& order, Answers* answers)
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void StartSnapshot(shard_action::StoreSnapshot order) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  // Run, epoch and grant of a push, before any work is done for it.
  absl::Status CheckSender(const ps::PushKey& key) const ABSL_LOCKS_EXCLUDED(mutex_);
  void CompletePush(CallId call, absl::StatusOr<ps::PushReply> reply);
  void CancelPush(CallId call);
  void CancelPull(CallId call);
  // Gives `done` a copy of the snapshot, made on a thread of its own: the store's has more urgent
  // things to do.
  void CopySnapshot(PullSnapshot snapshot, PsHandler::Done<PullSnapshot> done);
  void RunTimer();
  // Answers pulls whose wait is over.
  void ExpirePulls();

  const JobSpec* const job_;
  const int shard_;
  const uint64_t boot_id_;
  Clock* const clock_;
  const CommitFn commit_;
  const std::shared_ptr<ShardTrace> trace_;
  const std::unique_ptr<ShardStore> store_;

  GrantSeals seals_;
  PullCopies copies_;

  mutable absl::Mutex mutex_;
  ShardAggregator aggregator_ ABSL_GUARDED_BY(mutex_);
  CallId last_call_ ABSL_GUARDED_BY(mutex_) = 0;
  CallTable<ps::PushReply> pushes_ ABSL_GUARDED_BY(mutex_);
  CallTable<PullSnapshot> pulls_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::RestoreReply> restores_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::NormReply> norms_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::ApplyReply> applies_ ABSL_GUARDED_BY(mutex_);
  CallTable<ps::SnapshotReply> snapshots_ ABSL_GUARDED_BY(mutex_);
  int copies_asked_ ABSL_GUARDED_BY(mutex_) = 0;  // not answered yet
  bool stop_ ABSL_GUARDED_BY(mutex_) = false;
  MonotonicCondVar stopped_;  // told when stop_ becomes true

  std::thread timer_;
  // Last, so that they end first: their work posts events.
  std::unique_ptr<SerialExecutor> copy_thread_;
  std::unique_ptr<SerialExecutor> snapshot_thread_;
  std::unique_ptr<SerialExecutor> store_thread_;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_SERVICE_SHARD_RUNTIME_H_
