#include "tests/testkit/kernels/convolution_case.h"

#include <cmath>

#include "common/base/random.h"

namespace pushpull {

namespace {

using Input = ConvolutionCase::Input;
using Norm = ConvolutionCase::Norm;

double ToDouble(double value) { return value; }
double ToDouble(float value) { return value; }
double ToDouble(Bfloat16 value) { return ToFloat(value); }

template <typename T>
T FromDouble(double value) {
  return static_cast<T>(value);
}
template <>
Bfloat16 FromDouble<Bfloat16>(double value) {
  return ToBfloat16(static_cast<float>(value));
}

// Returns normally distributed random numbers, rounded to Stored.
template <typename T, typename Stored>
std::vector<T> Values(int64_t count, uint64_t stream, double scale = 1, double offset = 0) {
  CounterRandom random(20240607, stream);
  std::vector<T> values(count);
  for (T& value : values) {
    const double drawn = offset + scale * random.NextNormal();
    value = FromDouble<T>(ToDouble(FromDouble<Stored>(drawn)));
  }
  return values;
}

// The vectors of a batch norm, whose statistics need not match any tensor.
template <typename P>
struct NormVectors {
  NormVectors(const OperandMemory& memory, int64_t channels, uint64_t stream)
      : gamma(memory, Values<P, float>(channels, stream, 0.2, 1)),
        beta(memory, Values<P, float>(channels, stream + 1, 0.5, 0.5)),
        mean(memory, Values<P, float>(channels, stream + 2, 0.3)),
        variance(memory, Variance(channels, stream + 3)) {}
  BatchNorm<P> View(Statistics statistics) const {
    return {gamma.data(), beta.data(), mean.data(), variance.data(), 1e-3, statistics};
  }
  static std::vector<P> Variance(int64_t channels, uint64_t stream) {
    std::vector<P> variance = Values<P, float>(channels, stream, 0.2);
    for (P& v : variance) v = static_cast<float>(0.3 + std::abs(v));
    return variance;
  }
  Operand<P> gamma, beta, mean, variance;
};

bool HasNorm(Input input) {
  return input == Input::kNormRelu6 || input == Input::kNormSkip || input == Input::kApplied;
}

bool HasSkip(Input input) {
  return input == Input::kNormSkip || input == Input::kSkip || input == Input::kApplied;
}

FusedActivation ActivationOf(Input input) {
  if (input == Input::kNormRelu6) return FusedActivation::kRelu6;
  return input == Input::kRelu ? FusedActivation::kRelu : FusedActivation::kNone;
}

template <typename T, typename Stored>
class CaseRun {
 public:
  using P = ParameterOf<T>;

  CaseRun(const ConvolutionCase& test, Operators<T>* operators, const OperandMemory& memory)
      : test_(test),
        shape_(test.shape),
        dense_(test.kind == ConvolutionCase::Kind::kDense),
        operators_(operators),
        memory_(memory),
        weight_count_(dense_ ? shape_.dense_weights() : shape_.depthwise_weights()),
        raw_(memory, Values<T, Stored>(shape_.in.size(), 1, test.scale)),
        skip_(memory, Values<T, Stored>(shape_.in.size(), 2, test.scale)),
        weights_(memory, Values<P, float>(weight_count_, 3, 0.3 * test.scale)),
        bias_(memory, Values<P, float>(shape_.out_channels, 4, test.scale)),
        in_norm_(memory, shape_.in.c, 10),
        in_view_(in_norm_.View(Statistics::kBatch)),
        applied_(memory, shape_.in.size()),
        y_(memory, shape_.out().size()),
        workspace_bytes_(dense_ ? operators->ConvolutionWorkspace(shape_)
                                : operators->DepthwiseWorkspace(shape_)),
        workspace_(memory, workspace_bytes_) {
    x_ = {shape_.in,
          raw_.data(),
          HasNorm(test.input) ? &in_view_ : nullptr,
          ActivationOf(test.input),
          HasSkip(test.input) ? skip_.data() : nullptr,
          nullptr};
  }

  std::vector<NamedTensor> Run() {
    if (test_.input == Input::kApplied) {
      operators_->Apply(x_, applied_.data());
      x_.applied = applied_.data();
      Keep("applied", applied_);
    }
    Forward();
    Backward();
    workspace_.CheckGuards(test_.name + " workspace");
    return std::move(results_);
  }

 private:
  template <typename U>
  void Keep(const char* name, const Operand<U>& output) {
    NamedTensor tensor{name, {}};
    for (const U value : output.Read(test_.name + " " + name)) {
      tensor.values.push_back(ToDouble(value));
    }
    results_.push_back(std::move(tensor));
  }

  Workspace workspace() const { return {workspace_.data(), workspace_bytes_}; }

  void Forward() {
    const Operand<P> mean(memory_, shape_.out_channels), variance(memory_, shape_.out_channels);
    const bool wanted = test_.output == Norm::kBatch;
    const StatisticsOut<T> statistics =
        wanted ? StatisticsOut<T>{mean.data(), variance.data()} : StatisticsOut<T>{};
    if (dense_) {
      operators_->Convolution(shape_, x_, weights_.data(), test_.bias ? bias_.data() : nullptr,
                              y_.data(), statistics, workspace());
    } else {
      operators_->DepthwiseConvolution(shape_, x_, weights_.data(), y_.data(), statistics,
                                       workspace());
    }
    Keep("y", y_);
    if (!wanted) return;
    Keep("mean", mean);
    Keep("variance", variance);
  }

  void Backward() {
    const Shape out = shape_.out();
    const Operand<T> add(memory_, Values<T, Stored>(shape_.in.size(), 5, test_.scale)),
        dz(memory_, Values<T, Stored>(out.size(), 6, test_.scale));
    const NormVectors<P> out_norm(memory_, out.c, 20);
    const Operand<P> dbeta(memory_, Values<P, float>(out.c, 30)),
        dgamma(memory_, Values<P, float>(out.c, 31));
    const BatchNorm<P> out_view =
        out_norm.View(test_.output == Norm::kFrozen ? Statistics::kFrozen : Statistics::kBatch);
    OutputGradient<T> dy{dz.data(), nullptr, nullptr, nullptr, nullptr};
    if (test_.output != Norm::kNone) {
      dy = {dz.data(), y_.data(), &out_view, dbeta.data(), dgamma.data()};
    }
    const Operand<P> dweights(memory_, weight_count_), dbias(memory_, out.c),
        dx_beta(memory_, shape_.in.c), dx_gamma(memory_, shape_.in.c);
    const Operand<T> dx(memory_, shape_.in.size());
    const bool norm = x_.batch_norm != nullptr;
    InputGradient<T> dinput;
    if (test_.input_gradient) {
      dinput = {dx.data(), test_.add ? add.data() : nullptr, norm ? dx_beta.data() : nullptr,
                norm ? dx_gamma.data() : nullptr};
    }
    if (dense_) {
      operators_->ConvolutionBackward(shape_, x_, weights_.data(), dy, dweights.data(),
                                      test_.bias ? dbias.data() : nullptr, dinput, workspace());
    } else {
      operators_->DepthwiseConvolutionBackward(shape_, x_, weights_.data(), dy, dweights.data(),
                                               dinput, workspace());
    }
    Keep("dweights", dweights);
    if (test_.bias) Keep("dbias", dbias);
    if (!test_.input_gradient) return;
    Keep("dx", dx);
    if (!norm) return;
    Keep("dbeta", dx_beta);
    Keep("dgamma", dx_gamma);
  }

  const ConvolutionCase& test_;
  const ConvolutionShape shape_;
  const bool dense_;
  Operators<T>* const operators_;
  const OperandMemory memory_;
  const int64_t weight_count_;
  const Operand<T> raw_, skip_;
  const Operand<P> weights_, bias_;
  const NormVectors<P> in_norm_;
  const BatchNorm<P> in_view_;
  const Operand<T> applied_, y_;
  const int64_t workspace_bytes_;
  const GuardedBlock workspace_;
  Lazy<T> x_;
  std::vector<NamedTensor> results_;
};

}  // namespace

void PrintTo(const ConvolutionCase& test, std::ostream* out) { *out << test.name; }

template <typename T, typename Stored>
std::vector<NamedTensor> RunCase(const ConvolutionCase& test, Operators<T>* operators,
                                 const OperandMemory& memory) {
  return CaseRun<T, Stored>(test, operators, memory).Run();
}

template std::vector<NamedTensor> RunCase<float>(const ConvolutionCase&, Operators<float>*,
                                                 const OperandMemory&);
template std::vector<NamedTensor> RunCase<Bfloat16>(const ConvolutionCase&, Operators<Bfloat16>*,
                                                    const OperandMemory&);
template std::vector<NamedTensor> RunCase<double>(const ConvolutionCase&, Operators<double>*,
                                                  const OperandMemory&);
template std::vector<NamedTensor> RunCase<double, float>(const ConvolutionCase&, Operators<double>*,
                                                         const OperandMemory&);
template std::vector<NamedTensor> RunCase<double, Bfloat16>(const ConvolutionCase&,
                                                            Operators<double>*,
                                                            const OperandMemory&);

}  // namespace pushpull
