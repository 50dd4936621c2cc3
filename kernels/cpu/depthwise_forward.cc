// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include <algorithm>

#include "common/base/cpu_isa.h"
#include "kernels/cpu/depthwise_convolution.h"
#include "kernels/cpu/depthwise_plan.h"
#include "kernels/cpu/depthwise_tiling.h"
#include "kernels/cpu/kernel_loop.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/depthwise_forward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// These come after foreach_target.h, because they are compiled for each instruction set as well.
#include "kernels/cpu/depthwise_band.h"
#include "kernels/cpu/streamed_stores.h"
#include "kernels/cpu/vector_loads.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// Describes one output row: y is the sum over the taps. The deviations of y from `origin` are added
// to `sum`, and their squares to `squares`.
template <typename T>
struct RowJob {
  // For each tap row that applies, in the band: the first tap of the first output pixel.
  const float* x[kMaxDepthwiseTaps];
  int64_t x_next;  // floats from the taps of one output pixel to those of the next
  int64_t slab;
  const float* weights;  // those of the first tap row that applies
  int64_t kernel;
  int64_t channels;  // of the tensor: the distance of two taps of weights
  T* y;
  int64_t y_next;  // numbers from one pixel of y to the next
  int64_t pixels;
  const float* origin;  // null: no sums
  float* sum;
  float* squares;
};

// Computes one output row for one vector of channels. The up to nine weight vectors stay in
// registers, as do the sums of deviations and squares; y is summed in one more register. For each
// pixel the kernel's taps are loaded from the band, which is in the L2 cache; neighbouring pixels
// share taps, which then come from the L1 cache. With 3 x 3 taps a pixel costs nine loads and nine
// multiply-adds, plus a store and three operations for the sums: the load ports and the store of y
// to memory are the likely bounds. The 25 weights of 5 x 5 taps fit in the 32 registers of
// AVX-512, but not in the 16 of AVX2, where some are loaded again for each pixel.
//
//    band       w * x_next
//    tap row 0  ....[0][1][2]....      y[w] = sum of weights[i][j] * band[i][w + j]
//    tap row 1  ....[0][1][2]....      each [ ] is a vector of channels, slab floats apart
//    tap row 2  ....[0][1][2]....
template <int kRows, int kColumns, typename T, typename Lanes>
void RunVector(const RowJob<T>& job, int64_t c, Lanes lanes) {
  Vector weights[kRows + 1][kColumns];
#pragma GCC unroll 7
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 7
    for (int j = 0; j < kColumns; ++j) {
      weights[i][j] = lanes.Load(job.weights + (i * job.kernel + j) * job.channels + c);
    }
  }
  const Vector origin = job.origin != nullptr ? lanes.LoadPadded(job.origin + c) : Zero();
  Vector sum = Zero(), squares = Zero();
  for (int64_t w = 0; w < job.pixels; ++w) {
    Vector y = Zero();
#pragma GCC unroll 7
    for (int i = 0; i < kRows; ++i) {
      const float* x = job.x[i] + w * job.x_next + c;
#pragma GCC unroll 7
      for (int j = 0; j < kColumns; ++j) {
        y = hn::MulAdd(LoadWhole(x + j * job.slab), weights[i][j], y);
      }
    }
    y = Rounded<T>(y);
    lanes.StoreExact(job.y + w * job.y_next + c, y);
    const Vector d = hn::Sub(y, origin);
    sum = hn::Add(sum, d);
    squares = hn::MulAdd(d, d, squares);
  }
  if (job.origin == nullptr) return;
  lanes.StorePadded(job.sum + c, hn::Add(lanes.LoadPadded(job.sum + c), sum));
  lanes.StorePadded(job.squares + c, hn::Add(lanes.LoadPadded(job.squares + c), squares));
}

template <typename T>
void RunRow(const RowJob<T>& job, int tap_rows, int64_t channels) {
  WithTaps(tap_rows, static_cast<int>(job.kernel), [&]<int kRows, int kColumns>() HWY_ATTR {
    ForEachVector(0, channels, [&](int64_t c, auto lanes) HWY_ATTR {
      RunVector<kRows, kColumns>(job, c, lanes);
    });
  });
}

// Copies a row of pixels of `channels` channels, which are `slab` numbers apart, to one of the rows
// of a tensor.
template <typename T>
void StreamRow(const Shape& shape, const T* row, int64_t slab, int64_t channels, T* to) {
  for (int64_t w = 0; w < shape.w; ++w) StreamLines(row + w * slab, channels, to + w * shape.c);
}

// Computes the output of one task, row by row, and its block of the sums.
template <typename Load, typename T>
void RunTask(const ConvolutionShape& shape, const DepthwiseForwardPlan& plan, const Load& load,
             const float* weights, T* y, int64_t task, int thread) {
  const DepthwiseTiling& tiling = plan.tiling;
  const Shape out = shape.out();
  const int64_t slab = tiling.slab, c0 = tiling.FirstChannel(task),
                channels = tiling.Channels(task, out.c);
  float* scratch = plan.scratch + thread * plan.thread_floats;
  const Band band{shape.padding.left, shape.kernel, plan.columns, slab, scratch};
  band.ClearBorder(shape.in.w);
  float* origin = scratch + plan.band_floats;
  // A vector of channels goes along a row, so it does not write whole lines of y. Where y is
  // streamed, each of its rows is therefore computed in the cache first.
  const bool streams = Streams(y, out.rows(), out.c) && slab % kLine<T> == 0;
  T* row = reinterpret_cast<T*>(origin + slab + kDepthwiseOverread);
  float* sum = plan.sums.First(tiling.GroupOf(task)) + c0;
  float* squares = plan.sums.Second(tiling.GroupOf(task)) + c0;
  const int64_t padded = PaddedChannels(channels);
  std::fill(sum, sum + padded, 0.0f);
  std::fill(squares, squares + padded, 0.0f);

  const int64_t first_sample = tiling.FirstSample(task), end_sample = tiling.EndSample(task, out.n);
  for (int64_t n = first_sample; n < end_sample; ++n) {
    int64_t loaded = 0;  // the first row of the sample that the band has not had yet
    for (int64_t oh = 0; oh < out.h; ++oh) {
      const int64_t h = oh * shape.stride - shape.padding.top;
      const int64_t kh0 = std::clamp<int64_t>(-h, 0, shape.kernel);
      const int64_t kh1 = std::clamp<int64_t>(shape.in.h - h, kh0, shape.kernel);
      for (; loaded < h + kh1; ++loaded) {
        band.LoadRow(load, shape.in, n, loaded, c0, channels);
      }
      T* y_row = y + (n * out.h + oh) * out.w * out.c + c0;
      RowJob<T> job{{},
                    shape.stride * slab,
                    slab,
                    weights + kh0 * shape.kernel * out.c + c0,
                    shape.kernel,
                    out.c,
                    streams ? row : y_row,
                    streams ? slab : out.c,
                    out.w,
                    origin,
                    sum,
                    squares};
      for (int64_t kh = kh0; kh < kh1; ++kh) job.x[kh - kh0] = band.Row(h + kh);
      // The sums are taken about the first pixel of the group, so that a large mean costs no
      // precision. That pixel is computed first, without sums, and becomes the origin.
      if (n == first_sample && oh == 0) {
        RowJob<T> pixel = job;
        pixel.pixels = 1;
        pixel.origin = nullptr;
        RunRow(pixel, static_cast<int>(kh1 - kh0), channels);
        std::fill(origin, origin + padded, 0.0f);
        std::transform(job.y, job.y + channels, origin, [](T value) { return ToFloat(value); });
      }
      RunRow(job, static_cast<int>(kh1 - kh0), channels);
      if (streams) StreamRow(out, row, slab, channels, y_row);
    }
  }
  const float count = static_cast<float>((end_sample - first_sample) * out.h * out.w);
  for (int64_t c = 0; c < channels; ++c) {
    const float offset = sum[c] / count;
    const float deviation = squares[c] - sum[c] * offset;
    sum[c] = origin[c] + offset;
    squares[c] = deviation < 0 ? 0.0f : deviation;
  }
}

template <typename T>
void RunTasks(const ConvolutionShape& shape, const DepthwiseForwardPlan& plan, const Lazy<T>& x,
              const float* weights, T* y, ThreadPool* pool) {
  WithValueLoad(x, plan.coefficients, [&](const auto& load) HWY_ATTR {
    KernelLoop(pool, plan.tiling.tasks(), [&](int64_t task, int thread) HWY_ATTR {
      RunTask(shape, plan, load, weights, y, task, thread);
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

int64_t DepthwiseForwardWorkspaceBytes(const ConvolutionShape& shape, int threads) {
  Arena arena;
  DepthwiseForwardPlan(shape, threads, &arena);
  return arena.used_bytes();
}

template <typename T>
void DepthwiseForward(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights, T* y,
                      const StatisticsOut<T>& statistics, const Workspace& workspace,
                      ThreadPool* pool) {
  Arena arena(workspace);
  const DepthwiseForwardPlan plan(shape, pool->num_threads(), &arena);
  if (x.batch_norm != nullptr) plan.coefficients.Compute(*x.batch_norm, shape.in.c);
  PUSHPULL_FOR_CHOSEN_ISA(RunTasks<T>)(shape, plan, x, weights, y, pool);
  if (statistics.mean == nullptr) return;
  const Shape out = shape.out();
  const int64_t group_rows = plan.tiling.group_samples * out.h * out.w;
  CombineStatistics(
      plan.sums,
      [&](int64_t group) { return std::min(group_rows, out.rows() - group * group_rows); }, out.c,
      statistics.mean, statistics.variance, pool);
}

template void DepthwiseForward<float>(const ConvolutionShape&, const Lazy<float>&, const float*,
                                      float*, const StatisticsOut<float>&, const Workspace&,
                                      ThreadPool*);
template void DepthwiseForward<Bfloat16>(const ConvolutionShape&, const Lazy<Bfloat16>&,
                                         const float*, Bfloat16*, const StatisticsOut<Bfloat16>&,
                                         const Workspace&, ThreadPool*);

}  // namespace pushpull
#endif  // HWY_ONCE
