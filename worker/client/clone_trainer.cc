// Tested by tests/worker/client/sync_training_test.cc.
// Tested by tests/worker/client/clone_recovery_test.cc.
// Tested by tests/worker/client/async_training_test.cc.
// Tested by tests/worker/client/training_failures_test.cc.
#include "worker/client/clone_trainer.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include "absl/strings/str_cat.h"
#include "glog/logging.h"

#include "common/base/status_macros.h"
#include "common/wire/error_detail.h"
#include "worker/client/non_finite.h"

namespace pushpull {
namespace {

constexpr absl::Duration kPushTimeout = absl::Seconds(60);
// Timeout of one pull while waiting for a version. Kept short so that the clone soon starts on a
// replica that it is granted meanwhile, and soon reports what the step waits for.
constexpr absl::Duration kPollTimeout = absl::Milliseconds(500);
// Timeout of the early pull, which is sent before the push is acknowledged. Kept short: an error in
// the push is only seen when this pull returns.
constexpr absl::Duration kEarlyPollTimeout = absl::Milliseconds(20);
// Async: pause between heartbeats of a clone that holds no grant.
constexpr absl::Duration kNoReplicaPoll = absl::Milliseconds(100);
// AwaitOpenStep repeats a call this often. The delay is short because the coordinator learns of an
// applied step only a moment after the shards serve it.
constexpr absl::Duration kOpenStepPoll = absl::Milliseconds(2);
constexpr int kOpenStepAttempts = 500;
// After the last step: pauses between heartbeats, and between reports of what is awaited.
constexpr absl::Duration kPublicationPoll = absl::Milliseconds(100);
constexpr absl::Duration kPublicationReport = absl::Seconds(1);
// Heartbeats before the first step when a trace is written. The fastest of a few round trips gives
// a good estimate of the server's clock.
constexpr int kClockSamples = 5;

BatchPart PartOf(const ps::ReplicaGrant& grant) {
  return {static_cast<int64_t>(grant.first_sample()), static_cast<int64_t>(grant.samples())};
}

bool SameGrant(const ps::ReplicaGrant& a, const ps::ReplicaGrant& b) {
  return a.replica() == b.replica() && a.grant() == b.grant();
}

}  // namespace

CloneTrainer::CloneTrainer(PsSession* session, GradientSource* source, const VariableLayout* layout,
                           Clock* clock, ReportFn report, const CloneTrainerOptions& options)
    : session_(session),
      source_(source),
      layout_(layout),
      clock_(clock),
      report_(std::move(report)),
      options_(options),
      sync_(session->job().sync()),
      phase_(clock, options.instruments.phases),
      wants_last_weights_(options.pull_last_weights) {
  const std::vector<PsClient*> shards = session->shards();
  const Sharding sharding(layout->total_elements(), static_cast<int>(shards.size()));
  pusher_ = std::make_unique<GradientPusher>(
      shards, sharding, clock_,
      GradientPusherOptions{kPushTimeout, options.gradient_codec, options.instruments.sending,
                            MovingStatisticsOf(*layout), ExactElementsOf(*layout)});
}

CloneTrainer::~CloneTrainer() { StopHeartbeat(); }

void CloneTrainer::StopHeartbeat() {
  heartbeat_stop_.Raise();
  if (heartbeat_.joinable()) heartbeat_.join();
}

void CloneTrainer::Stop() {
  stop_.store(true);
  session_->Stop();
}

bool CloneTrainer::EndsAt(uint64_t version) const {
  const uint64_t num_steps = session_->num_steps();
  return num_steps > 0 && version >= num_steps;
}

bool CloneTrainer::AllApplied() const {
  return session_->training_done() || EndsAt(session_->version());
}

absl::Status CloneTrainer::AllocateVectors() {
  for (std::shared_ptr<float>* const vector : {&weights_, &incoming_, &gradient_}) {
    PP_ASSIGN_OR_RETURN(*vector, source_->AllocateVector(layout_->total_elements()));
  }
  return absl::OkStatus();
}

absl::Span<const float> CloneTrainer::weights() const {
  return absl::MakeConstSpan(weights_.get(), layout_->total_elements());
}

absl::Status CloneTrainer::Run() {
  PP_RETURN_IF_ERROR(AllocateVectors());
  source_->AwaitInputBy([this](auto load) { return AwaitInput(load); });
  PP_RETURN_IF_ERROR(Register());
  for (int i = 0; i < kClockSamples && options_.instruments.phases != nullptr; ++i)
    Beat().IgnoreError();
  StartRate();
  heartbeat_ = std::thread([this] { RunHeartbeat(); });
  const absl::Status status = Train();
  EndHeartbeats(status);
  return status;
}

absl::Status CloneTrainer::Train() {
  while (!session_->training_done()) {
    if (stop_.load()) return absl::CancelledError("stopped by request");
    PP_RETURN_IF_ERROR(session_->stop_reason());
    if (AllApplied()) {
      PullLastWeights();
      PP_ASSIGN_OR_RETURN(const bool over, WaitForPublication());
      if (over) return absl::OkStatus();
      wants_last_weights_.store(options_.pull_last_weights);
      continue;
    }
    // A spare makes no other call by which it could learn that the server has forgotten it.
    const absl::Status status = session_->has_to_register() ? Register()
                                : sync_                     ? RunSyncStep()
                                                            : RunAsyncStep();
    if (status.ok() || AllApplied()) continue;
    PP_RETURN_IF_ERROR(session_->stop_reason());
    PP_RETURN_IF_ERROR(Recover(status));
  }
  // The heartbeat thread heard of the end while this thread had a contribution or waited as a
  // spare.
  if (wants_last_weights_.load()) PullLastWeights();
  return absl::OkStatus();
}

void CloneTrainer::PullLastWeights() {
  const uint64_t version = session_->version();
  if (options_.pull_last_weights && !(holds_weights_ && held_version_ >= version)) {
    const absl::Status pulled =
        PullInto({.version = version, .exact = sync_, .poll = kPollTimeout, .until = Phase::kPull});
    LOG_IF(WARNING, !pulled.ok()) << "this clone has the weights of step " << held_version_
                                  << ", not of the last step, " << version
                                  << ", so load the last checkpoint instead: " << pulled.message();
  }
  wants_last_weights_.store(false);
}

absl::StatusOr<bool> CloneTrainer::WaitForPublication() {
  phase_.Enter(Phase::kWait);
  session_->ForgetPulls();  // the clone waits for the coordinator alone
  absl::Duration next_report = clock_->Now() + kPublicationReport;
  while (AllApplied()) {
    if (stop_.load()) return absl::CancelledError("stopped by request");
    const absl::Status status = Beat();
    if (session_->training_done()) return true;
    PP_RETURN_IF_ERROR(session_->stop_reason());  // the heartbeat thread may have heard it alone
    const ps::ErrorDetail::Kind kind = GetErrorDetail(status).kind();
    if (kind == ps::ErrorDetail::EPOCH_CHANGED) {
      PP_RETURN_IF_ERROR(Register());
    } else if (!status.ok() && !IsTransient(status)) {
      return status;
    }
    if (const absl::Status contact = session_->CheckContact(); !contact.ok()) {
      LOG_IF(ERROR, IsPeerLost(contact))
          << "all steps are applied, but the server has not confirmed that the last checkpoint is "
             "written: look whether train_dir holds it";
      return contact;
    }
    if (clock_->Now() >= next_report) {
      ReportWaiting();
      next_report = clock_->Now() + kPublicationReport;
    }
    clock_->Sleep(kPublicationPoll);
  }
  return false;
}

absl::Status CloneTrainer::Register() {
  phase_.Enter(Phase::kWait);
  PP_RETURN_IF_ERROR(session_->Register(*layout_, source_->num_images()));
  holds_weights_ = false;
  contributed_.clear();
  new_grants_step_ = 0;
  if (!sync_) TakeAsyncReplicas();
  LOG_IF(INFO, sync_ && session_->is_spare())
      << "this clone is a spare: the job has " << session_->num_replicas()
      << " replicas, and psctl scale changes their number";
  if (options_.on_registered) options_.on_registered();
  return absl::OkStatus();
}

void CloneTrainer::TakeAsyncReplicas() {
  std::vector<AsyncReplica> replicas;
  for (const ps::ReplicaGrant& grant : session_->grants()) {
    AsyncReplica replica{.grant = grant, .position = grant.position()};
    // Under a grant that the clone already has, its own position is newer than that in the grant.
    for (const AsyncReplica& old : async_replicas_) {
      if (SameGrant(old.grant, grant)) replica = old;
    }
    replicas.push_back(replica);
  }
  async_replicas_ = std::move(replicas);
}

absl::Status CloneTrainer::Recover(const absl::Status& error) {
  const ps::ErrorDetail detail = GetErrorDetail(error);
  switch (detail.kind()) {
    case ps::ErrorDetail::EPOCH_CHANGED:
    case ps::ErrorDetail::FENCED:
    case ps::ErrorDetail::STEP_TOO_NEW:
    case ps::ErrorDetail::CHUNK_CONFLICT:
      LOG(INFO) << "registering again: " << error.message();
      return Register();
    case ps::ErrorDetail::VERSION_GONE:
      // The step was completed without this clone. Continue at the version that the server has.
      session_->NoteVersion(detail.step());
      holds_weights_ = false;
      return absl::OkStatus();
    case ps::ErrorDetail::STALE:
      return absl::OkStatus();  // the next push is preceded by a new pull anyway
    case ps::ErrorDetail::BAD_CHECKSUM:
      LOG(WARNING) << "damaged on the way, trying again: " << error.message();
      return Register();
    default:
      break;
  }
  if (!IsTransient(error)) return error;
  phase_.Enter(Phase::kWait);
  PP_RETURN_IF_ERROR(session_->CheckContact());
  clock_->Sleep(absl::Milliseconds(100));
  return absl::OkStatus();
}

std::optional<CloneTrainer::Upcoming> CloneTrainer::NextAfter(uint64_t version) const {
  if (EndsAt(version) || (new_grants_step_ != 0 && version + 1 >= new_grants_step_)) {
    return std::nullopt;
  }
  for (const ps::ReplicaGrant& grant : session_->grants()) {
    if (grant.from_step() > version + 1) continue;
    return Upcoming{version, grant.replica(), PartOf(grant)};
  }
  return std::nullopt;
}

absl::Status CloneTrainer::PullInto(const PullPlan& plan) {
  const PhaseSubject subject{.step = plan.version, .version = plan.version};
  phase_.Enter(plan.until, subject);
  const absl::Span<float> incoming(incoming_.get(), layout_->total_elements());
  PP_ASSIGN_OR_RETURN(const uint64_t pulled,
                      session_->Pull(plan.version, plan.exact, plan.poll, incoming,
                                     [&](int64_t first, int64_t end) {
                                       if (end > 0) {
                                         source_->StageWeights(incoming, first, end);
                                         return;
                                       }
                                       phase_.Enter(Phase::kPull, subject);
                                       if (!plan.next.has_value()) return;
                                       if (plan.next->part.samples > 0) {
                                         source_->NotePart(plan.next->replica, plan.next->part);
                                       }
                                       source_->StageCompute(plan.next->position,
                                                             plan.next->replica, incoming);
                                     }));
  weights_.swap(incoming_);
  held_version_ = pulled;
  holds_weights_ = true;
  source_->NoteWeights(pulled, weights());
  contributed_.clear();
  return absl::OkStatus();
}

absl::Status CloneTrainer::PullMade(uint64_t step, absl::Duration poll) {
  return PullInto({.version = step, .poll = poll, .until = Phase::kWait, .next = NextAfter(step)});
}

absl::Status CloneTrainer::RunSyncStep() {
  if (!holds_weights_) {
    PP_RETURN_IF_ERROR(PullInto({.version = session_->version(), .poll = kPollTimeout}));
  }
  if (AllApplied()) return absl::OkStatus();
  const uint64_t step = held_version_ + 1;
  if (new_grants_step_ != 0 && step >= new_grants_step_) PP_RETURN_IF_ERROR(RenewGrants(step));
  std::vector<ps::ReplicaGrant> open;
  for (const ps::ReplicaGrant& grant : session_->grants()) {
    const bool done = std::any_of(contributed_.begin(), contributed_.end(),
                                  [&](const auto& other) { return SameGrant(other, grant); });
    if (!done && grant.from_step() <= step) open.push_back(grant);
  }
  for (size_t i = 0; i < open.size(); ++i) {
    // With a single shard, the step's version may be available before the answer to the last push
    // is. Pulling it now saves a round trip.
    const auto meanwhile = [&] {
      const bool decides = i + 1 == open.size() && session_->shards().size() == 1;
      // After an error the version is pulled below.
      if (decides) PullMade(step, kEarlyPollTimeout).IgnoreError();
    };
    PP_RETURN_IF_ERROR(
        Contribute(open[i], session_->MakeKey(step, open[i], step - 1), step - 1, meanwhile));
    if (held_version_ == step) return absl::OkStatus();
    contributed_.push_back(open[i]);
  }
  const absl::Status pulled = PullMade(step, kPollTimeout);
  if (absl::IsDeadlineExceeded(pulled)) {
    ReportWaiting();
    return session_->CheckContact();
  }
  return pulled;
}

absl::Status CloneTrainer::RunAsyncStep() {
  TakeAsyncReplicas();
  for (AsyncReplica& replica : async_replicas_) {
    if (AllApplied() || stop_.load()) return absl::OkStatus();
    // Any version that is at least as new as the last one pulled.
    PP_RETURN_IF_ERROR(PullInto({.version = holds_weights_ ? held_version_ : 0,
                                 .exact = false,
                                 .poll = kPollTimeout,
                                 .next = Upcoming{replica.position, replica.grant.replica()}}));
    if (AllApplied()) return absl::OkStatus();
    // A sequence number is never used twice, even if the push fails, because shards may hold chunks
    // under it. The position advances only when the contribution has been accepted or is void.
    ps::PushKey key = session_->MakeKey(++replica.sequence, replica.grant, held_version_);
    key.set_position(replica.position);
    PP_RETURN_IF_ERROR(Contribute(replica.grant, key, replica.position, [] {}));
    ++replica.position;
  }
  if (async_replicas_.empty()) {
    phase_.Enter(Phase::kWait);
    ReportWaiting();
    clock_->Sleep(kNoReplicaPoll);
    return Beat();  // the answer may bring a grant
  }
  return absl::OkStatus();
}

absl::Status CloneTrainer::RenewGrants(uint64_t step) {
  phase_.Enter(Phase::kWait);
  for (int attempt = 1; attempt <= kOpenStepAttempts && !stop_.load(); ++attempt) {
    PP_RETURN_IF_ERROR(Beat());
    if (session_->open_step() >= step) break;
    clock_->Sleep(kOpenStepPoll);
  }
  new_grants_step_ = 0;
  return absl::OkStatus();
}

absl::Status CloneTrainer::AwaitOpenStep(absl::FunctionRef<absl::Status()> call) {
  for (int attempt = 1;; ++attempt) {
    const absl::Status status = call();
    if (GetErrorDetail(status).kind() != ps::ErrorDetail::STEP_TOO_NEW || stop_.load() ||
        attempt == kOpenStepAttempts) {
      return status;
    }
    clock_->Sleep(kOpenStepPoll);
  }
}

absl::Status CloneTrainer::Contribute(const ps::ReplicaGrant& grant, const ps::PushKey& key,
                                      uint64_t position, absl::FunctionRef<void()> meanwhile) {
  const PhaseSubject subject{
      .step = key.step(), .replica = grant.replica(), .version = key.base_version()};
  phase_.Enter(Phase::kInput, subject);
  const absl::Duration start = clock_->Now();
  if (grant.samples() > 0) source_->NotePart(grant.replica(), PartOf(grant));
  PP_RETURN_IF_ERROR(AwaitInput([&] { return source_->LoadInput(position, grant.replica()); }));
  const absl::Span<float> gradient(gradient_.get(), layout_->total_elements());
  const bool commit_with_chunks = session_->shards().size() == 1;
  pusher_->Start(key, gradient_, commit_with_chunks);
  const absl::StatusOr<GradientResult> result =
      source_->Compute(position, grant.replica(), weights(), gradient,
                       [this](int64_t first_final) { pusher_->Advance(first_final); });
  if (!result.ok()) {
    pusher_->Abandon();
    return result.status();
  }
  if (!std::isfinite(result->loss)) {
    pusher_->Abandon();
    return CommitVoid(key, /*loss_is_finite=*/false, "");
  }
  ps::CommitInfo info;
  info.set_samples(result->samples);
  info.set_compute_seconds(absl::ToDoubleSeconds(clock_->Now() - start));
  for (const ps::Metric& metric : result->metrics) *info.add_metrics() = metric;
  phase_.Enter(Phase::kPush, subject);
  pusher_->Commit(info);
  meanwhile();
  const absl::StatusOr<ps::PushReply> reply = AwaitPush(info);
  if (GetErrorDetail(reply.status()).kind() == ps::ErrorDetail::NON_FINITE) {
    return CommitVoid(key, /*loss_is_finite=*/true, reply.status().message());
  }
  PP_RETURN_IF_ERROR(reply.status());
  uint64_t staleness = reply->staleness();
  ps::PushReply::Outcome outcome = reply->outcome();
  new_grants_step_ = reply->new_grants_step();
  session_->NoteVersion(reply->version());
  if (!commit_with_chunks) {
    PP_ASSIGN_OR_RETURN(const ps::CommitReply committed, Commit(key, info));
    staleness = committed.staleness();
    outcome = committed.outcome();
    new_grants_step_ = committed.new_grants_step();
  }
  pusher_->NoteOutcome(outcome, commit_with_chunks ? pusher_->was_repeated() : commits_sent_ > 1);
  NoteImages(result->samples);
  Report(*result, sync_ ? key.step() : session_->version(), staleness);
  return absl::OkStatus();
}

absl::StatusOr<ps::PushReply> CloneTrainer::AwaitPush(const ps::CommitInfo& info) {
  absl::StatusOr<ps::PushReply> reply;
  bool first = true;
  PP_RETURN_IF_ERROR(AwaitOpenStep([&] {
    return session_->Retry([&] { return pusher_->failed_shard(); },
                           [&] {
                             reply = std::exchange(first, false) ? pusher_->Await()
                                                                 : pusher_->Repeat(info);
                             return reply.status();
                           });
  }));
  return reply;
}

absl::StatusOr<ps::CommitReply> CloneTrainer::Commit(const ps::PushKey& key,
                                                     const ps::CommitInfo& info) {
  absl::StatusOr<ps::CommitReply> reply;
  PP_RETURN_IF_ERROR(AwaitOpenStep([&] {
    reply = session_->Commit(key, info, &commits_sent_);
    return reply.status();
  }));
  return reply;
}

absl::Status CloneTrainer::CommitVoid(const ps::PushKey& key, bool loss_is_finite,
                                      absl::string_view refusal) {
  ps::CommitInfo info;
  info.set_samples(0);
  info.set_non_finite_variable(DescribeNonFinite(
      *layout_, weights(), absl::MakeConstSpan(gradient_.get(), layout_->total_elements()),
      loss_is_finite, refusal));
  LOG(ERROR) << "step " << key.step() << ", replica " << key.replica() << ": "
             << info.non_finite_variable();
  return Commit(key, info).status();
}

}  // namespace pushpull
