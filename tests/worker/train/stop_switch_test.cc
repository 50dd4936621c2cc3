#include "worker/train/stop_switch.h"

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(StopSwitchTest, CallsEachFunctionOnceWhetherItCameBeforeOrAfterTheStop) {
  StopSwitch stop;
  int before = 0;
  int after = 0;
  stop.Add([&before] { ++before; });
  EXPECT_EQ(before, 0);
  stop.Stop();
  stop.Stop();
  EXPECT_EQ(before, 1);
  stop.Add([&after] { ++after; });
  EXPECT_EQ(after, 1);
}

TEST(StopSwitchTest, ClearForgetsTheFunctionsAndNotTheStop) {
  StopSwitch stop;
  int cleared = 0;
  stop.Add([&cleared] { ++cleared; });
  stop.Clear();
  stop.Stop();
  EXPECT_EQ(cleared, 0);
  stop.Clear();
  int later = 0;
  stop.Add([&later] { ++later; });
  EXPECT_EQ(later, 1);
}

}  // namespace
}  // namespace pushpull
