// Tested by tests/kernels/cuda/vendor/library_convolution_test.cc.
#include "kernels/cuda/block_sum.cuh"
#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/channel_walk.cuh"
#include "kernels/cuda/statistics_sums.cuh"
#include "kernels/cuda/vendor/product_operands.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

// Computes where a weight, which has a tap, an input and an output channel, is in a product's
// order.
struct FilterPlaces {
  int inputs, outputs;  // the numbers of channels; `outputs` without padding
  int64_t tap_stride, input_stride, output_stride;

  FilterPlaces(const ConvolutionShape& shape, int64_t padded_outputs, FilterOrder order)
      : inputs(static_cast<int>(shape.in.c)), outputs(static_cast<int>(shape.out_channels)) {
    const int64_t taps = int64_t{shape.kernel} * shape.kernel;
    const bool outputs_last = order == FilterOrder::kOutputsLast;
    tap_stride = outputs_last ? inputs * padded_outputs : inputs;
    input_stride = outputs_last ? padded_outputs : 1;
    output_stride = outputs_last ? 1 : taps * inputs;
  }
  // `row` is tap * inputs + input.
  __device__ __forceinline__ int64_t Of(int row, int output) const {
    return row / inputs * tap_stride + row % inputs * input_stride + output * output_stride;
  }
};

// A thread per weight of the padded matrix [rows][padded_outputs], in a grid-stride loop. Weights
// are few compared with activations, so neither kernel transposes by way of shared memory.
template <typename T>
__global__ void __launch_bounds__(kWalkThreads)
    PackFilterKernel(const float* weights, FilterPlaces places, int64_t size, int padded_outputs,
                     T* packed) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    const int row = static_cast<int>(i / padded_outputs);
    const int output = static_cast<int>(i % padded_outputs);
    const float weight =
        output < places.outputs ? weights[int64_t{row} * places.outputs + output] : 0.0f;
    packed[places.Of(row, output)] = FromFloat<T>(weight);
  }
}

template <typename From>
__global__ void __launch_bounds__(kWalkThreads)
    UnpackFilterKernel(const From* packed, FilterPlaces places, int64_t size, float* dweights) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < size; i += step) {
    const int row = static_cast<int>(i / places.outputs);
    dweights[i] = ToFloat(packed[places.Of(row, static_cast<int>(i % places.outputs))]);
  }
}

// How FinishOutputKernel cuts the pixels: each of `parts` blocks has a range of rows_per_part.
struct OutputRows {
  int64_t rows = 0;
  int64_t rows_per_part = 1;
  int parts = 1;
};

constexpr int64_t kMinRows = 32;  // of a part

// The threads side by side along the channels, each with kWidth of them.
template <int kWidth>
constexpr int kOutputLanes = kWidth == 8 ? 8 : 32;

OutputRows CutRows(const Queue& queue, const Shape& out) {
  OutputRows cut;
  cut.rows = out.rows();
  const int64_t most = std::max<int64_t>((cut.rows + kMinRows - 1) / kMinRows, 1);
  const int64_t parts = std::min<int64_t>(int64_t{8} * queue.multiprocessors, most);
  cut.rows_per_part = (cut.rows + parts - 1) / parts;
  cut.parts = static_cast<int>((cut.rows + cut.rows_per_part - 1) / cut.rows_per_part);
  return cut;
}

// y = result + bias, and the moments of y per channel about a pivot, the channel's number in the
// first row of the part. A block has 256 / kLanes rows of kLanes threads; a thread has kWidth
// neighbouring channels of every (256 / kLanes)-th row. In the end the rows are added in order,
// through shared memory [rows][lanes][2][kWidth], and the last block of the group of channels,
// blockIdx.y, combines the parts. Bound by device memory.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kWalkThreads)
    FinishOutputKernel(OutputRows cut, const T* result, int result_channels, int channels,
                       const float* bias, T* y, StatisticsSums statistics) {
  constexpr int kLanes = kOutputLanes<kWidth>;
  constexpr int kRows = kWalkThreads / kLanes;
  const int lane = threadIdx.x % kLanes, first_row = threadIdx.x / kLanes;
  const int channel = (blockIdx.y * kLanes + lane) * kWidth;
  const bool inside = channel < channels;
  const bool stores = result != y || bias != nullptr;
  const int64_t begin = blockIdx.x * cut.rows_per_part;
  const int64_t end = min(begin + cut.rows_per_part, cut.rows);
  float pivot[kWidth] = {}, sum[kWidth] = {}, squares[kWidth] = {}, shift[kWidth] = {};
  if (inside) {
    if (bias != nullptr) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) shift[i] = bias[channel + i];
    }
    if (statistics.parts != nullptr) {
      LoadWide<kWidth>(result + begin * result_channels + channel, pivot);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) pivot[i] += shift[i];
    }
  }
  __syncthreads();  // result may be y, whose first row is written now
  if (inside) {
    for (int64_t row = begin + first_row; row < end; row += kRows) {
      float value[kWidth];
      LoadWide<kWidth>(result + row * result_channels + channel, value);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        value[i] = Rounded<T>(value[i] + shift[i]);
        const float distance = value[i] - pivot[i];
        sum[i] += distance;
        squares[i] += distance * distance;
      }
      if (stores) StoreWide<kWidth>(value, y + row * channels + channel);
    }
  }
  if (statistics.parts == nullptr) return;
  float* const shared = reinterpret_cast<float*>(SharedBytes());
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    shared[threadIdx.x * 2 * kWidth + i] = sum[i];
    shared[(threadIdx.x * 2 + 1) * kWidth + i] = squares[i];
  }
  __syncthreads();
  if (first_row == 0 && inside) {
    const float count = static_cast<float>(end - begin);
    float* const part = statistics.parts + int64_t{blockIdx.x} * 3 * channels + channel;
#pragma unroll 1
    for (int r = 1; r < kRows; ++r) {
      const float* const other = shared + (r * kLanes + lane) * 2 * kWidth;
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        sum[i] += other[i];
        squares[i] += other[kWidth + i];
      }
    }
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      part[i] = count;
      part[channels + i] = pivot[i] + sum[i] / count;
      part[2 * channels + i] = fmaxf(squares[i] - sum[i] * (sum[i] / count), 0.0f);
    }
  }
  CombineStatistics<kLanes * kWidth>(statistics, blockIdx.y, SharedBytes());
}

// A single block of 256 threads, [2][8] floats of shared memory.
template <typename T>
__global__ void __launch_bounds__(kWalkThreads)
    LargestDifferenceKernel(int64_t size, const T* expected, const T* actual, float* difference) {
  constexpr int kWarps = kWalkThreads / kWarpLanes;
  float largest = 0.0f, scale = 0.0f;
  for (int64_t i = threadIdx.x; i < size; i += blockDim.x) {
    const float a = ToFloat(expected[i]), b = ToFloat(actual[i]);
    const float distance = fabsf(a - b);
    if (!(distance <= largest)) largest = distance == distance ? distance : INFINITY;
    scale = fmaxf(scale, fabsf(a));
  }
  float* const shared = reinterpret_cast<float*>(SharedBytes());
  const int warp = threadIdx.x / kWarpLanes;
  largest = LaneMax(largest);
  scale = LaneMax(scale);
  if (threadIdx.x % kWarpLanes == 0) {
    shared[warp] = largest;
    shared[kWarps + warp] = scale;
  }
  __syncthreads();
  if (threadIdx.x != 0) return;
  for (int w = 1; w < kWarps; ++w) {
    largest = fmaxf(largest, shared[w]);
    scale = fmaxf(scale, shared[kWarps + w]);
  }
  difference[0] = largest;
  difference[1] = scale;
}

template <int kWidth, typename T>
void LaunchFinishOutput(Queue* queue, const Shape& out, const T* result, int64_t padded_outputs,
                        const float* bias, T* y, const StatisticsOut<T>& statistics, float* parts) {
  constexpr int kGroup = kOutputLanes<kWidth> * kWidth;
  const OutputRows cut = CutRows(*queue, out);
  const dim3 grid(cut.parts, static_cast<unsigned>((out.c + kGroup - 1) / kGroup));
  const int64_t shared = std::max<int64_t>(int64_t{kWalkThreads} * 2 * kWidth * sizeof(float),
                                           StatisticsSharedBytes(cut.parts, kGroup));
  Launch(queue, "finish_output", {grid, kWalkThreads, static_cast<size_t>(shared)},
         FinishOutputKernel<kWidth, T>, cut, result, static_cast<int>(padded_outputs),
         static_cast<int>(out.c), bias, y,
         SumsFor(queue, statistics, cut.parts, out.c, kGroup, parts));
}

}  // namespace

template <typename T>
void PackFilter(Queue* queue, const ConvolutionShape& shape, const float* weights,
                int64_t padded_outputs, FilterOrder order, T* packed) {
  const int64_t size = int64_t{shape.kernel} * shape.kernel * shape.in.c * padded_outputs;
  Launch(queue, "pack_filter", {WalkBlocks(*queue, size), kWalkThreads}, PackFilterKernel<T>,
         weights, FilterPlaces(shape, padded_outputs, order), size,
         static_cast<int>(padded_outputs), packed);
}

template <typename From>
void UnpackFilterGradient(Queue* queue, const ConvolutionShape& shape, const From* packed,
                          int64_t padded_outputs, FilterOrder order, float* dweights) {
  const int64_t size = shape.dense_weights();
  Launch(queue, "unpack_filter", {WalkBlocks(*queue, size), kWalkThreads}, UnpackFilterKernel<From>,
         packed, FilterPlaces(shape, padded_outputs, order), size, dweights);
}

int64_t FinishOutputBytes(const Queue& queue, const Shape& out) {
  return StatisticsPartBytes(CutRows(queue, out).parts, out.c);
}

template <typename T>
void FinishOutput(Queue* queue, const Shape& out, const T* result, int64_t padded_outputs,
                  const float* bias, T* y, const StatisticsOut<T>& statistics, float* parts) {
  const bool in_place = result == y;
  if (out.rows() == 0 || (in_place && bias == nullptr && statistics.mean == nullptr)) return;
  if (padded_outputs == out.c && CanWalkWide(out.c, {result, y})) {
    LaunchFinishOutput<8>(queue, out, result, padded_outputs, bias, y, statistics, parts);
  } else {
    LaunchFinishOutput<1>(queue, out, result, padded_outputs, bias, y, statistics, parts);
  }
}

template <typename T>
void LargestDifference(Queue* queue, int64_t size, const T* expected, const T* actual,
                       float* difference) {
  constexpr int kWarps = kWalkThreads / kWarpLanes;
  Launch(queue, "largest_difference", {1, kWalkThreads, 2 * kWarps * sizeof(float)},
         LargestDifferenceKernel<T>, size, expected, actual, difference);
}

#define PUSHPULL_INSTANTIATE(T)                                                                    \
  template void PackFilter<T>(Queue*, const ConvolutionShape&, const float*, int64_t, FilterOrder, \
                              T*);                                                                 \
  template void UnpackFilterGradient<T>(Queue*, const ConvolutionShape&, const T*, int64_t,        \
                                        FilterOrder, float*);                                      \
  template void FinishOutput<T>(Queue*, const Shape&, const T*, int64_t, const float*, T*,         \
                                const StatisticsOut<T>&, float*);                                  \
  template void LargestDifference<T>(Queue*, int64_t, const T*, const T*, float*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
