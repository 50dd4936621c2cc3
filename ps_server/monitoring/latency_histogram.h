// LatencyHistogram counts durations in fixed buckets from one millisecond to one minute.
#ifndef PUSHPULL_PS_SERVER_MONITORING_LATENCY_HISTOGRAM_H_
#define PUSHPULL_PS_SERVER_MONITORING_LATENCY_HISTOGRAM_H_

#include <algorithm>
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "absl/time/time.h"

namespace pushpull {

// The state of a histogram. Counts are per bucket, not cumulative: counts[i] is the number of
// values in (bounds[i - 1], bounds[i]], and the last count is the number of values above all
// bounds.
struct HistogramValues {
  std::vector<double> bounds;
  std::vector<uint64_t> counts;  // one more than bounds
  double sum = 0.0;
};

// Thread-safe. Observe takes no lock and allocates nothing. Values may see only a part of a
// concurrent Observe.
class LatencyHistogram {
 public:
  static constexpr std::array<double, 15> kBoundsSeconds = {
      0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0};

  void Observe(absl::Duration duration) {
    const double seconds = absl::ToDoubleSeconds(duration);
    const auto place = std::lower_bound(kBoundsSeconds.begin(), kBoundsSeconds.end(), seconds);
    counts_[place - kBoundsSeconds.begin()].fetch_add(1, std::memory_order_relaxed);
    nanoseconds_.fetch_add(absl::ToInt64Nanoseconds(duration), std::memory_order_relaxed);
  }

  // Bounds and sum are in seconds.
  HistogramValues Values() const {
    HistogramValues values;
    values.bounds.assign(kBoundsSeconds.begin(), kBoundsSeconds.end());
    for (const auto& count : counts_) {
      values.counts.push_back(count.load(std::memory_order_relaxed));
    }
    values.sum = 1e-9 * static_cast<double>(nanoseconds_.load(std::memory_order_relaxed));
    return values;
  }

 private:
  std::array<std::atomic<uint64_t>, kBoundsSeconds.size() + 1> counts_{};
  std::atomic<int64_t> nanoseconds_{0};
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_MONITORING_LATENCY_HISTOGRAM_H_
