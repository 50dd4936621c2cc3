#include "ps_server/core/coordinator.h"

#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

TEST_F(CoordinatorTest, BeginsANewEpochFromTheMappedState) {
  held_ = {{4, 7}, {4, 8}};
  checkpoint_ = VersionId{3, 5};
  Start();
  EXPECT_EQ(Take<coordinator_action::PersistEpoch>().at(0).epoch, 7u);
  const auto serving = Take<coordinator_action::Serving>();
  EXPECT_EQ(serving.at(0).epoch, 7u);
  EXPECT_EQ(serving.at(0).version, 8u);
  EXPECT_EQ(serving.at(0).source, ps::RestoreRequest::MAPPED);
  EXPECT_EQ(coordinator_->durable_step(), 5u);
}

TEST_F(CoordinatorTest, NeverStartsAfreshBesideABrokenCheckpoint) {
  checkpoint_ = absl::DataLossError("ckpt-00000005: a byte is wrong");
  Start();
  EXPECT_THAT(std::string(Take<coordinator_action::Stopped>().at(0).reason.message()),
              HasSubstr("ckpt-00000005"));
  EXPECT_TRUE(Take<coordinator_action::Serving>().empty());
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::STOPPED);
}

TEST_F(CoordinatorTest, DecidesWhenEveryReplicaHasCommitted) {
  options_.tasks = 2;
  options_.measure_norms = true;
  StartWithClones();
  EXPECT_EQ(Commit(1, 2)->outcome(), ps::PushReply::ACCEPTED);
  EXPECT_EQ(Commit(1, 0)->level(), ps::COMMITTED);
  EXPECT_EQ(Commit(1, 0)->outcome(), ps::PushReply::DUPLICATE);
  EXPECT_EQ(coordinator_->version(), 0u);
  Take<coordinator_action::CallShard>();
  EXPECT_TRUE(Commit(1, 1).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  const auto calls = Take<coordinator_action::CallShard>();
  ASSERT_EQ(calls.size(), 4u);  // norms, then apply, of two shards
  const auto& apply = std::get<shard_call::Apply>(calls[3].call).request;
  ASSERT_EQ(apply.contributions_size(), 3);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ(apply.contributions(i).replica(), i);
    EXPECT_EQ(apply.contributions(i).grant(), grants_[i].grant());
  }
  EXPECT_EQ(apply.variable_squared_norms(0), 3.0);
  EXPECT_EQ(Take<coordinator_action::StepApplied>().at(0).parts.size(), 3u);
  EXPECT_EQ(Commit(1, 1)->outcome(), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(KindOf(Commit(3, 1).status()), ps::ErrorDetail::STEP_TOO_NEW);
}

TEST_F(CoordinatorTest, RefusesWorkersThatDoNotFit) {
  Start();
  ps::RegisterRequest request = RegisterRequest(0, "");
  request.set_run_id("another");
  EXPECT_EQ(KindOf(Register(request).status()), ps::ErrorDetail::WRONG_RUN);
  request = RegisterRequest(0, "");
  request.set_num_replicas(4);
  EXPECT_TRUE(absl::IsFailedPrecondition(Register(request).status()));
  EXPECT_THAT(std::string(Register(request).status().message()), HasSubstr("announces 4 clones"));
  EXPECT_THAT(std::string(Register(request).status().message()), HasSubstr("this job has 3"));
  request = RegisterRequest(0, "");
  request.set_protocol_version(9);
  EXPECT_TRUE(absl::IsFailedPrecondition(Register(request).status()));
  request = RegisterRequest(0, "");
  request.set_layout_signature("other");
  *request.add_variables() = options_.variables[0];
  request.mutable_variables(0)->set_shape(0, 4);
  const absl::Status status = Register(request).status();
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::LAYOUT_MISMATCH);
  EXPECT_EQ(GetErrorDetail(status).variable(), "conv/weights");
  EXPECT_THAT(std::string(status.message()), HasSubstr("[3] at the server and [4] at the worker"));

  EXPECT_TRUE(Register(0, "one:1").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Register(0, "two:1").status()));
  EXPECT_THAT(std::string(Register(0, "two:1").status().message()), HasSubstr("one:1"));
  Pass(absl::Seconds(10));
  EXPECT_TRUE(Register(0, "two:1").ok());
}

TEST_F(CoordinatorTest, GrantsRiseOverEverything) {
  Start();
  const uint64_t first = Register(0)->grants(0).grant();
  EXPECT_EQ(first >> 32, 7u);
  const uint64_t second = Register(0)->grants(0).grant();
  EXPECT_GT(second, first);
  ps::CommitRequest old = CommitRequest(1, 0);
  old.mutable_key()->set_grant(first);
  EXPECT_EQ(KindOf(Commit(old).at(0).reply.status()), ps::ErrorDetail::FENCED);
}

TEST_F(CoordinatorTest, ACloneThatIsStartedAgainHasItsReplicaAtOnce) {
  StartWithClones();
  EXPECT_TRUE(Commit(1, 1).ok());
  ps::RegisterRequest again = registered_[0];
  again.set_peer_name("host:another process");
  again.set_process_number(again.process_number() + 1);
  Pass(absl::Milliseconds(300));
  const auto reply = Register(again);
  ASSERT_TRUE(reply.ok()) << reply.status();
  ASSERT_EQ(reply->grants_size(), 1);
  EXPECT_EQ(reply->grants(0).replica(), 0u);
  EXPECT_EQ(reply->grants(0).from_step(), 1u) << "it takes part in the step under way";
  // The others keep what they have, and the step goes on.
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_TRUE(Commit(1, 2).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  RunStep(2);
}

TEST_F(CoordinatorTest, AnEarlierProcessOfACloneDoesNotComeBack) {
  StartWithClones();
  const ps::RegisterRequest earlier = registered_[0];
  const ps::CommitRequest late = CommitRequest(1, 0);
  ps::RegisterRequest later = earlier;
  later.set_peer_name("host:later");
  later.set_process_number(earlier.process_number() + 1);
  ASSERT_TRUE(Register(later).ok());
  // What the earlier process still sends neither fences the later one nor tells of its grants.
  EXPECT_EQ(KindOf(Commit(late).at(0).reply.status()), ps::ErrorDetail::FENCED);
  EXPECT_EQ(KindOf(Heartbeat(earlier).status()), ps::ErrorDetail::EPOCH_CHANGED);
  const absl::Status refusal = Register(earlier).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refusal)) << refusal;
  EXPECT_EQ(KindOf(refusal), ps::ErrorDetail::UNKNOWN) << "it would register again for ever";
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("host:later"));
  // Nor after the lease has ended.
  Pass(absl::Seconds(11));
  EXPECT_TRUE(absl::IsPermissionDenied(Register(earlier).status()));
  EXPECT_TRUE(Heartbeat(later).ok());
}

TEST_F(CoordinatorTest, AClonesContributionStandsWhenItComesBack) {
  StartWithClones();
  EXPECT_TRUE(Commit(1, 0).ok());
  const ps::CommitRequest committed = CommitRequest(1, 0);
  EXPECT_EQ(Register(0)->grants(0).from_step(), 2u);
  EXPECT_EQ(KindOf(Commit(1, 0).status()), ps::ErrorDetail::FENCED);
  EXPECT_EQ(Commit(committed).at(0).reply->outcome(), ps::PushReply::DUPLICATE);
  EXPECT_TRUE(Commit(1, 1).ok());
  EXPECT_TRUE(Commit(1, 2).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  RunStep(2);
}

TEST_F(CoordinatorTest, ALostClonesReplicaGoesToAnotherAndComesHome) {
  StartWithClones();
  RunStep(1);
  const uint64_t old_grant = grants_[2].grant();
  for (int i = 0; i < 4; ++i) {
    Pass(absl::Seconds(3));
    EXPECT_TRUE(Heartbeat(0).ok());
    EXPECT_TRUE(Heartbeat(1).ok());
  }
  const auto reply = Heartbeat(0);
  ASSERT_EQ(reply->grants_size(), 2);
  EXPECT_EQ(reply->grants(1).replica(), 2u);
  EXPECT_GT(reply->grants(1).grant(), old_grant);
  // The clone wakes up: its old grant is fenced, and its replica is still somebody else's.
  ps::CommitRequest zombie = CommitRequest(2, 2);
  zombie.mutable_key()->set_grant(old_grant);
  EXPECT_EQ(KindOf(Commit(zombie).at(0).reply.status()), ps::ErrorDetail::FENCED);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 0);
  grants_[2] = Heartbeat(0)->grants(1);
  RunStep(2);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 1);  // at the step boundary
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1);
  RunStep(3);
}

TEST_F(CoordinatorTest, ASpareTakesOverBeforeABusyClone) {
  StartWithClones();
  EXPECT_EQ(Register(3)->grants_size(), 0);
  for (int i = 0; i < 4; ++i) {
    Pass(absl::Seconds(3));
    for (const uint32_t worker : {0, 1, 3}) EXPECT_TRUE(Heartbeat(worker).ok());
  }
  EXPECT_EQ(Heartbeat(3)->grants_size(), 1);
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1);
}

TEST_F(CoordinatorTest, SaysWhomItWaitsFor) {
  Start();
  EXPECT_TRUE(Register(0).ok());
  EXPECT_TRUE(Register(1).ok());
  now_ += absl::Seconds(35);
  EXPECT_EQ(coordinator_->WaitingFor(now_), "clone 0 of 3 (alive) and 2 more");
  now_ -= absl::Seconds(35);
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_TRUE(Commit(1, 1).ok());
  now_ += absl::Seconds(35);
  EXPECT_EQ(coordinator_->WaitingFor(now_), "clone 2 of 3 (never seen)");
  EXPECT_EQ(coordinator_->WaitingSeconds(now_), 35);
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(status.clones_size(), 3);
  EXPECT_LT(status.clones(2).seconds_since_seen(), 0);
  EXPECT_EQ(status.clones(1).seconds_since_seen(), 35);
  // It is waited for, however long.
  for (int i = 0; i < 20; ++i) {
    EXPECT_TRUE(Heartbeat(0).ok());
    EXPECT_TRUE(Heartbeat(1).ok());
    Pass(absl::Seconds(3));
  }
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1);
  EXPECT_THAT(Heartbeat(0)->waiting_for(), HasSubstr("never seen"));
}

TEST_F(CoordinatorTest, DropPolicyGoesOnWithoutTheLateAndCountsThem) {
  options_.step_deadline = absl::Seconds(4);
  options_.min_contributors = 2;
  StartWithClones();
  EXPECT_TRUE(Commit(1, 0).ok());
  Pass(absl::Seconds(5));
  EXPECT_EQ(coordinator_->version(), 0u);  // one is not enough
  EXPECT_TRUE(Commit(1, 2).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_EQ(Take<coordinator_action::StepApplied>().at(0).missing_replicas, 1u);
  EXPECT_EQ(Commit(1, 1)->outcome(), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(Commit(1, 1)->outcome(), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(Commit(1, 0)->outcome(), ps::PushReply::ALREADY_APPLIED);
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(status.dropped_contributions(), 1u);
  EXPECT_EQ(status.clones(1).drops(), 1u);
  EXPECT_EQ(status.clones(0).drops(), 0u);
  EXPECT_TRUE(Commit(2, 0).ok());
  EXPECT_TRUE(Commit(2, 1).ok());
  const absl::Duration wakeup = coordinator_->NextWakeup();
  EXPECT_LE(wakeup, now_ + absl::Seconds(4));
  Pass(absl::Seconds(4));
  EXPECT_EQ(coordinator_->version(), 2u);
}

// The list of contributors is frozen: what comes while shards measure or apply is late.
TEST_F(CoordinatorTest, ACommitDuringAnApplyIsLateAndNotCounted) {
  for (const bool clipped : {true, false}) {
    options_.measure_norms = clipped;
    options_.step_deadline = absl::Seconds(4);
    options_.min_contributors = 2;
    StartWithClones();
    silent_ = true;
    Take<coordinator_action::CallShard>();
    Take<coordinator_action::StepApplied>();
    EXPECT_TRUE(Commit(1, 0).ok());
    EXPECT_TRUE(Commit(1, 2).ok());
    Pass(absl::Seconds(5));
    auto calls = Take<coordinator_action::CallShard>();
    ASSERT_EQ(calls.size(), 1u);
    EXPECT_EQ(std::holds_alternative<shard_call::MeasureNorm>(calls[0].call), clipped);
    EXPECT_EQ(Commit(1, 1)->outcome(), ps::PushReply::ALREADY_APPLIED);
    EXPECT_EQ(Commit(1, 0)->outcome(), ps::PushReply::DUPLICATE) << "it is in the list";
    if (clipped) {
      Send(coordinator_event::ShardReplied{calls[0].rpc, ShardAnswer(calls[0])});
      calls = Take<coordinator_action::CallShard>();
      ASSERT_EQ(calls.size(), 1u);
      EXPECT_EQ(Commit(1, 1)->outcome(), ps::PushReply::ALREADY_APPLIED);
    }
    const auto& apply = std::get<shard_call::Apply>(calls[0].call).request;
    ASSERT_EQ(apply.contributions_size(), 2);
    EXPECT_EQ(apply.contributions(0).replica(), 0);
    EXPECT_EQ(apply.contributions(1).replica(), 2);
    EXPECT_EQ(coordinator_->version(), 0u);
    Send(coordinator_event::ShardReplied{calls[0].rpc, ShardAnswer(calls[0])});
    EXPECT_EQ(coordinator_->version(), 1u);
    const auto applied = Take<coordinator_action::StepApplied>();
    ASSERT_EQ(applied.size(), 1u);
    EXPECT_EQ(applied[0].parts.size(), 2u);
    EXPECT_EQ(applied[0].missing_replicas, 1u);
    const ps::StatusReply status = coordinator_->Status(now_);
    EXPECT_EQ(status.clones(1).contributions(), 0u);
    EXPECT_EQ(status.clones(1).drops(), 1u);
    EXPECT_EQ(status.dropped_contributions(), 1u);
    silent_ = false;
  }
}

TEST_F(CoordinatorTest, ANonFiniteContributionStopsTrainingByName) {
  StartWithClones();
  RunStep(1);
  ps::CommitRequest request = CommitRequest(2, 1, 0);
  request.mutable_info()->set_non_finite_variable("conv/weights");
  EXPECT_EQ(KindOf(Commit(request).at(0).reply.status()), ps::ErrorDetail::STOPPED);
  const std::string reason(Take<coordinator_action::Stopped>().at(0).reason.message());
  EXPECT_THAT(reason, HasSubstr("step 2"));
  EXPECT_THAT(reason, HasSubstr("clone 1 of 3"));
  EXPECT_THAT(reason, HasSubstr("conv/weights"));
  EXPECT_THAT(Heartbeat(0)->stopped(), HasSubstr("conv/weights"));
  EXPECT_EQ(KindOf(Commit(2, 0).status()), ps::ErrorDetail::STOPPED);
}

TEST_F(CoordinatorTest, VoidContributionsAreLeftOutUntilThereAreTooMany) {
  options_.non_finite_policy = NonFinitePolicy::kSkip;
  StartWithClones();
  Take<coordinator_action::CallShard>();
  EXPECT_EQ(Commit(1, 1, 0)->outcome(), ps::PushReply::VOID);
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_TRUE(Commit(1, 2).ok());
  const auto calls = Take<coordinator_action::CallShard>();
  EXPECT_EQ(std::get<shard_call::Apply>(calls.at(0).call).request.contributions_size(), 2);
  for (uint64_t step = 2; step <= 11; ++step) {
    EXPECT_TRUE(Take<coordinator_action::Stopped>().empty());
    EXPECT_EQ(coordinator_->version(), step - 1);
    for (uint32_t replica = 0; replica < 3; ++replica) EXPECT_TRUE(Commit(step, replica, 0).ok());
  }
  EXPECT_THAT(std::string(Take<coordinator_action::Stopped>().at(0).reason.message()),
              HasSubstr("10 steps in a row"));
  EXPECT_EQ(coordinator_->Status(now_).void_contributions(), 31u);
}

TEST_F(CoordinatorTest, ARestartedShardBeginsANewEpoch) {
  options_.tasks = 2;
  StartWithClones();
  RunStep(1);
  Take<coordinator_action::Serving>();
  EXPECT_TRUE(Commit(2, 0).ok());
  ps::CommitRequest old = CommitRequest(2, 1);
  boot_ids_[1] = 2;
  held_ = {{7, 1}};
  Pass(absl::Seconds(1));
  const auto serving = Take<coordinator_action::Serving>();
  ASSERT_EQ(serving.size(), 1u);
  EXPECT_EQ(serving[0].epoch, 8u);
  EXPECT_EQ(serving[0].version, 1u);
  const absl::Status status = Commit(old).at(0).reply.status();
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::EPOCH_CHANGED);
  EXPECT_EQ(GetErrorDetail(status).epoch(), 8u);
  EXPECT_EQ(KindOf(Heartbeat(0).status()), ps::ErrorDetail::EPOCH_CHANGED);
  for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Register(worker).ok());
  RunStep(2);
}

TEST_F(CoordinatorTest, RepeatsACallUntilTheShardAnswers) {
  StartWithClones();
  silent_ = true;
  for (uint32_t replica = 0; replica < 3; ++replica) EXPECT_TRUE(Commit(1, replica).ok());
  auto calls = Take<coordinator_action::CallShard>();
  const auto first = std::get<shard_call::Apply>(calls.back().call).request;
  Send(coordinator_event::ShardReplied{calls.back().rpc, absl::UnavailableError("gone")});
  EXPECT_TRUE(Take<coordinator_action::CallShard>().empty());
  now_ = coordinator_->NextWakeup();
  Send(coordinator_event::Tick{});
  calls = Take<coordinator_action::CallShard>();
  ASSERT_EQ(calls.size(), 1u);
  EXPECT_EQ(std::get<shard_call::Apply>(calls[0].call).request.SerializeAsString(),
            first.SerializeAsString());
  Pass(absl::Seconds(12));
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("shard 0 of 1"));
  Send(coordinator_event::ShardReplied{calls[0].rpc, ShardReply(ps::ApplyReply())});
  EXPECT_EQ(coordinator_->version(), 1u);
}

TEST_F(CoordinatorTest, SavesByStepsAndAtTheEnd) {
  options_.save_checkpoints_steps = 2;
  options_.num_steps = 5;
  StartWithClones();
  for (uint64_t step = 1; step <= 4; ++step) RunStep(step);
  EXPECT_EQ(coordinator_->durable_step(), 4u);
  EXPECT_FALSE(Heartbeat(0)->training_done());
  Take<coordinator_action::PublishCheckpoint>();
  RunStep(5);
  const auto published = Take<coordinator_action::PublishCheckpoint>();
  ASSERT_EQ(published.size(), 1u);
  EXPECT_EQ(published[0].step, 5u);
  EXPECT_TRUE(published[0].training_done);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  EXPECT_TRUE(Heartbeat(0)->training_done());
  EXPECT_TRUE(Register(1)->training_done());
  EXPECT_EQ(Commit(6, 1).status().code(), absl::StatusCode::kOutOfRange);
}

TEST_F(CoordinatorTest, AFailedCheckpointIsRepeatedAndTrainingGoesOn) {
  options_.save_checkpoints_every = absl::Seconds(60);
  StartWithClones();
  RunStep(1);
  publish_status_ = absl::ResourceExhaustedError("no space left in /train");
  for (int i = 0; i < 8; ++i) {
    Pass(absl::Seconds(9));
    for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Heartbeat(worker).ok());
  }
  EXPECT_EQ(coordinator_->Status(now_).checkpoint_failures(), 2u);
  EXPECT_EQ(Take<coordinator_action::AbandonCheckpoint>().size(), 2u);
  RunStep(2);
  publish_status_ = absl::OkStatus();
  Pass(absl::Seconds(8));
  EXPECT_EQ(coordinator_->durable_step(), 2u);
}

TEST_F(CoordinatorTest, TheLastCheckpointDoesNotWaitForThePauseAfterAFailure) {
  options_.num_steps = 2;
  options_.save_checkpoints_steps = 1;
  StartWithClones();
  publish_status_ = absl::ResourceExhaustedError("no space left in /train");
  RunStep(1);
  EXPECT_EQ(coordinator_->Status(now_).checkpoint_failures(), 1u);
  publish_status_ = absl::OkStatus();
  RunStep(2);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CoordinatorTest, EarlierFailuresDoNotCountAgainstTheLastCheckpoint) {
  options_.num_steps = 2;
  options_.save_checkpoints_steps = 1;
  StartWithClones();
  hold_publish_ = true;
  RunStep(1);
  RunStep(2);  // while step 1 is being saved
  publish_status_ = absl::ResourceExhaustedError("no space left in /train");
  hold_publish_ = false;
  Send(coordinator_event::CheckpointPublished{1, publish_status_});
  while (coordinator_->Status(now_).checkpoint_failures() < 3) Pass(absl::Seconds(1));
  EXPECT_TRUE(Take<coordinator_action::Stopped>().empty())
      << "only two of them were the last one's";
  publish_status_ = absl::OkStatus();
  for (int i = 0; i < 30; ++i) Pass(absl::Seconds(1));
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
}

TEST_F(CoordinatorTest, StopsWhenTheLastCheckpointCannotBeWritten) {
  options_.num_steps = 1;
  StartWithClones();
  snapshot_status_ = absl::ResourceExhaustedError("no space left");
  RunStep(1);
  EXPECT_TRUE(Take<coordinator_action::Stopped>().empty());
  for (int i = 0; i < 3; ++i) Pass(absl::Seconds(5));
  EXPECT_THAT(std::string(Take<coordinator_action::Stopped>().at(0).reason.message()),
              HasSubstr("no space left"));
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
}

TEST_F(CoordinatorTest, DrainsAfterTheOpenStep) {
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Commit(2, 0).ok());
  Send(coordinator_event::Drain{});
  EXPECT_EQ(KindOf(Register(1).status()), ps::ErrorDetail::DRAINING);
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
  EXPECT_TRUE(Commit(2, 1).ok());
  EXPECT_TRUE(Commit(2, 2).ok());
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_EQ(coordinator_->durable_step(), 2u);
  EXPECT_EQ(KindOf(Commit(3, 0).status()), ps::ErrorDetail::DRAINING);
}

TEST_F(CoordinatorTest, ADrainInTheLastStepEndsAsFinishedAndTellsLateClones) {
  options_.num_steps = 2;
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Commit(2, 0).ok());
  Send(coordinator_event::Drain{});
  EXPECT_TRUE(Commit(2, 1).ok());
  EXPECT_TRUE(Commit(2, 2).ok());
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  const auto reply = Register(1);  // a clone that was restarted meanwhile
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->training_done());
}

TEST_F(CoordinatorTest, DrainGivesUpAStepThatNobodyEnds) {
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Commit(2, 0).ok());
  Send(coordinator_event::Drain{});
  EXPECT_LE(coordinator_->NextWakeup(), now_ + absl::Seconds(5));
  Pass(absl::Seconds(5));
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_EQ(coordinator_->durable_step(), 1u);
}

TEST_F(CoordinatorTest, ADrainWithoutAShardEndsAtItsLimit) {
  StartWithClones();
  RunStep(1);
  silent_ = true;
  Send(coordinator_event::Drain{});
  Pass(options_.drain_limit - absl::Seconds(1));
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
  EXPECT_LE(coordinator_->NextWakeup(), now_ + absl::Seconds(1));
  Take<coordinator_action::Notice>();
  Pass(absl::Seconds(1));
  EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
  EXPECT_EQ(coordinator_->durable_step(), 0u);
  const auto notices = Take<coordinator_action::Notice>();
  ASSERT_EQ(notices.size(), 1u);
  EXPECT_THAT(notices[0].text, HasSubstr("without a checkpoint of step 1"));
  EXPECT_EQ(coordinator_->NextWakeup(), absl::InfiniteDuration());
  Pass(absl::Seconds(60));
  EXPECT_TRUE(Take<coordinator_action::Drained>().empty());
}

}  // namespace
}  // namespace pushpull
