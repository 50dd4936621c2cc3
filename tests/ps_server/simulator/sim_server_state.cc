// The part of SimServer that deals with state which outlives the process: checkpoints, state files,
// and the versions that a new epoch continues from.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

#include "tests/ps_server/simulator/sim_server.h"

namespace pushpull::sim {
namespace {

constexpr absl::Duration kLease = absl::Seconds(3);  // The lease that SimServer::Start sets.

}  // namespace

std::optional<Disk::Checkpoint> SimServer::Collect(
    const coordinator_action::PublishCheckpoint& action) {
  Disk::Checkpoint checkpoint;
  checkpoint.epoch = action.epoch;
  checkpoint.training_done = action.training_done;
  checkpoint.num_images = action.num_images;
  std::vector<const ToyState*> states;
  for (uint32_t shard = 0; shard < world_->config().shards; ++shard) {
    const auto file = world_->disk().temporary.find({action.epoch, action.step, shard});
    if (file == world_->disk().temporary.end()) return std::nullopt;
    checkpoint.shards.push_back(file->second);
    states.push_back(&file->second.state);
  }
  const std::optional<Oracle::Node> node = world_->oracle().Find(action.step, states);
  if (!node.has_value()) {
    world_->Fail(absl::StrFormat("I4: the checkpoint of step %d holds no version of the oracle",
                                 action.step));
  }
  checkpoint.node = node.value_or(0);
  return checkpoint;
}

// Freezes the server between its check of the EPOCH file and the rename that publishes the
// checkpoint. Another server replaces it on the other machine, and then the frozen server wakes up
// and renames. The rename fails if a checkpoint of that step already exists, or if a server that
// has begun another epoch meanwhile has removed the files.
void SimServer::PublishLate(const coordinator_action::PublishCheckpoint& action) {
  Crash(/*memory_lost=*/false);
  MoveAway();
  world_->queue().After(world_->Seconds(0.05, 5), [this, action] {
    std::optional<Disk::Checkpoint> checkpoint = Collect(action);
    if (!checkpoint.has_value()) return;  // Another server has removed the files.
    world_->disk().checkpoints.try_emplace(action.step, *std::move(checkpoint));
  });
}

void SimServer::NoteRestored(const Shard& shard) {
  for (size_t i = 0; i < shards_.size(); ++i) {
    if (shards_[i].get() == &shard) {
      run_state_->Handle(run_state_event::ShardRestored{static_cast<int>(i)});
      run_state_->Handle(run_state_event::StateFileAdopted{static_cast<int>(i)});
    }
  }
}

void SimServer::TryAnotherModel() {
  RunState run_state(static_cast<int>(shards_.size()));
  run_state_event::Ending ending;
  ending.newest_versions.resize(shards_.size());  // It has restored no shard.
  const std::vector<RunStateAction> actions = run_state.Handle(ending);
  const bool removes = std::any_of(actions.begin(), actions.end(), [](const auto& action) {
    return action.kind == RunStateAction::Kind::kRemoveStateFiles;
  });
  if (!removes && world_->config().open_changes_nothing) return;
  for (const auto& shard : shards_) {
    CheckRemoval(*shard);
    shard->store.RemoveFile();
  }
}

bool SimServer::MayRemoveState(uint64_t version, uint64_t durable_step) {
  const SimConfig& config = world_->config();
  if (!config.ask_run_state) return durable_step == version;
  run_state_event::Ending ending;
  for (const auto& shard : shards_) {
    const std::optional<VersionId> newest = shard->store.newest();
    ending.newest_versions.push_back(newest.has_value() ? std::optional(newest->version)
                                                        : std::nullopt);
  }
  // The coordinator's process verifies the checkpoint when it ends.
  if (world_->disk().checkpoints.count(durable_step) > 0) ending.verified_step = durable_step;
  const std::vector<RunStateAction> actions = run_state_->Handle(ending);
  return std::any_of(actions.begin(), actions.end(), [](const RunStateAction& action) {
    return action.kind == RunStateAction::Kind::kRemoveStateFiles;
  });
}

void SimServer::RemoveState(uint64_t version, uint64_t durable_step) {
  if (!MayRemoveState(version, durable_step)) return;
  for (const auto& shard : shards_) {
    CheckRemoval(*shard);
    ++world_->counts.removals;
    shard->store.RemoveFile();
  }
}

void SimServer::CheckRemoval(const Shard& shard) {
  const std::optional<VersionId> newest = shard.store.newest();
  if (!newest.has_value() || newest->version == 0) return;
  const std::optional<VersionId> checkpoint = world_->disk().NewestCheckpoint();
  const bool left = checkpoint.has_value() && checkpoint->epoch > newest->epoch;
  if (left) return;  // The job has abandoned the version's history.
  if (checkpoint.has_value() && checkpoint->version >= newest->version) return;
  world_->Fail(absl::StrFormat(
      "I9: the state file of shard %d is removed with version %d of epoch %d, but the newest "
      "checkpoint is of step %d",
      shard.number, newest->version, newest->epoch,
      checkpoint.has_value() ? checkpoint->version : 0));
}

void SimServer::EndTask(uint64_t version, uint64_t durable_step) {
  if (!process_.alive || has_coordinator_) return;
  RemoveState(version, durable_step);
  Crash(/*memory_lost=*/false);
}

void SimServer::End() {
  const Coordinator* coordinator = (*shard_servers_)[0]->coordinator();
  if (!process_.alive || coordinator == nullptr) return;
  RemoveState(coordinator->version(), coordinator->durable_step());
}

void SimServer::CheckServing(const coordinator_action::Serving& action) {
  Oracle& oracle = world_->oracle();
  std::vector<const ToyState*> states;
  for (uint32_t shard = 0; shard < world_->config().shards; ++shard) {
    const World::Restored& restored = world_->restored[shard];
    if (restored.epoch != action.epoch) {
      world_->Fail(absl::StrFormat("shard %d was not restored for epoch %d", shard, action.epoch));
      return;
    }
    states.push_back(&restored.state);
  }
  const std::optional<Oracle::Node> node = oracle.Find(action.version, states);
  if (!node.has_value()) {
    world_->Fail(absl::StrFormat(
        "I1: the shards continue from version %d, but from different histories", action.version));
    return;
  }
  if (found_.has_value()) {
    const VersionId& id = found_->first;
    // A late publication of an older epoch may belong to a history that the shards have abandoned.
    const bool newer = action.version > id.version && oracle.epoch(*node) > id.epoch;
    if (!newer && !oracle.IsAncestor(found_->second, *node)) {
      world_->Fail(absl::StrFormat("I3: recovery lost the durable step %d of epoch %d", id.version,
                                   id.epoch));
    }
  }
  if (action.version < oracle.version()) ++world_->counts.rollbacks;
  oracle.GoOnFrom(*node);
}

void SimServer::NoteSession(uint32_t worker, uint64_t session) {
  const auto seen = seen_.find(worker);
  if (seen != seen_.end() && seen->second.session != session &&
      world_->now() - seen->second.at < kLease) {
    world_->Fail(absl::StrFormat("clone %d replaced another process that is still alive", worker));
  }
  seen_[worker] = {session, world_->now()};
}

}  // namespace pushpull::sim
