// Statistics to which many blocks contribute (channel_sums.h says what a part is). Each block of a
// forward kernel writes its part, and the last block of each group of channels combines the group's
// parts in a fixed order, in double. Results are deterministic.
// Tested by tests/kernels/cuda/emulation/statistics_sums_test.cc.
#ifndef PUSHPULL_KERNELS_CUDA_STATISTICS_SUMS_CUH_
#define PUSHPULL_KERNELS_CUDA_STATISTICS_SUMS_CUH_

#include <algorithm>

#include "kernels/cuda/last_block.cuh"
#include "kernels/cuda/platform.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// What a kernel needs to compute statistics.
struct StatisticsSums {
  float* parts = nullptr;  // [num_parts][3][channels]; null: no statistics are wanted
  int num_parts = 0, channels = 0;
  unsigned* arrivals = nullptr;  // one counter per group of channels
  float* mean = nullptr;         // [channels], written
  float* variance = nullptr;
};

// `parts` is memory for the parts, of which a block writes those of kGroup channels. More groups
// than counters are an error of the queue.
template <typename T>
StatisticsSums SumsFor(Queue* queue, const StatisticsOut<T>& out, int64_t num_parts,
                       int64_t channels, int group, void* parts) {
  if (out.mean == nullptr) return {};
  if (channels > int64_t{kArrivalCounters} * group) {
    queue->Note(cudaErrorInvalidValue, "statistics of many channels");
  }
  return {static_cast<float*>(parts),
          static_cast<int>(num_parts),
          static_cast<int>(channels),
          queue->arrivals,
          out.mean,
          out.variance};
}

// The number of lanes to which the parts are dealt out. Each lane combines every 16th part. Then
// the lanes are combined in order.
inline constexpr int kStatisticsLanes = 16;
inline constexpr int kStatisticsThreads = 256;

// How much of the merged numbers comes from the second operand of a merge. It depends only on the
// counts, so it is computed once for all channels: the divisions are most of the work.
//   mean = a.mean + (b.mean - a.mean) * share
//   m2   = a.m2 + b.m2 + (b.mean - a.mean)^2 * product
struct MergeFactors {
  double share, product;
};
struct MeanAndSquares {
  double mean, m2;
};

__device__ __forceinline__ MergeFactors FactorsOf(double a_count, double b_count) {
  if (b_count == 0.0) return {0.0, 0.0};
  const double count = a_count + b_count;
  return {b_count / count, a_count * b_count / count};
}

__device__ __forceinline__ void MergeInto(const MergeFactors& factors, const MeanAndSquares& b,
                                          MeanAndSquares* a) {
  if (factors.share == 0.0) return;  // b is empty
  if (factors.share == 1.0) {        // a is empty
    *a = b;
    return;
  }
  const double distance = b.mean - a->mean;
  a->mean = a->mean + distance * factors.share;
  a->m2 = a->m2 + b.m2 + distance * distance * factors.product;
}

// The shared memory that CombineStatistics needs: a flag in 16 bytes, MergeFactors for the parts
// and for the lanes, the lanes' counts, and in the same place the counts of the parts and then the
// lanes' results.
inline int64_t StatisticsSharedBytes(int64_t parts, int group) {
  const int64_t factors = (parts + kStatisticsLanes) * int64_t{sizeof(MergeFactors)};
  const int64_t lanes = int64_t{kStatisticsLanes} * group * int64_t{sizeof(MeanAndSquares)};
  return 16 + factors + kStatisticsLanes * int64_t{sizeof(double)} +
         std::max<int64_t>(lanes, parts * int64_t{sizeof(double)});
}

// Combines the parts of kGroup channels from `first` on, if the calling block is the last of the
// sums.num_parts blocks that have written one. All kStatisticsThreads threads must call, and the
// shared memory, StatisticsSharedBytes(num_parts, kGroup) of it, must be free. `group` is the
// number of the counter.
//
//     parts [num_parts][kGroup]     thread (row, channel) has lanes row, row + rows, ...
//       p = 0    -> lane 0             lane 0  ----.
//       p = 1    -> lane 1      -->    lane 1  ----+-->  mean and variance of each channel
//       p = 16   -> lane 0             ...     ----'
//
// The block reads 8 * num_parts * kGroup bytes from the L2 cache, some 100 KB and rarely 500 KB,
// and runs alone. So each thread has several loads under way; latency is the bound, or for much
// data what one multiprocessor can read.
template <int kGroup>
__device__ __forceinline__ void CombineStatistics(const StatisticsSums& sums, int group,
                                                  unsigned char* shared) {
  unsigned* const flag = reinterpret_cast<unsigned*>(shared);
  if (!ArrivesLast(sums.arrivals + group, sums.num_parts, flag)) return;
  constexpr int kLanes = kStatisticsLanes;
  constexpr int kRows = kStatisticsThreads / kGroup;
  constexpr int kChains = kLanes / kRows;  // lanes of a thread
  constexpr int kSteps = 8 / kChains;      // parts of a lane whose loads are under way together
  const int thread = threadIdx.x, first = group * kGroup, num_parts = sums.num_parts;
  MergeFactors* const part_factors = reinterpret_cast<MergeFactors*>(shared + 16);
  MergeFactors* const lane_factors = part_factors + num_parts;
  double* const lane_counts = reinterpret_cast<double*>(lane_factors + kLanes);
  double* const counts = lane_counts + kLanes;
  MeanAndSquares* const lanes = reinterpret_cast<MeanAndSquares*>(counts);

  const int64_t part_size = int64_t{3} * sums.channels;
  for (int p = thread; p < num_parts; p += kStatisticsThreads) {
    counts[p] = __ldcg(sums.parts + p * part_size + first);
  }
  if (thread < kLanes) lane_counts[thread] = 0.0;
  __syncthreads();
  // All parts of a thread are of one lane. Sums of counts are exact.
  double before = 0.0;
  int counted = thread % kLanes;
  for (int p = thread; p < num_parts; p += kStatisticsThreads) {
#pragma unroll 4
    for (; counted < p; counted += kLanes) before += counts[counted];
    part_factors[p] = FactorsOf(before, counts[p]);
    if (p + kLanes >= num_parts) lane_counts[p % kLanes] = before + counts[p];
  }
  __syncthreads();
  if (thread < kLanes) {
    before = 0.0;
    for (int lane = 0; lane < thread; ++lane) before += lane_counts[lane];
    lane_factors[thread] = FactorsOf(before, lane_counts[thread]);
  }

  const int row = thread / kGroup, channel = first + thread % kGroup;
  MeanAndSquares merged[kChains] = {};
  if (channel < sums.channels) {
    const float* const parts = sums.parts + sums.channels + channel;
#pragma unroll 1
    for (int begin = row; begin < num_parts; begin += kSteps * kLanes) {
      float mean[8] = {}, m2[8] = {};
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int p = begin + i / kChains * kLanes + i % kChains * kRows;
        if (p >= num_parts) continue;
        mean[i] = __ldcg(parts + p * part_size);
        m2[i] = __ldcg(parts + p * part_size + sums.channels);
      }
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        const int p = begin + i / kChains * kLanes + i % kChains * kRows;
        if (p >= num_parts) continue;
        MergeInto(part_factors[p], {mean[i], m2[i]}, &merged[i % kChains]);
      }
    }
  }
#pragma unroll
  for (int j = 0; j < kChains; ++j) {
    lanes[(row + j * kRows) * kGroup + thread % kGroup] = merged[j];
  }
  __syncthreads();
  if (row != 0 || channel >= sums.channels) return;
  MeanAndSquares total = {};
  double count = 0.0;
#pragma unroll 4
  for (int lane = 0; lane < kLanes; ++lane) {
    count += lane_counts[lane];
    MergeInto(lane_factors[lane], lanes[lane * kGroup + thread], &total);
  }
  sums.mean[channel] = static_cast<float>(total.mean);
  sums.variance[channel] = static_cast<float>(total.m2 / count);
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_STATISTICS_SUMS_CUH_
