// One server process: the state machines of some shards, and of the coordinator in the first
// process, with a runtime that may be killed between any two actions.
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

// What a pull brings.
struct PulledShard {
  uint64_t epoch = 0;
  uint64_t version = 0;
  std::vector<float> weights;
};

class SimServer {
 public:
  // shard_servers: which server holds which shard; filled in by the owner before Start.
  SimServer(World* world, std::vector<uint32_t> shards, bool has_coordinator,
            const std::vector<SimServer*>* shard_servers);

  void Start();
  // kill -9 (or, if memory is lost, the machine); starts again by itself.
  void Crash(bool memory_lost);
  void Drain();
  // The job is over: the process ends for good, and removes what it need not leave.
  void End();
  // Operators' calls, which are never lost on the way: nobody is there to repeat them.
  void SaveNow();
  void Evict(uint32_t worker);
  bool HasEvicted(uint32_t worker) const { return evicted_.count(worker) > 0; }

  Process* process() { return &process_; }
  const Coordinator* coordinator() const { return coordinator_.get(); }
  // The coordinator's process tells this one's to end.
  void EndTask(uint64_t version, uint64_t durable_step);
  // Every step is applied and the final checkpoint published, as this incarnation says.
  bool finished() const { return finished_; }

  // Requests as they arrive; only while alive.
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
    std::map<uint32_t, uint64_t> newest_staged_grant;  // by replica, in this epoch
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
  // False: the process was killed on the way.
  bool HandleShard(Shard* shard, const ShardEvent& event);
  void CheckShard(Shard* shard, const ShardEvent& event, const ShardActions& actions);
  void HandleCoordinator(const CoordinatorEvent& event);
  void ScheduleWakeup();
  void TakeStore(Shard* shard);

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
  void Do(const coordinator_action::ReplyDrain& action);
  void Do(const coordinator_action::EndWanted& action);
  void Do(const coordinator_action::StepApplied& action);
  void Do(const coordinator_action::Serving& action);
  void Do(const coordinator_action::Notice& action);
  void Do(const coordinator_action::Finished& action);
  void Do(const coordinator_action::Drained& action);
  void Do(const coordinator_action::Stopped& action);

  // sim_server_state.cc: what a process leaves behind.
  // The process ends: removes the shards' state files where it may. The arguments are what the
  // coordinator tells.
  void RemoveState(uint64_t version, uint64_t durable_step);
  bool MayRemoveState(uint64_t version, uint64_t durable_step);
  void NoteRestored(const Shard& shard);
  // A server of another model starts on the files and is refused.
  void TryAnotherModel();
  void CheckRemoval(const Shard& shard);
  // The next incarnation starts on the other machine.
  void MoveAway();
  void PublishLate(const coordinator_action::PublishCheckpoint& action);
  // Nothing if a file is not there any more.
  std::optional<Disk::Checkpoint> Collect(const coordinator_action::PublishCheckpoint& action);
  // Makes one chunk after the other, then the version.
  struct Applying {
    shard_action::StoreApply order;
    std::vector<int> chunks;
    size_t next = 0;
  };
  void GoOnApplying(Shard* shard, const std::shared_ptr<Applying>& applying);
  void CheckMade(const Shard& shard, uint64_t step);
  void NoteSession(uint32_t worker, uint64_t session);
  void CheckServing(const coordinator_action::Serving& action);

  void CheckOperatorsAreAnswered();
  void CheckDecision(const ps::ApplyRequest& request);
  // A commit was answered ACCEPTED: its contribution is in the step, if that is decided.
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
             Calls<ps::EvictReply>, Calls<ShardReply>>
      calls_;
  struct Caller {
    uint32_t worker = 0;
    uint64_t session = 0;
  };
  std::map<CallId, Caller> callers_;  // of Register and Heartbeat
  struct Seen {
    uint64_t session = 0;
    absl::Duration at;
  };
  std::map<uint32_t, Seen> seen_;  // by worker: the session let in, and when it was last heard of
  std::set<uint32_t> evicted_;     // worker ids, as this incarnation has said
  std::map<CallId, ps::PushKey> commit_keys_;
  ps::ApplyRequest decided_;                                     // the newest list of contributors
  std::set<std::tuple<uint64_t, uint64_t, uint32_t>> accepted_;  // sync: (epoch, step, replica)
  std::map<uint32_t, uint64_t> newest_grant_;                    // by replica: as told to workers
  std::optional<coordinator_action::PublishCheckpoint> publishing_;
  bool find_waits_ = false;
  std::unique_ptr<RunState> run_state_;
  bool served_ = false;   // since the start
  bool serving_ = false;  // no failover is under way
  bool finished_ = false;
  uint64_t durable_step_ = 0;  // highest ever told
  // The newest checkpoint when the epoch's recovery looked for one.
  std::optional<std::pair<VersionId, Oracle::Node>> found_;
  absl::Duration wakeup_ = absl::InfiniteDuration();
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_SIM_SERVER_H_
