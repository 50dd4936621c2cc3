// A simulated ps_server process. It holds the state machines of one or more shards and, in the
// first process, that of the coordinator. It carries out their actions in virtual time, checks the
// invariants (simulator.h) while it does so, and may be killed between any two actions. Threads,
// transport, authentication and real files are not modelled. Not thread-safe.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_SERVER_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_SERVER_H_

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <tuple>
#include <vector>

#include "absl/time/time.h"

#include "ps_server/core/run_state.h"
#include "tests/ps_server/simulator/mutated_coordinator.h"
#include "tests/ps_server/simulator/mutated_shard.h"
#include "tests/ps_server/simulator/toy_store.h"
#include "tests/ps_server/simulator/world.h"

namespace pushpull::sim {

// The answer to a pull of one shard.
struct PulledShard {
  uint64_t epoch = 0;
  uint64_t version = 0;
  std::vector<float> weights;
};

class SimServer {
 public:
  // `shard_servers[i]` is the server of shard i. The owner fills the vector before Start.
  SimServer(World* world, std::vector<uint32_t> shards, bool has_coordinator,
            const std::vector<SimServer*>* shard_servers);

  void Start();
  // Kills the process and schedules its restart. If `memory_lost`, the machine restarts as well,
  // and the mapped state is gone.
  void Crash(bool memory_lost);
  // Delivers SIGTERM to the coordinator's process.
  void Drain();
  // Ends the process for good after the job. It removes the state files that are not needed.
  void End();
  // Calls of an administrator. They are never lost, because the simulator has no administrator who
  // repeats them.
  void SaveNow();
  void Evict(uint32_t worker);
  void Scale(uint32_t num_replicas);
  bool HasEvicted(uint32_t worker) const { return evicted_.count(worker) > 0; }

  Process* process() { return &process_; }
  const Coordinator* coordinator() const { return coordinator_.get(); }
  // Handles the coordinator's message that tells this process to end.
  void EndTask(uint64_t version, uint64_t durable_step);
  // Returns whether this incarnation has reported that every step is applied and the final
  // checkpoint is published.
  bool finished() const { return finished_; }

  // Handle requests when they arrive. The process must be alive. `verdict` says whether the chunk
  // arrived undamaged.
  void PushChunk(const ps::PushChunk& header, const Payload& payload, const absl::Status& verdict);
  void FinishPush(const ps::PushChunk& last, World::Answer<ps::PushReply> answer);
  void Pull(const ps::PullRequest& request, World::Answer<PulledShard> answer);
  void Register(const ps::RegisterRequest& request, World::Answer<ps::RegisterReply> answer);
  void Heartbeat(const ps::HeartbeatRequest& request, World::Answer<ps::HeartbeatReply> answer);
  void Commit(const ps::CommitRequest& request, World::Answer<ps::CommitReply> answer);

 private:
  struct Shard {
    uint32_t number = 0;
    ToyStore store;
    std::unique_ptr<MutatedShard> machine;
    bool store_busy = false;
    std::map<uint32_t, uint64_t> newest_staged_grant;  // By replica, in this epoch.
    uint64_t epoch = 0;
  };
  template <typename Reply>
  using Calls = std::map<CallId, World::Answer<Reply>>;

  template <typename Reply>
  CallId OpenCall(World::Answer<Reply> answer);
  template <typename Reply>
  void SendReply(CallId call, absl::StatusOr<Reply> reply);

  Shard& shard(uint32_t number);
  void ServeShardCall(uint32_t number, const ShardCall& call, World::Answer<ShardReply> answer);
  // Carries out the actions of the event. Returns false if the process was killed meanwhile.
  bool HandleShard(Shard* shard, const ShardEvent& event);
  void CheckShard(Shard* shard, const ShardEvent& event, const ShardActions& actions);
  void HandleCoordinator(const CoordinatorEvent& event);
  void ScheduleWakeup();
  // Marks the store as busy with an order.
  void TakeStore(Shard* shard);

  // Do carries out one action of a shard or of the coordinator.
  void Do(Shard* shard, const shard_action::ReplyPush& action);
  void Do(Shard* shard, const shard_action::ServePull& action);
  void Do(Shard* shard, const shard_action::RefusePull& action);
  void Do(Shard* shard, const shard_action::ReplyRestore& action);
  void Do(Shard* shard, const shard_action::ReplyNorm& action);
  void Do(Shard* shard, const shard_action::ReplyApply& action);
  void Do(Shard* shard, const shard_action::ReplySnapshot& action);
  void Do(Shard* shard, const shard_action::CommitPush& action);
  void Do(Shard* shard, const shard_action::StoreRestore& action);
  void Do(Shard* shard, const shard_action::StoreMeasure& action);
  void Do(Shard* shard, const shard_action::StoreApply& action);
  void Do(Shard* shard, const shard_action::StoreApplyAhead& action);
  void Do(Shard* shard, const shard_action::StoreSnapshot& action);

  void Do(const coordinator_action::PersistEpoch& action);
  void Do(const coordinator_action::FindCheckpoint& action);
  void Do(const coordinator_action::TakeOver& action);
  void Do(const coordinator_action::CallShard& action);
  void Do(const coordinator_action::PublishCheckpoint& action);
  void Do(const coordinator_action::AbandonCheckpoint& action);
  void Do(const coordinator_action::ReplyRegister& action);
  void Do(const coordinator_action::ReplyHeartbeat& action);
  void Do(const coordinator_action::ReplyCommit& action);
  void Do(const coordinator_action::ReplyCheckpoint& action);
  void Do(const coordinator_action::ReplyEvict& action);
  void Do(const coordinator_action::ReplyScale& action);
  void Do(const coordinator_action::PersistReplicas& action);
  void Do(const coordinator_action::ReplyDrain& action);
  void Do(const coordinator_action::EndWanted& action);
  void Do(const coordinator_action::StepApplied& action);
  void Do(const coordinator_action::Serving& action);
  void Do(const coordinator_action::Notice& action);
  void Do(const coordinator_action::Finished& action);
  void Do(const coordinator_action::Drained& action);
  void Do(const coordinator_action::Stopped& action);

  // Most of the functions from here to CheckServing are in sim_server_state.cc.

  // Removes the state files at the end of the process if that is allowed. The arguments come from
  // the coordinator.
  void RemoveState(uint64_t version, uint64_t durable_step);
  bool MayRemoveState(uint64_t version, uint64_t durable_step);
  void NoteRestored(const Shard& shard);
  // Starts a server with another model on the state files. It is refused.
  void TryAnotherModel();
  void CheckRemoval(const Shard& shard);
  // Makes the next incarnation start on the other machine.
  void MoveAway();
  void PublishLate(const coordinator_action::PublishCheckpoint& action);
  // Collects the files of a checkpoint. Returns nullopt if a file no longer exists.
  std::optional<Disk::Checkpoint> Collect(const coordinator_action::PublishCheckpoint& action);
  // An apply that makes one chunk after the other and then commits the version.
  struct Applying {
    shard_action::StoreApply order;
    std::vector<int> chunks;
    size_t next = 0;
  };
  void GoOnApplying(Shard* shard, const std::shared_ptr<Applying>& applying);
  void CheckMade(const Shard& shard, uint64_t step);
  void NoteSession(uint32_t worker, uint64_t session);
  void CheckServing(const coordinator_action::Serving& action);

  void CheckAdministratorsAreAnswered();
  void CheckDecision(const ps::ApplyRequest& request);
  // Checks that the step has a number of replicas that it may have.
  void CheckNumber(uint64_t step);
  // Checks a commit that was answered with ACCEPTED. If its step is decided, the step must include
  // the contribution.
  void CheckAccepted(const ps::PushKey& key);
  void SeeGrants(const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants);

  World* const world_;
  const bool has_coordinator_;
  const std::vector<SimServer*>* const shard_servers_;
  Process process_;
  std::vector<std::unique_ptr<Shard>> shards_;
  std::unique_ptr<MutatedCoordinator> coordinator_;

  CallId next_call_ = 1;
  std::tuple<Calls<ps::PushReply>, Calls<PulledShard>, Calls<ps::RegisterReply>,
             Calls<ps::HeartbeatReply>, Calls<ps::CommitReply>, Calls<ps::CheckpointReply>,
             Calls<ps::EvictReply>, Calls<ps::ScaleReply>, Calls<ShardReply>>
      calls_;
  struct Caller {
    uint32_t worker = 0;
    uint64_t session = 0;
    bool leaving = false;  // A heartbeat that says so.
  };
  std::map<CallId, Caller> callers_;  // The callers of Register and Heartbeat.
  struct Seen {
    uint64_t session = 0;
    absl::Duration at;
  };
  std::map<uint32_t, Seen> seen_;  // By worker: the accepted session and its last sign of life.
  std::set<uint32_t> evicted_;     // Workers that this incarnation has evicted.
  std::map<CallId, ps::PushKey> commit_keys_;
  ps::ApplyRequest decided_;                                     // The last decided list.
  std::set<std::tuple<uint64_t, uint64_t, uint32_t>> accepted_;  // Sync: (epoch, step, replica).
  std::map<uint32_t, uint64_t> newest_grant_;                    // By replica.
  std::optional<coordinator_action::PublishCheckpoint> publishing_;
  bool find_waits_ = false;
  std::unique_ptr<RunState> run_state_;
  bool served_ = false;   // Whether it has served since the start.
  bool serving_ = false;  // False while a failover is under way.
  bool finished_ = false;
  uint64_t durable_step_ = 0;  // The last durable step of the coordinator.
  // The checkpoint that was newest when the recovery of this epoch looked for one.
  std::optional<std::pair<VersionId, Oracle::Node>> found_;
  absl::Duration wakeup_ = absl::InfiniteDuration();
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_SERVER_H_
