// The part of ShardAggregator that obeys the coordinator and drives the store.
// Tested by tests/ps_server/core/shard_aggregator_test.cc.
// Tested by tests/ps_server/core/shard_orders_test.cc.
// Tested by tests/ps_server/core/shard_history_test.cc.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

#include "ps_server/core/epochs.h"
#include "ps_server/core/protocol_error.h"
#include "ps_server/core/shard_aggregator.h"

namespace pushpull {

absl::Status ShardAggregator::CheckRestore(const ps::RestoreRequest& request) const {
  if (request.run_id() != options_.run_id) {
    return ProtocolError(ps::ErrorDetail::WRONG_RUN, 0, 0, "this shard belongs to another job");
  }
  if (request.epoch() < epoch_) {
    return ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, epoch_, version_,
                         absl::StrFormat("this shard was restored for epoch %d", epoch_));
  }
  if (!IsPlausibleEpoch(request.epoch(), epoch_)) {
    return absl::InvalidArgumentError(
        absl::StrFormat("epoch %d cannot follow epoch %d of this shard", request.epoch(), epoch_));
  }
  const int shard = static_cast<int>(options_.shard);
  if (shard < request.boot_ids_size() && request.boot_ids(shard) != options_.boot_id) {
    return ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, epoch_, version_,
                         "this shard has restarted since it told its state");
  }
  return absl::OkStatus();
}

void ShardAggregator::On(const shard_event::Restore& event) {
  const ps::RestoreRequest& request = event.request;
  if (const absl::Status status = CheckRestore(request); !status.ok()) {
    actions_.push_back(shard_action::ReplyRestore{event.call, status});
    return;
  }
  if (request.epoch() > epoch_) BeginEpoch(request.epoch());
  restore_callers_.push_back(event.call);
  if (restored_) return AnswerRestore(absl::OkStatus());
  if (restore_waits_ || store_task_ == StoreTask::kRestoring) {
    restore_waits_ |= request.epoch() != restore_.epoch();
    restore_ = request;
    return;
  }
  restore_ = request;
  restore_waits_ = true;
  StartWaitingWork();
}

void ShardAggregator::BeginEpoch(uint64_t epoch) {
  epoch_ = epoch;
  restored_ = false;
  const absl::Status over = ProtocolError(
      ps::ErrorDetail::EPOCH_CHANGED, epoch, 0,
      absl::StrFormat("the server goes back to an earlier version as epoch %d", epoch));
  RefuseWaitingPulls(over);
  for (const CallId call : std::exchange(restore_callers_, {})) {
    actions_.push_back(shard_action::ReplyRestore{call, over});
  }
  for (const CallId call : std::exchange(norm_callers_, {})) {
    actions_.push_back(shard_action::ReplyNorm{call, over});
  }
  for (const CallId call : std::exchange(apply_callers_, {})) {
    actions_.push_back(shard_action::ReplyApply{call, over});
  }
  apply_waits_ = false;
  staging_.Reset();
  expected_.Forget();
  ahead_.clear();
}

bool ShardAggregator::Holds(uint64_t version) const {
  return std::any_of(held_versions_.begin(), held_versions_.end(),
                     [version](const VersionId& id) { return id.version == version; });
}

absl::Status ShardAggregator::CheckRestorable() const {
  if (restore_.source() != ps::RestoreRequest::MAPPED) return absl::OkStatus();
  const VersionId wanted{restore_.version_epoch(), restore_.step()};
  if (std::count(held_versions_.begin(), held_versions_.end(), wanted) > 0) return absl::OkStatus();
  std::string held;
  for (const VersionId& id : held_versions_) {
    absl::StrAppendFormat(&held, "%s%d of epoch %d", held.empty() ? "" : ", ", id.version,
                          id.epoch);
  }
  return absl::FailedPreconditionError(
      absl::StrFormat("version %d of epoch %d is not held; held: %s", wanted.version, wanted.epoch,
                      held.empty() ? "none" : held));
}

void ShardAggregator::AnswerRestore(const absl::Status& status) {
  for (const CallId call : std::exchange(restore_callers_, {})) {
    if (!status.ok()) {
      actions_.push_back(shard_action::ReplyRestore{call, status});
      continue;
    }
    ps::RestoreReply reply;
    reply.set_version(restore_.step());
    reply.set_marks(restored_marks_);
    actions_.push_back(shard_action::ReplyRestore{call, reply});
  }
}

void ShardAggregator::SetMarks(const std::string& marks) {
  marks_ = marks;
  next_positions_.clear();
  ps::PushMarks parsed;
  // Marks of an older release have no positions. The coordinator makes up for them.
  if (!parsed.ParseFromString(marks)) return;
  for (const ps::PushMark& mark : parsed.marks()) {
    next_positions_[mark.replica()] = mark.next_position();
  }
}

void ShardAggregator::StartWaitingWork() {
  if (store_task_ != StoreTask::kNone) return;
  if (restore_waits_) {
    if (IsSaving()) return;
    restore_waits_ = false;
    if (const absl::Status status = CheckRestorable(); !status.ok()) return AnswerRestore(status);
    store_task_ = StoreTask::kRestoring;
    // Filling a version overwrites the buffer of the older one.
    if (restore_.source() != ps::RestoreRequest::MAPPED && held_versions_.size() > 1) {
      held_versions_.erase(held_versions_.begin());
    }
    restoring_ = {restore_.version_epoch(), restore_.step()};
    actions_.push_back(
        shard_action::StoreRestore{restore_.source(), restoring_, restore_.boot_ids_size()});
  } else if (apply_waits_) {
    if (IsHeldBySnapshot(apply_.step())) return;
    StartApply();
  }
}

bool ShardAggregator::IsHeldBySnapshot(uint64_t step) const {
  // Version `step` overwrites the buffer of version step - 2.
  return IsSaving() && step >= snapshot_->request.step() + 2;
}

void ShardAggregator::ApplyAhead(const ps::PushKey& key, uint32_t chunk) {
  // In sync mode this skips no useful chunk: while the store is busy, the open step is decided
  // already or the shard is not restored.
  const uint64_t step = version_ + 1;
  if (store_task_ != StoreTask::kNone || apply_waits_ || IsHeldBySnapshot(step)) return;
  shard_action::StoreApplyAhead order{step, chunk, {}};
  for (const auto& [replica, samples] : expected_.AfterChunkOf(key.replica())) {
    std::optional<EncodedChunk> staged = staging_.ChunkOf(replica, key.step(), chunk);
    if (!staged.has_value()) return;
    order.contributions.push_back({replica, samples, *std::move(staged)});
  }
  if (order.contributions.empty()) return;
  held_versions_ = {held_versions_.back()};
  ahead_.push_back(std::move(order));
}

void ShardAggregator::On(const shard_event::StoreRestored& event) {
  store_task_ = StoreTask::kNone;
  if (event.marks.ok()) held_versions_ = {restoring_};
  if (!restore_waits_) {
    if (event.marks.ok()) {
      restored_ = true;
      version_ = restore_.step();
      restored_marks_ = *event.marks;
      SetMarks(restored_marks_);
    }
    AnswerRestore(event.marks.status());
  }
  StartWaitingWork();
}

absl::StatusOr<std::vector<StagedContribution>> ShardAggregator::Collect(
    const ps::ApplyRequest& request) const {
  std::vector<StagedContribution> collected;
  for (const ps::Contribution& contribution : request.contributions()) {
    const ContributionId id{contribution.grant(),
                            options_.sync ? request.step() : contribution.sequence()};
    auto chunks = staging_.AllChunks(contribution.replica(), id);
    if (!chunks.has_value()) {
      return absl::InternalError(absl::StrFormat(
          "shard %d does not hold replica %d's contribution (grant %d) to step %d, which was "
          "decided",
          options_.shard, contribution.replica(), contribution.grant(), request.step()));
    }
    collected.push_back({contribution.replica(), contribution.samples(), std::move(*chunks)});
  }
  return collected;
}

void ShardAggregator::On(const shard_event::MeasureNorm& event) {
  const ps::ApplyRequest& request = event.request;
  absl::Status status = CheckIdentity(request.run_id(), request.epoch());
  if (status.ok() && request.step() != version_ + 1) {
    status = ProtocolError(
        ps::ErrorDetail::VERSION_GONE, epoch_, version_,
        absl::StrFormat("norms of step %d were asked for at version %d", request.step(), version_));
  }
  if (status.ok() && store_task_ == StoreTask::kMeasuring && measuring_step_ == request.step()) {
    norm_callers_.push_back(event.call);
    return;
  }
  if (status.ok() && store_task_ != StoreTask::kNone) {
    status = absl::UnavailableError(absl::StrFormat("shard %d is busy", options_.shard));
  }
  if (status.ok()) {
    auto contributions = Collect(request);
    if (contributions.ok()) {
      store_task_ = StoreTask::kMeasuring;
      measuring_step_ = request.step();
      norm_callers_.push_back(event.call);
      actions_.push_back(shard_action::StoreMeasure{request.step(), std::move(*contributions)});
      return;
    }
    status = contributions.status();
  }
  actions_.push_back(shard_action::ReplyNorm{event.call, status});
}

void ShardAggregator::On(const shard_event::StoreMeasured& event) {
  store_task_ = StoreTask::kNone;
  for (const CallId call : std::exchange(norm_callers_, {})) {
    if (event.squared_norms.ok()) {
      ps::NormReply reply;
      reply.mutable_variable_squared_norms()->Assign(event.squared_norms->begin(),
                                                     event.squared_norms->end());
      actions_.push_back(shard_action::ReplyNorm{call, reply});
    } else {
      actions_.push_back(shard_action::ReplyNorm{call, event.squared_norms.status()});
    }
  }
  StartWaitingWork();
}

void ShardAggregator::On(const shard_event::Apply& event) {
  const ps::ApplyRequest& request = event.request;
  absl::Status status = CheckIdentity(request.run_id(), request.epoch());
  // A restored shard has no apply of an earlier epoch in hand.
  const bool in_hand = store_task_ == StoreTask::kApplying || apply_waits_;
  if (status.ok() && in_hand && request.step() == apply_.step()) {
    apply_callers_.push_back(event.call);
    return;
  }
  if (status.ok() && request.step() <= version_) {
    ps::ApplyReply reply;
    reply.set_version(version_);
    actions_.push_back(shard_action::ReplyApply{event.call, reply});
    return;
  }
  if (status.ok() && request.step() > version_ + 1) {
    status = ProtocolError(ps::ErrorDetail::STEP_TOO_NEW, epoch_, version_ + 1,
                           absl::StrFormat("shard %d is at version %d and cannot apply step %d",
                                           options_.shard, version_, request.step()));
  }
  if (status.ok()) status = Collect(request).status();
  if (!status.ok()) {
    actions_.push_back(shard_action::ReplyApply{event.call, status});
    return;
  }
  apply_ = request;
  apply_callers_ = {event.call};
  apply_waits_ = true;
  StartWaitingWork();
}

void ShardAggregator::StartApply() {
  apply_waits_ = false;
  auto contributions = Collect(apply_);
  if (!contributions.ok()) {
    for (const CallId call : std::exchange(apply_callers_, {})) {
      actions_.push_back(shard_action::ReplyApply{call, contributions.status()});
    }
    return;
  }
  store_task_ = StoreTask::kApplying;
  held_versions_ = {held_versions_.back()};
  shard_action::StoreApply apply;
  apply.step = apply_.step();
  apply.epoch = epoch_;
  apply.contributions = std::move(*contributions);
  apply.variable_squared_norms.assign(apply_.variable_squared_norms().begin(),
                                      apply_.variable_squared_norms().end());
  apply.marks = apply_.marks();
  actions_.push_back(std::move(apply));
  // The action holds all it needs. Whatever else is staged for this step came too late.
  if (options_.sync) {
    staging_.DropAll();
  } else {
    for (const ps::Contribution& c : apply_.contributions()) {
      staging_.Drop(c.replica(), {c.grant(), c.sequence()});
    }
  }
}

void ShardAggregator::On(const shard_event::StoreApplied& event) {
  store_task_ = StoreTask::kNone;
  if (event.status.ok()) {
    previous_marks_ = marks_;
    SetMarks(apply_.marks());
    version_ = apply_.step();
    held_versions_.push_back({apply_.epoch(), version_});
    expected_.NoteApplied(apply_);
  }
  // If a restore came meanwhile, BeginEpoch has answered the callers already.
  for (const CallId call : std::exchange(apply_callers_, {})) {
    if (event.status.ok()) {
      ps::ApplyReply reply;
      reply.set_version(version_);
      actions_.push_back(shard_action::ReplyApply{call, reply});
    } else {
      actions_.push_back(shard_action::ReplyApply{call, event.status});
    }
  }
  ServeWaitingPulls();
  StartWaitingWork();
}

void ShardAggregator::On(const shard_event::Snapshot& event) {
  const ps::SnapshotRequest& request = event.request;
  absl::Status status = CheckIdentity(request.run_id(), request.epoch());
  const bool same = snapshot_.has_value() && snapshot_->request.epoch() == request.epoch() &&
                    snapshot_->request.step() == request.step() &&
                    snapshot_->request.attempt() == request.attempt();
  if (status.ok() && same && !snapshot_->reply.has_value()) {
    snapshot_->callers.push_back(event.call);
    return;
  }
  if (status.ok() && same && snapshot_->reply->ok()) {
    actions_.push_back(shard_action::ReplySnapshot{event.call, *snapshot_->reply});
    return;
  }
  if (status.ok() && snapshot_.has_value() && !snapshot_->reply.has_value()) {
    status = absl::UnavailableError(absl::StrFormat("shard %d still writes its snapshot of step %d",
                                                    options_.shard, snapshot_->request.step()));
  }
  if (status.ok() && !Holds(request.step())) {
    status = ProtocolError(ps::ErrorDetail::VERSION_GONE, epoch_, version_,
                           absl::StrFormat("shard %d is at version %d; step %d was to be saved",
                                           options_.shard, version_, request.step()));
  }
  if (!status.ok()) {
    actions_.push_back(shard_action::ReplySnapshot{event.call, status});
    return;
  }
  snapshot_ = Snapshot{request, std::nullopt, {event.call}};
  actions_.push_back(shard_action::StoreSnapshot{
      request.step(), request.step() == version_ ? marks_ : previous_marks_});
}

void ShardAggregator::On(const shard_event::StoreSnapshotDone& event) {
  if (snapshot_.has_value()) {
    snapshot_->reply = event.reply;
    for (const CallId call : std::exchange(snapshot_->callers, {})) {
      actions_.push_back(shard_action::ReplySnapshot{call, event.reply});
    }
  }
  StartWaitingWork();
}

}  // namespace pushpull
