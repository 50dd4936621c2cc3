// A Coordinator with planted bugs (core_bugs.h). It alters the events that go into the production
// coordinator and the actions that come out, so that both together behave like a coordinator that
// breaks a rule of the protocol. If no bug is switched on, nothing is altered. Not thread-safe.
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

// Hides Coordinator::Handle, through which events go in and actions come out.
class MutatedCoordinator : public Coordinator {
 public:
  // `bugs` must outlive the coordinator.
  MutatedCoordinator(const CoordinatorOptions& options, const CoreBugs* bugs)
      : Coordinator(options), options_(options), bugs_(*bugs) {}

  CoordinatorActions Handle(const CoordinatorEvent& event, absl::Duration now);

 private:
  // Alter changes an event before the coordinator sees it. Events without an overload are
  // unchanged.
  void Alter(auto*) {}
  void Alter(coordinator_event::Register* event);
  void Alter(coordinator_event::Heartbeat* event);
  void Alter(coordinator_event::Commit* event);
  void Alter(coordinator_event::Evict* event);
  void Alter(coordinator_event::ShardReplied* event);
  // See records what an action contains and may change it. Actions without an overload are ignored.
  void See(auto*) {}
  void See(coordinator_action::PersistEpoch*) { serving_ = false; }
  void See(coordinator_action::Serving* action);
  void See(coordinator_action::CallShard* action);
  void See(coordinator_action::ReplyRegister* action);
  void See(coordinator_action::ReplyHeartbeat* action);
  void See(coordinator_action::ReplyCommit* action);
  void See(coordinator_action::ReplyEvict* action);
  void SeeGrants(const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants);
  // Handles one more event, passes its actions through See, and appends them to `actions`.
  void Add(const CoordinatorEvent& event, absl::Duration now, CoordinatorActions* actions);
  // If a replica has not committed yet, sends the coordinator a void commit for it.
  void CommitForAnother(const ps::PushKey& key, absl::Duration now, CoordinatorActions* actions);

  const CoordinatorOptions options_;
  const CoreBugs& bugs_;
  bool serving_ = false;
  std::map<uint32_t, uint64_t> newest_grants_;  // By replica: as sent to workers.
  std::map<uint32_t, uint64_t> sessions_;       // By worker: as passed to the coordinator.
  ps::RegisterRequest registering_;
  ps::PushKey committing_;
  ps::ApplyRequest decided_;  // The last decided list of contributors.
  std::string restored_marks_;
  ReplicaPositions positions_;  // A copy of the coordinator's positions.
  struct Call {
    uint32_t shard = 0;
    bool is_apply = false;
  };
  std::map<RpcId, Call> calls_;
  std::vector<uint64_t> boot_ids_;  // By shard, in this epoch.
};

}  // namespace pushpull::sim

#endif  // PUSHPULL_TESTS_PS_SERVER_SIMULATOR_MUTATED_COORDINATOR_H_
