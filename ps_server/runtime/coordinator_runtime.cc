// Tested by tests/ps_server/runtime/server_test.cc.
// Tested by tests/ps_server/runtime/administrators_test.cc.
#include "ps_server/runtime/coordinator_runtime.h"

#include <algorithm>
#include <type_traits>
#include <utility>
#include <variant>

#include "glog/logging.h"

#include "common/base/hmac.h"
#include "common/base/utf8.h"
#include "common/wire/error_detail.h"
#include "ps_server/core/stop_reason.h"
#include "ps_server/runtime/overloaded.h"
#include "ps_server/runtime/request_limits.h"

namespace pushpull {
namespace {

constexpr absl::Duration kLongestNap = absl::Milliseconds(200);

}  // namespace

CoordinatorRuntime::CoordinatorRuntime(CoordinatorOptions options, Checkpointer* checkpointer,
                                       Clock* clock, CoordinatorListener listener,
                                       std::unique_ptr<CoordinatorTrace> trace)
    : checkpointer_(checkpointer),
      clock_(clock),
      listener_(std::move(listener)),
      run_id_(options.run_id),
      lease_(options.lease),
      trace_(std::move(trace)),
      macs_(NewHmacKey()),
      coordinator_(std::move(options)),
      file_thread_(std::make_unique<SerialExecutor>()) {}

CoordinatorRuntime::~CoordinatorRuntime() { Stop(); }

void CoordinatorRuntime::Stop() {
  {
    absl::MutexLock lock(&mutex_);
    stop_ = true;
    stopped_.NotifyAll();
  }
  if (timer_.joinable()) timer_.join();
  file_thread_.reset();  // no work is queued after stop_
  // A peer's thread may still be carrying out actions of an event that came before stop_: calls to
  // other shards and to the listener. So these threads end here, while those exist.
  for (const auto& peer : peers_) peer->Stop();
}

void CoordinatorRuntime::Start(std::vector<std::unique_ptr<ShardPeer>> peers,
                               uint64_t stored_epoch) {
  peers_ = std::move(peers);
  Post(coordinator_event::Start{stored_epoch});
  timer_ = std::thread([this] { RunTimer(); });
}

void CoordinatorRuntime::Drain() { Post(coordinator_event::Drain{}); }

void CoordinatorRuntime::Post(const CoordinatorEvent& event) {
  Answers answers;
  {
    absl::MutexLock lock(&mutex_);
    if (stop_) return;
    for (CoordinatorAction& action : coordinator_.Handle(event, clock_->Now())) {
      Carry(std::move(action), &answers);
    }
  }
  for (const auto& answer : answers) answer();
}

void CoordinatorRuntime::Register(const ps::RegisterRequest& request,
                                  PsHandler::Done<ps::RegisterReply> done) {
  if (const absl::Status status = CheckRequestLimits(request); !status.ok()) return done(status);
  auto tell = [this, worker = request.worker_id(),
               done = std::move(done)](absl::StatusOr<ps::RegisterReply> reply) {
    if (reply.ok()) SignGrants(worker, reply->mutable_grants());
    done(std::move(reply));
  };
  Post(Open<coordinator_event::Register, ps::RegisterReply>({.request = request}, std::move(tell)));
}

void CoordinatorRuntime::Heartbeat(const ps::HeartbeatRequest& request,
                                   PsHandler::Done<ps::HeartbeatReply> done) {
  if (const absl::Status status = CheckRequestLimits(request); !status.ok()) return done(status);
  auto tell = [this, worker = request.worker_id(), knows_end = request.progress().knows_end(),
               done = std::move(done)](absl::StatusOr<ps::HeartbeatReply> reply) {
    const bool registered = reply.ok();
    if (registered) SignGrants(worker, reply->mutable_grants());
    done(std::move(reply));
    // After the answer: the server may end as soon as all are noted.
    if (registered && knows_end) NoteThatItKnows(worker);
  };
  Post(Open<coordinator_event::Heartbeat, ps::HeartbeatReply>({.request = request},
                                                              std::move(tell)));
}

void CoordinatorRuntime::Commit(const ps::CommitRequest& request,
                                PsHandler::Done<ps::CommitReply> done) {
  absl::Status status = CheckRequestLimits(request);
  // The MAC of another epoch's grant may be of a key that a restart has replaced. It is not
  // checked, so that the coordinator answers with EPOCH_CHANGED instead of FENCED.
  if (status.ok() && request.key().epoch() == epoch()) status = macs_.Check(request.key());
  if (!status.ok()) return done(status);
  if (trace_ != nullptr) trace_->OnCommit(request.key());
  Post(Open(coordinator_event::Commit{.request = request}, std::move(done)));
}

void CoordinatorRuntime::SignGrants(
    uint32_t worker, google::protobuf::RepeatedPtrField<ps::ReplicaGrant>* grants) const {
  for (ps::ReplicaGrant& grant : *grants) macs_.Sign(worker, &grant);
}

void CoordinatorRuntime::Checkpoint(const ps::CheckpointRequest&,
                                    PsHandler::Done<ps::CheckpointReply> done) {
  Post(Open(coordinator_event::Checkpoint(), std::move(done)));
}

void CoordinatorRuntime::Drain(const ps::DrainRequest&, PsHandler::Done<ps::DrainReply> done) {
  Post(Open(coordinator_event::Drain(), std::move(done)));
}

void CoordinatorRuntime::Evict(const ps::EvictRequest& request,
                               PsHandler::Done<ps::EvictReply> done) {
  const absl::Status status = CheckText("reason", request.reason(), kMaxVariableNameBytes);
  if (!status.ok()) return done(status);
  Post(Open(coordinator_event::Evict{.request = request}, std::move(done)));
}

void CoordinatorRuntime::Scale(const ps::ScaleRequest& request,
                               PsHandler::Done<ps::ScaleReply> done) {
  Post(Open(coordinator_event::Scale{.request = request}, std::move(done)));
}

absl::Status CoordinatorRuntime::CheckNotEvicted(uint32_t worker_id) const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.CheckNotEvicted(worker_id);
}

void CoordinatorRuntime::NoteThatItKnows(uint32_t worker) {
  absl::MutexLock lock(&mutex_);
  know_the_end_.insert(worker);
}

bool CoordinatorRuntime::EveryCloneKnowsOfTheEnd() const {
  absl::MutexLock lock(&mutex_);
  const absl::Duration now = clock_->Now();
  const ps::StatusReply status = coordinator_.Status(now);
  const bool all_alive_know =
      std::all_of(status.clones().begin(), status.clones().end(),
                  [this](const ps::CloneStatus& clone) ABSL_NO_THREAD_SAFETY_ANALYSIS {
                    return !clone.alive() || know_the_end_.contains(clone.worker_id());
                  });
  if (!all_alive_know || !coordinator_.training_done()) return all_alive_know;
  // Spares (ids from num_replicas up) do not count: that a spare knows of the end does not mean
  // that the clone of a replica knows it.
  const uint32_t num_replicas = coordinator_.num_replicas();
  const auto know =
      std::count_if(know_the_end_.begin(), know_the_end_.end(),
                    [num_replicas](uint32_t worker) { return worker < num_replicas; });
  // A clone that was evicted is refused whenever it comes back, so nobody waits for it.
  const auto evicted = std::count_if(
      status.clones().begin(), status.clones().end(),
      [this, num_replicas](const ps::CloneStatus& clone) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        return clone.worker_id() < num_replicas && clone.evicted() &&
               !know_the_end_.contains(clone.worker_id());
      });
  const bool every_replica_knows = num_replicas > 0 && know + evicted >= num_replicas;
  return every_replica_knows || now >= answering_since_ + lease_;
}

ps::StatusReply CoordinatorRuntime::Status() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.Status(clock_->Now());
}

uint64_t CoordinatorRuntime::epoch() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.epoch();
}

uint64_t CoordinatorRuntime::version() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.version();
}

uint64_t CoordinatorRuntime::last_step() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.last_step();
}

uint32_t CoordinatorRuntime::num_replicas() const {
  absl::MutexLock lock(&mutex_);
  return coordinator_.num_replicas();
}

bool CoordinatorRuntime::TellTasksOfTheEnd(const absl::Status& end,
                                           std::optional<uint64_t> verified_step) {
  const ps::StatusReply status = Status();
  const bool drained = IsDrained(end);
  ps::EndTaskRequest request;
  request.set_run_id(run_id_);
  request.set_epoch(status.epoch());
  request.set_how(end.ok()  ? ps::EndTaskRequest::DONE
                  : drained ? ps::EndTaskRequest::DRAINED
                            : ps::EndTaskRequest::STOPPED);
  request.set_reason(ValidUtf8(end.message()));
  if (verified_step.has_value()) request.set_verified_step(*verified_step);
  const bool is_first_attempt = told_tasks_.empty();
  told_tasks_.resize(peers_.size(), false);
  bool all = true;
  for (size_t task = 0; task < peers_.size(); ++task) {
    if (told_tasks_[task]) continue;
    const absl::Status told = peers_[task]->EndTask(request);
    // A task that has answered anything else would answer the same again.
    told_tasks_[task] = !absl::IsUnavailable(told) && !absl::IsDeadlineExceeded(told);
    all = all && told_tasks_[task];
    LOG_IF(WARNING, told_tasks_[task] && !told.ok())
        << "ps task " << task << " does not end with the job: " << told.message();
    LOG_IF(INFO, is_first_attempt && !told_tasks_[task])
        << "ps task " << task << " has not heard of the end and is told again, for at most a lease "
        << "(--lease): " << told.message();
  }
  return all;
}

void CoordinatorRuntime::CallShard(const coordinator_action::CallShard& order) {
  ShardCall call = order.call;
  if (auto* restore = std::get_if<shard_call::Restore>(&call)) {
    restore->request.set_mac_key(macs_.key());
  }
  peers_[order.shard]->Call(call, [this, rpc = order.rpc](absl::StatusOr<ShardReply> reply) {
    Post(coordinator_event::ShardReplied{rpc, std::move(reply)});
  });
}

void CoordinatorRuntime::Publish(const coordinator_action::PublishCheckpoint& order,
                                 uint64_t num_replicas) {
  const absl::Status published = checkpointer_->Publish(order, num_replicas);
  if (trace_ != nullptr) trace_->OnPublished(order.step, published);
  Post(coordinator_event::CheckpointPublished{order.step, published});
  if (!published.ok()) return;
  if (order.training_done) return checkpointer_->RemoveOld();
  absl::MutexLock lock(&mutex_);
  if (!stop_) file_thread_->Run([this] { RemoveOldWhileTraining(); });
}

void CoordinatorRuntime::RemoveOldWhileTraining() {
  const auto has_to_stop = [this] {
    absl::MutexLock lock(&mutex_);
    return stop_ || !coordinator_.is_training();
  };
  // The last checkpoint and the next epoch wait for the file thread, so the reading ends when a
  // drain or a recovery begins.
  if (!has_to_stop()) checkpointer_->RemoveOld(has_to_stop);
}

void CoordinatorRuntime::Log(coordinator_action::Notice notice) {
  if (notice.about_spare) {
    if (!spare_notices_.Allow(clock_->Now())) return;
    notice.text += spare_notices_.TakeNote();
  }
  if (notice.warning) {
    LOG(WARNING) << notice.text;
  } else {
    LOG(INFO) << notice.text;
  }
}

void CoordinatorRuntime::EndStopped(const absl::Status& reason) {
  ps::ErrorDetail detail;
  detail.set_kind(AnotherServerGoesOn(reason) ? ps::ErrorDetail::DRAINING
                                              : ps::ErrorDetail::STOPPED);
  const absl::Status told = MakeError(detail, reason.message());
  for (const auto& peer : peers_) peer->Close(told);
  listener_.ended(reason);
}

void CoordinatorRuntime::CarryCall(coordinator_action::CallShard order, Answers* answers) {
  if (trace_ != nullptr) trace_->OnCall(order.call, coordinator_.num_replicas());
  if (std::holds_alternative<shard_call::Snapshot>(order.call)) {
    // After the file thread has removed what an abandoned attempt left in the same folder.
    file_thread_->Run([this, order = std::move(order)] { CallShard(order); });
  } else {
    answers->push_back([this, order = std::move(order)] { CallShard(order); });
  }
}

void CoordinatorRuntime::CarryServing(const coordinator_action::Serving& serving,
                                      Answers* answers) {
  answering_since_ = std::min(answering_since_, clock_->Now());
  // Also removes those that an earlier server has left when it drained.
  if (!std::exchange(has_served_, true)) {
    file_thread_->Run([this] { RemoveOldWhileTraining(); });
  }
  answers->push_back([this, serving] { listener_.serving(serving); });
}

void CoordinatorRuntime::Carry(CoordinatorAction action, Answers* answers) {
  namespace act = coordinator_action;
  // std::visit calls the visitors here, with mutex_ held. The thread-safety analysis cannot
  // see that.
  const auto visitor = Overloaded{
      [&](act::PersistEpoch& a) {
        file_thread_->Run([this, a] {
          Post(coordinator_event::EpochPersisted{a.epoch, listener_.persist_epoch(a.epoch)});
        });
      },
      [&](act::FindCheckpoint&) {
        file_thread_->Run(
            [this] { Post(coordinator_event::CheckpointFound{checkpointer_->FindCheckpoint()}); });
      },
      [&](act::TakeOver& a) {
        file_thread_->Run(
            [this, a] { Post(coordinator_event::TookOver{listener_.take_over(a.version)}); });
      },
      [&](act::PersistReplicas& a) {
        file_thread_->Run([this, a] {
          Post(coordinator_event::ReplicasPersisted{a.num_replicas,
                                                    listener_.persist_replicas(a.num_replicas)});
        });
      },
      [&](act::CallShard& a) ABSL_NO_THREAD_SAFETY_ANALYSIS { CarryCall(std::move(a), answers); },
      [&](act::PublishCheckpoint& a) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        file_thread_->Run([this, a = std::move(a), replicas = coordinator_.num_replicas()] {
          Publish(a, replicas);
        });
      },
      [&](act::AbandonCheckpoint& a) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        file_thread_->Run(
            [this, a, epoch = coordinator_.epoch()] { checkpointer_->Abandon(epoch, a.step); });
      },
      [&](act::EndWanted&) { answers->push_back([this] { listener_.end_wanted(); }); },
      [&](act::StepApplied& a) {
        answers->push_back([this, a = std::move(a)] { listener_.step_applied(a); });
      },
      [&](act::Serving& a) ABSL_NO_THREAD_SAFETY_ANALYSIS { CarryServing(a, answers); },
      [&](act::Notice& a) ABSL_NO_THREAD_SAFETY_ANALYSIS { Log(std::move(a)); },
      [&](act::Finished&) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        answering_since_ = std::min(answering_since_, clock_->Now());
        answers->push_back([this] { listener_.ended(absl::OkStatus()); });
      },
      [&](act::Drained&) {
        answers->push_back([this] { listener_.ended(absl::CancelledError("drained")); });
      },
      [&](act::Stopped& a) { answers->push_back([this, a] { EndStopped(a.reason); }); },
      // The remaining actions answer a call.
      [&](auto& a) ABSL_NO_THREAD_SAFETY_ANALYSIS {
        using Reply = std::decay_t<decltype(a.reply.value())>;
        Answer(&std::get<CallTable<Reply>>(calls_), a.call, std::move(a.reply), answers);
      },
  };
  std::visit(visitor, action);
}

void CoordinatorRuntime::RunTimer() {
  for (;;) {
    bool due;
    {
      absl::MutexLock lock(&mutex_);
      const absl::Duration nap =
          std::clamp(coordinator_.NextWakeup() - clock_->Now(), absl::Milliseconds(1), kLongestNap);
      const auto stop = [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) { return stop_; };
      if (stopped_.Await(&mutex_, stop, nap)) return;
      due = clock_->Now() >= coordinator_.NextWakeup();
    }
    if (due) Post(coordinator_event::Tick{});
  }
}

}  // namespace pushpull
