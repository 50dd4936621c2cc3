// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/tile_finisher.h"

#include "common/base/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_finisher.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "kernels/cpu/simd.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// Goes down the tile one vector of channels at a time. For each row it adds the bias, stores
// y and adds to two running sums in registers. The tile comes from the L1 cache and y is written
// once, so the stores to memory are the likely bound. The tile's own padding columns are never
// stored.
template <typename T>
void FinishForward(const typename ForwardFinisher<T>::Tensors& out, const Panel& panel,
                   int64_t first_row, int64_t rows, const float* tile, int64_t block) {
  ForEachVector(panel.start, panel.start + panel.valid, [&](int64_t c, auto lanes) HWY_ATTR {
    const float* from = tile + (c - panel.start);
    T* to = out.y + first_row * out.channels + c;
    const Vector bias = out.bias != nullptr ? lanes.Load(out.bias + c) : Zero();
    // The sums are over deviations from the first row of the block: sums of the values themselves
    // would cancel badly where the mean is far from zero.
    const Vector origin = Rounded<T>(hn::Add(lanes.LoadPadded(from), bias));
    Vector sum = Zero(), squares = Zero();
    for (int64_t r = 0; r < rows; ++r) {
      const Vector y = Rounded<T>(hn::Add(lanes.LoadPadded(from + r * panel.width), bias));
      lanes.StoreExact(to + r * out.channels, y);
      const Vector d = hn::Sub(y, origin);
      sum = hn::Add(sum, d);
      squares = hn::MulAdd(d, d, squares);
    }
    if (out.sums == nullptr) return;
    const Vector offset = hn::Div(sum, hn::Set(Tag(), static_cast<float>(rows)));
    lanes.StorePadded(out.sums->First(block) + c, hn::Add(origin, offset));
    const Vector deviation = hn::NegMulAdd(sum, offset, squares);
    lanes.StorePadded(out.sums->Second(block) + c, MaxOrSecond(Zero(), deviation));
  });
}

// Goes down the rows of one vector of channels. The coefficients and the two sums stay in
// registers; a row reads the tile (L1 cache), x.raw and dx.add and writes dx.dz. These up to three
// streams of memory are the bound: there are fewer than ten arithmetic operations per vector. The
// template parameters remove the tests from the loop.
template <bool kNorm, bool kAdd, typename T, typename Lanes>
void FinishVector(const typename BackwardFinisher<T>::Tensors& out, Lanes lanes, int64_t c,
                  int64_t first_row, int64_t rows, const float* tile, int64_t stride, int64_t block,
                  Store store) {
  const Lazy<T>& x = out.x;
  const int64_t channels = x.shape.c;
  const Bounds bounds(x.activation);
  const Vector zero = Zero();
  const Vector scale = kNorm ? lanes.LoadPadded(out.coefficients.scale + c) : zero;
  const Vector shift = kNorm ? lanes.LoadPadded(out.coefficients.shift + c) : zero;
  const Vector mean = kNorm ? lanes.LoadPadded(out.coefficients.mean + c) : zero;
  const bool needs_raw = kNorm || x.activation != Activation::kNone;
  Vector dbeta = zero, dgamma = zero;
  for (int64_t r = 0; r < rows; ++r) {
    const int64_t i = (first_row + r) * channels + c;
    Vector gradient = lanes.LoadPadded(tile + r * stride);
    if constexpr (kAdd) gradient = hn::Add(gradient, lanes.Load(out.dx.add + i));
    if (needs_raw) {
      const Vector raw = lanes.Load(x.raw + i);
      gradient = bounds.Slope(kNorm ? hn::MulAdd(raw, scale, shift) : raw, gradient);
      gradient = Rounded<T>(gradient);
      if constexpr (kNorm) {
        dbeta = hn::Add(dbeta, gradient);
        dgamma = hn::MulAdd(gradient, hn::Sub(raw, mean), dgamma);
      }
      lanes.StoreExact(out.dx.dz + i, gradient);
    } else {
      lanes.Store(out.dx.dz + i, gradient);
    }
  }
  if constexpr (kNorm) {
    float* first = out.sums.First(block) + c;
    float* second = out.sums.Second(block) + c;
    if (store == Store::kAdd) {
      dbeta = hn::Add(dbeta, lanes.LoadPadded(first));
      dgamma = hn::Add(dgamma, lanes.LoadPadded(second));
    }
    lanes.StorePadded(first, dbeta);
    lanes.StorePadded(second, dgamma);
  }
}

template <typename T>
void FinishBackward(const typename BackwardFinisher<T>::Tensors& out, const TileSpan& span,
                    int64_t first_row, int64_t rows, const float* tile, int64_t block,
                    Store store) {
  const bool norm = out.x.batch_norm != nullptr, add = out.dx.add != nullptr;
  const int64_t stride = span.stride;
  ForEachVector(span.start, span.start + span.count, [&](int64_t c, auto lanes) HWY_ATTR {
    const float* from = tile + (c - span.start);
    if (norm && add) {
      FinishVector<true, true, T>(out, lanes, c, first_row, rows, from, stride, block, store);
    } else if (norm) {
      FinishVector<true, false, T>(out, lanes, c, first_row, rows, from, stride, block, store);
    } else if (add) {
      FinishVector<false, true, T>(out, lanes, c, first_row, rows, from, stride, block, store);
    } else {
      FinishVector<false, false, T>(out, lanes, c, first_row, rows, from, stride, block, store);
    }
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

template <typename T>
void ForwardFinisher<T>::Finish(const Panel& panel, int64_t first_row, int64_t rows,
                                const float* tile, int64_t block) const {
  PUSHPULL_FOR_CHOSEN_ISA(FinishForward<T>)(tensors_, panel, first_row, rows, tile, block);
}

template <typename T>
void BackwardFinisher<T>::FinishRows(const TileSpan& span, int64_t first_row, int64_t rows,
                                     const float* tile, int64_t block, Store store) const {
  PUSHPULL_FOR_CHOSEN_ISA(FinishBackward<T>)(tensors_, span, first_row, rows, tile, block, store);
}

template class ForwardFinisher<float>;
template class ForwardFinisher<Bfloat16>;
template class BackwardFinisher<float>;
template class BackwardFinisher<Bfloat16>;

}  // namespace pushpull
#endif  // HWY_ONCE
