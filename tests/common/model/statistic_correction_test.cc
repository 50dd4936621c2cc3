#include "common/model/statistic_correction.h"

#include <cmath>
#include <vector>

#include "gtest/gtest.h"

#include "common/model/network_builder.h"

namespace pushpull {
namespace {

// A network whose only node is the batch norm.
NetworkSpec NetworkWith(bool bias_corrected, bool frozen, float decay) {
  op::BatchNorm norm;
  norm.moving_mean = 2;
  norm.moving_variance = 3;
  norm.decay = decay;
  norm.bias_corrected = bias_corrected;
  norm.frozen = frozen;
  NetworkSpec network;
  network.nodes.emplace_back().op = norm;
  return network;
}

TEST(StatisticCorrectionTest, RemovesWhatIsLeftOfTheInitialValue) {
  // The true mean is 7 and the true variance 0.25; the statistics have had three updates.
  const double left = std::pow(0.75, 3);
  std::vector<float> mean = {static_cast<float>((1 - left) * 7)};
  std::vector<float> variance = {static_cast<float>((1 - left) * 0.25 + left)};
  const auto corrections = StatisticCorrections(NetworkWith(true, false, 0.75f), 3);
  ASSERT_EQ(corrections.size(), 2u);
  EXPECT_EQ(corrections[0].variable, 2);
  corrections[0].Apply(absl::MakeSpan(mean));
  EXPECT_FLOAT_EQ(mean[0], 7.0f);
  EXPECT_EQ(corrections[1].variable, 3);
  corrections[1].Apply(absl::MakeSpan(variance));
  EXPECT_FLOAT_EQ(variance[0], 0.25f);
}

TEST(StatisticCorrectionTest, AVarianceIsNeverNegative) {
  std::vector<float> variance = {0.1f};
  StatisticCorrections(NetworkWith(true, false, 0.5f), 1)[1].Apply(absl::MakeSpan(variance));
  EXPECT_EQ(variance[0], 0.0f);
}

TEST(StatisticCorrectionTest, OtherStatisticsStayAsTheyAre) {
  EXPECT_TRUE(StatisticCorrections(NetworkWith(false, false, 0.5f), 3).empty());
  EXPECT_TRUE(StatisticCorrections(NetworkWith(true, true, 0.5f), 3).empty()) << "frozen";
  EXPECT_TRUE(StatisticCorrections(NetworkWith(true, false, 0.5f), 0).empty()) << "no update";
  EXPECT_TRUE(StatisticCorrections(NetworkWith(true, false, 1.0f), 3).empty()) << "no change";
}

}  // namespace
}  // namespace pushpull
