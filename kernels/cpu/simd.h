// AVX2 helpers that the fast kernels share. Pure functions and plain values.
#ifndef PUSHPULL_KERNELS_CPU_SIMD_H_
#define PUSHPULL_KERNELS_CPU_SIMD_H_

#include <immintrin.h>

#include <cstdint>
#include <limits>

#include "kernels/cpu/panels.h"
#include "kernels/operators.h"

namespace pushpull {

using Vector = __m256;

// The mask that selects the first `lanes` (1 to 8) lanes.
inline __m256i LaneMask(int64_t lanes) {
  alignas(32) static constexpr int32_t kTable[16] = {-1, -1, -1, -1, -1, -1, -1, -1,
                                                     0,  0,  0,  0,  0,  0,  0,  0};
  return _mm256_loadu_si256(reinterpret_cast<const __m256i*>(kTable + kVector - lanes));
}

// Accesses to a whole vector in memory, or to its first lanes if the channels end inside it. The
// other lanes are read as zeros and not written. Kernels are templates over these two types, so
// only the last vector of a row pays for the mask.
struct FullLanes {
  Vector Load(const float* p) const { return _mm256_loadu_ps(p); }
  void Store(float* p, Vector v) const { _mm256_storeu_ps(p, v); }
};
struct SomeLanes {
  __m256i mask;
  Vector Load(const float* p) const { return _mm256_maskload_ps(p, mask); }
  void Store(float* p, Vector v) const { _mm256_maskstore_ps(p, mask, v); }
};

// Calls f(first channel, lanes) for each vector of the channels [begin, end).
template <typename F>
inline void ForEachVector(int64_t begin, int64_t end, F f) {
  int64_t c = begin;
  for (; c + kVector <= end; c += kVector) f(c, FullLanes{});
  if (c < end) f(c, SomeLanes{LaneMask(end - c)});
}

// An activation as a clamp: value = min(max(z, low), high). The slope is 1 strictly inside the
// bounds. A NaN passes through; that is what the order of the operands below is for.
struct Bounds {
  explicit Bounds(Activation activation) {
    const float infinity = std::numeric_limits<float>::infinity();
    low = _mm256_set1_ps(activation == Activation::kNone ? -infinity : 0.0f);
    high = _mm256_set1_ps(activation == Activation::kRelu6 ? 6.0f : infinity);
  }
  Vector Clamp(Vector z) const { return _mm256_min_ps(high, _mm256_max_ps(low, z)); }
  // The gradient where the slope at z is 1, else 0.
  Vector Slope(Vector z, Vector gradient) const {
    const Vector inside =
        _mm256_and_ps(_mm256_cmp_ps(z, low, _CMP_NLE_UQ), _mm256_cmp_ps(z, high, _CMP_NGE_UQ));
    return _mm256_and_ps(inside, gradient);
  }
  Vector low, high;
};

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_SIMD_H_
