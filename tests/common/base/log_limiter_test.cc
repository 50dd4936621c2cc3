#include "common/base/log_limiter.h"

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

}  // namespace
}  // namespace pushpull
