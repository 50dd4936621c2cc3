// Tested by tests/kernels/cpu/gradient_test.cc.
// Tested by tests/kernels/cpu/operators_test.cc.
#include "kernels/cpu/fast_operators.h"

#include <algorithm>
#include <vector>

#include "glog/logging.h"

#include "kernels/cpu/dense_convolution.h"
#include "kernels/cpu/depthwise_convolution.h"
#include "kernels/cpu/depthwise_tiling.h"
#include "kernels/cpu/elementwise.h"
#include "kernels/cpu/host_operators.h"
#include "kernels/scalar_math.h"

namespace pushpull {

namespace {

void CheckDepthwise(const ConvolutionShape& shape) {
  CHECK_EQ(shape.in.c, shape.out_channels);
  CHECK_LE(shape.kernel, kMostDepthwiseTaps);
}

class FastOperators : public HostOperators<float> {
 public:
  explicit FastOperators(ThreadPool* pool) : pool_(pool) {}

  int64_t ConvolutionWorkspace(const ConvolutionShape& shape) const override {
    return DenseWorkspaceBytes(shape, pool_->num_threads());
  }
  int64_t DepthwiseWorkspace(const ConvolutionShape& shape) const override {
    CheckDepthwise(shape);
    return std::max(DepthwiseForwardWorkspaceBytes(shape, pool_->num_threads()),
                    DepthwiseBackwardWorkspaceBytes(shape, pool_->num_threads()));
  }
  int64_t PoolWorkspace(const Shape& shape) const override { return PoolWorkspaceBytes(shape); }

  void Apply(const Lazy<float>& x, float* out) override {
    Lazy<float> computed = x;
    computed.applied = nullptr;
    ApplyValue(computed, Coefficients(computed), out, pool_);
  }

  void Convolution(const ConvolutionShape& shape, const Lazy<float>& x, const float* weights,
                   const float* bias, float* y, const StatisticsOut<float>& statistics,
                   const Workspace& workspace) override {
    DenseForward(shape, x, weights, bias, y, statistics, workspace, pool_);
  }
  void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<float>& x,
                           const float* weights, const OutputGradient<float>& dy, float* dweights,
                           float* dbias, const InputGradient<float>& dx,
                           const Workspace& workspace) override {
    DenseBackward(shape, x, weights, dy, dweights, dbias, dx, workspace, pool_);
  }

  void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<float>& x,
                            const float* weights, float* y, const StatisticsOut<float>& statistics,
                            const Workspace& workspace) override {
    CheckDepthwise(shape);
    DepthwiseForward(shape, x, weights, y, statistics, workspace, pool_);
  }
  void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<float>& x,
                                    const float* weights, const OutputGradient<float>& dy,
                                    float* dweights, const InputGradient<float>& dx,
                                    const Workspace& workspace) override {
    CheckDepthwise(shape);
    DepthwiseBackward(shape, x, weights, dy, dweights, dx, workspace, pool_);
  }

  void GlobalAveragePool(const Lazy<float>& x, float* y) override {
    PoolForward(x, Coefficients(x), y, pool_);
  }
  void GlobalAveragePoolBackward(const Lazy<float>& x, const float* dy,
                                 const InputGradient<float>& dx,
                                 const Workspace& workspace) override {
    PoolBackward(x, dy, dx, workspace, pool_);
  }

  void Dropout(int64_t size, const float* x, double rate, const uint64_t* seed, uint64_t salt,
               float* y) override {
    const uint64_t threshold = DropoutThreshold(rate);
    const uint64_t salted = *seed ^ salt;
    const float scale = static_cast<float>(1.0 / (1.0 - rate));
    constexpr int64_t kPart = 8192;
    pool_->ParallelFor((size + kPart - 1) / kPart, [&](int64_t part) {
      const int64_t end = std::min(size, (part + 1) * kPart);
      for (int64_t i = part * kPart; i < end; ++i) {
        y[i] = HashIndex(salted, i) < threshold ? 0.0f : x[i] * scale;
      }
    });
  }

 protected:
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body) override {
    pool_->ParallelFor(count, body);
  }

 private:
  // Returns coefficients for the operators that get no workspace. Their memory grows to the widest
  // tensor seen so far and is then reused, so the next call overwrites them.
  LazyCoefficients Coefficients(const Lazy<float>& x) {
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

std::unique_ptr<Operators<float>> MakeFastOperators(ThreadPool* pool) {
  return std::make_unique<FastOperators>(pool);
}

}  // namespace pushpull
