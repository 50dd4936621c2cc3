// Tested by tests/kernels/cpu/gradient_test.cc.
// Tested by tests/kernels/cpu/operators_test.cc.
#include "kernels/cpu/reference_operators.h"

#include <cmath>
#include <vector>

#include "glog/logging.h"

#include "kernels/cpu/host_operators.h"
#include "kernels/scalar_math.h"

namespace pushpull {

namespace {

template <typename T>
double InverseDeviation(const BatchNorm<T>& norm, int64_t c) {
  return 1.0 / std::sqrt(static_cast<double>(norm.variance[c]) + norm.epsilon);
}

// Element i of (raw - mean) / sqrt(variance + epsilon), where raw has `channels` channels.
template <typename T>
double Normalized(const BatchNorm<T>& norm, const T* raw, int64_t i, int64_t channels) {
  const int64_t c = i % channels;
  return (static_cast<double>(raw[i]) - norm.mean[c]) * InverseDeviation(norm, c);
}

// Element i of batch_norm(raw), before the activation.
template <typename T>
double PreActivation(const Lazy<T>& x, int64_t i) {
  if (x.batch_norm == nullptr) return x.raw[i];
  const int64_t c = i % x.shape.c;
  return x.batch_norm->gamma[c] * Normalized(*x.batch_norm, x.raw, i, x.shape.c) +
         x.batch_norm->beta[c];
}

template <typename T>
std::vector<T> Value(const Lazy<T>& x) {
  CHECK(x.skip == nullptr || x.activation == FusedActivation::kNone);
  std::vector<T> value(x.shape.size());
  for (int64_t i = 0; i < x.shape.size(); ++i) {
    if (x.applied != nullptr) {
      value[i] = x.applied[i];
    } else {
      value[i] = static_cast<T>(Activate(x.activation, PreActivation(x, i)) +
                                (x.skip != nullptr ? x.skip[i] : T(0)));
    }
  }
  return value;
}

// The gradient of the convolution's raw output: dz taken back through batch norm.
template <typename T>
std::vector<T> RawGradient(const Shape& shape, const OutputGradient<T>& dy) {
  std::vector<T> out(dy.dz, dy.dz + shape.size());
  if (dy.batch_norm == nullptr) return out;
  const BatchNorm<T>& norm = *dy.batch_norm;
  const double count = static_cast<double>(shape.rows());
  for (int64_t i = 0; i < shape.size(); ++i) {
    const int64_t c = i % shape.c;
    double centred = dy.dz[i];
    if (norm.statistics == Statistics::kBatch) {
      centred -= (dy.dbeta[c] + Normalized(norm, dy.raw, i, shape.c) * dy.dgamma[c]) / count;
    }
    out[i] = static_cast<T>(norm.gamma[c] * InverseDeviation(norm, c) * centred);
  }
  return out;
}

// Computes dz, dbeta and dgamma of x from the gradient of its value.
template <typename T>
void FinishInputGradient(const Lazy<T>& x, const std::vector<T>& dvalue,
                         const InputGradient<T>& dx) {
  const int64_t channels = x.shape.c;
  std::vector<double> dbeta(channels), dgamma(channels);
  for (int64_t i = 0; i < x.shape.size(); ++i) {
    const double upstream = static_cast<double>(dvalue[i]) + (dx.add != nullptr ? dx.add[i] : T(0));
    const double dz = upstream * ActivationSlope(x.activation, PreActivation(x, i));
    dx.dz[i] = static_cast<T>(dz);
    if (x.batch_norm == nullptr) continue;
    dbeta[i % channels] += dz;
    dgamma[i % channels] += dz * Normalized(*x.batch_norm, x.raw, i, channels);
  }
  if (x.batch_norm == nullptr) return;
  for (int64_t c = 0; c < channels; ++c) {
    dx.dbeta[c] = static_cast<T>(dbeta[c]);
    dx.dgamma[c] = static_cast<T>(dgamma[c]);
  }
}

template <typename T>
void ComputeStatistics(const Shape& shape, const T* y, const StatisticsOut<T>& out) {
  if (out.mean == nullptr) return;
  const double count = static_cast<double>(shape.rows());
  for (int64_t c = 0; c < shape.c; ++c) {
    double sum = 0, squares = 0;
    for (int64_t r = 0; r < shape.rows(); ++r) sum += y[r * shape.c + c];
    for (int64_t r = 0; r < shape.rows(); ++r) {
      const double d = y[r * shape.c + c] - sum / count;
      squares += d * d;
    }
    out.mean[c] = static_cast<T>(sum / count);
    out.variance[c] = static_cast<T>(squares / count);
  }
}

// Calls visit(output row, input row, tap) for every output pixel and kernel tap that reads inside
// the input. A row is the number of a pixel over all samples.
template <typename Visit>
void ForEachTap(const ConvolutionShape& s, Visit visit) {
  const Shape out = s.out();
  for (int64_t n = 0; n < out.n; ++n) {
    for (int64_t oh = 0; oh < out.h; ++oh) {
      for (int64_t ow = 0; ow < out.w; ++ow) {
        for (int kh = 0; kh < s.kernel; ++kh) {
          for (int kw = 0; kw < s.kernel; ++kw) {
            const int64_t ih = oh * s.stride + kh - s.padding.top;
            const int64_t iw = ow * s.stride + kw - s.padding.left;
            if (ih < 0 || ih >= s.in.h || iw < 0 || iw >= s.in.w) continue;
            visit((n * out.h + oh) * out.w + ow, (n * s.in.h + ih) * s.in.w + iw,
                  int64_t{kh} * s.kernel + kw);
          }
        }
      }
    }
  }
}

template <typename T>
void Store(const std::vector<double>& values, T* out) {
  for (size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(values[i]);
}

template <typename T>
class ReferenceOperators : public HostOperators<T> {
 public:
  int64_t ConvolutionWorkspace(const ConvolutionShape&) const override { return 0; }
  int64_t DepthwiseWorkspace(const ConvolutionShape&) const override { return 0; }
  int64_t PoolWorkspace(const Shape&) const override { return 0; }

  void Apply(const Lazy<T>& x, T* out) override {
    Lazy<T> computed = x;
    computed.applied = nullptr;
    const std::vector<T> value = Value(computed);
    std::copy(value.begin(), value.end(), out);
  }

  void Convolution(const ConvolutionShape& shape, const Lazy<T>& x, const T* weights, const T* bias,
                   T* y, const StatisticsOut<T>& statistics, const Workspace&) override {
    const std::vector<T> value = Value(x);
    const int64_t ci = shape.in.c, co = shape.out_channels;
    std::vector<double> out(shape.out().size());
    if (bias != nullptr) {
      for (int64_t i = 0; i < shape.out().size(); ++i) out[i] = bias[i % co];
    }
    ForEachTap(shape, [&](int64_t out_row, int64_t in_row, int64_t tap) {
      double* const to = &out[out_row * co];
      for (int64_t i = 0; i < ci; ++i) {
        const double x_i = value[in_row * ci + i];
        const T* const w = weights + (tap * ci + i) * co;
        for (int64_t o = 0; o < co; ++o) to[o] += x_i * w[o];
      }
    });
    Store(out, y);
    ComputeStatistics(shape.out(), y, statistics);
  }

  void ConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x, const T* weights,
                           const OutputGradient<T>& dz, T* dweights, T* dbias,
                           const InputGradient<T>& dx, const Workspace&) override {
    const std::vector<T> value = Value(x), dy = RawGradient(shape.out(), dz);
    const int64_t ci = shape.in.c, co = shape.out_channels;
    std::vector<double> dw(shape.dense_weights()), dv(shape.in.size()), db(co);
    ForEachTap(shape, [&](int64_t out_row, int64_t in_row, int64_t tap) {
      const T* const g = &dy[out_row * co];
      for (int64_t i = 0; i < ci; ++i) {
        const double x_i = value[in_row * ci + i];
        const T* const w = weights + (tap * ci + i) * co;
        double* const dw_i = &dw[(tap * ci + i) * co];
        double dx_i = 0;
        for (int64_t o = 0; o < co; ++o) {
          dw_i[o] += g[o] * x_i;
          dx_i += static_cast<double>(g[o]) * w[o];
        }
        dv[in_row * ci + i] += dx_i;
      }
    });
    for (int64_t i = 0; i < shape.out().size(); ++i) db[i % co] += dy[i];
    Store(dw, dweights);
    if (dbias != nullptr) Store(db, dbias);
    if (dx.dz != nullptr) FinishInputGradient(x, std::vector<T>(dv.begin(), dv.end()), dx);
  }

  void DepthwiseConvolution(const ConvolutionShape& shape, const Lazy<T>& x, const T* weights, T* y,
                            const StatisticsOut<T>& statistics, const Workspace&) override {
    CHECK_EQ(shape.in.c, shape.out_channels);
    const std::vector<T> value = Value(x);
    const int64_t channels = shape.in.c;
    std::vector<double> out(shape.out().size());
    ForEachTap(shape, [&](int64_t out_row, int64_t in_row, int64_t tap) {
      for (int64_t c = 0; c < channels; ++c) {
        out[out_row * channels + c] +=
            static_cast<double>(value[in_row * channels + c]) * weights[tap * channels + c];
      }
    });
    Store(out, y);
    ComputeStatistics(shape.out(), y, statistics);
  }

  void DepthwiseConvolutionBackward(const ConvolutionShape& shape, const Lazy<T>& x,
                                    const T* weights, const OutputGradient<T>& dz, T* dweights,
                                    const InputGradient<T>& dx, const Workspace&) override {
    CHECK_EQ(shape.in.c, shape.out_channels);
    const std::vector<T> value = Value(x), dy = RawGradient(shape.out(), dz);
    const int64_t channels = shape.in.c;
    std::vector<double> dw(shape.depthwise_weights()), dv(shape.in.size());
    ForEachTap(shape, [&](int64_t out_row, int64_t in_row, int64_t tap) {
      for (int64_t c = 0; c < channels; ++c) {
        const double g = dy[out_row * channels + c];
        dw[tap * channels + c] += g * value[in_row * channels + c];
        dv[in_row * channels + c] += g * weights[tap * channels + c];
      }
    });
    Store(dw, dweights);
    if (dx.dz != nullptr) FinishInputGradient(x, std::vector<T>(dv.begin(), dv.end()), dx);
  }

  void GlobalAveragePool(const Lazy<T>& x, T* y) override {
    const std::vector<T> value = Value(x);
    const int64_t pixels = x.shape.h * x.shape.w, channels = x.shape.c;
    std::vector<double> out(x.shape.n * channels);
    for (int64_t r = 0; r < x.shape.rows(); ++r) {
      for (int64_t c = 0; c < channels; ++c) {
        out[r / pixels * channels + c] +=
            static_cast<double>(value[r * channels + c]) / static_cast<double>(pixels);
      }
    }
    Store(out, y);
  }

  void GlobalAveragePoolBackward(const Lazy<T>& x, const T* dy, const InputGradient<T>& dx,
                                 const Workspace&) override {
    if (dx.dz == nullptr) return;
    const int64_t pixels = x.shape.h * x.shape.w, channels = x.shape.c;
    std::vector<T> dvalue(x.shape.size());
    for (int64_t i = 0; i < x.shape.size(); ++i) {
      dvalue[i] = dy[i / channels / pixels * channels + i % channels] / static_cast<T>(pixels);
    }
    FinishInputGradient(x, dvalue, dx);
  }

  void Dropout(int64_t size, const T* x, double rate, const uint64_t* seed, uint64_t salt,
               T* y) override {
    const uint64_t threshold = DropoutThreshold(rate);
    const uint64_t salted = *seed ^ salt;
    const T scale = static_cast<T>(1.0 / (1.0 - rate));
    for (int64_t i = 0; i < size; ++i) {
      y[i] = HashIndex(salted, i) < threshold ? T(0) : x[i] * scale;
    }
  }

 protected:
  void ParallelFor(int64_t count, absl::FunctionRef<void(int64_t)> body) override {
    for (int64_t i = 0; i < count; ++i) body(i);
  }
};

}  // namespace

template <typename T>
std::unique_ptr<Operators<T>> MakeReferenceOperators() {
  return std::make_unique<ReferenceOperators<T>>();
}

template std::unique_ptr<Operators<float>> MakeReferenceOperators<float>();
template std::unique_ptr<Operators<double>> MakeReferenceOperators<double>();

}  // namespace pushpull
