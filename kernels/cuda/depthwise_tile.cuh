// What the depthwise kernels of both directions share: arithmetic on pairs of channels,
// activations, and staging of pixels in shared memory.
#ifndef PUSHPULL_KERNELS_CUDA_DEPTHWISE_TILE_CUH_
#define PUSHPULL_KERNELS_CUDA_DEPTHWISE_TILE_CUH_

#include "kernels/cuda/async_copy.cuh"
#include "kernels/cuda/clamp.cuh"
#include "kernels/cuda/depthwise_plan.h"
#include "kernels/cuda/launch.cuh"
#include "kernels/cuda/numbers.cuh"
#include "kernels/cuda/views.cuh"

namespace pushpull::PUSHPULL_CUDA::depthwise {

__device__ __forceinline__ float2 Load2(const float* from) {
  return *reinterpret_cast<const float2*>(from);
}
__device__ __forceinline__ float2 Load2(const Bfloat16* from) {
  const unsigned bits = *reinterpret_cast<const unsigned*>(from);
  return make_float2(__uint_as_float(bits << 16), __uint_as_float(bits & 0xffff0000u));
}
// Stores two numbers and returns them as they were rounded.
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

// The place of a pixel in a tensor, or among the staged pixels.
struct Origin {
  int image, row, column;
};
struct Extent {
  int images, height, width, channels;
};

// PutTaps copies the weights of a slab to taps[9][kSlab] in shared memory. LoadTaps reads them into
// registers; its `taps` point to the thread's two channels.
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

// The place of a staged pixel, counted from the tile's first one: the number of pixels to it in the
// tensor, and its row and column. All tiles have the same places.
struct StagedPlace {
  int offset;
  short row, column;
};
static_assert(sizeof(StagedPlace) == kPlaceBytes);

// Writes the places of the staged pixels. All threads of the block call it.
__device__ __forceinline__ void PutPlaces(const Staged& staged, const Extent& extent,
                                          StagedPlace* places) {
  for (int pixel = threadIdx.x; pixel < staged.pixels; pixel += kThreads) {
    int row, column;
    const int line = staged.by_columns.Quotient(pixel, &column);
    const int image = staged.by_rows.Quotient(line, &row);
    places[pixel] = {(image * extent.height + row) * extent.width + column, static_cast<short>(row),
                     static_cast<short>(column)};
  }
}

// Whether a staged pixel of a tile that begins at `origin` is in the image.
__device__ __forceinline__ bool IsInside(const StagedPlace& place, const Extent& extent,
                                         Origin origin) {
  return static_cast<unsigned>(origin.row + place.row) < static_cast<unsigned>(extent.height) &&
         static_cast<unsigned>(origin.column + place.column) < static_cast<unsigned>(extent.width);
}
__device__ __forceinline__ int FirstPixel(const Extent& extent, Origin origin) {
  return (origin.image * extent.height + origin.row) * extent.width + origin.column;
}
__device__ __forceinline__ int PixelsOf(const Staged& staged, const Extent& extent, Origin origin) {
  return min(staged.pixels, (extent.images - origin.image) * staged.rows * staged.columns);
}

// Asks for the pixels of a tile to come to the L2 cache, for the slab that begins at channel `slab`
// of one or two tensors (the second may be null). All threads of the block call it, while they work
// on the tile before.
template <typename T>
__device__ __forceinline__ void PrefetchTile(const Staged& staged, const StagedPlace* places,
                                             const Extent& extent, Origin origin, int slab,
                                             const T* tensor, const T* second) {
  const int first = FirstPixel(extent, origin), pixels = PixelsOf(staged, extent, origin);
  for (int pixel = threadIdx.x; pixel < pixels; pixel += kThreads) {
    const StagedPlace place = places[pixel];
    if (!IsInside(place, extent, origin)) continue;
    const int64_t offset = static_cast<int64_t>(first + place.offset) * extent.channels + slab;
    PrefetchLine(tensor + offset);
    if (second != nullptr) PrefetchLine(second + offset);
  }
}

// The number of pixels whose loads a thread has under way at the same time, to hide the latency of
// device memory.
template <typename T>
inline constexpr int kBatch = sizeof(T) == 2 ? 4 : 2;

// Stages a tile whose first pixel is at `origin` of the tensor. All threads of the block call it;
// four neighbouring threads take one pixel, eight channels each from `channel` on. The stager does
// the work: Load(place) reads eight channels of the tensor, Put(pixel, loaded) forms and writes
// them to the tile, PutZero(pixel) is called for pixels outside of the image. Images beyond the
// last are left out. A thread issues kCount loads before it uses the first.
template <int kCount, typename Stager>
__device__ __forceinline__ void Stage(const Staged& staged, const StagedPlace* places,
                                      const Extent& extent, Origin origin, int channel,
                                      const Stager& stager) {
  const int first = FirstPixel(extent, origin), pixels = PixelsOf(staged, extent, origin);
  const bool exists = channel < extent.channels;
#pragma unroll 1
  for (int pixel = threadIdx.x / 4; pixel < pixels; pixel += kCount * kPixelsAtOnce) {
    typename Stager::Loaded loaded[kCount] = {};
    bool inside[kCount];
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      inside[i] = false;
      if (pixel + i * kPixelsAtOnce >= pixels) continue;
      const StagedPlace place = places[pixel + i * kPixelsAtOnce];
      inside[i] = exists && IsInside(place, extent, origin);
      if (inside[i]) {
        loaded[i] =
            stager.Load(static_cast<int64_t>(first + place.offset) * extent.channels + channel);
      }
    }
#pragma unroll
    for (int i = 0; i < kCount; ++i) {
      const int target = pixel + i * kPixelsAtOnce;
      if (target >= pixels) continue;
      if (inside[i]) {
        stager.Put(target, loaded[i]);
      } else {
        stager.PutZero(target);
      }
    }
  }
}

// The origin of tile number `tile`, in steps.
__device__ __forceinline__ Origin TileOrigin(const Plan& plan, int tile) {
  int row_tile, column_tile;
  const int rest = plan.by_column_tiles.Quotient(tile, &column_tile);
  const int image_tile = plan.by_row_tiles.Quotient(rest, &row_tile);
  return {image_tile * plan.images, row_tile * plan.rows, column_tile * plan.columns};
}

// Walk number `item` of a tile: its image and column within the tile, and its rows [row, end).
struct Item {
  int image, column, row, end;
};
__device__ __forceinline__ Item ItemOf(const Plan& plan, int item) {
  int column, segment;
  const int rest = plan.by_columns.Quotient(item, &column);
  const int image = plan.by_segments.Quotient(rest, &segment);
  const int row = segment * plan.segment_rows;
  return {image, column, row, min(row + plan.segment_rows, plan.rows)};
}

}  // namespace pushpull::PUSHPULL_CUDA::depthwise

#endif  // PUSHPULL_KERNELS_CUDA_DEPTHWISE_TILE_CUH_
