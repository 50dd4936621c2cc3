#include "ps_server/core/fan_out.h"

#include <utility>
#include <vector>

#include "gtest/gtest.h"

#include "tests/ps_server/core/part_driver.h"

namespace pushpull {
namespace {

constexpr absl::Duration kFirst = absl::Seconds(1);
constexpr absl::Duration kLast = absl::Seconds(4);

class FanOutTest : public testing::Test {
 protected:
  // Returns the calls since the last call of this function.
  std::vector<coordinator_action::CallShard> Calls() {
    return TakeFrom<coordinator_action::CallShard>(&actions_);
  }

  absl::Duration now_ = absl::Seconds(100);
  CoordinatorActions actions_;
  FanOut fan_out_{/*first_rpc=*/2, /*stride=*/3, kFirst, kLast};
};

TEST_F(FanOutTest, CallsEveryShardUnderANumberOfItsOwn) {
  EXPECT_FALSE(fan_out_.AllReplied()) << "nothing was called";
  fan_out_.Start(shard_call::GetState(), 2, now_, &actions_);
  const auto calls = Calls();
  ASSERT_EQ(calls.size(), 2u);
  for (uint32_t shard = 0; shard < 2; ++shard) {
    EXPECT_EQ(calls[shard].shard, shard);
    EXPECT_EQ(calls[shard].rpc, 2 + 3 * shard);
    EXPECT_EQ(fan_out_.ShardOf(calls[shard].rpc), shard);
  }
  EXPECT_EQ(fan_out_.ShardOf(3), std::nullopt);
  EXPECT_EQ(fan_out_.FirstMissing(), 0u);
  fan_out_.SetReply(0, ShardReply(ps::ApplyReply()));
  EXPECT_EQ(fan_out_.ShardOf(calls[0].rpc), std::nullopt) << "it has replied";
  EXPECT_EQ(fan_out_.FirstMissing(), 1u);
  EXPECT_FALSE(fan_out_.AllReplied());
  fan_out_.SetReply(1, ShardReply(ps::ApplyReply()));
  EXPECT_TRUE(fan_out_.AllReplied());
  EXPECT_EQ(fan_out_.replies().size(), 2u);
  fan_out_.Start(shard_call::GetState(), 1, now_, &actions_);
  const RpcId newest = Calls().at(0).rpc;
  fan_out_.Stop();
  EXPECT_FALSE(fan_out_.AllReplied());
  EXPECT_EQ(fan_out_.ShardOf(newest), std::nullopt);
}

TEST_F(FanOutTest, ShardsThatHaveAnsweredCanBeCalledAgainWhileOneHangs) {
  fan_out_.Start(shard_call::GetState(), 3, now_, &actions_);
  const RpcId hangs = Calls().at(1).rpc;
  fan_out_.SetReply(0, ShardReply(ps::ApplyReply()));
  fan_out_.SetReply(2, ShardReply(ps::ApplyReply()));
  fan_out_.CallAnsweredAgain(&actions_);
  const auto calls = Calls();
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(calls[0].shard, 0u);
  EXPECT_EQ(calls[1].shard, 2u);
  fan_out_.CallAnsweredAgain(&actions_);
  EXPECT_TRUE(Calls().empty()) << "those calls are still under way";
  EXPECT_EQ(fan_out_.ShardOf(hangs), 1u);
  EXPECT_EQ(fan_out_.FirstMissing(), 1u) << "it has never answered";
  fan_out_.SetFailed(2, absl::UnavailableError("restarting"), now_);
  EXPECT_EQ(fan_out_.NextWakeup(), now_ + kFirst);
  fan_out_.SetReply(0, ShardReply(ps::ApplyReply()));
  fan_out_.CallAnsweredAgain(&actions_);
  const auto again = Calls();
  ASSERT_EQ(again.size(), 1u) << "shard 2 waits for its repetition";
  EXPECT_EQ(again[0].shard, 0u);
  fan_out_.SetReply(1, ShardReply(ps::ApplyReply()));
  EXPECT_TRUE(fan_out_.AllReplied());
}

TEST_F(FanOutTest, PausesBeforeARepeatedCallDoubleUpToTheLast) {
  fan_out_.Start(shard_call::GetState(), 2, now_, &actions_);
  EXPECT_EQ(fan_out_.NextWakeup(), absl::InfiniteDuration());
  Calls();
  const absl::Status failure = absl::UnavailableError("restarting");
  RpcId rpc = 5;
  for (const absl::Duration pause : {kFirst, 2 * kFirst, kLast, kLast}) {
    fan_out_.SetFailed(1, failure, now_);
    EXPECT_EQ(fan_out_.ShardOf(rpc), std::nullopt) << "a late reply is ignored";
    EXPECT_EQ(fan_out_.failure(1), failure);
    EXPECT_EQ(fan_out_.NextWakeup(), now_ + pause);
    fan_out_.Retry(now_ + pause - absl::Nanoseconds(1), &actions_);
    EXPECT_TRUE(Calls().empty());
    now_ += pause;
    fan_out_.Retry(now_, &actions_);
    const auto calls = Calls();
    ASSERT_EQ(calls.size(), 1u) << "shard 0 has not failed";
    EXPECT_EQ(calls[0].shard, 1u);
    rpc = calls[0].rpc;
    EXPECT_EQ(fan_out_.ShardOf(rpc), 1u);
    EXPECT_EQ(fan_out_.NextWakeup(), absl::InfiniteDuration());
  }
}

TEST_F(FanOutTest, ANewStartBeginsWithTheFirstPause) {
  fan_out_.Start(shard_call::GetState(), 1, now_, &actions_);
  for (int i = 0; i < 3; ++i) fan_out_.SetFailed(0, absl::UnavailableError("gone"), now_);
  fan_out_.Start(shard_call::GetState(), 1, now_, &actions_);
  fan_out_.SetFailed(0, absl::UnavailableError("gone"), now_);
  EXPECT_EQ(fan_out_.NextWakeup(), now_ + kFirst);
}

}  // namespace
}  // namespace pushpull
