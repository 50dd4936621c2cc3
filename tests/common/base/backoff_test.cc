#include "common/base/backoff.h"

#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(BackoffTest, GrowsToTheMaximumWithinTheJitter) {
  Backoff::Options options;
  options.initial = absl::Milliseconds(100);
  options.maximum = absl::Seconds(1);
  options.multiplier = 2;
  options.jitter = 0.25;
  Backoff backoff(options, 7);
  for (int ms : {100, 200, 400, 800, 1000, 1000, 1000}) {
    const absl::Duration delay = backoff.Next();
    EXPECT_GE(delay, absl::Milliseconds(0.75 * ms));
    EXPECT_LT(delay, absl::Milliseconds(1.25 * ms));
  }
  backoff.Reset();
  EXPECT_LT(backoff.Next(), absl::Milliseconds(125));
}

TEST(BackoffTest, DelaysDependOnTheSeedOnly) {
  std::vector<absl::Duration> first, again, other;
  Backoff a({}, 1), b({}, 1), c({}, 2);
  for (int i = 0; i < 10; ++i) {
    first.push_back(a.Next());
    again.push_back(b.Next());
    other.push_back(c.Next());
  }
  EXPECT_EQ(first, again);
  EXPECT_NE(first, other);
}

}  // namespace
}  // namespace pushpull
