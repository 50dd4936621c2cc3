#include "scripts/bench/median.h"

#include <vector>

#include "absl/time/time.h"
#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(MedianTest, IsTheMiddleValueOrTheMeanOfTheTwoInTheMiddle) {
  EXPECT_EQ(Median(std::vector<double>{4.0}), 4.0);
  EXPECT_EQ(Median(std::vector<double>{9.0, 1.0, 5.0}), 5.0);
  EXPECT_EQ(Median(std::vector<double>{9.0, 1.0, 5.0, 2.0}), 3.5);
  EXPECT_EQ(Median(std::vector<absl::Duration>{absl::Seconds(3), absl::Seconds(2)}),
            absl::Milliseconds(2500));
}

}  // namespace
}  // namespace pushpull
