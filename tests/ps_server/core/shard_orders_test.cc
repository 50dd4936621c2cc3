// Tests what a shard answers to orders of the coordinator that it cannot carry out, or not at once.
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "common/wire/protocol_version.h"
#include "tests/ps_server/core/shard_aggregator_driver.h"

namespace pushpull {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class ShardOrdersTest : public ShardAggregatorTest {
 protected:
  ShardActions Measure(const ps::ApplyRequest& request) {
    return shard_->Handle(shard_event::MeasureNorm{++call_, request});
  }
  absl::Status Refusal(const ShardActions& actions) {
    return Only<shard_action::ReplyNorm>(actions).reply.status();
  }
  shard_event::Restore RestoreOf(uint64_t epoch) {
    shard_event::Restore event;
    event.call = ++call_;
    event.request.set_run_id(kRun);
    event.request.set_epoch(epoch);
    event.request.set_step(4);
    event.request.set_version_epoch(1);
    return event;
  }
  absl::Status RestoreStatus(const shard_event::Restore& event) {
    return Only<shard_action::ReplyRestore>(shard_->Handle(event)).reply.status();
  }
};

TEST_F(ShardOrdersTest, MeasuresOnlyContributionsToTheNextStepThatItHolds) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  for (const uint64_t step : {4, 6}) {
    const absl::Status status = Refusal(Measure(ApplyRequest(step, {{0, 10}})));
    EXPECT_EQ(KindOf(status), ps::ErrorDetail::VERSION_GONE) << status;
    EXPECT_EQ(GetErrorDetail(status).step(), 4u) << "the present version";
  }
  const absl::Status missing = Refusal(Measure(ApplyRequest(5, {{0, 10}, {1, 11}})));
  EXPECT_TRUE(absl::IsInternal(missing)) << missing;
  EXPECT_THAT(std::string(missing.message()),
              HasSubstr("shard 0 does not hold replica 1's contribution (grant 11) to step 5"));
  ps::ApplyRequest old = ApplyRequest(9, {{0, 10}});
  old.set_epoch(1);
  EXPECT_EQ(KindOf(Refusal(Measure(old))), ps::ErrorDetail::EPOCH_CHANGED);
  // A refused measurement does not occupy the store.
  const ShardActions actions = Measure(ApplyRequest(5, {{0, 10}}));
  const auto& measure = Only<shard_action::StoreMeasure>(actions);
  EXPECT_EQ(measure.step, 5u);
  ASSERT_EQ(measure.contributions.size(), 1u);
  EXPECT_EQ(measure.contributions[0].chunks.size(), 2u);
}

TEST_F(ShardOrdersTest, MeasuresNothingWhileItApplies) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  const ps::ApplyRequest request = ApplyRequest(5, {{0, 10}});
  Only<shard_action::StoreApply>(Apply(request));
  const absl::Status busy = Refusal(Measure(request));
  EXPECT_TRUE(absl::IsUnavailable(busy)) << busy;
  EXPECT_EQ(busy.message(), "shard 0 is busy");
}

TEST_F(ShardOrdersTest, AFailedMeasurementIsReportedAndCanBeRepeated) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  const ps::ApplyRequest request = ApplyRequest(5, {{0, 10}});
  Only<shard_action::StoreMeasure>(Measure(request));
  EXPECT_THAT(Measure(request), IsEmpty());
  const absl::Status failure = absl::InternalError("no thread");
  const ShardActions failed = shard_->Handle(shard_event::StoreMeasured{failure});
  ASSERT_EQ(failed.size(), 2u);
  for (const ShardAction& action : failed) {
    EXPECT_EQ(std::get<shard_action::ReplyNorm>(action).reply.status(), failure);
  }
  Only<shard_action::StoreMeasure>(Measure(request));
}

TEST_F(ShardOrdersTest, AFailedApplyKeepsTheVersionAndItsMarks) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  EXPECT_THAT(Pull(5), IsEmpty());
  ps::ApplyRequest request = ApplyRequest(5, {{0, 10}});
  request.set_marks("of version 5");
  Only<shard_action::StoreApply>(Apply(request));
  const absl::Status failure = absl::InternalError("no thread");
  const ShardActions failed = shard_->Handle(shard_event::StoreApplied{failure});
  ASSERT_EQ(failed.size(), 1u) << "the pull must go on waiting";
  EXPECT_EQ(Only<shard_action::ReplyApply>(failed).reply.status(), failure);
  EXPECT_EQ(shard_->version(), 4u);
  EXPECT_EQ(shard_->State().held_size(), 1);
  EXPECT_EQ(Only<shard_action::StoreSnapshot>(Snapshot(4)).marks, "");
}

TEST_F(ShardOrdersTest, ASnapshotGetsTheMarksOfItsVersion) {
  Restored(2, 4);
  for (const uint64_t step : {5, 6}) {
    PushAll(step, 0, 10);
    ps::ApplyRequest request = ApplyRequest(step, {{0, 10}});
    request.set_marks("of version " + std::to_string(step));
    Only<shard_action::StoreApply>(Apply(request));
    shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  }
  EXPECT_EQ(Only<shard_action::StoreSnapshot>(Snapshot(5)).marks, "of version 5");
  shard_->Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
  EXPECT_EQ(Only<shard_action::StoreSnapshot>(Snapshot(6)).marks, "of version 6");
}

TEST_F(ShardOrdersTest, AFailedSnapshotIsWrittenAgainWhenItIsAskedForAgain) {
  EXPECT_EQ(KindOf(Only<shard_action::ReplySnapshot>(Snapshot(4)).reply.status()),
            ps::ErrorDetail::NOT_READY);
  Restored(2, 4);
  Only<shard_action::StoreSnapshot>(Snapshot(4));
  const absl::Status failure = absl::ResourceExhaustedError("disk full");
  const ShardActions failed = shard_->Handle(shard_event::StoreSnapshotDone{failure});
  EXPECT_EQ(Only<shard_action::ReplySnapshot>(failed).reply.status(), failure);
  EXPECT_EQ(Only<shard_action::StoreSnapshot>(Snapshot(4)).step, 4u);
}

// The folder of the checkpoint belongs to the epoch, so the file of the earlier epoch is gone.
TEST_F(ShardOrdersTest, ASnapshotOfAnEarlierEpochIsNotReused) {
  Restored(2, 4);
  Only<shard_action::StoreSnapshot>(Snapshot(4));
  shard_->Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
  Restored(3, 4);
  shard_event::Snapshot event;
  event.request.set_run_id(kRun);
  event.request.set_epoch(3);
  event.request.set_step(4);
  event.request.set_attempt(1);
  EXPECT_EQ(Only<shard_action::StoreSnapshot>(shard_->Handle(event)).step, 4u);
}

TEST_F(ShardOrdersTest, ARestoreWaitsForTheSnapshotUnderWay) {
  Restored(2, 4);
  Only<shard_action::StoreSnapshot>(Snapshot(4));
  EXPECT_THAT(Restore(3, 4), IsEmpty());
  const ShardActions done = shard_->Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
  EXPECT_EQ(Only<shard_action::StoreRestore>(done).id.version, 4u);
}

TEST_F(ShardOrdersTest, ARepeatedRestoreIsCarriedOutOnce) {
  Only<shard_action::StoreRestore>(Restore(2, 4));
  EXPECT_THAT(Restore(2, 4), IsEmpty());
  const ShardActions done = shard_->Handle(shard_event::StoreRestored{""});
  ASSERT_EQ(done.size(), 2u);
  for (const ShardAction& action : done) {
    EXPECT_EQ(std::get<shard_action::ReplyRestore>(action).reply->version(), 4u);
  }
}

TEST_F(ShardOrdersTest, ARestoreEndsTheMeasurementAndTheApplyOfTheOldEpoch) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  const ps::ApplyRequest request = ApplyRequest(5, {{0, 10}});
  Only<shard_action::StoreMeasure>(Measure(request));
  EXPECT_THAT(Apply(request), IsEmpty());
  const ShardActions restoring = Restore(3, 4);
  ASSERT_EQ(restoring.size(), 2u);
  EXPECT_EQ(KindOf(Refusal(restoring)), ps::ErrorDetail::EPOCH_CHANGED);
  const absl::Status over = Only<shard_action::ReplyApply>(restoring).reply.status();
  EXPECT_EQ(KindOf(over), ps::ErrorDetail::EPOCH_CHANGED);
  EXPECT_EQ(GetErrorDetail(over).epoch(), 3u);
  const ShardActions measured = shard_->Handle(shard_event::StoreMeasured{std::vector{1.0, 2.0}});
  ASSERT_EQ(measured.size(), 1u) << "the old apply must not begin";
  Only<shard_action::StoreRestore>(measured);
  EXPECT_EQ(shard_->Handle(shard_event::StoreRestored{""}).size(), 1u);
}

TEST_F(ShardOrdersTest, ChecksEveryRestore) {
  Restored(2, 4);
  shard_event::Restore event = RestoreOf(3);
  event.request.set_run_id("another");
  EXPECT_EQ(KindOf(RestoreStatus(event)), ps::ErrorDetail::WRONG_RUN);
  event = RestoreOf(uint64_t{1} << 40);
  EXPECT_TRUE(absl::IsInvalidArgument(RestoreStatus(event)));
  event = RestoreOf(3);
  event.request.add_boot_ids(6);
  event.request.add_boot_ids(5);
  EXPECT_EQ(KindOf(RestoreStatus(event)), ps::ErrorDetail::EPOCH_CHANGED) << "shard 0 has 5";
  EXPECT_EQ(shard_->epoch(), 2u);
}

// The store asks task 0 before it obeys, and so learns that the job has other settings now. A
// refusal here would make the coordinator begin one epoch after another.
TEST_F(ShardOrdersTest, ARestoreOfAnotherNumberOfTasksGoesToTheStore) {
  for (const int tasks : {1, 3}) {
    MakeShard(/*sync=*/true, /*tasks=*/2);
    shard_event::Restore event = RestoreOf(3);
    for (int task = 0; task < tasks; ++task) event.request.add_boot_ids(5 + task);
    EXPECT_EQ(Only<shard_action::StoreRestore>(shard_->Handle(event)).tasks, tasks);
  }
}

TEST_F(ShardOrdersTest, AShardThatHoldsNothingSaysSo) {
  ShardOptions options;
  options.run_id = kRun;
  options.tasks = 3;
  options.shard = 2;
  options.boot_id = 5;
  options.chunk_elements = {2, 1};
  shard_ = std::make_unique<ShardAggregator>(options);
  const ps::ShardStateReply state = shard_->State();
  EXPECT_EQ(state.run_id(), "");
  EXPECT_EQ(state.job_run_id(), kRun);
  EXPECT_EQ(state.shard(), 2u);
  EXPECT_EQ(state.protocol_version(), kProtocolVersion);
  const absl::Status refused = RestoreStatus(RestoreOf(2));
  EXPECT_TRUE(absl::IsFailedPrecondition(refused)) << refused;
  EXPECT_THAT(std::string(refused.message()),
              HasSubstr("version 4 of epoch 1 is not held; held: none"));
}

TEST_F(ShardOrdersTest, StateNamesTheEpochOnceItIsRestored) {
  Restore(2, 4);
  EXPECT_EQ(shard_->State().epoch(), 0u);
  shard_->Handle(shard_event::StoreRestored{""});
  EXPECT_EQ(shard_->State().epoch(), 2u);
}

TEST_F(ShardOrdersTest, ServesAndCancelsWaitingPullsOneByOne) {
  Restored(2, 4);
  EXPECT_THAT(Pull(6), IsEmpty());
  const CallId first = call_;
  EXPECT_THAT(Pull(5), IsEmpty());
  const CallId second = call_;
  EXPECT_THAT(Pull(5), IsEmpty());
  shard_->Handle(shard_event::Cancel{call_});
  PushAll(5, 0, 10);
  Apply(ApplyRequest(5, {{0, 10}}));
  const ShardActions applied = shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  const auto& served = Only<shard_action::ServePull>(applied);
  EXPECT_EQ(served.call, second);
  EXPECT_EQ(served.epoch, 2u);
  EXPECT_EQ(Only<shard_action::ServePull>(Pull(5, /*exact=*/true)).version, 5u);
  EXPECT_EQ(Only<shard_action::ServePull>(Pull(3)).version, 5u) << "a newer version will do";
  PushAll(6, 0, 10);
  Apply(ApplyRequest(6, {{0, 10}}));
  const ShardActions next = shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  EXPECT_EQ(Only<shard_action::ServePull>(next).call, first);
}

// The caller must learn that its epoch is over, whatever else it asks for.
TEST_F(ShardOrdersTest, AnOrderOfAnOldEpochIsNeitherAnsweredNorJoined) {
  Restored(2, 4);
  const auto status = [this](uint64_t step) {
    ps::ApplyRequest request = ApplyRequest(step, {{0, 10}});
    request.set_epoch(1);
    return Only<shard_action::ReplyApply>(Apply(request)).reply.status();
  };
  EXPECT_EQ(KindOf(status(4)), ps::ErrorDetail::EPOCH_CHANGED) << "step 4 is applied";
  PushAll(5, 0, 10);
  Only<shard_action::StoreApply>(Apply(ApplyRequest(5, {{0, 10}})));
  EXPECT_EQ(KindOf(status(5)), ps::ErrorDetail::EPOCH_CHANGED) << "step 5 is being applied";
}

TEST_F(ShardOrdersTest, ASnapshotForAnotherRunIsRefused) {
  Restored(2, 4);
  const auto status = [this] {
    shard_event::Snapshot event;
    event.request.set_run_id("another");
    event.request.set_epoch(2);
    event.request.set_step(4);
    event.request.set_attempt(1);
    return Only<shard_action::ReplySnapshot>(shard_->Handle(event)).reply.status();
  };
  Only<shard_action::StoreSnapshot>(Snapshot(4));
  EXPECT_EQ(KindOf(status()), ps::ErrorDetail::WRONG_RUN) << "the snapshot is being written";
  shard_->Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
  EXPECT_EQ(KindOf(status()), ps::ErrorDetail::WRONG_RUN) << "the snapshot is there";
}

TEST_F(ShardOrdersTest, AnApplyOfWhatIsNotThereDoesNotWaitForTheStore) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  Only<shard_action::StoreMeasure>(Measure(ApplyRequest(5, {{0, 10}})));
  const ShardActions refused = Apply(ApplyRequest(5, {{1, 11}}));
  EXPECT_TRUE(absl::IsInternal(Only<shard_action::ReplyApply>(refused).reply.status()));
  const absl::Status too_new =
      Only<shard_action::ReplyApply>(Apply(ApplyRequest(6, {}))).reply.status();
  EXPECT_EQ(KindOf(too_new), ps::ErrorDetail::STEP_TOO_NEW);
  EXPECT_EQ(GetErrorDetail(too_new).step(), 5u);
}

TEST_F(ShardOrdersTest, AFailedRestoreIsReportedToEachCaller) {
  Restore(2, 4);
  Restore(2, 4);
  const absl::Status failure = absl::NotFoundError("no memory");
  const ShardActions failed = shard_->Handle(shard_event::StoreRestored{failure});
  ASSERT_EQ(failed.size(), 2u);
  for (const ShardAction& action : failed) {
    EXPECT_EQ(std::get<shard_action::ReplyRestore>(action).reply.status(), failure);
  }
}

TEST_F(ShardOrdersTest, ACheckpointTakesTheBufferThatHoldsNothing) {
  Restored(2, 4);
  ASSERT_EQ(shard_->State().held_size(), 1);
  shard_event::Restore event = RestoreOf(3);
  event.request.set_step(9);
  event.request.set_source(ps::RestoreRequest::CHECKPOINT);
  Only<shard_action::StoreRestore>(shard_->Handle(event));
  EXPECT_EQ(shard_->State().held_size(), 1) << "version 4 stays until the checkpoint is read";
}

TEST_F(ShardOrdersTest, ClonesOfTheNewEpochWaitUntilItIsRestored) {
  Restore(2, 4);
  EXPECT_EQ(KindOf(Push(Header(5, 0, 10, 0))), ps::ErrorDetail::NOT_READY);
  shard_->Handle(shard_event::StoreRestored{""});
  EXPECT_EQ(Push(Header(5, 0, 10, 0)), absl::OkStatus());
  const absl::Status reason = absl::CancelledError("stopped");
  shard_->Handle(shard_event::Close{reason});
  EXPECT_EQ(Only<shard_action::RefusePull>(Pull(4)).status, reason);
}

TEST_F(ShardOrdersTest, WithSeveralTasksTheCommitOfAPushGoesToTask0Only) {
  Restored(2, 4);
  ps::PushChunk last = Header(5, 0, 10, 1);
  last.mutable_commit()->set_samples(32);
  const auto incomplete = Finish(last);
  EXPECT_EQ(incomplete->outcome(), ps::PushReply::INCOMPLETE);
  EXPECT_EQ(incomplete->level(), ps::LEVEL_UNKNOWN);
  PushAll(5, 0, 10);
  EXPECT_EQ(Finish(last)->level(), ps::STAGED);
  EXPECT_THAT(std::string(Push(Header(6, 0, 10, 0)).message()),
              HasSubstr("shard 0 expects contributions for step 5, not 6"));
}

TEST_F(ShardOrdersTest, RefusesAChunkOfAnotherShard) {
  Restored(2, 4);
  ps::PushChunk header = Header(5, 0, 10, 0);
  header.set_shard(1);
  const absl::Status status = Push(header);
  EXPECT_EQ(KindOf(status), ps::ErrorDetail::BAD_CHUNK);
  EXPECT_THAT(std::string(status.message()), HasSubstr("chunk 0 of shard 1 with 8 bytes"));
}

TEST_F(ShardOrdersTest, APushToStepThatIsBeingAppliedIsLate) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  Only<shard_action::StoreApply>(Apply(ApplyRequest(5, {{0, 10}})));
  EXPECT_EQ(Push(Header(5, 1, 11, 0)), absl::OkStatus());
  EXPECT_EQ(shard_->duplicate_chunks(), 1u);
  EXPECT_EQ(shard_->staged_bytes(), 0);
  const auto reply = Finish(Header(5, 1, 11, 1));
  EXPECT_EQ(reply->outcome(), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(reply->level(), ps::APPLIED);
  EXPECT_EQ(reply->version(), 4u);
}

TEST_F(ShardOrdersTest, ChecksTheEndOfAPush) {
  MakeShard(/*sync=*/true, /*tasks=*/1);
  Restored(2, 4);
  ps::PushChunk last = Header(5, 0, 10, 1);
  last.mutable_key()->set_run_id("another");
  EXPECT_EQ(KindOf(Finish(last).status()), ps::ErrorDetail::WRONG_RUN);
  EXPECT_EQ(KindOf(Finish(Header(6, 0, 10, 1)).status()), ps::ErrorDetail::STEP_TOO_NEW);
  PushAll(5, 0, 10);
  EXPECT_EQ(Finish(Header(5, 0, 10, 1))->outcome(), ps::PushReply::ACCEPTED)
      << "a push without a commit is staged, and nothing else happens";
}

TEST(PushReplyOf, HasAllThatTheCommitHas) {
  ps::CommitReply commit;
  commit.set_outcome(ps::PushReply::VOID);
  commit.set_level(ps::COMMITTED);
  commit.set_version(3);
  commit.set_staleness(4);
  commit.set_new_grants_step(5);
  const absl::StatusOr<ps::PushReply> reply = PushReplyOf(commit);
  ASSERT_TRUE(reply.ok()) << reply.status();
  EXPECT_EQ(reply->outcome(), ps::PushReply::VOID);
  EXPECT_EQ(reply->level(), ps::COMMITTED);
  EXPECT_EQ(reply->version(), 3u);
  EXPECT_EQ(reply->staleness(), 4u);
  EXPECT_EQ(reply->new_grants_step(), 5u);
  const absl::Status refused = absl::UnavailableError("later");
  EXPECT_EQ(PushReplyOf(refused).status(), refused);
}

TEST(ChunkElements, AreTheSizesOfTheShardsChunks) {
  const Sharding sharding(2 * Sharding::kChunkElements + 10, /*tasks=*/2);
  for (const int shard : {0, 1}) {
    const std::vector<int64_t> elements = ChunkElements(sharding, shard);
    ASSERT_EQ(elements.size(), sharding.num_chunks(shard));
    int64_t sum = 0;
    for (const int64_t chunk : elements) sum += chunk;
    EXPECT_EQ(elements[0], Sharding::kFirstChunkElements);
    EXPECT_EQ(sum, sharding.shard(shard).size());
  }
}

}  // namespace
}  // namespace pushpull
