#include "ps_server/core/shard_aggregator.h"

#include <string>
#include <variant>
#include <vector>

#include "gtest/gtest.h"

#include "tests/ps_server/core/shard_aggregator_driver.h"

namespace pushpull {
namespace {

TEST_F(ShardAggregatorTest, AnswersOnlyStateCallsBeforeItIsRestored) {
  EXPECT_EQ(KindOf(Push(Header(5, 0, 10, 0))), ps::ErrorDetail::NOT_READY);
  EXPECT_EQ(KindOf(Only<shard_action::RefusePull>(Pull(0)).status), ps::ErrorDetail::NOT_READY);
  EXPECT_EQ(KindOf(Only<shard_action::ReplyApply>(Apply(ApplyRequest(5, {}))).reply.status()),
            ps::ErrorDetail::NOT_READY);
  const ps::ShardStateReply state = shard_->State();
  EXPECT_EQ(state.run_id(), kRun);
  EXPECT_EQ(state.boot_id(), 5u);
  EXPECT_EQ(state.epoch(), 0u);
  EXPECT_EQ(state.held_size(), 2);
  EXPECT_EQ(state.held(1).version(), 4u);
}

TEST_F(ShardAggregatorTest, StagesAppliesAndServes) {
  Restored(2, 4);
  EXPECT_EQ(Finish(Header(5, 1, 11, 1))->outcome(), ps::PushReply::INCOMPLETE);
  PushAll(5, 1, 11);
  PushAll(5, 0, 10);
  EXPECT_EQ(shard_->staged_bytes(), 24);
  const auto reply = Finish(Header(5, 1, 11, 1));
  EXPECT_EQ(reply->outcome(), ps::PushReply::ACCEPTED);
  EXPECT_EQ(reply->level(), ps::STAGED);
  EXPECT_TRUE(Pull(5).empty());  // waits for version 5

  const ShardActions actions = Apply(ApplyRequest(5, {{0, 10}, {1, 11}}));
  const auto& apply = Only<shard_action::StoreApply>(actions);
  ASSERT_EQ(apply.contributions.size(), 2u);
  EXPECT_EQ(apply.contributions[0].replica, 0u);  // sorted by replica, not by arrival
  EXPECT_EQ(apply.contributions[1].samples, 2u);
  EXPECT_EQ(apply.contributions[1].chunks.size(), 2u);
  EXPECT_EQ(shard_->staged_bytes(), 0);
  EXPECT_EQ(Only<shard_action::ServePull>(Pull(4)).version, 4u);  // served during the apply

  const ShardActions applied = shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  EXPECT_EQ(Only<shard_action::ReplyApply>(applied).reply->version(), 5u);
  EXPECT_EQ(Only<shard_action::ServePull>(applied).version, 5u);
  EXPECT_EQ(shard_->State().held_size(), 2);
}

TEST_F(ShardAggregatorTest, ChecksEveryChunk) {
  Restored(2, 4);
  ps::PushChunk header = Header(5, 0, 10, 0);
  header.mutable_key()->set_run_id("another");
  EXPECT_EQ(KindOf(Push(header)), ps::ErrorDetail::WRONG_RUN);
  header = Header(5, 0, 10, 0);
  header.mutable_key()->set_epoch(1);
  EXPECT_EQ(KindOf(Push(header)), ps::ErrorDetail::EPOCH_CHANGED);
  EXPECT_EQ(GetErrorDetail(Push(header)).epoch(), 2u);
  header.mutable_key()->set_epoch(3);
  EXPECT_EQ(KindOf(Push(header)), ps::ErrorDetail::NOT_READY);
  EXPECT_EQ(KindOf(Push(Header(6, 0, 10, 0))), ps::ErrorDetail::STEP_TOO_NEW);
  EXPECT_EQ(GetErrorDetail(Push(Header(6, 0, 10, 0))).step(), 5u);
  EXPECT_EQ(KindOf(Push(Header(5, 0, 10, 2))), ps::ErrorDetail::BAD_CHUNK);
  EXPECT_EQ(KindOf(Push(Header(5, 0, 10, 1 << 30))), ps::ErrorDetail::BAD_CHUNK);
  EXPECT_EQ(KindOf(Push(Header(5, kMaxReplicas, 10, 0))), ps::ErrorDetail::BAD_CHUNK);
  header = Header(5, 0, 10, 1);
  EXPECT_EQ(KindOf(shard_->PushChunk(header, {nullptr, nullptr, 8}, absl::OkStatus())),
            ps::ErrorDetail::BAD_CHUNK);
  // A chunk of half as many bytes is accepted only with the matching encoding.
  EXPECT_EQ(KindOf(shard_->PushChunk(header, {nullptr, nullptr, 2}, absl::OkStatus())),
            ps::ErrorDetail::BAD_CHUNK);
  header.set_encoding(static_cast<ps::GradientEncoding>(9));
  EXPECT_EQ(KindOf(shard_->PushChunk(header, {nullptr, nullptr, 4}, absl::OkStatus())),
            ps::ErrorDetail::BAD_CHUNK);
  header.set_encoding(ps::BFLOAT16);
  EXPECT_EQ(KindOf(shard_->PushChunk(header, {nullptr, nullptr, 4}, absl::OkStatus())),
            ps::ErrorDetail::BAD_CHUNK);
  EXPECT_TRUE(absl::IsDataLoss(Push(Header(5, 0, 10, 0), absl::DataLossError("damaged"))));
  EXPECT_EQ(shard_->staged_bytes(), 0);

  EXPECT_TRUE(Push(Header(5, 0, 10, 0)).ok());
  EXPECT_TRUE(Push(Header(5, 0, 10, 0)).ok());
  EXPECT_EQ(shard_->duplicate_chunks(), 1u);
  header = Header(5, 0, 10, 0);
  header.set_crc32c(1);
  EXPECT_EQ(KindOf(Push(header)), ps::ErrorDetail::CHUNK_CONFLICT);
  EXPECT_TRUE(Push(Header(5, 0, 12, 0)).ok());
  EXPECT_TRUE(absl::IsPermissionDenied(Push(Header(5, 0, 10, 1))));
  EXPECT_EQ(KindOf(Finish(Header(5, 0, 10, 1)).status()), ps::ErrorDetail::FENCED);
  EXPECT_TRUE(Push(Header(4, 0, 10, 0)).ok());  // already applied
  EXPECT_EQ(Finish(Header(4, 0, 10, 1))->outcome(), ps::PushReply::ALREADY_APPLIED);
  EXPECT_EQ(shard_->staged_bytes(), 8);

  const int64_t staged = shard_->staged_bytes();
  header = Header(5, 1, 10, 1);
  header.set_encoding(ps::BFLOAT16);
  EXPECT_TRUE(shard_->PushChunk(header, {nullptr, nullptr, 2}, absl::OkStatus()).ok());
  EXPECT_EQ(shard_->staged_bytes(), staged + 2);
}

TEST_F(ShardAggregatorTest, WithOneTaskTheLastChunkCarriesTheCommit) {
  MakeShard(true, 1);
  Restored(2, 4);
  ps::PushChunk last = Header(5, 0, 10, 1);
  last.mutable_commit()->set_samples(32);
  EXPECT_EQ(Finish(last)->outcome(), ps::PushReply::INCOMPLETE);
  PushAll(5, 0, 10);
  const ShardActions actions = shard_->Handle(shard_event::FinishPush{77, last});
  const auto& commit = Only<shard_action::CommitPush>(actions);
  EXPECT_EQ(commit.call, 77u);
  EXPECT_EQ(commit.request.info().samples(), 32u);
  EXPECT_EQ(commit.request.key().grant(), 10u);
  // A late push is passed on as well, because the coordinator counts late pushes.
  last.mutable_key()->set_step(4);
  Only<shard_action::CommitPush>(shard_->Handle(shard_event::FinishPush{78, last}));
}

TEST_F(ShardAggregatorTest, ApplyingTwiceIsANoOp) {
  Restored(2, 4);
  Applied(5);
  const ShardActions again = Apply(ApplyRequest(5, {{0, 10}}));
  EXPECT_EQ(Only<shard_action::ReplyApply>(again).reply->version(), 5u);
  EXPECT_EQ(again.size(), 1u);
  PushAll(6, 0, 10);
  EXPECT_EQ(Apply(ApplyRequest(6, {{0, 10}})).size(), 1u);
  EXPECT_TRUE(Apply(ApplyRequest(6, {{0, 10}})).empty());  // answered together with the first call
  EXPECT_EQ(shard_->Handle(shard_event::StoreApplied{absl::OkStatus()}).size(), 2u);
}

TEST_F(ShardAggregatorTest, RefusesToApplyContributionsItDoesNotHold) {
  Restored(2, 4);
  EXPECT_TRUE(Push(Header(5, 0, 10, 0)).ok());
  EXPECT_TRUE(absl::IsInternal(
      Only<shard_action::ReplyApply>(Apply(ApplyRequest(5, {{0, 10}}))).reply.status()));
  EXPECT_EQ(KindOf(Only<shard_action::ReplyApply>(Apply(ApplyRequest(6, {}))).reply.status()),
            ps::ErrorDetail::STEP_TOO_NEW);
  ps::ApplyRequest old = ApplyRequest(5, {});
  old.set_epoch(1);
  EXPECT_EQ(KindOf(Only<shard_action::ReplyApply>(Apply(old)).reply.status()),
            ps::ErrorDetail::EPOCH_CHANGED);
}

TEST_F(ShardAggregatorTest, MeasuresNormsBeforeItApplies) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  const ps::ApplyRequest request = ApplyRequest(5, {{0, 10}});
  Only<shard_action::StoreMeasure>(shard_->Handle(shard_event::MeasureNorm{1, request}));
  EXPECT_TRUE(shard_->Handle(shard_event::MeasureNorm{2, request}).empty());
  ps::ApplyRequest apply = request;
  apply.add_variable_squared_norms(2.5);
  EXPECT_TRUE(Apply(apply).empty());  // waits for the store
  const ShardActions measured = shard_->Handle(shard_event::StoreMeasured{std::vector{1.5, 0.25}});
  ASSERT_EQ(measured.size(), 3u);
  EXPECT_EQ(std::get<shard_action::ReplyNorm>(measured[1]).reply->variable_squared_norms(1), 0.25);
  EXPECT_EQ(Only<shard_action::StoreApply>(measured).variable_squared_norms,
            std::vector<double>{2.5});
}

TEST_F(ShardAggregatorTest, RefusesAnApplyWhoseContributionWasDroppedMeanwhile) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  const ps::ApplyRequest request = ApplyRequest(5, {{0, 10}});
  Only<shard_action::StoreMeasure>(shard_->Handle(shard_event::MeasureNorm{1, request}));
  EXPECT_TRUE(Apply(request).empty());          // waits for the store
  EXPECT_TRUE(Push(Header(5, 0, 11, 0)).ok());  // the newer grant drops the contribution
  const ShardActions measured = shard_->Handle(shard_event::StoreMeasured{std::vector{1.5, 0.25}});
  ASSERT_EQ(measured.size(), 2u);
  EXPECT_TRUE(absl::IsInternal(std::get<shard_action::ReplyApply>(measured[1]).reply.status()));
}

TEST_F(ShardAggregatorTest, APullNamesItsFloat32ChunksOnceAndInOrder) {
  Restored(2, 4);
  for (const std::vector<uint32_t>& good :
       std::vector<std::vector<uint32_t>>{{}, {0}, {1}, {0, 1}}) {
    EXPECT_TRUE(Pull(5, false, good).empty()) << "it waits for version 5";
  }
  for (const std::vector<uint32_t>& bad :
       std::vector<std::vector<uint32_t>>{{2}, {0, 0}, {1, 0}, {0, 1, 1}, {~0u}}) {
    const absl::Status status = Only<shard_action::RefusePull>(Pull(5, false, bad)).status;
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
    EXPECT_EQ(KindOf(status), ps::ErrorDetail::BAD_CHUNK);
  }
}

TEST_F(ShardAggregatorTest, PullsCanWaitBeCancelledAndBeRefused) {
  Restored(2, 4);
  EXPECT_EQ(KindOf(Only<shard_action::RefusePull>(Pull(3, true)).status),
            ps::ErrorDetail::VERSION_GONE);
  EXPECT_TRUE(Pull(5).empty());
  shard_->Handle(shard_event::Cancel{call_});
  EXPECT_TRUE(Pull(5).empty());
  const CallId waiting = call_;
  const ShardActions actions = Restore(3, 4);
  EXPECT_EQ(Only<shard_action::RefusePull>(actions).call, waiting);
  EXPECT_EQ(KindOf(Only<shard_action::RefusePull>(actions).status), ps::ErrorDetail::EPOCH_CHANGED);
}

// The restore names the boot id of the previous process of this shard.
TEST_F(ShardAggregatorTest, RefusesARestoreMeantForAnEarlierProcess) {
  shard_event::Restore event;
  event.call = 1;
  event.request.set_run_id(kRun);
  event.request.set_epoch(2);
  event.request.set_step(4);
  event.request.set_version_epoch(1);
  event.request.add_boot_ids(4);
  event.request.add_boot_ids(6);
  EXPECT_EQ(KindOf(Only<shard_action::ReplyRestore>(shard_->Handle(event)).reply.status()),
            ps::ErrorDetail::EPOCH_CHANGED);
  event.request.set_boot_ids(0, 5);
  Only<shard_action::StoreRestore>(shard_->Handle(event));
}

TEST_F(ShardAggregatorTest, ARestoreDropsEverythingOfTheOldEpoch) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  Restored(3, 4);
  EXPECT_EQ(shard_->staged_bytes(), 0);
  EXPECT_EQ(shard_->epoch(), 3u);
  EXPECT_EQ(KindOf(Push(Header(5, 0, 10, 0))), ps::ErrorDetail::EPOCH_CHANGED);
  // Repeating the restore is harmless. A restore of an older epoch is refused.
  EXPECT_TRUE(Only<shard_action::ReplyRestore>(Restore(3, 4)).reply.ok());
  EXPECT_EQ(KindOf(Only<shard_action::ReplyRestore>(Restore(2, 4)).reply.status()),
            ps::ErrorDetail::EPOCH_CHANGED);
}

TEST_F(ShardAggregatorTest, ARestoreWaitsForTheApplyUnderWay) {
  Restored(2, 4);
  PushAll(5, 0, 10);
  Apply(ApplyRequest(5, {{0, 10}}));
  const ShardActions restoring = Restore(3, 4);
  EXPECT_EQ(KindOf(Only<shard_action::ReplyApply>(restoring).reply.status()),
            ps::ErrorDetail::EPOCH_CHANGED);
  EXPECT_EQ(restoring.size(), 1u);
  const ShardActions actions = shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  EXPECT_EQ(Only<shard_action::StoreRestore>(actions).id.version, 4u);
  shard_->Handle(shard_event::StoreRestored{""});
  EXPECT_EQ(shard_->version(), 4u);
  EXPECT_EQ(shard_->State().held_size(), 1);
}

TEST_F(ShardAggregatorTest, AFailedRestoreCanBeRepeated) {
  Restore(2, 4);
  const ShardActions failed =
      shard_->Handle(shard_event::StoreRestored{absl::NotFoundError("version 4 is not held")});
  EXPECT_TRUE(absl::IsNotFound(Only<shard_action::ReplyRestore>(failed).reply.status()));
  EXPECT_EQ(shard_->State().epoch(), 0u);
  Restored(2, 3);
}

TEST_F(ShardAggregatorTest, ASnapshotKeepsTheBufferOfItsVersion) {
  Restored(2, 4);
  EXPECT_EQ(Only<shard_action::StoreSnapshot>(Snapshot(4)).step, 4u);
  EXPECT_TRUE(Snapshot(4).empty());
  Applied(5);  // written to the other buffer
  PushAll(6, 0, 10);
  EXPECT_TRUE(Apply(ApplyRequest(6, {{0, 10}})).empty());
  EXPECT_TRUE(absl::IsUnavailable(Only<shard_action::ReplySnapshot>(Snapshot(5)).reply.status()));
  const ShardActions written = shard_->Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
  ASSERT_EQ(written.size(), 3u) << "expected two snapshot replies and the apply that waited";
  EXPECT_EQ(std::get<shard_action::StoreApply>(written[2]).step, 6u);
  // The reply is kept for repeated calls.
  EXPECT_TRUE(Only<shard_action::ReplySnapshot>(Snapshot(4)).reply.ok());
  EXPECT_EQ(KindOf(Only<shard_action::ReplySnapshot>(Snapshot(3)).reply.status()),
            ps::ErrorDetail::VERSION_GONE);
}

// A failed checkpoint takes the files of all shards with it.
TEST_F(ShardAggregatorTest, AnotherAttemptOfACheckpointWritesTheFileAgain) {
  Restored(2, 4);
  Only<shard_action::StoreSnapshot>(Snapshot(4, 1));
  EXPECT_TRUE(absl::IsUnavailable(Only<shard_action::ReplySnapshot>(Snapshot(4, 2)).reply.status()))
      << "a file that is written for an earlier attempt may be removed with it";
  shard_->Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
  EXPECT_TRUE(Only<shard_action::ReplySnapshot>(Snapshot(4, 1)).reply.ok());
  EXPECT_EQ(Only<shard_action::StoreSnapshot>(Snapshot(4, 2)).step, 4u);
}

TEST_F(ShardAggregatorTest, AClosedShardRefusesWorkers) {
  Restored(2, 4);
  EXPECT_TRUE(Pull(5).empty());
  const absl::Status reason = absl::CancelledError("stopped");
  EXPECT_EQ(Only<shard_action::RefusePull>(shard_->Handle(shard_event::Close{reason})).status,
            reason);
  EXPECT_EQ(Push(Header(5, 0, 10, 0)), reason);
  EXPECT_EQ(Finish(Header(5, 0, 10, 0)).status(), reason);
  Only<shard_action::StoreSnapshot>(Snapshot(4));  // the coordinator is still served
}

// Step 5 is applied from one sample of replica 0 and two samples of replica 1.
class ShardAggregatorAheadTest : public ShardAggregatorTest {
 protected:
  ShardAggregatorAheadTest() {
    Restored(2, 4);
    MakeStep(5, ApplyRequest(5, {{0, 10}, {1, 11}}));
  }

  void MakeStep(uint64_t step, const ps::ApplyRequest& request) {
    PushAll(step, 0, 10);
    PushAll(step, 1, 11);
    shard_->TakeAhead();
    Only<shard_action::StoreApply>(Apply(request));
    EXPECT_TRUE(shard_->TakeAhead().empty());
    shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  }
  // Returns the orders to the store after chunk 1 of both replicas has arrived.
  ShardActions AfterChunk(uint64_t step) {
    EXPECT_TRUE(Push(Header(step, 1, 11, 1)).ok());
    EXPECT_TRUE(shard_->TakeAhead().empty());
    EXPECT_TRUE(Push(Header(step, 0, 10, 1)).ok());
    return shard_->TakeAhead();
  }
};

TEST_F(ShardAggregatorAheadTest, AppliesAChunkOnceTheContributorsOfTheLastStepHaveSentIt) {
  const auto order = Only<shard_action::StoreApplyAhead>(AfterChunk(6));
  EXPECT_EQ(order.step, 6u);
  EXPECT_EQ(order.chunk, 1u);
  ASSERT_EQ(order.contributions.size(), 2u);
  for (uint32_t replica : {0, 1}) {
    EXPECT_EQ(order.contributions[replica].replica, replica);
    EXPECT_EQ(order.contributions[replica].samples, replica + 1);
    EXPECT_EQ(order.contributions[replica].chunk.payload.size_bytes, 4u);
  }
  // The chunk is applied ahead only once.
  EXPECT_TRUE(Push(Header(6, 0, 10, 1)).ok());
  EXPECT_TRUE(shard_->TakeAhead().empty());
  // The step itself is still applied as usual.
  EXPECT_TRUE(Push(Header(6, 0, 10, 0)).ok());
  EXPECT_TRUE(Push(Header(6, 1, 11, 0)).ok());
  EXPECT_EQ(shard_->TakeAhead().size(), 1u);
  EXPECT_EQ(Only<shard_action::StoreApply>(Apply(ApplyRequest(6, {{0, 10}, {1, 11}}))).step, 6u);
}

TEST_F(ShardAggregatorAheadTest, ApplyingAheadDropsTheOlderVersion) {
  AfterChunk(6);
  EXPECT_EQ(shard_->State().held_size(), 1);
  EXPECT_EQ(KindOf(Only<shard_action::ReplySnapshot>(Snapshot(4)).reply.status()),
            ps::ErrorDetail::VERSION_GONE);
}

TEST_F(ShardAggregatorAheadTest, WaitsForASnapshotOfTheBufferItWouldOverwrite) {
  Only<shard_action::StoreSnapshot>(Snapshot(4));
  EXPECT_TRUE(AfterChunk(6).empty());
  shard_->Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
  EXPECT_TRUE(Push(Header(6, 0, 10, 0)).ok());
  EXPECT_TRUE(Push(Header(6, 1, 11, 0)).ok());
  EXPECT_EQ(Only<shard_action::StoreApplyAhead>(shard_->TakeAhead()).chunk, 0u);
}

TEST_F(ShardAggregatorAheadTest, DoesNotWaitForASnapshotOfTheNewestVersion) {
  Only<shard_action::StoreSnapshot>(Snapshot(5));
  EXPECT_EQ(AfterChunk(6).size(), 1u);
}

TEST_F(ShardAggregatorAheadTest, DoesNothingWhileTheStoreApplies) {
  PushAll(6, 0, 10);
  PushAll(6, 1, 11);
  shard_->TakeAhead();
  Apply(ApplyRequest(6, {{0, 10}, {1, 11}}));
  EXPECT_TRUE(AfterChunk(6).empty());
}

TEST_F(ShardAggregatorAheadTest, DoesNothingAfterANewEpoch) {
  PushAll(6, 0, 10);
  shard_->TakeAhead();
  Restored(3, 5);
  ps::PushChunk header = Header(6, 1, 11, 1);
  for (const auto& [replica, grant] : {std::pair(0, 10), std::pair(1, 11)}) {
    header = Header(6, replica, grant, 1);
    header.mutable_key()->set_epoch(3);
    EXPECT_TRUE(Push(header).ok());
  }
  EXPECT_TRUE(shard_->TakeAhead().empty());
}

TEST_F(ShardAggregatorAheadTest, ForgetsOrdersOfTheOldEpoch) {
  PushAll(6, 0, 10);
  PushAll(6, 1, 11);
  Restore(3, 5);
  EXPECT_TRUE(shard_->TakeAhead().empty());
}

TEST_F(ShardAggregatorAheadTest, DoesNothingWhenGradientsAreClipped) {
  ps::ApplyRequest request = ApplyRequest(6, {{0, 10}, {1, 11}});
  request.add_variable_squared_norms(1.0);
  MakeStep(6, request);
  EXPECT_TRUE(AfterChunk(7).empty());
}

TEST_F(ShardAggregatorAheadTest, DoesNotExpectAReplicaWhoseLastContributionWasVoid) {
  ps::ApplyRequest request = ApplyRequest(6, {{0, 10}, {1, 11}});
  request.mutable_contributions(1)->set_samples(0);
  MakeStep(6, request);
  EXPECT_TRUE(Push(Header(7, 0, 10, 1)).ok());
  EXPECT_EQ(Only<shard_action::StoreApplyAhead>(shard_->TakeAhead()).contributions.size(), 1u);
}

TEST_F(ShardAggregatorAheadTest, DoesNothingBeforeTheFirstStep) {
  MakeShard(/*sync=*/true, /*tasks=*/2);
  Restored(2, 4);
  EXPECT_TRUE(AfterChunk(5).empty());
}

// A job of one task, in which the first pushes of replicas 0 and 1 made versions 5 and 6.
class ShardAggregatorAsyncAheadTest : public ShardAggregatorTest {
 protected:
  ShardAggregatorAsyncAheadTest() { MakeAsyncShard(/*tasks=*/1); }

  void MakeAsyncShard(uint32_t tasks) {
    MakeShard(/*sync=*/false, tasks);
    Restored(2, 4);
    MakeVersion(5, 0, 1);
    MakeVersion(6, 1, 1);
  }
  ps::ApplyRequest Request(uint64_t version, uint32_t replica, uint64_t sequence) {
    ps::ApplyRequest request = ApplyRequest(version, {{replica, 10 + replica}});
    request.mutable_contributions(0)->set_sequence(sequence);
    return request;
  }
  void MakeVersion(uint64_t version, uint32_t replica, uint64_t sequence) {
    PushAll(sequence, replica, 10 + replica);
    shard_->TakeAhead();
    EXPECT_EQ(Only<shard_action::StoreApply>(Apply(Request(version, replica, sequence))).step,
              version);
    shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  }
  ShardActions AfterChunk(uint32_t replica, uint64_t sequence, uint32_t chunk) {
    EXPECT_TRUE(Push(Header(sequence, replica, 10 + replica, chunk)).ok());
    return shard_->TakeAhead();
  }
};

TEST_F(ShardAggregatorAsyncAheadTest, AppliesAChunkWhenItArrives) {
  const auto order = Only<shard_action::StoreApplyAhead>(AfterChunk(1, 2, 1));
  EXPECT_EQ(order.step, 7u);
  EXPECT_EQ(order.chunk, 1u);
  ASSERT_EQ(order.contributions.size(), 1u);
  EXPECT_EQ(order.contributions[0].replica, 1u);
  EXPECT_EQ(order.contributions[0].chunk.payload.size_bytes, 4u);
  EXPECT_EQ(shard_->State().held_size(), 1);
  EXPECT_TRUE(AfterChunk(1, 2, 1).empty()) << "the chunk was applied ahead twice";
  EXPECT_EQ(AfterChunk(1, 2, 0).size(), 1u);
  MakeVersion(7, 1, 2);
}

TEST_F(ShardAggregatorAsyncAheadTest, FollowsTheReplicaWhoseChunkArrivesFirst) {
  EXPECT_EQ(AfterChunk(1, 2, 0).size(), 1u);
  EXPECT_TRUE(AfterChunk(0, 2, 0).empty());
  // Replica 0 completes its push first and makes version 7. Chunks applied ahead for replica 1 are
  // discarded, and the next chunk to arrive decides which replica is followed.
  MakeVersion(7, 0, 2);
  EXPECT_EQ(Only<shard_action::StoreApplyAhead>(AfterChunk(1, 2, 1)).step, 8u);
  EXPECT_TRUE(AfterChunk(0, 3, 0).empty());
}

TEST_F(ShardAggregatorAsyncAheadTest, DoesNothingWhileTheStoreApplies) {
  EXPECT_EQ(AfterChunk(1, 2, 0).size(), 1u);
  PushAll(2, 0, 10);
  Apply(Request(7, 0, 2));
  EXPECT_TRUE(AfterChunk(1, 2, 1).empty());
  shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  EXPECT_EQ(Only<shard_action::StoreApplyAhead>(AfterChunk(1, 3, 1)).step, 8u);
}

TEST_F(ShardAggregatorAsyncAheadTest, WaitsForASnapshotOfTheBufferItWouldOverwrite) {
  Only<shard_action::StoreSnapshot>(Snapshot(5));
  EXPECT_TRUE(AfterChunk(0, 2, 0).empty());
  shard_->Handle(shard_event::StoreSnapshotDone{ps::SnapshotReply()});
  EXPECT_EQ(AfterChunk(0, 2, 1).size(), 1u);
}

TEST_F(ShardAggregatorAsyncAheadTest, DoesNothingWithSeveralTasks) {
  MakeAsyncShard(/*tasks=*/2);
  EXPECT_TRUE(AfterChunk(0, 2, 0).empty());
}

TEST_F(ShardAggregatorAsyncAheadTest, IgnoresAReplicaThatHasNotBeenAppliedYet) {
  EXPECT_TRUE(AfterChunk(2, 1, 0).empty());
  EXPECT_EQ(AfterChunk(1, 2, 0).size(), 1u) << "replica 2 must not block replica 1";
}

TEST_F(ShardAggregatorAsyncAheadTest, DoesNothingAfterANewEpoch) {
  Restored(3, 6);
  ps::PushChunk header = Header(2, 0, 10, 1);
  header.mutable_key()->set_epoch(3);
  EXPECT_TRUE(Push(header).ok());
  EXPECT_TRUE(shard_->TakeAhead().empty());
}

}  // namespace
}  // namespace pushpull
