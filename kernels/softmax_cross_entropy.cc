// Tested by tests/kernels/cpu/operators_test.cc.
#include "kernels/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>

#include "glog/logging.h"

#include "kernels/gather/numbers.h"

namespace pushpull {
namespace {

using gather::ToDouble;

}  // namespace

template <typename T>
ClassificationResult SoftmaxCrossEntropyOnCpu(int64_t samples, int64_t classes, const T* logits,
                                              const int32_t* labels, double smoothing, T* dlogits) {
  ClassificationResult result;
  if (samples == 0) return result;
  const double off_target = smoothing / static_cast<double>(classes);
  for (int64_t s = 0; s < samples; ++s) {
    const T* row = logits + s * classes;
    const int32_t label = labels[s];
    CHECK(label >= 0 && label < classes)
        << "sample " << s << ": label " << label << " of " << classes;
    double largest = ToDouble(row[0]);
    for (int64_t c = 1; c < classes; ++c) largest = std::max<double>(largest, ToDouble(row[c]));
    double denominator = 0, sum = 0;
    int64_t at_least = 0;  // other classes that rank before the label; NaNs do, too
    for (int64_t c = 0; c < classes; ++c) {
      denominator += std::exp(ToDouble(row[c]) - largest);
      sum += ToDouble(row[c]) - largest;
      if (c != label && !(ToDouble(row[c]) < ToDouble(row[label]))) ++at_least;
    }
    const double log_denominator = std::log(denominator);
    // -sum_c target_c * log_softmax_c, with sum_c target_c = 1.
    double loss = log_denominator - (1 - smoothing) * (ToDouble(row[label]) - largest);
    // Without smoothing, off_target is 0. If a logit is minus infinity, so is the sum, and the
    // product of the two would be a NaN.
    if (off_target != 0) loss -= off_target * sum;
    result.loss += loss;
    result.top1 += at_least < 1;
    result.top5 += at_least < 5;
    if (dlogits == nullptr) continue;
    T* out = dlogits + s * classes;
    for (int64_t c = 0; c < classes; ++c) {
      const double probability = std::exp(ToDouble(row[c]) - largest) / denominator;
      const double target = off_target + (c == label ? 1 - smoothing : 0.0);
      const double gradient = (probability - target) / static_cast<double>(samples);
      gather::Narrow(gather::WideOf<T>(gradient), out + c);
    }
  }
  result.loss /= static_cast<double>(samples);
  return result;
}

template ClassificationResult SoftmaxCrossEntropyOnCpu<float>(int64_t, int64_t, const float*,
                                                              const int32_t*, double, float*);
template ClassificationResult SoftmaxCrossEntropyOnCpu<Bfloat16>(int64_t, int64_t, const Bfloat16*,
                                                                 const int32_t*, double, Bfloat16*);
template ClassificationResult SoftmaxCrossEntropyOnCpu<double>(int64_t, int64_t, const double*,
                                                               const int32_t*, double, double*);

}  // namespace pushpull
