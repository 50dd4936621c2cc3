// Tested by tests/kernels/cpu/fast_convolution_test.cc.
// foreach_target.h includes this file again for each instruction set better than that of the build.
#include <algorithm>

#include "common/base/cpu_isa.h"
#include "kernels/cpu/depthwise_convolution.h"
#include "kernels/cpu/depthwise_plan.h"
#include "kernels/cpu/depthwise_tiling.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kernel_loop.h"
#include "kernels/cpu/tile_finisher.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "kernels/cpu/depthwise_backward.cc"
#include "hwy/foreach_target.h"
#include "hwy/highway.h"
// These come after foreach_target.h, because they are compiled for each instruction set as well.
#include "kernels/cpu/depthwise_band.h"
#include "kernels/cpu/vector_loads.h"

HWY_BEFORE_NAMESPACE();
namespace pushpull {
namespace HWY_NAMESPACE {
namespace {

// Describes the columns of one phase in one input row. A phase consists of every `stride`-th
// column: those that meet the same taps of the kernel. At stride 2 and 3 x 3 taps, phase 0 meets
// the tap columns 0 and 2, phase 1 meets tap column 1. The j-th tap column of a phase reads the
// output pixel that is j before that of the first tap column.
struct PhaseJob {
  // For each tap row that applies, in the band of dy: the output pixel that the first tap of the
  // first column belongs to.
  const float* dy[kMaxDepthwiseTaps];
  const float* weights[kMaxDepthwiseTaps];  // for each tap row, the first tap of the phase
  float* dweights[kMaxDepthwiseTaps];
  int64_t tap;           // floats from one tap column of the phase to the next, in weights
  int64_t dweights_tap;  // the same in dweights
  const float* x;        // in the row of x: the first column of the phase
  float* dx;             // in the row buffer: the first column of the phase
  int64_t next;          // floats from one column of the phase to the next, in x and dx
  int64_t slab;
  int64_t count;  // columns
};

// Computes the input gradient of one phase for one vector of channels: for each column, the
// sum over the taps of weight * dy. The up to nine weight vectors stay in registers; dy comes from
// the band in the L2 cache, or from the L1 cache where columns share an output pixel. With 3 x 3
// taps a column costs nine loads and nine multiply-adds into one sum; the sums of different columns
// are independent and overlap. Two loads per cycle are the likely bound.
template <int kRows, int kColumns, typename Lanes>
void InputVector(const PhaseJob& job, int64_t c, Lanes lanes) {
  Vector weights[kRows + 1][kColumns];
#pragma GCC unroll 7
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 7
    for (int j = 0; j < kColumns; ++j) weights[i][j] = lanes.Load(job.weights[i] + j * job.tap + c);
  }
  for (int64_t w = 0; w < job.count; ++w) {
    Vector dx = Zero();
#pragma GCC unroll 7
    for (int i = 0; i < kRows; ++i) {
      const float* dy = job.dy[i] + w * job.slab + c;
#pragma GCC unroll 7
      for (int j = 0; j < kColumns; ++j) {
        dx = hn::MulAdd(LoadWhole(dy - j * job.slab), weights[i][j], dx);
      }
    }
    lanes.StorePadded(job.dx + w * job.next + c, dx);
  }
}

// Adds the weight gradients of one phase for one vector of channels: for each tap, the sum
// over the columns of x * dy. Here the up to nine sums stay in registers and x is loaded once per
// column. With 3 x 3 taps a column costs ten loads and nine multiply-adds into nine independent
// sums, so again two loads per cycle are the likely bound. It is a separate loop from InputVector
// because nine sums and nine weights do not fit in the 16 registers of AVX2.
template <int kRows, int kColumns, typename Lanes>
void WeightVector(const PhaseJob& job, int64_t c, Lanes lanes) {
  Vector sum[kRows + 1][kColumns];
#pragma GCC unroll 7
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 7
    for (int j = 0; j < kColumns; ++j) sum[i][j] = Zero();
  }
  for (int64_t w = 0; w < job.count; ++w) {
    const Vector x = LoadWhole(job.x + w * job.next + c);
#pragma GCC unroll 7
    for (int i = 0; i < kRows; ++i) {
      const float* dy = job.dy[i] + w * job.slab + c;
#pragma GCC unroll 7
      for (int j = 0; j < kColumns; ++j) {
        sum[i][j] = hn::MulAdd(LoadWhole(dy - j * job.slab), x, sum[i][j]);
      }
    }
  }
#pragma GCC unroll 7
  for (int i = 0; i < kRows; ++i) {
#pragma GCC unroll 7
    for (int j = 0; j < kColumns; ++j) {
      float* out = job.dweights[i] + j * job.dweights_tap + c;
      lanes.StorePadded(out, hn::Add(lanes.LoadPadded(out), sum[i][j]));
    }
  }
}

// Computes the gradient of one input row into the row buffer and adds the row's part to dweights.
class RowBackward {
 public:
  RowBackward(const ConvolutionShape& shape, const DepthwiseBackwardPlan& plan,
              const float* weights, float* dweights, int64_t channels, bool wants_input)
      : shape_(shape),
        plan_(plan),
        weights_(weights),
        dweights_(dweights),
        channels_(channels),
        wants_input_(wants_input) {}

  // `x` is row h of the input. The band `dy` has the output rows that it meets.
  void Run(int64_t h, const float* x, const Band& dy, float* dx) const {
    for (int phase = 0; phase < shape_.stride; ++phase) {
      // Columns w with (w + padding.left) % stride == phase.
      const int64_t w0 =
          (phase + int64_t{shape_.stride} * shape_.kernel - shape_.padding.left) % shape_.stride;
      if (w0 >= shape_.in.w) continue;
      const int taps = (shape_.kernel - phase + shape_.stride - 1) / shape_.stride;
      const int64_t slab = plan_.tiling.slab;
      PhaseJob job{};
      job.tap = shape_.stride * shape_.in.c;
      job.dweights_tap = shape_.stride * plan_.padded_channels;
      job.x = x + w0 * slab;
      job.dx = dx + w0 * slab;
      job.next = shape_.stride * slab;
      job.slab = slab;
      job.count = (shape_.in.w - w0 + shape_.stride - 1) / shape_.stride;
      const int64_t column = (w0 + shape_.padding.left - phase) / shape_.stride + dy.left;
      int rows = 0;
      for (int kh = 0; kh < shape_.kernel; ++kh) {
        const int64_t scaled = h + shape_.padding.top - kh;
        if (scaled < 0 || scaled % shape_.stride != 0 || scaled / shape_.stride >= shape_.out_h())
          continue;
        job.dy[rows] = dy.Row(scaled / shape_.stride) + column * slab;
        job.weights[rows] = weights_ + (int64_t{kh} * shape_.kernel + phase) * shape_.in.c;
        job.dweights[rows] =
            dweights_ + (int64_t{kh} * shape_.kernel + phase) * plan_.padded_channels;
        ++rows;
      }
      RunPhase(job, taps > 0 ? rows : 0, std::max(taps, 1));
    }
  }

 private:
  void RunPhase(const PhaseJob& job, int rows, int columns) const {
    WithTaps(rows, columns, [&]<int kRows, int kColumns>() HWY_ATTR {
      ForEachVector(0, channels_, [&](int64_t c, auto lanes) HWY_ATTR {
        WeightVector<kRows, kColumns>(job, c, lanes);
        if (wants_input_) InputVector<kRows, kColumns>(job, c, lanes);
      });
    });
  }

  const ConvolutionShape& shape_;
  const DepthwiseBackwardPlan& plan_;
  const float* weights_;
  float* dweights_;
  const int64_t channels_;
  const bool wants_input_;
};

// Computes the gradients of one task, row by row. `finisher` is null if no input gradient is
// wanted.
template <typename ValueLoader, typename GradientLoader, typename T>
void RunTask(const ConvolutionShape& shape, const DepthwiseBackwardPlan& plan,
             const ValueLoader& value, const GradientLoader& gradient, const float* weights,
             const BackwardFinisher<T>* finisher, int64_t task, int thread) {
  const DepthwiseTiling& tiling = plan.tiling;
  const Shape in = shape.in, out = shape.out();
  const int64_t slab = tiling.slab, c0 = tiling.FirstChannel(task),
                channels = tiling.Channels(task, in.c);
  const int64_t group = tiling.GroupOf(task);
  float* scratch = plan.scratch + thread * plan.thread_floats;
  const Band x{0, 1, in.w, slab, scratch};
  const Band dy{plan.left, plan.out_rows, plan.columns, slab, scratch + plan.row_floats};
  float* dx = scratch + plan.row_floats + plan.dy_floats;
  dy.ClearBorder(out.w);
  float* dweights = plan.partial + group * plan.partial_floats + c0;
  for (int64_t tap = 0; tap < int64_t{shape.kernel} * shape.kernel; ++tap) {
    float* row = dweights + tap * plan.padded_channels;
    std::fill(row, row + PaddedChannels(channels), 0.0f);
  }
  const RowBackward backward(shape, plan, weights + c0, dweights, channels, finisher != nullptr);
  Store store = Store::kWrite;
  for (int64_t n = tiling.FirstSample(task); n < tiling.EndSample(task, in.n); ++n) {
    int64_t loaded = 0;  // the first row of dy of the sample that the band has not had yet
    for (int64_t h = 0; h < in.h; ++h) {
      // The end of the output rows with a tap in this one.
      const int64_t bottom = std::min(out.h, (h + shape.padding.top) / shape.stride + 1);
      for (; loaded < bottom; ++loaded) {
        dy.LoadRow(gradient, out, n, loaded, c0, channels);
      }
      x.LoadRow(value, in, n, h, c0, channels);
      backward.Run(h, x.Row(h), dy, dx);
      if (finisher == nullptr) continue;
      finisher->FinishRows({c0, channels, slab}, (n * in.h + h) * in.w, in.w, dx, group, store);
      store = Store::kAdd;
    }
  }
}

template <typename T>
void RunTasks(const ConvolutionShape& shape, const DepthwiseBackwardPlan& plan, const Lazy<T>& x,
              const float* weights, const OutputGradient<T>& dy,
              const BackwardFinisher<T>* finisher, ThreadPool* pool) {
  WithValueLoad(x, plan.coefficients, [&](const auto& value) HWY_ATTR {
    WithGradientLoad(dy, plan.gradient_coefficients, [&](const auto& gradient) HWY_ATTR {
      KernelLoop(pool, plan.tiling.tasks(), [&](int64_t task, int thread) HWY_ATTR {
        RunTask(shape, plan, value, gradient, weights, finisher, task, thread);
      });
    });
  });
}

}  // namespace
}  // namespace HWY_NAMESPACE
}  // namespace pushpull
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pushpull {

int64_t DepthwiseBackwardWorkspaceBytes(const ConvolutionShape& shape, int threads) {
  Arena arena;
  DepthwiseBackwardPlan(shape, threads, &arena);
  return arena.used_bytes();
}

template <typename T>
void DepthwiseBackward(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                       const OutputGradient<T>& dy, float* dweights, const InputGradient<T>& dx,
                       const Workspace& workspace, ThreadPool* pool) {
  Arena arena(workspace);
  const DepthwiseBackwardPlan plan(shape, pool->num_threads(), &arena);
  if (x.batch_norm != nullptr) plan.coefficients.Compute(*x.batch_norm, shape.in.c);
  if (dy.batch_norm != nullptr) plan.gradient_coefficients.Compute(shape.out(), dy);
  const BackwardFinisher<T> finisher(x, plan.coefficients, dx, plan.sums);
  const BackwardFinisher<T>* wanted = dx.dz != nullptr ? &finisher : nullptr;
  PUSHPULL_FOR_CHOSEN_ISA(RunTasks<T>)(shape, plan, x, weights, dy, wanted, pool);
  // Adds the weight gradients of all groups, in order.
  for (int64_t tap = 0; tap < int64_t{shape.kernel} * shape.kernel; ++tap) {
    AddRows(plan.partial + tap * plan.padded_channels, plan.tiling.groups, plan.partial_floats,
            shape.in.c, dweights + tap * shape.in.c);
  }
  if (wanted != nullptr && x.batch_norm != nullptr) {
    CombineGradients(plan.sums, *x.batch_norm, shape.in.c, dx.dbeta, dx.dgamma, pool);
  }
}

template void DepthwiseBackward<float>(const ConvolutionShape&, const Lazy<float>&, const float*,
                                       const OutputGradient<float>&, float*,
                                       const InputGradient<float>&, const Workspace&, ThreadPool*);
template void DepthwiseBackward<Bfloat16>(const ConvolutionShape&, const Lazy<Bfloat16>&,
                                          const float*, const OutputGradient<Bfloat16>&, float*,
                                          const InputGradient<Bfloat16>&, const Workspace&,
                                          ThreadPool*);

}  // namespace pushpull
#endif  // HWY_ONCE
