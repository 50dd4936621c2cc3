// Drives a coordinator whose disk and shards answer at once by default.
#ifndef PUSHPULL_TESTS_PS_SERVER_CORE_COORDINATOR_DRIVER_H_
#define PUSHPULL_TESTS_PS_SERVER_CORE_COORDINATOR_DRIVER_H_

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

#include "common/base/random.h"
#include "common/wire/protocol_version.h"
#include "ps_server/core/coordinator.h"
#include "tests/ps_server/core/core_test_util.h"
#include "tests/ps_server/core/part_driver.h"

namespace pushpull {

class CoordinatorTest : public testing::Test {
 protected:
  CoordinatorTest() {
    options_.run_id = kRun;
    options_.num_replicas = 3;
    options_.limits.batch_size = 30;
    options_.layout_signature = "layout";
    ps::VariableEntry variable;
    variable.set_name("conv/weights");
    variable.add_shape(3);
    options_.variables = {variable};
  }

  void Start() {
    coordinator_ = std::make_unique<Coordinator>(options_);
    Send(coordinator_event::Start{stored_epoch_});
  }

  void Send(CoordinatorEvent event) {
    std::deque<CoordinatorEvent> events = {std::move(event)};
    while (!events.empty()) {
      for (CoordinatorAction& action : coordinator_->Handle(events.front(), now_)) {
        Answer(action, &events);
        actions_.push_back(std::move(action));
      }
      events.pop_front();
    }
  }

  void Answer(const CoordinatorAction& action, std::deque<CoordinatorEvent>* events) {
    if (const auto* persist = std::get_if<coordinator_action::PersistEpoch>(&action)) {
      events->push_back(coordinator_event::EpochPersisted{persist->epoch, persist_status_});
    } else if (std::holds_alternative<coordinator_action::FindCheckpoint>(action)) {
      events->push_back(coordinator_event::CheckpointFound{checkpoint_});
    } else if (std::holds_alternative<coordinator_action::TakeOver>(action)) {
      events->push_back(coordinator_event::TookOver{take_over_status_});
    } else if (const auto* publish = std::get_if<coordinator_action::PublishCheckpoint>(&action)) {
      if (hold_publish_) return;
      events->push_back(coordinator_event::CheckpointPublished{publish->step, publish_status_});
    } else if (const auto* call = std::get_if<coordinator_action::CallShard>(&action)) {
      if (silent_) return;
      events->push_back(coordinator_event::ShardReplied{call->rpc, ShardAnswer(*call)});
    }
  }

  absl::StatusOr<ShardReply> ShardAnswer(const coordinator_action::CallShard& call) {
    if (std::holds_alternative<shard_call::GetState>(call.call)) {
      ps::ShardStateReply state;
      state.set_run_id(kRun);
      state.set_shard(swapped_ ? 1 - call.shard : call.shard);
      state.set_job_run_id(call.shard == 1 ? run_of_1_ : kRun);
      state.set_protocol_version(protocol_of_shards_);
      state.set_boot_id(boot_ids_[call.shard]);
      state.set_epoch(coordinator_->epoch());
      for (const VersionId& id : held_) {
        ps::HeldVersion& held = *state.add_held();
        held.set_epoch(id.epoch);
        held.set_version(id.version);
      }
      return ShardReply(state);
    }
    if (std::holds_alternative<shard_call::Restore>(call.call)) {
      if (failing_restores_ > 0) {
        --failing_restores_;
        return restore_status_;
      }
      ps::RestoreReply reply;
      const bool mapped =
          std::get<shard_call::Restore>(call.call).request.source() == ps::RestoreRequest::MAPPED;
      reply.set_marks(mapped && call.shard == 1 ? mapped_marks_of_1_.value_or(restored_marks_)
                                                : restored_marks_);
      return ShardReply(reply);
    }
    if (std::holds_alternative<shard_call::Apply>(call.call)) return ShardReply(ps::ApplyReply());
    if (std::holds_alternative<shard_call::MeasureNorm>(call.call)) {
      ps::NormReply norms;
      norms.add_variable_squared_norms(1.0 + call.shard);
      return ShardReply(norms);
    }
    if (!snapshot_status_.ok()) return snapshot_status_;
    return ShardReply(ps::SnapshotReply());
  }

  // Returns the actions of that type since the last call of this function.
  template <typename Action>
  std::vector<Action> Take() {
    return TakeFrom<Action>(&actions_);
  }

  ps::RegisterRequest RegisterRequest(uint32_t worker, const std::string& peer) {
    ps::RegisterRequest request;
    request.set_run_id(kRun);
    request.set_worker_id(worker);
    request.set_num_replicas(3);
    request.set_peer_name(peer.empty() ? "host:" + std::to_string(worker) : peer);
    request.set_layout_signature("layout");
    request.set_protocol_version(kProtocolVersion);
    request.set_session(StableHash(request.peer_name()));
    return request;
  }
  absl::StatusOr<ps::RegisterReply> Register(const ps::RegisterRequest& request) {
    Send(coordinator_event::Register{++call_, request});
    const auto reply = Take<coordinator_action::ReplyRegister>().at(0).reply;
    if (!reply.ok()) return reply;
    registered_[request.worker_id()] = request;
    See(reply->grants());
    return reply;
  }
  absl::StatusOr<ps::RegisterReply> Register(uint32_t worker, const std::string& peer = "") {
    return Register(RegisterRequest(worker, peer));
  }
  // Sends a heartbeat of the process that registered last.
  absl::StatusOr<ps::HeartbeatReply> Heartbeat(uint32_t worker) {
    ps::RegisterRequest process = registered_[worker];
    process.set_worker_id(worker);
    return Heartbeat(process);
  }
  absl::StatusOr<ps::HeartbeatReply> Heartbeat(const ps::RegisterRequest& process,
                                               bool leaving = false) {
    ps::HeartbeatRequest request;
    request.set_run_id(kRun);
    request.set_epoch(coordinator_->epoch());
    request.set_worker_id(process.worker_id());
    request.set_session(process.session());
    request.set_process_number(process.process_number());
    request.set_leaving(leaving);
    Send(coordinator_event::Heartbeat{++call_, request});
    const auto reply = Take<coordinator_action::ReplyHeartbeat>().at(0).reply;
    if (reply.ok()) See(reply->grants());
    return reply;
  }
  void See(const google::protobuf::RepeatedPtrField<ps::ReplicaGrant>& grants) {
    for (const ps::ReplicaGrant& grant : grants) grants_[grant.replica()] = grant;
  }
  ps::CommitRequest CommitRequest(uint64_t step, uint32_t replica, uint64_t samples = 10) {
    ps::CommitRequest request;
    request.mutable_key()->set_run_id(kRun);
    request.mutable_key()->set_epoch(coordinator_->epoch());
    request.mutable_key()->set_step(step);
    request.mutable_key()->set_replica(replica);
    request.mutable_key()->set_worker_id(replica);
    request.mutable_key()->set_grant(grants_[replica].grant());
    request.mutable_info()->set_samples(samples);
    return request;
  }
  // Returns the immediate replies, oldest first.
  std::vector<coordinator_action::ReplyCommit> Commit(const ps::CommitRequest& request) {
    Send(coordinator_event::Commit{++call_, request});
    return Take<coordinator_action::ReplyCommit>();
  }
  absl::StatusOr<ps::CommitReply> Commit(uint64_t step, uint32_t replica, uint64_t samples = 10) {
    return Commit(CommitRequest(step, replica, samples)).at(0).reply;
  }
  // Completes the apply that is under way.
  void AnswerApply() {
    const auto calls = Take<coordinator_action::CallShard>();
    Send(coordinator_event::ShardReplied{calls.back().rpc, ShardReply(ps::ApplyReply())});
  }
  // Returns the reply of Evict, which is immediate.
  absl::StatusOr<ps::EvictReply> Evict(uint32_t worker, const std::string& reason = "") {
    ps::EvictRequest request;
    request.set_worker_id(worker);
    request.set_reason(reason);
    Send(coordinator_event::Evict{++call_, request});
    return Take<coordinator_action::ReplyEvict>().at(0).reply;
  }
  // Returns the immediate replies of Checkpoint, including replies to earlier calls.
  std::vector<coordinator_action::ReplyCheckpoint> AskForCheckpoint() {
    Send(coordinator_event::Checkpoint{++call_});
    return Take<coordinator_action::ReplyCheckpoint>();
  }
  void RunStep(uint64_t step) {
    for (uint32_t replica = 0; replica < 3; ++replica) EXPECT_TRUE(Commit(step, replica).ok());
    EXPECT_EQ(coordinator_->version(), step);
  }
  void StartWithClones() {
    Start();
    for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Register(worker).ok());
  }
  void Pass(absl::Duration duration) {
    now_ += duration;
    Send(coordinator_event::Tick{});
  }

  CoordinatorOptions options_;
  std::unique_ptr<Coordinator> coordinator_;
  absl::Duration now_ = absl::Seconds(100);
  std::vector<CoordinatorAction> actions_;
  std::map<uint32_t, ps::ReplicaGrant> grants_;
  std::map<uint32_t, ps::RegisterRequest> registered_;
  CallId call_ = 0;
  uint64_t stored_epoch_ = 6;
  std::map<uint32_t, uint64_t> boot_ids_ = {{0, 1}, {1, 1}};
  std::vector<VersionId> held_;
  absl::StatusOr<std::optional<FoundCheckpoint>> checkpoint_ = std::optional<FoundCheckpoint>();
  std::string restored_marks_;
  std::optional<std::string> mapped_marks_of_1_;  // if set, the marks that shard 1 holds
  absl::Status persist_status_;                   // of PersistEpoch
  absl::Status publish_status_;
  absl::Status take_over_status_;
  bool hold_publish_ = false;  // publishing a checkpoint does not complete
  absl::Status snapshot_status_;
  bool silent_ = false;          // shards do not answer
  bool swapped_ = false;         // shards 0 and 1 answer for each other
  std::string run_of_1_ = kRun;  // the run that the task of shard 1 says it serves
  uint32_t protocol_of_shards_ = kProtocolVersion;
  int failing_restores_ = 0;  // number of restores that end with restore_status_
  absl::Status restore_status_;
};

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_PS_SERVER_CORE_COORDINATOR_DRIVER_H_
