// The part of SimServer that carries out the actions of the state machines and checks the
// invariants while it does so.
#include <algorithm>
#include <utility>

#include "absl/strings/str_format.h"

#include "common/base/passing_error.h"
#include "tests/ps_server/simulator/sim_server.h"

namespace pushpull::sim {

template <typename Reply>
void SimServer::SendReply(CallId call, absl::StatusOr<Reply> reply) {
  Calls<Reply>& calls = std::get<Calls<Reply>>(calls_);
  const auto it = calls.find(call);
  if (it == calls.end()) {
    world_->Fail(absl::StrFormat("call %d is answered twice", call));
    return;
  }
  const World::Answer<Reply> answer = std::move(it->second);
  calls.erase(it);
  answer(std::move(reply));
}

namespace {

template <typename From>
absl::StatusOr<ShardReply> ToShardReply(const absl::StatusOr<From>& reply) {
  if (!reply.ok()) return reply.status();
  return ShardReply(*reply);
}

}  // namespace

void SimServer::Do(Shard*, const shard_action::ReplyPush& action) {
  SendReply<ps::PushReply>(action.call, action.reply);
}

void SimServer::Do(Shard* shard, const shard_action::ServePull& action) {
  const ToyState* state = shard->store.Find(action.version);
  const Oracle& oracle = world_->oracle();
  if (state == nullptr) {
    world_->Fail(
        absl::StrFormat("version %d is served, but the store does not hold it", action.version));
    return;
  }
  if (!oracle.Has(action.version) || !(oracle.state(action.version, shard->number) == *state)) {
    world_->Fail(absl::StrFormat("I4: version %d is served with values that differ from the oracle",
                                 action.version));
  }
  SendReply<PulledShard>(action.call, PulledShard{action.epoch, action.version, state->weights});
}

void SimServer::Do(Shard*, const shard_action::RefusePull& action) {
  SendReply<PulledShard>(action.call, action.status);
}

void SimServer::Do(Shard*, const shard_action::ReplyRestore& action) {
  SendReply<ShardReply>(action.call, ToShardReply(action.reply));
}

void SimServer::Do(Shard*, const shard_action::ReplyNorm& action) {
  if (absl::IsInternal(action.reply.status())) {
    world_->Fail(std::string(action.reply.status().message()));
  }
  SendReply<ShardReply>(action.call, ToShardReply(action.reply));
}

void SimServer::Do(Shard*, const shard_action::ReplyApply& action) {
  if (absl::IsInternal(action.reply.status())) {
    world_->Fail(std::string(action.reply.status().message()));
  }
  SendReply<ShardReply>(action.call, ToShardReply(action.reply));
}

void SimServer::Do(Shard*, const shard_action::ReplySnapshot& action) {
  SendReply<ShardReply>(action.call, ToShardReply(action.reply));
}

void SimServer::Do(Shard*, const shard_action::CommitPush& action) {
  commit_keys_[action.call] = action.request.key();
  world_->RunOn(&process_, absl::ZeroDuration(), [this, action] {
    HandleCoordinator(coordinator_event::Commit{action.call, action.request});
  });
}

void SimServer::TakeStore(Shard* shard) {
  if (shard->store_busy) world_->Fail("the store got an order while it was busy with another");
  shard->store_busy = true;
}

void SimServer::Do(Shard* shard, const shard_action::StoreRestore& action) {
  TakeStore(shard);
  world_->RunOn(&process_, world_->Seconds(0.01, 0.1), [this, shard, action] {
    shard->store_busy = false;
    const absl::StatusOr<std::string> marks = shard->store.Restore(action);
    const ToyState* state = shard->store.Find(action.id.version);
    if (marks.ok()) {
      world_->restored[shard->number] = {shard->machine->epoch(), *state};
      NoteRestored(*shard);
    }
    HandleShard(shard, shard_event::StoreRestored{marks});
  });
}

void SimServer::Do(Shard* shard, const shard_action::StoreMeasure& action) {
  TakeStore(shard);
  world_->RunOn(&process_, world_->Seconds(0.001, 0.01), [this, shard, action] {
    shard->store_busy = false;
    HandleShard(shard, shard_event::StoreMeasured{shard->store.Measure(action)});
  });
}

void SimServer::Do(Shard* shard, const shard_action::StoreApply& action) {
  TakeStore(shard);
  const auto applying = std::make_shared<Applying>();
  applying->order = action;
  applying->chunks = shard->store.BeginApply(action);
  world_->counts.chunks_kept +=
      world_->config().chunk_elements[shard->number].size() - applying->chunks.size();
  world_->RunOn(&process_, world_->Seconds(0.0005, 0.01), [this, shard, applying] {
    if (shard->store_busy) GoOnApplying(shard, applying);
  });
}

void SimServer::GoOnApplying(Shard* shard, const std::shared_ptr<Applying>& applying) {
  if (world_->Trouble(world_->config().crash_at_action)) {
    Crash(!world_->Chance(world_->config().keep_mapped_state));
    return;
  }
  if (applying->next < applying->chunks.size()) {
    shard->store.MakeChunk(applying->order, applying->chunks[applying->next++]);
    world_->RunOn(&process_, world_->Seconds(0.0005, 0.01),
                  [this, shard, applying] { GoOnApplying(shard, applying); });
    return;
  }
  shard->store.Commit(applying->order);
  shard->store_busy = false;
  CheckMade(*shard, applying->order.step);
  HandleShard(shard, shard_event::StoreApplied{absl::OkStatus()});
}

void SimServer::CheckMade(const Shard& shard, uint64_t step) {
  const Oracle& oracle = world_->oracle();
  if (!oracle.Has(step)) {
    world_->Fail(absl::StrFormat("I1: step %d was applied but never decided", step));
  } else if (!(oracle.state(step, shard.number) == *shard.store.Find(step))) {
    world_->Fail(absl::StrFormat("I4: shard %d made a version %d that differs from the oracle",
                                 shard.number, step));
  }
}

void SimServer::Do(Shard* shard, const shard_action::StoreApplyAhead& action) {
  if (shard->store_busy) world_->Fail("the store was told to apply ahead while it was busy");
  shard->store.MakeAhead(action);
}

void SimServer::Do(Shard* shard, const shard_action::StoreSnapshot& action) {
  world_->RunOn(&process_, world_->Seconds(0.001, 0.2), [this, shard, action] {
    const Disk::ShardFile file = shard->store.Capture(action.step, action.marks);
    const bool fails = world_->DiskFails(action.step);
    world_->RunOn(&process_, world_->Seconds(0.01, 0.5), [this, shard, action, file, fails] {
      if (fails) {
        HandleShard(shard,
                    shard_event::StoreSnapshotDone{absl::ResourceExhaustedError("disk full")});
        return;
      }
      world_->disk().temporary[{shard->machine->epoch(), action.step, shard->number}] = file;
      HandleShard(shard, shard_event::StoreSnapshotDone{ps::SnapshotReply()});
    });
  });
}

void SimServer::Do(const coordinator_action::PersistEpoch& action) {
  serving_ = false;
  world_->RunOn(&process_, world_->Seconds(0.001, 0.02), [this, action] {
    if (action.epoch <= world_->disk().epoch) world_->Fail("an epoch is used twice");
    const bool fails = world_->Trouble(world_->config().disk_failure);
    // After an error nobody knows whether the file has the new number.
    if (!fails || world_->Chance(0.5)) {
      world_->disk().epoch = action.epoch;
      if (world_->config().remove_pending_first) {
        std::erase_if(world_->disk().temporary,
                      [&](const auto& file) { return std::get<0>(file.first) < action.epoch; });
      }
    }
    HandleCoordinator(coordinator_event::EpochPersisted{
        action.epoch, fails ? MarkPassing(absl::UnknownError("disk error")) : absl::OkStatus()});
  });
}

void SimServer::Do(const coordinator_action::FindCheckpoint&) {
  if (publishing_.has_value()) {
    find_waits_ = true;
    return;
  }
  world_->RunOn(&process_, world_->Seconds(0.001, 0.02), [this] {
    std::optional<VersionId> newest = world_->disk().NewestCheckpoint();
    found_.reset();
    if (newest.has_value()) {
      found_ = {*newest, world_->disk().checkpoints.at(newest->version).node};
    }
    if (newest.has_value() && !world_->config().newest_checkpoint_by_epoch) {
      const auto& last = *world_->disk().checkpoints.rbegin();
      newest = VersionId{last.second.epoch, last.first};
    }
    std::optional<FoundCheckpoint> found;
    if (newest.has_value()) {
      const Disk::Checkpoint& checkpoint = world_->disk().checkpoints.at(newest->version);
      found = {*newest, checkpoint.training_done, checkpoint.num_images};
    }
    HandleCoordinator(coordinator_event::CheckpointFound{found});
  });
}

void SimServer::Do(const coordinator_action::PersistReplicas& action) {
  world_->RunOn(&process_, world_->Seconds(0.001, 0.05), [this, action] {
    const bool fails = world_->Trouble(world_->config().disk_failure);
    // After an error nobody knows whether the file has the new number.
    const bool writes = !fails || world_->Chance(0.5);
    if (writes && world_->config().keep_scaled_number) {
      world_->disk().replicas = action.num_replicas;
    }
    // A process that is killed here has written the number and told nobody.
    if (world_->Trouble(10 * world_->config().crash_at_action)) {
      Crash(!world_->Chance(world_->config().keep_mapped_state));
      return;
    }
    HandleCoordinator(coordinator_event::ReplicasPersisted{
        action.num_replicas, fails ? absl::UnknownError("disk error") : absl::OkStatus()});
  });
}

void SimServer::Do(const coordinator_action::TakeOver&) {
  world_->RunOn(&process_, world_->Seconds(0.001, 0.02), [this] {
    run_state_->Handle(run_state_event::JobRestored{});
    HandleCoordinator(coordinator_event::TookOver{absl::OkStatus()});
  });
}

void SimServer::CheckAccepted(const ps::PushKey& key) {
  bool included = false;
  for (const ps::Contribution& contribution : decided_.contributions()) {
    included |= contribution.replica() == key.replica() && contribution.grant() == key.grant() &&
                (world_->config().sync() || contribution.sequence() == key.step());
  }
  bool decided = true;
  if (world_->config().sync()) {
    accepted_.insert({key.epoch(), key.step(), key.replica()});
    decided = decided_.epoch() == key.epoch() && decided_.step() >= key.step();
    included = included && decided_.step() == key.step();
  }
  if (decided && !included) {
    world_->Fail(
        absl::StrFormat("the commit of replica %d to step %d was accepted, but is not in the step",
                        key.replica(), key.step()));
  }
}

void SimServer::CheckDecision(const ps::ApplyRequest& request) {
  decided_ = request;
  std::set<uint32_t> replicas;
  for (const ps::Contribution& contribution : request.contributions()) {
    replicas.insert(contribution.replica());
  }
  for (auto it = accepted_.lower_bound({request.epoch(), request.step(), 0});
       it != accepted_.end() && std::get<0>(*it) == request.epoch() &&
       std::get<1>(*it) == request.step();
       ++it) {
    if (replicas.count(std::get<2>(*it)) > 0) continue;
    world_->Fail(absl::StrFormat("step %d is decided without replica %d, whose commit was accepted",
                                 request.step(), std::get<2>(*it)));
  }
  Oracle& oracle = world_->oracle();
  if (oracle.Has(request.step())) {
    if (oracle.contributors(request.step()) != DescribeContributors(request)) {
      world_->Fail(absl::StrFormat("I1: step %d is decided twice: %s and %s", request.step(),
                                   oracle.contributors(request.step()),
                                   DescribeContributors(request)));
    }
    return;
  }
  if (world_->config().sync()) CheckNumber(request.step());
  const std::string problem = oracle.Decide(request, coordinator_->shares());
  if (!problem.empty()) world_->Fail(problem + ": " + DescribeContributors(request));
}

void SimServer::CheckNumber(uint64_t step) {
  const std::vector<int64_t>& shares = coordinator_->shares();
  const World::Numbers& numbers = world_->numbers;
  const uint32_t number = static_cast<uint32_t>(shares.size());
  const bool may = number == numbers.settled || numbers.asked.contains(number) ||
                   (step < numbers.from_step && number == numbers.before);
  if (!may) {
    world_->Fail(absl::StrFormat("I11: step %d has %d replicas, but the job was scaled to %d", step,
                                 number, numbers.settled));
  }
  if (!world_->last_shares.empty() && world_->last_shares != shares) ++world_->counts.divisions;
  world_->last_shares = shares;
}

void SimServer::Do(const coordinator_action::CallShard& action) {
  if (const auto* norm = std::get_if<shard_call::MeasureNorm>(&action.call)) {
    CheckDecision(norm->request);
  } else if (const auto* apply = std::get_if<shard_call::Apply>(&action.call)) {
    CheckDecision(apply->request);
  }
  const bool slow = std::holds_alternative<shard_call::Snapshot>(action.call);
  SimServer* server = (*shard_servers_)[action.shard];
  world_->Call<ShardReply>(
      &process_, server->process(), absl::Seconds(slow ? 3 : 1),
      [server, action](World::Answer<ShardReply> answer) {
        server->ServeShardCall(action.shard, action.call, std::move(answer));
      },
      [this, rpc = action.rpc](absl::StatusOr<ShardReply> reply) {
        HandleCoordinator(coordinator_event::ShardReplied{rpc, std::move(reply)});
      });
}

void SimServer::Do(const coordinator_action::PublishCheckpoint& action) {
  if (world_->Trouble(world_->config().late_publication)) {
    PublishLate(action);
    return;
  }
  publishing_ = action;
  const bool fails = world_->DiskFails(action.step);
  world_->RunOn(&process_, world_->Seconds(0.01, 0.2), [this, action, fails] {
    Disk& disk = world_->disk();
    publishing_.reset();
    if (std::exchange(find_waits_, false)) Do(coordinator_action::FindCheckpoint{});
    if (fails) {
      HandleCoordinator(
          coordinator_event::CheckpointPublished{action.step, absl::UnknownError("disk error")});
      return;
    }
    std::optional<Disk::Checkpoint> checkpoint = Collect(action);
    if (!checkpoint.has_value()) {
      // The checkpoint was abandoned meanwhile, and its folder is gone.
      HandleCoordinator(
          coordinator_event::CheckpointPublished{action.step, absl::NotFoundError("gone")});
      return;
    }
    const std::optional<VersionId> newest = disk.NewestCheckpoint();
    const VersionId id{action.epoch, action.step};
    // A checkpoint may be published again to say that training is done.
    const bool marks_the_end = newest.has_value() && *newest == id && action.training_done &&
                               !disk.checkpoints.at(id.version).training_done;
    if (newest.has_value() && *newest >= id && !marks_the_end) {
      world_->Fail("I6: a published checkpoint is not newer than the last one");
    }
    disk.checkpoints[action.step] = *std::move(checkpoint);
    HandleCoordinator(coordinator_event::CheckpointPublished{action.step, absl::OkStatus()});
  });
}

void SimServer::Do(const coordinator_action::AbandonCheckpoint& action) {
  std::erase_if(world_->disk().temporary,
                [&](const auto& file) { return std::get<1>(file.first) == action.step; });
}

void SimServer::SeeGrants(const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants) {
  for (const ps::ReplicaGrant& grant : grants) {
    uint64_t& newest = newest_grant_[grant.replica()];
    if (grant.grant() < newest) world_->Fail("I5: a grant went back");
    newest = std::max(newest, grant.grant());
  }
}

void SimServer::Do(const coordinator_action::ReplyRegister& action) {
  if (action.reply.ok()) SeeGrants(action.reply->grants());
  const Caller caller = callers_[action.call];
  if (action.reply.ok() && HasEvicted(caller.worker)) world_->Fail("an evicted clone registered");
  if (action.reply.ok()) NoteSession(caller.worker, caller.session);
  if (action.reply.ok() && action.reply->num_steps() != world_->config().num_steps) {
    world_->Fail("a clone was told a wrong last step");
  }
  callers_.erase(action.call);
  SendReply<ps::RegisterReply>(action.call, action.reply);
}

void SimServer::Do(const coordinator_action::ReplyHeartbeat& action) {
  if (action.reply.ok()) SeeGrants(action.reply->grants());
  const Caller caller = callers_[action.call];
  if (action.reply.ok() && HasEvicted(caller.worker)) {
    world_->Fail("an evicted clone's lease was renewed");
  }
  if (action.reply.ok()) NoteSession(caller.worker, caller.session);
  // Another process may take the place of one that has left.
  if (action.reply.ok() && caller.leaving) seen_.erase(caller.worker);
  callers_.erase(action.call);
  SendReply<ps::HeartbeatReply>(action.call, action.reply);
}

void SimServer::Do(const coordinator_action::ReplyCommit& action) {
  const ps::PushKey& key = commit_keys_[action.call];
  if (action.reply.ok() && action.reply->outcome() == ps::PushReply::ACCEPTED) {
    if (key.epoch() != coordinator_->epoch()) world_->Fail("I5: a commit of another epoch counts");
    if (key.grant() < newest_grant_[key.replica()])
      world_->Fail("I5: a commit of an old grant counts");
    CheckAccepted(key);
    // An APPLIED contribution may already have been part of an apply when the clone was evicted.
    if (action.reply->level() == ps::COMMITTED && HasEvicted(key.worker_id())) {
      world_->Fail("a commit of an evicted clone counts");
    }
  }
  commit_keys_.erase(action.call);
  if (std::get<Calls<ps::PushReply>>(calls_).count(action.call) > 0) {
    SendReply<ps::PushReply>(action.call, PushReplyOf(action.reply));
  } else {
    SendReply<ps::CommitReply>(action.call, action.reply);
  }
}

void SimServer::Do(const coordinator_action::ReplyCheckpoint& action) {
  SendReply<ps::CheckpointReply>(action.call, action.reply);
}

void SimServer::Do(const coordinator_action::ReplyEvict& action) {
  SendReply<ps::EvictReply>(action.call, action.reply);
}

void SimServer::Do(const coordinator_action::ReplyScale& action) {
  SendReply<ps::ScaleReply>(action.call, action.reply);
}

void SimServer::Do(const coordinator_action::ReplyDrain&) {
  world_->Fail("a drain was answered although no call waits for it");
}

void SimServer::Do(const coordinator_action::EndWanted&) {}

void SimServer::CheckAdministratorsAreAnswered() {
  if (!std::get<Calls<ps::CheckpointReply>>(calls_).empty() ||
      !std::get<Calls<ps::EvictReply>>(calls_).empty() ||
      !std::get<Calls<ps::ScaleReply>>(calls_).empty()) {
    world_->Fail("an administrator was not answered");
  }
}

void SimServer::Do(const coordinator_action::StepApplied& action) {
  if (action.step != coordinator_->version()) world_->Fail("a step is reported out of order");
}

void SimServer::Do(const coordinator_action::Serving& action) {
  CheckServing(action);
  seen_.clear();  // All clones register again.
  served_ = serving_ = true;
}

void SimServer::Do(const coordinator_action::Notice&) {}

void SimServer::Do(const coordinator_action::Finished&) {
  finished_ = true;
  if (coordinator_->version() != world_->config().num_steps) {
    world_->Fail("the job finished before the last step");
  }
  const auto last = world_->disk().checkpoints.find(world_->config().num_steps);
  if (last == world_->disk().checkpoints.end()) {
    world_->Fail("the job finished without the last checkpoint");
  } else if (!last->second.training_done) {
    world_->Fail("the last checkpoint does not say that training is done");
  }
}

void SimServer::Do(const coordinator_action::Drained&) {
  const ps::StatusReply status = coordinator_->Status(world_->now());
  if (serving_ && status.checkpoint_failures() == 0 && status.durable_step() != status.version()) {
    world_->Fail("the job was drained without a checkpoint of the last step");
  }

  for (SimServer* server : *shard_servers_) {
    if (server == this) continue;
    world_->Send(process_, server->process(),
                 [server, status] { server->EndTask(status.version(), status.durable_step()); });
  }
  world_->queue().After(absl::ZeroDuration(), [this, status, incarnation = process_.incarnation] {
    if (process_.incarnation != incarnation) return;
    RemoveState(status.version(), status.durable_step());
    Crash(/*memory_lost=*/false);
  });
}

void SimServer::Do(const coordinator_action::Stopped& action) {
  world_->Fail(absl::StrFormat("training was stopped: %s", action.reason.ToString()));
}

}  // namespace pushpull::sim
