// Average pooling over the pixels of each sample. A block of 256 threads has `lanes` threads side
// by side along the channels, each with kWidth channels, and 256 / lanes rows of such threads. A
// row walks over every (256 / lanes)-th pixel; in the end the rows are added in order, through
// shared memory.
//
//            channels: lanes * kWidth
//           .------------------------.
//    row 0  | pixel 0, rows, 2 rows..|     sums in registers, then
//    row 1  | pixel 1, rows + 1, ..  |     shared [rows][lanes][kWidth]
//    ...    '------------------------'
// Tested by tests/kernels/cuda/elementwise_test.cc.
#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/channel_walk.cuh"
#include "kernels/cuda/elementwise.h"

namespace pushpull::PUSHPULL_CUDA {
namespace {

constexpr int kMaxLanes = 32;
// A block of the backward pass takes at least this many pixels and at most this many channels.
constexpr int64_t kPixelsPerPart = 32;
constexpr int64_t kChannelsPerBlock = 256;

// The smallest power of two that covers the channels of a pixel, up to a warp.
int Lanes(int channel_vectors) {
  int lanes = 1;
  while (lanes < channel_vectors && lanes < kMaxLanes) lanes *= 2;
  return lanes;
}

// The number of blocks that cover the channels.
unsigned Chunks(int channel_vectors, int lanes) {
  return static_cast<unsigned>((channel_vectors + lanes - 1) / lanes);
}

// The number of blocks that share the pixels in the backward pass; each writes a part of the sums.
int64_t Parts(const Queue& queue, const Shape& shape) {
  const int64_t chunks = (shape.c + kChannelsPerBlock - 1) / kChannelsPerBlock;
  const int64_t wanted = int64_t{8} * queue.multiprocessors / std::max<int64_t>(chunks, 1);
  const int64_t useful = (shape.rows() + kPixelsPerPart - 1) / kPixelsPerPart;
  return std::max<int64_t>(std::min(wanted, useful), 1);
}

// blockIdx.x is the sample, blockIdx.y the group of channels. Every input is read once and almost
// nothing is written: bound by device memory, or by latency if the batch is small.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kWalkThreads)
    PoolForwardKernel(LazyView<T> x, int64_t pixels, int channel_vectors, int lanes, T* y) {
  float* const sums = reinterpret_cast<float*>(SharedBytes());  // [rows][lanes][kWidth]
  const int lane = threadIdx.x % lanes, row = threadIdx.x / lanes, rows = blockDim.x / lanes;
  const int vector = blockIdx.y * lanes + lane;
  float sum[kWidth] = {};
  if (vector < channel_vectors) {
    ScaleShift norm[kWidth];
    LoadCoefficients<kWidth>(x.norm, vector * kWidth, norm);
    for (int64_t p = row; p < pixels; p += rows) {
      float value[kWidth];
      LoadValue<kWidth>(x, norm, ((blockIdx.x * pixels + p) * channel_vectors + vector) * kWidth,
                        value);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) sum[i] += value[i];
    }
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sums[threadIdx.x * kWidth + i] = sum[i];
  __syncthreads();
  if (row != 0 || vector >= channel_vectors) return;
  for (int r = 1; r < rows; ++r) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum[i] += sums[(r * lanes + lane) * kWidth + i];
  }
#pragma unroll
  for (int i = 0; i < kWidth; ++i) sum[i] /= static_cast<float>(pixels);
  StoreWide<kWidth>(sum, y + (int64_t{blockIdx.x} * channel_vectors + vector) * kWidth);
}

struct PoolBackwardSize {
  int64_t rows;    // pixels of all samples
  int64_t pixels;  // of one
  int channel_vectors;
  int lanes;
};

// The input gradient. blockIdx.x blocks share the pixels of all samples, blockIdx.y is the group of
// channels. A thread keeps the coefficients of its channels and their two batch norm sums in
// registers. `parts` are the sums of the gradients as stored, in the layout of channel_sums.h, or
// null without a batch norm. Each pixel reads raw (and dx.add) and writes dz once: bound by device
// memory.
template <int kWidth, typename T>
__global__ void __launch_bounds__(kWalkThreads)
    PoolBackwardKernel(LazyView<T> x, const T* dy, InputGradientView<T> dx, PoolBackwardSize size,
                       float* parts) {
  const int lanes = size.lanes;
  const int lane = threadIdx.x % lanes, row = threadIdx.x / lanes, rows = blockDim.x / lanes;
  const int vector = blockIdx.y * lanes + lane;
  const bool reads_raw = x.norm.gamma != nullptr || x.activation != FusedActivation::kNone;
  float dbeta[kWidth] = {}, dgamma[kWidth] = {};
  if (vector < size.channel_vectors) {
    ScaleShift norm[kWidth];
    LoadCoefficients<kWidth>(x.norm, vector * kWidth, norm);
    float mean[kWidth] = {};
    if (x.norm.gamma != nullptr) {
#pragma unroll
      for (int i = 0; i < kWidth; ++i) mean[i] = x.norm.mean[vector * kWidth + i];
    }
    for (int64_t r = int64_t{blockIdx.x} * rows + row; r < size.rows;
         r += int64_t{gridDim.x} * rows) {
      const int64_t index = (r * size.channel_vectors + vector) * kWidth;
      const int64_t sample = size.pixels == 1 ? r : r / size.pixels;
      float dz[kWidth], add[kWidth] = {}, raw[kWidth] = {};
      LoadWide<kWidth>(dy + (sample * size.channel_vectors + vector) * kWidth, dz);
      if (dx.add != nullptr) LoadWide<kWidth>(dx.add + index, add);
      if (reads_raw) LoadWide<kWidth>(x.raw + index, raw);
#pragma unroll
      for (int i = 0; i < kWidth; ++i) {
        const float slope = ActivationSlope(x.activation, norm[i].scale * raw[i] + norm[i].shift);
        dz[i] = Rounded<T>((dz[i] / static_cast<float>(size.pixels) + add[i]) * slope);
        dbeta[i] += dz[i];
        dgamma[i] += dz[i] * (raw[i] - mean[i]);
      }
      StoreWide<kWidth>(dz, dx.dz + index);
    }
  }
  if (parts == nullptr) return;
  float* const sums = reinterpret_cast<float*>(SharedBytes());  // [rows][lanes][2][kWidth]
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    sums[threadIdx.x * 2 * kWidth + i] = dbeta[i];
    sums[(threadIdx.x * 2 + 1) * kWidth + i] = dgamma[i];
  }
  __syncthreads();
  if (row != 0 || vector >= size.channel_vectors) return;
  for (int r = 1; r < rows; ++r) {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      dbeta[i] += sums[(r * lanes + lane) * 2 * kWidth + i];
      dgamma[i] += sums[((r * lanes + lane) * 2 + 1) * kWidth + i];
    }
  }
  const int64_t channels = int64_t{size.channel_vectors} * kWidth;
  float* const part = parts + int64_t{blockIdx.x} * 2 * channels + vector * kWidth;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    part[i] = dbeta[i];
    part[channels + i] = dgamma[i];
  }
}

template <int kWidth, typename T>
void LaunchForward(Queue* queue, const Lazy<T>& x, T* y) {
  const int channel_vectors = static_cast<int>(x.shape.c / kWidth);
  const int lanes = Lanes(channel_vectors);
  Launch(queue, "PoolForward",
         {dim3(static_cast<unsigned>(x.shape.n), Chunks(channel_vectors, lanes)), kWalkThreads,
          kWalkThreads * kWidth * sizeof(float)},
         PoolForwardKernel<kWidth, T>, ViewOf(x), x.shape.h * x.shape.w, channel_vectors, lanes, y);
}

template <int kWidth, typename T>
void LaunchBackward(Queue* queue, const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                    int64_t parts, float* workspace) {
  PoolBackwardSize size;
  size.rows = x.shape.rows();
  size.pixels = x.shape.h * x.shape.w;
  size.channel_vectors = static_cast<int>(x.shape.c / kWidth);
  size.lanes = Lanes(size.channel_vectors);
  Launch(queue, "PoolBackward",
         {dim3(static_cast<unsigned>(parts), Chunks(size.channel_vectors, size.lanes)),
          kWalkThreads, kWalkThreads * 2 * kWidth * sizeof(float)},
         PoolBackwardKernel<kWidth, T>, ViewOf(x), dy, ViewOf(dx), size, workspace);
}

}  // namespace

template <typename T>
void PoolForward(Queue* queue, const Lazy<T>& x, T* y) {
  if (x.shape.size() == 0) return;
  if (x.shape.h * x.shape.w == 1) {
    WriteValue(queue, ViewOf(x), x.shape, y);
  } else if (CanWalkWide(x.shape.c, {x.raw, x.skip, x.applied, y})) {
    LaunchForward<8>(queue, x, y);
  } else {
    LaunchForward<1>(queue, x, y);
  }
}

int64_t PoolWorkspaceBytes(const Queue& queue, const Shape& shape) {
  return GradientPartBytes(Parts(queue, shape), shape.c);
}

template <typename T>
void PoolBackward(Queue* queue, const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                  void* workspace) {
  if (dx.dz == nullptr || x.shape.size() == 0) return;
  const int64_t parts = Parts(*queue, x.shape);
  float* const sums = x.batch_norm == nullptr ? nullptr : static_cast<float*>(workspace);
  if (CanWalkWide(x.shape.c, {x.raw, dy, dx.add, dx.dz})) {
    LaunchBackward<8>(queue, x, dy, dx, parts, sums);
  } else {
    LaunchBackward<1>(queue, x, dy, dx, parts, sums);
  }
  if (sums == nullptr) return;
  CombineGradients(queue, {{sums, parts, x.shape.c, x.batch_norm, dx.dbeta, dx.dgamma}, {}, {}});
}

#define PUSHPULL_INSTANTIATE(T)                             \
  template void PoolForward<T>(Queue*, const Lazy<T>&, T*); \
  template void PoolBackward<T>(Queue*, const Lazy<T>&, const T*, const InputGradient<T>&, void*);
PUSHPULL_INSTANTIATE(float)
PUSHPULL_INSTANTIATE(Bfloat16)
#undef PUSHPULL_INSTANTIATE

}  // namespace pushpull::PUSHPULL_CUDA
