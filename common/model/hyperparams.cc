// Tested by tests/common/model/ssd/ssd_network_test.cc.
#include "common/model/hyperparams.h"

#include <cmath>

#include "glog/logging.h"

namespace pushpull {
namespace {

// The deviation of a standard normal distribution that is truncated at 2.
constexpr double kTruncatedDeviation = 0.87962566103423978;
// TensorFlow's tf.variance_scaling_initializer draws with a deviation of
// sqrt(scale / n) / kTruncatedDeviation, and our variance scaling with sqrt(1.3 factor / n), as
// slim does. A scale times this is the factor that makes them equal.
constexpr double kFactorOfScale = 1.0 / (1.3 * kTruncatedDeviation * kTruncatedDeviation);
constexpr float kSlimDeviation = 0.09f;
constexpr float kSlimL2Weight = 4e-5f;

ActivationFunction ResolveActivation(config::Hyperparams::Activation activation) {
  switch (activation) {
    case config::Hyperparams::RELU:
      return ActivationFunction::kRelu;
    case config::Hyperparams::RELU_6:
      return ActivationFunction::kRelu6;
    case config::Hyperparams::NONE:
      return ActivationFunction::kNone;
    case config::Hyperparams::SWISH:
      return ActivationFunction::kSwish;
  }
  LOG(FATAL) << "activation " << config::Hyperparams::Activation_Name(activation);
}

Initializer ScaleVariance(const config::VarianceScalingInitializer& scaling,
                          const std::vector<int64_t>& shape) {
  const size_t rank = shape.size();
  double fan_in = rank > 1 ? shape[rank - 2] : shape[rank - 1];
  double fan_out = shape[rank - 1];
  for (size_t i = 0; i + 2 < rank; ++i) {
    fan_in *= shape[i];
    fan_out *= shape[i];
  }
  double n = fan_in;
  if (scaling.mode() == config::VarianceScalingInitializer::FAN_OUT) n = fan_out;
  if (scaling.mode() == config::VarianceScalingInitializer::FAN_AVG) n = (fan_in + fan_out) / 2.0;
  if (scaling.uniform()) {
    return {Initializer::Kind::kUniform, 0.0f,
            static_cast<float>(std::sqrt(3.0 * scaling.factor() / n))};
  }
  return {Initializer::Kind::kTruncatedNormal, 0.0f,
          static_cast<float>(std::sqrt(1.3 * scaling.factor() / n))};
}

}  // namespace

LayerHyperparams SlimHyperparams() {
  LayerHyperparams result;
  result.initializer.mutable_truncated_normal_initializer()->set_stddev(kSlimDeviation);
  result.l2_weight = kSlimL2Weight;
  return result;
}

config::WeightInitializer ScaledNormalInitializer(double scale) {
  config::WeightInitializer result;
  result.mutable_variance_scaling_initializer()->set_factor(
      static_cast<float>(scale * kFactorOfScale));
  return result;
}

config::WeightInitializer HeNormalInitializer() { return ScaledNormalInitializer(2.0); }

ActivationFunction Relu6UnlessSwish(ActivationFunction activation) {
  return activation == ActivationFunction::kSwish ? activation : ActivationFunction::kRelu6;
}

LayerHyperparams ResolveHyperparams(const config::Hyperparams& hyperparams) {
  LayerHyperparams result = SlimHyperparams();
  if (hyperparams.initializer().initializer_oneof_case() !=
      config::WeightInitializer::INITIALIZER_ONEOF_NOT_SET) {
    result.initializer = hyperparams.initializer();
  }
  result.l2_weight = hyperparams.regularizer().has_l2_regularizer()
                         ? hyperparams.regularizer().l2_regularizer().weight()
                         : 0.0f;
  result.regularize_depthwise = hyperparams.regularize_depthwise();
  result.activation = ResolveActivation(hyperparams.activation());
  if (!hyperparams.has_batch_norm()) {
    result.batch_norm.reset();
    return result;
  }
  const config::BatchNorm& batch_norm = hyperparams.batch_norm();
  result.batch_norm->decay = batch_norm.decay();
  result.batch_norm->epsilon = batch_norm.epsilon();
  result.batch_norm->center = batch_norm.center();
  result.batch_norm->scale = batch_norm.scale();
  result.batch_norm->frozen = !batch_norm.train();
  result.batch_norm->bias_corrected = batch_norm.bias_corrected_moving_statistics();
  return result;
}

LayerHyperparams ResolveDetectorHyperparams(const config::Hyperparams& hyperparams) {
  LayerHyperparams result = ResolveHyperparams(hyperparams);
  result.regularize_depthwise =
      !hyperparams.has_regularize_depthwise() || hyperparams.regularize_depthwise();
  return result;
}

Initializer ResolveInitializer(const config::WeightInitializer& initializer,
                               const std::vector<int64_t>& shape) {
  switch (initializer.initializer_oneof_case()) {
    case config::WeightInitializer::kTruncatedNormalInitializer:
      return {Initializer::Kind::kTruncatedNormal,
              initializer.truncated_normal_initializer().mean(),
              initializer.truncated_normal_initializer().stddev()};
    case config::WeightInitializer::kRandomNormalInitializer:
      return {Initializer::Kind::kRandomNormal, initializer.random_normal_initializer().mean(),
              initializer.random_normal_initializer().stddev()};
    case config::WeightInitializer::kVarianceScalingInitializer:
      return ScaleVariance(initializer.variance_scaling_initializer(), shape);
    case config::WeightInitializer::kKerasInitializerByName:  // not supported
    case config::WeightInitializer::INITIALIZER_ONEOF_NOT_SET:
      break;
  }
  return {};
}

}  // namespace pushpull
