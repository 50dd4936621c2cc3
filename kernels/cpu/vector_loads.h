// Computes one vector (8 channels) of a lazy value or of a gradient from memory. This is what
// "apply on load" means in the fast kernels. All types are views of operands and coefficients.
#ifndef PUSHPULL_KERNELS_CPU_VECTOR_LOADS_H_
#define PUSHPULL_KERNELS_CPU_VECTOR_LOADS_H_

#include <cstdint>

#include "kernels/cpu/channel_coefficients.h"
#include "kernels/cpu/simd.h"
#include "kernels/operators.h"

namespace pushpull {

// Each load type below has At(channel), which returns an object that holds the coefficients of the
// eight channels from `channel` on, meant to stay in registers. Its operator()(lanes, i) computes
// the vector at element i of the tensor, where i % channels == channel. A kernel calls At once per
// vector of channels and then goes over many pixels.

// Reads a tensor as it is.
struct PlainLoad {
  const float* data;
  struct Channel {
    const float* data;
    template <typename Lanes>
    Vector operator()(Lanes lanes, int64_t i) const {
      return lanes.Load(data + i);
    }
  };
  Channel At(int64_t) const { return {data}; }
};

// Computes activation(raw * scale + shift) + skip.
template <bool kNorm, bool kSkip>
struct ValueLoad {
  const float* raw;
  const float* skip;
  LazyCoefficients coefficients;  // only with kNorm
  Bounds bounds;
  struct Channel {
    const float* raw;
    const float* skip;
    Vector scale, shift;
    Bounds bounds;
    template <typename Lanes>
    Vector operator()(Lanes lanes, int64_t i) const {
      Vector z = lanes.Load(raw + i);
      if constexpr (kNorm) z = _mm256_fmadd_ps(z, scale, shift);
      z = bounds.Clamp(z);
      if constexpr (kSkip) z = _mm256_add_ps(z, lanes.Load(skip + i));
      return z;
    }
  };
  Channel At(int64_t c) const {
    const Vector zero = _mm256_setzero_ps();
    return {raw, skip, kNorm ? _mm256_loadu_ps(coefficients.scale + c) : zero,
            kNorm ? _mm256_loadu_ps(coefficients.shift + c) : zero, bounds};
  }
};

// Computes dz * a + raw * b + c, or only dz * a for frozen statistics (!kBatch).
template <bool kBatch>
struct GradientLoad {
  const float* dz;
  const float* raw;
  GradientCoefficients coefficients;
  struct Channel {
    const float* dz;
    const float* raw;
    Vector a, b, c;
    template <typename Lanes>
    Vector operator()(Lanes lanes, int64_t i) const {
      if constexpr (!kBatch) return _mm256_mul_ps(lanes.Load(dz + i), a);
      return _mm256_fmadd_ps(lanes.Load(dz + i), a, _mm256_fmadd_ps(lanes.Load(raw + i), b, c));
    }
  };
  Channel At(int64_t i) const {
    return {dz, raw, _mm256_loadu_ps(coefficients.a + i), _mm256_loadu_ps(coefficients.b + i),
            _mm256_loadu_ps(coefficients.c + i)};
  }
};

// Calls f(load) with the load type that computes the value of x, so that a kernel is compiled for
// each case and has no tests in its loops. If x has a batch norm and no x.applied, `coefficients`
// must have been computed.
template <typename F>
void WithValueLoad(const Lazy<float>& x, const LazyCoefficients& coefficients, F f) {
  if (x.applied != nullptr) return f(PlainLoad{x.applied});
  const Bounds bounds(x.activation);
  if (x.batch_norm != nullptr) {
    if (x.skip != nullptr) return f(ValueLoad<true, true>{x.raw, x.skip, coefficients, bounds});
    return f(ValueLoad<true, false>{x.raw, nullptr, coefficients, bounds});
  }
  if (x.skip != nullptr) return f(ValueLoad<false, true>{x.raw, x.skip, coefficients, bounds});
  if (x.activation == Activation::kNone) return f(PlainLoad{x.raw});
  f(ValueLoad<false, false>{x.raw, nullptr, coefficients, bounds});
}

// Calls f(load) with the load type that computes dy, the gradient of the raw output.
template <typename F>
void WithGradientLoad(const OutputGradient<float>& dy, const GradientCoefficients& coefficients,
                      F f) {
  if (dy.batch_norm == nullptr) return f(PlainLoad{dy.dz});
  if (dy.batch_norm->statistics == Statistics::kBatch) {
    return f(GradientLoad<true>{dy.dz, dy.raw, coefficients});
  }
  f(GradientLoad<false>{dy.dz, dy.raw, coefficients});
}

}  // namespace pushpull

#endif  // PUSHPULL_KERNELS_CPU_VECTOR_LOADS_H_
