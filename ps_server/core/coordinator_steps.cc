// How the Coordinator takes a step from open through decided and measured to applied.
// Tested by tests/ps_server/core/coordinator_test.cc.
// Tested by tests/ps_server/core/coordinator_async_test.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"
#include "absl/strings/str_join.h"

#include "ps_server/core/coordinator.h"
#include "ps_server/core/protocol_error.h"

namespace pushpull {

bool Coordinator::AllStepsApplied() const {
  return options_.num_steps > 0 && version_ >= options_.num_steps;
}

bool Coordinator::HasContribution(uint32_t replica) const {
  // An asynchronous step has one contribution, which stays at the front of pushes_ until applied.
  const bool may_contribute = phase_ == Phase::kOpen || (IsDeciding() && !options_.sync);
  if (!may_contribute || round_.Has(replica)) return true;
  return std::any_of(pushes_.begin(), pushes_.end(), [replica](const PendingPush& push) {
    return push.request.key().replica() == replica;
  });
}

void Coordinator::Finish(const absl::Status& answer) {
  phase_ = Phase::kFinishing;
  phase_since_ = now_;
  final_failures_ = 0;
  // The final checkpoint does not wait for the pause of an earlier failure.
  checkpoint_retry_at_ = absl::ZeroDuration();
  AnswerPendingPushes(answer);
  FinishIfSaved();
}

void Coordinator::GoOn() {
  if (AllStepsApplied()) {
    Finish(absl::OkStatus());
    return;
  }
  StartCheckpointIfDue();
  OpenStep();
}

void Coordinator::OpenStep() {
  phase_ = Phase::kOpen;
  phase_since_ = now_;
  round_.Open(version_ + 1);
  replicas_.ReturnHome(round_.step());
  ReassignReplicas();
  DecideIfReady();
}

void Coordinator::ReassignReplicas() {
  const std::vector<uint32_t> changed = replicas_.Reassign(
      round_.step(), now_, [this](uint32_t replica) { return HasContribution(replica); });
  for (const uint32_t replica : changed) {
    Warn(absl::StrFormat("replica %d goes to %s from step %d on", replica,
                         CloneName(*replicas_.replica(replica).owner), round_.step()));
  }
}

bool Coordinator::IsReadyToDecide() const {
  if (!options_.sync) return !pushes_.empty();
  if (replicas_.num_replicas() == 0) return false;
  const uint32_t heard = rules_.count_replicas ? round_.num_replicas() : round_.num_requests();
  if (heard >= replicas_.num_replicas()) return true;
  const bool enough = options_.step_deadline > absl::ZeroDuration() &&
                      options_.min_contributors > 0 &&
                      round_.num_replicas() - round_.num_void() >= options_.min_contributors;
  if (!enough) return false;
  if (now_ - round_.first_commit() >= options_.step_deadline) return true;
  // A replica that missed a step costs the deadline once, not in every step until it is back.
  for (uint32_t i = 0; i < replicas_.num_replicas(); ++i) {
    if (!round_.Has(i) && !IsLagging(i)) return false;
  }
  return true;
}

bool Coordinator::IsLagging(uint32_t replica) const {
  const auto lagging = lagging_.find(replica);
  return lagging != lagging_.end() && lagging->second == replicas_.replica(replica).grant;
}

void Coordinator::CountMissing() {
  for (uint32_t i = 0; i < replicas_.num_replicas(); ++i) {
    if (round_.Has(i)) continue;
    lagging_[i] = replicas_.replica(i).grant;
    ++replicas_.clone(replicas_.replica(i).owner.value_or(i)).drops;
    ++counters_.dropped_contributions;
  }
}

void Coordinator::DecideIfReady() {
  if (phase_ != Phase::kOpen) return;
  if (draining_) {
    const bool worth_waiting =
        options_.sync && round_.num_replicas() > 0 && now_ - drain_since_ < options_.drain_patience;
    if (!options_.sync || (!IsReadyToDecide() && !worth_waiting)) {
      Finish(ProtocolError(ps::ErrorDetail::DRAINING, serving_epoch_, version_, "the server ends"));
      return;
    }
  }
  if (!IsReadyToDecide()) return;
  decided_.Clear();
  decided_.set_run_id(options_.run_id);
  decided_.set_epoch(serving_epoch_);
  decided_.set_step(version_ + 1);
  if (options_.sync) {
    DecideSync();
  } else {
    DecideAsync();
  }
}

void Coordinator::DecideSync() {
  CountMissing();
  for (ps::Contribution& contribution : round_.Contributions()) {
    *decided_.add_contributions() = std::move(contribution);
  }
  if (options_.measure_norms && decided_.contributions_size() > 0) {
    phase_ = Phase::kMeasuring;
    calls_.Start(shard_call::MeasureNorm{decided_}, options_.tasks, now_, &actions_);
    return;
  }
  StartApply();
}

void Coordinator::DecideAsync() {
  while (!pushes_.empty()) {
    const ps::PushKey& key = pushes_.front().request.key();
    absl::Status refusal;
    if (key.base_version() > version_) {
      refusal = absl::InvalidArgumentError(absl::StrFormat(
          "a push was computed from version %d, now is %d", key.base_version(), version_));
    } else if (options_.max_staleness > 0 &&
               version_ - key.base_version() > options_.max_staleness) {
      refusal =
          ProtocolError(ps::ErrorDetail::STALE, serving_epoch_, version_,
                        absl::StrFormat("computed from version %d, now is %d; at most %d "
                                        "versions may lie between: pull again",
                                        key.base_version(), version_, options_.max_staleness));
      Clone& clone = replicas_.clone(key.worker_id());
      ++clone.drops;
      ++counters_.dropped_contributions;
    }
    if (refusal.ok()) break;
    for (const CallId call : pushes_.front().calls) {
      actions_.push_back(coordinator_action::ReplyCommit{call, refusal});
    }
    pushes_.pop_front();
  }
  if (pushes_.empty()) return;
  const ps::CommitRequest& request = pushes_.front().request;
  ps::Contribution& contribution = *decided_.add_contributions();
  contribution.set_replica(request.key().replica());
  contribution.set_grant(request.key().grant());
  contribution.set_sequence(request.key().step());
  contribution.set_samples(request.info().samples());
  positions_.SetDone(request.key().replica(), request.key().position());
  decided_.set_marks(positions_.Serialize(replicas_.num_replicas()));
  if (options_.measure_norms) {
    phase_ = Phase::kMeasuring;
    calls_.Start(shard_call::MeasureNorm{decided_}, options_.tasks, now_, &actions_);
    return;
  }
  StartApply();
}

void Coordinator::OnNormsMeasured() {
  std::vector<double> sums;
  for (const ShardReply& reply : calls_.replies()) {
    const ps::NormReply& norms = std::get<ps::NormReply>(reply);
    if (sums.empty()) sums.resize(norms.variable_squared_norms_size());
    if (norms.variable_squared_norms_size() != static_cast<int>(sums.size())) {
      Stop(absl::InternalError(absl::StrFormat("shards measured norms of %d and of %d variables",
                                               sums.size(), norms.variable_squared_norms_size())));
      return;
    }
    for (size_t i = 0; i < sums.size(); ++i) sums[i] += norms.variable_squared_norms(i);
  }
  decided_.mutable_variable_squared_norms()->Assign(sums.begin(), sums.end());
  StartApply();
}

void Coordinator::StartApply() {
  phase_ = Phase::kApplying;
  calls_.Start(shard_call::Apply{decided_}, options_.tasks, now_, &actions_);
}

void Coordinator::OnAllApplied() {
  calls_.Stop();
  apply_failures_ = 0;
  coordinator_action::StepApplied applied;
  applied.step = decided_.step();
  if (options_.sync) {
    applied.parts = round_.Parts();
    applied.missing_replicas = replicas_.num_replicas() - round_.num_replicas();
  } else {
    const ps::CommitRequest& request = pushes_.front().request;
    applied.staleness = version_ - request.key().base_version();
    applied.parts.push_back({request.key().replica(),
                             request.key().worker_id(),
                             request.info().samples(),
                             {request.info().metrics().begin(), request.info().metrics().end()}});
  }
  if (options_.sync) {
    counters_.contributors.Add(decided_.contributions_size());
  } else {
    counters_.staleness.Add(applied.staleness);
  }
  version_ = decided_.step();
  for (const coordinator_action::StepApplied::Part& part : applied.parts) {
    last_included_[part.replica] = version_;
    if (replicas_.Find(part.worker_id) != nullptr && part.samples > 0) {
      ++replicas_.clone(part.worker_id).contributions;
    }
  }
  if (!options_.sync) {
    for (const CallId call : pushes_.front().calls) {
      AnswerCommit(call, ps::PushReply::ACCEPTED, ps::APPLIED, applied.staleness);
    }
    pushes_.pop_front();
  }
  actions_.push_back(std::move(applied));
  if (decided_.contributions_size() == 0) {
    CountVoidStep();
    if (phase_ == Phase::kStopped) return;
  } else {
    void_steps_ = 0;
  }
  GoOn();
}

void Coordinator::CountVoidStep() {
  if (++void_steps_ < options_.max_void_steps) return;
  Stop(ProtocolError(
      ps::ErrorDetail::STOPPED, serving_epoch_, version_,
      absl::StrFormat("%d steps in a row without any finite contribution, the last at version %d",
                      void_steps_, version_)));
}

void Coordinator::AnswerPendingPushes(const absl::Status& status) {
  for (const PendingPush& push : std::exchange(pushes_, {})) {
    for (const CallId call : push.calls) {
      if (status.ok()) {
        AnswerCommit(call, ps::PushReply::ALREADY_APPLIED, ps::APPLIED);
      } else {
        actions_.push_back(coordinator_action::ReplyCommit{call, status});
      }
    }
  }
}

}  // namespace pushpull
