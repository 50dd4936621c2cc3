// Tested by tests/kernels/cuda/depthwise_test.cc.
// Tested by tests/kernels/cuda/cuda_convolution_test.cc.
#include "kernels/cuda/channel_sums.h"
#include "kernels/cuda/depthwise.h"
#include "kernels/cuda/depthwise_input_walk.cuh"
#include "kernels/cuda/depthwise_tile.cuh"

namespace pushpull::PUSHPULL_CUDA {
namespace depthwise {
namespace {

template <typename T>
__device__ __forceinline__ void PutCoefficients(const LazyView<T>& x,
                                                const OutputGradientView<T>& dy, int channel,
                                                float* to) {
  const ScaleShift norm = NormCoefficients(x.norm, channel);
  const RawGradientCoefficients gradient = GradientCoefficients(dy, channel);
  to[kScale * kSlab] = norm.scale;
  to[kShift * kSlab] = norm.shift;
  to[kMean * kSlab] = x.norm.gamma == nullptr ? 0.0f : x.norm.mean[channel];
  to[kDzFactor * kSlab] = gradient.dz_factor;
  to[kRawFactor * kSlab] = gradient.raw_factor;
  to[kOffset * kSlab] = gradient.offset;
}

// Whether dy depends on raw.
template <typename T>
__device__ __forceinline__ bool NeedsRaw(const OutputGradientView<T>& dy) {
  return dy.norm.gamma != nullptr && dy.norm.batch_statistics;
}

// A stager (depthwise_tile.cuh) that forms dy from dz and raw and puts it into tile[pixels][kSlab].
template <typename T>
class GradientStager {
 public:
  struct Loaded {
    Raw8<T> dz, raw;
  };

  __device__ __forceinline__ GradientStager(const OutputGradientView<T>& dy,
                                            const float* coefficients, float* tile)
      : dz_(dy.dz), raw_(NeedsRaw(dy) ? dy.raw : nullptr) {
    const int first = threadIdx.x % 4 * 8;
    tile_ = tile + first;
    Load8(coefficients + kDzFactor * kSlab + first, dz_factor_);
    Load8(coefficients + kRawFactor * kSlab + first, raw_factor_);
    Load8(coefficients + kOffset * kSlab + first, offset_);
  }
  __device__ __forceinline__ Loaded Load(int64_t place) const {
    Loaded loaded;
    loaded.dz = LoadRaw8(dz_ + place);
    if (raw_ != nullptr) loaded.raw = LoadRaw8(raw_ + place);
    return loaded;
  }
  __device__ __forceinline__ void Put(int pixel, const Loaded& loaded) const {
    float values[8];
    Unpack8(loaded.dz, values);
    if (raw_ == nullptr) {
#pragma unroll
      for (int i = 0; i < 8; ++i) values[i] *= dz_factor_[i];
    } else {
      float raw[8];
      Unpack8(loaded.raw, raw);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        values[i] = fmaf(dz_factor_[i], values[i], fmaf(raw_factor_[i], raw[i], offset_[i]));
      }
    }
    Store8(values, tile_ + pixel * kSlab);
  }
  __device__ __forceinline__ void PutZero(int pixel) const {
    const float zeros[8] = {};
    Store8(zeros, tile_ + pixel * kSlab);
  }

 private:
  const T* const dz_;
  const T* const raw_;
  float* tile_;
  float dz_factor_[8], raw_factor_[8], offset_[8];
};

// A stager that copies raw input into tile[pixels][kSlab]. Pixels outside of the image stay
// undefined, since WalkInputs skips them.
template <typename T>
struct RawStager {
  using Loaded = Raw8<T>;
  const T* raw;
  T* tile;

  __device__ __forceinline__ Loaded Load(int64_t place) const { return LoadRaw8(raw + place); }
  __device__ __forceinline__ void Put(int pixel, const Loaded& loaded) const {
    StoreRaw8(loaded, tile + pixel * kSlab + threadIdx.x % 4 * 8);
  }
  __device__ __forceinline__ void PutZero(int) const {}
};

// Adds sums[slots][taps + 2][kSlab] over the slots, in order, and writes the block's part of
// weight_parts[parts][taps][channels] and, unless null, of norm_parts[parts][2][channels].
__device__ __forceinline__ void WriteParts(const float* sums, int slots, int taps, const Plan& plan,
                                           int channels, float* weight_parts, float* norm_parts) {
  const int slab = blockIdx.x % plan.slabs * kSlab;
  const int64_t part = blockIdx.x / plan.slabs;
  const int count = taps + 2;
  for (int i = threadIdx.x; i < count * kSlab; i += kThreads) {
    const int tap = i / kSlab, channel = slab + i % kSlab;
    if (channel >= channels) continue;
    float sum = 0.0f;
    for (int s = 0; s < slots; ++s) sum += sums[s * count * kSlab + i];
    if (tap < taps) {
      weight_parts[(part * taps + tap) * channels + channel] = sum;
    } else if (norm_parts != nullptr) {
      norm_parts[(part * 2 + tap - taps) * channels + channel] = sum;
    }
  }
}

// Both gradients of a 3x3 depthwise convolution in one pass over dy and x. A block of 256 threads
// owns 32 channels and loops over tiles. For each tile it stages dy (formed from dz and raw, float)
// and raw x (as T) in shared memory, as much as each of two blocks may have; then each thread walks
// down columns of the tile for two channels (depthwise_plan.h). The registers of a thread hold the
// 9 weights, the window of dy, and 9 + 2 sums over all its pixels, all for two channels. For an
// input pixel it reads x once and every dy of the window is used for dx and dw both: up to 18
// multiply-adds per channel. kUsual says that dx is wanted and that there is no gradient to add.
//
//   the window of dy; the inputs of the step are at the place of o
//     stride 1   . . . .      stride 2   . .
//                . . . .                 . o
//                . . o o
//
// At the end the slots' sums take the place of the tiles and are added in order. dz, raw, x and dx
// move once, except for the tiles' borders; the instructions of staging and of the multiply-adds
// come close to that, so either may be the bound. x must have no skip and no `applied`.
template <typename T, int kStride, bool kUsual>
__global__ void __launch_bounds__(kThreads, kBackwardResident)
    BackwardTiles(Geometry g, Plan plan, LazyView<T> x, const float* weights,
                  OutputGradientView<T> dy, InputGradientView<T> dx, float* weight_parts,
                  float* norm_parts) {
  float* const gradients = reinterpret_cast<float*>(SharedBytes());
  T* const inputs = reinterpret_cast<T*>(gradients + plan.gradients.pixels * kSlab);
  float* const coefficients = reinterpret_cast<float*>(inputs + plan.inputs.pixels * kSlab);
  const int slab = blockIdx.x % plan.slabs * kSlab;
  const int thread = threadIdx.x;
  if (thread < kSlab && slab + thread < g.channels) {
    PutCoefficients(x, dy, slab + thread, coefficients + thread);
  }
  float* const taps = coefficients + kCoefficients * kSlab;
  PutTaps(weights, g.channels, slab, taps);
  const Extent dy_extent{g.images, g.out_height, g.out_width, g.channels};
  const Extent x_extent{g.images, g.height, g.width, g.channels};
  StagedPlace* const dy_places = reinterpret_cast<StagedPlace*>(taps + 9 * kSlab);
  StagedPlace* const x_places = dy_places + plan.gradients.pixels;
  PutPlaces(plan.gradients, dy_extent, dy_places);
  PutPlaces(plan.inputs, x_extent, x_places);
  __syncthreads();

  const int pair = thread % kPairs * 2;
  const bool active = slab + pair < g.channels;
  GradientSums sums;
  // Steps begin at multiples of the stride, counted from the first row and column of the padding.
  // The tile's first pixels of dy and of x follow from its first step.
  const int skipped_rows = g.pad_top / kStride, skipped_columns = g.pad_left / kStride;
  const auto dy_of = [&](Origin steps) {
    return Origin{steps.image, skipped_rows + steps.row - Back(kStride),
                  skipped_columns + steps.column * (2 / kStride) - Back(kStride)};
  };
  const auto x_of = [&](Origin steps) {
    return Origin{steps.image, steps.row * kStride - g.pad_top % kStride,
                  steps.column * 2 - g.pad_left % kStride};
  };
#pragma unroll 1
  for (int t = blockIdx.x / plan.slabs; t < plan.tiles; t += plan.parts) {
    const Origin steps = TileOrigin(plan, t);
    const Origin first_dy = dy_of(steps), first_x = x_of(steps);
    Stage<kBatch<T>>(plan.inputs, x_places, x_extent, first_x, slab + thread % 4 * 8,
                     RawStager<T>{x.raw, inputs});
    Stage<kBatch<T> / 2>(plan.gradients, dy_places, dy_extent, first_dy, slab + thread % 4 * 8,
                         GradientStager<T>(dy, coefficients, gradients));
    if (t + plan.parts < plan.tiles) {
      const Origin next = TileOrigin(plan, t + plan.parts);
      PrefetchTile<T>(plan.inputs, x_places, x_extent, x_of(next), slab, x.raw, nullptr);
      PrefetchTile<T>(plan.gradients, dy_places, dy_extent, dy_of(next), slab, dy.dz,
                      NeedsRaw(dy) ? dy.raw : nullptr);
    }
    __syncthreads();
    if (active) {
      WalkInputs<T, kStride, kUsual>(
          g, plan, first_x, gradients + pair, inputs + pair,
          InputPixels<T, kUsual>(x, dx, slab + pair, coefficients + pair), taps + pair, &sums);
    }
    __syncthreads();
  }

  float* const slot = gradients + thread / kPairs * 11 * kSlab + pair;
#pragma unroll
  for (int k = 0; k < 9; ++k) Store2(sums.weights[k / 3][k % 3], slot + k * kSlab);
  Store2(sums.beta, slot + 9 * kSlab);
  Store2(sums.gamma, slot + 10 * kSlab);
  __syncthreads();
  WriteParts(gradients, kSlots, 9, plan, g.channels, weight_parts, norm_parts);
}

// Both gradients for the shapes that have no tiles (any kernel up to kMaxKernel, any stride and
// number of channels) and for an x with a skip or `applied`. A thread owns one of the block's 32
// channels and takes every (8 * parts)-th input pixel. Nothing is staged: the up to kernel^2
// numbers of dy per pixel come from global memory, mostly from the L1 and L2 caches. Shared memory
// only adds the sums of the 8 slots. Index arithmetic and the latency of the loads are the likely
// bounds. kMost, the largest kernel, is 5 where that suffices, because the sums of all kMost^2 taps
// take registers.
template <typename T, int kMost>
__global__ void __launch_bounds__(kThreads)
    BackwardGeneric(Geometry g, Plan plan, LazyView<T> x, const float* weights,
                    OutputGradientView<T> dy, InputGradientView<T> dx, float* weight_parts,
                    float* norm_parts) {
  const int thread = threadIdx.x;
  const int channel = blockIdx.x % plan.slabs * kSlab + thread % kSlab;
  float weight_sums[kMost][kMost] = {};
  float beta = 0.0f, gamma = 0.0f;
  if (channel < g.channels) {
    const ScaleShift norm = NormCoefficients(x.norm, channel);
    const float mean = x.norm.gamma == nullptr ? 0.0f : x.norm.mean[channel];
    const RawGradientCoefficients gradient = GradientCoefficients(dy, channel);
    const Bounds bounds = x.bounds;
    const int64_t inputs = static_cast<int64_t>(g.images) * g.height * g.width;
    const int64_t step = static_cast<int64_t>(plan.parts) * kGenericSlots;
    for (int64_t i = blockIdx.x / plan.slabs * kGenericSlots + thread / kSlab; i < inputs;
         i += step) {
      const int64_t place = i * g.channels + channel;
      const int column = static_cast<int>(i % g.width) + g.pad_left;
      const int row = static_cast<int>(i / g.width % g.height) + g.pad_top;
      const int64_t image = i / g.width / g.height;
      const float raw = ToFloat(x.raw[place]), z = fmaf(norm.scale, raw, norm.shift);
      float value = x.applied != nullptr ? ToFloat(x.applied[place]) : Clamp(z, bounds);
      if (x.applied == nullptr && x.skip != nullptr) value += ToFloat(x.skip[place]);
      float upstream = 0.0f;
#pragma unroll
      for (int kh = 0; kh < kMost; ++kh) {
        const int out_row = (row - kh) / g.stride;
        if (kh >= g.kernel || row < kh || (row - kh) % g.stride != 0 || out_row >= g.out_height) {
          continue;
        }
#pragma unroll
        for (int kw = 0; kw < kMost; ++kw) {
          const int out_column = (column - kw) / g.stride;
          if (kw >= g.kernel || column < kw || (column - kw) % g.stride != 0 ||
              out_column >= g.out_width) {
            continue;
          }
          const int64_t from =
              ((image * g.out_height + out_row) * g.out_width + out_column) * g.channels + channel;
          float d = gradient.dz_factor * ToFloat(dy.dz[from]);
          if (NeedsRaw(dy)) {
            d += fmaf(gradient.raw_factor, ToFloat(dy.raw[from]), gradient.offset);
          }
          weight_sums[kh][kw] = fmaf(d, value, weight_sums[kh][kw]);
          upstream = fmaf(d, weights[(kh * g.kernel + kw) * g.channels + channel], upstream);
        }
      }
      if (dx.dz == nullptr) continue;
      if (dx.add != nullptr) upstream += ToFloat(dx.add[place]);
      upstream = Masked(upstream, z, bounds);
      dx.dz[place] = FromFloat<T>(upstream);
      beta += upstream;
      gamma = fmaf(upstream, raw - mean, gamma);
    }
  }
  const int taps = g.kernel * g.kernel;
  float* const sums = reinterpret_cast<float*>(SharedBytes());
  float* const slot = sums + thread / kSlab * (taps + 2) * kSlab + thread % kSlab;
#pragma unroll
  for (int kh = 0; kh < kMost; ++kh) {
#pragma unroll
    for (int kw = 0; kw < kMost; ++kw) {
      if (kh < g.kernel && kw < g.kernel) {
        slot[(kh * g.kernel + kw) * kSlab] = weight_sums[kh][kw];
      }
    }
  }
  slot[taps * kSlab] = beta;
  slot[(taps + 1) * kSlab] = gamma;
  __syncthreads();
  WriteParts(sums, kGenericSlots, taps, plan, g.channels, weight_parts, norm_parts);
}

}  // namespace
}  // namespace depthwise

template <typename T>
void DepthwiseBackward(Queue* queue, const ConvolutionShape& shape, const Lazy<T>& x,
                       const float* weights, const OutputGradient<T>& dy, float* dweights,
                       const InputGradient<T>& dx, void* workspace) {
  const depthwise::Geometry geometry = depthwise::GeometryOf(shape);
  const bool tiled = depthwise::HasTiles(shape) && x.skip == nullptr && x.applied == nullptr;
  const depthwise::Plan plan = tiled ? depthwise::TiledBackwardPlan(*queue, shape, sizeof(T))
                                     : depthwise::GenericBackwardPlan(*queue, shape);
  const LaunchShape launch{dim3(plan.blocks()), dim3(depthwise::kThreads), plan.shared_bytes};
  const int64_t weight_count = shape.depthwise_weights();
  float* const weight_parts = static_cast<float*>(workspace);
  const bool norm_wanted = dx.dz != nullptr && x.batch_norm != nullptr;
  float* const norm_parts = norm_wanted ? weight_parts + plan.parts * weight_count : nullptr;
  const auto dy_view = ViewOf(dy, shape.out().rows());
  if (!tiled) {
    Launch(queue, "depthwise_backward_generic", launch,
           shape.kernel <= 5 ? depthwise::BackwardGeneric<T, 5>
                             : depthwise::BackwardGeneric<T, depthwise::kMaxKernel>,
           geometry, plan, ViewOf(x), weights, dy_view, ViewOf(dx), weight_parts, norm_parts);
  } else {
    const bool usual = dx.dz != nullptr && dx.add == nullptr;
    auto* const kernel = shape.stride == 1 ? usual ? depthwise::BackwardTiles<T, 1, true>
                                                   : depthwise::BackwardTiles<T, 1, false>
                         : usual ? depthwise::BackwardTiles<T, 2, true>
                                           : depthwise::BackwardTiles<T, 2, false>;
    Launch(queue, "depthwise_backward", launch, kernel, geometry, plan, ViewOf(x), weights, dy_view,
           ViewOf(dx), weight_parts, norm_parts);
  }
  GradientSums sums;
  if (norm_wanted) {
    sums.norm = {norm_parts, plan.parts, shape.in.c, x.batch_norm, dx.dbeta, dx.dgamma};
  }
  sums.weights = {weight_parts, plan.parts, weight_count, dweights};
  CombineGradients(queue, sums);
}

template void DepthwiseBackward<float>(Queue*, const ConvolutionShape&, const Lazy<float>&,
                                       const float*, const OutputGradient<float>&, float*,
                                       const InputGradient<float>&, void*);
template void DepthwiseBackward<Bfloat16>(Queue*, const ConvolutionShape&, const Lazy<Bfloat16>&,
                                          const float*, const OutputGradient<Bfloat16>&, float*,
                                          const InputGradient<Bfloat16>&, void*);

}  // namespace pushpull::PUSHPULL_CUDA
