// Operands of convolutions that are read many times, or whose channels are no multiple of 8,
// written to the workspace as plain numbers. A convolution that is not pointwise reads every number
// once per tap, and all read it once per group of columns; to form it each time would take more
// instructions than all else.
#ifndef PUSHPULL_KERNELS_CUDA_CONVOLUTION_OPERANDS_H_
#define PUSHPULL_KERNELS_CUDA_CONVOLUTION_OPERANDS_H_

#include "kernels/cuda/convolution_sources.cuh"
#include "kernels/cuda/queue.h"
#include "kernels/cuda/views.cuh"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// The bytes of workspace for the value of x or for dy; 0 if the shape never needs them. T is the
// type of both.
template <typename T>
int64_t PlainValueBytes(const ConvolutionShape& shape);
template <typename T>
int64_t PlainGradientBytes(const ConvolutionShape& shape);

// Returns the value of x, with a multiple of 8 channels, of which those beyond x's are zeros. If
// writing it pays, or the convolution's kernels need plain numbers, this queues a kernel that
// writes it to `place`, which has PlainValueBytes.
template <typename T>
ValueSource<T> PlainValue(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                          void* place);
// Writes it in any case, unless it is plain numbers already.
template <typename T>
ValueSource<T> WritePlainValue(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                               void* place);

// dy in memory. A pixel has `channels` numbers, of which those beyond the channels of the output
// are zeros.
template <typename T>
struct PlainGradientOf {
  OutputGradient<T> gradient;
  int channels = 0;
};

// Returns dy; the same holds. What it writes has a multiple of 8 channels. `place` has
// PlainGradientBytes.
template <typename T>
PlainGradientOf<T> PlainGradient(Queue* queue, const ConvolutionShape& shape,
                                 const OutputGradient<T>& dy, bool input_gradient, void* place);

// The value of x and dy as NVIDIA's libraries take them: written, whether it pays or not, unless
// they are plain numbers already. The value has the channels of x, and dy a multiple of 8. The
// places have room for that.
template <typename T>
const T* FormValue(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x, void* place);
template <typename T>
PlainGradientOf<T> FormGradient(Queue* queue, const ConvolutionShape& shape,
                                const OutputGradient<T>& dy, void* place);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CONVOLUTION_OPERANDS_H_
