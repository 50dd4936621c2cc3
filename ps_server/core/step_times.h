// Keeps the durations of the last five steps, so that a step that takes unusually long can be
// reported. Not thread-safe.
#ifndef PUSHPULL_PS_SERVER_CORE_STEP_TIMES_H_
#define PUSHPULL_PS_SERVER_CORE_STEP_TIMES_H_

#include <algorithm>
#include <array>
#include <cstddef>

#include "absl/time/time.h"

namespace pushpull {

class StepTimes {
 public:
  void Add(absl::Duration time) {
    times_[next_] = time;
    next_ = (next_ + 1) % times_.size();
    count_ = std::min(count_ + 1, times_.size());
  }

  // Returns the median of these durations, so that a single slow step does not change it; of an
  // even number of durations, the lower of the two in the middle. 0 if there is none.
  absl::Duration Usual() const {
    if (count_ == 0) return absl::ZeroDuration();
    std::array<absl::Duration, 5> sorted = times_;
    const auto middle = sorted.begin() + (count_ - 1) / 2;
    std::nth_element(sorted.begin(), middle, sorted.begin() + count_);
    return *middle;
  }

 private:
  std::array<absl::Duration, 5> times_ = {};
  size_t next_ = 0;
  size_t count_ = 0;
};

}  // namespace pushpull

#endif  // PUSHPULL_PS_SERVER_CORE_STEP_TIMES_H_
