// Tested by tests/ps_server/runtime/task_handler_test.cc.
#include "ps_server/runtime/shard_runtime.h"

#include <algorithm>
#include <utility>
#include <variant>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "ps_server/core/chunk_verifier.h"
#include "ps_server/runtime/overloaded.h"
#include "ps_server/runtime/request_limits.h"

namespace pushpull {
namespace {

constexpr absl::Duration kTimerPeriod = absl::Milliseconds(100);
constexpr int kMaxCopiesAsked = 16;

}  // namespace

ShardRuntime::ShardRuntime(const JobSpec* job, ShardOptions options,
                           std::unique_ptr<ShardStore> store, Clock* clock, CommitFn commit,
                           std::shared_ptr<ShardTrace> trace)
    : job_(job),
      shard_(static_cast<int>(options.shard)),
      boot_id_(options.boot_id),
      clock_(clock),
      commit_(std::move(commit)),
      trace_(std::move(trace)),
      store_(std::move(store)),
      last_call_at_(absl::ToInt64Nanoseconds(clock->Now())),
      aggregator_(std::move(options)),
      copy_thread_(std::make_unique<SerialExecutor>()),
      snapshot_thread_(std::make_unique<SerialExecutor>()),
      store_thread_(std::make_unique<SerialExecutor>()) {
  timer_ = std::thread([this] { RunTimer(); });
}

ShardRuntime::~ShardRuntime() { Stop(); }

void ShardRuntime::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    stopped_.NotifyAll();
  }
  if (timer_.joinable()) timer_.join();
  // No work is queued after stop_, and events that queued work posts are ignored.
  copy_thread_.reset();
  snapshot_thread_.reset();
  store_thread_.reset();
}

void ShardRuntime::Post(const ShardEvent& event, absl::FunctionRef<void()> first) {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    if (stop_) return;
    first();
    for (ShardAction& action : aggregator_.Handle(event)) Carry(std::move(action), &answers);
  }
  for (const auto& answer : answers) answer();
}

absl::Status ShardRuntime::CheckSender(const ps::PushKey& key) const {
  {
    absl::MutexLock lock(&mutex_);
    PP_RETURN_IF_ERROR(aggregator_.CheckSender(key.run_id(), key.epoch()));
  }
  return macs_.Check(key);
}

absl::Status ShardRuntime::PushChunk(const ps::PushChunk& header, const Payload& payload) {
  PP_RETURN_IF_ERROR(CheckSender(header.key()));
  if (trace_ != nullptr) trace_->OnChunk(header.key());
  const absl::Status verdict = VerifyChunk(header, payload, job_->layout, job_->sharding);
  Answers answers;  // stays empty: TakeAhead returns no replies
  absl::MutexLock lock(&mutex_);
  const absl::Status status = aggregator_.PushChunk(header, payload, verdict);
  for (ShardAction& action : aggregator_.TakeAhead()) Carry(std::move(action), &answers);
  return status;
}

CancelFn ShardRuntime::FinishPush(const ps::PushChunk& last, PsHandler::Done<ps::PushReply> done) {
  if (trace_ != nullptr) trace_->OnPushed(last.key());
  const auto event = Open(shard_event::FinishPush{.last = last}, &pushes_, std::move(done));
  Post(event);
  return [this, call = event.call] { CancelPush(call); };
}

void ShardRuntime::CancelPush(CallId call) {
  {
    absl::MutexLock lock(&mutex_);
    if (!pushes_.Take(call)) return;
  }
  Post(shard_event::Cancel{call});
}

CancelFn ShardRuntime::Pull(const ps::PullRequest& request, PsHandler::Done<PullSnapshot> done) {
  if (!macs_.Check(request.worker_id(), request.grant()).ok()) {
    done = [this, done = std::move(done)](absl::StatusOr<PullSnapshot> snapshot) {
      if (!snapshot.ok()) return done(std::move(snapshot));
      CopySnapshot(*std::move(snapshot), done);
    };
  }
  if (trace_ != nullptr) {
    done = [trace = trace_, worker = request.worker_id(),
            done = std::move(done)](absl::StatusOr<PullSnapshot> reply) {
      if (reply.ok()) {
        reply->payload = trace->OnPull(worker, reply->version, std::move(reply->payload));
      }
      done(std::move(reply));
    };
  }
  const auto event = Open(shard_event::Pull{.request = request}, &pulls_, std::move(done),
                          clock_->Now() + LongestWait(request));
  Post(event);
  return [this, call = event.call] { CancelPull(call); };
}

void ShardRuntime::CopySnapshot(PullSnapshot snapshot, PsHandler::Done<PullSnapshot> done) {
  {
    absl::MutexLock lock(&mutex_);
    if (stop_) return;
    // A snapshot keeps its version pinned while it waits for its copy.
    if (copies_asked_ < kMaxCopiesAsked) {
      ++copies_asked_;
      copy_thread_->Run([this, snapshot = std::move(snapshot), done = std::move(done)]() mutable {
        absl::StatusOr<PullSnapshot> copy = copies_.Copy(snapshot);
        snapshot = {};
        {
          absl::MutexLock lock(&mutex_);
          --copies_asked_;
          if (stop_) return;
        }
        done(std::move(copy));
      });
      return;
    }
  }
  done(absl::UnavailableError(absl::StrCat(kMaxCopiesAsked,
                                           " pulls without a grant wait for their copies already; "
                                           "try again, or register and pull with a grant")));
}

absl::StatusOr<ps::OpenSharedMemoryReply> ShardRuntime::OpenSharedMemory(
    const ps::OpenSharedMemoryRequest& request) const {
  {
    absl::MutexLock lock(&mutex_);
    PP_RETURN_IF_ERROR(aggregator_.CheckSender(request.run_id(), request.epoch()));
  }
  PP_RETURN_IF_ERROR(macs_.Check(request.worker_id(), request.grant()));
  ps::OpenSharedMemoryReply reply;
  reply.set_shard_bytes(job_->sharding.shard(shard_).size() * sizeof(float));
  return reply;
}

void ShardRuntime::CancelPull(CallId call) {
  {
    absl::MutexLock lock(&mutex_);
    if (!pulls_.Take(call)) return;
  }
  Post(shard_event::Cancel{call});
}

void ShardRuntime::GetState(PsHandler::Done<ps::ShardStateReply> done) {
  NoteCoordinatorCall();
  ps::ShardStateReply reply;
  {
    absl::MutexLock lock(&mutex_);
    reply = aggregator_.State();
  }
  done(std::move(reply));
}

void ShardRuntime::Restore(const ps::RestoreRequest& request,
                           PsHandler::Done<ps::RestoreReply> done) {
  NoteCoordinatorCall();
  Post(Open(shard_event::Restore{.request = request}, &restores_, std::move(done)),
       [&]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
         // The key changes together with the epoch. Otherwise a late order of an older epoch could
         // bring back its key after a newer one has set its own.
         if (aggregator_.CheckRestore(request).ok()) macs_.SetKey(request.mac_key());
       });
}

absl::Duration ShardRuntime::last_coordinator_call() const {
  absl::MutexLock lock(&mutex_);
  // A large shard is restored for longer than a coordinator may be silent.
  return restores_.empty() ? absl::Nanoseconds(last_call_at_.load()) : clock_->Now();
}

void ShardRuntime::MeasureNorm(const ps::ApplyRequest& request,
                               PsHandler::Done<ps::NormReply> done) {
  NoteCoordinatorCall();
  Post(Open(shard_event::MeasureNorm{.request = request}, &norms_, std::move(done)));
}

void ShardRuntime::Apply(const ps::ApplyRequest& request, PsHandler::Done<ps::ApplyReply> done) {
  NoteCoordinatorCall();
  Post(Open(shard_event::Apply{.request = request}, &applies_, std::move(done)));
}

void ShardRuntime::Snapshot(const ps::SnapshotRequest& request,
                            PsHandler::Done<ps::SnapshotReply> done) {
  NoteCoordinatorCall();
  Post(Open(shard_event::Snapshot{.request = request}, &snapshots_, std::move(done)));
}

void ShardRuntime::Close(const absl::Status& reason) { Post(shard_event::Close{reason}); }

uint64_t ShardRuntime::duplicate_chunks() const {
  absl::MutexLock lock(&mutex_);
  return aggregator_.duplicate_chunks();
}

uint64_t ShardRuntime::epoch() const {
  absl::MutexLock lock(&mutex_);
  return aggregator_.epoch();
}

void ShardRuntime::CompletePush(CallId call, absl::StatusOr<ps::PushReply> reply) {
  CallTable<ps::PushReply>::Done done;
  {
    absl::MutexLock lock(&mutex_);
    done = pushes_.Take(call);
  }
  if (done) done(std::move(reply));
}

void ShardRuntime::ServePull(const shard_action::ServePull& order, Answers* answers) {
  CallTable<PullSnapshot>::Done done = pulls_.Take(order.call);
  if (!done) return;
  absl::StatusOr<PinnedVersion> pinned = store_->Pin(order.version);
  if (!pinned.ok()) {
    answers->push_back([done, status = pinned.status()] { done(status); });
    return;
  }
  PullSnapshot snapshot;
  snapshot.epoch = order.epoch;
  snapshot.version = order.version;
  snapshot.shard = shard_;
  snapshot.payload = store_->WeightsPayload(*pinned);
  answers->push_back([done, snapshot = std::move(snapshot)] { done(snapshot); });
}

void ShardRuntime::StartSnapshot(shard_action::StoreSnapshot order) {
  // The version is pinned under the lock, before the apply that would overwrite its buffer (of
  // step + 2) can start.
  absl::StatusOr<PinnedVersion> pinned = store_->Pin(order.step);
  snapshot_thread_->Run([this, pinned = std::move(pinned), order = std::move(order),
                         epoch = aggregator_.epoch()]() mutable {
    if (!pinned.ok()) return Post(shard_event::StoreSnapshotDone{pinned.status()});
    const absl::Duration begin = clock_->Now();
    absl::StatusOr<ps::SnapshotReply> written =
        store_->WriteSnapshot(*std::move(pinned), epoch, order.marks);
    if (trace_ != nullptr) trace_->OnSnapshot(order.step, begin);
    Post(shard_event::StoreSnapshotDone{std::move(written)});
  });
}

void ShardRuntime::Carry(ShardAction action, Answers* answers) {
  namespace act = shard_action;
  // std::visit calls the visitors here, with mutex_ held. The thread-safety analysis cannot
  // see that.
  const auto visitor = Overloaded{
      [&](act::ReplyPush& a)
          ABSL_NO_THREAD_SAFETY_ANALYSIS { Answer(&pushes_, a.call, a.reply, answers); },
      [&](act::ServePull& a) ABSL_NO_THREAD_SAFETY_ANALYSIS { ServePull(a, answers); },
      [&](act::RefusePull& a) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        Answer<PullSnapshot>(&pulls_, a.call, a.status, answers);
      },
      [&](act::ReplyRestore& a) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        NoteCoordinatorCall();  // it has waited for the answer
        Answer(&restores_, a.call, a.reply, answers);
      },
      [&](act::ReplyNorm& a)
          ABSL_NO_THREAD_SAFETY_ANALYSIS { Answer(&norms_, a.call, a.reply, answers); },
      [&](act::ReplyApply& a)
          ABSL_NO_THREAD_SAFETY_ANALYSIS { Answer(&applies_, a.call, a.reply, answers); },
      [&](act::ReplySnapshot& a)
          ABSL_NO_THREAD_SAFETY_ANALYSIS { Answer(&snapshots_, a.call, a.reply, answers); },
      [&](act::CommitPush& a) {
        answers->push_back([this, a] {
          commit_(a.request, [this, call = a.call](absl::StatusOr<ps::CommitReply> reply) {
            CompletePush(call, PushReplyOf(reply));
          });
        });
      },
      [&](act::StoreRestore& a) {
        store_thread_->Run([this, a] {
          Post(shard_event::StoreRestored{
              Traced("restore", a.id.version, [&] { return store_->Restore(a); })});
        });
      },
      [&](act::StoreMeasure& a) {
        store_thread_->Run([this, a = std::move(a)] {
          Post(shard_event::StoreMeasured{
              Traced("measure", a.step, [&] { return store_->Measure(a); })});
        });
      },
      [&](act::StoreApply& a) {
        store_thread_->Run([this, a = std::move(a)]() mutable {
          shard_event::StoreApplied event{
              Traced("apply", a.step, [&] { return store_->Apply(a); })};
          a.contributions.clear();  // frees the received bytes before those of the next step come
          Post(event);
        });
      },
      [&](act::StoreApplyAhead& a) {
        store_thread_->Run([this, a = std::move(a)] {
          // StoreApply makes the chunks that failed here.
          Traced("apply ahead", a.step, [&] { return store_->ApplyAhead(a); }).IgnoreError();
        });
      },
      [&](act::StoreSnapshot& a) ABSL_NO_THREAD_SAFETY_ANALYSIS { StartSnapshot(std::move(a)); },
  };
  std::visit(visitor, action);
}

void ShardRuntime::RunTimer() {
  for (;;) {
    {
      absl::MutexLock lock(&mutex_);
      const auto stop = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_; };
      if (stopped_.Await(&mutex_, stop, kTimerPeriod)) return;
    }
    ExpirePulls();
  }
}

void ShardRuntime::ExpirePulls() {
  std::vector<std::pair<CallId, CallTable<PullSnapshot>::Done>> expired;
  {
    absl::MutexLock lock(&mutex_);
    expired = pulls_.TakeDue(clock_->Now());
  }
  for (const auto& [call, done] : expired) {
    Post(shard_event::Cancel{call});
    done(absl::DeadlineExceededError(
        absl::StrCat("shard ", shard_, " has not reached the version that the pull waits for")));
  }
}

}  // namespace pushpull
