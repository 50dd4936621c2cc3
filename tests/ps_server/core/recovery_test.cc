#include "ps_server/core/recovery.h"

#include <algorithm>
#include <optional>
#include <string>
#include <vector>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/base/passing_error.h"
#include "common/base/utf8.h"
#include "ps_server/core/protocol_error.h"
#include "tests/ps_server/core/coordinator_driver.h"
#include "tests/ps_server/core/part_driver.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

using RecoveryTest = CoordinatorTest;

// Tests Recovery without the other parts of the coordinator.
class RecoveryPartTest : public PartTest {
 protected:
  RecoveryPartTest() {
    options_.tasks = 2;
    job_.epoch = 0;
  }
  // Begins an epoch and brings it to the point where the shards are asked for their state.
  void Query(std::optional<VersionId> id) {
    ASSERT_TRUE(recovery_.BeginEpoch("test").ok());
    job_.now += absl::Seconds(20);  // longer than every pause
    recovery_.PersistIfDue();
    job_.epoch = Take<coordinator_action::PersistEpoch>().at(0).epoch;
    recovery_.OnEpochPersisted({job_.epoch, absl::OkStatus()});
    EXPECT_EQ(Take<coordinator_action::FindCheckpoint>().size(), 1u);
    std::optional<FoundCheckpoint> checkpoint;
    if (id.has_value()) checkpoint = FoundCheckpoint{*id};
    recovery_.OnCheckpointFound({checkpoint});
  }
  // Answers for two shards that both hold the version. Returns the restore request that follows.
  ps::RestoreRequest AnswerStates(VersionId held_id) {
    std::vector<ShardReply> replies;
    for (const uint64_t boot_id : {11, 12}) {
      ps::ShardStateReply state;
      state.set_boot_id(boot_id);
      state.set_run_id(options_.run_id);
      ps::HeldVersion& held = *state.add_held();
      held.set_epoch(held_id.epoch);
      held.set_version(held_id.version);
      replies.push_back(state);
    }
    const Followup followup = recovery_.OnReplies(replies);
    if (!std::holds_alternative<followup::CallShards>(followup)) return {};
    return std::get<shard_call::Restore>(std::get<followup::CallShards>(followup).call).request;
  }
  std::vector<ShardReply> Restored() { return {ps::RestoreReply(), ps::RestoreReply()}; }

  Recovery recovery_{options_, job_, &actions_};
};

TEST_F(RecoveryPartTest, GoesFromTheStoredEpochToServing) {
  recovery_.Start(4);
  Query(VersionId{3, 5});
  EXPECT_EQ(job_.epoch, 5u);
  EXPECT_TRUE(recovery_.is_recovering());
  const ps::RestoreRequest restore = AnswerStates({4, 8});
  EXPECT_EQ(restore.step(), 8u);
  EXPECT_EQ(restore.source(), ps::RestoreRequest::MAPPED);
  EXPECT_EQ(restore.boot_ids(1), 12u);
  const Followup restored = recovery_.OnReplies(Restored());
  ASSERT_TRUE(std::holds_alternative<followup::Restored>(restored));
  EXPECT_FALSE(recovery_.TakeOverOrServe()) << "train_dir must be taken over first";
  EXPECT_EQ(Take<coordinator_action::TakeOver>().size(), 1u);
  EXPECT_TRUE(recovery_.OnTookOver());
  job_.version = recovery_.restored_version();
  recovery_.BeginServing("the newest checkpoint is of step 5");
  EXPECT_FALSE(recovery_.is_recovering());
  EXPECT_EQ(Take<coordinator_action::Notice>().at(0).text,
            "epoch 5 begins with step 8 of epoch 4 from the servers' memory; the newest checkpoint "
            "is of step 5 (--from_checkpoint goes back)");
  EXPECT_EQ(Take<coordinator_action::Serving>().at(0).version, 8u);
}

TEST_F(RecoveryPartTest, IgnoresMappedStateAfterTwoFailures) {
  const absl::Status refusal = absl::FailedPreconditionError("shard 1 of 2: not held");
  for (int i = 0; i < 2; ++i) {
    Query(VersionId{0, 5});
    EXPECT_EQ(AnswerStates({0, 8}).source(), ps::RestoreRequest::MAPPED);
    EXPECT_TRUE(std::holds_alternative<followup::BeginEpoch>(recovery_.OnCallFailed({}, refusal)));
  }
  Query(VersionId{0, 5});
  EXPECT_EQ(AnswerStates({0, 8}).source(), ps::RestoreRequest::CHECKPOINT);
  EXPECT_TRUE(std::holds_alternative<followup::Stop>(recovery_.OnCallFailed({}, refusal)));
}

TEST_F(RecoveryPartTest, ClassifiesErrorsAndPolledStatesOfShards) {
  Query(std::nullopt);
  const absl::Status not_ready = ProtocolError(ps::ErrorDetail::NOT_READY, 1, 0, "starting");
  EXPECT_EQ(recovery_.JudgeFailure(0, not_ready), Recovery::Failure::kRepeat);
  AnswerStates({0, 8});
  recovery_.OnReplies(Restored());
  recovery_.TakeOverOrServe();
  recovery_.OnTookOver();
  recovery_.BeginServing("no checkpoint has been published");
  EXPECT_EQ(recovery_.JudgeFailure(0, not_ready), Recovery::Failure::kLostEpoch);
  EXPECT_EQ(recovery_.JudgeFailure(0, absl::UnavailableError("")), Recovery::Failure::kRepeat);
  EXPECT_EQ(recovery_.JudgeFailure(0, absl::DataLossError("")), Recovery::Failure::kFinal);
  const absl::Status lie = ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, kMaxEpoch, 0, "");
  EXPECT_EQ(recovery_.JudgeFailure(0, lie), Recovery::Failure::kRepeat);
  EXPECT_THAT(Take<coordinator_action::Notice>().back().text, HasSubstr("which cannot be"));
  // Polled states are judged in the same way.
  ps::ShardStateReply state;
  state.set_epoch(job_.epoch);
  state.set_boot_id(12);
  EXPECT_TRUE(std::holds_alternative<followup::None>(recovery_.CheckPolledState(1, state)));
  state.set_boot_id(13);
  EXPECT_TRUE(std::holds_alternative<followup::BeginEpoch>(recovery_.CheckPolledState(1, state)));
}

TEST_F(RecoveryPartTest, SaysWhatIsRestored) {
  Query(VersionId{0, 5});
  EXPECT_EQ(recovery_.DescribeWait("the shards"), "the shards to say which versions are in memory");
  AnswerStates({0, 8});
  EXPECT_EQ(recovery_.DescribeWait("shard 1 of 2 (gone)"),
            "shard 1 of 2 (gone) to restore step 8 from the servers' memory");
  Query(VersionId{0, 5});
  AnswerStates({0, 4});
  EXPECT_EQ(recovery_.DescribeWait("the shards"),
            "the shards to restore step 5 from the checkpoint");
  recovery_.OnReplies(Restored());
  EXPECT_FALSE(recovery_.TakeOverOrServe());
  EXPECT_EQ(recovery_.DescribeWait("the shards"), "the server to write its files in train_dir");
}

TEST_F(RecoveryPartTest, NoEpochFollowsTheLast) {
  recovery_.Start(kMaxEpoch);
  EXPECT_TRUE(absl::IsFailedPrecondition(recovery_.BeginEpoch("test")));
}

// Tests Recovery in a whole coordinator.

TEST_F(RecoveryTest, BeginsANewEpochFromTheMappedState) {
  held_ = {{4, 7}, {4, 8}};
  checkpoint_ = FoundCheckpoint{{3, 5}};
  Start();
  EXPECT_EQ(Take<coordinator_action::PersistEpoch>().at(0).epoch, 7u);
  const auto serving = Take<coordinator_action::Serving>();
  EXPECT_EQ(serving.at(0).epoch, 7u);
  EXPECT_EQ(serving.at(0).version, 8u);
  EXPECT_EQ(serving.at(0).source, ps::RestoreRequest::MAPPED);
  EXPECT_EQ(coordinator_->durable_step(), 5u);
}

// The status has version 0 until the job serves, which looks like a run that has lost its steps.
TEST_F(RecoveryTest, TheStatusSaysAtOnceThatTheJobRecovers) {
  silent_ = true;
  Start();
  now_ += absl::Milliseconds(300);
  const ps::StatusReply status = coordinator_->Status(now_);
  EXPECT_EQ(status.waiting_for(), "the shards to say which versions are in memory");
  EXPECT_NEAR(status.waiting_seconds(), 0.3, 1e-9);
}

TEST_F(RecoveryTest, DoesNotStartFromScratchBesideABrokenCheckpoint) {
  checkpoint_ = absl::DataLossError("ckpt-00000005: a byte is wrong");
  Start();
  EXPECT_THAT(std::string(Take<coordinator_action::Stopped>().at(0).reason.message()),
              HasSubstr("ckpt-00000005"));
  EXPECT_TRUE(Take<coordinator_action::Serving>().empty());
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::STOPPED);
}

TEST_F(RecoveryTest, ARestartedShardBeginsANewEpoch) {
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

TEST_F(RecoveryTest, AddressesInTheWrongOrderAreNamedAndBeginNoEpochs) {
  options_.tasks = 2;
  swapped_ = true;
  Start();
  for (int i = 0; i < 10; ++i) Pass(absl::Seconds(1));
  EXPECT_EQ(Take<coordinator_action::PersistEpoch>().size(), 1u);
  EXPECT_THAT(coordinator_->WaitingFor(now_),
              HasSubstr("shard 0 of 2 (ps task 1 answers at the address of ps task 0"));
  swapped_ = false;
  Pass(absl::Seconds(3));
  EXPECT_EQ(Take<coordinator_action::Serving>().size(), 1u);
  // The same holds while the job serves.
  swapped_ = true;
  for (int i = 0; i < 10; ++i) Pass(absl::Seconds(1));
  EXPECT_TRUE(Take<coordinator_action::PersistEpoch>().empty());
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("ps task 1 answers at the address of"));
}

// It holds no version of this run, so the other shards would be told to give theirs up.
TEST_F(RecoveryTest, ATaskOfAnotherRunIsNamedAndCostsNoVersions) {
  options_.tasks = 2;
  run_of_1_ = "another run";
  held_ = {{6, 8}};
  checkpoint_ = FoundCheckpoint{{3, 5}};
  const auto restores = [this] {
    const auto calls = Take<coordinator_action::CallShard>();
    return std::count_if(calls.begin(), calls.end(), [](const auto& call) {
      return std::holds_alternative<shard_call::Restore>(call.call);
    });
  };
  const std::string named =
      absl::StrCat("a ps task of run ", absl::BytesToHexString("another run"), ", not of run ",
                   absl::BytesToHexString(kRun), ", answers at the address of ps task 1");
  Start();
  for (int i = 0; i < 10; ++i) Pass(absl::Seconds(1));
  EXPECT_EQ(Take<coordinator_action::PersistEpoch>().size(), 1u);
  EXPECT_EQ(restores(), 0);
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("shard 1 of 2 (" + named));
  run_of_1_ = kRun;
  Pass(absl::Seconds(3));
  const auto serving = Take<coordinator_action::Serving>();
  ASSERT_EQ(serving.size(), 1u);
  EXPECT_EQ(serving[0].version, 8u);
  EXPECT_EQ(restores(), 2);
  // The same holds while the job serves.
  run_of_1_ = "another run";
  boot_ids_[1] = 2;
  for (int i = 0; i < 10; ++i) Pass(absl::Seconds(1));
  EXPECT_TRUE(Take<coordinator_action::PersistEpoch>().empty());
  EXPECT_EQ(restores(), 0);
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr(named));
  // A task that has begun to listen and knows no run yet is no task of another run.
  run_of_1_ = "";
  Pass(absl::Seconds(3));
  EXPECT_EQ(Take<coordinator_action::Serving>().size(), 1u);
}

TEST_F(RecoveryTest, AShardOfAnotherBuildIsNamedAndAwaited) {
  protocol_of_shards_ = kProtocolVersion + 1;
  Start();
  Pass(absl::Seconds(5));
  EXPECT_THAT(coordinator_->WaitingFor(now_),
              HasSubstr("shard 0 of 1 (its ps task speaks protocol version"));
  EXPECT_TRUE(Take<coordinator_action::Serving>().empty());
  protocol_of_shards_ = kProtocolVersion;
  Pass(absl::Seconds(3));
  EXPECT_EQ(Take<coordinator_action::Serving>().size(), 1u);
}

TEST_F(RecoveryTest, RepeatsACallUntilTheShardAnswers) {
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
  EXPECT_EQ(coordinator_->WaitingFor(now_), "shard 0 of 1 (gone)");
  Send(coordinator_event::ShardReplied{calls[0].rpc, ShardReply(ps::ApplyReply())});
  EXPECT_EQ(coordinator_->version(), 1u);
}

TEST_F(RecoveryTest, WritesTrainDirOnceBeforeServing) {
  Start();
  size_t take_over = actions_.size();
  size_t serving = actions_.size();
  for (size_t i = 0; i < actions_.size(); ++i) {
    if (std::holds_alternative<coordinator_action::TakeOver>(actions_[i])) take_over = i;
    if (std::holds_alternative<coordinator_action::Serving>(actions_[i])) serving = i;
  }
  ASSERT_LT(take_over, serving);
  ASSERT_LT(serving, actions_.size());
  EXPECT_EQ(Take<coordinator_action::TakeOver>().size(), 1u);
}

TEST_F(RecoveryTest, ATrainDirThatCannotBeWrittenStopsTheJob) {
  take_over_status_ = absl::ResourceExhaustedError("no space left in /train");
  Start();
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_THAT(std::string(stopped[0].reason.message()), HasSubstr("no space left"));
  EXPECT_TRUE(Take<coordinator_action::Serving>().empty());
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::STOPPED);
}

TEST_F(RecoveryTest, ClonesWaitForTheNextServerIfTheErrorMayPass) {
  take_over_status_ = MarkPassing(absl::ResourceExhaustedError("no space left in /train"));
  Start();
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_TRUE(IsPassing(stopped[0].reason)) << stopped[0].reason;
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::DRAINING);
  EXPECT_EQ(KindOf(Heartbeat(0).status()), ps::ErrorDetail::DRAINING);
}

TEST_F(RecoveryTest, WaitsForADiskThatIsFull) {
  persist_status_ = MarkPassing(absl::ResourceExhaustedError("no space left in /train"));
  Start();
  Pass(absl::Seconds(30));
  EXPECT_TRUE(Take<coordinator_action::Stopped>().empty());
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::NOT_READY);
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("no space left in /train"));
  EXPECT_EQ(coordinator_->Status(now_).waiting_seconds(), 30);
  std::vector<uint64_t> epochs;
  for (const auto& persist : Take<coordinator_action::PersistEpoch>()) {
    EXPECT_TRUE(epochs.empty() || persist.epoch > epochs.back())
        << "the file may hold the number that could not be written for certain";
    epochs.push_back(persist.epoch);
  }
  EXPECT_GE(epochs.size(), 3u);
  persist_status_ = absl::OkStatus();
  Pass(absl::Seconds(10));
  EXPECT_EQ(Take<coordinator_action::Serving>().at(0).epoch, epochs.back() + 1);
  EXPECT_EQ(coordinator_->WaitingFor(now_), "");
}

// The disk was full for a moment, and now a shard does not answer.
TEST_F(RecoveryTest, AnErrorThatHasPassedHidesNoSilentShard) {
  persist_status_ = MarkPassing(absl::ResourceExhaustedError("no space left in /train"));
  Start();
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("no space left in /train"));
  persist_status_ = absl::OkStatus();
  silent_ = true;
  Pass(absl::Seconds(5));
  EXPECT_EQ(coordinator_->WaitingFor(now_), "the shards to say which versions are in memory");
  Pass(absl::Seconds(5));
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("shard 0 of 1"));
  EXPECT_EQ(coordinator_->Status(now_).waiting_seconds(), 5);
}

// The shard answers after a time that is longer than disk_patience and is in another epoch, so that
// one more begins. The disk fails once more meanwhile.
TEST_F(RecoveryTest, ANewErrorIsAwaitedAsLongAsTheFirst) {
  const absl::Status full = MarkPassing(absl::ResourceExhaustedError("no space left"));
  persist_status_ = full;
  Start();
  persist_status_ = absl::OkStatus();
  silent_ = true;
  Pass(absl::Seconds(5));
  Pass(2 * options_.disk_patience);
  persist_status_ = full;
  silent_ = false;
  failing_restores_ = 1;
  restore_status_ =
      ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, 20, 0, "the shard is in epoch 20");
  const auto calls = Take<coordinator_action::CallShard>();
  ASSERT_EQ(calls.size(), 1u);
  Send(coordinator_event::ShardReplied{calls[0].rpc, ShardAnswer(calls[0])});
  Pass(absl::Seconds(10));
  EXPECT_TRUE(Take<coordinator_action::Stopped>().empty());
  EXPECT_THAT(coordinator_->WaitingFor(now_), HasSubstr("no space left"));
  persist_status_ = absl::OkStatus();
  Pass(absl::Seconds(10));
  EXPECT_EQ(Take<coordinator_action::Serving>().size(), 1u);
}

TEST_F(RecoveryTest, AServerThatHasEndedWaitsForNoError) {
  for (const bool drains : {false, true}) {
    persist_status_ = MarkPassing(absl::ResourceExhaustedError("no space left"));
    Start();
    EXPECT_NE(coordinator_->WaitingFor(now_), "");
    if (drains) {
      Send(coordinator_event::Drain{});
      EXPECT_EQ(Take<coordinator_action::Drained>().size(), 1u);
    } else {
      persist_status_ = absl::PermissionDeniedError("/train/EPOCH: permission denied");
      Pass(absl::Seconds(10));
      EXPECT_EQ(Take<coordinator_action::Stopped>().size(), 1u);
    }
    EXPECT_EQ(coordinator_->WaitingFor(now_), "");
    EXPECT_EQ(coordinator_->Status(now_).waiting_seconds(), 0);
  }
}

TEST_F(RecoveryTest, StopsIfTheDiskStaysFull) {
  for (const bool is_checkpoint : {false, true}) {
    const absl::Status full = MarkPassing(absl::ResourceExhaustedError("no space left"));
    if (is_checkpoint) {
      persist_status_ = absl::OkStatus();
      checkpoint_ = full;
    } else {
      persist_status_ = full;
    }
    Start();
    const absl::Duration start = now_;
    std::vector<coordinator_action::Stopped> stopped;
    while (stopped.empty() && now_ < start + absl::Hours(1)) {
      now_ = std::max(now_, coordinator_->NextWakeup());
      Send(coordinator_event::Tick{});
      stopped = Take<coordinator_action::Stopped>();
    }
    ASSERT_EQ(stopped.size(), 1u);
    EXPECT_TRUE(IsPassing(stopped[0].reason)) << stopped[0].reason;
    EXPECT_GE(now_ - start, options_.disk_patience);
    EXPECT_LE(now_ - start, options_.disk_patience + absl::Seconds(10)) << "the longest pause";
    EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::DRAINING);
  }
}

TEST_F(RecoveryTest, AnEpochThatCannotBeWrittenForAnotherReasonStopsTheJob) {
  persist_status_ = absl::PermissionDeniedError("/train/EPOCH: permission denied");
  Start();
  EXPECT_EQ(Take<coordinator_action::Stopped>().size(), 1u);
  EXPECT_EQ(Take<coordinator_action::PersistEpoch>().size(), 1u);
}

TEST_F(RecoveryTest, AnErrorOfAShardKeepsItsMark) {
  checkpoint_ = FoundCheckpoint{{3, 5}};
  failing_restores_ = 1;
  restore_status_ = MarkPassing(absl::InternalError("input/output error"));
  Start();
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_THAT(std::string(stopped[0].reason.message()), HasSubstr("shard 0 of 1"));
  EXPECT_TRUE(IsPassing(stopped[0].reason)) << stopped[0].reason;
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::DRAINING);
}

// A reply with a text that is not UTF-8 could not be read.
TEST_F(RecoveryTest, AReasonMayNameAFileWithAnyBytes) {
  persist_status_ = MarkPassing(absl::ResourceExhaustedError("M\xfcller/EPOCH: no space left"));
  Start();
  EXPECT_TRUE(IsUtf8(coordinator_->Status(now_).waiting_for()));
  EXPECT_THAT(coordinator_->Status(now_).waiting_for(), HasSubstr("M\xef\xbf\xbdller/EPOCH"));
  persist_status_ = absl::PermissionDeniedError("M\xfcller/EPOCH: permission denied");
  Pass(absl::Seconds(10));
  ASSERT_EQ(Take<coordinator_action::Stopped>().size(), 1u);
  EXPECT_THAT(coordinator_->Status(now_).stopped(), HasSubstr("M\xef\xbf\xbdller/EPOCH"));
  EXPECT_THAT(Heartbeat(0)->stopped(), HasSubstr("M\xef\xbf\xbdller/EPOCH"));
}

TEST_F(RecoveryTest, AReplacedServerSendsItsClonesToItsSuccessor) {
  options_.save_checkpoints_every = absl::ZeroDuration();
  options_.save_checkpoints_steps = 1;
  publish_status_ = absl::AbortedError("another server has taken the folder over");
  StartWithClones();
  RunStep(1);
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_TRUE(absl::IsAborted(stopped[0].reason));
  // DRAINING is sent as UNAVAILABLE, so that a clone retries and finds the other server.
  EXPECT_EQ(KindOf(Register(0).status()), ps::ErrorDetail::DRAINING);
  EXPECT_EQ(KindOf(Commit(2, 0).status()), ps::ErrorDetail::DRAINING);
}

TEST_F(RecoveryTest, AnOutdatedEpochFileIsNotTrusted) {
  stored_epoch_ = 3;
  held_ = {{9, 40}};
  Start();
  now_ += absl::Seconds(10);  // longer than the pause between two epochs
  Send(coordinator_event::Tick{});
  const auto serving = Take<coordinator_action::Serving>();
  ASSERT_EQ(serving.size(), 1u);
  EXPECT_EQ(serving[0].epoch, 10u);
  EXPECT_EQ(serving[0].version, 40u);
}

TEST_F(RecoveryTest, AFinishedRunEndsWithoutTasksThatHaveAlreadyEnded) {
  options_.tasks = 2;
  options_.limits.num_steps = 40;
  checkpoint_ = FoundCheckpoint{{5, 40}, /*training_done=*/true};
  silent_ = true;
  Start();
  Pass(options_.lease / 2);
  EXPECT_TRUE(Take<coordinator_action::Finished>().empty());
  EXPECT_LE(coordinator_->NextWakeup(), now_ + options_.lease / 2);
  Pass(options_.lease / 2);
  EXPECT_EQ(Take<coordinator_action::Finished>().size(), 1u);
  EXPECT_EQ(coordinator_->version(), 40u);
  EXPECT_EQ(coordinator_->durable_step(), 40u);
  // The server has recovered nothing, so it must not take over train_dir.
  EXPECT_TRUE(Take<coordinator_action::TakeOver>().empty());
  const auto reply = Register(0);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_TRUE(reply->training_done());
}

TEST_F(RecoveryTest, AnUnfinishedRunWaitsForSilentTasks) {
  options_.tasks = 2;
  silent_ = true;
  for (const bool goes_back : {false, true}) {
    options_.limits.num_steps = 40;
    options_.from_checkpoint = goes_back;
    checkpoint_ = FoundCheckpoint{{5, goes_back ? 40u : 39u}, /*training_done=*/true};
    Start();
    Pass(10 * options_.lease);
    EXPECT_TRUE(Take<coordinator_action::Finished>().empty()) << goes_back;
  }
}

}  // namespace
}  // namespace pushpull
