// Softmax cross-entropy with label smoothing, used by both sets of CPU operators.
#ifndef PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
#define PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_

#include <cstdint>

#include "kernels/operands.h"
#include "kernels/parallel_loop.h"

namespace pushpull {

// As Operators::SoftmaxCrossEntropy, computed in double, with one iteration of the loop for each
// sample. The result has the same bits with every loop. A label outside [0, classes) is a CHECK
// failure. T is float, double or Bfloat16.
template <typename T>
ClassificationResult SoftmaxCrossEntropyOnCpu(int64_t samples, int64_t classes, const T* logits,
                                              const int32_t* labels, double smoothing, T* dlogits,
                                              ParallelLoop parallel_for);

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_SOFTMAX_CROSS_ENTROPY_H_
