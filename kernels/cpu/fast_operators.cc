// Tested by tests/kernels/cpu/gradient_test.cc.
// Tested by tests/kernels/cpu/operators_test.cc.
#include "kernels/cpu/fast_operators.h"

#include <algorithm>
#include <type_traits>
#include <vector>

#include "glog/logging.h"

#include "kernels/cpu/dense_convolution.h"
#include "kernels/cpu/depthwise_convolution.h"
#include "kernels/cpu/depthwise_tiling.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/gemm.h"
#include "kernels/cpu/host_operators.h"
#include "kernels/cpu/kernel_loop.h"
#include "kernels/gather/numbers.h"
#include "kernels/scalar_math.h"

namespace pushpull {

namespace {

void CheckDepthwise(const ConvolutionShape& shape) {
  CheckConvolution(shape);
  CHECK_EQ(shape.in.c, shape.out_channels);
  CHECK_LE(shape.kernel, kMaxDepthwiseTaps);
}

template <typename P>
class FastOperators : public HostOperators<TensorOf<P>> {
 public:
  using T = TensorOf<P>;

  explicit FastOperators(ThreadPool* pool) : pool_(pool) {}

  int64_t ConvolutionWorkspace(const ConvolutionShape& shape) const override {
    CheckConvolution(shape);
    return DenseWorkspaceBytes<P>(shape, pool_->num_threads());
  }
  int64_t DepthwiseWorkspace(const ConvolutionShape& shape) const override {
    CheckDepthwise(shape);
    return std::max(DepthwiseForwardWorkspaceBytes(shape, pool_->num_threads()),
                    DepthwiseBackwardWorkspaceBytes(shape, pool_->num_threads()));
  }
  int64_t PoolWorkspace(const Shape& shape) const override {
    return PoolWorkspaceBytes(shape, pool_->num_threads());
  }

  void ConvertFromFloat(int64_t size, const float* from, T* to) override {
    if constexpr (std::is_same_v<T, Bfloat16>) {
      RoundFloats(size, from, to, pool_);
    } else {
      HostOperators<T>::ConvertFromFloat(size, from, to);
    }
  }

  void Apply(const Lazy<T>& x, T* out) override {
    Lazy<T> computed = x;
    computed.applied = nullptr;
    ApplyValue(computed, Coefficients(computed), out, pool_);
  }

  void Convolution(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                   const float* bias, T* y, const StatisticsOut<T>& statistics,
                   const Workspace& workspace) override {
    DenseForward<P>(shape, x, weights, bias, y, statistics, workspace, pool_);
  }
  void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                           const OutputGradient<T>& dy, float* dweights, float* dbias,
                           const InputGradient<T>& dx, const Workspace& workspace) override {
    DenseBackward<P>(shape, x, weights, dy, dweights, dbias, dx, workspace, pool_);
  }

  void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<T>& x, const float* weights,
                            T* y, const StatisticsOut<T>& statistics,
                            const Workspace& workspace) override {
    CheckDepthwise(shape);
    DepthwiseForward(shape, x, weights, y, statistics, workspace, pool_);
  }
  void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                    const float* weights, const OutputGradient<T>& dy,
                                    float* dweights, const InputGradient<T>& dx,
                                    const Workspace& workspace) override {
    CheckDepthwise(shape);
    DepthwiseBackward(shape, x, weights, dy, dweights, dx, workspace, pool_);
  }

  void GlobalAveragePool(const Lazy<T>& x, T* y) override {
    PoolForward(x, Coefficients(x), y, pool_);
  }
  void GlobalAveragePoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                                 const Workspace& workspace) override {
    PoolBackward(x, dy, dx, workspace, pool_);
  }

  void Dropout(int64_t size, const T* x, double rate, const uint64_t* seed, uint64_t salt,
               T* y) override {
    const uint64_t threshold = DropoutThreshold(rate);
    const uint64_t salted = *seed ^ salt;
    const float scale = static_cast<float>(1.0 / (1.0 - rate));
    constexpr int64_t kPart = 8192;
    KernelLoop(pool_, (size + kPart - 1) / kPart, [&](int64_t part) {
      const int64_t end = std::min(size, (part + 1) * kPart);
      for (int64_t i = part * kPart; i < end; ++i) {
        gather::Narrow(HashIndex(salted, i) < threshold ? 0.0f : ToFloat(x[i]) * scale, y + i);
      }
    });
  }

 protected:
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body) override {
    KernelLoop(pool_, count, body);
  }

 private:
  // Returns coefficients for the operators that get no workspace. Their memory grows to the widest
  // tensor seen so far and is then reused, so the next call overwrites them.
  LazyCoefficients Coefficients(const Lazy<T>& x) {
    Arena counted;
    LazyCoefficients(x.shape.c, &counted);
    const size_t floats = (counted.used_bytes() + 64) / sizeof(float);
    if (coefficients_.size() < floats) coefficients_.resize(floats);
    Arena arena({coefficients_.data(), static_cast<int64_t>(coefficients_.size() * sizeof(float))});
    const LazyCoefficients coefficients(x.shape.c, &arena);
    if (x.batch_norm != nullptr) coefficients.Compute(*x.batch_norm, x.shape.c);
    return coefficients;
  }

  ThreadPool* const pool_;
  std::vector<float> coefficients_;
};

}  // namespace

template <typename P>
std::unique_ptr<Operators<TensorOf<P>>> MakeFastOperatorsOf(ThreadPool* pool) {
  return std::make_unique<FastOperators<P>>(pool);
}

template std::unique_ptr<Operators<float>> MakeFastOperatorsOf<float>(ThreadPool*);
template std::unique_ptr<Operators<Bfloat16>> MakeFastOperatorsOf<Bfloat16>(ThreadPool*);
template std::unique_ptr<Operators<Bfloat16>> MakeFastOperatorsOf<BfloatAsFloat>(ThreadPool*);

template <typename T>
std::unique_ptr<Operators<T>> MakeFastOperators(ThreadPool* pool) {
  if constexpr (std::is_same_v<T, Bfloat16>) {
    if (!PairsAreFaster()) return MakeFastOperatorsOf<BfloatAsFloat>(pool);
  }
  return MakeFastOperatorsOf<T>(pool);
}

template std::unique_ptr<Operators<float>> MakeFastOperators<float>(ThreadPool*);
template std::unique_ptr<Operators<Bfloat16>> MakeFastOperators<Bfloat16>(ThreadPool*);

}  // namespace pushpull
