#include "common/model/statistic_correction.h"

#include <algorithm>
#include <cmath>

namespace pushpull {

void StatisticCorrection::Apply(absl::Span<float> values) const {
  for (float& value : values) {
    const double corrected = (value - left * initial) / (1.0 - left);
    value = static_cast<float>(initial == 0.0 ? corrected : std::max(corrected, 0.0));
  }
}

std::vector<StatisticCorrection> StatisticCorrections(const NetworkSpec& network,
                                                      int64_t num_updates) {
  std::vector<StatisticCorrection> corrections;
  ForEachBatchNorm(network, [&](const op::BatchNorm& norm) {
    if (!norm.bias_corrected || norm.frozen || num_updates < 1) return;
    const double left = std::pow(static_cast<double>(norm.decay), num_updates);
    if (left >= 1.0) return;
    corrections.push_back({norm.moving_mean, left, 0.0});
    corrections.push_back({norm.moving_variance, left, 1.0});
  });
  return corrections;
}

}  // namespace pushpull
