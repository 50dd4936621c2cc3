// The correction of moving statistics with batch_norm.bias_corrected_moving_statistics. They begin
// at mean 0 and variance 1, and after n updates this initial value still has the weight decay^n.
// Pure functions.
#ifndef PUSHPULL_COMMON_MODEL_STATISTIC_CORRECTION_H_
#define PUSHPULL_COMMON_MODEL_STATISTIC_CORRECTION_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

#include "common/model/network_spec.h"

namespace pushpull {

struct StatisticCorrection {
  int variable = 0;      // index in NetworkSpec::variables
  double left = 0.0;     // the weight that the initial value still has, in [0, 1)
  double initial = 0.0;  // 0 for a mean, 1 for a variance

  // Removes the initial value from the values of the variable.
  void Apply(absl::Span<float> values) const;
};

// Returns one correction for each moving statistic of the network that was updated num_updates
// times and is to be corrected. Frozen batch norms have none.
std::vector<StatisticCorrection> StatisticCorrections(const NetworkSpec& network,
                                                      int64_t num_updates);

}  // namespace pushpull

#endif  // PUSHPULL_COMMON_MODEL_STATISTIC_CORRECTION_H_
