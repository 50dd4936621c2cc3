// The transforms of minimal filtering (winograd_tiling.h) for a vector of channels. Included like
// simd.h, once for each instruction set.
#if defined(PUSHPULL_KERNELS_CPU_WINOGRAD_TRANSFORMS_H_) == defined(HWY_TARGET_TOGGLE)
#ifdef PUSHPULL_KERNELS_CPU_WINOGRAD_TRANSFORMS_H_
#undef PUSHPULL_KERNELS_CPU_WINOGRAD_TRANSFORMS_H_
#else
#define PUSHPULL_KERNELS_CPU_WINOGRAD_TRANSFORMS_H_
#endif

#include <cstdint>

#include "hwy/highway.h"
#include "kernels/cpu/simd.h"
#include "kernels/cpu/winograd_tiling.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {

// The transforms in one dimension. In two dimensions each is applied to the columns, then to the
// rows of what results.

// Transforms four pixels of the source: B^T d in both F(2, 3) and F(3, 2).
struct SourceTransform {
  static constexpr int kIn = 4, kOut = 4;
  static HWY_INLINE void Apply(const Vector d[4], Vector out[4]) {
    out[0] = hn::Sub(d[0], d[2]);
    out[1] = hn::Add(d[1], d[2]);
    out[2] = hn::Sub(d[2], d[1]);
    out[3] = hn::Sub(d[1], d[3]);
  }
};

// Transforms three weights: G g in F(2, 3).
struct TapTransform {
  static constexpr int kIn = 3, kOut = 4;
  static HWY_INLINE void Apply(const Vector g[3], Vector out[4]) {
    const Vector half = hn::Set(Tag(), 0.5f);
    const Vector ends = hn::Add(g[0], g[2]);
    out[0] = g[0];
    out[1] = hn::Mul(half, hn::Add(ends, g[1]));
    out[2] = hn::Mul(half, hn::Sub(ends, g[1]));
    out[3] = g[2];
  }
};

// Turns four sums of products into two pixels of the result: A^T m in F(2, 3).
struct PixelTransform {
  static constexpr int kIn = 4, kOut = 2;
  static HWY_INLINE void Apply(const Vector m[4], Vector out[2]) {
    out[0] = hn::Add(hn::Add(m[0], m[1]), m[2]);
    out[1] = hn::Sub(hn::Sub(m[1], m[2]), m[3]);
  }
};

// Transforms two pixels of the result's gradient: G g in F(3, 2).
struct GradientTransform {
  static constexpr int kIn = 2, kOut = 4;
  static HWY_INLINE void Apply(const Vector g[2], Vector out[4]) {
    const Vector half = hn::Set(Tag(), 0.5f);
    out[0] = g[0];
    out[1] = hn::Mul(half, hn::Add(g[0], g[1]));
    out[2] = hn::Mul(half, hn::Sub(g[0], g[1]));
    out[3] = g[1];
  }
};

// Turns four sums of products into the gradients of three weights: A^T m in F(3, 2).
struct TapGradientTransform {
  static constexpr int kIn = 4, kOut = 3;
  static HWY_INLINE void Apply(const Vector m[4], Vector out[3]) {
    out[0] = hn::Add(hn::Add(m[0], m[1]), m[2]);
    out[1] = hn::Sub(m[1], m[2]);
    out[2] = hn::Sub(hn::Add(m[1], m[2]), m[3]);
  }
};

// Transforms a square of kIn x kIn vectors, which load(row, column) returns, to kOut x kOut of
// them, row by row.
template <typename Transform, typename F>
HWY_INLINE void TransformSquare(F load, Vector* out) {
  constexpr int kIn = Transform::kIn, kOut = Transform::kOut;
  Vector columns[kIn][kOut];
#pragma GCC unroll 4
  for (int j = 0; j < kIn; ++j) {
    Vector column[kIn];
#pragma GCC unroll 4
    for (int i = 0; i < kIn; ++i) column[i] = load(i, j);
    Transform::Apply(column, columns[j]);
  }
#pragma GCC unroll 4
  for (int i = 0; i < kOut; ++i) {
    Vector row[kIn];
#pragma GCC unroll 4
    for (int j = 0; j < kIn; ++j) row[j] = columns[j][i];
    Transform::Apply(row, out + kOut * i);
  }
}

// Transforms the square of an image's pixels that begins with pixel (top, left), for the vector of
// channels that begins with `c`. Pixels outside of the image are zeros.
template <typename Transform, typename T, typename Lanes>
HWY_INLINE void TransformPixels(const Shape& shape, const T* image, int64_t top, int64_t left,
                                int64_t c, Lanes lanes, Vector out[16]) {
  const auto load = [&](int64_t i, int64_t j) HWY_ATTR {
    const int64_t h = top + i, w = left + j;
    const bool inside = h >= 0 && h < shape.h && w >= 0 && w < shape.w;
    return inside ? lanes.Load(image + (h * shape.w + w) * shape.c + c) : Zero();
  };
  TransformSquare<Transform>(load, out);
}

}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#endif  // PUSHPULL_KERNELS_CPU_WINOGRAD_TRANSFORMS_H_
