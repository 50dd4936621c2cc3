// Tested by tests/ps_server/core/steps_test.cc.
#include "ps_server/core/count_histogram.h"

#include <algorithm>

namespace pushpull {

void CountHistogram::Add(uint64_t value) {
  ++counts_[std::lower_bound(kBounds.begin(), kBounds.end(), value) - kBounds.begin()];
  sum_ += value;
}

ps::Histogram CountHistogram::ToProto() const {
  ps::Histogram histogram;
  for (const uint64_t bound : kBounds) histogram.add_upper_bounds(static_cast<double>(bound));
  for (const uint64_t count : counts_) histogram.add_counts(count);
  histogram.set_sum(static_cast<double>(sum_));
  return histogram;
}

}  // namespace pushpull
