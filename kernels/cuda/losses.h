// Launchers of the losses. The calls only queue kernels. T is float or Bfloat16; formulas in
// kernels/operators.h and kernels/detection/ssd_loss.h.
#ifndef PUSHPULL_KERNELS_CUDA_LOSSES_H_
#define PUSHPULL_KERNELS_CUDA_LOSSES_H_

#include <cstdint>

#include "kernels/cuda/queue.h"
#include "kernels/detection/ssd_loss.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// Queues one kernel for each 1024 samples. Unlike on the CPU, a label outside [0, classes) cannot
// end the process; the loss becomes NaN.
template <typename T>
void SoftmaxCrossEntropy(Queue* queue, int64_t samples, int64_t classes, const T* logits,
                         const int32_t* labels, double smoothing, T* dlogits,
                         ClassificationResult* result);

int64_t SsdLossWorkspaceBytes(int64_t samples, int64_t num_anchors);

// Queues five kernels, one for each stage (ssd_views.cuh): matching with one block per image, the
// losses of all anchors, mining with one block per image, the sums over the images in their order
// with one warp, and the gradients. More than 16 heads are an error of the queue.
template <typename T>
void SsdLoss(Queue* queue, const SsdLossArguments<T>& arguments, SsdLossResult* result,
             void* workspace);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_LOSSES_H_
