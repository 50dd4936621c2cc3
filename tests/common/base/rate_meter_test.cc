#include "common/base/rate_meter.h"

#include "gtest/gtest.h"

namespace pushpull {
namespace {

constexpr absl::Duration kWindow = absl::Seconds(2);

TEST(RateMeter, MeasuresFromTheFirstEvent) {
  RateMeter meter(kWindow);
  EXPECT_EQ(meter.At(absl::Seconds(999)).events_per_second, 0.0);
  meter.Add(absl::Seconds(1000), 10);
  EXPECT_EQ(meter.At(absl::Seconds(1000)).amount_per_second, 0.0) << "there is no window yet";
  meter.Add(absl::Seconds(1001), 30);
  EXPECT_EQ(meter.At(absl::Seconds(1001)).amount_per_second, 0.0);
  meter.Add(absl::Seconds(1004), 50);
  EXPECT_DOUBLE_EQ(meter.At(absl::Seconds(1004)).events_per_second, 0.5);
  EXPECT_DOUBLE_EQ(meter.At(absl::Seconds(1004)).amount_per_second, 20.0);
}

TEST(RateMeter, MeasuresFromTheStart) {
  RateMeter meter(kWindow);
  meter.Start(absl::Seconds(10));
  meter.Add(absl::Seconds(14), 40);
  EXPECT_DOUBLE_EQ(meter.At(absl::Seconds(14)).events_per_second, 0.25);
  EXPECT_DOUBLE_EQ(meter.At(absl::Seconds(14)).amount_per_second, 10.0);
}

TEST(RateMeter, FallsWhileNoEventComes) {
  RateMeter meter(kWindow);
  meter.Start(absl::Seconds(0));
  for (int i = 1; i <= 4; ++i) meter.Add(absl::Seconds(0.5) * i, 10);
  EXPECT_DOUBLE_EQ(meter.At(absl::Seconds(4)).events_per_second, 2.0) << "as long as a window";
  EXPECT_DOUBLE_EQ(meter.At(absl::Seconds(10)).events_per_second, 1.0 / 8);
  EXPECT_DOUBLE_EQ(meter.At(absl::Seconds(10)).amount_per_second, 10.0 / 8);
  EXPECT_EQ(meter.At(absl::Seconds(12.5)).events_per_second, 0.0);
  EXPECT_EQ(meter.At(absl::Seconds(12.5)).amount_per_second, 0.0);
}

}  // namespace
}  // namespace pushpull
