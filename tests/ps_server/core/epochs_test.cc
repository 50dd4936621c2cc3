#include "ps_server/core/epochs.h"

#include <algorithm>
#include <memory>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

#include "ps_server/core/protocol_error.h"
#include "ps_server/core/shard_aggregator.h"
#include "tests/ps_server/core/coordinator_driver.h"

namespace pushpull {
namespace {

using testing::HasSubstr;

TEST(EpochPaceTest, PausesGrowUntilAnEpochLasts) {
  EpochPace::Options options;
  options.first_pause = absl::Seconds(1);
  options.last_pause = absl::Seconds(5);
  options.held = absl::Seconds(10);
  EpochPace pace(options);
  absl::Duration now = absl::Seconds(100);
  for (const int pause : {0, 0, 1, 2, 4, 5, 5}) {
    EXPECT_EQ(pace.NextPause(now), absl::Seconds(pause));
    pace.NoteServing(now);
    now += absl::Seconds(9);
  }
  pace.NextPause(now);
  pace.NoteServing(now);
  EXPECT_EQ(pace.NextPause(now + absl::Seconds(10)), absl::ZeroDuration());
  for (const int pause : {0, 1, 2}) {
    EXPECT_EQ(pace.NextPause(now + absl::Hours(1)), absl::Seconds(pause)) << "epochs never served";
  }
}

TEST(EpochsTest, EpochsFarAheadAreNotPlausible) {
  EXPECT_TRUE(IsPlausibleEpoch(kMaxEpoch, 0)) << "a new shard accepts any valid epoch";
  EXPECT_FALSE(IsPlausibleEpoch(kMaxEpoch + 1, 0));
  EXPECT_FALSE(IsPlausibleEpoch(~uint64_t{0}, 7));
  EXPECT_TRUE(IsPlausibleEpoch(7 + (1 << 20), 7));
  EXPECT_FALSE(IsPlausibleEpoch(8 + (1 << 20), 7));
  EXPECT_TRUE(IsPlausibleEpoch(3, 7));
}

class EpochsOfAShardTest : public testing::Test {
 protected:
  EpochsOfAShardTest() : shard_(Options()) {}

  static ShardOptions Options() {
    ShardOptions options;
    options.run_id = kRun;
    options.boot_id = 5;
    options.chunk_elements = {2};
    return options;
  }
  ShardActions Restore(uint64_t epoch) {
    shard_event::Restore event;
    event.call = 1;
    event.request.set_run_id(kRun);
    event.request.set_epoch(epoch);
    return shard_.Handle(event);
  }
  void ExpectRefused(uint64_t epoch) {
    const uint64_t before = shard_.epoch();
    const ShardActions actions = Restore(epoch);
    ASSERT_EQ(actions.size(), 1u) << epoch;
    const auto* reply = std::get_if<shard_action::ReplyRestore>(&actions[0]);
    ASSERT_NE(reply, nullptr) << epoch;
    EXPECT_TRUE(absl::IsInvalidArgument(reply->reply.status())) << reply->reply.status();
    EXPECT_EQ(shard_.epoch(), before);
  }

  ShardAggregator shard_;
};

TEST_F(EpochsOfAShardTest, AShardRefusesARestoreToAnImplausibleEpoch) {
  ExpectRefused(~uint64_t{0});
  ExpectRefused(kMaxEpoch + 1);
  Restore(7);
  EXPECT_EQ(shard_.epoch(), 7u);
  ExpectRefused(kMaxEpoch);
  ExpectRefused(8 + (1 << 20));
  Restore(7 + (1 << 20));
  EXPECT_EQ(shard_.epoch(), 7u + (1 << 20));
}

class EpochsOfAJobTest : public CoordinatorTest {
 protected:
  // Advances the time from timer to timer and returns how many epochs began.
  size_t EpochsWithin(absl::Duration duration) {
    Take<coordinator_action::PersistEpoch>();
    const absl::Duration end = now_ + duration;
    while (now_ < end) {
      now_ = std::clamp(coordinator_->NextWakeup(), now_, end);
      Send(coordinator_event::Tick{});
    }
    return Take<coordinator_action::PersistEpoch>().size();
  }
  absl::Status EpochChanged(uint64_t epoch) {
    return ProtocolError(ps::ErrorDetail::EPOCH_CHANGED, epoch, 0, "in another epoch");
  }
};

TEST_F(EpochsOfAJobTest, APersistentFaultBeginsFewEpochs) {
  restore_status_ = EpochChanged(0);
  failing_restores_ = 1000;
  Start();
  const size_t first = Take<coordinator_action::PersistEpoch>().size();
  EXPECT_EQ(first, 2u) << "the third epoch must wait for a pause";
  const size_t minute = EpochsWithin(absl::Minutes(1));
  EXPECT_GE(minute, 8u) << "the first pauses must be short";
  EXPECT_LE(minute, 20u);
  EXPECT_LE(EpochsWithin(absl::Minutes(1)), 7u);
  // The job serves soon after the fault is gone.
  failing_restores_ = 0;
  EXPECT_EQ(EpochsWithin(absl::Seconds(11)), 1u);
  EXPECT_TRUE(Register(0).ok());
}

TEST_F(EpochsOfAJobTest, NoPausePrecedesTheEpochAfterOneThatLasted) {
  options_.tasks = 2;
  StartWithClones();
  for (int restart = 0; restart < 3; ++restart) {
    EpochsWithin(absl::Seconds(10));
    ++boot_ids_[1];
    EXPECT_EQ(EpochsWithin(absl::Seconds(1)), 1u) << "the next poll must notice the restart";
    EXPECT_TRUE(Register(0).ok());
  }
}

TEST_F(EpochsOfAJobTest, DoesNotAdoptAnImpossibleEpochFromAShard) {
  for (const uint64_t lie : {~uint64_t{0}, kMaxEpoch + 1, uint64_t{7} + (1 << 20) + 1}) {
    restore_status_ = EpochChanged(lie);
    failing_restores_ = 5;
    Start();
    EXPECT_LE(EpochsWithin(absl::Seconds(20)), 1u) << "the restore must stay in its epoch";
    EXPECT_EQ(coordinator_->epoch(), 7u) << lie;
    const auto notices = Take<coordinator_action::Notice>();
    ASSERT_FALSE(notices.empty());
    EXPECT_THAT(notices[0].text, HasSubstr("restart its ps task"));
    EXPECT_TRUE(Register(0).ok()) << "the job must continue after the last wrong epoch";
    Take<coordinator_action::Notice>();
  }
}

TEST_F(EpochsOfAJobTest, AnEpochFileWithTheLargestEpochStopsTheJob) {
  stored_epoch_ = kMaxEpoch;
  Start();
  const auto stopped = Take<coordinator_action::Stopped>();
  ASSERT_EQ(stopped.size(), 1u);
  EXPECT_THAT(std::string(stopped[0].reason.message()), HasSubstr("EPOCH file"));
  EXPECT_TRUE(Take<coordinator_action::PersistEpoch>().empty());
}

}  // namespace
}  // namespace pushpull
