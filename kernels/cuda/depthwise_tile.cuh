// What the depthwise kernels of both directions share: staging pixels in shared memory, two
// channels at a time, and activations.
#ifndef PUSHPULL_KERNELS_CUDA_DEPTHWISE_TILE_CUH_
#define PUSHPULL_KERNELS_CUDA_DEPTHWISE_TILE_CUH_

#include "kernels/cuda/depthwise_plan.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/views.cuh"

namespace pushpull::PUSHPULL_CUDA::depthwise {

__device__ __forceinline__ void StoreRaw8(const Raw8<Bfloat16>& raw, Bfloat16* to) {
  *reinterpret_cast<uint4*>(to) = raw.bits;
}
__device__ __forceinline__ void StoreRaw8(const Raw8<float>& raw, float* to) {
  reinterpret_cast<float4*>(to)[0] = raw.low;
  reinterpret_cast<float4*>(to)[1] = raw.high;
}

__device__ __forceinline__ float2 Load2(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}
__device__ __forceinline__ float2 Load2(const Bfloat16* from) {
  const unsigned bits = *reinterpret_cast<const unsigned*>(from);
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}
// Returns what was stored.
__device__ __forceinline__ float2 Store2(float2 value, float* to) {
  *reinterpret_cast<float2*>(to) = value;
  return value;
}
__device__ __forceinline__ float2 Store2(float2 value, Bfloat16* to) {
  const unsigned bits = PackBfloat16(value.x, value.y);
  *reinterpret_cast<unsigned*>(to) = bits;
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}
__device__ __forceinline__ float2 Fma2(float2 a, float2 b, float2 c) {
  return make_float2(fmaf(a.x, b.x, c.x), fmaf(a.y, b.y, c.y));
}

// Activate(z) = Clamp(z, bounds); its slope is 0 exactly on the bounds and beyond them.
struct Bounds {
  float low, high;
};

__device__ __forceinline__ Bounds BoundsOf(Activation activation) {
  const float infinity = __uint_as_float(0x7f800000u);
  return {activation == Activation::kNone ? -infinity : 0.0f,
          activation == Activation::kRelu6 ? 6.0f : infinity};
}

// A NaN stays one.
__device__ __forceinline__ float Clamp(float z, Bounds bounds) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  float result;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(z), "f"(bounds.low));
  asm("min.NaN.f32 %0, %1, %2;" : "=f"(result) : "f"(result), "f"(bounds.high));
  return result;
#else
  return z < bounds.low ? bounds.low : z > bounds.high ? bounds.high : z;
#endif
}

__device__ __forceinline__ float Masked(float gradient, float z, Bounds bounds) {
  return z <= bounds.low || z >= bounds.high ? 0.0f : gradient;
}

// Pixels in shared memory, and where they begin in the tensor.
struct Region {
  int rows, columns, pixels;  // pixels = images * rows * columns
};
struct Origin {
  int image, row, column;
};
struct Extent {
  int images, height, width, channels;
};

// The weights of a slab to taps[9][kSlab] in shared memory, and back from the thread's channels on.
__device__ __forceinline__ void PutTaps(const float* weights, int channels, int slab, float* taps) {
  for (int i = threadIdx.x; i < 9 * kSlab; i += kThreads) {
    const int channel = slab + i % kSlab;
    if (channel < channels) taps[i] = weights[i / kSlab * channels + channel];
  }
}
__device__ __forceinline__ void LoadTaps(const float* taps, float2 weights[3][3]) {
#pragma unroll
  for (int k = 0; k < 9; ++k) weights[k / 3][k % 3] = Load2(taps + k * kSlab);
}

// Four threads stage a pixel, eight channels each.
constexpr int kPixelsAtOnce = kThreads / 4;

// The pixels of a region that one thread visits: the same in every tile.
class PixelWalk {
 public:
  __device__ __forceinline__ PixelWalk(int thread, const Region& region)
      : pixel_(thread / 4), rows_(region.rows), columns_(region.columns) {
    start_ = Split(pixel_);
    step_ = Split(kPixelsAtOnce);
  }
  __device__ __forceinline__ Origin start() const { return start_; }
  __device__ __forceinline__ int pixel() const { return pixel_; }
  __device__ __forceinline__ void Advance(Origin* place) const {
    place->column += step_.column;
    place->row += step_.row;
    place->image += step_.image;
    if (place->column >= columns_) {
      place->column -= columns_;
      ++place->row;
    }
    if (place->row >= rows_) {
      place->row -= rows_;
      ++place->image;
    }
  }

 private:
  __device__ __forceinline__ Origin Split(int pixel) const {
    const int row = pixel / columns_;
    return {row / rows_, row % rows_, pixel % columns_};
  }

  int pixel_, rows_, columns_;
  Origin start_, step_;
};

// Pixels whose loads a thread has under way at the same time.
template <typename T>
inline constexpr int kBatch = sizeof(T) == 2 ? 4 : 2;

// `stager.Load(place)` reads eight channels of a pixel of the tensor, `stager.Put(pixel, loaded)`
// writes them to the tile and `stager.PutZero(pixel)` does so for a pixel outside of the tensor.
template <int kCount, typename Stager>
__device__ __forceinline__ void Stage(const PixelWalk& walk, const Region& region,
                                      const Extent& extent, Origin origin, int channel,
                                      const Stager& stager) {
  const int64_t image_size = int64_t{extent.height} * extent.width * extent.channels;
  Origin place = walk.start();
#pragma unroll 1
  for (int pixel = walk.pixel(); pixel < region.pixels; pixel += kCount * kPixelsAtOnce) {
    typename Stager::Loaded loaded[kCount] = {};
    bool inside[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int image = origin.image + place.image, row = origin.row + place.row,
                column = origin.column + place.column;
      inside[i] = pixel + i * kPixelsAtOnce < region.pixels && image < extent.images &&
                  static_cast<unsigned>(row) < static_cast<unsigned>(extent.height) &&
                  static_cast<unsigned>(column) < static_cast<unsigned>(extent.width) &&
                  channel < extent.channels;
      if (inside[i]) {
        loaded[i] = stager.Load(image * image_size +
                                (row * extent.width + column) * extent.channels + channel);
      }
      walk.Advance(&place);
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int target = pixel + i * kPixelsAtOnce;
      if (target >= region.pixels) continue;
      if (inside[i]) {
        stager.Put(target, loaded[i]);
      } else {
        stager.PutZero(target);
      }
    }
  }
}

// The staged inputs of a tile of outputs.
__device__ __forceinline__ Region ForwardRegion(const Plan& plan, int stride) {
  const int rows = (plan.rows - 1) * stride + 3, columns = (2 * plan.columns - 1) * stride + 3;
  return {rows, columns, plan.images * rows * columns};
}

// Backward: the staged dy and inputs of a tile.
__device__ __forceinline__ Region GradientRegion(const Plan& plan, int stride) {
  const int rows = plan.rows + Back(stride), columns = plan.columns * 2 / stride + Back(stride);
  return {rows, columns, plan.images * rows * columns};
}
__device__ __forceinline__ Region InputRegion(const Plan& plan, int stride) {
  const int rows = plan.rows * stride, columns = plan.columns * 2;
  return {rows, columns, plan.images * rows * columns};
}

// Where tile number `tile` begins, in steps.
__device__ __forceinline__ Origin TileOrigin(const Plan& plan, int tile) {
  const int column_tile = tile % plan.column_tiles, rest = tile / plan.column_tiles;
  return {rest / plan.row_tiles * plan.images, rest % plan.row_tiles * plan.rows,
          column_tile * plan.columns};
}

// The walk of number `item` within a tile: its image and column, and its rows [row, end).
struct Item {
  int image, column, row, end;
};
__device__ __forceinline__ Item ItemOf(const Plan& plan, int item) {
  const int column = item % plan.columns, rest = item / plan.columns;
  const int row = rest % plan.segments * plan.segment_rows;
  return {rest / plan.segments, column, row, min(row + plan.segment_rows, plan.rows)};
}

}  // namespace pushpull::PUSHPULL_CUDA::depthwise

#endif  // PUSHPULL_KERNELS_CUDA_DEPTHWISE_TILE_CUH_
