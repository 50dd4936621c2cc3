// Tested by tests/kernels/cpu/fast_convolution_test.cc.
#include "kernels/cpu/dense_convolution.h"

#include <algorithm>
#include <optional>

#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/kernel_loop.h"
#include "kernels/cpu/panels.h"
#include "kernels/cpu/phased_input_gradient.h"
#include "kernels/cpu/product.h"
#include "kernels/cpu/row_source.h"
#include "kernels/cpu/tile_finisher.h"
#include "kernels/cpu/weight_gradient.h"
#include "kernels/cpu/winograd_product.h"
#include "kernels/cpu/winograd_tiling.h"
#include "kernels/cpu/winograd_weight_gradient.h"

namespace pushpull {

namespace {

int64_t Taps(const ConvolutionShape& shape) { return int64_t{shape.kernel} * shape.kernel; }

// Whether each output pixel reads exactly the input pixel with the same number.
bool IsPointwise(const ConvolutionShape& shape) {
  return shape.kernel == 1 && shape.stride == 1 && shape.padding == Padding{};
}

Cut CutOf(const ConvolutionShape& shape, int64_t rows, int64_t block_rows) {
  const int64_t weights = shape.dense_weights();
  return IsPointwise(shape) ? ChooseCut(rows, weights, block_rows)
                            : ChooseCutOfPatches(rows, weights, block_rows);
}

// Returns memory that already holds the value of x, or null if the value has to be computed.
template <typename T>
const T* ReadyValue(const Lazy<T>& x) {
  if (x.applied != nullptr) return x.applied;
  const bool identity =
      x.batch_norm == nullptr && x.skip == nullptr && x.activation == FusedActivation::kNone;
  return identity ? x.raw : nullptr;
}

// The tiling if it pays, or nothing for a convolution that is computed directly.
std::optional<WinogradTiling> TilingIf(bool pays, const WinogradTiling& tiling) {
  if (!pays) return std::nullopt;
  return tiling;
}

// The forward pass as one product of rows with the weights, or, if there is a tiling, as products
// of transformed tiles. Serves one caller at a time.
template <typename P>
class ConvolutionProduct {
 public:
  // The arguments after `tiling` describe the product with the weights; they are not used if there
  // is a tiling.
  ConvolutionProduct(const std::optional<WinogradTiling>& tiling, int64_t rows, const Panels& inner,
                     int64_t outer, Cut cut, int64_t block_rows, int threads, Arena* arena) {
    if (tiling.has_value()) {
      winograd_.emplace(*tiling, threads, arena);
      return;
    }
    direct_.emplace(rows, inner, outer, cut, block_rows, threads, arena);
    scratch_ = arena->Numbers<P>(direct_->ScratchNumbers(threads));
  }

  int64_t blocks() const { return direct_.has_value() ? direct_->blocks() : winograd_->blocks(); }
  int64_t RowsOf(int64_t block) const {
    return direct_.has_value() ? direct_->RowsOf(block) : winograd_->RowsOf(block);
  }

  // `source` is what `rows` are made of.
  void Run(const RowSource<P>& rows, const TensorOf<P>* source, const WeightOperand& weights,
           const TileFinisher& finisher, ThreadPool* pool) const {
    if (direct_.has_value()) {
      direct_->Run(rows, weights, finisher, scratch_, pool);
    } else {
      winograd_->Run(source, weights, finisher, pool);
    }
  }

 private:
  std::optional<Product<P>> direct_;
  std::optional<WinogradProduct<P>> winograd_;
  P* scratch_ = nullptr;
};

template <typename P>
struct ForwardPlan {
  ForwardPlan(const ConvolutionShape& shape, int threads, Arena* arena)
      : block_rows(BlockRows(Taps(shape) * shape.in.c)),
        coefficients(shape.in.c, arena),
        value(IsPointwise(shape) ? nullptr : arena->Numbers<TensorOf<P>>(shape.in.size())),
        product(TilingIf(WinogradPays(shape), ForwardTiling(shape)), shape.out().rows(),
                InnerPanels<P>(Taps(shape) * shape.in.c), shape.out_channels,
                CutOf(shape, shape.out().rows(), block_rows), block_rows, threads, arena),
        sums(product.blocks(), shape.out_channels, arena) {}

  int64_t block_rows;
  LazyCoefficients coefficients;
  TensorOf<P>* value;
  ConvolutionProduct<P> product;
  BlockSums sums;
};

// The gradient of the weights in one of the same two ways. Serves one caller at a time.
template <typename P>
class ConvolutionWeightGradient {
 public:
  // `tiling` is that of the forward pass. The arguments after it describe the direct product; they
  // are not used if there is a tiling.
  ConvolutionWeightGradient(const std::optional<WinogradTiling>& tiling, int64_t rows,
                            int64_t inner, int64_t outer, Cut cut, int64_t block_rows, int threads,
                            Arena* arena)
      : cut_(cut) {
    if (tiling.has_value()) {
      winograd_.emplace(*tiling, threads, arena);
    } else {
      direct_.emplace(rows, inner, outer, cut, block_rows, threads, arena);
    }
  }

  // Only without a tiling.
  const WeightGradient<P>& direct() const { return *direct_; }
  // Whether Run needs `dy`; otherwise only the rows.
  bool reads_whole_gradient() const { return winograd_.has_value(); }

  // `x` and `dy` are what the rows are made of.
  void Run(const RowSource<P>& x_rows, const TensorOf<P>* x, const RowSource<P>& dy_rows,
           const TensorOf<P>* dy, float* dweights, ThreadPool* pool) const {
    if (winograd_.has_value()) {
      winograd_->Run(x, dy, dweights, pool);
    } else if (cut_ == Cut::kByBlocks) {
      direct_->RunByBlocks(x_rows, dy_rows, dweights, pool,
                           [](const P*, int64_t, int, Prefetcher*) {});
    } else if (cut_ == Cut::kBySlices) {
      direct_->RunBySlices(x_rows, dy_rows, dweights, pool);
    } else {
      direct_->Pack(x_rows, dy_rows, pool);
      KernelLoop(pool, direct_->panel_tasks(),
                 [&](int64_t task) { direct_->PanelTask(task, dweights); });
    }
  }

 private:
  Cut cut_;
  std::optional<WeightGradient<P>> direct_;
  std::optional<WinogradWeightGradient<P>> winograd_;
};

// The gradient of the input: of a pointwise convolution as one product with rows of dy, of any
// other by transformed tiles or phase by phase. Serves one caller at a time.
template <typename P>
class ConvolutionInputGradient {
 public:
  // The cut and the rows of a block are those of a pointwise convolution's weight gradient.
  ConvolutionInputGradient(const ConvolutionShape& shape, Cut cut, int64_t block_rows, int threads,
                           Arena* arena) {
    if (IsPointwise(shape)) {
      pointwise_.emplace(shape.in.rows(), ResultPanels(shape.out_channels), shape.in.c, cut,
                         block_rows, threads, arena);
    } else if (WinogradPays(shape)) {
      winograd_.emplace(BackwardTiling(shape), threads, arena);
    } else {
      phased_.emplace(shape, threads, arena);
    }
  }

  int64_t blocks() const {
    if (pointwise_.has_value()) return pointwise_->blocks();
    return winograd_.has_value() ? winograd_->blocks() : phased_->blocks();
  }
  // Returns the product of a pointwise convolution; no other convolution has one.
  const Product<P>& pointwise() const { return *pointwise_; }

  // Computes the gradient of any other convolution. Blocks until it is written.
  void Run(const TensorOf<P>* dy, const WeightOperand& weights,
           const BackwardFinisher<TensorOf<P>>& finisher, ThreadPool* pool) const {
    if (winograd_.has_value()) {
      winograd_->Run(dy, weights, finisher, pool);
    } else {
      phased_->Run(dy, weights, finisher, pool);
    }
  }

 private:
  std::optional<Product<P>> pointwise_;
  std::optional<WinogradProduct<P>> winograd_;
  std::optional<PhasedInputGradient<P>> phased_;
};

// The memory and the cuts of the backward pass. A pointwise convolution computes both gradients
// from the same packed dy, so both products are cut in the same way.
template <typename P>
struct BackwardPlan {
  BackwardPlan(const ConvolutionShape& shape, int threads, Arena* arena)
      : pointwise(IsPointwise(shape)),
        inner(Taps(shape) * shape.in.c),
        block_rows(BlockRows(inner + shape.out_channels)),
        cut(CutOf(shape, shape.out().rows(), block_rows)),
        coefficients(shape.in.c, arena),
        gradient_coefficients(shape.out_channels, arena),
        bias_sums(arena->Floats(GradientSumFloats(shape.out()))),
        value(pointwise ? nullptr : arena->Numbers<TensorOf<P>>(shape.in.size())),
        dy(pointwise ? nullptr : arena->Numbers<TensorOf<P>>(shape.out().size())),
        weight_gradient(TilingIf(WinogradWeightGradientPays(shape), ForwardTiling(shape)),
                        shape.out().rows(), inner, shape.out_channels, cut, block_rows, threads,
                        arena),
        input_gradient(shape, cut, block_rows, threads, arena),
        sums(input_gradient.blocks(), shape.in.c, arena) {}

  bool pointwise;
  int64_t inner;
  int64_t block_rows;
  Cut cut;
  LazyCoefficients coefficients;
  GradientCoefficients gradient_coefficients;
  float* bias_sums;  // for SumGradient
  TensorOf<P>* value;
  TensorOf<P>* dy;
  ConvolutionWeightGradient<P> weight_gradient;
  ConvolutionInputGradient<P> input_gradient;
  BlockSums sums;
};

// Both gradients of a pointwise convolution. dy is computed and packed once and used for both while
// it is in the cache.
template <typename P>
void PointwiseBackward(const BackwardPlan<P>& plan, const Lazy<TensorOf<P>>& x,
                       const WeightOperand& weights, const RowSource<P>& dy, float* dweights,
                       const TileFinisher& finisher, bool wants_input, ThreadPool* pool) {
  const ValueRows<P> rows(x, plan.coefficients);
  const WeightGradient<P>& weight_gradient = plan.weight_gradient.direct();
  const Product<P>& product = plan.input_gradient.pointwise();
  if (plan.cut == Cut::kByBlocks) {
    if (wants_input) product.PackWeights(weights, pool);
    weight_gradient.RunByBlocks(
        rows, dy, dweights, pool,
        [&](const P* packed, int64_t block, int thread, Prefetcher* prefetcher) {
          if (wants_input) product.MultiplyBlock(packed, block, thread, finisher, prefetcher);
        });
    return;
  }
  weight_gradient.Pack(rows, dy, pool);
  const int64_t input_tasks = wants_input ? product.panel_tasks() : 0;
  KernelLoop(pool, input_tasks + weight_gradient.panel_tasks(), [&](int64_t task, int thread) {
    if (task < input_tasks) {
      product.MultiplyPanelTask(weight_gradient.packed_dy(), task, thread, weights, finisher);
    } else {
      weight_gradient.PanelTask(task - input_tasks, dweights);
    }
  });
}

// Both gradients of any other convolution, one after the other: the weight gradient multiplies
// patches of x, the input gradient multiplies patches of dy by the transposed weights.
template <typename P>
void PatchBackward(const ConvolutionShape& shape, const BackwardPlan<P>& plan,
                   const TensorOf<P>* value, const WeightOperand& weights,
                   const RowSource<P>& dy_rows, const TensorOf<P>* dy, float* dweights,
                   const BackwardFinisher<TensorOf<P>>& finisher, bool wants_input,
                   ThreadPool* pool) {
  plan.weight_gradient.Run(PatchRows<P>(shape, value), value, dy_rows, dy, dweights, pool);
  if (wants_input) plan.input_gradient.Run(dy, weights, finisher, pool);
}

}  // namespace

template <typename P>
int64_t DenseWorkspaceBytes(const ConvolutionShape& shape, int threads) {
  Arena forward, backward;
  const ForwardPlan<P> forward_plan(shape, threads, &forward);
  const BackwardPlan<P> backward_plan(shape, threads, &backward);
  return std::max(forward.used_bytes(), backward.used_bytes());
}

template <typename P>
void DenseForward(const ConvolutionShape& shape, const Lazy<TensorOf<P>>& x, const float* weights,
                  const float* bias, TensorOf<P>* y, const StatisticsOut<TensorOf<P>>& statistics,
                  const Workspace& workspace, ThreadPool* pool) {
  Arena arena(workspace);
  const ForwardPlan<P> plan(shape, pool->num_threads(), &arena);
  if (x.batch_norm != nullptr) plan.coefficients.Compute(*x.batch_norm, shape.in.c);
  const WeightOperand operand{weights, Taps(shape), shape.in.c, shape.out_channels,
                              WeightOperand::Role::kForward};
  const bool wants_statistics = statistics.mean != nullptr;
  const ForwardFinisher<TensorOf<P>> finisher(shape.out().rows(), shape.out_channels, bias, y,
                                              wants_statistics ? &plan.sums : nullptr);
  if (IsPointwise(shape)) {
    plan.product.Run(ValueRows<P>(x, plan.coefficients), nullptr, operand, finisher, pool);
  } else {
    const TensorOf<P>* value = ReadyValue(x);
    if (value == nullptr) {
      ApplyValue(x, plan.coefficients, plan.value, pool);
      value = plan.value;
    }
    plan.product.Run(PatchRows<P>(shape, value), value, operand, finisher, pool);
  }
  if (!wants_statistics) return;
  CombineStatistics(
      plan.sums, [&](int64_t block) { return plan.product.RowsOf(block); }, shape.out_channels,
      statistics.mean, statistics.variance, pool);
}

template <typename P>
void DenseBackward(const ConvolutionShape& shape, const Lazy<TensorOf<P>>& x, const float* weights,
                   const OutputGradient<TensorOf<P>>& dy, float* dweights, float* dbias,
                   const InputGradient<TensorOf<P>>& dx, const Workspace& workspace,
                   ThreadPool* pool) {
  Arena arena(workspace);
  const BackwardPlan<P> plan(shape, pool->num_threads(), &arena);
  if (x.batch_norm != nullptr) plan.coefficients.Compute(*x.batch_norm, shape.in.c);
  if (dy.batch_norm != nullptr) plan.gradient_coefficients.Compute(shape.out(), dy);
  if (dbias != nullptr) {
    SumGradient(shape.out(), dy, plan.gradient_coefficients, plan.bias_sums, dbias, pool);
  }
  const WeightOperand operand{weights, Taps(shape), shape.in.c, shape.out_channels,
                              WeightOperand::Role::kTransposed};
  const BackwardFinisher<TensorOf<P>> finisher(x, plan.coefficients, dx, plan.sums);
  const bool wants_input = dx.dz != nullptr;
  if (plan.pointwise) {
    const GradientRows<P> dy_rows(shape.out_channels, dy, plan.gradient_coefficients);
    PointwiseBackward(plan, x, operand, dy_rows, dweights, finisher, wants_input, pool);
  } else {
    const TensorOf<P>* value = ReadyValue(x);
    if (value == nullptr) {
      ApplyValue(x, plan.coefficients, plan.value, pool);
      value = plan.value;
    }
    OutputGradient<TensorOf<P>> gradient = dy;
    if (dy.batch_norm != nullptr && (wants_input || plan.weight_gradient.reads_whole_gradient())) {
      ApplyGradient(shape.out(), dy, plan.gradient_coefficients, plan.dy, pool);
      gradient = {plan.dy, nullptr, nullptr, nullptr, nullptr};
    }
    const GradientRows<P> dy_rows(shape.out_channels, gradient, plan.gradient_coefficients);
    PatchBackward(shape, plan, value, operand, dy_rows, gradient.dz, dweights, finisher,
                  wants_input, pool);
  }
  if (wants_input && x.batch_norm != nullptr) {
    CombineGradients(plan.sums, *x.batch_norm, shape.in.c, dx.dbeta, dx.dgamma, pool);
  }
}

#define PUSHPULL_DENSE_CONVOLUTION(P, T)                                                     \
  template int64_t DenseWorkspaceBytes<P>(const ConvolutionShape&, int);                     \
  template void DenseForward<P>(const ConvolutionShape&, const Lazy<T>&, const float*,       \
                                const float*, T*, const StatisticsOut<T>&, const Workspace&, \
                                ThreadPool*);                                                \
  template void DenseBackward<P>(const ConvolutionShape&, const Lazy<T>&, const float*,      \
                                 const OutputGradient<T>&, float*, float*,                   \
                                 const InputGradient<T>&, const Workspace&, ThreadPool*)
PUSHPULL_DENSE_CONVOLUTION(float, float);
PUSHPULL_DENSE_CONVOLUTION(Bfloat16, Bfloat16);
PUSHPULL_DENSE_CONVOLUTION(BfloatAsFloat, Bfloat16);
#undef PUSHPULL_DENSE_CONVOLUTION

}  // namespace pushpull
