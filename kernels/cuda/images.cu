#include "kernels/cuda/images.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kThreads = 256;
// Reading the description of an image costs something, so a thread makes several pixels.
constexpr int kPixelsPerThread = 4;

// Makes the network's input from packed images. blockIdx.y is the image; its row of blocks shares
// the pixels in a grid-stride loop, about four per thread. A thread traces a pixel back to up to
// four stored pixels, interpolates and normalises them (packed_image.h) and writes all channels
// of the pixel. There is no shared memory: neighbouring threads make neighbouring pixels, so they
// read neighbouring bytes, mostly from the L1 cache. Loads of single bytes and index arithmetic are
// the likely bound, rather than device memory.
template <int kChannels, typename T>
__global__ void __launch_bounds__(kThreads)
    ImageKernel(ImageInput input, const void* block, T* images) {
  const PackedImage image = static_cast<const PackedImage*>(block)[blockIdx.y];
  const int pixels = input.height * input.width;
  const int step = static_cast<int>(gridDim.x * blockDim.x);
  T* const output = images + int64_t{blockIdx.y} * pixels * kChannels;
  for (int pixel = static_cast<int>(blockIdx.x * blockDim.x + threadIdx.x); pixel < pixels;
       pixel += step) {
    float values[kChannels];
    SampleImage<kChannels>(input, image, block, pixel / input.width, pixel % input.width, values);
#pragma unroll
    for (int c = 0; c < kChannels; ++c) {
      output[int64_t{pixel} * kChannels + c] = FromFloat<T>(values[c]);
    }
  }
}

}  // namespace

template <typename T>
void SampleImages(Queue* queue, const ImageInput& input, int64_t samples, const void* block,
                  T* images) {
  const int64_t per_block = int64_t{kThreads} * kPixelsPerThread;
  const int64_t pixels = int64_t{1} * input.height * input.width;
  const dim3 grid(static_cast<unsigned>((pixels + per_block - 1) / per_block),
                  static_cast<unsigned>(samples));
  Launch(queue, "SampleImages", {grid, kThreads},
         input.channels == 3 ? ImageKernel<3, T> : ImageKernel<1, T>, input, block, images);
}

template void SampleImages<float>(Queue*, const ImageInput&, int64_t, const void*, float*);
template void SampleImages<Bfloat16>(Queue*, const ImageInput&, int64_t, const void*, Bfloat16*);

}  // namespace pushpull::PUSHPULL_CUDA
