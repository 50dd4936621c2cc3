// The median, of which the benchmarks report most of their times.
#ifndef PUSHPULL_SCRIPTS_BENCH_MEDIAN_H_
#define PUSHPULL_SCRIPTS_BENCH_MEDIAN_H_

#include <algorithm>
#include <cstddef>
#include <vector>

namespace pushpull {

// Returns the value in the middle, or the mean of the two in the middle. T is a number or an
// absl::Duration, and there is at least one value.
template <typename T>
T Median(std::vector<T> values) {
  std::sort(values.begin(), values.end());
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

}  // namespace pushpull

#endif  // PUSHPULL_SCRIPTS_BENCH_MEDIAN_H_
