#include "worker/client/non_finite.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "tests/testkit/optimizer_test_util.h"

namespace pushpull {
namespace {

TEST(DescribeNonFiniteTest, NamesTheFirstBadWeightBeforeAnyGradient) {
  const VariableLayout layout = *VariableLayout::Create(
      {MakeVariable("a", {3}), MakeVariable("b", {4}), MakeVariable("c", {2})});
  std::vector<float> weights(layout.total_elements(), 0.5f);
  std::vector<float> gradient(layout.total_elements(), 0.5f);
  EXPECT_EQ(DescribeNonFinite(layout, weights, gradient, /*loss_is_finite=*/false),
            "non-finite loss; all variables and gradients are finite");
  EXPECT_EQ(DescribeNonFinite(layout, weights, gradient, /*loss_is_finite=*/true, "b is inf"),
            "finite loss; all variables and gradients are finite, but the server says: b is inf");
  gradient[layout.offset(2)] = HUGE_VALF;
  gradient[layout.offset(1) + 3] = std::nanf("");
  EXPECT_EQ(DescribeNonFinite(layout, weights, gradient, /*loss_is_finite=*/true),
            "finite loss; first non-finite gradient: b[3] is nan");
  weights[layout.offset(2) + 1] = HUGE_VALF;
  EXPECT_EQ(DescribeNonFinite(layout, weights, gradient, /*loss_is_finite=*/false),
            "non-finite loss; first non-finite variable: c[1] is inf");
}

TEST(DescribeNonFiniteTest, SaysThatAStatisticIsNoGradient) {
  VariableSpec statistic = MakeVariable("mean", {2});
  statistic.kind = VariableKind::kMovingStatistic;
  const VariableLayout layout = *VariableLayout::Create({MakeVariable("a", {3}), statistic});
  const std::vector<float> weights(layout.total_elements(), 0.5f);
  std::vector<float> gradient(layout.total_elements(), 0.5f);
  gradient[layout.offset(1) + 1] = HUGE_VALF;
  EXPECT_EQ(DescribeNonFinite(layout, weights, gradient, /*loss_is_finite=*/true),
            "finite loss; first non-finite statistic or buffer: mean[1] is inf");
}

}  // namespace
}  // namespace pushpull
