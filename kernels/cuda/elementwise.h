// Launchers of the operators without weights. The calls only queue kernels. T is float or Bfloat16;
// formulas in kernels/operators.h.
#ifndef PUSHPULL_KERNELS_CUDA_ELEMENTWISE_H_
#define PUSHPULL_KERNELS_CUDA_ELEMENTWISE_H_

#include <cstdint>

#include "absl/types/span.h"

#include "kernels/cuda/queue.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// As Operators::Apply.
template <typename T>
void ApplyLazy(Queue* queue, const Lazy<T>& x, T* out);

template <typename T>
void PoolForward(Queue* queue, const Lazy<T>& x, T* y);

int64_t PoolWorkspaceBytes(const Queue& queue, const Shape& shape);

template <typename T>
void PoolBackward(Queue* queue, const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                  void* workspace);

// As Operators::Dropout.
template <typename T>
void DropEntries(Queue* queue, int64_t size, const T* x, double rate, const uint64_t* seed,
                 uint64_t salt, T* y);

template <typename T>
void ConvertFromFloat(Queue* queue, int64_t size, const float* from, T* to);
template <typename T>
void ConvertToFloat(Queue* queue, int64_t size, const T* from, float* to);

void Zero(Queue* queue, int64_t size, float* out);
void AddTo(Queue* queue, int64_t size, const float* x, float* sum);
// As Operators::MovingStatistics, with one kernel for up to 80 batch norms.
void MovingStatistics(Queue* queue, absl::Span<const PushedStatistics<float>> norms);
void CorrectStatistics(Queue* queue, int64_t channels, double left, const float* mean,
                       const float* variance, float* corrected_mean, float* corrected_variance);

// Returns why this program has no code that runs on the calling thread's device, neither for it nor
// such that the driver can compile for it, or cudaSuccess. All kernels are compiled for the same
// devices.
cudaError_t CodeForDevice();

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_ELEMENTWISE_H_
