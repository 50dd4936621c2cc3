#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/views.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kThreads = 256, kThreadsLog2 = 8;
constexpr int kNormLanes = 16;  // threads that share one channel's parts
constexpr int kNormColumns = kThreads / kNormLanes;

// All sums work alike. The threads of a block are [lanes][columns], so a warp reads neighbouring
// columns of a part. Thread (lane, column) adds the parts p = lane, lane + lanes, ... in double and
// puts its sum into shared memory; after a barrier the threads of lane 0 add the lanes in order.
// The order depends on the sizes only, so results are deterministic.
//
//     parts [num_parts][columns]          shared [lanes][columns]
//       p = 0        -> lane 0               lane 0  ----.
//       p = 1        -> lane 1       -->     lane 1  ----+-->  one result per column
//       p = lanes    -> lane 0               ...     ----'

// The gradients of a batch norm and plain sums in the form that the kernel takes. Each of `blocks`
// blocks owns kNormColumns or `columns` columns. There is nothing to do if `blocks` is 0.
struct NormGradientWork {
  int blocks = 0;
  const float* parts = nullptr;  // [num_parts][2][channels]
  int num_parts = 0, channels = 0;
  NormView norm;
  float* dbeta = nullptr;
  float* dgamma = nullptr;
};

struct PlainWork {
  int blocks = 0;
  const float* parts = nullptr;  // [num_parts][size]
  int num_parts = 0;
  int columns_log2 = 0;  // of a block, which has kThreads / columns lanes
  int64_t size = 0;
  float* out = nullptr;
};

struct GradientWork {
  NormGradientWork norm;
  PlainWork plain[2];  // weights, biases
};

// Adds the two sums of 16 channels. Shared memory holds double [2][kNormLanes][16].
__device__ __forceinline__ void AddNormGradients(const NormGradientWork& work, int block,
                                                 double* lanes) {
  const int column = threadIdx.x % kNormColumns, lane = threadIdx.x / kNormColumns;
  const int channel = block * kNormColumns + column;
  double sums[2] = {0.0, 0.0};
  if (channel < work.channels) {
    for (int p = lane; p < work.num_parts; p += kNormLanes) {
      const float* const part = work.parts + static_cast<int64_t>(p) * 2 * work.channels + channel;
      sums[0] += part[0];
      sums[1] += part[work.channels];
    }
  }
  for (int i = 0; i < 2; ++i) lanes[(i * kNormLanes + lane) * kNormColumns + column] = sums[i];
  __syncthreads();
  if (lane != 0 || channel >= work.channels) return;
  for (int other = 1; other < kNormLanes; ++other) {
    for (int i = 0; i < 2; ++i) sums[i] += lanes[(i * kNormLanes + other) * kNormColumns + column];
  }
  work.dbeta[channel] = static_cast<float>(sums[0]);
  work.dgamma[channel] = static_cast<float>(sums[1] * InverseDeviation(work.norm, channel));
}

// Adds plain sums. Shared memory holds double [lanes][columns]. The trips of the loop are counted
// first, since the compiler would divide by the number of lanes to unroll it.
__device__ __forceinline__ void AddPlain(const PlainWork& work, int block, double* sums) {
  const int columns = 1 << work.columns_log2, lanes_log2 = kThreadsLog2 - work.columns_log2;
  const int index = threadIdx.x & (columns - 1), lane = threadIdx.x >> work.columns_log2;
  const int64_t column = static_cast<int64_t>(block) * columns + index;
  const int trips = (work.num_parts - lane + (1 << lanes_log2) - 1) >> lanes_log2;
  double sum = 0.0;
  if (column < work.size) {
    const float* part = work.parts + lane * work.size + column;
#pragma unroll 4
    for (int i = 0; i < trips; ++i, part += work.size << lanes_log2) sum += *part;
  }
  sums[threadIdx.x] = sum;
  __syncthreads();
  if (lane != 0 || column >= work.size) return;
#pragma unroll 1
  for (int other = columns; other < kThreads; other += columns) sum += sums[other + index];
  work.out[column] = static_cast<float>(sum);
}

// Combines the gradients of an operator. The first blocks add the gradients of the batch norm, the
// next those of the weights, and the last those of the biases. Large weight gradients are bound by
// the memory that their parts are read from (often the L2 cache, since they were just written), all
// others by latency.
__global__ void __launch_bounds__(kThreads) CombineGradientsKernel(GradientWork work) {
  double* const shared = reinterpret_cast<double*>(SharedBytes());
  const int block = static_cast<int>(blockIdx.x) - work.norm.blocks;
  if (block < 0) return AddNormGradients(work.norm, blockIdx.x, shared);
  const int which = block < work.plain[0].blocks ? 0 : 1;
  AddPlain(work.plain[which], block - which * work.plain[0].blocks, shared);
}

NormGradientWork WorkOf(const NormGradientSums& sums) {
  if (sums.num_parts == 0) return {};
  return {static_cast<int>((sums.channels + kNormColumns - 1) / kNormColumns),
          sums.parts,
          static_cast<int>(sums.num_parts),
          static_cast<int>(sums.channels),
          ViewOf(sums.norm),
          sums.dbeta,
          sums.dgamma};
}

// Takes more lanes for more parts, so that a lane adds about four.
PlainWork WorkOf(const PlainSums& sums) {
  constexpr int kMaxLanes = 32, kPartsPerLane = 4;
  if (sums.num_parts == 0) return {};
  int lanes_log2 = 0;
  while (1 << lanes_log2 < kMaxLanes && (kPartsPerLane << lanes_log2) < sums.num_parts) {
    ++lanes_log2;
  }
  const int columns_log2 = kThreadsLog2 - lanes_log2;
  return {static_cast<int>((sums.size + (1 << columns_log2) - 1) >> columns_log2),
          sums.parts,
          static_cast<int>(sums.num_parts),
          columns_log2,
          sums.size,
          sums.out};
}

}  // namespace

void CombineGradients(Queue* queue, const GradientSums& sums) {
  const GradientWork work = {WorkOf(sums.norm), {WorkOf(sums.weights), WorkOf(sums.biases)}};
  const int blocks = work.norm.blocks + work.plain[0].blocks + work.plain[1].blocks;
  Launch(queue, "combine_gradients", {dim3(blocks), dim3(kThreads), 2 * kThreads * sizeof(double)},
         CombineGradientsKernel, work);
}

}  // namespace pushpull::PUSHPULL_CUDA
