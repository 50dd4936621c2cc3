// Activations as clamps, in two instructions and without a branch.
#ifndef PUSHPULL_KERNELS_CUDA_CLAMP_CUH_
#define PUSHPULL_KERNELS_CUDA_CLAMP_CUH_

#include <cmath>

#include "kernels/cuda/platform.h"
#include "kernels/host_device.h"
#include "kernels/operands.h"

namespace pushpull::PUSHPULL_CUDA {

// An activation as a clamp: Activate(z) = Clamp(z, bounds). Its slope is 0 on the bounds and
// beyond.
struct Bounds {
  float low, high;
};

PUSHPULL_HOST_DEVICE inline Bounds BoundsOf(FusedActivation activation) {
  return {activation == FusedActivation::kNone ? -INFINITY : 0.0f,
          activation == FusedActivation::kRelu6 ? 6.0f : INFINITY};
}

// A NaN passes through.
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

// The gradient where the slope of the activation at z is 1, else 0. Unlike a product with the
// slope, it is 0 where z is infinite, and where the slope is 0 and the gradient not finite.
__device__ __forceinline__ float Masked(float gradient, float z, Bounds bounds) {
  return z <= bounds.low || z >= bounds.high ? 0.0f : gradient;
}

}  // namespace pushpull::PUSHPULL_CUDA

#endif  // PUSHPULL_KERNELS_CUDA_CLAMP_CUH_
