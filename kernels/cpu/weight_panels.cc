// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/weight_panels.h"

#include <immintrin.h>

#include "common/base/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/weight_panels.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// to[rows, panel.width] = the columns of the panel from from[rows, columns], then zeros.
void PackColumns(const float* from, int64_t rows, int64_t columns, const Panel& panel, float* to) {
  ForEachVector(0, panel.valid, [&](int64_t c, auto lanes) HWY_ATTR {
    const float* first = from + panel.start + c;
    for (int64_t k = 0; k < rows; ++k) {
      lanes.StorePadded(to + k * panel.width + c, lanes.Load(first + k * columns));
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

namespace {

// Transposes an 8 x 8 block in registers, with AVX2 always: row i of `from` (at i * stride) becomes
// column i of `to` (rows are `width` apart). Three rounds of shuffles swap pairs, then fours, then
// the 128-bit halves: 24 shuffles for 8 loads and 8 stores, so the single shuffle port of many
// cores is the likely bound. Gathering the columns would take 64 scalar loads instead.
void Transpose8x8(const float* from, int64_t stride, float* to, int64_t width) {
  __m256 r[8], t[8];
#pragma GCC unroll 8
  for (int i = 0; i < 8; ++i) r[i] = _mm256_loadu_ps(from + i * stride);
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    t[2 * i] = _mm256_unpacklo_ps(r[2 * i], r[2 * i + 1]);
    t[2 * i + 1] = _mm256_unpackhi_ps(r[2 * i], r[2 * i + 1]);
  }
#pragma GCC unroll 2
  for (int i = 0; i < 2; ++i) {
    r[4 * i] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0x44);
    r[4 * i + 1] = _mm256_shuffle_ps(t[4 * i], t[4 * i + 2], 0xee);
    r[4 * i + 2] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0x44);
    r[4 * i + 3] = _mm256_shuffle_ps(t[4 * i + 1], t[4 * i + 3], 0xee);
  }
#pragma GCC unroll 4
  for (int i = 0; i < 4; ++i) {
    _mm256_storeu_ps(to + i * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x20));
    _mm256_storeu_ps(to + (i + 4) * width, _mm256_permute2f128_ps(r[i], r[i + 4], 0x31));
  }
}

// to[columns, panel.width] = the transpose of from[panel.valid, columns], with zeros from column
// panel.valid on.
void TransposePanel(const float* from, const Panel& panel, int64_t columns, float* to) {
  for (int64_t i = 0; i < panel.width; i += kVector) {
    int64_t c = 0;
    if (i + kVector <= panel.valid) {
      for (; c + kVector <= columns; c += kVector) {
        Transpose8x8(from + i * columns + c, columns, to + c * panel.width + i, panel.width);
      }
    }
    for (; c < columns; ++c) {
      for (int64_t j = i; j < i + kVector; ++j) {
        to[c * panel.width + j] = j < panel.valid ? from[j * columns + c] : 0.0f;
      }
    }
  }
}

}  // namespace

void WeightOperand::Pack(const Panel& panel, float* to) const {
  if (role == Role::kTransposed) {
    for (int64_t tap = 0; tap < taps; ++tap) {
      TransposePanel(weights + (tap * in + panel.start) * out, panel, out,
                     to + tap * out * panel.width);
    }
    return;
  }
  ForChosenCpuIsa(N_AVX2::PackColumns, N_AVX3::PackColumns)(weights, inner(), out, panel, to);
}

}  // namespace pushpull
#endif  // HWY_ONCE
