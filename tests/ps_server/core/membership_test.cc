#include "ps_server/core/membership.h"

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/wire/protocol_version.h"
#include "tests/ps_server/core/coordinator_driver.h"
#include "tests/ps_server/core/part_driver.h"

namespace pushpull {
namespace {

using testing::AllOf;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

using MembershipTest = CoordinatorTest;

// Tests Membership without the other parts of the coordinator.
class MembershipPartTest : public PartTest {
 protected:
  static ps::RegisterRequest Request(uint32_t worker, uint64_t session = 1) {
    ps::RegisterRequest request;
    request.set_worker_id(worker);
    request.set_num_replicas(2);
    request.set_peer_name("host:" + std::to_string(worker));
    request.set_layout_signature("layout");
    request.set_protocol_version(kProtocolVersion);
    request.set_session(session);
    return request;
  }
  void Register(uint32_t worker) {
    ASSERT_TRUE(members_.CheckAnnouncement(Request(worker)).ok());
    members_.Register(Request(worker), Nobody);
  }
  void RegisterWithImages(uint32_t worker, uint64_t num_images) {
    ps::RegisterRequest request = Request(worker);
    request.set_num_images(num_images);
    ASSERT_EQ(members_.CheckAnnouncement(request), absl::OkStatus());
    members_.Register(request, Nobody);
  }
  // Registers a clone that computes with `isa`, whose bits are those of `rounding`.
  void RegisterWith(uint32_t worker, const std::string& isa, const std::string& rounding) {
    ps::RegisterRequest request = Request(worker);
    request.mutable_arithmetic()->set_device(isa.empty() ? "" : "the CPU (" + isa + ")");
    request.mutable_arithmetic()->set_rounding(rounding);
    ASSERT_TRUE(members_.CheckAnnouncement(request).ok());
    members_.Register(request, Nobody);
  }
  std::vector<std::string> Warnings() {
    std::vector<std::string> warnings;
    for (const auto& notice : Take<coordinator_action::Notice>()) {
      if (notice.warning) warnings.push_back(notice.text);
    }
    return warnings;
  }
  static bool Nobody(uint32_t) { return false; }
  static bool Everybody(uint32_t) { return true; }

  Membership members_{options_, job_, &actions_};
};

TEST_F(MembershipPartTest, AGrantBeginsAtTheFirstStepItsReplicaCanContributeTo) {
  job_.version = 4;
  members_.BeginEpoch();
  Register(1);
  ASSERT_EQ(members_.GrantsOf(1).size(), 1u);
  EXPECT_EQ(members_.GrantsOf(1)[0].from_step(), 5u);
  EXPECT_EQ(members_.GrantsOf(1)[0].grant() >> 32, 7u);
  EXPECT_EQ(Take<coordinator_action::Notice>().at(0).text, "clone 1 (host:1) is here");
  members_.Register(Request(1), Everybody);
  EXPECT_EQ(members_.GrantsOf(1)[0].from_step(), 6u);
}

TEST_F(MembershipPartTest, ALostClonesReplicaMovesToALiveClone) {
  members_.BeginEpoch();
  Register(0);
  job_.now += options_.lease / 2;
  Register(1);
  EXPECT_EQ(members_.NextWakeup(), job_.now + options_.lease / 2);
  job_.now += options_.lease / 2;
  Take<coordinator_action::Notice>();
  EXPECT_THAT(members_.ExpireLeases(), ElementsAre(0));
  members_.Reassign(3, Everybody);
  EXPECT_EQ(members_.WorkerOf(0), 0u) << "replica 0 has already contributed to the step";
  members_.Reassign(3, Nobody);
  EXPECT_EQ(members_.WorkerOf(0), 1u);
  EXPECT_THAT(Take<coordinator_action::Notice>().at(0).text,
              HasSubstr("replica 0 goes to clone 1"));
  EXPECT_EQ(members_.DescribeLate({0}), "clone 1 of 2 (alive, for replica 0)");
}

TEST_F(MembershipPartTest, OnlyTheRegisteredProcessRenewsItsLease) {
  members_.BeginEpoch();
  ps::HeartbeatRequest heartbeat;
  heartbeat.set_worker_id(1);
  heartbeat.set_session(1);
  EXPECT_EQ(KindOf(members_.Heartbeat(heartbeat)), ps::ErrorDetail::EPOCH_CHANGED);
  Register(1);
  EXPECT_TRUE(members_.Heartbeat(heartbeat).ok());
  heartbeat.set_session(2);
  EXPECT_EQ(KindOf(members_.Heartbeat(heartbeat)), ps::ErrorDetail::EPOCH_CHANGED);
  EXPECT_TRUE(absl::IsAlreadyExists(members_.CheckAnnouncement(Request(1, 2))));
}

// No epochs are counted here, but clones with other data would train one model from other samples.
TEST_F(MembershipPartTest, RefusesAnotherNumberOfImagesThanThatOfALiveClone) {
  members_.BeginEpoch();
  RegisterWithImages(0, 1000);
  const auto check = [&](uint32_t worker, uint64_t num_images) {
    ps::RegisterRequest request = Request(worker);
    request.set_num_images(num_images);
    return members_.CheckAnnouncement(request);
  };
  const absl::Status refusal = check(1, 1200);
  EXPECT_TRUE(absl::IsAlreadyExists(refusal)) << "the other may be about to end: " << refusal;
  EXPECT_THAT(std::string(refusal.message()),
              HasSubstr("clone 1 (host:1) has 1200 training images, but clone 0 of 2 (host:0), "
                        "which is alive, has 1000"));
  EXPECT_TRUE(check(1, 1000).ok());
  EXPECT_TRUE(check(1, 0).ok()) << "a clone that says no number";
  EXPECT_TRUE(check(0, 1200).ok()) << "nobody else is there";
  RegisterWithImages(1, 1000);
  EXPECT_TRUE(absl::IsAlreadyExists(check(0, 1200))) << "a restarted clone with other data";
}

TEST_F(MembershipPartTest, OtherDataMayBeginWhenNobodyTrainsAnyMore) {
  members_.BeginEpoch();
  RegisterWithImages(0, 1000);
  job_.now += options_.lease;
  EXPECT_THAT(members_.ExpireLeases(), ElementsAre(0));
  RegisterWithImages(1, 1200);
  ps::HeartbeatRequest heartbeat;
  heartbeat.set_worker_id(0);
  heartbeat.set_session(1);
  EXPECT_EQ(KindOf(members_.Heartbeat(heartbeat)), ps::ErrorDetail::EPOCH_CHANGED)
      << "the clone with the old data is back: it must register, and is refused";
  EXPECT_EQ(KindOf(members_.Renew(0)), ps::ErrorDetail::EPOCH_CHANGED) << "when it commits, too";
  RegisterWithImages(0, 1200);
  EXPECT_TRUE(members_.Heartbeat(heartbeat).ok());

  members_.BeginEpoch();
  RegisterWithImages(0, 1300);
}

TEST_F(MembershipPartTest, AnEvictionHappensOnceAndOutlastsTheEpoch) {
  members_.BeginEpoch();
  Register(1);
  ps::EvictRequest request;
  request.set_worker_id(1);
  request.set_reason("too\nslow");
  EXPECT_THAT(members_.Evict(request).replicas(), ElementsAre(1));
  EXPECT_TRUE(members_.Evict(request).replicas().empty());
  EXPECT_THAT(std::string(members_.CheckNotEvicted(1).message()), HasSubstr("too slow"));
  EXPECT_TRUE(members_.CheckNotEvicted(0).ok());
  members_.BeginEpoch();
  EXPECT_FALSE(members_.CheckNotEvicted(1).ok());
}

TEST_F(MembershipPartTest, WarnsOnceOfClonesThatRoundInOtherWays) {
  members_.BeginEpoch();
  RegisterWith(0, "avx2", "fma");
  RegisterWith(1, "avx512", "fma");
  EXPECT_THAT(Warnings(), IsEmpty()) << "these instruction sets give the same bits";
  RegisterWith(1, "", "");
  EXPECT_THAT(Warnings(), IsEmpty()) << "nothing is known of this clone";
  RegisterWith(1, "sse4", "sse4");
  EXPECT_THAT(Warnings(), ElementsAre("clone 1 of 2 (host:1) computes on the CPU (sse4), but clone "
                                      "0 of 2 (host:0) on the CPU (avx2). The last bits of their "
                                      "gradients may differ, so the result depends on which "
                                      "clone computes which part"));
  RegisterWith(1, "sse4", "sse4");
  EXPECT_THAT(Warnings(), IsEmpty()) << "once is enough";
}

TEST_F(MembershipPartTest, DoesNotCompareWithClonesThatAreLost) {
  members_.BeginEpoch();
  RegisterWith(0, "avx2", "fma");
  job_.now += options_.lease;
  members_.ExpireLeases();
  RegisterWith(1, "sse4", "sse4");
  EXPECT_THAT(Warnings(), IsEmpty());
}

TEST_F(MembershipPartTest, ListsTheDevicesOfClonesThatHaveContributed) {
  members_.BeginEpoch();
  RegisterWith(0, "sse4", "sse4");
  RegisterWith(1, "avx2", "fma");
  EXPECT_THAT(members_.Devices(), IsEmpty());
  members_.CountContribution(1);
  EXPECT_THAT(members_.Devices(), ElementsAre("the CPU (avx2)"));
  members_.CountContribution(0);
  EXPECT_THAT(members_.Devices(), ElementsAre("the CPU (avx2)", "the CPU (sse4)"));
  RegisterWith(0, "avx2", "fma");
  EXPECT_THAT(members_.Devices(), ElementsAre("the CPU (avx2)"));
  ps::StatusReply status;
  members_.AddTo(&status, {}, job_.now);
  EXPECT_EQ(status.clones(1).arithmetic().device(), "the CPU (avx2)");
}

TEST_F(MembershipPartTest, ASpareThatHasGoneIsNotListed) {
  members_.BeginEpoch();
  for (const uint32_t worker : {0u, 1u, 2u, 3u}) Register(worker);
  ps::EvictRequest evict;
  evict.set_worker_id(3);
  members_.Evict(evict);
  job_.now += options_.lease;
  members_.ExpireLeases();
  const auto listed = [this] {
    ps::StatusReply status;
    members_.AddTo(&status, {}, job_.now);
    std::vector<uint32_t> ids;
    for (const ps::CloneStatus& clone : status.clones()) ids.push_back(clone.worker_id());
    return ids;
  };
  EXPECT_THAT(listed(), ElementsAre(0, 1, 2, 3)) << "it may be restarted";
  job_.now += 2 * options_.lease;
  EXPECT_THAT(listed(), ElementsAre(0, 1, 3)) << "two of the clones have home replicas";
  Register(2);
  EXPECT_THAT(listed(), ElementsAre(0, 1, 2, 3));
}

class AsyncMembershipTest : public MembershipPartTest {
 protected:
  AsyncMembershipTest() { options_.sync = false; }
};

TEST_F(AsyncMembershipTest, DoesNotWarnOfRounding) {
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  for (const uint32_t worker : {0u, 1u}) {
    ps::RegisterRequest request = Request(worker);
    request.mutable_arithmetic()->set_rounding(std::to_string(worker));
    ASSERT_TRUE(members.CheckAnnouncement(request).ok());
    members.Register(request, Nobody);
  }
  EXPECT_THAT(Warnings(), IsEmpty()) << "asynchronous runs cannot be repeated bit by bit anyway";
}

TEST_F(AsyncMembershipTest, ACloneThatIsRefusedDoesNotSetTheNumberOfReplicas) {
  options_.num_replicas = 0;
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  ps::RegisterRequest mistyped = Request(3);
  mistyped.set_num_replicas(1);
  const absl::Status refusal = members.CheckAnnouncement(mistyped);
  EXPECT_TRUE(absl::IsFailedPrecondition(refusal)) << refusal;
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("worker ids of this job are 0 to 0"));
  EXPECT_EQ(members.num_replicas(), 0u);
  EXPECT_TRUE(members.CheckAnnouncement(Request(1)).ok());
  EXPECT_EQ(members.num_replicas(), 2u);
}

// Tests Membership in a whole coordinator.

TEST_F(MembershipTest, RefusesIncompatibleWorkers) {
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
  request.set_protocol_version(kProtocolVersion - 1);
  EXPECT_EQ(Register(request).status(),
            CheckProtocolVersion(absl::StrCat("clone 0 (", request.peer_name(), ")"),
                                 kProtocolVersion - 1, "the server"));
  request = RegisterRequest(0, "");
  request.set_layout_signature("other");
  *request.add_variables() = options_.variables[0];
  request.mutable_variables(0)->set_shape(0, 4);
  const absl::Status status = Register(request).status();
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::LAYOUT_MISMATCH);
  EXPECT_EQ(GetErrorDetail(status).variable(), "conv/weights");
  EXPECT_THAT(std::string(status.message()), HasSubstr("[3] at the server and [4] at the clone"));

  EXPECT_TRUE(Register(0, "one:1").ok());
  EXPECT_TRUE(absl::IsAlreadyExists(Register(0, "two:1").status()));
  EXPECT_THAT(std::string(Register(0, "two:1").status().message()), HasSubstr("one:1"));
  Pass(absl::Seconds(10));
  EXPECT_TRUE(Register(0, "two:1").ok());
}

TEST_F(MembershipTest, ClonesOfAnExternalModelDeclareTheSameAttributes) {
  options_.declared = options_.variables;
  options_.declared[0].set_l2_weight(0.5f);
  options_.variables[0].set_l2_weight(0.0f);  // add_regularization_loss: false
  Start();
  ps::RegisterRequest request = RegisterRequest(0, "");
  *request.add_variables() = options_.declared[0];
  request.mutable_variables(0)->set_frozen(true);
  const absl::Status status = Register(request).status();
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::LAYOUT_MISMATCH);
  EXPECT_EQ(GetErrorDetail(status).variable(), "conv/weights");
  EXPECT_THAT(std::string(status.message()),
              AllOf(HasSubstr("conv/weights has frozen false at the server and true at the clone"),
                    HasSubstr("train_config.freeze_variables")));
  request.mutable_variables(0)->set_frozen(false);
  EXPECT_TRUE(Register(request).ok());
}

TEST_F(MembershipTest, EveryGrantIsGreaterThanAllBeforeIt) {
  Start();
  const uint64_t first = Register(0)->grants(0).grant();
  EXPECT_EQ(first >> 32, 7u);
  const uint64_t second = Register(0)->grants(0).grant();
  EXPECT_GT(second, first);
  ps::CommitRequest old = CommitRequest(1, 0);
  old.mutable_key()->set_grant(first);
  EXPECT_EQ(KindOf(Commit(old).at(0).reply.status()), ps::ErrorDetail::FENCED);
}

TEST_F(MembershipTest, ARestartedCloneGetsItsReplicaAtOnce) {
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
  EXPECT_EQ(reply->grants(0).from_step(), 1u) << "the clone must take part in the current step";
  // The other clones keep their replicas, and the step can complete.
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_TRUE(Commit(1, 2).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  RunStep(2);
}

TEST_F(MembershipTest, AReplacedProcessOfACloneIsRefused) {
  StartWithClones();
  const ps::RegisterRequest earlier = registered_[0];
  const ps::CommitRequest late = CommitRequest(1, 0);
  ps::RegisterRequest later = earlier;
  later.set_peer_name("host:later");
  later.set_process_number(earlier.process_number() + 1);
  ASSERT_TRUE(Register(later).ok());
  // A message of the earlier process neither fences the later process nor reveals its grants.
  EXPECT_EQ(KindOf(Commit(late).at(0).reply.status()), ps::ErrorDetail::FENCED);
  EXPECT_EQ(KindOf(Heartbeat(earlier).status()), ps::ErrorDetail::EPOCH_CHANGED);
  const absl::Status refusal = Register(earlier).status();
  EXPECT_TRUE(absl::IsPermissionDenied(refusal)) << refusal;
  EXPECT_EQ(KindOf(refusal), ps::ErrorDetail::UNKNOWN) << "it must not be told to retry";
  EXPECT_THAT(std::string(refusal.message()), HasSubstr("host:later"));
  // The earlier process is still refused after a lease has passed.
  Pass(absl::Seconds(11));
  EXPECT_TRUE(absl::IsPermissionDenied(Register(earlier).status()));
  EXPECT_TRUE(Heartbeat(later).ok());
}

TEST_F(MembershipTest, AContributionStillCountsAfterItsCloneRegistersAgain) {
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

TEST_F(MembershipTest, ALostCloneGetsItsReplicaBackWhenItReturns) {
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
  // When the clone wakes up, its old grant is fenced and another clone holds its replica.
  ps::CommitRequest zombie = CommitRequest(2, 2);
  zombie.mutable_key()->set_grant(old_grant);
  EXPECT_EQ(KindOf(Commit(zombie).at(0).reply.status()), ps::ErrorDetail::FENCED);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 0);
  grants_[2] = Heartbeat(0)->grants(1);
  RunStep(2);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 1);  // returned at the step boundary
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1);
  RunStep(3);
}

TEST_F(MembershipTest, ASpareIsPreferredToABusyClone) {
  StartWithClones();
  EXPECT_EQ(Register(3)->grants_size(), 0);
  for (int i = 0; i < 4; ++i) {
    Pass(absl::Seconds(3));
    for (const uint32_t worker : {0, 1, 3}) EXPECT_TRUE(Heartbeat(worker).ok());
  }
  EXPECT_EQ(Heartbeat(3)->grants_size(), 1);
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1);
}

TEST_F(MembershipTest, LimitsTheNumberOfSpares) {
  StartWithClones();
  for (uint32_t i = 0; i < ReplicaTable::kMaxSpares; ++i) EXPECT_TRUE(Register(1000 + i * 7).ok());
  EXPECT_EQ(Register(999999).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_TRUE(Register(1000).ok()) << "a known spare may register again";
  EXPECT_TRUE(Register(2).ok()) << "a clone with a replica is not a spare";
  EXPECT_EQ(coordinator_->Status(now_).clones_size(),
            3 + static_cast<int>(ReplicaTable::kMaxSpares));
}

TEST_F(MembershipTest, ALostSpareMakesRoomForAnother) {
  StartWithClones();
  for (uint32_t i = 0; i < ReplicaTable::kMaxSpares; ++i) EXPECT_TRUE(Register(1000 + i).ok());
  for (int i = 0; i < 3; ++i) {
    Pass(options_.lease / 2);
    for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Heartbeat(worker).ok());
  }
  for (uint32_t i = 0; i < 2 * ReplicaTable::kMaxSpares; ++i) {
    EXPECT_EQ(Register(5000 + i).ok(), i < ReplicaTable::kMaxSpares) << i;
  }
  EXPECT_EQ(coordinator_->Status(now_).clones_size(),
            3 + static_cast<int>(ReplicaTable::kMaxSpares));
  RunStep(1);
}

TEST_F(MembershipTest, NoticesAboutSparesAreMarked) {
  StartWithClones();
  Take<coordinator_action::Notice>();
  EXPECT_TRUE(Register(1000).ok());
  const auto notices = Take<coordinator_action::Notice>();
  ASSERT_EQ(notices.size(), 1);
  EXPECT_TRUE(notices[0].about_spare);
}

// While a clone's lease lasts, only a process that knows its session can act as that clone.
TEST_F(MembershipTest, AnotherSessionCannotImpersonateAClone) {
  Start();
  ps::RegisterRequest request = RegisterRequest(1, "host:1");
  request.set_session(42);
  EXPECT_TRUE(Register(request).ok());
  request.set_session(43);
  EXPECT_EQ(Register(request).status().code(), absl::StatusCode::kAlreadyExists);
  EXPECT_EQ(KindOf(Heartbeat(request).status()), ps::ErrorDetail::EPOCH_CHANGED);
  Pass(options_.lease);
  EXPECT_TRUE(Register(request).ok()) << "the lease of the first session has expired";
}

TEST_F(MembershipTest, AnEvictedClonesReplicaMovesToAnotherCloneInTheOpenStep) {
  StartWithClones();
  RunStep(1);
  const ps::CommitRequest late = CommitRequest(2, 1);
  const auto reply = Evict(1, "its disk\nis broken");
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_THAT(reply->replicas(), ElementsAre(1));
  const absl::Status refused = Commit(late).at(0).reply.status();
  EXPECT_TRUE(absl::IsPermissionDenied(refused));
  EXPECT_EQ(KindOf(refused), ps::ErrorDetail::EVICTED);
  EXPECT_THAT(std::string(refused.message()), HasSubstr("clone 1 of 3"));
  EXPECT_THAT(std::string(refused.message()), HasSubstr("its disk is broken"));
  EXPECT_EQ(KindOf(Heartbeat(1).status()), ps::ErrorDetail::EVICTED);
  EXPECT_EQ(KindOf(Register(1).status()), ps::ErrorDetail::EVICTED);
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(2)->grants_size(), 3);
  for (uint32_t replica = 0; replica < 3; ++replica) {
    ps::CommitRequest commit = CommitRequest(2, replica);
    commit.mutable_key()->set_worker_id(0);
    EXPECT_TRUE(Commit(commit).at(0).reply.ok());
  }
  EXPECT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(2)->grants_size(), 3) << "after the step";
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_TRUE(status.clones(1).evicted());
  EXPECT_FALSE(status.clones(1).alive());
  EXPECT_FALSE(status.clones(0).evicted());
}

TEST_F(MembershipTest, ACommitOfAnEvictedCloneStillCounts) {
  StartWithClones();
  EXPECT_TRUE(Commit(1, 1).ok());
  EXPECT_TRUE(Evict(1).ok());
  EXPECT_EQ(Heartbeat(0)->grants_size(), 1) << "replica 1 has already committed this step";
  EXPECT_TRUE(Commit(1, 0).ok());
  EXPECT_TRUE(Commit(1, 2).ok());
  EXPECT_EQ(coordinator_->version(), 1u);
  EXPECT_EQ(Take<coordinator_action::StepApplied>().at(0).parts.size(), 3u);
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(2)->grants_size(), 3);
}

TEST_F(MembershipTest, ACloneThatNeverRegisteredCanBeEvicted) {
  Start();
  EXPECT_TRUE(Register(0).ok());
  EXPECT_TRUE(Register(1).ok());
  EXPECT_TRUE(Evict(2)->replicas().empty());
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(1)->grants_size(), 3);
  EXPECT_LT(coordinator_->Status(now_).clones(2).seconds_since_seen(), 0);
}

TEST_F(MembershipTest, AnEvictedCloneStaysEvictedInTheNextEpoch) {
  options_.tasks = 2;
  StartWithClones();
  RunStep(1);
  EXPECT_TRUE(Evict(2, "too slow").ok());
  EXPECT_TRUE(Evict(2, "another reason")->replicas().empty());
  boot_ids_[1] = 2;
  held_ = {{7, 1}};
  Pass(absl::Seconds(1));
  EXPECT_EQ(coordinator_->epoch(), 8u);
  EXPECT_THAT(std::string(Register(2).status().message()), HasSubstr("too slow"));
  EXPECT_TRUE(Register(0).ok());
  EXPECT_TRUE(Register(1).ok());
  EXPECT_EQ(Heartbeat(0)->grants_size() + Heartbeat(1)->grants_size(), 3);
  for (uint32_t replica = 0; replica < 3; ++replica) {
    ps::CommitRequest commit = CommitRequest(2, replica);
    commit.mutable_key()->set_worker_id(0);
    EXPECT_TRUE(Commit(commit).at(0).reply.ok());
  }
  EXPECT_EQ(coordinator_->version(), 2u);
}

TEST_F(MembershipTest, EvictRefusesInvalidRequests) {
  coordinator_ = std::make_unique<Coordinator>(options_);
  EXPECT_EQ(KindOf(Evict(0).status()), ps::ErrorDetail::NOT_READY);
  StartWithClones();
  EXPECT_TRUE(absl::IsNotFound(Evict(7).status()));
  EXPECT_THAT(std::string(Evict(7).status().message()), HasSubstr("0 to 2"));
  EXPECT_TRUE(absl::IsInvalidArgument(Evict(0, std::string(501, 'x')).status()));
  EXPECT_TRUE(Heartbeat(0).ok());
}

TEST_F(MembershipTest, ReportsThatNoCloneIsLeft) {
  StartWithClones();
  for (uint32_t worker = 0; worker < 3; ++worker) EXPECT_TRUE(Evict(worker).ok());
  EXPECT_THAT(Take<coordinator_action::Notice>().back().text, HasSubstr("no clone is left"));
  Pass(absl::Seconds(3));
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("(evicted, and no other is there"));
}

TEST_F(MembershipTest, TheStatusOfALostCloneSaysNothingOfWhatItDoesNow) {
  StartWithClones();
  ps::HeartbeatRequest request;
  request.set_run_id(kRun);
  request.set_epoch(coordinator_->epoch());
  request.set_session(registered_[0].session());
  request.mutable_progress()->set_phase("compute");
  request.mutable_progress()->set_images_per_second(60);
  request.mutable_progress()->set_images(600);
  request.mutable_progress()->mutable_gpu()->set_utilization(80);
  Send(coordinator_event::Heartbeat{++call_, request});
  EXPECT_EQ(coordinator_->Status(now_).clones(0).progress().phase(), "compute");
  EXPECT_EQ(coordinator_->Status(now_).clones(0).progress().images_per_second(), 60);
  Pass(options_.lease + absl::Seconds(1));
  const ps::CloneStatus lost = coordinator_->Status(now_).clones(0);
  EXPECT_FALSE(lost.alive());
  EXPECT_EQ(lost.progress().phase(), "");
  EXPECT_EQ(lost.progress().images_per_second(), 0);
  EXPECT_TRUE(lost.progress().has_gpu() && lost.progress().gpu().utilization() == 0);
  EXPECT_EQ(lost.progress().images(), 600) << "a counter stays";
}

TEST_F(MembershipTest, AnEvictedAsynchronousClonesReplicaMovesToAnotherClone) {
  options_.sync = false;
  StartWithClones();
  silent_ = true;
  EXPECT_TRUE(Commit(CommitRequest(1, 0)).empty());
  EXPECT_TRUE(Commit(CommitRequest(1, 1)).empty());
  EXPECT_TRUE(Commit(CommitRequest(1, 2)).empty());
  // The push that is being applied completes. A queued push of an evicted clone is refused.
  EXPECT_TRUE(Evict(0).ok());
  EXPECT_TRUE(Evict(1).ok());
  EXPECT_EQ(KindOf(Take<coordinator_action::ReplyCommit>().at(0).reply.status()),
            ps::ErrorDetail::EVICTED);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 1) << "the push of replica 0 is still being applied";
  AnswerApply();
  AnswerApply();
  EXPECT_EQ(coordinator_->version(), 2u);
  EXPECT_EQ(Take<coordinator_action::ReplyCommit>().size(), 2u);
  EXPECT_EQ(Heartbeat(2)->grants_size(), 3);
  silent_ = false;
  ps::CommitRequest for_another = CommitRequest(1, 0);
  for_another.mutable_key()->set_worker_id(2);
  for_another.mutable_key()->set_base_version(2);
  EXPECT_EQ(Commit(for_another).at(0).reply->level(), ps::APPLIED);
  // When the clone that holds all replicas registers again, it gets new grants for them.
  const uint64_t old_grant = grants_[0].grant();
  EXPECT_EQ(Register(2)->grants_size(), 3);
  EXPECT_GT(grants_[0].grant(), old_grant);
}

}  // namespace
}  // namespace pushpull
