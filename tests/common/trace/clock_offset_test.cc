#include "common/trace/clock_offset.h"

#include <algorithm>
#include <random>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

// Two clocks. When the local clock shows t, the other one shows offset + (1 + drift) * t.
struct TwoClocks {
  absl::Duration offset;
  double drift = 0.0;
  absl::Duration Remote(absl::Duration local) const { return offset + local + local * drift; }

  // Makes a round trip that starts at `sent`, reads the other clock after `out` and ends `back`
  // later.
  absl::Duration Ask(ClockOffset* estimate, absl::Duration sent, absl::Duration out,
                     absl::Duration back) const {
    estimate->AddSample(sent, sent + out + back, Remote(sent + out));
    return sent + out + back;
  }
};

TEST(ClockOffset, IsZeroBeforeTheFirstSample) {
  ClockOffset offset;
  EXPECT_EQ(offset.ToRemote(absl::Seconds(7)), absl::Seconds(7));
  EXPECT_EQ(offset.ErrorBound(absl::Seconds(7)), absl::InfiniteDuration());
}

TEST(ClockOffset, EqualDelaysGiveTheExactOffset) {
  ClockOffset offset;
  const TwoClocks clocks{absl::Hours(-50)};
  clocks.Ask(&offset, absl::Hours(100), absl::Milliseconds(3), absl::Milliseconds(3));
  EXPECT_EQ(offset.ToRemote(absl::Hours(100)), absl::Hours(50));
  EXPECT_EQ(offset.ErrorBound(absl::Hours(100)), absl::Milliseconds(3));
  EXPECT_EQ(offset.Describe(absl::Hours(100)),
            "ahead by -180000000000.0 us, known to within 3000.0 us");
}

TEST(ClockOffset, ASlowRoundTripDoesNotReplaceAQuickOne) {
  ClockOffset offset;
  const TwoClocks clocks{absl::Seconds(5)};
  clocks.Ask(&offset, absl::Seconds(10), absl::Microseconds(100), absl::Microseconds(100));
  clocks.Ask(&offset, absl::Seconds(11), absl::Milliseconds(30), absl::Milliseconds(1));
  EXPECT_EQ(offset.ToRemote(absl::Seconds(12)), absl::Seconds(17));
}

// Whatever the delays, and however unequal the two directions: the estimate's error stays within
// its bound, and the bound stays within half of the quickest round trip of the last hour plus
// drift.
TEST(ClockOffset, ErrorStaysWithinItsBound) {
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::mt19937_64 random(seed);
    const auto exponential = [&random](double mean_us) {
      return absl::Microseconds(std::exponential_distribution<double>(1.0 / mean_us)(random));
    };
    const auto uniform = [&random](double from, double to) {
      return std::uniform_real_distribution<double>(from, to)(random);
    };
    TwoClocks clocks;
    clocks.offset = absl::Seconds(uniform(-1e6, 1e6));
    clocks.drift = uniform(-0.99, 0.99) * ClockOffset::kMaxDrift;
    const double out_us = uniform(20.0, 5000.0);
    const double back_us = uniform(20.0, 5000.0);
    ClockOffset offset;
    absl::Duration now = absl::Seconds(1000);
    absl::Duration quickest = absl::InfiniteDuration();
    for (int i = 0; i < 300; ++i) {
      now += exponential(1e6);
      const absl::Duration sent = now;
      now = clocks.Ask(&offset, sent, exponential(out_us), exponential(back_us));
      quickest = std::min(quickest, now - sent);
      const absl::Duration bound = offset.ErrorBound(now);
      ASSERT_LE(absl::AbsDuration(offset.ToRemote(now) - clocks.Remote(now)), bound)
          << "seed " << seed << ", sample " << i;
      ASSERT_LE(bound, quickest / 2 + (now - absl::Seconds(1000)) * ClockOffset::kMaxDrift)
          << "seed " << seed << ", sample " << i;
    }
  }
}

TEST(ClockOffset, DriftMakesALaterSampleBetter) {
  ClockOffset offset;
  TwoClocks clocks{absl::Seconds(3), ClockOffset::kMaxDrift / 2};
  clocks.Ask(&offset, absl::ZeroDuration(), absl::Microseconds(50), absl::Microseconds(50));
  // After 1,000 s the clocks may have drifted apart by 15 ms, so a round trip of 4 ms is the better
  // sample.
  clocks.Ask(&offset, absl::Seconds(1000), absl::Milliseconds(1), absl::Milliseconds(3));
  EXPECT_LE(offset.ErrorBound(absl::Seconds(1000)), absl::Milliseconds(2.1));
  EXPECT_LE(
      absl::AbsDuration(offset.ToRemote(absl::Seconds(1000)) - clocks.Remote(absl::Seconds(1000))),
      absl::Milliseconds(1.1));
}

TEST(ClockOffset, AnotherClockReplacesTheOldOneAtOnce) {
  ClockOffset offset;
  TwoClocks{absl::Seconds(500)}.Ask(&offset, absl::Seconds(1), absl::Microseconds(50),
                                    absl::Microseconds(50));
  // The server has restarted on another host, and its first answer is a slow one.
  TwoClocks{absl::Seconds(-20)}.Ask(&offset, absl::Seconds(2), absl::Milliseconds(40),
                                    absl::Milliseconds(40));
  EXPECT_EQ(offset.ToRemote(absl::Seconds(30)), absl::Seconds(10));
}

TEST(ClockOffset, IgnoresASampleThatEndsBeforeItBegins) {
  ClockOffset offset;
  offset.AddSample(absl::Seconds(2), absl::Seconds(1), absl::Seconds(9));
  EXPECT_EQ(offset.ErrorBound(absl::Seconds(2)), absl::InfiniteDuration());
}

}  // namespace
}  // namespace pushpull
