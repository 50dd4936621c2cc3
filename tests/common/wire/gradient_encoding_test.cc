#include "common/wire/gradient_encoding.h"

#include "gtest/gtest.h"

namespace pushpull {
namespace {

TEST(GradientEncodingTest, KnowsItsEncodings) {
  EXPECT_EQ(BytesPerElement(ps::FLOAT32), 4);
  EXPECT_EQ(BytesPerElement(ps::BFLOAT16), 2);
  EXPECT_EQ(BytesPerElement(static_cast<ps::GradientEncoding>(7)), std::nullopt);
}

}  // namespace
}  // namespace pushpull
