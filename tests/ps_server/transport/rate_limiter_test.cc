#include "ps_server/transport/rate_limiter.h"

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(RateLimiterTest, AllowsABurstAndThenAConstantRate) {
  RateLimiter pace(3, 2.0);
  const absl::Duration start = absl::Seconds(100);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pace.Take("a", start)) << i;
  EXPECT_FALSE(pace.Take("a", start));
  EXPECT_TRUE(pace.Take("b", start)) << "every host has a separate budget";
  EXPECT_FALSE(pace.Take("a", start + absl::Milliseconds(400)));
  EXPECT_TRUE(pace.Take("a", start + absl::Milliseconds(600)));
  EXPECT_FALSE(pace.Take("a", start + absl::Milliseconds(700)));
  // A refused request costs nothing, and a long pause saves up no more than one burst.
  const absl::Duration later = start + absl::Seconds(1000);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(pace.Take("a", later)) << i;
  EXPECT_FALSE(pace.Take("a", later));
}

TEST(RateLimiterTest, ForgetsHostsThatAreLongGone) {
  RateLimiter pace(3, 2.0);
  EXPECT_TRUE(pace.Take("a", absl::Seconds(1)));
  EXPECT_TRUE(pace.Take("b", absl::Seconds(2)));
  pace.Forget(absl::Seconds(2));
  EXPECT_EQ(pace.num_hosts(), 1u);
  pace.Forget(absl::Seconds(3));
  EXPECT_EQ(pace.num_hosts(), 0u);
}

}  // namespace
}  // namespace pushpull
