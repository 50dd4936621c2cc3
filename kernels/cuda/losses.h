// The losses: launchers. T is float or Bfloat16; formulas in kernels/operators.h and
// kernels/detection/ssd_loss.h.
#ifndef PUSHPULL_KERNELS_CUDA_LOSSES_H_
#define PUSHPULL_KERNELS_CUDA_LOSSES_H_

#include <cstdint>

#include "kernels/cuda/queue.h"
#include "kernels/detection/ssd_loss.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// A label outside [0, classes) gives a NaN.
template <typename T>
void SoftmaxCrossEntropy(Queue* queue, int64_t samples, int64_t classes, const T* logits,
                         const int32_t* labels, double smoothing, T* dlogits,
                         ClassificationResult* result);

int64_t SsdLossWorkspaceBytes(int64_t samples, int64_t num_anchors);

// At most 16 heads. One block per image matches, all blocks share the anchors' losses, one block
// per image mines, one adds up in the order of the images, and all write the gradients.
template <typename T>
void SsdLoss(Queue* queue, const SsdLossArguments<T>& arguments, SsdLossResult* result,
             void* workspace);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_LOSSES_H_
