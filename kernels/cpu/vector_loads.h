// Computes one vector of channels of a lazy value or of a gradient from memory. This is what "apply
// on load" means in the fast kernels. All types are views of operands and coefficients; T, the type
// of the tensors, is float or Bfloat16, and the arithmetic is that of floats. The guard lets this
// header in once per instruction set, as that of simd.h.
#if defined(PUSHPULL_KERNELS_CPU_VECTOR_LOADS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_VECTOR_LOADS_H_
#undef PUSHPULL_KERNELS_CPU_VECTOR_LOADS_H_
#else
#define PUSHPULL_KERNELS_CPU_VECTOR_LOADS_H_
#endif

#include <cstdint>

#include "hwy/cache_control.h"
#include "kernels/cpu/channel_coefficients.h"
#include "kernels/cpu/simd.h"
#include "kernels/operators.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

// Each load type below has At(lanes, channel), which returns an object that holds the coefficients
// of a vector of channels from `channel` on, meant to stay in registers. Its operator()(lanes, i)
// computes the vector at element i of the tensor, where i % channels == channel. A kernel calls At
// once per vector of channels and then goes over many pixels. Prefetch(i) brings the memory of
// element i to the cache; i may be beyond the end of the tensor.

// Reads a tensor as it is.
template <typename T>
struct PlainLoad {
  const T* data;
  struct Channel {
    const T* data;
    HWY_INLINE void Prefetch(int64_t i) const { hwy::Prefetch(data + i); }
    template <typename Lanes>
    HWY_INLINE Vector operator()(Lanes lanes, int64_t i) const {
      return lanes.Load(data + i);
    }
  };
  template <typename Lanes>
  HWY_INLINE Channel At(Lanes, int64_t) const {
    return {data};
  }
};

// Computes activation(raw * scale + shift) + skip.
template <typename T, bool kNorm, bool kSkip>
struct ValueLoad {
  const T* raw;
  const T* skip;
  LazyCoefficients coefficients;  // only with kNorm
  Bounds bounds;
  struct Channel {
    const T* raw;
    const T* skip;
    Vector scale, shift;
    Bounds bounds;
    HWY_INLINE void Prefetch(int64_t i) const {
      hwy::Prefetch(raw + i);
      if constexpr (kSkip) hwy::Prefetch(skip + i);
    }
    template <typename Lanes>
    HWY_INLINE Vector operator()(Lanes lanes, int64_t i) const {
      Vector z = lanes.Load(raw + i);
      if constexpr (kNorm) z = hn::MulAdd(z, scale, shift);
      z = bounds.Clamp(z);
      if constexpr (kSkip) z = hn::Add(z, lanes.Load(skip + i));
      return z;
    }
  };
  template <typename Lanes>
  HWY_INLINE Channel At(Lanes lanes, int64_t c) const {
    return {raw, skip, kNorm ? lanes.LoadPadded(coefficients.scale + c) : Zero(),
            kNorm ? lanes.LoadPadded(coefficients.shift + c) : Zero(), bounds};
  }
};

// Computes dz * a + raw * b + c, or only dz * a for frozen statistics (!kBatch).
template <typename T, bool kBatch>
struct GradientLoad {
  const T* dz;
  const T* raw;
  GradientCoefficients coefficients;
  struct Channel {
    const T* dz;
    const T* raw;
    Vector a, b, c;
    HWY_INLINE void Prefetch(int64_t i) const {
      hwy::Prefetch(dz + i);
      if constexpr (kBatch) hwy::Prefetch(raw + i);
    }
    template <typename Lanes>
    HWY_INLINE Vector operator()(Lanes lanes, int64_t i) const {
      if constexpr (!kBatch) return hn::Mul(lanes.Load(dz + i), a);
      return hn::MulAdd(lanes.Load(dz + i), a, hn::MulAdd(lanes.Load(raw + i), b, c));
    }
  };
  template <typename Lanes>
  HWY_INLINE Channel At(Lanes lanes, int64_t i) const {
    return {dz, raw, lanes.LoadPadded(coefficients.a + i), lanes.LoadPadded(coefficients.b + i),
            lanes.LoadPadded(coefficients.c + i)};
  }
};

// Calls f(load) with the load type that computes the value of x, so that a kernel is compiled for
// each case and has no tests in its loops. If x has a batch norm and no x.applied, `coefficients`
// must have been computed.
template <typename T, typename F>
void WithValueLoad(const Lazy<T>& x, const LazyCoefficients& coefficients, F f) {
  if (x.applied != nullptr) return f(PlainLoad<T>{x.applied});
  const Bounds bounds(x.activation);
  if (x.batch_norm != nullptr) {
    if (x.skip != nullptr) return f(ValueLoad<T, true, true>{x.raw, x.skip, coefficients, bounds});
    return f(ValueLoad<T, true, false>{x.raw, nullptr, coefficients, bounds});
  }
  if (x.skip != nullptr) return f(ValueLoad<T, false, true>{x.raw, x.skip, coefficients, bounds});
  if (x.activation == FusedActivation::kNone) return f(PlainLoad<T>{x.raw});
  f(ValueLoad<T, false, false>{x.raw, nullptr, coefficients, bounds});
}

// Calls f(load) with the load type that computes dy, the gradient of the raw output.
template <typename T, typename F>
void WithGradientLoad(const OutputGradient<T>& dy, const GradientCoefficients& coefficients, F f) {
  if (dy.batch_norm == nullptr) return f(PlainLoad<T>{dy.dz});
  if (dy.batch_norm->statistics == Statistics::kBatch) {
    return f(GradientLoad<T, true>{dy.dz, dy.raw, coefficients});
  }
  f(GradientLoad<T, false>{dy.dz, dy.raw, coefficients});
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_VECTOR_LOADS_H_
