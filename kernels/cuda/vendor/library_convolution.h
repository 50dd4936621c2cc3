// Whole convolutions whose products a library computes (product.h). Our kernels write the operands
// as plain tensors before and add bias, statistics and batch norm sums after. The arguments are as
// in kernels/operators.h; T is float or Bfloat16.
#ifndef PUSHPULL_KERNELS_CUDA_VENDOR_LIBRARY_CONVOLUTION_H_
#define PUSHPULL_KERNELS_CUDA_VENDOR_LIBRARY_CONVOLUTION_H_

#include <cstdint>

#include "absl/status/status.h"

#include "kernels/cuda/queue.h"
#include "kernels/cuda/vendor/product.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// The shape of one of the products of a convolution. Its out_channels are padded to a multiple
// of 8. shape.in.c must be such a multiple.
template <typename T>
ProductShape ProductOf(ProductKind kind, const ConvolutionShape& shape);

// The bytes of workspace that either direction needs with products of at most `product_workspace`.
template <typename T>
int64_t LibraryWorkspaceBytes(const Queue& queue, const ConvolutionShape& shape,
                              int64_t product_workspace);

// An error comes from the product; the outputs are then undefined, and the operator can be queued
// again in another way.
template <typename T>
absl::Status LibraryForward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                            const float* weights, const float* bias, T* y,
                            const StatisticsOut<T>& statistics, Product* product, void* workspace);

// Null: our kernel computes this gradient.
struct GradientProducts {
  Product* weights = nullptr;
  Product* input = nullptr;
};

// The same holds for errors: dx is written last, and only if there was none.
template <typename T>
absl::Status LibraryBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                             const float* weights, const OutputGradient<T>& dy, float* dweights,
                             float* dbias, const InputGradient<T>& dx,
                             const GradientProducts& products, void* workspace);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_VENDOR_LIBRARY_CONVOLUTION_H_
