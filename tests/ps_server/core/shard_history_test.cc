// Tests what a shard stores with its versions, and from which of them it can be restored.
#include <string>

#include "gtest/gtest.h"

#include "tests/ps_server/core/shard_aggregator_driver.h"

namespace pushpull {
namespace {

TEST_F(ShardAggregatorTest, MarksAreStoredAndRestoredWithTheirVersion) {
  MakeShard(false, 1);
  Restored(2, 4);
  PushAll(1, 0, 10);
  ps::PushMarks marks;
  marks.set_has_positions(true);
  marks.add_marks()->set_next_position(1);  // replica 0
  ps::ApplyRequest request = ApplyRequest(5, {{0, 10}});
  request.set_marks(marks.SerializeAsString());
  const ShardActions actions = Apply(request);
  const auto& apply = Only<shard_action::StoreApply>(actions);
  EXPECT_EQ(apply.marks, request.marks());
  shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  // Position 0 is already applied, so it is not applied again under any number or grant.
  for (const auto& [number, grant] : {std::pair(1, 10), std::pair(2, 10), std::pair(1, 11)}) {
    EXPECT_TRUE(Push(Header(number, 0, grant, 0)).ok());
    EXPECT_EQ(shard_->staged_bytes(), 0);
    EXPECT_EQ(Finish(Header(number, 0, grant, 1))->outcome(), ps::PushReply::ALREADY_APPLIED);
  }
  ps::PushChunk next = Header(3, 0, 10, 0);  // the worker gave up number 2
  next.mutable_key()->set_position(1);
  EXPECT_TRUE(Push(next).ok());
  EXPECT_GT(shard_->staged_bytes(), 0);

  // A restore returns the marks to the coordinator, also when it is repeated.
  Restore(3, 5);
  const ShardActions restored = shard_->Handle(shard_event::StoreRestored{apply.marks});
  EXPECT_EQ(Only<shard_action::ReplyRestore>(restored).reply->marks(), apply.marks);
  EXPECT_EQ(Only<shard_action::ReplyRestore>(Restore(3, 5)).reply->marks(), apply.marks);
  shard_event::Snapshot snapshot;
  snapshot.request.set_run_id(kRun);
  snapshot.request.set_epoch(3);
  snapshot.request.set_step(5);
  EXPECT_EQ(Only<shard_action::StoreSnapshot>(shard_->Handle(snapshot)).marks, apply.marks);
}

// Lists the held versions as "EPOCH/VERSION", oldest first.
std::string HeldBy(const ShardAggregator& shard) {
  std::string text;
  const ps::ShardStateReply state = shard.State();
  for (const ps::HeldVersion& held : state.held()) {
    text += (text.empty() ? "" : " ") + std::to_string(held.epoch()) + "/" +
            std::to_string(held.version());
  }
  return text;
}

TEST_F(ShardAggregatorTest, ReportsTheEpochInWhichEachVersionWasMade) {
  EXPECT_EQ(HeldBy(*shard_), "1/3 1/4");
  Restored(2, 4);
  EXPECT_EQ(HeldBy(*shard_), "1/4");
  Applied(5);
  EXPECT_EQ(HeldBy(*shard_), "1/4 2/5");
  PushAll(6, 0, 10);
  Apply(ApplyRequest(6, {{0, 10}}));
  EXPECT_EQ(HeldBy(*shard_), "2/5");
  // If a new epoch begins during the apply, the version it makes still belongs to the old epoch.
  Restore(3, 5);
  shard_->Handle(shard_event::StoreApplied{absl::OkStatus()});
  EXPECT_EQ(HeldBy(*shard_), "2/5 2/6");
  shard_->Handle(shard_event::StoreRestored{""});
  EXPECT_EQ(HeldBy(*shard_), "2/5");
}

TEST_F(ShardAggregatorTest, RefusesToRestoreAVersionOfAnotherHistory) {
  shard_event::Restore event;
  event.request.set_run_id(kRun);
  event.request.set_epoch(2);
  event.request.set_step(4);
  event.request.set_version_epoch(6);
  const absl::Status refused =
      Only<shard_action::ReplyRestore>(shard_->Handle(event)).reply.status();
  EXPECT_TRUE(absl::IsFailedPrecondition(refused));
  EXPECT_NE(refused.message().find("version 4 of epoch 6 is not held; held: 3 of epoch 1, 4 of "
                                   "epoch 1"),
            absl::string_view::npos)
      << refused;
  EXPECT_EQ(shard_->State().epoch(), 0u) << "the refused restore must not change the epoch";
  // Restoring that version from a checkpoint works. It keeps the checkpoint's epoch and takes the
  // buffer of the older version.
  event.request.set_source(ps::RestoreRequest::CHECKPOINT);
  const auto order = Only<shard_action::StoreRestore>(shard_->Handle(event));
  EXPECT_EQ(order.id, (VersionId{6, 4}));
  EXPECT_EQ(HeldBy(*shard_), "1/4");
  shard_->Handle(shard_event::StoreRestored{""});
  EXPECT_EQ(HeldBy(*shard_), "6/4");
}

TEST_F(ShardAggregatorTest, AWaitingRestoreSeesTheVersionsThatTheEarlierRestoreKept) {
  Only<shard_action::StoreRestore>(Restore(2, 3));
  EXPECT_EQ(Restore(3, 4).size(), 1u) << "the first caller must learn that its epoch is over";
  // The store has gone back to version 3 and dropped version 4.
  const ShardActions actions = shard_->Handle(shard_event::StoreRestored{""});
  EXPECT_TRUE(absl::IsFailedPrecondition(Only<shard_action::ReplyRestore>(actions).reply.status()));
  EXPECT_EQ(HeldBy(*shard_), "1/3");
  Restored(4, 3);
}

}  // namespace
}  // namespace pushpull
