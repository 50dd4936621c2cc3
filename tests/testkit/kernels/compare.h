// Comparisons of tensors that report the largest error, its place and the tolerance.
#ifndef PUSHPULL_TESTS_TESTKIT_KERNELS_COMPARE_H_
#define PUSHPULL_TESTS_TESTKIT_KERNELS_COMPARE_H_

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "gtest/gtest.h"

namespace pushpull {

// Fails unless |actual - expected| <= tolerance * max(floor, max |expected|) everywhere. The floor
// serves tensors that are 0 except for rounding errors.
template <typename T, typename U>
void ExpectClose(const std::string& label, const std::vector<T>& expected,
                 const std::vector<U>& actual, double tolerance, double floor = 1e-30) {
  ASSERT_EQ(expected.size(), actual.size()) << label;
  double scale = floor, worst = -1, relative = 0;
  size_t place = 0;
  for (const T value : expected) scale = std::max(scale, std::abs(static_cast<double>(value)));
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i], a = actual[i];
    const double difference = std::abs(e - a);
    if (!(difference <= worst)) {  // also for NaN
      worst = difference;
      place = i;
      relative = difference / std::max(std::abs(e), 1e-30);
    }
    if (std::isnan(difference)) break;
  }
  EXPECT_LE(worst, tolerance * scale)
      << label << ": largest absolute error " << worst << " (relative " << relative << ") at "
      << place << " of " << expected.size() << ": expected "
      << (expected.empty() ? 0 : expected[place]) << ", got "
      << (actual.empty() ? 0 : actual[place]) << ", tolerance " << tolerance << " x " << scale;
}

// Fails unless the Euclidean norm of the difference is at most tolerance times that of `expected`.
template <typename T, typename U>
void ExpectCloseInNorm(const std::string& label, const std::vector<T>& expected,
                       const std::vector<U>& actual, double tolerance, double floor = 1e-30) {
  ASSERT_EQ(expected.size(), actual.size()) << label;
  double difference = 0, norm = 0, worst = -1;
  size_t place = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    const double e = expected[i], d = std::abs(e - static_cast<double>(actual[i]));
    norm += e * e;
    difference += d * d;
    if (!(d <= worst)) {
      worst = d;
      place = i;
    }
    if (std::isnan(d)) break;
  }
  const double error = std::sqrt(difference) / std::max(std::sqrt(norm), floor);
  EXPECT_LE(error, tolerance) << label << ": the norm of the error is " << error
                              << " of the tensor's; largest absolute error " << worst << " at "
                              << place << " of " << expected.size() << ": expected "
                              << (expected.empty() ? 0 : expected[place]) << ", got "
                              << (actual.empty() ? 0 : actual[place]);
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_TESTKIT_KERNELS_COMPARE_H_
