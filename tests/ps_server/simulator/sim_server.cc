#include "tests/ps_server/simulator/sim_server.h"

#include <algorithm>
#include <type_traits>
#include <utility>

#include "absl/strings/str_format.h"

namespace pushpull::sim {

SimServer::SimServer(World* world, std::vector<uint32_t> shards, bool has_coordinator,
                     const std::vector<SimServer*>* shard_servers)
    : world_(world), has_coordinator_(has_coordinator), shard_servers_(shard_servers) {
  for (const uint32_t number : shards) {
    shards_.push_back(
        std::unique_ptr<Shard>(new Shard{number, ToyStore(world, number), {}, false, {}, 0}));
  }
}

void SimServer::Start() {
  const SimConfig& config = world_->config();
  if (world_->Trouble(config.refused_start)) TryAnotherModel();
  process_.alive = true;
  ++process_.incarnation;
  for (const auto& shard : shards_) {
    ShardOptions options;
    options.run_id = kRunId;
    options.boot_id = 1000 * (shard->number + 1) + process_.incarnation;
    options.sync = config.sync();
    options.shard = shard->number;
    options.tasks = config.shards;
    for (const int elements : config.chunk_elements[shard->number]) {
      options.chunk_elements.push_back(elements);
    }
    options.held_versions = shard->store.held();
    shard->machine = std::make_unique<MutatedShard>(options, &config.bugs);
    shard->store_busy = false;
  }
  run_state_ = std::make_unique<RunState>(static_cast<int>(shards_.size()));
  if (!has_coordinator_) return;
  CoordinatorOptions options;
  options.run_id = kRunId;
  options.tasks = config.shards;
  options.sync = config.sync();
  if (config.ends_by_epochs) {
    options.limits.num_epochs = 1;
  } else {
    options.limits.num_steps = config.num_steps;
  }
  options.limits.batch_size = kBatchSize;
  options.num_replicas = world_->disk().replicas.value_or(0);
  options.scaled = world_->disk().replicas.has_value();
  options.shares_by_speed = config.shares_by_speed;
  options.layout_signature = "toy";
  options.lease = absl::Seconds(3);
  if (config.min_contributors > 0) {
    options.step_deadline = absl::Seconds(1);
    options.min_contributors = config.min_contributors;
  }
  options.max_staleness = config.max_staleness;
  options.non_finite_policy = NonFinitePolicy::kSkip;
  options.max_void_steps = 100;
  options.measure_norms = config.measure_norms;
  options.save_checkpoints_every = absl::Seconds(3);
  options.save_checkpoints_steps = config.checkpoint_steps;
  options.drain_patience = absl::Seconds(2);
  coordinator_ = std::make_unique<MutatedCoordinator>(options, &config.bugs);
  evicted_.clear();
  wakeup_ = absl::InfiniteDuration();
  publishing_.reset();
  seen_.clear();
  find_waits_ = served_ = serving_ = finished_ = false;
  if (world_->Trouble(config.early_end)) {
    world_->RunOn(&process_, world_->Seconds(0, 0.1), [this] { Drain(); });
  }
  HandleCoordinator(coordinator_event::Start{world_->disk().epoch});
}

void SimServer::Crash(bool memory_lost) {
  ++world_->counts.crashes;
  process_.alive = false;
  ++process_.incarnation;
  for (const auto& shard : shards_) {
    shard->machine.reset();
    shard->store.Crash(!memory_lost);
  }
  if (world_->Trouble(world_->config().move_rate)) MoveAway();
  publishing_.reset();
  coordinator_.reset();
  calls_ = {};
  callers_.clear();
  commit_keys_.clear();
  world_->queue().After(world_->Seconds(0.05, 1.5), [this] { Start(); });
}

void SimServer::MoveAway() {
  ++world_->counts.moves;
  for (const auto& shard : shards_) shard->store.MoveAway();
}

void SimServer::Drain() {
  if (!process_.alive || coordinator_ == nullptr || finished_) return;
  HandleCoordinator(coordinator_event::Drain{});
}

void SimServer::SaveNow() {
  if (!process_.alive || coordinator_ == nullptr) return;
  const uint64_t version = coordinator_->version();
  const CallId call = OpenCall<ps::CheckpointReply>(
      [this, version](const absl::StatusOr<ps::CheckpointReply>& reply) {
        if (!reply.ok()) return;
        ++world_->counts.saves;
        if (reply->step() < version) world_->Fail("the checkpoint is older than requested");
        if (world_->disk().checkpoints.count(reply->step()) == 0) {
          world_->Fail("an administrator was told of a checkpoint that is not published");
        }
      });
  HandleCoordinator(coordinator_event::Checkpoint{call});
}

void SimServer::Evict(uint32_t worker) {
  if (!process_.alive || coordinator_ == nullptr) return;
  ps::EvictRequest request;
  request.set_worker_id(worker);
  const CallId call =
      OpenCall<ps::EvictReply>([this, worker](const absl::StatusOr<ps::EvictReply>& reply) {
        if (!reply.ok()) return;
        ++world_->counts.evictions;
        evicted_.insert(worker);
      });
  HandleCoordinator(coordinator_event::Evict{call, request});
}

void SimServer::Scale(uint32_t num_replicas) {
  if (!process_.alive || coordinator_ == nullptr) return;
  world_->numbers.asked.insert(num_replicas);
  ps::ScaleRequest request;
  request.set_num_replicas(num_replicas);
  const CallId call =
      OpenCall<ps::ScaleReply>([this, num_replicas](const absl::StatusOr<ps::ScaleReply>& reply) {
        if (!reply.ok()) return;
        ++world_->counts.scales;
        World::Numbers& numbers = world_->numbers;
        numbers = {num_replicas, reply->from_step(), reply->previous_num_replicas(), {}};
        // A step that waited for absent clones begins anew with the new number.
        std::erase_if(accepted_, [&](const auto& commit) {
          return std::get<0>(commit) == coordinator_->epoch() &&
                 std::get<1>(commit) >= reply->from_step();
        });
      });
  HandleCoordinator(coordinator_event::Scale{call, request});
}

template <typename Reply>
CallId SimServer::OpenCall(World::Answer<Reply> answer) {
  std::get<Calls<Reply>>(calls_)[next_call_] = std::move(answer);
  return next_call_++;
}

SimServer::Shard& SimServer::shard(uint32_t number) {
  for (const auto& shard : shards_) {
    if (shard->number == number) return *shard;
  }
  world_->Fail("a message reached the wrong server");
  return *shards_[0];
}

void SimServer::PushChunk(const ps::PushChunk& header, const Payload& payload,
                          const absl::Status& verdict) {
  Shard& s = shard(header.shard());
  const int64_t before = s.machine->staged_bytes();
  const absl::Status status = s.machine->PushChunk(header, payload, verdict);
  for (const ShardAction& action : s.machine->TakeAhead()) {
    std::visit([this, &s](const auto& a) { Do(&s, a); }, action);
  }
  const ps::PushKey& key = header.key();
  if (s.epoch != s.machine->epoch()) s.newest_staged_grant.clear();
  s.epoch = s.machine->epoch();
  const bool changed = s.machine->staged_bytes() != before;
  if (key.epoch() != s.epoch && (changed || status.ok())) {
    world_->Fail("I5: a chunk of another epoch changed a shard");
  }
  uint64_t& newest = s.newest_staged_grant[key.replica()];
  if (changed && key.grant() < newest) world_->Fail("I5: a chunk of an old grant was staged");
  if (changed) newest = std::max(newest, key.grant());
  if (!verdict.ok() && changed) world_->Fail("a damaged chunk was staged");
}

void SimServer::FinishPush(const ps::PushChunk& last, World::Answer<ps::PushReply> answer) {
  HandleShard(&shard(last.shard()),
              shard_event::FinishPush{OpenCall<ps::PushReply>(std::move(answer)), last});
}

void SimServer::Pull(const ps::PullRequest& request, World::Answer<PulledShard> answer) {
  HandleShard(&shard(request.shard()),
              shard_event::Pull{OpenCall<PulledShard>(std::move(answer)), request});
}

void SimServer::Register(const ps::RegisterRequest& request,
                         World::Answer<ps::RegisterReply> answer) {
  const CallId call = OpenCall<ps::RegisterReply>(std::move(answer));
  callers_[call] = {request.worker_id(), request.session()};
  HandleCoordinator(coordinator_event::Register{call, request});
}

void SimServer::Heartbeat(const ps::HeartbeatRequest& request,
                          World::Answer<ps::HeartbeatReply> answer) {
  const CallId call = OpenCall<ps::HeartbeatReply>(std::move(answer));
  callers_[call] = {request.worker_id(), request.session(), request.leaving()};
  HandleCoordinator(coordinator_event::Heartbeat{call, request});
}

void SimServer::Commit(const ps::CommitRequest& request, World::Answer<ps::CommitReply> answer) {
  const CallId call = OpenCall<ps::CommitReply>(std::move(answer));
  commit_keys_[call] = request.key();
  HandleCoordinator(coordinator_event::Commit{call, request});
}

void SimServer::ServeShardCall(uint32_t number, const ShardCall& call,
                               World::Answer<ShardReply> answer) {
  Shard& s = shard(number);
  if (std::holds_alternative<shard_call::GetState>(call)) {
    answer(s.machine->State());
    return;
  }
  const CallId id = OpenCall<ShardReply>(std::move(answer));
  if (const auto* restore = std::get_if<shard_call::Restore>(&call)) {
    HandleShard(&s, shard_event::Restore{id, restore->request});
  } else if (const auto* norm = std::get_if<shard_call::MeasureNorm>(&call)) {
    HandleShard(&s, shard_event::MeasureNorm{id, norm->request});
  } else if (const auto* apply = std::get_if<shard_call::Apply>(&call)) {
    HandleShard(&s, shard_event::Apply{id, apply->request});
  } else {
    HandleShard(&s, shard_event::Snapshot{id, std::get<shard_call::Snapshot>(call).request});
  }
}

bool SimServer::HandleShard(Shard* shard, const ShardEvent& event) {
  const uint64_t incarnation = process_.incarnation;
  const ShardActions actions = shard->machine->Handle(event);
  CheckShard(shard, event, actions);
  for (const ShardAction& action : actions) {
    if (world_->Trouble(world_->config().crash_at_action)) {
      Crash(!world_->Chance(world_->config().keep_mapped_state));
    }
    if (process_.incarnation != incarnation) return false;
    std::visit([this, shard](const auto& a) { Do(shard, a); }, action);
  }
  return process_.incarnation == incarnation;
}

void SimServer::CheckShard(Shard* shard, const ShardEvent& event, const ShardActions& actions) {
  const SimConfig& config = world_->config();
  const uint32_t most =
      config.scale_rate > 0 ? std::max(config.replicas, kMaxSimReplicas) : config.replicas;
  const int64_t bound = most * config.elements(shard->number) * sizeof(float);
  if (shard->machine->staged_bytes() > bound) {
    world_->Fail(absl::StrFormat("I7: %d bytes are staged, but at most %d can be needed",
                                 shard->machine->staged_bytes(), bound));
  }
  const auto* apply = std::get_if<shard_event::Apply>(&event);
  if (apply == nullptr || apply->request.epoch() == shard->machine->epoch()) return;
  for (const ShardAction& action : actions) {
    if (std::holds_alternative<shard_action::StoreApply>(action)) {
      world_->Fail("I5: an apply of another epoch changed a shard");
    }
  }
}

void SimServer::HandleCoordinator(const CoordinatorEvent& event) {
  const uint64_t incarnation = process_.incarnation;
  const CoordinatorActions actions = coordinator_->Handle(event, world_->now());
  if (served_) {  // A coordinator learns the durable step in recovery.
    if (coordinator_->durable_step() < durable_step_)
      world_->Fail("I6: the durable step went back");
    durable_step_ = coordinator_->durable_step();
  }
  for (const CoordinatorAction& action : actions) {
    if (world_->Trouble(world_->config().crash_at_action)) {
      Crash(!world_->Chance(world_->config().keep_mapped_state));
    }
    if (process_.incarnation != incarnation) return;
    std::visit([this](const auto& a) { Do(a); }, action);
  }
  if (process_.incarnation != incarnation) return;
  // The check comes after all actions, because the event may be an administrator's call that
  // arrived when the coordinator was about to end.
  const bool ended = std::any_of(actions.begin(), actions.end(), [](const auto& action) {
    return std::holds_alternative<coordinator_action::Finished>(action) ||
           std::holds_alternative<coordinator_action::Drained>(action);
  });
  if (ended) CheckAdministratorsAreAnswered();
  ScheduleWakeup();
}

void SimServer::ScheduleWakeup() {
  const absl::Duration next = coordinator_->NextWakeup();
  if (next >= wakeup_) return;
  wakeup_ = next;
  world_->RunOn(&process_, next - world_->now(), [this, next] {
    if (wakeup_ != next) return;
    wakeup_ = absl::InfiniteDuration();
    HandleCoordinator(coordinator_event::Tick{});
  });
}

}  // namespace pushpull::sim
