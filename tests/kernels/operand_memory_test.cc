#include "tests/testkit/kernels/operand_memory.h"

#include "gtest/gtest-spi.h"
#include "gtest/gtest.h"

#include "tests/testkit/kernels/compare.h"

namespace pushpull {
namespace {

TEST(Operand, KeepsWrittenValuesAndStartsAsNan) {
  const Operand<float> input(HostOperands(), std::vector<float>{1, 2, 3});
  EXPECT_EQ(reinterpret_cast<uintptr_t>(input.data()) % 256, 0u);
  EXPECT_EQ(input.Read("input"), (std::vector<float>{1, 2, 3}));
  const Operand<float> output(HostOperands(), 2);
  output.data()[0] = 5;
  const std::vector<float> read = output.Read("output");
  EXPECT_EQ(read[0], 5);
  EXPECT_TRUE(std::isnan(read[1]));
}

TEST(Operand, WritesOutsideItFailTheTest) {
  const Operand<float> past(HostOperands(), 3);
  past.data()[3] = 1;
  EXPECT_NONFATAL_FAILURE(past.Read("y"), "y: written 0 bytes past its end");
  const Operand<Bfloat16> before(HostOperands(), 3);
  before.data()[-1] = {0};
  EXPECT_NONFATAL_FAILURE(before.Read("y"), "y: written 1 bytes before its start");
}

TEST(CloseInNorm, ReportsThePlaceOfTheLargestError) {
  const std::vector<double> expected{3, 4};
  ExpectCloseInNorm("same", expected, std::vector<float>{3, 4}, 0);
  ExpectCloseInNorm("near", expected, std::vector<float>{3, 4.25f}, 0.05001);
  EXPECT_NONFATAL_FAILURE(ExpectCloseInNorm("far", expected, std::vector<float>{3, 4.25f}, 0.0499),
                          "largest absolute error 0.25 at 1 of 2");
  EXPECT_NONFATAL_FAILURE(
      ExpectCloseInNorm("nan", expected, std::vector<float>{3, std::nanf("")}, 1), "got nan");
}

}  // namespace
}  // namespace pushpull
