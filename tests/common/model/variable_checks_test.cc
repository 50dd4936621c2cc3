#include "common/model/variable_checks.h"

#include <cmath>
#include <limits>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {
namespace {

VariableLayout MakeLayout() {
  VariableSpec weights;
  weights.name = "a/weights";
  weights.shape = {3, 7};
  weights.l2_weight = 0.5f;
  VariableSpec biases;
  biases.name = "a/biases";
  biases.shape = {5};
  return *VariableLayout::Create({weights, biases});
}

TEST(FindNonFiniteTest, NamesTheFirstValueInLayoutOrder) {
  const VariableLayout layout = MakeLayout();
  std::vector<float> flat(layout.total_elements(), std::numeric_limits<float>::max());
  EXPECT_FALSE(FindNonFinite(layout, flat).has_value());
  flat[layout.offset(1) + 4] = -std::numeric_limits<float>::infinity();
  EXPECT_EQ(FindNonFinite(layout, flat)->ToString(), "a/biases[4] is -inf");
  flat[20] = std::nanf("");
  const std::optional<NonFiniteValue> found = FindNonFinite(layout, flat);
  ASSERT_TRUE(found.has_value());
  EXPECT_EQ(found->variable, "a/weights");
  EXPECT_EQ(found->index, 20);
  EXPECT_TRUE(std::isnan(found->value));
}

TEST(RegularizationLossTest, IsHalfOfTheWeightedSquares) {
  const VariableLayout layout = MakeLayout();
  std::vector<float> flat(layout.total_elements(), 0.0f);
  for (int i = 0; i < 21; ++i) flat[i] = 2.0f;
  flat[layout.offset(1)] = 100.0f;  // must not count, because it is not regularised
  EXPECT_DOUBLE_EQ(RegularizationLoss(layout, flat), 0.5 * 0.5 * 21 * 4.0);
}

// Every element adds a different amount. The element counts cover every remainder of the vector
// loop.
TEST(RegularizationLossTest, CountsEveryElementOnce) {
  for (const int64_t size : {1, 15, 16, 17, 31, 32, 100}) {
    VariableSpec weights;
    weights.name = "weights";
    weights.shape = {size};
    weights.l2_weight = 2.0f;
    const VariableLayout layout = *VariableLayout::Create({weights});
    std::vector<float> flat(layout.total_elements(), 0.0f);
    double expected = 0.0;
    for (int64_t i = 0; i < size; ++i) {
      flat[i] = static_cast<float>(i + 1);
      expected += static_cast<double>((i + 1) * (i + 1));
    }
    EXPECT_EQ(RegularizationLoss(layout, flat), expected) << size;
  }
}

}  // namespace
}  // namespace pushpull
