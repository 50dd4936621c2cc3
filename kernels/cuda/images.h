// The launcher of Operators::SampleImages. It only queues a kernel.
#ifndef PUSHPULL_KERNELS_CUDA_IMAGES_H_
#define PUSHPULL_KERNELS_CUDA_IMAGES_H_

#include <cstdint>

#include "kernels/cuda/queue.h"
#include "kernels/packed_image.h"

namespace pushpull::PUSHPULL_CUDA {

// Writes images[samples, input.height, input.width, input.channels]. input.channels is 1 or 3;
// there are at most 65,535 samples. T is float or Bfloat16.
template <typename T>
void SampleImages(Queue* queue, const ImageInput& input, int64_t samples, const void* block,
                  T* images);

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_IMAGES_H_
