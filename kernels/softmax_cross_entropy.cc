// Tested by tests/kernels/cpu/operators_test.cc.
#include "kernels/softmax_cross_entropy.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "glog/logging.h"

#include "kernels/gather/numbers.h"

namespace pushpull {
namespace {

using gather::ToDouble;

struct SampleResult {
  double loss;
  int64_t rank;  // how many other classes rank before the label; NaNs do, too
};

// Computes one sample of `samples`. `dlogits` may be null.
template <typename T>
SampleResult RunSample(int64_t samples, int64_t classes, const T* logits, int32_t label,
                       double smoothing, T* dlogits) {
  const double off_target = smoothing / static_cast<double>(classes);
  double largest = ToDouble(logits[0]);
  for (int64_t c = 1; c < classes; ++c) largest = std::max<double>(largest, ToDouble(logits[c]));
  std::vector<double> exponentials(classes);
  double denominator = 0, sum = 0;
  int64_t rank = 0;
  for (int64_t c = 0; c < classes; ++c) {
    exponentials[c] = std::exp(ToDouble(logits[c]) - largest);
    denominator += exponentials[c];
    sum += ToDouble(logits[c]) - largest;
    if (c != label && !(ToDouble(logits[c]) < ToDouble(logits[label]))) ++rank;
  }
  // -sum_c target_c * log_softmax_c, with sum_c target_c = 1.
  double loss = std::log(denominator) - (1 - smoothing) * (ToDouble(logits[label]) - largest);
  // Without smoothing, off_target is 0. If a logit is minus infinity, so is the sum, and the
  // product of the two would be a NaN.
  if (off_target != 0) loss -= off_target * sum;
  for (int64_t c = 0; dlogits != nullptr && c < classes; ++c) {
    const double probability = exponentials[c] / denominator;
    const double target = off_target + (c == label ? 1 - smoothing : 0.0);
    const double gradient = (probability - target) / static_cast<double>(samples);
    gather::Narrow(gather::WideOf<T>(gradient), dlogits + c);
  }
  return {loss, rank};
}

}  // namespace

template <typename T>
ClassificationResult SoftmaxCrossEntropyOnCpu(int64_t samples, int64_t classes, const T* logits,
                                              const int32_t* labels, double smoothing, T* dlogits,
                                              ParallelLoop parallel_for) {
  std::vector<SampleResult> of_samples(samples);
  parallel_for(samples, [&](int64_t s) {
    CHECK(labels[s] >= 0 && labels[s] < classes)
        << "sample " << s << ": label " << labels[s] << " of " << classes;
    T* out = dlogits == nullptr ? nullptr : dlogits + s * classes;
    of_samples[s] = RunSample(samples, classes, logits + s * classes, labels[s], smoothing, out);
  });
  ClassificationResult result;
  for (const SampleResult& sample : of_samples) {
    result.loss += sample.loss;
    result.top1 += sample.rank < 1;
    result.top5 += sample.rank < 5;
  }
  if (samples > 0) result.loss /= static_cast<double>(samples);
  return result;
}

template ClassificationResult SoftmaxCrossEntropyOnCpu<float>(int64_t, int64_t, const float*,
                                                              const int32_t*, double, float*,
                                                              ParallelLoop);
template ClassificationResult SoftmaxCrossEntropyOnCpu<Bfloat16>(int64_t, int64_t, const Bfloat16*,
                                                                 const int32_t*, double, Bfloat16*,
                                                                 ParallelLoop);
template ClassificationResult SoftmaxCrossEntropyOnCpu<double>(int64_t, int64_t, const double*,
                                                               const int32_t*, double, double*,
                                                               ParallelLoop);

}  // namespace pushpull
