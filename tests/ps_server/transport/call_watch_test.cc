#include "ps_server/transport/call_watch.h"

#include <thread>

#include "absl/synchronization/notification.h"
#include "gtest/gtest.h"

#include "tests/testkit/fake_clock.h"

namespace pushpull {
namespace {

class CallWatchTest : public testing::Test {
 protected:
  CallWatchTest() : watch_(Limits(), &clock_) {}
  static ServerLimits Limits() {
    ServerLimits limits;
    limits.longest_call = absl::Seconds(100);
    return limits;
  }
  void Pass(absl::Duration duration) {
    clock_.Advance(duration);
    watch_.Sweep();
  }

  FakeClock clock_;
  CallWatch watch_;
};

TEST_F(CallWatchTest, EndsACallWithoutProgressOnce) {
  int stuck = 0;
  int moving = 0;
  watch_.Add(absl::Seconds(10), [&] { ++stuck; });
  const auto call = watch_.Add(absl::Seconds(10), [&] { ++moving; });
  for (int i = 0; i < 4; ++i) {
    Pass(absl::Seconds(6));
    watch_.Extend(call, absl::Seconds(10));
  }
  EXPECT_EQ(stuck, 1);
  EXPECT_EQ(moving, 0);
  Pass(absl::Seconds(11));
  EXPECT_EQ(moving, 1);
}

TEST_F(CallWatchTest, LimitsTheDurationOfEveryCall) {
  int ended = 0;
  const auto call = watch_.Add(absl::InfiniteDuration(), [&] { ++ended; });
  for (int i = 0; i < 9; ++i) {
    Pass(absl::Seconds(11));
    watch_.Extend(call, absl::Seconds(50));
  }
  EXPECT_EQ(ended, 0);
  Pass(absl::Seconds(2));
  EXPECT_EQ(ended, 1);
}

// A call that has expired may still report progress before gRPC removes it.
TEST_F(CallWatchTest, AnExpiredCallIsNotExtended) {
  int ended = 0;
  const auto call = watch_.Add(absl::Seconds(1), [&] { ++ended; });
  Pass(absl::Seconds(2));
  watch_.Extend(call, absl::Seconds(10));
  Pass(absl::Seconds(200));
  EXPECT_EQ(ended, 1);
}

TEST_F(CallWatchTest, ARemovedCallNeverExpires) {
  int ended = 0;
  watch_.Remove(watch_.Add(absl::Seconds(1), [&] { ++ended; }));
  EXPECT_EQ(watch_.size(), 0);
  Pass(absl::Seconds(5));
  EXPECT_EQ(ended, 0);
}

TEST_F(CallWatchTest, TheExpiryCallbackMayUseTheWatch) {
  const auto other = watch_.Add(absl::Seconds(50), [] {});
  int ended = 0;
  watch_.Add(absl::Seconds(1), [&] {
    watch_.Extend(other, absl::Seconds(1));
    ++ended;
  });
  Pass(absl::Seconds(2));
  EXPECT_EQ(ended, 1);
}

TEST_F(CallWatchTest, RemoveWaitsForARunningCallback) {
  absl::Notification running;
  absl::Notification removing;
  absl::Notification removed;
  const auto call = watch_.Add(absl::Seconds(1), [&] {
    running.Notify();
    removing.WaitForNotification();
    // A Remove that does not wait returns within this time.
    EXPECT_FALSE(removed.WaitForNotificationWithTimeout(absl::Milliseconds(200)));
  });
  clock_.Advance(absl::Seconds(2));
  std::thread sweeper([&] { watch_.Sweep(); });
  running.WaitForNotification();
  removing.Notify();
  watch_.Remove(call);
  removed.Notify();
  sweeper.join();
}

}  // namespace
}  // namespace pushpull
