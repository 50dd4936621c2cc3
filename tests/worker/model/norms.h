// Euclidean norms of vectors of any precision, computed in double.
#ifndef PUSHPULL_TESTS_WORKER_MODEL_NORMS_H_
#define PUSHPULL_TESTS_WORKER_MODEL_NORMS_H_

#include <cmath>
#include <vector>

namespace pushpull {

template <typename T>
double Norm(const std::vector<T>& a) {
  double sum = 0.0;
  for (const T value : a) sum += double{value} * double{value};
  return std::sqrt(sum);
}

// Both vectors have the same size.
template <typename T, typename U>
double NormOfDifference(const std::vector<T>& a, const std::vector<U>& b) {
  double sum = 0.0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(double{a[i]} - double{b[i]}, 2);
  return std::sqrt(sum);
}

}  // namespace pushpull

#endif  // PUSHPULL_TESTS_WORKER_MODEL_NORMS_H_
