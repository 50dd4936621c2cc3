// The walk down the columns of a staged tile in the backward pass of a depthwise convolution, for
// two channels of a thread.
#ifndef PUSHPULL_KERNELS_CUDA_DEPTHWISE_INPUT_WALK_CUH_
#define PUSHPULL_KERNELS_CUDA_DEPTHWISE_INPUT_WALK_CUH_

#include "kernels/cuda/depthwise_tile.cuh"

namespace pushpull::PUSHPULL_CUDA::depthwise {

// The coefficients in shared memory, a line of kSlab floats each.
enum Coefficient { kScale, kShift, kMean, kDzFactor, kRawFactor, kOffset, kCoefficients };

// The sums of a thread over all its pixels, for its two channels.
struct GradientSums {
  float2 weights[3][3] = {};
  float2 beta = {}, gamma = {};
};

// Finishes and stores the gradient of input pixels. The pointers are to the thread's two channels.
// kUsual: the gradient is wanted, and there is none to add.
template <typename T, bool kUsual>
struct InputPixels {
  const T* add;
  T* dz;
  Bounds bounds;
  float2 scale, shift, mean;

  // `coefficients` points to the thread's two channels.
  __device__ __forceinline__ InputPixels(const LazyView<T>& x, const InputGradientView<T>& dx,
                                         int channel, const float* coefficients)
      : add(dx.add == nullptr ? nullptr : dx.add + channel),
        dz(dx.dz == nullptr ? nullptr : dx.dz + channel),
        bounds(x.bounds),
        scale(Load2(coefficients + kScale * kSlab)),
        shift(Load2(coefficients + kShift * kSlab)),
        mean(Load2(coefficients + kMean * kSlab)) {}

  // The pixel's channels begin at element `to` of dz.
  __device__ __forceinline__ void Finish(float2 gradient, float2 raw, float2 z, int64_t to,
                                         GradientSums* sums) const {
    if constexpr (!kUsual) {
      if (dz == nullptr) return;
      if (add != nullptr) {
        const float2 other = Load2(add + to);
        gradient = make_float2(gradient.x + other.x, gradient.y + other.y);
      }
    }
    gradient = make_float2(Masked(gradient.x, z.x, bounds), Masked(gradient.y, z.y, bounds));
    Store2(gradient, dz + to);
    sums->beta = make_float2(sums->beta.x + gradient.x, sums->beta.y + gradient.y);
    sums->gamma = Fma2(gradient, make_float2(raw.x - mean.x, raw.y - mean.y), sums->gamma);
  }
};

// The rows of dy that the inputs of a step reach, in registers. It is a ring: a new row replaces
// the oldest one. The loop over steps is unrolled by kRows, so that indices are compile-time
// constants and no row is moved.
template <int kStride>
struct GradientWindow {
  static constexpr int kBack = Back(kStride);
  static constexpr int kRows = kBack + 1, kColumns = 2 / kStride + kBack;
  float2 rows[kRows][kColumns];

  __device__ __forceinline__ void Load(int row, const float* from) {
#pragma unroll
    for (int i = 0; i < kColumns; ++i) rows[row % kRows][i] = Load2(from + i * kSlab);
  }
};

// Handles input pixel (i, j) of a step, given its value: adds to the gradients of the weights and
// returns the gradient of the value. The step's row of dy is row phase + kBack of the window.
template <int kStride>
__device__ __forceinline__ float2 VisitPixel(const GradientWindow<kStride>& window, int phase,
                                             int i, int j, float2 value, const float2 weights[3][3],
                                             GradientSums* sums) {
  constexpr int kBack = Back(kStride);
  float2 gradient = {};
#pragma unroll
  for (int kh = 0; kh < 3; ++kh) {
    if ((i + kh) % kStride != 0) continue;
#pragma unroll
    for (int kw = 0; kw < 3; ++kw) {
      if ((j + kw) % kStride != 0) continue;
      const float2 dy = window.rows[(phase + kBack + (i - kh) / kStride) % window.kRows]
                                   [kBack + (j - kw) / kStride];
      gradient = Fma2(dy, weights[kh][kw], gradient);
      sums->weights[kh][kw] = Fma2(dy, value, sums->weights[kh][kw]);
    }
  }
  return gradient;
}

// Walks down the columns of a tile. `origin` is in pixels of the input. `gradients` and `inputs`
// (the staged tiles) and `taps` point to the thread's two channels.
template <typename T, int kStride, bool kUsual>
__device__ __forceinline__ void WalkInputs(const Geometry& g, const Plan& plan,
                                           const Origin& origin, const float* gradients,
                                           const T* inputs, const InputPixels<T, kUsual>& pixels,
                                           const float* taps, GradientSums* sums) {
  float2 weights[3][3];
  LoadTaps(taps, weights);
  using Window = GradientWindow<kStride>;
  const int line = plan.gradients.columns * kSlab, x_line = plan.inputs.columns * kSlab;
  const int64_t x_step = static_cast<int64_t>(g.width) * g.channels;
#pragma unroll 1
  for (int index = threadIdx.x / kPairs; index < plan.items; index += kSlots) {
    const Item item = ItemOf(plan, index);
    const int image = origin.image + item.image;
    if (image >= g.images) continue;
    const int column = origin.column + 2 * item.column;
    const float* from = gradients + (item.image * plan.gradients.rows + item.row) * line +
                        item.column * (2 / kStride) * kSlab;
    const T* x_from = inputs + (item.image * plan.inputs.rows + item.row * kStride) * x_line +
                      item.column * 2 * kSlab;
    int row = origin.row + item.row * kStride;
    // Not pointers, because they begin outside of the image if the row or the column does.
    int64_t to = static_cast<int64_t>((image * g.height + row) * g.width + column) * g.channels;
    int64_t beside = to + g.channels;
    const bool inside[2] = {column >= 0 && column < g.width,
                            column + 1 >= 0 && column + 1 < g.width};
    Window window;
#pragma unroll
    for (int i = 0; i < Window::kBack; ++i) {
      window.Load(i, from);
      from += line;
    }
#pragma unroll 1
    for (int first = item.row; first < item.end; first += Window::kRows) {
#pragma unroll
      for (int phase = 0; phase < Window::kRows; ++phase) {
        if (first + phase >= item.end) break;
        window.Load(phase + Window::kBack, from);
        from += line;
#pragma unroll
        for (int i = 0; i < kStride; ++i) {
#pragma unroll
          for (int j = 0; j < 2; ++j) {
            if (row < 0 || row >= g.height || !inside[j]) continue;
            const float2 raw = Load2(x_from + j * kSlab);
            const float2 z = Fma2(pixels.scale, raw, pixels.shift);
            const float2 value = make_float2(Clamp(z.x, pixels.bounds), Clamp(z.y, pixels.bounds));
            const float2 gradient = VisitPixel<kStride>(window, phase, i, j, value, weights, sums);
            pixels.Finish(gradient, raw, z, j == 0 ? to : beside, sums);
          }
          ++row;
          to += x_step;
          beside += x_step;
          x_from += x_line;
        }
      }
    }
  }
}

}  // namespace pushpull::PUSHPULL_CUDA::depthwise

#endif  // PUSHPULL_KERNELS_CUDA_DEPTHWISE_INPUT_WALK_CUH_
