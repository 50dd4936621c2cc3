// Softmax cross-entropy with label smoothing, shared by the CPU paths: its share of a step is
// negligible.
#ifndef PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
#define PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_

#include <cstdint>

#include "kernels/operands.h"

namespace pushpull {

// See Operators::SoftmaxCrossEntropy. Computes in double. T is float or double.
template <typename T>
ClassificationResult SoftmaxCrossEntropyOnCpu(int64_t samples, int64_t classes, const T* logits,
                                              const int32_t* labels, double smoothing, T* dlogits);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
