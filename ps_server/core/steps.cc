#include "ps_server/core/steps.h"

#include <utility>

#include "absl/strings/str_format.h"

#include "ps_server/core/protocol_error.h"

namespace pushpull {
namespace {

// After this many failures in a row, another attempt would not help.
constexpr uint32_t kMaxApplyFailures = 3;

}  // namespace

Steps::Steps(const CoordinatorOptions& options, const JobState& job, Membership* members,
             CoordinatorActions* actions)
    : options_(options), job_(job), members_(members), actions_(actions) {}

void Steps::BeginEpoch() {
  restored_version_ = job_.version;
  last_included_.clear();
  lagging_.clear();
  times_ = {};
}

uint32_t Steps::RestorePositions(const std::string& marks, uint64_t version) {
  positions_ = ReplicaPositions();
  if (options_.sync) return 0;
  if (positions_.Restore(marks, version)) return positions_.num_restored();
  Warn(absl::StrFormat(
           "version %d has no positions of replicas, because it was trained in synchronous mode or "
           "by a release that did not keep them: every replica goes on with an equal share of the "
           "%d batches, of which a few may be trained again",
           version, version),
       actions_);
  return 0;
}

void Steps::Open() {
  phase_ = Phase::kOpen;
  opened_ = job_.now;
  commits_.Open(job_.version + 1);
}

bool Steps::HasContribution(uint32_t replica) const {
  // An asynchronous step has one contribution, which stays at the front of pushes_ until applied.
  const bool may_contribute = is_open() || (IsDeciding() && !options_.sync);
  return !may_contribute || commits_.Has(replica) || pushes_.Has(replica);
}

std::vector<uint32_t> Steps::Missing() const {
  std::vector<uint32_t> missing;
  for (uint32_t i = 0; i < members_->num_replicas(); ++i) {
    if (!commits_.Has(i)) missing.push_back(i);
  }
  return missing;
}

uint64_t Steps::NextPosition(uint32_t replica) const {
  return positions_.Next(replica, members_->num_replicas());
}

std::optional<uint32_t> Steps::ReplicaBeingApplied() const {
  if (options_.sync || !IsDeciding()) return std::nullopt;
  return decided_.contributions(0).replica();
}

bool Steps::HasEnough() const {
  return options_.step_deadline > absl::ZeroDuration() && options_.min_contributors > 0 &&
         commits_.num_replicas() - commits_.num_void() >= options_.min_contributors;
}

bool Steps::IsReady() const {
  if (!options_.sync) return !pushes_.empty();
  if (members_->num_replicas() == 0) return false;
  if (commits_.num_replicas() >= members_->num_replicas()) return true;
  if (!HasEnough()) return false;
  if (job_.now - commits_.first_commit() >= options_.step_deadline) return true;
  // A replica that missed a step costs the deadline once, not in every step until it is back.
  for (const uint32_t replica : Missing()) {
    if (!IsLagging(replica)) return false;
  }
  return true;
}

bool Steps::IsLagging(uint32_t replica) const {
  const auto lagging = lagging_.find(replica);
  return lagging != lagging_.end() && lagging->second == members_->replica(replica).grant;
}

void Steps::CountMissing() {
  for (const uint32_t replica : Missing()) {
    lagging_[replica] = members_->replica(replica).grant;
    members_->CountDrop(members_->WorkerOf(replica));
    ++dropped_contributions_;
  }
}

bool Steps::IsGivenUpBy(absl::Duration drain_since) const {
  if (!options_.sync) return true;
  const bool worth_waiting =
      commits_.num_replicas() > 0 && job_.now - drain_since < options_.drain_patience;
  return !IsReady() && !worth_waiting;
}

absl::Duration Steps::NextWakeup() const {
  const bool may_drop = is_open() && commits_.num_replicas() > 0 && HasEnough();
  return may_drop ? commits_.first_commit() + options_.step_deadline : absl::InfiniteDuration();
}

Followup Steps::DecideIfReady() {
  if (!is_open() || !IsReady()) return followup::None{};
  decided_.Clear();
  decided_.set_run_id(options_.run_id);
  decided_.set_epoch(job_.epoch);
  decided_.set_step(job_.version + 1);
  if (options_.sync) {
    // The first step of an epoch also contains the start of the clones.
    if (job_.version > restored_version_) times_.Add(job_.now - opened_);
    CountMissing();
    for (ps::Contribution& contribution : commits_.Contributions()) {
      *decided_.add_contributions() = std::move(contribution);
    }
  } else {
    RefuseStale();
    if (pushes_.empty()) return followup::None{};
    AddPush();
  }
  if (!options_.measure_norms || decided_.contributions().empty()) return StartApply();
  phase_ = Phase::kMeasuring;
  return followup::CallShards{shard_call::MeasureNorm{decided_}};
}

absl::Status Steps::CheckBase(const ps::PushKey& key) const {
  const uint64_t version = job_.version;
  if (key.base_version() > version) {
    return absl::InvalidArgumentError(
        absl::StrFormat("clone %d says that its push for replica %d was computed from version %d, "
                        "but the newest version is %d",
                        key.worker_id(), key.replica(), key.base_version(), version));
  }
  if (options_.max_staleness > 0 && version - key.base_version() > options_.max_staleness) {
    return Error(ps::ErrorDetail::STALE,
                 absl::StrFormat("computed from version %d, the present version is %d; at most %d "
                                 "versions may lie between: pull again",
                                 key.base_version(), version, options_.max_staleness));
  }
  return absl::OkStatus();
}

void Steps::RefuseStale() {
  while (!pushes_.empty()) {
    const ps::PushKey& key = pushes_.front().key();
    const absl::Status refusal = CheckBase(key);
    if (refusal.ok()) return;
    if (absl::IsAborted(refusal)) {  // STALE
      members_->CountDrop(key.worker_id());
      ++dropped_contributions_;
    }
    Refuse(pushes_.PopFront(), refusal);
  }
}

void Steps::AddPush() {
  const ps::CommitRequest& request = pushes_.front();
  ps::Contribution& contribution = *decided_.add_contributions();
  contribution.set_replica(request.key().replica());
  contribution.set_grant(request.key().grant());
  contribution.set_sequence(request.key().step());
  contribution.set_samples(request.info().samples());
  positions_.SetDone(request.key().replica(), request.key().position());
  decided_.set_marks(positions_.Serialize(members_->num_replicas()));
}

Followup Steps::StartApply() {
  phase_ = Phase::kApplying;
  return followup::CallShards{shard_call::Apply{decided_}};
}

Followup Steps::OnReplies(const std::vector<ShardReply>& replies) {
  if (phase_ == Phase::kMeasuring) return OnNorms(replies);
  apply_failures_ = 0;
  return followup::Applied{decided_.step()};
}

Followup Steps::OnNorms(const std::vector<ShardReply>& replies) {
  std::vector<double> sums;
  for (const ShardReply& reply : replies) {
    const ps::NormReply& norms = std::get<ps::NormReply>(reply);
    if (sums.empty()) sums.resize(norms.variable_squared_norms_size());
    if (norms.variable_squared_norms_size() != static_cast<int>(sums.size())) {
      return followup::Stop{
          absl::InternalError(absl::StrFormat("shards measured norms of %d and of %d variables",
                                              sums.size(), norms.variable_squared_norms_size()))};
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += norms.variable_squared_norms(i);
  }
  decided_.mutable_variable_squared_norms()->Assign(sums.begin(), sums.end());
  return StartApply();
}

Followup Steps::OnCallFailed(const absl::Status& status) {
  if (++apply_failures_ < kMaxApplyFailures) {
    return followup::BeginEpoch{std::string(status.message())};
  }
  return followup::Stop{status};
}

coordinator_action::StepApplied Steps::Report() const {
  coordinator_action::StepApplied applied;
  applied.step = decided_.step();
  applied.last_step = job_.length.last_step();
  if (options_.sync) {
    applied.parts = commits_.Parts();
    applied.missing_replicas = members_->num_replicas() - commits_.num_replicas();
    return applied;
  }
  const ps::CommitRequest& request = pushes_.front();
  applied.staleness = decided_.step() - 1 - request.key().base_version();
  applied.parts.push_back({request.key().replica(),
                           request.key().worker_id(),
                           request.info().samples(),
                           {request.info().metrics().begin(), request.info().metrics().end()}});
  return applied;
}

Followup Steps::NoteApplied() {
  coordinator_action::StepApplied applied = Report();
  for (const coordinator_action::StepApplied::Part& part : applied.parts) {
    last_included_[part.replica] = applied.step;
    if (part.samples > 0) members_->CountContribution(part.worker_id);
  }
  if (options_.sync) {
    contributors_.Add(decided_.contributions_size());
  } else {
    staleness_.Add(applied.staleness);
    for (const CallId call : pushes_.PopFront()) {
      Answer(call, ps::PushReply::ACCEPTED, ps::APPLIED, applied.staleness);
    }
  }
  actions_->push_back(std::move(applied));
  if (decided_.contributions().empty()) return CountVoidStep();
  void_steps_ = 0;
  return followup::None{};
}

Followup Steps::CountVoidStep() {
  if (++void_steps_ < options_.max_void_steps) return followup::None{};
  return followup::Stop{Error(
      ps::ErrorDetail::STOPPED,
      absl::StrFormat("%d steps in a row without any finite contribution, the last at version %d",
                      void_steps_, job_.version))};
}

absl::Status Steps::Error(ps::ErrorDetail::Kind kind, absl::string_view message) const {
  return ProtocolError(kind, job_.epoch, job_.version, message);
}

void Steps::AddTo(ps::StatusReply* status) const {
  status->set_dropped_contributions(dropped_contributions_);
  status->set_duplicate_pushes(duplicate_commits_);
  status->set_void_contributions(void_contributions_);
  *status->mutable_staleness() = staleness_.ToProto();
  *status->mutable_contributors() = contributors_.ToProto();
}

}  // namespace pushpull
