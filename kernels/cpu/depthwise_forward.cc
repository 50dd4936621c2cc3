// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include <algorithm>

#include "kernels/cpu/depthwise_convolution.h"
#include "kernels/cpu/depthwise_tiling.h"

namespace pushpull {

namespace {

struct ForwardPlan {
  ForwardPlan(const ConvolutionShape& shape, int threads, Arena* arena)
      : tiling(shape),
        in_rows((tiling.band_rows - 1) * shape.stride + shape.kernel),
        columns(std::max((shape.out_w() - 1) * shape.stride + shape.kernel,
                         shape.padding.left + shape.in.w)),
        coefficients(shape.in.c, arena),
        sums(tiling.groups, shape.in.c, arena),
        band_floats(in_rows * columns * tiling.slab),
        thread_floats(band_floats + tiling.slab),
        scratch(arena->Floats(threads * thread_floats)) {}

  DepthwiseTiling tiling;
  int64_t in_rows;  // the input rows that the output rows of a band read
  int64_t columns;  // of a band, with its zero columns
  LazyCoefficients coefficients;
  BlockSums sums;  // one block for each group of samples
  int64_t band_floats;
  int64_t thread_floats;
  float* scratch;  // for each thread, a band and the origin of the sums
};

// Describes one output row: y is the sum over the taps. The deviations of y from `origin` are added
// to `sum`, and their squares to `squares`.
struct RowJob {
  const float* x;  // in the band: the first tap of the first output pixel
  // Floats from one tap row to the next, and from the taps of one output pixel to those of the
  // next.
  int64_t x_row, x_next;
  int64_t slab;
  const float* weights;  // those of the first tap row that applies
  int64_t kernel;
  int64_t channels;  // of the tensor: the distance of two pixels of y and of two taps of weights
  float* y;
  int64_t pixels;
  const float* origin;  // null: no sums
  float* sum;
  float* squares;
};

// Computes one output row for one vector of eight channels. The up to nine weight vectors stay in
// registers, as do the sums of deviations and squares; y is summed in one more register. For each
// pixel the kernel's taps are loaded from the band, which is in the L2 cache; neighbouring pixels
// share taps, which then come from the L1 cache. With 3 x 3 taps a pixel costs nine loads and nine
// multiply-adds, plus a store and three operations for the sums: the load ports and the store of y
// to memory are the likely bounds. The 25 weights of 5 x 5 taps do not fit in 16 registers, so some
// are loaded again for each pixel.
//
//    band       w * x_next
//    tap row 0  ....[0][1][2]....      y[w] = sum of weights[i][j] * band[i][w + j]
//    tap row 1  ....[0][1][2]....      each [ ] is a vector of 8 channels, slab floats apart
//    tap row 2  ....[0][1][2]....
template <int kRows, int kColumns, typename Lanes>
void RunVector(const RowJob& job, int64_t c, Lanes lanes) {
  Vector weights[kRows + 1][kColumns];
#pragma GCC unroll 7
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 7
    for (int j = 0; j < kColumns; ++j) {
      weights[i][j] = lanes.Load(job.weights + (i * job.kernel + j) * job.channels + c);
    }
  }
  const Vector origin =
      job.origin != nullptr ? _mm256_loadu_ps(job.origin + c) : _mm256_setzero_ps();
  Vector sum = _mm256_setzero_ps(), squares = _mm256_setzero_ps();
  for (int64_t w = 0; w < job.pixels; ++w) {
    Vector y = _mm256_setzero_ps();
#pragma GCC unroll 7
    for (int i = 0; i < kRows; ++i) {
      const float* x = job.x + i * job.x_row + w * job.x_next + c;
#pragma GCC unroll 7
      for (int j = 0; j < kColumns; ++j) {
        y = _mm256_fmadd_ps(_mm256_loadu_ps(x + j * job.slab), weights[i][j], y);
      }
    }
    lanes.Store(job.y + w * job.channels + c, y);
    const Vector d = _mm256_sub_ps(y, origin);
    sum = _mm256_add_ps(sum, d);
    squares = _mm256_fmadd_ps(d, d, squares);
  }
  if (job.origin == nullptr) return;
  _mm256_storeu_ps(job.sum + c, _mm256_add_ps(_mm256_loadu_ps(job.sum + c), sum));
  _mm256_storeu_ps(job.squares + c, _mm256_add_ps(_mm256_loadu_ps(job.squares + c), squares));
}

void RunRow(const RowJob& job, int tap_rows, int64_t channels) {
  WithTaps(tap_rows, static_cast<int>(job.kernel), [&]<int kRows, int kColumns>() {
    ForEachVector(0, channels,
                  [&](int64_t c, auto lanes) { RunVector<kRows, kColumns>(job, c, lanes); });
  });
}

// Computes the output of one task, band by band, and its block of the sums.
template <typename Load>
void RunTask(const ConvolutionShape& shape, const ForwardPlan& plan, const Load& load,
             const float* weights, float* y, int64_t task, int thread) {
  const DepthwiseTiling& tiling = plan.tiling;
  const Shape out = shape.out();
  const int64_t slab = tiling.slab, c0 = tiling.FirstChannel(task),
                channels = tiling.Channels(task, out.c);
  float* scratch = plan.scratch + thread * plan.thread_floats;
  const Band band{shape.padding.left, plan.columns, slab, scratch};
  band.ClearBorder(plan.in_rows, shape.in.w);
  float* origin = scratch + plan.band_floats;
  float* sum = plan.sums.First(tiling.GroupOf(task)) + c0;
  float* squares = plan.sums.Second(tiling.GroupOf(task)) + c0;
  const int64_t padded = PaddedChannels(channels);
  std::fill(sum, sum + padded, 0.0f);
  std::fill(squares, squares + padded, 0.0f);

  const int64_t first_sample = tiling.FirstSample(task), end_sample = tiling.EndSample(task, out.n);
  for (int64_t n = first_sample; n < end_sample; ++n) {
    for (int64_t begin = 0; begin < out.h; begin += tiling.band_rows) {
      const int64_t end = std::min(out.h, begin + tiling.band_rows);
      // The input row that is row 0 of the band; negative within the padding.
      const int64_t top = begin * shape.stride - shape.padding.top;
      const int64_t bottom =
          std::min(shape.in.h, (end - 1) * shape.stride - shape.padding.top + shape.kernel);
      for (int64_t h = std::max<int64_t>(top, 0); h < bottom; ++h) {
        band.LoadRow(load, shape.in, n, h, c0, channels, h - top);
      }
      for (int64_t oh = begin; oh < end; ++oh) {
        const int64_t h = oh * shape.stride - shape.padding.top;
        const int64_t kh0 = std::clamp<int64_t>(-h, 0, shape.kernel);
        const int64_t kh1 = std::clamp<int64_t>(shape.in.h - h, kh0, shape.kernel);
        RowJob job{band.Row(h + kh0 - top),
                   plan.columns * slab,
                   shape.stride * slab,
                   slab,
                   weights + kh0 * shape.kernel * out.c + c0,
                   shape.kernel,
                   out.c,
                   y + (n * out.h + oh) * out.w * out.c + c0,
                   out.w,
                   origin,
                   sum,
                   squares};
        // The sums are taken about the first pixel of the group, so that a large mean costs no
        // precision. That pixel is computed first, without sums, and becomes the origin.
        if (n == first_sample && oh == 0) {
          RowJob pixel = job;
          pixel.pixels = 1;
          pixel.origin = nullptr;
          RunRow(pixel, static_cast<int>(kh1 - kh0), channels);
          std::fill(origin, origin + padded, 0.0f);
          std::copy(job.y, job.y + channels, origin);
        }
        RunRow(job, static_cast<int>(kh1 - kh0), channels);
      }
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

}  // namespace

int64_t DepthwiseForwardWorkspaceBytes(const ConvolutionShape& shape, int threads) {
  Arena arena;
  ForwardPlan(shape, threads, &arena);
  return arena.used_bytes();
}

void DepthwiseForward(const ConvolutionShape& shape, const Lazy<float>& x, const float* weights,
                      float* y, const StatisticsOut<float>& statistics, const Workspace& workspace,
                      ThreadPool* pool) {
  Arena arena(workspace);
  const ForwardPlan plan(shape, pool->num_threads(), &arena);
  if (x.batch_norm != nullptr) plan.coefficients.Compute(*x.batch_norm, shape.in.c);
  WithValueLoad(x, plan.coefficients, [&](const auto& load) {
    pool->ParallelFor(plan.tiling.tasks(), [&](int64_t task, int thread) {
      RunTask(shape, plan, load, weights, y, task, thread);
    });
  });
  if (statistics.mean == nullptr) return;
  const Shape out = shape.out();
  CombineStatistics(plan.sums, plan.tiling.group_samples * out.h * out.w, out.rows(), out.c,
                    statistics, pool);
}

}  // namespace pushpull
