#include "kernels/profiled_operators.h"

#include <chrono>

namespace pushpull {

namespace {

// Floats an operator reads to know the lazy value (per-channel vectors are negligible).
double LazyReads(const Lazy<float>& x) {
  const double size = static_cast<double>(x.shape.size());
  return x.applied == nullptr && x.skip != nullptr ? 2 * size : size;
}

double GradientReads(const ConvolutionShape& shape, const OutputGradient<float>& dy) {
  const double size = static_cast<double>(shape.out().size());
  const bool reads_raw =
      dy.batch_norm != nullptr && dy.batch_norm->statistics == Statistics::kBatch;
  return reads_raw ? 2 * size : size;
}

// dz itself, the gradient added to it, and the raw value its mask and sums need where x.applied
// does not serve.
double InputGradientTraffic(const Lazy<float>& x, const InputGradient<float>& dx) {
  if (dx.dz == nullptr) return 0;
  const double size = static_cast<double>(x.shape.size());
  const bool extra_raw = x.applied != nullptr && x.batch_norm != nullptr;
  return size * (1 + (dx.add != nullptr ? 1 : 0) + (extra_raw ? 1 : 0));
}

class ProfiledOperators : public Operators<float> {
 public:
  ProfiledOperators(Operators<float>* operators, OperatorProfiler* profiler, int64_t (*now)())
      : operators_(*operators), profiler_(*profiler), now_(now) {}

  int64_t ConvolutionWorkspace(const ConvolutionShape& shape) const override {
    return operators_.ConvolutionWorkspace(shape);
  }
  int64_t DepthwiseWorkspace(const ConvolutionShape& shape) const override {
    return operators_.DepthwiseWorkspace(shape);
  }
  int64_t PoolWorkspace(const Shape& shape) const override {
    return operators_.PoolWorkspace(shape);
  }

  void Apply(const Lazy<float>& x, float* out) override {
    const int64_t start = now_();
    operators_.Apply(x, out);
    Lazy<float> computed = x;
    computed.applied = nullptr;
    Record("apply", x.shape, x.shape, 2.0 * x.shape.size(), LazyReads(computed) + x.shape.size(),
           start);
  }

  void Convolution(const ConvolutionShape& shape, const Lazy<float>& x, const float* weights,
                   const float* bias, float* y, const StatisticsOut<float>& statistics,
                   const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.Convolution(shape, x, weights, bias, y, statistics, workspace);
    Record("convolution", shape, DenseFlops(shape),
           LazyReads(x) + shape.dense_weights() + shape.out().size(), start);
  }

  void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<float>& x,
                           const float* weights, const OutputGradient<float>& dy, float* dweights,
                           float* dbias, const InputGradient<float>& dx,
                           const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.ConvolutionBackward(shape, x, weights, dy, dweights, dbias, dx, workspace);
    Record("convolution_backward", shape, DenseFlops(shape) * (dx.dz == nullptr ? 1 : 2),
           LazyReads(x) + GradientReads(shape, dy) + 2.0 * shape.dense_weights() +
               InputGradientTraffic(x, dx),
           start);
  }

  void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<float>& x,
                            const float* weights, float* y, const StatisticsOut<float>& statistics,
                            const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.DepthwiseConvolution(shape, x, weights, y, statistics, workspace);
    Record("depthwise", shape, DepthwiseFlops(shape), LazyReads(x) + shape.out().size(), start);
  }

  void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<float>& x,
                                    const float* weights, const OutputGradient<float>& dy,
                                    float* dweights, const InputGradient<float>& dx,
                                    const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.DepthwiseConvolutionBackward(shape, x, weights, dy, dweights, dx, workspace);
    Record("depthwise_backward", shape, DepthwiseFlops(shape) * (dx.dz == nullptr ? 1 : 2),
           LazyReads(x) + GradientReads(shape, dy) + InputGradientTraffic(x, dx), start);
  }

  void GlobalAveragePool(const Lazy<float>& x, float* y) override {
    const int64_t start = now_();
    operators_.GlobalAveragePool(x, y);
    Record("pool", x.shape, {x.shape.n, 1, 1, x.shape.c}, x.shape.size(), LazyReads(x), start);
  }

  void GlobalAveragePoolBackward(const Lazy<float>& x, const float* dy,
                                 const InputGradient<float>& dx,
                                 const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.GlobalAveragePoolBackward(x, dy, dx, workspace);
    Record("pool_backward", x.shape, {x.shape.n, 1, 1, x.shape.c}, x.shape.size(),
           LazyReads(x) + InputGradientTraffic(x, dx), start);
  }

  void Dropout(int64_t size, const float* x, double rate, const uint64_t* seed, uint64_t salt,
               float* y) override {
    const int64_t start = now_();
    operators_.Dropout(size, x, rate, seed, salt, y);
    RecordFlat("dropout", size, 2.0 * size, start);
  }

  void SoftmaxCrossEntropy(int64_t samples, int64_t classes, const float* logits,
                           const int32_t* labels, double smoothing, float* dlogits,
                           ClassificationResult* result) override {
    const int64_t start = now_();
    operators_.SoftmaxCrossEntropy(samples, classes, logits, labels, smoothing, dlogits, result);
    const Shape shape{samples, 1, 1, classes};
    Record("softmax", shape, shape, 4.0 * shape.size(), 2.0 * shape.size(), start);
  }

  int64_t SsdLossWorkspace(int64_t samples, int64_t num_anchors) const override {
    return operators_.SsdLossWorkspace(samples, num_anchors);
  }
  void SsdLoss(const SsdLossArguments<float>& arguments, SsdLossResult* result,
               const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.SsdLoss(arguments, result, workspace);
    const Shape shape{arguments.samples, 1, arguments.num_anchors,
                      arguments.spec->num_classes + 1 + kBoxCodeSize};
    Record("ssd_loss", shape, shape, 4.0 * shape.size(), 2.0 * shape.size(), start);
  }

  void ConvertFromFloat(int64_t size, const float* from, float* to) override {
    const int64_t start = now_();
    operators_.ConvertFromFloat(size, from, to);
    RecordFlat("convert", size, 2.0 * size, start);
  }
  void ConvertToFloat(int64_t size, const float* from, float* to) override {
    const int64_t start = now_();
    operators_.ConvertToFloat(size, from, to);
    RecordFlat("convert", size, 2.0 * size, start);
  }
  void Zero(int64_t size, float* out) override {
    const int64_t start = now_();
    operators_.Zero(size, out);
    RecordFlat("zero", size, size, start);
  }
  void MovingStatistics(int64_t channels, int64_t rows, const float* mean, const float* variance,
                        float* pushed_mean, float* pushed_variance) override {
    const int64_t start = now_();
    operators_.MovingStatistics(channels, rows, mean, variance, pushed_mean, pushed_variance);
    RecordFlat("statistics", channels, 4.0 * channels, start);
  }
  void CorrectStatistics(int64_t channels, double left, const float* mean, const float* variance,
                         float* corrected_mean, float* corrected_variance) override {
    const int64_t start = now_();
    operators_.CorrectStatistics(channels, left, mean, variance, corrected_mean,
                                 corrected_variance);
    RecordFlat("statistics", channels, 4.0 * channels, start);
  }

 private:
  static double DenseFlops(const ConvolutionShape& shape) {
    return 2.0 * shape.out().rows() * shape.dense_weights();
  }
  static double DepthwiseFlops(const ConvolutionShape& shape) {
    return 2.0 * shape.out().rows() * shape.depthwise_weights();
  }

  void Record(const char* name, const ConvolutionShape& shape, double flops, double floats,
              int64_t start) {
    const int64_t nanoseconds = now_() - start;
    profiler_.Record({name, shape.in, shape.out(), shape.kernel, shape.stride, flops,
                      floats * sizeof(float), nanoseconds});
  }
  void Record(const char* name, const Shape& in, const Shape& out, double flops, double floats,
              int64_t start) {
    const int64_t nanoseconds = now_() - start;
    profiler_.Record({name, in, out, 1, 1, flops, floats * sizeof(float), nanoseconds});
  }

  void RecordFlat(const char* name, int64_t size, double floats, int64_t start) {
    Record(name, {1, 1, 1, size}, {1, 1, 1, size}, size, floats, start);
  }

  Operators<float>& operators_;
  OperatorProfiler& profiler_;
  int64_t (*const now_)();
};

}  // namespace

int64_t SteadyNanoseconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

std::unique_ptr<Operators<float>> MakeProfiledOperators(Operators<float>* operators,
                                                        OperatorProfiler* profiler,
                                                        int64_t (*now)()) {
  return std::make_unique<ProfiledOperators>(operators, profiler, now);
}

}  // namespace pushpull
