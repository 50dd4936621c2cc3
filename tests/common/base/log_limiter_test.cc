#include "common/base/log_limiter.h"

#include <atomic>
#include <thread>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(LogLimiterTest, AllowsABurstAndThenOnePerPeriod) {
  LogLimiter limiter(3, absl::Seconds(2));
  absl::Duration now = absl::Seconds(500);
  int allowed = 0;
  for (int i = 0; i < 100; ++i) allowed += limiter.Allow(now);
  EXPECT_EQ(allowed, 3);
  for (int i = 0; i < 1000; ++i) {
    now += absl::Milliseconds(20);
    allowed += limiter.Allow(now);
  }
  EXPECT_NEAR(allowed, 3 + 10, 1);
  now += absl::Hours(1);
  allowed = 0;
  for (int i = 0; i < 100; ++i) allowed += limiter.Allow(now);
  EXPECT_EQ(allowed, 3) << "a quiet period does not save up more than one burst";
}

TEST(LogLimiterTest, CountsSuppressedMessages) {
  LogLimiter limiter(1, absl::Seconds(1));
  EXPECT_TRUE(limiter.Allow(absl::Seconds(1)));
  EXPECT_EQ(limiter.TakeNote(), "");
  for (int i = 0; i < 7; ++i) EXPECT_FALSE(limiter.Allow(absl::Seconds(1)));
  EXPECT_TRUE(limiter.Allow(absl::Seconds(5)));
  EXPECT_EQ(limiter.TakeNote(), " (7 similar messages not logged)");
  EXPECT_EQ(limiter.TakeNote(), "");
}

TEST(PeerLogLimiterTest, AdmitsABurstOfFiveAndSaysHowManyItLeftOut) {
  PeerLogLimiter limiter;
  std::atomic<int> admitted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      for (int j = 0; j < 25; ++j) admitted += limiter.Admit(absl::Seconds(100)).has_value();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(admitted, 5);
  EXPECT_EQ(limiter.Admit(absl::Seconds(110)), " (95 similar messages not logged)");
  EXPECT_EQ(limiter.Admit(absl::Seconds(119)), std::nullopt);
  EXPECT_EQ(limiter.Admit(absl::Hours(1)), " (1 similar messages not logged)");
  EXPECT_EQ(limiter.Admit(absl::Hours(1)), "");
}

}  // namespace
}  // namespace pushpull
