#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/views.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kChannelsPerBlock = 32;
constexpr int kLanes = 16;  // threads that share one channel's parts

// All three kernels work alike. A block has threads [lanes][columns]; x counts columns (channels),
// so a warp reads neighbouring columns of a part. Thread (lane, column) adds the parts p = lane,
// lane + lanes, ... in double and puts its sum into shared memory; after a barrier the threads of
// lane 0 add the lanes in order. The order depends on the sizes only, so results are deterministic.
//
//     parts [num_parts][columns]          shared [lanes][columns]
//       p = 0        -> lane 0               lane 0  ----.
//       p = 1        -> lane 1       -->     lane 1  ----+-->  one result per column
//       p = lanes    -> lane 0               ...     ----'

// The count, the mean and the sum of squared distances from the mean of some values.
struct Moments {
  double count, mean, m2;
};

__device__ __forceinline__ Moments Merge(const Moments& a, const Moments& b) {
  if (b.count == 0.0) return a;
  if (a.count == 0.0) return b;
  const double count = a.count + b.count;
  const double distance = b.mean - a.mean;
  return {count, a.mean + distance * (b.count / count),
          a.m2 + b.m2 + distance * distance * (a.count * b.count / count)};
}

// A block combines the statistics of 32 channels; its 16 lanes share the parts. Shared memory holds
// Moments [kLanes][32]. There are few blocks, and each merge depends on the one before through
// divisions in double, so latency is the likely bound.
__global__ void CombineStatisticsKernel(const float* parts, int num_parts, int channels,
                                        float* mean, float* variance) {
  Moments* const lanes = reinterpret_cast<Moments*>(SharedBytes());
  const int channel = blockIdx.x * kChannelsPerBlock + threadIdx.x;
  Moments moments = {0.0, 0.0, 0.0};
  if (channel < channels) {
    for (int p = threadIdx.y; p < num_parts; p += kLanes) {
      const float* const part = parts + static_cast<int64_t>(p) * 3 * channels + channel;
      moments = Merge(moments, {part[0], part[channels], part[2 * channels]});
    }
  }
  lanes[threadIdx.y * kChannelsPerBlock + threadIdx.x] = moments;
  __syncthreads();
  if (threadIdx.y == 0 && channel < channels) {
    for (int lane = 1; lane < kLanes; ++lane) {
      moments = Merge(moments, lanes[lane * kChannelsPerBlock + threadIdx.x]);
    }
    mean[channel] = static_cast<float>(moments.mean);
    variance[channel] = static_cast<float>(moments.m2 / moments.count);
  }
}

// A block combines the two gradient sums of 32 channels; its 16 lanes share the parts. Shared
// memory holds double [2][kLanes][32]. There are few blocks, so latency is the likely bound.
__global__ void CombineNormGradientsKernel(const float* parts, int num_parts, int channels,
                                           NormView norm, float* dbeta, float* dgamma) {
  double* const lanes = reinterpret_cast<double*>(SharedBytes());
  const int channel = blockIdx.x * kChannelsPerBlock + threadIdx.x;
  double sums[2] = {0.0, 0.0};
  if (channel < channels) {
    for (int p = threadIdx.y; p < num_parts; p += kLanes) {
      const float* const part = parts + static_cast<int64_t>(p) * 2 * channels + channel;
      sums[0] += part[0];
      sums[1] += part[channels];
    }
  }
  for (int i = 0; i < 2; ++i) {
    lanes[(i * kLanes + threadIdx.y) * kChannelsPerBlock + threadIdx.x] = sums[i];
  }
  __syncthreads();
  if (threadIdx.y == 0 && channel < channels) {
    for (int lane = 1; lane < kLanes; ++lane) {
      for (int i = 0; i < 2; ++i) {
        sums[i] += lanes[(i * kLanes + lane) * kChannelsPerBlock + threadIdx.x];
      }
    }
    dbeta[channel] = static_cast<float>(sums[0]);
    dgamma[channel] = static_cast<float>(sums[1] * InverseDeviation(norm, channel));
  }
}

// A block adds blockDim.x columns; its blockDim.y lanes share the parts. Shared memory holds double
// [lanes][columns]. CombineParts chooses more lanes for more parts, so that a lane adds about four.
// Large weight gradients are bound by the memory that `parts` is read from (often the L2 cache,
// since it was just written), small ones by latency.
__global__ void CombinePartsKernel(const float* parts, int num_parts, int64_t size, float* out) {
  double* const sums = reinterpret_cast<double*>(SharedBytes());
  const int64_t column = static_cast<int64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
  double sum = 0.0;
  if (column < size) {
    for (int p = threadIdx.y; p < num_parts; p += blockDim.y) sum += parts[p * size + column];
  }
  sums[threadIdx.y * blockDim.x + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= size) return;
  for (int lane = 1; lane < blockDim.y; ++lane) sum += sums[lane * blockDim.x + threadIdx.x];
  out[column] = static_cast<float>(sum);
}

LaunchShape ChannelShape(int64_t channels, size_t bytes_per_thread) {
  const auto blocks = static_cast<unsigned>((channels + kChannelsPerBlock - 1) / kChannelsPerBlock);
  return {dim3(blocks), dim3(kChannelsPerBlock, kLanes),
          bytes_per_thread * kChannelsPerBlock * kLanes};
}

}  // namespace

void CombineStatistics(Queue* queue, const float* parts, int64_t num_parts, int64_t channels,
                       float* mean, float* variance) {
  Launch(queue, "combine_statistics", ChannelShape(channels, sizeof(Moments)),
         CombineStatisticsKernel, parts, static_cast<int>(num_parts), static_cast<int>(channels),
         mean, variance);
}

void CombineNormGradients(Queue* queue, const float* parts, int64_t num_parts, int64_t channels,
                          const BatchNorm<float>& norm, float* dbeta, float* dgamma) {
  Launch(queue, "combine_norm_gradients", ChannelShape(channels, 2 * sizeof(double)),
         CombineNormGradientsKernel, parts, static_cast<int>(num_parts), static_cast<int>(channels),
         ViewOf(&norm), dbeta, dgamma);
}

void CombineParts(Queue* queue, const float* parts, int64_t num_parts, int64_t size, float* out) {
  constexpr unsigned kThreads = 256, kMostLanes = 32, kPartsPerLane = 4;
  unsigned lanes = 1;
  while (lanes < kMostLanes && lanes * kPartsPerLane < num_parts) lanes *= 2;
  const unsigned columns = kThreads / lanes;
  const auto blocks = static_cast<unsigned>((size + columns - 1) / columns);
  Launch(queue, "combine_parts", {dim3(blocks), dim3(columns, lanes), kThreads * sizeof(double)},
         CombinePartsKernel, parts, static_cast<int>(num_parts), size, out);
}

}  // namespace pushpull::PUSHPULL_CUDA
