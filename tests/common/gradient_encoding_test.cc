#include "common/gradient_encoding.h"

#include <bit>
#include <vector>

#include "gtest/gtest.h"

#include "kernels/bfloat16.h"

namespace pushpull {
namespace {

// Every upper half, with the lower halves around every rounding.
TEST(GradientEncodingTest, RoundsAsTheScalarFormula) {
  for (const uint32_t low : {0u, 1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
    std::vector<float> values;
    for (uint32_t high = 0; high < 0x10000u; ++high) {
      values.push_back(std::bit_cast<float>(high << 16 | low));
    }
    std::vector<uint16_t> encoded(values.size());
    EncodeBfloat16(values, absl::MakeSpan(encoded));
    for (size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(encoded[i], ToBfloat16(values[i]).bits) << std::hex << i << " " << low;
    }
  }
}

TEST(GradientEncodingTest, WritesNothingBeyondItsEnd) {
  std::vector<float> values(70);
  for (size_t i = 0; i < values.size(); ++i) values[i] = 1.0f + static_cast<float>(i);
  for (size_t size = 0; size <= 67; ++size) {
    std::vector<uint16_t> encoded(size + 2, 0xabcd);
    EncodeBfloat16(absl::MakeConstSpan(values.data() + 1, size),
                   absl::MakeSpan(encoded.data() + 1, size));
    EXPECT_EQ(encoded.front(), 0xabcd);
    EXPECT_EQ(encoded.back(), 0xabcd);
    for (size_t i = 0; i < size; ++i) ASSERT_EQ(encoded[i + 1], ToBfloat16(values[i + 1]).bits);
  }
}

TEST(GradientEncodingTest, KnowsItsEncodings) {
  EXPECT_EQ(BytesPerElement(ps::FLOAT32), 4);
  EXPECT_EQ(BytesPerElement(ps::BFLOAT16), 2);
  EXPECT_EQ(BytesPerElement(static_cast<ps::GradientEncoding>(7)), std::nullopt);
}

}  // namespace
}  // namespace pushpull
