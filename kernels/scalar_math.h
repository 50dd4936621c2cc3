// Scalar formulas that the CPU's and the GPU's operators must agree on. Pure functions.
#ifndef PUSHPULL_KERNELS_SCALAR_MATH_H_
#define PUSHPULL_KERNELS_SCALAR_MATH_H_

#include <cstdint>

#include "kernels/host_device.h"
#include "kernels/operands.h"

namespace pushpull {

template <typename T>
PUSHPULL_HOST_DEVICE T Activate(FusedActivation activation, T z) {
  if (activation == FusedActivation::kNone) return z;
  // Written so that a NaN passes through: a comparison with it is false.
  if (z < T(0)) return T(0);
  return activation == FusedActivation::kRelu6 && z > T(6) ? T(6) : z;
}

// The derivative of Activate with respect to z; 0 on both kinks.
template <typename T>
PUSHPULL_HOST_DEVICE T ActivationSlope(FusedActivation activation, T z) {
  if (activation == FusedActivation::kNone) return T(1);
  if (z <= T(0)) return T(0);
  return activation == FusedActivation::kRelu6 && z >= T(6) ? T(0) : T(1);
}

// A uniformly distributed 64-bit value as a pure function of (seed, index), so that the forward and
// the backward pass drop the same entries without storing a mask. It is entry `index` of SplitMix64
// started at `seed`: its finalizer applied to a Weyl sequence.
PUSHPULL_HOST_DEVICE inline uint64_t HashIndex(uint64_t seed, uint64_t index) {
  uint64_t x = seed + (index + 1) * 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// Dropout drops an entry if its HashIndex() is below this threshold: rate * 2^64, at most the
// largest uint64_t. The rate is 1 if the probability to keep an entry is too small for 1 - rate.
PUSHPULL_HOST_DEVICE inline uint64_t DropoutThreshold(double rate) {
  const double threshold = rate * 18446744073709551616.0;
  return threshold < 18446744073709551616.0 ? static_cast<uint64_t>(threshold) : ~uint64_t{0};
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_SCALAR_MATH_H_
