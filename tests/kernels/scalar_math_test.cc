#include "kernels/scalar_math.h"

#include <cstdint>
#include <limits>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(DropoutThresholdTest, IsTheRateInUnitsOf2ToTheMinus64) {
  EXPECT_EQ(DropoutThreshold(0.0), 0u);
  EXPECT_EQ(DropoutThreshold(0.5), uint64_t{1} << 63);
  EXPECT_EQ(DropoutThreshold(0.75), uint64_t{3} << 62);
}

// 1 - p is 1 in double for a probability p below 2^-54, and 2^64 has no place in 64 bits.
TEST(DropoutThresholdTest, OfRateOneIsTheLargestNumber) {
  EXPECT_EQ(DropoutThreshold(1.0 - 1e-20), std::numeric_limits<uint64_t>::max());
}

}  // namespace
}  // namespace pushpull
