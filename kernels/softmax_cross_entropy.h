// Softmax cross-entropy with label smoothing, used by both sets of CPU operators. It is not
// vectorised since its share of a step is negligible.
#ifndef PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
#define PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_

#include <cstdint>

#include "kernels/operands.h"

namespace pushpull {

// As Operators::SoftmaxCrossEntropy, computed in double on the calling thread. A label outside
// [0, classes) is a CHECK failure. T is float, double or Bfloat16.
template <typename T>
ClassificationResult SoftmaxCrossEntropyOnCpu(int64_t samples, int64_t classes, const T* logits,
                                              const int32_t* labels, double smoothing, T* dlogits);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
