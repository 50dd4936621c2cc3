// A Coordinator with a bug: its events and actions are altered on the way in and out, as a
// coordinator that breaks one rule of the protocol would. Without a bug it is a plain Coordinator.
// Not thread-safe.
#ifndef PUSHPULL_TESTS_PS_SERVER_SIMULATOR_MUTATED_COORDINATOR_H_
#define PUSHPULL_TESTS_PS_SERVER_SIMULATOR_MUTATED_COORDINATOR_H_

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "ps_server/core/coordinator.h"
#include "ps_server/core/replica_positions.h"
#include "tests/ps_server/simulator/core_bugs.h"

namespace pushpull::sim {

// Hides the function of Coordinator through which events go in and actions come out.
class MutatedCoordinator : public Coordinator {
 public:
  // `bugs` outlives the coordinator.
  MutatedCoordinator(const CoordinatorOptions& options, const CoreBugs* bugs)
      : Coordinator(options), options_(options), bugs_(*bugs) {}

  CoordinatorActions Handle(const CoordinatorEvent& event, absl::Duration now);

 private:
  // Alters a request that goes in. The overload for all other events does nothing.
  void Alter(auto*) {}
  void Alter(coordinator_event::Register* event);
  void Alter(coordinator_event::Heartbeat* event);
  void Alter(coordinator_event::Commit* event);
  void Alter(coordinator_event::Evict* event);
  void Alter(coordinator_event::ShardReplied* event);
  // Notes what an action says, and alters it. The overload for all other actions does nothing.
  void See(auto*) {}
  void See(coordinator_action::PersistEpoch*) { serving_ = false; }
  void See(coordinator_action::Serving* action);
  void See(coordinator_action::CallShard* action);
  void See(coordinator_action::ReplyRegister* action);
  void See(coordinator_action::ReplyHeartbeat* action);
  void See(coordinator_action::ReplyCommit* action);
  void See(coordinator_action::ReplyEvict* action);
  void SeeGrants(const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants);
  // Appends the actions of another event, and what See makes of them.
  void Add(const CoordinatorEvent& event, absl::Duration now, CoordinatorActions* actions);
  // Hands a void commit in for a replica that has not committed, if one is missing.
  void CommitForAnother(const ps::PushKey& key, absl::Duration now, CoordinatorActions* actions);

  const CoordinatorOptions options_;
  const CoreBugs& bugs_;
  bool serving_ = false;
  std::map<uint32_t, uint64_t> newest_grants_;  // by replica: as told to workers
  std::map<uint32_t, uint64_t> sessions_;       // by worker: as handed to the coordinator
  ps::RegisterRequest registering_;
  ps::PushKey committing_;
  ps::ApplyRequest decided_;  // the newest list of contributors
  std::string restored_marks_;
  ReplicaPositions positions_;  // as the coordinator has them
  struct Call {
    uint32_t shard = 0;
    bool is_apply = false;
  };
  std::map<RpcId, Call> calls_;
  std::vector<uint64_t> boot_ids_;  // by shard, as of this epoch
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_MUTATED_COORDINATOR_H_
