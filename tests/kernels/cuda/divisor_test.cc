#include "kernels/cuda/divisor.h"

#include <cstdint>
#include <limits>
#include <random>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kMost = std::numeric_limits<int>::max();

void ExpectDivides(int divisor, int number) {
  int rest = -1;
  EXPECT_EQ(Divisor(divisor).Quotient(number), number / divisor) << number << " / " << divisor;
  EXPECT_EQ(Divisor(divisor).Quotient(number, &rest), number / divisor);
  EXPECT_EQ(rest, number % divisor) << number << " % " << divisor;
}

TEST(DivisorTest, SmallNumbersBySmallDivisors) {
  for (int divisor = 1; divisor <= 130; ++divisor) {
    for (int number = 0; number <= 1000; ++number) ExpectDivides(divisor, number);
  }
}

// The quotient changes at multiples of the divisor, so that is where an error would show.
TEST(DivisorTest, AroundMultiplesUpToTheLargestNumber) {
  std::mt19937 random(1);
  std::vector<int> divisors = {1,       2,         3,    7, 224, 224 * 224, (1 << 30) - 1,
                               1 << 30, kMost - 1, kMost};
  for (int i = 0; i < 300; ++i) {
    divisors.push_back(1 + static_cast<int>(random() >> (1 + random() % 31)) % kMost);
  }
  for (const int divisor : divisors) {
    ExpectDivides(divisor, 0);
    ExpectDivides(divisor, kMost);
    for (int i = 0; i < 20; ++i) {
      const int64_t multiple = static_cast<int64_t>(random() >> 1) / divisor * divisor;
      for (const int64_t number : {multiple - 1, multiple, multiple + 1}) {
        if (number >= 0 && number <= kMost) ExpectDivides(divisor, static_cast<int>(number));
      }
    }
  }
}

}  // namespace
}  // namespace pushpull::PUSHPULL_CUDA
