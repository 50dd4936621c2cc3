#include "tests/ps_server/simulator/mutated_shard.h"

#include <algorithm>
#include <iterator>

namespace pushpull::sim {

absl::Status MutatedShard::PushChunk(const ps::PushChunk& header, const Payload& payload,
                                     const absl::Status& verdict) {
  ps::PushChunk altered = header;
  AlterKey(altered.mutable_key());
  const absl::Status status = ShardAggregator::PushChunk(altered, payload, verdict);
  if (status.ok()) NoteChunk(altered, payload);
  return status;
}

void MutatedShard::NoteChunk(const ps::PushChunk& header, const Payload& payload) {
  const ps::PushKey& key = header.key();
  Arrivals& arrivals = arrivals_[key.replica()];
  if (key.grant() < arrivals.grant) return;
  if (arrivals.grant != key.grant() || arrivals.step != key.step()) {
    arrivals = {key.grant(), key.step(), 0, ++arrival_orders_, {}};
  }
  ++arrivals.count;
  arrivals.chunks.try_emplace(header.chunk(), header, payload);
}

void MutatedShard::AlterEpoch(auto* request) const {
  if (bugs_.ignore_epochs && request->epoch() < epoch()) request->set_epoch(epoch());
}

void MutatedShard::AlterKey(ps::PushKey* key) const {
  AlterEpoch(key);
  const auto arrivals = arrivals_.find(key->replica());
  if (bugs_.ignore_grants_of_chunks && arrivals != arrivals_.end()) {
    key->set_grant(std::max(key->grant(), arrivals->second.grant));
  }
  const auto next = next_positions_.find(key->replica());
  if (bugs_.ignore_push_marks && next != next_positions_.end()) {
    key->set_position(std::max(key->position(), next->second));
  }
}

void MutatedShard::Alter(shard_event::Restore* event) {
  ps::RestoreRequest& request = event->request;
  if (bugs_.overlook_restarts) request.clear_boot_ids();
  if (bugs_.ignore_epochs_of_versions && request.source() == ps::RestoreRequest::MAPPED) {
    const ps::ShardStateReply state = ShardAggregator::State();
    for (const ps::HeldVersion& held : state.held()) {
      if (held.version() == request.step()) request.set_version_epoch(held.epoch());
    }
  }
}

ShardActions MutatedShard::Handle(const ShardEvent& event) {
  ShardEvent altered = event;
  std::visit([this](auto& e) { Alter(&e); }, altered);
  const auto* apply = std::get_if<shard_event::Apply>(&altered);
  if (bugs_.apply_twice && apply != nullptr && !store_busy_ && apply_.has_value() &&
      apply_->step == apply->request.step() && version() == apply_->step) {
    return {*apply_};
  }
  if (const auto* restored = std::get_if<shard_event::StoreRestored>(&event)) {
    version_before_restore_ = version();
    if (restored->marks.ok()) SetMarks(*restored->marks);
  }
  ShardActions actions = ShardAggregator::Handle(altered);
  if (std::holds_alternative<shard_event::StoreApplied>(event) && apply_.has_value()) {
    version_before_restore_ = 0;
    SetMarks(apply_->marks);
    if (bugs_.keep_staging) StageAgain();
  }
  const bool ended = std::holds_alternative<shard_event::StoreRestored>(event) ||
                     std::holds_alternative<shard_event::StoreMeasured>(event) ||
                     std::holds_alternative<shard_event::StoreApplied>(event);
  if (ended) store_busy_ = false;
  for (ShardAction& action : actions) {
    if (auto* measure = std::get_if<shard_action::StoreMeasure>(&action)) {
      store_busy_ = true;
      SortByArrival(&measure->contributions);
    } else if (auto* store_apply = std::get_if<shard_action::StoreApply>(&action)) {
      store_busy_ = true;
      SortByArrival(&store_apply->contributions);
      apply_ = *store_apply;
    } else if (std::holds_alternative<shard_action::StoreRestore>(action)) {
      store_busy_ = true;
    } else if (auto* pull = std::get_if<shard_action::ServePull>(&action)) {
      if (bugs_.keep_version_after_restore) {
        pull->version = std::max(pull->version, version_before_restore_);
      }
    } else if (auto* restored = std::get_if<shard_action::ReplyRestore>(&action)) {
      ps::PushMarks none;
      none.set_has_positions(true);
      if (bugs_.forget_marks_at_restore && restored->reply.ok()) {
        restored->reply->set_marks(none.SerializeAsString());
      }
    } else if (const auto* finish = std::get_if<shard_event::FinishPush>(&altered)) {
      AlterAnswer(*finish, &action);
    }
  }
  if (bugs_.overwrite_what_is_saved) {
    if (std::holds_alternative<shard_event::StoreSnapshotDone>(event)) --snapshots_under_way_;
    FinishSnapshotEarly(&actions);
  }
  return actions;
}

void MutatedShard::AlterAnswer(const shard_event::FinishPush& event, ShardAction* action) const {
  auto* push = std::get_if<shard_action::ReplyPush>(action);
  if (push == nullptr || !push->reply.ok() || push->reply->outcome() != ps::PushReply::INCOMPLETE) {
    return;
  }
  const ps::PushKey& key = event.last.key();
  const auto found = arrivals_.find(key.replica());
  const bool enough = found != arrivals_.end() && found->second.grant == key.grant() &&
                      found->second.step == key.step() &&
                      found->second.count >= options_.chunk_elements.size();
  if (!bugs_.ack_before_staged && !(bugs_.count_repeated_chunks && enough)) return;
  if (options_.tasks == 1 && event.last.has_commit()) {
    ps::CommitRequest request;
    *request.mutable_key() = key;
    *request.mutable_info() = event.last.commit();
    *action = shard_action::CommitPush{event.call, std::move(request)};
    return;
  }
  push->reply->set_level(ps::STAGED);
  push->reply->set_outcome(ps::PushReply::ACCEPTED);
}

void MutatedShard::SortByArrival(std::vector<StagedContribution>* contributions) const {
  if (!bugs_.sum_in_arrival_order) return;
  std::sort(contributions->begin(), contributions->end(), [this](const auto& a, const auto& b) {
    return arrivals_.at(a.replica).order < arrivals_.at(b.replica).order;
  });
}

void MutatedShard::StageAgain() {
  for (const StagedContribution& contribution : apply_->contributions) {
    for (const auto& [number, chunk] : arrivals_[contribution.replica].chunks) {
      auto [header, payload] = chunk;
      header.mutable_key()->set_step(version() + 1);
      ShardAggregator::PushChunk(header, payload, absl::OkStatus()).IgnoreError();
    }
  }
  TakeAhead();
}

void MutatedShard::FinishSnapshotEarly(ShardActions* actions) {
  const bool begins = std::any_of(actions->begin(), actions->end(), [](const ShardAction& action) {
    return std::holds_alternative<shard_action::StoreSnapshot>(action);
  });
  if (begins) {
    ++snapshots_under_way_;
    const ShardActions more =
        ShardAggregator::Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
    actions->insert(actions->end(), more.begin(), more.end());
  }
  if (snapshots_under_way_ == 0) {
    actions->insert(actions->end(), early_answers_.begin(), early_answers_.end());
    early_answers_.clear();
    return;
  }
  const auto answers =
      std::stable_partition(actions->begin(), actions->end(), [](const ShardAction& action) {
        return !std::holds_alternative<shard_action::ReplySnapshot>(action);
      });
  early_answers_.insert(early_answers_.end(), answers, actions->end());
  actions->erase(answers, actions->end());
}

ps::ShardStateReply MutatedShard::State() const {
  ps::ShardStateReply state = ShardAggregator::State();
  if (bugs_.ignore_epochs_of_versions) {
    for (ps::HeldVersion& held : *state.mutable_held()) held.set_epoch(UINT64_MAX);
  }
  return state;
}

void MutatedShard::SetMarks(const std::string& marks) {
  next_positions_.clear();
  ps::PushMarks parsed;
  if (!parsed.ParseFromString(marks)) return;
  for (const ps::PushMark& mark : parsed.marks()) {
    next_positions_[mark.replica()] = mark.next_position();
  }
}

}  // namespace pushpull::sim
