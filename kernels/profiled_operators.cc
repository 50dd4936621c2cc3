#include "kernels/profiled_operators.h"

#include <chrono>

namespace pushpull {

namespace {

// The number of values that an operator reads to compute a lazy value. Here and below, per-channel
// vectors are left out since they are negligible.
template <typename T>
double LazyReads(const Lazy<T>& x) {
  const double size = static_cast<double>(x.shape.size());
  return x.applied == nullptr && x.skip != nullptr ? 2 * size : size;
}

// The number of values that an operator reads to compute dy, the gradient of the raw output.
template <typename T>
double GradientReads(const ConvolutionShape& shape, const OutputGradient<T>& dy) {
  const double size = static_cast<double>(shape.out().size());
  const bool reads_raw =
      dy.batch_norm != nullptr && dy.batch_norm->statistics == Statistics::kBatch;
  return reads_raw ? 2 * size : size;
}

// The number of values that writing an input gradient moves: dz, the gradient that is added to it,
// and x.raw, which the activation mask and the sums need. LazyReads already counts x.raw unless the
// value was read from x.applied.
template <typename T>
double InputGradientTraffic(const Lazy<T>& x, const InputGradient<T>& dx) {
  if (dx.dz == nullptr) return 0;
  const double size = static_cast<double>(x.shape.size());
  const bool extra_raw = x.applied != nullptr && x.batch_norm != nullptr;
  return size * (1 + (dx.add != nullptr ? 1 : 0) + (extra_raw ? 1 : 0));
}

template <typename T>
class ProfiledOperators : public Operators<T> {
  using P = ParameterOf<T>;

 public:
  ProfiledOperators(Operators<T>* operators, OperatorProfiler* profiler, int64_t (*now)())
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

  void Apply(const Lazy<T>& x, T* out) override {
    const int64_t start = now_();
    operators_.Apply(x, out);
    Lazy<T> computed = x;
    computed.applied = nullptr;
    Record("apply", x.shape, x.shape, 2.0 * x.shape.size(),
           Values(LazyReads(computed) + x.shape.size()), start);
  }

  void Convolution(const ConvolutionShape& shape, const Lazy<T>& x, const P* weights, const P* bias,
                   T* y, const StatisticsOut<T>& statistics, const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.Convolution(shape, x, weights, bias, y, statistics, workspace);
    Record("convolution", shape, DenseFlops(shape),
           Values(LazyReads(x) + shape.out().size()) + Parameters(shape.dense_weights()), start);
  }

  void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x, const P* weights,
                           const OutputGradient<T>& dy, P* dweights, P* dbias,
                           const InputGradient<T>& dx, const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.ConvolutionBackward(shape, x, weights, dy, dweights, dbias, dx, workspace);
    Record("convolution_backward", shape, DenseFlops(shape) * (dx.dz == nullptr ? 1 : 2),
           Values(LazyReads(x) + GradientReads(shape, dy) + InputGradientTraffic(x, dx)) +
               Parameters(2.0 * shape.dense_weights()),
           start);
  }

  void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<T>& x, const P* weights, T* y,
                            const StatisticsOut<T>& statistics,
                            const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.DepthwiseConvolution(shape, x, weights, y, statistics, workspace);
    Record("depthwise", shape, DepthwiseFlops(shape), Values(LazyReads(x) + shape.out().size()),
           start);
  }

  void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                    const P* weights, const OutputGradient<T>& dy, P* dweights,
                                    const InputGradient<T>& dx,
                                    const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.DepthwiseConvolutionBackward(shape, x, weights, dy, dweights, dx, workspace);
    Record("depthwise_backward", shape, DepthwiseFlops(shape) * (dx.dz == nullptr ? 1 : 2),
           Values(LazyReads(x) + GradientReads(shape, dy) + InputGradientTraffic(x, dx)), start);
  }

  void GlobalAveragePool(const Lazy<T>& x, T* y) override {
    const int64_t start = now_();
    operators_.GlobalAveragePool(x, y);
    Record("pool", x.shape, {x.shape.n, 1, 1, x.shape.c}, x.shape.size(), Values(LazyReads(x)),
           start);
  }

  void GlobalAveragePoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                                 const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.GlobalAveragePoolBackward(x, dy, dx, workspace);
    Record("pool_backward", x.shape, {x.shape.n, 1, 1, x.shape.c}, x.shape.size(),
           Values(LazyReads(x) + InputGradientTraffic(x, dx)), start);
  }

  // Counts one element read and one written per element of the output. That is too little for
  // formulas that read more than one tensor or pixel, such as sums, products, pools and most
  // gradients.
  void Run(const Gather<T>& gather) override {
    const int64_t start = now_();
    operators_.Run(gather);
    std::visit(
        [&](const auto& formula) {
          const int64_t size = formula.rows * formula.channels;
          RecordFlat(formula.kName, size, Values(2.0 * static_cast<double>(size)), start);
        },
        gather);
  }

  void Dropout(int64_t size, const T* x, double rate, const uint64_t* seed, uint64_t salt,
               T* y) override {
    const int64_t start = now_();
    operators_.Dropout(size, x, rate, seed, salt, y);
    RecordFlat("dropout", size, Values(2.0 * size), start);
  }

  void SoftmaxCrossEntropy(int64_t samples, int64_t classes, const T* logits, const int32_t* labels,
                           double smoothing, T* dlogits, ClassificationResult* result) override {
    const int64_t start = now_();
    operators_.SoftmaxCrossEntropy(samples, classes, logits, labels, smoothing, dlogits, result);
    const Shape shape{samples, 1, 1, classes};
    Record("softmax", shape, shape, 4.0 * shape.size(), Values(2.0 * shape.size()), start);
  }

  int64_t SsdLossWorkspace(int64_t samples, int64_t num_anchors) const override {
    return operators_.SsdLossWorkspace(samples, num_anchors);
  }
  void SsdLoss(const SsdLossArguments<T>& arguments, SsdLossResult* result,
               const Workspace& workspace) override {
    const int64_t start = now_();
    operators_.SsdLoss(arguments, result, workspace);
    const Shape shape{arguments.samples, 1, arguments.num_anchors,
                      arguments.spec->num_classes + 1 + kBoxCodeSize};
    Record("ssd_loss", shape, shape, 4.0 * shape.size(), Values(2.0 * shape.size()), start);
  }

  void ConvertFromFloat(int64_t size, const float* from, T* to) override {
    const int64_t start = now_();
    operators_.ConvertFromFloat(size, from, to);
    RecordFlat("convert", size, Values(size) + sizeof(float) * size, start);
  }
  void ConvertToFloat(int64_t size, const T* from, float* to) override {
    const int64_t start = now_();
    operators_.ConvertToFloat(size, from, to);
    RecordFlat("convert", size, Values(size) + sizeof(float) * size, start);
  }
  void SampleImages(const ImageInput& input, int64_t samples, const void* block,
                    T* images) override {
    const int64_t start = now_();
    operators_.SampleImages(input, samples, block, images);
    // Assumes that each value is made from one stored byte: the sizes of the stored images are in
    // device memory, where the host cannot look.
    const int64_t size = samples * input.num_elements();
    RecordFlat("images", size, Values(size) + static_cast<double>(size), start);
  }
  void Zero(int64_t size, P* out) override {
    const int64_t start = now_();
    operators_.Zero(size, out);
    RecordFlat("zero", size, Parameters(size), start);
  }
  void AddTo(int64_t size, const P* x, P* sum) override {
    const int64_t start = now_();
    operators_.AddTo(size, x, sum);
    RecordFlat("add", size, Parameters(3.0 * size), start);
  }
  void MovingStatistics(absl::Span<const PushedStatistics<P>> norms) override {
    const int64_t start = now_();
    operators_.MovingStatistics(norms);
    int64_t channels = 0;
    for (const PushedStatistics<P>& norm : norms) channels += norm.channels;
    RecordFlat("statistics", channels, Parameters(4.0 * channels), start);
  }
  void CorrectStatistics(int64_t channels, double left, const P* mean, const P* variance,
                         P* corrected_mean, P* corrected_variance) override {
    const int64_t start = now_();
    operators_.CorrectStatistics(channels, left, mean, variance, corrected_mean,
                                 corrected_variance);
    RecordFlat("statistics", channels, Parameters(4.0 * channels), start);
  }

 private:
  // The bytes of `count` activations or parameters.
  static double Values(double count) { return count * sizeof(T); }
  static double Parameters(double count) { return count * sizeof(P); }
  static double DenseFlops(const ConvolutionShape& shape) {
    return 2.0 * shape.out().rows() * shape.dense_weights();
  }
  static double DepthwiseFlops(const ConvolutionShape& shape) {
    return 2.0 * shape.out().rows() * shape.depthwise_weights();
  }

  void Record(const char* name, const ConvolutionShape& shape, double flops, double bytes,
              int64_t start) {
    const int64_t nanoseconds = now_() - start;
    profiler_.Record(
        {name, shape.in, shape.out(), shape.kernel, shape.stride, flops, bytes, nanoseconds});
  }
  void Record(const char* name, const Shape& in, const Shape& out, double flops, double bytes,
              int64_t start) {
    const int64_t nanoseconds = now_() - start;
    profiler_.Record({name, in, out, 1, 1, flops, bytes, nanoseconds});
  }

  void RecordFlat(const char* name, int64_t size, double bytes, int64_t start) {
    Record(name, {1, 1, 1, size}, {1, 1, 1, size}, size, bytes, start);
  }

  Operators<T>& operators_;
  OperatorProfiler& profiler_;
  int64_t (*const now_)();
};

}  // namespace

int64_t SteadyNanoseconds() {
  const auto since = std::chrono::steady_clock::now().time_since_epoch();
  return std::chrono::duration_cast<std::chrono::nanoseconds>(since).count();
}

template <typename T>
std::unique_ptr<Operators<T>> MakeProfiledOperators(Operators<T>* operators,
                                                    OperatorProfiler* profiler, int64_t (*now)()) {
  return std::make_unique<ProfiledOperators<T>>(operators, profiler, now);
}

template std::unique_ptr<Operators<float>> MakeProfiledOperators<float>(Operators<float>*,
                                                                        OperatorProfiler*,
                                                                        int64_t (*)());
template std::unique_ptr<Operators<Bfloat16>> MakeProfiledOperators<Bfloat16>(Operators<Bfloat16>*,
                                                                              OperatorProfiler*,
                                                                              int64_t (*)());

}  // namespace pushpull
