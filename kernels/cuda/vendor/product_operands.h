// Launchers of what a library's product (product.h) needs around it: weights in its order, and
// bias, statistics and padding of its result. The calls only queue kernels. T is the type of
// activations, float or Bfloat16.
#ifndef PUSHPULL_KERNELS_CUDA_VENDOR_PRODUCT_OPERANDS_H_
#define PUSHPULL_KERNELS_CUDA_VENDOR_PRODUCT_OPERANDS_H_

#include <cstdint>

#include "kernels/cuda/queue.h"
#include "kernels/cuda/vendor/product.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// Writes weights [taps, c, k] as T in the order of a product whose k is padded_outputs >= k. The
// weights of the outputs beyond k are zeros.
template <typename T>
void PackFilter(Queue* queue, const ConvolutionShape& shape, const float* weights,
                int64_t padded_outputs, FilterOrder order, T* packed);

// The way back for a gradient of the weights: dweights[taps, c, k] from a product's result. From is
// float or T.
template <typename From>
void UnpackFilterGradient(Queue* queue, const ConvolutionShape& shape, const From* packed,
                          int64_t padded_outputs, FilterOrder order, float* dweights);

// The parts of the statistics that FinishOutput writes, in bytes.
int64_t FinishOutputBytes(const Queue& queue, const Shape& out);

// y[out] = result + bias, and the statistics of y. `result` is [pixels, padded_outputs] and may be
// y if padded_outputs is out.c. `bias` may be null. `parts` has FinishOutputBytes.
template <typename T>
void FinishOutput(Queue* queue, const Shape& out, const T* result, int64_t padded_outputs,
                  const float* bias, T* y, const StatisticsOut<T>& statistics, float* parts);

// Writes to difference[0] the largest |expected[i] - actual[i]|, or infinity if one of the numbers
// is a NaN, and to difference[1] the largest |expected[i]|. One block, so it is slow: for checks.
template <typename T>
void LargestDifference(Queue* queue, int64_t size, const T* expected, const T* actual,
                       float* difference);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_VENDOR_PRODUCT_OPERANDS_H_
