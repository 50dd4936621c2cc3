#include "ps_server/core/steps.h"

#include <map>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "tests/ps_server/core/coordinator_driver.h"
#include "tests/ps_server/core/part_driver.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

class StepsTest : public CoordinatorTest {
 protected:
  // Returns the counts that are not 0, keyed by the upper bound of their bucket.
  static std::map<double, uint64_t> Counts(const ps::Histogram& histogram) {
    EXPECT_EQ(histogram.counts_size(), histogram.upper_bounds_size() + 1);
    std::map<double, uint64_t> counts;
    for (int i = 0; i < histogram.upper_bounds_size(); ++i) {
      if (histogram.counts(i) > 0) counts[histogram.upper_bounds(i)] = histogram.counts(i);
    }
    return counts;
  }
};

// Tests Steps with only the membership of clones beside it.
class StepsPartTest : public PartTest {
 protected:
  void Begin() {
    members_.BeginEpoch();
    for (uint32_t worker = 0; worker < 2; ++worker) {
      ps::RegisterRequest request;
      request.set_worker_id(worker);
      members_.Register(request, [](uint32_t) { return false; });
    }
    steps_.BeginEpoch();
    steps_.Open();
  }
  Followup Commit(uint32_t replica, uint64_t samples = 10) {
    ps::CommitRequest request;
    request.mutable_key()->set_replica(replica);
    request.mutable_key()->set_worker_id(replica);
    request.mutable_key()->set_grant(members_.replica(replica).grant);
    request.mutable_key()->set_step(job_.version + 1);
    request.mutable_info()->set_samples(samples);
    return steps_.Commit(++call_, request);
  }
  template <typename Kind>
  static Kind As(const Followup& followup) {
    EXPECT_TRUE(std::holds_alternative<Kind>(followup)) << followup.index();
    return std::holds_alternative<Kind>(followup) ? std::get<Kind>(followup) : Kind();
  }

  CallId call_ = 0;
  Membership members_{options_, job_, &actions_};
  Steps steps_{options_, job_, &members_, &actions_};
};

TEST_F(StepsPartTest, TakesAStepFromOpenToApplied) {
  Begin();
  EXPECT_FALSE(steps_.HasContribution(0));
  Commit(0);
  EXPECT_TRUE(steps_.HasContribution(0));
  EXPECT_EQ(steps_.Missing(), std::vector<uint32_t>{1});
  As<followup::None>(steps_.DecideIfReady());
  Commit(1);
  const auto call = As<followup::CallShards>(steps_.DecideIfReady());
  EXPECT_EQ(std::get<shard_call::Apply>(call.call).request.contributions_size(), 2);
  EXPECT_FALSE(steps_.is_open());
  job_.version = As<followup::Applied>(steps_.OnReplies({ps::ApplyReply()})).step;
  EXPECT_EQ(job_.version, 1u);
  As<followup::None>(steps_.NoteApplied());
  EXPECT_EQ(Take<coordinator_action::StepApplied>().at(0).parts.size(), 2u);
  EXPECT_EQ(Take<coordinator_action::ReplyCommit>().size(), 2u);
}

TEST_F(StepsPartTest, TheThirdFailedApplyInARowStopsTraining) {
  Begin();
  const absl::Status failure = absl::InternalError("shard 1 of 2: no");
  EXPECT_EQ(As<followup::BeginEpoch>(steps_.OnCallFailed(failure)).why, "shard 1 of 2: no");
  As<followup::BeginEpoch>(steps_.OnCallFailed(failure));
  EXPECT_EQ(As<followup::Stop>(steps_.OnCallFailed(failure)).reason, failure);
}

TEST_F(StepsPartTest, NormRepliesOfDifferentLengthsStopTraining) {
  options_.measure_norms = true;
  Begin();
  Commit(0);
  Commit(1);
  As<followup::CallShards>(steps_.DecideIfReady());
  ps::NormReply one;
  one.add_variable_squared_norms(1);
  EXPECT_TRUE(
      absl::IsInternal(As<followup::Stop>(steps_.OnReplies({one, ps::NormReply()})).reason));
}

TEST_F(StepsPartTest, StoppingAtAVoidContributionLeavesItsCallToTheCoordinator) {
  Begin();
  const auto stop = As<followup::Stop>(Commit(0, 0));
  EXPECT_EQ(stop.call, call_);
  EXPECT_EQ(KindOf(stop.reason), ps::ErrorDetail::STOPPED);
  EXPECT_TRUE(Take<coordinator_action::ReplyCommit>().empty());
}

TEST_F(StepsPartTest, ADrainWaitsForAStepThatHasCommits) {
  Begin();
  EXPECT_TRUE(steps_.IsGivenUpBy(job_.now));
  Commit(0);
  EXPECT_FALSE(steps_.IsGivenUpBy(job_.now));
  EXPECT_TRUE(steps_.IsGivenUpBy(job_.now - options_.drain_patience));
}

// Tests Steps in a whole coordinator.

TEST_F(StepsTest, DecidesWhenEveryReplicaHasCommitted) {
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
  ASSERT_EQ(calls.size(), 4u);  // two shards: norms first, then the apply
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

TEST_F(StepsTest, DropPolicyContinuesWithoutLateClonesAndCountsThem) {
  options_.step_deadline = absl::Seconds(4);
  options_.min_contributors = 2;
  StartWithClones();
  EXPECT_TRUE(Commit(1, 0).ok());
  Pass(absl::Seconds(5));
  EXPECT_EQ(coordinator_->version(), 0u);  // one contributor is not enough
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

// The list of contributors is fixed once shards measure or apply, so later commits are too late.
TEST_F(StepsTest, ACommitDuringAnApplyIsTooLateForTheStep) {
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
    EXPECT_EQ(Commit(1, 0)->outcome(), ps::PushReply::DUPLICATE) << "replica 0 is on the list";
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

TEST_F(StepsTest, AStragglerDelaysOnlyOneStep) {
  options_.step_deadline = absl::Seconds(4);
  options_.min_contributors = 2;
  StartWithClones();
  for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(1, replica).ok());
  EXPECT_EQ(coordinator_->version(), 0u);
  Pass(absl::Seconds(4));
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_EQ(coordinator_->Status(now_).clones(2).drops(), 1u) << "must be counted at once";
  for (uint64_t step = 2; step <= 4; ++step) {
    for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(step, replica).ok());
    EXPECT_EQ(coordinator_->version(), step) << "the missing clone must not delay further steps";
  }
  EXPECT_EQ(coordinator_->Status(now_).clones(2).drops(), 4u);
  // The coordinator still waits for other clones.
  EXPECT_TRUE(Commit(5, 0).ok());
  EXPECT_EQ(coordinator_->version(), 4u);
  EXPECT_TRUE(Commit(5, 1).ok());
  // The late clone returns and takes part again.
  EXPECT_EQ(Commit(1, 2)->outcome(), ps::PushReply::ALREADY_APPLIED);
  for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(6, replica).ok());
  EXPECT_EQ(coordinator_->version(), 5u);
  EXPECT_TRUE(Commit(6, 2).ok());
  EXPECT_EQ(coordinator_->version(), 6u);
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(status.clones(2).drops(), 5u) << "a late contribution must not be counted twice";
  EXPECT_EQ(status.clones(2).contributions(), 1u);
  EXPECT_EQ(status.dropped_contributions(), 5u);
  EXPECT_EQ(Counts(status.contributors()), (std::map<double, uint64_t>{{2, 5}, {3, 1}}));
  EXPECT_EQ(status.contributors().sum(), 13);
}

TEST_F(StepsTest, WaitsForTheCloneThatReplacesALateOne) {
  options_.step_deadline = absl::Seconds(4);
  options_.min_contributors = 2;
  StartWithClones();
  for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(1, replica).ok());
  Pass(absl::Seconds(4));
  EXPECT_EQ(coordinator_->version(), 1u);
  for (const uint32_t worker : {0, 1}) EXPECT_TRUE(Heartbeat(worker).ok());
  Pass(absl::Seconds(6));  // the lease of clone 2 ends
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(1)->grants_size(), 3);
  for (const uint32_t replica : {0, 1}) EXPECT_TRUE(Commit(2, replica).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_TRUE(Commit(2, 2).ok());
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(StepsTest, ANonFiniteContributionStopsTrainingAndIsNamed) {
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

TEST_F(StepsTest, VoidContributionsAreLeftOutUntilTooManyStepsHaveThem) {
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

TEST_F(StepsTest, StatusCountsTheStalenessOfPushes) {
  options_.sync = false;
  StartWithClones();
  for (uint64_t sequence = 1; sequence <= 4; ++sequence) {
    ps::CommitRequest request = CommitRequest(sequence, 0);
    request.mutable_key()->set_position(sequence - 1);
    EXPECT_TRUE(Commit(request).at(0).reply.ok());
  }
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(Counts(status.staleness()),
            (std::map<double, uint64_t>{{0, 1}, {1, 1}, {2, 1}, {3, 1}}));
  EXPECT_EQ(status.staleness().sum(), 6);
}

TEST(CountHistogramTest, LargeValuesFallIntoTheLastBucket) {
  CountHistogram histogram;
  for (const uint64_t value : {0, 7, 8, 129, 100000}) histogram.Add(value);
  const ps::Histogram proto = histogram.ToProto();
  EXPECT_EQ(proto.counts(0), 1u);
  EXPECT_EQ(proto.upper_bounds(7), 8);
  EXPECT_EQ(proto.counts(7), 2u);
  EXPECT_EQ(proto.counts(proto.counts_size() - 1), 2u);
  EXPECT_EQ(proto.sum(), 100144);
}

}  // namespace
}  // namespace pushpull
