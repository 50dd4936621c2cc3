// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include "kernels/cpu/tile_finisher.h"

#include "common/base/cpu_isa.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/tile_finisher.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// This comes after foreach_target.h, because it is compiled for each instruction set as well.
#include "kernels/cpu/streamed_stores.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// A finisher goes down the rows of a tensor, whose lines lie too far apart for the processor's own
// prefetcher. So it prefetches the lines that it stores to, and those of dx.add, this many rows
// ahead (docs/decisions/0033-prefetching-products.md).
constexpr int64_t kRowsAhead = 8;

// Goes down the tile one vector of channels at a time, or the vectors of one line of y. For each
// row it adds the bias, stores y and adds to two running sums in registers. The tile comes from the
// L1 cache and y is written once, so the stores to memory are the likely bound. The tile's own
// padding columns are never stored.
template <int kVectors, typename T, typename Lanes>
void FinishForwardVectors(const typename ForwardFinisher<T>::Tensors& out, Lanes lanes, int64_t c,
                          int64_t first_row, int64_t rows, const float* tile, int64_t stride,
                          int64_t block) {
  T* to = out.y + first_row * out.channels + c;
  // The sums are over deviations from the first row of the block: sums of the values themselves
  // would cancel badly where the mean is far from zero.
  Vector bias[kVectors], origin[kVectors], sum[kVectors], squares[kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    bias[v] = out.bias != nullptr ? lanes.Load(out.bias + c + v * kVectorLanes) : Zero();
    origin[v] = Rounded<T>(hn::Add(lanes.LoadPadded(tile + v * kVectorLanes), bias[v]));
    sum[v] = squares[v] = Zero();
  }
  for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const Vector product = lanes.LoadPadded(tile + r * stride + v * kVectorLanes);
      const Vector y = Rounded<T>(hn::Add(product, bias[v]));
      lanes.PrefetchStore(to + (r + kRowsAhead) * out.channels + v * kVectorLanes);
      lanes.StoreExact(to + r * out.channels + v * kVectorLanes, y);
      const Vector d = hn::Sub(y, origin[v]);
      sum[v] = hn::Add(sum[v], d);
      squares[v] = hn::MulAdd(d, d, squares[v]);
    }
  }
  if (out.sums == nullptr) return;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const Vector offset = hn::Div(sum[v], hn::Set(Tag(), static_cast<float>(rows)));
    const Vector deviation = hn::NegMulAdd(sum[v], offset, squares[v]);
    lanes.StorePadded(out.sums->First(block) + c + v * kVectorLanes, hn::Add(origin[v], offset));
    lanes.StorePadded(out.sums->Second(block) + c + v * kVectorLanes,
                      MaxOrSecond(Zero(), deviation));
  }
}

template <typename T>
void FinishForward(const typename ForwardFinisher<T>::Tensors& out, const Panel& panel,
                   int64_t first_row, int64_t rows, const float* tile, int64_t block) {
  const bool streams = Streams(out.y, out.rows, out.channels);
  ForEachStore<T>(streams, panel.start, panel.start + panel.valid,
                  [&](int64_t c, auto lanes, auto vectors) HWY_ATTR {
                    FinishForwardVectors<vectors(), T>(out, lanes, c, first_row, rows,
                                                       tile + (c - panel.start), panel.width,
                                                       block);
                  });
}

// Goes down the rows of one vector of channels, or of the vectors of one line of dz. The
// coefficients and the two sums stay in registers; a row reads the tile (L1 cache), x.raw and
// dx.add and writes dx.dz. These up to three streams of memory are the bound: there are fewer than
// ten arithmetic operations per vector. The template parameters remove the tests from the loop.
template <bool kNorm, bool kAdd, int kVectors, typename T, typename Lanes>
void FinishVectors(const typename BackwardFinisher<T>::Tensors& out, Lanes lanes, int64_t c,
                   int64_t first_row, int64_t rows, const float* tile, const TileSpan& span,
                   int64_t block, Store store) {
  const Lazy<T>& x = out.x;
  const int64_t channels = x.shape.c, stride = span.stride, step = span.row_step * channels;
  const Bounds bounds(x.activation);
  Vector scale[kVectors], shift[kVectors], mean[kVectors], dbeta[kVectors], dgamma[kVectors];
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    const int64_t from = c + v * kVectorLanes;
    scale[v] = kNorm ? lanes.LoadPadded(out.coefficients.scale + from) : Zero();
    shift[v] = kNorm ? lanes.LoadPadded(out.coefficients.shift + from) : Zero();
    mean[v] = kNorm ? lanes.LoadPadded(out.coefficients.mean + from) : Zero();
    dbeta[v] = dgamma[v] = Zero();
  }
  const bool needs_raw = kNorm || x.activation != FusedActivation::kNone;
  for (int64_t r = 0; r < rows; ++r) {
#pragma GCC unroll 2
    for (int v = 0; v < kVectors; ++v) {
      const int64_t i = first_row * channels + r * step + c + v * kVectorLanes;
      lanes.PrefetchStore(out.dx.dz + i + kRowsAhead * step);
      if constexpr (kAdd) hwy::Prefetch(out.dx.add + i + kRowsAhead * step);
      Vector gradient = lanes.LoadPadded(tile + r * stride + v * kVectorLanes);
      if constexpr (kAdd) gradient = hn::Add(gradient, lanes.Load(out.dx.add + i));
      if (needs_raw) {
        const Vector raw = lanes.Load(x.raw + i);
        gradient = bounds.Slope(kNorm ? hn::MulAdd(raw, scale[v], shift[v]) : raw, gradient);
        gradient = Rounded<T>(gradient);
        if constexpr (kNorm) {
          dbeta[v] = hn::Add(dbeta[v], gradient);
          dgamma[v] = hn::MulAdd(gradient, hn::Sub(raw, mean[v]), dgamma[v]);
        }
        lanes.StoreExact(out.dx.dz + i, gradient);
      } else {
        lanes.StoreExact(out.dx.dz + i, Rounded<T>(gradient));
      }
    }
  }
  if constexpr (!kNorm) return;
#pragma GCC unroll 2
  for (int v = 0; v < kVectors; ++v) {
    float* first = out.sums.First(block) + c + v * kVectorLanes;
    float* second = out.sums.Second(block) + c + v * kVectorLanes;
    if (store == Store::kAdd) {
      dbeta[v] = hn::Add(dbeta[v], lanes.LoadPadded(first));
      dgamma[v] = hn::Add(dgamma[v], lanes.LoadPadded(second));
    }
    lanes.StorePadded(first, dbeta[v]);
    lanes.StorePadded(second, dgamma[v]);
  }
}

template <bool kNorm, bool kAdd, typename T>
void FinishSpan(const typename BackwardFinisher<T>::Tensors& out, const TileSpan& span,
                int64_t first_row, int64_t rows, const float* tile, int64_t block, Store store) {
  // dx.add is often dz itself, whose lines are then in the cache already.
  const bool streams = !kAdd && Streams(out.dx.dz, out.x.shape.rows(), out.x.shape.c);
  ForEachStore<T>(streams, span.start, span.start + span.count,
                  [&](int64_t c, auto lanes, auto vectors) HWY_ATTR {
                    FinishVectors<kNorm, kAdd, vectors(), T>(out, lanes, c, first_row, rows,
                                                             tile + (c - span.start), span, block,
                                                             store);
                  });
}

template <typename T>
void FinishBackward(const typename BackwardFinisher<T>::Tensors& out, const TileSpan& span,
                    int64_t first_row, int64_t rows, const float* tile, int64_t block,
                    Store store) {
  const bool norm = out.x.batch_norm != nullptr, add = out.dx.add != nullptr;
  if (norm && add) {
    FinishSpan<true, true, T>(out, span, first_row, rows, tile, block, store);
  } else if (norm) {
    FinishSpan<true, false, T>(out, span, first_row, rows, tile, block, store);
  } else if (add) {
    FinishSpan<false, true, T>(out, span, first_row, rows, tile, block, store);
  } else {
    FinishSpan<false, false, T>(out, span, first_row, rows, tile, block, store);
  }
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
