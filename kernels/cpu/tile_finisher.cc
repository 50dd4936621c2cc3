// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/tile_finisher.h"

#include "kernels/cpu/simd.h"

namespace pushpull {

// Goes down the tile one vector of eight channels at a time. For each row it adds the bias, stores
// y and adds to two running sums in registers. The tile comes from the L1 cache and y is written
// once, so the stores to memory are the likely bound. The tile's own padding columns are never
// stored.
void ForwardFinisher::Finish(const Panel& panel, int64_t first_row, int64_t rows, const float* tile,
                             int64_t block) const {
  ForEachVector(panel.start, panel.start + panel.valid, [&](int64_t c, auto lanes) {
    const float* from = tile + (c - panel.start);
    float* to = y_ + first_row * channels_ + c;
    const Vector bias = bias_ != nullptr ? lanes.Load(bias_ + c) : _mm256_setzero_ps();
    // The sums are over deviations from the first row of the block: sums of the values themselves
    // would cancel badly where the mean is far from zero.
    const Vector origin = _mm256_add_ps(_mm256_loadu_ps(from), bias);
    Vector sum = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
    for (int64_t r = 0; r < rows; ++r) {
      const Vector y = _mm256_add_ps(_mm256_loadu_ps(from + r * panel.width), bias);
      lanes.Store(to + r * channels_, y);
      const Vector d = _mm256_sub_ps(y, origin);
      sum = _mm256_add_ps(sum, d);
      squares = _mm256_fmadd_ps(d, d, squares);
    }
    if (sums_ == nullptr) return;
    const Vector offset = _mm256_div_ps(sum, _mm256_set1_ps(static_cast<float>(rows)));
    _mm256_storeu_ps(sums_->First(block) + c, _mm256_add_ps(origin, offset));
    const Vector deviation = _mm256_fnmadd_ps(sum, offset, squares);
    _mm256_storeu_ps(sums_->Second(block) + c, _mm256_max_ps(_mm256_setzero_ps(), deviation));
  });
}

// Goes down the rows of one vector of eight channels. The coefficients and the two sums stay in
// registers; a row reads the tile (L1 cache), x.raw and dx.add and writes dx.dz. These up to three
// streams of memory are the bound: there are fewer than ten arithmetic operations per vector. The
// template parameters remove the tests from the loop.
template <bool kNorm, bool kAdd, typename Lanes>
void BackwardFinisher::FinishVector(Lanes lanes, int64_t c, int64_t first_row, int64_t rows,
                                    const float* tile, int64_t stride, int64_t block,
                                    Store store) const {
  const int64_t channels = x_.shape.c;
  const Bounds bounds(x_.activation);
  const Vector zero = _mm256_setzero_ps();
  const Vector scale = kNorm ? _mm256_loadu_ps(coefficients_.scale + c) : zero;
  const Vector shift = kNorm ? _mm256_loadu_ps(coefficients_.shift + c) : zero;
  const Vector mean = kNorm ? _mm256_loadu_ps(coefficients_.mean + c) : zero;
  const bool needs_raw = kNorm || x_.activation != Activation::kNone;
  Vector dbeta = zero, dgamma = zero;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t i = (first_row + r) * channels + c;
    Vector gradient = _mm256_loadu_ps(tile + r * stride);
    if constexpr (kAdd) gradient = _mm256_add_ps(gradient, lanes.Load(dx_.add + i));
    if (needs_raw) {
      const Vector raw = lanes.Load(x_.raw + i);
      gradient = bounds.Slope(kNorm ? _mm256_fmadd_ps(raw, scale, shift) : raw, gradient);
      if constexpr (kNorm) {
        dbeta = _mm256_add_ps(dbeta, gradient);
        dgamma = _mm256_fmadd_ps(gradient, _mm256_sub_ps(raw, mean), dgamma);
      }
    }
    lanes.Store(dx_.dz + i, gradient);
  }
  if constexpr (kNorm) {
    float* first = sums_.First(block) + c;
    float* second = sums_.Second(block) + c;
    if (store == Store::kAdd) {
      dbeta = _mm256_add_ps(dbeta, _mm256_loadu_ps(first));
      dgamma = _mm256_add_ps(dgamma, _mm256_loadu_ps(second));
    }
    _mm256_storeu_ps(first, dbeta);
    _mm256_storeu_ps(second, dgamma);
  }
}

void BackwardFinisher::FinishRows(const Span& span, int64_t first_row, int64_t rows,
                                  const float* tile, int64_t block, Store store) const {
  const bool norm = x_.batch_norm != nullptr, add = dx_.add != nullptr;
  ForEachVector(span.start, span.start + span.count, [&](int64_t c, auto lanes) {
    const float* from = tile + (c - span.start);
    if (norm && add) {
      FinishVector<true, true>(lanes, c, first_row, rows, from, span.stride, block, store);
    } else if (norm) {
      FinishVector<true, false>(lanes, c, first_row, rows, from, span.stride, block, store);
    } else if (add) {
      FinishVector<false, true>(lanes, c, first_row, rows, from, span.stride, block, store);
    } else {
      FinishVector<false, false>(lanes, c, first_row, rows, from, span.stride, block, store);
    }
  });
}

}  // namespace pushpull
