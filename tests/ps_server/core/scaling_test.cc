#include "ps_server/core/scaling.h"

#include <algorithm>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ps_server/core/protocol_error.h"
#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

// A coordinator with a batch of 30 samples, which its disk can keep waiting.
class ScalingTest : public CoordinatorTest {
 protected:
  // Returns the immediate answers.
  std::vector<coordinator_action::ReplyScale> Ask(uint32_t num_replicas) {
    ps::ScaleRequest request;
    request.set_num_replicas(num_replicas);
    Send(coordinator_event::Scale{++call_, request});
    return Take<coordinator_action::ReplyScale>();
  }
  std::vector<coordinator_action::ReplyScale> Persisted(uint32_t num_replicas,
                                                        absl::Status status = absl::OkStatus()) {
    Send(coordinator_event::ReplicasPersisted{num_replicas, std::move(status)});
    return Take<coordinator_action::ReplyScale>();
  }
  // Scales and returns the answer.
  ps::ScaleReply Scale(uint32_t num_replicas) {
    EXPECT_THAT(Ask(num_replicas), IsEmpty());
    const auto orders = Take<coordinator_action::PersistReplicas>();
    EXPECT_EQ(orders.size(), 1u);
    EXPECT_EQ(orders.at(0).num_replicas, num_replicas);
    const auto answers = Persisted(num_replicas);
    EXPECT_EQ(answers.size(), 1u);
    EXPECT_TRUE(answers.at(0).reply.ok()) << answers.at(0).reply.status();
    return *answers.at(0).reply;
  }
  absl::Status Refusal(uint32_t num_replicas) {
    const auto answers = Ask(num_replicas);
    EXPECT_EQ(answers.size(), 1u);
    EXPECT_THAT(Take<coordinator_action::PersistReplicas>(), IsEmpty());
    return answers.at(0).reply.status();
  }
  // Takes the newest grants of the clones.
  void Beat(const std::vector<uint32_t>& workers) {
    for (const uint32_t worker : workers) EXPECT_TRUE(Heartbeat(worker).ok());
  }
  // Returns the clone that holds the replica.
  uint32_t OwnerOf(uint32_t replica) {
    const ps::StatusReply status = coordinator_->Status(now_);
    for (const ps::CloneStatus& clone : status.clones()) {
      if (std::count(clone.replicas().begin(), clone.replicas().end(), replica) > 0) {
        return clone.worker_id();
      }
    }
    ADD_FAILURE() << "nobody holds replica " << replica;
    return 0;
  }
  void CommitAll(uint64_t step, uint32_t replicas) {
    for (uint32_t replica = 0; replica < replicas; ++replica) {
      ps::CommitRequest request = CommitRequest(step, replica, grants_[replica].samples());
      request.mutable_key()->set_worker_id(OwnerOf(replica));
      const auto reply = Commit(request);
      ASSERT_TRUE(reply.at(0).reply.ok()) << replica << ": " << reply.at(0).reply.status();
    }
  }
  // Checks that the newest grants divide the batch over this many replicas.
  void ExpectDivision(const std::vector<uint64_t>& samples) {
    uint64_t first = 0;
    for (uint32_t replica = 0; replica < samples.size(); ++replica) {
      EXPECT_EQ(grants_[replica].first_sample(), first) << replica;
      EXPECT_EQ(grants_[replica].samples(), samples[replica]) << replica;
      first += samples[replica];
    }
    EXPECT_EQ(first, 30u);
  }
};

TEST_F(ScalingTest, GrantsNameThePartOfTheBatch) {
  StartWithClones();
  ExpectDivision({10, 10, 10});
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(status.num_replicas(), 3u);
  EXPECT_EQ(status.clones(1).samples_per_step(), 10u);
}

TEST_F(ScalingTest, TheNumberIsOnDiskBeforeAStepHasIt) {
  StartWithClones();
  EXPECT_TRUE(Register(3).ok()) << "a spare, although it announces three clones";
  EXPECT_THAT(Ask(4), IsEmpty());
  EXPECT_EQ(Take<coordinator_action::PersistReplicas>().at(0).num_replicas, 4u);
  RunStep(1);
  EXPECT_EQ(coordinator_->num_replicas(), 3u) << "the disk has not answered yet";
  const auto answers = Persisted(4);
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(answers[0].reply->from_step(), 3u);
  EXPECT_EQ(answers[0].reply->previous_num_replicas(), 3u);
  EXPECT_EQ(answers[0].reply->live_clones(), 4u);
  EXPECT_EQ(coordinator_->num_replicas(), 3u) << "step 2 is open";
  RunStep(2);
  EXPECT_EQ(coordinator_->num_replicas(), 4u);
  Beat({0, 1, 2, 3});
  ExpectDivision({7, 7, 8, 8});
  CommitAll(3, 4);
  EXPECT_EQ(coordinator_->version(), 3u);
}

TEST_F(ScalingTest, AContributionOfTheOldDivisionDoesNotCount) {
  StartWithClones();
  Take<coordinator_action::Notice>();
  EXPECT_EQ(Scale(2).from_step(), 2u);
  EXPECT_EQ(
      Take<coordinator_action::Notice>().at(0).text,
      "an administrator has scaled the job from 3 to 2 replicas: the batch of step 2 is the first "
      "that is divided over the new number of replicas");
  const auto first = Commit(1, 0);
  EXPECT_EQ(first->new_grants_step(), 2u) << "the clone can ask for its new grants in time";
  EXPECT_TRUE(Commit(1, 1).ok());
  EXPECT_TRUE(Commit(1, 2).ok());
  ASSERT_EQ(coordinator_->num_replicas(), 2u);
  for (const uint32_t replica : {0, 1, 2}) {  // replica 2 is gone
    EXPECT_EQ(KindOf(Commit(2, replica).status()), ps::ErrorDetail::FENCED) << replica;
  }
  EXPECT_TRUE(absl::IsInvalidArgument(Commit(2, 3).status())) << "there never was a replica 3";
  Beat({0, 1, 2});
  ExpectDivision({15, 15});
  EXPECT_THAT(registered_.at(2).worker_id(), 2u);
  EXPECT_TRUE(Heartbeat(2)->grants().empty()) << "clone 2 is a spare now";
  EXPECT_EQ(Commit(2, 0)->new_grants_step(), 0u);
  CommitAll(2, 2);
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(ScalingTest, AClonesOldGrantStaysVoidWhenItsReplicaComesBack) {
  StartWithClones();
  const uint64_t old_grant = grants_[2].grant();
  Scale(2);
  RunStep(1);
  Beat({0, 1, 2});
  Scale(3);
  CommitAll(2, 2);
  ASSERT_EQ(coordinator_->num_replicas(), 3u);
  ps::CommitRequest late = CommitRequest(3, 2);
  late.mutable_key()->set_grant(old_grant);
  EXPECT_EQ(KindOf(Commit(late).at(0).reply.status()), ps::ErrorDetail::FENCED);
  Beat({0, 1, 2});
  ExpectDivision({10, 10, 10});
  CommitAll(3, 3);
  EXPECT_EQ(coordinator_->version(), 3u);
}

// A lost clone may come back with a grant of the old division.
TEST_F(ScalingTest, AReplicaWithoutALiveOwnerIsGrantedAnewToo) {
  StartWithClones();
  const ps::CommitRequest late = CommitRequest(2, 2);
  Scale(4);
  RunStep(1);
  EXPECT_EQ(KindOf(Commit(late).at(0).reply.status()), ps::ErrorDetail::FENCED);
}

TEST_F(ScalingTest, AStepThatWaitsForAbsentClonesIsDividedAnewAtOnce) {
  Start();
  EXPECT_TRUE(Register(0).ok());
  EXPECT_TRUE(Register(1).ok());
  EXPECT_TRUE(Commit(1, 0).ok());  // step 1 waits for clone 2, which was never seen
  EXPECT_EQ(Scale(2).from_step(), 1u);
  ASSERT_EQ(coordinator_->num_replicas(), 2u);
  Beat({0, 1});
  ExpectDivision({15, 15});
  EXPECT_TRUE(Commit(1, 1).ok());
  EXPECT_EQ(coordinator_->version(), 0u) << "the commit of a third of the batch does not count";
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
}

TEST_F(ScalingTest, ARepeatedCallDividesTheOpenStepIfItsClonesHaveGone) {
  StartWithClones();
  EXPECT_EQ(Scale(2).from_step(), 2u);
  Pass(2 * options_.lease);
  const ps::ScaleReply reply = Scale(2);
  EXPECT_EQ(reply.from_step(), 1u);
  EXPECT_EQ(reply.previous_num_replicas(), 3u);
  EXPECT_EQ(coordinator_->num_replicas(), 2u) << "the answer says that step 1 has the new number";
}

TEST_F(ScalingTest, ReplicasWithoutAHomeAreSharedOut) {
  StartWithClones();
  Pass(options_.lease / 2);
  Beat({0, 1, 2});
  EXPECT_EQ(Scale(5).live_clones(), 3u);
  RunStep(1);
  Pass(options_.lease / 2);
  Beat({0, 1, 2});
  ExpectDivision({6, 6, 6, 6, 6});
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(1)->grants_size() + Heartbeat(2)->grants_size(),
            5);
  // Their homes get them when they come, at the next step.
  EXPECT_TRUE(Register(4).ok());
  CommitAll(2, 4);
  EXPECT_TRUE(Commit(2, 4).ok());
  ASSERT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(Heartbeat(4)->grants(0).replica(), 4u);
}

TEST_F(ScalingTest, AClonesFlagsMayNameAnotherNumberOnceTheJobWasScaled) {
  StartWithClones();
  ps::RegisterRequest request = RegisterRequest(0, "");
  request.set_num_replicas(7);
  const absl::Status refused = Register(request).status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("psctl scale"));
  request = RegisterRequest(5, "");
  request.set_num_replicas(7);
  EXPECT_TRUE(Register(request).ok()) << "a spare brings what the job may be scaled to";
  Scale(4);
  request = RegisterRequest(0, "");
  request.set_num_replicas(7);
  EXPECT_TRUE(Register(request).ok());
  EXPECT_EQ(Register(request)->num_replicas(), 3u) << "step 1 is open";
}

TEST_F(ScalingTest, ARestartedServerGoesOnWithTheScaledNumber) {
  options_.num_replicas = 2;
  options_.scaled = true;
  StartWithClones();  // they announce three clones
  EXPECT_EQ(coordinator_->num_replicas(), 2u);
  ExpectDivision({15, 15});
  EXPECT_EQ(Register(0)->num_replicas(), 2u);
}

TEST_F(ScalingTest, ANewEpochTakesTheNumberThatIsDue) {
  StartWithClones();
  RunStep(1);
  Scale(2);
  boot_ids_[0] = 9;
  options_.tasks = 1;
  held_ = {{7, 1}};
  // A shard that has lost the epoch begins a new one.
  EXPECT_EQ(coordinator_->num_replicas(), 3u);
  Commit(2, 0).IgnoreError();
  silent_ = true;
  CommitAll(2, 3);
  const auto calls = Take<coordinator_action::CallShard>();
  silent_ = false;
  Send(coordinator_event::ShardReplied{
      calls.back().rpc,
      ProtocolError(ps::ErrorDetail::NOT_READY, 0, 0, "this shard has restarted")});
  ASSERT_EQ(coordinator_->epoch(), 8u);
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_EQ(coordinator_->num_replicas(), 2u);
}

TEST_F(ScalingTest, BadNumbersAreRefused) {
  StartWithClones();
  EXPECT_TRUE(absl::IsInvalidArgument(Refusal(0)));
  EXPECT_TRUE(absl::IsInvalidArgument(Refusal(kMaxReplicas + 1)));
  const absl::Status many = Refusal(31);
  EXPECT_TRUE(absl::IsFailedPrecondition(many));
  EXPECT_THAT(std::string(many.message()), HasSubstr("a batch of 30 samples"));
  EXPECT_THAT(Ask(4), IsEmpty());
  Take<coordinator_action::PersistReplicas>();
  EXPECT_TRUE(absl::IsAborted(Refusal(5))) << "4 is being written";
  EXPECT_TRUE(Persisted(4).at(0).reply.ok());
  // The number that is due already is neither written nor applied again.
  const auto again = Ask(4);
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].reply->from_step(), 2u);
}

TEST_F(ScalingTest, EverySampleMayHaveAReplica) {
  StartWithClones();
  EXPECT_EQ(Scale(30).from_step(), 2u);
  options_.limits.batch_size = kMaxReplicas;
  StartWithClones();
  EXPECT_EQ(Scale(kMaxReplicas).from_step(), 2u);
}

TEST_F(ScalingTest, ANumberIsWrittenUnlessItIsSurelyOnDisk) {
  StartWithClones();
  Scale(3);  // a flag has set it, so the disk has none
  EXPECT_EQ(Ask(3).size(), 1u);
  EXPECT_THAT(Ask(4), IsEmpty());
  Persisted(4, absl::ResourceExhaustedError("disk full"));
  Take<coordinator_action::PersistReplicas>();
  EXPECT_EQ(Scale(3).previous_num_replicas(), 3u) << "the disk may hold 4";
}

TEST_F(ScalingTest, ARestartedServerKnowsThatItsNumberIsOnDisk) {
  options_.scaled = true;
  StartWithClones();
  EXPECT_EQ(Ask(3).size(), 1u);
  EXPECT_THAT(Take<coordinator_action::PersistReplicas>(), IsEmpty());
}

TEST_F(ScalingTest, AnAnswerOfTheDiskAboutAnotherNumberIsIgnored) {
  StartWithClones();
  EXPECT_THAT(Ask(4), IsEmpty());
  EXPECT_THAT(Persisted(5), IsEmpty());
  EXPECT_EQ(Persisted(4).size(), 1u);
  RunStep(1);
  EXPECT_EQ(coordinator_->num_replicas(), 4u);
}

TEST_F(ScalingTest, InTheLastStepNoStepFollows) {
  options_.limits.num_steps = 2;
  StartWithClones();
  EXPECT_EQ(Scale(2).from_step(), 2u);
  RunStep(1);
  Beat({0, 1});
  const absl::Status refusal = Refusal(3);
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal));
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("step 2 is the last"));
}

TEST_F(ScalingTest, TheLastStepIsDividedAnewIfItWaitsForAbsentClones) {
  options_.limits.num_steps = 1;
  Start();
  EXPECT_TRUE(Register(0).ok());
  EXPECT_EQ(Scale(1).from_step(), 1u);
}

TEST_F(ScalingTest, AnErrorOfTheDiskIsAnswered) {
  StartWithClones();
  EXPECT_THAT(Ask(4), IsEmpty());
  Take<coordinator_action::PersistReplicas>();
  Take<coordinator_action::Notice>();
  const auto answers = Persisted(4, absl::ResourceExhaustedError("disk full"));
  EXPECT_THAT(Take<coordinator_action::Notice>(), IsEmpty()) << "the job is not scaled";
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_TRUE(absl::IsResourceExhausted(answers[0].reply.status()));
  EXPECT_THAT(std::string(answers[0].reply.status().message()),
              HasSubstr("goes on with 3, but the next one may go on with 4: ask again"));
  RunStep(1);
  EXPECT_EQ(coordinator_->num_replicas(), 3u);
  // The disk may hold 4 now, so the number that the job has is written before it is acknowledged.
  EXPECT_EQ(Scale(3).from_step(), 3u);
  EXPECT_EQ(Ask(3).size(), 1u) << "it is on disk now";
}

TEST_F(ScalingTest, ACallIsAnsweredWhenTheServerEnds) {
  StartWithClones();
  RunStep(1);
  EXPECT_THAT(Ask(4), IsEmpty());
  Send(coordinator_event::Drain{});
  const auto answers = Take<coordinator_action::ReplyScale>();
  ASSERT_EQ(answers.size(), 1u);
  EXPECT_EQ(KindOf(answers[0].reply.status()), ps::ErrorDetail::DRAINING);
  EXPECT_THAT(Persisted(4), IsEmpty());
}

TEST_F(ScalingTest, AnAsynchronousJobIsNotScaled) {
  options_.sync = false;
  StartWithClones();
  EXPECT_TRUE(absl::IsFailedPrecondition(Refusal(4)));
}

// Shares by speed.

class SharesBySpeedTest : public ScalingTest {
 protected:
  SharesBySpeedTest() { options_.shares_by_speed = true; }
  // Runs a step whose clones compute `speeds[replica]` samples per second.
  void RunAt(uint64_t step, const std::vector<double>& speeds) {
    for (uint32_t replica = 0; replica < speeds.size(); ++replica) {
      Beat({replica});
    }
    uint64_t sum = 0;
    for (uint32_t replica = 0; replica < speeds.size(); ++replica) {
      ps::CommitRequest request = CommitRequest(step, replica, grants_[replica].samples());
      sum += request.info().samples();
      request.mutable_info()->set_compute_seconds(grants_[replica].samples() / speeds[replica]);
      ASSERT_TRUE(Commit(request).at(0).reply.ok());
    }
    EXPECT_EQ(sum, 30u) << "the global batch stays the same";
    ASSERT_EQ(coordinator_->version(), step);
  }
};

TEST_F(SharesBySpeedTest, TheSlowCloneGetsTheSmallShare) {
  StartWithClones();
  for (uint64_t step = 1; step <= Scaling::kMeasuredSteps; ++step) {
    RunAt(step, {40, 10, 40});
    ExpectDivision({10, 10, 10});
  }
  // The change is planned when the step after the last measured one opens, and holds one later.
  EXPECT_EQ(Commit(CommitRequest(6, 0, 10)).at(0).reply->new_grants_step(), 7u);
  RunAt(6, {40, 10, 40});
  Beat({0, 1, 2});
  ExpectDivision({14, 3, 13});
  for (uint64_t step = 7; step <= 20; ++step) RunAt(step, {40, 10, 40});
  ExpectDivision({14, 3, 13});
}

TEST_F(SharesBySpeedTest, AChangeThatGainsLittleIsNotMade) {
  StartWithClones();
  RunAt(1, {40, 38.5, 40});
  const uint64_t grant = grants_[0].grant();
  for (uint64_t step = 2; step <= 30; ++step) RunAt(step, {40, 38.5, 40});
  ExpectDivision({10, 10, 10});
  EXPECT_EQ(grants_[0].grant(), grant) << "the batch was divided anew";
}

TEST_F(SharesBySpeedTest, AChangeIsToldWithItsStep) {
  StartWithClones();
  for (uint64_t step = 1; step <= Scaling::kMeasuredSteps; ++step) RunAt(step, {40, 10, 40});
  EXPECT_THAT(Take<coordinator_action::Notice>().back().text,
              HasSubstr("shares by speed from step 7 on: 14, 3, 13 samples; a step takes 0.350 s "
                        "instead of 1.000 s"));
}

TEST_F(SharesBySpeedTest, SharesFollowACloneWhoseSpeedChanges) {
  StartWithClones();
  for (uint64_t step = 1; step <= 8; ++step) RunAt(step, {40, 10, 40});
  Beat({0, 1, 2});
  ExpectDivision({14, 3, 13});
  const uint64_t grant = grants_[0].grant();
  for (uint64_t step = 9; step <= 11; ++step) RunAt(step, {10, 40, 40});
  EXPECT_EQ(grants_[0].grant(), grant) << "five steps are measured between two changes";
  for (uint64_t step = 12; step <= 40; ++step) RunAt(step, {10, 40, 40});
  Beat({0, 1, 2});
  EXPECT_LE(grants_[0].samples(), 4u);
  EXPECT_GE(grants_[1].samples(), 12u);
}

// Clone 0 keeps its speed, and those of the others are still measured.
TEST_F(SharesBySpeedTest, ACommitWithoutSamplesOrTimeSaysNothingOfTheSpeed) {
  options_.non_finite_policy = NonFinitePolicy::kSkip;
  for (const bool is_void : {true, false}) {
    StartWithClones();
    for (uint64_t step = 1; step <= 8; ++step) RunAt(step, {40, 10, 40});
    for (uint64_t step = 9; step <= 40; ++step) {
      Beat({0, 1, 2});
      for (const uint32_t replica : {0, 1, 2}) {
        const uint64_t samples = grants_[replica].samples();
        ps::CommitRequest request =
            CommitRequest(step, replica, replica == 0 && is_void ? 0 : samples);
        if (replica > 0) request.mutable_info()->set_compute_seconds(samples / 40.0);
        if (replica == 0 && is_void) request.mutable_info()->set_compute_seconds(1);
        ASSERT_TRUE(Commit(request).at(0).reply.ok());
      }
    }
    Beat({0, 1, 2});
    ExpectDivision({10, 10, 10});
  }
}

TEST_F(SharesBySpeedTest, SharesStayWhileASpeedIsUnknown) {
  StartWithClones();
  for (uint64_t step = 1; step <= 8; ++step) {
    Beat({0, 1, 2});
    for (const uint32_t replica : {0, 1, 2}) {
      ps::CommitRequest request = CommitRequest(step, replica, grants_[replica].samples());
      // The first clone in the list does not say how long it took.
      if (replica != 0) request.mutable_info()->set_compute_seconds(replica);
      ASSERT_TRUE(Commit(request).at(0).reply.ok());
    }
  }
  Beat({0, 1, 2});
  ExpectDivision({10, 10, 10});
}

TEST_F(SharesBySpeedTest, UnknownAndAbsurdSpeedsChangeNothing) {
  StartWithClones();
  for (uint64_t step = 1; step <= 10; ++step) {
    Beat({0, 1, 2});
    CommitAll(step, 3);  // without compute_seconds
  }
  ExpectDivision({10, 10, 10});
  for (uint64_t step = 11; step <= 30; ++step) {
    RunAt(step, {1e300, 1e-300, 1});
  }
  Beat({0, 1, 2});
  ExpectDivision({28, 1, 1});
}

TEST_F(SharesBySpeedTest, AScaledJobBeginsWithEqualShares) {
  StartWithClones();
  for (uint64_t step = 1; step <= 8; ++step) RunAt(step, {40, 10, 40});
  Beat({0, 1, 2});
  ExpectDivision({14, 3, 13});
  Scale(2);
  RunAt(9, {40, 10, 40});
  Beat({0, 1});
  ExpectDivision({15, 15});
  for (uint64_t step = 10; step <= 20; ++step) RunAt(step, {40, 10});
  Beat({0, 1});
  ExpectDivision({24, 6});
}

TEST_F(SharesBySpeedTest, AReplicaMayBeOneOfSeveralOfItsClone) {
  StartWithClones();
  Pass(options_.lease - absl::Seconds(1));
  Beat({0, 1});
  Pass(absl::Seconds(1));  // clone 2 is lost: clone 0 computes its replica too
  for (uint64_t step = 1; step <= 8; ++step) {
    Beat({0, 1});
    for (const uint32_t replica : {0, 1, 2}) {
      ps::CommitRequest request = CommitRequest(step, replica, grants_[replica].samples());
      request.mutable_key()->set_worker_id(replica % 2);
      request.mutable_info()->set_compute_seconds(grants_[replica].samples() / 20.0);
      ASSERT_TRUE(Commit(request).at(0).reply.ok());
    }
  }
  Beat({0, 1});
  ExpectDivision({8, 15, 7});
}

}  // namespace
}  // namespace pushpull
