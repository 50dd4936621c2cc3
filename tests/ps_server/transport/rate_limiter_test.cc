#include "ps_server/transport/rate_limiter.h"

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(RateLimiterTest, AllowsABurstAndThenAConstantRate) {
  RateLimiter limiter(3, 2.0);
  const absl::Duration start = absl::Seconds(100);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limiter.Take("a", start)) << i;
  EXPECT_FALSE(limiter.Take("a", start));
  EXPECT_TRUE(limiter.Take("b", start)) << "every host has a separate budget";
  EXPECT_FALSE(limiter.Take("a", start + absl::Milliseconds(400)));
  EXPECT_TRUE(limiter.Take("a", start + absl::Milliseconds(600)));
  EXPECT_FALSE(limiter.Take("a", start + absl::Milliseconds(700)));
  // A refused request costs nothing, and a long pause saves up no more than one burst.
  const absl::Duration later = start + absl::Seconds(1000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(limiter.Take("a", later)) << i;
  EXPECT_FALSE(limiter.Take("a", later));
}

TEST(RateLimiterTest, ForgetsHostsThatAreLongGone) {
  RateLimiter limiter(3, 2.0);
  EXPECT_TRUE(limiter.Take("a", absl::Seconds(1)));
  EXPECT_TRUE(limiter.Take("b", absl::Seconds(2)));
  limiter.Forget(absl::Seconds(2));
  EXPECT_EQ(limiter.num_hosts(), 1u);
  limiter.Forget(absl::Seconds(3));
  EXPECT_EQ(limiter.num_hosts(), 0u);
}

}  // namespace
}  // namespace pushpull
