// Tests which clones may register, and what logs, errors and the status say of them.
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/time/time.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/wire/protocol_version.h"
#include "ps_server/core/membership.h"
#include "tests/ps_server/core/core_test_util.h"
#include "tests/ps_server/core/part_driver.h"

namespace pushpull {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class MembershipMessagesTest : public PartTest {
 protected:
  static ps::RegisterRequest Request(uint32_t worker, uint32_t num_replicas = 2) {
    ps::RegisterRequest request;
    request.set_worker_id(worker);
    request.set_num_replicas(num_replicas);
    request.set_peer_name("host:" + std::to_string(worker));
    request.set_layout_signature("layout");
    request.set_protocol_version(kProtocolVersion);
    request.set_session(1);
    return request;
  }
  static void Register(Membership& members, const ps::RegisterRequest& request) {
    ASSERT_EQ(members.CheckAnnouncement(request), absl::OkStatus());
    members.Register(request, [](uint32_t) { return false; });
  }
  static ps::EvictRequest EvictRequest(uint32_t worker, const std::string& reason = "") {
    ps::EvictRequest request;
    request.set_worker_id(worker);
    request.set_reason(reason);
    return request;
  }
  std::vector<std::string> Notices() {
    std::vector<std::string> texts;
    for (const auto& notice : Take<coordinator_action::Notice>()) texts.push_back(notice.text);
    return texts;
  }
};

TEST_F(MembershipMessagesTest, ACloneMustNotFreezeWhatTheServerTrains) {
  for (const char* name : {"conv/weights", "conv/biases"}) {
    options_.variables.emplace_back().set_name(name);
  }
  Membership members(options_, job_, &actions_);
  ps::RegisterRequest request = Request(0);
  for (const ps::VariableEntry& variable : options_.variables) *request.add_variables() = variable;
  EXPECT_EQ(members.CheckAnnouncement(request), absl::OkStatus());
  request.mutable_variables(1)->set_frozen(true);
  const absl::Status status = members.CheckAnnouncement(request);
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::LAYOUT_MISMATCH) << status;
  EXPECT_EQ(GetErrorDetail(status).variable(), "conv/biases");
  EXPECT_EQ(status.message(),
            "clone 0 (host:0) has frozen conv/biases, which this server trains: name it in "
            "train_config.freeze_variables, or let the clone train it");

  options_.variables[1].set_frozen(true);
  EXPECT_EQ(members.CheckAnnouncement(request), absl::OkStatus());
  request.mutable_variables(1)->set_frozen(false);
  EXPECT_EQ(members.CheckAnnouncement(request), absl::OkStatus());
}

TEST_F(MembershipMessagesTest, TheNumberOfReplicasHasLimits) {
  options_.num_replicas = 0;
  options_.limits.batch_size = kMaxReplicas + 1;
  Membership members(options_, job_, &actions_);
  for (const uint32_t bad : {0u, kMaxReplicas + 1}) {
    const absl::Status status = members.CheckAnnouncement(Request(0, bad));
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_THAT(std::string(status.message()), HasSubstr("expected 1 to 256"));
  }
  EXPECT_EQ(members.num_replicas(), 0u);
  EXPECT_EQ(members.CheckAnnouncement(Request(0, kMaxReplicas)), absl::OkStatus());
  EXPECT_EQ(members.num_replicas(), kMaxReplicas);
}

TEST_F(MembershipMessagesTest, EachReplicaNeedsASampleOfTheBatch) {
  options_.num_replicas = 0;
  Membership members(options_, job_, &actions_);
  const absl::Status status = members.CheckAnnouncement(Request(0, 31));
  EXPECT_TRUE(absl::IsFailedPrecondition(status)) << status;
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("a batch of 30 samples has no sample for each of them"));
  EXPECT_EQ(members.CheckAnnouncement(Request(0, 30)), absl::OkStatus());
  EXPECT_EQ(members.shares(), std::vector<int64_t>(30, 1));
  EXPECT_EQ(members.CheckAnnouncement(Request(30, 31)), absl::OkStatus())
      << "a spare may announce more, now that the number is known";

  options_.sync = false;
  Membership async(options_, job_, &actions_);
  EXPECT_EQ(async.CheckAnnouncement(Request(0, 31)), absl::OkStatus())
      << "each asynchronous replica has batches of its own";
  EXPECT_THAT(async.shares(), IsEmpty());
}

TEST_F(MembershipMessagesTest, AnAsynchronousJobHasNeitherSparesNorAnotherNumber) {
  options_.sync = false;
  options_.scaled = true;
  Membership members(options_, job_, &actions_);
  const absl::Status spare = members.CheckAnnouncement(Request(2));
  EXPECT_TRUE(absl::IsFailedPrecondition(spare)) << spare;
  EXPECT_THAT(std::string(spare.message()), HasSubstr("worker ids of this job are 0 to 1"));
  for (const uint32_t worker : {0u, 2u}) {
    const absl::Status other = members.CheckAnnouncement(Request(worker, 3));
    EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
    EXPECT_THAT(std::string(other.message()), HasSubstr("their number is fixed for a run"));
  }
}

TEST_F(MembershipMessagesTest, ARunKeepsItsNumberOfReplicas) {
  options_.sync = false;
  Membership members(options_, job_, &actions_);
  EXPECT_EQ(members.KeepNumReplicas(0), absl::OkStatus());
  EXPECT_EQ(members.KeepNumReplicas(2), absl::OkStatus());
  const absl::Status other = members.KeepNumReplicas(3);
  EXPECT_TRUE(absl::IsFailedPrecondition(other)) << other;
  EXPECT_THAT(std::string(other.message()),
              HasSubstr("has trained with 3 replicas, and in asynchronous mode their number is "
                        "fixed for a run, but --num_replicas is 2"));
  options_.num_replicas = 0;
  Membership open(options_, job_, &actions_);
  EXPECT_EQ(open.KeepNumReplicas(3), absl::OkStatus());
  EXPECT_EQ(open.num_replicas(), 3u);
  EXPECT_EQ(CheckNumReplicas(0, 3), absl::OkStatus());
  EXPECT_EQ(CheckNumReplicas(3, 0), absl::OkStatus());
  EXPECT_EQ(CheckNumReplicas(3, 3), absl::OkStatus());
}

TEST_F(MembershipMessagesTest, AModelWithTheSameVariablesCanDifferToo) {
  Membership members(options_, job_, &actions_);
  ps::RegisterRequest request = Request(0);
  request.set_layout_signature("another");
  const absl::Status status = members.CheckAnnouncement(request);
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::LAYOUT_MISMATCH);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("clone 0 (host:0) has another model than the server: the signatures "
                        "differ"));
}

TEST_F(MembershipMessagesTest, EachArrivalIsToldOnce) {
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  Register(members, Request(1));
  Register(members, Request(1));
  EXPECT_THAT(Notices(), ElementsAre("clone 1 (host:1) is here"));
  ps::RegisterRequest later = Request(1);
  later.set_process_number(1);
  Register(members, later);
  EXPECT_THAT(Notices(), ElementsAre("clone 1 (host:1) is here again, in a new process"));
  Register(members, Request(2));
  const auto spare = Take<coordinator_action::Notice>();
  ASSERT_EQ(spare.size(), 1u);
  EXPECT_EQ(spare[0].text, "clone 2 (host:2) is here, a spare in a job of 2 replicas");
  EXPECT_TRUE(spare[0].about_spare);
  members.BeginEpoch();
  Register(members, later);
  EXPECT_THAT(Notices(), ElementsAre("clone 1 (host:1) is here")) << "it is new in this epoch";
}

TEST_F(MembershipMessagesTest, LostClonesAreNamed) {
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  Register(members, Request(1));
  Register(members, Request(2));
  Take<coordinator_action::Notice>();
  members.WarnOfLost({1, 2});
  const auto notices = Take<coordinator_action::Notice>();
  ASSERT_EQ(notices.size(), 2u);
  EXPECT_EQ(notices[0].text, "clone 1 of 2 (host:1) has not been heard from for " +
                                 absl::FormatDuration(options_.lease) + ": lost");
  EXPECT_TRUE(notices[0].warning);
  EXPECT_FALSE(notices[0].about_spare);
  EXPECT_THAT(notices[1].text, HasSubstr("clone 2 (host:2) has"));
  EXPECT_TRUE(notices[1].about_spare);
}

// A clone that does not say how many images it has, as an older one, is not compared.
TEST_F(MembershipMessagesTest, AnUnknownNumberOfImagesExcludesNobody) {
  options_.num_replicas = 4;
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  const auto with_images = [](uint32_t worker, uint64_t num_images) {
    ps::RegisterRequest request = Request(worker, 4);
    request.set_num_images(num_images);
    return request;
  };
  Register(members, with_images(0, 1000));
  Register(members, with_images(1, 0));
  EXPECT_EQ(members.CheckAnnouncement(with_images(2, 1000)), absl::OkStatus());
  job_.now += options_.lease;
  EXPECT_THAT(members.ExpireLeases(), ElementsAre(0, 1));
  Register(members, with_images(2, 0));
  EXPECT_EQ(members.Renew(0), absl::OkStatus()) << "clone 2 has not said another number";
  Register(members, with_images(3, 1000));
  EXPECT_EQ(members.Renew(1), absl::OkStatus()) << "clone 1 has not said another number";
  EXPECT_EQ(members.Renew(0), absl::OkStatus()) << "clone 0 has as many";
}

TEST_F(MembershipMessagesTest, ALiveCloneWithOtherImagesStaysRegistered) {
  options_.num_replicas = 3;
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  ps::RegisterRequest request = Request(0, 3);
  request.set_num_images(1000);
  Register(members, request);
  request = Request(1, 3);
  request.set_num_images(1200);
  // CheckAnnouncement would refuse this clone.
  members.Register(request, [](uint32_t) { return false; });
  EXPECT_EQ(members.Renew(0), absl::OkStatus());
}

TEST_F(MembershipMessagesTest, SaysWhoseStepIsLateAndWhy) {
  options_.num_replicas = 3;
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  EXPECT_EQ(members.DescribeLate({}), "");
  EXPECT_EQ(members.DescribeLate({1, 2}), "clone 1 of 3 (never seen) and 1 more");
  members.CountDrop(1);
  EXPECT_EQ(members.DescribeLate({1}), "clone 1 of 3 (never seen)");
  EXPECT_EQ(members.CloneName(1), "clone 1 of 3");
  Register(members, Request(1, 3));
  EXPECT_EQ(members.DescribeLate({1}), "clone 1 of 3 (alive)");
  ps::HeartbeatRequest heartbeat;
  heartbeat.set_worker_id(1);
  heartbeat.set_session(1);
  heartbeat.mutable_progress()->set_phase("compute");
  EXPECT_EQ(members.Heartbeat(heartbeat), absl::OkStatus());
  EXPECT_EQ(members.DescribeLate({1}), "clone 1 of 3 (compute)");
  job_.now += options_.lease;
  members.ExpireLeases();
  EXPECT_EQ(members.DescribeLate({1, 0, 2}), "clone 1 of 3 (lost) and 2 more");
  heartbeat.set_leaving(true);
  EXPECT_EQ(members.Heartbeat(heartbeat), absl::OkStatus());
  EXPECT_EQ(members.DescribeLate({1}), "clone 1 of 3 (left)");
  members.Evict(EvictRequest(1));
  EXPECT_EQ(members.DescribeLate({1}), "clone 1 of 3 (evicted, and no other is there)");
}

TEST_F(MembershipMessagesTest, AnEvictionSaysWhatItMeansForTheJob) {
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  EXPECT_THAT(std::string(members.CheckEvict(EvictRequest(2)).message()),
              HasSubstr("there is no clone 2: this job's are 0 to 1"));
  for (const uint32_t worker : {0u, 1u, 2u}) Register(members, Request(worker));
  Take<coordinator_action::Notice>();
  EXPECT_EQ(members.CheckEvict(EvictRequest(2, std::string(500, 'x'))), absl::OkStatus());
  const absl::Status long_reason = members.CheckEvict(EvictRequest(2, std::string(501, 'x')));
  EXPECT_TRUE(absl::IsInvalidArgument(long_reason)) << long_reason;
  EXPECT_THAT(members.Evict(EvictRequest(2)).replicas(), IsEmpty());
  EXPECT_THAT(Notices(), ElementsAre("clone 2 (host:2) was evicted by an administrator"));
  members.Evict(EvictRequest(1, "too slow"));
  EXPECT_THAT(Notices(),
              ElementsAre("clone 1 of 2 (host:1) was evicted by an administrator: too slow; it "
                          "had replica 1"));
  members.Evict(EvictRequest(1, "too slow"));
  EXPECT_THAT(Notices(), IsEmpty()) << "it was evicted already";
  EXPECT_TRUE(members.IsReplicaOf(1, 1)) << "its home";
  EXPECT_FALSE(members.IsReplicaOf(1, 0));
  members.Reassign(1, [](uint32_t) { return false; });
  EXPECT_TRUE(members.IsReplicaOf(1, 0)) << "the clone that holds it";
  EXPECT_FALSE(members.IsReplicaOf(0, 1));
  EXPECT_THAT(Notices(), ElementsAre("replica 1 goes to clone 0 of 2 (host:0) from step 1 on"));
  members.Evict(EvictRequest(0));
  EXPECT_THAT(Notices(),
              ElementsAre("clone 0 of 2 (host:0) was evicted by an administrator; it had replica "
                          "0, 1; no clone is left to go on"));
}

// A supervisor that starts anew counts its processes from 0 again.
TEST_F(MembershipMessagesTest, ANewSupervisorMayTakeThePlaceOfALostClone) {
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  ps::RegisterRequest request = Request(0);
  request.set_process_number(5);
  Register(members, request);
  job_.now += options_.lease;
  EXPECT_THAT(members.ExpireLeases(), ElementsAre(0));
  request.set_process_number(4);
  EXPECT_TRUE(absl::IsPermissionDenied(members.CheckAnnouncement(request)));
  request.set_session(2);
  request.set_process_number(0);
  EXPECT_EQ(members.CheckAnnouncement(request), absl::OkStatus());
}

TEST_F(MembershipMessagesTest, ACloneThatDoesNotSayWhatItComputesOnIsNotCompared) {
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  Register(members, Request(0));
  ps::RegisterRequest request = Request(1);
  request.mutable_arithmetic()->set_device("the CPU (avx2)");
  request.mutable_arithmetic()->set_rounding("fma");
  Register(members, request);
  for (const auto& notice : Take<coordinator_action::Notice>()) {
    EXPECT_FALSE(notice.warning) << notice.text;
  }
  members.CountContribution(0);
  members.CountContribution(1);
  EXPECT_THAT(members.Devices(), ElementsAre("the CPU (avx2)"));
  job_.now += options_.lease;
  members.ExpireLeases();
  ps::StatusReply status;
  members.AddTo(&status, {}, job_.now);
  EXPECT_FALSE(status.clones(0).progress().has_gpu());
}

TEST_F(MembershipMessagesTest, NobodyCanBeEvictedBeforeTheFirstCloneRegisters) {
  options_.num_replicas = 0;
  Membership members(options_, job_, &actions_);
  const absl::Status status = members.CheckEvict(EvictRequest(0));
  EXPECT_TRUE(absl::IsNotFound(status)) << status;
  EXPECT_EQ(status.message(), "there is no clone 0: none has registered yet");
}

TEST_F(MembershipMessagesTest, ACommitOfACloneThatIsNotThereIsNotCounted) {
  Membership members(options_, job_, &actions_);
  members.BeginEpoch();
  ps::StatusReply empty;
  members.AddTo(&empty, {}, job_.now);
  EXPECT_EQ(empty.clones_size(), 2) << "each replica has a home";
  Register(members, Request(0));
  members.CountContribution(7);
  members.CountContribution(0);
  members.CountContribution(0);
  members.CountDrop(0);
  ps::StatusReply status;
  members.AddTo(&status, {1, 0}, job_.now + absl::Seconds(2));
  ASSERT_EQ(status.clones_size(), 2) << "clones 0 and 1, but not 7";
  EXPECT_EQ(status.clones(0).contributions(), 2u);
  EXPECT_EQ(status.clones(0).drops(), 1u);
  EXPECT_TRUE(status.clones(0).alive());
  EXPECT_EQ(status.clones(0).seconds_since_seen(), 2.0);
  EXPECT_EQ(status.clones(0).samples_per_step(), 15u);
  EXPECT_EQ(status.clones(0).peer_name(), "host:0");
  EXPECT_EQ(status.clones(1).worker_id(), 1u);
  EXPECT_EQ(status.clones(1).seconds_since_seen(), -1.0);
  EXPECT_THAT(status.late_clones(), ElementsAre(0, 1));
}

}  // namespace
}  // namespace pushpull
