#include "kernels/cpu/round_to_bfloat16.h"

#include <bit>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

// Covers every upper half of a float, with the lower halves around every rounding boundary.
TEST(RoundToBfloat16Test, RoundsLikeTheScalarFormula) {
  for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<float> values;
    for (uint32_t high = 0; high < 0x10000u; ++high) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
    std::vector<Bfloat16> rounded(values.size());
    RoundToBfloat16(values, absl::MakeSpan(rounded));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(rounded[i].bits, ToBfloat16(values[i]).bits) << std::hex << i << " " << low;
    }
  }
}

TEST(RoundToBfloat16Test, WritesNothingBeyondItsEnd) {
  std::vector<float> values(70);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i);
  for (size_t size = 0; size <= 67; ++size) {
    std::vector<Bfloat16> rounded(size + 2, Bfloat16{0xabcd});
    RoundToBfloat16(absl::MakeConstSpan(values.data() + 1, size),
                    absl::MakeSpan(rounded.data() + 1, size));
    EXPECT_EQ(rounded.front().bits, 0xabcd);
    EXPECT_EQ(rounded.back().bits, 0xabcd);
    for (size_t i = 0; i < size; ++i)
      ASSERT_EQ(rounded[i + 1].bits, ToBfloat16(values[i + 1]).bits);
  }
}

}  // namespace
}  // namespace pushpull
