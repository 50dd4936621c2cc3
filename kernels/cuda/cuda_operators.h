// The fused operators on a GPU. Each call queues kernels on `queue` and returns.
#ifndef PUSHPULL_KERNELS_CUDA_CUDA_OPERATORS_H_
#define PUSHPULL_KERNELS_CUDA_CUDA_OPERATORS_H_

#include <memory>

#include "kernels/cuda/queue.h"
#include "kernels/cuda/vendor/convolution_choice.h"
#include "kernels/operators.h"

namespace pushpull::PUSHPULL_CUDA {

// T is float or Bfloat16. `queue` must outlive the operators. With `libraries`, which must outlive
// them too, dense convolutions are computed in the fastest way; null: by our kernels.
template <typename T>
std::unique_ptr<Operators<T>> MakeCudaOperators(Queue* queue, ChoiceContext* libraries = nullptr);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CUDA_OPERATORS_H_
